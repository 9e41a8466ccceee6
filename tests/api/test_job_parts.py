"""What is told of a job beside its record: usage, predictions, dependencies, alone or with the record."""

from typing import Any

import httpx

from oar.api.concurrency import Rate
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.db.database import Database
from oar.lib.jobs import views
from oar.lib.jobs.curves import Sample
from oar.lib.jobs.sql_curves import NewPoints
from oar.lib.jobs.sql_waits import ToldStart
from oar.lib.jobs.states import JobState
from oar.lib.jobs.usage import job_usages
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.builders import add_job, add_resources
from tests.process.this_machine import wait_until


def _require(database: Database, *pairs: tuple[int, int]) -> None:
    with database.begin() as tx:
        for job, required in pairs:
            tx.execute("INSERT INTO job_dependencies (job_id, job_id_required) VALUES (%s, %s)", (job, required))


def test_the_usage_is_what_oarstat_tells(anonymous: httpx.Client, database: Database) -> None:
    job = add_job(database, JobState.TERMINATED, on=add_resources(database)[:1])
    with database.snapshot() as tx:
        (usage,) = job_usages(tx, [tx.jobs.get(job)], "cpuset")
    assert anonymous.get(f"/v1/jobs/{job}/usage").json() == usage.record
    assert anonymous.get("/v1/jobs/999999/usage").status_code == 404


def test_curves_are_told_by_node_and_together(anonymous: httpx.Client, database: Database) -> None:
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    none: dict[str, Any] = {"begin": None, "step": None, "total": None, "nodes": {}}
    assert anonymous.get(f"/v1/jobs/{job}/curves").json() == none
    with database.begin() as tx:
        tx.job_curves.append([NewPoints(job, "node-1", 1000, 30, [(1, Sample(1500, 2, 500, 1, 2))])])
    told = anonymous.get(f"/v1/jobs/{job}", params={"include": "curves"}).json()["curves"]
    assert told == anonymous.get(f"/v1/jobs/{job}/curves").json()
    assert (told["begin"], told["step"]) == (1000, 30)
    values = {"gpus": 2, "cpu": [None, 1.5], "memory": [None, 2 << 20], "gpu": [None, 0.5]}
    values["gpu_memory"] = [None, 1 << 20]
    assert told["nodes"] == {"node-1": values}
    assert told["total"] == values
    assert anonymous.get("/v1/jobs/999999/curves").status_code == 404


def test_the_smallest_change_of_a_job_that_waits_is_told(nobody: httpx.Client, api: Api, database: Database) -> None:
    resources = add_resources(database, nodes=2)
    blocking = add_job(database, JobState.RUNNING, on=resources[:1])
    job = nobody.post("/v1/jobs", json={"command": "true", "resources": "nodes=2", "walltime": 60}).json()["id"]
    MetaScheduler(Runtime(api.runtime.config, Database(database.settings))).round()
    told = nobody.get(f"/v1/jobs/{job}/explanation", params={"change": True}).json()
    assert (told["smallest_change"], told["smallest_change_known"]) == (
        "network_address=1 instead of network_address=2",
        True,
    )
    plain = nobody.get(f"/v1/jobs/{job}/explanation").json()
    assert set(told) - set(plain) == {"smallest_change", "smallest_change_known"}
    running = nobody.get(f"/v1/jobs/{blocking}/explanation", params={"change": True}).json()
    assert "smallest_change" not in running


def test_so_many_estimates_are_answered(nobody: httpx.Client, api: Api, database: Database) -> None:
    add_resources(database)
    asked = {"alternatives": [{"command": "true"}]}
    assert nobody.post("/v1/estimates", json=asked).headers["ratelimit-limit"] == "10"
    api.service.estimates.rate = Rate(0.0001, 1, "API_RATE_ESTIMATE")  # in a test nothing may come back with time
    answers = [nobody.post("/v1/estimates", json=asked) for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 429]
    assert answers[1].json()["detail"] == (
        "too many estimates of one client: the limit is 0.0001 a second, and 1 at once (API_RATE_ESTIMATE)."
        " Try again in 10000 s."
    )
    assert nobody.get("/v1/jobs").status_code == 200


def test_predictions_are_what_the_job_was_told(anonymous: httpx.Client, database: Database) -> None:
    job = add_job(database)
    assert anonymous.get(f"/v1/jobs/{job}/predictions").json() == {"items": []}
    with database.begin() as tx:
        tx.job_waits.store_first_predictions([ToldStart(job, "default", 5000)])
        date = tx.now
    first = {"when": "first", "date": date, "start": 5000, "late_by": None}
    assert anonymous.get(f"/v1/jobs/{job}/predictions").json() == {"items": [first]}
    with database.begin() as tx:
        tx.job_waits.store_near_predictions([ToldStart(job, "default", 5200)])
        tx.job_waits.store_starts({job: 5260})
    told = anonymous.get(f"/v1/jobs/{job}/predictions").json()["items"]
    assert [(each["when"], each["start"], each["late_by"]) for each in told] == [
        ("first", 5000, 260),
        ("near", 5200, 60),
    ]


def test_dependencies_are_told_both_ways_and_three_steps_far(anonymous: httpx.Client, database: Database) -> None:
    jobs = [add_job(database) for _ in range(9)]
    _require(database, *zip(jobs[1:], jobs[:-1], strict=True))
    around = anonymous.get(f"/v1/jobs/{jobs[4]}/dependencies").json()
    assert [each["id"] for each in around["jobs"]] == jobs[1:8]
    assert [(each["job"], each["requires"]) for each in around["dependencies"]] == [
        (jobs[place], jobs[place - 1]) for place in range(2, 8)
    ]
    assert around["complete"]
    alone = add_job(database)
    assert [each["id"] for each in anonymous.get(f"/v1/jobs/{alone}/dependencies").json()["jobs"]] == [alone]


def test_a_circle_and_a_crowd_come_to_an_end(database: Database) -> None:
    first, second, *others = (add_job(database) for _ in range(6))
    _require(database, (first, second), (second, first), *((other, first) for other in others))
    most, views.MAX_DEPENDENCIES = views.MAX_DEPENDENCIES, 3
    try:
        with database.snapshot() as tx:
            around = views.jobs_around(tx, first)
    finally:
        views.MAX_DEPENDENCIES = most
    assert not around.is_complete
    assert (first, second) in [(each.job_id, each.required) for each in around.dependencies]


def test_one_request_tells_all_of_a_job(anonymous: httpx.Client, database: Database) -> None:
    job = add_job(database)
    parts = ("explanation", "states", "usage", "predictions", "jobs_around")

    def together() -> dict[str, Any]:
        record = anonymous.get(f"/v1/jobs/{job}", params={"include": ",".join(parts)}).json()
        return {part: record[part] for part in parts}

    def one_by_one() -> dict[str, Any]:
        routes = dict(zip(parts, (*parts[:4], "dependencies"), strict=True))
        alone = {part: anonymous.get(f"/v1/jobs/{job}/{route}").json() for part, route in routes.items()}
        return {part: record.get("items", record) for part, record in alone.items()}

    wait_until(lambda: together() == one_by_one())  # a second may begin between them: how long it waits is told
    refused = anonymous.get(f"/v1/jobs/{job}", params={"include": "states,secrets"})
    assert refused.status_code == 400
    assert "'secrets'" in refused.json()["detail"]

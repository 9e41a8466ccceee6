"""What administrators are told before they take nodes away: who is there, until when, what is planned."""

import time
from collections.abc import Callable

import httpx

from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources
from tests.db.reservation_rows import add_reservation

HOUR = 3600


def test_jobs_that_end_before_are_cut_or_start_later_are_told(local: httpx.Client, database: Database) -> None:
    resources, now = add_resources(database), int(time.time())
    short = add_job(database, JobState.RUNNING, on=resources[:1], walltime=HOUR, name="short")
    long = add_job(database, JobState.RUNNING, on=resources[1:3], walltime=5 * HOUR)
    add_job(database, JobState.TERMINATED, on=resources[:1])
    elsewhere = add_job(database, JobState.RUNNING, on=resources[3:], walltime=HOUR)
    planned = add_job(database, user="bob")
    with database.begin() as tx:
        moldable = tx.new_jobs.moldables_of_jobs([planned])[planned][0].id
        tx.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (%s, %s)", (moldable, now + 3 * HOUR))
        tx.execute(
            "INSERT INTO gantt_jobs_sets_visu (moldable_job_id, resources) VALUES (%s, %s)", (moldable, resources[:1])
        )
    wish = {"nodes": ["node-1"], "from": now + 2 * HOUR, "to": now + 9 * HOUR}
    told = local.post("/v1/resources/outlook", json=wish).raise_for_status().json()
    assert {job["id"]: job["fate"] for job in told["jobs"]} == {short: "ends", long: "cut", planned: "delayed"}
    assert elsewhere not in {job["id"] for job in told["jobs"]}
    ends = {job["id"]: job["end"] for job in told["jobs"]}
    assert told["nodes"] == [{"name": "node-1", "empty": ends[long]}]
    assert (told["from"], told["to"], told["reservations"]) == (wish["from"], wish["to"], [])
    sooner = local.post("/v1/resources/outlook", json={"nodes": ["node-1"], "to": now + HOUR}).json()
    assert {job["id"]: job["fate"] for job in sooner["jobs"]} == {short: "cut", long: "cut"}


def test_advance_reservations_in_the_way_are_told(local: httpx.Client, database: Database) -> None:
    resources, now = add_resources(database), int(time.time())
    for begin, on in ((2, resources[:2]), (20, resources[:2]), (2, resources[2:])):
        start = now + begin * HOUR
        add_reservation(database, start_time=start, end_time=start + HOUR, resources=on)
    wish = {"nodes": ["node-1"], "from": now + HOUR, "to": now + 9 * HOUR}
    told = local.post("/v1/resources/outlook", json=wish).raise_for_status().json()
    assert [each["start"] for each in told["reservations"]] == [now + 2 * HOUR]
    assert told["nodes"][0]["empty"] <= int(time.time())


def test_what_cannot_be_told_is_refused(
    local: httpx.Client, nobody: httpx.Client, known: Callable[[str, str], httpx.Client], database: Database
) -> None:
    add_resources(database)
    for wish, status in (
        ({"nodes": ["nowhere"]}, 404),
        ({"nodes": []}, 400),
        ({"nodes": ["node-1"], "from": 5, "to": 5}, 400),
        ({"nodes": ["node-1"], "hope": 1}, 400),
    ):
        assert local.post("/v1/resources/outlook", json=wish).status_code == status, wish
    assert nobody.post("/v1/resources/outlook", json={"nodes": ["node-1"]}).status_code == 403

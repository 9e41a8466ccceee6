"""What is done with jobs that exist, through the API: the same as by the commands."""

from typing import Any

import httpx
import pytest

from oar.api.estimates import EstimateJobs
from oar.api.job_request import AskedJobs, JobRequest
from oar.api.workers import Desk
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.lib.access.records import User
from oar.lib.bus.messages import Ask, Effect, JobAction
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from oar.lib.submission.options import JobOptions
from tests.api.conftest import Api
from tests.builders import add_job, add_resources, for_no_reason, state_of


def _mine(database: Database, state: JobState = JobState.WAITING, **columns: Any) -> int:
    resources = add_resources(database)
    return add_job(database, state, on=resources[:1], user="nobody", **columns)


def test_a_job_is_held_and_resumed(nobody: httpx.Client, database: Database) -> None:
    job = _mine(database)
    assert nobody.post(f"/v1/jobs/{job}/hold").json()["done"] == "hold registered"
    assert state_of(database, job) is JobState.HOLD
    assert nobody.post(f"/v1/jobs/{job}/resume").status_code == 202
    assert state_of(database, job) is JobState.WAITING


@pytest.mark.parametrize(
    "act",
    [
        ("DELETE", "", None),
        ("POST", "/hold", None),
        ("POST", "/resume", None),
        ("POST", "/checkpoint", None),
        ("POST", "/signal", {"signal": "USR1"}),
        ("POST", "/walltime", {"change": 60}),
        ("POST", "/resubmission", None),
        ("PATCH", "", {"name": "x"}),
        ("PUT", "/besteffort", {"on": True}),
    ],
)
def test_the_job_of_somebody_else_is_left_alone(
    api: Api, daemon: httpx.Client, anonymous: httpx.Client, database: Database, act: tuple[str, str, object]
) -> None:
    method, route, body = act
    api.runtime.config = Config(walltime_change_enabled=True)
    ended = route == "/resubmission"
    job = _mine(database, JobState.TERMINATED if ended else JobState.RUNNING)
    assert daemon.request(method, f"/v1/jobs/{job}{route}", json=body).status_code == 403
    assert anonymous.request(method, f"/v1/jobs/{job}{route}", json=body).status_code == 401
    assert state_of(database, job) is (JobState.TERMINATED if ended else JobState.RUNNING)


def test_a_job_that_is_being_deleted_is_told_so(nobody: httpx.Client, database: Database) -> None:
    job = _mine(database)
    nobody.delete(f"/v1/jobs/{job}")
    again = nobody.delete(f"/v1/jobs/{job}")
    assert (again.status_code, again.json()["type"]) == (409, "already-killed")
    assert again.json()["detail"] == f"Cannot frag {job} ; This job was already killed."


def test_a_job_that_does_not_exist_is_not_found(nobody: httpx.Client) -> None:
    altered = nobody.patch("/v1/jobs/99", json={"name": "x"})
    for answer in (nobody.delete("/v1/jobs/99"), nobody.post("/v1/jobs/99/hold"), altered):
        assert (answer.status_code, answer.json()["type"]) == (404, "no-such-job")


def test_a_signal_is_asked_of_the_server(nobody: httpx.Client, database: Database) -> None:
    job = _mine(database, JobState.RUNNING)
    told: list[Effect] = []
    database.deliver = told.extend
    assert nobody.post(f"/v1/jobs/{job}/signal", json={"signal": "USR1"}).status_code == 202
    assert nobody.post(f"/v1/jobs/{job}/checkpoint").status_code == 202
    assert [each for each in told if isinstance(each, Ask)] == [Ask(JobAction.SIGNAL, job)] * 2
    assert nobody.post(f"/v1/jobs/{job}/signal", json={"signal": "NONE"}).status_code == 400


def test_another_walltime_is_asked_for(api: Api, nobody: httpx.Client, database: Database) -> None:
    job = _mine(database, JobState.RUNNING)
    assert nobody.post(f"/v1/jobs/{job}/walltime", json={"change": 60}).status_code == 409
    api.runtime.config = Config(walltime_change_enabled=True)
    assert nobody.post(f"/v1/jobs/{job}/walltime", json={"change": "-0:10"}).status_code == 202
    with database.snapshot() as tx:
        assert tx.job_requests.find_walltime_change(job).pending == -600


def test_a_job_is_submitted_again_once(nobody: httpx.Client, database: Database) -> None:
    job = _mine(database, JobState.TERMINATED)
    headers = {"Idempotency-Key": "again"}
    first, second = (nobody.post(f"/v1/jobs/{job}/resubmission", headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] == second.json()["id"] != job
    with database.snapshot() as tx:
        assert tx.jobs.get(first.json()["id"]).resubmit_job_id == job


def test_a_job_that_waits_is_altered(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    job = nobody.post("/v1/jobs", json={"command": "true", "name": "a", "project": "p"}).json()["id"]
    altered = nobody.patch(f"/v1/jobs/{job}", json={"name": None, "project": "q", "resources": "walltime=0:30"})
    assert (altered.status_code, altered.json()["done"]) == (200, "altered")
    with database.snapshot() as tx:
        row = tx.jobs.get(job)
        assert (row.name, row.project, tx.new_jobs.moldables_of_jobs([job])[job][0].walltime) == (None, "q", 1800)
    assert nobody.patch(f"/v1/jobs/{job}", json={}).status_code == 400


def test_alternatives_are_compared_and_nothing_is_stored(nobody: httpx.Client, database: Database) -> None:
    add_resources(database, nodes=2)
    asked = [{"command": "true", "resources": text} for text in ("nodes=1", "nodes=2", "nodes=3")]
    items = nobody.post("/v1/estimates", json={"alternatives": asked}).json()["items"]
    assert [item.get("feasible") for item in items] == [True, True, None]
    assert len(items[1]["hosts"]) == 2
    assert items[2]["problem"]["status"] == 400
    with database.snapshot() as tx:
        assert tx.jobs.live() == []


def test_alternatives_for_which_no_time_is_left_are_told_so(database: Database) -> None:
    add_resources(database)
    desk = Desk(database.settings)
    desk.config = Config(estimate_timeout=-1)
    outcome = EstimateJobs(User("nobody", 65534), [AskedJobs(JobOptions(), "true")]).run(desk)
    assert outcome.record["items"][0]["problem"]["type"] == "too-late"


def test_the_jobs_of_an_array_that_wait_are_altered(
    nobody: httpx.Client, daemon: httpx.Client, database: Database
) -> None:
    add_resources(database)
    ids = nobody.post("/v1/jobs", json={"command": "true", "array": 3, "name": "old"}).json()["ids"]
    with database.begin() as tx:
        lifecycle.move_all(tx, ids[:1], JobState.ERROR, because=for_no_reason(ids[0]))
    assert daemon.patch(f"/v1/arrays/{ids[0]}", json={"name": "mine"}).json()["items"][0]["problem"]["status"] == 403
    answer = nobody.patch(f"/v1/arrays/{ids[0]}", json={"name": "new"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["items"] == [{"id": job_id, "done": "altered"} for job_id in ids[1:]]
    with database.snapshot() as tx:
        assert [job.name for job in tx.jobs.of_arrays([ids[0]])] == ["old", "new", "new"]
    assert nobody.patch("/v1/arrays/999999", json={"name": "new"}).status_code == 404


def test_alternatives_stand_in_one_situation_but_not_beside_one_another(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_resources(database)
    asked: list[dict[str, Any]] = [
        {"command": "x", "resources": f"resource_id={number}", "walltime": 60} for number in (4, 2, 3, 9)
    ]
    asked[1]["array"] = 2
    desk = Desk(database.settings)
    readings: list[object] = []
    read = SnapshotReader.read

    def counted(self: SnapshotReader, *given: Any) -> Any:
        readings.append(self)
        return read(self, *given)

    monkeypatch.setattr(SnapshotReader, "read", counted)
    alternatives = [JobRequest.model_validate(each).asked for each in asked]
    user = User("nobody", 65534)
    together = EstimateJobs(user, alternatives).run(desk).record["items"]
    assert len(readings) == 1
    alone = [EstimateJobs(user, [each]).run(desk).record["items"][0] for each in alternatives]
    now = together[0]["start"]
    assert [each.get("start", "refused") for each in together] == [now, now, now, "refused"]
    assert [len(each.get("jobs", ())) for each in together] == [0, 2, 0, 0]
    for one, other in zip(together, alone, strict=True):
        assert (one.get("resources"), one.get("feasible")) == (other.get("resources"), other.get("feasible"))


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/jobs"), ("DELETE", "/v1/jobs/{job}"), ("POST", "/v1/jobs/{job}/hold")]
)
def test_a_change_with_a_parameter_that_it_does_not_have_changes_nothing(
    nobody: httpx.Client, database: Database, method: str, path: str
) -> None:
    job = add_job(database, user="nobody")
    body = {"command": "x"} if path == "/v1/jobs" else None
    answer = nobody.request(method, path.format(job=job), params={"dry_run": "true"}, json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, "dry_run")
    with database.snapshot() as tx:
        assert [each.id for each in tx.jobs.live("nobody")] == [job]
        assert not tx.job_requests.jobs_to_kill([job])
    assert nobody.get(f"/v1/jobs/{job}").json()["state"] == "Waiting"


def test_a_misspelt_parameter_of_a_change_is_told_its_name(nobody: httpx.Client, database: Database) -> None:
    job = add_job(database, user="nobody")
    answer = nobody.delete(f"/v1/jobs/{job}", params={"forse": "true"})
    assert answer.json()["hint"] == "did you mean 'force'?"


def test_a_body_that_is_none_or_no_record_is_told_so(nobody: httpx.Client) -> None:
    kind = {"Content-Type": "application/json"}
    for body, text in (
        ("", "there is no body: this request needs one"),
        ("[]", "the body must be a JSON object: {...}"),
    ):
        answer = nobody.post("/v1/jobs", content=body, headers=kind)
        assert (answer.status_code, answer.json()["detail"]) == (400, text)

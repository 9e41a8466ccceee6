"""Jobs are submitted through the API as by oarsub: same checks, same admission rules, same rows."""

from concurrent.futures import ThreadPoolExecutor

import httpx

from oar.lib.db.database import Database
from oar.lib.facts.records import Job
from oar.lib.facts.states import JobState
from tests.builders import add_resources


def _job(database: Database, answer: httpx.Response) -> Job:
    assert answer.status_code == 201, answer.text
    with database.snapshot() as tx:
        return tx.jobs.get(answer.json()["id"])


def test_a_job_is_submitted_and_is_of_who_asks(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    answer = nobody.post("/v1/jobs", json={"command": "sleep 1", "resources": "nodes=1", "name": "sim", "walltime": 60})
    job = _job(database, answer)
    assert (job.user, job.command, job.name, job.state) == ("nobody", "sleep 1", "sim", JobState.WAITING)
    assert job.initial_request == "oarsub -l nodes=1,walltime=0:1:0 -n sim sleep 1"
    assert answer.headers["location"] == f"/v1/jobs/{job.id}"
    assert answer.json()["ids"] == [job.id]


def test_a_job_is_deleted(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    job_id = nobody.post("/v1/jobs", json={"command": "true"}).json()["id"]
    answer = nobody.delete(f"/v1/jobs/{job_id}")
    assert (answer.status_code, answer.json()["done"]) == (202, "deletion registered")
    with database.snapshot() as tx:
        assert tx.kill_requests.jobs([job_id]) == {job_id}


def test_a_request_with_a_key_is_carried_out_once(
    nobody: httpx.Client, daemon: httpx.Client, database: Database
) -> None:
    add_resources(database)
    headers = {"Idempotency-Key": "first of the day"}
    first = nobody.post("/v1/jobs", json={"command": "true"}, headers=headers)
    again = nobody.post("/v1/jobs", json={"command": "true"}, headers=headers)
    of_somebody_else = daemon.post("/v1/jobs", json={"command": "true"}, headers=headers)
    assert [each.status_code for each in (first, again, of_somebody_else)] == [201, 201, 201]
    assert (again.json()["id"], again.headers["idempotency-replayed"]) == (first.json()["id"], "true")
    assert of_somebody_else.json()["id"] != first.json()["id"]


def test_a_key_belongs_to_one_request(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    headers = {"Idempotency-Key": "x"}
    assert nobody.post("/v1/jobs", json={"command": "true"}, headers=headers).status_code == 201
    other = nobody.post("/v1/jobs", json={"command": "false"}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (422, "key-reused")


def test_requests_of_one_key_at_once_make_one_job(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)

    def submit(_: int) -> int:
        answer = nobody.post("/v1/jobs", json={"command": "true"}, headers={"Idempotency-Key": "k"})
        return int(answer.json()["id"])

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(submit, range(8)))) == 1


def test_a_refused_request_leaves_its_key_free(nobody: httpx.Client, database: Database) -> None:
    headers = {"Idempotency-Key": "x"}
    assert nobody.post("/v1/jobs", json={"command": "true"}, headers=headers).status_code == 400
    add_resources(database)
    assert nobody.post("/v1/jobs", json={"command": "true"}, headers=headers).status_code == 201


def test_old_keys_are_forgotten(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    with database.begin() as tx:
        tx.execute("INSERT INTO submission_keys VALUES ('nobody', 'x', 'y', '', 1)")
    assert nobody.post("/v1/jobs", json={"command": "true"}, headers={"Idempotency-Key": "k"}).status_code == 201
    with database.snapshot() as tx:
        assert tx.value("SELECT count(*) FROM submission_keys") == 1

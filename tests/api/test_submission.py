"""Jobs are submitted through the API as by oarsub: same checks, same admission rules, same rows."""

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

"""Jobs are submitted through the API as by oarsub: same checks, same admission rules, same rows."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from oar.lib.db.database import Database
from oar.lib.facts.records import Job
from oar.lib.facts.states import JobState
from oar.lib.submission import job_environment
from tests.builders import add_resources
from tests.frontend import add_rules

#: What the shipped rules say of a job without walltime.
DEFAULT = "[ADMISSION RULE] Set default walltime to 7200.\n"


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


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"command": 1}, "command"),
        ({"command": "a\0b"}, "command"),
        ({"command": "true", "name": "\ud800"}, "name"),
        ({"command": "true", "user": "root"}, "user"),
        ({"command": "true", "hold": "yes"}, "hold"),
        ({"command": "true", "array": -1}, "array"),
        ({"command": "true", "array": 2**63}, "array"),
        ({"command": "true", "types": "besteffort"}, "types"),
        ({"command": "true", "env": {"A": None}}, "env.A"),
        ({"command": "true", "env": {"A=B": "1"}}, "env.A=B.[key]"),
        ({"command": "true", "exclude": ["n"] * 1001}, "exclude"),
        ([], ""),
        (None, ""),
    ],
)
def test_a_bad_field_is_named(nobody: httpx.Client, body: object, field: str) -> None:
    content = json.dumps(body).encode()
    answer = nobody.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json().get("field", "").split(".int")[0]) == (400, field)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b'{"command": ' + b'{"a":' * 50_000, b"NaN"])
def test_what_is_no_json_is_refused(nobody: httpx.Client, content: bytes) -> None:
    answer = nobody.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "a command is needed."),
        ({"command": "true", "resources": "nodes=x"}, "nodes=x"),
        ({"command": "true", "queue": "nowhere"}, "queue 'nowhere' does not exist"),
        ({"command": "true", "properties": "1; DROP TABLE jobs"}, ";"),
        ({"command": "true", "notify": "fax:alice"}, "bad syntax for the notify option"),
        ({"command": "true", "signal": "NONE"}, "unknown signal NONE."),
        ({"command": "true", "env": {"OAR_JOB_ID": "1"}}, "the variable OAR_JOB_ID is set by OAR itself."),
    ],
)
def test_the_checks_are_those_of_oarsub(
    nobody: httpx.Client, database: Database, body: dict[str, object], text: str
) -> None:
    add_resources(database)
    answer = nobody.post("/v1/jobs", json=body)
    assert answer.status_code == 400
    assert text in answer.json()["detail"]


def test_nobody_and_a_token_for_reading_submit_nothing(
    anonymous: httpx.Client, known: Callable[[str, str], httpx.Client]
) -> None:
    assert anonymous.post("/v1/jobs", json={"command": "true"}).status_code == 401
    assert known("nobody", "ro").post("/v1/jobs", json={"command": "true"}).status_code == 403


def test_who_submitted_a_job_with_a_token_for_that_deletes_it(
    known: Callable[[str, str], httpx.Client], database: Database
) -> None:
    add_resources(database)
    client = known("nobody", "submit")
    own = client.post("/v1/jobs", json={"command": "true"}).json()["id"]
    other = known("nobody", "rw").post("/v1/jobs", json={"command": "true"}).json()["id"]
    assert [client.delete(f"/v1/jobs/{job}").status_code for job in (own, other)] == [202, 403]


def test_admission_rules_change_refuse_and_fail_as_for_oarsub(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    add_rules(database, "print('hello'); name = 'ruled'")
    answer = nobody.post("/v1/jobs", json={"command": "true"})
    assert (_job(database, answer).name, answer.json()["output"]) == ("ruled", f"{DEFAULT}hello\n")
    add_rules(database, "reject('not on Mondays')")
    refused = nobody.post("/v1/jobs", json={"command": "true"})
    assert (refused.status_code, refused.json()["type"]) == (403, "rule-refused")
    assert refused.json()["detail"] == "not on Mondays"
    assert refused.json()["output"] == f"{DEFAULT}hello\n"


def test_a_rule_that_fails_is_told_without_its_secrets(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    add_rules(database, "raise KeyError('secret')")
    answer = nobody.post("/v1/jobs", json={"command": "true"})
    assert (answer.status_code, answer.json()["type"]) == (500, "rule-failed")
    assert "secret" not in answer.text


def test_a_worker_that_dies_is_replaced(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    add_rules(database, "import os\nif name == 'kill': os.kill(os.getpid(), 9)")
    killed = nobody.post("/v1/jobs", json={"command": "true", "name": "kill"})
    assert (killed.status_code, killed.json()["type"]) == (503, "worker-lost")
    assert nobody.post("/v1/jobs", json={"command": "true"}).status_code == 201


def test_an_array_has_a_job_for_each_parameter(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    body = {"command": "run", "parameters": ["a 1", "b 2"], "script": "#!/bin/sh\necho $@\n", "array_limit": 1}
    answer = nobody.post("/v1/jobs", json=body)
    with database.snapshot() as tx:
        jobs = [tx.jobs.get(job_id) for job_id in answer.json()["ids"]]
    assert [(job.command, job.array_index, job.array_limit) for job in jobs] == [("run a 1", 1, 1), ("run b 2", 2, 1)]
    assert [job_environment.script_of(job.env) for job in jobs] == [body["script"]] * 2

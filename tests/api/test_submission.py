"""Jobs are submitted through the API as by oarsub: same checks, same admission rules, same rows."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, create_model

from oar.api.job_request import JobRequest
from oar.api.reservation_requests import ReservationRequest
from oar.api.submission import SubmitJobs
from oar.api.workers import Desk, outcome_of
from oar.cli.common.render import full_jobs
from oar.lib.access.records import User
from oar.lib.accounts.records import Member, Project
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.fields import FIELDS
from oar.lib.jobs.formats import JobRecords
from oar.lib.jobs.privacy import Privacy
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState, ProjectMode
from oar.lib.jobs.views import JobColumns, job_view
from oar.lib.submission import job_environment
from oar.lib.submission.once import Once
from oar.lib.user_files import files
from tests.api.conftest import Api
from tests.api.test_output import NOBODY, needs_root
from tests.builders import add_job, add_resources
from tests.frontend import add_rules
from tests.process.this_machine import is_alive

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


def test_a_project_that_the_user_may_not_use_is_refused_in_both_dialects(
    api: Api, nobody: httpx.Client, database: Database
) -> None:
    add_resources(database)
    with database.begin() as tx:
        tx.projects.create(Project("physics"))
        tx.projects.create(Project("biology"))
        tx.projects.add(Member("biology", "nobody"))
    api.runtime.config = api.runtime.config.replace(projects=ProjectMode.MEMBERS)
    for path in ("/v1/jobs", "/oarapi/jobs"):
        body = {"command": "x", "resource" if "oarapi" in path else "resources": "nodes=1", "project": "physics"}
        answer = nobody.post(path, json=body)
        assert 400 <= answer.status_code < 500, answer.text
        assert "nobody may not use the project" in answer.text
    with database.snapshot() as tx:
        assert tx.value("SELECT count(*) FROM jobs") == 0
    job = _job(database, nobody.post("/v1/jobs", json={"command": "x", "project": "biology"}))
    ended = add_job(database, JobState.TERMINATED, user="nobody", project="physics", command="x")
    start = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + 86400))
    reservation = {"start": start, "duration": "1:0:0", "resources": ["nodes=1"], "project": "physics"}
    api.runtime.config = api.runtime.config.replace(reservation_open=True)
    for answer in (
        nobody.patch(f"/v1/jobs/{job.id}", json={"project": "physics"}),
        nobody.post(f"/v1/jobs/{ended}/resubmission"),
        nobody.post(f"/oarapi/jobs/{ended}/resubmissions/new.json"),
        nobody.post("/v1/reservations", json=reservation),
    ):
        assert 400 <= answer.status_code < 500, answer.text
        assert "may not use the project" in answer.text
    with database.snapshot() as tx:
        assert tx.jobs.get(job.id).project == "biology"
        assert tx.value("SELECT count(*) FROM jobs") == 2
        assert tx.value("SELECT count(*) FROM reservations") == 0


#: Fields of a request that no record of a job shows, and why.
NOT_SHOWN = {
    **dict.fromkeys(("env", "use_job_key", "ssh_private_key", "ssh_public_key"), "secrets"),
    "export_job_key_to_file": "a file of the user",
    "scanscript": "the options of the script are shown",
    "array": "each job of an array is a record",
    "accept_misfit": "only for the check at submission",
    **dict.fromkeys(("stagein", "stagein_md5sum"), "only for the agent of a desktop computer"),
}


def test_every_field_of_a_request_is_shown_or_says_why_not() -> None:
    shown = {option for field in FIELDS for option in field.options}
    assert shown.isdisjoint(NOT_SHOWN)
    assert shown | {*NOT_SHOWN} == set(JobRequest.model_fields)


def test_what_a_request_sets_is_returned_by_every_record(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    wanted = {
        "name": "sim",
        "project": "bio",
        "queue": "default",
        "properties": "besteffort = 'YES'",
        "types": ["idempotent"],
        "checkpoint": 120,
        "signal": 10,
        "notify": "mail:nobody@example.org",
        "stdout": "out.%jobid%",
        "stderr": "err",
        "hold": True,
        "cpuset_name": "mine",
        "array": 1,
        "array_limit": 1,
        "walltime": 3600,
    }
    answer = nobody.post("/v1/jobs", json={"command": "sleep 1", **wanted})
    job = _job(database, answer).id
    with database.snapshot() as tx:
        view = job_view(tx, job, Privacy(User("nobody", NOBODY.pw_uid)))
    columns = JobColumns([[value] for value in view])
    records = {
        "v1": nobody.get(f"/v1/jobs/{job}").json(),
        "oarstat": JobRecords(columns)[job],
        "legacy": nobody.get(f"/oarapi/jobs/{job}/details.json").json(),
    }
    asked = {"checkpoint": 120, "notify": "mail:nobody@example.org", "cpuset_name": "nobody_mine", "array_limit": 1}
    asked |= {"name": "sim", "project": "bio", "queue": "default", "walltime": 3600, "state": "Hold"}
    for name, record in records.items():
        assert record | asked == record, name
        assert record["signal" if name == "v1" else "checkpoint_signal"] == 10
        assert "besteffort = 'YES'" in str(record["properties"])
    text = full_jobs(columns)
    for line in ("checkpoint = 0:2:0", "checkpoint_signal = 10", "notify = mail:nobody@example.org", "array_limit = 1"):
        assert f"    {line}\n" in text


def test_others_do_not_see_whom_a_job_notifies(nobody: httpx.Client, daemon: httpx.Client, database: Database) -> None:
    add_resources(database)
    job = nobody.post("/v1/jobs", json={"command": "true", "notify": "exec:/home/nobody/secret"}).json()["id"]
    assert daemon.get(f"/v1/jobs/{job}").json()["notify"] is None
    assert nobody.get(f"/v1/jobs/{job}").json()["notify"] == "exec:/home/nobody/secret"


def test_a_job_is_deleted(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    job_id = nobody.post("/v1/jobs", json={"command": "true"}).json()["id"]
    answer = nobody.delete(f"/v1/jobs/{job_id}")
    assert (answer.status_code, answer.json()["done"]) == (202, "deletion registered")
    with database.snapshot() as tx:
        assert tx.job_requests.jobs_to_kill([job_id]) == {job_id}


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
    assert (other.status_code, other.json()["type"]) == (409, "key-reused")


def test_a_request_that_is_written_in_another_way_is_the_same_one(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    headers = {"Idempotency-Key": "x", "Content-Type": "application/json"}
    texts = (
        '{"command": "true", "env": {"A": "1", "B": "2"}, "types": ["a", "b"]}',
        '{"types":["a","b"],  "env":{"B":"2","A":"1"},"command":"true"}',
        '{"command": "true", "env": {"A": "1", "B": "2"}, "types": ["b", "a"]}',
    )
    first, same, other = (nobody.post("/v1/jobs", content=text, headers=headers) for text in texts)
    assert (first.status_code, same.status_code) == (201, 201), same.text
    assert (same.json()["id"], same.headers["idempotency-replayed"]) == (first.json()["id"], "true")
    assert (other.status_code, other.json()["type"]) == (409, "key-reused")


@pytest.mark.parametrize("model", [JobRequest, ReservationRequest])
def test_fields_that_a_client_left_out_do_not_count_in_the_sum_of_a_request(model: type[BaseModel]) -> None:
    """A release that adds a field, or a default, still recognizes requests of the former one."""
    later = create_model("Later", __base__=model, new_field=(int, 5))
    sent = {"name": "a", "project": "p"}
    now, then = (kind.model_validate(sent).model_dump(exclude_unset=True) for kind in (model, later))
    assert Once.of("nobody", "x", "/v1/jobs", now) == Once.of("nobody", "x", "/v1/jobs", then)
    assert Once.of("nobody", "x", "/v1/jobs", now) != Once.of("nobody", "x", "/v1/jobs", {**now, "project": "q"})


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
        ({"command": "true", "resources": {"nodes": 1}}, "resources"),
        ({"command": "true", "env": {"A": None}}, "env.A"),
        ({"command": "true", "env": {"A=B": "1"}}, "env.A=B"),
        ({"command": "true", "exclude": ["n"] * 1001}, "exclude"),
        ([], ""),
        (None, ""),
    ],
)
def test_a_bad_field_is_named(nobody: httpx.Client, body: object, field: str) -> None:
    content = json.dumps(body).encode()
    answer = nobody.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json().get("field", "")) == (400, field)


def test_what_is_misspelt_is_told_with_what_is_meant(nobody: httpx.Client) -> None:
    body = nobody.post("/v1/jobs", json={"comand": "true"}).json()
    query = nobody.get("/v1/jobs?stat=Running").json()
    assert (body["detail"], body["hint"]) == ("there is no 'comand'", "did you mean 'command'?")
    assert (query["detail"], query["field"], query["hint"]) == ("there is no 'stat'", "stat", "did you mean 'state'?")
    assert "hint" not in nobody.get("/v1/jobs?xyzzy=1").json()


def test_a_body_that_is_something_else_is_told_what_to_send(nobody: httpx.Client) -> None:
    form = nobody.post("/v1/jobs", data={"command": "true"}).json()
    assert (form["detail"], form["hint"]) == ("the body must be JSON", "send Content-Type: application/json")
    broken = nobody.post("/v1/jobs", content=b'{"command": "true"', headers={"Content-Type": "application/json"}).json()
    assert broken["detail"].startswith("the body is not JSON from character 18 on")
    assert "field" not in broken


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
        ({"command": "true", "resources": ["nodes=1"] * 51}, "the job has 51 alternatives; at most 50 are allowed"),
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


def test_several_jobs_are_submitted_each_by_itself(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    wanted = {"jobs": [{"command": "one"}, {"command": "two", "queue": "nowhere"}, {"command": "three", "array": 2}]}
    key = {"Idempotency-Key": "a batch"}
    answer = nobody.post("/v1/job-batches", json=wanted, headers=key)
    assert answer.status_code == 207, answer.text
    first, refused, third = answer.json()["items"]
    assert (first["status"], refused["status"], third["status"]) == (201, 400, 201)
    assert "nowhere" in refused["problem"]["detail"]
    assert len(third["ids"]) == 2
    with database.snapshot() as tx:
        assert [tx.jobs.get(job).command for job in (*first["ids"], *third["ids"])] == ["one", "three", "three"]
    again = nobody.post("/v1/job-batches", json=wanted, headers=key).json()["items"]
    assert [each.get("id") for each in again] == [first["id"], None, third["id"]]
    assert len(nobody.get("/v1/jobs").json()["items"]) == 3


def test_a_batch_with_a_job_that_is_no_request_submits_nothing(nobody: httpx.Client) -> None:
    answer = nobody.post("/v1/job-batches", json={"jobs": [{"command": "one"}, {"comand": "two"}]})
    assert (answer.status_code, answer.json()["field"]) == (400, "jobs.1.comand")
    assert nobody.get("/v1/jobs").json()["items"] == []


def test_a_file_is_staged_for_a_job_of_a_desktop_computer(
    api: Api, nobody: httpx.Client, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    add_resources(database)
    api.runtime.config = Config(api_rate_change=0, stagein_dir=str(tmp_path_factory.mktemp("stagein")))
    with tempfile.NamedTemporaryFile(dir="/tmp", suffix=".tar.gz") as file:
        file.write(b"data")
        file.flush()
        os.chmod(file.name, 0o644)
        wanted = {"command": "./run", "types": ["desktop_computing"], "stagein": file.name}
        job = _job(database, nobody.post("/v1/jobs", json=wanted))
        assert job.file_id is not None
        assert f"--stagein {file.name}" in (job.initial_request or "")
        md5sum = hashlib.md5(b"data", usedforsecurity=False).hexdigest()
        known = {"command": "./run", "types": ["desktop_computing"], "stagein_md5sum": md5sum}
        assert _job(database, nobody.post("/v1/jobs", json=known)).file_id == job.file_id
        wrong = nobody.post("/v1/jobs", json={**wanted, "stagein_md5sum": "0" * 32})
        assert (wrong.status_code, "checksum" in wrong.json()["detail"]) == (400, True)
        unused = nobody.post("/v1/jobs", json={"command": "true", "stagein": file.name})
        assert any("desktop_computing" in each for each in unused.json()["warnings"])


SCRIPT = """#!/bin/sh
#OAR -l nodes=1,walltime=0:5 -n of-script
#OAR -t idempotent
#OAR --project "two words"
#OAR --env A=1
#OAR --hold
#OAR --checkpoint 60
sleep 1
"""


def test_the_lines_of_a_script_are_options_where_it_is_asked_for(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    plain = _job(database, nobody.post("/v1/jobs", json={"script": SCRIPT}))
    assert (plain.name, plain.state) == (None, JobState.WAITING)
    answer = nobody.post("/v1/jobs", json={"script": SCRIPT, "scanscript": True, "env": {"B": "2"}})
    job = _job(database, answer)
    assert (job.name, job.project, job.state, job.checkpoint) == ("of-script", "two words", JobState.HOLD, 60)
    with database.snapshot() as tx:
        assert "idempotent" in tx.jobs.types([job.id])[job.id]
        assert tx.new_jobs.moldables_of_jobs([job.id])[job.id][0].walltime == 300
    assert job_environment.variables_of(job.env).items() >= {"A": "1", "B": "2"}.items()


def test_a_script_for_another_scheduler_is_noticed(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    answer = nobody.post("/v1/jobs", json={"script": "#!/bin/sh\n#SBATCH -N 2\ndate\n", "scanscript": True})
    told = "the script: its #SBATCH lines are ignored: they are for another scheduler. Write #OAR lines."
    assert (answer.status_code, told in answer.json()["warnings"]) == (201, True)


def test_what_the_request_says_wins_over_the_script(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    wanted = {"script": SCRIPT, "scanscript": True, "name": "mine", "checkpoint": 0}
    answer = nobody.post("/v1/jobs", json=wanted)
    job = _job(database, answer)
    assert (job.name, job.checkpoint) == ("mine", 0)
    assert "ignore script value for --name: of-script; the request has another one." in answer.json()["warnings"]


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        ("#OAR --nonsense", "--nonsense is not an option of scripts"),
        ("#OAR --checkpoint soon", "--checkpoint: 'soon' is not a number"),
        ("#OAR -n", "the option requires a value. Write: #OAR -n VALUE"),
        ("#OAR --hold now", "the option takes no value. Write: #OAR --hold"),
        ("#OAR words", "not an option"),
    ],
)
def test_a_line_that_is_not_understood_is_told(
    nobody: httpx.Client, database: Database, line: str, trouble: str
) -> None:
    add_resources(database)
    refused = nobody.post("/v1/jobs", json={"script": f"#!/bin/sh\n{line}\n", "scanscript": True})
    assert refused.status_code == 400
    assert refused.json()["detail"] == f"script: line 2: {line}: {trouble}"
    with database.snapshot() as tx:
        assert tx.jobs.live() == []


def test_a_script_of_the_user_is_read_for_its_lines(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(SCRIPT)
        file.flush()
        os.chmod(file.name, 0o755)
        job = _job(database, nobody.post("/v1/jobs", json={"command": f"{file.name} x", "scanscript": True}))
        assert (job.name, job.command) == ("of-script", f"{file.name} x")
        estimated = nobody.post("/v1/estimates", json={"alternatives": [{"command": file.name, "scanscript": True}]})
        assert estimated.json()["items"][0]["walltime"] == 300
        os.chmod(file.name, 0o600)
        refused = nobody.post("/v1/jobs", json={"command": file.name, "scanscript": True})
    assert (refused.status_code, refused.json()["type"]) == (400, "bad-request")


# -- programs of users that do not answer ------------------------------------------------------------------------------


@needs_root
def test_a_file_that_takes_too_long_is_given_up_and_nothing_is_left(
    api: Api, nobody: httpx.Client, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    add_resources(database)
    directory = tmp_path_factory.mktemp("stagein")
    api.runtime.config = Config(api_rate_change=0, stagein_dir=str(directory), api_timeout=3)
    with tempfile.NamedTemporaryFile() as file:
        os.truncate(file.name, 1 << 40)
        os.chmod(file.name, 0o644)
        wanted = {"command": "./run", "types": ["desktop_computing"], "stagein": file.name}
        for path, body in (("/v1/jobs", wanted), ("/jobs", {**wanted, "type": "desktop_computing"})):
            answer = nobody.post(path, json=body)
            assert (answer.status_code, answer.json()["type"]) == (503, "silent-program"), answer.text
            assert "kill -CONT" in answer.json()["hint"]
        several = nobody.post("/v1/job-batches", json={"jobs": [{"command": "true"}, wanted]}).json()["items"]
        assert [each["status"] for each in several] == [201, 503]
        assert not [each for each in Path("/proc").glob("[0-9]*") if _leads_to(each / "fd/0", file.name)]
    assert list(directory.iterdir()) == []


def _leads_to(link: Path, path: str) -> bool:
    try:
        return os.readlink(link) == path
    except OSError:
        return False


@needs_root
@pytest.mark.parametrize("asked", [{"scanscript": True}, {"export_job_key_to_file": "/tmp/key", "use_job_key": True}])
def test_a_program_that_is_stopped_while_jobs_are_submitted_is_killed(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, asked: dict[str, Any]
) -> None:
    add_resources(database)
    numbers = tmp_path_factory.mktemp("stopped") / "numbers"
    stop = f"echo $$ >> {numbers}; kill -STOP $$"
    monkeypatch.setattr(files, "_READ", stop)
    monkeypatch.setattr(files, "_WRITE", stop)
    monkeypatch.setattr(files.UserFiles, "running", lambda _, command: (command, {}))
    desk = Desk(database.settings)
    wanted = JobRequest.model_validate({"command": "/bin/true", **asked})
    for seconds in (5, 10, 20, 40):  # a busy machine may not come to the beginning of a program
        desk.config = Config(api_timeout=seconds)
        outcome = outcome_of(SubmitJobs(User("nobody", NOBODY.pw_uid), wanted.asked), desk)
        if numbers.exists() and numbers.read_text():
            break
    else:
        pytest.fail(f"no program began; the last answer: {outcome}")
    assert (outcome.status, bool(desk.warnings)) in ((503, False), (201, True)), outcome
    assert not any(is_alive(int(each)) for each in numbers.read_text().split())

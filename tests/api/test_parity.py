"""What can be done with the commands can be done through the API, and gives the same records."""

import os
import pwd

import httpx
import pytest

from oar.cli import oaralter, oardel, oarhold, oarresume, oarsub, oarwalltime
from oar.cli.common.command import Command
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.facts.records import Job, User
from oar.lib.submission import job_environment
from tests.api.conftest import Api
from tests.builders import add_resources
from tests.frontend import Frontend

NOBODY = User("nobody", pwd.getpwnam("nobody").pw_uid)
#: Options of several commands that are about text on a terminal.
OF_TERMINALS = {"show_version", "debug", "help", "as_dumper", "as_xml", "as_yaml", "as_json", "interactive"}
#: Options that choose jobs: a route names one.
SELECTION = {"everything", "name", "states", "users", "sql", "array", "identifiers"}

#: Each option of oarsub, by the name of its value, and the field of ``POST /v1/jobs``, or why there is none.
SUBMISSION = {
    "requests": "resources",
    "array": "array",
    "parameter_file": "parameters",
    "queue": "queue",
    "properties": "properties",
    "nodelist": "nodelist",
    "exclude": "exclude",
    "reservation": "reservation",
    "advance_reservation": "advance_reservation",
    "verify": "accept_misfit",
    "checkpoint": "checkpoint",
    "signal": "signal",
    "types": "types",
    "directory": "directory",
    "project": "project",
    "name": "name",
    "dependencies": "dependencies",
    "notify": "notify",
    "max_restarts": "max_restarts",
    "use_job_key": "use_job_key",
    "key_inline": "ssh_private_key",
    "public_key": "ssh_public_key",
    "key_export": "export_job_key_to_file",
    "stdout": "stdout",
    "stderr": "stderr",
    "hold": "hold",
    "cpuset_name": "cpuset_name",
    "environment": "env",
    "wrapped": "command",
    "words": "command",
    "spool": "script",
}
ELSEWHERE = {
    "resubmit": "POST /v1/jobs/ID/resubmission",
    "estimate": "POST /v1/estimates",
    "wait": "the stream tells when a job ends",
    "connect": "needs a terminal",
    "propagate_exit": "needs a terminal",
    "parsable": "answers are records",
    "completion": "of shells",
    "verbosity": "answers are whole",
    "key_file": "the key comes with the request",
    "scan": "clients have fields",
    "stagein": "of desktop computing, whose agents have their own way",
    "stagein_md5sum": "the same",
}
#: Options of the other commands, by command, and the operation of the API that does the same.
ACTS = {
    oardel.main: {"checkpoint": "job_checkpoint", "signal_text": "job_signal", "besteffort": "job_besteffort"}
    | {"force": "job_delete"},
    oarhold.main: {"running": "job_hold"},
    oarresume.main: {},
    oaralter.main: dict.fromkeys(
        ("requests", "properties", "queue", "dependencies", "project", "notify", "advance_reservation"), "job_alter"
    ),
    oarwalltime.main: dict.fromkeys(("force", "whole", "delay_next_jobs", "timeout", "arguments"), "job_walltime"),
}


def _names(command: Command) -> set[str]:
    return {parameter.name or "" for parameter in command.params} - OF_TERMINALS


def test_each_option_of_oarsub_has_its_field(anonymous: httpx.Client) -> None:
    schemas = anonymous.get("/openapi.json").json()["components"]["schemas"]
    assert _names(oarsub.main) == (SUBMISSION.keys() | ELSEWHERE.keys()) - OF_TERMINALS
    assert set(SUBMISSION.values()) <= schemas["JobRequest"]["properties"].keys()


@pytest.mark.parametrize("command", ACTS, ids=lambda command: command.name)
def test_each_option_of_the_other_commands_has_its_operation(anonymous: httpx.Client, command: Command) -> None:
    paths = anonymous.get("/openapi.json").json()["paths"].values()
    operations = {
        operation["operationId"] for path in paths for operation in path.values() if "operationId" in operation
    }
    assert _names(command) - SELECTION == set(ACTS[command])
    assert set(ACTS[command].values()) <= operations


#: What may differ between two jobs that were asked for in the same words.
_OWN = {"id", "array_id", "cpuset_name", "submission_time"}


def _same(first: Job, second: Job) -> bool:
    def kept(job: Job) -> dict[str, object]:
        return {name: value for name, value in job._asdict().items() if name not in _OWN}

    return kept(first) == kept(second)


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (
            ["-l", "nodes=1,walltime=0:30:0", "sleep 1"],
            {"resources": "nodes=1", "walltime": 1800},
        ),
        (
            ["-q", "default", "-p", "cpuset = '0'", "true"],
            {"queue": "default", "properties": "cpuset = '0'"},
        ),
        (["-t", "besteffort", "-t", "idempotent", "true"], {"types": ["besteffort", "idempotent"]}),
        (
            ["--project", "p", "-n", "sim", "--hold", "true"],
            {"project": "p", "name": "sim", "hold": True},
        ),
        (["--checkpoint", "60", "--signal", "USR1", "true"], {"checkpoint": 60, "signal": "USR1"}),
        (["-O", "/tmp/o", "-E", "/tmp/e", "true"], {"stdout": "/tmp/o", "stderr": "/tmp/e"}),
        (["--max-restarts", "3", "true"], {"max_restarts": 3}),
        (
            ["--nodelist", "node-1", "--exclude", "node-2", "true"],
            {"nodelist": ["node-1"], "exclude": ["node-2"]},
        ),
        (["--env", "A=1", "true"], {"env": {"A": "1"}}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_job_is_the_same_by_both_ways(
    api: Api, nobody: httpx.Client, database: Database, words: list[str], body: dict[str, object]
) -> None:
    add_resources(database)
    directory = ["-d", str(body.setdefault("directory", "/"))]
    answer = nobody.post("/v1/jobs", json={**body, "command": words[-1]})
    assert answer.status_code == 201, answer.text
    typed = Frontend(database, Config()).type(oarsub.main, *words[:-1], *directory, words[-1], user=NOBODY)
    assert typed.exit == 0, typed.err
    with database.snapshot() as tx:
        by_api, by_command = tx.jobs.get(answer.json()["id"]), tx.jobs.get(answer.json()["id"] + 1)
        types, moldables = tx.jobs.types([by_api.id, by_command.id]), tx.jobs.moldables([by_api.id, by_command.id])
    for each in (by_api, by_command):
        assert each.info_type == os.uname().nodename
    assert _same(_plain(by_api), _plain(by_command))
    assert types.get(by_api.id) == types.get(by_command.id)
    asked = [[(each.walltime, each.groups) for each in moldables[job.id]] for job in (by_api, by_command)]
    assert str(asked[0]) == str(asked[1])


def _plain(job: Job) -> Job:
    """Return a job whose words stand in one order, and whose variables are compared as such."""
    words = sorted((job.initial_request or "").split())
    return job._replace(initial_request=" ".join(words), env=str(job_environment.read(job.env)))


def test_a_job_with_a_key_gets_one(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    answer = nobody.post("/v1/jobs", json={"command": "true", "use_job_key": True})
    with database.snapshot() as tx:
        keys = tx.challenges.find(answer.json()["id"])
    assert keys is not None
    assert keys.private_key is not None
    refused = nobody.post("/v1/jobs", json={"command": "true", "ssh_public_key": "x"})
    assert (refused.status_code, refused.json()["detail"]) == (400, "--ssh_public_key needs --ssh_private_key.")

"""What can be done with the commands can be done through the API, and gives the same records."""

import os
import pwd
import re
from typing import NamedTuple

import httpx
import pytest

from oar.cli import (
    oaralter,
    oardel,
    oarhold,
    oarresume,
    oarsub,
    oarwalltime,
)
from oar.cli.common.command import Command
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState
from oar.lib.submission import job_environment
from tests.api.conftest import Api
from tests.builders import add_job, add_resources
from tests.frontend import Frontend

NOBODY = User("nobody", pwd.getpwnam("nobody").pw_uid)


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
        types, moldables = (
            tx.jobs.types([by_api.id, by_command.id]),
            tx.new_jobs.moldables_of_jobs([by_api.id, by_command.id]),
        )
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
        keys = tx.access.find_challenge(answer.json()["id"])
    assert keys is not None
    assert keys.private_key is not None
    refused = nobody.post("/v1/jobs", json={"command": "true", "ssh_public_key": "x"})
    assert (refused.status_code, refused.json()["detail"]) == (400, "--ssh_public_key needs --ssh_private_key.")


#: Columns of what is kept of jobs that are numbers and dates of their own.
_NUMBERS = {"job_id", "array_id", "event_id", "job_state_log_id", "job_type_id", "frag_id_job", "assigned_moldable_job"}
_DATES = {"submission_time", "start_time", "stop_time", "date", "date_start", "date_stop", "frag_date"}


def _traces(database: Database, job_id: int) -> dict[str, list[object]]:
    """Return all that is kept of a job but its numbers and dates; its number in a text is N."""

    def mask(value: object) -> object:
        return re.sub(rf"\b{job_id}\b", "N", value) if isinstance(value, str) else value

    own = {*_NUMBERS, *_DATES, "cpuset_name"}
    keys = dict.fromkeys(("jobs", "job_state_logs", "event_logs", "job_types", "walltime_change"), "job_id")
    found: dict[str, list[object]] = {}
    with database.snapshot() as tx:
        for table, key in {**keys, "frag_jobs": "frag_id_job"}.items():
            rows, names = tx.rows_and_names(f"SELECT * FROM {table} WHERE {key} = %s ORDER BY 1", (job_id,))
            found[table] = [
                {name: mask(value) for name, value in zip(names, row, strict=True) if name not in own} for row in rows
            ]
    return found


class Act(NamedTuple):
    """Something that can be done with a job, by command and by request."""

    state: JobState
    command: Command
    words: tuple[str, ...]
    method: str
    path: str
    body: dict[str, object] | None = None


_WALLTIME: dict[str, object] = {"change": "-0:10:0"}


@pytest.mark.parametrize(
    "act",
    [
        Act(JobState.WAITING, oardel.main, (), "DELETE", ""),
        Act(JobState.RUNNING, oardel.main, (), "DELETE", ""),
        Act(JobState.RUNNING, oardel.main, ("-c",), "POST", "/checkpoint"),
        Act(JobState.RUNNING, oardel.main, ("-s", "USR1"), "POST", "/signal", {"signal": "USR1"}),
        Act(JobState.WAITING, oarhold.main, (), "POST", "/hold"),
        Act(JobState.HOLD, oarresume.main, (), "POST", "/resume"),
        Act(JobState.WAITING, oaralter.main, ("-n", "x"), "PATCH", "", {"name": "x"}),
        Act(JobState.WAITING, oaralter.main, ("--project", "p"), "PATCH", "", {"project": "p"}),
        Act(JobState.RUNNING, oarwalltime.main, ("-0:10:0",), "POST", "/walltime", _WALLTIME),
    ],
    ids=lambda act: f"{act.command.name} {' '.join(act.words)}",
)
def test_an_act_leaves_the_same_by_both_ways(api: Api, nobody: httpx.Client, database: Database, act: Act) -> None:
    config = Config(api_rate_read=0, api_rate_change=0, walltime_change_enabled=True)
    api.runtime.config = config
    resources = add_resources(database)
    held = resources[:1] if act.state is JobState.RUNNING else ()
    first, second = (add_job(database, act.state, user="nobody", on=held) for _ in range(2))
    before = _traces(database, first)
    typed = Frontend(database, config).type(act.command, str(first), *act.words, user=NOBODY)
    assert typed.exit == 0 or "Cannot contact the OAR server" in typed.err  # none runs here
    answer = nobody.request(act.method, f"/v1/jobs/{second}{act.path}", json=act.body)
    assert answer.status_code in (200, 202), answer.text
    assert before != _traces(database, first) == _traces(database, second)

"""What can be done with the commands can be done through the API, and gives the same records."""

import os
import pwd
import re
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from oar.cli import (
    oar_resources_add,
    oar_token,
    oaraccounting,
    oaradmissionrules,
    oaralter,
    oardel,
    oarhold,
    oarnodesetting,
    oarnotify,
    oarproperty,
    oarqueue,
    oarremoveresource,
    oarresume,
    oarsub,
    oaruserset,
    oarwalltime,
    qralter,
    qrdel,
    qrsub,
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
#: Options of several commands that are about text on a terminal.
OF_TERMINALS = {"show_version", "debug", "help", "as_dumper", "as_xml", "as_yaml", "as_json", "interactive"}

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
    "scan": "scanscript",
    "stagein": "stagein",
    "stagein_md5sum": "stagein_md5sum",
}
ELSEWHERE = {
    "resubmit": "POST /v1/jobs/ID/resubmission",
    "resubmit_sql": "GET /v1/jobs chooses",
    "resubmit_states": "GET /v1/jobs chooses",
    "estimate": "POST /v1/estimates",
    "wait": "the stream tells when a job ends",
    "connect": "needs a terminal",
    "propagate_exit": "needs a terminal",
    "parsable": "answers are records",
    "completion": "of shells",
    "verbosity": "answers are whole",
    "key_file": "the key comes with the request",
}
#: Options that choose jobs, of commands that take several.
BULK = dict.fromkeys(("everything", "name", "states", "users", "sql", "array", "identifiers"), "jobs_act")
READ, LOCAL = "tells only", "about this machine's files or terminal"
#: Options of the other commands that act, by command, and the operation of the API that does the same, or why there
#: is none: ``READ``, ``LOCAL``, or a sentence.
ACTS: dict[Command, dict[str, str]] = {
    oardel.main: {"checkpoint": "job_checkpoint", "signal_text": "job_signal", "besteffort": "job_besteffort"}
    | {"force": "job_delete", **BULK},
    oarhold.main: {"running": "job_hold", **BULK},
    oarresume.main: BULK,
    oaralter.main: dict.fromkeys(
        ("requests", "name", "properties", "queue", "dependencies", "project", "notify", "advance_reservation"),
        "job_alter",
    )
    | {"identifiers": "job_alter", "array": "array_alter"},
    oarwalltime.main: dict.fromkeys(("force", "whole", "delay_next_jobs", "timeout", "arguments"), "job_walltime"),
    oarqueue.main: {"list_": READ, "enabled": "queue_change", "disabled": "queue_change", "added": "queue_add"}
    | {"enable_all": "queues_switch", "disable_all": "queues_switch", "changed": "queue_change"}
    | {"removed": "queue_remove", "force": "queue_remove"},
    oarnotify.main: {"enabled": "queue_change", "disabled": "queue_change", "enable_all": "queues_switch"}
    | {"disable_all": "queues_switch", "added": "queue_add", "removed": "queue_remove", "list_": READ}
    | {"status": "server", "wait": "server_notify", "tag": "server_notify"},
    oarproperty.main: {"list_": "properties_list", "full": "properties_list", "added": "property_add"}
    | {"varchar": "property_add", "type_": "property_add", "deleted": "property_remove", "force": "property_remove"}
    | {"renamed": "property_rename", "quiet": READ},
    oarnodesetting.main: {"add": "resources_add", "hosts": "resources_change", "path": LOCAL}
    | dict.fromkeys(("ranges", "sql", "state", "maintenance", "drain", "reason", "texts", "force"), "resources_change")
    | {"no_wait": "the stream tells when a job ends", "patience": "the same", "last": "property"}
    | {"from_node": "nodes say it by a key that does nothing else"},
    oarremoveresource.main: {"purge_jobs": "resource_remove", "force": "resource_remove"}
    | {"identifiers": "resource_remove", "sql": "each resource is removed by itself, with an answer of its own"},
    oar_resources_add.main: dict.fromkeys(
        [parameter.name or "" for parameter in oar_resources_add.main.params], "machines_add"
    )
    | {"path": LOCAL},
    oaruserset.main: {"lists": "usersets_list", "shown": "userset", "added": "userset_add"}
    | {"removed": "userset_remove", "deleted": "userset_delete", "force": "userset_delete"},
    oaraccounting.main: {"reinitialize": "accounting_count", "since": "accounting_count", "quiet": READ}
    | {"delete_before": "accounting_purge", "reporting": "a file for programs that read it where it is written"},
    oaradmissionrules.main: dict.fromkeys(("show_all", "enabled", "disabled", "ids_only", "full"), "rules_list")
    | dict.fromkeys(("show", "history", "check"), "rule")
    | {"new": "rule_add", "modify": "rule_change", "priority": "rule_change", "force": "rule_add"}
    | {"delete": "rule_remove", "test": "rules_try", "as_user": "rules_try", "words": "rules_try"}
    | dict.fromkeys(("no_header", "to_file", "edit", "from_file"), LOCAL),
    qrsub.main: {parameter.name or "": "reservation_request" for parameter in qrsub.main.params}
    | {"verify": "reservation_try", "is_verbose": READ, "is_terse": READ},
    qralter.main: {parameter.name or "": "reservation_alter" for parameter in qralter.main.params}
    | {
        "verify": "reservation_alter_try",
        "series": "reservation_series_alter",
    },
    qrdel.main: {"force": "reservation_delete", "words": "reservation_delete", "series": "reservation_series_delete"}
    | {"owners": "a reservation is deleted by its number"},
    oar_token.main: {"action": "token_create", "scope": "token_create", "expires": "token_create"}
    | {"comment": "token_create", "identifiers": "token_revoke"}
    | {"everybody": "tokens_list", "user": "token_create", "agent": "token_create"},
}


#: Commands that change nothing, or change what is this machine's own.
OTHERS = {
    **dict.fromkeys(("oarstat", "oarnodes", "qrstat", "oarprint"), READ),
    **dict.fromkeys(
        (
            "oar_database",
            "oar_conf",
            "oar_server",
            "oar2trace",
            "sentinelle",
            "oarsh",
            "oar_phoenix",
            "oar_resources_init",
            "oar_keys",
        ),
        LOCAL,
    ),
    "oarsub": "has a table of its own",
}


def _names(command: Command) -> set[str]:
    return {parameter.name or "" for parameter in command.params} - OF_TERMINALS


def test_each_option_of_oarsub_has_its_field(anonymous: httpx.Client) -> None:
    schemas = anonymous.get("/openapi.json").json()["components"]["schemas"]
    assert _names(oarsub.main) == (SUBMISSION.keys() | ELSEWHERE.keys()) - OF_TERMINALS
    assert set(SUBMISSION.values()) <= schemas["JobRequest"]["properties"].keys()


def test_each_option_of_the_other_commands_has_its_operation_or_a_reason(anonymous: httpx.Client) -> None:
    paths = anonymous.get("/openapi.json").json()["paths"].values()
    operations = {each["operationId"] for path in paths for each in path.values() if "operationId" in each}
    for command, options in ACTS.items():
        assert _names(command) == set(options) - OF_TERMINALS, command.name
        named = {each for each in options.values() if " " not in each}
        assert named <= operations, command.name


def test_every_command_is_in_a_table() -> None:
    """Each file of a command either acts through an operation, or stands here with its reason."""
    files = {path.stem for path in Path(oarsub.__file__).parent.glob("*.py")} - {"__init__", "completion"}
    listed = {(command.name or "").replace("-", "_") for command in ACTS}
    assert files == listed | (OTHERS.keys() & files)


#: Fields of requests that are options of a command under another name, by command.
RENAMED = {
    qrsub.main: {"now": "interactive"},
    qralter.main: {"is_forced": "force"},
    oar_resources_add.main: {"auto_offset": "number_on", "no_columns": "add_properties", "append": "properties"}
    | {"execute": "dry_run", "as_yaml": "dry_run"},
}


def test_each_option_of_a_request_has_its_field(anonymous: httpx.Client) -> None:
    schemas = anonymous.get("/openapi.json").json()["components"]["schemas"]
    for command, schema in (
        (qrsub.main, "ReservationRequest"),
        (qralter.main, "ReservationUpdate"),
        (oar_resources_add.main, "NewMachines"),
    ):
        acts = {name for name, each in ACTS[command].items() if " " not in each and each != READ} - OF_TERMINALS
        fields = {RENAMED[command].get(name, name) for name in acts - {"verify", "words", "series"}}
        assert fields <= schemas[schema]["properties"].keys(), command.name


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

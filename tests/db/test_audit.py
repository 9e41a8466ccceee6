"""The audit log: one row for each change, with person, former and new value; none for a change that is rolled back."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from psycopg2 import errors

from oar.cli import (
    oar_audit,
    oar_keys,
    oaradmissionrules,
    oaralter,
    oardel,
    oarhold,
    oarnodesetting,
    oarnotify,
    oarproject,
    oarproperty,
    oarqueue,
    oarremoveresource,
    oarresume,
    oaruserset,
    oarwalltime,
)
from oar.cli.common.command import Command, CommandResult, Context
from oar.cli.common.servers import request_hand_over
from oar.lib.access import tokens
from oar.lib.access.records import User, Via
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.servers import ServerRow
from oar.lib.history import audit, policy_log
from oar.lib.history.audit import AuditAction, Values
from oar.lib.history.records import PolicyItem, PolicyKind
from oar.lib.history.sql_audit import AuditEntry, AuditFilter
from oar.lib.jobs import retention
from oar.lib.jobs.states import JobState, ServerRole
from oar.lib.submission import resubmission
from tests.builders import add_array, add_job, add_resources, execute_sql
from tests.db.console import Console

ANNA = User("root", 0, person="anna")
ALICE = User("alice", 1001)
ALL = AuditFilter()
#: Action, object, former value, new value. ``{0}`` is the id of the first resource, ``{1}`` of the second one ...
Row = tuple[str, str, str, str]


@pytest.fixture
def console(database: Database) -> Console:
    """A site with two nodes of two cores, and a Dead resource of a third one."""
    add_resources(database, nodes=2, cores=2)
    add_resources(database, nodes=1, cores=1, network_address="node-3", state="Dead")
    return Console(database, Config(walltime_change_enabled=True, walltime_max_increase=MappingProxyType({"_": -1.0})))


def rows(database: Database, selected: AuditFilter = ALL) -> list[AuditEntry]:
    """Return the selected rows, oldest first."""
    with database.snapshot() as tx:
        return audit.find(tx, selected, 1000)[::-1]


def shown(entries: Sequence[AuditEntry]) -> list[Row]:
    return [(entry.action, entry.object, entry.former_value, entry.new_value) for entry in entries]


NODES: list[tuple[Sequence[str], list[Row]]] = [
    (["-h", "node-1", "-s", "Absent"], [("change", "resource {0}-{1} (node-1)", "state=Alive", "state=Absent")]),
    (
        ["--sql", "state = 'Alive'", "-p", "besteffort=NO", "-p", "deploy=YES"],
        [
            (
                "change",
                "resource {0}-{3} (node-1, node-2)",
                "besteffort=YES; deploy=NO",
                "besteffort=NO; deploy=YES",
            )
        ],
    ),
    (
        ["-h", "node-1", "-p", "cpuset=7"],
        [("change", "resource {0}-{1} (node-1)", "cpuset=0 ({0}), cpuset=1 ({1})", "cpuset=7")],
    ),
    (["-h", "node-1", "-p", "besteffort=YES"], []),
    (
        ["-h", "node-2", "--maintenance", "on"],
        [("change", "resource {2}-{3} (node-2)", "maintenance=off", "maintenance=on")],
    ),
    (["-h", "node-2", "--drain", "on"], [("change", "resource {2}-{3} (node-2)", "drain=NO", "drain=YES")]),
    (["-a", "-h", "node-4", "-p", "cpuset=5"], [("add", "resource {5} (node-4)", "", "cpuset=5")]),
]


@pytest.mark.parametrize(("words", "expected"), NODES, ids=lambda value: " ".join(map(str, value)))
def test_a_change_of_nodes_is_one_row(console: Console, words: Sequence[str], expected: list[Row]) -> None:
    first = console.ids()[0]
    ids = [first + place for place in range(6)]
    result = console.type(oarnodesetting.main, *words, user=ANNA)
    assert result.exit == 0, result.err
    assert shown(rows(console.database)) == [tuple(text.format(*ids) for text in row) for row in expected]


def test_the_reason_and_the_person_are_in_the_row_and_the_event(console: Console) -> None:
    console.nodesetting("-h", "node-1", "-s", "Absent", "--reason", "a disk: broken", user=ANNA)
    (entry,) = rows(console.database)
    assert (entry.person, entry.via, entry.reason) == ("root (anna)", Via.COMMAND, "a disk: broken")
    with console.database.snapshot() as tx:
        texts = [event.description for event in tx.events.latest(10, before=None)]
    assert "User root (anna) requested the state Absent of node-1: a disk: broken" in texts


def test_changes_of_a_removed_node_are_found_by_its_name(console: Console) -> None:
    removed = console.ids()[-1]
    assert console.nodesetting("--sql", "true", "-p", "deploy=YES", user=ANNA).exit == 0
    assert console.type(oarremoveresource.main, removed, user=ANNA).exit == 0
    every = rows(console.database)
    assert [entry.object.split(" ", 2)[2] for entry in every] == ["(node-[1-3])", "(node-3)"]
    for name in ("node-3", "node node-3", f"resource {removed}"):
        assert rows(console.database, AuditFilter(object=name)) == every
    assert not rows(console.database, AuditFilter(object="node-99"))


def test_the_removal_of_a_resource_is_one_row(console: Console) -> None:
    last = console.ids()[-1]
    assert console.type(oarremoveresource.main, last, user=ANNA).exit == 0
    assert shown(rows(console.database)) == [("delete", f"resource {last} (node-3)", "", "")]


def test_a_change_of_ten_thousand_resources_is_one_row(console: Console) -> None:
    add_resources(console.database, nodes=500, cores=20, type="big")
    assert console.nodesetting("--sql", "type = 'big'", "-p", "deploy=YES", user=ANNA).exit == 0
    (entry,) = rows(console.database)
    assert (entry.former_value, entry.new_value) == ("deploy=NO", "deploy=YES")
    numbers = entry.object.split()[1].split("-")
    assert int(numbers[1]) - int(numbers[0]) == 9999
    for name in ("node-77", numbers[0], f"resource {numbers[1]}", "resource"):
        assert rows(console.database, AuditFilter(object=name)) == [entry]
    for name in ("node-501", str(int(numbers[1]) + 1), f"job {numbers[0]}", "queue"):
        assert not rows(console.database, AuditFilter(object=name))


COMMANDS: list[tuple[Command, Sequence[Sequence[str]], list[Row]]] = [
    (oarproperty.main, [["-c", "-a", "rack"]], [("add", "property rack", "", "varchar")]),
    (
        oarproperty.main,
        [["-a", "mem"], ["-r", "mem,memory"], ["-d", "memory"]],
        [
            ("add", "property mem", "", "integer"),
            ("rename", "property mem", "mem", "memory"),
            ("delete", "property memory", "integer", ""),
        ],
    ),
    (oarqueue.main, [["--add", "night,1,kamelot"]], [("add", "queue night", "", "priority 1, policy kamelot, Active")]),
    (
        oarqueue.main,
        [["-d", "default"]],
        [
            (
                "change",
                "queue default",
                "priority 2, policy kamelot, Active",
                "priority 2, policy kamelot, notActive",
            )
        ],
    ),
    (
        oarnotify.main,
        [["--remove_queue", "admin"]],
        [("delete", "queue admin", "priority 10, policy kamelot, Active", "")],
    ),
    (
        oaruserset.main,
        [["-a", "alice,bob", "chemists"], ["-d", "bob", "chemists"], ["-a", "alice", "chemists"]],
        [("add", "userset chemists", "", "alice, bob"), ("remove", "userset chemists", "bob", "")],
    ),
    (
        oarproject.main,
        [
            ["--create", "physics"],
            ["--add", "alice,bob", "physics"],
            ["--add", "bob", "physics", "--role", "manager"],
            ["--remove", "alice", "physics"],
            ["--shares", "5", "physics"],
            ["--close", "physics"],
            ["--close", "physics"],
            ["--delete", "physics"],
        ],
        [
            ("add", "project physics", "", ""),
            ("change", "project physics", "", "member alice (1 shares), member bob (1 shares)"),
            ("change", "project physics", "member bob (1 shares)", "manager bob (1 shares)"),
            ("remove", "project physics", "member alice (1 shares)", ""),
            ("change", "project physics", "shares=1", "shares=5"),
            ("change", "project physics", "state=open", "state=closed"),
            ("delete", "project physics", "state=closed, shares=5", ""),
        ],
    ),
]


@pytest.mark.parametrize(("command", "calls", "expected"), COMMANDS)
def test_a_change_of_an_administrator_is_one_row(
    console: Console, command: Command, calls: Sequence[Sequence[str]], expected: list[Row]
) -> None:
    for words in calls:
        result = console.type(command, *words, user=ANNA)
        assert result.exit == 0, result.err
    entries = rows(console.database)
    assert shown(entries) == expected
    assert {(entry.person, entry.via) for entry in entries} == {("root (anna)", Via.COMMAND)}


def test_an_import_of_projects_is_one_row_and_its_dry_run_is_none(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "projects.csv"
    file.write_text("project,parent,user,role,shares\nphysics,,,,2\nphysics,,alice,manager,1\n")
    assert console.type(oarproject.main, "--import", file, user=ANNA).exit == 0
    assert not rows(console.database)
    assert console.type(oarproject.main, "--import", file, "--apply", user=ANNA).exit == 0
    expected = "physics: created, shares=2, manager alice (1 shares)"
    assert shown(rows(console.database)) == [("import", "project physics", "", expected)]


def test_an_import_has_the_former_and_the_new_values_of_each_project(console: Console, tmp_path: Path) -> None:
    columns = "project,parent,user,role,shares,period_start,period_end,resource_hours,on_exhaustion\n"
    file = tmp_path / "projects.csv"
    budget = "of {} resource hours without end, refuse"
    for shares, role, hours in ((2, "manager", 5), (3, "member", 7)):
        lines = f"physics,,,,{shares},,,{hours},\nphysics,,alice,{role},1,,,,\na lab,,,,{shares},,,,\n"
        file.write_text(columns + lines)
        assert console.type(oarproject.main, "--import", file, "--apply", user=ANNA).exit == 0
    entry = rows(console.database)[-1]
    assert shown([entry]) == [
        (
            "import",
            "project physics, a lab",
            f"physics: shares=2, manager alice (1 shares), budget {budget.format(5)}; a lab: shares=2",
            f"physics: shares=3, member alice (1 shares), budget {budget.format(7)}; a lab: shares=3",
        )
    ]
    for name in ("physics", "project physics", "project a lab", "project"):
        assert rows(console.database, AuditFilter(object=name))[-1] == entry
    assert not rows(console.database, AuditFilter(object="project lab"))


def test_the_row_of_a_large_import_is_bounded(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "projects.csv"
    lines = [f"project-{number:05},,,,2\n" for number in range(5000)]
    file.write_text("".join(["project,parent,user,role,shares\n", *lines]))
    assert console.type(oarproject.main, "--import", file, "--apply", user=ANNA).exit == 0
    (entry,) = rows(console.database)
    assert max(len(entry.object), len(entry.new_value)) <= audit.LONGEST_VALUE
    assert entry.new_value.startswith("project-00000: created, shares=2; project-00001: ")
    assert entry.new_value.endswith(" others")


def test_a_long_text_is_its_digest(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    file.write_text("a = 1\nb = 2\n")
    assert console.type(oaradmissionrules.main, "-n", "-r", file, user=ANNA).exit == 0
    (entry,) = rows(console.database)
    assert (entry.action, entry.object.split()[0]) == ("add", "rule")
    assert entry.new_value.startswith("sha256:")


def test_the_first_values_of_files_are_no_change_and_later_ones_are(database: Database) -> None:
    quotas = PolicyItem(PolicyKind.FILE, "/etc/oar/quotas.json")
    for text in ('{"a": 1}', '{"a": 2}'):
        with database.begin() as tx:
            policy_log.note(tx, [PolicyKind.FILE], {quotas: text})
    (entry,) = rows(database)
    assert (entry.person, entry.via) == ("file", Via.FILE)
    assert shown([entry]) == [("change", "file /etc/oar/quotas.json", '{"a": 1}', '{"a": 2}')]


# -- jobs -------------------------------------------------------------------------------------------------------------

JOBS: list[tuple[Command, JobState, Sequence[object], Row]] = [
    (oarhold.main, JobState.WAITING, ["{}"], ("hold", "job {} (alice)", "", "")),
    (oarresume.main, JobState.HOLD, ["{}"], ("resume", "job {} (alice)", "", "")),
    (oardel.main, JobState.WAITING, ["{}"], ("delete", "job {} (alice)", "", "")),
    (oaralter.main, JobState.WAITING, ["{}", "-n", "x"], ("change", "job {} (alice)", "name = None", "name = 'x'")),
    (oarwalltime.main, JobState.RUNNING, ["{}", "+1:0"], ("change", "job {} (alice)", "", "walltime +1:0:0 ")),
]


@pytest.mark.parametrize(("command", "state", "words", "expected"), JOBS)
def test_a_job_of_another_user_is_one_row_and_an_own_job_is_none(
    console: Console, command: Command, state: JobState, words: Sequence[str], expected: Row
) -> None:
    jobs = [add_job(console.database, state, on=console.ids()[:1]) for _ in range(2)]
    for job, user in zip(jobs, (ANNA, ALICE), strict=True):
        result = console.type(command, *(word.format(job) for word in words), user=user)
        assert result.exit == 0, result.err
    (entry,) = rows(console.database)
    assert entry.person == "root (anna)"
    assert entry.new_value.startswith(expected[3])
    assert shown([entry])[0][:3] == tuple(text.format(jobs[0]) for text in expected[:3])
    with console.database.snapshot() as tx:
        texts = [event.description for job in jobs for event in tx.events.latest(10, job=job, before=None)]
    assert any(text.startswith("User root (anna) ") for text in texts)
    assert any(text.startswith("User alice ") for text in texts)


def test_signals_to_jobs_of_others_are_one_row(console: Console) -> None:
    from oar.lib.jobs import control

    jobs = [add_job(console.database, JobState.RUNNING, on=[resource]) for resource in console.ids()[:3]]
    for user, number in ((ANNA, 15), (ANNA, None), (ALICE, 15)):
        with console.database.begin() as tx:
            control.request_signals(tx, user, jobs, number)
    name = f"job {jobs[0]}-{jobs[2]} (alice)"
    assert shown(rows(console.database)) == [("signal", name, "", "signal 15"), ("checkpoint", name, "", "")]


def test_the_resubmission_of_a_job_of_another_user_is_one_row(console: Console) -> None:
    ended = add_job(console.database, JobState.TERMINATED, on=console.ids()[:1])
    copies = []
    for user in (ANNA, ALICE):
        with console.database.begin() as tx:
            copies.append(resubmission.resubmit(tx, console.config, user, ended))
    (entry,) = rows(console.database)
    assert entry.person == "root (anna)"
    assert shown([entry]) == [("resubmit", f"job {ended} (alice)", "", f"job {copies[0]}")]


def test_an_array_is_one_row_and_each_of_its_jobs_finds_it(console: Console) -> None:
    jobs = add_array(console.database, 50)
    assert console.type(oardel.main, "--array", jobs[0], user=ANNA).exit == 0
    (entry,) = rows(console.database)
    assert entry.object == f"job {jobs[0]}-{jobs[-1]} (alice)"
    assert rows(console.database, AuditFilter(object=f"job {jobs[20]}")) == [entry]
    assert rows(console.database, AuditFilter(object="alice", person="anna", action="delete")) == [entry]
    assert not rows(console.database, AuditFilter(person="ann"))


def test_a_refused_change_is_no_row(console: Console) -> None:
    job = add_job(console.database, user="bob")
    console.type(oardel.main, job, user=ALICE)
    console.type(oarqueue.main, "--remove", "no-queue", user=ANNA)
    console.nodesetting("-h", "node-1", "-p", "nothing=1", user=ANNA)
    console.nodesetting("-h", "node-1", "-s", "Dead", user=ALICE)
    assert not rows(console.database)


# -- tokens -----------------------------------------------------------------------------------------------------------


def test_tokens_are_recorded_without_their_secrets(database: Database) -> None:
    with database.begin() as tx:
        number, secret = tokens.create(tx, ALICE, scope="ro", days=3, comment="ci", maker=ANNA)
        tokens.begin_session(tx, ALICE, 60)
        tokens.revoke(tx, ALICE, None)
    entries = rows(database)
    assert [(entry.person, *row) for entry, row in zip(entries, shown(entries), strict=True)] == [
        ("root (anna)", "add", f"token {number} (alice)", "", "scope ro, 3 days"),
        ("alice", "revoke", f"token {number} (alice)", "", ""),
    ]
    assert secret not in str(entries)


def test_the_token_of_a_request_is_recorded_with_its_user(database: Database) -> None:
    user = User("anna", 1, administers=True, token="token 7", via=Via.API)
    with database.begin() as tx:
        audit.record(tx, user, AuditAction.CHANGE, "queue a", Values("1", "2"))
    (entry,) = rows(database, AuditFilter(person="anna"))
    assert (entry.person, entry.via) == ("anna, token 7", Via.API)


def test_a_hand_over_is_one_row(database: Database) -> None:
    row = ServerRow("srv1", "srv1", 6666, ServerRole.ACTIVE, 0, 100, "3.3.0", "", 0)
    with database.begin() as tx:
        request_hand_over(tx, ANNA, "srv2", [row, row._replace(server_name="srv2", role=ServerRole.STANDBY)])
    (entry,) = rows(database, AuditFilter(person="anna", object="srv2"))
    assert shown([entry]) == [("hand-over", "server srv2", "srv1", "srv2")]


# -- programs of the administrator ------------------------------------------------------------------------------------


def test_a_purge_is_one_row_for_each_kind_of_data_that_it_deletes(database: Database) -> None:
    execute_sql(
        database, "INSERT INTO event_logs (type, date, to_check) SELECT 'X', 1, 'NO' FROM generate_series(1, 5000)"
    )
    config = Config(retention_event_logs=30, retention_jobs=30)
    for kept in retention.kept(config):
        if kept.days:
            assert list(kept.purge(database, kept.days, retention.record_purge(ANNA, kept.what, kept.days)))
    purges = rows(database, AuditFilter(action="purge"))
    assert [(entry.object, entry.former_value) for entry in purges] == [("events", "older than 30 days")]


def test_keys_that_nodes_get_are_one_row(database: Database, tmp_path: Path) -> None:
    conf = tmp_path / "oar.conf"
    settings = database.settings
    lines = [f'DB_HOSTNAME="{settings.host}"', f'DB_BASE_NAME="{settings.name}"', f'DB_BASE_LOGIN="{settings.user}"']
    conf.write_text("\n".join(lines))
    context = Context(oar_keys.main, {"OARCONFFILE": str(conf)}, ANNA, None)
    oar_keys._record(context, ["root@node-1", "node-2"])
    (entry,) = rows(database, AuditFilter(object="node-2", person="anna"))
    assert shown([entry]) == [("add", "node node-1, node-2", "", "SSH keys")]


@pytest.fixture
def log(console: Console) -> Callable[..., CommandResult]:
    """oar-audit, as it shows the work of two persons."""
    for person, words in (("anna", ["-d", "default"]), ("bob", ["-e", "default"])):
        assert console.type(oarqueue.main, *words, user=User("root", 0, person=person)).exit == 0

    def typed(*words: object, user: User = ANNA) -> CommandResult:
        return console.type(oar_audit.main, *words, user=user)

    return typed


def test_the_log_is_printed_as_lines_and_as_records(log: Callable[..., CommandResult]) -> None:
    first, second = log().out.splitlines()
    assert first.endswith(
        '  root (anna)  command  change  queue default: "priority 2, policy kamelot, Active"'
        ' -> "priority 2, policy kamelot, notActive"'
    )
    assert "  root (bob)  " in second
    records = json.loads(log("-J").out)
    assert [(record["person"], record["via"], record["object"]) for record in records] == [
        ("root (anna)", "command", "queue default"),
        ("root (bob)", "command", "queue default"),
    ]
    assert [len(log(*words).out.splitlines()) for words in LOG_WORDS] == [1, 2, 0, 2, 0, 1, 2, 0, 2, 0]
    newest = log("-n", 1)
    assert newest.out.splitlines() == [second]
    assert "These are the newest 1 changes" in newest.err


LOG_WORDS: list[Sequence[str]] = [
    *(["--by", "anna"], ["--by", "root"], ["--by", "eve"]),
    *(["--since", "1d"], ["--until", "1d"]),
    *(["--object", "queue default", "--by", "bob"], ["--object", "default"], ["--object", "queue night"]),
    *(["--action", "change"], ["--action", "delete"]),
]


@pytest.mark.parametrize(
    "words",
    [
        ["--since", "soon"],
        ["--action", "destroy"],
        ["-n", "-1"],
        ["-n", "0"],
        ["--by", ""],
        ["--object", "\ud800"],
        ["--object", "a\0b"],
        ["queue"],
    ],
)
def test_bad_words_are_one_line_and_print_nothing(log: Callable[..., CommandResult], words: list[str]) -> None:
    result = log(*words)
    assert result.exit != 0
    assert result.out == ""
    assert result.err.splitlines()[0]
    assert "internal error" not in result.err


def test_users_do_not_read_the_log(log: Callable[..., CommandResult]) -> None:
    result = log(user=ALICE)
    assert (result.exit != 0, result.out) == (True, "")
    assert "You must be oar or root." in result.err


def test_a_large_number_names_nothing(log: Callable[..., CommandResult]) -> None:
    for name in ("9" * 18, "9" * 30, "job " + "9" * 30, "%", "'", "resource"):
        assert (log("--object", name).exit, log("--object", name).out) == (0, "")


# -- append only ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit_log SET person = 'bob'", "DELETE FROM audit_log", "TRUNCATE audit_log"],
)
def test_the_account_of_commands_cannot_change_rows(console: Console, statement: str) -> None:
    console.type(oarqueue.main, "-d", "default", user=ANNA)
    with pytest.raises(errors.InsufficientPrivilege):
        execute_sql(console.database, statement)
    assert len(rows(console.database)) == 1


def test_the_read_only_account_cannot_read_it(console: Console) -> None:
    with console.database.readonly() as tx, pytest.raises(errors.InsufficientPrivilege):
        tx.rows("SELECT * FROM audit_log")


def test_a_change_that_is_rolled_back_leaves_no_row(database: Database) -> None:
    class Failure(Exception):
        pass

    def fail(work: Callable[[], None]) -> None:
        work()
        raise Failure

    with pytest.raises(Failure), database.begin() as tx:
        fail(lambda: audit.record(tx, ANNA, AuditAction.CHANGE, "queue a"))
    assert not rows(database)


def test_only_its_retention_key_deletes_rows(database: Database) -> None:
    day = 86400
    with database.begin() as tx:
        now = tx.now
    for age in (400, 300, 1):
        database._clock = lambda age=age: now - age * day
        with database.begin() as tx:
            audit.record(tx, ANNA, AuditAction.CHANGE, f"queue {age}")
    database._clock = lambda: now
    (kept,) = [kept for kept in retention.kept(Config(retention_audit=350)) if kept.key == "RETENTION_AUDIT"]
    assert kept.foresee(database, kept.days) == 1
    assert sum(kept.purge(database, kept.days)) == 1
    assert [entry.object for entry in rows(database)][:2] == ["queue 300", "queue 1"]
    with pytest.raises(errors.InsufficientPrivilege):
        execute_sql(database, "DELETE FROM audit_log")
    assert [kept.days for kept in retention.kept(Config()) if kept.key == "RETENTION_AUDIT"] == [0]

"""What decides about jobs is kept with its changes: who, when, from what to what."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from oar.cli import oar_conf, oaradmissionrules, oarqueue
from oar.cli.common.command import CommandResult, invoke
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.reading.policy_files import NO_QUOTAS
from oar.kao.rounds.reading.policy_watch import keys
from oar.lib.access.records import User
from oar.lib.config.deciding import DECIDING, FILES, OF_REQUESTS
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history import policy_log
from oar.lib.history.records import PolicyChange, PolicyItem, PolicyKind
from oar.lib.runtime import Runtime
from tests.builders import add_resources, execute_sql
from tests.db.console import EVE, ROOT, Console
from tests.db.test_replay import configured
from tests.unit.sources import ROOT as SOURCES
from tests.unit.test_unread_keys import read_by

#: What rounds read and does not change what they decide.  Of commands for nodes they read only whether there is one:
#: their words may be passwords, which no history should keep.
NOT_DECIDING = frozenset(
    {
        *("energy_saving_node_manager_sleep_cmd", "energy_saving_node_manager_wake_up_cmd"),
        *("scheduler_node_manager_sleep_cmd", "scheduler_node_manager_wake_up_cmd"),
        *("estimate_timeout", "oar_run_dir", "log_scheduler_priority_changes", "scheduler_log_decisions"),
        *("scheduler_log_job_scheduling_time", "scheduler_job_scheduling_time_yaml", "scheduler_rounds_kept"),
        *("reservation_answer_timeout", "scheduler_launcher_optimization", "schedulers_path"),
        "project",  # oarstat --limits
    }
)

#: Runs a round under a configuration that differs from the shipped one.
Round = Callable[..., None]


@pytest.fixture
def round_(database: Database, tmp_path: Path) -> Round:
    """Make a round; its files are in the directory of the test."""
    add_resources(database)

    def make(**keys: object) -> None:
        paths = {name: str(tmp_path / name) for name in FILES}
        config = Config(oar_run_dir=str(tmp_path), job_resource_manager_property_db_field="cpuset", **paths, **keys)
        scheduler = MetaScheduler(Runtime(config, database))
        scheduler.round()
        scheduler.close()

    return make


@pytest.fixture
def changes(database: Database) -> Callable[[], list[PolicyChange]]:
    """Return what was noted since the last time."""
    known = [0]

    def new() -> list[PolicyChange]:
        with database.begin() as tx:
            found = tx.history.policy_changes()
        begin, known[0] = known[0], len(found)
        return found[begin:]

    return new


Changes = Callable[[], list[PolicyChange]]


def test_the_first_round_notes_what_it_finds_and_the_next_one_nothing(round_: Round, changes: Changes) -> None:
    round_()
    found = {change.item: change for change in changes()}
    assert found[PolicyItem("key", "QUOTAS")][3:] == (None, "no")
    assert found[PolicyItem("queue", "default")].value
    assert {kind for kind, _ in found} >= {PolicyKind.KEY, PolicyKind.QUEUE}
    round_()
    assert changes() == []


def test_a_key_that_changes_is_noted_with_both_values(round_: Round, changes: Changes) -> None:
    round_()
    changes()
    round_(job_priority="FAIRSHARE", scheduler_job_security_time=7)
    assert [(change.item, change.former, change.value) for change in changes()] == [
        (("key", "JOB_PRIORITY"), "FIFO", "FAIRSHARE"),
        (("key", "SCHEDULER_JOB_SECURITY_TIME"), "1", "7"),
    ]


def test_a_file_is_noted_when_it_comes_changes_and_goes(round_: Round, changes: Changes, tmp_path: Path) -> None:
    round_()
    changes()
    path = tmp_path / "quotas_conf_file"
    path.write_text('{"quotas": {}}\n')
    round_()
    path.write_bytes(b'{"quotas": {"*,*,*,*": [1,-1,-1]}}\n')
    round_()
    path.unlink()
    round_()
    assert [(change.former, change.value) for change in changes()] == [
        (None, '{"quotas": {}}\n'),
        ('{"quotas": {}}\n', '{"quotas": {"*,*,*,*": [1,-1,-1]}}\n'),
        ('{"quotas": {"*,*,*,*": [1,-1,-1]}}\n', None),
    ]


def test_what_a_command_changes_has_its_caller_and_the_round_adds_nothing(
    console: Console, round_: Round, changes: Changes
) -> None:
    console.type(oarqueue.main, "--add", "night,3,kamelot")
    console.type(oarqueue.main, "--disable", "night")
    console.type(oarqueue.main, "--remove", "night")
    noted = [change for change in changes() if change.item.name == "night"]
    assert [(change.author, change.former, change.value) for change in noted] == [
        ("root", None, "priority 3, policy kamelot, Active"),
        ("root", "priority 3, policy kamelot, Active", "priority 3, policy kamelot, notActive"),
        ("root", "priority 3, policy kamelot, notActive", None),
    ]
    round_()
    assert {change.item.kind for change in changes()} == {PolicyKind.KEY}


def test_what_was_there_before_a_command_is_nobodys(console: Console, changes: Changes) -> None:
    console.type(oarqueue.main, "--change", "default,9")
    noted = changes()
    assert [change.author for change in noted if change.item.name == "default"] == ["", "root"]
    assert {change.author for change in noted if change.item.name != "default"} == {""}


def test_a_change_by_hand_is_found_by_the_next_round(database: Database, round_: Round, changes: Changes) -> None:
    round_()
    changes()
    with database.begin() as tx:
        tx.queues.update("default", priority=5)
    round_()
    (change,) = changes()
    assert (change.author, change.item) == ("", ("queue", "default"))
    assert (change.value or "").startswith("priority 5, ")


def test_a_refused_change_leaves_nothing(console: Console, changes: Changes) -> None:
    console.type(oarqueue.main, "--change", "default,9", "--remove", "nowhere")
    assert changes() == []


def test_rules_are_noted_with_their_text_and_their_state(console: Console, changes: Changes, tmp_path: Path) -> None:
    rule = tmp_path / "rule.py"
    rule.write_text("if user == 'bob':\n    reject('no')\n")
    assert console.type(oaradmissionrules.main, "-n", "-r", rule).exit == 0
    (created,) = [change for change in changes() if change.author == "root"]
    assert created.value == f"# priority 0, enabled\n{rule.read_text()}"
    number = created.item.name
    assert console.type(oaradmissionrules.main, "-m", number, "-N").exit == 0
    (disabled,) = changes()
    assert (disabled.value or "").startswith("# priority 0, disabled\n")
    assert console.type(oaradmissionrules.main, "-d", number).exit == 0
    assert [change.value for change in changes()] == [None]


# -- oar-conf --check -------------------------------------------------------------------------------------------------


def test_a_check_tells_of_quotas_that_no_queue_obeys(database: Database, tmp_path: Path) -> None:
    file = configured(database.settings, tmp_path)
    file.write_text(file.read_text() + 'QUOTAS="yes"\n')

    def check() -> CommandResult:
        return invoke(oar_conf.main, ["--check", "--connect"], environment={"OARCONFFILE": str(file)}, user=ROOT)

    execute_sql(database, "UPDATE queues SET scheduler_policy = 'oar_sched_gantt_with_timesharing'")
    assert check() == CommandResult(0, "", f"/!\\ {NO_QUOTAS}\n")
    execute_sql(database, "UPDATE queues SET scheduler_policy = 'kamelot' WHERE queue_name = 'default'")
    assert check() == CommandResult(0, "", "")


# -- oar-conf --history -----------------------------------------------------------------------------------------------


def history(database: Database, *words: str, user: object = ROOT) -> CommandResult:
    return invoke(
        oar_conf.main,
        ["--history", *words],
        runtime=Runtime(Config(), database),
        user=user,  # type: ignore[arg-type]
    )


def test_the_history_is_a_line_for_a_value_and_a_difference_for_a_text(database: Database, in_utc: None) -> None:
    database._clock = lambda: 1_900_000_000
    with database.begin() as tx:
        old = {PolicyItem("key", "QUOTAS"): "no", PolicyItem("rule", "3"): "# priority 0, enabled\na = 1\nb = 2\n"}
        new = {PolicyItem("key", "QUOTAS"): "yes", PolicyItem("rule", "3"): "# priority 0, enabled\na = 1\nb = 3\n"}
        policy_log.note(tx, tuple(PolicyKind), old)
        policy_log.note(tx, tuple(PolicyKind), new, User("root", 0))
    result = history(database, "QUOTAS")
    assert result.out.splitlines() == [
        '2030-03-17 17:46:40  -  QUOTAS: (none) -> "no"',
        '2030-03-17 17:46:40  root  QUOTAS: "no" -> "yes"',
    ]
    lines = history(database).out.splitlines()
    assert "2030-03-17 17:46:40  root  rule 3: changed" in lines
    assert lines[-2:] == ["    -b = 2", "    +b = 3"]


def test_the_history_of_a_new_database_is_one_line(database: Database, in_utc: None) -> None:
    database._clock = lambda: 1_900_000_000
    config = Config()
    with database.begin() as tx:
        policy_log.note_stored(tx, keys(config))
    assert re.fullmatch(
        r"2030-03-17 17:46:40  -  first values of \d+ keys, \d+ queues(, \d+ rules)?"
        r" \(oar-conf --history NAME prints one\)\n",
        history(database).out,
    )
    database._clock = lambda: 1_900_001_000
    with database.begin() as tx:
        policy_log.note_stored(tx, keys(config.replace(quotas=True)), user=User("ann", 0, administers=True))
    line = '2030-03-17 18:03:20  ann  QUOTAS: "no" -> "yes"'
    assert history(database).out.splitlines()[1:] == [line]
    for words in (("--by", "ann"), ("--since", "2030-03-17 18:00:00"), ("--since", "2030-03-17 18:00:00", "QUOTAS")):
        assert history(database, *words).out == f"{line}\n"
    assert history(database, "--until", "2030-03-17 17:50:00", "QUOTAS").out.endswith('QUOTAS: (none) -> "no"\n')
    assert history(database, "--by", "root").out == ""
    assert history(database, "--since", "some day").exit != 0


def test_the_history_names_what_it_does_not_know_and_is_for_administrators(database: Database) -> None:
    result = history(database, "COLOUR")
    assert (result.exit, result.out) == (1, "")
    assert "No change of COLOUR is recorded" in result.err
    assert history(database, user=EVE).exit != 0
    assert history(database, "--check").exit != 0


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_each_key_that_rounds_read_is_kept_or_decides_nothing() -> None:
    read: set[str] = set()
    for path in (*(SOURCES / "oar" / "kao").rglob("*.py"), SOURCES / "oar" / "lib" / "accounts" / "quota_files.py"):
        read |= read_by(path.read_text())
    assert sorted(read) == sorted(DECIDING | NOT_DECIDING | (read & OF_REQUESTS))
    secrets = {option.name for option in Config.options() if option.secret}
    assert not (DECIDING | OF_REQUESTS) & (NOT_DECIDING | secrets)
    assert not DECIDING & OF_REQUESTS


def test_a_text_that_the_database_cannot_hold_is_kept_as_far_as_it_can() -> None:
    assert policy_log.kept("a\0b\ud800") == "a\ufffdb?"
    long = policy_log.kept("x" * (policy_log.LONGEST + 5))
    assert long.endswith(f"[cut: {policy_log.LONGEST + 5} characters]")

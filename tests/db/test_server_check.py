"""Probes of ``oar-server status --check``: what it finds in the database and on the machine."""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from oar.cli.common import health_probes
from oar.cli.common.health_probes import (
    find_key_problem,
    find_timer_problems,
    find_unreadable_configuration,
    parse_units,
    probe_cluster,
)
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history import policy_log
from oar.lib.history.event_types import EventType
from oar.lib.jobs import launch_holds, queues
from oar.lib.jobs.ends import EndCode
from oar.lib.jobs.states import JobState, LaunchFault, QueueState
from oar.lib.monitoring.health import judge_cluster
from oar.lib.monitoring.records import FailedLaunches, HealthFacts, QueueStatus, ServerTask
from oar.lib.nodes import state_changes
from oar.lib.nodes.states import ResourceState
from tests.builders import add_job, add_resources, execute_sql

ROOT = User("root", 0)


@pytest.fixture
def config(database: Database, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(health_probes, "database_settings", lambda config, patience: database.settings)
    return Config()


def probed(config: Config) -> HealthFacts:
    facts = probe_cluster(config)
    assert not isinstance(facts, str)
    return facts


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_nodes_are_lost_when_none_is_alive(database: Database, config: Config) -> None:
    assert probed(config).lost_nodes == 0
    add_resources(database, state="Absent")
    assert probed(config).lost_nodes == 2
    assert probed(Config(energy_saving_internal=True, energy_saving_node_manager_wake_up_cmd="wake")).lost_nodes == 0


def test_a_node_for_desktop_computing_is_alive_too(database: Database, config: Config) -> None:
    add_resources(database, state="Suspected")
    add_resources(database, network_address="desktop", desktop_computing="YES")
    assert probed(config).lost_nodes == 0


def test_a_node_whose_state_is_about_to_change_is_alive_until_then(database: Database, config: Config) -> None:
    add_resources(database, state="Suspected")
    asked = add_resources(database, network_address="node-9")
    with database.begin() as tx:
        state_changes.ask_state(tx, asked, ResourceState.ABSENT)
    assert probed(config).lost_nodes == 0


def test_suspected_resources_are_counted(database: Database, config: Config) -> None:
    add_resources(database, nodes=1)
    add_resources(database, nodes=1, cores=3, state="Suspected")
    add_resources(database, nodes=1, type="licence", state="Suspected")
    facts = probed(config)
    assert (facts.resources, facts.suspected) == (5, 3)


def test_a_lock_on_the_resources_does_not_hold_the_check_up(
    database: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_probes, "DATABASE_SECONDS", 1)
    add_resources(database, state="Absent")
    with database.begin() as tx:
        tx.execute("LOCK TABLE resources IN ACCESS EXCLUSIVE MODE")
        report = judge_cluster(probe_cluster(config), 0)
    assert report.line == (
        "OAR WARNING: cannot check the jobs: the database did not answer within 1 s. Run: oar-database --check"
    )
    assert probed(config).lost_nodes == 2


# -- queues -----------------------------------------------------------------------------------------------------------


def test_a_queue_names_the_administrator_who_stopped_it(database: Database, config: Config) -> None:
    with database.begin() as tx:
        queues.switch(tx, ROOT, disabled=["default"])
        now = tx.now
    status = {queue.name: queue for queue in probed(config).queues}
    assert status["default"] == QueueStatus("default", is_active=False, since=now, author="root")
    assert status["admin"].is_active


def test_a_queue_that_oar_stopped_names_nobody(database: Database, config: Config) -> None:
    with database.begin() as tx:
        queues.switch(tx, ROOT, disabled=["default"])
        queues.switch(tx, ROOT, enabled=["default"])
    with database.begin() as tx:
        tx.queues.set_state(None, QueueState.NOT_ACTIVE)
    assert {queue.author for queue in probed(config).queues} == {""}
    with database.begin() as tx:
        policy_log.note_stored(tx)  # as the next round does
    assert {queue.author for queue in probed(config).queues} == {""}
    assert all(queue.since for queue in probed(config).queues)


# -- submissions ------------------------------------------------------------------------------------------------------


def refuse(database: Database, number: int, ago: int = 0) -> None:
    with database.begin() as tx:
        for _ in range(number):
            tx.events.add(EventType.SUBMISSION_REFUSED, 0, "a submission of bob: not you")
        tx.execute("UPDATE event_logs SET date = date - %s", (ago,))


def test_refusals_are_counted_since_the_last_submission_that_was_accepted(database: Database, config: Config) -> None:
    refuse(database, 2, ago=20)
    job = add_job(database)
    execute_sql(database, "UPDATE jobs SET submission_time = submission_time - 10 WHERE job_id = %s", job)
    assert probed(config).refusals.number == 0
    refuse(database, 3)
    assert probed(config).refusals == (3, "a submission of bob: not you")


def test_refusals_of_yesterday_are_forgotten(database: Database, config: Config) -> None:
    refuse(database, 5, ago=86400)
    assert probed(config).refusals == (0, "")


def test_a_rule_that_is_not_python_is_named_and_a_disabled_one_is_not(database: Database, config: Config) -> None:
    with database.begin() as tx:
        bad = tx.admission_rules.insert("if (1) {\n", priority=5, enabled=True, author="root")
        tx.admission_rules.insert("$perl;", priority=6, enabled=False, author="root")
    (error,) = probed(config).rule_errors
    assert error.startswith(f"admission rule {bad} is not Python: line 1: ")
    assert error.endswith(f"oaradmissionrules -m {bad} -N")


def test_rules_in_files_that_cannot_be_read_are_named(database: Database, config: Config, tmp_path: Path) -> None:
    in_files = Config(admission_rules_in_files=True, admission_rules_path=str(tmp_path / "nowhere"))
    (error,) = probed(in_files).rule_errors
    assert "cannot read the admission rules" in error


# -- launches ---------------------------------------------------------------------------------------------------------


def fail_launch(database: Database, code: EndCode) -> None:
    job = add_job(database, JobState.ERROR)
    execute_sql(database, "UPDATE job_ends SET code = %s WHERE job_id = %s", str(code), job)


def test_launches_that_fail_for_one_reason_are_counted_until_a_job_starts(database: Database, config: Config) -> None:
    for code in (EndCode.PROLOGUE, EndCode.PROLOGUE, EndCode.NODE_SETUP, EndCode.DIRECTORY_MISSING):
        fail_launch(database, code)
    assert probed(config).failed_launches == FailedLaunches(EndCode.PROLOGUE, 2)
    add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    assert probed(config).failed_launches is None


def test_a_fault_that_holds_all_launches_is_named_until_it_is_repaired(database: Database, config: Config) -> None:
    with database.begin() as tx:
        tx.launch_holds.hold(LaunchFault.CONFIGURATION, "", "", 0, "TAKTUK_CMD: no such program", is_confirmed=True)
    assert probed(config).launch_holds == ["TAKTUK_CMD: no such program"]
    with database.begin() as tx:
        assert launch_holds.end_repaired(tx)
    assert probed(config).launch_holds == []


# -- accounting and timers --------------------------------------------------------------------------------------------


def test_the_oldest_job_that_is_not_accounted_is_found(database: Database, config: Config) -> None:
    assert probed(config).oldest_not_accounted == 0
    add_job(database, JobState.ERROR)
    with database.begin() as tx:
        tx.figures.record_success(ServerTask.ACCOUNTING)
        tx.figures.record_success(ServerTask.ACCOUNTING)
        now = tx.now
    facts = probed(config)
    assert abs(facts.oldest_not_accounted - now) < 60
    assert facts.successes == [("accounting", now)]


UNITS = """Id=oar-accounting.timer
LoadState=loaded
UnitFileState=enabled
ActiveState={accounting}

Id=oar-accounting.service
LoadState=loaded
ActiveState={service}

Id=oar-purge.timer
LoadState=loaded
UnitFileState={purge}
ActiveState=inactive

Id=oar-phoenix.timer
LoadState=not-found
ActiveState=inactive
"""


@pytest.mark.parametrize(
    ("accounting", "service", "purge", "problems"),
    [
        ("active", "inactive", "disabled", []),
        ("inactive", "inactive", "disabled", ["oar-accounting.timer is stopped. Run: systemctl enable --now"]),
        ("active", "failed", "disabled", ["oar-accounting.service failed. See: journalctl -u oar-accounting"]),
        ("active", "inactive", "enabled", ["oar-purge.timer is stopped."]),
    ],
)
def test_timers_that_should_run_and_do_not_are_named(
    accounting: str, service: str, purge: str, problems: list[str]
) -> None:
    units = parse_units(UNITS.format(accounting=accounting, service=service, purge=purge))
    found = list(find_timer_problems(units))
    assert len(found) == len(problems)
    assert all(text.startswith(problem) for text, problem in zip(found, problems, strict=True))


def test_a_masked_timer_is_not_missed() -> None:
    masked = UNITS.format(accounting="inactive", service="inactive", purge="disabled").replace("loaded", "masked", 1)
    assert list(find_timer_problems(parse_units(masked))) == []


# -- the key ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    directory = tmp_path / ".ssh"
    directory.mkdir()
    return directory


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (lambda keys: (keys / "id_ed25519").write_text(""), ""),
        (lambda keys: (keys / "id_rsa").write_text(""), ""),
        (lambda keys: None, "the key of the server does not exist"),
        (lambda keys: (keys / "config").write_text("Host *\n IdentityFile /etc/key\n"), ""),
    ],
)
def test_a_key_that_is_gone_is_found(
    config: Config, keys: Path, prepare: Callable[[Path], object], problem: str
) -> None:
    prepare(keys)
    found = find_key_problem(config, os.getpid(), str(keys.parent))
    assert problem in found
    assert bool(problem) is bool(found)


def test_an_identity_of_openssh_cmd_needs_no_default_key(keys: Path) -> None:
    config = Config(openssh_cmd="/usr/bin/ssh -p 6667 -i /etc/oar/key")
    assert find_key_problem(config, os.getpid(), str(keys.parent)) == ""


def test_a_configuration_that_the_account_of_the_server_cannot_read_is_named() -> None:
    server = subprocess.Popen(["sleep", "60"], user=65534)
    try:
        with tempfile.NamedTemporaryFile(dir="/tmp") as file:
            os.chmod(file.name, 0o640)
            (error,) = find_unreadable_configuration(file.name, server.pid)
            assert error.startswith(f"the account nobody cannot read {file.name} (run: chown root:nobody ")
            os.chmod(file.name, 0o644)
            assert list(find_unreadable_configuration(file.name, server.pid)) == []
    finally:
        server.kill()
        server.wait()


def test_a_key_that_the_account_cannot_read_is_named(config: Config, keys: Path) -> None:
    (keys / "id_ed25519").touch(0o600)
    server = subprocess.Popen(["sleep", "60"], user=65534)
    try:
        assert "id_ed25519: nobody cannot read it" in find_key_problem(config, server.pid, str(keys.parent))
    finally:
        server.kill()
        server.wait()

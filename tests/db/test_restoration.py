"""A database that was restored from a dump of yesterday: oar/lib/nodes/restoration.py."""

from pathlib import Path

import pytest

from oar.cli import oar_database
from oar.cli.common.command import invoke
from oar.lib.access.records import User
from oar.lib.bus.messages import Effect, Mail
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.system import ASYNCHRONOUS, JOBS, LOST, MARGIN, SEQUENCES, SYNCHRONOUS, ServerState
from oar.lib.history.event_types import EventType
from oar.lib.jobs import recovery
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.nodes.restoration import after_restore
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.modules.chronicle import Chronicle
from oar.modules.runner.restored_database import repair_if_restored
from tests.builders import add_job, add_resources

pytestmark = pytest.mark.slow


def go_back(database: Database, number: int) -> None:
    """Let the database be one that has given so many numbers to jobs, and has no later one."""
    with database.begin() as tx:
        tx.execute("DELETE FROM jobs WHERE job_id > %s", (number,))
        tx.execute("SELECT setval(%s::regclass, %s)", (JOBS, number))


def states(database: Database) -> set[ResourceState]:
    with database.begin() as tx:
        return {resource.state for resource in tx.resources.all()}


def test_numbers_jump_ahead_and_are_never_given_twice(database: Database) -> None:
    last = add_job(database)
    with database.begin() as tx:
        before = tx.system.id_sequences()
        done = after_restore(tx, newest_job=last + 7)
        after = tx.system.id_sequences()
    assert set(before) == set(SEQUENCES)
    assert all(after[name] >= before[name] + MARGIN for name in SEQUENCES)
    assert add_job(database) >= done.first_job > last + 7 + MARGIN


def test_nodes_are_swept_before_they_are_used_again(database: Database, sent: list[Effect]) -> None:
    add_resources(database)
    running = add_job(database, JobState.RUNNING, on=add_resources(database, network_address="node-9"))
    with database.begin() as tx:
        done = after_restore(tx)
    assert (done.swept, done.current, done.waiting) == (("node-1", "node-2", "node-9"), 1, 0)
    assert states(database) == {ResourceState.SUSPECTED}
    with database.begin() as tx:
        assert tx.resources.to_sweep() == list(done.swept)
        state_changes.apply_pending(tx, sweeps=True)
    assert states(database) == {ResourceState.SUSPECTED}
    with database.begin() as tx:
        tx.events.add(EventType.NODE_SWEPT, 0, "", to_check=True, hosts=done.swept)
        state_changes.apply_pending(tx, sweeps=True)
        assert tx.jobs.get(running).state is JobState.RUNNING
    assert states(database) == {ResourceState.ALIVE}


def test_there_is_one_report(database: Database, sent: list[Effect]) -> None:
    add_resources(database)
    last = add_job(database)
    with database.begin() as tx:
        done = after_restore(tx)
    mails = [effect for effect in sent if isinstance(effect, Mail) and "restored" in effect.subject]
    assert [mail.text for mail in mails] == [done.report]
    assert f"its last job is {last}." in done.report
    assert "1 jobs wait" in done.report
    with database.begin() as tx:
        (event,) = tx.events.latest(9, type_=EventType.DATABASE_RESTORED, before=None)
    assert event.description == done.report.replace("\n", " ")


# -- the server notices -----------------------------------------------------------------------------------------------


def test_a_database_that_goes_on_is_no_restored_one(database: Database, tmp_path: Path) -> None:
    assert not repair_if_restored(database, str(tmp_path))
    last = add_job(database)
    assert not repair_if_restored(database, str(tmp_path))
    assert recovery.read_newest_job(str(tmp_path)) == last
    with database.begin() as tx:
        tx.retention.remove_jobs([last])
    assert not repair_if_restored(database, str(tmp_path))
    assert not repair_if_restored(database, str(tmp_path))
    assert add_job(database) == last + 1


def test_an_older_database_is_noticed_once(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_resources(database)
    first, last = add_job(database), add_job(database)
    repair_if_restored(database, str(tmp_path))
    go_back(database, first)
    assert repair_if_restored(database, str(tmp_path))
    assert "has been restored" in caplog.text
    assert add_job(database) > last
    assert not repair_if_restored(database, str(tmp_path))
    with database.begin() as tx:
        assert len(tx.events.latest(9, type_=EventType.DATABASE_RESTORED, before=None)) == 1


def test_the_chronicle_notices_too(database: Database, tmp_path: Path) -> None:
    add_resources(database)
    chronicle = Chronicle()
    chronicle.follow(Runtime(Config(oar_run_dir=str(tmp_path)), database))
    first, last = add_job(database), add_job(database)
    chronicle.go_on()
    go_back(database, first)
    chronicle.go_on()
    assert states(database) == {ResourceState.SUSPECTED}
    assert add_job(database) > last


@pytest.mark.parametrize("text", ["", "x", "-5", "1" * 40, "\N{ARABIC-INDIC DIGIT ONE}"])
def test_a_file_that_says_nothing_is_none(tmp_path: Path, database: Database, text: str) -> None:
    (tmp_path / recovery.NEWEST_JOB_FILE).write_text(text)
    assert not repair_if_restored(database, str(tmp_path))


# -- oar-database --after-restore -------------------------------------------------------------------------------------


def test_the_command_tells_what_it_has_done(database: Database, tmp_path: Path) -> None:
    add_resources(database)
    last = add_job(database)
    settings = database.settings
    conf = tmp_path / "oar.conf"
    conf.write_text(
        f'DB_HOSTNAME="{settings.host}"\nDB_PORT="{settings.port}"\nDB_BASE_NAME="{settings.name}"\n'
        f'DB_BASE_LOGIN="{settings.user}"\nDB_BASE_PASSWD="{settings.password}"\nOAR_RUN_DIR="{tmp_path}"\n'
    )
    conf.chmod(0o600)
    result = invoke(oar_database.main, ["--conf", str(conf), "--after-restore"], user=User("root", 0))
    assert (result.exit, result.err) == (0, "")
    assert f"from {last + MARGIN + 1} on" in result.out
    assert "2 nodes are Suspected" in result.out
    assert add_job(database) == last + MARGIN + 1


# -- a promoted replica -----------------------------------------------------------------------------------------------


def promoted(database: Database, mode: str) -> None:
    """Let the present primary be the replica of a primary with this kind of replication."""
    with database.begin() as tx:
        tx.system.store_state(ServerState.DATABASE, f"0 {mode}")


def restorations(database: Database) -> list[str]:
    with database.begin() as tx:
        return [event.description for event in tx.events.latest(9, type_=EventType.DATABASE_RESTORED, before=None)]


def stored_mode(database: Database) -> str:
    with database.begin() as tx:
        return tx.system.read_state(ServerState.DATABASE).partition(" ")[2]


def test_a_promoted_asynchronous_replica_is_treated_once_as_restored(database: Database, tmp_path: Path) -> None:
    add_resources(database)
    last = add_job(database)
    repair_if_restored(database, str(tmp_path))
    assert stored_mode(database) == ASYNCHRONOUS
    promoted(database, ASYNCHRONOUS)
    assert repair_if_restored(database, str(tmp_path))
    assert not repair_if_restored(database, str(tmp_path))
    (text,) = restorations(database)
    assert f"the last commits may be lost. Its last job is {last}." in text
    assert states(database) == {ResourceState.SUSPECTED}
    assert add_job(database) > last + MARGIN


def test_the_event_names_the_lost_jobs(database: Database, tmp_path: Path) -> None:
    first, last = add_job(database), add_job(database)
    repair_if_restored(database, str(tmp_path))
    promoted(database, SYNCHRONOUS)  # as far as the replica knew
    with database.begin() as tx:  # its sequence is ahead
        tx.execute("DELETE FROM jobs WHERE job_id > %s", (first,))
    assert repair_if_restored(database, str(tmp_path))
    (text,) = restorations(database)
    assert f"Its last job is {first}; jobs {last} to {last} are lost." in text


def test_a_promoted_synchronous_replica_has_all_commits(database: Database, tmp_path: Path) -> None:
    last = add_job(database)
    repair_if_restored(database, str(tmp_path))
    promoted(database, SYNCHRONOUS)
    assert not repair_if_restored(database, str(tmp_path))
    assert restorations(database) == []
    assert add_job(database) == last + 1


def test_jobs_get_new_numbers_before_the_server_notices_a_promotion(database: Database, tmp_path: Path) -> None:
    last = add_job(database)
    promoted(database, ASYNCHRONOUS)
    first = add_job(database)
    assert first > last + MARGIN
    assert add_job(database) == first + 1
    assert stored_mode(database) == LOST
    assert repair_if_restored(database, str(tmp_path))
    assert len(restorations(database)) == 1

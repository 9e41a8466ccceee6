"""A process may give its statements so much time and no more; its connections serve on."""

from pathlib import Path

import pytest

from oar.api.errors import status_of
from oar.api.server import limited
from oar.cli import oardel, oarhold, oarnodesetting, qrdel
from oar.cli.common.command import Command, Context
from oar.lib.access.records import User
from oar.lib.base.errors import DatabaseUnavailable, StatementTooLong
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.builders import add_job, state_of
from tests.frontend import Frontend

SLOW = "SELECT pg_sleep(100)"


def test_a_statement_that_takes_too_long_is_stopped_and_told_so(database: Database) -> None:
    hasty = limited(Runtime(Config(api_statement_timeout=1), database))
    with pytest.raises(StatementTooLong, match="for 1 s") as told:
        hasty.look(lambda tx: tx.execute(SLOW))
    assert status_of(told.value) == 503
    with pytest.raises(StatementTooLong), hasty.begin() as tx:
        tx.execute(SLOW)
    with hasty.snapshot() as tx:
        assert tx.value("SELECT 1") == 1
    hasty.close()


def test_other_processes_take_their_time(database: Database) -> None:
    with database.snapshot() as tx:
        assert tx.value("SHOW statement_timeout") == "0"


@pytest.mark.parametrize(("command", "patience"), [(oardel.main, 60), (qrdel.main, 60), (oarnodesetting.main, 0)])
def test_whoever_can_stop_his_command_holds_nothing_for_long(tmp_path: Path, command: Command, patience: int) -> None:
    path = tmp_path / "oar.conf"
    path.write_text("ADMISSION_RULES_TIMEOUT=7\n")
    runtime = Context(command, {"OARCONFFILE": str(path)}, User("root", 0), None).runtime
    settings = runtime.database.settings
    assert (settings.idle_limit, settings.lock_patience) == (27 if patience else 60, patience)


def test_the_rows_of_a_command_that_is_stopped_are_given_back(database: Database) -> None:
    job = add_job(database)
    stopped = Database(database.settings._replace(idle_limit=1))
    with pytest.raises(DatabaseUnavailable), stopped.begin() as tx:
        tx.jobs.lock(job)
        with database.begin() as other:
            assert other.jobs.lock(job)
        tx.jobs.lock(job)


def test_a_command_does_not_wait_for_ever_for_the_rows_of_another(database: Database) -> None:
    job = add_job(database, user="alice")
    frontend = Frontend(Database(database.settings._replace(lock_patience=1)))
    with database.begin() as tx:
        tx.jobs.lock(job)
        told = frontend.type(oarhold.main, job)
    assert (told.exit, told.err) == (
        3,
        "# Error: the change waited too long for another transaction: nothing was changed. Try again.\n",
    )
    assert state_of(database, job) is JobState.WAITING

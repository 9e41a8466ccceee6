"""A process may give its statements so much time and no more; its connections serve on."""

import pytest

from oar.api.answers.statuses import status_of
from oar.api.server import limited
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.facts.errors import StatementTooLong
from oar.lib.runtime import Runtime

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

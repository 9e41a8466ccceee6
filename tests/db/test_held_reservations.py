"""Programs that are stopped while they hold rows of advance reservations: rounds go on with the others."""

import signal
from collections.abc import Iterator

import pytest

from oar.cli import qrsub
from oar.cli.common.command import Context
from oar.kao.rounds.writing import reservation_moves
from oar.lib.db.database import Database
from oar.lib.reservations.states import ReservationState as S
from tests.builders import add_resources
from tests.db.reservation_site import ALICE, HOUR, NOW, Site


@pytest.fixture
def other(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """Another program's way to the database; rounds wait only a moment for it."""
    monkeypatch.setattr(reservation_moves, "LOCK_PATIENCE", 1)
    database = Database(site.database.settings, application="oar:stopped")
    yield database
    database.close()


def test_a_round_goes_on_beside_a_row_that_somebody_holds(
    site: Site, other: Database, caplog: pytest.LogCaptureFixture
) -> None:
    add_resources(site.database, nodes=2, cores=2)
    held, free = (site.ask("/resource_id=1", NOW + 100, NOW + HOUR) for _ in range(2))
    with other.begin() as tx:
        tx.reservations.lock([held])
        site.round()
        assert (site.state(held), site.state(free)) == (S.ASKED, S.WAITING)
        assert f"advance reservations [{site.get(held).number}] are held by another program" in caplog.text
    site.round()
    assert site.state(held) is S.WAITING


def test_a_job_that_enters_does_not_keep_the_others_from_beginning(site: Site, other: Database) -> None:
    add_resources(site.database, nodes=2, cores=2)
    held, free = (site.ask("/resource_id=1", NOW + 100, NOW + HOUR) for _ in range(2))
    site.round()
    with other.begin() as tx:
        tx.reservations.share(held)
        site.round(NOW + 100)
        assert (site.state(held), site.state(free)) == (S.WAITING, S.RUNNING)
    site.round(NOW + 101)
    assert site.state(held) is S.RUNNING


def test_a_command_cannot_be_stopped_from_its_terminal_while_it_writes(site: Site) -> None:
    stops = (signal.SIGTSTP, signal.SIGTTOU)
    context = Context(qrsub.main, {}, ALICE, None)
    context.speak_for(site.runtime)
    with site.database.snapshot():
        assert signal.SIG_IGN not in map(signal.getsignal, stops)
    with site.database.begin():
        assert [signal.getsignal(number) for number in stops] == [signal.SIG_IGN] * 2
    assert signal.SIG_IGN not in map(signal.getsignal, stops)

"""The scheduler dies before each statement of a round: advance reservations live on as if it had not."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.facts.reservation_states import ReservationState as S
from oar.lib.facts.states import JobState
from oar.lib.jobs import lifecycle
from oar.lib.runtime import Runtime
from tests.builders import add_resources
from tests.db.reservation_site import HOUR, NOW, Site

LIFE = ["CREATED", "START TIME REACHED", "END TIME REACHED", "TERMINATED"]


class Killed(BaseException):
    """The process is no more."""


class DyingCursor:
    """A cursor whose process dies before one of its statements."""

    def __init__(self, cursor: Any, database: "DyingDatabase") -> None:
        self._cursor = cursor
        self._database = database

    def execute(self, sql: Any, parameters: Any = None) -> None:
        """Run a statement."""
        self._database.step()
        self._cursor.execute(sql, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class DyingDatabase(Database):
    """Kills its user before the statement with a number, once; a commit is a statement.  -1 = never."""

    dies_before = -1
    steps = 0

    def step(self) -> None:
        """Note that the next statement comes.  Raises Killed."""
        self.steps += 1
        if self.steps == self.dies_before:
            raise Killed

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[Transaction]:
        with super()._transaction(kind) as tx:
            tx._cursor = DyingCursor(tx._cursor, self)  # type: ignore[assignment]
            yield tx
            self.step()


@pytest.fixture
def dying(settings: DatabaseSettings, database: Database) -> Iterator[DyingDatabase]:
    """A connection of the scheduler to the database of the test."""
    made = DyingDatabase(settings, application="dying")
    yield made
    made.close()


def round_of(dying: DyingDatabase, date: int, dies_before: int) -> bool:
    """Make a round that dies before a statement; return whether it did."""
    dying.dies_before, dying.steps = dies_before, 0
    site = Site(dying, Runtime(Config(), dying))
    try:
        site.round(date)
    except Killed:
        return True
    finally:
        dying.dies_before = -1
        site.scheduler.close()
    return False


@pytest.mark.parametrize("moment", [0, 100, 1000])
def test_each_statement_of_a_round_may_be_the_last(site: Site, dying: DyingDatabase, moment: int) -> None:
    """``moment``: of the grant, of the start, of the end."""
    add_resources(site.database, nodes=1, cores=2)
    for step in range(1, 1000):
        begin = NOW + step * 10_000
        site.go_to(begin)
        number = site.ask("/resource_id=2", begin + 100, begin + 1000)
        died = False
        for offset in (0, 100, 1000):
            if offset == moment:
                died = round_of(dying, begin + offset, step)
            if offset == 1000 and moment == 1000 and not died:
                break
            site.round(begin + offset)
        assert (site.state(number), site.events(number)) == (S.EXITED, LIFE)
        assert site.get(number).ended == begin + 1000
        assert site.job(site.get(number).frame_id) is JobState.TERMINATED
        with site.database.begin() as tx:
            assert tx.invariants.violations(dying.settings.ro_user) == []
            assert len(tx.advance_reservations.usage(number)) == 1
        if not died:
            assert step > 10
            return
    raise AssertionError("the round has no end")


def test_what_happened_while_the_server_was_down_is_written_late(site: Site) -> None:
    ids = add_resources(site.database, nodes=1, cores=2)
    number = site.ask("/resource_id=2", NOW + 100, NOW + 1000)
    site.round()
    site.round(NOW + 5000)
    assert (site.state(number), site.events(number)) == (S.EXITED, LIFE)
    begun = site.ask("/resource_id=2", NOW + 6000, NOW + 9000)
    site.round()
    site.round(NOW + 7000)
    assert site.state(begun) is S.RUNNING
    with site.database.begin() as tx:
        assert tx.jobs.get(site.get(begun).frame_id).start_time == NOW + 6000
        assert tx.jobs.on_resources(ids) == {site.get(begun).frame_id: ids}
    inside = site.submit_inside(begun)
    site.round(NOW + 7001)
    site.round(NOW + 9500)
    assert site.state(begun) is S.EXITED
    with site.database.begin() as tx:
        assert tx.kill_requests.jobs([inside]) == {inside}
        lifecycle.move(tx, inside, JobState.ERROR)
    site.round(NOW + 9501)
    assert site.get(begun).ended == NOW + 9501


def test_no_occurrence_of_a_series_is_lost_or_doubled(site: Site, dying: DyingDatabase) -> None:
    """The first ones are granted, one ends and another is asked for, that one is refused and skipped, the rest ends."""
    add_resources(site.database, nodes=1, cores=2)
    series = site.ask_series("/resource_id=1", NOW + 60, 600, rule="FREQ=HOURLY;COUNT=4", depth=2)
    site.ask("/resource_id=2", NOW + 2 * HOUR, NOW + 2 * HOUR + 100)
    for offset in (0, 660):
        step = 1
        while round_of(dying, NOW + offset, step):
            indices = [each.series_index for each in site.occurrences(series)]
            assert indices == list(range(1, len(indices) + 1))
            step += 1
        assert step > 10
    for offset in (661, 662, HOUR + 660, 3 * HOUR + 60, 3 * HOUR + 660):
        site.round(NOW + offset)
    shown = [(each.series_index, each.state) for each in site.occurrences(series)]
    assert shown == [(1, S.EXITED), (2, S.EXITED), (3, S.REFUSED), (4, S.EXITED)]
    assert site.series(series).ended == NOW + 3 * HOUR + 660
    with site.database.begin() as tx:
        assert tx.invariants.violations(dying.settings.ro_user) == []

"""Rounds, commands and Leon die before each of their statements: advance reservations live on as if they had not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.bus.exit_codes import SarkoCode
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from oar.lib.reservations import changes, deletion, repairs, requests
from oar.lib.reservations.changes import WantedChange
from oar.lib.reservations.lifecycle import cancel
from oar.lib.reservations.options import ReservationRequest
from oar.lib.reservations.records import AccessEntry, NewReservation, ReservationAttributes
from oar.lib.reservations.states import ReservationState as S
from oar.lib.runtime import Runtime
from oar.modules import leon, sarko
from tests.builders import add_job, add_resources, for_no_reason, move_job
from tests.db.reservation_site import ALICE, HOUR, NOW, Site
from tests.postgres import PostgreSQL

pytestmark = pytest.mark.slow

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
    def _transaction(self, kind: str, since: float | None = None) -> Iterator[Transaction]:
        with super()._transaction(kind, since) as tx:
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
            assert len(tx.reservation_logs.select_bills([number])[number]) == 1
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
    with site.database.begin() as tx:
        late = [row.message for row in tx.reservation_logs.logs([number]) if row.message]
    assert late == ["4900 s late", "4000 s late"]
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
        assert tx.job_requests.jobs_to_kill([inside]) == {inside}
        lifecycle.move(tx, inside, JobState.ERROR)
    site.round(NOW + 9501)
    assert site.get(begun).ended == NOW + 9501


def test_what_ends_in_an_outage_of_the_database_ends_when_it_is_back(
    site: Site, settings: DatabaseSettings, postgres: PostgreSQL
) -> None:
    ids = add_resources(site.database, nodes=1, cores=3)
    number = site.ask("/resource_id=2", NOW + 100, NOW + 1000)
    outside = add_job(site.database, JobState.RUNNING, on=ids[2:], walltime=500, start_time=NOW)
    site.round()
    site.round(NOW + 100)
    inside = site.submit_inside(number)
    site.round(NOW + 101)
    move_job(site.database, inside, JobState.LAUNCHING, JobState.RUNNING)
    with postgres.outage(settings.name):
        site.go_to(NOW + 2000)
        for work in (site.round, partial(sarko.run, site.runtime)):
            with pytest.raises(DatabaseUnavailable):
                work()
    assert sarko.run(site.runtime).code == SarkoCode.KILL
    site.round()
    assert site.state(number) is S.EXITED
    with site.database.begin() as tx:
        assert tx.job_requests.jobs_to_kill([inside, outside]) == {inside, outside}
        for job in (inside, outside):
            assert lifecycle.move(tx, job, JobState.FINISHING)
            assert lifecycle.move(tx, job, JobState.ERROR)
    site.round(NOW + 2001)
    assert (site.get(number).ended, site.events(number)) == (NOW + 2001, LIFE)
    assert site.job(site.get(number).frame_id) is JobState.TERMINATED
    with site.database.begin() as tx:
        assert tx.invariants.violations(settings.ro_user) == []


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


# -- commands ---------------------------------------------------------------------------------------------------------


def ask(tx: Transaction, site: Site, number: int) -> None:
    """What qrsub writes."""
    new = NewReservation("alice", NOW + 5000, NOW + 6000, site.get(number).request, queue="default", time_offset=6)
    requests.create(tx, ReservationRequest(new, (AccessEntry("alice"),)), limit=9)


def withdraw(tx: Transaction, site: Site, number: int) -> None:
    """What a qrsub writes that is interrupted; the request is the last one."""
    (asked,) = [each for each in tx.reservations.live() if each.state is S.ASKED]
    assert cancel(tx, asked.id, "alice") is None


def alter(tx: Transaction, site: Site, number: int) -> None:
    """What qralter writes: new attributes, and the wish for another window."""
    reservation = changes.lock(tx, ALICE, site.get(number), number)
    changes.change_attributes(tx, ALICE, reservation, ReservationAttributes(name="other", access=(AccessEntry("bob"),)))
    (reservation,) = tx.reservations.select([number])
    changes.request_change(tx, ALICE, reservation, WantedChange(end=NOW + 900), patience=60)


def delete(tx: Transaction, site: Site, number: int) -> None:
    """What qrdel -f writes."""
    deletion.delete(tx, ALICE, site.get(number), number, force=True)


#: Everything that the commands above write.
CONTENT = """
    SELECT array_agg(v ORDER BY reservation_id) FROM reservations v;
    SELECT array_agg(t ORDER BY reservation_id, entry_order) FROM reservation_acl t;
    SELECT array_agg(t ORDER BY reservation_log_id) FROM reservation_logs t;
    SELECT array_agg(t ORDER BY revision_id) FROM reservation_revisions t;
    SELECT array_agg(t ORDER BY change_id) FROM reservation_changes t;
    SELECT array_agg(t ORDER BY frag_id_job) FROM frag_jobs t;
    SELECT array_agg(t ORDER BY job_id) FROM jobs t;
    SELECT array_agg(t ORDER BY event_id) FROM event_logs t"""


def content(database: Database) -> list[object]:
    with database.snapshot() as tx:
        return [tx.value(question) for question in CONTENT.split(";")]


def violations(database: Database) -> list[str]:
    with database.snapshot() as tx:
        return [str(each) for each in tx.invariants.violations(database.settings.ro_user)]


@pytest.mark.parametrize("command", [ask, withdraw, alter, delete])
def test_each_statement_of_a_command_may_be_the_last(
    site: Site, dying: DyingDatabase, command: Callable[[Transaction, Site, int], None]
) -> None:
    add_resources(site.database, nodes=1, cores=2)
    number = site.ask("/resource_id=2", NOW, NOW + 1000)
    site.round()
    site.submit_inside(number, cores=2)
    site.submit_inside(number)
    site.round(NOW + 1)
    if command is withdraw:
        site.ask("/resource_id=1", NOW + 5000, NOW + 6000)
    before = content(site.database)
    dying._clock = site.database._clock
    for step in range(1, 100):
        dying.dies_before, dying.steps = step, 0
        try:
            with dying.begin() as tx:
                command(tx, site, number)
        except Killed:
            assert content(site.database) == before
        else:
            assert step > 5
            assert content(site.database) != before
            assert violations(site.database) == []
            return
    raise AssertionError("the command has no end")


def test_each_statement_of_a_pass_of_leon_may_be_the_last(site: Site, dying: DyingDatabase) -> None:
    """A pass that ends the frame of one reservation, and the jobs of it."""
    add_resources(site.database, nodes=1, cores=2)
    number = site.ask("/resource_id=2", NOW, NOW + 1000)
    site.round()
    inside = site.submit_inside(number)
    with site.database.begin() as tx:
        tx.job_requests.request_kill(for_no_reason(site.get(number).frame_id))
    dying._clock = site.database._clock
    for step in range(1, 200):
        dying.dies_before, dying.steps = step, 0
        try:
            leon.run(Runtime(Config(), dying))
        except Killed:
            assert violations(site.database) == []
        else:
            break
    leon.run(site.runtime)  # the next pass ends the jobs
    assert site.job(inside) is JobState.ERROR
    site.round(NOW + 2)
    assert (site.state(number), bool(site.get(number).ended)) == (S.DELETED, True)
    assert site.events(number) == ["CREATED", "START TIME REACHED", "DELETED", "TERMINATED"]
    assert violations(site.database) == []


def test_each_statement_of_a_repair_may_be_the_last(site: Site, dying: DyingDatabase) -> None:
    add_resources(site.database, nodes=1, cores=2)
    number = site.ask("/resource_id=2", NOW, NOW + 1000)
    site.round()
    frame = site.get(number).frame_id
    with site.database.begin() as tx:
        lifecycle.move(tx, frame, JobState.FINISHING)
        lifecycle.move(tx, frame, JobState.ERROR)
    site.submit_inside(number)
    before = content(site.database)
    dying._clock = site.database._clock
    for step in range(1, 200):
        dying.dies_before, dying.steps = step, 0
        try:
            with dying.begin() as tx:
                repairs.repair(tx, patience=60)
        except Killed:
            assert content(site.database) == before
        else:
            break
    assert violations(site.database) == []
    assert site.job(site.get(number).frame_id) is JobState.RUNNING

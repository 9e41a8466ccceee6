"""What others do to advance reservations between the plan of a round and its writing, and who waits for whom."""

from collections.abc import Callable, Collection

import pytest

from oar.kao.facts.plan import Plan
from oar.kao.rounds.reading.situation import Situation
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import control, lifecycle
from oar.lib.jobs.states import JobState
from oar.lib.reservations import changes, job_deletion
from oar.lib.reservations.changes import WantedChange
from oar.lib.reservations.records import AdvanceReservation
from oar.lib.reservations.series import change_template
from oar.lib.reservations.sql_reservations import Reservations
from oar.lib.reservations.states import ChangeAnswer, IntervalKind
from oar.lib.reservations.states import ReservationState as S
from oar.modules import leon
from tests.builders import add_resources
from tests.db.reservation_site import ALICE, HOUR, NOW, Site


@pytest.fixture(autouse=True)
def resources(site: Site) -> list[int]:
    return add_resources(site.database, nodes=2, cores=2)


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The reservations that each call has locked."""
    calls: list[list[int]] = []
    lock = Reservations.lock

    def lock_and_note(table: Reservations, ids: Collection[int]) -> list[AdvanceReservation]:
        found = lock(table, ids)
        calls.append([each.id for each in found])
        return found

    monkeypatch.setattr(Reservations, "lock", lock_and_note)
    return calls


def before_writing(site: Site, work: Callable[[Transaction], object]) -> None:
    """Let somebody do something behind the plan of the next round, and before it is written."""
    write = site.scheduler._writer.write_reservations

    def write_behind(tx: Transaction, situation: Situation, plan: Plan) -> None:
        site.scheduler._writer.write_reservations = write  # type: ignore[method-assign]
        with site.database.begin() as other:
            work(other)
        write(tx, situation, plan)

    site.scheduler._writer.write_reservations = write_behind  # type: ignore[method-assign]


def ask_change(site: Site, reservation: int, change: WantedChange) -> int:
    with site.database.begin() as tx:
        return changes.request_change(tx, ALICE, site.get(reservation), change, patience=60)


# -- locks ------------------------------------------------------------------------------------------------------------


def test_a_deadlock_leaves_the_reservations_to_the_next_round(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    number = site.ask("/resource_id=1", NOW + 100, NOW + HOUR)
    lock = Reservations.lock

    def lock_in_a_circle(table: Reservations, ids: Collection[int]) -> list[AdvanceReservation]:
        monkeypatch.setattr(Reservations, "lock", lock)
        table._tx.execute("DO $$ BEGIN RAISE EXCEPTION 'in a circle' USING ERRCODE = 'deadlock_detected'; END $$")
        return []

    monkeypatch.setattr(Reservations, "lock", lock_in_a_circle)
    site.round()
    assert site.state(number) is S.WAITING


def test_another_failure_of_the_lock_is_told_as_what_it_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.ask("/resource_id=1", NOW + 100, NOW + HOUR)

    def fail(table: Reservations, ids: Collection[int]) -> list[AdvanceReservation]:
        table._tx.execute("SELECT 1 / 0")
        return []

    monkeypatch.setattr(Reservations, "lock", fail)
    with pytest.raises(Exception, match="division by zero"):
        site.round()


def test_a_round_locks_all_that_it_decides_on_at_once(site: Site, locked: list[list[int]]) -> None:
    changed, begun = (site.ask("/resource_id=1", NOW + 100, NOW + HOUR) for _ in range(2))
    site.round()
    ask_change(site, begun, WantedChange(end=NOW + 2 * HOUR))
    change = ask_change(site, changed, WantedChange(end=NOW + 2 * HOUR))
    asked = site.ask("/resource_id=1", NOW + 100, NOW + HOUR)
    locked.clear()
    site.round(NOW + 10)
    assert locked[0] == [changed, begun, asked]
    with site.database.begin() as tx:
        answered = tx.reservations.find_change(change)
    assert answered
    assert answered.answer is ChangeAnswer.GRANTED


def test_frames_that_are_deleted_together_are_locked_together_before_jobs(
    site: Site, locked: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (site.ask("/resource_id=1", NOW + 100, NOW + HOUR) for _ in range(2))
    site.round()
    job, frames = site.submit_inside(first), [site.get(each).frame_id for each in (second, first)]
    delete, seen = control.delete, list[list[list[int]]]()

    def delete_and_note(*args: object, **options: object) -> list[control.ControlOutcome]:
        seen.append(list(locked))
        return delete(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(control, "delete", delete_and_note)
    with site.database.begin() as tx:
        locked.clear()
        deletions = job_deletion.delete_jobs(tx, ALICE, [job, *frames], with_inner=False)
    assert locked[0] == [first, second]
    assert seen[0][0] == [first, second]
    assert [answer.job_id for answer in deletions.answers] == [job, *frames]
    assert [answer.refusal for answer in deletions.answers[1:]] == [None, None]
    assert [site.state(each) for each in (first, second)] == [S.DELETED, S.DELETED]


def test_leon_locks_the_reservations_of_frames_together(site: Site, locked: list[list[int]]) -> None:
    first, second = (site.ask("/resource_id=1", NOW + 100, NOW + HOUR) for _ in range(2))
    site.round()
    with site.database.begin() as tx:
        for each in (second, first):
            tx.execute("INSERT INTO frag_jobs (frag_id_job, frag_date) VALUES (%s, 0)", (site.get(each).frame_id,))
    locked.clear()
    leon.run(site.runtime)
    assert locked[0] == [first, second]
    assert [site.get(each).ended for each in (first, second)] == [NOW, NOW]


# -- between plan and writing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["ended", "taken out", "started"])
def test_a_change_ends_only_jobs_that_still_wait_in_the_reservation(site: Site, fate: str) -> None:
    number = site.ask("/resource_id=2", NOW + 100, NOW + HOUR)
    site.round()
    long, longer = (site.submit_inside(number, walltime=each) for each in (3000, 3100))
    change = ask_change(site, number, WantedChange(end=NOW + 1000))

    def happen(tx: Transaction) -> None:
        if fate == "ended":
            lifecycle.move(tx, long, JobState.ERROR)
        elif fate == "taken out":
            tx.reservations.remove_job(long)
        else:
            tx.execute("UPDATE jobs SET state = 'Running' WHERE job_id = %s", (long,))

    before_writing(site, happen)
    site.round()
    with site.database.begin() as tx:
        answered = tx.reservations.find_change(change)
        killed = tx.column("SELECT frag_id_job FROM frag_jobs")
    assert answered
    assert (answered.answer, answered.message) == (
        ChangeAnswer.GRANTED,
        f"job {longer} was deleted: it no longer fits",
    )
    assert killed == [longer]


def test_occurrences_of_a_series_that_was_altered_meanwhile_are_not_refused_for_what_it_asked_before(
    site: Site,
) -> None:
    series = site.ask_series("/resource_id=2", NOW + 60, 600, depth=1)
    site.round()
    site.ask("/resource_id=3", NOW + HOUR, NOW + 4 * HOUR)
    site.round()
    site.delete(ALICE, site.occurrences(series)[0].id)

    def ask_for_less(tx: Transaction) -> None:
        row = tx.reservations.lock_series(series)
        assert row
        less = row.read_template.new.request.replace('["resource_id", 2]', '["resource_id", 1]')
        change_template(tx, row, None, request=less)

    before_writing(site, ask_for_less)
    site.round()
    site.round()
    assert [each.state for each in site.occurrences(series)[:3]] == [S.DELETED, S.REFUSED, S.WAITING]


def test_what_a_reservation_has_from_its_start_it_has_from_there_in_the_bill(site: Site) -> None:
    number = site.ask("/resource_id=2", NOW, NOW + HOUR)
    site.database._clock = lambda: NOW
    read = site.scheduler._platform.read

    def read_and_wait(*args: object) -> Situation:
        situation = read(*args)  # type: ignore[arg-type]
        site.go_to(NOW + 5)
        return situation

    site.scheduler._platform.read = read_and_wait  # type: ignore[assignment]
    site.round()
    granted = site.get(number)
    assert granted.start == NOW
    with site.database.begin() as tx:
        intervals = tx.reservations.intervals_of([number])[number][IntervalKind.GRANTED]
    assert {each.start for each in intervals} == {NOW}

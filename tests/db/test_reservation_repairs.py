"""Advance reservations whose rows do not fit together, as after a backup: named, mended, and they go on."""

from collections.abc import Callable

import pytest

from oar.lib.db.transaction import Transaction
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import FINAL, JobState, Reservation
from oar.lib.reservations import repairs
from oar.lib.reservations.lifecycle import add_revision
from oar.lib.reservations.sql_faults import FAULTS, ReservationFault
from oar.lib.reservations.states import ReservationState as S
from tests.builders import add_job, add_resources, move_job
from tests.db.reservation_site import ALICE, NOW, Site

Said = list[str]
Break = Callable[[Transaction, int, int], object]
Fault = ReservationFault

PATIENCE = 60
LIFE = ["CREATED", "START TIME REACHED", "END TIME REACHED", "TERMINATED"]
START, END = NOW + 100, NOW + 1000


class RepairedSite(Site):
    """A site with one reservation, and one job in it."""

    number = job_inside = 0

    def reserve(self) -> None:
        self.ids = add_resources(self.database, nodes=3, cores=1)
        self.number = self.ask("/resource_id=2", START, END)
        self.round()
        self.job_inside = self.submit_inside(self.number, walltime=100)
        self.round(NOW + 1)
        assert self.found() == []

    def found(self) -> Said:
        with self.database.snapshot() as tx:
            return [str(each) for each in tx.invariants.violations(self.database.settings.ro_user)]

    def mend(self) -> dict[Fault, int]:
        with self.database.begin() as tx:
            return repairs.repair(tx, patience=PATIENCE)

    def damage(self, how: Break) -> None:
        with self.database.begin() as tx:
            how(tx, self.number, self.get(self.number).frame_id)

    @property
    def frame(self) -> JobState:
        return self.job(self.get(self.number).frame_id)


@pytest.fixture
def broken(site: Site) -> RepairedSite:
    """A site whose reservation is granted, with a job that waits in it."""
    site.__class__ = RepairedSite
    assert isinstance(site, RepairedSite)
    site.reserve()
    return site


def end_frame(tx: Transaction, number: int, frame: int) -> None:
    lifecycle.move(tx, frame, JobState.FINISHING)
    lifecycle.move(tx, frame, JobState.ERROR)


def enter_elsewhere(tx: Transaction, number: int, frame: int) -> None:
    tx.execute("UPDATE job_types SET type = 'inner=4711' WHERE type = %s", (f"inner={frame}",))


def sneak_in(tx: Transaction, number: int, frame: int) -> None:
    tx.execute("DELETE FROM reservation_jobs")


def execute(sql: str) -> Break:
    """Run a statement; {number} and {frame} are those of the reservation."""
    return lambda tx, number, frame: tx.execute(sql.format(number=number, frame=frame))


MOLDABLE = "(SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = {frame})"

#: What is broken before the start, and after it.
BEFORE: dict[str, tuple[Break, Fault]] = {
    "the frame has ended": (end_frame, Fault.NO_FRAME),
    "the frame is gone": (execute("UPDATE reservations SET frame_id = 4711"), Fault.NO_FRAME),
    "the frame is held": (execute("UPDATE jobs SET state = 'Hold' WHERE job_id = {frame}"), Fault.NOT_WAITING),
    "the frame runs": (execute("UPDATE jobs SET state = 'Running' WHERE job_id = {frame}"), Fault.NOT_WAITING),
    "another start": (execute("UPDATE jobs SET start_time = 5 WHERE job_id = {frame}"), Fault.OTHER_WINDOW),
    "no reservation job": (execute("UPDATE jobs SET reservation = 'None' WHERE job_id = {frame}"), Fault.OTHER_WINDOW),
    "another walltime": (
        execute("UPDATE moldable_job_descriptions SET moldable_walltime = 5 WHERE moldable_job_id = {frame}"),
        Fault.OTHER_WINDOW,
    ),
    "two alternatives": (
        execute("INSERT INTO moldable_job_descriptions (moldable_job_id, moldable_walltime) VALUES ({frame}, 900)"),
        Fault.OTHER_WINDOW,
    ),
    "planned later": (
        execute(f"UPDATE gantt_jobs_predictions SET start_time = 5 WHERE moldable_job_id = {MOLDABLE}"),
        Fault.OTHER_PLAN,
    ),
    "planned elsewhere": (
        execute(f"UPDATE gantt_jobs_sets SET resources = '{{{{9}}}}' WHERE moldable_job_id = {MOLDABLE}"),
        Fault.OTHER_PLAN,
    ),
    "not planned": (execute(f"DELETE FROM gantt_jobs_sets WHERE moldable_job_id = {MOLDABLE}"), Fault.OTHER_PLAN),
    "a job elsewhere": (enter_elsewhere, Fault.NO_TYPE),
    "a job without type": (execute("DELETE FROM job_types WHERE type = 'inner={frame}'"), Fault.NO_TYPE),
    "something is missing": (execute("UPDATE reservations SET missing = '{{4711}}'"), Fault.NOT_GRANTED),
    "not logged": (execute("DELETE FROM reservation_logs"), Fault.NO_GRANT),
    "no revision": (execute("DELETE FROM reservation_revisions"), Fault.NO_REVISION),
    "a later revision": (execute("UPDATE reservation_revisions SET revision = 9"), Fault.NO_REVISION),
}
AFTER: dict[str, tuple[Break, Fault]] = {
    "the frame has ended": (end_frame, Fault.NO_FRAME),
    "the frame waits": (execute("UPDATE jobs SET state = 'Waiting' WHERE job_id = {frame}"), Fault.NOT_RUNNING),
    "the frame has never begun": (
        execute(
            f"DELETE FROM assigned_resources WHERE moldable_job_id = {MOLDABLE};"
            " UPDATE jobs SET state = 'Waiting', assigned_moldable_job = 0 WHERE job_id = {frame}"
        ),
        Fault.NOT_RUNNING,
    ),
    "the frame is suspended": (
        execute("UPDATE jobs SET state = 'Suspended' WHERE job_id = {frame}"),
        Fault.NOT_RUNNING,
    ),
    "another walltime": (
        execute("UPDATE moldable_job_descriptions SET moldable_walltime = 5 WHERE moldable_job_id = {frame}"),
        Fault.OTHER_WINDOW,
    ),
    "less is held": (
        execute(
            f"DELETE FROM assigned_resources WHERE moldable_job_id = {MOLDABLE} AND resource_id ="
            f" (SELECT min(resource_id) FROM assigned_resources WHERE moldable_job_id = {MOLDABLE})"
        ),
        Fault.OTHER_RESOURCES,
    ),
    "more is held": (
        execute(
            f"INSERT INTO assigned_resources (moldable_job_id, resource_id)"
            f" SELECT {MOLDABLE}, max(resource_id) FROM resources"
        ),
        Fault.OTHER_RESOURCES,
    ),
}


def settle(tx: Transaction) -> None:
    """Let the logs of states follow what was done to the states, which is no matter here."""
    tx.invariants.make_consistent()


def named(site: RepairedSite, fault: Fault) -> bool:
    return f"{FAULTS[fault][0]}: 1 rows: {fault}" in site.found()


def lives_on(site: RepairedSite) -> None:
    """The reservation begins if it has not, its job runs in it, and it ends, as if nothing had been."""
    site.round(START)
    site.round(START + 1)
    assert site.job(site.job_inside) is JobState.TO_LAUNCH
    assert site.frame is JobState.RUNNING
    move_job(site.database, site.job_inside, JobState.ERROR)
    site.round(END)
    assert (site.get(site.number).ended, site.frame) == (END, JobState.TERMINATED)
    assert site.events(site.number) == LIFE
    assert site.found() == []


@pytest.mark.parametrize("name", BEFORE)
def test_what_is_wrong_before_the_start_is_named_and_mended(broken: RepairedSite, name: str) -> None:
    how, fault = BEFORE[name]
    broken.damage(how)
    with broken.database.begin() as tx:
        settle(tx)
    assert named(broken, fault)
    assert fault in broken.mend()
    assert broken.found() == []
    assert broken.mend() == {}
    lives_on(broken)


@pytest.mark.parametrize("name", AFTER)
def test_what_is_wrong_after_the_start_is_named_and_mended(broken: RepairedSite, name: str) -> None:
    how, fault = AFTER[name]
    broken.round(START)
    broken.damage(how)
    with broken.database.begin() as tx:
        settle(tx)
    assert named(broken, fault)
    assert fault in broken.mend()
    assert broken.found() == []
    assert broken.mend() == {}
    lives_on(broken)
    with broken.database.begin() as tx:
        assert tx.jobs.get(broken.get(broken.number).frame_id).start_time == START


@pytest.mark.parametrize(
    "name", ["the frame has ended", "the frame is held", "another start", "no revision", "a later revision"]
)
def test_the_next_round_mends_what_would_mislead_it(broken: RepairedSite, name: str) -> None:
    broken.damage(BEFORE[name][0])
    broken.round(NOW + 10)
    assert (broken.state(broken.number), broken.frame) == (S.WAITING, JobState.WAITING)
    assert broken.found() == []
    lives_on(broken)


@pytest.mark.parametrize("types", ["DELETE FROM job_types", "UPDATE job_types SET type = 'ar=99999999999999999999'"])
def test_a_frame_that_does_not_say_whose_it_is_is_replaced(broken: RepairedSite, types: str) -> None:
    broken.damage(execute(f"{types} WHERE job_id = {{frame}} AND type LIKE 'ar=%%'".replace("%%", "%")))
    broken.damage(execute("UPDATE jobs SET state = 'Hold' WHERE job_id = {frame}"))
    old = broken.get(broken.number).frame_id
    broken.round(NOW + 10)
    assert broken.job(old) is JobState.ERROR
    assert broken.frame is JobState.WAITING
    lives_on(broken)


def test_a_revision_that_another_program_wrote_is_replaced(broken: RepairedSite) -> None:
    """Between the look for faults and the writing, so that no repair was made."""
    with broken.database.begin() as tx:
        add_revision(tx, broken.get(broken.number)._replace(account="theirs"), "somebody")
        add_revision(tx, broken.get(broken.number)._replace(account="ours"), "alice")
        assert [each.account for each in tx.reservation_logs.revisions(broken.number)] == ["ours"]


def test_a_frame_without_a_reservation_ends(broken: RepairedSite) -> None:
    frame = broken.get(broken.number).frame_id
    broken.damage(execute("UPDATE reservations SET ended = 5, state = 'd'"))
    assert named(broken, Fault.STRAY_FRAME)
    assert named(broken, Fault.NO_END)
    assert named(broken, Fault.NO_BILL)
    assert broken.mend().keys() == {Fault.STRAY_FRAME, Fault.NO_END, Fault.NO_BILL}
    assert broken.job(frame) is JobState.ERROR
    assert broken.found() == []
    with broken.database.begin() as tx:
        assert [log.date for log in tx.reservation_logs.logs([broken.number])][1:] == [5]
        assert {row.termination_time for row in tx.reservation_logs.select_bills([broken.number])[broken.number]} == {5}
        assert tx.value("SELECT code FROM job_ends WHERE job_id = %s", (frame,)) == "RESERVATION"


def test_reservation_jobs_of_users_are_no_frames(broken: RepairedSite) -> None:
    job = add_job(broken.database, types=("ar=12", "noop"), reservation=Reservation.SCHEDULED)
    assert broken.mend() == {}
    assert broken.job(job) is JobState.WAITING


def test_a_job_that_sneaked_in_waits_outside(broken: RepairedSite) -> None:
    broken.damage(sneak_in)
    assert named(broken, Fault.NO_ROW)
    assert broken.mend() == {Fault.NO_ROW: 1}
    assert broken.found() == []
    broken.round(NOW + 2)
    assert broken.job(broken.job_inside) is JobState.TO_LAUNCH


def test_two_that_share_a_resource_are_named_and_nobody_is_preferred(broken: RepairedSite) -> None:
    other = broken.ask("/resource_id=1", START, END)
    broken.round(NOW + 2)
    taken = list(broken.get(broken.number).resources[:1])
    with broken.database.begin() as tx:
        tx.reservations.update(other, resources=taken)
    assert named(broken, Fault.OVERLAP)
    broken.mend()
    assert broken.found() == [f"reservations: 1 rows: {Fault.OVERLAP}"]


def test_what_is_at_its_end_without_jobs_is_closed_and_jobs_that_nobody_ended_end(broken: RepairedSite) -> None:
    broken.round(START)
    broken.damage(execute("UPDATE reservations SET state = 'x'"))
    broken.mend()
    assert broken.get(broken.number).ended == 0
    with broken.database.begin() as tx:
        assert tx.job_requests.jobs_to_kill([broken.job_inside]) == {broken.job_inside}
        lifecycle.move(tx, broken.job_inside, JobState.ERROR)
    broken.go_to(END)
    broken.mend()
    assert (broken.get(broken.number).ended, broken.frame) == (END, JobState.TERMINATED)
    assert broken.found() == []


@pytest.mark.parametrize("by_round", [False, True])
def test_a_request_that_nobody_waits_for_is_not_granted(broken: RepairedSite, by_round: bool) -> None:
    number = broken.ask("/resource_id=1", START, END)
    broken.go_to(NOW + 10 * PATIENCE + 2)
    if by_round:
        broken.round()
    else:
        broken.mend()
    refused = broken.get(number)
    assert (refused.state, refused.message, broken.events(number)) == (S.REFUSED, "too old", ["REFUSED"])
    assert broken.job(refused.frame_id) in FINAL


def test_a_request_without_frame_gets_one_and_is_answered(broken: RepairedSite) -> None:
    number = broken.ask("/resource_id=1", START, END)
    with broken.database.begin() as tx:
        end_frame(tx, number, broken.get(number).frame_id)
    broken.round(NOW + 2)
    assert broken.state(number) is S.WAITING
    assert broken.found() == []


def test_a_deleted_one_keeps_the_frame_that_it_had(broken: RepairedSite) -> None:
    """Deleted before its start it waits, deleted after it it runs, while its job is being ended."""
    later = broken.ask("/resource_id=1", END, END + 500)
    broken.round(START)
    inside = broken.submit_inside(later)
    for number in (broken.number, later):
        broken.delete(ALICE, number)
    broken.go_to(END + 100)
    assert broken.found() == []
    for number in (broken.number, later):
        with broken.database.begin() as tx:
            end_frame(tx, number, broken.get(number).frame_id)
    assert broken.mend().keys() >= {Fault.NO_FRAME}
    assert [broken.job(broken.get(each).frame_id) for each in (broken.number, later)] == [
        JobState.RUNNING,
        JobState.WAITING,
    ]
    assert broken.found() == []
    with broken.database.begin() as tx:
        for job in (broken.job_inside, inside):
            lifecycle.move(tx, job, JobState.ERROR)
    broken.mend()
    assert all(broken.get(each).ended == END + 100 for each in (broken.number, later))

"""Why jobs wait inside advance reservations, and for them."""

from oar.kao.facts.plan import Reason
from oar.lib.base.times import format_date
from oar.lib.jobs.reasons import ReasonCode, reason_label
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import ReservationState as S
from tests.scheduler.builders import NOW, Cluster
from tests.scheduler.test_advance_reservations import Site
from tests.scheduler.test_reasons import stored, told

H = 3600


def reason_of(site: Cluster, job: int) -> Reason:
    return site.plan().plan.reasons[job]


def running(**given: bool) -> Site:
    """A reservation of two of three nodes with a core each, that has begun and lasts another hour."""
    site = Site(nodes=3, cores=1)
    return site.reserve("/core=2", NOW - 100, NOW + H, held=3, state=S.RUNNING, **given)


def test_a_job_inside_waits_for_the_start() -> None:
    reason = reason_of(Site(nodes=1).reserve("/core=2", NOW + 100, NOW + H, held=3).inside(1), 1)
    assert reason.text == f"waits for the advance reservation 1 to start at {format_date(NOW + 100)}"
    assert told(reason) == f"It waits for the advance reservation 1 to start at {format_date(NOW + 100)}."


def test_a_job_inside_names_the_jobs_that_keep_the_reservation_busy() -> None:
    site = running()
    site.run(3, walltime=600, types=("inner=1001",))
    site.inside(1)
    reason, end = reason_of(site, 2), format_date(NOW + 601)
    assert (reason.code, reason.text) == (ReasonCode.ADVANCE, f"the advance reservation 1 is busy until {end} (jobs 1)")
    assert told(reason) == f"The advance reservation 1 is busy until {end}, with job 1."


def test_a_job_that_is_too_long_for_what_is_left_is_told_what_is_left() -> None:
    reason = reason_of(running().inside(1, walltime=H), 1)
    assert reason.text == "longer than the remaining time of the advance reservation 1 (0:59:54)"
    assert told(reason) == (
        "It is longer than the remaining time of the advance reservation 1 (0:59:54); "
        "submitted again with a shorter walltime it could start."
    )


def test_a_job_for_which_others_leave_no_room_is_told_so() -> None:
    site = running()
    site.run(3, walltime=H - 10, types=("inner=1001",))
    site.inside(1)
    assert told(reason_of(site, 2)) == "The advance reservation 1 has no room for it until its end."


def test_a_job_that_is_larger_than_what_is_left_of_the_reservation_is_told_its_size() -> None:
    site = running()
    site.state(ResourceState.SUSPECTED, 0)
    site.inside(1, "/core=2")
    assert told(reason_of(site, 1)) == "The advance reservation 1 has only 1 resource on which jobs can start now."


def test_whatever_a_job_asks_for_a_hard_reservation_in_error_is_the_reason() -> None:
    site = running(is_hard=True)
    site.state(ResourceState.SUSPECTED, 0)
    site.inside(1, "/core=2").inside(1, "/core=1")
    host = site.snapshot().resources.nodes_of(1)[0]
    text = f"the advance reservation 1 is in error: reserved host {host} is Suspected (hard error handling)"
    assert {reason_of(site, 1).text, reason_of(site, 2).text} == {text}


def test_a_job_outside_names_the_reservation_in_place_of_its_frame() -> None:
    for site in (running(), Site(nodes=3, cores=1).reserve("/core=2", NOW + 100, NOW + H, held=3)):
        reason = reason_of(site.job("/core=3", walltime=200), 1)
        end = format_date(NOW + H)
        assert reason.text == f"waiting for resources until {end} (advance reservation 1)"
        assert told(reason) == f"Its resources are reserved until {end}, by advance reservation 1."
        assert reason_label(stored(reason)) == "(advance reservation 1)"


def test_a_job_that_is_not_resumed_into_a_reservation_names_it() -> None:
    site = Site(nodes=1).reserve("/core=1", NOW + 100, NOW + 200, held=1).reserve("/core=1", NOW + 300, NOW + H, held=1)
    site.run(1, walltime=150, state=JobState.RESUMING, id=7)
    reason = reason_of(site, 7)
    assert (reason.code, reason.text) == (ReasonCode.RESERVATION, "waits until the advance reservation 1 is over")
    assert told(reason) == f"It waits until the advance reservation 1 is over, on {format_date(NOW + 200)}."
    assert reason_label(stored(reason)) == "(advance reservation 1)"


def test_a_job_that_a_removed_queue_has_left_behind_is_told_so() -> None:
    site = running()
    site.queues = (Queue("default", 2, "", QueueState.ORPHANED), Queue("night", 2, "", QueueState.ACTIVE))
    site.inside(1).inside(1, types=("besteffort",)).job("/core=1").job("/core=1", types=("besteffort",))
    site.inside(1, queue="night").job("/core=1", queue="gone")
    result = site.plan()
    assert sorted(result.started()) == [1, 5]
    for job, queue in ((3, "default"), (4, "default"), (6, "gone")):
        assert result.reason(job) == f"the queue {queue} was removed"
        assert told(result.plan.reasons[job]) == f"The queue {queue} was removed: nothing of it is planned any more."


def test_a_job_in_the_reservation_of_another_queue_has_no_place_in_a_removed_one() -> None:
    site = running()
    site.queues = (Queue("default", 2, "", QueueState.ACTIVE), Queue("night", 2, "", QueueState.ORPHANED))
    site.inside(1).inside(1, queue="night")
    assert site.plan().started() == [1]


def test_a_stored_reservation_job_of_a_removed_queue_keeps_its_place() -> None:
    site = Site(nodes=1)
    site.queues = (Queue("default", 2, "", QueueState.ORPHANED),)
    site.reservation("/core=1", NOW + 100, held=1, id=3)
    result = site.plan()
    assert (result.where(3), result.started()) == (1, [])


def test_a_job_on_a_node_that_hangs_is_told_without_a_date_that_moves() -> None:
    inside = running()
    inside.run(3, walltime=600, since=700, types=("inner=1001",))
    reason = reason_of(inside.inside(1), 2)
    assert (reason.code, reason.text) == (
        ReasonCode.BUSY,
        "waiting for resources that are held beyond their time (jobs 1)",
    )
    assert told(reason) == "Its resources are still held by job 1, though their time is over."


def test_a_job_behind_a_reservation_whose_jobs_do_not_leave_is_told_so() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW - 100, NOW - 10, held=3, state=S.EXITED, live_jobs=(5,))
    site.run(3, id=5, walltime=50, since=90, types=("inner=1001",)).job("/core=2", id=6)
    assert (
        told(reason_of(site, 6)) == "Its resources are still held by advance reservation 1, though their time is over."
    )

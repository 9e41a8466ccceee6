"""Whole plans in small situations, as a person would check them by hand."""

from dataclasses import replace
from typing import Any

import pytest

from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import ResourceColumns, Snapshot, StoredPlacement
from oar.kao.planner.schedule import schedule
from oar.kao.rounds.snapshot_files import from_json, to_json
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.nodes.states import ResourceState
from tests.scheduler.builders import NOW, Cluster, hours

H = hours(1)


# ----------------------------------------------------------------------------------------------- time and resources


def test_a_job_on_an_idle_machine_starts_at_once() -> None:
    result = Cluster().job("/node=1").plan()
    assert result.started() == [1]
    assert result.start(1) == 0
    assert result.code(1) is None
    assert result.plan.messages[1] == "R=2,W=1:0:0,J=B"


@pytest.mark.parametrize(("walltime", "start"), [(H - 2, H + 1), (H - 1, 3 * H + 1)])
def test_a_gap_is_used_by_a_job_that_fits_to_the_second(walltime: int, start: int) -> None:
    cluster = Cluster(nodes=1).run(0b11, walltime=H).reservation("/node=1", NOW + 2 * H, 0b11)
    assert cluster.job("/node=1", walltime=walltime).plan().start(3) == start


@pytest.mark.parametrize(("walltime", "start"), [(H // 2, 0), (2 * H, 2 * H + 2)])
def test_a_job_starts_before_an_earlier_one_only_if_it_does_not_delay_it(walltime: int, start: int) -> None:
    result = Cluster(nodes=2).run(0b11, walltime=H).job("/node=2").job("/node=1", walltime=walltime).plan()
    assert (result.start(2), result.start(3)) == (H + 1, start)


def test_a_job_past_its_walltime_keeps_its_resources() -> None:
    result = Cluster(nodes=1).run(0b11, walltime=H, since=2 * H).job("/node=1").plan()
    assert result.start(2) == 1
    assert result.started() == []


def test_a_minimal_hole_keeps_short_jobs_out_of_shorter_gaps() -> None:
    cluster = Cluster(nodes=1, hole_minimum=600).reservation("/node=1", NOW + 300, 0b11)
    assert cluster.job("/node=1", walltime=60).plan().start(2) == 300 + H + 1


@pytest.mark.parametrize(
    ("asked", "alternative", "start"),
    [
        (("/node=2,walltime=1", "/node=1,walltime=1:30"), 21, 0),
        (("/node=1,walltime=10", "/node=2,walltime=1"), 21, H + 1),
        (("/node=1,walltime=1", "/core=1,walltime=1"), 20, 0),
    ],
    ids=["it starts earlier", "it is shorter", "of equal ones the first"],
)
def test_the_alternative_that_ends_first_is_taken(asked: tuple[str, str], alternative: int, start: int) -> None:
    result = Cluster(nodes=2).run(0b0011, walltime=H).job(*asked).plan()
    assert (result[2].alternative, result.start(2)) == (alternative, start)


def test_a_askedon_a_property_that_does_not_exist_is_its_own_trouble() -> None:
    result = Cluster().job("/colour=1").job("/node=1").plan()
    assert 'there is no property "colour"' in result.reason(1)
    assert result.started() == [2]


def test_dead_nodes_are_no_nodes() -> None:
    result = Cluster(nodes=2).state(ResourceState.DEAD, 0).job("/node=ALL").plan()
    assert result.where(1) == 0b1100


def test_a_node_that_leaves_takes_no_job_that_outlasts_it() -> None:
    cluster = Cluster(nodes=1).state(ResourceState.ALIVE, 0, upto=NOW + H)
    assert cluster.job("/node=1", walltime=H - 1).plan().started() == [1]
    result = Cluster(nodes=1).state(ResourceState.ALIVE, 0, upto=NOW + H).job("/node=1", walltime=H).plan()
    assert result.reason(1) == "no matching slot"


@pytest.mark.parametrize("code", [0, 1, 2147483646, 2147483647])
def test_the_codes_of_available_upto_set_no_limit(code: int) -> None:
    cluster = Cluster(nodes=1).state(ResourceState.ALIVE, 0, upto=code)
    assert cluster.job("/node=1", walltime=1000 * H).plan().started() == [1]


def test_a_sleeping_node_is_not_used_without_energy_saving() -> None:
    cluster = Cluster(nodes=1).state(ResourceState.ABSENT, 0, upto=2147483646).job("/node=1")
    assert cluster.plan().code(1) == ReasonCode.NOT_ALIVE


def test_a_standby_job_starts_on_a_sleeping_node() -> None:
    cluster = Cluster(nodes=1, may_wake=True).state(ResourceState.ABSENT, 0, upto=2147483646)
    assert cluster.job("/node=1", types=("noop=standby",)).plan().started() == [1]


def test_a_permissive_noop_job_starts_on_a_suspected_node() -> None:
    cluster = Cluster(nodes=1).state(ResourceState.SUSPECTED, 0)
    assert cluster.job("/node=1", types=("noop", "state=permissive")).plan().started() == [1]


def test_resources_for_everybody_are_added_to_every_job() -> None:
    cluster = Cluster(nodes=2, always_assigned_type="switchboard")
    cluster.resources = _retyped(cluster, "switchboard", 0b1)
    result = cluster.job("/core=1").job("/core=1").plan()
    assert (result.where(1), result.where(2)) == (0b11, 0b101)


def test_nothing_is_planned_when_a_resource_for_everybody_is_suspected() -> None:
    cluster = Cluster(nodes=2, always_assigned_type="switchboard").state(ResourceState.SUSPECTED, 0)
    cluster.resources = _retyped(cluster, "switchboard", 0b1)
    result = cluster.job("/core=1").plan()
    assert result.start(1) is None
    assert "switchboard is Suspected" in result.reason(1)


def _retyped(cluster: Cluster, kind: str, members: int) -> ResourceColumns:
    types = tuple(kind if members >> bit & 1 else old for bit, old in enumerate(cluster.resources.types))
    return replace(cluster.resources, types=types)


# ----------------------------------------------------------------------------------------------- queues and limits


def test_a_queue_of_higher_priority_goes_first() -> None:
    result = Cluster(nodes=1).job("/node=1").job("/node=1", queue="admin").plan()
    assert result.started() == [2]
    assert result.start(1) == H + 1


def test_a_stopped_queue_is_not_planned_but_its_jobs_hold_their_place() -> None:
    cluster = Cluster(nodes=1)
    cluster.queues = (Queue("default", 2, "", QueueState.ACTIVE), Queue("night", 1, "", QueueState.NOT_ACTIVE))
    cluster.job("/node=1", queue="night", id=1).reservation("/node=1", NOW + H, 0b11, queue="night", id=2)
    result = cluster.job("/node=1", id=3).plan()
    assert result.start(1) is None
    assert result.code(1) == result.code(2) == ReasonCode.QUEUE
    assert all(result.plan.messages[job].endswith(" (the queue night is not active)") for job in (1, 2))
    assert result.start(2) == H
    assert result.start(3) == 2 * H + 1


def test_planning_stops_at_the_timeout() -> None:
    clock = iter([0.0, 5.0, 20.0, 20.0, 20.0])
    plan = schedule(Cluster().job().job("/core=2").job().snapshot(), lambda: next(clock, 20.0))
    assert [start.placement.job_id for start in plan.started] == [1, 2]
    assert plan.reasons[3].code == ReasonCode.LIMIT
    assert plan.troubles == ("some jobs were not scheduled because the scheduler's timeout was reached (10 s)",)


def test_without_backfilling_the_first_job_that_waits_ends_the_queue() -> None:
    cluster = Cluster(nodes=2).run(0b11)
    cluster.queues = (Queue("default", 2, "kamelot_fifo", QueueState.ACTIVE),)
    result = cluster.job("/node=2").job("/node=1").plan()
    assert result.started() == []
    assert (result.start(2), result.code(2)) == (None, ReasonCode.BUSY), "nothing is planned for later"
    assert result.code(3) == ReasonCode.LIMIT


def test_without_backfilling_a_queue_ends_its_own_planning_only() -> None:
    cluster = Cluster(nodes=2).run(0b11)
    strict = Queue("strict", 2, "kamelot_fifo", QueueState.ACTIVE)
    cluster.queues = (strict, Queue("default", 2, "", QueueState.ACTIVE))
    cluster.job("/node=2", queue="strict").job("/core=1", queue="strict").job("/core=1")
    result = cluster.plan()
    assert result.started() == [4]
    assert (result.code(2), result.code(3)) == (ReasonCode.BUSY, ReasonCode.LIMIT)


# ----------------------------------------------------------------------------------------------- besteffort


def besteffort(cluster: Cluster, request: str = "/node=1", **given: Any) -> Cluster:
    return cluster.job(request, queue="besteffort", types=("besteffort",), **given)


def test_besteffort_jobs_exclude_each_other_for_their_whole_walltime() -> None:
    cluster = besteffort(besteffort(Cluster(nodes=1), walltime=10 * H), walltime=H)
    assert cluster.plan().start(2) == 10 * H + 1


def test_a_besteffort_job_in_the_way_is_killed_and_the_other_starts_later() -> None:
    cluster = Cluster(nodes=2).run(0b0011, queue="besteffort", types=("besteffort",)).job("/node=2").job("/core=1")
    result = cluster.plan()
    assert result.kills() == {1: "KILL"}
    assert result.plan.kills[0].for_job == 2
    assert result.start(2) == 0
    assert result.started() == []
    assert result.reason(2) == "waiting for besteffort job 1 to end"


def test_jobs_that_do_not_need_its_place_start_although_one_is_killed() -> None:
    cluster = Cluster(nodes=3).run(0b11, queue="besteffort", types=("besteffort",))
    assert cluster.job("/node=3", walltime=60, after=[9]).ended(9).job("/node=1").plan().started() == []
    cluster = Cluster(nodes=3).run(0b110000, queue="besteffort", types=("besteffort",)).job("/node=2").job("/node=1")
    result = cluster.plan()
    assert result.started() == [2]
    assert result.kills() == {1: "KILL"}


def test_a_besteffort_job_writes_its_checkpoint_first() -> None:
    def victim(**given: Any) -> dict[int, str]:
        cluster = Cluster(nodes=1).run(0b11, queue="besteffort", types=("besteffort",), checkpoint=60, **given)
        return cluster.job("/node=1").plan().kills()

    assert victim() == {1: "CHECKPOINT"}
    assert victim(checkpoint_asked=NOW - 60) == {}
    assert victim(checkpoint_asked=NOW - 61) == {1: "CHECKPOINT_TIMEOUT"}
    assert victim(checkpoint_asked=NOW - 61, is_checkpoint_over=True) == {1: "KILL"}
    assert victim(is_killed=True) == {}
    assert victim(state=JobState.FINISHING) == {}


def test_besteffort_jobs_are_killed_ahead_of_what_begins_soon() -> None:
    cluster = Cluster(nodes=1, besteffort_kill_before=300).run(0b11, queue="besteffort", types=("besteffort",))
    assert cluster.reservation("/node=1", NOW + 300, 0b11).plan().kills() == {1: "KILL"}
    cluster = Cluster(nodes=1, besteffort_kill_before=300).run(0b11, queue="besteffort", types=("besteffort",))
    assert cluster.reservation("/node=1", NOW + 301, 0b11).plan().kills() == {}


def test_a_job_being_killed_does_not_start() -> None:
    result = Cluster().job(is_killed=True).plan()
    assert result.started() == []
    assert result.code(1) == ReasonCode.LAUNCH


# ----------------------------------------------------------------------------------------------- dependencies


def test_a_required_job_that_comes_later_is_planned_first() -> None:
    result = Cluster().job(after=[2]).job().plan()
    assert result.start(2) == 0
    assert result.start(1) == H + 1
    assert result.code(1) == ReasonCode.DEPENDENCY


def test_a_required_job_on_hold_says_nothing_about_the_start() -> None:
    result = Cluster().ended(1, JobState.HOLD).job(after=[1]).plan()
    assert result.reason(2) == "cannot determine scheduling time due to dependency with the job 1"


# ----------------------------------------------------------------------------------------------- sharing, spaces


def test_an_inner_job_lives_in_its_container() -> None:
    cluster = Cluster(nodes=4).run(0b110000, types=("container",), walltime=2 * H)
    result = cluster.job("/node=1", types=("inner=1",), walltime=2 * H).job("/node=1").plan()
    assert result.where(2) == 0b110000
    assert result.where(3) == 0b11
    assert result.started() == [2, 3]


def test_a_container_and_its_inner_job_are_planned_together() -> None:
    cluster = Cluster(nodes=1).run(0b11, walltime=H).job("/core=1", types=("inner=3",), walltime=60)
    result = cluster.job("/node=1", types=("container",)).plan()
    assert result.start(3) == H + 1
    assert result.start(2) == H + 1
    assert result.code(2) in (ReasonCode.CONTAINER, ReasonCode.BUSY)


def test_an_inner_job_of_no_container_is_given_up() -> None:
    assert Cluster().job(types=("inner=7",)).plan().errors() == {
        1: "Inner job: container 7 does not exist, inner job will never run, setting it to error"
    }


def test_a_container_that_waits_for_its_nodes_starts_no_inner_job() -> None:
    cluster = Cluster(nodes=1, may_wake=True).state(ResourceState.ABSENT, 0, upto=2147483646)
    result = cluster.job("/node=1", types=("container",)).job(types=("inner=1",), walltime=60).plan()
    assert result.start(2) == 0
    assert result.reason(2) == "waiting for container 1 to run"


def test_a_resuming_job_goes_on_when_its_cores_are_back() -> None:
    assert Cluster(nodes=1).run(0b11, state=JobState.RESUMING).plan().plan.resumed == (1,)
    assert Cluster(nodes=1).run(0b11, state=JobState.RESUMING).run(0b1).plan().plan.resumed == ()
    assert Cluster(nodes=1).run(0b11, state=JobState.RESUMING, is_killed=True).plan().plan.resumed == ()
    shared = Cluster(nodes=1).run(0b11, state=JobState.RESUMING, types=("timesharing",))
    assert shared.run(0b1, types=("timesharing",)).plan().plan.resumed == (1,)


def test_jobs_that_lent_each_other_their_cores_go_on_one_after_the_other() -> None:
    resuming: dict[str, Any] = {"state": JobState.RESUMING}
    both = Cluster().run(0b11, turn=8, **resuming).run(0b110, turn=7, **resuming).run(0b1000, turn=9, **resuming)
    assert both.plan().plan.resumed == (2, 3)
    assert both.run(0b100).plan().plan.resumed == (3,)  # the first may be on its way at this moment


def test_besteffort_jobs_leave_cores_that_were_only_lent() -> None:
    besteffort: dict[str, Any] = {"types": ("besteffort",), "queue": "besteffort"}
    cluster = Cluster(nodes=1).run(0b11, state=JobState.RESUMING).run(0b1, **besteffort)
    result = cluster.plan()
    assert (result.kills(), result.plan.resumed) == ({2: "KILL"}, ())
    assert cluster.run(0b10).plan().kills() == {}  # it would not go on without it
    other = Cluster(nodes=1).run(0b11, state=JobState.RESUMING, **besteffort).run(0b1, **besteffort).plan()
    assert (other.kills(), other.plan.resumed) == ({}, ())


def test_a_container_goes_on_under_the_jobs_in_it() -> None:
    cluster = Cluster(nodes=1).run(0b11, state=JobState.RESUMING, types=("container=c",))
    cluster.run(0b11, types=("inner=c", "container")).run(0b1, types=("inner=2",))
    assert cluster.plan().plan.resumed == (1,)
    assert cluster.run(0b1).plan().plan.resumed == ()


# ----------------------------------------------------------------------------------------------- dates and tokens


def test_tokens_are_counted_down() -> None:
    cluster = Cluster()
    cluster.tokens = {"lic": 3, "dead": None}
    cluster.job(types=("token:lic=2",)).job(types=("token:lic=2",)).job(types=("token:dead=1",))
    result = cluster.plan()
    assert result.started() == [1]
    assert result.reason(2) == "no enough tokens: lic (1 < 2)"
    assert result.reason(3) == "token value cannot be retrieved (dead)"


# ----------------------------------------------------------------------------------------------- reservations


def test_a_new_reservation_gets_its_place_behind_the_ordinary_jobs() -> None:
    result = Cluster(nodes=1).job("/node=1").reservation("/node=1", NOW + 2 * H).plan()
    assert [answer.job_id for answer in result.plan.accepted] == [2]
    assert result.start(2) == 2 * H
    assert result.plan.messages[2].startswith("R=2,W=1:0:0,J=R")


def test_a_reservation_in_the_past_counts_from_now() -> None:
    result = Cluster().reservation("/node=1", NOW - 60).plan()
    assert result.plan.accepted[0].start == NOW
    assert result.start(1) == 0
    assert Cluster().reservation("/node=1", NOW - H).plan().errors() == {1: "Reservation too old"}


def test_a_due_reservation_starts() -> None:
    result = Cluster().reservation("/node=1", NOW, 0b11).plan()
    assert result.started() == [1]
    assert result.plan.started[0].old_walltime == 0


def test_a_reservation_that_starts_late_ends_at_its_date() -> None:
    start = Cluster().reservation("/node=1", NOW - 60, 0b11).plan().plan.started[0]
    assert start.placement.start == NOW
    assert start.placement.walltime == H - 60
    assert start.old_walltime == H


def test_a_reservation_waits_for_its_nodes_then_starts_without_them() -> None:
    waiting = Cluster(nodes=2).state(ResourceState.SUSPECTED, 1).reservation("/node=2", NOW - 299, 0b1111).plan()
    assert waiting.started() == []
    assert waiting.start(1) == 1
    late = Cluster(nodes=2).state(ResourceState.SUSPECTED, 1).reservation("/node=2", NOW - 300, 0b1111).plan()
    assert late.plan.started[0].is_reduced
    assert late.where(1) == 0b0011
    hard = Cluster(nodes=2).state(ResourceState.SUSPECTED, 1)
    assert hard.reservation("/node=2", NOW - 300, 0b1111, types=("ar=hard",)).plan().started() == []


# ----------------------------------------------------------------------------------------------- energy


def sleeping(**given: Any) -> Cluster:
    return Cluster(nodes=2, may_wake=True, **given).state(ResourceState.ABSENT, 1, upto=NOW + 5 * H)


def test_a_sleeping_node_is_woken_for_a_job_that_needs_it_soon() -> None:
    assert sleeping().job("/node=2").plan().plan.wake == ("n1",)
    assert sleeping().job("/node=1").plan().plan.wake == ()
    assert sleeping().run(0b11, walltime=601).job("/node=2").plan().plan.wake == ()
    assert sleeping().run(0b11, walltime=599).job("/node=2").plan().plan.wake == ("n1",)


def test_a_job_that_starts_on_sleeping_nodes_wakes_none() -> None:
    assert sleeping().job("/node=2", types=("noop=standby",)).plan().plan.wake == ()


def test_a_job_that_waits_for_woken_nodes_keeps_them() -> None:
    cluster = Cluster(nodes=4, cores=1, may_wake=True).state(ResourceState.ABSENT, 0, 2, 3, upto=NOW + 5 * H)
    cluster.job("/node=2", promised=StoredPlacement(90, NOW - 3, 0b1100), id=9)
    assert cluster.plan().where(9) == 0b1100
    assert cluster.plan().plan.wake == ("n2", "n3")
    assert cluster.run(0b1000, id=20).plan().where(9) == 0b0011  # one of them has been taken


def test_a_job_that_may_start_at_once_does_not_wait_for_woken_nodes() -> None:
    cluster = Cluster(nodes=2, cores=1, may_wake=True).state(ResourceState.ABSENT, 1, upto=NOW + 5 * H)
    result = cluster.job("/node=1", promised=StoredPlacement(90, NOW - 3, 0b10), id=9).plan()
    assert (result.where(9), result.started()) == (0b01, [9])


def test_a_node_that_nobody_uses_is_halted() -> None:
    def halted(cluster: Cluster, used_lately: int = 0, **changes: Any) -> tuple[str, ...]:
        cluster.state(ResourceState.ALIVE, 0, 1, upto=2147483646)
        cluster.resources = replace(cluster.resources, **changes)
        return schedule(replace(cluster.snapshot(), used_lately=used_lately)).halt

    def idle(**given: Any) -> Cluster:
        return Cluster(nodes=2, **{"may_wake": True, "idle_time": 600, "sleep_time": 600, **given})

    assert halted(idle()) == ("n0", "n1")
    assert halted(idle(idle_time=0)) == ()
    assert halted(idle().run(0b1)) == ("n1",)
    assert halted(idle(), used_lately=0b1000) == ("n0",)
    assert halted(idle().reservation("/node=1", NOW + 599, 0b1100)) == ("n0",)
    assert halted(idle().reservation("/node=1", NOW + 600, 0b1100)) == ("n0", "n1")
    assert halted(idle(), available_upto=(0, 1, 1, 1)) == ("n1",)
    blocked = idle(always_assigned_type="licence")
    states = (ResourceState.ALIVE, ResourceState.ALIVE, ResourceState.ALIVE, ResourceState.SUSPECTED)
    assert halted(blocked, types=("default", "default", "default", "licence"), states=states) == ()


# ----------------------------------------------------------------------------------------------- the record


def test_a_snapshot_and_its_plan_survive_being_written_to_a_file() -> None:
    cluster = Cluster(nodes=2).run(0b11, types=("besteffort",)).state(ResourceState.SUSPECTED, 1)
    cluster.reservation("/node=1", NOW + H, 0b11).job("/switch=1/node=BEST", after=[1]).job("/node=9").ended(50)
    cluster.tokens = {"a": None, "b": 2}
    snapshot = cluster.snapshot()
    assert from_json(Snapshot, to_json(snapshot)) == snapshot
    plan = schedule(snapshot)
    assert from_json(Plan, to_json(plan)) == plan
    assert schedule(from_json(Snapshot, to_json(snapshot))) == plan

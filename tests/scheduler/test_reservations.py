"""Advance reservations, sentence by sentence."""

from dataclasses import replace
from typing import Any

import pytest

from oar.kao.facts.plan import Placement
from oar.lib.base.times import format_date
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Dependency
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.nodes.states import ResourceState
from tests.scheduler.builders import NOW, Cluster, Result

H = 3600
NO_CONTAINER = "Inner job: container c does not exist, inner job will never run, setting it to error"


def lost(cluster: Cluster, number: int = 1) -> Cluster:
    """Forget what an accepted reservation holds."""
    cluster.waiting = [replace(job, granted=None) if job.id == number else job for job in cluster.waiting]
    return cluster


# ---------------------------------------------------------------------------------------------------------- new ones


@pytest.mark.parametrize(
    ("start", "requests", "answer"),
    [
        (NOW - H, ("/core=1",), {1: "Reservation too old"}),
        (NOW - H + 1, ("/core=1",), {}),
        (NOW - 100, ("/core=1,walltime=0:1:40", "/core=1,walltime=1"), {1: "Reservation too old"}),
    ],
)
def test_a_reservation_is_too_old_when_its_shortest_walltime_is_over(
    start: int, requests: tuple[str, ...], answer: dict[int, str]
) -> None:
    cluster = Cluster().job(*requests, start_time=start, reservation=Reservation.TO_SCHEDULE)
    assert cluster.plan().errors() == answer


def test_a_reservation_of_besteffort_cannot_run() -> None:
    result = Cluster().reservation("/core=1", NOW + H, types=("besteffort",)).plan()
    assert result.errors() == {1: "This reservation cannot run"}


def test_a_reservation_that_never_fits_cannot_run() -> None:
    assert Cluster(1, 1).reservation("/core=2", NOW + H).plan().errors() == {1: "This reservation cannot run"}


def test_a_reservation_inside_needs_a_reservation_outside() -> None:
    inner: dict[str, Any] = {"types": ("inner=c",)}
    assert Cluster().reservation("/core=1", NOW + H, **inner).plan().errors() == {1: NO_CONTAINER}
    ordinary = Cluster().job("/core=1", types=("container=c",)).reservation("/core=1", NOW + H, **inner)
    assert ordinary.plan().errors() == {2: NO_CONTAINER}
    itself = Cluster().reservation("/core=1", NOW + H, types=("container=c", "inner=c"))
    assert itself.plan().errors() == {1: "Inner job: job cannot be its own container, setting it to error"}


def test_a_reservation_inside_comes_behind_its_container_whatever_their_numbers() -> None:
    cluster = Cluster(2, 2).reservation("/core=1", NOW + H, types=("inner=c",), walltime=60)
    result = cluster.reservation("/node=1", NOW + H, types=("container=c",)).plan()
    assert result.errors() == {}
    assert result.where(1) & ~result.where(2) == 0


def test_a_reservation_inside_one_that_is_refused_is_refused() -> None:
    cluster = Cluster(1, 1).reservation("/core=2", NOW + H, types=("container=c",))
    result = cluster.reservation("/core=1", NOW + H, types=("inner=c",)).plan()
    assert result.errors() == {1: "This reservation cannot run", 2: NO_CONTAINER}


def test_what_a_reservation_requires_does_not_matter_for_its_date() -> None:
    result = Cluster().run(0b1, walltime=5 * H).reservation("/core=1", NOW + H, after=[Dependency(2, 1)]).plan()
    assert [answer.job_id for answer in result.plan.accepted] == [2]


def test_the_first_alternative_that_fits_at_its_date_is_taken() -> None:
    cluster = Cluster(2, 1).run(0b01, walltime=3 * H)
    given: dict[str, Any] = {"start_time": NOW + H, "reservation": Reservation.TO_SCHEDULE}
    result = cluster.job("/core=2", "/core=1,walltime=0:30", "/core=1,walltime=0:10", **given).plan()
    assert (result[2].alternative, result[2].walltime, result.where(2)) == (21, 1800, 0b10)


def test_a_reservation_is_told_when_its_first_alternative_could_run() -> None:
    cluster = Cluster(1, 1).run(0b1, walltime=2 * H).reservation("/core=1", NOW + H)
    assert cluster.plan().errors() == {2: f"This reservation could run at {format_date(NOW + 2 * H + 1)} (job 1)"}


@pytest.mark.parametrize(("start", "resources"), [(NOW + 299, 0b10), (NOW + 300, 0b01)])
def test_a_distant_reservation_has_its_own_order_of_resources(start: int, resources: int) -> None:
    cluster = Cluster(1, 2)
    cluster.resources = replace(cluster.resources, order=(1, 0), reservation_order=(0, 1))
    assert cluster.reservation("/core=1", start).plan().where(1) == resources


@pytest.mark.parametrize(("state", "is_taken"), [(state, state is not ResourceState.DEAD) for state in ResourceState])
def test_a_reservation_may_be_given_all_but_dead_resources(state: ResourceState, is_taken: bool) -> None:
    cluster = Cluster(1, 1).state(state, 0).reservation("/core=1", NOW + H)
    assert bool(cluster.plan().plan.accepted) is is_taken


def test_a_reservation_does_not_outlast_its_resources() -> None:
    def accepted(upto: int) -> bool:
        cluster = Cluster(1, 1).state(ResourceState.ALIVE, 0, upto=upto)
        return bool(cluster.reservation("/core=1", NOW + H).plan().plan.accepted)

    assert accepted(NOW + 2 * H + 1)
    assert not accepted(NOW + 2 * H)


# ------------------------------------------------------------------------------------------------- while it waits


def test_nothing_takes_the_place_of_a_reservation_whatever_its_nodes_are() -> None:
    cluster = Cluster(1, 1).state(ResourceState.SUSPECTED, 0).reservation("/core=1", NOW + H, 0b1)
    cluster.job("/core=1", types=("state=permissive",), walltime=H)
    result = cluster.plan()
    assert (result.start(1), result.start(2)) == (H, 2 * H + 1)


def test_a_late_reservation_occupies_its_place_to_its_own_end_only() -> None:
    cluster = Cluster(2, 1).state(ResourceState.SUSPECTED, 1).reservation("/node=2", NOW - 100, 0b11)
    result = cluster.job("/node=1", walltime=60).plan()
    assert result.start(1) == 1, "its row is a second ahead as long as it waits"
    assert result.start(2) == H - 100 + 1


# ------------------------------------------------------------------------------------------------------ when it is due


def due(cluster: Cluster, request: str, start: int, held: int, **given: Any) -> Result:
    return cluster.reservation(request, start, held, **given).plan()


def test_a_reservation_waits_as_long_as_none_of_its_resources_is_usable() -> None:
    cluster = Cluster(2, 1).state(ResourceState.SUSPECTED, 0, 1)
    result = due(cluster, "/node=2", NOW - 1000, 0b11)
    assert (result.started(), result.start(1), result.code(1)) == ([], 1, ReasonCode.LAUNCH)
    assert result.plan.troubles == (
        "[1] advance reservation is waiting because not all resources are available yet (timeout in 0 seconds)",
    )


def test_a_reservation_that_waits_says_for_how_long() -> None:
    cluster = Cluster(2, 1, reservation_patience=300).state(ResourceState.ABSENT, 1)
    result = due(cluster, "/node=2", NOW - 10, 0b11)
    assert result.reason(1) == "waiting for n1 to be Alive"
    assert result.plan.troubles[0].endswith("(timeout in 290 seconds)")


def test_a_reduced_reservation_tells_its_new_size_and_walltime() -> None:
    result = due(Cluster(2, 2).state(ResourceState.SUSPECTED, 1), "/node=2", NOW - 300, 0b1111, walltime=H)
    assert result.plan.messages[1] == "R=2,W=0:55:0,J=R"


@pytest.mark.parametrize("types", [("noop=standby",), ("deploy=standby",), ("cosystem=standby",)])
def test_a_standby_reservation_starts_on_nodes_that_sleep_long_enough(types: tuple[str, ...]) -> None:
    def started(upto: int) -> list[int]:
        return due(Cluster(1, 1).state(ResourceState.ABSENT, 0, upto=upto), "/node=1", NOW, 0b1, types=types).started()

    assert started(NOW + H + 1 + 600) == []
    assert started(NOW + H + 1 + 601) == [1]


@pytest.mark.parametrize(
    ("types", "starts"),
    [
        (("state=permissive", "noop"), True),
        (("state=permissive", "cosystem"), True),
        (("state=permissive",), False),
        (("noop",), False),
    ],
)
def test_a_permissive_reservation_without_processes_starts_on_anything(types: tuple[str, ...], starts: bool) -> None:
    cluster = Cluster(1, 1).state(ResourceState.SUSPECTED, 0)
    assert bool(due(cluster, "/node=1", NOW, 0b1, types=types).started()) is starts


def test_a_hard_reservation_waits_until_it_is_complete_or_over() -> None:
    def result(since: int) -> Result:
        cluster = Cluster(2, 1).state(ResourceState.SUSPECTED, 1)
        return due(cluster, "/node=2", NOW - since, 0b11, types=("ar=hard",))

    assert (result(H - 1).started(), result(H - 1).plan.expired) == ([], ())
    assert [answer.job_id for answer in result(H).plan.expired] == [1]
    assert due(Cluster(2, 1), "/node=2", NOW - 400, 0b11, types=("ar=hard",)).started() == [1]


def test_a_reservation_waits_for_who_holds_its_place_and_has_besteffort_jobs_killed() -> None:
    held = due(Cluster(1, 1).run(0b1, walltime=10, since=20, id=5), "/core=1", NOW, 0b1)
    assert held.reason(6) == "waiting for job 5 to release its resources"
    besteffort = Cluster(1, 1).run(0b1, types=("besteffort",), queue="besteffort", id=5)
    result = due(besteffort, "/core=1", NOW, 0b1)
    assert (result.kills(), result.reason(6)) == ({5: "KILL"}, "waiting for besteffort job 5 to end")


def test_a_reservation_waits_for_the_jobs_that_it_requires() -> None:
    cluster = Cluster(2, 1).run(0b10, id=5)
    assert due(cluster, "/core=1", NOW, 0b1, after=[5]).code(6) == ReasonCode.DEPENDENCY
    assert due(Cluster(2, 1).ended(5), "/core=1", NOW, 0b1, after=[5]).started() == [6]


def test_a_reservation_waits_for_its_tokens_and_takes_them_from_those_behind() -> None:
    def result(free: int) -> Result:
        cluster = Cluster(2, 1)
        cluster.tokens = {"lic": free}
        cluster.reservation("/core=1", NOW, 0b1, types=("token:lic=2",), queue="admin")
        return cluster.job("/core=1", types=("token:lic=1",)).plan()

    assert (result(1).started(), result(1).reason(1)) == ([2], "no enough tokens: lic (1 < 2)")
    assert (result(2).started(), result(2).code(2)) == ([1], ReasonCode.TOKEN)
    assert result(3).started() == [1, 2]


def test_resources_of_everybody_keep_no_reservation_and_no_resumption_from_its_place() -> None:
    cluster = Cluster(3, 1, always_assigned_type="licence", suspended_types=())
    cluster.resources = replace(cluster.resources, types=("default", "default", "licence"))
    cluster.run(0b101, id=5).run(0b110, id=6, state=JobState.RESUMING)
    result = due(cluster, "/core=1", NOW + H, 0b101)
    assert result.plan.resumed == (6,)
    running = Cluster(3, 1, always_assigned_type="licence")
    running.resources = cluster.resources
    result = due(running.run(0b110, id=5), "/core=1", NOW, 0b101)
    assert (result.started(), result.where(6)) == ([6], 0b101)
    absent = replace(cluster.resources, states=(*cluster.resources.states[:2], ResourceState.ABSENT))
    running.resources = absent
    assert (running.plan().started(), running.plan().where(6)) == ([6], 0b001)


# ------------------------------------------------------------------------------------------------------- resources lost


def test_a_reservation_that_lost_its_resources_looks_for_others_at_its_date() -> None:
    result = lost(Cluster(1, 2).reservation("/core=1", NOW + H, 0b1)).plan()
    assert (result.plan.regained, result[1]) == ((1,), Placement(1, 10, NOW + H, H, 0b1))
    assert result.plan.messages[1] == "Renewed resources for reservation"


def test_a_reservation_that_finds_none_tries_until_it_is_over() -> None:
    def result(start: int) -> Result:
        cluster = Cluster(1, 1).run(0b1, walltime=5 * H, id=7)
        return lost(cluster.reservation("/core=1", start, 0b1, id=1)).plan()

    for start in (NOW + H, NOW - H + 1):
        assert (result(start).plan.lost, result(start).started(), result(start).plan.expired) == ((1,), [], ())
        assert result(start).plan.messages[1] == "No resource for reservation"
        assert result(start).code(1) == ReasonCode.NO_SLOT
    assert [answer.message for answer in result(NOW - H).plan.expired] == [
        "Reservation expired and couldn't be started."
    ]

"""Advance reservations in the plan, without the database: ``python -m bench.reservations``.

The busy cluster has 10,000 cores, 10,000 waiting jobs (``bench.snapshots``), and granted reservations of one node each.
The table compares plans with and without 1,000 reservations, alternately: plans without memory, and plans with memory
after which nothing has changed.  Then it shows the decisions before the planning of jobs: a request that is granted,
one that is rejected with a proposal, the replacement of 100 lost resources, and 800 running reservations with two jobs
each.  All figures are CPU milliseconds of one thread, the minimum of several runs.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from bench.figures import Figures, heading
from bench.snapshots import CORES, CPUS, NOW, plain
from oar.kao.facts.snapshot import (
    Alternative,
    PlannedReservation,
    RequestGroup,
    RunningJob,
    Snapshot,
    StoredPlacement,
    WaitingJob,
)
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.schedule import Round
from oar.kao.rounds.garbage_collection import resting
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.records import Level
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import ReservationState

MACHINE, JOBS, RESERVATIONS, LOST = 10_000, 10_000, 1_000, 100
BUSY = 800
NODE = CORES * CPUS
NODES = MACHINE // NODE
DAY = 86400
RUNS = 5


def with_reservations(snapshot: Snapshot, count: int) -> Snapshot:
    """Return a snapshot with granted reservations of a node each, after the end of the running jobs."""
    for number in range(1, count + 1):
        held = ((1 << NODE) - 1) << (NODE * (number % NODES))
        start = NOW + 3 * DAY + (number // NODES) * DAY
        snapshot = reserve(snapshot, number, start, 1, NODE, held=held)
    return snapshot


def reserve(
    snapshot: Snapshot, number: int, start: int, days: int, cores: int, *, held: ResourceSet = 0, **given: object
) -> Snapshot:
    """Return a snapshot with one more reservation; without ``held`` it is a request."""
    end = start + days * DAY
    frame, groups = 10_000_000 + number, (RequestGroup(0, (Level("core", cores),)),)
    job = WaitingJob(
        frame, "default", "u", "p", "", JobState.WAITING,
        reservation=Reservation.SCHEDULED if held else Reservation.TO_SCHEDULE,
        types=("container", "noop", "state=permissive", "no_quotas", f"ar={number}"),
        alternatives=(Alternative(frame, end - start, groups),), start_time=start,
        granted=StoredPlacement(frame, start, held) if held else None,
    )  # fmt: skip
    planned = PlannedReservation(
        number, number, frame, ReservationState.WAITING if held else ReservationState.ASKED, 1, "default", start, end,
        0, 6, is_hard=False, replaces_lost=False, is_flexible=False, ignores_jobs=False, idle_limit=0, message="",
        resources=held, groups=groups if held else (),
    )  # fmt: skip
    planned = replace(planned, **given)  # type: ignore[arg-type]
    return replace(snapshot, waiting=(*snapshot.waiting, job), reservations=(*snapshot.reservations, planned))


def with_lost_nodes(snapshot: Snapshot, *, replaces_lost: bool) -> Snapshot:
    """Return a snapshot in which a reservation has lost 100 of its cores."""
    lost = tuple(range(1, LOST + 1))
    states = (ResourceState.DEAD,) * LOST + snapshot.resources.states[LOST:]
    snapshot = replace(snapshot, resources=replace(snapshot.resources, states=states))
    start = NOW + 3 * DAY
    given = {"replaces_lost": replaces_lost, "missing": lost, "missing_since": dict.fromkeys(lost, NOW - 600)}
    given |= {"state": ReservationState.WARNING}
    return reserve(snapshot, RESERVATIONS + 1, start - DAY, 1, 2 * LOST, held=(1 << 2 * LOST) - 1, **given)


def with_busy_reservations(snapshot: Snapshot, count: int) -> Snapshot:
    """Return a snapshot that contains only reservations of eight cores, with two jobs in each."""
    running, reservations = [], []
    for number in range(1, count + 1):
        frame, held = 10_000_000 + number, 255 << 8 * number
        types = ("container", "noop", "state=permissive", "no_quotas", f"ar={number}")
        running.append(_running(frame, held, types))
        insiders = [_running(2 * number + half, (15 << 4 * half) << 8 * number, (f"inner={frame}",)) for half in (0, 1)]
        running += insiders
        planned = PlannedReservation(
            number, number, frame, ReservationState.RUNNING, 1, "default", NOW - DAY, NOW + DAY, 0, 6, is_hard=False,
            replaces_lost=False, is_flexible=False, ignores_jobs=False, idle_limit=0, message="", resources=held,
            groups=(RequestGroup(0, (Level("core", 8),)),), live_jobs=tuple(job.id for job in insiders),
        )  # fmt: skip
        reservations.append(planned)
    return replace(snapshot, running=tuple(running), waiting=(), reservations=tuple(reservations))


def _running(job_id: int, held: ResourceSet, types: tuple[str, ...]) -> RunningJob:
    return RunningJob(
        job_id, "default", "u", "p", "", JobState.RUNNING, types=types,
        alternative=job_id, start_time=NOW - DAY, walltime=2 * DAY - 6, resources=held,
    )  # fmt: skip


def round_of(snapshot: Snapshot, memory: RoundMemory | None = None) -> tuple[float, RoundMemory]:
    """Return the CPU milliseconds of a plan, and its memory."""
    with resting():
        begin = time.process_time()
        this = Round(snapshot, memory=memory)
        plan = this.plan()
        return 1000 * (time.process_time() - begin), this.memory(plan)


def answer_to(snapshot: Snapshot) -> float:
    """Return the CPU milliseconds of the decisions on reservations, before jobs are planned."""
    with resting():
        begin = time.process_time()
        Round(snapshot).plan_reservations()
        return 1000 * (time.process_time() - begin)


def by_turns(runs: int, *measured: Callable[[], float]) -> list[float]:
    """Return the minimum of several alternating runs, so that other load affects all of them."""
    rows = [[each() for each in measured] for _ in range(runs)]
    return [min(column) for column in zip(*rows, strict=True)]


def main() -> None:
    """Print the table."""
    figures = Figures()
    heading(f"{JOBS} waiting jobs, {MACHINE} cores, {RESERVATIONS} reservations: CPU of the planner")
    without = plain(JOBS, MACHINE)
    among = with_reservations(without, RESERVATIONS)
    cold = by_turns(3, lambda: round_of(without)[0], lambda: round_of(among)[0])
    figures.note("a round from nothing without reservations", cold[0])
    figures.note("the same with them", cold[1])
    figures.add("what they add to a round from nothing", 100 * (cold[1] / cold[0] - 1), 15, "%")
    memories = round_of(without)[1], round_of(among)[1]
    warm = by_turns(RUNS, lambda: round_of(without, memories[0])[0], lambda: round_of(among, memories[1])[0])
    figures.add("a round in which nothing changed, for each of them", (warm[1] - warm[0]) / RESERVATIONS, 0.2)
    start = NOW + 3 * DAY
    asked = reserve(among, RESERVATIONS + 1, start + 10 * DAY, 1, 4 * NODE)
    hindered = reserve(among, RESERVATIONS + 1, start, 1, 4 * NODE)
    lost, kept = (with_lost_nodes(among, replaces_lost=is_to) for is_to in (True, False))
    answers = by_turns(RUNS, *(lambda each=each: answer_to(each) for each in (among, asked, hindered, lost, kept)))
    figures.note("all decisions on them", answers[0])
    figures.add("a request that is granted", answers[1] - answers[0], 15)
    figures.add("a request that is refused, with its proposal", answers[2] - answers[0], 15)
    figures.add(f"the replacement of {LOST} lost resources", answers[3] - answers[4], 100)
    busy = with_busy_reservations(without, BUSY)
    figures.add(
        f"the decisions on {BUSY} that run, with two jobs in each", by_turns(RUNS, lambda: answer_to(busy))[0], 100
    )
    figures.end()


if __name__ == "__main__":
    main()

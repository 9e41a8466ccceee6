"""Cost of an urgent pass after one change, without the database: ``python -m bench.two_depths [cores ...]``.

The machines and the jobs are those of ``bench/snapshots.py``, all different.  Seconds of CPU of one thread, from the
snapshot to the decisions; what is allowed; how many jobs were placed on the way; and those of a full plan, which must
start the same.  Without a full plan, which takes minutes on 100,000 cores, the requests have been compiled before.
"""

import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from bench import snapshots
from bench.changes import carried_out
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.schedule import Round
from oar.kao.rounds.garbage_collection import resting
from oar.lib.facts.states import ResourceState

#: cores -> waiting jobs, whether full plans are made, seconds allowed for an urgent pass
SITES = {10_000: (10_000, True, 0.6), 100_000: (50_000, False, 2.0)}


def ended(snapshot: Snapshot, count: int) -> Snapshot:
    """Let some jobs end early."""
    gone = {job.id for job in random.Random(count).sample(snapshot.running, count)}
    return replace(snapshot, running=tuple(job for job in snapshot.running if job.id not in gone))


def without_node(snapshot: Snapshot) -> Snapshot:
    """Lose a node, and the jobs on it."""
    lost = ((1 << snapshots.CPUS * snapshots.CORES) - 1) << 20 * snapshots.CPUS * snapshots.CORES
    states = tuple(
        ResourceState.SUSPECTED if lost >> bit & 1 else state for bit, state in enumerate(snapshot.resources.states)
    )
    running = tuple(job for job in snapshot.running if not job.resources & lost)
    return replace(snapshot, running=running, resources=replace(snapshot.resources, states=states))


def submitted(snapshot: Snapshot) -> Snapshot:
    """Submit a job behind all others."""
    return replace(snapshot, waiting=(*snapshot.waiting, replace(snapshot.waiting[-1], id=10**7)))


CHANGES: dict[str, Callable[[Snapshot], Snapshot]] = {
    "a job ends early": lambda snapshot: ended(snapshot, 1),
    "200 jobs end at once": lambda snapshot: ended(snapshot, 200),
    "a submission": submitted,
    "a node is lost": without_node,
}


def site(cores: int) -> None:
    """Print the passes on one machine."""
    jobs, has_full_plans, limit = SITES[cores]
    print(f"{jobs:,} jobs on {cores:,} cores", flush=True)
    snapshot = snapshots.plain(jobs, cores)
    first = Round(snapshot)
    plan = first.plan() if has_full_plans else first.urgent(lambda: True, lambda: False)
    memory, requests = (first.memory(plan) if has_full_plans else None), first.compiled
    for what, change in CHANGES.items():
        snapshot = change(carried_out(snapshot, plan))
        begin = time.process_time()
        planning = Round(snapshot, memory=memory, requests=requests)
        plan = planning.urgent(lambda: True, lambda: False)
        seconds, placed = time.process_time() - begin, len(plan.placements)
        requests = planning.compiled
        line = f"  {what:24} {seconds:8.2f} {limit:8.2f} {placed:7} {len(plan.started):7}"
        if has_full_plans:
            line, memory = compared(line, snapshot, memory, {start.placement for start in plan.started})
        print(line, flush=True)


def compared(line: str, snapshot: Snapshot, memory: RoundMemory | None, started: object) -> tuple[str, RoundMemory]:
    """Return the line with the seconds of a full plan, and its memory."""
    begin = time.process_time()
    planning = Round(snapshot, memory=memory)
    plan = planning.plan()
    seconds = time.process_time() - begin
    if {start.placement for start in plan.started} != started:
        raise SystemExit("a full plan starts other jobs")
    return f"{line} {seconds:8.2f}", planning.memory(plan)


def main(wanted: list[str]) -> None:
    """Print the table."""
    print(f"  {'change':24} {'seconds':>8} {'at most':>8} {'placed':>7} {'started':>7} {'full':>8}")
    with resting():
        for cores in [int(word) for word in wanted] or SITES:
            site(cores)


if __name__ == "__main__":
    main(sys.argv[1:])

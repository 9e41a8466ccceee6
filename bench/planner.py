"""Cost of planning, without the database: ``python -m bench.planner [case ...]``; ``growth`` for how it grows.

The snapshots come from ``bench/snapshots.py`` and ``bench/cliffs.py``.  Every job gets its start and its resources.
The table shows CPU seconds of one thread with limits: for a first plan, for one after which nothing has changed, and
for some cases of the longest step of a plan in steps; and the memory of the process.  The process is not a fork of this
one: copying the pages of a fork on their first write would be charged to the plan.
"""

import itertools
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from bench import cliffs
from bench.changes import carried_out
from bench.figures import Figures, heading
from bench.snapshots import WIDTHS, mixed, plain, to_depth, wide
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.schedule import Round, schedule
from oar.kao.rounds.garbage_collection import resting


@dataclass(frozen=True)
class Case:
    """A snapshot and the limits of its plan."""

    make: Callable[[], Snapshot]
    first: float  #: seconds of a plan without memory
    quiet: float | None = None  #: seconds of a later plan after which nothing has changed; None = not measured
    memory: int | None = None  #: MiB
    step: float | None = None  #: seconds of the longest step of a plan in steps; None = not measured


CASES = {
    "1,000 jobs on 1,000 cores": Case(lambda: plain(1000, 1000), 0.15),
    "1,000 jobs on 10,000 cores": Case(lambda: plain(1000, 10000), 0.4),
    "1,000 mixed jobs on 2,000 cores, quotas": Case(lambda: mixed(1000, 2000), 3.0),
    "10,000 jobs on 10,000 cores, 40 kinds": Case(lambda: plain(10000, 10000, kinds=40), 2.5),
    "10,000 jobs on 10,000 cores": Case(lambda: plain(10000, 10000), 8.0),
    "1,000 jobs, groups compete": Case(lambda: cliffs.competing(1000, 10000), 2.0, 0.3),
    "array of 100,000 equal jobs": Case(lambda: cliffs.equal_array(100000, 10000), 3.0, 0.5, 600),
    "5,000 besteffort jobs wait": Case(lambda: cliffs.besteffort_waiting(5000, 10000), 2.0, 0.5),
    "5,000 inner jobs wait": Case(lambda: cliffs.besteffort_waiting(5000, 10000, is_inner=True), 2.0, 0.5),
    "1,000 starts over 5,000 besteffort jobs": Case(lambda: cliffs.besteffort_running(1000, 5000, 10000), 0.5),
    "5,000 jobs, each its own filter": Case(lambda: cliffs.own_filters(5000, 10000), 2.0),
    "1,000 jobs, random preference": Case(lambda: cliffs.random_order(1000, 10000), 2.0),
    "1,000 timesharing jobs of 100 users": Case(lambda: cliffs.timesharing(1000, 100, 10000), 2.0),
    "1,000 jobs, blocks that do not nest": Case(lambda: cliffs.scattered(1000, 10000), 2.0),
    "500 jobs of whole nodes, 39 nodes": Case(lambda: cliffs.whole_nodes(500, 39, 256), 0.03),
    "300 different requests, 10,000 cores": Case(lambda: cliffs.distinct_requests(300, 10000), 0.6),
    "300 different requests, 100,000 cores": Case(lambda: cliffs.distinct_requests(300, 100000), 2.0),
    "10,000 jobs on 10,000 cores, up to an eighth": Case(lambda: wide(10000, 10000), 8.0),
    "10,000 jobs on 10,000 cores, depth 100": Case(lambda: to_depth(plain(10000, 10000), 100), 1.0),
    "5,000 jobs and 5,000 reservations are entered": Case(lambda: cliffs.occupied(5000, 5000, 100000), 1.0, step=0.3),
    "10,000 jobs on 100,000 cores": Case(lambda: plain(10000, 100000), 90.0, memory=2048),
    "1,000 jobs on 50,000 nodes of 4 cores": Case(lambda: plain(1000, 200000, per_cpu=2), 5.0, memory=600),
    "10,000 jobs on 50,000 nodes of 4 cores": Case(lambda: plain(10000, 200000, per_cpu=2), 5.0, memory=600),
    "1,000 jobs on 5,000 nodes of 128 cores": Case(lambda: plain(1000, 640000, per_cpu=64), 5.0, memory=600),
    "10,000 jobs on 5,000 nodes of 128 cores": Case(lambda: plain(10000, 640000, per_cpu=64), 5.0, memory=600),
    "200 jobs of 100 nodes in levels, 8,000 cores": Case(lambda: cliffs.wide_in_levels(200, 100, 8000), 0.6),
    "200 jobs of 1,000 nodes in levels, 80,000 cores": Case(lambda: cliffs.wide_in_levels(200, 1000, 80000), 6.0),
    "5,000 jobs, 50 rules by name": Case(lambda: cliffs.rules_by_name(5000, 50, 10000), 3.0, 0.5),
    "5,000 jobs, 5,000 rules by name": Case(lambda: cliffs.rules_by_name(5000, 5000, 10000), 3.0, 0.5),
    "1,000 jobs with 20 alternatives": Case(lambda: cliffs.many_alternatives(1000, 20, 10000), 2.0),
    "1,000 jobs with 50 alternatives": Case(lambda: cliffs.many_alternatives(1000, 50, 10000), 5.0),
}


#: name -> (a snapshot, one that is ten times larger in one respect, limit of the ratio of their times)
GROWTH: dict[str, tuple[Callable[[], Snapshot], Callable[[], Snapshot], int]] = {
    "10,000 jobs for 1,000": (lambda: plain(1000, 10000), lambda: plain(10000, 10000), 40),
    "10,000 jobs for 1,000, 40 kinds": (
        lambda: plain(1000, 10000, kinds=40),
        lambda: plain(10000, 10000, kinds=40),
        20,
    ),
    "10,000 cores for 1,000": (lambda: plain(1000, 1000), lambda: plain(1000, 10000), 6),
    "100,000 cores for 10,000": (lambda: plain(10000, 10000), lambda: plain(10000, 100000), 6),
    "ten times the running jobs": (
        lambda: plain(1000, 10000, widths=[10 * width for width in WIDTHS]),
        lambda: plain(1000, 10000),
        3,
    ),
}


def seconds_of(make: Callable[[], Snapshot]) -> float:
    """Return the CPU seconds of one plan."""
    snapshot = make()
    with resting():
        begin = time.process_time()
        schedule(snapshot)
        return time.process_time() - begin


def longest_step(snapshot: Snapshot) -> float:
    """Return the CPU seconds of the longest step of a plan; the first step enters the fixed placements."""
    longest, begin = 0.0, time.process_time()
    planning = Round(snapshot)
    for _ in itertools.chain((None,), planning.steps(gives_way=lambda: True), planning.finishing(), (None,)):
        now = time.process_time()
        longest, begin = max(longest, now - begin), now
    return longest


def measure(name: str, answer: Connection) -> None:
    """Send the seconds of the first plan, of a quiet one, of the longest step; the number of placements; the MiB."""
    case = CASES[name]
    snapshot = case.make()
    seconds = []
    memory = None
    with resting():
        for _ in range(3 if case.quiet else 1):  # by the third plan the jobs that start immediately are running
            begin = time.process_time()
            planning = Round(snapshot, memory=memory)
            plan = planning.plan()
            memory = planning.memory(plan)
            seconds.append(time.process_time() - begin)
            if len(seconds) == 1:
                placed = len(plan.placements)
            snapshot = replace(carried_out(snapshot, plan), now=snapshot.now + 1)
        step = longest_step(case.make()) if case.step else None
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    answer.send((seconds[0], seconds[-1] if case.quiet else None, step, placed, mebibytes))


def grow() -> None:
    """Print the growth of the cost."""
    print(f"{'growth':42} {'seconds':>8} {'seconds':>8} {'times':>8} {'at most':>8}")
    for name, (small, large, limit) in GROWTH.items():
        before, after = min(seconds_of(small) for _ in range(3)), seconds_of(large)
        print(f"{name:42} {before:8.2f} {after:8.2f} {after / before:8.1f} {limit:8}", flush=True)


def main(wanted: list[str]) -> None:
    """Print the table."""
    if wanted == ["growth"]:
        grow()
        return
    figures, fresh = Figures(), multiprocessing.get_context("spawn")
    heading("Seconds of CPU; a first round, then one in which nothing has changed")
    for name, case in CASES.items():
        if wanted and not any(word in name for word in wanted):
            continue
        receiver, sender = fresh.Pipe(duplex=False)
        child = fresh.Process(target=measure, args=(name, sender))
        child.start()
        sender.close()
        first, quiet, step, placed, mebibytes = receiver.recv()
        child.join()
        figures.add(name, first, case.first, "s")
        if case.quiet:
            figures.add(f"{name}, nothing has changed", quiet, case.quiet, "s")
        if case.step:
            figures.add(f"{name}, longest step", step, case.step, "s")
        if case.memory:
            figures.add(f"{name}, memory", mebibytes, case.memory, "MiB")
        if placed < len(case.make().waiting):
            figures.note("jobs with a place", placed, "")
    figures.end()


if __name__ == "__main__":
    main(sys.argv[1:])

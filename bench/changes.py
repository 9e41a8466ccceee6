"""Cost of a new plan after one change, without the database: ``python -m bench.changes [jobs]``.

The cluster of 10,000 cores and the 40 kinds of jobs come from ``bench/snapshots.py``.  The jobs wait for any resources,
for one of four parts of the cluster each, or under quotas.  The table shows CPU seconds of one thread and the number of
jobs that needed a search.  If a job ends early or is deleted, nearly all later jobs that can use its resources move.
"""

import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from bench import snapshots
from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import Pool, RunningJob, Snapshot
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.schedule import Round
from oar.kao.rounds.garbage_collection import resting
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.jobs.states import JobState

CORES = 10000
PARTS = 4
SINCE = 5  #: seconds between two scheduling passes


def in_parts(snapshot: Snapshot) -> Snapshot:
    """Restrict each job to one part of the cluster."""
    width = len(snapshot.resources.ids) // PARTS
    pools = tuple(Pool(((1 << width) - 1) << (part * width), f"part = {part}") for part in range(PARTS))
    waiting = tuple(
        replace(
            job,
            alternatives=tuple(
                replace(each, groups=tuple(group._replace(pool=job.id % PARTS) for group in each.groups))
                for each in job.alternatives
            ),
        )
        for job in snapshot.waiting
    )
    return replace(snapshot, pools=pools, waiting=waiting)


def under_quotas(snapshot: Snapshot) -> Snapshot:
    """Set quotas for each user and for all users together."""
    rules = QuotaRule("*", "*", "*", "/", 2000), QuotaRule("*", "*", "*", "*", 9000)
    settings = replace(snapshot.settings, has_quotas=True)
    return replace(snapshot, settings=settings, quotas=Quotas((rules,), (QuotaPeriod(0, 0),)))


# ------------------------------------------------------------------------------------------------------------- changes


def _submitted(snapshot: Snapshot) -> Snapshot:
    last = snapshot.waiting[-1]
    return replace(snapshot, waiting=(*snapshot.waiting, replace(last, id=10**6)))


def _prolonged(snapshot: Snapshot) -> Snapshot:
    late = random.Random(1).choice(snapshot.running)
    running = (replace(job, walltime=job.walltime + 2) if job is late else job for job in snapshot.running)
    return replace(snapshot, running=tuple(running))


def _ended(snapshot: Snapshot) -> Snapshot:
    early = random.Random(2).choice(snapshot.running)
    return replace(snapshot, running=tuple(job for job in snapshot.running if job is not early))


def _deleted(snapshot: Snapshot) -> Snapshot:
    gone = snapshot.waiting[len(snapshot.waiting) // 2]
    return replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job is not gone))


CHANGES: dict[str, Callable[[Snapshot], Snapshot]] = {
    "nothing but what has started": lambda snapshot: snapshot,
    "a submission behind all others": _submitted,
    "a running job has two seconds more": _prolonged,
    "a running job has ended early": _ended,
    "a job in the middle is deleted": _deleted,
}


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot after a plan was carried out: jobs that were to start are running."""
    places = {start.placement.job_id: start.placement for start in plan.started}
    begun = [
        RunningJob(
            job.id,
            job.queue,
            job.user,
            job.project,
            job.name,
            JobState.RUNNING,
            start_time=places[job.id].start,
            walltime=places[job.id].walltime,
            resources=places[job.id].resources,
            types=job.types,
            array_id=job.array_id,
        )
        for job in snapshot.waiting
        if job.id in places
    ]
    waiting = tuple(job for job in snapshot.waiting if job.id not in places)
    return replace(snapshot, now=snapshot.now + SINCE, waiting=waiting, running=(*snapshot.running, *begun))


def planned(what: str, snapshot: Snapshot, before: RoundMemory | None = None) -> tuple[Plan, RoundMemory]:
    """Make a plan and print its cost."""
    with resting():
        begin = time.process_time()
        planning = Round(snapshot, memory=before)
        plan = planning.plan()
        memory = planning.memory(plan)
        seconds = time.process_time() - begin
    searched = len(snapshot.waiting) - planning.reused
    print(f"  {what:40} {seconds:8.2f} {searched:7} of {len(snapshot.waiting)}", flush=True)
    return plan, memory


def case(name: str, snapshot: Snapshot) -> None:
    """Print the scheduling passes of one case."""
    print(name)
    plan, memory = planned("the first round", snapshot)
    for what, change in CHANGES.items():
        snapshot = change(carried_out(snapshot, plan))
        plan, memory = planned(what, snapshot, memory)


def main(jobs: int) -> None:
    """Print the table."""
    whole = snapshots.plain(jobs, CORES, kinds=40)
    case(f"{jobs} jobs", whole)
    case(f"{jobs} jobs, each for one of {PARTS} parts", in_parts(whole))
    case(f"{jobs} jobs under quotas", under_quotas(whole))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10000)

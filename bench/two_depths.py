"""Cost of an urgent pass after one change, without the database: ``python -m bench.two_depths [word ...]``.

The clusters and the jobs, all different, come from ``bench/snapshots.py``; some cases have requests up to an eighth of
the cluster, jobs for one of four parts of it, 200 users with fair share, sleeping nodes, thousands of besteffort jobs,
quotas, or a container; others come from ``bench/cliffs.py``.
The table shows CPU seconds of one thread, from the snapshot to the decisions, with limits.  On 10,000 cores a full plan
with the memory of the last one is made, too: it must start the same jobs.  On 100,000 cores that takes minutes.
"""

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from bench import cliffs, snapshots
from bench.changes import carried_out, in_parts
from bench.figures import Figures, heading
from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import ConsumptionSums, RunningJob, Snapshot, StoredPlacement, Weights
from oar.kao.planner.schedule import Round
from oar.kao.rounds.garbage_collection import resting
from oar.kao.rounds.meta_sched import LONGEST_URGENT
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.base.resource_set import union
from oar.lib.jobs.states import JobPriority
from oar.lib.nodes.states import STANDBY_FOR_EVER, ResourceState

#: Bits of a node.
PER_NODE = snapshots.CPUS * snapshots.CORES
USERS = 200

Change = Callable[[Snapshot], Snapshot]


# ------------------------------------------------------------------------------------------------------------- changes


def ended(snapshot: Snapshot, count: int) -> Snapshot:
    """End some jobs early, except containers."""
    running = [job for job in snapshot.running if not any(name.startswith("container") for name in job.types)]
    gone = {job.id for job in random.Random(count).sample(running, count)}
    return replace(snapshot, running=tuple(job for job in snapshot.running if job.id not in gone))


def without_node(snapshot: Snapshot) -> Snapshot:
    """Remove a node and its jobs."""
    lost = ((1 << PER_NODE) - 1) << 20 * PER_NODE
    running = tuple(job for job in snapshot.running if not job.resources & lost)
    return replace(_with_state(snapshot, lost, ResourceState.SUSPECTED), running=running)


def submitted(snapshot: Snapshot) -> Snapshot:
    """Submit a job after all others."""
    return replace(snapshot, waiting=(*snapshot.waiting, replace(snapshot.waiting[-1], id=10**7)))


def awake(snapshot: Snapshot, nodes: int = 10) -> Snapshot:
    """Turn sleeping nodes into booted ones."""
    asleep = [bit for bit, state in enumerate(snapshot.resources.states) if state is ResourceState.ABSENT]
    return _with_state(snapshot, sum(1 << bit for bit in asleep[: nodes * PER_NODE]), ResourceState.ALIVE)


def accounted(snapshot: Snapshot) -> Snapshot:
    """Change the accounting of a tenth of the users."""
    rng, (sums,) = random.Random(4), snapshot.consumption.values()
    used = dict(sums.used_by_user)
    for user in rng.sample(sorted(used), USERS // 10):
        used[user] += rng.randrange(10**5)
    return replace(snapshot, consumption={2: replace(sums, used=sum(used.values()), used_by_user=used)})


def storm(snapshot: Snapshot) -> Snapshot:
    """Submit 2,000 besteffort jobs at once."""
    rng = random.Random(5)
    jobs = [
        replace(job, id=2 * 10**7 + number, types=("besteffort",))
        for number, job in enumerate(rng.choices(snapshot.waiting, k=2000))
    ]
    return replace(snapshot, waiting=(*snapshot.waiting, *jobs))


def _with_state(snapshot: Snapshot, members: int, new: ResourceState) -> Snapshot:
    states = (new if members >> bit & 1 else state for bit, state in enumerate(snapshot.resources.states))
    return replace(snapshot, resources=replace(snapshot.resources, states=tuple(states)))


# --------------------------------------------------------------------------------------------------------------- sites


def full() -> Snapshot:
    """Return a cluster without free resources: a long job occupies all that the others leave."""
    snapshot = snapshots.plain(10000, 10000)
    left = snapshot.resources.everything & ~union(job.resources for job in snapshot.running)
    long = replace(snapshot.running[0], id=10**6, walltime=100 * 3600, resources=left)
    return replace(snapshot, running=(*snapshot.running, long))


def shared(priority: JobPriority) -> Snapshot:
    """Return jobs of 200 users with an order by past usage."""
    snapshot, rng = snapshots.plain(10000, 10000), random.Random(3)
    used = {f"user{number}": rng.randrange(10**6) for number in range(USERS)}
    total = sum(used.values())
    return replace(
        snapshot,
        waiting=tuple(
            replace(job, user=f"user{job.id % USERS}", submission_time=snapshot.now - job.id)
            for job in snapshot.waiting
        ),
        consumption={2: ConsumptionSums(total, total, used, used, {})},
        settings=replace(
            snapshot.settings,
            job_priority=priority,
            is_priority_explicit=True,
            weights=Weights(age_weight=1.0, karma_weight=1.0, queue_weight=1.0),
        ),
    )


def sleeping() -> Snapshot:
    """Return a cluster with thirty free sleeping nodes."""
    snapshot = snapshots.plain(10000, 10000)
    held = 0
    for job in snapshot.running:
        held |= job.resources
    nodes = [node for node in range(10000 // PER_NODE) if not held >> node * PER_NODE & ((1 << PER_NODE) - 1)]
    asleep = sum(((1 << PER_NODE) - 1) << node * PER_NODE for node in nodes[:30])
    resources = replace(snapshot.resources, available_upto=(STANDBY_FOR_EVER,) * 10000)
    settings = replace(snapshot.settings, may_wake=True, idle_time=600, sleep_time=600)
    snapshot = replace(snapshot, resources=resources, settings=settings)
    return _with_state(snapshot, asleep, ResourceState.ABSENT)


def booting() -> Snapshot:
    """Return the same cluster while its nodes boot for jobs that are to start there."""
    snapshot = sleeping()
    plan = Round(snapshot).plan()
    started = {start.placement.job_id for start in plan.started}
    promised = {
        place.job_id: StoredPlacement(place.alternative, 0, place.resources)
        for place in plan.placements
        if place.start == snapshot.now and place.job_id not in started
    }
    snapshot = carried_out(snapshot, plan)
    return replace(
        snapshot,
        waiting=tuple(
            replace(job, promised=promised[job.id]) if job.id in promised else job for job in snapshot.waiting
        ),
        woken=dict.fromkeys(plan.wake, snapshot.now),
    )


def full_of_besteffort() -> Snapshot:
    """Return a cluster with besteffort jobs of one node each on its free part."""
    snapshot = snapshots.plain(10000, 10000)
    node, held = (1 << PER_NODE) - 1, 0
    for job in snapshot.running:
        held |= job.resources
    free = [number for number in range(10000 // PER_NODE) if not held >> number * PER_NODE & node]
    first = snapshot.running[0]
    jobs: list[RunningJob] = [
        replace(
            first,
            id=10**6 + number,
            types=("besteffort",),
            start_time=snapshot.now - 100,
            walltime=36000,
            resources=node << number * PER_NODE,
        )
        for number in free
    ]
    return replace(snapshot, running=(*snapshot.running, *jobs))


def besteffort_under_quotas() -> Snapshot:
    """Return the same with a limit on each user's running besteffort jobs."""
    snapshot = full_of_besteffort()
    rules = (QuotaRule("*", "*", "besteffort", "/", -1, 5), QuotaRule("*", "*", "besteffort", "*", 2000, -1))
    running = [
        replace(job, user=f"user{job.id % 50}") if "besteffort" in job.types else job for job in snapshot.running
    ]
    settings = replace(snapshot.settings, has_quotas=True)
    quotas = Quotas((rules,), (QuotaPeriod(snapshot.now, 0),))
    return replace(snapshot, running=tuple(running), quotas=quotas, settings=settings)


def under_quotas() -> Snapshot:
    """Return jobs of fifty users under the quotas of the mixed case."""
    snapshot, limited = snapshots.plain(10000, 10000), snapshots.mixed(0, 10000)
    settings = replace(snapshot.settings, has_quotas=True)
    return replace(snapshot, quotas=limited.quotas, settings=settings)


def in_container() -> Snapshot:
    """Return a cluster with a container on its first half; half of the jobs wait or run in it."""
    snapshot = snapshots.plain(10000, 10000)
    inside = (1 << 5000) - 1
    box = replace(
        snapshot.running[0],
        id=10**6,
        types=("container=box",),
        start_time=snapshot.now - 100,
        walltime=10**7,
        resources=inside,
    )
    running = [
        replace(job, types=("inner=box",)) if job.resources & inside else job
        for job in snapshot.running
        if not (job.resources & inside and job.resources & ~inside)
    ]
    waiting = [replace(job, types=("inner=box",)) if job.id % 2 else job for job in snapshot.waiting]
    return replace(snapshot, running=(box, *running), waiting=tuple(waiting))


@dataclass(frozen=True)
class Site:
    """A snapshot, the changes to it, and the limit of a pass."""

    make: Callable[[], Snapshot]
    changes: dict[str, Change]
    most: float  #: seconds
    has_full_plans: bool = True
    is_bounded: bool = False  #: the pass has a time limit, like those of the worker


ENDS: dict[str, Change] = {
    "a job ends early": lambda snapshot: ended(snapshot, 1),
    "200 jobs end at once": lambda snapshot: ended(snapshot, 200),
    "a submission": submitted,
    "a node is lost": without_node,
}
END = {"a job ends early": ENDS["a job ends early"]}

SITES = {
    "10,000 jobs, 10,000 cores": Site(lambda: snapshots.plain(10000, 10000), ENDS, 1.0),
    "nothing is free": Site(full, {"a submission": submitted}, 0.1, has_full_plans=False),
    "up to an eighth of the machine": Site(lambda: snapshots.wide(10000, 10000), ENDS, 1.0),
    "four parts of the machine": Site(lambda: in_parts(snapshots.plain(10000, 10000)), ENDS, 1.0),
    "fair share": Site(lambda: shared(JobPriority.FAIRSHARE), {"accounting moves": accounted, **END}, 1.0),
    "several factors": Site(lambda: shared(JobPriority.MULTIFACTOR), {"accounting moves": accounted, **END}, 1.0),
    "nodes sleep": Site(sleeping, {"ten nodes have booted": awake, **END}, 1.0),
    "nodes boot": Site(
        booting, {"one of them has come": partial(awake, nodes=1), "the next one": partial(awake, nodes=1), **END}, 1.0
    ),
    "besteffort jobs run": Site(full_of_besteffort, {"2,000 besteffort jobs come": storm, **END}, 1.0),
    "besteffort jobs under quotas": Site(besteffort_under_quotas, {"2,000 besteffort jobs come": storm, **ENDS}, 1.0),
    "depth 100": Site(lambda: snapshots.to_depth(snapshots.plain(10000, 10000), 100), ENDS, 1.0),
    "quotas of users and projects": Site(under_quotas, ENDS, 1.0),
    "quotas, filters, two groups, moldable": Site(lambda: snapshots.mixed(10000, 10000), ENDS, 1.0),
    "100,000 equal jobs in an array": Site(lambda: cliffs.equal_array(100000, 10000), ENDS, 1.0),
    "a filter for each job": Site(lambda: cliffs.own_filters(5000, 10000), ENDS, 1.0),
    "groups compete": Site(lambda: cliffs.competing(1000, 10000), ENDS, 1.0),
    "one job that is dear to search for": Site(
        lambda: cliffs.expensive(20, 100000), END, 1.2, has_full_plans=False, is_bounded=True
    ),
    "timesharing by user": Site(lambda: cliffs.timesharing(1000, 100, 10000), ENDS, 1.0),
    "200 chains of 10 dependent jobs": Site(lambda: cliffs.chains(200, 10, 3000), ENDS, 0.8),
    "200 containers with 4,000 jobs": Site(lambda: cliffs.containers_waiting(200, 4000, 10000), ENDS, 0.5),
    "half wait in a container": Site(in_container, ENDS, 1.0),
    "50,000 jobs, 100,000 cores": Site(lambda: snapshots.plain(50000, 100000), ENDS, 1.0, has_full_plans=False),
}


def _is_late(begin: float) -> bool:
    return time.process_time() - begin > LONGEST_URGENT


def _is_the_same(plan: Plan, full: Plan) -> bool:
    """Return whether a pass starts the jobs of a full plan; an uncertain pass may start fewer."""
    started, expected = ({each.placement for each in some.started} for some in (plan, full))
    return started == expected if plan.is_certain else started <= expected


def measure(name: str, site: Site, figures: Figures) -> None:
    """Print the passes of one case."""
    snapshot = site.make()
    first = Round(snapshot)
    plan = first.plan() if site.has_full_plans else first.urgent(lambda: True, lambda: False)
    memory, requests = (first.memory(plan) if site.has_full_plans else None), first.compiled
    for what, change in site.changes.items():
        snapshot = change(carried_out(snapshot, plan))
        begin = time.process_time()
        planning = Round(snapshot, memory=memory, requests=requests)
        plan = planning.urgent(lambda: True, partial(_is_late, begin) if site.is_bounded else lambda: False)
        figures.add(f"{name}: {what}", time.process_time() - begin, site.most, "s")
        figures.note("jobs placed on the way", len(plan.placements), "")
        if not plan.is_certain:
            figures.note("jobs left to the tail, some may begin now", len(plan.undecided), "")
        requests = planning.compiled
        if site.has_full_plans:
            begin = time.process_time()
            full = Round(snapshot, memory=memory)
            expected = full.plan()
            figures.note("a full plan", time.process_time() - begin, "s")
            if plan.failures or not _is_the_same(plan, expected):
                raise SystemExit("a full plan starts other jobs")
            memory, plan = full.memory(expected), expected


def main(wanted: list[str]) -> None:
    """Print the table."""
    figures = Figures()
    heading("Seconds of CPU of an urgent pass")
    with resting():
        for name, site in SITES.items():
            if not wanted or any(word in name for word in wanted):
                measure(name, site, figures)
    figures.end()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Snapshots for the benchmarks of the planner: a cluster, running jobs, waiting jobs.

The cluster has switches (25 nodes), nodes (2 cpus), cpus (10 cores); running jobs occupy 85 % of it.
Waiting jobs: half ``/core=n``, a fifth ``/node=1/core=n``, a fifth ``/node=n``, a tenth ``/switch=1/node=n``, walltimes
from 5 minutes to 48 hours.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from oar.kao.facts.snapshot import (
    Alternative,
    Pool,
    RequestGroup,
    ResourceColumns,
    RunningJob,
    Settings,
    Snapshot,
    WaitingJob,
)
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.jobs.records import Level, Queue
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.nodes.states import ResourceState

NOW = 1_800_000_000
CORES, CPUS, NODES = 10, 2, 25

#: Numbers of cores of running jobs.
WIDTHS = (1, 2, 4, 8, 20, 40, 80)


def platform(cores: int, per_cpu: int = CORES) -> ResourceColumns:
    """Return a cluster with a number of cores, with ``per_cpu`` on each cpu."""
    per_node = per_cpu * CPUS
    nodes = tuple(f"node-{core // per_node}" for core in range(cores))
    return ResourceColumns(
        ids=tuple(range(1, cores + 1)),
        types=("default",) * cores,
        states=(ResourceState.ALIVE,) * cores,
        addresses=nodes,
        available_upto=(2147483647,) * cores,
        order=tuple(range(cores)),
        reservation_order=tuple(range(cores)),
        columns={
            "switch": tuple(core // (per_node * NODES) for core in range(cores)),
            "node": nodes,
            "cpu": tuple(core // per_cpu for core in range(cores)),
            "core": tuple(range(cores)),
        },
    )


def running(cores: int, rng: random.Random, widths: Sequence[int] = WIDTHS) -> list[RunningJob]:
    """Return running jobs on 85 % of the cluster."""
    jobs: list[RunningJob] = []
    at = 0
    while at < cores * 0.85:
        width = min(rng.choice(widths), cores - at)
        walltime = rng.randint(300, 48 * 3600)
        start = NOW - rng.randrange(walltime)
        held = ((1 << width) - 1) << at
        number = len(jobs) + 1
        jobs.append(
            RunningJob(
                number, "default", "u", "p", "", JobState.RUNNING, start_time=start, walltime=walltime, resources=held
            )
        )
        at += width
    return jobs


def levels(rng: random.Random) -> tuple[Level, ...]:
    """Return a request of the mix."""
    kind = rng.random()
    if kind < 0.5:
        return (Level("core", rng.randint(1, 64)),)
    if kind < 0.7:
        return Level("node", 1), Level("core", rng.randint(1, 16))
    if kind < 0.9:
        return (Level("node", rng.randint(1, 8)),)
    return Level("switch", 1), Level("node", rng.randint(1, 8))


def waiting(count: int, rng: random.Random, kinds: int, first: int) -> list[WaitingJob]:
    """Return waiting jobs; ``kinds`` different ones, 0 = all walltimes differ."""
    walltimes = rng.sample(range(300, 48 * 3600), count)
    mix = [(levels(rng), rng.randint(300, 48 * 3600)) for _ in range(kinds)]
    jobs = []
    for index in range(count):
        asked, walltime = rng.choice(mix) if mix else (levels(rng), walltimes[index])
        number = first + index
        jobs.append(
            WaitingJob(
                number,
                "default",
                f"user{number % 50}",
                "default",
                "",
                JobState.WAITING,
                alternatives=(Alternative(number, walltime, (RequestGroup(0, asked),)),),
            )
        )
    return jobs


def plain(jobs: int, cores: int, kinds: int = 0, widths: Sequence[int] = WIDTHS, per_cpu: int = CORES) -> Snapshot:
    """Return the snapshot of a case of the table."""
    rng = random.Random(1)
    machine = platform(cores, per_cpu)
    busy = running(cores, rng, widths)
    return Snapshot(
        now=NOW,
        resources=machine,
        queues=(Queue("default", 2, "", QueueState.ACTIVE),),
        pools=(Pool(machine.everything),),
        waiting=tuple(waiting(jobs, rng, kinds, len(busy) + 1)),
        running=tuple(busy),
        settings=Settings(max_jobs=0, timeout=0),
    )


def wide(jobs: int, cores: int) -> Snapshot:
    """Return the usual mix, where each tenth job requests whole nodes, up to an eighth of the cluster."""
    rng, snapshot = random.Random(2), plain(jobs, cores)
    most = cores // (8 * CORES * CPUS)

    def widened(job: WaitingJob) -> WaitingJob:
        if job.id % 10:
            return job
        groups = (RequestGroup(0, (Level("node", rng.randint(1, most)),)),)
        return replace(job, alternatives=tuple(replace(each, groups=groups) for each in job.alternatives))

    return replace(snapshot, waiting=tuple(map(widened, snapshot.waiting)))


def to_depth(snapshot: Snapshot, depth: int) -> Snapshot:
    """Return a snapshot with a backfilling depth for each queue."""
    return replace(snapshot, settings=replace(snapshot.settings, backfill_depths={"_": depth}))


def mixed(jobs: int, cores: int) -> Snapshot:
    """Return jobs with filters, two groups and two alternatives each, under quotas by user and by project."""
    rng = random.Random(1)
    machine = platform(cores)
    busy = running(cores, rng)
    everything = machine.everything
    gpu = sum(((1 << CORES) - 1) << start for start in range(0, cores, 4 * CORES))
    new = everything & ~((1 << cores // 2) - 1)
    pools = (Pool(everything), Pool(gpu, "gpu = 'YES'"), Pool(new, "age < 3"), Pool(new & gpu, "both"))
    first = len(busy) + 1
    asked = [_mixed_job(first + index, rng) for index in range(jobs)]
    rules = (
        QuotaRule("*", "*", "*", "/", 200, 20, 400 * 3600),
        QuotaRule("*", "/", "*", "*", 600, -1, 3000 * 3600),
        QuotaRule("*", "*", "*", "*", 1800, -1, -1),
    )
    return Snapshot(
        now=NOW,
        resources=machine,
        queues=(Queue("default", 2, "", QueueState.ACTIVE),),
        pools=pools,
        waiting=tuple(asked),
        running=tuple(busy),
        quotas=Quotas((rules,), (QuotaPeriod(NOW, 0),)),
        settings=Settings(max_jobs=0, timeout=0, has_quotas=True),
    )


def _mixed_job(number: int, rng: random.Random) -> WaitingJob:
    walltime = rng.randint(300, 4 * 3600)
    alternatives = []
    for part in (1, 2):
        groups = (
            RequestGroup(rng.randrange(3), (Level("core", part * rng.randint(1, 12)),)),
            RequestGroup(rng.randrange(1, 4), (Level("node", 1), Level("core", part * rng.randint(1, 4)))),
        )
        alternatives.append(Alternative(2 * number + part, walltime // part, groups))
    project = f"project{number % 10}"
    user = f"user{number % 50}"
    return WaitingJob(number, "default", user, project, "", JobState.WAITING, alternatives=tuple(alternatives))

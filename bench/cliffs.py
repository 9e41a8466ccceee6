"""Snapshots that are hard for the planner: each of them once took disproportionately long.

The cluster is the one of ``bench/snapshots.py``.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from bench.snapshots import CORES, CPUS, NOW, plain, platform
from oar.kao.facts.snapshot import (
    Alternative,
    Pool,
    RequestGroup,
    RunningJob,
    Settings,
    Snapshot,
    StoredPlacement,
    WaitingJob,
)
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.jobs.records import Dependency, Level, Queue
from oar.lib.jobs.states import JobState, QueueState, Reservation
from oar.lib.nodes.records import PropertyValue

PER_NODE = CORES * CPUS


def _job(number: int, asked: Alternative, types: tuple[str, ...] = (), user: str = "", array: int = 0) -> WaitingJob:
    owner = user or f"user{number % 50}"
    return WaitingJob(
        number,
        "default",
        owner,
        "default",
        "",
        JobState.WAITING,
        array_id=array or number,
        types=types,
        alternatives=(asked,),
    )


def _one(number: int, walltime: int, *levels: Level, pool: int = 0) -> Alternative:
    return Alternative(number, walltime, (RequestGroup(pool, levels),))


def _on(machine: Snapshot, jobs: Sequence[WaitingJob], pools: tuple[Pool, ...] = ()) -> Snapshot:
    """Return a cluster with its running jobs and the given waiting jobs."""
    return replace(machine, waiting=tuple(jobs), pools=pools or machine.pools)


def _first(machine: Snapshot) -> int:
    return len(machine.running) + 1


def competing(jobs: int, cores: int) -> Snapshot:
    """Return jobs with two groups of nodes and overlapping filters: the first often takes nodes the second needs."""
    rng, machine = random.Random(1), plain(0, cores)
    everything, node = machine.resources.everything, (1 << PER_NODE) - 1
    rare = sum(node << start for start in range(0, cores, 10 * PER_NODE))
    pools = (
        Pool(everything, ""),
        Pool(rare, "gpu = 'YES'"),
        Pool(everything >> cores * 2 // 5, "age > 2"),
        Pool(everything & ~(everything >> cores * 3 // 5), "age < 5"),
    )

    def asked(number: int) -> Alternative:
        chosen = rng.choice(((0, 1), (1, 0), (2, 3), (3, 2)))
        groups = tuple(RequestGroup(pool, (Level("node", rng.randint(1, 4)),)) for pool in chosen)
        return Alternative(number, rng.randint(300, 48 * 3600), groups)

    first = _first(machine)
    return _on(machine, [_job(number, asked(number)) for number in range(first, first + jobs)], pools)


def expensive(jobs: int, cores: int) -> Snapshot:
    """Return jobs for one part of a cluster after a job with two groups for the other part.

    Each group fits immediately if it is alone; both fit only after the end of a long job that uses a core of some
    nodes.  Therefore, at each earlier slot the first group takes nodes that the second one needs.
    """
    machine = plain(jobs, cores)
    number, nodes = _first(machine), cores * 14 // 100 // PER_NODE
    part = ((1 << nodes * PER_NODE) - 1) << cores - nodes * PER_NODE
    held = sum(1 << cores - (node + 1) * PER_NODE for node in range(nodes // 35))
    long = replace(machine.running[0], id=number, start_time=NOW, walltime=100 * 3600, resources=held)
    groups = tuple(RequestGroup(1, (Level("node", nodes // 2 - fewer),)) for fewer in (0, 1))
    dear = _job(number + 1, Alternative(number + 1, 47 * 3600, groups))
    pools = (Pool(machine.resources.everything & ~part, "other part"), Pool(part, "part"))
    others = [replace(job, id=job.id + 2) for job in machine.waiting]
    return replace(_on(machine, [dear, *others], pools), running=(*machine.running, long))


def equal_array(jobs: int, cores: int) -> Snapshot:
    """Return an array of identical jobs with one core."""
    machine = plain(0, cores)
    first = _first(machine)
    return _on(
        machine,
        [
            _job(number, _one(number, 3600, Level("core", 1)), user="ann", array=first)
            for number in range(first, first + jobs)
        ],
    )


def besteffort_waiting(jobs: int, cores: int, *, is_inner: bool = False) -> Snapshot:
    """Return waiting besteffort jobs, or jobs that wait in a container on half of the cluster."""
    rng, machine = random.Random(1), plain(0, cores)
    first = _first(machine) + 1
    types = ("inner=box",) if is_inner else ("besteffort",)
    waiting = [
        _job(number, _one(number, rng.randint(300, 48 * 3600), Level("core", rng.randint(1, 20))), types)
        for number in range(first, first + jobs)
    ]
    if not is_inner:
        return _on(machine, waiting)
    box = replace(
        machine.running[0],
        types=("container=box",),
        start_time=NOW,
        walltime=10**7,
        resources=machine.resources.everything >> cores // 2,
    )
    return replace(_on(machine, waiting), running=(box,))


def besteffort_running(jobs: int, holders: int, cores: int) -> Snapshot:
    """Return a cluster full of besteffort jobs, and jobs that start by preempting them."""
    machine = plain(0, cores)
    width = cores // holders
    running = [
        RunningJob(
            number + 1,
            "default",
            "ann",
            "default",
            "",
            JobState.RUNNING,
            types=("besteffort",),
            start_time=NOW - 100,
            walltime=36000,
            resources=((1 << width) - 1) << (number * width),
        )
        for number in range(holders)
    ]
    waiting = [
        _job(number, _one(number, 3600, Level("core", cores // jobs)))
        for number in range(holders + 1, holders + jobs + 1)
    ]
    return replace(_on(machine, waiting), running=tuple(running))


def occupied(running: int, reserved: int, cores: int) -> Snapshot:
    """Return a cluster full of running jobs, and accepted reservations: fifty at the same time, every two days."""
    rng, machine = random.Random(1), plain(0, cores)
    held, wide = cores // running, cores // 50

    def reservation(number: int, day: int, place: int) -> WaitingJob:
        job = _job(number, _one(number, rng.randint(300, 46 * 3600), Level("core", wide)))
        start = NOW + day * 24 * 3600 + rng.randrange(3600)
        granted = StoredPlacement(number, start, ((1 << wide) - 1) << place * wide)
        return replace(job, reservation=Reservation.SCHEDULED, start_time=start, granted=granted)

    jobs = [
        replace(
            machine.running[0],
            id=number + 1,
            start_time=NOW - 100,
            walltime=rng.randint(300, 47 * 3600),
            resources=((1 << held) - 1) << number * held,
        )
        for number in range(running)
    ]
    waiting = [reservation(running + 1 + index, 2 + 2 * (index // 50), index % 50) for index in range(reserved)]
    return replace(_on(machine, waiting), running=tuple(jobs))


def chains(count: int, length: int, cores: int) -> Snapshot:
    """Return chains of jobs with a few cores, each job depending on its predecessor; one chain after another."""
    rng, machine = random.Random(1), plain(0, cores)
    first = _first(machine)
    jobs = []
    for number in range(first, first + count * length):
        job = _job(number, _one(number, rng.randint(300, 4 * 3600), Level("core", rng.randint(1, 8))))
        is_head = (number - first) % length == 0
        jobs.append(job if is_head else replace(job, dependencies=(Dependency(number, number - 1),)))
    return _on(machine, jobs)


def containers_waiting(boxes: int, jobs: int, cores: int) -> Snapshot:
    """Return waiting containers, each followed by its share of the inner jobs."""
    rng, machine = random.Random(1), plain(0, cores)
    first, size = _first(machine), jobs // boxes + 1
    waiting = []
    for number in range(first, first + boxes * size):
        box = number - (number - first) % size
        types = ("container",) if number == box else (f"inner={box}",)
        width, longest = (rng.randint(32, 64), 4 * 3600) if number == box else (rng.randint(1, 8), 3600)
        waiting.append(_job(number, _one(number, rng.randint(longest // 4, longest), Level("core", width)), types))
    return _on(machine, waiting)


def own_filters(jobs: int, cores: int) -> Snapshot:
    """Return jobs with a different filter for each job."""
    rng, machine = random.Random(1), plain(0, cores)
    nodes = cores // PER_NODE
    first = _first(machine)
    pools, waiting = [], []
    for index in range(jobs):
        chosen = sum(((1 << PER_NODE) - 1) << (node * PER_NODE) for node in rng.sample(range(nodes), nodes // 2))
        pools.append(Pool(chosen, f"filter {index}"))
        levels = (Level("node", rng.randint(1, 4)),) if index % 2 else (Level("core", rng.randint(1, 64)),)
        number = first + index
        waiting.append(_job(number, _one(number, rng.randint(300, 48 * 3600), *levels, pool=index)))
    return _on(machine, waiting, tuple(pools))


def random_order(jobs: int, cores: int) -> Snapshot:
    """Return the usual mix with a random order of preference of the cores."""
    snapshot = plain(jobs, cores)
    order = list(range(cores))
    random.Random(1).shuffle(order)
    return replace(snapshot, resources=replace(snapshot.resources, order=tuple(order)))


def timesharing(jobs: int, users: int, cores: int) -> Snapshot:
    """Return jobs that share resources with the other jobs of their user."""
    snapshot = plain(jobs, cores)
    waiting = tuple(
        replace(job, user=f"user{job.id % users}", types=("timesharing=user,*",)) for job in snapshot.waiting
    )
    return replace(snapshot, waiting=waiting)


def scattered(jobs: int, cores: int) -> Snapshot:
    """Return jobs that request properties whose blocks do not nest: cpus numbered per node, above nodes."""
    rng, machine = random.Random(1), plain(0, cores)
    columns: dict[str, tuple[PropertyValue, ...]] = {
        **machine.resources.columns,
        "cpu": tuple(core // CORES % CPUS for core in range(cores)),
    }
    gpus: list[PropertyValue] = [None, "K80", "A100", "H100"]
    columns["gpu"] = tuple(rng.choice(gpus) for _ in range(cores))
    machine = replace(machine, resources=replace(machine.resources, columns=columns))
    shapes = (
        lambda: (Level("cpu", 1), Level("node", rng.randint(1, 8))),
        lambda: (Level("gpu", 1), Level("core", rng.randint(1, 16))),
        lambda: (Level("gpu", 1), Level("node", rng.randint(1, 4))),
    )
    first = _first(machine)
    return _on(
        machine,
        [
            _job(number, _one(number, rng.randint(300, 48 * 3600), *rng.choice(shapes)()))
            for number in range(first, first + jobs)
        ],
    )


def whole_nodes(jobs: int, nodes: int, cores: int) -> Snapshot:
    """Return jobs with whole nodes on an empty cluster of large nodes: the case used to compare planners."""
    rng, size = random.Random(1), nodes * cores
    resources = platform(size)
    names = tuple(f"node-{core // cores}" for core in range(size))
    columns: dict[str, tuple[PropertyValue, ...]] = {
        "node": names,
        "core": tuple(range(size)),
        "switch": (0,) * size,
        "cpu": tuple(range(size)),
    }
    return Snapshot(
        now=NOW,
        resources=replace(resources, addresses=names, columns=columns),
        queues=(Queue("default", 2, "", QueueState.ACTIVE),),
        pools=(Pool(resources.everything),),
        waiting=tuple(
            _job(number, _one(number, rng.randint(300, 48 * 3600), Level("node", rng.randint(1, nodes))))
            for number in range(1, jobs + 1)
        ),
        settings=Settings(max_jobs=0, timeout=0),
    )


def distinct_requests(jobs: int, cores: int) -> Snapshot:
    """Return jobs with a different request for each job, on an empty cluster."""
    rng, machine = random.Random(1), plain(0, cores)
    waiting = []
    for number in range(1, jobs + 1):
        levels = (Level("switch", 1 + number % 3), Level("node", 1 + number % 25), Level("cpu", 1 + number // 75 % 2))
        pool = rng.randrange(4)
        waiting.append(_job(number, _one(number, rng.randint(300, 48 * 3600), *levels, pool=pool)))
    everything = machine.resources.everything
    pools = tuple(Pool(everything >> (part * cores // 100), f"part {part}") for part in range(4))
    return replace(_on(machine, waiting, pools), running=())


def wide_in_levels(jobs: int, nodes: int, cores: int) -> Snapshot:
    """Return jobs with a number of nodes, each with two cpus and some of their cores, on a busy cluster."""
    rng, machine = random.Random(1), plain(0, cores)
    first = _first(machine)
    return _on(
        machine,
        [
            _job(
                number,
                _one(
                    number,
                    rng.randint(300, 48 * 3600),
                    Level("node", nodes),
                    Level("cpu", 2),
                    Level("core", number % 9 + 1),
                ),
            )
            for number in range(first, first + jobs)
        ],
    )


def rules_by_name(jobs: int, rules: int, cores: int) -> Snapshot:
    """Return jobs of as many users as there are quota rules, one rule for each user."""
    machine = plain(jobs, cores)
    users = [f"user{index}" for index in range(rules)]
    waiting = [replace(job, user=users[index % rules]) for index, job in enumerate(machine.waiting)]
    quotas = Quotas((tuple(QuotaRule("*", "*", "*", user, 400, -1, -1) for user in users),), (QuotaPeriod(NOW, 0),))
    return replace(_on(machine, waiting), quotas=quotas, settings=replace(machine.settings, has_quotas=True))


def many_alternatives(jobs: int, alternatives: int, cores: int) -> Snapshot:
    """Return jobs with a number of alternatives each: more cores for a shorter time."""
    rng, machine = random.Random(1), plain(0, cores)
    first, waiting = _first(machine), []
    for index in range(jobs):
        work = rng.randint(3600, 48 * 3600)
        choices = tuple(
            Alternative(
                (first + index) * alternatives + width,
                work // (width + 1),
                (RequestGroup(0, (Level("core", width + 1),)),),
            )
            for width in range(alternatives)
        )
        waiting.append(replace(_job(first + index, choices[0]), alternatives=choices))
    return _on(machine, waiting)

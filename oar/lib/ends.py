"""How jobs ended, and what they used: records, from which every format and every face is made."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib import patterns
from oar.lib.cause_texts import Told, memory_size, tell
from oar.lib.db import listings
from oar.lib.model import Cause, Job, NodeUsage, Resource
from oar.lib.states import JobState, JobType

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

#: A processor in a value of the property of the job resource manager, or a range of them.
_PROCESSORS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")

#: What nodes say of a job's use; processor time in microseconds.
_FIGURES = ("cpu_us", "memory_peak", "memory_limit", "oom_kills", "forks_denied")

_STANDING_STILL = (JobState.SUSPENDED, JobState.RESUMING)
#: States in which the time of a job goes on.
_GOING = frozenset({JobState.RUNNING, *_STANDING_STILL})


# ----------------------------------------------------------------------------------------------------------- why


class End(NamedTuple):
    """Why a job ended, and in words."""

    cause: Cause
    told: Told
    copy: int | None  #: the job as which it was submitted again by itself

    @property
    def record(self) -> dict[str, object]:
        """Return what programs are told."""
        return {
            "cause": self.cause.code,
            "data": self.cause.data,
            "sentence": self.told.sentence,
            "advice": self.told.advice,
            "resubmitted_as": self.copy,
        }


def ends(tx: "Transaction", jobs: Collection[Job]) -> dict[int, End]:
    """Return why jobs ended, of those of which it is known."""
    over = {job.id: job for job in jobs if job.is_final}
    causes = tx.ends.causes(over) if over else {}
    hosts, copies = listings.assigned(tx, list(causes)), tx.ends.copies(causes) if causes else {}
    return {
        job_id: end_of(over[job_id], cause, _first(hosts.get(job_id)), copies.get(job_id))
        for job_id, cause in causes.items()
    }


def end_of(job: Job, cause: Cause, host: str | None, copy: int | None) -> End:
    """Return why a job ended, in words too; ``host``: the first of its nodes."""
    written = job.job_type is JobType.PASSIVE and bool(job.stderr_file) and bool(job.started)
    stderr = patterns.expand(job.stderr_file or "", job, host) if written else ""
    if stderr and not stderr.startswith("/"):
        stderr = f"{job.launching_directory.rstrip('/')}/{stderr}"
    return End(cause, tell(cause, job.id, stderr, copy), copy)


def _first(assigned: listings.Assigned | None) -> str | None:
    return assigned.nodes[0] if assigned and assigned.nodes else None


# ---------------------------------------------------------------------------------------------------------- usage


class Use(NamedTuple):
    """What a job used, by node, and the time in which it could."""

    job: Job
    elapsed: int  #: seconds that it ran; those in which it stood still do not count
    nodes: tuple[NodeUsage, ...]

    @property
    def cores(self) -> int:
        """Return the number of processors that it had on all nodes."""
        return sum(node.cores for node in self.nodes)

    @property
    def silent(self) -> tuple[str, ...]:
        """Return the nodes that did not say what it used: the figures are without them."""
        return tuple(node.node for node in self.nodes if node.cpu_seconds is None)

    @property
    def cpu_seconds(self) -> float | None:
        """Return the processor time that it used on the nodes that said so; None if none did."""
        said = [node.cpu_seconds for node in self.nodes if node.cpu_seconds is not None]
        return round(sum(said), 3) if said else None

    @property
    def efficiency(self) -> float | None:
        """Return the part of its processor time that it used, 1 = all, on the nodes that said so."""
        cores = sum(node.cores for node in self.nodes if node.cpu_seconds is not None)
        return _part(self.cpu_seconds, cores * self.elapsed)

    def efficiency_on(self, node: NodeUsage) -> float | None:
        """Return the part of its processor time that it used on a node, 1 = all."""
        return _part(node.cpu_seconds, node.cores * self.elapsed)

    @property
    def fullest(self) -> NodeUsage | None:
        """Return the node on which it needed the most memory; None if none said."""
        said = [node for node in self.nodes if node.memory_peak is not None]
        return max(said, key=lambda node: node.memory_peak or 0) if said else None

    @property
    def sentence(self) -> str:
        """Return what it used in words, '' if that is not known."""
        if self.efficiency is None:
            return ""
        memory = f", and at most {memory_size(self.fullest.memory_peak)} of memory on a node" if self.fullest else ""
        cores = f"{self.cores} cores" if self.cores > 1 else "one core"
        return f"It used {100 * self.efficiency:.1f}% of {cores}{memory}."

    @property
    def record(self) -> dict[str, object]:
        """Return what programs are told."""
        fullest = self.fullest
        return {
            "job_id": self.job.id,
            "owner": self.job.user,
            "state": self.job.state,
            "cores": self.cores,
            "elapsed": self.elapsed,
            "core_seconds": self.cores * self.elapsed,
            "cpu_seconds": self.cpu_seconds,
            "cpu_efficiency": self.efficiency,
            "max_rss": fullest.memory_peak if fullest else None,
            "memory_limit": fullest.memory_limit if fullest else None,
            "oom_kills": sum(node.oom_kills or 0 for node in self.nodes),
            "complete": self.job.is_final and bool(self.nodes) and not self.silent,
            "nodes": {node.node: self._node_record(node) for node in self.nodes},
        }

    def _node_record(self, node: NodeUsage) -> dict[str, object]:
        return {
            "cores": node.cores,
            "cpu_seconds": node.cpu_seconds,
            "cpu_efficiency": self.efficiency_on(node),
            "max_rss": node.memory_peak,
            "memory_limit": node.memory_limit,
            "oom_kills": node.oom_kills,
            "forks_denied": node.forks_denied,
        }


def _part(used: float | None, had: int) -> float | None:
    return round(used / had, 4) if used is not None and had > 0 else None


def uses(tx: "Transaction", jobs: Sequence[Job], field: str | None) -> list[Use]:
    """Return what jobs used, in their order; of those that run, what is known by now.

    ``field``: the property of resources that names processors; None if the site has none.
    """
    ids = [job.id for job in jobs]
    if not ids:
        return []
    found = tx.ends.usage(ids)
    had = _processors(tx, field or "", [job for job in jobs if job.state in _GOING])
    still = _stood_still(tx, [job.id for job in jobs if job.suspended])
    return [
        Use(job, _elapsed(job, tx.now, still.get(job.id, 0)), _by_node(found.get(job.id, ()), had.get(job.id, {})))
        for job in jobs
    ]


def _by_node(said: Iterable[NodeUsage], had: Mapping[str, int]) -> tuple[NodeUsage, ...]:
    """Return the use of a job by node; nodes that it has and that have not said anything yet are there too."""
    known = {node.node: node for node in said}
    silent = {node: NodeUsage(node, cores) for node, cores in had.items() if node not in known}
    return tuple((known | silent)[node] for node in sorted(known | silent))


def _elapsed(job: Job, now: int, still: int) -> int:
    if not job.started:
        return 0
    return max(0, (job.stop_time or now) - job.started - still)


def _stood_still(tx: "Transaction", ids: Sequence[int]) -> dict[int, int]:
    """Return for how long jobs stood still, in seconds."""
    changes = tx.jobs.state_changes(ids) if ids else {}
    return {
        job_id: sum((one.stop or tx.now) - one.start for one in some if one.state in _STANDING_STILL)
        for job_id, some in changes.items()
    }


def _processors(tx: "Transaction", field: str, jobs: Sequence[Job]) -> dict[int, dict[str, int]]:
    """Return how many processors jobs have on each of their nodes."""
    assigned = tx.jobs.assigned([job.id for job in jobs], current=True) if jobs and field else {}
    wanted = {one.id for held in assigned.values() for one in held if one.type == "default" and one.network_address}
    rows = {one.id: one for one in tx.resources.select(wanted)} if wanted else {}
    return {
        job_id: _count_by_node([rows[one.id] for one in held if one.id in rows], field)
        for job_id, held in assigned.items()
    }


def _count_by_node(resources: Iterable[Resource], field: str) -> dict[str, int]:
    values: dict[str, list[str]] = defaultdict(list)
    for one in resources:
        values[one.network_address].append(str(one.properties.get(field) or ""))
    return {node: count_processors(some) for node, some in values.items()}


def read_usage(node: str, cores: int, said: object) -> NodeUsage:
    """Return what a node said that a job used there; a node may say anything."""
    figures = said if isinstance(said, dict) else {}
    cpu, *others = (_whole(figures.get(name)) for name in _FIGURES)
    return NodeUsage(node, cores, None if cpu is None else cpu / 1e6, *others)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def count_processors(values: Iterable[str]) -> int:
    """Return how many processors values of the property of the job resource manager name; a range is ``a-b``.

    >>> count_processors(["0", "1,17", "4-6"])
    6
    """
    found: set[int] = set()
    for first, last in _PROCESSORS.findall(" ".join(values)):
        found.update(range(int(first), int(last or first) + 1))
    return len(found)

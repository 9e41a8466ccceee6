"""Resource usage of jobs on their nodes, for users: CPU time, memory, efficiency."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.jobs.ends import memory_size
from oar.lib.jobs.records import Job, NodeUsage
from oar.lib.jobs.states import JobState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: A processor in a value of the property of the job resource manager, or a range of them.
_PROCESSORS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")

#: The property of resources that names GPUs, and the names of devices in it that have a number.
GPU_PROPERTY = "gpudevice"
_NUMBERED = re.compile(r"(?:/dev/nvidia|/dev/dri/card)?([0-9]{1,9})|/dev/dri/renderD([0-9]{1,9})")
_FIRST_RENDER = 128

#: The fields of a node's report about the usage of a job; processor time in microseconds.
_FIGURES = ("cpu_us", "memory_peak", "memory_limit", "oom_kills", "forks_denied")

#: States in which the processes of a job are frozen.
_FROZEN = (JobState.SUSPENDED, JobState.RESUMING)
#: States of a job that has processes.
_ACTIVE = frozenset({JobState.RUNNING, *_FROZEN})


class JobUsage(NamedTuple):
    """The resource usage of a job by node, and its run time."""

    job: Job
    elapsed: int  #: seconds that it ran, without the time in which it was frozen
    nodes: tuple[NodeUsage, ...]

    @property
    def cores(self) -> int:
        """The number of processors of the job on all nodes."""
        return sum(node.cores for node in self.nodes)

    @property
    def silent(self) -> tuple[str, ...]:
        """The nodes without a report; the figures exclude them."""
        return tuple(node.node for node in self.nodes if node.cpu_seconds is None)

    @property
    def cpu_seconds(self) -> float | None:
        """The CPU time of the job on the nodes with a report; None if there is no report."""
        measured = [node.cpu_seconds for node in self.nodes if node.cpu_seconds is not None]
        return round(sum(measured), 3) if measured else None

    @property
    def efficiency(self) -> float | None:
        """The used fraction of the available CPU time (1 = all) on the nodes with a report."""
        # Use the values of the nodes, not the rounded sum: with one node, the result equals `efficiency_on`.
        reports = [(node.cpu_seconds, node.cores) for node in self.nodes if node.cpu_seconds is not None]
        cores = sum(node_cores for _, node_cores in reports)
        return _fraction(sum(seconds for seconds, _ in reports), cores * self.elapsed)

    def efficiency_on(self, node: NodeUsage) -> float | None:
        """Return the used fraction of the available CPU time on a node (1 = all)."""
        return _fraction(node.cpu_seconds, node.cores * self.elapsed)

    @property
    def fullest(self) -> NodeUsage | None:
        """The node with the highest memory usage; None if there is no report."""
        reporting = [node for node in self.nodes if node.memory_peak is not None]
        return max(reporting, key=lambda node: node.memory_peak or 0) if reporting else None

    @property
    def sentence(self) -> str:
        """A sentence about the usage; '' if it is unknown."""
        if self.efficiency is None:
            return ""
        memory = f", and at most {memory_size(self.fullest.memory_peak)} of memory on a node" if self.fullest else ""
        cores = f"{self.cores} cores" if self.cores > 1 else "one core"
        return f"It used {100 * self.efficiency:.1f}% of {cores}{memory}."

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
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
            "nodes": {
                node.node: {
                    "cores": node.cores,
                    "cpu_seconds": node.cpu_seconds,
                    "cpu_efficiency": self.efficiency_on(node),
                    "max_rss": node.memory_peak,
                    "memory_limit": node.memory_limit,
                    "oom_kills": node.oom_kills,
                    "forks_denied": node.forks_denied,
                }
                for node in self.nodes
            },
        }


def _fraction(used: float | None, available: int) -> float | None:
    return round(used / available, 4) if used is not None and available > 0 else None


def job_usages(tx: "Transaction", jobs: Sequence[Job], field: str | None) -> list[JobUsage]:
    """Return the usage of jobs, in their order; for running jobs, the usage until now.

    ``field``: the resource property that contains processor numbers; None if the site has none.
    """
    if not jobs:
        return []
    return usages_of(tx, jobs, tx.job_runs.usage([job.id for job in jobs]), field)


def usages_of(
    tx: "Transaction", jobs: Sequence[Job], reported: Mapping[int, Sequence[NodeUsage]], field: str | None
) -> list[JobUsage]:
    """Return the usage of jobs from the reports of their nodes (``reported``)."""
    processors = _processors(tx, field or "", [job for job in jobs if job.state in _ACTIVE])
    frozen = _frozen_seconds(tx, [job.id for job in jobs if job.suspended])
    usages = []
    for job in jobs:
        elapsed = max(0, (job.stop_time or tx.now) - job.started - frozen.get(job.id, 0)) if job.started else 0
        cores = processors.get(job.id, {})
        nodes = {node: NodeUsage(node, number) for node, number in cores.items()}  # those without a report stay empty
        nodes |= {node.node: node for node in reported.get(job.id, ())}
        usages.append(JobUsage(job, elapsed, tuple(nodes[name] for name in sorted(nodes))))
    return usages


def _frozen_seconds(tx: "Transaction", ids: Sequence[int]) -> dict[int, int]:
    """Return the time in which jobs were frozen, in seconds."""
    changes = tx.jobs.state_changes(ids) if ids else {}
    return {
        job_id: sum((change.stop or tx.now) - change.start for change in job_changes if change.state in _FROZEN)
        for job_id, job_changes in changes.items()
    }


def _processors(tx: "Transaction", field: str, jobs: Sequence[Job]) -> dict[int, dict[str, int]]:
    """Return the number of processors of jobs on each of their nodes."""
    assigned = tx.jobs.assigned([job.id for job in jobs], current=True) if jobs and field else {}
    resource_ids = {
        resource.id
        for job_resources in assigned.values()
        for resource in job_resources
        if resource.type == "default" and resource.network_address
    }
    rows = {resource.id: resource for resource in tx.resources.select(resource_ids)} if resource_ids else {}
    counts = {}
    for job_id, job_resources in assigned.items():
        values: dict[str, list[str]] = defaultdict(list)
        for row in (rows[resource.id] for resource in job_resources if resource.id in rows):
            values[row.network_address].append(str(row.properties.get(field) or ""))
        counts[job_id] = {node: count_processors(node_values) for node, node_values in values.items()}
    return counts


def read_usage(node: str, cores: int, report: object) -> NodeUsage:
    """Return the usage of a job on a node from the node's report; invalid values are treated as unknown."""
    values = report if isinstance(report, dict) else {}
    cpu, *others = (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
        for value in map(values.get, _FIGURES)
    )
    return NodeUsage(node, cores, None if cpu is None else cpu / 1e6, *others)


def count_processors(values: Iterable[str]) -> int:
    """Return the number of processors in values of the job resource manager's property; ``a-b`` is a range.

    >>> count_processors(["0", "1,17", "4-6"])
    6
    """
    processors: set[int] = set()
    for first, last in _PROCESSORS.findall(" ".join(values)):
        processors.update(range(int(first), int(last or first) + 1))
    return len(processors)


def count_gpus(values: Iterable[str]) -> int:
    """Return the number of GPUs in values of ``gpudevice`` on a node, as the node counts them (``node_gpus``).

    >>> count_gpus(["0", "/dev/nvidia0", "/dev/dri/card1,/dev/dri/renderD129", "GPU-1f"])
    3
    """
    gpus: set[str | int] = set()
    for word in re.findall(r"[^,+\s]+", " ".join(values)):
        match = _NUMBERED.fullmatch(word)
        number, render = match.groups() if match else (None, None)
        gpus.add(int(number) if number else int(render) - _FIRST_RENDER if render else word)
    return len(gpus)

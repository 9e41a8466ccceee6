"""``oarstat --usage``: CPU and memory usage of jobs, as measured by their nodes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from oar.cli.common.render import cell, visible
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import format_duration
from oar.lib.jobs.ends import memory_size
from oar.lib.jobs.states import STATE_LETTERS
from oar.lib.jobs.usage import JobUsage, job_usages

if TYPE_CHECKING:
    from oar.cli.common.command import Context
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Job, NodeUsage

_HEAD = (
    "Job id     User           S Cores Elapsed     CPU time    CPU used Memory peak Memory limit\n"
    "---------- -------------- - ----- ----------- ----------- -------- ----------- ------------\n"
)


def shown(
    context: "Context",
    tx: "Transaction",
    jobs: "Sequence[Job]",
    machine: Format | None,
    *,
    by_node: bool,
    header: bool = True,
) -> str:
    """Return what jobs used: a line each, or with a line for each node."""
    usages = job_usages(tx, jobs, context.runtime.config.job_resource_manager_property_db_field)
    if machine:
        return dump({use.job.id: use.record for use in usages}, machine)
    if by_node:
        return "\n".join("".join(f"{line}\n" for line in _in_full(use)) for use in usages)
    head = _HEAD if usages and header else ""
    return head + "".join(f"{line}\n" for use in usages for line in _row(use))


def _row(use: JobUsage) -> Iterator[str]:
    job, fullest = use.job, use.fullest
    yield (
        f"{job.id:<10} {cell(visible(job.user), 14)} {STATE_LETTERS[job.state]} {use.cores or '-':<5}"
        f" {_elapsed(use):<11} {_time(use.cpu_seconds):<11} {_percent(use.efficiency):<8}"
        f" {_memory(fullest):<11} {_limit(fullest)}"
    ).rstrip()
    if use.silent and use.cpu_seconds is not None:
        yield f"           without {', '.join(map(visible, use.silent))}: not known"


def _in_full(use: JobUsage) -> Iterator[str]:
    job = use.job
    yield f"Job_Id: {job.id}"
    yield f"    owner = {visible(job.user)}"
    yield f"    state = {job.state}"
    if not job.started:
        yield f"    usage = none: it {'never' if job.is_final else 'has not'} started"
        return
    yield f"    cores = {use.cores or '-'}"
    yield f"    elapsed = {format_duration(use.elapsed)}"
    yield f"    cpu_time = {_time(use.cpu_seconds)} of {format_duration(use.cores * use.elapsed)}"
    yield f"    cpu_efficiency = {_percent(use.efficiency)}"
    yield f"    max_rss = {_memory(use.fullest)}"
    for node in use.nodes:
        yield f"    {visible(node.node)}: {_on_node(use, node)}"


def _on_node(use: JobUsage, node: "NodeUsage") -> str:
    cores = f"{node.cores} core{'s' * (node.cores != 1)}"
    if node.cpu_seconds is None:
        return f"{cores}, the rest is not known"
    limit = f" of {memory_size(node.memory_limit)}" if node.memory_limit else ""
    kills = f", {node.oom_kills} processes killed because memory was exhausted" if node.oom_kills else ""
    used = f"CPU time {_time(node.cpu_seconds)} ({_percent(use.efficiency_on(node))})"
    return f"{cores}, {used}, memory peak {_memory(node)}{limit}{kills}"


def _elapsed(use: JobUsage) -> str:
    return format_duration(use.elapsed) if use.job.started else "-"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(int(seconds))


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}%"


def _memory(node: "NodeUsage | None") -> str:
    return "-" if node is None or node.memory_peak is None else memory_size(node.memory_peak)


def _limit(node: "NodeUsage | None") -> str:
    return "-" if node is None or node.memory_limit is None else memory_size(node.memory_limit)

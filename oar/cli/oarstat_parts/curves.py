"""The curves of jobs as lines of text: ``oarstat --usage`` with ``--full`` or ``--watch``."""

from collections.abc import Iterator, Sequence

from oar.cli.common.render import visible
from oar.lib.base.times import format_duration
from oar.lib.jobs.curves import MIB, Curve, Value, aligned, total
from oar.lib.jobs.ends import memory_size
from oar.lib.jobs.usage import JobUsage

#: From nothing to all; what nobody has measured is left blank.
_LEVELS = "_.:-=+*#%@"
_UNKNOWN = " "
_WIDTH = 60
_LABEL, _NUMBERS = 7, 24


def curve_lines(use: JobUsage, curves: Sequence[Curve], *, by_node: bool) -> Iterator[str]:
    """Yield lines with the last values and the course of what a job used: on all nodes together, or on each node."""
    shown = aligned(curves) if by_node else [together] if (together := total(curves)) else []
    cores = {node.node: node.cores for node in use.nodes} | {"": use.cores}
    limits = {node.node: node.memory_limit or 0 for node in use.nodes}
    limits[""] = sum(limits.values()) if all(limits.values()) else 0
    for curve in shown:
        if curve.node:
            yield f"    {visible(curve.node)}: one character for {format_duration(_fitting(curve).step)}"
        yield from _lines(_fitting(curve), cores.get(curve.node, 0), limits.get(curve.node, 0) // MIB)


def _fitting(curve: Curve) -> Curve:
    step = curve.step
    while len(curve.cpu) * curve.step > _WIDTH * step:
        step *= 2
    return curve.in_steps(step)


def _lines(curve: Curve, cores: int, limit: int) -> Iterator[str]:
    if (cpu := _last(curve.cpu)) is not None:
        of_cores = f" of {cores} core{'s' * (cores != 1)}" if cores else ""
        yield _line("CPU", f"{cpu / 1000:.2f}{of_cores}", curve.cpu, 1000 * cores)
    if (memory := _last(curve.memory)) is not None:
        yield _line("memory", memory_size(memory * MIB), curve.memory, limit)
    if (use := _last(curve.gpu)) is not None:
        yield _line("GPU", f"{use / 10:.0f}% of {curve.gpus}", curve.gpu, 1000)
    if (memory := _last(curve.gpu_memory)) is not None:
        yield _line("", memory_size(memory * MIB), curve.gpu_memory, 0)


def _last(column: Sequence[Value]) -> Value:
    return next((value for value in reversed(column) if value is not None), None)


def _line(label: str, numbers: str, column: Sequence[Value], top: int) -> str:
    return f"           {label:<{_LABEL}}{numbers:<{_NUMBERS}}{chart(column, top)}".rstrip()


def chart(column: Sequence[Value], top: int) -> str:
    """Return a character for each value. ``top``: the value of the last level; 0: the largest value has it.

    >>> chart([0, 5, None, 10], 10)
    '_+ @'
    """
    top = top or max((value for value in column if value is not None), default=0)
    return "".join(_UNKNOWN if value is None else _level(value, top) for value in column)


def _level(value: int, top: int) -> str:
    most = len(_LEVELS) - 1
    return _LEVELS[min(most, -(-value * most // top))] if top else _LEVELS[0]

"""Convert the description of a machine (``oar/tools/describe_machine.sh``) to the resources to create. Pure functions.

Numbers of processors, cores, threads and GPUs of resources are unique in the cluster; ``cpuset`` and ``gpudevice`` are
the numbers on the node itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from oar.lib.nodes.topology import BadTopology, NewResource

#: Properties of which each number is used once in the cluster.
NUMBERED = ("cpu", "core", "thread", "gpu")
#: The most that is believed of a machine.
_MOST_LINES = 65536
_KIB_PER_GIB = 1048576


class FoundThread(NamedTuple):
    """A thread of a processor, with the numbers of the machine."""

    package: int
    core: int
    number: int


class FoundMachine(NamedTuple):
    """The hardware of a machine."""

    threads: tuple[FoundThread, ...]  #: in order
    memory: int  #: GiB, rounded up
    gpus: tuple[int, ...] = ()


def read(text: str) -> FoundMachine:
    """Parse the description of a machine. Raises BadTopology."""
    lines = text.splitlines()[:_MOST_LINES]
    kibibytes = [numbers[0] for numbers in _of_kind(lines, "memory", 1)]
    threads = sorted(FoundThread(*numbers) for numbers in _of_kind(lines, "thread", 3))
    if not threads or len(kibibytes) != 1:
        raise BadTopology("it does not tell its processors and its memory")
    return FoundMachine(
        tuple(threads), -(-kibibytes[0] // _KIB_PER_GIB), tuple(sorted(each[0] for each in _of_kind(lines, "gpu", 1)))
    )


def _of_kind(lines: Iterable[str], kind: str, count: int) -> Iterator[list[int]]:
    """Yield the numbers of the lines of a kind. Raises BadTopology."""
    for line in lines:
        word, *values = line.split()[: count + 2] or [""]
        if word == kind:
            if len(values) != count or not all(each.isascii() and each.isdigit() and len(each) < 10 for each in values):
                raise BadTopology(f"it says something that is not understood: {line[:80]!r}")
            yield [int(each) for each in values]


def units_of(
    host: str, machine: FoundMachine, last: Mapping[str, int], *, each_thread: bool
) -> tuple[list[NewResource], dict[str, int]]:
    """Return the resources of a machine and the new last numbers.

    A resource is a core with all its threads, or a thread with ``each_thread``. Several GPUs are assigned to
    consecutive cores in equal blocks; a single GPU is shared by all cores.
    """
    used = {name: last.get(name, 0) for name in NUMBERED}
    cores = [list(threads) for _, threads in groupby(machine.threads, lambda thread: thread[:2])]
    packages = sorted({thread.package for thread in machine.threads})
    units = []
    for position, threads in enumerate(cores):
        cpu = used["cpu"] + 1 + packages.index(threads[0].package)
        core = used["core"] + 1 + position
        index = position * len(machine.gpus) // len(cores)
        gpu = used["gpu"] + 1 + index if machine.gpus else None
        device = str(machine.gpus[index]) if machine.gpus else None
        if each_thread:
            first = used["thread"] + 1 + sum(len(before) for before in cores[:position])
            units += [
                NewResource(host, cpu, core, first + place, str(thread.number), gpu, device)
                for place, thread in enumerate(threads)
            ]
        else:
            cpuset = ",".join(str(thread.number) for thread in threads)
            units.append(NewResource(host, cpu, core, None, cpuset, gpu, device))
    added = {"cpu": len(packages), "core": len(cores), "thread": len(machine.threads), "gpu": len(machine.gpus)}
    return units, {name: used[name] + added[name] for name in NUMBERED}

"""Convert descriptions of machines to the resources to create. Pure functions.

``Machines`` describes identical machines by options (oar_resources_add), ``FoundMachine`` one machine by the output of
``oar/tools/describe_machine.sh`` (oar_resources_init).

Numbers of processors, cores, threads and GPUs are unique in the cluster; ``cpuset`` and ``gpudevice`` are the numbers
on the node itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.base.host_names import is_host_name

#: Which cores are on which processor: in blocks, or in turn.
ROUND_ROBIN = "RR"
#: Threads of the machines that are described at once: each is a number or an object here, a line or a row there.
MOST_THREADS = 1_000_000


class BadTopology(BadRequest):
    """The description of the machines contradicts itself."""


@dataclass(frozen=True, slots=True)
class Machines:
    """Identical machines."""

    hosts: int
    cpus: int = 2
    cores: int = 4  #: of each processor
    threads: int = 1  #: of each core
    gpus: int = 0  #: of each machine
    each_thread: bool = False  #: a resource for each thread, else one for each core
    first_host: int = 1
    first_cpu: int = 1
    first_core: int = 1
    first_thread: int = 1
    first_gpu: int = 1
    cpusets: int | None = None  #: how many there are on a node; default: one for each thread
    cpu_topology: str = ""  #: "RR", or the node's numbers in order of processors, cores, threads
    gpu_devices: int | None = None  #: how many there are on a node
    gpu_topology: str = ""  #: the node's numbers of the GPUs, in order
    prefix: str = "node-"
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class NewResource:
    host: str
    cpu: int
    core: int
    thread: int | None
    cpuset: str
    gpu: int | None = None
    gpudevice: str | None = None

    @property
    def properties(self) -> tuple[tuple[str, str | int], ...]:
        """The properties, in the order of the columns."""
        parts: tuple[tuple[str, str | int | None], ...] = (
            ("host", self.host),
            ("cpu", self.cpu),
            ("core", self.core),
            ("thread", self.thread),
            ("cpuset", self.cpuset),
            ("gpu", self.gpu),
            ("gpudevice", self.gpudevice),
        )
        return tuple((name, value) for name, value in parts if value is not None)


def property_types(machines: Machines) -> dict[str, bool]:
    """Return the properties that the resources need, each with whether it is a text."""
    names = {"host": True, "cpu": False, "core": False}
    if machines.each_thread:
        names["thread"] = False
    if machines.gpus:
        names |= {"gpu": False, "gpudevice": True}
    return names


def units(machines: Machines) -> list[NewResource]:
    """Return the resources of machines, host by host. Raises BadTopology."""
    _check(machines)
    numbers = _cpusets(machines)
    return [unit for host in range(machines.hosts) for unit in _of_host(machines, host, numbers)]


def _check(machines: Machines) -> None:
    if machines.hosts <= 0:
        raise BadTopology("Syntax error, need a # of host.")
    if min(machines.cpus, machines.cores, machines.threads) <= 0 or machines.gpus < 0:
        raise BadTopology("Syntax error, numbers of cpus, cores and threads must be positive.")
    number = machines.hosts * machines.cpus * machines.cores * machines.threads
    if number > MOST_THREADS:
        raise BadTopology(f"These machines have {number} threads: at most {MOST_THREADS} are described at once.")
    for host in (0, machines.hosts - 1):
        if not is_host_name(_name(machines, host)):
            raise BadTopology(
                f"{_name(machines, host)!r} is not the name of a host: write letters, digits and . _ - in"
                " --host-prefix and --host-suffix."
            )
    if machines.gpus > 1:
        per_cpu, remainder = divmod(machines.gpus, machines.cpus)
        if remainder or machines.cores % per_cpu:
            raise BadTopology(
                f"Cannot manage the requested GPU configuration: {machines.gpus} GPUs for {machines.cpus} cpus"
                f" of {machines.cores} cores."
            )
    numbers = len(_devices(machines))
    if numbers and (numbers != machines.gpus or numbers != (machines.gpu_devices or numbers)):
        raise BadTopology(f"Bad definition of GPU topology, {numbers} numbers are given for {machines.gpus} GPUs.")


def _devices(machines: Machines) -> list[str]:
    """Return the GPU numbers on the node, as given in the option."""
    return [number.strip() for number in machines.gpu_topology.split(",")] if machines.gpu_topology else []


def _name(machines: Machines, host: int) -> str:
    return f"{machines.prefix}{machines.first_host + host}{machines.suffix}"


def _of_host(machines: Machines, host: int, numbers: Sequence[Sequence[str]]) -> Iterator[NewResource]:
    """Return the resources of one machine. ``numbers``: the thread numbers of each core."""
    name = _name(machines, host)
    cores = machines.cpus * machines.cores
    for position in range(cores):
        cpu = machines.first_cpu + host * machines.cpus + position // machines.cores
        core = machines.first_core + host * cores + position
        gpu, device = _gpu(machines, host, position)
        if not machines.each_thread:
            yield NewResource(name, cpu, core, None, ",".join(numbers[position]), gpu, device)
            continue
        for thread_index in range(machines.threads):
            thread = machines.first_thread + (host * cores + position) * machines.threads + thread_index
            yield NewResource(name, cpu, core, thread, numbers[position][thread_index], gpu, device)


def _cpusets(machines: Machines) -> list[list[str]]:
    """Return the thread numbers of each core on the node, with cores in the order of processors. Raises BadTopology."""
    cores, threads = machines.cpus * machines.cores, machines.threads
    count = cores * threads if machines.cpusets is None else machines.cpusets
    if machines.cpu_topology and machines.cpu_topology.upper() != ROUND_ROBIN:
        return _listed(machines, count)
    if machines.cpu_topology:
        # Core k of the node is on processor k mod cpus; second threads follow all first threads.
        order = [cpu + machines.cpus * core for cpu in range(machines.cpus) for core in range(machines.cores)]
    else:
        order = list(range(cores))
    return [[str((core + cores * thread) % count) for thread in range(threads)] for core in order]


def _listed(machines: Machines, count: int) -> list[list[str]]:
    numbers = [number.strip() for number in machines.cpu_topology.split(",")]
    threads = machines.cpus * machines.cores * machines.threads
    are_numbers = all(number.isascii() and number.isdigit() for number in numbers)
    if len(numbers) != count or count != threads or not are_numbers:
        raise BadTopology(f"Bad definition of CPU topology, {len(numbers)} numbers are given for {threads} cpusets.")
    return [numbers[start : start + machines.threads] for start in range(0, threads, machines.threads)]


def _gpu(machines: Machines, host: int, core: int) -> tuple[int | None, str | None]:
    """Return the GPU of a core, and the GPU number on the node. A single GPU is shared by all cores."""
    if not machines.gpus:
        return None, None
    gpu_index = 0 if machines.gpus == 1 else core * machines.gpus // (machines.cpus * machines.cores)
    devices = _devices(machines)
    return machines.first_gpu + host * machines.gpus + gpu_index, devices[gpu_index] if devices else str(gpu_index)


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
    mib: int  #: the same in MiB, rounded down
    gpus: tuple[int, ...] = ()


def parse_description(text: str) -> FoundMachine:
    """Parse the description of a machine. Raises BadTopology."""
    lines = text.splitlines()[:_MOST_LINES]
    kibibytes = [numbers[0] for numbers in _of_kind(lines, "memory", 1)]
    threads = sorted(FoundThread(*numbers) for numbers in _of_kind(lines, "thread", 3))
    if not threads or len(kibibytes) != 1:
        raise BadTopology("it must report its processors and its memory")
    gpus = sorted(numbers[0] for numbers in _of_kind(lines, "gpu", 1))
    return FoundMachine(tuple(threads), -(-kibibytes[0] // _KIB_PER_GIB), kibibytes[0] >> 10, tuple(gpus))


def _of_kind(lines: Iterable[str], kind: str, count: int) -> Iterator[list[int]]:
    """Yield the numbers of the lines of a kind. Raises BadTopology."""
    for line in lines:
        name, *values = line.split()[: count + 2] or [""]
        if name == kind:
            are_numbers = all(value.isascii() and value.isdigit() and len(value) < 10 for value in values)
            if len(values) != count or not are_numbers:
                raise BadTopology(f"unexpected output: {line[:80]!r}")
            yield [int(value) for value in values]


def units_of_machine(
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
                NewResource(host, cpu, core, first + offset, str(thread.number), gpu, device)
                for offset, thread in enumerate(threads)
            ]
        else:
            cpuset = ",".join(str(thread.number) for thread in threads)
            units.append(NewResource(host, cpu, core, None, cpuset, gpu, device))
    added = {"cpu": len(packages), "core": len(cores), "thread": len(machine.threads), "gpu": len(machine.gpus)}
    return units, {name: used[name] + added[name] for name in NUMBERED}

"""CPU that the machines of a room use, by the kind of the processes: what their control groups and the kernel count.

A process has its own time and that of its children that have ended and were waited for; so the session on a node has
the time of every oarexec and of the users' commands, and PostgreSQL that of connections that are over.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Words of a command line, and the kind of the processes that have them; the first that fits.
KINDS = (
    ("bipbip_commander", "Runner"),
    ("modules.runner.bipbip", "bipbips"),
    ("modules.node_change_state", "NodeChangeState"),
    ("modules.meta_sched", "scheduler"),
    ("modules.chronicle", "chronicle"),
    ("oar-commands", "commands"),
    ("postgres", "PostgreSQL"),
    ("almighty", "Almighty"),
    ("oar.modules", "other modules"),
    ("import os,signal,sys", "sessions on nodes, oarexec, commands of jobs"),
    ("sshd", "sshd"),
)
#: What is in none of the processes that can be seen: those whose parents did not wait for them, and the kernel's work.
REST = "rest"
_TICKS = os.sysconf("SC_CLK_TCK")


def used(machines: Iterable[Mapping[str, list[str]]]) -> dict[str, float]:
    """Return the CPU seconds of machines by kind, since their start; ``REST`` makes them complete."""
    seconds: dict[str, float] = defaultdict(float)
    for machine in machines:
        groups = [Path(group) for group in machine["cgroups"]]
        seconds[REST] += max(map(_counted, groups), default=0.0)
        for pid in {pid for group in groups for pid in _pids(group)}:
            kind, own = _of_process(Path("/proc") / pid)
            seconds[kind] += own
            seconds[REST] -= own
    return seconds


def busy() -> float:
    """Return the CPU seconds of this computer since its start, in which it did anything; stolen ones are among them."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, words[1:9])
    return (user + nice + system + interrupts + soft_interrupts + stolen) / _TICKS


def _counted(group: Path) -> float:
    """Return the CPU seconds of a control group of either version; 0 if it does not count them."""
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    if (group / "cpu.stat").exists():
        words = (group / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1]) / 1e6 if "usage_usec" in words else 0.0
    return 0.0


def _pids(group: Path) -> list[str]:
    pids: list[str] = []
    for directory, _, files in os.walk(group):
        if "cgroup.procs" in files:
            pids += Path(directory, "cgroup.procs").read_text().split()
    return pids


def _of_process(directory: Path) -> tuple[str, float]:
    """Return the kind of a process, and the CPU seconds of it and of its children that it has waited for."""
    try:
        line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        fields = (directory / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return REST, 0.0
    kind = next((kind for word, kind in KINDS if word in line), REST)
    return kind, sum(map(int, fields[11:15])) / _TICKS

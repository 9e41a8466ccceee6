"""CPU of the machines of a test cluster by kind of process, from control groups and /proc.

The time of a process includes its ended children that were waited for: the session on a node includes each oarexec and
the users' commands, and PostgreSQL includes closed connections.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Text in a command line, and kind of the process; the first match counts.
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
#: CPU that no visible process accounts for: processes whose parents did not wait for them, and work of the kernel.
REST = "rest"
_TICKS = os.sysconf("SC_CLK_TCK")


def used(machines: Iterable[Mapping[str, list[str]]]) -> dict[str, float]:
    """Return the CPU seconds of machines by kind since their start; ``REST`` is the remainder."""
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
    """Return the busy CPU seconds of this machine since its boot, including stolen time."""
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
    """Return the kind of a process, and the CPU seconds of it and its waited-for children."""
    try:
        line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        fields = (directory / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return REST, 0.0
    kind = next((kind for word, kind in KINDS if word in line), REST)
    return kind, sum(map(int, fields[11:15])) / _TICKS

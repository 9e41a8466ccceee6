"""The control groups of a room: one directory per machine in every hierarchy of the host, v1, v2 or both.

A room owns `<hierarchy>/oar-room-<name>-<keeper's pid>/<machine>`. Processes join a machine's directories before they
enter its namespaces: freezing a directory freezes the machine, and it is the root of the machine's cgroup namespace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import kernel

PREFIX = "oar-room-"
_REMOVAL_DEADLINE = 5.0
_FREEZE_DEADLINE = 5.0
#: Subgroup of a machine's processes in v2 with controllers: the top group has no processes, so that it can delegate
#: controllers to jobs.
_LEAF = "system"


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy: its path, and the parameters to mount it inside a machine."""

    path: Path
    kind: str
    options: str

    @property
    def is_v2(self) -> bool:
        """Whether this is the unified hierarchy."""
        return self.kind == "cgroup2"

    @property
    def controllers(self) -> frozenset[str]:
        """v1 controllers of this hierarchy; empty for v2."""
        return frozenset(self.options.split(",")) if not self.is_v2 else frozenset()


def hierarchies() -> list[Hierarchy]:
    """Return every writable hierarchy once, from mountinfo."""
    found: dict[tuple[str, str], Hierarchy] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        own = _mount_options(options) if kind == "cgroup" else ""
        path = Path(before.split(" ")[4])
        if os.access(path, os.W_OK):
            found.setdefault((kind, own), Hierarchy(path, kind, own))
    return list(found.values())


def _mount_options(super_options: str) -> str:
    ignored = {"rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode"}
    kept = [word for word in super_options.split(",") if word not in ignored and not word.startswith("release_agent=")]
    return ",".join(["none", *kept] if any(word.startswith("name=") for word in kept) else kept)


def create_room(room: str) -> None:
    """Create the room's directory in each hierarchy, with all controllers of v2 delegated."""
    for hierarchy in hierarchies():
        if hierarchy.is_v2:
            _hand_down_controllers(hierarchy.path)
        _make(hierarchy, hierarchy.path / room)
        if hierarchy.is_v2:
            _hand_down_controllers(hierarchy.path / room)


def create_machine(room: str, machine: str) -> list[str]:
    """Create the directories of one machine; return their paths."""
    paths = []
    for hierarchy in hierarchies():
        path = hierarchy.path / room / machine
        remove_tree(path)
        _make(hierarchy, path)
        if hierarchy.is_v2 and (path / "cgroup.controllers").read_text().strip():
            (path / _LEAF).mkdir()
        paths.append(str(path))
    return paths


def _make(hierarchy: Hierarchy, path: Path) -> None:
    path.mkdir(exist_ok=True)
    if "cpuset" in hierarchy.controllers:
        for name in ("cpuset.cpus", "cpuset.mems"):
            (path / name).write_text((path.parent / name).read_text())


def _hand_down_controllers(path: Path) -> None:
    wanted = set((path / "cgroup.controllers").read_text().split())
    wanted -= set((path / "cgroup.subtree_control").read_text().split())
    if not wanted:
        return
    with contextlib.suppress(OSError):
        _empty_into_leaf(path)
    for controller in sorted(wanted):
        with contextlib.suppress(OSError):  # some controllers cannot be delegated here
            (path / "cgroup.subtree_control").write_text(f"+{controller}")


def _empty_into_leaf(path: Path) -> None:
    """Move processes away: except at the real root, v2 delegates controllers only from a group without processes."""
    if not (path / "cgroup.type").exists() or not (path / "cgroup.procs").read_text():
        return
    leaf = path / "oar-room-others"
    leaf.mkdir(exist_ok=True)
    for pid in (path / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (leaf / "cgroup.procs").write_text(pid)


def join(paths: list[str], pid: int = 0) -> None:
    """Move process `pid` (0: the caller) into the directories of a machine."""
    for path in map(Path, paths):
        leaf = path / _LEAF
        ((leaf if leaf.exists() else path) / "cgroup.procs").write_text(str(pid or os.getpid()))


def begin_namespace(paths: list[str]) -> None:
    """Move the caller into a machine's directories and create a new control group namespace there."""
    for path in paths:
        Path(path, "cgroup.procs").write_text(str(os.getpid()))
    kernel.unshare(kernel.NEW_CGROUP)
    join(paths)


def freeze(paths: list[str], *, frozen: bool) -> None:
    """Freeze or resume every process of a machine, and wait until it is done."""
    for path in map(Path, paths):
        if (path / "freezer.state").exists():
            _freeze_v1(path, frozen=frozen)
            return
    for path in map(Path, paths):
        if (path / "cgroup.freeze").exists():
            _freeze_v2(path, frozen=frozen)
            return
    raise OSError("this computer has no cgroup freezer")


def _freeze_v1(path: Path, *, frozen: bool) -> None:
    wanted = "FROZEN" if frozen else "THAWED"
    for group in _tree(path):
        (group / "freezer.state").write_text(wanted)
    _wait(lambda: (path / "freezer.state").read_text().strip() == wanted, _FREEZE_DEADLINE)


def _freeze_v2(path: Path, *, frozen: bool) -> None:
    (path / "cgroup.freeze").write_text("1" if frozen else "0")
    _wait(lambda: f"frozen {int(frozen)}" in (path / "cgroup.events").read_text(), _FREEZE_DEADLINE)


def thaw(paths: list[str]) -> None:
    """Resume a machine so that its killed processes end: frozen processes cannot."""
    with contextlib.suppress(OSError):
        freeze(paths, frozen=False)


def kill_processes(path: Path) -> None:
    """Send SIGKILL to all processes of a group and of the groups below it."""
    for group in _tree(path):
        with contextlib.suppress(OSError):
            for pid in map(int, (group / "cgroup.procs").read_text().split()):
                _kill(pid)


def _kill(pid: int) -> None:
    """Send SIGKILL; pid 0 is a process of another pid namespace, and would signal ourselves."""
    if pid > 0:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def remove_tree(path: Path) -> bool:
    """Remove a group and all groups below it; return False if processes prevent it."""
    if not path.exists():
        return True

    def removed() -> bool:
        _remove_groups(path)
        return not path.exists()

    return _wait(removed, _REMOVAL_DEADLINE)


def _remove_groups(path: Path) -> None:
    for group in _tree(path):
        with contextlib.suppress(OSError):
            group.rmdir()


def _tree(path: Path) -> Iterator[Path]:
    """Iterate over the groups of a tree, children before parents."""
    for root, _, _ in os.walk(path, topdown=False):
        yield Path(root)


def remove_room(room: str) -> list[str]:
    """Remove all groups of a room; return the directories that could not be removed."""
    kill_room(room)
    paths = [hierarchy.path / room for hierarchy in hierarchies()]
    return [str(path) for path in paths if not remove_tree(path)]


def kill_room(room: str) -> None:
    """Kill every process of a room, also of hung machines: frozen processes end only after a resume."""
    for hierarchy in hierarchies():
        path = hierarchy.path / room
        for machine in path.glob("*"):
            thaw([str(machine)])
        kill_processes(path)


def sweep() -> None:
    """Remove the empty directories of rooms whose keeper (its pid is part of the name) and guard were killed.

    The keeper may live in another pid namespace, invisible to us: groups with processes are not removed.
    """
    for hierarchy in hierarchies():
        for path in hierarchy.path.glob(f"{PREFIX}*-[0-9]*"):
            keeper = path.name.rpartition("-")[2]
            if keeper.isdigit() and not Path("/proc", keeper).exists() and not _is_populated(path):
                _remove_groups(path)


def _is_populated(path: Path) -> bool:
    """Return whether a group or a group below it has processes; False if it is being removed."""
    for group in _tree(path):
        with contextlib.suppress(OSError):
            if (group / "cgroup.procs").read_text():
                return True
    return False


def mount_view() -> None:
    """Mount the machine's part of each hierarchy under /sys; runs in the machine's new namespaces."""
    root = Path("/sys/fs/cgroup")
    inside = [(entry, entry.path.relative_to(root)) for entry in hierarchies() if entry.path.is_relative_to(root)]
    with contextlib.suppress(OSError):  # without root the inherited mount stays below
        kernel.detach("/sys")
    kernel.mount("sysfs", "/sys", "sysfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    if any(place != Path() for _, place in inside):
        kernel.tmpfs(root)
    for hierarchy, place in inside:
        target = root / place
        target.mkdir(parents=True, exist_ok=True)
        kernel.mount(hierarchy.kind, target, hierarchy.kind, options=hierarchy.options)


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True

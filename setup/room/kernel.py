"""System calls that Python 3.11 does not offer: namespaces, mounts, host name."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

NEW_MOUNT = 0x00020000
NEW_CGROUP = 0x02000000
NEW_UTS = 0x04000000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_NOATIME = 0x400
MS_NODIRATIME = 0x800
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_RELATIME = 1 << 21
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

#: Order matters: the user namespace gives the right to enter the others, the mount namespace changes what /proc shows.
_NAMESPACE_FILES = ("user", "cgroup", "ipc", "uts", "net", "pid", "mnt")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move this process to new namespaces of the kinds in `flags`."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str | Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or with MS_BIND a directory."""
    arguments = [text.encode() if text else None for text in (source, str(target), kind)]
    _check(
        _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), f"mount {kind or source} on {target}"
    )


def bind(source: str | Path, target: str | Path) -> None:
    """Bind `source`, including the mounts below it, to `target`."""
    mount(str(source), target, flags=MS_BIND | MS_REC)


def bind_read_only(source: str | Path, target: str | Path) -> None:
    """Bind `source` to `target` read-only, without the mounts below it."""
    mount(str(source), target, flags=MS_BIND)
    given = os.statvfs(target).f_flag
    kept = given & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME)  # a namespace may not drop these
    relatime = MS_RELATIME if given & os.ST_RELATIME else 0
    mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | kept | relatime)


def tmpfs(target: str | Path, mode: str = "755", size: str = "50%") -> None:
    """Mount an empty memory file system."""
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode},size={size}")


def make_mounts_private() -> None:
    """Make the mounts of this namespace private."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


def detach(target: str | Path) -> None:
    """Remove a mount from the tree at once; the kernel releases it when it is no longer used (lazy unmount)."""
    _check(_libc.umount2(str(target).encode(), _MNT_DETACH), f"umount {target}")


def set_host_name(name: str) -> None:
    """sethostname(2)."""
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def die_with_parent(sent: int = signal.SIGKILL) -> None:
    """Make the kernel send the signal `sent` to this process when its parent ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(sent), 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def set_process_name(name: str) -> None:
    """Set the name that ps and top show (15 bytes)."""
    _check(_libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0), "prctl")


def enter_namespaces(pid: int, kinds: tuple[str, ...] = _NAMESPACE_FILES) -> None:
    """Join the namespaces of process `pid` that differ from ours; the pid namespace applies to children only."""
    descriptors = []
    for kind in kinds:
        theirs = f"/proc/{pid}/ns/{kind}"
        if os.readlink(theirs) != os.readlink(f"/proc/self/ns/{kind}"):
            descriptors.append((kind, os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)))
    for kind, descriptor in descriptors:
        _check(_libc.setns(descriptor, 0), f"enter the {kind} namespace of process {pid}")
        os.close(descriptor)


def missing_namespaces() -> str:
    """Return why this process cannot create the namespaces of a room; empty if it can. A child tries it."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            unshare(NEW_MOUNT | NEW_UTS | NEW_IPC | NEW_PID | NEW_NET | NEW_CGROUP)
            make_mounts_private()
        except OSError as error:
            os.write(write_end, str(error).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        problem = answer.read()
    os.waitpid(child, 0)
    return problem

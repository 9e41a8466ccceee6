"""The first process of a machine: sets up its file system, starts its sshd, reaps orphans, obeys the keeper.

It communicates with the keeper over one socket: `joined` (namespaces created, link needed), `ready`, or `error <text>`;
then it answers `stop-sshd` and `start-sshd`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from . import kernel, layout

_SSHD_DEADLINE = 120.0
#: State LISTEN and the port, in the format of /proc/net/tcp.
_LISTENING = f":{layout.NODE_SSH_PORT:04X} "


class Sshd:
    """The dedicated sshd of a machine."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start sshd; return when it listens. Raises RoomError."""
        if self._process is not None:
            return
        command = ["/usr/sbin/sshd", "-D", "-E", "/var/log/oar-sshd.log", "-f", str(layout.CONF_DIR / "sshd_config")]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + _SSHD_DEADLINE
        while not _listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise layout.RoomError(f"sshd does not start: {_last_line('/var/log/oar-sshd.log')}")
            time.sleep(0.002)

    def stop(self) -> None:
        """End the listener; open sessions continue."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


def _listens() -> bool:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            if any(line.split()[3] == "0A" and _LISTENING in line for line in Path(table).read_text().splitlines()[1:]):
                return True
    return False


def _last_line(path: str) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(path).read_text().strip().splitlines()[-1]
    return "it left no message"


def run(log: Path, channel: socket.socket, build: Callable[[], None], number: int) -> None:
    """Run as the first process of a machine; never returns."""
    status = 1
    try:
        _become_init(log, channel)
        build()
        channel.send(b"joined")
        if number:
            _await(channel, b"linked")
        _bring_up_network(number)
        sshd = Sshd()
        sshd.start()
        channel.send(b"ready")
        _serve(channel, sshd)
        status = 0
    except (OSError, layout.RoomError, subprocess.SubprocessError) as error:
        with contextlib.suppress(OSError):
            channel.send(f"error {error}".encode())
    finally:
        os._exit(status)


def _become_init(log: Path, channel: socket.socket) -> None:
    with contextlib.suppress(OSError):
        os.setsid()
    os.chdir("/")
    os.umask(0o022)
    os.environ.clear()
    os.environ.update(PATH=layout.PATH, LANG="C.UTF-8", HOME="/root")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    close_all_but(0, 1, 2, channel.fileno())


def close_all_but(*kept: int) -> None:
    """Close every inherited descriptor except these."""
    for entry in map(int, os.listdir("/proc/self/fd")):
        if entry not in kept:
            with contextlib.suppress(OSError):
                os.close(entry)


def _await(channel: socket.socket, expected: bytes) -> None:
    if channel.recv(100) != expected:
        raise layout.RoomError("the keeper of the room is gone")


def _bring_up_network(number: int) -> None:
    lines = ["link set lo up"]
    if number == 0:
        lines += [f"link add br0 address {layout.hardware_address(0)} type bridge"]
        lines += [f"addr add {layout.address(0)}/16 dev br0", "link set br0 up"]
    else:
        lines += [f"addr add {layout.address(number)}/16 dev eth0", "link set eth0 up"]
    ip_batch(lines)
    with contextlib.suppress(OSError):  # allow ping for all users, as on systemd hosts
        Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 65535")


def ip_batch(lines: list[str], *, force: bool = False) -> None:
    """Run several ip commands in one process; with `force` the others run even if one fails."""
    command = ["ip", *(["-force"] if force else []), "-batch", "-"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", text=True, capture_output=True, check=False)
    if done.returncode and not force:
        raise layout.RoomError(f"the network could not be set up: {done.stderr.strip()}")


def destroy_sockets(network: str = "/proc/self/ns/net") -> str:
    """Return shell text for root: drop every TCP connection of a network silently, like a loss of power.

    Listening sockets stay: those of sshd are used again after the start of the machine.
    """
    return f"nsenter --net={network} ss -K -H -t state connected >/dev/null"


def _serve(channel: socket.socket, sshd: Sshd) -> None:
    """Reap children and answer the keeper until it closes the channel."""
    wake_up, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    kernel.set_process_name("room-init")
    commands: dict[bytes, Callable[[], None]] = {b"stop-sshd": sshd.stop, b"start-sshd": sshd.start}
    while True:
        watched: list[socket.socket | int] = [channel, wake_up]
        ready, _, _ = select.select(watched, [], [], 60)
        if wake_up in ready:
            os.read(wake_up, 4096)
        _reap()
        if channel in ready:
            word = channel.recv(100)
            if not word:
                return
            channel.send(_answer(commands[word]))


def _answer(command: Callable[[], None]) -> bytes:
    try:
        command()
    except (OSError, layout.RoomError) as error:
        return f"error {error}".encode()
    return b"ok"


def _reap() -> None:
    """Reap every ended child except sshd, which its Popen object reaps."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def fork(job: Callable[[], None]) -> int:
    """Fork; the child runs `job` and exits without unwinding the parent's stack."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        job()
        status = 0
    except (OSError, layout.RoomError) as error:
        print(f"cluster: {error}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        raise
    finally:  # in any case, the child must not return into the parent's code
        sys.stderr.flush()
        os._exit(status)

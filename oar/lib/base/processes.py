"""Child processes with deadlines, signals as flags, and the datagrams to systemd.

Children are started from argument lists, never through a shell, each in its own process group. A child of a daemon
holds the read end of a pipe, its lifeline. End of file on the lifeline means that the parent has ended.
"""

import fcntl
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

#: Name of the variable that tells a child the number of its lifeline.
LIFELINE = "OAR_LIFELINE"
#: Name of the variable with the number of the descriptor of a pid file that stays locked.
PID_FILE_LOCK = "OAR_PID_FILE_LOCK"
#: Name of the server's pid file, in OAR_RUN_DIR.
PID_FILE = "oar-server.pid"
#: How Almighty begins the line of the log with which it ends by itself.
OWN_END = "the server ends: "
_PR_SET_PDEATHSIG = 1
#: Seconds that a killed daemon has to be gone, and between two looks whether it is.
LEAVING_SECONDS, _HOLDER_LOOK = 10.0, 0.01
#: Flags of a process in the kernel's table (proc(5), field 9 of stat): it ends; a signal killed it.
_ENDING_FLAGS = 0x4 | 0x400
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_TAIL_LINES = 20
_TAIL_WIDTH = 500
_TAIL_BYTES = 65536


# -- signals as flags -------------------------------------------------------------------------------------------------


class Signals:
    """Flags that signals set. The handlers set a flag and wake the poll, and do nothing else."""

    def __init__(self) -> None:
        self.stop = False
        self.reload = False
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return a descriptor that is readable after a signal, including SIGCHLD."""
        return self._reader.fileno()

    def clear(self) -> None:
        """Make the descriptor unreadable again. The flags are not changed."""
        with suppress(BlockingIOError):
            while self._reader.recv(512):
                pass

    def _on_stop(self, number: int, frame: object) -> None:
        self.stop = True

    def _on_reload(self, number: int, frame: object) -> None:
        self.reload = True

    def _on_child(self, number: int, frame: object) -> None:
        """Do nothing: the signal only wakes the poll."""


def hold_signals() -> None:
    """Let further signals wait for the ``signals`` of the program that this process executes next."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_STOPS, signal.SIGHUP))


@contextmanager
def signals() -> Iterator[Signals]:
    """Handle the signals of a daemon in the block, then restore the old handlers. Main thread only."""
    flags = Signals()
    old_wakeup = signal.set_wakeup_fd(flags._writer.fileno(), warn_on_full_buffer=False)
    handlers = dict.fromkeys(_STOPS, flags._on_stop)
    handlers |= {signal.SIGHUP: flags._on_reload, signal.SIGCHLD: flags._on_child}
    old = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
    try:
        yield flags
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_wakeup)
        flags._reader.close()
        flags._writer.close()


# -- parent and child -------------------------------------------------------------------------------------------------


class Lifeline:
    """The parent's end of the pipe that the kernel closes when the parent ends, even by SIGKILL."""

    def __init__(self) -> None:
        self.child_end, self._own_end = os.pipe()

    def environment(self) -> dict[str, str]:
        """Return the environment variable with the number of the child's descriptor."""
        return {LIFELINE: str(self.child_end)}

    def close(self) -> None:
        """Close the pipe, which notifies the children."""
        os.close(self._own_end)
        os.close(self.child_end)


class ParentWatch:
    """The child's end of the lifeline: ``fileno`` is readable once the parent has ended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def limit_life(self, seconds: float) -> None:
        """End this process at most ``seconds`` seconds after its parent, even in the middle of its work."""
        threading.Thread(target=self._end_after_parent, args=(seconds,), name="lifeline", daemon=True).start()

    def _end_after_parent(self, seconds: float) -> None:
        end_of_parent = select.poll()
        end_of_parent.register(self._descriptor, select.POLLIN)
        end_of_parent.poll()
        time.sleep(seconds)
        os._exit(1)

    def is_gone(self) -> bool:
        """Return whether the parent has ended."""
        os.set_blocking(self._descriptor, False)
        try:
            return os.read(self._descriptor, 1) == b""
        except BlockingIOError:
            return False


def watch_parent(environment: Mapping[str, str]) -> ParentWatch | None:
    """Return the watch on the parent that started this process with a lifeline, None if there is no lifeline.

    The kernel also sends SIGTERM when the parent ends, which wakes code that does not poll.
    """
    number = environment.get(LIFELINE, "")
    if not number.isdecimal():
        return None
    with suppress(OSError):
        os.set_inheritable(int(number), False)
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        return ParentWatch(int(number))
    return None


class ChildProcess:
    """A long-lived child. Its output of both streams is read as it arrives; the last lines are kept in ``tail``.

    With ``is_quiet``, its output goes to /dev/null.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        lifeline: Lifeline | None = None,
        is_quiet: bool = False,
    ) -> None:
        """Start the child. Raises OSError."""
        self.argv = tuple(argv)
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._process = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if is_quiet else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment, **(lifeline.environment() if lifeline else {})},
            pass_fds=(lifeline.child_end,) if lifeline else (),
            process_group=0,
            umask=0o022,
        )
        self._output: IO[bytes] = self._process.stdout or open(os.devnull, "rb")  # noqa: SIM115 - closed by close
        os.set_blocking(self._output.fileno(), False)
        self._partial = b""
        self._code: int | None = None
        self.is_silent = False  #: its streams are closed

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Return a descriptor that is readable when the child has written something or has closed its streams."""
        return self._output.fileno()

    def read(self) -> list[str]:
        """Return the lines written since the last call. Set ``is_silent`` at the end of the streams."""
        try:
            data = self._output.read(_TAIL_BYTES)
        except OSError:
            data = b""
        if data is None:
            return []
        self.is_silent = data == b""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if self._partial and (self.is_silent or len(self._partial) > _TAIL_WIDTH):
            lines, self._partial = [*lines, self._partial], b""
        texts = [line[:_TAIL_WIDTH].decode("utf-8", "backslashreplace") for line in lines if line.strip()]
        self.tail.extend(texts)
        return texts

    def poll(self) -> int | None:
        """Return the exit code of the child (negative signal number if a signal ended it), None while it is running."""
        if self._code is None:
            self._code = self._process.poll()
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal to the process group of the child."""
        if self.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def last_output(self) -> str:
        """Return the last lines of the child's output."""
        while self.read():
            pass
        return "\n".join(self.tail)

    def close(self) -> None:
        """Kill the child if it is running, reap it, and close its streams."""
        self.send_signal(signal.SIGKILL)
        self._process.wait()
        self._output.close()


# -- one command with a deadline --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The result of a command."""

    code: int | None  #: exit code, or minus a signal's number; None: it could not be started, or had to be killed
    timed_out: bool
    output: str  #: the end of its output, of both streams; or why it could not be started

    @property
    def succeeded(self) -> bool:
        """Return whether the command ended with exit code 0."""
        return self.code == 0


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    directory: str | None = None,
    stdin: bytes = b"",
    grace: float = 0.0,
    tail_bytes: int = _TAIL_BYTES,
) -> CommandOutcome:
    """Run a command to its end, or kill its process group after ``timeout`` seconds.

    The output goes to a file, so that a daemon started by the command cannot block the caller. The last ``tail_bytes``
    are returned. With ``grace``, the command gets SIGTERM first, and this many seconds to end.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as input_file:
        input_file.write(stdin)
        input_file.seek(0)
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=input_file,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                cwd=directory,
                process_group=0,
            )
        except (OSError, ValueError) as error:
            return CommandOutcome(None, False, f"cannot start {argv[0] if argv else ''}: {error}")
        try:
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            _end_group(process, grace)
            code = None
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - tail_bytes))
        return CommandOutcome(code, code is None, output.read().decode("utf-8", "backslashreplace"))


def _end_group(process: "subprocess.Popen[bytes]", grace: float) -> None:
    """Kill the process group of a command. With ``grace``, send SIGTERM first."""
    if grace:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def describe_exit(code: int) -> str:
    """Return the text for an exit code (or a negative signal number): ``exit code 2``, ``signal SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def is_ending(pid: int) -> bool:
    """Return whether the process has ended or is ending: it was killed, but the kernel has not closed its files yet."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    fields = dict(line.partition(":")[::2] for line in status.splitlines())
    pending = int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)
    flags = int(stat.rpartition(")")[2].split()[6])
    return bool(flags & _ENDING_FLAGS) or bool(pending >> (signal.SIGKILL - 1) & 1)


class PidFile:
    """The file with the pid of a daemon, locked while the daemon runs. The lock, not the pid, shows that it runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def lock(self) -> bool:
        """Lock the file and write our pid. Return False if a daemon holds the lock. Raises OSError.

        Wait for a daemon that was killed and is ending, and for processes that only read the file. A process that holds
        the lock after ``LEAVING_SECONDS`` is not a daemon, since every reader of a file can lock it: replace the file.
        """
        if (kept := self._kept()) is not None:
            self._file = kept
            return True
        give_up = time.monotonic() + LEAVING_SECONDS
        while (file := self._locked()) is None:
            pid = self.holder()
            if pid is not None and not is_ending(pid):
                return False
            if time.monotonic() > give_up:
                self._path.unlink(missing_ok=True)
            time.sleep(_HOLDER_LOOK)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file
        return True

    def keep_over_exec(self) -> None:
        """Keep the lock while this process executes its program again."""
        if self._file is not None:
            os.set_inheritable(self._file.fileno(), True)
            os.environ[PID_FILE_LOCK] = str(self._file.fileno())

    def _kept(self) -> IO[str] | None:
        """Return the file that this process has locked before it executed its program again, None if there is none."""
        number = os.environ.pop(PID_FILE_LOCK, "")
        with suppress(OSError):
            if number.isdecimal() and os.path.samestat(os.fstat(int(number)), self._path.stat()):
                os.set_inheritable(int(number), False)
                return os.fdopen(int(number), "a+", encoding="ascii")
        return None

    def _locked(self) -> IO[str] | None:
        """Return the file with our lock, None if another process has locked it or has just removed it."""
        file = self._path.open("a+", encoding="ascii")
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), self._path.stat()):
                return file
        file.close()
        return None

    def holder(self) -> int | None:
        """Return the pid of the daemon, None if none runs. Raises OSError, but not for a missing file."""
        try:
            with self._path.open(encoding="ascii") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    text = file.read().strip()
                    return int(text) if text.isdecimal() else None
        except FileNotFoundError:
            return None
        return None

    def release(self) -> None:
        """Remove the file and release the lock."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            self._file.close()
            self._file = None


# -- systemd ----------------------------------------------------------------------------------------------------------


class ServiceManager:
    """systemd, if it started this process: one datagram per message (sd_notify)."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        microseconds = environment.get("WATCHDOG_USEC", "")
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        #: Seconds between two signs of life; None: not asked for.
        self.watchdog_period = int(microseconds) / 2e6 if microseconds.isdecimal() and is_for_us else None

    def ready(self) -> None:
        """Report that the service is up."""
        self._tell("READY=1")

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._tell("STOPPING=1")

    def status(self, text: str) -> None:
        """Report a line for systemctl status."""
        self._tell(f"STATUS={' '.join(text.split())}")

    def alive(self) -> None:
        """Send a watchdog message."""
        self._tell("WATCHDOG=1")

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagram, suppress(OSError):
            datagram.setblocking(False)
            datagram.sendto(text.encode(), address)

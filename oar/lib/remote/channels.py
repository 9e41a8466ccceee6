"""A channel to a node: bytes to and from one session, over paramiko, ssh, or a local process."""

import contextlib
import os
import select
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import paramiko

READ_SIZE = 1 << 16
STDERR_KEPT = 4096


class ChannelLost(Exception):
    """The channel is broken; the message contains the reason."""


class SessionChannel(Protocol):
    """A started session. ``read`` never blocks; it is called when ``fileno`` is readable."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when data is available."""

    def read(self) -> bytes | None:
        """Return the available data, None if there is none now, ``b""`` at the end."""

    def write(self, data: bytes, seconds: float) -> None:
        """Send all data within ``seconds`` seconds. Raises ChannelLost."""

    def close(self) -> None:
        """End the session and close its descriptors."""

    def closing_report(self) -> tuple[int | None, str]:
        """Return the exit status (if known) and the end of standard error, of a session that has ended."""


class ProcessChannel:
    """A session over a child process: ``ssh`` or, in tests, the interpreter itself."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process = process
        self._stdin = process.stdin.fileno()
        self._stdout = process.stdout.fileno()
        self._stderr = process.stderr.fileno()
        self._stderr_tail = b""
        for descriptor in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        return self._stdout

    def read(self) -> bytes | None:
        self._drain_stderr()
        try:
            return os.read(self._stdout, READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def write(self, data: bytes, seconds: float) -> None:
        limit = time.monotonic() + seconds
        remaining_data = memoryview(data)
        while remaining_data:
            try:
                remaining_data = remaining_data[os.write(self._stdin, remaining_data) :]
            except BlockingIOError:
                if not self._wait_until_writable(limit - time.monotonic()):
                    raise ChannelLost("the node takes no data") from None
            except (OSError, ValueError) as error:
                raise ChannelLost(f"connection lost: {error}") from None

    def _wait_until_writable(self, seconds: float) -> bool:
        space = select.poll()
        space.register(self._stdin, select.POLLOUT)
        return seconds > 0 and bool(space.poll(1000 * seconds))

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._drain_stderr()
        with contextlib.suppress(OSError):
            self._process.stderr.close()  # type: ignore[union-attr]

    def closing_report(self) -> tuple[int | None, str]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        self._drain_stderr()
        return self._process.poll(), self._stderr_tail.decode("utf-8", "replace").strip()

    def _drain_stderr(self) -> None:
        with contextlib.suppress(OSError):
            while block := os.read(self._stderr, READ_SIZE):
                self._stderr_tail = (self._stderr_tail + block)[-STDERR_KEPT:]


class ParamikoChannel:
    """A session in a channel of a paramiko connection, which it owns."""

    def __init__(self, transport: "paramiko.Transport", channel: "paramiko.Channel") -> None:
        self._transport = transport
        self._channel = channel
        self._descriptor = channel.fileno()

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bytes | None:
        if self._channel.recv_ready():
            return self._channel.recv(READ_SIZE)
        ended = self._channel.closed or self._channel.eof_received or not self._transport.is_active()
        return b"" if ended and not self._channel.recv_ready() else None

    def write(self, data: bytes, seconds: float) -> None:
        try:
            self._channel.settimeout(seconds)
            self._channel.sendall(data)
        except (OSError, EOFError) as error:
            raise ChannelLost(f"connection lost: {error or type(error).__name__}") from None

    def close(self) -> None:
        """Break the connection without waiting. Paramiko's own thread detects it, cleans up and ends."""
        with contextlib.suppress(OSError):
            self._transport.sock.shutdown(socket.SHUT_RDWR)

    def closing_report(self) -> tuple[int | None, str]:
        stderr = b""
        while self._channel.recv_stderr_ready() and len(stderr) < STDERR_KEPT:
            stderr += self._channel.recv_stderr(STDERR_KEPT)
        status = self._channel.recv_exit_status() if self._channel.status_event.wait(0.5) else None
        return status, stderr.decode("utf-8", "replace").strip()

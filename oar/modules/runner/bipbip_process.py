"""A bipbip from the point of view of the Runner: a child process and the pipes to it."""

import contextlib
import os
import subprocess
import sys

from oar.modules.runner import protocol

#: A bipbip that was told to end has so long to do so.
END_SECONDS = 4.0


class BipbipProcess:
    """A bipbip and the pipes to it. It can be polled: it is ready when it has written or has ended."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", "oar.modules.runner.bipbip", "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._answers = self._process.stdout
        os.set_blocking(self._answers.fileno(), False)
        self._partial = b""

    def fileno(self) -> int:
        """Return the file descriptor of its answers."""
        return self._answers.fileno()

    def write(self, message: protocol.PipeMessage) -> bool:
        """Send a message. Return False if the bipbip no longer reads."""
        try:
            self._requests.write(protocol.encode(message))
            self._requests.flush()
        except OSError:
            return False
        return True

    def read(self) -> tuple[list[protocol.PipeMessage], bool]:
        """Return the messages from the bipbip, and whether it still runs."""
        data = self._answers.read(1 << 20)
        if data is None:
            return [], True
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [protocol.decode(line) for line in lines], data != b""

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Close the pipe to the bipbip, so that it ends."""
        with contextlib.suppress(OSError):  # it ended before it had read everything
            self._requests.close()

    def close(self) -> None:
        """Wait for its end, kill it after END_SECONDS, and reap it."""
        self.end()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

"""A person at a terminal: a real one, in which keys are pressed and on which text appears."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from types import TracebackType

from tests.acceptance.harness import PATIENCE, TOOL, Person

INTERRUPT, SUSPEND, END_OF_FILE = "\x03", "\x1a", "\x04"


def _in_a_new_window() -> None:
    """Have the terminal, and end with it, though whoever started the tests may be deaf to its end (nohup)."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Terminal:
    """One terminal and the command that was typed in it; ``text`` is all that has appeared."""

    def __init__(self, person: Person, command: str, env: Mapping[str, str] | None = None) -> None:
        """Type a command as somebody, in a terminal of 24 lines and 80 columns."""
        settings = [word for name, value in (env or {}).items() for word in ("--env", f"{name}={value}")]
        words = [str(TOOL), "--room", person.room, "run", "--on", person.machine, *settings, person.name, command]
        self._end, slave = pty.openpty()
        self.resize(24, 80)
        self._process = subprocess.Popen(
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_in_a_new_window,  # noqa: PLW1509 - nothing else runs here
        )
        os.close(slave)
        self.text = ""
        self._read = 0

    def press(self, text: str) -> None:
        """Press keys."""
        os.write(self._end, text.encode())

    def say(self, line: str) -> None:
        """Type a line and press return."""
        self.press(f"{line}\r")

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until this appears behind what was expected before; fail when patience ends."""
        end = time.monotonic() + PATIENCE
        while not (found := re.compile(pattern).search(self.text, self._read)):
            if not self._look(end - time.monotonic()):
                raise AssertionError(f"{pattern!r} has not appeared in:\n{self.text}")
        self._read = found.end()
        return found

    def resize(self, lines: int, columns: int) -> None:
        """Give the window another size."""
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def close(self) -> None:
        """Close the window, whatever runs in it."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def exit(self) -> int:
        """Wait for the end of the command; its exit code."""
        end = time.monotonic() + PATIENCE
        while self._end >= 0 and self._look(end - time.monotonic()):
            pass
        return self._process.wait(max(0.1, end - time.monotonic()))

    def _look(self, seconds: float) -> bool:
        """Take what appears within this time; whether anything did, or still can."""
        if not select.select([self._end], [], [], max(0.0, seconds))[0]:
            return False
        try:
            shown = os.read(self._end, 65536)
        except OSError:  # nobody has the terminal open any more
            return False
        self.text += shown.decode(errors="replace").replace("\r\n", "\n")
        return bool(shown)

    def __enter__(self) -> Terminal:
        """Nothing is to be done."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the window; nothing of it goes on."""
        self.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()

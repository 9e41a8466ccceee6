"""Runs a program that may take as long as it needs, but not stand still: one that prints nothing for long is ended."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PIECE = 65536
#: So much of the end of the output is kept.
_TAIL = 4096
#: So many seconds has a program to end when it is asked to.
_GRACE = 10.0
#: Seconds of one look at its output: silence is counted in looks, for a machine may stand still with all that runs.
_LOOK = 1.0


@dataclass(frozen=True)
class End:
    """How a program ended: its exit code, its last line that says something, whether it was ended for its silence."""

    code: int
    last_line: str
    stood_still: bool = False
    tail: str = field(default="", compare=False)  #: the end of its output


def run(program: Sequence[str], directory: Path, environment: Mapping[str, str], silence: float) -> End:
    """Run a program in a session of its own and pass on what it prints.

    If it prints nothing for `silence` seconds, it is ended with all that it started.
    """
    process = subprocess.Popen(
        program,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    before = signal.signal(signal.SIGCHLD, lambda *_: _bury_orphans(process.pid))
    try:
        with process.stdout as output, _handle_of(process.pid) as ended:
            try:
                tail, stood_still = _pass_on(output.fileno(), ended, silence)
            except BaseException:
                _end_group(process.pid, ended)
                raise
            if stood_still:
                _end_group(process.pid, ended)
            text = tail.decode(errors="replace")
            return End(process.wait(), _last_line(text), stood_still, text)
    finally:
        signal.signal(signal.SIGCHLD, before)


@contextlib.contextmanager
def _handle_of(pid: int) -> Iterator[int]:
    """A descriptor that can be read once the process has ended."""
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)


def _pass_on(output: int, ended: int, silence: float) -> tuple[bytes, bool]:
    """Pass on the output until the program ends; the end of the output, and whether the program stood still.

    The end of the output is not the program's: it may close it, and a child that stays behind may keep it open.
    """
    os.set_blocking(output, False)
    tail, left = b"", silence
    watched = [output, ended]
    while left > 0:
        ready = select.select(watched, [], [], min(_LOOK, left))[0]
        if not ready:
            left -= _LOOK
            continue
        piece = _read(output)
        if piece:
            _show(piece)
            tail, left = (tail + piece)[-_TAIL:], silence
        elif ended in ready:
            return tail, False
        elif piece is not None:
            watched = [ended]
    return tail, True


def _read(output: int) -> bytes | None:
    """What can be read now: nothing at the end of the output, None if there is only nothing yet."""
    try:
        return os.read(output, _PIECE)
    except BlockingIOError:
        return None


def _show(piece: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _last_line(tail: str) -> str:
    """The last line that says something, without the frame that pytest draws round it."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return re.sub(r"^=+ | =+$", "", lines[-1]) if lines else ""


def _bury_orphans(own: int) -> None:
    """Reap what tests leave behind, as the first process of a machine does (in containers often nobody does)."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


def _end_group(pid: int, ended: int) -> None:
    """End a program and all that it started in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)
        select.select([ended], [], [], _GRACE)
        os.killpg(pid, signal.SIGKILL)

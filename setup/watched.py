"""Runs a program without a time limit, but with a limit of silence: if it prints nothing for long, it is killed."""

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
#: Bytes of the end of the output that are kept.
_TAIL = 4096
#: Seconds between SIGTERM and SIGKILL.
_GRACE = 10.0
#: Seconds of one poll of the output. Silence is counted in polls, because the whole machine may be suspended.
_LOOK = 1.0


@dataclass(frozen=True)
class End:
    """Result of a program: exit code, last line with content, whether it was killed because of silence."""

    code: int
    last_line: str
    stood_still: bool = False
    tail: str = field(default="", compare=False)  #: end of its output


def run(program: Sequence[str], directory: Path, environment: Mapping[str, str], silence: float) -> End:
    """Run a program in its own session and pass on its output.

    If it prints nothing for `silence` seconds, it is killed with all processes of its session.
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
    """Provide a descriptor that becomes readable when the process ends; close it afterwards."""
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)


def _pass_on(output: int, ended: int, silence: float) -> tuple[bytes, bool]:
    """Pass on the output until the program ends; return the end of the output, and whether the program was silent.

    The end of the output is not the end of the program: it may close its output, or a child may keep it open.
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
    """Return the available output: empty at its end, None if there is none yet."""
    try:
        return os.read(output, _PIECE)
    except BlockingIOError:
        return None


def _show(piece: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _last_line(tail: str) -> str:
    """Return the last line with content, without the frame of pytest."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return re.sub(r"^=+ | =+$", "", lines[-1]) if lines else ""


def _bury_orphans(own: int) -> None:
    """Reap orphaned processes of tests, like an init process (containers often have none)."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


def _end_group(pid: int, ended: int) -> None:
    """Kill a program and all processes of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)
        select.select([ended], [], [], _GRACE)
        os.killpg(pid, signal.SIGKILL)

"""A bipbip from the point of view of the Runner: a child process, and the messages on the pipes to it.

A message is a line of JSON. The Runner sends actions and interruptions. A bipbip answers each action once, and forwards
the effects of its transactions.
"""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from oar.lib.bus import frames
from oar.lib.bus.messages import Effect
from oar.modules.runner.dispatch import Action, ActionKind

#: Time for a bipbip to end after a stop request, in seconds.
END_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class RunAction:
    """Request to a bipbip: carry out an action."""

    action: Action


@dataclass(frozen=True, slots=True)
class InterruptLaunch:
    """Notice to a bipbip: a job that is being launched has a kill request or a signal."""

    job_id: int


@dataclass(frozen=True, slots=True)
class WatchNodes:
    """Request to a bipbip: record the curves of the jobs on these nodes, and of no others."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActionEnded:
    """Answer to the Runner: an action has ended. With ``retry_after``, it must be repeated after that many seconds."""

    action: Action
    retry_after: float | None = None
    failed: bool = False


PipeMessage = RunAction | InterruptLaunch | WatchNodes | ActionEnded | Effect


def encode(message: PipeMessage) -> bytes:
    content: dict[str, object]
    match message:
        case RunAction():
            content = {"m": "DO"}
        case ActionEnded():
            content = {"m": "DID", "again": message.retry_after, "failed": message.failed}
        case InterruptLaunch(job_id):
            content = {"m": "INTERRUPT", "job_id": job_id}
        case WatchNodes(hosts):
            content = {"m": "WATCH", "hosts": hosts}
        case effect:
            return frames.encode(effect) + b"\n"
    if isinstance(message, RunAction | ActionEnded):
        action = message.action
        content |= {"kind": action.kind, "job_id": action.job_id, "host": action.host, "args": action.args}
        content["message"] = action.message
    return json.dumps(content).encode() + b"\n"


def decode(line: bytes) -> PipeMessage:
    """Return the message of a line. An invalid line is a bug in OAR, and raises an exception."""
    content = json.loads(line)
    match content["m"]:
        case "DO":
            return RunAction(_read_action(content))
        case "DID":
            return ActionEnded(_read_action(content), content["again"], content["failed"])
        case "INTERRUPT":
            return InterruptLaunch(content["job_id"])
        case "WATCH":
            return WatchNodes(tuple(content["hosts"]))
        case _:
            effect = frames.decode(line)
            assert isinstance(effect, Effect)
            return effect


def _read_action(content: dict[str, object]) -> Action:
    args, message = content["args"], content["message"]
    assert isinstance(args, list)
    assert isinstance(message, int)
    kind, job_id = ActionKind(str(content["kind"])), int(str(content["job_id"]))
    return Action(kind, job_id, str(content["host"]), tuple(args), message=message)


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

    def write(self, message: PipeMessage) -> bool:
        """Send a message. Return False if the bipbip no longer reads."""
        try:
            self._requests.write(encode(message))
            self._requests.flush()
        except OSError:
            return False
        return True

    def read(self) -> tuple[list[PipeMessage], bool]:
        """Return the messages from the bipbip, and whether it still runs."""
        data = self._answers.read(1 << 20)
        if data is None:
            return [], True
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [decode(line) for line in lines], data != b""

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

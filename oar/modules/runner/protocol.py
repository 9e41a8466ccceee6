"""Messages between the Runner and its bipbips: lines of JSON on the pipes between them.

The Runner sends actions and interruptions. A bipbip answers each action once, and forwards the effects of its
transactions.
"""

import json
from dataclasses import dataclass

from oar.lib.bus import frames
from oar.lib.bus.messages import Effect
from oar.modules.runner.dispatch import Action, ActionKind


@dataclass(frozen=True, slots=True)
class RunAction:
    """Request to a bipbip: carry out an action."""

    action: Action


@dataclass(frozen=True, slots=True)
class InterruptLaunch:
    """Notice to a bipbip: a job that is being launched has a kill request or a signal."""

    job_id: int


@dataclass(frozen=True, slots=True)
class ActionEnded:
    """Answer to the Runner: an action has ended. With ``retry_after``, it must be repeated after that many seconds."""

    action: Action
    retry_after: float | None = None
    failed: bool = False


PipeMessage = RunAction | InterruptLaunch | ActionEnded | Effect


def encode(message: PipeMessage) -> bytes:
    match message:
        case RunAction(action):
            content = {"m": "DO", **_action(action)}
        case ActionEnded(action, retry_after, failed):
            content = {"m": "DID", "again": retry_after, "failed": failed, **_action(action)}
        case InterruptLaunch(job_id):
            content = {"m": "INTERRUPT", "job_id": job_id}
        case effect:
            return frames.encode(effect) + b"\n"
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
        case _:
            effect = frames.decode(line)
            assert isinstance(effect, Effect)
            return effect


def _action(action: Action) -> dict[str, object]:
    return {"kind": action.kind, "job_id": action.job_id, "host": action.host, "args": action.args}


def _read_action(content: dict[str, object]) -> Action:
    args = content["args"]
    assert isinstance(args, list)
    return Action(ActionKind(str(content["kind"])), int(str(content["job_id"])), str(content["host"]), tuple(args))

"""The messages between the Runner and its bipbips: lines of JSON on the pipes between them.

The Runner sends actions and interruptions; a bipbip answers each action once, and passes on the effects that its
transactions leave.
"""

import json
from dataclasses import dataclass

from oar.lib.bus import frames
from oar.lib.bus.messages import Effect
from oar.modules.runner.dispatch import Action, ActionKind


@dataclass(frozen=True, slots=True)
class RunAction:
    """To a bipbip: carry out an action."""

    action: Action


@dataclass(frozen=True, slots=True)
class InterruptLaunch:
    """To a bipbip: the job whose launch is going on has a kill request or a signal."""

    job_id: int


@dataclass(frozen=True, slots=True)
class ActionEnded:
    """To the Runner: an action has ended.  ``retry_after``: it has to be repeated after so many seconds."""

    action: Action
    retry_after: float | None = None
    failed: bool = False


PipeMessage = RunAction | InterruptLaunch | ActionEnded | Effect


def encode(message: PipeMessage) -> bytes:
    """Return the line for a message."""
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
    """Return the message of a line.  Both ends are ours: a line that cannot be decoded is a bug and raises."""
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

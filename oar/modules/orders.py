"""What the Runner and its bipbips write to each other: lines of JSON on the pipes between them.

The Runner writes actions and interruptions; a bipbip answers each action once, and passes on the effects that its
transactions leave.
"""

import json
from dataclasses import dataclass

from oar.lib import frames
from oar.lib.messages import Effect
from oar.modules.dispatch import Action, Kind


@dataclass(frozen=True, slots=True)
class Do:
    """Carry out an action."""

    action: Action


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Somebody wants the job killed whose launch is going on."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Did:
    """An action is over: done (to be done again after ``again`` seconds, unless None), or it broke off."""

    action: Action
    again: float | None = None
    failed: bool = False


Order = Do | Interrupt | Did | Effect


def encode(order: Order) -> bytes:
    """Return one line."""
    match order:
        case Do(action):
            content = {"m": "DO", **_action(action)}
        case Did(action, again, failed):
            content = {"m": "DID", "again": again, "failed": failed, **_action(action)}
        case Interrupt(job_id):
            content = {"m": "INTERRUPT", "job_id": job_id}
        case effect:
            return frames.encode(effect) + b"\n"
    return json.dumps(content).encode() + b"\n"


def decode(line: bytes) -> Order:
    """Return what a line says.  Both ends are ours: what does not decode is a bug and raises."""
    content = json.loads(line)
    match content["m"]:
        case "DO":
            return Do(_read_action(content))
        case "DID":
            return Did(_read_action(content), content["again"], content["failed"])
        case "INTERRUPT":
            return Interrupt(content["job_id"])
        case _:
            effect = frames.decode(line)
            assert isinstance(effect, Effect)
            return effect


def _action(action: Action) -> dict[str, object]:
    return {"kind": action.kind, "job_id": action.job_id, "host": action.host, "args": action.args}


def _read_action(content: dict[str, object]) -> Action:
    args = content["args"]
    assert isinstance(args, list)
    return Action(Kind(str(content["kind"])), int(str(content["job_id"])), str(content["host"]), tuple(args))

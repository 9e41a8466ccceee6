"""The server: what it does, and what it is asked to look at.  What oarnotify does."""

from http import HTTPStatus

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from oar.api.answers.bodies import Answer, answer, answer_unless_known
from oar.api.routing.administrators import STRICT, administering, note
from oar.api.serving.service import asking
from oar.lib.facts import frames
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.messages import Wake
from oar.lib.io import control

router = APIRouter(prefix="/v1/server", tags=["administration"])


class ServerNotice(BaseModel):
    """What the server is told."""

    model_config = STRICT

    tag: str = Field("Term", max_length=255, description="What it is to look at, in the words of oarnotify.")
    wait: bool = Field(default=False, description="Answer when a round of scheduling that begins now has ended.")


@router.get("", operation_id="server", summary="What the server does")
def server_status(request: Request) -> Answer:
    """Return what `oarnotify --status` shows (administrators)."""
    who = asking(request)
    who.caller.administering()
    return answer_unless_known(request, control.status(who.config))


@router.post("/notices", operation_id="server_notify", summary="Ring the server", status_code=HTTPStatus.ACCEPTED)
def server_notify(request: Request, notice: ServerNotice | None = None) -> Answer:
    """Let the server look again, as `oarnotify` does (administrators); who cannot be reached is a warning."""
    tag = notice.tag if notice else "Term"
    effect = frames.effect_of(None if tag == "TERM" else tag)
    if effect is None:
        raise BadRequest(f"{tag!r} is no tag of the server")
    if notice and notice.wait and isinstance(effect, Wake):
        who = asking(request)
        user = who.caller.administering()
        control.await_round(who.config, effect)
        note(request, user)
        return answer({"done": "a round has ended", "warnings": []}, status=HTTPStatus.ACCEPTED)
    with administering(request) as act:
        act.tx.outbox.append(effect)
    return answer({"done": "told", "warnings": act.warnings}, status=HTTPStatus.ACCEPTED)

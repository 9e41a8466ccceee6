"""The server: what it does, and what it is asked to look at.  What oarnotify does."""

from http import HTTPStatus

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from oar.api.parameters import STRICT
from oar.api.responses import Answer, answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import administering, asking, note
from oar.lib.facts import frames
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.messages import Wake
from oar.lib.io import control

router = APIRouter(tags=["administration"], route_class=ApiRoute)


class ServerNotification(BaseModel):
    """Notification to the server."""

    model_config = STRICT

    tag: str = Field("Term", max_length=255, description="Tag of the notification, as with `oarnotify`.")
    wait: bool = Field(default=False, description="Wait for the end of a scheduling pass that starts now.")


@router.get("/v1/server", operation_id="server", summary="Server status")
def server_status(request: Request) -> Answer:
    """Return the status that `oarnotify --status` shows. Administrators only."""
    who = asking(request)
    who.caller.administering()
    return answer_unless_known(request, control.status(who.config))


@router.post(
    "/v1/server/notices", operation_id="server_notify", summary="Notify the server", status_code=HTTPStatus.ACCEPTED
)
def server_notify(request: Request, notice: ServerNotification | None = None) -> Answer:
    """Make the server check the database for work, as `oarnotify` does. An unreachable server is a warning.
    Administrators only.
    """
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

"""Administration: the state of the installation in one response, and notifications to the server (oarnotify)."""

from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from oar.api.parameters import STRICT
from oar.api.queues import queues_record
from oar.api.responses import Answer, answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, administering, asking, note
from oar.lib.base.errors import BadRequest
from oar.lib.base.version import VERSION
from oar.lib.bus import control_client, frames
from oar.lib.bus.frames import Status, StatusQuestion
from oar.lib.bus.messages import Wake

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["administration"], route_class=ApiRoute)

#: Seconds that the server has to say how it is; one that is down must not keep the page waiting.
PATIENCE = 2.0
#: Shown instead of the value of a secret key.
HIDDEN = "***"


@router.get("/v1/administration", operation_id="administration", summary="Installation overview")
def administration(request: Request) -> Answer:
    """Return versions, database figures, passes, modules, queues, rules and changed keys. Administrators only."""
    return answer_unless_known(request, administration_record(asking(request)))


def administration_record(who: Asking) -> dict[str, object]:
    """Return how the installation is; of a server that does not answer the parts are null.

    Raises Unidentified, NotAllowed.
    """
    who.caller.administering()
    status = control_client.ask(who.config, StatusQuestion(), Status, PATIENCE)
    state = status.state if isinstance(status, Status) else {}
    with who.database.snapshot() as tx:
        schema, last_round = tx.system.schema_version(), tx.usage.last_round()
        database = tx.figures.database_figures()._asdict()
        rules = _rules(tx) if who.config.api_admission_rules else None
    return {
        "versions": {"api": VERSION, "server": state.get("version"), "schema": schema and schema.revision},
        "database": database,
        "server": {name: state[name] for name in ("start", "ready", "runner")} if state else None,
        "modules": state.get("modules"),
        "rounds": {"last": last_round or None, "durations": state.get("rounds")},
        "queues": queues_record(who)["items"],
        "rules": rules,
        "keys": list(changed_keys(who.config)),
    }


def changed_keys(config: "Config") -> list[dict[str, str]]:
    """Return the keys of oar.conf whose values are not the defaults, as they are in effect here."""
    return [
        {
            "key": option.key,
            "value": HIDDEN if option.secret else option.text(value),
            "default": option.text(option.default),
            "meaning": option.doc,
        }
        for option in config.options()
        if (value := config.changed.get(option.name, option.default)) != option.default
    ]


def _rules(tx: "Transaction") -> list[dict[str, object]]:
    """Return the rules in execution order, each with its first line."""
    return [
        {"id": rule.id, "priority": rule.priority, "enabled": rule.enabled, "begins": rule.text.strip().split("\n")[0]}
        for rule in tx.admission_rules.all()
    ]


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
    return answer_unless_known(request, control_client.status(who.config))


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
        control_client.await_round(who.config, effect)
        note(request, user)
        return answer({"done": "a round has ended", "warnings": []}, status=HTTPStatus.ACCEPTED)
    with administering(request) as act:
        act.tx.outbox.append(effect)
    return answer({"done": "told", "warnings": act.warnings}, status=HTTPStatus.ACCEPTED)

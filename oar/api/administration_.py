"""How the installation is: what an administrator looks at first, in one answer."""

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request

from oar.api.queues import queues_record
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking
from oar.lib.facts.frames import Status, StatusQuestion
from oar.lib.facts.version import VERSION
from oar.lib.io import control

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["administration"], route_class=ApiRoute)

#: Seconds that the server has to say how it is; one that is down must not keep the page waiting.
PATIENCE = 2.0
#: What stands for the value of a key that nobody is to see.
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
    found = control.ask(who.config, StatusQuestion(), Status, PATIENCE)
    state = found.state if isinstance(found, Status) else {}
    with who.database.snapshot() as tx:
        schema, last_round = tx.schema_version.find(), tx.usage.last_round()
        database = tx.database_figures.find()._asdict()
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
    """Return the rules in the order in which they run, each by the first line that is written in it."""
    return [
        {"id": rule.id, "priority": rule.priority, "enabled": rule.enabled, "begins": rule.text.strip().split("\n")[0]}
        for rule in tx.admission_rules.all()
    ]

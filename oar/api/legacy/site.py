"""What administrators ask of the interfaces of OAR 2.5 and OAR 3: configuration, admission rules, all tables."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from oar.api.errors import STATUSES, bad_request_of
from oar.api.legacy.requests import LegacyCall, PageOf, Reply, is_on, link, number_of, segment, timed
from oar.api.node_changes import NewMachines
from oar.api.service import service_of
from oar.lib.base.errors import BadRequest, NotAllowed, UserError
from oar.lib.base.shell_words import shell_words
from oar.lib.db.user_sql import everything
from oar.lib.nodes import topology
from oar.lib.submission import rule_changes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.submission.sql_rules import AdmissionRule

_log = logging.getLogger(__name__)

#: Keys whose values are not told: passwords and what signs.
_SECRETS = re.compile(r"PASS|SECRET|KEY")
#: Options of oar_resources_add that clients write into ``resources``, and the fields that they mean.
_OPTIONS: Mapping[str, str] = {
    "-H": "hosts",
    "--hosts": "hosts",
    "-C": "cpus",
    "--cpus": "cpus",
    "-c": "cores",
    "--cores": "cores",
    "-t": "threads",
    "--threads": "threads",
    "-g": "gpus",
    "--gpus": "gpus",
    "--host-prefix": "prefix",
    "--host-suffix": "suffix",
}


class NoSuchKey(UserError):
    """There is no such key, or its value is told to nobody."""


STATUSES[NoSuchKey] = HTTPStatus.NOT_FOUND


def config_list(call: LegacyCall) -> Reply:
    """Return the configuration, without what is secret."""
    call.who.caller.administering()
    page, values = PageOf.of(call), _values(call.who.config)
    items = [_value(call, key, values[key]) for key in page.cut(sorted(values))]
    return Reply(page.collection(call, items, len(values)))


def config_one(call: LegacyCall, key: str) -> Reply:
    """Return the value of one key; ``file`` is the name of the file.  Raises NoSuchKey."""
    call.who.caller.administering()
    if key == "file":
        return Reply(timed({"file": service_of(call.request).runtime.conf_file}))
    values = _values(call.who.config)
    if key not in values:
        raise NoSuchKey(f"there is no key {key!r}, or its value is told to nobody")
    return Reply(timed(_value(call, key, values[key])))


def _values(config: "Config") -> dict[str, str]:
    return {
        option.key: option.text(config.changed.get(option.name, option.default))
        for option in config.options()
        if not (option.secret or _SECRETS.search(option.key))
    }


def _value(call: LegacyCall, key: str, value: str) -> dict[str, Any]:
    return {"id": key, "value": value, "links": [link("self", f"{call.prefix}/config/{segment(key)}")]}


# -- admission rules --------------------------------------------------------------------------------------------------


def rules_list(call: LegacyCall) -> Reply:
    """Return the admission rules."""
    _check_rules(call)
    page = PageOf.of(call)
    with call.who.database.snapshot() as tx:
        rules = tx.admission_rules.all()
    return Reply(page.collection(call, [_rule(call, each) for each in page.cut(rules)], len(rules)))


def rule_one(call: LegacyCall, rule_id: int) -> Reply:
    """Return an admission rule.  Raises NoSuchRule."""
    _check_rules(call)
    with call.who.database.snapshot() as tx:
        return Reply(timed(_rule(call, rule_changes.find(tx, min(rule_id, 2**31 - 1)))))


def rule_add(call: LegacyCall) -> Reply:
    """Add an admission rule."""
    _check_rules(call)
    user, values = call.who.caller.administering(), _rule_values(call.fields)
    if not values.get("text"):
        raise BadRequest("rule: the text of the rule is missing").of("rule")
    with call.who.database.begin() as tx:
        made = {"priority": 0, "enabled": True, **values}
        rule = rule_changes.find(tx, rule_changes.create(tx, user, **made))
    _noted(call, user.name)
    here = f"{call.prefix}/admission_rules/{rule.id}"
    return Reply(timed(_rule(call, rule)), HTTPStatus.CREATED, {"Location": here})


def rule_change(call: LegacyCall, rule_id: int) -> Reply:
    """Change an admission rule, or remove it with ``method``.  Raises NoSuchRule."""
    _check_rules(call)
    fields = call.fields
    if fields.get("method") == "delete":
        return rule_remove(call, rule_id)
    user = call.who.caller.administering()
    with call.who.database.begin() as tx:
        rule = rule_changes.modify(tx, user, min(rule_id, 2**31 - 1), **_rule_values(fields))
    _noted(call, user.name)
    return Reply(timed(_rule(call, rule)), HTTPStatus.CREATED)


def rule_remove(call: LegacyCall, rule_id: int) -> Reply:
    """Remove an admission rule.  Raises NoSuchRule."""
    _check_rules(call)
    user = call.who.caller.administering()
    with call.who.database.begin() as tx:
        rule_changes.delete(tx, user, min(rule_id, 2**31 - 1))
    _noted(call, user.name)
    return Reply(timed({"id": rule_id, "status": "deleted"}))


def _check_rules(call: LegacyCall) -> None:
    call.who.caller.administering()
    if not call.who.config.api_admission_rules:
        raise NotAllowed("the admission rules are not served here (API_ADMISSION_RULES)")


def _rule_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a body says of a rule; ``enalbed`` is how version 2.5 spelt it."""
    values: dict[str, Any] = {}
    if "rule" in fields:
        values["text"] = str(fields["rule"])
    if "priority" in fields:
        values["priority"] = number_of(str(fields["priority"]), "priority", largest=2**31 - 1)
    for name in ("enabled", "enalbed"):
        if name in fields:
            values["enabled"] = is_on(fields[name])
    return values


def _rule(call: LegacyCall, rule: "AdmissionRule") -> dict[str, Any]:
    return {
        "id": rule.id,
        "priority": rule.priority,
        "enabled": rule.enabled,
        "enalbed": rule.enabled,
        "rule": rule.text,
        "links": [link("self", f"{call.prefix}/admission_rules/{rule.id}")],
    }


# -- resources --------------------------------------------------------------------------------------------------------


def generate(call: LegacyCall) -> Reply:
    """Return the resources that ``oar_resources_add`` would create; nothing is created.  Raises BadRequest."""
    call.who.caller.administering()
    wish = _machines(call.fields)
    with call.who.database.snapshot() as tx:
        units = topology.units(wish.machines(tx))
    items = [{"network_address": unit.host, **dict(unit.properties), **wish.properties} for unit in units]
    return Reply(timed({"items": items, "total": len(items), "offset": 0, "links": []}))


def _machines(fields: Mapping[str, Any]) -> NewMachines:
    """Return the machines that a body describes: by fields, or in ``resources`` by options.  Raises BadRequest."""
    values = {name.replace("-", "_"): value for name, value in fields.items() if name != "resources"}
    values["number_on"] = is_on(values.pop("auto_offset", None))
    values |= _optional(str(fields.get("resources") or ""))
    properties = values.pop("properties", None) or {}
    try:
        given = json.loads(properties) if isinstance(properties, str) else properties
        return NewMachines.model_validate({**values, "properties": given}, strict=False)
    except ValidationError as error:
        raise bad_request_of(error.errors()) from None
    except ValueError:
        raise BadRequest("properties: this is no object of JSON").of("properties") from None


def _optional(text: str) -> dict[str, str]:
    """Return the fields that options on a line mean.  Raises BadRequest."""
    try:
        words = shell_words(text)
    except BadRequest as error:
        raise BadRequest(f"resources: {error}").of("resources") from None
    if len(words) % 2 or any(word not in _OPTIONS for word in words[::2]):
        raise BadRequest(f"resources: options with their values are taken: {', '.join(_OPTIONS)}").of("resources")
    return {_OPTIONS[name]: value for name, value in zip(words[::2], words[1::2], strict=True)}


# -- the whole database -----------------------------------------------------------------------------------------------


def select_all(call: LegacyCall) -> Reply:
    """Return the rows that ``SELECT *`` gives with what is behind it.  Raises NotAllowed, BadCondition."""
    call.who.caller.administering()
    if not call.who.config.api_select_all:
        raise NotAllowed("SQL of clients is not taken here (API_SELECT_ALL)")
    text = (call.text("query") or "").strip().strip('"')
    if not re.match(r"FROM\s", text, re.IGNORECASE):
        raise BadRequest("query: it begins with FROM, such as: FROM jobs WHERE state = 'Running'").of("query")
    page = PageOf.of(call)
    items: Sequence[Mapping[str, Any]] = everything(call.who.database, text, page.limit, page.offset)
    return Reply(page.collection(call, items, page.offset + len(items)))


def _noted(call: LegacyCall, user: str) -> None:
    request = call.request
    _log.info("[admin] user=%s request=%s %s %s", user, request.state.request_id, call.method, request.url.path)

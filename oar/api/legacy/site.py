"""Operations on the site: versions, tokens, queues, stress factor, configuration, admission rules, SQL."""

import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from oar.api.authentication import Way, make_signed_token, outer_path
from oar.api.errors import TooMany
from oar.api.legacy.requests import (
    LegacyRequest,
    NoSuchAddress,
    NoSuchKey,
    ResponseFormat,
    is_on,
    parse_number,
    requested_format,
    segment,
)
from oar.api.legacy.responses import Page, Reply, link, list_reply, plain_list, timed
from oar.lib.access import tokens
from oar.lib.base.errors import BadRequest, NotAllowed
from oar.lib.base.version import VERSION
from oar.lib.db.user_sql import everything
from oar.lib.submission import rule_changes

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.config.files import Config
    from oar.lib.submission.sql_admission import AdmissionRule

_log = logging.getLogger(__name__)

#: Version of the REST API of OAR 2.5 that clients expect.
API_VERSION = "1.0.3"
#: Time limit of the site's script in seconds, and the time for which its output is kept.
STRESS_SECONDS = 10.0
_COLLECTIONS = (
    *("resources", "jobs", "config", "admission_rules", "accounting", "queues"),
    *("version", "whoami", "timezone"),
)
#: Keys of oar.conf whose values are secret.
_SECRETS = re.compile(r"PASS|SECRET|KEY")
_LARGEST_RULE_ID = 2**31 - 1


# -- general ----------------------------------------------------------------------------------------------------------


def index(request: LegacyRequest) -> Reply:
    """Return the versions and the collections. A browser at ``/`` is redirected to the web pages."""
    if not request.address.prefix and requested_format(request.http, request.address) is ResponseFormat.HTML:
        root = outer_path(request.http, request.config)
        return Reply({}, HTTPStatus.FOUND, {"Location": f"{root}/ui/" if root else "ui/"})
    links = [link("self", f"{request.prefix}/")]
    links += [link("collection", f"{request.prefix}/{name}", name) for name in _COLLECTIONS]
    return Reply(timed(_versions(), links))


def version(_: LegacyRequest) -> Reply:
    """Return the versions."""
    return Reply(timed(_versions()))


def _versions() -> dict[str, str]:
    names = ("oar_version", "oar_server_version", "oar_lib_version")
    api = dict.fromkeys(("api_version", "apilib_version"), API_VERSION)
    return {**dict.fromkeys(names, VERSION), **api, "api_timezone": time.tzname[0]}


def whoami(request: LegacyRequest) -> Reply:
    """Return the name of the user; '' for an anonymous request."""
    user = request.caller.user
    return Reply(timed({"authenticated_user": user.name if user else ""}))


def timezone(_: LegacyRequest) -> Reply:
    """Return the time zone of the site."""
    return Reply(timed({"timezone": time.tzname[0], "api_timezone": time.tzname[0]}))


def check_token(request: LegacyRequest) -> Reply:
    """Return the owner of the token."""
    user, is_token = request.caller.identified(), request.caller.way is Way.TOKEN
    return Reply(timed({"user": user.name, "auth": "Token valid" if is_token else "No token"}))


def get_new_token(request: LegacyRequest) -> Reply:
    """Create a token; a signed token if the site has a key for signatures (API_SECRET_KEY)."""
    config, user = request.config, request.caller.creating_tokens()
    token = make_signed_token(user.name, config, datetime.now())
    if token is None:
        with request.database.begin() as tx:
            _, token = tokens.create(tx, user, days=tokens.days_of(None, config), comment="get_new_token")
    return Reply(timed({"OAR_API_TOKEN": token}), headers={"Cache-Control": "no-store"})


def queues(request: LegacyRequest) -> Reply:
    """Return the queues."""
    with request.database.snapshot() as tx:
        rows = tx.queues.all()
    items = [
        {"name": queue.name, "priority": queue.priority, "scheduler_policy": queue.policy, "state": queue.state}
        for queue in rows
    ]
    return Reply(plain_list(items))


class StressScript:
    """The site's script API_STRESS_FACTOR_SCRIPT and its last output. One process runs at a time."""

    def __init__(self) -> None:
        self._factors: dict[str, str] | None = None
        self._until = 0.0
        self._running = threading.Lock()

    def factors(self, path: str) -> dict[str, str]:
        """Return the lines ``KEY=VALUE`` of the output, of the last run while the script runs.  Raises TooMany."""
        if (self._factors is None or time.monotonic() > self._until) and self._running.acquire(blocking=False):
            try:
                self._factors = self._run(path)
                self._until = time.monotonic() + STRESS_SECONDS
            finally:
                self._running.release()
        if self._factors is None:
            raise TooMany("API_STRESS_FACTOR_SCRIPT has printed nothing yet. Try again.")
        return self._factors

    def _run(self, path: str) -> dict[str, str]:
        nothing = subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                [path], stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, start_new_session=True
            )
        except OSError:
            return {}
        with process:
            try:
                output, _ = process.communicate(timeout=STRESS_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with all processes that it has started
                return {}
        lines = (line.partition("=") for line in output.decode(errors="replace").splitlines())
        return {name.strip(): value.strip() for name, equals, value in lines if equals}


_stress_script = StressScript()


def stress_factor(request: LegacyRequest) -> Reply:
    """Return the load of the site, from its script."""
    factors = _stress_script.factors(request.config.api_stress_factor_script)
    if "GLOBAL_STRESS" not in factors:
        raise NoSuchAddress("Unable to retrieve STRESS_FACTOR: API_STRESS_FACTOR_SCRIPT does not print GLOBAL_STRESS")
    return Reply(timed(factors))


# -- configuration ----------------------------------------------------------------------------------------------------


def list_config(request: LegacyRequest) -> Reply:
    """Return the configuration without secrets."""
    request.caller.administering()
    values = _public_values(request.config)
    return list_reply(request, sorted(values), lambda key: _config_item(request, key, values[key]))


def show_config(request: LegacyRequest, key: str) -> Reply:
    """Return the value of a key of oar.conf; for ``file`` the name of the file."""
    request.caller.administering()
    if key == "file":
        return Reply(timed({"file": request.service.runtime.conf_file}))
    values = _public_values(request.config)
    if key not in values:
        raise NoSuchKey(f"there is no key {key!r}, or its value is secret")
    return Reply(timed(_config_item(request, key, values[key])))


def _public_values(config: "Config") -> dict[str, str]:
    return {
        option.key: option.text(config.changed.get(option.name, option.default))
        for option in config.options()
        if not (option.secret or _SECRETS.search(option.key))
    }


def _config_item(request: LegacyRequest, key: str, value: str) -> dict[str, Any]:
    return {"id": key, "value": value, "links": [link("self", f"{request.prefix}/config/{segment(key)}")]}


# -- admission rules --------------------------------------------------------------------------------------------------


def list_rules(request: LegacyRequest) -> Reply:
    """Return the admission rules."""
    _require_rules(request)
    with request.database.snapshot() as tx:
        rules = tx.admission_rules.all()
    return list_reply(request, rules, lambda rule: _rule_item(request, rule))


def show_rule(request: LegacyRequest, rule_id: int) -> Reply:
    """Return an admission rule."""
    _require_rules(request)
    with request.database.snapshot() as tx:
        return Reply(timed(_rule_item(request, rule_changes.find(tx, min(rule_id, _LARGEST_RULE_ID)))))


def add_rule(request: LegacyRequest) -> Reply:
    """Create an admission rule."""
    user, values = _require_rules(request), _rule_values(request.fields)
    if not values.get("text"):
        raise BadRequest("rule: the text of the rule is missing").of("rule")
    with request.database.begin() as tx:
        created = {"priority": 0, "enabled": True, **values}
        rule = rule_changes.find(tx, rule_changes.create(tx, user, **created))
    _log_change(request, user)
    location = f"{request.prefix}/admission_rules/{rule.id}"
    return Reply(timed(_rule_item(request, rule)), HTTPStatus.CREATED, {"Location": location})


def change_rule(request: LegacyRequest, rule_id: int) -> Reply:
    """Update an admission rule; with ``method`` = ``delete`` delete it."""
    user, fields = _require_rules(request), request.fields
    if fields.get("method") == "delete":
        return remove_rule(request, rule_id)
    with request.database.begin() as tx:
        rule = rule_changes.modify(tx, user, min(rule_id, _LARGEST_RULE_ID), **_rule_values(fields))
    _log_change(request, user)
    return Reply(timed(_rule_item(request, rule)), HTTPStatus.CREATED)


def remove_rule(request: LegacyRequest, rule_id: int) -> Reply:
    """Delete an admission rule."""
    user = _require_rules(request)
    with request.database.begin() as tx:
        rule_changes.delete(tx, user, min(rule_id, _LARGEST_RULE_ID))
    _log_change(request, user)
    return Reply(timed({"id": rule_id, "status": "deleted"}))


def _require_rules(request: LegacyRequest) -> "User":
    """Return the administrator who may read and change admission rules.  Raises Unidentified, NotAllowed."""
    user = request.caller.administering()
    if not request.config.api_admission_rules:
        raise NotAllowed("this site does not serve admission rules (API_ADMISSION_RULES)")
    return user


def _rule_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a rule in a body; ``enalbed`` is the spelling of OAR 2.5."""
    values: dict[str, Any] = {}
    if "rule" in fields:
        values["text"] = str(fields["rule"])
    if "priority" in fields:
        values["priority"] = parse_number(str(fields["priority"]), "priority", largest=2**31 - 1)
    for name in ("enabled", "enalbed"):
        if name in fields:
            values["enabled"] = is_on(fields[name])
    return values


def _rule_item(request: LegacyRequest, rule: "AdmissionRule") -> dict[str, Any]:
    return {
        "id": rule.id,
        "priority": rule.priority,
        "enabled": rule.enabled,
        "enalbed": rule.enabled,
        "rule": rule.text,
        "links": [link("self", f"{request.prefix}/admission_rules/{rule.id}")],
    }


def _log_change(request: LegacyRequest, user: "User") -> None:
    request_id, path = request.http.state.request_id, request.http.url.path
    _log.info("[admin] user=%s request=%s %s %s", user.name, request_id, request.method, path)


# -- SQL --------------------------------------------------------------------------------------------------------------


def select_all(request: LegacyRequest) -> Reply:
    """Return the rows of ``SELECT *`` with the FROM clause in ``query``."""
    request.caller.administering()
    if not request.config.api_select_all:
        raise NotAllowed("SQL of clients is disabled (API_SELECT_ALL)")
    text = (request.text("query") or "").strip().strip('"')
    if not re.match(r"FROM\s", text, re.IGNORECASE):
        raise BadRequest("query: must begin with FROM, such as: FROM jobs WHERE state = 'Running'").of("query")
    page = Page.of(request)
    items = everything(request.database, text, page.limit, page.offset)
    return Reply(page.collection(request, items, page.offset + len(items)))

"""Administration: the state of the installation, notifications to the server (oarnotify), admission rules, usersets."""

import pwd
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

from pydantic import BaseModel, Field
from starlette.requests import Request
from typing_extensions import TypeAliasType, TypedDict

from oar.api.job_request import AskedJobs, JobRequest
from oar.api.parameters import PRINTABLE, STRICT, Force, IfMatch, Text
from oar.api.queues import queue_items
from oar.api.records import Queue, Result
from oar.api.responses import Answer, created
from oar.api.routing import Router
from oar.api.service import AdminAct, Asking, administering, asking, check_seen, note, service_of, version_of_values
from oar.api.submission import proposal_of
from oar.api.workers import Desk, Outcome, answer_of, text_of
from oar.lib.access import userset_changes
from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest, NotAllowed
from oar.lib.base.version import VERSION
from oar.lib.bus import control_client, frames
from oar.lib.bus.frames import Status, StatusQuestion
from oar.lib.bus.messages import Wake
from oar.lib.submission import admission, admission_rules, rule_changes
from oar.lib.submission.resource_request import texts_of
from oar.lib.submission.sql_admission import AdmissionRule

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction


router = Router("administration")


Versions = TypedDict("Versions", {"api": str, "server": str | None, "schema": str | None})


class DatabaseState(TypedDict):
    postgresql: str
    size: int
    connections: int
    most_connections: int


ServerStatus = TypeAliasType("ServerStatus", dict[str, Any])
ModuleStatus = TypeAliasType("ModuleStatus", dict[str, Any])
Modules = TypeAliasType("Modules", dict[str, ModuleStatus])
Durations = TypeAliasType("Durations", dict[str, Any])


SchedulingStatus = TypedDict("SchedulingStatus", {"last": int | None, "durations": Durations | None})
RuleSummary = TypedDict("RuleSummary", {"id": int, "priority": int, "enabled": bool, "begins": str})
ConfigurationKey = TypedDict("ConfigurationKey", {"key": str, "value": str, "default": str, "meaning": str})


class Administration(TypedDict):
    versions: Versions
    database: DatabaseState
    server: ServerStatus | None
    modules: Modules | None
    rounds: SchedulingStatus
    queues: list[Queue]
    rules: list[RuleSummary] | None
    keys: list[ConfigurationKey]


#: Seconds that the server has to say how it is; one that is down must not keep the page waiting.
PATIENCE = 2.0
#: Shown instead of the value of a secret key.
HIDDEN = "***"


@router.get("/v1/administration", "administration", "Installation overview")
def administration(request: Request) -> Administration:
    """Return versions, database figures, passes, modules, queues, rules and changed keys. Administrators only."""
    return administration_record(asking(request))


def administration_record(who: Asking) -> Administration:
    """Return how the installation is; of a server that does not answer the parts are null.

    Raises Unidentified, NotAllowed.
    """
    who.caller.administering()
    status = control_client.ask(who.config, StatusQuestion(), Status, PATIENCE)
    state = status.state if isinstance(status, Status) else {}
    with who.database.snapshot() as tx:
        schema, last_round = tx.system.schema_version(), tx.usage.last_round()
        database = cast("DatabaseState", tx.figures.database_figures()._asdict())
        rules = _rules(tx) if who.config.api_admission_rules else None
    return {
        "versions": {"api": VERSION, "server": state.get("version"), "schema": schema and schema.revision},
        "database": database,
        "server": {name: state[name] for name in ("start", "ready", "runner")} if state else None,
        "modules": state.get("modules"),
        "rounds": {"last": last_round or None, "durations": state.get("rounds")},
        "queues": queue_items(who),
        "rules": rules,
        "keys": list(changed_keys(who.config)),
    }


def changed_keys(config: "Config") -> list[ConfigurationKey]:
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


def _rules(tx: "Transaction") -> list[RuleSummary]:
    return [
        {"id": rule.id, "priority": rule.priority, "enabled": rule.enabled, "begins": rule.text.strip().split("\n")[0]}
        for rule in tx.admission_rules.all()
    ]


class ServerNotification(BaseModel):
    """Notification to the server."""

    model_config = STRICT

    tag: str = Field("Term", max_length=255, description="Tag of the notification, as with `oarnotify`.")
    wait: bool = Field(default=False, description="Wait for the end of a scheduling pass that starts now.")


@router.get("/v1/server", "server", "Server status")
def server_status(request: Request) -> ServerStatus:
    """Return the status that `oarnotify --status` shows. Administrators only."""
    who = asking(request)
    who.caller.administering()
    return control_client.status(who.config)


@router.post("/v1/server/notices", "server_notify", "Notify the server", status=HTTPStatus.ACCEPTED)
def server_notify(request: Request, notice: ServerNotification | None = None) -> Result:
    """Make the server check the database for work, as `oarnotify` does. An unreachable server is a warning.
    Administrators only.
    """
    tag = notice.tag if notice else "Term"
    effect = frames.effect_of(None if tag == "TERM" else tag)
    if effect is None:
        raise BadRequest(f"tag: {tag!r} is not a tag of the server")
    if notice and notice.wait and isinstance(effect, Wake):
        who = asking(request)
        user = who.caller.administering()
        control_client.await_round(who.config, effect)
        note(request, user)
        return {"done": "a round has ended", "warnings": []}
    with administering(request) as act:
        act.tx.outbox.append(effect)
    return {"done": "told", "warnings": act.warnings}


Rule = TypedDict("Rule", {"id": int, "priority": int, "enabled": bool, "text": str, "version": str})
RulePage = TypedDict("RulePage", {"items": list[Rule]})
RuleVersion = TypedDict("RuleVersion", {"date": int, "author": str, "done": str, "text_before": str})


class RuleWithHistory(Rule):
    trouble: str | None
    history: list[RuleVersion]


DeletedRule = TypedDict("DeletedRule", {"id": int, "done": str})


class RuleTestResult(TypedDict):
    user: str
    queue: str
    project: str
    name: str | None
    types: list[str]
    properties: str | None
    resources_asked: list[str]
    resources: int
    output: str


RuleId = Annotated[int, Field(ge=1, le=2**31 - 1, description="Rule id.")]
Priority = Annotated[int, Field(ge=0, le=2**31 - 1, description="Priority; rules run in ascending order.")]
Forced = Annotated[bool, Field(description="Store a rule that does not compile, disabled.")]


class NewRule(BaseModel):
    """A new admission rule."""

    model_config = STRICT

    text: Text = Field(min_length=1, description="Rule text, in Python.")
    priority: Priority = 0
    enabled: bool = Field(default=True, description="Whether the rule is enabled.")
    force: Forced = False


class RuleUpdate(BaseModel):
    """New values of a rule. Fields that are not given are kept."""

    model_config = STRICT

    text: Text | None = Field(None, min_length=1, description="Rule text, in Python.")
    priority: Priority | None = Field(None, description="Priority; rules run in ascending order.")
    enabled: bool | None = Field(None, description="Whether the rule is enabled.")
    force: Forced = False


class RuleTest(BaseModel):
    """A job to run the rules on."""

    model_config = STRICT

    job: JobRequest
    user: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="User who submits the job; default: the caller."
    )


class TryRules(NamedTuple):
    """The task to run the rules on a job; nothing is stored."""

    user: User
    asked: AskedJobs

    def run(self, desk: Desk) -> Outcome:
        """Run them.  Raises UserError, Unavailable."""
        admitted = admission.rehearse(desk.database, desk.config, proposal_of(desk, self.user, self.asked))
        proposal = admitted.proposal
        record = {
            "user": proposal.spec.user,
            "queue": proposal.spec.queue,
            "project": proposal.spec.project,
            "name": proposal.spec.name,
            "types": list(proposal.spec.types),
            "properties": proposal.spec.properties,
            "resources_asked": texts_of(proposal.requests),
            "resources": admitted.size,
            "output": text_of(admitted.output),
        }
        return Outcome(HTTPStatus.OK, record)


@router.get("/v1/admission-rules", "rules_list", "List admission rules")
def rules_list(request: Request) -> RulePage:
    """Return the rules in execution order. Administrators only."""
    return rules_record(asking(request))


def rules_record(who: Asking) -> RulePage:
    """Return the rules.  Raises Unidentified, NotAllowed."""
    _check_reading(who)
    with who.database.snapshot() as tx:
        return {"items": [_rule_item(rule) for rule in tx.admission_rules.all()]}


@router.get("/v1/admission-rules/{rule_id}", "rule", "Get an admission rule")
def get_rule(request: Request, rule_id: RuleId) -> RuleWithHistory:
    """Return a rule, its compile error if it has one, and its earlier versions. Administrators only."""
    who = asking(request)
    _check_reading(who)
    with who.database.snapshot() as tx:
        rule = rule_changes.find(tx, rule_id)
        history: list[RuleVersion] = [
            {"date": date, "author": author, "done": action, "text_before": text}
            for date, author, action, text in tx.admission_rules.history(rule_id)
        ]
    trouble = admission_rules.explain_bad_text(rule.id, rule.text)
    return {**_rule_item(rule), "trouble": trouble, "history": history}


@router.post(
    "/v1/admission-rules",
    "rule_add",
    "Create an admission rule",
    status=HTTPStatus.CREATED,
    record=Rule,
    has_location=True,
)
def rule_add(request: Request, body: NewRule) -> Answer:
    """Create a rule, as `oaradmissionrules -n` does. Administrators only."""
    with _changing(request) as act:
        rule_id = rule_changes.create(
            act.tx, act.user, body.text, priority=body.priority, enabled=body.enabled, force=body.force
        )
        rule = rule_changes.find(act.tx, rule_id)
    return created(_rule_item(rule), "admission-rules", rule.id)


@router.patch("/v1/admission-rules/{rule_id}", "rule_change", "Update an admission rule")
def rule_change(request: Request, rule_id: RuleId, body: RuleUpdate, match: IfMatch = None) -> Rule:
    """Update a rule, as `oaradmissionrules -m` does. Administrators only."""
    if not body.model_fields_set - {"force"}:
        raise BadRequest("use at least one of: text, priority, enabled")
    with _changing(request) as act:
        _check_rule(act, rule_id, match)
        values: dict[str, Any] = {"text": body.text, "priority": body.priority, "enabled": body.enabled}
        rule = rule_changes.modify(act.tx, act.user, rule_id, **values, force=body.force)
    return _rule_item(rule)


@router.delete("/v1/admission-rules/{rule_id}", "rule_remove", "Delete an admission rule")
def rule_remove(request: Request, rule_id: RuleId, match: IfMatch = None) -> DeletedRule:
    """Delete a rule, as `oaradmissionrules -d` does. Administrators only."""
    with _changing(request) as act:
        _check_rule(act, rule_id, match)
        rule_changes.delete(act.tx, act.user, rule_id)
    return {"id": rule_id, "done": "removed"}


@router.post("/v1/admission-rules/trial", "rules_try", "Test the admission rules on a job", record=RuleTestResult)
def rules_try(request: Request, body: RuleTest) -> Answer:
    """Run the rules on a job, as `oaradmissionrules --test` does, and return the resulting job. Nothing is stored.
    Administrators only.
    """
    who = asking(request)
    _check_reading(who)
    user = who.caller.administering() if body.user is None else _account(body.user)
    workers = service_of(request).workers
    return answer_of(request, workers.run(TryRules(user, body.job.asked), who.config.admission_rules_timeout))


@contextmanager
def _changing(request: Request) -> Iterator[AdminAct]:
    with administering(request) as act:
        _check_open(act.config)
        yield act


def _check_reading(who: Asking) -> None:
    """Check that an administrator may read the rules.  Raises Unidentified, NotAllowed."""
    who.caller.administering()
    _check_open(who.config)


def _check_open(config: "Config") -> None:
    if not config.api_admission_rules:
        raise NotAllowed("this site does not serve admission rules (API_ADMISSION_RULES)")


def _account(name: str) -> User:
    try:
        return User(name, pwd.getpwnam(name).pw_uid)
    except (KeyError, ValueError):
        raise BadRequest(f"there is no user {name!r} on this machine") from None


def _check_rule(act: AdminAct, rule_id: int, match: str | None) -> None:
    act.tx.admission_rules.hold(rule_id)
    check_seen(match, f"rule {rule_id}", lambda: version_of_values(*rule_changes.find(act.tx, rule_id)))


def _rule_item(rule: AdmissionRule) -> Rule:
    version = version_of_values(*rule)
    return {"id": rule.id, "priority": rule.priority, "enabled": rule.enabled, "text": rule.text, "version": version}


Userset = TypedDict("Userset", {"name": str, "entries": list[str], "version": str})
UsersetPage = TypedDict("UsersetPage", {"items": list[Userset]})


class UsersetAdditions(Userset):
    added: list[str]
    warnings: list[str]


class UsersetRemovals(Userset):
    removed: list[str]


DeletedUserset = TypedDict("DeletedUserset", {"name": str, "done": str})


SetName = Annotated[str, Field(max_length=100, pattern=PRINTABLE, description="Userset name.")]
Entry = Annotated[str, Field(max_length=255, pattern=PRINTABLE, description="User name, `@group` or pattern.")]


class UsersetEntries(BaseModel):
    """Users, groups (`@group`) and patterns."""

    model_config = STRICT

    entries: list[Text] = Field(min_length=1, max_length=10_000, description="Users, and groups as `@group`.")
    force: bool = Field(default=False, description="Proceed even if a user loses access to a live reservation.")


@router.get("/v1/usersets", "usersets_list", "List usersets", exports=True)
def usersets_list(request: Request) -> UsersetPage:
    """Return the usersets with their entries."""
    who = asking(request)
    with who.database.snapshot() as tx:
        entries = tx.access.userset_entries(tx.access.userset_names())
    return {"items": [_userset_item(name, entries[name]) for name in entries]}


@router.get("/v1/usersets/{name}", "userset", "Get a userset")
def get_userset(request: Request, name: SetName) -> Userset:
    """Return the entries of a userset."""
    who = asking(request)
    with who.database.snapshot() as tx:
        return _userset_item(name, userset_changes.entries_of(tx, name))


@router.put("/v1/usersets/{name}", "userset_add", "Add users to a userset")
def userset_add(request: Request, name: SetName, body: UsersetEntries, match: IfMatch = None) -> UsersetAdditions:
    """Add users to a userset, as `oaruserset -a` does. A missing userset is created. Administrators only."""
    return _add_to_userset(request, name, ",".join(body.entries), match, force=body.force)


@router.put("/v1/usersets/{name}/{entry}", "userset_add_one", "Add a user to a userset")
def userset_add_one(
    request: Request, name: SetName, entry: Entry, force: Force = False, match: IfMatch = None
) -> UsersetAdditions:
    """Add a user, `@group` or pattern to a userset. A missing userset is created. Administrators only."""
    return _add_to_userset(request, name, entry, match, force=force)


def _add_to_userset(request: Request, name: str, text: str, match: str | None, *, force: bool) -> UsersetAdditions:
    with administering(request) as act:
        _check_userset(act, name, match)
        added = [entry for entry, is_new in userset_changes.add(act.tx, act.user, text, name, force=force) if is_new]
        entries = userset_changes.entries_of(act.tx, name)
    warnings = [*act.warnings, *userset_changes.unknown_names(text)]
    return {**_userset_item(name, entries), "added": added, "warnings": warnings}


@router.delete("/v1/usersets/{name}", "userset_delete", "Delete a userset")
def userset_delete(request: Request, name: SetName, force: Force = False, match: IfMatch = None) -> DeletedUserset:
    """Delete a userset, as `oaruserset -D` does. Administrators only."""
    with administering(request) as act:
        _check_userset(act, name, match)
        userset_changes.delete(act.tx, act.user, name, force=force)
    return {"name": name, "done": "deleted"}


@router.delete("/v1/usersets/{name}/{entry}", "userset_remove", "Remove a user from a userset")
def userset_remove(
    request: Request, name: SetName, entry: Entry, force: Force = False, match: IfMatch = None
) -> UsersetRemovals:
    """Remove a user from a userset, as `oaruserset -d` does. A missing entry is not an error. Administrators only."""
    with administering(request) as act:
        _check_userset(act, name, match)
        removed = [
            entry_
            for entry_, was_there in userset_changes.remove(act.tx, act.user, entry, name, force=force)
            if was_there
        ]
        entries = userset_changes.entries_of(act.tx, name)
    return {**_userset_item(name, entries), "removed": removed}


def _check_userset(act: AdminAct, name: str, match: str | None) -> None:
    act.tx.access.lock_userset(name)
    check_seen(match, f"userset {name}", lambda: _userset_version(name, userset_changes.entries_of(act.tx, name)))


def _userset_item(name: str, entries: Collection[str]) -> Userset:
    return {"name": name, "entries": list(entries), "version": _userset_version(name, entries)}


def _userset_version(name: str, entries: Collection[str]) -> str:
    return version_of_values(name, sorted(entries))

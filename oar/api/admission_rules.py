"""Admission rules: what oaradmissionrules does, where API_ADMISSION_RULES allows it."""

import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from oar.api.job_request import AskedJobs, JobRequest
from oar.api.parameters import STRICT, IfMatch, Text
from oar.api.preconditions import check_seen, version_of_values
from oar.api.responses import Answer, answer, answer_unless_known, created
from oar.api.routing import ApiRoute
from oar.api.service import AdminAct, Asking, administering, asking, service_of
from oar.api.submission import proposal_of
from oar.api.workers import Desk, Outcome, answer_of, text_of
from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest, NotAllowed
from oar.lib.submission import admission, admission_rules, rule_changes
from oar.lib.submission.resource_request import format_request
from oar.lib.submission.sql_admission import AdmissionRule

if TYPE_CHECKING:
    from oar.lib.config.files import Config

router = APIRouter(tags=["administration"], route_class=ApiRoute)

RuleId = Annotated[int, Path(ge=1, le=2**31 - 1, description="Rule id.")]
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
            "resources_asked": [format_request(request.groups, request.walltime) for request in proposal.requests],
            "resources": admitted.size,
            "output": text_of(admitted.output),
        }
        return Outcome(HTTPStatus.OK, record)


@router.get("/v1/admission-rules", operation_id="rules_list", summary="List admission rules")
def rules_list(request: Request) -> Answer:
    """Return the rules in execution order. Administrators only."""
    return answer_unless_known(request, rules_record(asking(request)))


def rules_record(who: Asking) -> dict[str, list[dict[str, object]]]:
    """Return the rules.  Raises Unidentified, NotAllowed."""
    _check_reading(who)
    with who.database.snapshot() as tx:
        return {"items": [_rule_item(rule) for rule in tx.admission_rules.all()]}


@router.get("/v1/admission-rules/{rule_id}", operation_id="rule", summary="Get an admission rule")
def get_rule(request: Request, rule_id: RuleId) -> Answer:
    """Return a rule, its compile error if it has one, and its earlier versions. Administrators only."""
    who = _reading(request)
    with who.database.snapshot() as tx:
        rule = rule_changes.find(tx, rule_id)
        history = [
            {"date": date, "author": author, "done": action, "text_before": text}
            for date, author, action, text in tx.admission_rules.history(rule_id)
        ]
    trouble = admission_rules.explain_bad_text(rule.id, rule.text)
    return answer_unless_known(request, {**_rule_item(rule), "trouble": trouble, "history": history})


@router.post(
    "/v1/admission-rules", operation_id="rule_add", summary="Create an admission rule", status_code=HTTPStatus.CREATED
)
def rule_add(request: Request, body: NewRule) -> Answer:
    """Create a rule, as `oaradmissionrules -n` does. Administrators only."""
    with _changing(request) as act:
        rule_id = rule_changes.create(
            act.tx, act.user, body.text, priority=body.priority, enabled=body.enabled, force=body.force
        )
        rule = rule_changes.find(act.tx, rule_id)
    return created(_rule_item(rule), "admission-rules", rule.id)


@router.patch("/v1/admission-rules/{rule_id}", operation_id="rule_change", summary="Update an admission rule")
def rule_change(request: Request, rule_id: RuleId, body: RuleUpdate, match: IfMatch = None) -> Answer:
    """Update a rule, as `oaradmissionrules -m` does. Administrators only."""
    if not body.model_fields_set - {"force"}:
        raise BadRequest("name what is to be changed: text, priority, enabled")
    with _changing(request) as act:
        _check_seen(act, rule_id, match)
        values: dict[str, Any] = {"text": body.text, "priority": body.priority, "enabled": body.enabled}
        rule = rule_changes.modify(act.tx, act.user, rule_id, **values, force=body.force)
    return answer(_rule_item(rule))


@router.delete("/v1/admission-rules/{rule_id}", operation_id="rule_remove", summary="Delete an admission rule")
def rule_remove(request: Request, rule_id: RuleId, match: IfMatch = None) -> Answer:
    """Delete a rule, as `oaradmissionrules -d` does. Administrators only."""
    with _changing(request) as act:
        _check_seen(act, rule_id, match)
        rule_changes.delete(act.tx, act.user, rule_id)
    return answer({"id": rule_id, "done": "removed"})


@router.post("/v1/admission-rules/trial", operation_id="rules_try", summary="Test the admission rules on a job")
def rules_try(request: Request, body: RuleTest) -> Answer:
    """Run the rules on a job, as `oaradmissionrules --test` does, and return the resulting job. Nothing is stored.
    Administrators only.
    """
    who = _reading(request)
    user = who.caller.administering() if body.user is None else _account(body.user)
    workers = service_of(request).workers
    return answer_of(request, workers.run(TryRules(user, body.job.asked), who.config.admission_rules_timeout))


@contextmanager
def _changing(request: Request) -> Iterator[AdminAct]:
    with administering(request) as act:
        _check_open(act.config)
        yield act


def _reading(request: Request) -> Asking:
    """Return the context of an administrator's request.  Raises Unidentified, NotAllowed."""
    who = asking(request)
    _check_reading(who)
    return who


def _check_reading(who: Asking) -> None:
    who.caller.administering()
    _check_open(who.config)


def _check_open(config: "Config") -> None:
    if not config.api_admission_rules:
        raise NotAllowed("the admission rules are not served here (API_ADMISSION_RULES)")


def _account(name: str) -> User:
    try:
        return User(name, pwd.getpwnam(name).pw_uid)
    except (KeyError, ValueError):
        raise BadRequest(f"there is no user {name!r} on this machine") from None


def _check_seen(act: AdminAct, rule_id: int, match: str | None) -> None:
    act.tx.admission_rules.hold(rule_id)
    check_seen(match, f"rule {rule_id}", lambda: version_of_values(*rule_changes.find(act.tx, rule_id)))


def _rule_item(rule: AdmissionRule) -> dict[str, object]:
    record = {"id": rule.id, "priority": rule.priority, "enabled": rule.enabled, "text": rule.text}
    return {**record, "version": version_of_values(*rule)}

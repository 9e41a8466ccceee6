"""The names of the parts of a submission in admission rules: set from a proposal, and parsed after the rules.

Rules use plain Python values with the documented names.  After the rules, each value is parsed only if it has the right
structure; otherwise the job is rejected.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.base.errors import BadRequest, UserError
from oar.lib.config.files import Config
from oar.lib.jobs.records import Group, JobSpec
from oar.lib.jobs.states import Reservation
from oar.lib.submission import admission_rules, oar3_names
from oar.lib.submission.feasibility import Cluster
from oar.lib.submission.proposal import Proposal
from oar.lib.submission.resource_request import ResourceRequest, format_quantity, parse_request

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

#: Characters of a bad value that a message shows.
_LONGEST_SHOWN = 100
#: Names that rules may read; a change of one is ignored.
_FIXED = (
    "user", "job_type", "reservation", "array_nb", "initial_request", "info_type", "in_api", "verbosity",
    "advance_reservation",
)  # fmt: skip


class AlternativeEstimate(NamedTuple):
    """The size of one alternative; an item of the result of ``estimate`` in a rule."""

    nbresources: int
    walltime: int


def names_of(tx: "Transaction", cluster: Cluster, config: Config, proposal: Proposal) -> dict[str, Any]:
    """Return the initial names for the rules."""
    spec = proposal.spec
    fields = {**spec._asdict(), **proposal._asdict()}
    return {
        "user": spec.user,
        "job_type": str(proposal.job_type),
        "reservation": str(Reservation.TO_SCHEDULE if proposal.start else Reservation.NONE),
        "directory": spec.launching_directory,
        "array_nb": spec.array_size,
        "array_params": list(spec.parameters or ()),
        "initial_request": spec.initial_request,
        "info_type": spec.info_type,
        "in_api": False,
        "is_advance_reservation": proposal.is_advance_reservation,
        "ar": dict(proposal.asked_reservation) if proposal.asked_reservation is not None else None,
        "advance_reservation": proposal.advance_reservation,
        "verbosity": proposal.verbosity,
        "config": admission_rules.ConfigView(config),
        **{name: changeable.show(fields[changeable.field]) for name, changeable in _CHANGEABLE.items()},
        **_questions(tx, cluster, config),
    }


@contextmanager
def makers(tx: "Transaction", database: "Database") -> Iterator[dict[str, Callable[[], Any]]]:
    """Yield the functions that create expensive names: those of SQLAlchemy and of modules."""

    def json() -> Any:
        import json

        return json

    with oar3_names.makers(tx, database) as oar3_makers:
        yield {"json": json, **oar3_makers}


def _questions(tx: "Transaction", cluster: Cluster, config: Config) -> dict[str, Any]:
    def sizes(resource_request: Sequence[Sequence[Any]], properties: str | None) -> list[AlternativeEstimate]:
        estimates = []
        for alternative in resource_request:
            request = _read_request(alternative)
            size = cluster.size(request.groups, properties or "")
            estimates.append(AlternativeEstimate(size or 0, request.walltime or config.default_job_walltime))
        return estimates

    def estimate(resource_request: Sequence[Sequence[Any]], properties: str | None) -> list[AlternativeEstimate]:
        try:
            return sizes(resource_request, properties)
        except UserError as error:  # an error in the user's text, not in the rule
            raise admission_rules.Rejection(str(error)) from None

    def estimate_job_nb_resources(
        session: object, config: object, resource_request: Sequence[Sequence[Any]], properties: str | None
    ) -> tuple[tuple[int, str], int, list[tuple[int, int]]]:
        try:
            estimates = sizes(resource_request, properties)
        except UserError as error:
            return (-1, str(error)), 0, []
        if not all(alternative.nbresources for alternative in estimates):
            return (-5, "There are not enough resources for your request"), 0, []
        return (0, ""), estimates[0].nbresources, [(size, walltime) for size, walltime in estimates]

    return {
        "estimate": estimate,
        "estimate_job_nb_resources": estimate_job_nb_resources,
        "live_container": lambda reference: tx.submission_checks.find_container(str(reference)),
        "waiting_reservations": tx.submission_checks.count_waiting_reservations,
    }


def _shown_requests(requests: Sequence[ResourceRequest]) -> list[Any]:
    return [[[_shown_group(group) for group in request.groups], request.walltime] for request in requests]


def _shown_group(group: Group) -> dict[str, Any]:
    levels = [{"resource": level.property, "value": format_quantity(level.quantity)} for level in group.levels]
    return {"property": group.filter, "resources": levels}


# -- parse the values that rules set
# ------------------------------------------------------------------------------------


class _BadValue(Exception):
    """A name holds a value of the wrong type."""


def amend(
    proposal: Proposal,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    config: Config,
    output: admission_rules.RuleOutput,
) -> Proposal:
    """Return the proposal as the rules changed it; ``before``, ``after``: the names before and after the rules ran.

    Raises RuleRefused if a value has the wrong type.
    """
    warnings = [
        f"an admission rule changed '{name}', which is ignored." for name in _FIXED if after.get(name) != before[name]
    ]
    values = _read(before, after, output)
    values["queue"] = values["queue"] or config.queue
    values["project"] = values["project"] or config.project
    values["requests"] = tuple(
        ResourceRequest(request.groups, request.walltime or config.default_job_walltime)
        for request in values["requests"]
    )
    spec = {field: value for field, value in values.items() if field in JobSpec._fields}
    beside = {field: value for field, value in values.items() if field not in spec}
    return proposal._replace(spec=proposal.spec._replace(**spec), **beside, warnings=(*proposal.warnings, *warnings))


def _read(before: Mapping[str, Any], after: Mapping[str, Any], output: admission_rules.RuleOutput) -> dict[str, Any]:
    """Return the values of the fields that rules may change.  Raises RuleRefused."""
    values: dict[str, Any] = {}
    name = ""
    try:
        for name, changeable in _CHANGEABLE.items():
            values[changeable.field] = changeable.read(after.get(name))
        name = "directory"  # another name of launching_directory: if both are changed, "directory" has precedence
        if after.get(name) != before[name]:
            values["launching_directory"] = _text(after.get(name))
    except _BadValue:
        value = f"{after.get(name)!r:.{_LONGEST_SHOWN}}"
        reason = "an admission rule set it. Inform an administrator."
        raise admission_rules.RuleRefused(
            f"[ADMISSION RULE] bad value left in '{name}': {value}: {reason}", output
        ) from None
    return values


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _BadValue
    return str(value)


def _optional_text(value: Any) -> str | None:
    return None if value is None or value == "" else _text(value)


def _text_or_empty(value: Any) -> str:
    return _optional_text(value) or ""


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise _BadValue
    return int(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool | int):
        raise _BadValue
    return bool(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise _BadValue
    return tuple(_text(each) for each in value)


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _BadValue
    return {_text(key): _text(each) for key, each in value.items()}


def _requests(value: Any) -> tuple[ResourceRequest, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise _BadValue
    try:
        return tuple(_read_request(each) for each in value)
    except (BadRequest, KeyError, TypeError, ValueError, AttributeError):
        raise _BadValue from None


def _read_request(alternative: Sequence[Any]) -> ResourceRequest:
    """Parse one alternative in the format of rules: ``[groups, walltime]``, the values as text or numbers."""
    shown_groups, walltime = alternative
    groups = []
    for shown in shown_groups:
        text = "".join(f"/{level['resource']}={level['value']}" for level in shown["resources"])
        (parsed,) = parse_request(text).groups
        groups.append(Group(_text_or_empty(shown.get("property")), parsed.levels))
    if not groups:
        raise _BadValue
    return ResourceRequest(tuple(groups), None if walltime is None else _walltime(walltime))


def _walltime(value: Any) -> int:
    seconds = _number(value)
    if seconds == 0:
        raise _BadValue
    return seconds


def _same(value: Any) -> Any:
    return value


class _Changeable(NamedTuple):
    """A name whose value rules may change."""

    field: str  #: of the specification, else of the proposal
    read: Callable[[Any], Any]  #: takes the value back
    show: Callable[[Any], Any] = _same  #: makes the value that rules see


_CHANGEABLE: Mapping[str, _Changeable] = {
    "queue": _Changeable("queue", _text_or_empty, _optional_text),
    "project": _Changeable("project", _text_or_empty, _optional_text),
    "properties": _Changeable("properties", _optional_text),
    "name": _Changeable("name", _optional_text),
    "notify": _Changeable("notify", _optional_text),
    "stdout": _Changeable("stdout_file", _optional_text),
    "stderr": _Changeable("stderr_file", _optional_text),
    "types": _Changeable("types", _texts, list),
    "properties_applied_after_validation": _Changeable("later_properties", _text),
    "resource_request": _Changeable("requests", _requests, _shown_requests),
    "reservation_date": _Changeable("start", _number),
    "command": _Changeable("command", _text),
    "launching_directory": _Changeable("launching_directory", _text),
    "checkpoint": _Changeable("checkpoint", _number),
    "signal": _Changeable("checkpoint_signal", _number),
    "dependencies": _Changeable("dependencies", _texts, list),
    "hold": _Changeable("hold", _flag),
    "env": _Changeable("env", _environment, dict),
    "use_job_key": _Changeable("use_job_key", _flag),
}

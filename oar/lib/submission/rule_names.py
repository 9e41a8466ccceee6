"""The names of the parts of a submission in admission rules: set from a proposal, and parsed after the rules.

Rules use plain Python values with the documented names.  After the rules, each value is parsed only if it has the right
structure; otherwise the job is rejected.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.base.errors import BadRequest, UserError
from oar.lib.config.files import Config
from oar.lib.jobs.records import Group, JobSpec, Memory
from oar.lib.jobs.states import Reservation
from oar.lib.submission import admission_rules
from oar.lib.submission.feasibility import Cluster
from oar.lib.submission.options import OPTIONS, Kind
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.resource_request import ResourceRequest, format_quantity, parse_request

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

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


class _ShownRequest(list[Any]):
    """An alternative in the format of rules: ``[groups, walltime]``.

    It keeps its memory if a rule removes other alternatives or changes their order.
    """

    memory: Memory | None = None


def _shown_requests(requests: Sequence[ResourceRequest]) -> list[Any]:
    shown = []
    for request in requests:
        alternative = _ShownRequest(([_shown_group(group) for group in request.groups], request.walltime))
        alternative.memory = request.memory
        shown.append(alternative)
    return shown


def _shown_group(group: Group) -> dict[str, Any]:
    levels = [{"resource": level.property, "value": format_quantity(level.quantity)} for level in group.levels]
    return {"property": group.filter, "resources": levels}


# -- parse the values that rules set -----------------------------------------------------------------------------------


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
    asked: tuple[ResourceRequest, ...] = values["requests"]
    memories = _memories(proposal.requests, after["resource_request"], output)
    values["requests"] = tuple(
        ResourceRequest(request.groups, request.walltime or config.default_job_walltime, memory=memory)
        for request, memory in zip(asked, memories, strict=True)
    )
    spec = {field: value for field, value in values.items() if field in JobSpec._fields}
    beside = {field: value for field, value in values.items() if field not in spec}
    return proposal._replace(spec=proposal.spec._replace(**spec), **beside, warnings=(*proposal.warnings, *warnings))


def _memories(
    requests: Sequence[ResourceRequest], shown: Sequence[Any], output: admission_rules.RuleOutput
) -> Sequence[Memory | None]:
    """Return the memory of each alternative after the rules, which neither see nor change it.  Raises RuleRefused.

    ``requests``: the alternatives before the rules; ``shown``: those after them, as the rules left them.
    """
    memories = {request.memory for request in requests}
    if len(memories) == 1:
        return [*memories] * len(shown)
    if not all(isinstance(alternative, _ShownRequest) for alternative in shown):
        text = "[ADMISSION RULE] a rule replaced alternatives (-l) that request different amounts of memory"
        raise admission_rules.RuleRefused(f"{text}. Request the same memory in each -l.", output)
    return [alternative.memory for alternative in shown]


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


#: How the values of options are taken back, by their kinds; the values of other kinds are texts.
_OF_KIND: Mapping[Kind, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    Kind.FLAG: (_flag, _same),
    Kind.TEXTS: (_texts, list),
    Kind.NUMBER: (_number, _same),
    Kind.COUNT: (_number, _same),
}
_CHANGEABLE: Mapping[str, _Changeable] = {
    "queue": _Changeable("queue", _text_or_empty, _optional_text),
    "project": _Changeable("project", _text_or_empty, _optional_text),
    **{
        name: _Changeable(option.spec or name, *_OF_KIND.get(option.kind, (_optional_text, _same)))
        for name, option in OPTIONS.items()
        if option.in_rules
    },
    "properties_applied_after_validation": _Changeable("later_properties", _text),
    "resource_request": _Changeable("requests", _requests, _shown_requests),
    "reservation_date": _Changeable("start", _number),
    "command": _Changeable("command", _text),
    "launching_directory": _Changeable("launching_directory", _text),
    "signal": _Changeable("checkpoint_signal", _number),
    "env": _Changeable("env", _environment, dict),
}


# -- names of rules written for OAR 3: SQLAlchemy sessions, and models of the tables ----------------------------------
# Importing SQLAlchemy takes longer than all other work of a command: each name is created when a rule first uses it.

#: Models: table, and the attributes that are not named as their column.
MODELS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "Accounting": ("accounting", {"user": "accounting_user", "project": "accounting_project"}),
    "AssignedResource": ("assigned_resources", {"moldable_id": "moldable_job_id", "index": "assigned_resource_index"}),
    "EventLog": ("event_logs", {"id": "event_id"}),
    "FragJob": ("frag_jobs", {"job_id": "frag_id_job", "date": "frag_date", "state": "frag_state"}),
    "GanttJobsPrediction": ("gantt_jobs_predictions", {"moldable_id": "moldable_job_id"}),
    "Job": (
        "jobs",
        {
            "id": "job_id",
            "name": "job_name",
            "type": "job_type",
            "user": "job_user",
            "group": "job_group",
            "env": "job_env",
        },
    ),
    "JobDependencie": ("job_dependencies", {"index": "job_dependency_index"}),
    "JobResourceDescription": (
        "job_resource_descriptions",
        {
            "group_id": "res_job_group_id",
            "resource_type": "res_job_resource_type",
            "value": "res_job_value",
            "order": "res_job_order",
            "index": "res_job_index",
        },
    ),
    "JobResourceGroup": (
        "job_resource_groups",
        {
            "id": "res_group_id",
            "moldable_id": "res_group_moldable_id",
            "property": "res_group_property",
            "index": "res_group_index",
        },
    ),
    "JobStateLog": ("job_state_logs", {"id": "job_state_log_id"}),
    "JobType": ("job_types", {"id": "job_type_id"}),
    "MoldableJobDescription": (
        "moldable_job_descriptions",
        {"id": "moldable_id", "job_id": "moldable_job_id", "walltime": "moldable_walltime", "index": "moldable_index"},
    ),
    "Queue": ("queues", {"name": "queue_name"}),
    "Resource": ("resources", {"id": "resource_id"}),
    "WalltimeChange": ("walltime_change", {}),
}

_FUNCTIONS = ("select", "or_", "and_", "not_", "text", "func")


@contextmanager
def makers(tx: "Transaction", database: "Database") -> Iterator[dict[str, Callable[[], Any]]]:
    """Yield the functions that create expensive names; sessions that were opened are closed at the end of the block.

    ``session`` uses the transaction ``tx``, ``session_ro`` a read-only transaction.
    """
    with ExitStack() as opened:
        orm = _Orm(tx, database, opened)
        yield {
            "json": partial(importlib.import_module, "json"),
            "session": orm.session,
            "session_ro": orm.session_ro,
            **{name: partial(orm.model, name) for name in MODELS},
            **{name: partial(_sqlalchemy_function, name) for name in _FUNCTIONS},
        }


class _Orm:
    """SQLAlchemy on connections whose transactions are managed elsewhere.

    The connections are in autocommit mode and OAR sends its own BEGIN, so that a commit of a session has no effect.
    """

    def __init__(self, tx: "Transaction", database: "Database", opened: ExitStack) -> None:
        self._tx = tx
        self._database = database
        self._opened = opened

    def session(self) -> "Session":
        """Return a session in the transaction of the submission."""
        from sqlalchemy.orm import Session

        return self._opened.enter_context(Session(_engine(self._tx)))

    def session_ro(self) -> "Session":
        """Return a session of the read-only login."""
        from sqlalchemy.orm import Session

        return self._opened.enter_context(Session(_engine(self._opened.enter_context(self._database.readonly()))))

    def model(self, name: str) -> Any:
        """Return the model class of a table, with the current columns of the table."""
        from sqlalchemy.orm import registry

        table_name, renamed = MODELS[name]
        table = self._tables[table_name]
        attribute_of = {column: attribute for attribute, column in renamed.items()}
        attributes = {attribute_of.get(column.name, column.name): column for column in table.columns}
        keys = list(table.primary_key.columns) or list(table.columns)
        model = type(name, (), {"__doc__": f"A row of {table_name}."})
        registry().map_imperatively(model, table, properties=attributes, primary_key=keys)
        return model

    @cached_property
    def _tables(self) -> Mapping[str, Any]:
        from sqlalchemy import MetaData

        metadata = MetaData()
        metadata.reflect(_engine(self._tx), only=[table for table, _ in MODELS.values()])
        return metadata.tables


def _engine(tx: "Transaction") -> "Engine":
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    return create_engine("postgresql+psycopg2://", creator=lambda: tx.connection, poolclass=StaticPool)


def _sqlalchemy_function(name: str) -> Any:
    import sqlalchemy

    return getattr(sqlalchemy, name)

"""A submission as admission rules see it: a record, the names under which rules know its parts, and the way back.

Rules work on plain Python values with the documented names (commands-admin.md 8.2).  What they leave is taken back
only if it has the right shape: a rule that leaves nonsense refuses the job, it does not store it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib import admission
from oar.lib.config import Config
from oar.lib.db import compat, new_jobs
from oar.lib.errors import BadRequest
from oar.lib.feasibility import Cluster
from oar.lib.model import Group
from oar.lib.request import Request, format_quantity, parse_request
from oar.lib.states import JobType, Reservation

if TYPE_CHECKING:
    from oar.lib.db.engine import Database, Transaction


class Proposal(NamedTuple):
    """A submission that has been understood."""

    user: str
    job_type: JobType
    requests: tuple[Request, ...]
    queue: str | None
    project: str | None
    properties: str | None
    start: int  #: date of a reservation, 0 = none
    types: tuple[str, ...]
    command: str
    name: str | None
    notify: str | None
    stdout: str | None
    stderr: str | None
    directory: str
    checkpoint: int
    signal: int
    dependencies: tuple[str, ...]
    hold: bool
    env: Mapping[str, str]
    use_job_key: bool
    array_size: int
    parameters: tuple[str, ...]
    initial_request: str
    info_type: str
    in_api: bool
    warnings: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  #: that the user has named
    verbosity: int = 0  #: how much he wants to be told: 0 to 2
    later_properties: str = ""  #: a condition that counts for the scheduler, not for whether the job can ever run

    @property
    def stored_properties(self) -> str:
        """The condition on resources that the scheduler uses."""
        parts = [part for part in (self.properties, self.later_properties) if part]
        return " AND ".join(f"({part})" for part in parts) if len(parts) > 1 else "".join(parts)


#: Names that rules may read; a change of one is ignored.
_FIXED = ("user", "job_type", "reservation", "array_nb", "initial_request", "info_type", "in_api", "verbosity")

#: Names of texts that may be None, and of what they are called here.
_TEXTS = {
    "queue": "queue",
    "project": "project",
    "properties": "properties",
    "name": "name",
    "notify": "notify",
    "stdout": "stdout",
    "stderr": "stderr",
}


class Estimate(NamedTuple):
    """What one alternative would take: answer of ``estimate`` in a rule."""

    nbresources: int
    walltime: int


def names_of(tx: "Transaction", cluster: Cluster, config: Config, proposal: Proposal) -> dict[str, Any]:
    """Return the names with which rules begin."""
    names = {
        "user": proposal.user,
        "job_type": str(proposal.job_type),
        "types": list(proposal.types),
        "properties_applied_after_validation": "",
        "resource_request": [_as_list(request) for request in proposal.requests],
        "reservation_date": proposal.start,
        "reservation": str(Reservation.TO_SCHEDULE if proposal.start else Reservation.NONE),
        "command": proposal.command,
        "launching_directory": proposal.directory,
        "directory": proposal.directory,
        "checkpoint": proposal.checkpoint,
        "signal": proposal.signal,
        "dependencies": list(proposal.dependencies),
        "hold": proposal.hold,
        "array_nb": proposal.array_size,
        "array_params": list(proposal.parameters),
        "initial_request": proposal.initial_request,
        "info_type": proposal.info_type,
        "env": dict(proposal.env),
        "use_job_key": proposal.use_job_key,
        "in_api": proposal.in_api,
        "verbosity": proposal.verbosity,
        "config": admission.ConfigView(config),
    }
    names |= {name: getattr(proposal, attribute) for name, attribute in _TEXTS.items()}
    return names | _questions(tx, cluster, config)


@contextmanager
def makers(tx: "Transaction", database: "Database") -> Iterator[dict[str, Callable[[], Any]]]:
    """Tell how names are made that cost time: SQLAlchemy's, and modules that few rules use."""

    def json() -> Any:
        import json

        return json

    with compat.makers(tx, database) as made:
        yield {"json": json, **made}


def _questions(tx: "Transaction", cluster: Cluster, config: Config) -> dict[str, Any]:
    def estimate(resource_request: Sequence[Sequence[Any]], properties: str | None) -> list[Estimate]:
        estimates = []
        for item in resource_request:
            request = _as_request(item)
            size = cluster.size(request.groups, properties or "")
            estimates.append(Estimate(size or 0, request.walltime or config.default_job_walltime))
        return estimates

    def estimate_job_nb_resources(
        session: object, config: object, resource_request: Sequence[Sequence[Any]], properties: str | None
    ) -> tuple[tuple[int, str], int, list[tuple[int, int]]]:
        try:
            found = estimate(resource_request, properties)
        except BadRequest as error:
            return (-1, str(error)), 0, []
        if any(not each.nbresources for each in found):
            return (-5, "There are not enough resources for your request"), 0, []
        return (0, ""), found[0].nbresources, [(each.nbresources, each.walltime) for each in found]

    return {
        "estimate": estimate,
        "estimate_job_nb_resources": estimate_job_nb_resources,
        "live_container": lambda reference: new_jobs.find_container(tx, str(reference)),
        "waiting_reservations": lambda user: new_jobs.count_waiting_reservations(tx, user),
    }


def _as_list(request: Request) -> list[Any]:
    groups = [
        {
            "property": group.filter,
            "resources": [
                {"resource": level.property, "value": format_quantity(level.quantity)} for level in group.levels
            ],
        }
        for group in request.groups
    ]
    return [groups, request.walltime]


# -- the way back -----------------------------------------------------------------------------------------------------


class _BadValue(Exception):
    """A name holds what it cannot."""


def amend(
    proposal: Proposal, left: Mapping[str, Any], before: Mapping[str, Any], config: Config, output: admission.Output
) -> Proposal:
    """Return the proposal as the rules left it.  Raises RuleRefused for values that cannot be."""
    warnings = [
        f"an admission rule changed '{name}', which is ignored." for name in _FIXED if left.get(name) != before[name]
    ]
    name = ""
    taken: dict[str, Any] = {}
    try:
        for name, (attribute, read) in _READERS.items():
            taken[attribute] = read(left.get(name))
        name = "directory"
        if left.get(name) != before[name]:
            taken[name] = _text(left.get(name))
    except _BadValue:
        raise admission.RuleRefused(f"[ADMISSION RULE] bad value left in '{name}'", output) from None
    taken["queue"] = taken["queue"] or config.queue
    taken["project"] = taken["project"] or config.project
    taken["requests"] = tuple(
        Request(each.groups, each.walltime or config.default_job_walltime) for each in taken["requests"]
    )
    return proposal._replace(**taken, warnings=(*proposal.warnings, *warnings))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _BadValue
    return str(value)


def _optional_text(value: Any) -> str | None:
    return None if value is None or value == "" else _text(value)


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


def _requests(value: Any) -> tuple[Request, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise _BadValue
    try:
        return tuple(_as_request(each) for each in value)
    except (BadRequest, KeyError, TypeError, ValueError, AttributeError):
        raise _BadValue from None


def _as_request(item: Sequence[Any]) -> Request:
    """Read one alternative as rules have it: ``[groups, walltime]``, the values as text or numbers."""
    groups, walltime = item
    read = []
    for group in groups:
        text = "".join(f"/{level['resource']}={level['value']}" for level in group["resources"])
        (parsed,) = parse_request(text).groups
        read.append(Group(_optional_text(group.get("property")) or "", parsed.levels))
    if not read:
        raise _BadValue
    return Request(tuple(read), None if walltime is None else _walltime(walltime))


def _walltime(value: Any) -> int:
    seconds = _number(value)
    if seconds == 0:
        raise _BadValue
    return seconds


#: Of each name that rules may change: what it is called here, and how its value is taken back.
_READERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    **{name: (attribute, _optional_text) for name, attribute in _TEXTS.items()},
    "types": ("types", _texts),
    "properties_applied_after_validation": ("later_properties", _text),
    "resource_request": ("requests", _requests),
    "reservation_date": ("start", _number),
    "command": ("command", _text),
    "launching_directory": ("directory", _text),
    "checkpoint": ("checkpoint", _number),
    "signal": ("signal", _number),
    "dependencies": ("dependencies", _texts),
    "hold": ("hold", _flag),
    "env": ("env", _environment),
    "use_job_key": ("use_job_key", _flag),
}

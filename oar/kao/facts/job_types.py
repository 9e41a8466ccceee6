"""The types of a job (``oarsub -t``), parsed once per job, as the planner uses them.

See docs/design/planner.rst, "Types of jobs".
"""

from dataclasses import dataclass
from functools import lru_cache

from oar.kao.facts.snapshot import (
    PlannedJob,
    PlannedReservation,
    WaitingJob,
)
from oar.lib.base.errors import BadRequest
from oar.lib.base.times import parse_date
from oar.lib.jobs.states import JobTypeName
from oar.lib.submission.resource_request import JobTypes, parse_token

#: TIMESHARING with its tag, or PLACEHOLDER with its name.
SharingKey = tuple[JobTypeName, str]


#: The types of so many jobs are kept from round to round.
REMEMBERED = 20_000


_DATED = (JobTypeName.POSTPONE, JobTypeName.EXPIRE, JobTypeName.DEADLINE)


_PLUGIN_TYPES = (f"{JobTypeName.FIND}=", f"{JobTypeName.ASSIGN}=")


#: What may stand in ``timesharing=<user>,<name>``; ``job_name`` is the older spelling.
_TIMESHARING_PARTS = {"*": "*", "user": "user", "name": "name", "job_name": "name"}


@dataclass(frozen=True, slots=True)
class PluginCall:
    """Name and arguments of a plug-in that places a job: ``<name>[:<argument>...][:<key>=<value>...]``."""

    name: str
    arguments: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedTypes:
    """The parsed types of one job.  Dates are in epoch seconds; 0 = the job has no such type."""

    is_besteffort: bool = False
    container: str = ""  #: name of the space that the job opens; '' = it is no container
    inner: str = ""  #: name of the space in which the job is placed; '' = the common space
    sharing_key: SharingKey | None = None  #: jobs that have it in ``shared_keys`` find this job's resources free
    shared_keys: frozenset[SharingKey] = frozenset()  #: keys of the jobs whose resources this job finds free
    is_standby: bool = False
    is_permissive: bool = False
    starts_anywhere: bool = False  #: permissive, and needs no node to start: noop or cosystem
    is_hard: bool = False  #: a reservation that never starts with fewer resources
    is_noop: bool = False
    counts_in_quotas: bool = True
    postpone: int = 0
    expire: int = 0
    expire_text: str = ""
    deadline: int = 0
    deadline_text: str = ""
    tokens: tuple[tuple[str, int], ...] = ()
    qos: float = 0.0
    nice: float = 0.0
    unreadable_date: str = ""  #: name of a type whose date cannot be read
    find: PluginCall | None = None  #: chooses the resources
    assign: PluginCall | None = None  #: chooses start and resources

    def container_names(self, job_id: int) -> tuple[str, ...]:
        """Return the names that inner jobs may use for this container, its name and its job id; () for no container."""
        return (self.container, str(job_id)) if self.container else ()

    def may_share_with(self, other: "ParsedTypes") -> bool:
        """Return whether these two jobs may use the same resources at the same time."""
        return self.sharing_key in other.shared_keys or other.sharing_key in self.shared_keys


#: Those of a job without any.
NO_TYPES = ParsedTypes()


def parse_types(job: PlannedJob) -> ParsedTypes:
    """Return the parsed types of a job.

    Raises BadRequest for a value that cannot be parsed.  A date that cannot be parsed raises nothing: its type is
    returned in ``unreadable_date``.
    """
    if not job.types:
        return NO_TYPES
    # the meaning of a date depends on the time zone, so types with dates are not cached
    has_dates = any(name in text for text in job.types for name in _DATED)
    return (_parsed if has_dates else _remembered)(job.types, job.id, job.user, job.name)


def _parsed(texts: tuple[str, ...], job_id: int, user: str, name: str) -> ParsedTypes:
    types = JobTypes(texts)
    container = (types.value(JobTypeName.CONTAINER) or str(job_id)) if JobTypeName.CONTAINER in types else ""
    placeholder = types.value(JobTypeName.PLACEHOLDER)
    timesharing = _timesharing_key(types, user, name) if not (container or placeholder) else None
    allowed = types.value(JobTypeName.ALLOWED)
    shared_keys = [timesharing] if timesharing else []
    if allowed:
        shared_keys.append((JobTypeName.PLACEHOLDER, allowed))
    dates, unreadable_date = _dates(types)
    return ParsedTypes(
        is_besteffort=JobTypeName.BESTEFFORT in types,
        container=container,
        inner=types.value(JobTypeName.INNER) or "",
        sharing_key=(JobTypeName.PLACEHOLDER, placeholder) if placeholder else timesharing,
        shared_keys=frozenset(shared_keys),
        is_standby=types.is_standby,
        is_permissive=types.is_permissive,
        starts_anywhere=types.is_permissive and (JobTypeName.NOOP in types or JobTypeName.COSYSTEM in types),
        is_hard=types.value(JobTypeName.AR) == "hard",
        is_noop=JobTypeName.NOOP in types,
        counts_in_quotas=JobTypeName.NO_QUOTAS not in types,
        postpone=dates[JobTypeName.POSTPONE],
        expire=dates[JobTypeName.EXPIRE],
        expire_text=types.value(JobTypeName.EXPIRE) or "",
        deadline=dates[JobTypeName.DEADLINE],
        deadline_text=types.value(JobTypeName.DEADLINE) or "",
        tokens=tuple(parse_token(text) for text in types.values(JobTypeName.TOKEN)),
        qos=_factor(types, JobTypeName.QOS, largest=1.0),
        nice=_factor(types, JobTypeName.NICE),
        unreadable_date=unreadable_date,
        find=_plugin_call(types, JobTypeName.FIND),
        assign=_plugin_call(types, JobTypeName.ASSIGN),
    )


#: The frames of a thousand advance reservations are parsed by the first round that sees them.
_remembered = lru_cache(maxsize=REMEMBERED)(_parsed)


def parse_types_or_none(job: PlannedJob) -> ParsedTypes:
    """Return the parsed types of a job; return NO_TYPES if one of them cannot be parsed."""
    try:
        return parse_types(job)
    except BadRequest:
        return NO_TYPES


def has_plugin(job: PlannedJob) -> bool:
    """Return whether a plug-in chooses the resources (and maybe the start time) of a job instead of its request."""
    return bool(job.types) and any(text.startswith(_PLUGIN_TYPES) for text in job.types)


def expiry_date(job: WaitingJob) -> int:
    """Return the first date at which the types expire and deadline forbid a job to start; return 0 if there is none."""
    types = JobTypes(job.types)
    if JobTypeName.EXPIRE not in types and JobTypeName.DEADLINE not in types:
        return 0
    dates, _ = _dates(types)
    deadline = dates[JobTypeName.DEADLINE]
    latest_starts = [dates[JobTypeName.EXPIRE], deadline - job.shortest_walltime if deadline else 0]
    return min((date + 1 for date in latest_starts if date), default=0)


def _timesharing_key(types: JobTypes, job_user: str, job_name: str) -> SharingKey | None:
    """Return user and name of a timesharing job, ``*`` if not restricted; None for other jobs."""
    if JobTypeName.TIMESHARING not in types:
        return None
    value = types.value(JobTypeName.TIMESHARING)
    parts = [part.strip() for part in (value or "*,*").split(",")]
    if len(parts) != 2 or any(part not in _TIMESHARING_PARTS for part in parts):
        raise BadRequest(f"timesharing={value} is not <user or *>,<name or *>")
    restrictions = {_TIMESHARING_PARTS[part] for part in parts}
    user = job_user if "user" in restrictions else "*"
    name = job_name if "name" in restrictions and job_name else "*"
    return JobTypeName.TIMESHARING, f"{user},{name}"


def _dates(types: JobTypes) -> tuple[dict[JobTypeName, int], str]:
    """Return the last postpone, the first expire and deadline, and the name of a type that cannot be parsed."""
    dates = dict.fromkeys((JobTypeName.POSTPONE, JobTypeName.EXPIRE, JobTypeName.DEADLINE), 0)
    for name in dates:
        try:
            values = [parse_date(text) for text in types.values(name)]
        except BadRequest:
            return dates, name
        if values:
            dates[name] = max(values) if name is JobTypeName.POSTPONE else min(values)
    return dates, ""


def _plugin_call(types: JobTypes, kind: JobTypeName) -> PluginCall | None:
    if kind not in types:
        return None
    name, *parts = (types.value(kind) or "").split(":")
    if not name:
        raise BadRequest(f"{kind} is not {kind}=<name of a plug-in>")
    options = [part.partition("=") for part in parts if part.partition("=")[0] and "=" in part]
    arguments = tuple(part for part in parts if "=" not in part or part.startswith("="))
    return PluginCall(name, arguments, tuple((key, value) for key, _, value in options))


def _factor(types: JobTypes, name: JobTypeName, largest: float = 1e9) -> float:
    text = types.value(name)
    if text is None:
        return 0.0
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= largest:
        raise BadRequest(f"{name}={text} is not {name}=<number from 0 to {largest:g}>")
    return number


def is_inside(types: ParsedTypes, reservation: PlannedReservation) -> bool:
    if reservation.is_flexible:
        return (JobTypeName.PLACEHOLDER, f"ar{reservation.id}") in types.shared_keys
    return types.inner == str(reservation.frame_id)

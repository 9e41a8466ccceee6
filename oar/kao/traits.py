"""What the types of a job mean for its planning (scheduling.md 9), read once for each job."""

from dataclasses import dataclass

from oar.kao.model import PlannedJob, WaitingJob
from oar.kao.slots import Key
from oar.lib.errors import BadRequest
from oar.lib.request import JobTypes
from oar.lib.times import parse_date

#: The words of ``timesharing=<u>,<n>``; ``job_name`` is the older spelling.
_SHARING_WORDS = {"*": "*", "user": "user", "name": "name", "job_name": "name"}


@dataclass(frozen=True, slots=True)
class PluginCall:
    """Which plug-in chooses for a job, and what it is told: ``<name>[:<argument>...][:<key>=<value>...]``."""

    name: str
    arguments: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Traits:
    """A job's types as answers to the planner's questions."""

    is_besteffort: bool = False
    container: str = ""  #: name of the space that it opens; '' = it is no container
    inner: str = ""  #: name of the space in which it lives; '' = the common one
    occupies_as: Key | None = None  #: what an asker must hold to find its resources free
    shares: frozenset[Key] = frozenset()  #: what it may share resources with
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


def traits_of(job: PlannedJob) -> Traits:
    """Return what the types of a job mean.  Raises BadRequest for a value that means nothing."""
    if not job.types:
        return _PLAIN
    types = JobTypes(job.types)
    container = _container(job, types)
    placeholder = types.value("placeholder")
    sharing = _sharing_key(job, types) if not (container or placeholder) else None
    allowed = types.value("allowed")
    shares = [sharing] if sharing else []
    if allowed:
        shares.append(("placeholder", allowed))
    dates, unreadable = _dates(types)
    return Traits(
        is_besteffort="besteffort" in types,
        container=container,
        inner=types.value("inner") or "",
        occupies_as=("placeholder", placeholder) if placeholder else sharing,
        shares=frozenset(shares),
        is_standby=types.is_standby,
        is_permissive=types.is_permissive,
        starts_anywhere=types.is_permissive and ("noop" in types or "cosystem" in types),
        is_hard=types.value("ar") == "hard",
        is_noop="noop" in types,
        counts_in_quotas="no_quotas" not in types,
        postpone=dates["postpone"],
        expire=dates["expire"],
        expire_text=types.value("expire") or "",
        deadline=dates["deadline"],
        deadline_text=types.value("deadline") or "",
        tokens=tuple(_token(value) for value in types.values("token")),
        qos=_factor(types, "qos", most=1.0),
        nice=_factor(types, "nice"),
        unreadable_date=unreadable,
        find=_plugin(types, "find"),
        assign=_plugin(types, "assign"),
    )


_PLAIN = Traits()
#: Types by which a job is given up at a date.
_LIMITS = ("expire", "deadline")


def given_up_at(job: WaitingJob) -> int:
    """Return from when on a job can no longer start because of its types expire and deadline; 0 = never."""
    types = JobTypes(job.types)
    if not any(name in types for name in _LIMITS):
        return 0
    dates, _ = _dates(types)
    shortest = min((each.walltime for each in job.alternatives), default=0)
    ends = [dates["expire"], dates["deadline"] - shortest if dates["deadline"] else 0]
    return min((date + 1 for date in ends if date), default=0)


def _container(job: PlannedJob, types: JobTypes) -> str:
    return (types.value("container") or str(job.id)) if "container" in types else ""


def _sharing_key(job: PlannedJob, types: JobTypes) -> Key | None:
    """Return the tag of a timesharing job: its user and its name, or ``*`` where all may share."""
    if "timesharing" not in types:
        return None
    words = [word.strip() for word in (types.value("timesharing") or "*,*").split(",")]
    if len(words) != 2 or any(word not in _SHARING_WORDS for word in words):
        raise BadRequest(f"timesharing={types.value('timesharing')} is not <user or *>,<name or *>")
    asked = {_SHARING_WORDS[word] for word in words}
    user = job.user if "user" in asked else "*"
    name = job.name if "name" in asked and job.name else "*"
    return "timesharing", f"{user},{name}"


def _dates(types: JobTypes) -> tuple[dict[str, int], str]:
    """Return the dates of postpone (the last one), expire and deadline (the first), and which one cannot be read."""
    dates = {"postpone": 0, "expire": 0, "deadline": 0}
    for name in dates:
        try:
            values = [parse_date(value) for value in types.values(name)]
        except BadRequest:
            return dates, name
        if values:
            dates[name] = max(values) if name == "postpone" else min(values)
    return dates, ""


def _token(value: str) -> tuple[str, int]:
    name, _, count = value.partition("=")
    if not (name and count.isascii() and count.isdigit()):
        raise BadRequest(f"token:{value} is not token:<name>=<number>")
    return name, int(count)


def _plugin(types: JobTypes, kind: str) -> PluginCall | None:
    if kind not in types:
        return None
    name, *words = (types.value(kind) or "").split(":")
    if not name:
        raise BadRequest(f"{kind} is not {kind}=<name of a plug-in>")
    options = [word.partition("=") for word in words if word.partition("=")[0] and "=" in word]
    arguments = tuple(word for word in words if "=" not in word or word.startswith("="))
    return PluginCall(name, arguments, tuple((key, value) for key, _, value in options))


def _factor(types: JobTypes, name: str, most: float = 1e9) -> float:
    text = types.value(name)
    if text is None:
        return 0.0
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise BadRequest(f"{name}={text} is not {name}=<number from 0 to {most:g}>")
    return number

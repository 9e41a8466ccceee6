"""Records of advance reservations: rows, with technical terms instead of column names.

Dates are epoch seconds, 0 if there is none; durations are seconds.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from oar.lib.base.errors import BrokenRow
from oar.lib.jobs.records import Group, Level
from oar.lib.jobs.states import JobTypeName
from oar.lib.reservations.states import ChangeAnswer, ReservationState

#: Numbers that users see begin again after this one.
LARGEST_NUMBER = 9999999

#: Seconds by which a request without start and end may start later.
SOON = 60

#: The host of resources that were removed while a reservation held them, in bills and lists.
REMOVED = "removed"

#: The userset whose members may create advance reservations, and the one whose members may change all of them.
CREATORS, OPERATORS = "arusers", "aroperators"


def is_number(word: str) -> bool:
    """Return whether a text is the number of a reservation or a series, not a name."""
    return word.isascii() and word.isdigit() and len(word) <= len(str(LARGEST_NUMBER))


#: Characters of an entry of an access list.
_LONGEST_ENTRY = 255


class AccessEntry(NamedTuple):
    """One entry of an access list, as entered: a user, a pattern, ``@name``, ``%project``, or NONE."""

    text: str
    denied: bool = False  #: it was given with ``!`` before it

    @property
    def is_storable(self) -> bool:
        """Whether the entry fits into its row; entries written by other programs may be invalid."""
        is_text = type(self.text) is str and type(self.denied) is bool
        return is_text and len(self.text) <= _LONGEST_ENTRY and "\0" not in self.text


class AdvanceReservation(NamedTuple):
    """A row of ``reservations``."""

    id: int
    number: int  #: what users see
    name: str
    account: str
    owner: str
    owner_group: str
    project: str
    queue: str
    submission_time: int
    start: int
    end: int
    start_window: int  #: seconds by which the start may be later
    time_offset: int  #: seconds before the end at which its jobs have to be over
    state: ReservationState
    state_date: int
    ended: int  #: when it left the system; 0 = it is live
    is_hard: bool  #: no job of it starts while resources are missing
    replaces_lost: bool
    is_flexible: bool  #: its jobs may be beside it, before it, and after it
    is_interactive: bool
    ignores_jobs: bool
    idle_limit: int  #: it ends after so many seconds without a job; 0 = never
    request: str  #: JSON, see ``oar.lib.reservations.records``
    alternative: int  #: the number of the granted alternative of the request, from 0
    resource_list: str  #: JSON: pairs of a name and a value, as they were given
    queue_list: str
    master_queue_list: str
    host_list: str  #: of ``-h``, as it was given
    properties: str  #: the condition of ``-p``, as it was given
    checkpoint_name: str
    pe: str
    pe_range: str
    granted_pe: str
    granted_slots: int
    mail_options: str
    mail_list: str
    resources: tuple[int, ...]  #: ids of the granted resources, ascending
    missing: tuple[int, ...]  #: those of them on which no job could start now
    frame_id: int  #: the job by which it stands in the plan
    series_id: int
    series_index: int
    revision: int
    message: str
    proposal: int  #: after a refusal: the earliest start that was possible; 0 = none
    deleted_by: str

    @property
    def duration(self) -> int:
        """Seconds from start to end."""
        return self.end - self.start

    @property
    def real_end(self) -> int:
        """The end time, or the earlier time at which the idle reservation was ended."""
        was_idle = self.state is ReservationState.EXITED and self.start <= self.state_date < self.end
        return self.state_date if was_idle else self.end

    @property
    def is_live(self) -> bool:
        """Whether the reservation is still in the system."""
        return self.ended == 0

    @property
    def latest_job_end(self) -> int:
        """The time at which its jobs must have ended."""
        return self.end - self.time_offset

    @property
    def entry_type(self) -> str:
        """The job type of the jobs in the reservation."""
        if self.is_flexible:
            return f"{JobTypeName.ALLOWED}=ar{self.id}"
        return f"{JobTypeName.INNER}={self.frame_id}"

    @property
    def present(self) -> frozenset[int]:
        """The granted resources that are not missing."""
        return frozenset(self.resources) - frozenset(self.missing)


class NewReservation(NamedTuple):
    """A requested advance reservation; columns that are not listed here get their default."""

    owner: str
    start: int
    end: int
    request: str
    name: str = ""
    account: str = ""
    owner_group: str = ""
    project: str = "default"
    queue: str = ""
    start_window: int = 0
    time_offset: int = 0
    is_hard: bool = False
    replaces_lost: bool = False
    is_flexible: bool = False
    is_interactive: bool = False
    ignores_jobs: bool = False
    idle_limit: int = 0
    resource_list: str = "[]"
    queue_list: str = ""
    master_queue_list: str = ""
    host_list: str = ""
    properties: str = ""
    checkpoint_name: str = ""
    pe: str = ""
    pe_range: str = ""
    mail_options: str = "n"
    mail_list: str = ""
    series_id: int = 0
    series_index: int = 0


class ReservationAttributes(NamedTuple):
    """Attributes of a reservation that can change without the scheduler; None: not given, or unchanged."""

    name: str | None = None
    account: str | None = None
    mail_options: str | None = None
    mail_list: str | None = None
    is_hard: bool | None = None
    replaces_lost: bool | None = None
    idle_limit: int | None = None
    access: tuple[AccessEntry, ...] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The attributes that are given, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class ReservationLog(NamedTuple):
    """A row of ``reservation_logs``: an event of an advance reservation."""

    reservation_id: int
    date: int
    event: str
    state: ReservationState
    hostname: str = ""  #: the node that it is about; '' = none, or several
    message: str = ""
    author: str = ""


class LogLine(NamedTuple):
    """A line of the event log that is sent to the site."""

    line: int
    frame_id: int
    reservation_id: int
    number: int
    event: str
    state: str


class ReservationRevision(NamedTuple):
    """A row of ``reservation_revisions``: the attributes of an advance reservation from a date on."""

    reservation_id: int
    revision: int
    date: int
    author: str
    name: str
    account: str
    start: int
    end: int
    granted_pe: str
    granted_resources: str


class ReservationChange(NamedTuple):
    """A row of ``reservation_changes``: a requested change."""

    id: int
    reservation_id: int
    date: int
    author: str
    change: str  #: JSON
    answer: ChangeAnswer
    message: str
    proposal: int
    expires: int


class ResourceInterval(NamedTuple):
    """An interval of time in which a resource belonged to a reservation or to a job in it."""

    resource_id: int
    start: int
    stop: int  #: 0 = it still is


class ReservationUsage(NamedTuple):
    """A row of ``reservation_usage``: the bill of one node, in slot seconds."""

    queue: str
    network_address: str
    slots: int
    reserved: int
    used: int
    unusable: int
    termination_time: int = 0


class JobBound(NamedTuple):
    """A reservation before which a job must have ended."""

    number: int
    is_inside: bool  #: the job is in it
    date: int  #: of its start; for a job in it, the one at which its jobs are over


class LiveJobCounts(NamedTuple):
    """The live jobs of an advance reservation."""

    running: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()


#: A series has so many occurrences at most.
MAX_OCCURRENCES = 1000


class SeriesTemplate(NamedTuple):
    """The request of each occurrence of a series; the window and the index in the series are set later."""

    new: NewReservation
    access: tuple[AccessEntry, ...]

    def encode(self) -> str:
        """Return the template as JSON for the database."""
        return json.dumps({"new": self.new._asdict(), "access": self.access})


class NewSeries(NamedTuple):
    """A requested series; columns that are not listed here get their default."""

    owner: str
    rule: str  #: of RFC 5545
    time_zone: str  #: whose wall-clock time its starts keep; '' = the zone of the server, which has no name
    first_start: int
    duration: int
    template: str
    depth: int  #: so many occurrences are asked for in advance
    skips_conflicts: bool  #: what cannot be granted of the first ones is left out
    occurrences: int  #: how many it has in all
    next_index: int
    next_start: int


class Series(NamedTuple):
    """A row of ``reservation_series``."""

    id: int
    owner: str
    rule: str
    time_zone: str
    first_start: int
    duration: int
    template: str
    depth: int
    skips_conflicts: bool
    occurrences: int
    next_index: int  #: the number of the occurrence that is asked for next, from 1
    next_start: int  #: its start; 0 = all were asked for
    ended: int  #: 0 = it goes on

    @property
    def read_template(self) -> SeriesTemplate:
        """The parsed template of the occurrences.  Raises BrokenRow."""
        try:
            stored = json.loads(self.template)
            access = tuple(AccessEntry(text, denied) for text, denied in stored["access"])
            new = NewReservation(**stored["new"])
        except (ValueError, LookupError, TypeError):
            raise BrokenRow(f"the request of series {self.id} cannot be read") from None
        types = NewReservation.__annotations__
        wrong = [name for name, value in new._asdict().items() if type(value) is not types[name]]
        wrong += ["access" for each in access if not each.is_storable][:1]
        if wrong:
            raise BrokenRow(f"the request of series {self.id} cannot be read: {', '.join(wrong)}")
        decode(new.request)
        return SeriesTemplate(new, access)


#: No number in a request is larger: there are not so many resources, and no column for them.
MOST = 2**31 - 1

#: The condition that an admission rule adds to keep jobs off drained nodes.
_NOT_DRAINED = re.compile(r"\bdrain\s*=\s*'NO'", re.IGNORECASE)

#: What a stored value has to be.
Stored = TypeVar("Stored")


class ReservationAlternative(NamedTuple):
    """One way to satisfy a reservation: a resource request in one queue, after admission."""

    groups: tuple[Group, ...]
    pe: str = ""  #: the parallel environment by which the request was made; '' = none
    slots: int = 0  #: the slots that it was made for; 0 = what it takes
    size: int = 0  #: of the first one: what the largest one would take, for budgets; 0 = unknown


def encode(alternatives: Sequence[ReservationAlternative]) -> str:
    """Return alternatives as JSON."""
    numbers: dict[str, int] = {}
    stored = [
        {"groups": [(numbers.setdefault(group.filter, len(numbers)), group.levels) for group in each.groups]}
        | ({"pe": each.pe} if each.pe else {})
        | ({"slots": each.slots} if each.slots else {})
        | ({"size": each.size} if each.size else {})
        for each in alternatives
    ]
    return json.dumps({"filters": list(numbers), "alternatives": stored})


def decode(text: str) -> tuple[ReservationAlternative, ...]:
    """Return the alternatives in a stored JSON text; none if the text is empty.  Raises BrokenRow."""
    try:
        return _alternatives(json.loads(text) or {"filters": [], "alternatives": []})
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BrokenRow(f"the request of an advance reservation cannot be read: {text[:60]}") from None


def decode_readable(text: str) -> tuple[ReservationAlternative, ...]:
    """Return the alternatives as ``decode``, or none if the text cannot be read; for callers with many reservations."""
    try:
        return decode(text)
    except BrokenRow:
        return ()


def granted_groups(alternative: ReservationAlternative) -> tuple[Group, ...]:
    """Return the groups of a granted alternative, which do not depend on drains: the reservation has precedence."""
    return tuple(
        group._replace(filter=_NOT_DRAINED.sub("drain IN ('YES', 'NO')", group.filter)) for group in alternative.groups
    )


def _alternatives(stored: Mapping[str, Any]) -> tuple[ReservationAlternative, ...]:
    """Return stored alternatives.  Raises ValueError, LookupError or TypeError if the structure is invalid."""
    filters = [_of_type(str, each) for each in stored["filters"]]
    return tuple(
        ReservationAlternative(
            tuple(
                Group(filters[number], tuple(Level(_of_type(str, name), _number(n)) for name, n in levels))
                for number, levels in each["groups"]
            ),
            _of_type(str, each.get("pe", "")),
            _number(each.get("slots", 0)),
            _number(each.get("size", 0)),
        )
        for each in stored["alternatives"]
    )


def _number(value: object) -> int:
    if abs(number := _of_type(int, value)) > MOST:
        raise ValueError(f"{number} is too large")
    return number


def _of_type(type_: type[Stored], value: object) -> Stored:
    if not isinstance(value, type_) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no {type_.__name__}")
    if "\0" in str(value):
        raise ValueError("no column holds a NUL")
    return value

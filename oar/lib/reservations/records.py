"""Records of advance reservations: rows, with the words of the trade instead of column names.

Dates are epoch seconds, 0 when there is none; durations are seconds.
"""

from typing import NamedTuple

from oar.lib.jobs.states import JobTypeName
from oar.lib.reservations.states import ChangeAnswer, ReservationState

#: Numbers that users see begin again after this one.
LARGEST_NUMBER = 9999999

#: Seconds by which the start may be later of a request without a start and an end.
SOON = 60

#: The userset whose members may create advance reservations, and the one whose members may change all of them.
CREATORS, OPERATORS = "arusers", "aroperators"


def is_number(word: str) -> bool:
    """Whether a word is the number of a reservation or a series, and no name."""
    return word.isascii() and word.isdigit() and len(word) <= len(str(LARGEST_NUMBER))


#: Characters of an entry of an access list.
_LONGEST_ENTRY = 255


class AccessEntry(NamedTuple):
    """One entry of an access list, as it was given: a user, a pattern, ``@name``, ``%project``, or NONE."""

    text: str
    denied: bool = False  #: it was given with ``!`` before it

    @property
    def is_storable(self) -> bool:
        """Whether it fits into its row; one that another program has written may be anything."""
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
    request: str  #: JSON, see ``oar.lib.reservations.request_records``
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
        """Its end; the date at which it was ended if that is sooner, since no job was in it."""
        was_idle = self.state is ReservationState.EXITED and self.start <= self.state_date < self.end
        return self.state_date if was_idle else self.end

    @property
    def is_live(self) -> bool:
        """Whether it is still in the system."""
        return self.ended == 0

    @property
    def latest_job_end(self) -> int:
        """The date at which its jobs have to be over."""
        return self.end - self.time_offset

    @property
    def entry_type(self) -> str:
        """The type of the jobs in it."""
        if self.is_flexible:
            return f"{JobTypeName.ALLOWED}=ar{self.id}"
        return f"{JobTypeName.INNER}={self.frame_id}"

    @property
    def present(self) -> frozenset[int]:
        """The granted resources that are not missing."""
        return frozenset(self.resources) - frozenset(self.missing)


class NewReservation(NamedTuple):
    """An advance reservation that is asked for; columns that are not named here have their default."""

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


class ReservationLog(NamedTuple):
    """A row of ``reservation_logs``: what happened to an advance reservation."""

    reservation_id: int
    date: int
    event: str
    state: ReservationState
    hostname: str = ""  #: the node that it is about; '' = none, or several
    message: str = ""
    author: str = ""


class LogLine(NamedTuple):
    """A line of the log that the site is told of."""

    line: int
    frame_id: int
    reservation_id: int
    number: int
    event: str
    state: str


class ReservationRevision(NamedTuple):
    """A row of ``reservation_revisions``: what an advance reservation was from a date on."""

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
    """A row of ``reservation_changes``: what somebody wants to be changed."""

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
    """What a resource was to a reservation, or to a job in it, for a while."""

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
    """A reservation before which a job has to be over."""

    number: int
    is_inside: bool  #: the job is in it
    date: int  #: of its start; for a job in it, the one at which its jobs are over


class LiveJobCounts(NamedTuple):
    """The live jobs of an advance reservation."""

    running: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()

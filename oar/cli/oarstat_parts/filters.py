"""Which jobs oarstat shows: by id, array and condition, and the filters that need no SQL."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.cli.common.options import Join, Stop, option, optional_argument
from oar.lib.base.errors import BadRequest
from oar.lib.base.times import parse_date
from oar.lib.jobs.states import FINAL, STATE_LETTERS, JobState, states_of

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Job

#: Digits of the largest number of an advance reservation.
LONGEST_NUMBER = 7

_AGO = r"(?a)(\d{1,9})([smhdw])\Z"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

_DECLARATIONS = (
    option(
        "-t", "--states", join=Join.LIST, metavar="R,W,...", help="Show the jobs in these states (letters or names)."
    ),
    option("--name", metavar="NAME", help="Show the jobs with this name."),
    option("--queue", metavar="QUEUE", help="Show the jobs of this queue."),
    option("--project", metavar="PROJECT", help="Show the jobs of this project."),
    optional_argument(
        "--ar",
        "advance_reservation",
        metavar="[NUMBER|NAME]",
        help="Show the jobs in this advance reservation; with --accounting its bill, or all bills.",
    ),
    option("--frames", is_flag=True, help="Also show the frame jobs of advance reservations."),
    option(
        "--since", metavar="DATE|1d|2h|30m", help="Also show jobs that ended since then; with --follow: a position."
    ),
)


def filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options of the filters; ``read_filters`` reads their values."""
    for declare in reversed(_DECLARATIONS):
        function = declare(function)
    return function


class Filters(NamedTuple):
    """What jobs must be like; None does not restrict."""

    states: frozenset[JobState] | None = None
    name: str | None = None
    queue: str | None = None
    project: str | None = None
    since: int | None = None  #: jobs that ended before that date are left out

    @property
    def asks_for_ended(self) -> bool:
        """Whether jobs that have ended are meant by the states."""
        return self.states is not None and not self.states.isdisjoint(FINAL)

    def take(self, job: "Job") -> bool:
        """Whether a job is like that."""
        comparisons = ((self.name, job.name), (self.queue, job.queue), (self.project, job.project))
        if any(pattern is not None and pattern != value for pattern, value in comparisons):
            return False
        if self.states is not None and job.state not in self.states:
            return False
        return self.since is None or job.state not in FINAL or job.stop_time >= self.since


def read_filters(states: str | None, since: str | None, now: int) -> Filters:
    """Return the filters that have to be understood.  Raises BadRequest, Stop."""
    return Filters(
        None if states is None else _states(states),
        since=None if since is None else _since(since, now),
    )


def reservations_of(tx: "Transaction", word: str) -> frozenset[int]:
    """Return the ids of the advance reservations that a number or a name means.  Raises BadRequest."""
    is_number = word.isascii() and word.isdigit() and len(word) <= LONGEST_NUMBER
    ids = tx.reservations.ids_of(int(word) if is_number else word)
    if not ids:
        raise BadRequest(f"the advance reservation {word} does not exist.")
    return ids


def _is_nobody(tx: "Transaction", user: str) -> bool:
    """Return whether a name belongs to no account of this machine, present or past."""
    from oar.lib.access.accounts import has_account

    return not has_account(user) and not tx.listings.has_jobs(user)


def _states(text: str) -> frozenset[JobState]:
    states: set[JobState] = set()
    for name in (part.strip() for part in text.split(",")):
        meant = states_of(name)
        if not meant:
            from oar.lib.base.did_you_mean import did_you_mean

            letters = " ".join(dict.fromkeys(STATE_LETTERS.values()))
            raise Stop(f'# Error: "{name}" is no state: {letters}, or a name{did_you_mean(name, JobState)}')
        states.update(meant)
    return frozenset(states)


def _since(text: str, now: int) -> int:
    match = re.match(_AGO, text.strip())
    if match:
        return now - int(match[1]) * _UNITS[match[2]]
    try:
        return parse_date(text)
    except BadRequest:
        raise BadRequest(f'"{text}" is no date: YYYY-MM-DD hh:mm:ss, or 1d, 2h, 30m for that long ago') from None


class JobFilter(NamedTuple):
    """The selected jobs; None does not restrict."""

    ids: tuple[int, ...] | None = None
    arrays: tuple[int, ...] | None = None  #: () = the live jobs, as arrays
    matching: frozenset[int] | None = None  #: those that satisfy --sql
    user: str | None = None
    advance_reservations: frozenset[int] | None = None  #: ids; the jobs are in one of them
    frames: bool = False  #: the jobs by which advance reservations stand in the plan, too
    filters: Filters = Filters()

    @property
    def names_jobs(self) -> bool:
        """Whether jobs are named, ended ones too."""
        return bool(self.ids is not None or self.arrays or self.matching is not None)

    def check(self) -> None:
        """Refuse to look through all that ever ran.  Raises BadRequest."""
        if self.filters.asks_for_ended and self.filters.since is None and not self.names_jobs:
            raise BadRequest("say since when for jobs that have ended: --since 1d, or a date")

    def jobs(self, tx: "Transaction") -> "list[Job]":
        """Return the jobs, by id: the live ones unless ids, arrays, a condition or a date name others."""
        if self.ids is not None:
            jobs = tx.jobs.select(self.ids)
        elif self.arrays:
            jobs = tx.jobs.of_arrays(self.arrays)
        elif self.matching is not None:
            jobs = tx.jobs.select(self.matching)
        else:
            jobs = self._live_and_recent(tx)
        if not (self.frames or self.names_jobs) or self.advance_reservations is not None:
            jobs = self._without_frames(tx, jobs)
        is_open = self.user is None and self.matching is None and self.filters == Filters()
        return jobs if is_open else [job for job in jobs if self._takes(job)]

    def _without_frames(self, tx: "Transaction", jobs: "list[Job]") -> "list[Job]":
        """Remove frame jobs of advance reservations, and jobs outside the requested reservation."""
        ids = [job.id for job in jobs]
        frames = {} if self.frames else tx.reservations.of_frames(ids)
        shown = [job for job in jobs if job.id not in frames]
        if (wanted := self.advance_reservations) is None:
            return shown
        own = {frame: reservation for frame, (reservation, _) in tx.reservations.of_frames(ids).items()}
        inside = tx.reservations.of_jobs(ids) | own
        return [job for job in shown if inside.get(job.id) in wanted]

    def complaints(self, tx: "Transaction") -> list[str]:
        """Return complaints about given jobs, users and queues that do not exist."""
        missing = set(self.ids).difference(tx.jobs.states(self.ids)) if self.ids else set()
        complaints = [f"job {job_id} does not exist." for job_id in sorted(missing)]
        if self.user is not None and _is_nobody(tx, self.user):
            from oar.cli.common.render import visible

            complaints.append(f"there is no user {visible(self.user)} here.")
        if self.filters.queue is not None:
            queues = [queue.name for queue in tx.queues.all()]
            if self.filters.queue not in queues:
                from oar.cli.common.render import visible
                from oar.lib.base.did_you_mean import did_you_mean

                guess = did_you_mean(self.filters.queue, queues)
                complaints.append(f"queue {visible(self.filters.queue)} does not exist.{guess}")
        return complaints

    def _live_and_recent(self, tx: "Transaction") -> "list[Job]":
        live = tx.jobs.live(self.user)
        if self.filters.since is None:
            return live
        ended = tx.jobs.select(tx.listings.ended_since(self.filters.since, self.user))
        return sorted([*ended, *live], key=lambda job: job.id)

    def _takes(self, job: "Job") -> bool:
        is_users = self.user is None or job.user == self.user
        return is_users and (self.matching is None or job.id in self.matching) and self.filters.take(job)

"""Walltime changes of running jobs: the requests of users, and their status.

This module checks and stores requests; the scheduler grants them at the beginning of its next pass.
See docs/design/planner.rst, "Walltime changes".
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest, NoSuchJob, UserError
from oar.lib.base.times import format_date, format_duration, format_signed_duration, parse_duration, seconds_of
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control
from oar.lib.jobs.control import owns
from oar.lib.jobs.records import Job
from oar.lib.jobs.sql_requests import WalltimeChange
from oar.lib.jobs.states import JobState, JobTypeName

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.reservations.records import JobBound

T = TypeVar("T")

NO_LIMIT = -1
EVERYBODY = "*"
#: Seconds by which a job with walltime=best may grow where the site has no limit.
DEFAULT_GROWTH = 86400

#: What a change looks like, and who makes changes possible: for people.
CHANGE_FORM = "As a change, +1:30 adds an hour and a half, -0:10 takes ten minutes, 5:00 means five hours in all."
WAY_TO_ENABLE = "An administrator lets walltimes change with WALLTIME_CHANGE_ENABLED in oar.conf."

_CHANGE = re.compile(r"(?P<sign>[+-]?)(?P<duration>\d.*)\Z", re.ASCII | re.DOTALL)


class WalltimeOutcome(Enum):
    """The result of a request for a walltime change, as text for users."""

    ACCEPTED = "Accepted"
    BAD_REQUEST = "Bad request"
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "Not found"
    NOT_AVAILABLE = "Not available"


class ChangeRefused(UserError):
    """A request for a walltime change is rejected."""

    def __init__(self, outcome: WalltimeOutcome, text: str, way_out: str = "") -> None:
        super().__init__(text)
        self.outcome = outcome
        self.way_out = way_out  #: a sentence that helps


class WalltimeRequest(NamedTuple):
    """A request for a walltime change; the options are those of oarwalltime."""

    change: str  #: ``[+|-]h[:m[:s]]``; without sign: the new walltime
    force: bool = False
    delay_next_jobs: bool = False
    whole: bool = False
    timeout: int | None = None  #: seconds; None: the site's default


class Limits(NamedTuple):
    """The rules of the site for a queue; numbers between 0 and 1 are fractions of the original walltime."""

    max_increase: float
    least: float
    increment: float
    may_reduce: bool
    may_force: tuple[str, ...]
    may_delay: tuple[str, ...]
    timeout: int


class Ways(NamedTuple):
    """The options for a walltime change that a user may use."""

    reduce: bool
    force: bool
    delay_next_jobs: bool
    whole: bool


class WalltimeStatus(NamedTuple):
    """The walltime of a job, with its changes."""

    job: Job
    walltime: int
    change: WalltimeChange
    possible: int | None  #: the seconds by which it may still grow; None: no limit


def limits_of(config: "Config", queue: str) -> Limits:
    def chosen(table: Mapping[str, T], default: T) -> T:
        return table.get(queue, table.get("_", default))

    return Limits(
        max_increase=chosen(config.walltime_max_increase, 0.0),
        least=chosen(config.walltime_min_for_change, 0.0),
        increment=chosen(config.walltime_increment, 0.0),
        may_reduce=not chosen(config.walltime_reduction_disallowed, False),
        may_force=chosen(config.walltime_allowed_users_to_force, ()),
        may_delay=chosen(config.walltime_allowed_users_to_delay_jobs, ()),
        timeout=chosen(config.walltime_change_timeout, 0),
    )


def ways(config: "Config", queue: str, user: User | None) -> Ways:
    """Return the options that a user may use for jobs of a queue; ``user`` None: an unknown user, who may use none."""
    limits = limits_of(config, queue)
    if user is None or not config.walltime_change_enabled:
        return Ways(reduce=False, force=False, delay_next_jobs=False, whole=False)
    return Ways(
        reduce=limits.may_reduce or user.is_admin,
        force=_is_in(user, limits.may_force),
        delay_next_jobs=_is_in(user, limits.may_delay),
        whole=not limits.increment,
    )


def walltime_status(tx: "Transaction", config: "Config", job_id: int) -> WalltimeStatus:
    """Return the walltime of a job with its changes.  Raises NoSuchJob."""
    job = tx.jobs.find(job_id)
    if job is None:
        raise NoSuchJob(job_id)
    walltime, change = _walltime(tx, job), tx.job_requests.find_walltime_change(job_id)
    most = _most(limits_of(config, job.queue), walltime - change.granted)
    possible = [] if most == NO_LIMIT else [max(0, most - change.granted)]
    if job.state is JobState.RUNNING and (bound := _bound(tx, config, job, walltime)):
        possible.append(bound[0])
    return WalltimeStatus(job, walltime, change, min(possible, default=None))


def _walltime(tx: "Transaction", job: Job) -> int:
    """Return the walltime of the started alternative, else of the first one."""
    moldables = tx.new_jobs.moldables_of_jobs([job.id])[job.id]
    return next((moldable for moldable in moldables if moldable.id == job.assigned_moldable), moldables[0]).walltime


def _most(limits: Limits, original: int) -> int:
    """Return the maximum increase of a walltime in seconds; return NO_LIMIT if there is no limit."""
    return NO_LIMIT if limits.max_increase == NO_LIMIT else seconds_of(limits.max_increase, original)


def growth(config: "Config", queue: str, walltime: int) -> int:
    """Return the number of seconds by which a job with ``walltime=best`` may grow. Raises BadRequest."""
    if not config.walltime_change_enabled:
        raise BadRequest("walltimes cannot change on this site (WALLTIME_CHANGE_ENABLED).")
    limits = limits_of(config, queue)
    most, least = _most(limits, walltime), seconds_of(limits.least, walltime)
    if not most:
        raise BadRequest(f"no walltime can grow in the queue {queue} (WALLTIME_MAX_INCREASE).")
    if walltime < least:
        raise BadRequest(f"a walltime below {format_duration(least)} cannot change (WALLTIME_MIN_FOR_CHANGE).")
    return DEFAULT_GROWTH if most == NO_LIMIT else most


def _bound(tx: "Transaction", config: "Config", job: Job, walltime: int) -> "tuple[int, JobBound] | None":
    """Return the seconds by which a running job can grow before an advance reservation, and that reservation.

    Return None if no reservation limits the job.
    """
    held = tx.jobs.assigned([job.id], current=True).get(job.id, [])
    bounds = tx.reservations.job_bounds(job.id, [resource.id for resource in held])
    end = job.start_time + walltime + tx.jobs.suspended_times([job.id]).get(job.id, 0)
    growths = []
    for bound in bounds:
        gap = 0 if bound.is_inside else config.scheduler_job_security_time
        growths.append((max(0, bound.date - gap - end), bound))
    return min(growths, default=None)


# -- a request --------------------------------------------------------------------------------------------------------


def request(tx: "Transaction", config: "Config", user: User | None, job_id: int, options: WalltimeRequest) -> str:
    """Store a request for a walltime change, which replaces a pending one; return the text for the user.

    ``user`` None: the user is unknown. Raises ChangeRefused.
    """
    if not config.walltime_change_enabled:
        raise ChangeRefused(WalltimeOutcome.NOT_AVAILABLE, "functionality is disabled", WAY_TO_ENABLE)
    if user is None:
        raise ChangeRefused(WalltimeOutcome.BAD_REQUEST, "anonymous request is not allowed")
    job = _locked_job(tx, user, job_id)
    walltime, former = _walltime(tx, job), tx.job_requests.find_walltime_change(job_id)
    limits = limits_of(config, job.queue)
    seconds = _parse_change(options.change, walltime)
    if job.state is not JobState.RUNNING:
        waits = job.state in (JobState.WAITING, JobState.HOLD)
        way_out = f"It has not begun: oaralter {job_id} -l walltime=HOURS:MINUTES" if waits else ""
        raise ChangeRefused(WalltimeOutcome.FORBIDDEN, f"job {job_id} is not running", way_out)
    if seconds:
        _check_options(user, options, limits)
        _check_site_limits(tx, user, job, former, limits, walltime=walltime, seconds=seconds)
        _check_reservations(tx, config, job, walltime, seconds)
        _check_budgets(tx, config, job, walltime, seconds)
    if seconds < 0:
        _check_used_time(tx, job, walltime, seconds)
    _store(tx, user, job, options, seconds=seconds, timeout=limits.timeout)
    verb = "updated" if former.pending else "accepted"
    return f"walltime change request {verb} for job {job_id}, it will be handled shortly"


def _locked_job(tx: "Transaction", user: User, job_id: int) -> Job:
    """Lock and return a job that the user owns or administers. Raises ChangeRefused."""
    job = tx.jobs.lock(job_id)
    if job is None:
        raise ChangeRefused(WalltimeOutcome.NOT_FOUND, f"could not find job {job_id}")
    if not owns(user, job):
        raise ChangeRefused(WalltimeOutcome.FORBIDDEN, f"job {job_id} does not belong to you")
    for text in control.frame_texts(tx, [job_id]).values():
        raise ChangeRefused(WalltimeOutcome.FORBIDDEN, text.removesuffix("."))
    return job


def _parse_change(text: str, walltime: int) -> int:
    """Return the requested change in seconds. Raises ChangeRefused."""
    match = _CHANGE.match(text.strip())
    try:
        seconds = parse_duration(match["duration"] if match else "")
    except BadRequest:
        way_out = f"{text!r} is not a change. {CHANGE_FORM}"
        raise ChangeRefused(WalltimeOutcome.BAD_REQUEST, "syntax error", way_out) from None
    sign = match["sign"] if match else ""
    return {"+": seconds, "-": -seconds, "": seconds - walltime}[sign]


def _check_options(user: User, options: WalltimeRequest, limits: Limits) -> None:
    if options.whole and limits.increment:
        raise ChangeRefused(
            WalltimeOutcome.BAD_REQUEST,
            "OAR is configured to place walltime changes incrementally, disallowing usage of oarwalltime 'whole'"
            " option",
        )
    if options.force and not _is_in(user, limits.may_force):
        raise ChangeRefused(WalltimeOutcome.FORBIDDEN, "walltime change for this job is not allowed to be forced")
    if options.delay_next_jobs and not _is_in(user, limits.may_delay):
        raise ChangeRefused(
            WalltimeOutcome.FORBIDDEN, "walltime change for this job is not allowed to delay other jobs"
        )


def _is_in(user: User, allowed: tuple[str, ...]) -> bool:
    return user.is_admin or EVERYBODY in allowed or user.name in allowed


def _check_site_limits(
    tx: "Transaction", user: User, job: Job, former: WalltimeChange, limits: Limits, *, walltime: int, seconds: int
) -> None:
    """Check the rules of the site, which apply to the walltime without granted changes. Raises ChangeRefused."""
    original = walltime - former.granted
    if seconds < 0 and not (limits.may_reduce or user.is_admin):
        raise ChangeRefused(WalltimeOutcome.BAD_REQUEST, "walltime reduction is not allowed")
    least, most = seconds_of(limits.least, original), _most(limits, original)
    if original < least:
        text = f"walltime change is not allowed for a job with walltime < {format_duration(least)}"
        raise ChangeRefused(WalltimeOutcome.FORBIDDEN, text)
    if seconds < 0:
        from oar.lib.submission.resource_request import JobTypes

        if JobTypeName.CONTAINER in JobTypes(tx.jobs.types([job.id], current=True).get(job.id, ())):
            raise ChangeRefused(WalltimeOutcome.FORBIDDEN, "reducing the walltime of a container job is not allowed")
    elif not user.is_admin and most != NO_LIMIT and former.granted + seconds > most:
        verb = "updated" if former.pending else "accepted"
        text = f"request cannot be {verb} because the walltime cannot increase by more than {format_duration(most)}"
        raise ChangeRefused(WalltimeOutcome.FORBIDDEN, text)


def _check_reservations(tx: "Transaction", config: "Config", job: Job, walltime: int, seconds: int) -> None:
    """Reject growth beyond the end of the job's advance reservation, or into another one. Raises ChangeRefused."""
    bound = _bound(tx, config, job, walltime) if seconds > 0 else None
    if bound is None or seconds <= bound[0]:
        return
    possible, (number, is_inside, date) = bound
    most = f"grow by more than {format_duration(possible)}" if possible else "grow"
    why = (
        f"the jobs of the advance reservation {number} are over at {format_date(date)}"
        if is_inside
        else f"the advance reservation {number} begins on its resources at {format_date(date)}"
    )
    raise ChangeRefused(WalltimeOutcome.FORBIDDEN, f"job {job.id} cannot {most}: {why}")


def _check_budgets(tx: "Transaction", config: "Config", job: Job, walltime: int, seconds: int) -> None:
    """Reject growth that a budget of the job's project does not allow.  Raises ChangeRefused."""
    from oar.lib.accounts import growth

    end = job.start_time + walltime + tx.jobs.suspended_times([job.id]).get(job.id, 0)
    exhaustion = growth.find_exhaustion(tx, config, job, end, seconds) if seconds > 0 else None
    if exhaustion:
        way_out = "Ask a manager of the project for hours."
        raise ChangeRefused(WalltimeOutcome.FORBIDDEN, exhaustion.text.removesuffix("."), way_out)


def _check_used_time(tx: "Transaction", job: Job, walltime: int, seconds: int) -> None:
    """Reject a walltime that is not longer than the time already used, since it would end the job.

    Raises ChangeRefused.
    """
    used = tx.now - job.start_time - tx.jobs.suspended_times([job.id]).get(job.id, 0)
    if walltime + seconds > used:
        return
    raise ChangeRefused(
        WalltimeOutcome.FORBIDDEN,
        f"job {job.id} has used {format_duration(used)} of its {format_duration(walltime)} already, it cannot get"
        f" {format_duration(-seconds)} less (5 minutes less are -0:5). To end it: oardel {job.id}",
    )


def _store(tx: "Transaction", user: User, job: Job, options: WalltimeRequest, *, seconds: int, timeout: int) -> None:
    change = WalltimeChange()
    event, text = EventType.WALLTIME_REQUEST_CANCELLATION, f"User {user.author} cancelled the walltime change"
    details = ""
    if seconds:
        timeout = timeout if options.timeout is None else options.timeout
        change = WalltimeChange(seconds, options.force, options.delay_next_jobs, options.whole, timeout)
        event, text = EventType.WALLTIME_REQUEST, f"User {user.author} requested a walltime change"
        parts = {
            format_signed_duration(seconds): True,
            "force": options.force,
            "whole": options.whole,
            "delay next jobs": options.delay_next_jobs,
            f"timeout: {format_duration(timeout)}": timeout,
        }
        details = f" ({'/'.join(part for part, is_set in parts.items() if is_set)})"
    tx.job_requests.request_walltime(job.id, change)
    what = f"walltime {format_signed_duration(seconds)}" if seconds else "no walltime change"
    audit.record_jobs(tx, user, AuditAction.CHANGE, [job], Values(new=f"{what}{details}"))
    tx.events.add(event, job.id, f"{text} of the job {job.id}{details}")
    tx.outbox.append(Wake(Tag.WALLTIME))

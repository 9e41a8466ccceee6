"""Jobs that are submitted into an advance reservation: find the reservation, check access, check that the job fits.

See docs/design/reservations.rst, "Jobs inside".
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from oar.lib.base.errors import WrongState
from oar.lib.base.times import format_date, format_duration
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobTypeName
from oar.lib.reservations.permissions import allowed_visitors, lists_that_allow, visitor_of
from oar.lib.reservations.records import AdvanceReservation
from oar.lib.reservations.states import GRANTED, STARTED, ReservationState
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.feasibility import Cluster
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.resource_request import JobTypes, format_request

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class NoEntry(BadSubmission):
    """A job may not use an advance reservation."""

    def __init__(self, text: str) -> None:
        super().__init__(Code.REQUEST, text)


def check_no_frame(tx: "Transaction", types: Iterable[str]) -> None:
    """Raise NoEntry if job types would place a job in an advance reservation without an access check.

    Types that name a future reservation are also rejected.
    """
    named = JobTypes(types)
    numbers = [int(text) for text in named.values(JobTypeName.INNER) if _is_number(text)]
    for frame, (_, number) in tx.reservations.of_frames(numbers).items():
        raise NoEntry(f"job {frame} is the frame of the advance reservation {number}, use --ar {number}.")
    for text in filter(_is_number, named.values(JobTypeName.CONTAINER)):
        raise NoEntry(f"a container cannot be named {text}: a number is that of a job, or of an advance reservation.")
    placeholders = (*named.values(JobTypeName.ALLOWED), *named.values(JobTypeName.PLACEHOLDER))
    ids = {int(text[2:]) for text in placeholders if text.startswith("ar") and _is_number(text[2:])}
    reservations = {reservation.id: reservation for reservation in tx.reservations.select(ids)}
    for reservation_id in sorted(ids):
        reservation = reservations.get(reservation_id)
        if reservation is None:
            raise NoEntry(f"ar{reservation_id} is kept for an advance reservation, choose another name.")
        if reservation.is_live:
            shown = f"ar{reservation_id} is the placeholder of the advance reservation {reservation.number}"
            raise NoEntry(f"{shown}, use --ar {reservation.number}.")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def find(tx: "Transaction", proposal: Proposal, project: str) -> AdvanceReservation:
    """Return the advance reservation of a proposal; ``project``: the project of the job.  Raises NoEntry."""
    text = proposal.advance_reservation
    if JobTypeName.INNER in JobTypes(proposal.spec.types):
        raise NoEntry("a job cannot be in an advance reservation (--ar) and in a container (-t inner) of its own.")
    if _is_number(text):
        reservation = tx.reservations.by_numbers([int(text)]).get(int(text))
    else:
        reservation = _find_by_name(tx, proposal, text, project)
    if reservation is None and tx.reservations.ids_of(text):
        raise NoEntry(f"the advance reservation {text} has ended.")
    if reservation is None or reservation.state is ReservationState.REFUSED:
        raise NoEntry(f"the advance reservation {text} does not exist.")
    _check_live(reservation)
    check_access(tx, reservation, proposal.spec.user, project)
    return reservation


def _find_by_name(tx: "Transaction", proposal: Proposal, name: str, project: str) -> AdvanceReservation | None:
    """Return the live reservation of a name: granted, usable by the user and running ones first, then by start."""
    live = tx.reservations.live_by_name(name)
    access = tx.reservations.access([reservation.id for reservation in live])
    usable = lists_that_allow(tx, access, visitor_of(proposal.spec.user, project))

    def rank(reservation: AdvanceReservation) -> tuple[bool, bool, bool, int, int]:
        is_usable, is_started = reservation.id in usable, reservation.state in STARTED
        return reservation.state not in GRANTED, not is_usable, not is_started, reservation.start, reservation.number

    return min(live, key=rank, default=None)


def _check_live(reservation: AdvanceReservation) -> None:
    if reservation.is_live and reservation.state is ReservationState.ASKED:
        raise NoEntry(f"the advance reservation {reservation.number} is not granted yet.")
    if not reservation.is_live or reservation.state not in GRANTED:
        raise NoEntry(f"the advance reservation {reservation.number} has ended.")


def check_access(tx: "Transaction", reservation: AdvanceReservation, user: str, project: str) -> None:
    """Raise NoEntry if the access list does not allow the user."""
    access = tx.reservations.access([reservation.id])[reservation.id]
    if not allowed_visitors(tx, access, {user: visitor_of(user, project)}):
        raise NoEntry(f"you are not allowed to use the advance reservation {reservation.number}.")


def longest(reservation: AdvanceReservation, date: int) -> int:
    """Return the maximum walltime of a job that begins at a date, but not before the start of the reservation.

    Jobs of a flexible reservation may continue after it; its duration is only a guideline for them.
    """
    return max(0, reservation.latest_job_end - max(date, reservation.start))


def with_walltimes(reservation: AdvanceReservation, proposal: Proposal, now: int) -> tuple[Proposal, list[str]]:
    """Limit the default walltimes of the alternatives to the time left in the reservation.

    Return the changed proposal and the messages about it.
    """
    requests, said = list(proposal.requests), []
    left = 0 if reservation.is_flexible else longest(reservation, proposal.start or now)
    for index, (request, default) in enumerate(zip(proposal.requests, proposal.default_walltimes, strict=True)):
        if default:
            walltime = min(left or default, default)
            requests[index] = request._replace(walltime=walltime)
            said.append(f"[AR {reservation.number}] Set walltime to {format_duration(walltime)}.")
    return proposal._replace(requests=tuple(requests)), said


def check_fits(
    cluster: Cluster, reservation: AdvanceReservation, proposal: Proposal, before: Proposal, now: int
) -> None:
    """Raise NoEntry if a job could not run in its reservation even without other jobs.

    ``before``: the proposal before the rules changed it.
    """
    if reservation.is_flexible or not proposal.verifies:
        return
    _check_walltimes(reservation, proposal, now)
    part, properties = cluster.part(reservation.resources), proposal.stored_properties
    for number, request in enumerate(proposal.requests):
        if part.size(request.groups, properties) is None:
            lack = part.lack(request.groups, properties, before.conditions_of_user(request, number))
            of_user = before.requests[number] if number < len(before.requests) else request
            shown = format_request(of_user.groups, None)
            raise NoEntry(f"the advance reservation {reservation.number} cannot hold -l {shown}: {lack}.")


def _check_walltimes(reservation: AdvanceReservation, proposal: Proposal, now: int) -> None:
    whole, left = longest(reservation, reservation.start), longest(reservation, proposal.start or now)
    name = f"the advance reservation {reservation.number}"
    if proposal.start and not reservation.start <= proposal.start < reservation.latest_job_end:
        first, last = format_date(reservation.start), format_date(reservation.latest_job_end)
        raise NoEntry(
            f"{format_date(proposal.start)} is not a start for a job in {name}: use a date from {first} to {last}."
        )
    for walltime in (request.walltime or 0 for request in proposal.requests):
        if walltime > whole:
            raise NoEntry(
                f"walltime {format_duration(walltime)} is longer than {name} allows ({format_duration(whole)})."
            )
        if walltime > left:
            raise NoEntry(
                f"walltime {format_duration(walltime)} exceeds the remaining time of {name} ({format_duration(left)})."
            )


def enter(tx: "Transaction", seen: AdvanceReservation, ids: Sequence[int]) -> None:
    """Store that jobs are in a reservation, and lock it against changes until the end of the transaction.

    ``seen``: the reservation when the jobs were checked.  Raises NoEntry.
    """
    now = tx.reservations.share(seen.id)
    if now is None:
        raise NoEntry(f"the advance reservation {seen.number} does not exist.")
    _check_live(now)
    if (now.revision, now.frame_id) != (seen.revision, seen.frame_id):
        raise NoEntry(f"the advance reservation {seen.number} was changed meanwhile: submit the job again.")
    tx.reservations.add_job(seen.id, ids)


def again(
    tx: "Transaction", job: Job, types: Sequence[str], walltime: int
) -> tuple[tuple[str, ...], AdvanceReservation | None]:
    """Return the types of a copy of a job, and the reservation that it stays in; None if it is in none.

    ``walltime``: the longest requested walltime, at least 1 s.  Raises WrongState if the reservation has ended, is too
    short, or no longer allows its user.
    """
    reservation_id = tx.reservations.of_jobs([job.id]).get(job.id)
    reservation = tx.reservations.share(reservation_id) if reservation_id else None
    if reservation is None:
        return tuple(types), None
    others = tuple(text for text in types if text != reservation.entry_type)
    is_over = not reservation.is_live or reservation.state not in GRANTED
    if is_over and reservation.is_flexible:  # its jobs continue outside
        return others, None
    if is_over:
        raise WrongState(f"the advance reservation {reservation.number} has ended.")
    try:
        check_access(tx, reservation, job.user, job.project)
    except NoEntry as error:
        raise WrongState(str(error)) from None
    if walltime > longest(reservation, tx.now) and not reservation.is_flexible:
        raise WrongState(f"the advance reservation {reservation.number} does not last long enough.")
    return (*others, reservation.entry_type), reservation

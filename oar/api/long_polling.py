"""Requests that wait for a change: of a job, of a reservation's decision, of a log.  They hold no thread."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import Request

from oar.api.concurrency import in_thread
from oar.api.errors import problem_record
from oar.api.hub import BYE, Subscriber, Takes
from oar.api.service import Asking, asking, service_of
from oar.api.workers import Outcome
from oar.lib.base.errors import BadRequest, Unavailable
from oar.lib.history.records import JobStateChange
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.submission.job_reservation import Decision, decision_on

if TYPE_CHECKING:
    from oar.lib.db.database import Database

#: Seconds that a request waits, at most.
MAX_WAIT = 30.0


async def wait_while(request: Request, job_id: int, states: Collection[JobState] | None, seconds: float) -> None:
    """Wait while a job is in one of some states (None: its current one) and has not ended.

    Raises NoSuchJob, TooMany, and the errors of a caller who may not read.
    """
    until = asyncio.get_running_loop().time() + min(seconds, MAX_WAIT)
    who = await in_thread(asking, request)
    # It listens before the first look, so that no change is between them.
    listener = Subscriber(changes_of(job_id), frozenset())
    with service_of(request).listening(request, who.caller, listener):
        request.state.seat.give_back()
        job = await in_thread(_job, who, job_id)
        awaited = frozenset((job.state,)) if states is None else states
        while job.state in awaited and not job.is_final and await _is_notified(listener, until):
            job = await in_thread(_job, who, job_id)


def check_wait(seconds: int, reservation: str | None) -> None:
    """Check that a submission that waits requests a reservation: only these are decided.  Raises BadRequest."""
    if seconds and reservation is None:
        raise BadRequest("`wait` must be used with `reservation`\nfor other jobs use GET /v1/jobs/ID?wait=30")


async def with_answer(request: Request, outcome: Outcome, seconds: int) -> Outcome:
    """Wait for the decision on submitted reservations, and return the outcome with the decision.

    If there is none in time, or nobody can wait now, ``reservation`` says so: the jobs exist, and whoever is told of a
    failure submits them again.
    """
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return outcome
    ids = outcome.record["ids"]
    decision: Decision | None = None
    with suppress(Unavailable):
        decision = await _reservation_answer(request, ids, seconds)
    if decision and not decision.is_granted:
        refused = problem_record(HTTPStatus.CONFLICT, "reservation-refused", str(decision), ids=ids)
        return outcome._replace(status=HTTPStatus.CONFLICT, record=refused)
    reservation = Reservation.SCHEDULED if decision else Reservation.TO_SCHEDULE
    return outcome._replace(record={**outcome.record, "reservation": reservation})


async def _reservation_answer(request: Request, ids: Sequence[int], seconds: int) -> Decision | None:
    service = service_of(request)
    until = asyncio.get_running_loop().time() + min(seconds, MAX_WAIT)
    awaited = frozenset(ids)
    listener = Subscriber(lambda row: isinstance(row, JobStateChange) and row.job_id in awaited, frozenset())
    request.state.seat.give_back()
    with ExitStack() as held:
        try:
            held.enter_context(service.listening(request, request.state.caller, listener))
        except Unavailable:  # too many wait, or nothing is told yet
            until = 0.0
        while True:
            decision = await in_thread(_answer_to_all, service.runtime.database, ids)
            if decision or not await _is_notified(listener, until):
                return decision


def _answer_to_all(database: "Database", ids: Sequence[int]) -> Decision | None:
    """Return the decision on several reservations: the first rejection; None while one is undecided."""
    jobs = {job.id: job for job in database.look(lambda tx: tx.jobs.select(ids))}
    decisions = [decision_on(jobs.get(decision)) for decision in ids]
    refused = next((decision for decision in decisions if decision and not decision.is_granted), None)
    return refused or (None if None in decisions else decisions[0])


async def wait_until_seen(
    request: Request,
    listener: Subscriber,
    is_seen: Callable[[Asking], bool],
    seconds: float,
    pause: Callable[[], float] = lambda: MAX_WAIT,
) -> None:
    """Wait until ``is_seen``, which is called for each message to the listener, and after each pause.

    Raises TooMany, and the errors of a caller who may not read.
    """
    until = asyncio.get_running_loop().time() + min(seconds, MAX_WAIT)
    who = await in_thread(asking, request)
    with service_of(request).listening(request, who.caller, listener):
        request.state.seat.give_back()
        while not await in_thread(is_seen, who):
            left = until - asyncio.get_running_loop().time()
            messages = await listener.next(max(0.0, min(left, pause())))
            if left <= 0 or any(message.name == BYE for message in messages):
                return


async def _is_notified(listener: Subscriber, until: float) -> bool:
    """Wait for messages; return whether there are any before the time limit and before the service stops."""
    messages = await listener.next(max(0.0, until - asyncio.get_running_loop().time()))
    return bool(messages) and all(message.name != BYE for message in messages)


def _job(who: Asking, job_id: int) -> Job:
    with who.database.snapshot() as tx:
        return tx.jobs.get(job_id)


def changes_of(job_id: int) -> Takes:
    return lambda row: isinstance(row, JobStateChange) and row.job_id == job_id

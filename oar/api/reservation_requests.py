"""Requests for advance reservations, as qrsub makes them: the routes, and the tasks of a worker.

A worker stores the request, which the admission rules of the site have accepted; the scheduler decides on it.
"""

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, Field
from starlette.requests import Request

from oar.api.concurrency import in_thread
from oar.api.errors import problem
from oar.api.parameters import STRICT, IdempotencyKey, Text
from oar.api.records import CreatedReservations, ReservationTest
from oar.api.reservations import reader_for
from oar.api.responses import Answer, answer
from oar.api.routing import Router
from oar.api.service import Asking, asking, service_of
from oar.api.workers import Desk, Outcome, answer_of, text_of
from oar.lib.access.records import User
from oar.lib.base.errors import Unavailable
from oar.lib.reservations import requests
from oar.lib.reservations.options import ReservationOptions
from oar.lib.reservations.requests import Requester
from oar.lib.reservations.states import ReservationState
from oar.lib.reservations.views import granted_slots, reservation_record, shown
from oar.lib.submission.once import REPLAYED, AlreadyDone, Once

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.reservations.frames import StoredRequest
    from oar.lib.reservations.options import ReservationRequest as ValidatedRequest
    from oar.lib.reservations.records import AdvanceReservation

router = Router("reservations")


class CreateReservation(NamedTuple):
    """The task to store a request, on which the scheduler decides."""

    user: User
    options: ReservationOptions
    line: str
    once: Once | None = None  #: the idempotency key of the request, recorded in the same transaction

    def run(self, desk: Desk) -> Outcome:
        """Store the request.  Raises UserError, Unavailable."""
        record: dict[str, object] = {}

        def reserve_key(tx: "Transaction") -> None:
            if self.once:
                self.once.begin(tx, desk.config.api_idempotency_hours)

        def note(tx: "Transaction", stored: "StoredRequest", request: "ValidatedRequest") -> None:
            record.update(id=stored.id, output=text_of(request.rule_output))
            if self.once:
                self.once.end(tx, record)  # without the state, which is read for each response

        requester = Requester(self.user, self.line)
        try:
            requests.submit(desk.database, desk.config, requester, self.options, note, begin=reserve_key)
        except AlreadyDone as done:
            return Outcome(HTTPStatus.CREATED, {**done.answer, "warnings": []}, REPLAYED)
        return Outcome(HTTPStatus.CREATED, {**record, "warnings": list(desk.warnings)})


class RehearseReservation(NamedTuple):
    """The task to predict how the scheduler would decide on a request now; nothing is stored."""

    user: User
    options: ReservationOptions
    line: str

    def run(self, desk: Desk) -> Outcome:
        """Predict the decision.  Raises UserError, Unavailable."""
        from oar.kao.rounds.hypothetical import reservation_trials

        request = requests.rehearse(desk.database, desk.config, Requester(self.user, self.line), self.options)
        skips = request.series is not None and request.series.skips_conflicts
        steps = reservation_trials.answers(desk.database, desk.config, request.occurrences, skips_conflicts=skips)
        granted = [step for step in steps if step.state is not ReservationState.REFUSED]
        queue = request.reservation.queue
        with desk.database.snapshot() as tx:
            items = [reservation_trials.record_of(step, granted_slots(tx, queue, step.resources)) for step in granted]
        record = {
            "granted": bool(granted),
            "items": items,
            "reason": None if granted else steps[0].message,
            "proposal": None if granted else steps[0].proposal or None,
            "output": text_of(request.rule_output),
        }
        return Outcome(HTTPStatus.OK, record)


Decision = TypeVar("Decision")
Date = Annotated[int, Field(ge=0, le=2**40)] | Text | None
Duration = Annotated[int, Field(ge=0, le=2**40)] | Text | None
Pair = Annotated[list[Text], Field(min_length=2, max_length=2)] | None
Texts = Annotated[list[Text], Field(max_length=1000)]


class NoAnswer(Unavailable):
    """The scheduler has not answered in time."""


class ReservationFields(BaseModel):
    """The fields of a request that can be changed later."""

    model_config = STRICT

    duration: Duration = Field(None, description="Duration in seconds, or as with `-d`.")
    name: Text | None = Field(None, description="Name of the reservation.")
    account: Text | None = Field(None, description="Account to charge.")
    resources: Texts = Field([], description="Resource requests, as with `-l`.")
    pe: Pair = Field(None, description="Parallel environment and slots.")
    allocation: Pair = Field(None, description="Allocation rule and slots.")
    queues: Text | None = Field(None, description="Comma-separated queues, as with `-q`.")
    properties: Text | None = Field(None, description="Condition on resource properties, as with `oarsub -p`.")
    users: Texts = Field([], description="Access list: user, @group, %project, pattern, !denied.")
    hard: bool | None = Field(None, description="Start no job while resources are missing.")
    replace: bool | None = Field(None, description="Replace lost resources.")
    idle: Duration = Field(None, description="End the reservation when it was idle for this duration.")
    mail_options: Text | None = Field(None, description="Mail at begin, end, error or none: letters of `bean`.")
    mail_list: Texts = Field([], description="Mail recipients; default: the owner.")

    @property
    def command_options(self) -> dict[str, Any]:
        """The fields that are set, as options of the commands."""
        return {
            name: _option_value(name, getattr(self, name)) for name in sorted(self.model_fields_set) if name != "series"
        }


class ReservationRequest(ReservationFields):
    """Request for an advance reservation; the fields are options of `qrsub`."""

    start: Date = Field(None, description="Start date: epoch seconds, or as with `-a`.")
    end: Date = Field(None, description="End date, in the format of the start.")
    master_queues: Text | None = Field(
        None, description="Queues of the master host: one slot is on a host of these queues, and jobs start there."
    )
    hosts: Text | None = Field(None, description="Comma-separated hosts or host patterns.")
    checkpoint: Text | None = Field(None, description="Checkpointing environment.")
    interactive: bool | None = Field(None, description="Only resources for interactive jobs, as with `-now`.")
    flex: bool | None = Field(None, description="Allow its jobs to run also outside of its resources and times.")
    window: Duration = Field(None, description="Maximum delay of the start.")
    earliest: bool = Field(default=False, description="Allow any later start.")
    rule: Text | None = Field(None, description="Recurrence rule (RFC 5545) of a series.")
    depth: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="Number of reservations of a series to request in advance."
    )
    conflict: Text | None = Field(
        None,
        description="If one of a series cannot be granted: reject the series (`fail`) or skip it (`skip`).",
    )
    ignore_jobs: bool = Field(default=False, description="Ignore running jobs (administrators only).")
    project: Text | None = Field(None, description="Project.")
    owner: Text | None = Field(None, description="Owner, if not the caller (administrators only).")

    @property
    def options(self) -> ReservationOptions:
        """The request as options of qrsub."""
        options = {name: value for name, value in self.command_options.items() if value is not None}
        if (now := options.pop("interactive", None)) is not None:
            options["now"] = (now,)
        return ReservationOptions(**options)

    @property
    def line(self) -> str:
        """The request as a command line, which admission rules can read."""
        options = self.model_dump(exclude_unset=True)
        return shlex.join(["qrsub", *(f"{name}={value}" for name, value in sorted(options.items()))])


#: Fields whose values are dates; flags that are not converted.
_DATES = frozenset({"start", "end"})
_FLAGS = frozenset({"earliest", "ignore_jobs", "force"})


def _option_value(name: str, value: Any) -> Any:
    if value is None or name in _FLAGS:
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"@{value}" if name in _DATES else str(value)
    return tuple(value) if isinstance(value, list) else value


@router.post(
    "/v1/reservations",
    "reservation_request",
    "Request an advance reservation",
    status=HTTPStatus.CREATED,
    record=CreatedReservations,
    has_location=True,
)
async def reservation_request(request: Request, body: ReservationRequest, key: IdempotencyKey = None) -> Answer:
    """Request an advance reservation or a series, as `qrsub` does, and wait for the decision of the scheduler."""
    who = await in_thread(asking, request)
    user = who.caller.changing()
    service = service_of(request)
    once = Once.of(user.name, key, request.url.path, body.model_dump(exclude_unset=True)) if key else None
    task = CreateReservation(user, body.options, body.line, once)
    outcome = await in_thread(service.workers.run, task, who.config.admission_rules_timeout)
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return answer_of(request, outcome)
    reservation_id: int = outcome.record["id"]
    decided = await wait_for_decision(who, partial(requests.find_decision, who.database, reservation_id))
    decided = decided or await in_thread(requests.cancel_undecided, who.database, reservation_id, user.name)
    if decided is None:
        raise NoAnswer(no_decision(who, "the request"))
    answered = await in_thread(_created_response, request, who, decided, outcome.record)
    answered.headers.update(outcome.headers)
    return answered


@router.post(
    "/v1/reservation-trials", "reservation_try", "Test a request for an advance reservation", record=ReservationTest
)
def reservation_try(request: Request, body: ReservationRequest) -> Answer:
    """Return what the scheduler would decide now, as `qrsub -w v` does. Nothing is stored."""
    who = asking(request)
    task = RehearseReservation(who.caller.identified(), body.options, body.line)
    seconds = who.config.admission_rules_timeout + who.config.estimate_timeout
    return answer_of(request, service_of(request).workers.run_long(task, seconds))


async def wait_for_decision(who: Asking, look: Callable[[], Decision | None]) -> Decision | None:
    """Return the decision as soon as there is one; None after the time for which qrsub waits, too."""
    until, pause = time.monotonic() + who.config.reservation_answer_timeout, requests.FIRST_PAUSE
    while True:
        result = await in_thread(look)
        left = until - time.monotonic()
        if result is not None or left <= 0:
            return result
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, requests.LONGEST_PAUSE)


def no_decision(who: Asking, what: str) -> str:
    return f"no answer from the scheduler in {who.config.reservation_answer_timeout:g} s, {what} was withdrawn"


def _created_response(
    request: Request, who: Asking, first: "AdvanceReservation", request_record: Mapping[str, Any]
) -> Answer:
    """Return the response to a request that has been decided, or to a series whose first reservations have been."""
    with who.database.snapshot() as tx:
        decided = requests.occurrences_requested_together(tx, first)
        granted = [reservation for reservation in decided if reservation.state is not ReservationState.REFUSED]
        records = reservation_records(tx, who, granted)
    if not granted:
        return rejected(request, "reservation can't be granted", first.message, first.proposal)
    record = {
        "items": records,
        "series": first.series_id or None,
        "skipped": [
            {"index": reservation.series_index, "start": reservation.start, "reason": reservation.message}
            for reservation in decided
            if reservation.state is ReservationState.REFUSED
        ],
        "output": request_record["output"],
        "warnings": request_record["warnings"],
    }
    location = {"Location": f"/v1/reservations/{granted[0].number}"}
    return answer(record, status=HTTPStatus.CREATED, headers=location)


def reservation_records(
    tx: "Transaction", who: Asking, reservations: "Sequence[AdvanceReservation]"
) -> list[dict[str, Any]]:
    return [reservation_record(item) for item in shown(tx, reservations, reader_for(tx, who))]


def rejected(request: Request, what: str, reason: str, proposal: int) -> Answer:
    more = {"reason": reason, "proposal": proposal or None}
    return problem(request, HTTPStatus.CONFLICT, "reservation-refused", f"{what}: {reason}", **more)

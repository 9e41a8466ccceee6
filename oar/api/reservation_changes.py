"""Requests for advance reservations and changes of them, as qrsub, qralter and qrdel make them."""

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from oar.api.concurrency import in_thread
from oar.api.errors import problem
from oar.api.parameters import STRICT, Force, IdempotencyKey, IfMatch, Text
from oar.api.preconditions import Expected
from oar.api.reservations import Named, number_of, reader_for
from oar.api.responses import Answer, answer
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking, service_of
from oar.api.workers import Desk, Outcome, answer_of, text_of
from oar.kao.facts.planned_reservations import ChangeStep
from oar.lib.access.records import User
from oar.lib.base.errors import NoSuchResource, NotAllowed, Unavailable
from oar.lib.reservations import alteration, answers, deletion, drafts, rights, series_changes
from oar.lib.reservations.change_requests import AskedChange, Changer, ChangeWish
from oar.lib.reservations.deletion import Deletion, DeletionAnswer
from oar.lib.reservations.drafts import Requester, ReservationDraft
from oar.lib.reservations.insertion import AskedReservation
from oar.lib.reservations.preparation import ReservationWish
from oar.lib.reservations.states import GRANTED, ChangeAnswer, ReservationState
from oar.lib.reservations.views import granted_slots, reservation_record, shown
from oar.lib.submission.once import REPLAYED, AlreadyDone, Once

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.reservations.records import AdvanceReservation, ReservationChange

router = APIRouter(tags=["reservations"], route_class=ApiRoute)


class AskReservation(NamedTuple):
    """The task to write a request; the scheduler answers it."""

    user: User
    body: ReservationWish
    line: str
    once: Once | None = None  #: the key of the request

    def run(self, desk: Desk) -> Outcome:
        """Write it.  Raises UserError, Unavailable."""
        written: list[AskedReservation] = []
        share = _KeyShare(self.once, desk.config.api_idempotency_hours) if self.once else None
        requester = Requester(self.user, self.line)
        try:
            draft = drafts.ask(desk.database, desk.config, requester, self.body, written.append, companion=share)
        except AlreadyDone as done:
            return Outcome(HTTPStatus.CREATED, {**done.answer, "warnings": []}, REPLAYED)
        record = _asked_record(written[0], draft)
        return Outcome(HTTPStatus.CREATED, {**record, "warnings": list(desk.warnings)})


class _KeyShare(NamedTuple):
    """What a key adds to the transaction of a request."""

    once: Once
    hours: int  #: for which keys are kept

    def begin(self, tx: "Transaction") -> None:
        """Take the key.  Raises AlreadyDone, KeyReused."""
        self.once.begin(tx, self.hours)

    def end(self, tx: "Transaction", stored: AskedReservation, draft: ReservationDraft) -> None:
        """Keep which reservation it is: what became of it is looked up for each answer."""
        self.once.end(tx, _asked_record(stored, draft))


def _asked_record(stored: AskedReservation, draft: ReservationDraft) -> dict[str, object]:
    return {"id": stored.id, "output": text_of(draft.output)}


class TryReservation(NamedTuple):
    """The task to tell what the scheduler would answer to a request now; nothing is stored."""

    user: User
    body: ReservationWish
    line: str

    def run(self, desk: Desk) -> Outcome:
        """Try it.  Raises UserError, Unavailable."""
        from oar.kao.rounds.hypothetical import reservation_trials

        draft = drafts.rehearse(desk.database, desk.config, Requester(self.user, self.line), self.body)
        skips = draft.series is not None and draft.series.skips_conflicts
        steps = reservation_trials.answers(desk.database, desk.config, draft.occurrences, skips_conflicts=skips)
        granted = [step for step in steps if step.state is not ReservationState.REFUSED]
        with desk.database.snapshot() as tx:
            items = [
                {
                    "start_time": step.start,
                    "end_time": step.end,
                    "state": step.state,
                    "reasons": step.message.splitlines(),
                    "granted_slots": [slots._asdict() for slots in granted_slots(tx, draft.new.queue, step.resources)],
                    "resources": step.resources,
                }
                for step in granted
            ]
        record = {
            "granted": bool(granted),
            "items": items,
            "reason": None if granted else steps[0].message,
            "proposal": None if granted else steps[0].proposal or None,
            "output": text_of(draft.output),
        }
        return Outcome(HTTPStatus.OK, record)


class TryChange(NamedTuple):
    """The task to tell what the scheduler would answer to a change now; nothing is stored."""

    user: User
    body: ChangeWish
    number: int

    def run(self, desk: Desk) -> Outcome:
        """Try it.  Raises UserError, Unavailable."""
        from oar.kao.rounds.hypothetical import reservation_trials

        change = Changer(desk.database, desk.config, self.user).rehearse(self.body, str(self.number))
        now = change.reservation
        step = ChangeStep(0, now.id, now.revision, True, start=now.start, end=now.end, resources=now.resources)
        if change.wanted:
            step = reservation_trials.alter(desk.database, desk.config, now, change.wanted)
        ended = [job_id for job_id in step.ended_jobs if job_id not in change.lost]
        record = {
            "granted": step.is_granted,
            "start_time": step.start if step.is_granted else None,
            "end_time": step.end if step.is_granted else None,
            "resources": step.resources,
            "ended_jobs": ended,
            "lost_jobs": change.lost if step.is_granted else [],
            "reason": step.message or None,
            "proposal": step.proposal or None,
        }
        return Outcome(HTTPStatus.OK, record)


class AskChange(NamedTuple):
    """The task to change a reservation, or to ask the scheduler for it."""

    user: User
    body: ChangeWish
    number: int
    expected: Expected | None = None

    def run(self, desk: Desk) -> Outcome:
        """Write it; ``change`` is 0 if nothing has to be answered.  Raises UserError, Unavailable."""
        written: list[AskedChange] = []

        def note(change: AskedChange) -> None:
            if self.expected:
                self.expected.check_reservation(change.reservation)
            written.append(change)

        Changer(desk.database, desk.config, self.user).ask(self.body, str(self.number), note)
        record = {"change": written[0].change_id, "lost": written[0].lost, "warnings": list(desk.warnings)}
        return Outcome(HTTPStatus.ACCEPTED, record)


class AskSeriesChange(NamedTuple):
    """The task to change what is asked for in a series from a reservation on; those that are there follow."""

    user: User
    body: ChangeWish
    number: int

    def run(self, desk: Desk) -> Outcome:
        """Write it, unless its reservations would be in each other's way.  Raises UserError, Unavailable."""
        changer = Changer(desk.database, desk.config, self.user)
        if (rehearsed := series_changes.rehearse(changer, self.body, str(self.number))).together:
            from oar.kao.rounds.hypothetical import series_trials

            series_trials.check_overlaps(desk.database, desk.config, rehearsed)
        changed = series_changes.change(changer, self.body, str(self.number))
        record = {"series": changed.series.id, "coming": [reservation.id for reservation in changed.coming]}
        return Outcome(HTTPStatus.ACCEPTED, {**record, "warnings": list(desk.warnings)})


Found = TypeVar("Found")
Date = Annotated[int, Field(ge=0, le=2**40)] | Text | None
Duration = Annotated[int, Field(ge=0, le=2**40)] | Text | None
Pair = Annotated[list[Text], Field(min_length=2, max_length=2)] | None
Texts = Annotated[list[Text], Field(max_length=1000)]
#: Seconds between two looks for an answer, at first and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


class NoAnswer(Unavailable):
    """The scheduler has not answered in time."""


class ReservationFields(BaseModel):
    """What can be asked for, and changed."""

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
    def words(self) -> dict[str, Any]:
        """What is given, in the words of the commands."""
        return {name: _word(name, getattr(self, name)) for name in sorted(self.model_fields_set) if name != "series"}


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
    def body(self) -> ReservationWish:
        """The request, in the words of qrsub."""
        options = {name: value for name, value in self.words.items() if value is not None}
        if (now := options.pop("interactive", None)) is not None:
            options["now"] = (now,)
        return ReservationWish(**options)

    @property
    def line(self) -> str:
        """The request as one line, which admission rules see."""
        options = self.model_dump(exclude_unset=True)
        return shlex.join(["qrsub", *(f"{name}={value}" for name, value in sorted(options.items()))])


class SeriesUpdate(ReservationFields):
    """New values of a series of advance reservations, without dates. Fields that are not given are kept."""

    force: bool = Field(default=False, description="Kill jobs that run beyond a new end.")

    @property
    def body(self) -> ChangeWish:
        """The changes, in the words of qralter."""
        options = {name: value for name, value in self.words.items() if name != "force"}
        for name in ("name", "account"):
            if name in options:
                options[name] = options[name] or ""
        kept = {name: value for name, value in options.items() if value is not None}
        return ChangeWish(**kept, is_forced=self.force)


class ReservationUpdate(SeriesUpdate):
    """New values of an advance reservation. Fields that are not given are kept."""

    start: Date = Field(None, description="Start date: epoch seconds, or as with `-a`.")
    end: Date = Field(None, description="End date, in the format of the start.")


#: Fields whose values are dates, and flags that stay what they are.
_DATES = frozenset({"start", "end"})
_FLAGS = frozenset({"earliest", "ignore_jobs", "force"})


def _word(name: str, value: Any) -> Any:
    """Return a value as an option of a command has it."""
    if value is None or name in _FLAGS:
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"@{value}" if name in _DATES else str(value)
    return tuple(value) if isinstance(value, list) else value


@router.post(
    "/v1/reservations",
    operation_id="reservation_request",
    summary="Request an advance reservation",
    status_code=HTTPStatus.CREATED,
)
async def reservation_request(request: Request, body: ReservationRequest, key: IdempotencyKey = None) -> Answer:
    """Request an advance reservation or a series, as `qrsub` does, and wait for the decision of the scheduler."""
    who = await in_thread(asking, request)
    user = who.caller.changing()
    service = service_of(request)
    once = Once.of(user.name, key, f"{request.url.path} {body.model_dump_json()}") if key else None
    task = AskReservation(user, body.body, body.line, once)
    outcome = await in_thread(service.workers.run, task, who.config.admission_rules_timeout)
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return answer_of(request, outcome)
    reservation_id: int = outcome.record["id"]
    decided = await _answer(who, partial(answers.find, who.database, reservation_id))
    if decided is None:
        decided = await in_thread(answers.withdraw, who.database, reservation_id, user.name)
    if decided is None:
        raise NoAnswer(_no_answer(who, "the request"))
    answered = await in_thread(_answered, request, who, decided, outcome.record)
    answered.headers.update(outcome.headers)
    return answered


@router.post(
    "/v1/reservation-trials", operation_id="reservation_try", summary="Test a request for an advance reservation"
)
def reservation_try(request: Request, body: ReservationRequest) -> Answer:
    """Return what the scheduler would decide now, as `qrsub -w v` does. Nothing is stored."""
    who = asking(request)
    task = TryReservation(who.caller.identified(), body.body, body.line)
    seconds = who.config.admission_rules_timeout + who.config.estimate_timeout
    return answer_of(request, service_of(request).workers.run_long(task, seconds))


@router.patch(
    "/v1/reservations/{reservation}", operation_id="reservation_alter", summary="Update an advance reservation"
)
async def reservation_alter(
    request: Request, reservation: Named, body: ReservationUpdate, match: IfMatch = None
) -> Answer:
    """Update an advance reservation, as `qralter` does, and wait for the decision of the scheduler if one is needed.

    `lost_jobs` are the waiting jobs that are killed because their owners no longer have access.
    """
    who = await in_thread(asking, request)
    user = who.caller.changing()
    number = await in_thread(number_of, who, reservation)
    await in_thread(_check_change, who, user, number)
    outcome, change = await _change(request, who, AskChange(user, body.body, number, Expected.of(match)))
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return answer_of(request, outcome)
    if change is not None and change.answer is not ChangeAnswer.GRANTED:
        return _refused(request, f"reservation {number} can't be altered", change.message, change.proposal)
    return await in_thread(_altered, who, number, outcome.record, change.message if change else "")


@router.patch(
    "/v1/reservations/{reservation}/series",
    operation_id="reservation_series_alter",
    summary="Update a series of advance reservations",
)
async def reservation_series_alter(request: Request, reservation: Named, body: SeriesUpdate) -> Answer:
    """Update a reservation and all later ones of its series, as `qralter -series` does.

    The template of future reservations is updated first, then each existing reservation on its own. `items` lists those
    that were `altered` and those that were `refused`, with the reason.
    """
    who = await in_thread(asking, request)
    user = who.caller.changing()
    number = await in_thread(number_of, who, reservation)
    await in_thread(_check_change, who, user, number)
    seconds = who.config.admission_rules_timeout + who.config.estimate_timeout
    task = AskSeriesChange(user, body.body, number)
    outcome = await in_thread(service_of(request).workers.run_long, task, seconds)
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return answer_of(request, outcome)
    items = []
    for reservation_id in outcome.record["coming"]:
        decided = await _answer(who, partial(answers.find, who.database, reservation_id))
        if decided is not None and decided.state in GRANTED:
            items.append(await _altered_item(request, who, AskChange(user, body.body, decided.number)))
    return answer({"series": outcome.record["series"], "items": items, "warnings": outcome.record["warnings"]})


@router.post(
    "/v1/reservations/{reservation}/trials",
    operation_id="reservation_alter_try",
    summary="Test an update of an advance reservation",
)
def reservation_alter_try(request: Request, reservation: Named, body: ReservationUpdate) -> Answer:
    """Return what the scheduler would decide on an update now, as `qralter -w v` does. Nothing is stored.

    `ended_jobs` are waiting jobs that would no longer fit; `lost_jobs` those whose owners would lose access.
    """
    who = asking(request)
    user, number = who.caller.identified(), number_of(who, reservation)
    _check_change(who, user, number)
    seconds = who.config.admission_rules_timeout + who.config.estimate_timeout
    return answer_of(request, service_of(request).workers.run_long(TryChange(user, body.body, number), seconds))


@router.delete(
    "/v1/reservations/{reservation}",
    operation_id="reservation_delete",
    summary="Delete an advance reservation",
    status_code=HTTPStatus.ACCEPTED,
)
def reservation_delete(request: Request, reservation: Named, force: Force = False, match: IfMatch = None) -> Answer:
    """Delete an advance reservation, as `qrdel` does.

    Its jobs are killed. It is removed when the last of them has ended.
    """
    who = asking(request)
    user, number = who.caller.changing(), number_of(who, reservation)
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        stored = tx.advance_reservations.by_numbers([number]).get(number)
        if stored and (expected := Expected.of(match)):
            (locked,) = tx.advance_reservations.lock([stored.id])
            expected.check_reservation(locked)
        result = deletion.delete(tx, user, stored, number, force=force)
    return answer({**_deleted(result, user), "warnings": warnings}, status=HTTPStatus.ACCEPTED)


@router.delete(
    "/v1/reservation-series/{series}",
    operation_id="reservation_series_delete",
    summary="Delete a series of advance reservations",
    status_code=HTTPStatus.ACCEPTED,
)
def reservation_series_delete(
    request: Request,
    series: Annotated[int, Path(ge=1, le=2**31 - 1, description="Series number.")],
    force: Force = False,
) -> Answer:
    """Delete all remaining reservations of a series, as `qrdel -series` does."""
    who = asking(request)
    user = who.caller.changing()
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        result = deletion.delete_series(tx, user, series, force=force)
    _check(result.outcome, f"series {series}", user)
    items = [_deleted(deletion_, user) for deletion_ in result.reservations]
    return answer({"series": series, "items": items, "warnings": warnings}, status=HTTPStatus.ACCEPTED)


async def _change(request: Request, who: Asking, task: AskChange) -> "tuple[Outcome, ReservationChange | None]":
    """Write a change, and wait for its answer where it needs one; return what became of both.  Raises NoAnswer."""
    workers = service_of(request).workers
    outcome = await in_thread(workers.run, task, who.config.admission_rules_timeout)
    change_id: int = outcome.record.get("change", 0)
    if not change_id:
        return outcome, None
    change = await _answer(who, partial(answers.find_change, who.database, change_id))
    change = change or await in_thread(_give_up, who, change_id)
    if change is None:
        raise NoAnswer(_no_answer(who, "the change"))
    return outcome, change


async def _altered_item(request: Request, who: Asking, task: AskChange) -> dict[str, Any]:
    """Change one reservation of a series; tell what became of it."""
    item: dict[str, Any] = {"id": task.number, "done": "refused", "message": None, "lost_jobs": [], "proposal": None}
    try:
        outcome, change = await _change(request, who, task)
    except NoAnswer as error:
        return {**item, "message": str(error)}
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return {**item, "message": outcome.record.get("detail", "it could not be changed")}
    if change is not None and change.answer is not ChangeAnswer.GRANTED:
        return {**item, "message": change.message, "proposal": change.proposal or None}
    return {
        **item,
        "done": "altered",
        "message": (change and change.message) or None,
        "lost_jobs": outcome.record["lost"],
    }


async def _answer(who: Asking, look: Callable[[], Found | None]) -> Found | None:
    """Return what is found as soon as it is there; None if it was not for as long as qrsub waits."""
    until, pause = time.monotonic() + who.config.reservation_answer_timeout, FIRST_PAUSE
    while True:
        result = await in_thread(look)
        left = until - time.monotonic()
        if result is not None or left <= 0:
            return result
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)


def _no_answer(who: Asking, what: str) -> str:
    return f"no answer from the scheduler in {who.config.reservation_answer_timeout:g} s, {what} was withdrawn"


def _answered(request: Request, who: Asking, first: "AdvanceReservation", request_record: Mapping[str, Any]) -> Answer:
    """Tell what became of a request, or of the first occurrences of a series."""
    with who.database.snapshot() as tx:
        answered = _series_of(tx, first)
        granted = [reservation for reservation in answered if reservation.state is not ReservationState.REFUSED]
        records = _records(tx, who, granted)
    if not granted:
        return _refused(request, "reservation can't be granted", first.message, first.proposal)
    record = {
        "items": records,
        "series": first.series_id or None,
        "skipped": [
            {"index": reservation.series_index, "start": reservation.start, "reason": reservation.message}
            for reservation in answered
            if reservation.state is ReservationState.REFUSED
        ],
        "output": request_record["output"],
        "warnings": request_record["warnings"],
    }
    location = {"Location": f"/v1/reservations/{granted[0].number}"}
    return answer(record, status=HTTPStatus.CREATED, headers=location)


def _series_of(tx: "Transaction", first: "AdvanceReservation") -> "list[AdvanceReservation]":
    """Return the occurrences of its series that were asked for with a reservation; itself if it is in none."""
    if not first.series_id:
        return [first]
    depth = tx.reservation_series.select([first.series_id])[first.series_id].depth
    return [
        reservation
        for reservation in tx.advance_reservations.of_series([first.series_id])
        if reservation.series_index <= depth
    ]


def _records(tx: "Transaction", who: Asking, reservations: "Sequence[AdvanceReservation]") -> list[dict[str, Any]]:
    return [reservation_record(item) for item in shown(tx, reservations, reader_for(tx, who))]


def _refused(request: Request, what: str, reason: str, proposal: int) -> Answer:
    more = {"reason": reason, "proposal": proposal or None}
    return problem(request, HTTPStatus.CONFLICT, "reservation-refused", f"{what}: {reason}", **more)


def _check_change(who: Asking, user: "User", number: int) -> None:
    """Check that there is a live reservation of a number that a user may change.  Raises NoSuchResource, NotAllowed."""
    with who.database.snapshot() as tx:
        reservation = tx.advance_reservations.by_numbers([number]).get(number)
        if reservation is None or not reservation.is_live or reservation.state is ReservationState.ASKED:
            raise NoSuchResource(f"there is no advance reservation {number}")
        if not rights.may_change(tx, user, reservation):
            raise NotAllowed(f"{user.name!r} is not allowed to alter advance reservation {number}")


def _give_up(who: Asking, change_id: int) -> "ReservationChange | None":
    with who.database.begin() as tx:
        return alteration.give_up(tx, change_id)


def _altered(who: Asking, number: int, change_record: Mapping[str, Any], message: str) -> Answer:
    with who.database.snapshot() as tx:
        reservation = tx.advance_reservations.by_numbers([number])[number]
        (record,) = _records(tx, who, [reservation])
    more = {"message": message or None, "lost_jobs": change_record["lost"], "warnings": change_record["warnings"]}
    return answer({**record, **more})


def _deleted(result: DeletionAnswer, user: "User") -> dict[str, object]:
    """Return what is told of a deletion.  Raises NoSuchResource, NotAllowed."""
    _check(result.outcome, f"advance reservation {result.number}", user)
    return {"id": result.number, "done": result.outcome.name.lower()}


def _check(outcome: Deletion, what: str, user: "User") -> None:
    if outcome is Deletion.UNKNOWN:
        raise NoSuchResource(f"there is no {what}")
    if outcome is Deletion.DENIED:
        raise NotAllowed(f"{user.name!r} is not allowed to delete {what}")

"""Changes of advance reservations, as qralter and qrdel make them: the routes, and the tasks of a worker."""

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field
from starlette.requests import Request

from oar.api.concurrency import in_thread
from oar.api.parameters import Force, IfMatch
from oar.api.records import DeletedSeries, JobResult, ReservationUpdateTest, UpdatedReservation, UpdatedSeries
from oar.api.reservation_requests import (
    Date,
    NoAnswer,
    ReservationFields,
    no_decision,
    rejected,
    reservation_records,
    wait_for_decision,
)
from oar.api.reservations import Named, number_of
from oar.api.responses import Answer, answer
from oar.api.routing import Router
from oar.api.service import Asking, Expected, asking, service_of
from oar.api.workers import Desk, Outcome, answer_of
from oar.kao.facts.plan import ChangeStep
from oar.lib.access.records import User
from oar.lib.base.errors import NoSuchResource, NotAllowed
from oar.lib.reservations import changes, deletion, permissions, requests
from oar.lib.reservations.change_requests import Changer, StoredChange
from oar.lib.reservations.deletion import Deletion, DeletionAnswer
from oar.lib.reservations.options import ChangeOptions
from oar.lib.reservations.states import GRANTED, ChangeAnswer, ReservationState

if TYPE_CHECKING:
    from oar.lib.reservations.records import ReservationChange

router = Router("reservations")


class RehearseChange(NamedTuple):
    """The task to predict how the scheduler would decide on a change now; nothing is stored."""

    user: User
    options: ChangeOptions
    number: int

    def run(self, desk: Desk) -> Outcome:
        """Predict the decision.  Raises UserError, Unavailable."""
        from oar.kao.rounds.hypothetical import reservation_trials

        change = Changer(desk.database, desk.config, self.user).rehearse(self.options, str(self.number))
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


class ChangeReservation(NamedTuple):
    """The task to change a reservation, or to request the change from the scheduler."""

    user: User
    options: ChangeOptions
    number: int
    expected: Expected | None = None

    def run(self, desk: Desk) -> Outcome:
        """Store the change; ``change`` is 0 if no decision is needed.  Raises UserError, Unavailable."""
        record: dict[str, object] = {}

        def note(change: StoredChange) -> None:
            if self.expected:
                self.expected.check_reservation(change.reservation)
            record.update(change=change.change_id, lost=change.lost)

        Changer(desk.database, desk.config, self.user).change(self.options, str(self.number), note)
        return Outcome(HTTPStatus.ACCEPTED, {**record, "warnings": list(desk.warnings)})


class ChangeSeries(NamedTuple):
    """The task to change the template of a series from a reservation on; existing reservations are changed later."""

    user: User
    options: ChangeOptions
    number: int

    def run(self, desk: Desk) -> Outcome:
        """Store the template, unless its reservations would overlap.  Raises UserError, Unavailable."""
        from oar.kao.rounds.hypothetical import reservation_trials

        changer = Changer(desk.database, desk.config, self.user)
        rehearsed = changer.rehearse_series(self.options, str(self.number))
        reservation_trials.check_overlaps(desk.database, desk.config, rehearsed)
        changed = changer.change_series(self.options, str(self.number))
        record = {"series": changed.series.id, "coming": [reservation.id for reservation in changed.coming]}
        return Outcome(HTTPStatus.ACCEPTED, {**record, "warnings": list(desk.warnings)})


class SeriesUpdate(ReservationFields):
    """New values of a series of advance reservations, without dates. Fields that are not given are kept."""

    force: bool = Field(default=False, description="Kill jobs that run beyond a new end.")

    @property
    def options(self) -> ChangeOptions:
        """The changes as options of qralter; null clears a name or an account."""
        cleared: dict[str, Any] = {name: "" for name in ("name", "account") if name in self.model_fields_set}
        given = {name: value for name, value in self.command_options.items() if value is not None and name != "force"}
        return ChangeOptions(**{**cleared, **given}, is_forced=self.force)


class ReservationUpdate(SeriesUpdate):
    """New values of an advance reservation. Fields that are not given are kept."""

    start: Date = Field(None, description="Start date: epoch seconds, or as with `-a`.")
    end: Date = Field(None, description="End date, in the format of the start.")


@router.patch(
    "/v1/reservations/{reservation}", "reservation_alter", "Update an advance reservation", record=UpdatedReservation
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
    outcome, change = await _change(request, who, ChangeReservation(user, body.options, number, Expected.of(match)))
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return answer_of(request, outcome)
    if change is not None and change.answer is not ChangeAnswer.GRANTED:
        return rejected(request, f"reservation {number} can't be altered", change.message, change.proposal)
    return await in_thread(_altered, who, number, outcome.record, change.message if change else "")


@router.patch(
    "/v1/reservations/{reservation}/series",
    "reservation_series_alter",
    "Update a series of advance reservations",
    record=UpdatedSeries,
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
    task = ChangeSeries(user, body.options, number)
    outcome = await in_thread(service_of(request).workers.run_long, task, seconds)
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return answer_of(request, outcome)
    items = []
    for reservation_id in outcome.record["coming"]:
        decided = await wait_for_decision(who, partial(requests.find_decision, who.database, reservation_id))
        if decided is not None and decided.state in GRANTED:
            items.append(await _altered_item(request, who, ChangeReservation(user, body.options, decided.number)))
    return answer({"series": outcome.record["series"], "items": items, "warnings": outcome.record["warnings"]})


@router.post(
    "/v1/reservations/{reservation}/trials",
    "reservation_alter_try",
    "Test an update of an advance reservation",
    record=ReservationUpdateTest,
)
def reservation_alter_try(request: Request, reservation: Named, body: ReservationUpdate) -> Answer:
    """Return what the scheduler would decide on an update now, as `qralter -w v` does. Nothing is stored.

    `ended_jobs` are waiting jobs that would no longer fit; `lost_jobs` those whose owners would lose access.
    """
    who = asking(request)
    user, number = who.caller.identified(), number_of(who, reservation)
    _check_change(who, user, number)
    seconds = who.config.admission_rules_timeout + who.config.estimate_timeout
    return answer_of(request, service_of(request).workers.run_long(RehearseChange(user, body.options, number), seconds))


@router.delete(
    "/v1/reservations/{reservation}",
    "reservation_delete",
    "Delete an advance reservation",
    status=HTTPStatus.ACCEPTED,
    record=JobResult,
)
def reservation_delete(request: Request, reservation: Named, force: Force = False, match: IfMatch = None) -> Answer:
    """Delete an advance reservation, as `qrdel` does.

    Its jobs are killed. It is removed when the last of them has ended.
    """
    who = asking(request)
    user, number = who.caller.changing(), number_of(who, reservation)
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        stored = tx.reservations.by_numbers([number]).get(number)
        if stored and (expected := Expected.of(match)):
            (locked,) = tx.reservations.lock([stored.id])
            expected.check_reservation(locked)
        result = deletion.delete(tx, user, stored, number, force=force)
    return answer({**_deleted(result, user), "warnings": warnings}, status=HTTPStatus.ACCEPTED)


@router.delete(
    "/v1/reservation-series/{series}",
    "reservation_series_delete",
    "Delete a series of advance reservations",
    status=HTTPStatus.ACCEPTED,
    record=DeletedSeries,
)
def reservation_series_delete(
    request: Request,
    series: Annotated[int, Field(ge=1, le=2**31 - 1, description="Series number.")],
    force: Force = False,
) -> Answer:
    """Delete all remaining reservations of a series, as `qrdel -series` does."""
    who = asking(request)
    user = who.caller.changing()
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        result = deletion.delete_series(tx, user, series, force=force)
    _check(result.outcome, f"series {series}", user)
    items = [_deleted(deleted, user) for deleted in result.reservations]
    return answer({"series": series, "items": items, "warnings": warnings}, status=HTTPStatus.ACCEPTED)


async def _change(request: Request, who: Asking, task: ChangeReservation) -> "tuple[Outcome, ReservationChange | None]":
    """Store a change, and wait for a decision if one is needed; return the outcome and the change.  Raises NoAnswer."""
    workers = service_of(request).workers
    outcome = await in_thread(workers.run, task, who.config.admission_rules_timeout)
    change_id: int = outcome.record.get("change", 0)
    if not change_id:
        return outcome, None
    change = await wait_for_decision(who, partial(requests.find_change_decision, who.database, change_id))
    change = change or await in_thread(_cancel_change, who, change_id)
    if change is None:
        raise NoAnswer(no_decision(who, "the change"))
    return outcome, change


async def _altered_item(request: Request, who: Asking, task: ChangeReservation) -> dict[str, Any]:
    """Change one reservation of a series; return its item of the response."""
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


def _check_change(who: Asking, user: "User", number: int) -> None:
    """Check that a live reservation exists and that a user may change it.  Raises NoSuchResource, NotAllowed."""
    with who.database.snapshot() as tx:
        reservation = tx.reservations.by_numbers([number]).get(number)
        if reservation is None or not reservation.is_live or reservation.state is ReservationState.ASKED:
            raise NoSuchResource(f"there is no advance reservation {number}")
        if not permissions.may_change(tx, user, reservation):
            raise NotAllowed(f"{user.name!r} is not allowed to alter advance reservation {number}")


def _cancel_change(who: Asking, change_id: int) -> "ReservationChange | None":
    with who.database.begin() as tx:
        return changes.cancel_change(tx, change_id)


def _altered(who: Asking, number: int, change_record: Mapping[str, Any], message: str) -> Answer:
    with who.database.snapshot() as tx:
        reservation = tx.reservations.by_numbers([number])[number]
        (record,) = reservation_records(tx, who, [reservation])
    more = {"message": message or None, "lost_jobs": change_record["lost"], "warnings": change_record["warnings"]}
    return answer({**record, **more})


def _deleted(result: DeletionAnswer, user: "User") -> dict[str, object]:
    """Return the record of a deletion.  Raises NoSuchResource, NotAllowed."""
    _check(result.outcome, f"advance reservation {result.number}", user)
    return {"id": result.number, "done": result.outcome.name.lower()}


def _check(outcome: Deletion, what: str, user: "User") -> None:
    if outcome is Deletion.UNKNOWN:
        raise NoSuchResource(f"there is no {what}")
    if outcome is Deletion.DENIED:
        raise NotAllowed(f"{user.name!r} is not allowed to delete {what}")

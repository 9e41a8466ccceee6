"""Requests for advance reservations and changes of them, in a worker: they are admitted by the rules of the site."""

from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from oar.api.preconditions import Expected
from oar.api.workers import Desk, Outcome, text_of
from oar.kao.facts.planned_reservations import ChangeStep
from oar.lib.facts.records import User
from oar.lib.facts.reservation_states import ReservationState
from oar.lib.reservations import drafts, series_changes
from oar.lib.reservations.change_requests import AskedChange, Changer, ChangeWish
from oar.lib.reservations.drafts import Requester, ReservationDraft
from oar.lib.reservations.insertion import AskedReservation
from oar.lib.reservations.preparation import ReservationWish
from oar.lib.submission.once import REPLAYED, AlreadyDone, Once
from oar.lib.views.reservations import granted_slots

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


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

    def end(self, tx: "Transaction", asked: AskedReservation, made: ReservationDraft) -> None:
        """Keep which reservation it is: what became of it is looked up for each answer."""
        self.once.end(tx, _asked_record(asked, made))


def _asked_record(asked: AskedReservation, made: ReservationDraft) -> dict[str, object]:
    return {"id": asked.id, "output": text_of(made.output)}


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
        found = [step for step in steps if step.state is not ReservationState.REFUSED]
        with desk.database.snapshot() as tx:
            items = [
                {
                    "start_time": step.start,
                    "end_time": step.end,
                    "state": step.state,
                    "reasons": step.message.splitlines(),
                    "granted_slots": [each._asdict() for each in granted_slots(tx, draft.new.queue, step.resources)],
                    "resources": step.resources,
                }
                for step in found
            ]
        record = {
            "granted": bool(found),
            "items": items,
            "reason": None if found else steps[0].message,
            "proposal": None if found else steps[0].proposal or None,
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

        asked = Changer(desk.database, desk.config, self.user).rehearse(self.body, str(self.number))
        now = asked.reservation
        step = ChangeStep(0, now.id, now.revision, True, start=now.start, end=now.end, resources=now.resources)
        if asked.wanted:
            step = reservation_trials.alter(desk.database, desk.config, now, asked.wanted)
        ended = [job_id for job_id in step.ended_jobs if job_id not in asked.lost]
        record = {
            "granted": step.is_granted,
            "start_time": step.start if step.is_granted else None,
            "end_time": step.end if step.is_granted else None,
            "resources": step.resources,
            "ended_jobs": ended,
            "lost_jobs": asked.lost if step.is_granted else [],
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

        def note(asked: AskedChange) -> None:
            if self.expected:
                self.expected.check_reservation(asked.reservation)
            written.append(asked)

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
        record = {"series": changed.series.id, "coming": [each.id for each in changed.coming]}
        return Outcome(HTTPStatus.ACCEPTED, {**record, "warnings": list(desk.warnings)})

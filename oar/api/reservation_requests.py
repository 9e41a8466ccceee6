"""Requests for advance reservations and changes of them, in a worker: they are admitted by the rules of the site."""

from http import HTTPStatus
from typing import NamedTuple

from oar.api.tasks import Desk, Outcome, text_of
from oar.lib.facts.records import User
from oar.lib.facts.reservation_states import ReservationState
from oar.lib.reservations import drafts
from oar.lib.reservations.change_requests import AskedChange, Changer, ChangeWish
from oar.lib.reservations.drafts import Requester
from oar.lib.reservations.insertion import AskedReservation
from oar.lib.reservations.preparation import ReservationWish
from oar.lib.views.reservations import granted_slots


class AskReservation(NamedTuple):
    """The task to write a request; the scheduler answers it."""

    user: User
    wish: ReservationWish
    line: str

    def run(self, desk: Desk) -> Outcome:
        """Write it.  Raises UserError, Unavailable."""
        written: list[AskedReservation] = []
        draft = drafts.ask(desk.database, desk.config, Requester(self.user, self.line), self.wish, written.append)
        record = {"id": written[0].id, "output": text_of(draft.output), "warnings": list(desk.warnings)}
        return Outcome(HTTPStatus.CREATED, record)


class TryReservation(NamedTuple):
    """The task to tell what the scheduler would answer to a request now; nothing is stored."""

    user: User
    wish: ReservationWish
    line: str

    def run(self, desk: Desk) -> Outcome:
        """Try it.  Raises UserError, Unavailable."""
        from oar.kao.rounds.hypothetical import reservation_trials

        draft = drafts.rehearse(desk.database, desk.config, Requester(self.user, self.line), self.wish)
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


class AskChange(NamedTuple):
    """The task to change a reservation, or to ask the scheduler for it."""

    user: User
    wish: ChangeWish
    number: int

    def run(self, desk: Desk) -> Outcome:
        """Write it; ``change`` is 0 if nothing has to be answered.  Raises UserError, Unavailable."""
        written: list[AskedChange] = []
        Changer(desk.database, desk.config, self.user).ask(self.wish, str(self.number), written.append)
        record = {"change": written[0].change_id, "lost": written[0].lost, "warnings": list(desk.warnings)}
        return Outcome(HTTPStatus.ACCEPTED, record)

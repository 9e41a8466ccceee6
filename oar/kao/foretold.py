"""What jobs are told of their start is kept, to be compared with the truth: how honest predictions are.

Two things are kept of each job that has to wait: what it was told first, and what it was told when its start first
seemed to be within an hour.  Reservations are left out: their dates are promises.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from oar.kao.model import Plan, Snapshot
from oar.lib.db import predictions
from oar.lib.db.engine import Transaction
from oar.lib.db.predictions import Told
from oar.lib.states import Reservation

#: A start is near when it is no more seconds away.
NEAR = 3600

#: What was told is kept for so long after the start.
KEPT = 90 * 86400

#: And is looked through for what is older so often.
SWEEP_PERIOD = 86400


@dataclass(frozen=True, slots=True)
class News:
    """What a plan tells jobs for the first time."""

    first: list[Told] = field(default_factory=list)
    near: list[Told] = field(default_factory=list)


def news(snapshot: Snapshot, plan: Plan, started: Collection[int], known: Mapping[int, bool]) -> News:
    """Return what is new.  ``known``: the jobs that were told something; whether also when it was near."""
    found = News()
    places = {place.job_id: place.start for place in plan.placements}
    for job in snapshot.waiting:
        start = places.get(job.id)
        if start is None or job.reservation is not Reservation.NONE or job.id in started:
            continue
        told = Told(job.id, job.queue, start)
        if job.id not in known:
            found.first.append(told)
        if start - plan.now <= NEAR and not known.get(job.id):
            found.near.append(told)
    return found


class Foretold:
    """What jobs were told, as a warm scheduler knows it."""

    def __init__(self) -> None:
        self._known: dict[int, bool] | None = None
        self._next: dict[int, bool] = {}
        self._swept = 0

    def write(self, tx: Transaction, snapshot: Snapshot, plan: Plan, started: Mapping[int, int]) -> None:
        """Keep what is new in a plan, and when jobs started."""
        known = predictions.known(tx) if self._known is None else self._known
        found = news(snapshot, plan, started, known)
        predictions.tell_first(tx, found.first)
        predictions.tell_near(tx, found.near)
        predictions.started(tx, started)
        if not 0 <= plan.now - self._swept < SWEEP_PERIOD:
            predictions.forget_before(tx, plan.now - KEPT)
        waiting = {job.id for job in snapshot.waiting} - started.keys()
        self._next = {job_id: is_near for job_id, is_near in known.items() if job_id in waiting}
        self._next |= {each.job_id: False for each in found.first} | {each.job_id: True for each in found.near}

    def remember(self, plan: Plan) -> None:
        """Note, after the commit, what has been written."""
        self._known = self._next
        if not 0 <= plan.now - self._swept < SWEEP_PERIOD:
            self._swept = plan.now

    def forget(self) -> None:
        """Read everything the next time."""
        self._known = None

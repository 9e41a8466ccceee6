"""A site with advance reservations and a clock, for tests that live through their dates."""

from collections.abc import Callable
from typing import Any

from oar.cli.common.command import CommandResult
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.lib.reservations import deletion, recurrence, requests
from oar.lib.reservations.deletion import Deletion
from oar.lib.reservations.options import ReservationRequest
from oar.lib.reservations.records import (
    AccessEntry,
    AdvanceReservation,
    NewReservation,
    NewSeries,
    ReservationAlternative,
    Series,
    encode,
)
from oar.lib.reservations.states import ReservationState
from oar.lib.runtime import Runtime
from oar.lib.submission.resource_request import parse_request
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.builders import add_job, state_of

NOW = 1_800_000_000
HOUR = 3600
ALICE, BOB = User("alice", 1001), User("bob", 1002)

#: A command that a test types.
Typed = Callable[..., CommandResult]


class Site:
    """A site with a clock: rounds are made at dates that a test chooses."""

    def __init__(self, database: Database, runtime: Runtime) -> None:
        self.database = database
        self.runtime = runtime
        self.scheduler = MetaScheduler(runtime)
        self.go_to(NOW)

    def go_to(self, date: int) -> None:
        self.database._clock = lambda: date

    def round(self, date: int | None = None) -> None:
        if date is not None:
            self.go_to(date)
        self.scheduler.round()

    def answer(self) -> None:
        """Make a round; the server is told nothing of what it writes itself."""
        told, self.database.deliver = self.database.deliver, None
        self.round()
        self.database.deliver = told

    def ask(self, request: str, start: int, end: int, *, owner: str = "alice", limit: int = 0, **fields: Any) -> int:
        """Ask for a reservation; return its id."""
        alternatives = [ReservationAlternative(parse_request(request).groups)]
        new = NewReservation(owner, start, end, encode(alternatives), queue="default", time_offset=6, **fields)
        with self.database.begin() as tx:
            return requests.create(tx, ReservationRequest(new, (AccessEntry(owner),)), limit=limit).id

    def ask_series(
        self, request: str, start: int, duration: int, *, rule: str = "FREQ=HOURLY", depth: int = 2, **fields: Any
    ) -> int:
        """Ask for a series of alice's; return its id."""
        alternatives = [ReservationAlternative(parse_request(request).groups)]
        starts, skips = list(recurrence.dates(rule, start, "UTC")), bool(fields.pop("skips_conflicts", False))
        following = starts[depth] if depth < len(starts) else 0
        text, end = encode(alternatives), start + duration
        new = NewReservation("alice", start, end, text, queue="default", time_offset=6, **fields)
        row = NewSeries("alice", rule, "UTC", start, duration, "", depth, skips, len(starts), depth + 1, following)
        with self.database.begin() as tx:
            asked = ReservationRequest(new, (AccessEntry("alice"),), row, tuple(starts[:depth]))
            return requests.create(tx, asked, limit=0).series_id

    def series(self, series_id: int) -> Series:
        with self.database.begin() as tx:
            return tx.reservations.select_series([series_id])[series_id]

    def occurrences(self, series_id: int) -> list[AdvanceReservation]:
        """Return the occurrences of a series that were asked for, by their numbers in it."""
        with self.database.begin() as tx:
            return tx.reservations.of_series([series_id])

    def get(self, reservation_id: int) -> AdvanceReservation:
        with self.database.begin() as tx:
            return tx.reservations.select([reservation_id])[0]

    def state(self, reservation_id: int) -> ReservationState:
        return self.get(reservation_id).state

    def events(self, reservation_id: int) -> list[str]:
        with self.database.begin() as tx:
            return [row.event for row in tx.reservation_logs.logs([reservation_id])]

    def submit_inside(self, reservation_id: int, cores: int = 1, walltime: int = 600) -> int:
        """Submit a job into a reservation."""
        frame = self.get(reservation_id).frame_id
        groups = parse_request(f"/resource_id={cores}").groups
        job = add_job(self.database, alternatives=[NewAlternative(walltime, groups)], types=(f"inner={frame}",))
        with self.database.begin() as tx:
            tx.reservations.add_job(reservation_id, [job])
        return job

    def delete(self, user: User, reservation_id: int) -> Deletion:
        with self.database.begin() as tx:
            (reservation,) = tx.reservations.select([reservation_id])
            return deletion.delete(tx, user, reservation, reservation.number).outcome

    def job(self, job_id: int) -> JobState:
        return state_of(self.database, job_id)

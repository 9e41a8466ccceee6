"""A desk at which advance reservations are asked for, with a clock that stands."""

from collections.abc import Sequence

from oar.cli import qrsub
from oar.cli.common.command import CommandResult
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.access.records import User
from oar.lib.bus.messages import Effect
from oar.lib.db.database import Database
from oar.lib.reservations.records import AdvanceReservation
from oar.lib.runtime import Runtime
from tests.frontend import Frontend

#: 2027-01-15 08:00:00 UTC, a Friday.
NOW = 1_800_000_000
HOUR = 3600
ALICE, ROOT, EVE = User("alice", 0), User("root", 0), User("eve", 1003)
TABLES = ("reservations", "reservation_acl", "reservation_logs", "jobs", "event_logs")


class Desk(Frontend):
    """A frontend with a server that answers as soon as it is told of a request."""

    scheduler: MetaScheduler | None = None
    server: Database | None = None
    number_of_rounds = 0

    def serve(self, database: Database) -> None:
        """Answer from now on."""
        self.server, self.scheduler = database, MetaScheduler(Runtime(self.config, database))
        self.database.deliver = self._round

    def _round(self, effects: Sequence[Effect]) -> None:
        assert self.scheduler
        self.number_of_rounds += 1
        self.scheduler.round()

    def qrsub(self, *words: object, user: User = ALICE, environment: dict[str, str] | None = None) -> CommandResult:
        return self.type(qrsub.main, *words, user=user, environment=environment)

    def granted(
        self, *words: object, user: User = ALICE, environment: dict[str, str] | None = None
    ) -> AdvanceReservation:
        """Ask for a reservation that is granted; return it."""
        result = self.qrsub(*words, "-terse", user=user, environment=environment)
        assert (result.exit, result.err) == (0, "")
        return self.reservation(int(result.out))

    def reservation(self, number: int) -> AdvanceReservation:
        with self.database.snapshot() as tx:
            return tx.reservations.by_numbers([number])[number]

    def last(self) -> AdvanceReservation:
        with self.database.snapshot() as tx:
            ids = tx.column("SELECT max(reservation_id) FROM reservations")
            return tx.reservations.select(ids)[0]

    def counts(self) -> list[int]:
        """How many rows there are that a request could have written."""
        return [self.count(table) for table in TABLES]

    def hosts(self, reservation: AdvanceReservation) -> list[str]:
        with self.database.snapshot() as tx:
            return sorted(row.network_address for row in tx.resources.select(reservation.resources))

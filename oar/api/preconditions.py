"""Preconditions of changes: ``If-Match`` names the version to change."""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from oar.api.errors import OtherVersion
from oar.api.responses import encoded
from oar.lib.jobs.privacy import Privacy
from oar.lib.jobs.views import job_view

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.reservations.records import AdvanceReservation


class Expected(NamedTuple):
    """The versions that a client accepts for a change."""

    versions: frozenset[str]

    @classmethod
    def of(cls, header: str | None) -> "Expected | None":
        """Return the versions in a header; None if any version may be changed.

        >>> Expected.of('W/"12.Hold-3f0a", "13.Hold"').versions == {"12.Hold", "13.Hold"}
        True
        """
        if header is None or header.strip() == "*":
            return None
        tags = (each.strip().removeprefix("W/").strip('"') for each in header.split(","))
        return cls(frozenset(tag.partition("-")[0] for tag in tags))

    def check(self, what: str, version: str) -> None:
        """Check the current version.  Raises OtherVersion."""
        if version not in self.versions:
            raise OtherVersion(what, version)

    def check_job(self, tx: "Transaction", job_id: int) -> None:
        """Lock a job and check its version.  Raises OtherVersion, NoSuchJob."""
        tx.jobs.hold([job_id])
        self.check(f"job {job_id}", job_view(tx, job_id, Privacy(None)).version)

    def check_reservation(self, reservation: "AdvanceReservation") -> None:
        """Check a reservation that is locked.  Raises OtherVersion."""
        self.check(f"advance reservation {reservation.number}", version_of(reservation))


def version_of(reservation: "AdvanceReservation") -> str:
    """Return the version of a reservation, which changes with each change."""
    return f"{reservation.revision}.{reservation.state}"


def version_of_values(*values: object) -> str:
    """Return the version of an object without a revision number: a digest of its values."""
    return hashlib.blake2b(encoded(values), digest_size=8).hexdigest()


def check_seen(match: str | None, what: str, present: Callable[[], str]) -> None:
    """Check the If-Match precondition.  Raises OtherVersion, and the errors of ``present``.

    ``present``: returns the version of the object, which is locked until the end of the transaction.
    """
    if expected := Expected.of(match):
        expected.check(what, present())

"""Find and repair faults of advance reservations (``tx.reservation_faults``).

See docs/design/reservations.rst, "Repairs".
"""

from collections.abc import Collection

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Table
from oar.lib.reservations.sql_fault_predicates import (
    FAULTS,
    NO_FRAME,
    NO_REVISION,
    NOT_RUNNING,
    NOT_WAITING,
    OTHER_WINDOW,
    ReservationFault,
)

#: Requests whose asker has gone; nobody ever waits for the later ones of a series, which are made without him.
_LEFT = """
    v.state = '' AND v.submission_time < %s AND NOT EXISTS (
        SELECT FROM reservation_series s WHERE s.series_id = v.series_id AND v.series_index > s.depth)"""
#: Whether a round would be misled; a request that nobody waits for any more is not granted.
_MISLEADING = f"""
    SELECT EXISTS (
        SELECT FROM reservations v WHERE v.ended = 0 AND (
            {_LEFT}
            OR ({NO_FRAME}) OR ({NOT_RUNNING}) OR ({NOT_WAITING}) OR ({OTHER_WINDOW}) OR ({NO_REVISION})))"""
_TOO_OLD = f"SELECT v.reservation_id FROM reservations v WHERE v.ended = 0 AND {_LEFT} ORDER BY v.reservation_id"
_LEAVING = "SELECT reservation_id FROM reservations WHERE ended = 0 AND state IN ('x', 'd') ORDER BY reservation_id"
_FORGET_REVISIONS = "DELETE FROM reservation_revisions WHERE reservation_id = %s AND revision >= %s"
#: Types by which jobs are in reservations, live ones or not; a frame has the type ``ar=<reservation_id>``.
_LEAVE = """
    DELETE FROM job_types t WHERE t.job_id = ANY(%s) AND (t.type ~ '^allowed=ar[0-9]+$' OR EXISTS (
        SELECT FROM job_types f WHERE t.type ~ '^inner=[0-9]{1,18}$' AND f.job_id = substr(t.type, 7)::bigint
        AND f.type ~ '^ar=[0-9]+$'))"""


class ReservationFaults(Table):
    """Queries for faults, and statements that only repairs need."""

    def find(self, fault: ReservationFault) -> list[int]:
        """Return the ids of the faulty rows.

        These are ids of jobs if the fault is in the jobs table, else ids of reservations.
        """
        return self._tx.column(FAULTS[fault][1])

    def mislead(self, asked_before: int) -> bool:
        """Return whether a scheduling pass needs a repair first.

        ``asked_before``: requests made before this date are too old.
        """
        found: bool = self._tx.value(_MISLEADING, (asked_before,))
        return found

    def too_old(self, asked_before: int) -> list[int]:
        """Return the undecided requests that were made before a date."""
        return self._tx.column(_TOO_OLD, (asked_before,))

    def leaving(self) -> list[int]:
        """Return the live reservations that have ended or were deleted."""
        return self._tx.column(_LEAVING)

    def forget_revisions(self, reservation_id: int, first: int) -> None:
        """Delete the revisions of a reservation from number ``first`` on."""
        self._tx.execute(_FORGET_REVISIONS, (reservation_id, first))
        self._changed(Topic.RESERVATIONS)

    def leave(self, job_ids: Collection[int]) -> None:
        """Remove from jobs the types that place them in a reservation."""
        self._tx.execute(_LEAVE, (list(job_ids),))
        self._changed(Topic.JOBS, Topic.RESERVATIONS)

"""Faults of advance reservations, their frames and their jobs (``tx.reservation_faults``).

For each fault there is a query for the faulty rows.  ``oar-database --check --deep`` reports and repairs them; the
server repairs them when it starts.  Each scheduling pass looks for the faults that would mislead it.

See docs/design/reservations.rst, "Repairs".
"""

from collections.abc import Collection, Mapping
from enum import StrEnum

from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import Table
from oar.lib.reservations.states import ReservationEvent


class ReservationFault(StrEnum):
    """Descriptions of the faults; all faults except OVERLAP can be repaired."""

    NO_FRAME = "live, and its frame is not"
    NOT_RUNNING = "begun, and its frame does not run"
    NOT_WAITING = "not begun, and its frame does not wait"
    STRAY_FRAME = "the frame of no live advance reservation"
    OTHER_WINDOW = "its frame has another window"
    OTHER_RESOURCES = "its frame holds other resources"
    OTHER_PLAN = "its frame is planned at another place"
    NO_TYPE = "a job in it is not planned inside"
    NO_ROW = "planned inside an advance reservation that it is not in"
    NOT_GRANTED = "a resource is missing that is not granted"
    OVERLAP = "two have a resource at the same time"
    NO_GRANT = "granted, and not logged"
    NO_REVISION = "granted, and its newest revision is another one"
    NO_END = "ended, and not logged"
    NO_BILL = "ended, and without a bill"


def _logged(event: ReservationEvent) -> str:
    return f"EXISTS (SELECT FROM reservation_logs t WHERE t.reservation_id = v.reservation_id AND t.event = '{event}')"


_FRAME = f"jobs j WHERE j.job_id = v.frame_id AND {LIVE}"
_GRANTED = "v.ended = 0 AND v.state IN ('w', 'W', 'r', 'E')"
_ENDED = "v.ended <> 0 AND v.state <> 'n'"
#: A reservation that was deleted has begun if that is logged.
_BEGUN = f"(v.state IN ('r', 'E', 'x') OR v.state = 'd' AND {_logged(ReservationEvent.STARTED)})"
_NO_FRAME = f"v.ended = 0 AND NOT EXISTS (SELECT FROM {_FRAME})"
_NOT_RUNNING = f"v.ended = 0 AND {_BEGUN} AND EXISTS (SELECT FROM {_FRAME} AND j.state <> 'Running')"
_NOT_WAITING = f"v.ended = 0 AND NOT {_BEGUN} AND EXISTS (SELECT FROM {_FRAME} AND j.state <> 'Waiting')"
_OTHER_WINDOW = f"""
    v.ended = 0 AND v.state <> '' AND EXISTS (SELECT FROM {_FRAME} AND (
        j.start_time <> v.start_time OR j.reservation <> 'Scheduled' OR (
            SELECT count(*) <> 1 OR min(m.moldable_walltime) <> v.end_time - v.start_time
            FROM moldable_job_descriptions m WHERE m.moldable_job_id = j.job_id)))"""
#: The granted resources that have not been removed.
_PRESENT = """
    ARRAY(SELECT g.id FROM unnest(v.resources) AS g (id)
          WHERE EXISTS (SELECT FROM resources r WHERE r.resource_id = g.id) ORDER BY g.id)"""
_OTHER_RESOURCES = f"""
    v.ended = 0 AND EXISTS (SELECT FROM {_FRAME} AND j.state = 'Running' AND {_PRESENT} <> ARRAY(
        SELECT a.resource_id FROM assigned_resources a JOIN resources r USING (resource_id)
        WHERE a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
        ORDER BY a.resource_id))"""
#: What a round grants is planned by its next transaction.
_OTHER_PLAN = f"""
    v.ended = 0 AND v.state IN ('w', 'W') AND (
        SELECT max(t.date) FROM reservation_revisions t WHERE t.reservation_id = v.reservation_id
    ) < (SELECT start_time FROM gantt_jobs_predictions WHERE moldable_job_id = 0) AND EXISTS (
        SELECT FROM {_FRAME} AND NOT EXISTS (
        SELECT FROM moldable_job_descriptions m
        JOIN gantt_jobs_predictions p ON p.moldable_job_id = m.moldable_id AND p.start_time = v.start_time
        JOIN gantt_jobs_sets s ON s.moldable_job_id = m.moldable_id
        WHERE m.moldable_job_id = j.job_id AND s.resources @> {_PRESENT} AND s.resources <@ v.resources))"""
#: The type by which a job is in a reservation.
_ENTRY = "CASE v.flex WHEN 'YES' THEN 'allowed=ar' || v.reservation_id ELSE 'inner=' || v.frame_id END"
_NO_REVISION = (
    f"{_GRANTED} AND v.revision IS DISTINCT FROM ("
    "SELECT max(t.revision) FROM reservation_revisions t WHERE t.reservation_id = v.reservation_id)"
)
_OVERLAP = f"""
    {_GRANTED} AND EXISTS (
        SELECT FROM reservations o WHERE o.reservation_id < v.reservation_id AND o.ended = 0
        AND o.state IN ('w', 'W', 'r', 'E') AND o.start_time < v.end_time AND v.start_time < o.end_time
        AND o.resources && v.resources)"""


def _reservations(condition: str) -> tuple[str, str]:
    return "reservations", f"SELECT v.reservation_id FROM reservations v WHERE {condition} ORDER BY v.reservation_id"


#: For each fault the table that it is about, and the statement that finds its rows: ids of reservations, or of jobs.
FAULTS: Mapping[ReservationFault, tuple[str, str]] = {
    ReservationFault.NO_FRAME: _reservations(_NO_FRAME),
    ReservationFault.NOT_RUNNING: _reservations(_NOT_RUNNING),
    ReservationFault.NOT_WAITING: _reservations(_NOT_WAITING),
    ReservationFault.STRAY_FRAME: (
        "jobs",
        f"""
        SELECT DISTINCT j.job_id FROM job_types t JOIN jobs j ON j.job_id = t.job_id
        WHERE t.types_index = 'CURRENT' AND t.type ~ '^ar=[0-9]+$' AND j.initial_request ~ '^qrsub [(]' AND {LIVE}
          AND NOT EXISTS (SELECT FROM reservations v WHERE v.frame_id = j.job_id AND v.frame_id <> 0 AND v.ended = 0)
        ORDER BY j.job_id""",
    ),
    ReservationFault.OTHER_WINDOW: _reservations(_OTHER_WINDOW),
    ReservationFault.OTHER_RESOURCES: _reservations(_OTHER_RESOURCES),
    ReservationFault.OTHER_PLAN: _reservations(_OTHER_PLAN),
    ReservationFault.NO_TYPE: (
        "reservation_jobs",
        f"""
        SELECT j.job_id FROM reservations v JOIN reservation_jobs i USING (reservation_id) JOIN jobs j USING (job_id)
        WHERE v.ended = 0 AND {LIVE} AND NOT EXISTS (
            SELECT FROM job_types t WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT' AND t.type = {_ENTRY})
        ORDER BY j.job_id""",
    ),
    ReservationFault.NO_ROW: (
        "job_types",
        f"""
        SELECT DISTINCT j.job_id FROM job_types t JOIN jobs j ON j.job_id = t.job_id
        JOIN reservations v ON v.ended = 0 AND t.type = {_ENTRY}
        WHERE t.types_index = 'CURRENT' AND t.type ~ '^(inner=|allowed=ar)' AND {LIVE}
          AND NOT EXISTS (
            SELECT FROM reservation_jobs i WHERE i.job_id = j.job_id AND i.reservation_id = v.reservation_id)
        ORDER BY j.job_id""",
    ),
    ReservationFault.NOT_GRANTED: _reservations("v.ended = 0 AND NOT v.missing <@ v.resources"),
    ReservationFault.OVERLAP: _reservations(_OVERLAP),
    ReservationFault.NO_GRANT: _reservations(f"{_GRANTED} AND NOT {_logged(ReservationEvent.CREATED)}"),
    ReservationFault.NO_REVISION: _reservations(_NO_REVISION),
    ReservationFault.NO_END: _reservations(f"{_ENDED} AND NOT {_logged(ReservationEvent.TERMINATED)}"),
    ReservationFault.NO_BILL: _reservations(
        f"{_ENDED} AND EXISTS (SELECT FROM reservation_intervals t"
        " WHERE t.reservation_id = v.reservation_id AND t.kind = 'granted')"
        " AND NOT EXISTS (SELECT FROM reservation_usage t WHERE t.reservation_id = v.reservation_id)"
    ),
}

#: Requests whose asker has gone; nobody ever waits for the later ones of a series, which are made without him.
_LEFT = """
    v.state = '' AND v.submission_time < %s AND NOT EXISTS (
        SELECT FROM reservation_series s WHERE s.series_id = v.series_id AND v.series_index > s.depth)"""
#: Whether a round would be misled; a request that nobody waits for any more is not granted.
_MISLEADING = f"""
    SELECT EXISTS (
        SELECT FROM reservations v WHERE v.ended = 0 AND (
            {_LEFT}
            OR ({_NO_FRAME}) OR ({_NOT_RUNNING}) OR ({_NOT_WAITING}) OR ({_OTHER_WINDOW}) OR ({_NO_REVISION})))"""
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
        is_misled: bool = self._tx.value(_MISLEADING, (asked_before,))
        return is_misled

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

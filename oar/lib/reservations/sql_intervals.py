"""What resources were to advance reservations, and when (``tx.reservation_intervals``).

Statements are about all reservations at once: never a query for each.  See docs/design/reservations.rst.
"""

from collections import defaultdict
from collections.abc import Collection

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Table
from oar.lib.reservations.records import ResourceInterval
from oar.lib.reservations.states import IntervalKind

_BEGIN_INTERVALS = """
    INSERT INTO reservation_intervals (reservation_id, resource_id, kind, date_start)
    SELECT %s, unnest(%s::integer[]), %s, %s"""
_END_INTERVALS = """
    UPDATE reservation_intervals SET date_stop = %s
    WHERE reservation_id = %s AND resource_id = ANY(%s) AND kind = %s AND date_stop = 0"""
_INTERVALS = """
    SELECT reservation_id, kind, resource_id, date_start, date_stop FROM reservation_intervals
    WHERE reservation_id = ANY(%s) ORDER BY resource_id, date_start"""
_MISSING_SINCE = """
    SELECT reservation_id, resource_id, date_start FROM reservation_intervals
    WHERE reservation_id = ANY(%s) AND kind = 'missing' AND date_stop = 0"""
#: When the jobs of reservations had which resources.
_JOB_INTERVALS = """
    SELECT i.reservation_id, a.resource_id, j.start_time, j.stop_time
    FROM reservation_jobs i JOIN jobs j ON j.job_id = i.job_id
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    WHERE i.reservation_id = ANY(%s) AND j.start_time > 0 ORDER BY a.resource_id, j.start_time"""
_PLACES = """
    SELECT resource_id, COALESCE(NULLIF(network_address, ''), type) FROM resources WHERE resource_id = ANY(%s)"""


class ReservationIntervals(Table):
    """Intervals in which resources were granted, were missing, or had a job of the reservation."""

    def begin(self, reservation_id: int, kind: IntervalKind, resources: Collection[int], date: int) -> None:
        """Note what resources are to a reservation from a date on."""
        self._tx.topics.add(Topic.RESERVATIONS)
        if resources:
            self._tx.execute(_BEGIN_INTERVALS, (reservation_id, sorted(resources), str(kind), date))

    def end(self, reservation_id: int, kind: IntervalKind, resources: Collection[int], date: int) -> None:
        """Note that resources are no longer what they were to a reservation."""
        self._tx.topics.add(Topic.RESERVATIONS)
        if resources:
            self._tx.execute(_END_INTERVALS, (date, reservation_id, sorted(resources), str(kind)))

    def of_reservations(self, ids: Collection[int]) -> dict[int, dict[IntervalKind, list[ResourceInterval]]]:
        """Return what resources were to reservations, of each by resource and date."""
        found: dict[int, dict[IntervalKind, list[ResourceInterval]]]
        found = {number: {kind: [] for kind in IntervalKind} for number in ids}
        for number, kind, *interval in self._tx.rows(_INTERVALS, (list(ids),)) if ids else ():
            found[number][IntervalKind(kind)].append(ResourceInterval(*interval))
        return found

    def missing_since(self, ids: Collection[int]) -> dict[int, dict[int, int]]:
        """Return since when resources of reservations are missing: date by resource, by reservation."""
        since: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for reservation_id, resource_id, date in self._tx.rows(_MISSING_SINCE, (list(ids),)) if ids else ():
            since[reservation_id][resource_id] = date
        return since

    def of_their_jobs(self, ids: Collection[int]) -> dict[int, list[ResourceInterval]]:
        """Return when the jobs of reservations had which resources."""
        found: dict[int, list[ResourceInterval]] = {number: [] for number in ids}
        for number, *interval in self._tx.rows(_JOB_INTERVALS, (list(ids),)) if ids else ():
            found[number].append(ResourceInterval(*interval))
        return found

    def places(self, resource_ids: Collection[int]) -> dict[int, str]:
        """Return the node of each resource, its type if it is on no node; without resources that were removed."""
        return dict(self._tx.rows(_PLACES, (list(resource_ids),)))

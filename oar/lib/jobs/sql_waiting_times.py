"""How long jobs waited, by the number of their resources (``tx.waiting_times``)."""

from typing import NamedTuple

from oar.lib.db.predicates import NO_FRAME
from oar.lib.db.statements import Table
from oar.lib.db.time_pieces import BUCKETS, CUT

#: The fewest resources of each class of sizes.
CLASSES = (1, 2, 5, 17, 65, 257)
#: Hours that are looked at together.
BLOCK_HOURS = 3
#: The jobs that started last in a period: what was asked for without a date, and how long it waited.
_STARTED = f"""started AS (
        SELECT j.queue_name::text AS queue, j.submission_time AS submitted, j.start_time AS started,
            GREATEST(0, j.start_time - j.submission_time) AS wait,
            (SELECT count(*) FROM assigned_resources a WHERE a.moldable_job_id = j.assigned_moldable_job) AS size
        FROM jobs j
        WHERE j.start_time >= %(start)s AND j.start_time < %(stop)s AND j.assigned_moldable_job <> 0
          AND j.reservation = 'None' AND {NO_FRAME}
        ORDER BY j.start_time DESC LIMIT %(most)s),
    classed AS (SELECT *, width_bucket(size, %(classes)s::bigint[]) AS class FROM started WHERE size > 0)"""
_BY_SIZE = f"""
    WITH {_STARTED}
    SELECT class, queue, count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY wait),
        percentile_disc(0.9) WITHIN GROUP (ORDER BY wait)
    FROM classed GROUP BY GROUPING SETS ((class, queue), (class)) ORDER BY class, queue NULLS FIRST"""
_BY_HOUR = f"""
    WITH {_STARTED},
    dated AS (SELECT class, wait, to_timestamp(submitted) AT TIME ZONE %(zone)s AS date FROM classed)
    SELECT class, (extract(isodow FROM date)::integer - 1) * 24 / {BLOCK_HOURS}
        + extract(hour FROM date)::integer / {BLOCK_HOURS} AS block,
        count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY wait)
    FROM dated GROUP BY 1, 2 ORDER BY 1, 2"""
_BY_PIECE = {
    bucket: f"""
    WITH {_STARTED}
    SELECT class, {CUT.format(bucket=bucket, date="started")}, count(*),
        percentile_disc(0.5) WITHIN GROUP (ORDER BY wait), percentile_disc(0.9) WITHIN GROUP (ORDER BY wait)
    FROM classed GROUP BY 1, 2 ORDER BY 1, 2"""
    for bucket in BUCKETS
}


class WaitBySize(NamedTuple):
    """How long the jobs of a class of sizes waited, in seconds."""

    size: int  #: the class, by its place in ``CLASSES``
    queue: str | None  #: None = all queues
    jobs: int
    half: int  #: half of them waited no longer
    most: int  #: nine of ten waited no longer


class WaitByHour(NamedTuple):
    """How long jobs of a class waited that were submitted in some hours of the week."""

    size: int
    block: int  #: hours from Monday 00:00 of the site on, so many at a time
    jobs: int
    half: int


class WaitByPiece(NamedTuple):
    """How long jobs of a class had waited that started in a piece of time."""

    size: int
    begin: int  #: date
    jobs: int
    half: int
    most: int


class LastStarted(NamedTuple):
    """Jobs that started between two dates, the last of them if there are more."""

    start: int
    stop: int
    most: int


class WaitingTimes(Table):
    """Questions about waiting that is over; reservations have asked for their date."""

    def by_size(self, period: LastStarted) -> list[WaitBySize]:
        """Return the waiting times of each class, and of its jobs in each queue."""
        rows = self._tx.rows(_BY_SIZE, {**period._asdict(), "classes": list(CLASSES)})
        return [WaitBySize(place - 1, *rest) for place, *rest in rows]

    def by_hour(self, period: LastStarted, zone: str) -> list[WaitByHour]:
        """Return the waiting times of each class by when its jobs were submitted, as clocks of a zone tell it."""
        rows = self._tx.rows(_BY_HOUR, {**period._asdict(), "classes": list(CLASSES), "zone": zone})
        return [WaitByHour(place - 1, *rest) for place, *rest in rows]

    def by_piece(self, period: LastStarted, bucket: str) -> list[WaitByPiece]:
        """Return the waiting times of each class by when its jobs started, in pieces of UTC (``BUCKETS``)."""
        rows = self._tx.rows(_BY_PIECE[bucket], {**period._asdict(), "classes": list(CLASSES)})
        return [WaitByPiece(place - 1, *rest) for place, *rest in rows]

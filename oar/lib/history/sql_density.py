"""How much of groups of resources was in use, in pieces of time: what is too much to be drawn (``tx.density``)."""

from collections.abc import Sequence
from typing import NamedTuple

from oar.lib.db.predicates import NO_FRAME
from oar.lib.db.statements import Table

#: What is summed: how long so many resources of a group were in one state, cut to pieces of time.
_PIECES = """
    SELECT {kind}, span.place, piece.number, sum(span.number * (
        LEAST(span.stop, piece.start + %(bucket)s::bigint) - GREATEST(span.start, piece.start)))
    FROM span, LATERAL (
        SELECT number, %(start)s::bigint + number * %(bucket)s::bigint AS start FROM generate_series(
            (GREATEST(span.start, %(start)s::bigint) - %(start)s::bigint) / %(bucket)s::bigint,
            (LEAST(span.stop, %(stop)s::bigint) - 1 - %(start)s::bigint) / %(bucket)s::bigint) AS number) piece
    GROUP BY 1, 2, 3"""
_GROUPS = "grouped AS (SELECT id, place FROM unnest(%(ids)s::integer[], %(places)s::integer[]) AS g (id, place))"
#: The last seconds of jobs that ended in a period, of each group that they had resources of.
_USED = f"""
    WITH {_GROUPS},
    ended AS (
        SELECT j.job_id, j.assigned_moldable_job AS moldable, j.start_time, j.stop_time,
            EXISTS (SELECT 1 FROM job_types t WHERE t.job_id = j.job_id AND t.type = 'besteffort') AS is_besteffort
        FROM jobs j
        WHERE j.stop_time > %(start)s::bigint AND j.stop_time < %(stop)s::bigint AND j.state IN ('Terminated', 'Error')
          AND j.start_time > 0 AND j.assigned_moldable_job <> 0 AND {NO_FRAME}),
    span AS (
        SELECT e.is_besteffort, g.place, e.start_time AS start, e.stop_time AS stop, count(*) AS number
        FROM ended e JOIN assigned_resources a ON a.moldable_job_id = e.moldable JOIN grouped g ON g.id = a.resource_id
        GROUP BY e.job_id, 1, 2, 3, 4)
    {_PIECES.format(kind="span.is_besteffort")}"""
_UNUSABLE = f"""
    WITH {_GROUPS},
    span AS (
        SELECT g.place, l.date_start AS start, l.date_stop AS stop, count(*) AS number
        FROM resource_logs l JOIN grouped g ON g.id = l.resource_id
        WHERE l.attribute = 'state' AND l.value IN ('Absent', 'Dead', 'Suspected')
          AND l.date_stop > %(start)s::bigint AND l.date_stop < %(stop)s::bigint
        GROUP BY 1, 2, 3)
    {_PIECES.format(kind="false")}"""


class Pieces(NamedTuple):
    """A period that is cut into pieces, and the groups of resources that are looked at."""

    start: int
    stop: int
    bucket: int  #: seconds of a piece
    groups: Sequence[Sequence[int]]  #: ids of resources


class Amount(NamedTuple):
    """Resource seconds of a group in a piece of time."""

    is_besteffort: bool
    group: int  #: its place among the groups
    piece: int  #: its place among the pieces
    seconds: int


class Density(Table):
    """Sums over what ended in a period."""

    def used(self, pieces: Pieces) -> list[Amount]:
        """Return what the jobs used in a period that ended in it."""
        return [Amount(*row) for row in self._tx.rows(_USED, _asked(pieces))]

    def unusable(self, pieces: Pieces) -> list[Amount]:
        """Return what could not be used in a period, in states that ended in it."""
        return [Amount(*row) for row in self._tx.rows(_UNUSABLE, _asked(pieces))]


def _asked(pieces: Pieces) -> dict[str, object]:
    members = [(number, place) for place, ids in enumerate(pieces.groups) for number in ids]
    return {
        "start": pieces.start,
        "stop": pieces.stop,
        "bucket": pieces.bucket,
        "ids": [number for number, _ in members],
        "places": [place for _, place in members],
    }

"""Ended jobs, in the order of their ids (``tx.ended_jobs``): for traces and other exports."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.db.predicates import ENDED, NO_FRAME
from oar.lib.db.statements import Table

_CHOSEN = f"""
    FROM jobs j
    WHERE j.job_id > %(after)s AND j.job_id <= %(last)s AND {ENDED} AND {NO_FRAME}
      AND j.submission_time >= %(start)s AND j.submission_time <= %(stop)s"""
_NEXT = f"SELECT j.job_id {_CHOSEN} ORDER BY j.job_id LIMIT %(limit)s"
_SUMMARY = f"""
    SELECT count(*), min(j.submission_time), array_agg(DISTINCT j.job_user::text), array_agg(DISTINCT j.project::text),
        array_agg(DISTINCT j.queue_name::text) {_CHOSEN}"""
_FRAMES = "SELECT frame_id FROM reservations WHERE frame_id = ANY(%s) AND frame_id <> 0"


class EndedSummary(NamedTuple):
    """What is known of many ended jobs."""

    number: int
    first_submission: int
    users: tuple[str, ...]
    projects: tuple[str, ...]
    queues: tuple[str, ...]


class EndedJobs(Table):
    """Jobs that have ended; frames of advance reservations, which are no work, are left out."""

    def next(self, after: int, last: int, *, start: int, stop: int, limit: int) -> list[int]:
        """Return the next jobs behind an id, up to and including another one.

        ``start``, ``stop``: they were submitted between these dates.
        """
        values = {"after": after, "last": last, "start": start, "stop": stop, "limit": limit}
        return self._tx.column(_NEXT, values)

    def frames(self, ids: Collection[int]) -> set[int]:
        """Return those of some jobs that are frames of advance reservations."""
        return set(self._tx.column(_FRAMES, (list(ids),)))

    def summary(self, first: int, last: int, *, start: int, stop: int) -> EndedSummary:
        """Return what is known of all of them from one id to another."""
        row = self._tx.row(_SUMMARY, {"after": first - 1, "last": last, "start": start, "stop": stop})
        assert row is not None
        count, begin, *names = row
        return EndedSummary(count, begin or 0, *(tuple(each or ()) for each in names))

"""Pages of jobs (``tx.job_pages``): one statement for any conditions; a page costs the same wherever it begins."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from oar.lib.db.sql.predicates import LIVE
from oar.lib.db.sql.statements import Table
from oar.lib.facts.job_query import LIVE_STATES, JobPlace, JobQuery
from oar.lib.facts.records import date_of_start
from oar.lib.facts.states import FINAL, JobState

#: More jobs than this are not counted.
MOST_COUNTED = 100_000
_NO_FRAME = "NOT EXISTS (SELECT FROM reservations f WHERE f.frame_id = j.job_id AND f.frame_id <> 0)"
_TYPES = "EXISTS (SELECT FROM job_types t WHERE t.job_id = j.job_id AND t.type = ANY(%s))"
_INSIDE = "j.job_id IN (SELECT job_id FROM reservation_jobs WHERE reservation_id = ANY(%s))"
_NODES = """EXISTS (
    SELECT FROM assigned_resources a JOIN resources r USING (resource_id)
    WHERE a.moldable_job_id = j.assigned_moldable_job AND j.assigned_moldable_job <> 0
      AND r.network_address = ANY(%s))"""
_TEXT = "(strpos(lower(coalesce(j.job_name, '')), lower(%s)) > 0 OR strpos(j.job_user, %s) > 0 OR j.job_id::text = %s)"
_BETWEEN = "j.submission_time <= %s AND (j.stop_time = 0 OR j.stop_time >= %s)"

_BY_QUEUE = (
    f"SELECT j.queue_name, j.state, count(*) FROM jobs j WHERE {LIVE} AND {_NO_FRAME} GROUP BY 1, 2 ORDER BY 1, 2"
)

_LISTED = """
    j.job_id, j.job_name, j.job_user, j.project, j.queue_name, j.state, j.array_id, j.array_index, j.job_type,
    j.reservation, j.submission_time, j.start_time, j.stop_time, j.exit_code, j.assigned_moldable_job, j.message"""

_Condition = tuple[str, tuple[Any, ...]]


class ListedJob(NamedTuple):
    """What a list shows of a job; the names are those of ``Job``."""

    id: int
    name: str | None
    user: str
    project: str
    queue: str
    state: str
    array_id: int
    array_index: int
    job_type: str
    reservation: str
    submission_time: int
    start_time: int
    stop_time: int
    exit_code: int | None
    assigned_moldable: int | None
    message: str

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL

    @property
    def started(self) -> int:
        """Date of its start, 0 if it never started."""
        return date_of_start(self.state, self.start_time, self.stop_time, self.assigned_moldable)


class JobPages(Table):
    """Jobs by pages."""

    def listed(self, query: JobQuery, place: JobPlace) -> list[ListedJob]:
        """Return the jobs of a page; one more than ``place.limit`` if there is one behind it."""
        return [ListedJob(*row) for row in self._tx.rows(*_page(_LISTED, query, place))]

    def page(self, query: JobQuery, place: JobPlace) -> list[int]:
        """Return the ids of the jobs of a page; one more than ``place.limit`` if there is one behind it."""
        return self._tx.column(*_page("j.job_id", query, place))

    def count(self, query: JobQuery) -> int:
        """Return the number of jobs, ``MOST_COUNTED + 1`` if there are more than ``MOST_COUNTED``."""
        where, parameters = _joined(list(_conditions(query)))
        limited = f"SELECT count(*) FROM (SELECT FROM jobs j WHERE {where} LIMIT %s) counted"
        number: int = self._tx.value(limited, (*parameters, MOST_COUNTED + 1))
        return number

    def total(self, query: JobQuery) -> int:
        """Return the number of jobs; above ``MOST_COUNTED`` what the database estimates, which costs nothing."""
        number = self.count(query)
        if number <= MOST_COUNTED:
            return number
        where, parameters = _joined(list(_conditions(query)))
        (plan,) = self._tx.value(f"EXPLAIN (FORMAT JSON) SELECT FROM jobs j WHERE {where}", parameters)
        return max(number, int(plan["Plan"]["Plan Rows"]))

    def live_by_queue(self) -> dict[tuple[str, JobState], int]:
        """Return the numbers of live jobs by queue and state."""
        return {(queue, JobState(state)): number for queue, state, number in self._tx.rows(_BY_QUEUE)}


def _page(columns: str, query: JobQuery, place: JobPlace) -> _Condition:
    """Return the statement of a page, and its parameters."""
    conditions = list(_conditions(query))
    if place.after is not None:
        conditions.append((f"j.job_id {'<' if place.newest_first else '>'} %s", (place.after,)))
    where, parameters = _joined(conditions)
    order = "DESC" if place.newest_first else "ASC"
    sql = f"SELECT {columns} FROM jobs j WHERE {where} ORDER BY j.job_id {order} LIMIT %s"
    return sql, (*parameters, place.limit + 1)


def _joined(conditions: list[_Condition]) -> _Condition:
    texts = " AND ".join(text for text, _ in conditions) or "true"
    return texts, tuple(value for _, values in conditions for value in values)


def _alternatives(query: JobQuery) -> Iterator[_Condition]:
    """Give the conditions of which each names the values that a column may have."""
    for column, values in (
        ("j.job_id", query.ids),
        ("j.array_id", query.arrays or None),
        ("j.job_user", query.users or None),
        ("j.queue_name", query.queues or None),
        ("j.project", query.projects or None),
        ("j.job_name", query.names or None),
    ):
        if values is not None:
            yield f"{column} = ANY(%s)", (list(values),)


def _conditions(query: JobQuery) -> Iterator[_Condition]:
    if query.states is not None:
        if query.states <= LIVE_STATES:
            yield LIVE, ()  # the words of the partial indexes
        if query.states != LIVE_STATES:
            yield "j.state = ANY(%s)", ([str(state) for state in sorted(query.states)],)
    yield from _alternatives(query)
    if query.types:
        yield _TYPES, (list(query.types),)
    if query.nodes:
        yield _NODES, (list(query.nodes),)
    if query.reservations is not None:
        yield _INSIDE, (sorted(query.reservations),)
    if query.text is not None:
        yield _TEXT, (query.text, query.text, query.text)
    if query.between is not None:
        yield _BETWEEN, (query.between[1], query.between[0])
    if query.ended_since is not None:
        yield f"({LIVE} OR j.stop_time >= %s)", (query.ended_since,)
    if not query.with_frames:
        yield _NO_FRAME, ()

"""Pages of jobs (``tx.job_pages``): one statement for any conditions; a page costs the same wherever it begins."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import Table
from oar.lib.jobs.fields import COLUMNS
from oar.lib.jobs.query import LIVE_STATES, JobPlace, JobQuery
from oar.lib.jobs.records import Job, date_of_start
from oar.lib.jobs.states import FINAL, NOT_STARTED, JobState

#: Number of times that a folded page goes on inside an array that was shown before.
_MORE_LOOKS = 4
#: More jobs than this are not counted.
MOST_COUNTED = 100_000
#: Jobs that a folded page of ended jobs reads at most to find the arrays that it shows.
MOST_READ = 20_000
#: The same for each row of the page if no index finds the jobs of the query.
_READ_FOR_A_ROW = 10
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

#: The number of a job's array.  A job without one is an array of its own; its number is negative, so that it is unique.
_ARRAY = "CASE WHEN j.array_id = 0 THEN -j.job_id ELSE j.array_id END"
_EXIT_CODE = "coalesce(j.exit_code, 0)"
_STARTED = "j.start_time > 0 AND j.assigned_moldable_job <> 0 AND (j.stop_time = 0 OR j.start_time <= j.stop_time)"
#: The rows of arrays; the position of an array is the id of that of its jobs which the list reaches first.
_FOLDED = f"""
    SELECT position, array_id, state, exit_code, lowest, highest, number, started FROM (
        SELECT alike.*, {{first}}({{end}}) OVER (PARTITION BY array_id) AS position FROM (
            SELECT {_ARRAY} AS array_id, j.state, {_EXIT_CODE} AS exit_code, min(j.job_id) AS lowest,
                max(j.job_id) AS highest, count(*) AS number, min(j.start_time) FILTER (WHERE {_STARTED}) AS started
            FROM jobs j WHERE {{where}} GROUP BY 1, 2, 3) alike) placed
    WHERE %s::bigint IS NULL OR position {{behind}} %s
    ORDER BY position {{order}} FETCH FIRST %s ROWS WITH TIES"""
#: The arrays that a list reaches first, how many jobs were read for them, and the last of these jobs.
_ARRAYS = f"""
    WITH reached AS (
        SELECT j.job_id, {_ARRAY} AS array_id FROM jobs j WHERE {{where}} ORDER BY j.job_id {{order}} LIMIT %s)
    SELECT array_id, {{first}}(job_id) AS position,
        (SELECT count(*) FROM reached), (SELECT {{last}}(job_id) FROM reached)
    FROM reached GROUP BY array_id ORDER BY position {{order}} LIMIT %s"""
_OF_ARRAYS = "(j.array_id = ANY(%s) OR j.array_id = 0 AND j.job_id = ANY(%s))"
_MEMBERS = f"""
    SELECT j.array_id, j.state, {_EXIT_CODE}, array_agg(j.job_id ORDER BY j.job_id)
    FROM jobs j WHERE {{where}} GROUP BY 1, 2, 3"""

_Condition = tuple[str, tuple[Any, ...]]


class ListedJob(NamedTuple):
    """What a list shows of a job; the names are those of ``Job``, what is not shown as it is comes last."""

    id: int
    array_id: int
    array_index: int
    name: str | None
    project: str
    user: str
    state: str
    queue: str
    exit_code: int | None
    job_type: str
    reservation: str
    submission_time: int
    message: str
    start_time: int
    stop_time: int
    assigned_moldable: int | None

    @classmethod
    def of(cls, job: Job) -> "ListedJob":
        """Return what a list shows of a whole job."""
        return cls(*[getattr(job, name) for name in cls._fields])

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL

    @property
    def ended(self) -> int:
        """Date of the end, 0 before the job is in a final state."""
        return self.stop_time if self.is_final else 0

    @property
    def started(self) -> int:
        """Date of its start, 0 if it never started."""
        return date_of_start(self.state, self.start_time, self.stop_time, self.assigned_moldable)


_LISTED = ", ".join(f"j.{COLUMNS[name]}" for name in ListedJob._fields)


class FoldedJobs(NamedTuple):
    """Jobs of an array in the same state and with the same exit code, which are one row of a list."""

    ids: Sequence[int]  #: ascending; the list shows the first of these jobs
    started: int  #: date of the first start, 0 if none of them has started


class FoldedPage(NamedTuple):
    """A page whose rows are groups of jobs."""

    rows: list[FoldedJobs]
    next: int | None  #: where the next page begins, None if there is none


class _Group(NamedTuple):
    """A row of ``_FOLDED``."""

    position: int
    array_id: int
    state: str
    exit_code: int
    lowest: int
    highest: int
    number: int
    started: int | None

    @property
    def key(self) -> tuple[int, str, int]:
        return self.array_id, self.state, self.exit_code

    @property
    def has_gaps(self) -> bool:
        return self.highest - self.lowest >= self.number


class JobPages(Table):
    """Jobs by pages."""

    def listed(self, query: JobQuery, place: JobPlace) -> list[ListedJob]:
        """Return the jobs of a page; one more than ``place.limit`` if there is one behind it."""
        return [ListedJob(*row) for row in self._tx.rows(*_page(_LISTED, query, place))]

    def page(self, query: JobQuery, place: JobPlace) -> list[int]:
        """Return the ids of the jobs of a page; one more than ``place.limit`` if there is one behind it."""
        return self._tx.column(*_page("j.job_id", query, place))

    def folded(self, query: JobQuery, place: JobPlace) -> FoldedPage:
        """Return a page on which similar jobs of an array are one row.

        All rows of an array are on the page that reaches the first of its jobs.  A page has more than ``place.limit``
        rows only if one array has more, and fewer, even none, where it lies inside an array that was shown before.
        """
        page = self._folded_page(query, place)
        for _ in range(_MORE_LOOKS):
            if page.rows or page.next is None:
                break
            page = self._folded_page(query, place._replace(after=page.next))
        return page

    def _folded_page(self, query: JobQuery, place: JobPlace) -> FoldedPage:
        conditions, following = list(_conditions(query)), None
        if query.states is None or not query.states <= LIVE_STATES:
            arrays, following = self._arrays(query, place)
            numbers = [number for number in arrays if number > 0]
            conditions.append((_OF_ARRAYS, (numbers, [-number for number in arrays if number < 0])))
        groups = [_Group(*row) for row in self._tx.rows(*_folded(conditions, place))]
        if len(groups) > place.limit:
            cut = groups[place.limit].position  # of the array whose rows do not all fit
            groups = [group for group in groups if group.position != cut] or groups
            following = groups[-1].position
        if place.newest_first:
            groups.sort(key=lambda group: (group.position, group.highest), reverse=True)
        else:
            groups.sort(key=lambda group: (group.position, group.lowest))
        return FoldedPage(self._rows(groups, conditions), following)

    def _arrays(self, query: JobQuery, place: JobPlace) -> tuple[list[int], int | None]:
        """Return the arrays that a page can show, and the last job that was read for them, None for the end."""
        is_indexed = not (query.nodes or query.types or query.text)
        most = MOST_READ if is_indexed else min(MOST_READ, _READ_FOR_A_ROW * place.limit)
        for length in (place.limit + 1, most):
            rows = self._tx.rows(*_reached(query, place, length))
            arrays = [row[0] for row in rows]
            if len(rows) > place.limit:
                return arrays, rows[-1][1]
            if not rows or rows[0][2] < length:
                return arrays, None
        return arrays, rows[0][3]

    def _rows(self, groups: Sequence[_Group], conditions: Sequence[_Condition]) -> list[FoldedJobs]:
        """Return the rows of groups.  The ids of jobs are read only for arrays whose ids have gaps."""
        members: dict[tuple[int, str, int], list[int]] = {}
        arrays = {group.array_id for group in groups if group.has_gaps}
        if arrays:
            where, parameters = _joined([*conditions, ("j.array_id = ANY(%s)", (list(arrays),))])
            rows = self._tx.rows(_MEMBERS.format(where=where), parameters)
            members = {(array_id, state, exit_code): ids for array_id, state, exit_code, ids in rows}
        return [
            FoldedJobs(
                members.get(group.key) or range(group.lowest, group.highest + 1),
                0 if group.state in NOT_STARTED else group.started or 0,
            )
            for group in groups
        ]

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
    where, parameters = _joined([*_conditions(query), *_behind(place)])
    sql = f"SELECT {columns} FROM jobs j WHERE {where} ORDER BY j.job_id {_direction(place)['order']} LIMIT %s"
    return sql, (*parameters, place.limit + 1)


def _folded(conditions: Sequence[_Condition], place: JobPlace) -> _Condition:
    """Return the statement of the rows of a folded page, and its parameters: whole arrays, one row more if there is."""
    where, parameters = _joined(conditions)
    sql = _FOLDED.format(where=where, end="highest" if place.newest_first else "lowest", **_direction(place))
    return sql, (*parameters, place.after, place.after, place.limit + 1)


def _reached(query: JobQuery, place: JobPlace, length: int) -> _Condition:
    """Return the statement of the arrays of the next ``length`` jobs, and its parameters."""
    where, parameters = _joined([*_conditions(query), *_behind(place)])
    return _ARRAYS.format(where=where, **_direction(place)), (*parameters, length, place.limit + 1)


def _direction(place: JobPlace) -> dict[str, str]:
    """Return the words of statements that depend on the order of the list."""
    if place.newest_first:
        return {"order": "DESC", "behind": "<", "first": "max", "last": "min"}
    return {"order": "ASC", "behind": ">", "first": "min", "last": "max"}


def _behind(place: JobPlace) -> Iterator[_Condition]:
    if place.after is not None:
        yield f"j.job_id {_direction(place)['behind']} %s", (place.after,)


def _joined(conditions: Sequence[_Condition]) -> _Condition:
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

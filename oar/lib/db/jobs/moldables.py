"""Alternatives of jobs (``tx.moldables``) with their requests, which are in three tables.

Those of a page of jobs come by a join.  A join would look each of ten thousand up in two large tables, which takes
three times as long as to read the tables one after the other, where these rows lie side by side.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

from oar.lib.db.sql.statements import About, Prepared, Row, Statements, Table
from oar.lib.facts.records import Group, Level, Moldable

#: Rows that are sorted where that matters, which is seldom.
_JOINED = Prepared("""
    SELECT m.moldable_id, g.res_group_id, d.res_job_order, m.moldable_job_id, m.moldable_walltime, m.default_walltime,
           g.res_group_property, d.res_job_resource_type, d.res_job_value
    FROM moldable_job_descriptions m
    LEFT JOIN job_resource_groups g ON g.res_group_moldable_id = m.moldable_id
    LEFT JOIN job_resource_descriptions d ON d.res_job_group_id = g.res_group_id
    WHERE m.moldable_job_id = ANY(%s)""")
_ALTERNATIVES = """
    SELECT moldable_id, moldable_job_id, moldable_walltime, default_walltime
    FROM moldable_job_descriptions WHERE moldable_job_id = ANY(%s)"""
_GROUPS = """
    SELECT res_group_moldable_id, res_group_id, res_group_property
    FROM job_resource_groups WHERE res_group_moldable_id = ANY(%s)"""
_LEVELS = """
    SELECT res_job_group_id, res_job_order, res_job_resource_type, res_job_value
    FROM job_resource_descriptions WHERE res_job_group_id = ANY(%s)"""
_NO_GROUP: Sequence[Row] = ((None, None, None),)
_NO_LEVEL: Sequence[Row] = ((None, None, None, None),)

#: What stands in the only line of an alternative: whether it has a group, its filter, and the only level of it.
_Line = tuple[bool, str | None, str | None, int]
_ByJob = dict[int, list[Moldable]]


def _of_rows(rows: Sequence[Row]) -> _ByJob:
    """Gather the joined rows: alternatives, their groups, the levels of the groups."""
    if rows and len({row[0] for row in rows}) == len(rows):
        ids, group_ids, _, jobs, walltimes, defaults, *rest = zip(*rows, strict=True)
        lines = zip([group_id is not None for group_id in group_ids], *rest, strict=True)
        return _of_one_line_each(ids, jobs, walltimes, defaults, lines)
    alternatives: _ByJob = defaultdict(list)
    for alternative_id, some in groupby(sorted(rows, key=itemgetter(0, 1, 2)), itemgetter(0)):
        lines_of: Any = tuple(some)
        _, group_id, _, job_id, walltime, default, *rest = lines_of[0]
        request = _simple_request(group_id is not None, *rest) if len(lines_of) == 1 else _request(lines_of)
        alternatives[job_id].append(Moldable(alternative_id, job_id, walltime, request, default))
    return alternatives


def _of_many(tx: Statements, job_ids: Sequence[int]) -> _ByJob:
    """Return the alternatives of many jobs, and perhaps of others between them, table by table."""
    alternatives = sorted(tx.rows_about(_ALTERNATIVES, job_ids))
    groups = sorted(tx.rows_about(_GROUPS, [row[0] for row in alternatives]))
    levels = sorted(tx.rows_about(_LEVELS, [row[1] for row in groups]))
    if alternatives and len(alternatives) == len(groups) == len(levels):
        ids, jobs, walltimes, defaults = zip(*alternatives, strict=True)
        owners, group_ids, filters = zip(*groups, strict=True)
        groups_of_levels, _, *level = zip(*levels, strict=True)
        if (ids, group_ids) == (owners, groups_of_levels):  # one group each, with one level
            lines = zip(repeat(True, len(ids)), filters, *level, strict=True)
            return _of_one_line_each(ids, jobs, walltimes, defaults, lines)
    return _of_rows(list(_join(alternatives, groups, levels)))


def _join(alternatives: Sequence[Row], groups: Sequence[Row], levels: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows that ``_JOINED`` has."""
    groups_of, levels_of = _by_owner(groups), _by_owner(levels)
    for alternative_id, *rest in alternatives:
        for _, group_id, text in groups_of.get(alternative_id, _NO_GROUP):
            for _, *level_order, name, value in levels_of.get(group_id, _NO_LEVEL):
                yield (alternative_id, group_id, *level_order, *rest, text, name, value)


def _by_owner(rows: Sequence[Row]) -> Mapping[int, Sequence[Row]]:
    return {owner: list(some) for owner, some in groupby(rows, itemgetter(0))}


def _of_one_line_each(
    ids: Sequence[int], jobs: Sequence[int], walltimes: Sequence[int], defaults: Sequence[int], lines: Iterable[Any]
) -> _ByJob:
    """Return alternatives of which each is one line, as it is with most of ten thousand jobs."""
    requests = _Requests()
    fields = zip(ids, jobs, walltimes, map(requests.__getitem__, lines), defaults, strict=True)
    found = map(tuple.__new__, repeat(Moldable), fields)  # as Moldable._make, in half of the time
    if len(set(jobs)) == len(jobs):
        return {job_id: [alternative] for job_id, alternative in zip(jobs, found, strict=True)}
    alternatives: _ByJob = defaultdict(list)
    for alternative in sorted(found):
        alternatives[alternative.job_id].append(alternative)
    return alternatives


class _Requests(dict[_Line, tuple[Group, ...]]):
    """The groups of alternatives that are one line, each made once: most jobs ask for the same."""

    def __missing__(self, line: _Line) -> tuple[Group, ...]:
        groups = self[line] = _simple_request(*line)
        return groups


def _simple_request(has_group: bool, text: str | None, name: str | None, value: int) -> tuple[Group, ...]:
    """Return the groups of an alternative that is one line."""
    return _one_group(text or "", name, value) if has_group else ()


@lru_cache(maxsize=1024)
def _one_group(text: str, name: str | None, value: int) -> tuple[Group, ...]:
    return (_group(text, () if name is None else ((name, value),)),)


def _request(lines: Sequence[Row]) -> tuple[Group, ...]:
    """Return the groups of one alternative."""
    groups: dict[int, tuple[str, list[tuple[str, int]]]] = {}
    for _, group_id, _, _, _, _, text, name, value in lines:
        if group_id is not None:
            _, levels = groups.setdefault(group_id, (text or "", []))
            levels += [(name, value)] if name is not None else []
    return tuple([_group(text, tuple(levels)) for text, levels in groups.values()])


@lru_cache(maxsize=1024)
def _group(text: str, levels: Sequence[tuple[str, int]]) -> Group:
    """Return a group: many jobs ask for the same."""
    return Group(text, tuple(Level(name, value) for name, value in levels))


class Moldables(Table):
    """Rows of ``moldable_job_descriptions``, ``job_resource_groups`` and ``job_resource_descriptions``."""

    #: A question that views of jobs ask with others.
    OF_JOBS = About(_JOINED, _of_rows, _of_many)

    def of_jobs(self, ids: Collection[int]) -> dict[int, list[Moldable]]:
        """Return the alternatives of jobs with their requests, in the order of the submission."""
        return _of_rows(self._tx.rows(_JOINED, (list(ids),)))

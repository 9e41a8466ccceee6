"""Alternatives of jobs (``tx.moldables``) with their requests, which are in three tables.

Those of a page of jobs come by a join.  A join would look each of ten thousand up in two large tables, which takes
three times as long as to read the tables one after the other, where these rows lie side by side.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, repeat, starmap
from operator import itemgetter
from typing import Any, TypeVar

from oar.lib.db.statements import About, Prepared, Row, Statements, Table
from oar.lib.jobs.records import Group, Level, Moldable

#: Alternatives with their groups and levels, in any order.
_JOINED = Prepared("""
    SELECT m.moldable_id, g.res_group_id, d.res_job_order, m.moldable_job_id, m.moldable_walltime, m.default_walltime,
           g.res_group_property, d.res_job_resource_type, d.res_job_value
    FROM moldable_job_descriptions m
    LEFT JOIN job_resource_groups g ON g.res_group_moldable_id = m.moldable_id
    LEFT JOIN job_resource_descriptions d ON d.res_job_group_id = g.res_group_id
    WHERE m.moldable_job_id = ANY(%s)""")
_ALTERNATIVES_OF_MANY = """
    SELECT moldable_id, moldable_job_id, moldable_walltime, default_walltime
    FROM moldable_job_descriptions WHERE moldable_job_id = ANY(%s)"""
_GROUPS_OF_MANY = """
    SELECT res_group_moldable_id, res_group_id, res_group_property
    FROM job_resource_groups WHERE res_group_moldable_id = ANY(%s)"""
_LEVELS_OF_MANY = """
    SELECT res_job_group_id, res_job_order, res_job_resource_type, res_job_value
    FROM job_resource_descriptions WHERE res_job_group_id = ANY(%s)"""
_NOTHING = repeat(())

T = TypeVar("T")

#: Groups as they are stored: the filter of each, and its levels.
_Stored = tuple[tuple[str | None, tuple[tuple[str, int], ...]], ...]
_ByJob = dict[int, list[Moldable]]


def _of_rows(rows: Sequence[Row]) -> _ByJob:
    """Return the alternatives that joined rows are of."""
    alternatives = dict.fromkeys([(row[0], *row[3:6]) for row in rows])
    groups = dict.fromkeys([(row[0], row[1], row[6]) for row in rows if row[1] is not None])
    levels = [(row[1], row[2], *row[7:]) for row in rows if row[7] is not None]
    return _gathered(list(alternatives), list(groups), levels)


def _of_many(tx: Statements, job_ids: Sequence[int]) -> _ByJob:
    """Return the alternatives of many jobs, and perhaps of others between them, table by table: of one snapshot."""
    alternatives = tx.rows_about(_ALTERNATIVES_OF_MANY, job_ids)
    groups = tx.rows_about(_GROUPS_OF_MANY, [row[0] for row in alternatives])
    levels = tx.rows_about(_LEVELS_OF_MANY, [row[1] for row in groups])
    return _gathered(alternatives, groups, levels)


def _gathered(alternatives: Sequence[Row], groups: Sequence[Row], levels: Sequence[Row]) -> _ByJob:
    """Return alternatives with their groups and levels; the rows are those of the statements of many."""
    ids, jobs, walltimes, defaults = _columns(alternatives, 4)
    owners, group_ids, filters = _columns(groups, 3)
    in_groups, orders, names, values = _columns(levels, 4)
    pairs = list(zip(names, values, strict=True))
    asked: Iterable[_Stored]
    if (owners, in_groups) == (ids, group_ids):  # each has one group with one level, and they lie side by side
        asked = zip(zip(filters, zip(pairs, strict=True), strict=True), strict=True)
    else:
        levels_of = _by_owner(in_groups, orders, pairs)
        stored = zip(filters, map(levels_of.get, group_ids, _NOTHING), strict=False)
        asked = map(_by_owner(owners, group_ids, list(stored)).get, ids, _NOTHING)
    return _by_job(ids, jobs, walltimes, map(_Requests().__getitem__, asked), defaults)


def _columns(rows: Sequence[Row], number: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * number


def _by_owner(owners: Sequence[int], places: Sequence[int], things: Sequence[T]) -> dict[int, tuple[T, ...]]:
    """Return the things of each owner, most of whom have one; several are in the order of their places."""
    found: dict[int, tuple[T, ...]] = dict(zip(owners, zip(things, strict=True), strict=True))
    if len(found) < len(owners):
        several = {owner for owner, count in Counter(owners).items() if count > 1}
        rows = [row for row in zip(owners, places, things, strict=True) if row[0] in several]
        for owner, some in groupby(sorted(rows, key=itemgetter(0, 1)), itemgetter(0)):
            found[owner] = tuple([thing for _, _, thing in some])
    return found


def _by_job(
    ids: Sequence[int],
    jobs: Sequence[int],
    walltimes: Sequence[int],
    requests: Iterable[tuple[Group, ...]],
    defaults: Sequence[int],
) -> _ByJob:
    fields = zip(ids, jobs, walltimes, requests, defaults, strict=True)
    found = map(tuple.__new__, repeat(Moldable), fields)  # as Moldable._make, in half of the time
    if len(set(jobs)) == len(jobs):
        return {job_id: [alternative] for job_id, alternative in zip(jobs, found, strict=True)}
    alternatives: _ByJob = defaultdict(list)
    for alternative in sorted(found):
        alternatives[alternative.job_id].append(alternative)
    return alternatives


class _Requests(dict[_Stored, tuple[Group, ...]]):
    """The groups of requests, each made once: most of ten thousand jobs ask for the same."""

    def __missing__(self, request: _Stored) -> tuple[Group, ...]:
        groups = self[request] = tuple([Group(text or "", tuple(starmap(Level, levels))) for text, levels in request])
        return groups


class Moldables(Table):
    """Rows of ``moldable_job_descriptions``, ``job_resource_groups`` and ``job_resource_descriptions``."""

    #: A question that views of jobs ask with others.
    OF_JOBS = About(_JOINED, _of_rows, _of_many)

    def of_jobs(self, ids: Collection[int]) -> dict[int, list[Moldable]]:
        """Return the alternatives of jobs with their requests, in the order of the submission."""
        return _of_rows(self._tx.rows(_JOINED, (list(ids),)))

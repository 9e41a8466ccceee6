"""How many resources a group of a request takes of the whole cluster (``tx.request_sizes``).

Everything that is not Dead counts as free, or a part of that: blocks are taken whole, and so none that reaches beyond.
From the innermost level outwards, blocks that hold enough are counted and the largest of them are taken.  Conditions
are texts that passed ``oar.lib.db.user_sql``; the transaction is one of the read-only login.
"""

from collections.abc import Sequence

from oar.lib.db.statements import Table, quoted
from oar.lib.jobs.records import Group, Level
from oar.lib.nodes.records import PropertyValue
from oar.lib.submission.resource_request import ALL, BEST_HALF

#: The property that each resource has a value of its own for.
FINEST = "resource_id"


class RequestSizes(Table):
    """Questions of the feasibility of requests."""

    def count(self, conditions: Sequence[str], levels: Sequence[Level], free: str = "") -> int | None:
        """Return the number of resources that the levels take of those that satisfy conditions; None if too few do.

        The properties are names of columns; a condition may be empty.  ``free``: the condition of what may be taken.
        """
        number: int | None = self._tx.value(_outermost(_blocks(conditions, levels, free), levels))
        return number

    def blocks(self, conditions: Sequence[str], levels: Sequence[Level], free: str = "") -> int:
        """Return the number of values of the outermost level that hold what the levels within it ask for."""
        number: int = self._tx.value(f"SELECT count(size) FROM ({_blocks(conditions, levels, free)}) blocks")
        return number

    def is_any_declared(self) -> bool:
        """Whether the site has any resource, be it Dead."""
        is_any: bool = self._tx.value("SELECT EXISTS (SELECT FROM resources)")
        return is_any

    def pools(self, groups: Sequence[Group], condition: str) -> tuple[list[dict[str, PropertyValue]], list[int]]:
        """Return the resources that any group could take, with the properties that the groups name, and their pools.

        The pool of a resource is a number whose bit *n* is set if it satisfies group *n*.  ``condition`` is that of
        all groups.
        """
        names = sorted({level.property for group in groups for level in group.levels} | {FINEST})
        tests = [f"({_pool([condition, group.filter], group.levels)}) IS TRUE" for group in groups]
        bits = " + ".join(f"CASE WHEN {test} THEN {1 << number} ELSE 0 END" for number, test in enumerate(tests))
        rows = self._tx.rows(f"SELECT {', '.join(map(quoted, names))}, {bits} FROM resources ORDER BY {FINEST}")
        rows = [row for row in rows if row[-1]]
        pools = [int(row[-1]) for row in rows]  # PostgreSQL's numbers of more than 63 bits are decimal ones
        return [dict(zip(names, row, strict=False)) for row in rows], pools


def _blocks(conditions: Sequence[str], levels: Sequence[Level], free: str) -> str:
    """Return the blocks of the outermost level with their sizes, NULL for those that hold too little."""
    pool = _pool(conditions, levels)
    if levels[-1].property == FINEST and len({level.property for level in levels}) == len(levels):
        size = f"CASE WHEN {free} THEN 1 END" if free else "1"
        inner = f"SELECT {_columns(levels)}{size} AS size FROM resources WHERE {pool}"
    else:
        size = f"CASE WHEN bool_and({free}) THEN count(*) END" if free else "count(*)"
        inner = (
            f"SELECT {_columns(levels)}{size} AS size FROM resources WHERE {pool}"
            f" GROUP BY {', '.join(str(number + 1) for number in range(len(levels)))}"
        )
    for depth in range(len(levels) - 1, 0, -1):
        inner = _level(inner, depth, levels[depth].quantity)
    return inner


def _pool(conditions: Sequence[str], levels: Sequence[Level]) -> str:
    """Return the condition of what may be taken at all: alive in the long run, and with a value for each level."""
    names = {level.property: quoted(level.property) for level in levels if level.property != FINEST}
    tests = [f"{name} IS NOT NULL AND {name}::text <> ''" for name in names.values()]
    return " AND ".join(["state <> 'Dead'", *tests, *(f"({condition}\n)" for condition in conditions if condition)])


def _columns(levels: Sequence[Level]) -> str:
    return "".join(f"{quoted(level.property)} AS level{number}, " for number, level in enumerate(levels))


def _level(inner: str, depth: int, quantity: int) -> str:
    """Return the blocks of the levels above ``depth`` with their sizes, NULL for those that hold too little."""
    outer = ", ".join(f"level{number}" for number in range(depth))
    ranked = (
        f"SELECT {outer}, size, row_number() OVER (PARTITION BY {outer} ORDER BY size DESC NULLS LAST) AS place,"
        f" count(size) OVER (PARTITION BY {outer}) AS fitting, count(*) OVER (PARTITION BY {outer}) AS present"
        f" FROM ({inner}) blocks{depth}"
    )
    return f"SELECT {outer}, {_taken(quantity)} AS size FROM ({ranked}) ranked{depth} GROUP BY {outer}"


def _outermost(inner: str, levels: Sequence[Level]) -> str:
    ranked = (
        "SELECT size, row_number() OVER (ORDER BY size DESC NULLS LAST) AS place,"
        f" count(size) OVER () AS fitting, count(*) OVER () AS present FROM ({inner}) blocks"
    )
    return f"SELECT {_taken(levels[0].quantity)} FROM ({ranked}) ranked"


def _taken(quantity: int) -> str:
    """Return the size of what is taken of ranked blocks: the largest ones first, NULL if they are too few."""
    if quantity > 0:
        return f"CASE WHEN min(fitting) >= {quantity} THEN sum(size) FILTER (WHERE place <= {quantity}) END::bigint"
    if quantity == ALL:
        return "CASE WHEN min(fitting) = min(present) THEN sum(size) END::bigint"
    number = "(fitting + 1) / 2" if quantity == BEST_HALF else "fitting"
    return f"CASE WHEN min(fitting) >= 1 THEN sum(size) FILTER (WHERE place <= {number}) END::bigint"

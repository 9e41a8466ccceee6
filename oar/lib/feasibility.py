"""Whether the cluster could ever satisfy a request, and how many resources it would take (commands-user.md 2.4).

Everything that is not Dead counts, whoever uses it now.  Conditions are SQL text of users, so all of it is evaluated
under the read-only login.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from oar.lib.db import fitting
from oar.lib.db.engine import Database
from oar.lib.db.usersql import Conditions, Table, session
from oar.lib.errors import BadRequest
from oar.lib.guesses import did_you_mean
from oar.lib.model import Group
from oar.lib.request import NODE_ALIASES, format_quantity


class UnknownProperty(BadRequest):
    """A level of a request is no column of the resources."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        guess = did_you_mean(name, {*known, *NODE_ALIASES})
        super().__init__(f'Bad resource request (unknown resource property "{name}"){guess}')


@contextmanager
def open_cluster(database: Database) -> Iterator["Cluster"]:
    """Open a session in which questions about what the cluster holds may be asked."""
    with session(database, Table.RESOURCES) as conditions:
        yield Cluster(conditions)


class Cluster:
    """The resources of the site, as questions."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._checked: dict[str, str] = {}

    @property
    def columns(self) -> Mapping[str, str]:
        """The properties that resources have, with their SQL types."""
        return self._conditions.columns

    def condition(self, text: str) -> str:
        """Return a condition as it may be stored.  Raises BadSql."""
        if text not in self._checked:
            self._checked[text] = self._conditions.check(text) if text.strip() else ""
        return self._checked[text]

    def size(self, groups: Sequence[Group], properties: str) -> int | None:
        """Return how many resources a request would take of the whole cluster; None if there are too few.

        ``properties`` is the condition of all groups, '' = none.  Raises UnknownProperty, BadSql.
        """
        for group in groups:
            for level in group.levels:
                if level.property not in self.columns:
                    raise UnknownProperty(level.property, self.columns)
        common = self.condition(properties)
        checked = [Group(self.condition(group.filter), group.levels) for group in groups]
        with self._conditions.guarded() as tx:
            if len(checked) == 1:
                return fitting.count(tx, fitting.both(common, checked[0].filter), checked[0].levels)
            rows, pools = fitting.pools(tx, checked, common)
        return _fit_all(checked, rows, pools)

    def lack(self, groups: Sequence[Group], properties: str, wished: Sequence[str]) -> str:
        """Return in one sentence what a request lacks that has no size.

        ``wished``: the conditions of each group as the user wrote them, without what rules have added.
        """
        common = self.condition(properties)
        for group, wish in zip(groups, wished, strict=True):
            condition = fitting.both(common, self.condition(group.filter))
            with self._conditions.guarded() as tx:
                if fitting.count(tx, condition, group.levels) is None:
                    return _lack(group, fitting.blocks(tx, condition, group.levels), wish)
        return "each part of the request could be satisfied alone, all of them together cannot"


#: What one value of a property is called where its name is none for it.
_CALLED = {"network_address": "node", "resource_id": "resource"}


def _lack(group: Group, found: int, wished: str) -> str:
    outermost, *inner = group.levels
    what = _CALLED.get(outermost.property, outermost.property) + ("s" if found != 1 else "")
    if inner:
        what += " with " + "/".join(f"{level.property}={format_quantity(level.quantity)}" for level in inner)
    can = f'match "{wished}"' if wished else "can be used"
    return f"{found} {what} {can}, {format_quantity(outermost.quantity)} asked"


def _fit_all(
    groups: Sequence[Group], rows: Sequence[Mapping[str, str | int | None]], pools: Sequence[int]
) -> int | None:
    """Count what groups that exclude each other take together."""
    from oar.lib.hierarchy import Hierarchy, Layout, PooledGroup, numbering
    from oar.lib.resource_set import from_positions

    names = rows[0].keys() if rows else ()
    columns = {name: [row[name] for row in rows] for name in names}
    order = numbering(columns, range(len(rows)))
    layout = Layout({name: [column[row] for row in order] for name, column in columns.items()}, len(rows))
    bits = sorted(range(len(rows)), key=lambda bit: order[bit])
    request = tuple(
        PooledGroup(from_positions(bit for bit, row in enumerate(order) if pools[row] >> number & 1), group.levels)
        for number, group in enumerate(groups)
    )
    if not rows:
        return None
    taken = Hierarchy(layout, bits).request(request).fit((1 << len(rows)) - 1)
    return taken.bit_count() or None

"""Check whether the cluster can ever satisfy a request, and how many resources the request would take.

All resources that are not Dead count, whether they are in use or not.  The conditions come from users and are evaluated
with the read-only login.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.base.texts import did_you_mean
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.user_sql import Asker, Conditions, Subject, session
from oar.lib.jobs.records import Group, Level
from oar.lib.nodes.records import OUR_PROPERTIES
from oar.lib.submission.resource_request import ALL, NODE_ALIASES, format_quantity
from oar.lib.submission.sql_admission import FINEST, SMALLEST_FIRST, NeededMemory

#: What is said of a site that has nothing to run jobs on, whatever is asked.
NONE_DECLARED = "no resource is declared: administrators do so with oar_resources_init or oarnodesetting -a"
ALL_DEAD = "all resources are Dead: administrators bring them back with oarnodesetting -s Alive"
#: How many properties a message names.
_MOST_NAMED = 20


class UnknownProperty(BadRequest):
    """A level of a request is not a column of the resources."""

    def __init__(self, name: str, columns: Iterable[str]) -> None:
        help_ = did_you_mean(name, {*columns, *NODE_ALIASES}) or _what_there_is(name, columns)
        super().__init__(f'Bad resource request (unknown resource property "{name}"){help_}')


def _what_there_is(name: str, columns: Iterable[str]) -> str:
    """Return hint lines with the valid level names, and the commands that add a property."""
    names = [*sorted(set(columns) - OUR_PROPERTIES), "nodes"]
    known = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
    way = f"Administrators add it with oarproperty --add {name}, and set it with oarnodesetting -p {name}=VALUE"
    return f"\n# There are: {known}\n# {way}"


def asker_of(config: Config, user: str) -> Asker:
    """Return which conditions the user's jobs may have."""
    return Asker(user, has_full_sql=user in config.user_sql_full_users)


@contextmanager
def open_cluster(database: Database, asker: Asker) -> Iterator["Cluster"]:
    """Open a session of the read-only login for queries about the cluster."""
    with session(database, Subject.RESOURCES, asker) as conditions:
        yield Cluster(conditions)


class _Checked(NamedTuple):
    """A validated condition."""

    text: str  #: as it may be stored
    sql: str  #: what is sent to the database


class Cluster:
    """Queries about the resources of the site."""

    def __init__(self, conditions: Conditions, resources: Iterable[int] | None = None) -> None:
        """``resources``: the only resources that may be used; None means all."""
        self._conditions = conditions
        self._part = None if resources is None else frozenset(resources)
        self._free = "" if self._part is None else f"resource_id IN ({', '.join(map(str, [*sorted(self._part), 0]))})"
        self._checked: dict[str, _Checked] = {"": _Checked("", "")}

    @property
    def columns(self) -> Mapping[str, str]:
        """The properties of resources with their SQL types."""
        return self._conditions.columns

    def condition(self, text: str) -> str:
        """Return a condition in the form that is stored.  Raises BadCondition."""
        return self._check(text).text

    def _check(self, text: str) -> "_Checked":
        if text not in self._checked:
            checked = self._conditions.check(text) if text.strip() else ""
            self._checked[text] = _Checked(checked, self._conditions.sql(checked) if checked else "")
        return self._checked[text]

    def part(self, resources: Iterable[int]) -> "Cluster":
        """Return the cluster restricted to these resources."""
        return Cluster(self._conditions, resources)

    def size(self, groups: Sequence[Group], properties: str, memory: NeededMemory | None = None) -> int | None:
        """Return how many resources of the whole cluster a request would take; None if there are too few.

        ``properties``: the condition on all groups, '' means none; ``memory``: that of the nodes.
        Raises UnknownProperty, BadCondition.
        """
        for group in groups:
            for level in group.levels:
                if level.property not in self.columns:
                    raise UnknownProperty(level.property, self.columns)
        common = self._check(properties).sql
        checked = [Group(self._check(group.filter).sql, group.levels) for group in groups]
        with self._conditions.guarded() as tx:
            if len(checked) == 1:
                conditions, levels = [common, checked[0].filter], checked[0].levels
                return tx.submission_checks.count_resources(conditions, levels, self._free, memory=memory)
            rows, pools = tx.submission_checks.pools(checked, common, memory)
        return _fit_all(checked, rows, pools, self._part)

    def least_size(self, groups: Sequence[Group], properties: str, condition: str) -> int:
        """Return how many resources that satisfy a condition of ours a request takes at least.

        ``properties``: the condition on all groups, '' means none.
        """
        common, sizes = self._check(properties).sql, []
        for group in groups:
            conditions = [common, self._check(group.filter).sql, condition]
            with self._conditions.guarded() as tx:
                sizes.append(
                    tx.submission_checks.count_resources(conditions, group.levels, self._free, SMALLEST_FIRST) or 0
                )
        return sum(sizes)

    def lack(
        self, groups: Sequence[Group], properties: str, conditions: Sequence[str], words: str | None = None
    ) -> str:
        """Return a sentence about the missing resources of a request that the cluster cannot satisfy.

        ``conditions``: the condition of each group as the user wrote it.  If the user's own conditions leave enough
        resources, the conditions that rules added are quoted.  ``words``: the options to show in place of the user's
        conditions; '' means that the user set none.
        """
        if self._part is None and (nothing := self._nothing_at_all()):
            return nothing
        common = self._check(properties).sql
        for group, user_condition in zip(groups, conditions, strict=True):
            both, of_user = [common, self._check(group.filter).sql], [self._check(user_condition).sql]
            with self._conditions.guarded() as tx:
                if tx.submission_checks.count_resources(both, group.levels, self._free) is not None:
                    continue
                blocks = tx.submission_checks.count_blocks(both, group.levels, self._free)
                is_whole = self._part is not None and group.levels[0].property != FINEST
                if properties and tx.submission_checks.count_resources(of_user, group.levels, self._free) is not None:
                    lack = _lack(group, blocks, f'"{properties}"', is_whole=is_whole)
                    return f"{lack} (with the conditions of the admission rules)"
                quoted = f'"{user_condition}"' if words is None and user_condition else words or ""
                return _lack(group, blocks, quoted, is_whole=is_whole) + _order_hint(group.levels)
        return "each part of the request can be satisfied alone, but not all parts together"

    def _nothing_at_all(self) -> str:
        """Return a sentence if the site has no usable resources, else ''."""
        with self._conditions.guarded() as tx:
            if not tx.submission_checks.is_any_declared():
                return NONE_DECLARED
            return "" if tx.submission_checks.count_blocks([], (Level(FINEST, 1),)) else ALL_DEAD


#: How messages name a value of a property, if not by the name of the property.
_NODE = "network_address"
_LABELS = {_NODE: "node", "resource_id": "resource"}


def _lack(group: Group, blocks: int, condition: str, *, is_whole: bool) -> str:
    """Return the sentence; ``blocks``: number of values of the outermost level that satisfy the inner levels.

    ``is_whole``: only blocks that are completely inside the part of the cluster count.
    """
    outermost, *inner = group.levels
    label = f"{'whole ' if is_whole else ''}{_LABELS.get(outermost.property, outermost.property)}{'s' * (blocks > 1)}"
    if inner:
        label += f" with {_inner_text(inner)}"
    verb = f"match{'es' * (blocks < 2)} {condition}" if condition else "can be used"
    asked = f"{format_quantity(outermost.quantity)} asked"
    if is_whole and outermost.quantity == ALL:
        asked += ", which means the whole cluster: use BEST for the resources that are available"
    return f"{blocks or 'no'} {label} {verb}, {asked}"


#: Parts of nodes, which come after the node in a request.
_NODES = {_NODE: "nodes"}
_INSIDE_NODES = frozenset(("cpu", "core", "thread", "gpu", "gpudevice", FINEST))


def _order_hint(levels: Sequence[Level]) -> str:
    """Return a line if a part of nodes comes before the node."""
    names = [level.property for level in levels]
    at = names.index(_NODE) if _NODE in names else 0
    if _INSIDE_NODES.isdisjoint(names[:at]):
        return ""
    written = [
        f"{_NODES.get(name, name)}={format_quantity(levels[place].quantity)}" for place, name in enumerate(names)
    ]
    ordered = "/".join([written[at], *written[:at], *written[at + 1 :]])
    return f"\n# The levels go from the outside in: write {ordered} (for each node), not {'/'.join(written)}"


def _inner_text(levels: Sequence[Level]) -> str:
    if [level.property for level in levels] == [FINEST]:
        number = format_quantity(levels[0].quantity)
        return f"{number} resource{'s' * (number != '1')}"
    return "/".join(f"{level.property}={format_quantity(level.quantity)}" for level in levels)


def _fit_all(
    groups: Sequence[Group],
    rows: Sequence[Mapping[str, str | int | None]],
    pools: Sequence[int],
    part: Collection[int] | None,
) -> int | None:
    """Return how many resources the groups take together, without sharing any; None if there are too few.

    ``part``: the resources that may be used; None means all.
    """
    from oar.lib.base.resource_set import from_positions
    from oar.lib.nodes.hierarchy import Hierarchy, Layout, PooledGroup, numbering

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
    free = from_positions(bit for bit, row in enumerate(order) if part is None or rows[row][FINEST] in part)
    taken = Hierarchy(layout, bits).request(request).fit(free)
    return taken.bit_count() or None

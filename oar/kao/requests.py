"""The requests of jobs, ready to be asked of sets of resources."""

from oar.kao import explain
from oar.kao.model import AskedGroup, Reason, Snapshot
from oar.lib.hierarchy import Hierarchy, Layout, PooledGroup, RequestFit
from oar.lib.model import PropertyValue

#: So many are known by being the same object.
MOST_MET = 50_000


class Requests:
    """The requests of a snapshot, ready to be asked."""

    @classmethod
    def of(cls, snapshot: Snapshot, before: "tuple[Snapshot, Requests] | None") -> "Requests":
        """Return those of an earlier snapshot if they still hold, for it takes a while to make them."""
        if before:
            old, known = before
            is_same = old.resources == snapshot.resources and old.settings == snapshot.settings
            if is_same and old.pools == snapshot.pools[: len(old.pools)]:
                known._pools = snapshot.pools
                return known
        return cls(snapshot)

    def __init__(self, snapshot: Snapshot) -> None:
        resources = snapshot.resources
        columns: dict[str, tuple[PropertyValue, ...]] = dict(resources.columns)
        columns.setdefault("network_address", resources.addresses)
        layout = Layout(columns, len(resources.ids))
        self._pools = snapshot.pools
        self._shared = ~resources.where(resources.types, snapshot.settings.always_assigned_type or None)
        self._hierarchies = (Hierarchy(layout, resources.order), Hierarchy(layout, resources.reservation_order))
        self._known: dict[tuple[tuple[AskedGroup, ...], bool], RequestFit | Reason] = {}
        self._met: dict[tuple[int, bool], tuple[tuple[AskedGroup, ...], RequestFit | Reason]] = {}

    def get(self, groups: tuple[AskedGroup, ...], *, is_distant: bool = False) -> RequestFit | Reason:
        """Return what is to be asked; the reason why it cannot be asked.

        A job is asked for several times in a round: its groups are known again by being the same object, which is much
        faster than by what they are.
        """
        met = self._met.get((id(groups), is_distant))
        if met and met[0] is groups:
            return met[1]
        key = groups, is_distant
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._new(groups, self._hierarchies[is_distant])
        if len(self._met) >= MOST_MET:
            self._met.clear()
        self._met[id(groups), is_distant] = groups, known
        return known

    def text(self, group: AskedGroup) -> str:
        """Return the filter of a group as it was written."""
        return self._pools[group.pool].text

    def _new(self, groups: tuple[AskedGroup, ...], hierarchy: Hierarchy) -> RequestFit | Reason:
        for group in groups:
            unknown = [level.property for level in group.levels if not hierarchy.layout.knows(level.property)]
            trouble = f'there is no property "{unknown[0]}"' if unknown else self._pools[group.pool].trouble
            if trouble or not group.levels:
                return explain.unreadable_request(self.text(group), group.levels, trouble or "it asks nothing")
        return hierarchy.request(
            tuple(PooledGroup(self._pools[group.pool].members & self._shared, group.levels) for group in groups)
        )

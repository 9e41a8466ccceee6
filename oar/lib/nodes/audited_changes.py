"""What the audit log says about changes of resources: one row for all resources of a command."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oar.lib.access.records import User
from oar.lib.base.resource_set import format_ranges, from_positions
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.nodes.properties import logged

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.nodes.changes import NodeChange

#: Former values of a property that a row names; the history of the resources has all of them.
MOST_VALUES = 20


def former_values(tx: "Transaction", ids: Sequence[int], change: "NodeChange") -> Mapping[str, str]:
    """Return the texts of the present values that a change replaces, by name; values that stay are left out."""
    texts = {}
    if change.state is not None:
        texts["state"] = _describe("state", tx.resources.groups_of(ids, "state"))
    if change.is_maintained is not None:
        maintained = tx.resources.in_maintenance(ids)
        groups = {flag: [id_ for id_ in ids if (id_ in maintained) == (flag == "on")] for flag in ("off", "on")}
        texts["maintenance"] = _describe("maintenance", [(flag, some) for flag, some in groups.items() if some])
    for name, value in change.settings:
        groups_of_value = tx.resources.groups_of(ids, name)
        if any(former != (None if value is None else str(value)) for former, _ in groups_of_value):
            texts[name] = _describe(name, groups_of_value)
    return texts


def _describe(name: str, groups: Sequence[tuple[str | None, Sequence[int]]]) -> str:
    """Return the values of a property, with the resources that have each one if there are several.

    >>> _describe("mem", [("64", [1, 2]), (None, [3])])
    'mem=64 (1-2), mem=<unset> (3)'
    """
    if len(groups) == 1:
        return f"{name}={logged(groups[0][0])}"
    texts = [f"{name}={logged(value)} ({format_ranges(from_positions(ids))})" for value, ids in groups[:MOST_VALUES]]
    others = len(groups) - MOST_VALUES
    return ", ".join([*texts, *([f"{others} other values"] if others > 0 else [])])


def new_values(change: "NodeChange", names: Mapping[str, str]) -> str:
    """Return the text of the new values with these names."""
    values: dict[str, str] = {"state": str(change.state), "maintenance": "on" if change.is_maintained else "off"}
    values |= {setting.name: logged(setting.value) for setting in change.settings}
    return "; ".join(f"{name}={values[name]}" for name in names)


def record_change(
    tx: "Transaction", user: User, ids: Sequence[int], change: "NodeChange", former: Mapping[str, str]
) -> None:
    """Record a change of existing resources; ``former``: the values before it."""
    if former:
        values = Values("; ".join(former.values()), new_values(change, former))
        name = audit.name_resources(ids, tx.resources.nodes_of(ids))
        audit.record(tx, user, AuditAction.CHANGE, name, values, reason=change.reason.strip())


def record_addition(tx: "Transaction", user: User, ids: Sequence[int], hosts: Sequence[str], values: str) -> None:
    """Record new resources."""
    audit.record(tx, user, AuditAction.ADD, audit.name_resources(ids, hosts), Values(new=values))

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

#: Former values of a property that a row names; the history of the resources has all of them.
MOST_VALUES = 20
MAINTENANCE = "maintenance"
#: What is requested, and comes later.
_ALWAYS = frozenset({"state", MAINTENANCE})


def former_values(tx: "Transaction", ids: Sequence[int], new: Mapping[str, str]) -> Mapping[str, str]:
    """Return the texts of the present values that a change replaces, by name; properties that stay are left out.

    ``new``: the new values, by name.
    """
    texts = {}
    for name, value in new.items():
        groups = _maintained(tx, ids) if name == MAINTENANCE else tx.resources.groups_of(ids, name)
        if name in _ALWAYS or any(logged(former) != value for former, _ in groups):
            texts[name] = _describe(name, groups)
    return texts


def _maintained(tx: "Transaction", ids: Sequence[int]) -> list[tuple[str | None, list[int]]]:
    maintained = tx.resources.in_maintenance(ids)
    groups = [("off", sorted(set(ids) - maintained)), ("on", sorted(maintained))]
    return [(flag, some) for flag, some in groups if some]


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


def record_change(
    tx: "Transaction",
    user: User,
    ids: Sequence[int],
    values: tuple[Mapping[str, str], Mapping[str, str]],
    *,
    reason: str,
) -> None:
    """Record a change of existing resources. ``values``: what ``former_values`` returned, and the new values."""
    former, new = values
    if former:
        texts = Values("; ".join(former.values()), "; ".join(f"{name}={new[name]}" for name in former))
        name = audit.name_resources(ids, tx.resources.nodes_of(ids))
        audit.record(tx, user, AuditAction.CHANGE, name, texts, reason=reason)


def record_addition(tx: "Transaction", user: User, ids: Sequence[int], hosts: Sequence[str], values: str) -> None:
    """Record new resources."""
    audit.record(tx, user, AuditAction.ADD, audit.name_resources(ids, hosts), Values(new=values))

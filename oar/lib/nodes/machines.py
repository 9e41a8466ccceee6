"""Create or repair the resources of identical machines. Commands and the API use the same functions."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oar.lib.access.records import User
from oar.lib.base.errors import UserError
from oar.lib.nodes import changes, properties, state_changes, topology
from oar.lib.nodes.properties import Setting
from oar.lib.nodes.topology import Machines, NewResource

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Property -> the field with its first number.
_COUNTED = {"cpu": "first_cpu", "core": "first_core", "thread": "first_thread", "gpu": "first_gpu"}


class NoSuchMachine(UserError):
    """A resource to repair does not exist."""

    exit_code = 4


def behind_the_last(tx: "Transaction", machines: Machines, fixed: Collection[str]) -> Machines:
    """Return the machines with numbers that follow the last used ones; ``given``: fields that stay unchanged."""
    counts = {_COUNTED[name]: last + 1 for name, last in last_numbers(tx).items()}
    pattern = re.compile(re.escape(machines.prefix) + r"([0-9]{1,9})" + re.escape(machines.suffix) + r"\Z")
    numbers = [int(match[1]) for match in map(pattern.match, tx.resources.nodes()) if match]
    counts["first_host"] = max(numbers, default=0) + 1
    return replace(machines, **{name: value for name, value in counts.items() if name not in fixed})  # type: ignore[arg-type]


def last_numbers(tx: "Transaction") -> dict[str, int]:
    """Return the largest value of each property whose numbers are unique in the cluster; return 0 if there is none."""
    columns = tx.resources.columns()
    return {name: int(tx.nodes.largest_value(name) or 0) for name in _COUNTED if columns.get(name) == "integer"}


def missing_properties(tx: "Transaction", machines: Machines) -> dict[str, bool]:
    """Return the properties of machines that do not exist yet, each with whether it is a text."""
    columns = tx.resources.columns()
    return {name: is_text for name, is_text in topology.property_types(machines).items() if name not in columns}


def create(
    tx: "Transaction", user: User, units: Sequence[NewResource], more: Sequence[Setting], missing: Mapping[str, bool]
) -> list[int]:
    """Create the missing properties, and resources with additional settings; return the ids.

    Raises NotAllowed, BadSettings, Busy.
    """
    return state_changes.add_each(tx, [(unit.host, own) for unit, own in _prepared(tx, user, units, more, missing)])


def repair(
    tx: "Transaction", user: User, units: Sequence[NewResource], more: Sequence[Setting], missing: Mapping[str, bool]
) -> list[int]:
    """Set the properties of existing resources, identified by node and cpuset; return the ids.

    Raises NotAllowed, NoSuchMachine, BadSettings, Busy.
    """
    prepared = _prepared(tx, user, units, more, missing)
    ids_by_unit: dict[tuple[str, object], list[int]] = {}
    for resource in tx.resources.of_nodes({unit.host for unit in units}):
        ids_by_unit.setdefault((resource.network_address, resource.properties["cpuset"]), []).append(resource.id)
    repaired = []
    for unit, settings in prepared:
        ids = ids_by_unit.get((unit.host, unit.cpuset))
        if not ids:
            raise NoSuchMachine(f"There is no resource of {unit.host} with the cpuset {unit.cpuset}.")
        properties.set_properties(tx, ids, [setting for setting in settings if setting.name != "cpuset"])
        repaired += ids
    return repaired


def _prepared(
    tx: "Transaction", user: User, units: Sequence[NewResource], more: Sequence[Setting], missing: Mapping[str, bool]
) -> list[tuple[NewResource, list[Setting]]]:
    user.check_administers()
    for name, is_text in missing.items():
        properties.add_column(tx, user, name, is_text=is_text)
    columns = tx.resources.columns()
    return [
        (
            unit,
            [*changes.sound([properties.check(name, str(value), columns) for name, value in unit.properties]), *more],
        )
        for unit in units
    ]

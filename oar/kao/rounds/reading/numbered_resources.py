"""The resources of the database, their version and their bits, the base of all resource sets in a snapshot."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oar.kao.facts.snapshot import ResourceColumns
from oar.lib.base.errors import ConfigError
from oar.lib.base.resource_set import ResourceSet, from_positions
from oar.lib.base.sizes import mib_of
from oar.lib.config.files import Config
from oar.lib.nodes.hierarchy import FINEST, numbering
from oar.lib.nodes.states import ResourceState
from oar.lib.planning.sql_rounds import ResourceRow, Rounds, Version

#: The end of each job changes this property of its resources, and usually nothing else.
LAST_USE = "last_job_date"


class ResourceVersions:
    """Provides versions; changes of LAST_USE alone do not change the version, unless the resource order uses it.

    The version of the rows is compared first.  If it has changed, a checksum of the other columns is compared.  That is
    slower, but much faster than reading all resources and evaluating all filters again.
    """

    def __init__(self, config: Config) -> None:
        orders = f"{config.scheduler_resource_order} {config.scheduler_resource_order_adv_reservations}"
        self._is_last_use_needed = LAST_USE in orders.lower()
        self.forget()

    def forget(self) -> None:
        self._row_version: Version | None = None
        self._version: Version | None = None
        self._checksum: tuple[int, str, int] | None = None

    def present(self, rounds: Rounds) -> Version:
        """Return the current version."""
        row_version = rounds.version()
        if self._is_last_use_needed:
            return row_version
        if row_version == self._row_version and self._version:
            return self._version
        checksum = rounds.content(row_version.columns - {LAST_USE}) if self._row_version else None
        last_columns = self._row_version.columns if self._row_version else frozenset()
        is_same = checksum is not None and checksum == self._checksum and row_version.columns == last_columns
        version = self._version if is_same and self._version else row_version
        self._row_version, self._version, self._checksum = row_version, version, checksum
        return version


log = logging.getLogger(__name__)


#: The order of resources if the database refuses that of the administrator.
PLAIN_ORDER = "network_address ASC, resource_id ASC"


@dataclass(slots=True)
class NumberedResources:
    """All resources, numbered by bits."""

    key: tuple[object, ...]  #: equal keys: equal resources
    columns: ResourceColumns
    bits: dict[int, int] = field(default_factory=dict)  #: resource id -> bit
    absent: ResourceSet = 0

    def members(self, ids: Iterable[int]) -> ResourceSet:
        """Return the set of the resources with these ids; ignore unknown ids."""
        bits = self.bits
        return from_positions(bits[number] for number in ids if number in bits)


class ResourceNumbering:
    """Reads and numbers the resources; caches them as long as nothing changes."""

    def __init__(self, config: Config) -> None:
        self._memory = config.memory_property or ""
        self._orders = config.scheduler_resource_order, config.scheduler_resource_order_adv_reservations
        self._numbered: NumberedResources | None = None

    def forget(self) -> None:
        self._numbered = None

    def read(self, rounds: Rounds, version: Version, properties: frozenset[str]) -> NumberedResources:
        """Return the resources, numbered so that the blocks of nested properties are contiguous bits."""
        names = sorted(properties & version.columns)
        key = (version, *names)
        if self._numbered is None or self._numbered.key != key:
            memory = [self._memory] if self._memory in version.columns else []
            self._numbered = self._number(key, names, self._rows(rounds, names + memory))
        return self._numbered

    def _rows(self, rounds: Rounds, names: Sequence[str]) -> list[ResourceRow]:
        try:
            return rounds.resources(names, *self._orders)
        except ConfigError as error:
            log.error("%s; resources are taken by name of their nodes", error)
            return rounds.resources(names, PLAIN_ORDER, PLAIN_ORDER)

    def _number(
        self, key: tuple[object, ...], names: Sequence[str], unnumbered: Sequence[ResourceRow]
    ) -> NumberedResources:
        properties = {
            name: [row.values[index] for row in unnumbered] for index, name in enumerate(names) if name != FINEST
        }
        properties.setdefault("network_address", [row.network_address for row in unnumbered])
        order = numbering(properties, [row.rank for row in unnumbered])
        rows = [unnumbered[index] for index in order]
        columns = ResourceColumns(
            ids=tuple(row.id for row in rows),
            types=tuple(row.type for row in rows),
            states=tuple(row.state for row in rows),
            addresses=tuple(row.network_address for row in rows),
            available_upto=tuple(row.available_upto for row in rows),
            order=tuple(sorted(range(len(rows)), key=lambda bit: rows[bit].rank)),
            reservation_order=tuple(sorted(range(len(rows)), key=lambda bit: rows[bit].reservation_rank)),
            columns={name: tuple(values[index] for index in order) for name, values in properties.items()},
            memory=tuple(mib_of(row.values[-1]) for row in rows if len(row.values) > len(names)),
        )
        if self._numbered and self._numbered.columns == columns:
            columns = self._numbered.columns
        bits = {number: bit for bit, number in enumerate(columns.ids)}
        return NumberedResources(key, columns, bits, columns.where(columns.states, ResourceState.ABSENT))

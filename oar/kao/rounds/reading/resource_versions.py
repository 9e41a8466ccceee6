"""Versions of all resources: equal as long as nothing changes that affects the plan."""

from oar.lib.config.files import Config
from oar.lib.planning.sql_rounds import Rounds, Version

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
        """Delete the stored version: the next call returns a new one."""
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

"""Whether the resources have changed since the last round, in anything that the planner looks at."""

from oar.kao.model import Settings
from oar.lib.config import Config
from oar.lib.db.rounds import Rounds, Version

#: Each end of a job changes this property of its resources, and mostly nothing else changes.
LAST_USE = "last_job_date"


class ResourceVersions:
    """Gives versions: equal ones as long as nothing has changed but when resources were last used.

    To compare the rest takes longer than to compare the versions of rows, and much less than to read them and to ask
    all filters again.  Where dates of last use decide on anything, they are no exception.
    """

    def __init__(self, config: Config, settings: Settings) -> None:
        orders = f"{config.scheduler_resource_order} {config.scheduler_resource_order_adv_reservations}"
        self._is_exact = settings.may_wake or LAST_USE in orders.lower()
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._seen: Version | None = None
        self._given: Version | None = None
        self._content: tuple[int, str, int] | None = None

    def present(self, rounds: Rounds) -> Version:
        """Return the present version."""
        version = rounds.version()
        if self._is_exact:
            return version
        if version == self._seen and self._given:
            return self._given
        content = rounds.content(version.columns - {LAST_USE}) if self._seen else None
        is_same = content is not None and content == self._content and version.columns == self._columns()
        given = self._given if is_same and self._given else version
        self._seen, self._given, self._content = version, given, content
        return given

    def _columns(self) -> frozenset[str]:
        return self._seen.columns if self._seen else frozenset()

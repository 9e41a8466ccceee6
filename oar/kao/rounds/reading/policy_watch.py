"""Log changes of policies between rounds: keys of oar.conf, files, queues, admission rules.

If nothing has changed, a round compares the stamps of a few files and a tuple, without a query.  Rounds do not read
admission rules: commands log their changes, and every RULES_PERIOD seconds they are checked as well.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oar.lib.config.deciding import FILES, OF_SERVER
from oar.lib.history import policy_log
from oar.lib.history.records import PolicyItem, PolicyKind

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.jobs.records import Queue

#: Seconds after which admission rules are looked at again.
RULES_PERIOD = 600


class PolicyWatch:
    """Watches the policies of one configuration."""

    def __init__(self, database: "Database", config: "Config") -> None:
        self._database = database
        self._config = config
        self._obeyed: object = None  #: stamps of the files and the queues that were noted last
        self._rules_at = 0

    def look(self, queues: "Sequence[Queue]", now: int) -> None:
        """Log changed policies.  Raises DatabaseUnavailable."""
        obeyed = (tuple(queues), tuple(_stamp(path) for path in self._paths()))
        if obeyed == self._obeyed and 0 <= now - self._rules_at < RULES_PERIOD:
            return
        others = {**keys(self._config)}
        for path in self._paths():
            text = _text(path)
            if text is not None:
                others[PolicyItem(PolicyKind.FILE, path)] = text
        with self._database.begin() as tx:
            policy_log.note_stored(tx, others)
        self._obeyed, self._rules_at = obeyed, now

    def _paths(self) -> list[str]:
        paths = (getattr(self._config, name) for name in FILES)
        return sorted({path for path in paths if path})


def keys(config: "Config") -> Mapping[PolicyItem, str]:
    """Return the values of the keys that the server uses, in the format of oar.conf."""
    return {
        PolicyItem(PolicyKind.KEY, option.key): policy_log.kept(option.text(getattr(config, option.name)))
        for option in config.options()
        if option.name in OF_SERVER
    }


def _stamp(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _text(path: str) -> str | None:
    """Return the text of a file; return None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return policy_log.kept(file.read(policy_log.LONGEST + 1))
    except OSError:
        return None

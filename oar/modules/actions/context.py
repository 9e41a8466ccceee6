"""What an action of a bipbip works with, and how it ends."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from oar.lib.config import Config
from oar.lib.db.engine import Database
from oar.lib.remote.pool import Remote
from oar.lib.runtime import DEFAULT_OARDIR

log = logging.getLogger("bipbip")


@dataclass(frozen=True, slots=True)
class Context:
    """The world of an action."""

    config: Config
    database: Database
    remote: Remote
    interrupted: Callable[[int], bool]  #: whether a kill or a signal waits for the launch of the job
    watch: Callable[[str, Callable[[], None]], None]  #: go on with something behind the action (attached jobs)
    oardir: str = DEFAULT_OARDIR  #: where programs of the site are that are named without a path


@dataclass(frozen=True, slots=True)
class Later:
    """An action that is not over: it has to be done again after so many seconds."""

    seconds: float

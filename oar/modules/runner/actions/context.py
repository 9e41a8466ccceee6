"""The context of an action of a bipbip, and the result of an action that must be repeated."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.remote.pool import Remote
from oar.lib.runtime import DEFAULT_OARDIR
from oar.modules.runner.actions.shared_steps import SharedSteps

log = logging.getLogger("bipbip")


@dataclass(frozen=True, slots=True)
class ActionContext:
    """The configuration, the database and the nodes, for an action."""

    config: Config
    database: Database
    remote: Remote
    interrupted: Callable[[int], bool]  #: whether a kill or a signal waits for the launch of the job
    steps: SharedSteps  #: steps in the database that other actions share
    run_in_thread: Callable[[str, Callable[[], None]], None]  #: start a named thread that may outlive the action
    oardir: str = DEFAULT_OARDIR  #: directory of the programs of the site that are configured without a path


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Result of an action that is not complete: it must be repeated after this time, in seconds."""

    seconds: float

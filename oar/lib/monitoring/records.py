"""Facts from which ``oar-server status --check`` determines whether jobs can be submitted, started and accounted."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from oar.lib.jobs.ends import EndCode

#: The queue of administrators: ordinary users cannot submit to it.
ADMIN_QUEUE = "admin"


class ServerTask(StrEnum):
    """A command that a timer runs on the server, ``task_runs.task``."""

    ACCOUNTING = "accounting"  #: oaraccounting
    PURGE = "purge"  #: oar-database --purge
    PHOENIX = "phoenix"  #: oar_phoenix


class QueueStatus(NamedTuple):
    """Whether a queue is active, and its last known change."""

    name: str
    is_active: bool
    since: int = 0  #: date of the change; 0 = unknown
    author: str = ""  #: user who changed it; '' = OAR itself, or unknown


class Refusals(NamedTuple):
    """Submissions rejected since the last accepted one."""

    number: int = 0
    last: str = ""  #: text of the last one


class FailedLaunches(NamedTuple):
    """Jobs that could not be launched for the same reason since the last job start."""

    code: EndCode
    number: int


class UserHold(NamedTuple):
    """Why the jobs of a user are not started."""

    user: str
    reason: str
    repair: str = ""  #: what an administrator has to do


class HealthFacts(NamedTuple):
    """Facts about the health of the cluster, from the database and the admission rules."""

    queues: Sequence[QueueStatus] = ()
    resources: int = 0  #: of type default
    suspected: int = 0  #: of these
    lost_nodes: int = 0  #: number of nodes that are not Alive, if no node is Alive; else 0
    refusals: Refusals = Refusals()
    failed_launches: FailedLaunches | None = None
    launch_holds: Sequence[str] = ()  #: why no job is started
    user_holds: Sequence[UserHold] = ()  #: a user may have several
    rule_errors: Sequence[str] = ()  #: each enabled admission rule that cannot run, and why
    oldest_not_accounted: int = 0  #: date of the end of the first job that is not accounted; 0 = none
    successes: Sequence[tuple[str, int]] = ()  #: date of the last success of each task

"""Codes for the reasons why jobs wait, and for the stages of their waiting time."""

from collections.abc import Mapping
from enum import StrEnum


class ReasonCode(StrEnum):
    """Why a job does not start now, ``job_reasons.code``; also what the job waited for, ``job_waits.code``."""

    IMPOSSIBLE = "IMPOSSIBLE"  #: the cluster has no such resources
    CONDITION = "CONDITION"  #: a condition of its request cannot be evaluated, or takes too much time
    NOT_ALIVE = "NOT_ALIVE"  #: the cluster has them, but they are not Alive
    BUSY = "BUSY"  #: other jobs use them
    RESERVATION = "RESERVATION"  #: reservations have them
    ADVANCE = "ADVANCE"  #: it is in an advance reservation in which it cannot start now
    RESERVED = "RESERVED"  #: it is a reservation that waits for its own date
    NO_SLOT = "NO_SLOT"  #: its resources are never free for long enough
    QUOTA = "QUOTA"  #: with it, a quota would be exceeded
    DEPENDENCY = "DEPENDENCY"  #: another job must end or start first
    CONTAINER = "CONTAINER"  #: its container is not planned yet, has no free resources, or is too small
    POSTPONED = "POSTPONED"  #: its user has set a later date
    DEADLINE = "DEADLINE"  #: it would end after its deadline
    TOKEN = "TOKEN"  #: there are too few tokens of the site, or their number is unknown
    ARRAY = "ARRAY"  #: as many jobs of its array run as are allowed at a time
    LIMIT = "LIMIT"  #: a limit of the round was reached before its turn
    LAUNCH = "LAUNCH"  #: its resources are free, but not ready yet
    EXTERNAL = "EXTERNAL"  #: a scheduler of the site plans it
    QUEUE = "QUEUE"  #: its queue is stopped
    HOLD = "HOLD"  #: it is on hold
    FAULT = "FAULT"  #: launches are held because of a fault that is no job's
    INTERNAL = "INTERNAL"  #: the scheduler failed for this job: see its log


_REASON_CODES: Mapping[str, ReasonCode] = {str(code): code for code in ReasonCode}


def reason_code(stored: str) -> ReasonCode | str:
    """Return a code as a ``ReasonCode``; return a code of another version unchanged."""
    return _REASON_CODES.get(stored, stored)


class RoundLimit(StrEnum):
    """The limit of a scheduling pass that kept a job from being planned.

    It is the value of ``limit`` in the data of ``ReasonCode.LIMIT``.
    """

    JOBS = "jobs"  #: so many jobs are planned in a round
    TIME = "time"  #: the time of the round was over
    USER = "user"  #: so many jobs of each user are planned in a queue
    ORDER = "order"  #: its queue does not go past the first job that waits
    DEPTH = "depth"  #: its queue plans starts for so many jobs that wait


class WaitStage(StrEnum):
    """A part of the waiting time without a reason of a scheduling pass.

    Like ``ReasonCode``, it is a value of ``job_waits.code``.
    """

    NEW = "NEW"  #: no round had looked at the job
    STARTING = "STARTING"  #: its nodes were prepared

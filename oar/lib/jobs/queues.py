"""Add, change, remove, enable and disable queues."""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from oar.lib.access.records import User
from oar.lib.base.errors import UserError
from oar.lib.history import policy_log
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import QueueState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: The built-in scheduler, and the priority of a queue that is added without one.
DEFAULT_POLICY = "oar_sched_gantt_with_timesharing"
DEFAULT_PRIORITY = 0

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z", re.ASCII)
_POLICY = re.compile(r"[A-Za-z0-9_./-]{1,100}\Z", re.ASCII)
_PRIORITY = re.compile(r"-?[0-9]{1,9}\Z", re.ASCII)


class QueueProblem(UserError):
    """A change of a queue is impossible; the message is a complete sentence."""


class NoQueue(QueueProblem):
    """There is no queue with this name."""


class HasJobs(QueueProblem):
    """Jobs of the queue have not ended."""

    exit_code = 2


def add(tx: "Transaction", user: User, text: str) -> Queue:
    """Add the queue ``name[,priority[,policy]]``; restore an orphaned queue with this name.

    Raises NotAllowed, QueueProblem.
    """
    user.check_administers()
    name, priority, policy = _parts(text)
    queue = Queue(name, DEFAULT_PRIORITY if priority is None else priority, policy or DEFAULT_POLICY, QueueState.ACTIVE)
    with policy_log.changing(tx, user):
        if not tx.queues.insert(queue):
            raise QueueProblem(f"Queue '{name}' already exists.")
    return queue


def change(tx: "Transaction", user: User, text: str) -> None:
    """Change a queue: ``name[,priority[,policy]]``; omitted parts stay unchanged. Raises NotAllowed, QueueProblem."""
    user.check_administers()
    name, priority, policy = _parts(text)
    _check_exists(tx, name)
    _check_stays(tx, name)
    with policy_log.changing(tx, user):
        tx.queues.update(name, priority=priority, policy=policy)


def remove(tx: "Transaction", user: User, name: str, *, force: bool = False) -> list[int]:
    """Remove a queue; a queue with live jobs only with ``force``. Raises NotAllowed, QueueProblem.

    A queue with live advance reservations becomes orphaned and is deleted with the last of them. Return their numbers.
    """
    user.check_administers()
    _check_exists(tx, name)
    jobs = tx.queues.live_jobs(name)
    if jobs and not force:
        raise HasJobs(f"Queue '{name}' has {jobs} unfinished job(s).")
    reservations = tx.queues.live_reservations(name)
    with policy_log.changing(tx, user):
        if reservations:
            tx.queues.orphan(name)
        else:
            tx.queues.delete(name)
    return reservations


def switch(
    tx: "Transaction",
    user: User,
    enabled: Collection[str] = (),
    disabled: Collection[str] = (),
    *,
    enable_all: bool = False,
    disable_all: bool = False,
) -> None:
    """Enable and disable queues, in the order of the arguments. Raises NotAllowed, QueueProblem."""
    user.check_administers()
    for name in [*enabled, *disabled]:
        _check_exists(tx, name)
        _check_stays(tx, name)
    with policy_log.changing(tx, user):
        for names, state in (
            (enabled, QueueState.ACTIVE),
            (disabled, QueueState.NOT_ACTIVE),
            (None if enable_all else (), QueueState.ACTIVE),
            (None if disable_all else (), QueueState.NOT_ACTIVE),
        ):
            if names is None or names:
                tx.queues.set_state(names, state)


def held(tx: "Transaction", name: str) -> Queue:
    """Return a queue, locked until the end of the transaction. Raises NoQueue."""
    queue = tx.queues.hold(name)
    if queue is None:
        raise _unknown(name)
    return queue


def _check_exists(tx: "Transaction", name: str) -> None:
    if not tx.queues.exists(name):
        raise _unknown(name)


def _check_stays(tx: "Transaction", name: str) -> None:
    if tx.queues.is_orphaned(name):
        raise QueueProblem(
            f"Queue '{name}' was removed: it goes with the last of its advance reservations."
            f"\n  oarqueue --add {name},PRIORITY,POLICY brings it back"
        )


def _unknown(name: str) -> NoQueue:
    return NoQueue(f"Queue '{name}' does not exist.")


def _parts(text: str) -> tuple[str, int | None, str | None]:
    """Parse ``name[,priority[,policy]]``. Raises QueueProblem."""
    name, _, options = (part.strip() for part in text.partition(","))
    priority, _, policy = (part.strip() for part in options.partition(","))
    if not _NAME.match(name):
        raise QueueProblem(f"'{name}' is not a valid queue name: letters, digits and _ . - only.")
    if priority and not _PRIORITY.match(priority):
        raise QueueProblem(f"'{priority}' is not a priority: write a whole number.")
    if policy and not _POLICY.match(policy):
        raise QueueProblem(f"'{policy}' is not the name of a scheduler.")
    return name, int(priority) if priority else None, policy or None

"""The removal of resources, and of the history of what ran there if that is wanted (commands-admin.md 4)."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from oar.lib.db import purge
from oar.lib.messages import Tag, Wake
from oar.lib.states import ResourceState

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction


class No(Enum):
    """Why a resource is not removed."""

    UNKNOWN = auto()
    NOT_DEAD = auto()
    USED = auto()  #: a live job is on it
    NOT_ACCOUNTED = auto()  #: jobs that ran there would be lost to the accounting


@dataclass(frozen=True, slots=True)
class Removal:
    """What came of it."""

    no: No | None = None
    jobs: tuple[int, ...] = ()  #: those because of which it is refused
    purged: tuple[int, ...] = ()


def remove(tx: "Transaction", resource_id: int, *, purge_jobs: bool) -> Removal:
    """Remove a resource that is Dead; with ``purge_jobs`` all jobs that ran there, completely."""
    found = tx.resources.select([resource_id])
    if not found:
        return Removal(No.UNKNOWN)
    if found[0].state is not ResourceState.DEAD:
        return Removal(No.NOT_DEAD)
    users = tx.jobs.on_resources([resource_id])
    if users:
        return Removal(No.USED, tuple(users))
    purged = purge.jobs_that_ran_on(tx, resource_id) if purge_jobs else []
    if purged:
        unaccounted = purge.not_accounted(tx, purged)
        if unaccounted:
            return Removal(No.NOT_ACCOUNTED, tuple(unaccounted))
        purge.purge_jobs(tx, purged)
    tx.resources.delete(resource_id)
    tx.outbox.append(Wake(Tag.TERM))
    return Removal(purged=tuple(purged))

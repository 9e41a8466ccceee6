"""Delete resources, with or without the history of the jobs that ran there."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from oar.lib.access.records import User
from oar.lib.bus.messages import Tag, Wake
from oar.lib.nodes import reserved
from oar.lib.nodes.states import ResourceState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class RemovalRefusal(Enum):
    """Why a resource is not deleted."""

    UNKNOWN = auto()
    NOT_DEAD = auto()
    USED = auto()  #: a live job is on it
    NOT_ACCOUNTED = auto()  #: jobs that ran there would be lost to the accounting


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of a deletion."""

    refusal: RemovalRefusal | None = None
    jobs: tuple[int, ...] = ()  #: the jobs that prevent the removal
    purged: tuple[int, ...] = ()


def remove(tx: "Transaction", user: User, resource_id: int, *, purge_jobs: bool, force: bool = False) -> Removal:
    """Delete a Dead resource; with ``purge_jobs`` also delete all rows of the jobs that ran there.

    ``force``: even if an advance reservation holds it. Raises NotAllowed, WouldBreak.
    """
    user.check_administers()
    resources = tx.resources.select([resource_id])
    if not resources:
        return Removal(RemovalRefusal.UNKNOWN)
    if resources[0].state is not ResourceState.DEAD:
        return Removal(RemovalRefusal.NOT_DEAD)
    if not force:
        reserved.check_removal(tx, resource_id)
    users = _without_frames(tx, tx.jobs.on_resources([resource_id]))
    if users:
        return Removal(RemovalRefusal.USED, tuple(users))
    purged = _without_frames(tx, tx.retention.jobs_of_resource(resource_id)) if purge_jobs else []
    if purged:
        unaccounted = tx.retention.not_accounted(purged)
        if unaccounted:
            return Removal(RemovalRefusal.NOT_ACCOUNTED, tuple(unaccounted))
        tx.retention.remove_jobs(purged)
    tx.resources.delete(resource_id)
    tx.outbox.append(Wake(Tag.TERM))
    return Removal(purged=tuple(purged))


def _without_frames(tx: "Transaction", jobs: Iterable[int]) -> list[int]:
    """Return the jobs without frames of advance reservations, which are deleted with their reservation."""
    ids = list(jobs)
    frames = tx.reservations.of_frames(ids)
    return [job_id for job_id in ids if job_id not in frames]

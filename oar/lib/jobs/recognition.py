"""Recognize jobs that run on a node although the restored database contains them as waiting.

These jobs were started after the dump was made. Such a job continues if the database and the node identify it. The
database contains the job, and the digest of its secret on the node proves that it is the same job. The node reports the
start time, the alternative and the assigned resources. The sweep of the nodes ends all other jobs that are not running
according to the database.
See docs/design/launch.rst, "A restored database".
"""

import hashlib
import hmac
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.sql_jobs import GivenStart
from oar.lib.jobs.states import JobState, JobType, JobTypeName, Phase
from oar.lib.nodes.states import ResourceState
from oar.lib.planning.sql_rounds import StartRow
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Job
    from oar.lib.jobs.sql_jobs import JobDetail

#: States in which a restored database has jobs that were started since.
_BEFORE_START = (JobState.WAITING, JobState.HOLD)


class FoundJob(NamedTuple):
    """A job as its head node reports it."""

    job_id: int
    user: str
    digest: str  #: SHA-256 of its secret, in hexadecimal digits
    attempt: int
    boot_id: str
    ago: int  #: seconds since its start
    alternative: int  #: number of the alternative that was started
    resources: tuple[int, ...]


def recognise(tx: "Transaction", host: str, found: Iterable[FoundJob]) -> list[int]:
    """Set waiting jobs to Running that run on ``host``, their head node; return their ids."""
    by_id = {job.job_id: job for job in found}
    waiting = [job for job in tx.jobs.select(by_id) if job.state in _BEFORE_START]
    details = tx.jobs.read_details([job.id for job in waiting])
    rows = [row for job in waiting if (row := _start(tx, host, job, details[job.id], by_id[job.id]))]
    lifecycle.move_all(tx, [row.job_id for row in rows], JobState.WAITING, (JobState.HOLD,))
    free = set(tx.rounds.lock_waiting([row.job_id for row in rows]))
    rows = [row for row in rows if row.job_id in free]
    ids = [row.job_id for row in rows]
    lifecycle.start_all(tx, {row.job_id: GivenStart(row.start, row.moldable) for row in rows})
    lifecycle.move_all(tx, ids, JobState.LAUNCHING)
    tx.rounds.give(rows)
    tx.job_runs.claim_all(dict.fromkeys(ids, (host, Phase.STARTED)))
    for job_id in ids:
        job = by_id[job_id]
        tx.job_runs.update(job_id, attempt=job.attempt, boot_id=job.boot_id)
        text = f"[bipbip] {host} runs the job since {job.ago} s; the restored database had it waiting"
        tx.events.add(EventType.JOB_RECOGNISED, job_id, text, hosts=[host])
    lifecycle.move_all(tx, ids, JobState.RUNNING)
    return ids


def _start(tx: "Transaction", host: str, job: "Job", detail: "JobDetail", found: FoundJob) -> StartRow | None:
    """Return the earlier start of a job; return None if a part of it is unknown."""
    digest = hashlib.sha256(detail.keys.challenge.encode()).hexdigest()
    is_same = bool(detail.keys.challenge) and hmac.compare_digest(digest, found.digest) and job.user == found.user
    if not is_same or not _may_go_on(job, detail):
        return None
    walltimes = {one.id: one.walltime for one in tx.new_jobs.moldables_of_jobs([job.id])[job.id]}
    if found.alternative not in walltimes or not _are_kept(tx, host, found.resources):
        return None
    start = max(job.submission_time, tx.now - found.ago)
    return StartRow(job.id, found.alternative, start, found.resources, walltimes[found.alternative])


def _may_go_on(job: "Job", detail: "JobDetail") -> bool:
    """Return whether a job can continue: it has no interactive session and is in no container or reservation."""
    is_part = detail.reservation_id is not None or JobTypeName.INNER in JobTypes(detail.types)
    return job.job_type is JobType.PASSIVE and not is_part


def _are_kept(tx: "Transaction", host: str, resources: Collection[int]) -> bool:
    """Return whether the job of a host still has all its resources.

    All resources must exist, the host must be the head node, and the other nodes must wait for their sweep. A node that
    is Alive has been swept: the sweep has ended the processes of the job, and another job may run there.
    """
    present = tx.resources.select(resources)
    names = {one.network_address for one in present if one.type == "default" and one.network_address}
    is_head = len(present) == len(set(resources)) and bool(names) and min(names) == host
    return is_head and not any(
        one.state is ResourceState.ALIVE for one in present if one.network_address in names - {host}
    )

"""Recovery: repair the database when the server starts; recognize jobs after a restore.

The Runner repairs the database at each start, also without a previous crash. Repaired jobs pass through the same
actions as all other jobs. See docs/design/launch.rst, "Start of the server".

A restored database may contain jobs as waiting that were started after the dump was made. Such a job continues if the
database and the node identify it: the database contains the job, and the digest of its secret on the node proves that
it is the same job. The node reports the start time, the alternative and the assigned resources. The sweep of the nodes
ends all other jobs that are not running according to the database. See docs/design/launch.rst, "A restored database".
"""

import hashlib
import hmac
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.bus.messages import Tag, Wake
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.sql_jobs import GivenStart
from oar.lib.jobs.states import JobState, JobType, JobTypeName, Phase, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.planning.sql_rounds import StartRow
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Job
    from oar.lib.jobs.sql_jobs import JobDetail

#: The file in OAR_RUN_DIR with the largest job id that the server has seen: a smaller one shows a restored database.
NEWEST_JOB_FILE = "newest_job"
#: States in which a restored database has jobs that were started since.
_BEFORE_START = (JobState.WAITING, JobState.HOLD)


def repair(tx: "Transaction") -> None:
    """Make the rows of the database consistent."""
    tx.invariants.make_consistent()
    tx.resources.recount_suspended()
    tx.job_runs.forget_silences()  # the server measures the silence of a node only while it probes the node
    for job_id, state in tx.invariants.without_resources():
        if state is JobState.TO_LAUNCH:
            _schedule_again(tx, job_id)
        elif state is not JobState.FINISHING:  # end it in the same way as after the death of its oarexec
            tx.events.add(EventType.BIPBIP_BAD_JOBID, job_id, f"[Recovery] no resource is assigned to the job {job_id}")
            tx.job_runs.report(job_id, ExecCode.DIED, None)
            lifecycle.move(tx, job_id, JobState.FINISHING)


def _schedule_again(tx: "Transaction", job_id: int) -> None:
    if not lifecycle.move(tx, job_id, JobState.WAITING):
        return
    job = tx.jobs.get(job_id)
    start_time = 0 if job.reservation is Reservation.NONE else job.start_time
    tx.jobs.update(job_id, assigned_moldable_job=0, start_time=start_time, message="Reset after a server restart")
    tx.outbox.append(Wake(Tag.SCHEDULING))


# -- a restored database ----------------------------------------------------------------------------------------------


def read_newest_job(run_directory: str) -> int:
    """Return the stored job id; return 0 if there is none."""
    try:
        text = (Path(run_directory) / NEWEST_JOB_FILE).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def write_newest_job(run_directory: str, job_id: int) -> None:
    """Store the job id. Raises OSError."""
    path = Path(run_directory) / NEWEST_JOB_FILE
    new_path = path.with_suffix(".new")
    try:
        new_path.write_text(f"{job_id}\n", encoding="ascii")
        os.replace(new_path, path)
    except OSError as error:  # an error about a full disk does not contain the file name
        raise OSError(error.errno, error.strerror, str(path)) from None


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
    rows = [row for job in waiting if (row := _found_start(tx, host, job, details[job.id], by_id[job.id]))]
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


def _found_start(tx: "Transaction", host: str, job: "Job", detail: "JobDetail", found: FoundJob) -> StartRow | None:
    """Return the earlier start of a job; return None if a part of it is unknown."""
    digest = hashlib.sha256(detail.keys.challenge.encode()).hexdigest()
    is_same = bool(detail.keys.challenge) and hmac.compare_digest(digest, found.digest) and job.user == found.user
    is_part = detail.reservation_id is not None or JobTypeName.INNER in JobTypes(detail.types)
    if not is_same or is_part or job.job_type is not JobType.PASSIVE:
        return None
    walltimes = {moldable.id: moldable.walltime for moldable in tx.new_jobs.moldables_of_jobs([job.id])[job.id]}
    if found.alternative not in walltimes or not _keeps_resources(tx, host, found.resources):
        return None
    start = max(job.submission_time, tx.now - found.ago)
    return StartRow(job.id, found.alternative, start, found.resources, walltimes[found.alternative])


def _keeps_resources(tx: "Transaction", host: str, resources: Collection[int]) -> bool:
    """Return whether the job of a host still has all its resources.

    All resources must exist, the host must be the head node, and the other nodes must wait for their sweep. A node that
    is Alive has been swept: the sweep has ended the processes of the job, and another job may run there.
    """
    present = tx.resources.select(resources)
    names = {
        resource.network_address for resource in present if resource.type == "default" and resource.network_address
    }
    is_head = len(present) == len(set(resources)) and bool(names) and min(names) == host
    return is_head and not any(
        resource.state is ResourceState.ALIVE for resource in present if resource.network_address in names - {host}
    )

"""A job once more: a copy of one that has ended, asked for by its owner or made by the system (server.md 7.1).

The copy takes over the place of the old job: its array, its keys, and those that depend on it.  It has a challenge of
its own.  Admission rules are not run again.
"""

from typing import TYPE_CHECKING

from oar.lib import submission
from oar.lib.db import new_jobs
from oar.lib.db.new_jobs import Alternative, NewJob, NewJobs
from oar.lib.db.walltimes import WalltimeChange, Walltimes
from oar.lib.errors import BadRequest, NoSuchJob, NotAllowed, WrongState
from oar.lib.job_keys import KeyPair
from oar.lib.messages import Tag, Wake
from oar.lib.model import Job, JobKeys, Moldable, User
from oar.lib.request import GROWING, format_job_message
from oar.lib.states import JobState, JobType, Reservation

if TYPE_CHECKING:
    from oar.lib.config import Config
    from oar.lib.db.engine import Transaction

_ENDED = frozenset({JobState.ERROR, JobState.TERMINATED, JobState.FINISHING})


def resubmit(tx: "Transaction", config: "Config", user: User, job_id: int) -> int:
    """Submit a copy of a job that has ended, as its owner or an administrator; return its id.

    Raises NoSuchJob, BadRequest, WrongState, NotAllowed.
    """
    job = tx.jobs.lock(job_id)
    if job is None:
        raise NoSuchJob(job_id)
    if job.job_type is not JobType.PASSIVE or job.reservation is not Reservation.NONE:
        raise BadRequest("an interactive job or a reservation cannot be resubmitted.")
    if job.state not in _ENDED:
        raise WrongState("the job must be in Error or Terminated state.")
    if not user.is_admin and user.name != job.user:
        raise NotAllowed("you are not the right user.")
    submission.check_kept(tx, config, job.user, job.env, 1)
    new = copy(tx, job_id)
    tx.outbox.append(Wake(Tag.QSUB))
    return new


def copy(tx: "Transaction", job_id: int, *, automatically: bool = False) -> int:
    """Insert a copy of a job and let those that depend on it depend on the copy; return its id.

    ``automatically``: at most once for each job, whatever process does it.  The caller tells the server.
    Raises NoSuchJob, WrongState.
    """
    job = tx.jobs.get(job_id)
    new_id = new_jobs.new_id(tx)
    if automatically and not tx.runs.note_resubmission(job_id, new_id):
        raise WrongState(f"job {job_id} was resubmitted before.")
    keys = _keys(tx, job)
    types = tx.jobs.types([job_id]).get(job_id, ())
    change = Walltimes(tx).find(job_id)
    moldables = tx.jobs.moldables([job_id])[job_id]
    alternatives = [Alternative(_asked(each, job, change), each.groups) for each in moldables]
    new = NewJobs(
        first=_row(job, new_id, _message(job, alternatives[0].walltime, types)),
        commands=[job.command or ""],
        number=1,
        alternatives=alternatives,
        types=types,
    )
    new_jobs.insert(tx, new, keys)
    if GROWING in types:
        Walltimes(tx).ask_all([new_id], change.granted + change.pending)
    tx.jobs.follow_resubmission(job_id, new_id)
    return new_id


def _keys(tx: "Transaction", job: Job) -> list[JobKeys]:
    """Return a new challenge with the keys of a job.  Raises WrongState when another live job has them."""
    former = tx.secrets.get(job.id)
    if former is None or former.private_key is None or former.public_key is None:
        return submission.secrets_of([], 1)
    if tx.secrets.key_in_use(former.public_key, job.user, but=job.id):
        raise WrongState("another active job is using the same ssh keys.")
    return submission.secrets_of([KeyPair(former.private_key, former.public_key)], 1)


def _asked(moldable: Moldable, job: Job, change: WalltimeChange) -> int:
    """Return the walltime that was asked for at the submission of a job, whatever it was granted later."""
    return moldable.walltime - (change.granted if moldable.id == job.assigned_moldable else 0)


def _message(job: Job, walltime: int, types: tuple[str, ...]) -> str:
    """Return the first message of the copy: the size is what the old one's message says, until the next round."""
    size = job.message.removeprefix("R=").partition(",")[0]
    return format_job_message(
        resources=int(size) if size.isascii() and size.isdigit() else 0,
        walltime=walltime,
        kind="R" if job.reservation is not Reservation.NONE else "B",
        name=job.name or "",
        queue=job.queue,
        project=job.project,
        types=types,
        array_limit=job.array_limit,
    )


def _row(job: Job, new_id: int, message: str) -> NewJob:
    is_reservation = job.reservation is not Reservation.NONE
    is_named_by_number = job.cpuset_name == f"{job.user}_{job.id}"
    return NewJob(
        id=new_id,
        array_id=job.array_id,
        array_index=job.array_index,
        initial_request=job.initial_request or "",
        name=job.name,
        cpuset_name="" if is_named_by_number else job.cpuset_name,
        job_type=job.job_type,
        info_type=job.info_type or "",
        state=JobState.WAITING,
        reservation=Reservation.TO_SCHEDULE if is_reservation else Reservation.NONE,
        message=message,
        user=job.user,
        project=job.project,
        command=job.command or "",
        queue=job.queue,
        properties=job.properties or "",
        launching_directory=job.launching_directory,
        start_time=job.start_time if is_reservation else 0,
        file_id=job.file_id,
        notify=job.notify,
        checkpoint=job.checkpoint,
        checkpoint_signal=job.checkpoint_signal,
        stdout_file=job.stdout_file,
        stderr_file=job.stderr_file,
        resubmit_job_id=job.id,
        env=job.env,
        array_limit=job.array_limit,
    )

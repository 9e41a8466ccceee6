"""Resubmission: submit a copy of an ended job, as its owner or automatically.

The copy takes over the array, the keys, and the dependent jobs of the old job.  It has its own challenge.  Admission
rules are not run again.

See docs/design/launch.rst, "Resubmission".
"""

from typing import TYPE_CHECKING

from oar.lib.access.records import User
from oar.lib.accounts import budgets, projects
from oar.lib.base.errors import BadRequest, NoSuchJob, NotAllowed, WrongState
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.jobs import control
from oar.lib.jobs.records import Job, JobKeys, JobSpec, Moldable
from oar.lib.jobs.states import JobState, JobType, Reservation, job_letter
from oar.lib.reservations.records import AdvanceReservation
from oar.lib.submission import admission, job_environment, job_keys, reservation_entry, submit
from oar.lib.submission.job_keys import KeyPair
from oar.lib.submission.resource_request import GROWING, JobTypes
from oar.lib.submission.sql_new_jobs import JobBatch, NewAlternative, NewJob

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.sql_requests import WalltimeChange

_ENDED = frozenset({JobState.ERROR, JobState.TERMINATED, JobState.FINISHING})


def resubmit(tx: "Transaction", config: "Config", user: User, job_id: int) -> int:
    """Submit a copy of an ended job, as its owner or an administrator, who is recorded; return the id of the copy.

    Raises NoSuchJob, BadRequest, WrongState, NotAllowed, BadSubmission.
    """
    job = tx.jobs.lock(job_id)
    if job is None:
        raise NoSuchJob(job_id)
    for text in control.frame_texts(tx, [job_id]).values():
        raise WrongState(text)
    if job.job_type is not JobType.PASSIVE or job.reservation is not Reservation.NONE:
        raise BadRequest("an interactive job or a reservation cannot be resubmitted.")
    if job.state not in _ENDED:
        way_out = f"Job {job_id} is {job.state}. Wait for its end: oarstat -j {job_id}"
        raise WrongState(f"the job must be in Error or Terminated state. {way_out}")
    if not user.is_admin and user.name != job.user:
        raise NotAllowed(f"you are not the right user for job {job_id}. This job is owned by {job.user}.")
    inside = tx.reservations.select(list(tx.reservations.of_jobs([job_id]).values()))
    admission.check_queue(tx, job.queue, inside[0].queue if inside else "")
    projects.choose(tx, config, job.user, job.project)
    types = tx.jobs.types([job_id]).get(job_id, ())
    alternatives, sizes = tx.new_jobs.moldables_of_jobs([job_id])[job_id], tx.new_jobs.sizes(job_id)
    spec = JobSpec(user=job.user, command="", queue=job.queue, project=job.project, types=types)
    seconds = max(((sizes.get(each.id) or _size(job)) * each.walltime for each in alternatives), default=0)
    is_accounted = budgets.is_accounted(
        config, JobTypes(types).names, is_flexible=inside[0].is_flexible if inside else None
    )
    submit.check_limits(tx, config, spec, seconds, is_accounted=is_accounted)
    submit.check_stored_bytes(tx, config, job.user, job.env, 1)
    copy_id = copy(tx, job_id)
    audit.record_jobs(tx, user, AuditAction.RESUBMIT, [job], Values(new=f"job {copy_id}"))
    tx.outbox.append(Wake(Tag.QSUB))
    return copy_id


def copy(tx: "Transaction", job_id: int, *, automatically: bool = False) -> int:
    """Insert a copy of a job and redirect its dependent jobs to the copy; return the id of the copy.

    ``automatically``: copy each job at most once, even if several processes try.  The caller must wake the server.
    Raises NoSuchJob, WrongState.
    """
    job = tx.jobs.get(job_id)
    change = tx.job_requests.find_walltime_change(job_id)
    moldables = tx.new_jobs.moldables_of_jobs([job_id])[job_id]
    asked = [_submitted_walltime(each, job, change) for each in moldables if not each.default_walltime]
    types, reservation = reservation_entry.again(
        tx, job, tx.jobs.types([job_id]).get(job_id, ()), max(asked, default=1)
    )
    sizes = tx.new_jobs.sizes(job_id)
    alternatives = [
        _alternative(tx, moldable, job, change, reservation)._replace(resources=sizes.get(moldable.id, 0))
        for moldable in moldables
    ]
    new_id = tx.new_jobs.new_id()
    if automatically and not tx.new_jobs.store_resubmission(job_id, new_id):
        raise WrongState(f"job {job_id} was resubmitted before.")
    keys = _keys(tx, job)
    spec = _spec(job, types)
    is_reservation = job.reservation is not Reservation.NONE
    first = NewJob(
        spec,
        job_type=job.job_type,
        state=JobState.WAITING,
        message=submit.job_message(
            spec,
            letter=job_letter(is_reservation=is_reservation, is_interactive=False),
            resources=_size(job),
            walltime=alternatives[0].walltime,
        ),
        reservation=Reservation.TO_SCHEDULE if is_reservation else Reservation.NONE,
        start_time=job.start_time if is_reservation else 0,
        id=new_id,
        array_id=job.array_id,
        array_index=job.array_index,
        resubmit_job_id=job.id,
    )
    tx.new_jobs.insert(JobBatch(first, alternatives), keys)
    if reservation:
        tx.reservations.add_job(reservation.id, [new_id])
    if GROWING in spec.types:
        tx.job_requests.request_walltimes([new_id], change.granted + change.pending)
    tx.jobs.follow_resubmission(job_id, new_id)
    return new_id


def _spec(job: Job, types: tuple[str, ...]) -> JobSpec:
    """Return the specification of a job as submitted, without its dependencies."""
    columns = {name: getattr(job, name) for name in JobSpec._fields if name in Job._fields}
    present = {name: value for name, value in columns.items() if value is not None}
    is_named_by_number = job.cpuset_name == f"{job.user}_{job.id}"
    return JobSpec(**present)._replace(
        types=types,
        array_limit=job.array_limit or None,
        cpuset_name=None if is_named_by_number else job.cpuset_name,
        env=job_environment.read(job.env),
    )


def _keys(tx: "Transaction", job: Job) -> list[JobKeys]:
    """Return a new challenge with the keys of a job.  Raises WrongState if another live job uses them."""
    former = tx.access.find_challenge(job.id)
    if former is None or former.private_key is None or former.public_key is None:
        return job_keys.with_challenges([], 1)
    if tx.access.is_key_in_use(former.public_key, job.user, but=job.id):
        raise WrongState("another active job is using the same ssh keys.")
    return job_keys.with_challenges([KeyPair(former.private_key, former.public_key)], 1)


def _alternative(
    tx: "Transaction", moldable: Moldable, job: Job, change: "WalltimeChange", reservation: AdvanceReservation | None
) -> NewAlternative:
    """Return the copy of an alternative; a default walltime is limited to the time left in its advance reservation."""
    walltime, default = _submitted_walltime(moldable, job, change), moldable.default_walltime
    if default:
        is_cut = reservation is not None and not reservation.is_flexible
        walltime = min(default, reservation_entry.longest(reservation, tx.now)) if is_cut and reservation else default
    return NewAlternative(walltime, moldable.groups, default, memory=moldable.memory)


def _submitted_walltime(moldable: Moldable, job: Job, change: "WalltimeChange") -> int:
    """Return the walltime with which a job was submitted, without later extensions."""
    return moldable.walltime - (change.granted if moldable.id == job.assigned_moldable else 0)


def _size(job: Job) -> int:
    """Return the number of resources in the message of a job; the next scheduling pass corrects it."""
    size = job.message.removeprefix("R=").partition(",")[0]
    return int(size) if size.isascii() and size.isdigit() else 0

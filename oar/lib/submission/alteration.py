"""Changes of a waiting job: the altered job is checked and admitted like a new submission.

In fields that the user does not alter, the rules must give the same values as for the present job.  Otherwise the
alteration is rejected, so that it cannot bypass the rules.  A reservation job cannot be altered, because it was granted
as it is.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.accounts import budgets
from oar.lib.base.errors import BadRequest, NoSuchJob, NotAllowed, UserError, WrongState
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control
from oar.lib.jobs.control import owns
from oar.lib.jobs.records import Dependency, Job, JobSpec
from oar.lib.jobs.states import BudgetCount, JobState, JobType, Reservation, job_letter
from oar.lib.reservations.records import AdvanceReservation
from oar.lib.submission import admission, checks, dependencies, preparation, reservation_entry, submit
from oar.lib.submission.admission import Admission
from oar.lib.submission.admission_rules import RuleRefused
from oar.lib.submission.checks import BadSubmission
from oar.lib.submission.options import JobOptions
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.resource_request import JobTypes, ResourceRequest, parse_request, texts_of

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

_ALTERABLE = (JobState.WAITING, JobState.HOLD)

#: Fields that the rules may change in an alteration, and those that are no part of the job.
_NOT_COMPARED = frozenset(
    {
        *("dependencies", "spec", "warnings", "types", "verifies", "default_walltimes"),
        *("checks_project", "project_by_rule"),
    }
)

#: How messages name the fields that must stay the same if the user does not alter them.  Dependencies are left out:
#: rules see new ones only.
_LABELS = {
    field: {"properties": "resources", "later_properties": "resources", "requests": "resources"}.get(
        field, field.replace("_", " ")
    )
    for field in (*JobSpec._fields, *Proposal._fields)
    if field not in _NOT_COMPARED
}

#: The fields that decide which limits on waiting jobs apply, and how much the job counts.
_LIMITED = frozenset({"queue", "project", "requests", "advance_reservation"})

#: The word for no advance reservation.
NOWHERE = "none"


class JobChanges(NamedTuple):
    """New values of a job; None leaves a value unchanged, an empty text or tuple removes it."""

    name: str | None = None
    properties: str | None = None
    queue: str | None = None
    project: str | None = None
    notify: str | None = None
    dependencies: tuple[str, ...] | None = None
    #: number or name of the one that the job goes into; NOWHERE = out of its own
    advance_reservation: str | None = None
    requests: tuple[str, ...] | None = None  #: each like ``-l`` of a submission; what it does not name stays

    @property
    def named(self) -> frozenset[str]:
        """The names of the changed fields."""
        return frozenset(name for name in JobChanges._fields if getattr(self, name) is not None)

    def __str__(self) -> str:
        """Return the new values with their names."""
        return ", ".join(f"{name} = {getattr(self, name)!r}" for name in JobChanges._fields if name in self.named)


class StaysInside(WrongState):
    """A running job cannot leave its advance reservation."""


class Rehearsals:
    """Admit altered jobs; run the rules only once for equal jobs, such as the jobs of an array."""

    def __init__(self, database: "Database", config: "Config") -> None:
        self._database = database
        self._config = config
        self._last: tuple[Proposal, Proposal, JobChanges] | None = None
        self._outcome: Admission | UserError

    def admit(self, present: Proposal, altered: Proposal, changes: JobChanges) -> Admission:
        """Return the admission of a job; ``present``: the job without the changes.  Raises UserError."""
        if self._last != (present, altered, changes):
            self._outcome = self._admit(present, altered, changes)
            self._last = present, altered, changes
        if isinstance(self._outcome, UserError):
            raise self._outcome
        return self._outcome

    def _admit(self, present: Proposal, altered: Proposal, changes: JobChanges) -> Admission | UserError:
        try:
            admitted = admission.rehearse(self._database, self._config, altered)
            # If the rules would reject the present job today, it is compared as it is.
            with suppress(BadSubmission, RuleRefused):
                present = admission.amended(self._database, self._config, present)
            _check_same(present, altered, admitted.proposal, changes)
        except UserError as error:
            return error
        return admitted


def alter(
    database: "Database",
    config: "Config",
    user: User,
    job_id: int,
    changes: JobChanges,
    *,
    rehearsals: Rehearsals | None = None,
    check: "Callable[[Transaction], None]" = lambda _: None,
) -> None:
    """Alter a waiting job, as its owner or an administrator; ``check`` may raise an error in the transaction.

    Raises NoSuchJob, NotAllowed, WrongState, BadSubmission, BadRequest, RuleRefused, RuleFailed.
    """
    with database.snapshot() as tx:
        found = tx.jobs.find(job_id)
        for text in control.frame_texts(tx, [job_id]).values() if found and owns(user, found) else ():
            raise WrongState(text)
        job = _alterable(user, found, job_id, changes)
        types = tx.jobs.types([job_id], current=True).get(job_id, ())
        present_entry = _entry(tx, job_id)
        moldables = tx.new_jobs.moldables_of_jobs([job_id])[job_id]
        now = tx.now
    inside = str(present_entry.number) if present_entry else ""
    outside = tuple(text for text in types if not present_entry or text != present_entry.entry_type)
    is_anew = bool(changes.named & {"requests", "advance_reservation"})
    requests = tuple(  # a default walltime is computed again
        ResourceRequest(
            moldable.groups,
            None if is_anew and moldable.default_walltime else moldable.walltime,
            memory=moldable.memory,
        )
        for moldable in moldables
    )
    present = _proposal(config, job, outside, requests, JobChanges(), now=now)._replace(
        advance_reservation=inside, checks_project=False
    )
    altered = _proposal(config, job, outside, requests, changes, now=now)._replace(
        advance_reservation=_place(changes.advance_reservation, inside),
        verifies=is_anew,
        checks_project=changes.project is not None,
    )
    admitted = (rehearsals or Rehearsals(database, config)).admit(present, altered, changes)
    with database.begin() as tx:
        locked = _alterable(user, tx.jobs.lock(job_id), job_id, changes)
        check(tx)
        if _entry(tx, job_id) != present_entry:
            raise WrongState("its advance reservation was changed meanwhile: try again.")
        if changes.named & _LIMITED:
            _check_limits(tx, config, job_id, admitted, changes)
        _write(tx, job, admitted, changes)
        if changes.advance_reservation is not None:
            _move(tx, job_id, present_entry, admitted.reservation)
        values = Values(_present_texts(job, requests, changes), str(changes))
        audit.record_jobs(tx, user, AuditAction.CHANGE, [job], values)
        tx.events.add(EventType.ALTER, job_id, f"User {user.author} altered the job {job_id}: {changes}")
        if locked.state is JobState.WAITING:
            tx.outbox.append(Wake(Tag.TERM))


def _present_texts(job: Job, requests: Sequence[ResourceRequest], changes: JobChanges) -> str:
    """Return the present values of the changed fields with their names, as far as the job itself has them."""
    names = [name for name in ("name", "properties", "queue", "project", "notify") if name in changes.named]
    texts = [f"{name} = {getattr(job, name)!r}" for name in names]
    if changes.requests is not None:
        texts.append(f"requests = {tuple(texts_of(requests))!r}")
    return ", ".join(texts)


def _entry(tx: "Transaction", job_id: int) -> AdvanceReservation | None:
    """Return the advance reservation that contains a job, or None."""
    inside = tx.reservations.of_jobs([job_id])
    return next(iter(tx.reservations.select(list(inside.values()))), None)


def _place(changed: str | None, present: str) -> str:
    """Return the advance reservation of the altered job; '' means none.  Raises BadSubmission."""
    if changed is None:
        return present
    if changed == NOWHERE:
        return ""
    checks.check_advance_reservation(changed)
    return changed


def _move(
    tx: "Transaction", job_id: int, former: AdvanceReservation | None, present: AdvanceReservation | None
) -> None:
    tx.jobs.replace_type(job_id, former.entry_type if former else "", present.entry_type if present else "")
    if present:
        reservation_entry.enter(tx, present, [job_id])
    else:
        tx.reservations.remove_job(job_id)


def _alterable(user: User, job: Job | None, job_id: int, changes: JobChanges) -> Job:
    if job is None:
        raise NoSuchJob(job_id)
    if not owns(user, job):
        raise NotAllowed(f"you are not the right user for job {job_id}. This job is owned by {job.user}.")
    if job.state not in _ALTERABLE and changes.advance_reservation is not None:
        raise StaysInside("modifying the advance reservation is denied, the job is already running.")
    if job.state not in _ALTERABLE:
        raise WrongState("the job is not in the Waiting or Hold state.")
    if job.reservation is not Reservation.NONE:
        raise WrongState("a reservation cannot be altered: delete it and submit another one.")
    return job


def _proposal(
    config: "Config",
    job: Job,
    types: tuple[str, ...],
    present: tuple[ResourceRequest, ...],
    changes: JobChanges,
    *,
    now: int,
) -> Proposal:
    """Return the changed job as a new proposal; ``present``: the requests before the change."""
    spec = JobSpec(
        user=job.user,
        command=job.command or "",
        name=_new(changes.name, job.name),
        project=_new(changes.project, job.project) or "",
        queue=_new(changes.queue, job.queue) or "",
        properties=_new(changes.properties, job.properties),
        types=types,
        dependencies=changes.dependencies or (),
        launching_directory=job.launching_directory,
        notify=_new(changes.notify, job.notify),
        checkpoint=job.checkpoint,
    )
    options = JobOptions(interactive=job.job_type is JobType.INTERACTIVE, requests=changes.requests or ())
    prepared = preparation.prepare(options, spec, config, now)
    named = [parse_request(text, with_memory=bool(config.memory_property)) for text in changes.requests or ()]
    return prepared._replace(requests=_requests(prepared.requests, named, present))


def _requests(
    completed: tuple[ResourceRequest, ...], named: Sequence[ResourceRequest], present: tuple[ResourceRequest, ...]
) -> tuple[ResourceRequest, ...]:
    """Return the requests of the altered job; parts that a new ``-l`` does not name come from the present request.

    ``named``: each new ``-l``; ``completed``: the same, completed as for a new job.
    """
    if not named:
        return present
    if not any(request.groups for request in named) and len(named) == 1:  # only new values, for all alternatives
        (new,) = named
        return tuple(
            ResourceRequest(before.groups, new.walltime or before.walltime, memory=new.memory or before.memory)
            for before in present
        )
    return tuple(
        ResourceRequest(
            whole.groups if new.groups else before.groups,
            new.walltime or before.walltime,
            memory=new.memory or before.memory,
        )
        for new, whole, before in zip_longest(named, completed, present[: len(named)], fillvalue=present[0])
    )


def _check_same(present: Proposal, altered: Proposal, admitted: Proposal, changes: JobChanges) -> None:
    """Raise BadRequest if the rules would also change fields that the user does not alter."""
    types, number = admitted.spec.types, len(altered.spec.types)
    if types[:number] != altered.spec.types or len(types) != number + bool(altered.advance_reservation):
        raise BadRequest("the rules of the site would also change its types: submit another job.")
    if changes.queue and changes.queue != admitted.spec.queue == present.spec.queue:
        raise BadRequest(f"the rules of the site keep it in the queue {present.spec.queue}: submit another job.")
    may_differ = changes.named | ({"later_properties"} if changes.properties is not None else frozenset())
    before, after = _fields(present), _fields(admitted)
    for field, label in _LABELS.items():
        if field not in may_differ and before[field] != after[field]:
            raise BadRequest(f"the rules of the site would also change its {label}: submit another job.")


def _fields(proposal: Proposal) -> dict[str, object]:
    """Return the fields of a proposal and of its specification, with only the walltimes that the user requested."""
    defaults = proposal.default_walltimes or (0,) * len(proposal.requests)
    pairs = zip(proposal.requests, defaults, strict=True)
    requests = tuple(request._replace(walltime=None) if default else request for request, default in pairs)
    return {**proposal.spec._asdict(), **proposal._asdict(), "requests": requests}


def _new(changed: str | None, present: str | None) -> str | None:
    """Return a text after the changes; None if it was removed."""
    return (present if changed is None else changed) or None


def _check_limits(tx: "Transaction", config: "Config", job_id: int, admitted: Admission, changes: JobChanges) -> None:
    """Raise BadSubmission if limits of waiting jobs or budgets do not allow the altered job.

    Budgets that count use only do not depend on the request.
    """
    spec, reservation = admitted.proposal.spec, admitted.reservation
    is_accounted = budgets.is_accounted(
        config, JobTypes(spec.types).names, is_flexible=reservation.is_flexible if reservation else None
    )
    is_limited = (
        bool(changes.named & {"queue", "project", "advance_reservation"})
        or config.budget_counts is BudgetCount.REQUESTS
    )
    submit.check_limits(
        tx, config, spec, admitted.seconds, is_accounted=is_accounted and is_limited, replaced_job=job_id
    )


def _write(tx: "Transaction", job: Job, admitted: Admission, changes: JobChanges) -> None:
    proposal, spec = admitted.proposal, admitted.proposal.spec
    columns = {
        "name": ("job_name", spec.name),
        "properties": ("properties", proposal.stored_properties),
        "queue": ("queue_name", spec.queue),
        "project": ("project", spec.project),
        "notify": ("notify", spec.notify),
    }
    values = dict(value for field, value in columns.items() if field in changes.named)
    message = submit.job_message(
        spec._replace(name=_new(changes.name, job.name), array_limit=job.array_limit),
        letter=job_letter(is_reservation=False, is_interactive=job.job_type is JobType.INTERACTIVE),
        resources=admitted.size,
        walltime=proposal.requests[0].walltime or 0,
    )
    tx.jobs.update(job.id, message=message, **values)
    is_elsewhere = changes.advance_reservation is not None and any(proposal.default_walltimes)
    if changes.requests is not None or is_elsewhere:
        tx.new_jobs.replace_requests(job.id, submit.new_alternatives(admitted))
    if changes.dependencies is not None:
        tx.new_jobs.replace_dependencies(job.id, _dependencies(tx, job, spec))


def _dependencies(tx: "Transaction", job: Job, spec: JobSpec) -> tuple[Dependency, ...]:
    if dependencies.has_same_index(spec):
        text = "-a id[] is possible at submission only. Write id[*] for all jobs of the array, or the id of one job."
        raise BadRequest(text)
    required = dependencies.find(tx, spec)
    if any(dependency.required == job.id for dependency in required):
        raise BadRequest("a job cannot depend on itself.")
    dependants = tx.new_jobs.dependants(job.id) if required else ()
    for dependency in required:
        if dependency.required in dependants:
            text = f"job {dependency.required} depends on job {job.id}: they would wait for each other."
            raise BadRequest(f"a job cannot depend on its dependants: {text} Alter job {dependency.required} first.")
    return required

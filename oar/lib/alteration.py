"""A job that waits, altered: what is new is checked and admitted as if the job were submitted with it.

What the rules of the site make of the job may differ from what they make of it as it is only where it is altered: a
job does not get round them.  A reservation stays, it has been promised as it is.
"""

from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from oar.lib import submission, submission_checks
from oar.lib.admission import RuleRefused
from oar.lib.control import owns
from oar.lib.db import new_jobs
from oar.lib.db.new_jobs import Alternative
from oar.lib.errors import BadRequest, NoSuchJob, NotAllowed, UserError, WrongState
from oar.lib.messages import Tag, Wake
from oar.lib.model import Dependency, Job, Moldable, User
from oar.lib.proposal import Proposal
from oar.lib.request import Request, format_job_message, parse_request
from oar.lib.states import EventType, JobState, JobType, Reservation
from oar.lib.submission import Submission

if TYPE_CHECKING:
    from oar.lib.config import Config
    from oar.lib.db.engine import Database, Transaction

_ALTERABLE = (JobState.WAITING, JobState.HOLD)

#: What is said of a job that the rules leave otherwise than it is; not what they say, nor what is looked at apart.
_CALLED = {
    name: {"properties": "resources", "later_properties": "resources", "requests": "resources"}.get(
        name, name.replace("_", " ")
    )
    for name in Proposal._fields
    if name not in ("warnings", "dependencies")
}


class Changes(NamedTuple):
    """What is to be another; None: it stays, an empty text or tuple: there is none any more."""

    name: str | None = None
    properties: str | None = None
    queue: str | None = None
    project: str | None = None
    notify: str | None = None
    dependencies: tuple[str, ...] | None = None
    requests: tuple[str, ...] | None = None  #: like ``-l`` of a submission; what they do not name stays

    @property
    def named(self) -> frozenset[str]:
        """The names of what is to be another."""
        return frozenset(name for name in Changes._fields if getattr(self, name) is not None)

    def told(self) -> str:
        """Return what they are, for the event."""
        texts = {name: getattr(self, name) for name in Changes._fields if name in self.named}
        return ", ".join(f"{name} = {value!r}" for name, value in texts.items())


class Rehearsals:
    """What the rules make of altered jobs; the jobs of an array are alike, and are shown to them once."""

    def __init__(self, database: "Database", config: "Config") -> None:
        self._database = database
        self._config = config
        self._last: tuple[Proposal, Proposal, Changes] | None = None
        self._found: tuple[Proposal, int] | UserError

    def admit(self, as_it_is: Proposal, asked: Proposal, changes: Changes) -> tuple[Proposal, int]:
        """Return what becomes of a job, and how many resources it takes.  Raises UserError."""
        if self._last != (as_it_is, asked, changes):
            self._found = self._admit(as_it_is, asked, changes)
            self._last = as_it_is, asked, changes
        if isinstance(self._found, UserError):
            raise self._found
        return self._found

    def _admit(self, as_it_is: Proposal, asked: Proposal, changes: Changes) -> tuple[Proposal, int] | UserError:
        try:
            admitted, _, size = submission.rehearse(self._database, self._config, asked)
            _check_kept(_admitted_as_it_is(self._database, self._config, as_it_is), asked, admitted, changes)
        except UserError as error:
            return error
        return admitted, size


def alter(
    database: "Database",
    config: "Config",
    user: User,
    job_id: int,
    changes: Changes,
    *,
    rehearsals: Rehearsals | None = None,
) -> None:
    """Alter a job that waits, as its owner or an administrator.

    Raises NoSuchJob, NotAllowed, WrongState, BadSubmission, BadRequest, RuleRefused, RuleFailed.
    """
    with database.snapshot() as tx:
        job = _alterable(user, tx.jobs.find(job_id), job_id)
        types = tx.jobs.types([job_id], current=True).get(job_id, ())
        moldables = tx.jobs.moldables([job_id])[job_id]
        now = tx.now
    as_it_is = _proposal(config, job, types, moldables, Changes(), now=now)
    asked = _proposal(config, job, types, moldables, changes, now=now)
    admitted, size = (rehearsals or Rehearsals(database, config)).admit(as_it_is, asked, changes)
    with database.begin() as tx:
        _alterable(user, tx.jobs.lock(job_id), job_id)
        _write(tx, job, admitted, changes, _message(job, admitted, changes, size))
        tx.events.add(EventType.ALTER, job_id, f"User {user.name} altered the job {job_id}: {changes.told()}")
        tx.outbox.append(Wake(Tag.TERM))


def _alterable(user: User, job: Job | None, job_id: int) -> Job:
    if job is None:
        raise NoSuchJob(job_id)
    if not owns(user, job):
        raise NotAllowed("you are not the right user.")
    if job.state not in _ALTERABLE:
        raise WrongState("the job is not in the Waiting or Hold state.")
    if job.reservation is not Reservation.NONE:
        raise WrongState("a reservation was promised as it is, submit it anew.")
    return job


def _proposal(
    config: "Config", job: Job, types: tuple[str, ...], moldables: list[Moldable], changes: Changes, *, now: int
) -> Proposal:
    """Return the job with its changes as if it were submitted."""
    given = Submission(
        user=job.user,
        command=job.command or "",
        is_interactive=job.job_type is JobType.INTERACTIVE,
        queue=_new(changes.queue, job.queue),
        properties=_new(changes.properties, job.properties),
        checkpoint=job.checkpoint,
        requests=changes.requests or (),
        types=types,
        directory=job.launching_directory,
        project=_new(changes.project, job.project),
        name=_new(changes.name, job.name),
        dependencies=changes.dependencies or (),
        notify=_new(changes.notify, job.notify),
    )
    present = tuple(Request(each.groups, each.walltime) for each in moldables)
    prepared = submission.prepare(given, config, now)
    return prepared._replace(requests=_requests(prepared.requests, changes.requests, present))


def _requests(
    completed: tuple[Request, ...], texts: tuple[str, ...] | None, present: tuple[Request, ...]
) -> tuple[Request, ...]:
    """Return what a job asks for: each ``-l`` with what it does not name as it is, or as it is completed."""
    if texts is None:
        return present
    named = [parse_request(text) for text in texts]
    if not any(each.groups for each in named) and len(named) == 1:  # another walltime for all alternatives
        return tuple(Request(each.groups, named[0].walltime) for each in present)
    return tuple(
        Request(whole.groups if given.groups else before.groups, given.walltime or before.walltime)
        for given, whole, before in zip_longest(named, completed, present[: len(named)], fillvalue=present[0])
    )


def _admitted_as_it_is(database: "Database", config: "Config", as_it_is: Proposal) -> Proposal:
    """Return what the rules make of a job without any change: what they would not take today is nothing new."""
    try:
        return submission.amended(database, config, as_it_is)
    except (submission_checks.BadSubmission, RuleRefused):
        return as_it_is


def _check_kept(present: Proposal, asked: Proposal, admitted: Proposal, changes: Changes) -> None:
    """Refuse a change with which the rules make another job of it in other ways, too.  Raises BadRequest."""
    if admitted.types != asked.types:
        raise BadRequest("the rules of the site would change its types: submit it anew.")
    altered = changes.named | ({"later_properties"} if changes.properties is not None else frozenset())
    for name, called in _CALLED.items():
        if name not in altered and getattr(present, name) != getattr(admitted, name):
            raise BadRequest(f"the rules of the site would change its {called}: submit it anew.")


def _new(changed: str | None, present: str | None) -> str | None:
    return present if changed is None else changed


def _message(job: Job, admitted: Proposal, changes: Changes, size: int) -> str:
    return format_job_message(
        resources=size,
        walltime=admitted.requests[0].walltime or 0,
        kind="I" if job.job_type is JobType.INTERACTIVE else "B",
        name=_new(changes.name, job.name) or "",
        queue=admitted.queue or "",
        project=admitted.project or "",
        types=admitted.types,
        array_limit=job.array_limit,
    )


def _write(tx: "Transaction", job: Job, admitted: Proposal, changes: Changes, message: str) -> None:
    """Store what is new."""
    columns: dict[str, str | None] = {"message": message}
    if changes.name is not None:
        columns["job_name"] = admitted.name
    if changes.properties is not None:
        columns["properties"] = admitted.stored_properties
    if changes.queue is not None:
        columns["queue_name"] = admitted.queue
    if changes.project is not None:
        columns["project"] = admitted.project
    if changes.notify is not None:
        columns["notify"] = admitted.notify
    tx.jobs.update(job.id, **columns)
    if changes.requests is not None:
        alternatives = [Alternative(each.walltime or 0, each.groups) for each in admitted.requests]
        new_jobs.replace_requests(tx, job.id, alternatives)
    if changes.dependencies is not None:
        new_jobs.replace_dependencies(tx, job.id, _dependencies(tx, job, admitted))


def _dependencies(tx: "Transaction", job: Job, admitted: Proposal) -> tuple[Dependency, ...]:
    if submission_checks.parse_array_dependencies(admitted.dependencies):
        raise BadRequest("a dependency on an array, index by index, is for submissions: name the job.")
    found = submission_checks.parse_dependencies(admitted.dependencies)
    known = tx.jobs.states([each.required for each in found])
    for each in found:
        if each.required not in known:
            raise BadRequest(f"dependency on unknown job {each.required}.")
        if each.required == job.id:
            raise BadRequest("a job cannot depend on itself.")
    return found

"""Submit a proposal: admit it and insert its jobs in one transaction.

The jobs are inserted in their first real state; a rejected submission stores only an event.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oar.lib.base.errors import DatabaseUnavailable, Refused
from oar.lib.bus.messages import Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.lock_keys import USER_LOCK_CLASS
from oar.lib.history.event_types import EventType, refusal_prefix
from oar.lib.jobs.output_names import default_file_name
from oar.lib.jobs.records import JobSpec
from oar.lib.jobs.script_names import script_name
from oar.lib.jobs.states import JobLetter, JobState, JobType, JobTypeName, Reservation, job_letter
from oar.lib.submission import dependencies, job_keys, reservation_entry
from oar.lib.submission.admission import Admission, admit
from oar.lib.submission.admission_rules import RuleFailed, RuleOutput
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.feasibility import asker_of, open_cluster
from oar.lib.submission.job_keys import KeyPair
from oar.lib.submission.preparation import Proposal, growth
from oar.lib.submission.resource_request import GROWING, JobTypes, format_job_message
from oar.lib.submission.sql_new_jobs import JobBatch, NewAlternative, NewJob

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction
    from oar.lib.submission.feasibility import Cluster


#: Events of rejections of each type in a minute, and characters of each, at most: a program may submit without end.
REFUSALS_OF_A_MINUTE, LONGEST_REFUSAL, LONGEST_TRACE = 100, 1000, 4000


class Submitted(NamedTuple):
    ids: tuple[int, ...]
    output: RuleOutput
    warnings: tuple[str, ...]
    keys: Mapping[int, KeyPair]  #: by job; empty if no keys are asked for


class Companion(Protocol):
    """Runs additional steps in the transaction of a submission."""

    def begin(self, tx: "Transaction") -> None:
        """Run at the start of the transaction."""

    def end(self, tx: "Transaction", submitted: Submitted) -> None:
        """Run after the jobs are inserted."""


def submit(
    database: "Database", config: Config, proposal: Proposal, *, companion: Companion | None = None
) -> Submitted:
    """Admit a proposal and insert its jobs; after the commit, wake the server unless the jobs are on hold.

    ``companion``: runs additional steps in the transaction.
    Raises BadSubmission, RuleRefused, RuleFailed, DatabaseUnavailable.
    """
    try:
        return _submit(database, config, proposal, companion)
    except (BadSubmission, Refused) as refusal:
        with suppress(DatabaseUnavailable):
            _store_refusal(database, proposal.spec.user, refusal)
        raise


def _store_refusal(database: "Database", user: str, refusal: Exception) -> None:
    """Store the rejection as an event, and the failure of a rule as another, at most once a minute for each rule."""
    text = "; ".join(line.strip("# ") for line in str(refusal).splitlines())
    is_by_user = isinstance(refusal, BadSubmission) and not refusal.is_by_rule
    type_ = EventType.SUBMISSION_INVALID if is_by_user else EventType.SUBMISSION_REFUSED
    with database.begin() as tx:
        if tx.events.number_since(type_, tx.now - 60) < REFUSALS_OF_A_MINUTE:
            tx.events.add(type_, 0, f"{refusal_prefix(user)}{text[:LONGEST_REFUSAL]}")
        if isinstance(refusal, RuleFailed):
            rule = refusal.trace.partition(":")[0]
            latest = tx.events.of_types(0, [EventType.ADMISSION_RULE_FAILED], tx.now - 59)
            if not any(event.description.partition(":")[0] == rule for event in latest):
                tx.events.add(EventType.ADMISSION_RULE_FAILED, 0, refusal.trace[:LONGEST_TRACE])


def _submit(database: "Database", config: Config, proposal: Proposal, companion: Companion | None) -> Submitted:
    database.ready()
    with open_cluster(database, asker_of(config, proposal.spec.user)) as cluster, database.begin() as tx:
        if companion:
            companion.begin(tx)
        admission = admit(tx, database, cluster, config, proposal)
        limits, said = tx.submission_checks.submission_limits(config.quotas_conf_file), list[str]()
        if limits.has_budgets:
            from oar.lib.submission import budget_checks

            admission, said = budget_checks.limited(
                tx, database, cluster, config, proposal=proposal, admitted=admission
            )
        proposal, spec = admission.proposal, admission.proposal.spec
        keys = _keys(tx, proposal)
        new = _new_jobs(tx, config, admission)
        never = _quota_warnings(tx, cluster, config, admission, limits.quota_file)
        check_waiting_jobs(tx, limits.quota_file, spec, admission.seconds)
        check_stored_bytes(tx, config, spec.user, spec.stored_env, spec.array_size)
        warnings = (
            *proposal.warnings,
            *said,
            *_check_cpuset(tx, spec),
            *_container_warnings(tx, admission),
            *never,
            *dependencies.warnings(tx, spec),
        )
        ids = tx.new_jobs.insert(new, job_keys.with_challenges(keys, spec.array_size))
        if admission.reservation:
            reservation_entry.enter(tx, admission.reservation, ids)
        if GROWING in spec.types:
            tx.job_requests.request_walltimes(ids, growth(proposal, config))
        if proposal.project_by_rule:
            text = f"a rule chose the project {spec.project}, which {spec.user} may not choose"
            tx.events.add(EventType.PROJECT_BY_RULE, ids[0], text)
        if config.oarsub_store_adm_rules_outputs:
            output = {
                EventType.ADM_RULES_MSG_OUT: admission.output.out,
                EventType.ADM_RULES_MSG_ERR: admission.output.err,
            }
            for event, text in output.items():
                if text:
                    tx.events.add(event, ids[0], text)
        if not spec.hold:  # jobs on hold are not planned
            tx.outbox.append(Wake(Tag.QSUB_INTERACTIVE if proposal.is_interactive else Tag.QSUB))
        by_job = dict(zip(ids, keys, strict=True)) if keys else {}
        submitted = Submitted(tuple(ids), admission.output, warnings, by_job)
        if companion:
            companion.end(tx, submitted)
    return submitted


def check_limits(
    tx: "Transaction", config: Config, spec: JobSpec, seconds: int, *, is_accounted: bool = True, replaced_job: int = 0
) -> None:
    """Raise BadSubmission if a budget is used up, or more jobs would wait than the site allows.

    ``seconds``: resource seconds that the job requests.  ``is_accounted``: false if accounting counts its container or
    advance reservation instead.  ``replaced_job``: a waiting job that it replaces.
    """
    limits = tx.submission_checks.submission_limits(config.quotas_conf_file)
    if limits.has_budgets:
        from oar.lib.submission import budget_checks

        budget_checks.check(tx, config, spec, seconds, is_accounted=is_accounted, replaced_job=replaced_job)
    check_waiting_jobs(tx, limits.quota_file, spec, seconds, but=replaced_job)


def check_waiting_jobs(tx: "Transaction", quota_file: str | None, spec: JobSpec, seconds: int, *, but: int = 0) -> None:
    """Raise BadSubmission if more jobs would wait than the site allows.

    ``quota_file``: its text.  ``seconds``: resource seconds that each job requests.  ``but``: a waiting job that the
    new one replaces.
    """
    if quota_file is None:
        return
    from oar.lib.accounts import waiting_limits
    from oar.lib.accounts.waiting_limits import NewJobs, TooManyWaiting

    number = spec.array_size
    new = NewJobs(spec.queue, spec.project, spec.user, JobTypes(spec.types).names, number, number * seconds)
    try:
        waiting_limits.check(tx, quota_file, new, but=but)
    except TooManyWaiting as error:
        raise BadSubmission(Code.REQUEST, str(error), verify=False) from None


def check_stored_bytes(tx: "Transaction", config: Config, user: str, env: str | None, jobs: int) -> None:
    """Raise BadSubmission if the scripts and variables of the user's live jobs would exceed the limit."""
    size, limit = len((env or "").encode()) * jobs, config.max_kept_bytes_per_user
    if not size:
        return
    tx.system.take_named_lock(USER_LOCK_CLASS, user)
    stored = tx.submission_checks.kept_bytes(user)
    if stored + size > limit:
        raise BadSubmission(
            Code.REQUEST,
            f"the live jobs of {user} hold {stored} bytes of scripts and variables, {size} more would exceed the limit"
            f" of {limit}: wait until jobs have ended, or submit without --spool and --env.",
        )


def _keys(tx: "Transaction", proposal: Proposal) -> list[KeyPair]:
    """Return the key pair of each job; none without job keys."""
    imported, array_size = proposal.imported_key, proposal.spec.array_size
    if imported is None:
        return [job_keys.generate() for _ in range(array_size)] if proposal.use_job_key else []
    if array_size > 1:
        raise BadSubmission(Code.REQUEST, "a job key cannot be imported for an array job.")
    pair = job_keys.read(imported.private, imported.public)
    if tx.access.is_key_in_use(pair.public, proposal.spec.user):
        raise BadSubmission(Code.REQUEST, "Another job is using the same ssh keys", prefix="/!\\ ")
    return [pair]


def _check_cpuset(tx: "Transaction", spec: JobSpec) -> list[str]:
    """Reject a cpuset name that could belong to another user; return warnings."""
    name = spec.cpuset_name
    if name is None:
        return []
    from oar.lib.access import name_service

    for match in re.finditer("_", name):
        try:
            name_service.account(f"{spec.user}_{name[: match.start()]}")
        except KeyError:
            continue
        raise BadSubmission(Code.REQUEST, f'invalid cpuset name "{name}".')
    cpuset = f"{spec.user}_{name}"
    jobs = tx.submission_checks.jobs_of_cpuset(cpuset)
    return [f"cpuset name {cpuset} is used by job {jobs[0]}."] if jobs else []


def _quota_warnings(
    tx: "Transaction", cluster: "Cluster", config: Config, admission: Admission, quota_file: str | None
) -> list[str]:
    if not quota_file:
        return []
    from oar.lib.submission import quota_warnings

    return quota_warnings.warnings(tx, cluster, config, admission, quota_file)


def _container_warnings(tx: "Transaction", admission: Admission) -> list[str]:
    """Return a warning if the container is too small for the job; the job is accepted and waits."""
    reference = JobTypes(admission.proposal.spec.types).value(JobTypeName.INNER)
    container = tx.submission_checks.find_container(reference) if reference and not admission.reservation else None
    if container is None:
        return []
    warnings = []
    for group in admission.proposal.requests[0].groups:
        outermost = group.levels[0]
        held = tx.submission_checks.values_in_container(container.id, outermost.property)
        if 0 < held < outermost.quantity:
            warnings.append(f"container job {container.id} holds only {held} {outermost.property}")
    return warnings


# -- rows -------------------------------------------------------------------------------------------------------------


def _new_jobs(tx: "Transaction", config: Config, admission: Admission) -> JobBatch:
    """Return the rows of the jobs.  Raises BadSubmission for dependencies on unknown jobs."""
    proposal, spec = admission.proposal, admission.proposal.spec
    has_files = proposal.job_type is JobType.PASSIVE
    by_index = config.array_output_by_index and spec.array_size > 1
    stdout, stderr = (default_file_name(spec.name, stream, by_index=by_index) for stream in ("stdout", "stderr"))
    if config.job_name_by_script and not spec.name and spec.command.strip():
        spec = spec._replace(name=script_name(spec.command) or None)
    first = NewJob(
        spec=spec._replace(
            cpuset_name=f"{spec.user}_{spec.cpuset_name}" if spec.cpuset_name else "",
            properties=proposal.stored_properties,
            stdout_file=(spec.stdout_file or stdout) if has_files else None,
            stderr_file=(spec.stderr_file or stderr) if has_files else None,
        ),
        job_type=proposal.job_type,
        state=JobState.HOLD if spec.hold else JobState.WAITING,
        message=job_message(
            spec,
            letter=job_letter(is_reservation=bool(proposal.start), is_interactive=proposal.is_interactive),
            resources=admission.size,
            walltime=proposal.requests[0].walltime or 0,
        ),
        reservation=Reservation.TO_SCHEDULE if proposal.start else Reservation.NONE,
        start_time=proposal.start,
    )
    return JobBatch(
        first, new_alternatives(admission), dependencies.find(tx, spec), dependencies.find_indexed(tx, spec)
    )


def new_alternatives(admission: Admission) -> list[NewAlternative]:
    """Return the rows of the alternatives of an admitted job."""
    proposal = admission.proposal
    rows = zip(proposal.requests, proposal.default_walltimes, admission.sizes, strict=True)
    return [
        NewAlternative(request.walltime or 0, request.groups, default, size, request.memory)
        for request, default, size in rows
    ]


def job_message(spec: JobSpec, *, letter: JobLetter, resources: int, walltime: int) -> str:
    """Return the first message of a job."""
    return format_job_message(
        resources=resources,
        walltime=walltime,
        letter=letter,
        name=spec.name or "",
        queue=spec.queue,
        project=spec.project,
        types=spec.types,
        array_limit=spec.array_limit or 0,
    )

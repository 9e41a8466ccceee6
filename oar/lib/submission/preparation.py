"""Parse and check submissions before the database is used; the order of the errors is documented."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oar.lib.base.errors import BadCondition, BadRequest
from oar.lib.config.files import Config
from oar.lib.jobs.records import JobSpec
from oar.lib.jobs.states import JobType
from oar.lib.submission import checks, dependencies, job_environment
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.proposal import Proposal, Submission
from oar.lib.submission.resource_request import GROWING, ResourceRequest

if TYPE_CHECKING:
    from oar.lib.submission.reservation_dates import ReservationDates

#: A start that is over for longer than this was probably meant for another day.
LATE_SECONDS = 60


def prepare(submission: Submission, config: Config, now: int) -> Proposal:
    """Return the parsed and completed submission.  Raises BadSubmission."""
    spec = submission.spec
    checks.check_modes(submission)
    requests = checks.parse_requests(submission.requests, config)
    checks.check_array(submission, config.max_array_size)
    if submission.advance_reservation is not None:
        checks.check_advance_reservation(submission.advance_reservation)
    dates = _dates(submission.reservation, now)
    warnings = [*_array_warnings(spec), *_date_warnings(dates, requests), *_notify_warnings(spec.notify, config)]
    if dates is not None and dates.walltime is not None:
        requests = tuple(request._replace(walltime=request.walltime or dates.walltime) for request in requests)
    proposal = Proposal(
        spec=spec._replace(
            array_size=checks.array_size(spec),
            properties=_properties(submission),
            types=_types(spec.types, requests),
            checkpoint_signal=checks.parse_signal(submission.signal) if submission.signal else config.signal,
        ),
        job_type=JobType.INTERACTIVE if _has_no_command(submission) else JobType.PASSIVE,
        requests=requests,
        is_interactive=submission.is_interactive,
        start=dates.start if dates else 0,
        use_job_key=config.oarsub_force_job_key,
        nodes=(*submission.nodes, *submission.excluded),
        verbosity=submission.verbosity,
        advance_reservation=submission.advance_reservation or "",
        verifies=submission.verifies,
        warnings=tuple(warnings),
    )
    check(proposal.spec)
    checks.check_storable("submission line", spec.initial_request)
    checks.check_cpuset_name(spec.cpuset_name, proposal.spec.array_size)
    return proposal


def check(spec: JobSpec) -> None:
    """Raise BadSubmission if a value is invalid for any job.

    It is called again for the values that the admission rules set.
    """
    checks.check_account(spec.user)
    checks.check_notify(spec.notify)
    checks.check_file_names(spec.stdout_file, spec.stderr_file)
    for command in spec.commands:
        checks.check_command(command)
    checks.check_text("job name", spec.name, checks.LONGEST_NAME)
    checks.check_text("queue name", spec.queue, checks.LONGEST_NAME)
    checks.check_text("project", spec.project)
    for text in spec.types:
        checks.check_text("job type", text, checks.LONGEST_TYPE)
    checks.check_storable("working directory", spec.launching_directory)
    dependencies.parse(spec.dependencies)
    checks.check_checkpoint(spec.checkpoint, spec.checkpoint_signal)
    try:
        job_environment.check(spec.env, spec.array_size)
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, str(error)) from None


def _dates(reservation: str | None, now: int) -> "ReservationDates | None":
    if reservation is None:
        return None
    from oar.lib.submission import reservation_dates

    return reservation_dates.parse(reservation, now)


def _has_no_command(submission: Submission) -> bool:
    """Return whether no command runs until the user connects; this includes a reservation without command."""
    is_reservation = submission.reservation is not None
    return submission.is_interactive or (is_reservation and not submission.spec.command.strip())


def _types(types: tuple[str, ...], requests: Sequence[ResourceRequest]) -> tuple[str, ...]:
    """Return the types; add the type of a growing job if a request has ``walltime=best``."""
    grows = any(request.grows for request in requests) and GROWING not in types
    return (*types, GROWING) if grows else types


def _properties(submission: Submission) -> str | None:
    """Return the condition on resources, joined with the condition on nodes.  Raises BadSubmission."""
    properties = submission.spec.properties
    on_nodes = checks.condition_on_nodes(submission.nodes, submission.excluded)
    if on_nodes and properties:
        _check_whole(properties)
        return f"({properties}) AND {on_nodes}"
    return properties or on_nodes or None


def _check_whole(condition: str) -> None:
    """Raise BadSubmission if parentheses around the condition would change its meaning."""
    from oar.lib.conditions.tokens import check_alone

    try:
        check_alone(condition)
    except BadCondition as error:
        raise BadSubmission(Code.REQUEST, str(error)) from None


# -- warnings ---------------------------------------------------------------------------------------------------------


def _array_warnings(spec: JobSpec) -> list[str]:
    if spec.parameters is None or spec.array_size in (0, 1, len(spec.parameters)):
        return []
    return [f"--array {spec.array_size} is ignored: the parameter file has {len(spec.parameters)} lines."]


def _notify_warnings(notify: str | None, config: Config) -> list[str]:
    """Return a warning if mails cannot be delivered; the syntax of the subscription is checked elsewhere."""
    is_mail = re.match(r"(?i)\s*(\[[^\]]*\]\s*)?mail\s*:", notify or "")
    return mail_warnings("--notify mail", config) if is_mail else []


def mail_warnings(what: str, config: Config) -> list[str]:
    """Return a warning if the site sends no mails; ``what``: the option that requests mails."""
    if config.mail_smtp_server and config.mail_sender:
        return []
    return [f"no mail server is configured (MAIL_SMTP_SERVER, MAIL_SENDER): {what} will reach nobody."]


def _date_warnings(dates: "ReservationDates | None", requests: Sequence[ResourceRequest]) -> list[str]:
    warnings = []
    if dates is not None and dates.late > LATE_SECONDS:
        from oar.lib.base.times import format_date

        start = format_date(dates.start - dates.late)
        warnings.append(f"the start date {start} is in the past: the reservation starts now.")
    if dates is not None and any(_differ(dates.walltime, request.walltime) for request in requests):
        warnings.append("ignore reservation end date because walltime is set in resource description.")
    return warnings


def _differ(first: int | None, second: int | None) -> bool:
    """Return whether two walltimes contradict each other; 1 s is tolerated, since a computed end may be rounded."""
    return first is not None and second is not None and abs(first - second) > 1

"""Parse and check submissions before the database is used; the order of the errors is documented.

``prepare`` makes the proposal, which the admission rules may change; ``check_spec`` and ``check_types`` check what the
rules left.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.errors import BadCondition, BadRequest
from oar.lib.base.times import format_date, is_age, parse_date
from oar.lib.config.files import Config
from oar.lib.jobs.records import JobSpec
from oar.lib.jobs.states import JobType, JobTypeName
from oar.lib.submission import app_jobs, checks, dependencies, job_environment
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.job_keys import ImportedKey
from oar.lib.submission.options import ACCEPT, JobOptions
from oar.lib.submission.resource_request import GROWING, JobTypes, ResourceRequest, parse_token, parse_type

if TYPE_CHECKING:
    from oar.lib.submission.job_reservation import ReservationDates

MOST_VERBOSE = 2
#: A start that is over for longer than this was probably meant for another day.
LATE_SECONDS = 60
#: Types whose value is a date.
_DATED = (JobTypeName.POSTPONE, JobTypeName.DEADLINE, JobTypeName.EXPIRE)


class Proposal(NamedTuple):
    """A parsed submission, which the admission rules may change."""

    spec: JobSpec
    job_type: JobType
    requests: tuple[ResourceRequest, ...]
    default_walltimes: tuple[int, ...] = ()  #: of each request that of the site, if none was asked for; 0 = one was
    is_interactive: bool = False  #: a session follows; not so for a reservation without command
    start: int = 0  #: date of a reservation, 0 = none
    use_job_key: bool = False
    imported_key: ImportedKey | None = None
    nodes: tuple[str, ...] = ()  #: nodes that the user has named
    later_properties: str = ""  #: a condition for the scheduler that does not count for whether the job can ever run
    verbosity: int = 0  #: 0 to 2
    warnings: tuple[str, ...] = ()
    is_advance_reservation: bool = False  #: no job, but a request for an advance reservation
    asked_reservation: Mapping[str, object] | None = None  #: what rules see of that request
    advance_reservation: str = ""  #: number or name of the one that the job is for; '' = none
    checks_project: bool = True  #: refuse a project that the user may not use
    project_by_rule: bool = False  #: a rule chose the project, and the user could not
    verifies: bool = True  #: refuse a job that can never run in its advance reservation

    def conditions_of_user(self, amended: ResourceRequest, number: int) -> list[str]:
        """Return the condition of each group of a request as the user wrote it; for the proposal before the rules.

        ``amended``, ``number``: the request after the rules, and its index.  If the rules changed its groups, the
        common condition is returned for each group.
        """
        properties = self.spec.properties
        groups = self.requests[number].groups if number < len(self.requests) else ()
        if len(groups) != len(amended.groups):
            return [properties or "" for _ in amended.groups]
        return [" AND ".join(part for part in (properties, group.filter) if part) for group in groups]

    @property
    def stored_properties(self) -> str:
        """The condition on resources that the scheduler uses."""
        conditions = [condition for condition in (self.spec.properties, self.later_properties) if condition]
        return " AND ".join(f"({part})" for part in conditions) if len(conditions) > 1 else "".join(conditions)

    @property
    def shortest_walltime(self) -> int:
        """The shortest walltime of the alternatives after the rules, in seconds."""
        return min(request.walltime or 0 for request in self.requests)


def prepare(options: JobOptions, spec: JobSpec, config: Config, now: int) -> Proposal:
    """Return the parsed and completed submission; ``spec``: made of the options.  Raises BadSubmission."""
    spec = app_jobs.with_app(options, spec, config)
    checks.check_modes(options, spec)
    checks.check_alternatives(options.requests, config.max_alternatives)
    requests = checks.parse_requests(options.requests, config, checks.parse_memory_options(options, config))
    checks.check_array(options, spec, config.max_array_size)
    if options.advance_reservation is not None:
        checks.check_advance_reservation(options.advance_reservation)
    dates = _dates(options.reservation, now)
    warnings = [*_array_warnings(spec), *_date_warnings(dates, requests), *_notify_warnings(spec.notify, config)]
    if dates is not None and dates.walltime is not None:
        requests = tuple(request._replace(walltime=request.walltime or dates.walltime) for request in requests)
    grows = any(request.grows for request in requests) and GROWING not in spec.types
    nodes, excluded = _node_names(options.nodelist), _node_names(options.exclude)
    is_shell_only = options.reservation is not None and not spec.command.strip()  # a session may be opened later
    proposal = Proposal(
        spec=spec._replace(
            array_size=checks.array_size(spec),
            properties=_properties(spec.properties, nodes, excluded),
            types=(*_dated_types(spec.types, now), *((GROWING,) if grows else ())),
            checkpoint_signal=checks.parse_signal(options.signal) if options.signal else config.signal,
        ),
        job_type=JobType.INTERACTIVE if options.interactive or is_shell_only else JobType.PASSIVE,
        requests=requests,
        is_interactive=options.interactive,
        start=dates.start if dates else 0,
        use_job_key=config.oarsub_force_job_key,
        nodes=(*nodes, *excluded),
        verbosity=min(options.verbosity, MOST_VERBOSE),
        advance_reservation=options.advance_reservation or "",
        verifies=options.verify != ACCEPT,
        warnings=tuple(warnings),
    )
    check_spec(proposal.spec)
    checks.check_storable("submission line", spec.initial_request)
    checks.check_cpuset_name(spec.cpuset_name, proposal.spec.array_size)
    return proposal


def check_spec(spec: JobSpec) -> None:
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
    from oar.lib.submission import job_reservation

    return job_reservation.parse(reservation, now)


def _dated_types(types: Iterable[str], now: int) -> Iterator[str]:
    """Yield the types of a job; a date that depends on the present one is completed, since it is read later."""
    for text in types:
        name, value = parse_type(text)
        yield text if name not in _DATED or not value else text.replace(value, _full_date(value, now))


def _full_date(text: str, now: int) -> str:
    """Return a date that can be read later; an invalid one unchanged."""
    with suppress(BadRequest):
        parse_date(text)
        return text
    if is_age(text):
        raise BadSubmission(Code.REQUEST, f"the date {text} of a type is in the past: {text} from now is +{text}.")
    with suppress(BadRequest):
        return format_date(parse_date(text, now))
    return text


def _node_names(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.strip().removesuffix(",").split(","))


def _properties(condition: str | None, nodes: Sequence[str], excluded: Sequence[str]) -> str | None:
    """Return the condition on resources, joined with the condition on nodes.  Raises BadSubmission."""
    on_nodes = checks.condition_on_nodes(nodes, excluded)
    if not (on_nodes and condition):
        return condition or on_nodes or None
    from oar.lib.conditions.tokens import check_alone

    try:
        check_alone(condition)  # parentheses around it must not change its meaning
    except BadCondition as error:
        raise BadSubmission(Code.REQUEST, str(error)) from None
    return f"({condition}) AND {on_nodes}"


# -- warnings ---------------------------------------------------------------------------------------------------------


def _array_warnings(spec: JobSpec) -> list[str]:
    if spec.parameters is None or spec.array_size in (0, 1, len(spec.parameters)):
        return []
    return [f"--array {spec.array_size} is ignored: the parameter file has {len(spec.parameters)} lines."]


def _notify_warnings(notify: str | None, config: Config) -> list[str]:
    """Return a warning if mails cannot be delivered; the syntax of the subscription is checked elsewhere."""
    is_mail = re.match(r"(?i)\s*(\[[^\]]*\]\s*)?mail\s*:", notify or "")
    return mail_warnings("--notify mail", config) if is_mail else []


def mail_warnings(option: str, config: Config) -> list[str]:
    """Return a warning if the site sends no mails; ``option``: the one that requests mails."""
    if config.mail_smtp_server and config.mail_sender:
        return []
    return [f"no mail server is configured (MAIL_SMTP_SERVER, MAIL_SENDER): no mail is sent ({option})."]


def _date_warnings(dates: "ReservationDates | None", requests: Sequence[ResourceRequest]) -> Iterator[str]:
    if dates is not None and dates.late > LATE_SECONDS:
        start = format_date(dates.start - dates.late)
        yield f"the start date {start} is in the past: the reservation starts now."
    end = dates.walltime if dates is not None else None
    # 1 s of difference is tolerated, since a computed end may be rounded
    if end is not None and any(request.walltime and abs(end - request.walltime) > 1 for request in requests):
        yield "ignore reservation end date because walltime is set in resource description."


# -- types, after the rules, which decide which types are allowed -----------------------------------------------------


def check_types(proposal: Proposal, config: Config, now: int) -> tuple[str, ...]:
    """Raise BadSubmission if a type is invalid; return warnings about types that have no effect."""
    types = JobTypes(proposal.spec.types)
    if GROWING in proposal.spec.types:
        growth(proposal, config)
    for job_type in types:
        if job_type.name in _DATED:
            try:
                parse_date(job_type.value or "")
            except BadRequest as error:
                raise BadSubmission(Code.REQUEST, f"the type {job_type.name} needs a date: {error}") from None
    has_shell = proposal.job_type is JobType.INTERACTIVE
    if JobTypeName.DESKTOP_COMPUTING in types and (has_shell or proposal.spec.checkpoint):
        from oar.lib.history.event_consequences import NOT_FOR_DESKTOPS

        raise BadSubmission(Code.REQUEST, NOT_FOR_DESKTOPS)
    if JobTypeName.DESKTOP_COMPUTING in types:
        _check_directories(config)
    _check_tokens(types, tuple(config.scheduler_token_scripts or ()))
    return tuple(_type_warnings(proposal, types, now))


def _check_directories(config: Config) -> None:
    """Raise BadSubmission if the files of a desktop computing job may be on another server than the active one."""
    if len(config.server_hostnames) > 1 and not config.desktop_computing_shared_directories:
        raise BadSubmission(
            Code.REQUEST,
            "this site has several servers, and they do not share STAGEIN_DIR and STAGEOUT_DIR"
            " (DESKTOP_COMPUTING_SHARED_DIRECTORIES): desktop_computing jobs cannot be submitted.",
        )


def _check_tokens(types: JobTypes, tokens: Sequence[str]) -> None:
    """Raise BadSubmission if no script counts a token: the job would wait forever.  ``tokens``: existing names."""
    for value in types.values(JobTypeName.TOKEN):
        try:
            name, _ = parse_token(value)
        except BadRequest as error:
            raise BadSubmission(Code.REQUEST, str(error)) from None
        if name not in tokens:
            there = f"its tokens are {', '.join(sorted(tokens))}." if tokens else "it has none."
            text = f"this site has no token {checks.quote(name)} (SCHEDULER_TOKEN_SCRIPTS): {there}"
            raise BadSubmission(Code.REQUEST, text)


def growth(proposal: Proposal, config: Config) -> int:
    """Return by how many seconds a job with ``walltime=best`` may grow.  Raises BadSubmission."""
    from oar.lib.jobs import walltime

    try:
        return walltime.growth(config, proposal.spec.queue, proposal.shortest_walltime)
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, f"walltime=best: {error}") from None


def _type_warnings(proposal: Proposal, types: JobTypes, now: int) -> Iterator[str]:
    """Yield warnings about types that have no effect, or that end the job at once."""
    if JobTypeName.NOOP in types and proposal.spec.command.strip():
        yield "a noop job runs nothing: its command is ignored."
    for name, value in types:
        date, shown = parse_date(value or "") if name in _DATED else 0, f"{name}={value}"
        if name == JobTypeName.POSTPONE and date <= now:
            yield f"the date of the type {shown} is in the past: it has no effect."
        elif name == JobTypeName.EXPIRE and date <= now:
            yield f"the date of the type {shown} is in the past: the job will go to Error."
        elif name == JobTypeName.DEADLINE and date < now + proposal.shortest_walltime:
            yield f"the job cannot end before the date of the type {shown}: it will go to Error."
    if JobTypeName.AR in types and not proposal.start:
        yield "the type ar=hard is for reservations (-r): it has no effect."
    if JobTypeName.CONTAINER_USERS in types and JobTypeName.CONTAINER not in types:
        yield "the type container_users is for containers (-t container): it has no effect."
    for other in (JobTypeName.CONTAINER, JobTypeName.PLACEHOLDER):
        if JobTypeName.TIMESHARING in types and other in types:
            yield f"the type timesharing has no effect together with {other}."

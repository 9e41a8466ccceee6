"""Checks of job types: invalid dates, dates in the past, types without effect.

The admission rules decide which types are allowed; this module checks the types after the rules.
"""

from collections.abc import Iterator, Sequence

from oar.lib.base.errors import BadRequest
from oar.lib.base.times import parse_date
from oar.lib.config.files import Config
from oar.lib.history.event_consequences import NOT_FOR_DESKTOPS
from oar.lib.jobs.states import JobType, JobTypeName
from oar.lib.submission import checks
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.proposal import Proposal
from oar.lib.submission.resource_request import GROWING, JobTypes, parse_token

#: Types whose value is a date.
DATED = (JobTypeName.POSTPONE, JobTypeName.DEADLINE, JobTypeName.EXPIRE)
_EXCLUDE_TIMESHARING = (JobTypeName.CONTAINER, JobTypeName.PLACEHOLDER)


def check(proposal: Proposal, config: Config, now: int) -> tuple[str, ...]:
    """Raise BadSubmission if a type is invalid; return warnings about the other types."""
    types = JobTypes(proposal.spec.types)
    if GROWING in proposal.spec.types:
        growth(proposal, config)
    for job_type in types:
        if job_type.name in DATED:
            try:
                parse_date(job_type.value or "")
            except BadRequest as error:
                raise BadSubmission(Code.REQUEST, f"the type {job_type.name} needs a date: {error}") from None
    _check_fetched(proposal, types)
    _check_tokens(types, tuple(config.scheduler_token_scripts or ()))
    return tuple(_warnings(proposal, types, now))


def _check_fetched(proposal: Proposal, types: JobTypes) -> None:
    """Raise BadSubmission if a desktop computing job needs a connection to its computer."""
    has_shell = proposal.job_type is JobType.INTERACTIVE
    if JobTypeName.DESKTOP_COMPUTING in types and (has_shell or proposal.spec.checkpoint):
        raise BadSubmission(Code.REQUEST, NOT_FOR_DESKTOPS)


def _check_tokens(types: JobTypes, known: Sequence[str]) -> None:
    """Raise BadSubmission if no script counts a token: the job would wait forever.  ``known``: existing token names."""
    for value in types.values(JobTypeName.TOKEN):
        try:
            name, _ = parse_token(value)
        except BadRequest as error:
            raise BadSubmission(Code.REQUEST, str(error)) from None
        if name not in known:
            there = f"its tokens are {', '.join(sorted(known))}." if known else "it has none."
            text = f"this site has no token {checks.quote(name)} (SCHEDULER_TOKEN_SCRIPTS): {there}"
            raise BadSubmission(Code.REQUEST, text)


def growth(proposal: Proposal, config: Config) -> int:
    """Return by how many seconds a job with ``walltime=best`` may grow.  Raises BadSubmission."""
    from oar.lib.jobs import walltime

    try:
        return walltime.growth(config, proposal.spec.queue, _shortest_walltime(proposal))
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, f"walltime=best: {error}") from None


def _shortest_walltime(proposal: Proposal) -> int:
    return min(request.walltime or 0 for request in proposal.requests)


def _warnings(proposal: Proposal, types: JobTypes, now: int) -> Iterator[str]:
    """Yield warnings about types that have no effect, or that end the job at once."""
    if JobTypeName.NOOP in types and proposal.spec.command.strip():
        yield "a noop job runs nothing: its command is ignored."
    yield from _date_warnings(types, _shortest_walltime(proposal), now)
    if JobTypeName.AR in types and not proposal.start:
        yield "the type ar=hard is for reservations (-r): it has no effect."
    if JobTypeName.CONTAINER_USERS in types and JobTypeName.CONTAINER not in types:
        yield "the type container_users is for containers (-t container): it has no effect."
    for other in _EXCLUDE_TIMESHARING:
        if JobTypeName.TIMESHARING in types and other in types:
            yield f"the type timesharing has no effect beside {other}."


def _date_warnings(types: JobTypes, walltime: int, now: int) -> Iterator[str]:
    for name, value in types:
        if name not in DATED:
            continue
        date, shown = parse_date(value or ""), f"{name}={value}"
        if name == JobTypeName.POSTPONE and date <= now:
            yield f"the date of the type {shown} is in the past: it has no effect."
        elif name == JobTypeName.EXPIRE and date <= now:
            yield f"the date of the type {shown} is in the past: the job will go to Error."
        elif name == JobTypeName.DEADLINE and date < now + walltime:
            yield f"the job cannot end before the date of the type {shown}: it will go to Error."

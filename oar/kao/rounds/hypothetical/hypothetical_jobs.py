"""The jobs of a trial submission, as database rows.  Pure."""

from collections.abc import Iterable, Sequence

from oar.kao.rounds.reading.situation import HypotheticalJob
from oar.lib.jobs.records import Dependency
from oar.lib.jobs.states import JobState, JobType, Reservation
from oar.lib.planning.sql_rounds import GroupRow, JobRow, MoldableRow
from oar.lib.submission.proposal import Proposal

#: Alternatives of hypothetical jobs are numbered from here; no real one is.
_FIRST_ALTERNATIVE = 2**61
#: No job has so many.
_MOST_ALTERNATIVES = 2**16


def hypothetical_jobs(
    proposal: Proposal, first: int, dependencies: Iterable[Sequence[Dependency]], now: int
) -> list[HypotheticalJob]:
    """Return the jobs of a proposal; ``first``: the id of the first one, ``dependencies``: those of each job."""
    return [_job(proposal, first, index, own, now) for index, own in enumerate(dependencies)]


def _job(proposal: Proposal, first: int, index: int, dependencies: Sequence[Dependency], now: int) -> HypotheticalJob:
    """Return one job; ``first``: the id of the first job of its array, ``index``: its index in the array, from 0."""
    spec, number = proposal.spec, first + index
    row = JobRow(
        id=number,
        queue=spec.queue,
        user=spec.user,
        project=spec.project,
        name=spec.name or "",
        state=JobState.WAITING,
        reservation=Reservation.TO_SCHEDULE if proposal.start else Reservation.NONE,
        is_interactive=proposal.job_type is JobType.INTERACTIVE,
        array_id=first,
        array_limit=spec.array_limit or 0,
        properties=proposal.stored_properties,
        submission_time=now,
        start_time=proposal.start,
        checkpoint=spec.checkpoint,
    )
    moldables = tuple(
        MoldableRow(
            _FIRST_ALTERNATIVE + number * _MOST_ALTERNATIVES + choice,
            number,
            request.walltime or 0,
            tuple(GroupRow(group.filter, group.levels) for group in request.groups),
            proposal.default_walltimes[choice],
        )
        for choice, request in enumerate(proposal.requests)
    )
    own_dependencies = tuple(dependency._replace(job_id=number) for dependency in dependencies)
    return HypotheticalJob(row, spec.types, moldables, own_dependencies)

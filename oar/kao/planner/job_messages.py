"""The messages of jobs (``jobs.message``): size, walltime and types, with karma and reason as remarks."""

from collections.abc import Iterable

from oar.kao.facts.snapshot import WaitingJob
from oar.kao.facts.steps import Steps, portions
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.lib.jobs.states import Reservation, job_letter
from oar.lib.submission.resource_request import format_job_message


class JobMessages:
    """Builds the messages of waiting jobs from the decisions of a round."""

    def __init__(self, context: RoundContext, memory: RoundMemory | None) -> None:
        """``memory``: of the last round, if it can be compared with this one; None otherwise."""
        self._decisions = context.decisions
        self._requests = context.requests
        self._present = context.usable.present
        self._memory = memory

    def of(self, jobs: Iterable[WaitingJob]) -> Steps[dict[int, str]]:
        """Return the message of each job by its id; jobs that are refused or expired get none."""
        decisions = self._decisions
        answered = {answer.job_id for answer in (*decisions.refused, *decisions.expired)}
        messages: dict[int, str] = {}
        for portion in portions(job for job in jobs if job.id not in answered):
            yield
            for job in portion:
                messages[job.id] = decisions.messages.get(job.id) or self._last_message(job) or self._message(job)
        return messages

    def _last_message(self, job: WaitingJob) -> str:
        """Return the message of the last round if its content has not changed; return '' otherwise."""
        last, decisions, job_id = self._memory, self._decisions, job.id
        if last is None or last.jobs.get(job_id) is not job:
            return ""
        is_same = (
            last.placements.get(job_id) is decisions.placements.get(job_id)
            and last.reasons.get(job_id) == decisions.reasons.get(job_id)
            and last.karma.get(job_id) == decisions.karma.get(job_id)
        )
        return last.messages.get(job_id, "") if is_same else ""

    def _message(self, job: WaitingJob) -> str:
        placement, reason = self._decisions.placements.get(job.id), self._decisions.reasons.get(job.id)
        remarks = [f"Karma={self._decisions.karma[job.id]:.3f}"] if job.id in self._decisions.karma else []
        if reason:
            remarks.append(reason.text.partition("\n")[0])
        first_walltime = job.alternatives[0].walltime if job.alternatives else 0
        is_reservation = job.reservation is not Reservation.NONE
        return format_job_message(
            resources=placement.resources.bit_count() if placement else self._requests.size(job, self._present),
            walltime=placement.walltime if placement else first_walltime,
            letter=job_letter(is_reservation=is_reservation, is_interactive=job.is_interactive),
            name=job.name,
            queue=job.queue,
            project=job.project,
            types=job.types,
            array_limit=job.array_limit,
            remark=",".join(remarks),
        )

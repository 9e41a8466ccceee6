"""Job arrays: the state of each job as a letter, and totals."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request

from oar.api.parameters import JobId
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking
from oar.lib.base.errors import NoSuchJob
from oar.lib.history.gantt import ranges
from oar.lib.jobs.states import JobState

if TYPE_CHECKING:
    from oar.lib.jobs.sql_jobs import ArrayMember

router = APIRouter(tags=["jobs"], route_class=ApiRoute)


class MemberCondition(StrEnum):
    """The condition of a job of an array: its state, or the result of an ended job."""

    WAITING = "waiting"
    HOLD = "hold"
    LAUNCHING = "launching"
    RUNNING = "running"
    SUSPENDED = "suspended"
    GOOD = "good"  #: it ended with exit code 0
    BAD = "bad"  #: it ended with another one
    ERROR = "error"


#: The letter of each condition.
LETTERS = {
    MemberCondition.WAITING: "w",
    MemberCondition.HOLD: "h",
    MemberCondition.LAUNCHING: "l",
    MemberCondition.RUNNING: "r",
    MemberCondition.SUSPENDED: "s",
    MemberCondition.GOOD: "g",
    MemberCondition.BAD: "b",
    MemberCondition.ERROR: "e",
}
_CONDITIONS = {
    JobState.WAITING: MemberCondition.WAITING,
    JobState.TO_ACK_RESERVATION: MemberCondition.WAITING,
    JobState.HOLD: MemberCondition.HOLD,
    JobState.TO_LAUNCH: MemberCondition.LAUNCHING,
    JobState.LAUNCHING: MemberCondition.LAUNCHING,
    JobState.RUNNING: MemberCondition.RUNNING,
    JobState.FINISHING: MemberCondition.RUNNING,
    JobState.SUSPENDED: MemberCondition.SUSPENDED,
    JobState.RESUMING: MemberCondition.SUSPENDED,
    JobState.TO_ERROR: MemberCondition.ERROR,
    JobState.ERROR: MemberCondition.ERROR,
}


def condition_of(state: JobState, exit_code: int) -> MemberCondition:
    """Return the condition of a job.

    >>> condition_of(JobState.TERMINATED, 256)
    <MemberCondition.BAD: 'bad'>
    """
    if state is JobState.TERMINATED:
        return MemberCondition.BAD if exit_code else MemberCondition.GOOD
    return _CONDITIONS[state]


@router.get("/v1/arrays/{array_id}", operation_id="array", summary="Get a job array")
def get_array(request: Request, array_id: JobId) -> Answer:
    """Return the state of each job of an array, the number of jobs in each state, and statistics of their run times."""
    return answer_unless_known(request, array_record(asking(request), array_id))


def array_record(who: Asking, array_id: int) -> dict[str, object]:
    """Return an array.  Raises NoSuchJob."""
    with who.database.snapshot() as tx:
        members = tx.jobs.array_members(array_id)
        if not members:
            raise NoSuchJob(array_id)
        first = tx.jobs.get(members[0].id)
    conditions = [condition_of(member.state, member.exit_code) for member in members]
    counts = {str(condition): conditions.count(condition) for condition in MemberCondition}
    return {
        "id": array_id,
        "name": first.name,
        "user": first.user,
        "project": first.project,
        "queue": first.queue,
        "submitted": first.submission_time,
        "limit": first.array_limit or None,
        "total": len(members),
        "counts": counts,
        "letters": {letter: str(condition) for condition, letter in LETTERS.items()},
        "jobs": list(ranges([member.id for member in members])),
        "marks": "".join(LETTERS[condition] for condition in conditions),
        **_times(members),
    }


def _times(members: "Sequence[ArrayMember]") -> dict[str, int | None]:
    """Return the start of the first job, the end of the last one, and the run times of ended jobs."""
    ran = sorted(member.stop - member.start for member in members if member.start and member.stop)
    is_over = all(member.stop for member in members)
    return {
        "started": _least(member.start for member in members if member.start),
        "ended": max(member.stop for member in members) if is_over else None,
        "shortest": ran[0] if ran else None,
        "median": ran[len(ran) // 2] if ran else None,
        "longest": ran[-1] if ran else None,
    }


def _least(dates: Iterable[int]) -> int | None:
    return min(dates, default=None)

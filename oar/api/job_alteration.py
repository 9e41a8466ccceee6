"""Changes of waiting jobs, made in a worker: the changed job is checked and admitted as a new one."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request

from oar.api.job_request import JobUpdate
from oar.api.parameters import IfMatch, JobId
from oar.api.records import BulkResults, JobResult
from oar.api.responses import Answer
from oar.api.routing import Router
from oar.api.service import Expected, asking
from oar.api.submission import by_worker
from oar.api.workers import Desk, Outcome, problem_of
from oar.lib.access.records import User
from oar.lib.access.scopes import JobAct
from oar.lib.base.errors import NoSuchJob, UserError
from oar.lib.jobs.states import NOT_STARTED
from oar.lib.submission import alteration
from oar.lib.submission.alteration import JobChanges, Rehearsals

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = Router("jobs")


@router.patch("/v1/jobs/{job_id}", "job_alter", "Update a waiting job", record=JobResult)
def job_alter(request: Request, job_id: JobId, body: JobUpdate, match: IfMatch = None) -> Answer:
    """Update a waiting job, as `oaralter` does, with the checks and admission rules of a new job."""
    user = asking(request).caller.acting(JobAct.ALTER, [job_id])
    return by_worker(request, AlterJob(user, job_id, body.changes, Expected.of(match)))


@router.patch("/v1/arrays/{array_id}", "array_alter", "Update the waiting jobs of an array", record=BulkResults)
def array_alter(request: Request, array_id: JobId, body: JobUpdate) -> Answer:
    """Update each waiting job of an array, as `oaralter --array` does. Return a result for each job."""
    who = asking(request)
    jobs = who.database.look(lambda tx: tx.jobs.of_arrays([array_id]))
    if not jobs:
        raise NoSuchJob(array_id)
    ids = [job.id for job in jobs if job.state in NOT_STARTED]
    user = who.caller.acting(JobAct.ALTER, ids)
    return by_worker(request, AlterArray(user, ids, body.changes), long=True)


class AlterJob(NamedTuple):
    """The task to change a job."""

    user: User
    job_id: int
    changes: JobChanges
    expected: Expected | None = None

    def run(self, desk: Desk) -> Outcome:
        """Change the job.  Raises UserError, Unavailable."""
        alteration.alter(desk.database, desk.config, self.user, self.job_id, self.changes, check=self._check)
        return Outcome(HTTPStatus.OK, {"id": self.job_id, "done": "altered", "warnings": list(desk.warnings)})

    def _check(self, tx: "Transaction") -> None:
        if self.expected:
            self.expected.check_job(tx, self.job_id)


class AlterArray(NamedTuple):
    """The task to change jobs of an array, each on its own; the rules run once for identical jobs."""

    user: User
    ids: Sequence[int]
    changes: JobChanges

    def run(self, desk: Desk) -> Outcome:
        """Change the jobs; return a problem for each that is refused.  Raises Unavailable."""
        rehearsals = Rehearsals(desk.database, desk.config)
        items = [self._item(desk, job_id, rehearsals) for job_id in self.ids]
        return Outcome(HTTPStatus.OK, {"items": items, "warnings": list(desk.warnings)})

    def _item(self, desk: Desk, job_id: int, rehearsals: Rehearsals) -> dict[str, Any]:
        try:
            alteration.alter(desk.database, desk.config, self.user, job_id, self.changes, rehearsals=rehearsals)
        except UserError as error:
            return {"id": job_id, "problem": problem_of(error).record}
        return {"id": job_id, "done": "altered"}

"""When and where jobs would start, in a worker: nothing is submitted."""

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from oar.api.statuses import problem_record
from oar.api.submission import AskedJobs, proposal_of
from oar.api.tasks import Desk, Outcome, problem_of, text_of
from oar.lib.facts.errors import UserError
from oar.lib.facts.records import User
from oar.lib.submission import admission

_TOO_LATE = "the others took all the time (ESTIMATE_TIMEOUT): ask for this one alone"


class EstimateJobs(NamedTuple):
    """The task to tell when each of some alternatives would start."""

    user: User
    alternatives: Sequence[AskedJobs]

    def run(self, desk: Desk) -> Outcome:
        """Estimate each; of one that is refused, or that time is over for, tell so.  Raises Unavailable."""
        deadline = time.monotonic() + desk.config.estimate_timeout
        return Outcome(HTTPStatus.OK, {"items": [self._item(desk, asked, deadline) for asked in self.alternatives]})

    def _item(self, desk: Desk, asked: AskedJobs, deadline: float) -> dict[str, Any]:
        if time.monotonic() > deadline:
            return {"problem": problem_record(HTTPStatus.SERVICE_UNAVAILABLE, "too-late", _TOO_LATE)}
        try:
            return _estimate(desk, self.user, asked)
        except UserError as error:
            return {"problem": problem_of(error).record}


def _estimate(desk: Desk, user: User, asked: AskedJobs) -> dict[str, Any]:
    from oar.kao.rounds.hypothetical import estimates

    admitted = admission.rehearse(desk.database, desk.config, proposal_of(desk, user, asked))
    found = estimates.submissions(desk.database, desk.config, admitted.proposal)
    jobs = [job.record for job in found.jobs]
    return {
        **jobs[0],
        "jobs": jobs if len(jobs) > 1 else [],
        "warnings": [*admitted.proposal.warnings, *found.warnings],
        "output": text_of(admitted.output),
        "initial_request": admitted.proposal.spec.initial_request,
    }

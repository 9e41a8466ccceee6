"""The accounting of jobs that have ended: what oaraccounting does, a piece at a time."""

import time
from http import HTTPStatus
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from oar.api.parameters import LARGEST_ID, STRICT
from oar.api.responses import Answer, answer
from oar.api.routing import ApiRoute
from oar.api.service import administering, asking, note, service_of
from oar.api.workers import Desk, Outcome, answer_of
from oar.lib.facts.errors import BadRequest
from oar.lib.jobs import accounting

router = APIRouter(tags=["administration"], route_class=ApiRoute)

#: Seconds of one request: what is left then is counted by the next one.
SECONDS = 10.0


class AccountingUpdate(BaseModel):
    """Which ended jobs to count."""

    model_config = STRICT

    since: int | None = Field(None, ge=0, le=LARGEST_ID, description="Only jobs that ended since this date.")
    anew: bool = Field(default=False, description="Discard the accounting and count all ended jobs again.")


class CountJobs(NamedTuple):
    """The task to count jobs that have ended."""

    since: int
    anew: bool
    seconds: float = SECONDS

    def run(self, desk: Desk) -> Outcome:
        """Count until all are counted, or the time is over.  Raises AccountingIsRunning, OtherWindowWidth."""
        rules, deadline = accounting.accounting_rules(desk.config), time.monotonic() + self.seconds
        batches = (
            accounting.recount(desk.database, rules)
            if self.anew
            else accounting.count(desk.database, rules, self.since)
        )
        number, windows, is_whole = 0, 0, True
        for batch in batches:
            number, windows = number + len(batch.ids), windows + len(batch.changes)
            if not self.anew and time.monotonic() > deadline:
                batches.close()
                is_whole = False
                break
        return Outcome(HTTPStatus.OK, {"jobs": number, "windows": windows, "complete": is_whole})


@router.post("/v1/accounting", operation_id="accounting_count", summary="Update the accounting of ended jobs")
def accounting_count(request: Request, body: AccountingUpdate | None = None) -> Answer:
    """Add ended jobs to the accounting, as `oaraccounting` does. Administrators only.

    `complete` is false if the request ended before all jobs were counted; repeat it to continue.
    """
    body = body or AccountingUpdate(since=None)
    if body.anew and body.since is not None:
        raise BadRequest("since and anew are exclusive")
    who = asking(request)
    user = who.caller.administering()
    workers, seconds = service_of(request).workers, who.config.api_timeout
    outcome = workers.run_long(CountJobs(body.since or 0, body.anew), seconds)
    note(request, user)
    return answer_of(request, outcome)


@router.delete("/v1/accounting", operation_id="accounting_purge", summary="Purge old accounting data")
def accounting_purge(
    request: Request,
    older_than: Annotated[
        int, Query(ge=0, le=2**40, description="Minimum age of the deleted windows: seconds since their end.")
    ],
) -> Answer:
    """Delete older accounting windows, as `oaraccounting --delete-before` does. Administrators only."""
    with administering(request) as act:
        removed = act.tx.accounting.delete_before(act.tx.now - older_than)
    return answer({"windows": removed})

"""Alterations of jobs that wait, in a worker: the altered job is checked and admitted as a new one."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.api.preconditions import Expected
from oar.api.workers import Desk, Outcome, problem_of
from oar.lib.facts.errors import UserError
from oar.lib.facts.records import User
from oar.lib.submission import alteration
from oar.lib.submission.alteration import JobChanges, Rehearsals

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class AlterJob(NamedTuple):
    """The task to alter a job."""

    user: User
    job_id: int
    changes: JobChanges
    expected: Expected | None = None

    def run(self, desk: Desk) -> Outcome:
        """Alter it.  Raises UserError, Unavailable."""
        alteration.alter(desk.database, desk.config, self.user, self.job_id, self.changes, check=self._check)
        return Outcome(HTTPStatus.OK, {"id": self.job_id, "done": "altered", "warnings": list(desk.warnings)})

    def _check(self, tx: "Transaction") -> None:
        if self.expected:
            self.expected.check_job(tx, self.job_id)


class AlterArray(NamedTuple):
    """The task to alter some jobs of an array, each by itself; the rules run once for those that are alike."""

    user: User
    ids: Sequence[int]
    changes: JobChanges

    def run(self, desk: Desk) -> Outcome:
        """Alter them; of each that is refused, tell why.  Raises Unavailable."""
        rehearsals = Rehearsals(desk.database, desk.config)
        items = [self._item(desk, job_id, rehearsals) for job_id in self.ids]
        return Outcome(HTTPStatus.OK, {"items": items, "warnings": list(desk.warnings)})

    def _item(self, desk: Desk, job_id: int, rehearsals: Rehearsals) -> dict[str, Any]:
        try:
            alteration.alter(desk.database, desk.config, self.user, job_id, self.changes, rehearsals=rehearsals)
        except UserError as error:
            return {"id": job_id, "problem": problem_of(error).record}
        return {"id": job_id, "done": "altered"}

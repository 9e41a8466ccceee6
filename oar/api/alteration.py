"""Alterations of jobs that wait, in a worker: the altered job is checked and admitted as a new one."""

from http import HTTPStatus
from typing import NamedTuple

from oar.api.tasks import Desk, Outcome
from oar.lib.facts.records import User
from oar.lib.submission import alteration
from oar.lib.submission.alteration import JobChanges


class AlterJob(NamedTuple):
    """The task to alter a job."""

    user: User
    job_id: int
    changes: JobChanges

    def run(self, desk: Desk) -> Outcome:
        """Alter it.  Raises UserError, Unavailable."""
        alteration.alter(desk.database, desk.config, self.user, self.job_id, self.changes)
        return Outcome(HTTPStatus.OK, {"id": self.job_id, "done": "altered", "warnings": list(desk.warnings)})

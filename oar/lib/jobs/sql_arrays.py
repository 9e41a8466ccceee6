"""Arrays of jobs as wholes (``tx.arrays``): one statement, few columns, however many jobs an array has."""

from typing import NamedTuple

from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.records import date_of_start
from oar.lib.jobs.states import JobState

_MEMBERS = Prepared("""
    SELECT job_id, state, COALESCE(exit_code, 0), start_time, stop_time, COALESCE(assigned_moldable_job, 0)
    FROM jobs WHERE array_id = %s ORDER BY job_id""")


class ArrayMember(NamedTuple):
    """How a job of an array is."""

    id: int
    state: JobState
    exit_code: int  #: as the system gives it: 256 for ``exit 1``
    start: int  #: epoch seconds, 0: never
    stop: int  #: epoch seconds, 0: not yet


class Arrays(Table):
    """Arrays of jobs."""

    def members(self, array_id: int) -> list[ArrayMember]:
        """Return the jobs of an array by id, copies of resubmitted ones too; a single job is an array of one."""
        return [
            ArrayMember(job_id, JobState(state), exit_code, date_of_start(state, start, stop, moldable), stop)
            for job_id, state, exit_code, start, stop, moldable in self._tx.rows(_MEMBERS, (array_id,))
        ]

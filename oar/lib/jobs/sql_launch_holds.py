"""Holds of launches (``tx.launch_holds``): rows of ``launch_holds``, one for each fault and user."""

from collections.abc import Collection

from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import Prepared, Table, flag
from oar.lib.jobs.records import LaunchHold
from oar.lib.jobs.states import NOT_STARTED, JobState, JobTypeName, LaunchFault

_COLUMNS = """h.hold_id, h.fault, h.job_user, h.node, h.began, h.failures, h.next_try, h.confirmed = 'YES', h.trial_job,
        h.reason"""
#: States of jobs that are still to be launched.
_TO_COME = [str(state) for state in (*sorted(NOT_STARTED), JobState.LAUNCHING)]
_ALL = Prepared(f"""
    SELECT {_COLUMNS}, j.state, COALESCE(j.job_user, '')
    FROM launch_holds h LEFT JOIN jobs j ON j.job_id = h.trial_job ORDER BY h.hold_id""")
_DUE_NODES = Prepared("""
    SELECT DISTINCT node FROM launch_holds WHERE fault = ANY(%s) AND node <> '' AND next_try <= %s ORDER BY node""")
_HOLD = """
    INSERT INTO launch_holds (fault, job_user, node, began, failures, next_try, confirmed, reason, trial_job)
    VALUES (%s, %s, %s, %s, 1, %s, %s, %s, %s) ON CONFLICT (fault, job_user) DO NOTHING"""
_POSTPONE = """
    UPDATE launch_holds SET failures = failures + 1, next_try = %s, confirmed = %s, reason = %s
    WHERE hold_id = %s"""
_TRY = "UPDATE launch_holds SET trial_job = %s WHERE hold_id = %s AND trial_job = %s AND next_try = %s"
_USERS_WITH_JOBS = f"""
    SELECT u FROM unnest(%s::text[]) u WHERE EXISTS (SELECT FROM jobs j WHERE j.job_user = u AND {LIVE})"""
_HAS_JOBS = f"""
    SELECT EXISTS (SELECT FROM jobs j
        WHERE {LIVE} AND j.state = ANY(%(states)s) AND %(user)s IN ('', j.job_user) AND NOT EXISTS (
            SELECT FROM job_types t WHERE t.job_id = j.job_id AND split_part(t.type, '=', 1) = ANY(%(types)s)))"""
_LIFT = "DELETE FROM launch_holds WHERE hold_id = ANY(%s)"
_LAST_START = Prepared("""
    SELECT l.date_start FROM job_state_logs l
    WHERE l.job_state = 'Running' AND l.date_start >= %s
      AND NOT EXISTS (SELECT FROM job_types t WHERE t.job_id = l.job_id AND split_part(t.type, '=', 1) = ANY(%s))
    ORDER BY l.date_start DESC LIMIT 1""")
_LAST_SUCCESS = """
    SELECT l.date_start FROM job_state_logs l JOIN jobs j USING (job_id)
    WHERE l.job_state = %s AND l.date_start >= %s AND j.queue_name = %s
      AND (SELECT e.event_id FROM event_logs e WHERE e.job_id = l.job_id AND e.type = ANY(%s) LIMIT 1) IS NULL
    ORDER BY l.date_start DESC LIMIT 1"""


class LaunchHolds(Table):
    """Rows of ``launch_holds``."""

    def all(self) -> list[LaunchHold]:
        """Return all holds, oldest first."""
        return [
            LaunchHold._make(
                (hold_id, LaunchFault(fault), *values, JobState(trial_state) if trial_state else None, trial_user)
            )
            for hold_id, fault, *values, trial_state, trial_user in self._tx.rows(_ALL)
        ]

    def due_nodes(self, faults: Collection[LaunchFault]) -> list[str]:
        """Return the nodes with a due check for one of the faults, sorted."""
        return self._tx.column(_DUE_NODES, ([str(fault) for fault in faults], self._tx.now))

    def hold(
        self,
        fault: LaunchFault,
        user: str,
        node: str,
        next_try: int,
        reason: str,
        *,
        is_confirmed: bool,
        trial_job: int = 0,
    ) -> bool:
        """Hold the launches of a user ('' for all users); return False if they are already held for this fault."""
        values = (fault, user, node, self._tx.now, next_try, flag(is_confirmed), reason, trial_job)
        return self._tx.execute(_HOLD, values) == 1

    def postpone(self, hold: LaunchHold, next_try: int, reason: str, *, is_confirmed: bool) -> None:
        """Record that the check or the trial of a hold has failed."""
        self._tx.execute(_POSTPONE, (next_try, flag(is_confirmed), reason, hold.id))

    def begin_trial(self, hold: LaunchHold, job_id: int) -> bool:
        """Record the trial job of a hold; return False if the hold has changed since it was read."""
        return self._tx.execute(_TRY, (job_id, hold.id, hold.trial_job, hold.next_try)) == 1

    def users_with_jobs(self, users: Collection[str]) -> list[str]:
        """Return the given users who have live jobs."""
        return self._tx.column(_USERS_WITH_JOBS, (list(users),))

    def has_jobs(self, user: str, without: Collection[str]) -> bool:
        """Return whether a user ('' for any user) has jobs to be launched, ignoring the types ``without``."""
        parameters = {"user": user, "states": _TO_COME, "types": [*map(str, without), str(JobTypeName.AR)]}
        found: bool = self._tx.value(_HAS_JOBS, parameters)
        return found

    def lift(self, ids: Collection[int]) -> None:
        self._tx.execute(_LIFT, (list(ids),))

    def last_start(self, since: int, without: Collection[str]) -> int:
        """Return the time of the last job start since ``since``; return 0 if there is none.

        ``without``: ignored job types.
        """
        return self._tx.value(_LAST_START, (since, [str(name) for name in without])) or 0

    def last_success(self, since: int, queue: str, state: JobState, failures: Collection[str]) -> int:
        """Return the last time since ``since`` at which a job of a queue reached a state; return 0 if there is none.

        Jobs with an event of the types ``failures`` are ignored.
        """
        types = [str(type_) for type_ in failures]
        return self._tx.value(_LAST_SUCCESS, (state, since, queue, types)) or 0

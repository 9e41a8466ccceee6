"""Accounts (``tx.accounts``): waiting jobs of users, and the limits of the server's quota file."""

from typing import NamedTuple

from oar.lib.accounts.limit_rules import Pattern
from oar.lib.db.lock_keys import USER_LOCK_CLASS
from oar.lib.db.predicates import NO_FRAME
from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.states import LIMITED_WAITING

#: The text of a file as the server read it last.
_FILE = Prepared("SELECT value FROM policy_log WHERE kind = 'file' AND name = %s ORDER BY log_id DESC LIMIT 1")

#: The message of a job begins with the number of resources of its first alternative.
_SECONDS = """
    COALESCE(sum(substring(j.message FROM '^R=([0-9]+)')::bigint * (
        SELECT m.moldable_walltime FROM moldable_job_descriptions m WHERE m.moldable_job_id = j.job_id
        ORDER BY m.moldable_id LIMIT 1)), 0)::bigint"""
#: The job of an advance reservation itself does not count. Only jobs with a reservation are looked up as such.
_WAITING = f"""
    FROM jobs j WHERE j.state IN ({", ".join(repr(str(state)) for state in LIMITED_WAITING)})
      AND (j.reservation = 'None' OR {NO_FRAME})
      AND (%(queue)s::text IS NULL OR j.queue_name = %(queue)s)
      AND (%(project)s::text IS NULL OR j.project = %(project)s)
      AND (%(type)s::text IS NULL OR EXISTS (
          SELECT 1 FROM job_types t WHERE t.job_id = j.job_id AND split_part(t.type, '=', 1) = %(type)s))
      AND j.job_id <> %(but)s"""
_NUMBER_OF_ALL = f"SELECT count(*), 0::bigint {_WAITING}"
_SUM_OF_ALL = f"SELECT count(*), {_SECONDS} {_WAITING}"
#: Both find their rows by the index jobs_waiting_user.
_NUMBER_OF_USER = f"{_NUMBER_OF_ALL} AND j.job_user = %(user)s"
_SUM_OF_USER = f"{_SUM_OF_ALL} AND j.job_user = %(user)s"


class WaitingSum(NamedTuple):
    """Jobs that wait, and the resource seconds that they request."""

    jobs: int
    seconds: int


class Accounts(Table):
    """Waiting jobs and their limits."""

    def server_file(self, path: str) -> str | None:
        """Return the text of a policy file of the server; None if there is none, or no scheduling pass has read it."""
        text: str | None = self._tx.value(_FILE, (path,))
        return text

    def lock_user(self, user: str) -> None:
        """Block other submissions of a user until the end of the transaction; ``*``: those limited for all users."""
        self._tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (USER_LOCK_CLASS, user))

    def waiting(self, pattern: Pattern, *, but: int = 0, has_seconds: bool = False) -> WaitingSum:
        """Return the sum of the waiting jobs of a pattern; ``but``: a job that is not counted."""
        queue, project, type_, user = pattern
        number, total = (_NUMBER_OF_ALL, _SUM_OF_ALL) if user is None else (_NUMBER_OF_USER, _SUM_OF_USER)
        parameters = {"queue": queue, "project": project, "type": type_, "user": user, "but": but}
        row = self._tx.row(total if has_seconds else number, parameters)
        return WaitingSum(*row) if row else WaitingSum(0, 0)

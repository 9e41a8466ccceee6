"""What the checks of a submission ask about other jobs (``tx.submission_checks``)."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.db.lock_keys import USER_LOCK_CLASS
from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Prepared, Table, quoted

#: The job has not ended and is not about to.
_RUNS_OR_WAITS = f"{LIVE} AND j.state <> 'Finishing'"
#: A container by its number, or the newest one of a name; with the list of its users.
_CONTAINER = f"""
    SELECT j.job_id, j.job_user, j.reservation <> 'None',
        (SELECT t.type FROM job_types t
         WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT' AND t.type LIKE 'container\\_users=%%'
         ORDER BY t.job_type_id DESC LIMIT 1)
    FROM jobs j
    WHERE {_RUNS_OR_WAITS} AND j.job_id IN (
        SELECT c.job_id FROM job_types c
        WHERE c.types_index = 'CURRENT'
          AND (c.type = %(named)s
               OR (c.job_id = %(id)s AND (c.type = 'container' OR c.type LIKE 'container=%%'))))
    ORDER BY (j.job_id = %(id)s) DESC, j.job_id DESC LIMIT 1"""
#: Values of a property among the resources of a container; the number in its first request while it has none.
_VALUES_IN_CONTAINER = """
    SELECT COALESCE(
        (SELECT NULLIF(count(DISTINCT r.{column}), 0) FROM jobs j
         JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
         JOIN resources r USING (resource_id) WHERE j.job_id = %(id)s),
        (SELECT sum(d.res_job_value) FILTER (WHERE d.res_job_value > 0) FROM moldable_job_descriptions m
         JOIN job_resource_groups g ON g.res_group_moldable_id = m.moldable_id
         JOIN job_resource_descriptions d ON d.res_job_group_id = g.res_group_id
         WHERE m.moldable_job_id = %(id)s AND d.res_job_resource_type = %(name)s), 0)"""
_ARRAY_SIZES = Prepared("""
    SELECT array_id, count(DISTINCT array_index) FROM jobs WHERE array_id = ANY(%s) GROUP BY array_id""")
_MEMBERS_OF_ARRAY = "SELECT array_index, max(job_id) FROM jobs WHERE array_id = %s GROUP BY array_index"
#: Reservations of a user that have not begun.
_WAITING_RESERVATIONS = f"""
    SELECT count(*) FROM jobs j WHERE job_user = %s AND state IN ('Waiting', 'Hold', 'toAckReservation')
        AND reservation IN ('toSchedule', 'Scheduled') AND {NO_FRAME}"""
#: Bytes of scripts and variables of the live jobs of a user.
_KEPT_BYTES = f"""
    SELECT COALESCE(sum(octet_length(job_env)), 0)::bigint FROM jobs j
    WHERE job_user = %s AND job_env IS NOT NULL AND {LIVE}"""
#: Live jobs with a name of cpuset.
_JOBS_OF_CPUSET = f"""
    SELECT job_id FROM jobs j WHERE cpuset_name = %s AND {LIVE} ORDER BY job_id"""


class Container(NamedTuple):
    """A live job in which inner jobs may run."""

    id: int
    user: str
    is_reservation: bool
    users: tuple[str, ...]  #: other users whose jobs may run in it


class SubmissionChecks(Table):
    """Questions about containers, arrays, reservations, and what the server keeps for jobs."""

    def find_container(self, reference: str) -> Container | None:
        """Return the live container with this number, or this name."""
        number = int(reference) if reference.isascii() and reference.isdigit() and len(reference) <= 18 else 0
        row = self._tx.row(_CONTAINER, {"named": f"container={reference}", "id": number})
        if row is None:
            return None
        users = (row[3] or "").partition("=")[2]
        return Container(row[0], row[1], row[2], tuple(users.split("+")) if users else ())

    def values_in_container(self, container: int, column: str) -> int:
        """Return the number of values of a property in a container; as long as it has no resources, in its request."""
        sql = _VALUES_IN_CONTAINER.format(column=quoted(column, has_parameters=True))
        number: int = self._tx.value(sql, {"id": container, "name": column})
        return number

    def members_of_array(self, array: int) -> dict[int, int]:
        """Return the ids of the jobs of an array by index; of a job that was resubmitted, the id of the last copy."""
        return dict(self._tx.rows(_MEMBERS_OF_ARRAY, (array,)))

    def array_sizes(self, arrays: Collection[int]) -> dict[int, int]:
        """Return how many indexes each of some arrays has."""
        return dict(self._tx.rows(_ARRAY_SIZES, (list(arrays),)))

    def count_waiting_reservations(self, user: str) -> int:
        """Return the number of reservations of a user that have not begun."""
        number: int = self._tx.value(_WAITING_RESERVATIONS, (user,))
        return number

    def kept_bytes(self, user: str) -> int:
        """Return the bytes of scripts and variables of a user's live jobs; locks out other submissions of the user."""
        self._tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (USER_LOCK_CLASS, user))
        number: int = self._tx.value(_KEPT_BYTES, (user,))
        return number

    def jobs_of_cpuset(self, name: str) -> list[int]:
        """Return the ids of the live jobs with this name of cpuset."""
        return self._tx.column(_JOBS_OF_CPUSET, (name,))

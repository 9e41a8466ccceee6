"""Requests to end jobs, which Leon carries out (``tx.kill_requests``): rows of ``frag_jobs``."""

import json
from collections.abc import Collection, Mapping

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Prepared, Row, Table
from oar.lib.jobs.records import Cause, KillRequest
from oar.lib.jobs.states import KillState

#: The first request of a job is the cause of its end.
_ASK = """
    INSERT INTO frag_jobs (frag_id_job, frag_date, frag_state, frag_cause, frag_data)
    SELECT id, %s, 'LEON', code, data FROM unnest(%s::bigint[], %s::text[], %s::text[]) asked (id, code, data)
    ORDER BY id ON CONFLICT DO NOTHING RETURNING frag_id_job"""
_FIND = Prepared("SELECT frag_id_job, frag_date, frag_state FROM frag_jobs WHERE frag_id_job = %s")
_ASKED = Prepared("SELECT frag_id_job FROM frag_jobs WHERE frag_id_job = ANY(%s)")
_IN_STATES = Prepared("""
    SELECT frag_id_job, frag_date, frag_state FROM frag_jobs
    WHERE frag_state <> 'FRAGGED' AND frag_state = ANY(%s) ORDER BY frag_id_job""")
#: Requests that wait for Leon.
_IS_LEON_LATE = Prepared("""
    SELECT 1 FROM frag_jobs
    WHERE frag_state <> 'FRAGGED' AND frag_state IN ('LEON', 'LEON_EXTERMINATE') AND frag_date < %s LIMIT 1""")
_MOVE = """
    UPDATE frag_jobs SET frag_state = %s WHERE frag_id_job = ANY(%s) AND frag_state = ANY(%s) RETURNING frag_id_job"""


class KillRequests(Table):
    """Rows of ``frag_jobs``: one for each job whose end was ever requested."""

    def ask(self, causes: Mapping[int, Cause]) -> list[int]:
        """Request the end of jobs, each for its cause; return those of which it was not requested before."""
        ids = sorted(causes)
        codes = [str(causes[job_id].code) for job_id in ids]
        data = [json.dumps(causes[job_id].data) for job_id in ids]
        self._changed(Topic.JOBS)
        return sorted(self._tx.column(_ASK, (self._tx.now, ids, codes, data)))

    def find(self, job_id: int) -> KillRequest | None:
        """Return the request of a job, None if its end was never requested."""
        row = self._tx.row(_FIND, (job_id,))
        return _request(row) if row else None

    def in_states(self, states: Collection[KillState]) -> list[KillRequest]:
        """Return the requests in one of some states, by job id; FRAGGED ones are not found."""
        return [_request(row) for row in self._tx.rows(_IN_STATES, ([str(state) for state in states],))]

    def jobs(self, ids: Collection[int]) -> set[int]:
        """Return those of some jobs whose end was requested."""
        return set(self._tx.column(_ASKED, (list(ids),)))

    def is_leon_late(self, before: int) -> bool:
        """Whether a request older than a date still waits for Leon; the Runner then calls Leon again."""
        return self._tx.row(_IS_LEON_LATE, (before,)) is not None

    def move(self, ids: Collection[int], to: KillState, sources: Collection[KillState]) -> list[int]:
        """Give requests the state ``to`` if they are in one of ``sources``; return the jobs whose request was."""
        self._changed(Topic.JOBS)
        return sorted(self._tx.column(_MOVE, (to, sorted(ids), [str(state) for state in sources])))


def _request(row: Row) -> KillRequest:
    return KillRequest(row[0], row[1], KillState(row[2]))

"""Jobs that the system has submitted again (``tx.resubmissions``): rows of ``auto_resubmissions``."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import About, Prepared, Table

_NOTE = "INSERT INTO auto_resubmissions (job_id, new_job_id) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_COPIES = "SELECT job_id, new_job_id FROM auto_resubmissions WHERE job_id = ANY(%s)"
_FACTS = Prepared("""
    SELECT id, EXISTS (SELECT 1 FROM frag_jobs f WHERE f.frag_id_job = id),
        EXISTS (SELECT 1 FROM auto_resubmissions a WHERE a.job_id = id), r.oarexec_code
    FROM unnest(%s::bigint[]) id LEFT JOIN job_runs r ON r.job_id = id""")
_CHAIN = """
    WITH RECURSIVE chain(id) AS (
        SELECT job_id FROM auto_resubmissions WHERE new_job_id = %s
        UNION SELECT a.job_id FROM auto_resubmissions a JOIN chain c ON a.new_job_id = c.id)
    SELECT count(*) FROM chain"""


class ResubmissionFacts(NamedTuple):
    """What decides whether a job may be submitted again."""

    kill_asked: bool = False
    was_resubmitted: bool = False
    oarexec_code: int | None = None  #: that of its end, None if oarexec has not reported


class Resubmissions(Table):
    """Rows of ``auto_resubmissions``: a job and its copy."""

    #: A question that views ask with others.
    COPIES = About(_COPIES, dict)

    def note(self, job_id: int, copy: int) -> bool:
        """Note that a job was submitted again as ``copy``; False if it has a copy already."""
        self._changed(Topic.JOBS)
        return self._tx.execute(_NOTE, (job_id, copy)) == 1

    def copies(self, ids: Collection[int]) -> dict[int, int]:
        """Return the copy of each of some jobs that has one."""
        return dict(self._tx.rows(_COPIES, (list(ids),))) if ids else {}

    def facts(self, ids: Collection[int]) -> dict[int, ResubmissionFacts]:
        """Return for each of some jobs what decides whether it may be submitted again."""
        return {row[0]: ResubmissionFacts(*row[1:]) for row in self._tx.rows(_FACTS, (sorted(ids),))} if ids else {}

    def chain_length(self, job_id: int) -> int:
        """Return the number of automatic resubmissions that led to a job: 0 if a user submitted it."""
        length: int = self._tx.value(_CHAIN, (job_id,))
        return length

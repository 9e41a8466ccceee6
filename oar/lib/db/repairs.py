"""What is put right in the database when the server starts (``tx.repairs``).

Each statement is right at any time and changes nothing where nothing is wrong; the programs cannot leave such rows,
but other tools, an older version or a restored backup may.

See docs/design/schema.rst, "Repairs".
"""

from oar.lib.bus.topics import Topic
from oar.lib.db.predicates import ENDED, LIVE, NO_FRAME
from oar.lib.db.statements import Table
from oar.lib.jobs.states import CURRENT, JobState

#: The open row of a live job's state log says its state; an ended job has none.
_STATE_LOGS = f"""
    UPDATE job_state_logs l SET date_stop = %(now)s FROM jobs j
        WHERE l.job_id = j.job_id AND l.date_stop = 0 AND ({ENDED} OR l.job_state <> j.state);
    INSERT INTO job_state_logs (job_id, job_state, date_start)
        SELECT j.job_id, j.state, %(now)s FROM jobs j WHERE {LIVE}
        AND NOT EXISTS (SELECT 1 FROM job_state_logs l WHERE l.job_id = j.job_id AND l.date_stop = 0)"""
#: Nothing that describes an ended job is current, and nobody wants it killed any more.
_ENDED_JOBS = f"""
    UPDATE assigned_resources a SET assigned_resource_index = 'LOG'
        FROM moldable_job_descriptions m JOIN jobs j ON j.job_id = m.moldable_job_id
        WHERE a.moldable_job_id = m.moldable_id AND a.assigned_resource_index = 'CURRENT' AND {ENDED};
    UPDATE moldable_job_descriptions m SET moldable_index = 'LOG' FROM jobs j
        WHERE m.moldable_index = 'CURRENT' AND j.job_id = m.moldable_job_id AND {ENDED};
    UPDATE job_types t SET types_index = 'LOG' FROM jobs j
        WHERE t.types_index = 'CURRENT' AND j.job_id = t.job_id AND {ENDED};
    UPDATE job_dependencies d SET job_dependency_index = 'LOG' FROM jobs j
        WHERE d.job_dependency_index = 'CURRENT' AND j.job_id = d.job_id AND {ENDED};
    UPDATE frag_jobs f SET frag_state = 'FRAGGED' FROM jobs j
        WHERE f.frag_state <> 'FRAGGED' AND j.job_id = f.frag_id_job AND {ENDED};
    DELETE FROM job_runs r USING jobs j WHERE j.job_id = r.job_id AND {ENDED}"""
#: The plan speaks of waiting and current jobs only, and has its reference date.
_PLAN = f"""
    DELETE FROM gantt_jobs_predictions p WHERE p.moldable_job_id <> 0 AND NOT EXISTS (
        SELECT 1 FROM moldable_job_descriptions m JOIN jobs j ON j.job_id = m.moldable_job_id
        WHERE m.moldable_id = p.moldable_job_id AND {LIVE});
    DELETE FROM gantt_jobs_sets p WHERE NOT EXISTS (
        SELECT 1 FROM moldable_job_descriptions m JOIN jobs j ON j.job_id = m.moldable_job_id
        WHERE m.moldable_id = p.moldable_job_id AND {LIVE});
    INSERT INTO gantt_jobs_predictions (moldable_job_id, start_time) VALUES (0, %(now)s) ON CONFLICT DO NOTHING;
    INSERT INTO gantt_jobs_predictions_visu (moldable_job_id, start_time) VALUES (0, %(now)s) ON CONFLICT DO NOTHING"""
#: Jobs that should have resources and have none.
_WITHOUT_RESOURCES = f"""
    SELECT j.job_id, j.state FROM jobs j
    WHERE {LIVE} AND j.state = ANY(%s) AND NOT EXISTS (
        SELECT 1 FROM assigned_resources a
        WHERE a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT')
      AND {NO_FRAME}
    ORDER BY j.job_id"""


class Repairs(Table):
    """Statements for the start of the server."""

    def make_consistent(self) -> None:
        """Make state logs, marks of liveness, kill requests and plan agree with the states of the jobs."""
        for sql in (_STATE_LOGS, _ENDED_JOBS, _PLAN):
            self._tx.execute(sql, {"now": self._tx.now})
        self._changed(Topic.JOBS, Topic.GANTT)

    def without_resources(self) -> list[tuple[int, JobState]]:
        """Return the jobs whose state says that they have resources, and that have none, by id."""
        rows = self._tx.rows(_WITHOUT_RESOURCES, ([str(state) for state in sorted(CURRENT)],))
        return [(row[0], JobState(row[1])) for row in rows]

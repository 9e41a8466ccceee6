"""A database with a past: many finished jobs with all their rows, and a few live ones, made by the server itself."""

from oar.lib.db.database import Database
from tests.builders import execute_sql

RESOURCES = 2_000
#: The states that live jobs are in, by turns.
_LIVE = "ARRAY['Waiting', 'Waiting', 'Waiting', 'Hold', 'toLaunch', 'Launching', 'Running', 'Running', 'Finishing']"

_FILL = f"""
    INSERT INTO resources (network_address, state, cpuset)
    SELECT 'node-' || i / 32, 'Alive', (i %% 32)::text FROM generate_series(1, {RESOURCES}) i;
    INSERT INTO resource_logs (resource_id, attribute, value, date_start)
    SELECT resource_id, 'state', state, 1 FROM resources;

    CREATE TEMPORARY TABLE made AS
    SELECT nextval('jobs_job_id_seq') AS job_id, nextval('moldable_job_descriptions_moldable_id_seq') AS moldable_id,
           nextval('job_resource_groups_res_group_id_seq') AS group_id, i, i <= %(finished)s AS ended,
           CASE WHEN i > %(finished)s THEN ({_LIVE})[i %% 9 + 1]
                WHEN i %% 20 = 0 THEN 'Error' ELSE 'Terminated' END AS state
    FROM generate_series(1, %(finished)s + %(live)s) i ORDER BY i;

    INSERT INTO jobs (job_id, array_id, state, job_user, project, queue_name, job_name, command, submission_time,
                      start_time, stop_time, assigned_moldable_job, accounted, exit_code)
    SELECT job_id, job_id, state, 'user' || i %% 50, 'project' || i %% 20,
           CASE WHEN i %% 10 = 0 THEN 'besteffort' ELSE 'default' END, 'job', 'sleep 10', 1000 + i,
           CASE WHEN ended OR state NOT IN ('Waiting', 'Hold') THEN 2000 + i ELSE 0 END,
           CASE WHEN ended OR state = 'Finishing' THEN 3000 + i ELSE 0 END,
           CASE WHEN ended OR state NOT IN ('Waiting', 'Hold') THEN moldable_id ELSE 0 END,
           CASE WHEN ended THEN 'YES' ELSE 'NO' END, CASE WHEN ended THEN 0 END
    FROM made;
    INSERT INTO moldable_job_descriptions (moldable_id, moldable_job_id, moldable_walltime, moldable_index)
    SELECT moldable_id, job_id, 3600, CASE WHEN ended THEN 'LOG' ELSE 'CURRENT' END FROM made;
    INSERT INTO job_resource_groups (res_group_id, res_group_moldable_id, res_group_property, res_group_index)
    SELECT group_id, moldable_id, 'type = ''default''', CASE WHEN ended THEN 'LOG' ELSE 'CURRENT' END FROM made;
    INSERT INTO job_resource_descriptions (res_job_group_id, res_job_resource_type, res_job_order, res_job_value,
                                           res_job_index)
    SELECT group_id, 'network_address', 0, 1, CASE WHEN ended THEN 'LOG' ELSE 'CURRENT' END FROM made;
    INSERT INTO job_types (job_id, type, types_index)
    SELECT job_id, 'besteffort', CASE WHEN ended THEN 'LOG' ELSE 'CURRENT' END FROM made WHERE i %% 10 = 0;
    INSERT INTO job_state_logs (job_id, job_state, date_start, date_stop)
    SELECT job_id, 'Waiting', 1000 + i, 2000 + i FROM made WHERE state <> 'Waiting'
    UNION ALL SELECT job_id, state, 2000 + i, CASE WHEN ended THEN 2000 + i ELSE 0 END FROM made;
    INSERT INTO assigned_resources (moldable_job_id, resource_id, assigned_resource_index)
    SELECT moldable_id, (SELECT min(resource_id) FROM resources) + i %% {RESOURCES},
           CASE WHEN ended THEN 'LOG' ELSE 'CURRENT' END
    FROM made WHERE ended OR state NOT IN ('Waiting', 'Hold');
    INSERT INTO event_logs (type, job_id, date, description, to_check)
    SELECT 'SWITCH_INTO_TERMINATE_STATE', job_id, 3000 + i, '', CASE WHEN ended THEN 'NO' ELSE 'YES' END FROM made
    WHERE ended OR state = 'Finishing';
    INSERT INTO event_log_hostnames (event_id, hostname)
    SELECT event_id, 'node-' || job_id %% 60 FROM event_logs;
    INSERT INTO job_dependencies (job_id, job_id_required, job_dependency_index)
    SELECT m.job_id, r.job_id, CASE WHEN m.ended THEN 'LOG' ELSE 'CURRENT' END
    FROM made m JOIN made r ON r.i = m.i - 1 WHERE m.i %% 5 = 0;
    INSERT INTO frag_jobs (frag_id_job, frag_date, frag_state)
    SELECT job_id, 2500 + i, CASE WHEN ended THEN 'FRAGGED' ELSE 'LEON' END FROM made WHERE i %% 10 = 0;
    INSERT INTO challenges (job_id, challenge) SELECT job_id, CASE WHEN ended THEN '' ELSE '1' END FROM made;
    INSERT INTO gantt_jobs_predictions (moldable_job_id, start_time)
    SELECT moldable_id, 2000 + i FROM made WHERE NOT ended;
    INSERT INTO gantt_jobs_predictions_visu SELECT * FROM gantt_jobs_predictions WHERE moldable_job_id <> 0;
    INSERT INTO gantt_jobs_resources SELECT moldable_job_id, resource_id FROM assigned_resources
    WHERE assigned_resource_index = 'CURRENT';
    INSERT INTO gantt_jobs_resources_visu SELECT * FROM gantt_jobs_resources;
    DROP TABLE made;
"""


def fill(database: Database, *, finished: int, live: int) -> None:
    """Insert that many jobs, users, queues, events and predictions; let the server look at what it has now."""
    with database.begin() as tx:
        tx.execute(_FILL, {"finished": finished, "live": live})
    execute_sql(database, "ANALYZE")

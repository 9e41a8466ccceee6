-- The rows a new database begins with.

INSERT INTO schema (version, name, revision) VALUES ('3.2.0', '', '3.3');
INSERT INTO alembic_version (version_num) VALUES ('3.3.0');
INSERT INTO server_generation (generation) VALUES (0);

INSERT INTO queues (queue_name, priority, scheduler_policy, state) VALUES
    ('admin', 10, 'kamelot', 'Active'),
    ('default', 2, 'kamelot', 'Active'),
    ('besteffort', 0, 'kamelot', 'Active');

INSERT INTO scheduler (name, script, description) VALUES
    ('oar_sched_gantt_with_timesharing', 'oar_sched_gantt_with_timesharing', 'First in, first out'),
    ('oar_sched_gantt_with_timesharing_and_placeholder', 'oar_sched_gantt_with_timesharing_and_placeholder',
     'First in, first out'),
    ('oar_sched_gantt_with_timesharing_and_fairsharing', 'oar_sched_gantt_with_timesharing_and_fairsharing',
     'Fair share'),
    ('oar_sched_gantt_with_timesharing_and_fairsharing_and_placeholder',
     'oar_sched_gantt_with_timesharing_and_fairsharing_and_placeholder', 'Fair share'),
    ('oar_sched_gantt_with_timesharing_and_fairsharing_and_quotas',
     'oar_sched_gantt_with_timesharing_and_fairsharing_and_quotas', 'Fair share and quotas'),
    ('kamelot', 'kamelot', 'The order named by JOB_PRIORITY'),
    ('kamelot_fifo', 'kamelot_fifo', 'First in, first out, without backfilling');

-- Job 0: the date of the last round.
INSERT INTO gantt_jobs_predictions (moldable_job_id, start_time) VALUES (0, 0);
INSERT INTO gantt_jobs_predictions_visu (moldable_job_id, start_time) VALUES (0, 0);

INSERT INTO usersets (userset_name, description) VALUES
    ('arusers', 'may create advance reservations'),
    ('aroperators', 'may alter and delete every advance reservation');
INSERT INTO userset_entries (userset_name, entry) VALUES ('arusers', 'oar');
INSERT INTO sge_version (v_id, v_version, v_time) VALUES (5, '6.2', CURRENT_TIMESTAMP);

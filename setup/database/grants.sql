-- Who may read what.  Every table is named: a new one stays closed until somebody opens it here.
-- :"ro" is the read-only login (DB_BASE_LOGIN_RO); the owner of the database runs this, as often as wanted.
-- challenges, api_tokens, token_jobs, submission_keys, job_runs, history_positions, outbox, policy_log,
-- server_state, server_generation, servers, task_runs, project_members, user_settings, audit_log and public.jobs stay closed; oar_public.jobs stands for the last.  Of files the checksums and the places stay closed: they tell what somebody works with.

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
-- The account of commands only adds rows to the audit log; the purge grants itself DELETE for its transaction.
REVOKE UPDATE, DELETE, TRUNCATE ON public.audit_log FROM CURRENT_USER;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC, :"ro";
REVOKE ALL ON ALL TABLES IN SCHEMA oar_public FROM PUBLIC, :"ro";
REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM PUBLIC, :"ro";
REVOKE ALL ON SCHEMA oar_public FROM PUBLIC;

GRANT USAGE ON SCHEMA public TO :"ro";
GRANT USAGE ON SCHEMA oar_public TO :"ro";
GRANT SELECT ON
    accounting,
    accounting_costs,
    admission_rules,
    admission_rules_log,
    announcements,
    alembic_version,
    assigned_resources,
    auto_resubmissions,
    event_log_hostnames,
    event_logs,
    frag_jobs,
    gantt_jobs_predictions,
    gantt_jobs_predictions_log,
    gantt_jobs_predictions_visu,
    gantt_jobs_resources,
    gantt_jobs_resources_log,
    gantt_jobs_resources_visu,
    gantt_jobs_sets,
    gantt_jobs_sets_visu,
    job_curves,
    job_dependencies,
    job_ends,
    job_predictions,
    job_reasons,
    job_resource_descriptions,
    job_resource_groups,
    job_state_logs,
    job_types,
    job_usage,
    job_waits,
    launch_holds,
    occupancy_hours,
    moldable_job_descriptions,
    project_budgets,
    projects,
    queues,
    reservation_acl,
    reservation_changes,
    reservation_intervals,
    reservation_jobs,
    reservation_logs,
    reservation_revisions,
    reservation_series,
    reservation_usage,
    reservations,
    resource_logs,
    resources,
    scheduler,
    schema,
    sge_version,
    state_reasons,
    userset_entries,
    usersets,
    walltime_change,
    sge_ar,
    sge_ar_attribute,
    sge_ar_log,
    sge_ar_resource_usage,
    sge_ar_usage,
    sge_job,
    ended_jobs,
    sge_job_usage,
    view_accounting,
    view_ar_attribute,
    view_ar_efficiency,
    view_ar_jobs,
    view_ar_log,
    view_ar_resource_usage,
    view_ar_time_usage,
    view_ar_usage,
    view_job_times,
    view_jobs,
    view_nodes,
    view_usage_daily,
    oar_public.jobs
TO :"ro";
GRANT SELECT (file_id, idfile, method, compression, size) ON files TO :"ro";

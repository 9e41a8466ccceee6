-- Views, and the functions and triggers that they need. The tables are declared in oar/lib/db/schema.py.

-- What the read-only login sees as "jobs": the environment of a job is nobody else's business.
CREATE SCHEMA oar_public;
CREATE VIEW oar_public.jobs AS
SELECT job_id, array_id, array_index, array_limit, initial_request, job_name, cpuset_name, job_type, info_type, state,
       reservation, message, scheduler_info, job_user, project, job_group, command, exit_code, queue_name, properties,
       launching_directory, submission_time, start_time, stop_time, file_id, accounted, notify, assigned_moldable_job,
       checkpoint, checkpoint_signal, stdout_file, stderr_file, resubmit_job_id, suspended, NULL::text AS job_env,
       last_karma
FROM public.jobs;

-- A job has the walltime of the alternative it runs with, before that of its first one.
CREATE VIEW view_jobs AS
SELECT j.job_id, j.array_id, j.array_index, j.array_limit, j.initial_request, j.job_name, j.cpuset_name, j.job_type,
       j.info_type, j.state, j.reservation, j.message, j.scheduler_info, j.job_user, j.project, j.job_group, j.command,
       j.exit_code, j.queue_name, j.properties, j.launching_directory, j.submission_time, j.start_time, j.stop_time,
       j.file_id, j.accounted, j.notify, j.assigned_moldable_job, j.checkpoint, j.checkpoint_signal, j.stdout_file,
       j.stderr_file,
       j.resubmit_job_id, j.suspended, j.last_karma,
       alternative.moldable_walltime AS walltime,
       assigned.nb_resources,
       assigned.nb_nodes,
       CASE WHEN j.start_time > 0 THEN j.start_time
            WHEN j.stop_time > 0 THEN j.stop_time
            ELSE EXTRACT(EPOCH FROM now())::bigint END - j.submission_time AS wait_time,
       CASE WHEN j.start_time = 0 OR j.state IN ('Waiting', 'Hold', 'toLaunch', 'toAckReservation', 'toError') THEN 0
            WHEN j.stop_time > 0 THEN greatest(0, j.stop_time - j.start_time)
            ELSE greatest(0, EXTRACT(EPOCH FROM now())::bigint - j.start_time) END AS run_time,
       (SELECT min(p.start_time)
        FROM moldable_job_descriptions m JOIN gantt_jobs_predictions_visu p ON p.moldable_job_id = m.moldable_id
        WHERE m.moldable_job_id = j.job_id) AS planned_start,
       ARRAY(SELECT t.type::text FROM job_types t WHERE t.job_id = j.job_id ORDER BY t.job_type_id) AS types
FROM public.jobs j
LEFT JOIN LATERAL (
    SELECT m.moldable_walltime
    FROM moldable_job_descriptions m
    WHERE m.moldable_job_id = j.job_id
    ORDER BY (m.moldable_id = j.assigned_moldable_job) DESC, m.moldable_id
    LIMIT 1
) alternative ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS nb_resources, count(DISTINCT nullif(r.network_address, '')) AS nb_nodes
    FROM assigned_resources a LEFT JOIN resources r ON r.resource_id = a.resource_id
    WHERE a.moldable_job_id = j.assigned_moldable_job
) assigned;

-- nb_standby counts those of the absent resources that can be woken.
CREATE VIEW view_nodes AS
SELECT r.network_address,
       count(*) AS nb_resources,
       count(*) FILTER (WHERE r.state = 'Alive') AS nb_alive,
       count(*) FILTER (WHERE r.state = 'Absent') AS nb_absent,
       count(*) FILTER (WHERE r.state = 'Suspected') AS nb_suspected,
       count(*) FILTER (WHERE r.state = 'Dead') AS nb_dead,
       count(*) FILTER (WHERE r.state = 'Absent' AND r.available_upto <> 2147483647
                          AND r.available_upto > EXTRACT(EPOCH FROM now())) AS nb_standby,
       count(*) FILTER (WHERE EXISTS (
           SELECT 1 FROM assigned_resources a
           WHERE a.resource_id = r.resource_id AND a.assigned_resource_index = 'CURRENT')) AS nb_busy,
       CASE WHEN bool_or(r.drain = 'YES') THEN 'YES' ELSE 'NO' END AS drain,
       max(r.last_job_date) AS last_job_date
FROM resources r
WHERE r.network_address <> ''
GROUP BY r.network_address;

-- The resources of predictions one by one.  An external scheduler writes them as it would write a table.
CREATE VIEW gantt_jobs_resources AS
SELECT s.moldable_job_id, r.resource_id FROM gantt_jobs_sets s CROSS JOIN LATERAL unnest(s.resources) AS r (resource_id);

CREATE VIEW gantt_jobs_resources_visu AS
SELECT s.moldable_job_id, r.resource_id
FROM gantt_jobs_sets_visu s CROSS JOIN LATERAL unnest(s.resources) AS r (resource_id);

CREATE OR REPLACE FUNCTION change_gantt_jobs_resources() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed bigint;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        EXECUTE format('UPDATE public.%I SET resources = array_remove(resources, $2) WHERE moldable_job_id = $1',
                       TG_ARGV[0]) USING OLD.moldable_job_id, OLD.resource_id;
        EXECUTE format('DELETE FROM public.%I WHERE moldable_job_id = $1 AND resources = ''{}''', TG_ARGV[0])
            USING OLD.moldable_job_id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        EXECUTE format('INSERT INTO public.%I AS s VALUES ($1, ARRAY[$2]) ON CONFLICT (moldable_job_id) DO UPDATE
                        SET resources = s.resources || EXCLUDED.resources WHERE NOT s.resources @> EXCLUDED.resources',
                       TG_ARGV[0]) USING NEW.moldable_job_id, NEW.resource_id;
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed = 0 THEN
            RAISE unique_violation USING MESSAGE = format(
                '%s: alternative %s already has the resource %s', TG_TABLE_NAME, NEW.moldable_job_id, NEW.resource_id);
        END IF;
        RETURN NEW;
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER gantt_jobs_resources_change INSTEAD OF INSERT OR UPDATE OR DELETE ON gantt_jobs_resources
FOR EACH ROW EXECUTE FUNCTION change_gantt_jobs_resources('gantt_jobs_sets');

CREATE TRIGGER gantt_jobs_resources_visu_change INSTEAD OF INSERT OR UPDATE OR DELETE ON gantt_jobs_resources_visu
FOR EACH ROW EXECUTE FUNCTION change_gantt_jobs_resources('gantt_jobs_sets_visu');

-- day is the beginning of a day (UTC).
CREATE VIEW view_usage_daily AS
SELECT window_start - window_start % 86400 AS day,
       accounting_user AS "user",
       accounting_project AS project,
       queue_name AS queue,
       COALESCE(sum(consumption) FILTER (WHERE consumption_type = 'ASKED'), 0)::bigint AS asked,
       COALESCE(sum(consumption) FILTER (WHERE consumption_type = 'USED'), 0)::bigint AS used
FROM accounting
GROUP BY window_start - window_start % 86400, accounting_user, accounting_project, queue_name;

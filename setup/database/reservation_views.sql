-- Views about advance reservations: the reporting model of Grid Engine's ARCo, always complete, filled by nobody.
-- The tables are declared in oar/lib/db/schema_reservations.py.

CREATE VIEW sge_ar AS
SELECT reservation_id AS ar_id, ar_id AS ar_number, owner::text AS ar_owner,
       to_timestamp(submission_time)::timestamp AS ar_submission_time
FROM reservations WHERE state NOT IN ('', 'n');

CREATE VIEW sge_ar_attribute AS
SELECT revision_id AS ara_id, reservation_id AS ara_parent, to_timestamp(date)::timestamp AS ara_curr_time,
       ar_name::text AS ara_name, account::text AS ara_account,
       to_timestamp(start_time)::timestamp AS ara_start_time, to_timestamp(end_time)::timestamp AS ara_end_time,
       granted_pe AS ara_granted_pe
FROM reservation_revisions;

CREATE VIEW sge_ar_usage AS
SELECT reservation_usage_id AS aru_id, reservation_id AS aru_parent,
       to_timestamp(termination_time)::timestamp AS aru_termination_time, queue_name::text AS aru_qname,
       network_address::text AS aru_hostname, slots AS aru_slots
FROM reservation_usage;

CREATE VIEW sge_ar_log AS
SELECT reservation_log_id AS arl_id, reservation_id AS arl_parent, to_timestamp(date)::timestamp AS arl_time,
       event::text AS arl_event, state::text AS arl_state, hostname::text AS arl_host, message AS arl_message
FROM reservation_logs;

CREATE VIEW sge_ar_resource_usage AS
SELECT row_number() OVER (ORDER BY r.reservation_id, pair.place) AS arru_id, r.reservation_id AS arru_parent,
       pair.item ->> 0 AS arru_variable, pair.item ->> 1 AS arru_value
FROM reservations r
CROSS JOIN LATERAL jsonb_array_elements(r.resource_list::jsonb) WITH ORDINALITY AS pair (item, place)
WHERE r.state NOT IN ('', 'n');

-- The jobs that ran and have ended, with what they used; the jobs by which reservations stand in the plan are none.
-- cpu: seconds; memory: bytes, the sum of the highest memory of each node; io: bytes.
CREATE VIEW ended_jobs AS
SELECT j.job_id, j.array_id, j.array_index, j.job_name, j.job_group, j.job_user, j.project, j.queue_name,
       to_timestamp(j.submission_time)::timestamp AS submission_time, to_timestamp(j.start_time)::timestamp AS start_time,
       to_timestamp(j.stop_time)::timestamp AS end_time,
       (j.stop_time - j.start_time)::double precision AS seconds,
       CASE WHEN COALESCE(j.exit_code, 0) & 127 <> 0 THEN 128 + (j.exit_code & 127)
            ELSE COALESCE(j.exit_code, 0) >> 8 END AS exit_status,
       COALESCE(r.ar_id, 0) AS ar_number, usage.hostname, COALESCE(usage.cpu, 0) AS cpu,
       COALESCE(usage.memory, 0) AS memory, COALESCE(usage.io, 0) AS io
FROM jobs j
LEFT JOIN reservation_jobs inside ON inside.job_id = j.job_id
LEFT JOIN reservations r ON r.reservation_id = inside.reservation_id
LEFT JOIN LATERAL (
    SELECT min(u.network_address)::text AS hostname, sum(u.cpu_seconds) AS cpu,
           sum(u.memory_peak)::double precision AS memory,
           sum(COALESCE(u.read_bytes, 0) + COALESCE(u.write_bytes, 0))::double precision AS io
    FROM job_usage u WHERE u.job_id = j.job_id
) usage ON true
WHERE j.state IN ('Terminated', 'Error') AND j.start_time > 0
  AND j.assigned_moldable_job <> 0 -- a reservation job that was deleted before its date has a start, and never ran
  AND NOT EXISTS (SELECT 1 FROM reservations f WHERE f.frame_id = j.job_id AND f.frame_id <> 0);

CREATE VIEW sge_job AS
SELECT job_id AS j_id, job_id AS j_job_number,
       CASE WHEN array_id = job_id AND array_index = 1 THEN -1 ELSE array_index END AS j_task_number,
       'NONE'::text AS j_pe_taskid, COALESCE(job_name, '')::text AS j_job_name, job_group::text AS j_group,
       job_user::text AS j_owner, 'sge'::text AS j_account, 0 AS j_priority, submission_time AS j_submission_time,
       project::text AS j_project, queue_name::text AS j_department
FROM ended_jobs;

-- mem: GiB seconds, with the highest memory of each node; maxvmem: bytes.
CREATE VIEW sge_job_usage AS
SELECT job_id AS ju_id, job_id AS ju_parent, end_time AS ju_curr_time, queue_name::text AS ju_qname,
       hostname AS ju_hostname, start_time AS ju_start_time, end_time AS ju_end_time, 0 AS ju_failed,
       exit_status AS ju_exit_status, seconds AS ju_ru_wallclock, cpu AS ju_cpu,
       memory / 1073741824.0 * seconds AS ju_mem, io / 1073741824.0 AS ju_io, 0::double precision AS ju_iow,
       memory AS ju_maxvmem, ar_number AS ju_ar_number
FROM ended_jobs;

-- The original joins the two views above, which here are one row of one table.
CREATE VIEW view_accounting AS
SELECT job_id AS job_number, CASE WHEN array_id = job_id AND array_index = 1 THEN -1 ELSE array_index END AS task_number,
       'NONE'::text AS pe_taskid, COALESCE(job_name, '')::text AS name, job_group::text AS "group",
       job_user::text AS username, 'sge'::text AS account, project::text AS project, queue_name::text AS department,
       submission_time, ar_number, start_time, end_time, (start_time - submission_time)::interval AS wait_time,
       (end_time - submission_time)::interval AS turnaround_time, (end_time - start_time)::interval AS job_duration,
       seconds AS wallclock_time, cpu, memory / 1073741824.0 * seconds AS mem, io / 1073741824.0 AS io,
       0::double precision AS iow, memory AS maxvmem
FROM ended_jobs
WHERE submission_time > '1970-01-02' AND start_time >= submission_time;

CREATE VIEW view_job_times AS SELECT * FROM view_accounting WHERE pe_taskid = 'NONE';

-- Only the present revision of each reservation: one that was altered would appear several times.
CREATE VIEW view_ar_attribute AS
SELECT r.ar_id AS ar_number, r.owner::text AS owner, to_timestamp(r.submission_time)::timestamp AS submission_time,
       v.ar_name::text AS name, v.account::text AS account, to_timestamp(v.start_time)::timestamp AS start_time,
       to_timestamp(v.end_time)::timestamp AS end_time, v.granted_pe
FROM reservations r
JOIN reservation_revisions v ON v.reservation_id = r.reservation_id AND v.revision = r.revision
WHERE r.state NOT IN ('', 'n');

CREATE VIEW view_ar_log AS
SELECT ar_number, arl_time AS time, arl_event AS event, arl_state AS state, arl_message AS message
FROM sge_ar, sge_ar_log WHERE ar_id = arl_parent;

CREATE VIEW view_ar_usage AS
SELECT ar_number, aru_termination_time AS termination_time, aru_qname AS queue, aru_hostname AS hostname,
       aru_slots AS slots
FROM sge_ar, sge_ar_usage WHERE ar_id = aru_parent;

CREATE VIEW view_ar_resource_usage AS
SELECT ar_number, arru_variable AS variable, arru_value AS value
FROM sge_ar, sge_ar_resource_usage WHERE ar_id = arru_parent;

-- A reservation in which no job ran has a duration of jobs of 0, so that its unused time is seen.  The original joins
-- view_ar_attribute and view_accounting by the number; of numbers that were given again each reservation has its own jobs.
CREATE VIEW view_ar_time_usage AS
SELECT r.ar_id AS ar_number,
       COALESCE(sum(to_timestamp(j.stop_time)::timestamp - to_timestamp(j.start_time)::timestamp), '0'::interval)
           AS job_duration,
       to_timestamp(v.end_time)::timestamp - to_timestamp(v.start_time)::timestamp AS ar_duration
FROM reservations r
JOIN reservation_revisions v ON v.reservation_id = r.reservation_id AND v.revision = r.revision
LEFT JOIN (
    reservation_jobs inside
    JOIN jobs j ON j.job_id = inside.job_id AND j.state IN ('Terminated', 'Error')
        AND j.submission_time > 86400 AND j.start_time >= j.submission_time
) ON inside.reservation_id = r.reservation_id
WHERE r.state NOT IN ('', 'n')
GROUP BY r.ar_id, r.reservation_id, v.start_time, v.end_time
ORDER BY r.ar_id;

CREATE VIEW view_ar_jobs AS
SELECT r.ar_id, r.reservation_id, j.job_id, j.job_user, j.state, j.start_time, j.stop_time
FROM reservation_jobs inside
JOIN reservations r ON r.reservation_id = inside.reservation_id
JOIN jobs j ON j.job_id = inside.job_id;

CREATE VIEW view_ar_efficiency AS
SELECT r.ar_id, r.reservation_id, r.owner, r.account, sum(u.reserved)::bigint AS reserved,
       sum(u.used)::bigint AS used, sum(u.unusable)::bigint AS unusable,
       sum(u.reserved - u.used - u.unusable)::bigint AS unused
FROM reservations r JOIN reservation_usage u ON u.reservation_id = r.reservation_id
GROUP BY r.ar_id, r.reservation_id, r.owner, r.account;

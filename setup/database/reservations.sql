-- Advance reservations as objects (docs/design/reservations.rst): a part of the schema, run by new installations after
-- schema.sql, and by the migration 3.2.0.  Conventions are those of schema.sql.

SET LOCAL search_path = public;

-- A row is kept for ever; what users see is ar_id, which begins again at 1 after 9999999.  The number of a live
-- reservation (ended = 0) is given to no other.
-- state: '' asked, n refused or withdrawn, w waiting, W waiting with missing resources, r running, E running with
-- missing resources, x its end has come, d deleted.
CREATE TABLE reservations (
    reservation_id bigserial PRIMARY KEY,
    ar_id integer GENERATED ALWAYS AS (((reservation_id - 1) % 9999999 + 1)::integer) STORED,
    ar_name varchar(128) NOT NULL DEFAULT '',
    account varchar(255) NOT NULL DEFAULT '',
    owner varchar(255) NOT NULL DEFAULT '',
    owner_group varchar(255) NOT NULL DEFAULT '',
    project varchar(255) NOT NULL DEFAULT 'default',
    queue_name varchar(100) NOT NULL DEFAULT '',
    submission_time bigint NOT NULL DEFAULT 0,
    start_time bigint NOT NULL DEFAULT 0,
    end_time bigint NOT NULL DEFAULT 0,
    start_window bigint NOT NULL DEFAULT 0,
    time_offset bigint NOT NULL DEFAULT 0,
    state varchar(1) NOT NULL DEFAULT '' CHECK (state IN ('', 'n', 'w', 'W', 'r', 'E', 'x', 'd')),
    state_date bigint NOT NULL DEFAULT 0,
    ended bigint NOT NULL DEFAULT 0,
    error_handling varchar(3) NOT NULL DEFAULT 'NO' CHECK (error_handling IN ('YES', 'NO')),
    replace_lost varchar(3) NOT NULL DEFAULT 'NO' CHECK (replace_lost IN ('YES', 'NO')),
    flex varchar(3) NOT NULL DEFAULT 'NO' CHECK (flex IN ('YES', 'NO')),
    interactive varchar(3) NOT NULL DEFAULT 'NO' CHECK (interactive IN ('YES', 'NO')),
    ignore_jobs varchar(3) NOT NULL DEFAULT 'NO' CHECK (ignore_jobs IN ('YES', 'NO')),
    idle_limit bigint NOT NULL DEFAULT 0,
    request text NOT NULL DEFAULT '[]',
    alternative integer NOT NULL DEFAULT 0,
    resource_list text NOT NULL DEFAULT '[]',
    queue_list text NOT NULL DEFAULT '',
    master_queue_list text NOT NULL DEFAULT '',
    host_list text NOT NULL DEFAULT '',
    properties text NOT NULL DEFAULT '',
    checkpoint_name text NOT NULL DEFAULT '',
    pe text NOT NULL DEFAULT '',
    pe_range text NOT NULL DEFAULT '',
    granted_pe text NOT NULL DEFAULT '',
    granted_slots integer NOT NULL DEFAULT 0,
    mail_options varchar(3) NOT NULL DEFAULT 'n',
    mail_list text NOT NULL DEFAULT '',
    resources integer[] NOT NULL DEFAULT '{}',
    missing integer[] NOT NULL DEFAULT '{}',
    frame_id bigint NOT NULL DEFAULT 0,
    series_id bigint NOT NULL DEFAULT 0,
    series_index integer NOT NULL DEFAULT 0,
    revision integer NOT NULL DEFAULT 1,
    message text NOT NULL DEFAULT '',
    proposal bigint NOT NULL DEFAULT 0,
    deleted_by varchar(255) NOT NULL DEFAULT ''
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX reservations_number ON reservations (ar_id) WHERE ended = 0;
CREATE INDEX reservations_any_number ON reservations (ar_id, reservation_id);
CREATE INDEX reservations_owner ON reservations (owner, reservation_id);
CREATE INDEX reservations_name ON reservations (ar_name, reservation_id) WHERE ar_name <> '';
CREATE INDEX reservations_end ON reservations (end_time);
CREATE UNIQUE INDEX reservations_frame ON reservations (frame_id) WHERE frame_id <> 0;
CREATE INDEX reservations_series ON reservations (series_id, series_index) WHERE series_id <> 0;

-- Who may use a reservation: entries as they were given, a denial without its "!".
CREATE TABLE reservation_acl (
    reservation_id bigint NOT NULL,
    entry_order integer NOT NULL,
    entry varchar(255) NOT NULL,
    denied varchar(3) NOT NULL DEFAULT 'NO' CHECK (denied IN ('YES', 'NO')),
    PRIMARY KEY (reservation_id, entry_order)
);

-- Which jobs ran, or were to run, in which reservation.
CREATE TABLE reservation_jobs (
    job_id bigint PRIMARY KEY,
    reservation_id bigint NOT NULL
);
CREATE INDEX reservation_jobs_reservation ON reservation_jobs (reservation_id, job_id);

-- One row when a reservation is granted, and one for each change.  granted_resources: "default@node-1=4,licence=2".
CREATE TABLE reservation_revisions (
    revision_id bigserial PRIMARY KEY,
    reservation_id bigint NOT NULL,
    revision integer NOT NULL,
    date bigint NOT NULL DEFAULT 0,
    author varchar(255) NOT NULL DEFAULT '',
    ar_name varchar(128) NOT NULL DEFAULT '',
    account varchar(255) NOT NULL DEFAULT '',
    start_time bigint NOT NULL DEFAULT 0,
    end_time bigint NOT NULL DEFAULT 0,
    granted_pe text NOT NULL DEFAULT '',
    granted_resources text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX reservation_revisions_number ON reservation_revisions (reservation_id, revision);

-- What qralter asks of the scheduler.  answer '': not answered yet; at most one of these for each reservation.
CREATE TABLE reservation_changes (
    change_id bigserial PRIMARY KEY,
    reservation_id bigint NOT NULL,
    date bigint NOT NULL DEFAULT 0,
    author varchar(255) NOT NULL DEFAULT '',
    change text NOT NULL DEFAULT '{}',
    answer varchar(8) NOT NULL DEFAULT '' CHECK (answer IN ('', 'granted', 'refused', 'dropped')),
    message text NOT NULL DEFAULT '',
    proposal bigint NOT NULL DEFAULT 0,
    expires bigint NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX reservation_changes_open ON reservation_changes (reservation_id) WHERE answer = '';

CREATE TABLE reservation_logs (
    reservation_log_id bigserial PRIMARY KEY,
    reservation_id bigint NOT NULL,
    date bigint NOT NULL DEFAULT 0,
    event varchar(50) NOT NULL DEFAULT '',
    state varchar(1) NOT NULL DEFAULT '' CHECK (state IN ('', 'n', 'w', 'W', 'r', 'E', 'x', 'd')),
    hostname varchar(255) NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT '',
    author varchar(255) NOT NULL DEFAULT ''
);
CREATE INDEX reservation_logs_reservation ON reservation_logs (reservation_id, reservation_log_id);
CREATE INDEX reservation_logs_event ON reservation_logs (event, date);

-- Since when, and until when, a resource was granted to a reservation, or missing in it; date_stop 0: it still is.
CREATE TABLE reservation_intervals (
    reservation_id bigint NOT NULL,
    resource_id integer NOT NULL,
    kind varchar(7) NOT NULL DEFAULT 'granted' CHECK (kind IN ('granted', 'missing')),
    date_start bigint NOT NULL DEFAULT 0,
    date_stop bigint NOT NULL DEFAULT 0
);
CREATE INDEX reservation_intervals_reservation ON reservation_intervals (reservation_id, resource_id);

-- The bill, one row for each node (network_address '' for resources without node: their type), in slot seconds.
CREATE TABLE reservation_usage (
    reservation_usage_id bigserial PRIMARY KEY,
    reservation_id bigint NOT NULL,
    queue_name varchar(100) NOT NULL,
    network_address varchar(100) NOT NULL,
    slots integer NOT NULL DEFAULT 0,
    reserved bigint NOT NULL DEFAULT 0,
    used bigint NOT NULL DEFAULT 0,
    unusable bigint NOT NULL DEFAULT 0,
    termination_time bigint NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX reservation_usage_place ON reservation_usage (reservation_id, queue_name, network_address);

-- Reservations that repeat: rule is one of RFC 5545, template the request of each occurrence. So many of its occurrences
-- as depth says are asked for in advance; the next one to be asked for is next_index, 0 in next_start = there is none.
CREATE TABLE reservation_series (
    series_id bigserial PRIMARY KEY,
    owner varchar(255) NOT NULL DEFAULT '',
    rule text NOT NULL DEFAULT '',
    time_zone text NOT NULL DEFAULT '',
    first_start bigint NOT NULL DEFAULT 0,
    duration bigint NOT NULL DEFAULT 0,
    template text NOT NULL DEFAULT '{}',
    depth integer NOT NULL DEFAULT 0,
    skips_conflicts varchar(3) NOT NULL DEFAULT 'NO' CHECK (skips_conflicts IN ('YES', 'NO')),
    occurrences integer NOT NULL DEFAULT 0,
    next_index integer NOT NULL DEFAULT 1,
    next_start bigint NOT NULL DEFAULT 0,
    ended bigint NOT NULL DEFAULT 0
);
CREATE INDEX reservation_series_live ON reservation_series (series_id) WHERE ended = 0;

-- Named lists of users: entries are login names, patterns, and @group for a group of the system.
CREATE TABLE usersets (
    userset_name varchar(100) PRIMARY KEY,
    description text NOT NULL DEFAULT ''
);
CREATE TABLE userset_entries (
    userset_name varchar(100) NOT NULL,
    entry varchar(255) NOT NULL,
    PRIMARY KEY (userset_name, entry)
);
INSERT INTO usersets (userset_name, description) VALUES
    ('arusers', 'may create advance reservations'),
    ('aroperators', 'may alter and delete every advance reservation');
INSERT INTO userset_entries (userset_name, entry) VALUES ('arusers', 'oar');


-- The reporting model of Grid Engine's ARCo, as views: always complete, filled by nobody -----------------------

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

CREATE TABLE sge_version (
    v_id integer PRIMARY KEY,
    v_version text NOT NULL,
    v_time timestamp NOT NULL
);
INSERT INTO sge_version (v_id, v_version, v_time) VALUES (5, '6.2', CURRENT_TIMESTAMP);

-- What version 3.1.0 had in the place of the tables and views of reservations.sql.

-- w: waiting, r: running, x: exited, d: deleted, W: invalid before its start, E: invalid after it.
CREATE TABLE reservation_logs (
    reservation_log_id bigserial PRIMARY KEY,
    job_id bigint NOT NULL DEFAULT 0,
    date bigint NOT NULL DEFAULT 0,
    event varchar(50) NOT NULL DEFAULT '',
    state varchar(1) NOT NULL DEFAULT 'w' CHECK (state IN ('w', 'r', 'x', 'd', 'W', 'E')),
    hostname varchar(255) NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT ''
);
CREATE INDEX reservation_logs_job ON reservation_logs (job_id, reservation_log_id);

CREATE TABLE reservation_usage (
    job_id bigint NOT NULL,
    queue_name varchar(100) NOT NULL,
    network_address varchar(100) NOT NULL,
    resources integer NOT NULL DEFAULT 0,
    reserved bigint NOT NULL DEFAULT 0,
    used bigint NOT NULL DEFAULT 0,
    termination_time bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, queue_name, network_address)
);

CREATE VIEW view_ar_attribute AS
SELECT job_id AS ar_number, job_user AS owner, submission_time, job_name AS name, project AS account, start_time,
       CASE WHEN stop_time > 0 THEN stop_time ELSE start_time + walltime END AS end_time
FROM view_jobs
WHERE reservation <> 'None';

CREATE VIEW view_ar_log AS
SELECT job_id AS ar_number, date AS time, event, state, message FROM reservation_logs;

CREATE VIEW view_ar_usage AS
SELECT job_id AS ar_number, termination_time, queue_name AS queue, network_address AS hostname, resources AS slots
FROM reservation_usage;

-- inner=<id> names its container; inner=<name> the newest container=<name> that was submitted before the job.
CREATE VIEW view_ar_jobs AS
SELECT container.job_id AS ar_id, j.job_id, j.job_user, j.state, j.start_time, j.stop_time
FROM job_types inside
JOIN public.jobs j ON j.job_id = inside.job_id
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN substr(inside.type, 7) ~ '^[0-9]{1,18}$' THEN substr(inside.type, 7)::bigint
        ELSE (SELECT max(named.job_id) FROM job_types named
              WHERE named.type = 'container=' || substr(inside.type, 7) AND named.job_id < inside.job_id)
    END AS job_id
) container
JOIN public.jobs reserved ON reserved.job_id = container.job_id AND reserved.reservation <> 'None'
WHERE inside.type LIKE 'inner=%';

CREATE VIEW view_ar_time_usage AS
SELECT ar.ar_number,
       COALESCE((SELECT sum(j.run_time) FROM view_ar_jobs i JOIN view_jobs j ON j.job_id = i.job_id
                 WHERE i.ar_id = ar.ar_number), 0)::bigint AS job_duration,
       ar.end_time - ar.start_time AS ar_duration
FROM view_ar_attribute ar;

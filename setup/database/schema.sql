-- The schema of OAR, version 3.3.0; what belongs to advance reservations is in reservations.sql.
--
-- Dates and durations are whole seconds since the epoch; 0 and '' mean "none".  Enumerations are texts with a
-- CHECK named <table>_<column>_check.  There are no foreign keys: rows are written and purged in bulk, and
-- `oar-database --check --deep` looks for what does not fit together.
-- Tables are created in the schema "public", by their owner (DB_BASE_LOGIN).  oar/lib/db/schema.py describes the
-- same tables to the programs; a test compares the two.

SET LOCAL search_path = public;

-- version: the oldest release whose programs can use the schema; revision: the minor release that made it.
CREATE TABLE schema (
    version varchar(255) NOT NULL,
    name varchar(255) NOT NULL DEFAULT '',
    revision varchar(32) NOT NULL DEFAULT ''
);

CREATE TABLE alembic_version (
    version_num varchar(32) NOT NULL CONSTRAINT alembic_version_pkc PRIMARY KEY
);


-- Resources ----------------------------------------------------------------------------------------------------

-- Administrators add columns of their own (oarproperty), of type integer or varchar(255).
CREATE TABLE resources (
    resource_id serial PRIMARY KEY,
    type varchar(100) NOT NULL DEFAULT 'default',
    network_address varchar(100) NOT NULL DEFAULT '',
    state varchar(9) NOT NULL DEFAULT 'Alive'
        CHECK (state IN ('Alive', 'Absent', 'Suspected', 'Dead')),
    next_state varchar(9) NOT NULL DEFAULT 'UnChanged'
        CHECK (next_state IN ('UnChanged', 'Alive', 'Absent', 'Suspected', 'Dead')),
    finaud_decision varchar(3) NOT NULL DEFAULT 'NO' CHECK (finaud_decision IN ('YES', 'NO')),
    next_finaud_decision varchar(3) NOT NULL DEFAULT 'NO' CHECK (next_finaud_decision IN ('YES', 'NO')),
    state_num integer NOT NULL DEFAULT 0,
    suspended_jobs varchar(3) NOT NULL DEFAULT 'NO' CHECK (suspended_jobs IN ('YES', 'NO')),
    scheduler_priority bigint NOT NULL DEFAULT 0,
    switch varchar(50),
    cpu integer,
    cpuset varchar(255) NOT NULL DEFAULT '0',
    besteffort varchar(3) NOT NULL DEFAULT 'YES' CHECK (besteffort IN ('YES', 'NO')),
    deploy varchar(3) NOT NULL DEFAULT 'NO' CHECK (deploy IN ('YES', 'NO')),
    expiry_date bigint NOT NULL DEFAULT 0,
    desktop_computing varchar(3) NOT NULL DEFAULT 'NO' CHECK (desktop_computing IN ('YES', 'NO')),
    last_job_date bigint NOT NULL DEFAULT 0,
    -- 0: neither halted nor woken; 1: may be halted; a date: until then; 2147483646: for ever; 2147483647: never halted
    available_upto bigint NOT NULL DEFAULT 2147483647 CHECK (available_upto BETWEEN 0 AND 2147483647),
    last_available_upto bigint NOT NULL DEFAULT 0,
    drain varchar(3) NOT NULL DEFAULT 'NO' CHECK (drain IN ('YES', 'NO'))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX resource_state ON resources (state);
CREATE INDEX resource_type ON resources (type);
CREATE INDEX resource_network_address ON resources (network_address);
CREATE INDEX resource_next_state ON resources (resource_id) WHERE next_state <> 'UnChanged';
CREATE INDEX resource_suspended_jobs ON resources (resource_id) WHERE suspended_jobs = 'YES';

-- Every value a resource ever had, as intervals; date_stop = 0 is the present one.
CREATE TABLE resource_logs (
    resource_log_id bigserial PRIMARY KEY,
    resource_id integer NOT NULL DEFAULT 0,
    attribute varchar(255) NOT NULL DEFAULT '',
    value varchar(255) NOT NULL DEFAULT '',
    date_start bigint NOT NULL DEFAULT 0,
    date_stop bigint NOT NULL DEFAULT 0,
    finaud_decision varchar(3) NOT NULL DEFAULT 'NO' CHECK (finaud_decision IN ('YES', 'NO'))
);
CREATE UNIQUE INDEX resource_logs_open ON resource_logs (resource_id, attribute) WHERE date_stop = 0;
CREATE INDEX ix_resource_logs_id_dstop_attr ON resource_logs (resource_id, date_stop, attribute);
CREATE INDEX resource_logs_unavailable ON resource_logs (date_stop, date_start)
    WHERE attribute = 'state' AND value IN ('Absent', 'Dead', 'Suspected');
CREATE INDEX resource_logs_attribute ON resource_logs (attribute, date_stop);
CREATE INDEX resource_logs_start ON resource_logs (date_start);


-- Jobs and what they ask for -----------------------------------------------------------------------------------

CREATE TABLE jobs (
    job_id bigserial PRIMARY KEY,
    array_id bigint NOT NULL DEFAULT 0,
    array_index integer NOT NULL DEFAULT 1,
    array_limit integer NOT NULL DEFAULT 0,
    initial_request text,
    job_name varchar(100),
    cpuset_name varchar(255) NOT NULL DEFAULT '',
    job_type varchar(11) NOT NULL DEFAULT 'PASSIVE' CHECK (job_type IN ('PASSIVE', 'INTERACTIVE')),
    info_type varchar(255),
    state varchar(16) NOT NULL DEFAULT 'Waiting'
        CHECK (state IN ('Waiting', 'Hold', 'toLaunch', 'toError', 'toAckReservation', 'Launching', 'Running',
                         'Suspended', 'Resuming', 'Finishing', 'Terminated', 'Error')),
    reservation varchar(10) NOT NULL DEFAULT 'None' CHECK (reservation IN ('None', 'toSchedule', 'Scheduled')),
    message text NOT NULL DEFAULT '',
    scheduler_info text NOT NULL DEFAULT '',
    job_user varchar(255) NOT NULL DEFAULT '',
    project varchar(255) NOT NULL DEFAULT '',
    job_group varchar(255) NOT NULL DEFAULT '',
    command text,
    exit_code integer DEFAULT 0,
    queue_name varchar(100) NOT NULL DEFAULT '',
    properties text,
    launching_directory text NOT NULL DEFAULT '',
    submission_time bigint NOT NULL DEFAULT 0,
    start_time bigint NOT NULL DEFAULT 0,
    stop_time bigint NOT NULL DEFAULT 0,
    file_id bigint,
    accounted varchar(3) NOT NULL DEFAULT 'NO' CHECK (accounted IN ('NO', 'YES', 'NA')),
    notify text,
    assigned_moldable_job bigint DEFAULT 0,
    checkpoint bigint NOT NULL DEFAULT 0,
    checkpoint_signal integer NOT NULL DEFAULT 12,
    stdout_file text,
    stderr_file text,
    resubmit_job_id bigint NOT NULL DEFAULT 0,
    suspended varchar(3) NOT NULL DEFAULT 'NO' CHECK (suspended IN ('YES', 'NO')),
    job_env text,
    last_karma double precision
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX state_id ON jobs (state, job_id);
CREATE INDEX jobs_queue ON jobs (queue_name, job_id);
CREATE INDEX jobs_user ON jobs (job_user, job_id);
CREATE INDEX jobs_project ON jobs (project, job_id);
CREATE INDEX job_array_id ON jobs (array_id);
CREATE INDEX jobs_live_state ON jobs (state, job_id) WHERE state <> 'Terminated' AND state <> 'Error';
CREATE INDEX jobs_live_queue ON jobs (queue_name, job_id) WHERE state <> 'Terminated' AND state <> 'Error';
CREATE INDEX jobs_reservation ON jobs (reservation, job_id) WHERE reservation <> 'None';
CREATE INDEX jobs_to_account ON jobs (job_id) WHERE accounted = 'NO' AND state IN ('Terminated', 'Error');
CREATE INDEX jobs_suspended ON jobs (job_id) WHERE suspended = 'YES';
CREATE INDEX assigned_moldable_job ON jobs (assigned_moldable_job);
CREATE INDEX jobs_resubmitted ON jobs (resubmit_job_id) WHERE resubmit_job_id <> 0;
CREATE INDEX jobs_file ON jobs (file_id) WHERE file_id IS NOT NULL;
CREATE INDEX jobs_start ON jobs (start_time);
CREATE INDEX jobs_stop ON jobs (stop_time);
CREATE INDEX jobs_submission ON jobs (submission_time);

-- One row for each -l of a job.  default_walltime: what the site gives one without walltime; 0 = the user named it.
CREATE TABLE moldable_job_descriptions (
    moldable_id bigserial PRIMARY KEY,
    moldable_job_id bigint NOT NULL DEFAULT 0,
    moldable_walltime bigint NOT NULL DEFAULT 0,
    moldable_index varchar(7) NOT NULL DEFAULT 'CURRENT' CHECK (moldable_index IN ('CURRENT', 'LOG')),
    default_walltime bigint NOT NULL DEFAULT 0
);
CREATE INDEX job_mold ON moldable_job_descriptions (moldable_job_id);
CREATE INDEX moldable_current ON moldable_job_descriptions (moldable_id) WHERE moldable_index = 'CURRENT';

-- One row for each part of a -l between "+".
CREATE TABLE job_resource_groups (
    res_group_id bigserial PRIMARY KEY,
    res_group_moldable_id bigint NOT NULL DEFAULT 0,
    res_group_property text,
    res_group_index varchar(7) NOT NULL DEFAULT 'CURRENT' CHECK (res_group_index IN ('CURRENT', 'LOG'))
);
CREATE INDEX moldable_job ON job_resource_groups (res_group_moldable_id);

-- One row for each level of a part; res_job_order counts from 0 down the hierarchy; -1, -2, -3 are ALL, BEST, BESTHALF.
CREATE TABLE job_resource_descriptions (
    res_job_group_id bigint NOT NULL,
    res_job_resource_type varchar(255) NOT NULL,
    res_job_order integer NOT NULL,
    res_job_value integer NOT NULL DEFAULT 0,
    res_job_index varchar(7) NOT NULL DEFAULT 'CURRENT' CHECK (res_job_index IN ('CURRENT', 'LOG')),
    PRIMARY KEY (res_job_group_id, res_job_resource_type, res_job_order)
);

-- The texts of -t as given.  types_index is what programs write; type_index is its documented name.
CREATE TABLE job_types (
    job_type_id bigserial PRIMARY KEY,
    job_id bigint NOT NULL DEFAULT 0,
    type varchar(255) NOT NULL DEFAULT '',
    types_index varchar(7) NOT NULL DEFAULT 'CURRENT' CHECK (types_index IN ('CURRENT', 'LOG')),
    type_index varchar(7) GENERATED ALWAYS AS (types_index) STORED
);
CREATE INDEX job_types_job ON job_types (job_id);
CREATE INDEX job_types_current ON job_types (type, job_id) WHERE types_index = 'CURRENT';

CREATE TABLE job_dependencies (
    job_id bigint NOT NULL,
    job_id_required bigint NOT NULL,
    job_dependency_index varchar(7) NOT NULL DEFAULT 'CURRENT' CHECK (job_dependency_index IN ('CURRENT', 'LOG')),
    min_start_shift varchar(12) NOT NULL DEFAULT '',
    max_start_shift varchar(12) NOT NULL DEFAULT '',
    dependency_condition varchar(5) NOT NULL DEFAULT ''
        CHECK (dependency_condition IN ('', 'ok', 'notok', 'any', 'start')),
    PRIMARY KEY (job_id, job_id_required)
);
CREATE INDEX job_dependencies_required ON job_dependencies (job_id_required);
CREATE INDEX job_dependencies_current ON job_dependencies (job_id, job_id_required)
    WHERE job_dependency_index = 'CURRENT';

-- Every state a job ever had, as intervals; date_stop = 0 is the present one.
CREATE TABLE job_state_logs (
    job_state_log_id bigserial PRIMARY KEY,
    job_id bigint NOT NULL DEFAULT 0,
    job_state varchar(16) NOT NULL DEFAULT 'Waiting'
        CHECK (job_state IN ('Waiting', 'Hold', 'toLaunch', 'toError', 'toAckReservation', 'Launching', 'Running',
                             'Suspended', 'Resuming', 'Finishing', 'Terminated', 'Error')),
    date_start bigint NOT NULL DEFAULT 0,
    date_stop bigint NOT NULL DEFAULT 0
);
CREATE INDEX job_state_logs_job ON job_state_logs (job_id, date_start);
CREATE INDEX job_state_logs_state ON job_state_logs (job_state, date_start);
CREATE UNIQUE INDEX job_state_logs_open ON job_state_logs (job_id) WHERE date_stop = 0;

CREATE TABLE assigned_resources (
    moldable_job_id bigint NOT NULL,
    resource_id integer NOT NULL,
    assigned_resource_index varchar(7) NOT NULL DEFAULT 'CURRENT' CHECK (assigned_resource_index IN ('CURRENT', 'LOG')),
    PRIMARY KEY (moldable_job_id, resource_id)
);
CREATE INDEX assigned_resources_history ON assigned_resources (resource_id, moldable_job_id);
CREATE INDEX assigned_resources_current ON assigned_resources (resource_id, moldable_job_id)
    WHERE assigned_resource_index = 'CURRENT';

-- Requests to end a job.
CREATE TABLE frag_jobs (
    frag_id_job bigint PRIMARY KEY,
    frag_date bigint NOT NULL DEFAULT 0,
    frag_state varchar(16) NOT NULL DEFAULT 'LEON'
        CHECK (frag_state IN ('LEON', 'TIMER_ARMED', 'LEON_EXTERMINATE', 'FRAGGED')),
    frag_cause varchar(32) NOT NULL DEFAULT '',
    frag_data text NOT NULL DEFAULT '{}'
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX frag_jobs_open ON frag_jobs (frag_state, frag_id_job) WHERE frag_state <> 'FRAGGED';

CREATE TABLE walltime_change (
    job_id bigint PRIMARY KEY,
    pending bigint NOT NULL DEFAULT 0,
    force varchar(3) NOT NULL DEFAULT 'NO' CHECK (force IN ('YES', 'NO')),
    delay_next_jobs varchar(3) NOT NULL DEFAULT 'NO' CHECK (delay_next_jobs IN ('YES', 'NO')),
    whole varchar(3) NOT NULL DEFAULT 'NO' CHECK (whole IN ('YES', 'NO')),
    granted bigint NOT NULL DEFAULT 0,
    granted_with_force bigint NOT NULL DEFAULT 0,
    granted_with_delay_next_jobs bigint NOT NULL DEFAULT 0,
    granted_with_whole bigint NOT NULL DEFAULT 0,
    timeout bigint NOT NULL DEFAULT 0
);

-- Secrets of jobs: for the owner of the database alone.
CREATE TABLE challenges (
    job_id bigint PRIMARY KEY,
    challenge varchar(255) NOT NULL DEFAULT '',
    ssh_private_key text,
    ssh_public_key text
);

CREATE TABLE files (
    file_id bigserial PRIMARY KEY,
    idfile bigint GENERATED ALWAYS AS (file_id) STORED,
    md5sum varchar(255),
    location varchar(255),
    method varchar(255),
    compression varchar(255),
    size bigint NOT NULL DEFAULT 0
);
CREATE INDEX md5sum ON files (md5sum);


-- Events -------------------------------------------------------------------------------------------------------

CREATE TABLE event_logs (
    event_id bigserial PRIMARY KEY,
    type varchar(100) NOT NULL DEFAULT '',
    job_id bigint NOT NULL DEFAULT 0,
    date bigint NOT NULL DEFAULT 0,
    description text NOT NULL DEFAULT '',
    to_check varchar(3) NOT NULL DEFAULT 'YES' CHECK (to_check IN ('YES', 'NO'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX event_logs_job ON event_logs (job_id);
CREATE INDEX event_logs_type ON event_logs (type, date);
CREATE INDEX event_logs_date ON event_logs (date);
CREATE INDEX event_logs_to_check ON event_logs (event_id) WHERE to_check = 'YES';

CREATE TABLE event_log_hostnames (
    event_id bigint NOT NULL,
    hostname varchar(255) NOT NULL,
    PRIMARY KEY (event_id, hostname)
);
CREATE INDEX event_log_hostnames_host ON event_log_hostnames (hostname, event_id);


-- Predictions of the scheduler ---------------------------------------------------------------------------------

-- Row 0 of the predictions is the date of the last round.  The copies _visu are what tools read, _log is history.
CREATE TABLE gantt_jobs_predictions (
    moldable_job_id bigint PRIMARY KEY,
    start_time bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- All resources of a prediction in one row: a round may have to write those of thousands of jobs.  The views
-- gantt_jobs_resources and gantt_jobs_resources_visu have a row for each resource.
CREATE TABLE gantt_jobs_sets (
    moldable_job_id bigint PRIMARY KEY,
    resources integer[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

CREATE TABLE gantt_jobs_predictions_visu (
    moldable_job_id bigint PRIMARY KEY,
    start_time bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

CREATE TABLE gantt_jobs_sets_visu (
    moldable_job_id bigint PRIMARY KEY,
    resources integer[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

CREATE TABLE gantt_jobs_predictions_log (
    sched_date bigint NOT NULL,
    moldable_job_id bigint NOT NULL,
    start_time bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (sched_date, moldable_job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

CREATE TABLE gantt_jobs_resources_log (
    sched_date bigint NOT NULL,
    moldable_job_id bigint NOT NULL,
    resource_id integer NOT NULL,
    PRIMARY KEY (sched_date, moldable_job_id, resource_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);


-- Queues, rules, accounting ------------------------------------------------------------------------------------

CREATE TABLE queues (
    queue_name varchar(100) PRIMARY KEY,
    priority integer NOT NULL DEFAULT 0,
    scheduler_policy varchar(100) NOT NULL DEFAULT '',
    state varchar(9) NOT NULL DEFAULT 'Active' CHECK (state IN ('Active', 'notActive', 'orphaned'))
);

-- Names of policies; kept for tools, never read by OAR.
CREATE TABLE scheduler (
    name varchar(100) PRIMARY KEY,
    script varchar(100) NOT NULL DEFAULT '',
    description varchar(255) NOT NULL DEFAULT ''
);

CREATE TABLE admission_rules (
    id bigserial PRIMARY KEY,
    priority integer NOT NULL DEFAULT 0,
    enabled varchar(3) NOT NULL DEFAULT 'YES' CHECK (enabled IN ('YES', 'NO')),
    rule text NOT NULL
);

-- The text of a rule before each change.
CREATE TABLE admission_rules_log (
    log_id bigserial PRIMARY KEY,
    id bigint NOT NULL,
    date bigint NOT NULL DEFAULT 0,
    author varchar(255) NOT NULL DEFAULT '',
    action varchar(8) NOT NULL DEFAULT '',
    rule text NOT NULL DEFAULT ''
);
CREATE INDEX admission_rules_log_rule ON admission_rules_log (id, log_id);

CREATE TABLE accounting (
    window_start bigint NOT NULL,
    window_stop bigint NOT NULL DEFAULT 0,
    accounting_user varchar(255) NOT NULL DEFAULT '',
    accounting_project varchar(255) NOT NULL DEFAULT '',
    queue_name varchar(100) NOT NULL DEFAULT '',
    consumption_type varchar(5) NOT NULL DEFAULT 'ASKED' CHECK (consumption_type IN ('ASKED', 'USED')),
    consumption bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (window_start, window_stop, accounting_user, accounting_project, queue_name, consumption_type)
);
CREATE INDEX accounting_by_user ON accounting (accounting_user, window_start);
CREATE INDEX accounting_by_project ON accounting (accounting_project, window_start);
CREATE INDEX accounting_by_queue ON accounting (queue_name, window_start);


-- OAR's own: not for readers outside ---------------------------------------------------------------------------

-- What the Runner has done for each job it has in hand.
CREATE TABLE job_runs (
    job_id bigint PRIMARY KEY,
    attempt integer NOT NULL DEFAULT 0,
    phase varchar(16) NOT NULL DEFAULT 'CLAIMED'
        CHECK (phase IN ('CLAIMED', 'NODES_OK', 'PROLOGUE_OK', 'EXEC_SENT', 'GO', 'STARTED', 'FAILED', 'REPORTED',
                         'EXTERMINATE', 'EPILOGUE_OK', 'CLEANED')),
    head_host varchar(255) NOT NULL DEFAULT '',
    bad_hosts text NOT NULL DEFAULT '',
    oarexec_code integer,
    script_status integer,
    report_date bigint NOT NULL DEFAULT 0,
    boot_id varchar(64) NOT NULL DEFAULT '',
    failures integer NOT NULL DEFAULT 0,
    silent_since bigint NOT NULL DEFAULT 0,
    updated bigint NOT NULL DEFAULT 0,
    detail text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT ''
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- Why a waiting job has not started.
CREATE TABLE job_reasons (
    job_id bigint PRIMARY KEY,
    date bigint NOT NULL,
    code varchar(16) NOT NULL,
    reason text NOT NULL,
    data text NOT NULL DEFAULT '{}',
    changes integer NOT NULL DEFAULT 1
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- What a job has waited for: a row whenever the code of its reason changes.  The older ones of many are folded: a row
-- with seconds is the sum of the times of a code before the first row without, and its date is when they began.
CREATE TABLE job_waits (
    job_id bigint NOT NULL,
    date bigint NOT NULL,
    code varchar(16) NOT NULL,
    seconds bigint,
    PRIMARY KEY (job_id, date)
);

-- When a job that had to wait was foretold to start, and when it started.  first_: what was said first; near_: what was
-- said when the start first seemed to be within an hour.
CREATE TABLE job_predictions (
    job_id bigint PRIMARY KEY,
    queue_name varchar(100) NOT NULL DEFAULT '',
    first_date bigint NOT NULL DEFAULT 0,
    first_start bigint NOT NULL DEFAULT 0,
    near_date bigint NOT NULL DEFAULT 0,
    near_start bigint NOT NULL DEFAULT 0,
    real_start bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX job_predictions_start ON job_predictions (real_start);

-- The primary key makes a second automatic resubmission of one job impossible.
CREATE TABLE auto_resubmissions (
    job_id bigint PRIMARY KEY,
    new_job_id bigint NOT NULL
);

-- Why a job ended: written with its final state.
CREATE TABLE job_ends (
    job_id bigint PRIMARY KEY,
    date bigint NOT NULL,
    code varchar(32) NOT NULL,
    data text NOT NULL DEFAULT '{}'
);

-- What a job used on each of its nodes.
CREATE TABLE job_usage (
    job_id bigint NOT NULL,
    network_address varchar(100) NOT NULL,
    cpu_seconds double precision,
    memory_peak bigint,
    read_bytes bigint,
    write_bytes bigint,
    cores integer NOT NULL DEFAULT 0,
    memory_limit bigint,
    oom_kills bigint,
    forks_denied bigint,
    PRIMARY KEY (job_id, network_address)
);

-- token_hash is SHA-256 of the secret, in hexadecimal; the secret itself is kept nowhere.
CREATE TABLE api_tokens (
    token_id bigserial PRIMARY KEY,
    token_user varchar(255) NOT NULL,
    token_hash varchar(64) NOT NULL UNIQUE,
    scope varchar(255) NOT NULL DEFAULT 'rw',
    comment text NOT NULL DEFAULT '',
    created bigint NOT NULL DEFAULT 0,
    expires bigint NOT NULL DEFAULT 0,
    last_used bigint NOT NULL DEFAULT 0,
    revoked bigint NOT NULL DEFAULT 0,
    proved bigint NOT NULL DEFAULT 0,
    parent bigint NOT NULL DEFAULT 0
);

-- Jobs that were submitted by tokens that allow nothing but submissions.
CREATE TABLE token_jobs (
    job_id bigint PRIMARY KEY,
    token_id bigint NOT NULL DEFAULT 0
);

-- Requests that may be repeated: sums of their keys and of what was asked, and the answer.
CREATE TABLE submission_keys (
    key_user varchar(255) NOT NULL,
    key_hash varchar(64) NOT NULL,
    request_hash varchar(64) NOT NULL,
    answer text NOT NULL DEFAULT '',
    created bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (key_user, key_hash)
);
CREATE INDEX submission_keys_created ON submission_keys (created);

-- How far those have come that follow the history: the last rows of job_state_logs and of event_logs.
CREATE TABLE history_positions (
    reader varchar(32) PRIMARY KEY,
    state_log bigint NOT NULL DEFAULT 0,
    event bigint NOT NULL DEFAULT 0
);

-- The last success of each task that a timer runs on the server: accounting, purge, phoenix.
CREATE TABLE task_runs (
    task varchar(32) PRIMARY KEY,
    last_success bigint NOT NULL DEFAULT 0
);

-- What decides about jobs, each change of it: as it was before and as it is; NULL: there was, or there is, none.
CREATE TABLE policy_log (
    log_id bigserial PRIMARY KEY,
    date bigint NOT NULL DEFAULT 0,
    author varchar(255) NOT NULL DEFAULT '',
    kind varchar(16) NOT NULL DEFAULT '',
    name varchar(255) NOT NULL DEFAULT '',
    former text,
    value text
);
CREATE INDEX policy_log_name ON policy_log (kind, name, log_id);

-- Launches that are held until a fault is gone; job_user '' = those of all users.
CREATE TABLE launch_holds (
    hold_id bigserial PRIMARY KEY,
    fault varchar(16) NOT NULL DEFAULT 'ACCOUNT'
        CHECK (fault IN ('ACCOUNT', 'HOME', 'PROLOGUE', 'NODE_SETUP', 'SERVER_SCRIPT', 'SERVER_EPILOGUE', 'CONFIGURATION')),
    job_user varchar(255) NOT NULL DEFAULT '',
    node varchar(255) NOT NULL DEFAULT '',
    began bigint NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    next_try bigint NOT NULL DEFAULT 0,
    confirmed varchar(3) NOT NULL DEFAULT 'NO' CHECK (confirmed IN ('YES', 'NO')),
    trial_job bigint NOT NULL DEFAULT 0,
    reason text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX launch_holds_fault ON launch_holds (fault, job_user);

-- Why a resource is Suspected, Absent or Dead; author '' = OAR decided it.
CREATE TABLE state_reasons (
    resource_id integer PRIMARY KEY,
    date bigint NOT NULL DEFAULT 0,
    author varchar(255) NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '',
    node_check varchar(16) NOT NULL DEFAULT '',
    job_user varchar(255) NOT NULL DEFAULT ''
);


-- Views --------------------------------------------------------------------------------------------------------

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

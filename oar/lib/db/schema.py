"""The schema: every table with its columns, checks and indexes, declared once.

A new database is created from it (``migrations.install``), a database is compared with it (``oar-database --check``,
``--fix-index``), and docs/design/schema.rst lists it. Views, functions and grants are SQL files in ``setup/database``.

Dates and durations are whole seconds since the epoch; 0 and '' mean "none". There are no foreign keys: rows are written
and purged in bulk, and ``oar-database --check --deep`` looks for rows that do not fit together. In addition to the
columns here, ``resources`` has those that administrators added.
"""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    Float,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Text,
    text,
)

from oar.lib.db import schema_accounts, schema_reservations
from oar.lib.db.schema_tables import (
    UPDATED_IN_PLACE,
    VACUUMED_EARLY,
    flag,
    index_column,
    integer,
    key,
    long_text,
    metadata,
    number,
    one_of,
    resource_key,
    sequence_number,
    string,
    table,
)
from oar.lib.jobs import states
from oar.lib.nodes import states as node_states

#: Views of the schema public.
VIEWS = (
    "gantt_jobs_resources",
    "gantt_jobs_resources_visu",
    *schema_reservations.VIEWS,
    "view_jobs",
    "view_nodes",
    "view_usage_daily",
)
#: Tables that nobody but the owner may read in full: oar_public.jobs stands for jobs, files has some open columns.
SECRET = (
    *("challenges", "api_tokens", "token_jobs", "submission_keys", "job_runs", "jobs", "files"),
    *("history_positions", "outbox", "policy_log", "server_state", "task_runs", "server_generation", "servers"),
    *schema_accounts.SECRET,
)


_LIVE = text("state <> 'Terminated' AND state <> 'Error'")
_WAITING = text(f"state IN ({', '.join(repr(str(state)) for state in states.LIMITED_WAITING)})")

table(
    "schema",
    "One row. version: the oldest release whose programs can use the schema; revision: the release that made it.",
    Column("version", String(255), nullable=False),
    string("name", 255),
    string("revision", 32),
)
table(
    "alembic_version",
    "One row: the last migration.",
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

# -- resources --------------------------------------------------------------------------------------------------------

table(
    "resources",
    "Resources. Administrators add columns of their own (oarproperty), of type integer or varchar(255).",
    Column("resource_id", Integer, primary_key=True),
    string("type", 100, "default"),
    string("network_address", 100),
    one_of("state", 9, "Alive", node_states.ResourceState),
    one_of("next_state", 9, "UnChanged", [node_states.UNCHANGED, *node_states.ResourceState]),
    flag("finaud_decision"),
    flag("next_finaud_decision"),
    integer("state_num"),
    flag("suspended_jobs"),
    number("scheduler_priority"),
    Column("switch", String(50)),
    Column("cpu", Integer),
    string("cpuset", 255, "0"),
    flag("besteffort", "YES"),
    flag("deploy"),
    number("expiry_date"),
    flag("desktop_computing"),
    number("last_job_date"),
    number("available_upto", node_states.ALWAYS_AVAILABLE),
    number("last_available_upto"),
    flag("drain"),
    CheckConstraint("available_upto BETWEEN 0 AND 2147483647", name="resources_available_upto_check"),
    Index("resource_state", "state"),
    Index("resource_type", "type"),
    Index("resource_network_address", "network_address"),
    Index("resource_next_state", "resource_id", postgresql_where=text("next_state <> 'UnChanged'")),
    Index("resource_suspended_jobs", "resource_id", postgresql_where=text("suspended_jobs = 'YES'")),
    storage=UPDATED_IN_PLACE | VACUUMED_EARLY,
)
table(
    "resource_logs",
    "Former and present values of resources, as intervals; date_stop = 0: the present value.",
    sequence_number("resource_log_id"),
    integer("resource_id"),
    string("attribute", 255),
    string("value", 255),
    number("date_start"),
    number("date_stop"),
    flag("finaud_decision"),
    Index("resource_logs_open", "resource_id", "attribute", unique=True, postgresql_where=text("date_stop = 0")),
    Index("ix_resource_logs_id_dstop_attr", "resource_id", "date_stop", "attribute"),
    Index(
        "resource_logs_unavailable",
        "date_stop",
        "date_start",
        postgresql_where=text("attribute = 'state' AND value IN ('Absent', 'Dead', 'Suspected')"),
    ),
    Index("resource_logs_attribute", "attribute", "date_stop"),
    Index("resource_logs_start", "date_start"),
)

# -- jobs and their requests ------------------------------------------------------------------------------------------

table(
    "jobs",
    "Jobs, one row each, also for each job of an array.",
    sequence_number("job_id"),
    number("array_id"),
    integer("array_index", 1),
    integer("array_limit"),
    Column("initial_request", Text),
    Column("job_name", String(100)),
    string("cpuset_name", 255),
    one_of("job_type", 11, "PASSIVE", states.JobType),
    Column("info_type", String(255)),
    one_of("state", 16, "Waiting", states.JobState),
    one_of("reservation", 10, "None", states.Reservation),
    long_text("message"),
    long_text("scheduler_info"),
    string("job_user", 255),
    string("project", 255),
    string("job_group", 255),
    Column("command", Text),
    Column("exit_code", Integer, server_default=text("0")),
    string("queue_name", 100),
    Column("properties", Text),
    long_text("launching_directory"),
    number("submission_time"),
    number("start_time"),
    number("stop_time"),
    Column("file_id", BigInteger),
    one_of("accounted", 3, "NO", states.Accounted),
    Column("notify", Text),
    Column("assigned_moldable_job", BigInteger, server_default=text("0")),
    number("checkpoint"),
    integer("checkpoint_signal", 12),
    Column("stdout_file", Text),
    Column("stderr_file", Text),
    number("resubmit_job_id"),
    flag("suspended"),
    Column("job_env", Text),
    Column("last_karma", Float(53)),
    Index("state_id", "state", "job_id"),
    Index("jobs_queue", "queue_name", "job_id"),
    Index("jobs_user", "job_user", "job_id"),
    Index("jobs_project", "project", "job_id"),
    Index("job_array_id", "array_id"),
    Index("jobs_live_state", "state", "job_id", postgresql_where=_LIVE),
    Index("jobs_waiting_user", "job_user", postgresql_where=_WAITING),
    Index("jobs_live_queue", "queue_name", "job_id", postgresql_where=_LIVE),
    Index("jobs_reservation", "reservation", "job_id", postgresql_where=text("reservation <> 'None'")),
    Index(
        "jobs_to_account",
        "job_id",
        postgresql_where=text("accounted = 'NO' AND state IN ('Terminated', 'Error')"),
    ),
    Index("jobs_suspended", "job_id", postgresql_where=text("suspended = 'YES'")),
    Index("assigned_moldable_job", "assigned_moldable_job"),
    Index("jobs_resubmitted", "resubmit_job_id", postgresql_where=text("resubmit_job_id <> 0")),
    Index("jobs_file", "file_id", postgresql_where=text("file_id IS NOT NULL")),
    Index("jobs_start", "start_time"),
    Index("jobs_stop", "stop_time"),
    Index("jobs_submission", "submission_time"),
    storage=UPDATED_IN_PLACE | VACUUMED_EARLY,
)
table(
    "moldable_job_descriptions",
    "Alternatives of a job, one for each -l. default_walltime: the walltime if it is a default of the site, else 0."
    " resources: the number that it would take, as far as its admission knew it, else 0. memory_per_node,"
    " memory_per_core: the MiB that it asks on each node, or for each of its resources; 0: none. Both are set for the"
    " default of the site.",
    sequence_number("moldable_id"),
    number("moldable_job_id"),
    number("moldable_walltime"),
    index_column("moldable_index"),
    number("default_walltime"),
    integer("resources"),
    number("memory_per_node"),
    number("memory_per_core"),
    Index("job_mold", "moldable_job_id"),
    Index("moldable_current", "moldable_id", postgresql_where=text("moldable_index = 'CURRENT'")),
)
table(
    "job_resource_groups",
    'Parts of an alternative, which "+" separates.',
    sequence_number("res_group_id"),
    number("res_group_moldable_id"),
    Column("res_group_property", Text),
    index_column("res_group_index"),
    Index("moldable_job", "res_group_moldable_id"),
)
table(
    "job_resource_descriptions",
    "Levels of a part; res_job_order counts from 0 down the hierarchy; -1, -2, -3 are ALL, BEST, BESTHALF.",
    key("res_job_group_id"),
    Column("res_job_resource_type", String(255), primary_key=True),
    Column("res_job_order", Integer, primary_key=True, autoincrement=False),
    integer("res_job_value"),
    index_column("res_job_index"),
)
table(
    "job_types",
    "Types of jobs (-t) as given. Programs write types_index; type_index is its documented name.",
    sequence_number("job_type_id"),
    number("job_id"),
    string("type", 255),
    index_column("types_index"),
    Column("type_index", String(7), Computed("types_index", persisted=True)),
    Index("job_types_job", "job_id"),
    Index("job_types_current", "type", "job_id", postgresql_where=text("types_index = 'CURRENT'")),
)
table(
    "job_dependencies",
    "Jobs that a job waits for, with the condition and the permitted distance between the starts.",
    key("job_id"),
    key("job_id_required"),
    index_column("job_dependency_index"),
    string("min_start_shift", 12),
    string("max_start_shift", 12),
    one_of("dependency_condition", 5, "", ["", *states.DependencyCondition]),
    Index("job_dependencies_required", "job_id_required"),
    Index(
        "job_dependencies_current",
        "job_id",
        "job_id_required",
        postgresql_where=text("job_dependency_index = 'CURRENT'"),
    ),
)
table(
    "job_state_logs",
    "Former and present states of jobs, as intervals; date_stop = 0: the present state.",
    sequence_number("job_state_log_id"),
    number("job_id"),
    one_of("job_state", 16, "Waiting", states.JobState),
    number("date_start"),
    number("date_stop"),
    Index("job_state_logs_job", "job_id", "date_start"),
    Index("job_state_logs_state", "job_state", "date_start"),
    Index("job_state_logs_open", "job_id", unique=True, postgresql_where=text("date_stop = 0")),
)
table(
    "assigned_resources",
    "Resources of the alternatives that were started or are to be started.",
    key("moldable_job_id"),
    resource_key(),
    index_column("assigned_resource_index"),
    Index("assigned_resources_history", "resource_id", "moldable_job_id"),
    Index(
        "assigned_resources_current",
        "resource_id",
        "moldable_job_id",
        postgresql_where=text("assigned_resource_index = 'CURRENT'"),
    ),
)
table(
    "frag_jobs",
    "Requests to end a job.",
    key("frag_id_job"),
    number("frag_date"),
    one_of("frag_state", 16, "LEON", states.KillState),
    string("frag_cause", 32),
    long_text("frag_data", "{}"),
    Index("frag_jobs_open", "frag_state", "frag_id_job", postgresql_where=text("frag_state <> 'FRAGGED'")),
    storage=VACUUMED_EARLY,
)
table(
    "walltime_change",
    "Changes of walltimes, requested and granted, in seconds.",
    key("job_id"),
    number("pending"),
    flag("force"),
    flag("delay_next_jobs"),
    flag("whole"),
    number("granted"),
    number("granted_with_force"),
    number("granted_with_delay_next_jobs"),
    number("granted_with_whole"),
    number("timeout"),
)
table(
    "challenges",
    "Secrets of jobs, for the owner of the database only.",
    key("job_id"),
    string("challenge", 255),
    Column("ssh_private_key", Text),
    Column("ssh_public_key", Text),
)
table(
    "files",
    "Staged files of jobs. idfile is the documented name of file_id.",
    sequence_number("file_id"),
    Column("idfile", BigInteger, Computed("file_id", persisted=True)),
    Column("md5sum", String(255)),
    Column("location", String(255)),
    Column("method", String(255)),
    Column("compression", String(255)),
    number("size"),
    Index("md5sum", "md5sum"),
)

# -- events -----------------------------------------------------------------------------------------------------------

table(
    "event_logs",
    "Events of jobs, nodes and the server.",
    sequence_number("event_id"),
    string("type", 100),
    number("job_id"),
    number("date"),
    long_text("description"),
    flag("to_check", "YES"),
    Index("event_logs_job", "job_id"),
    Index("event_logs_type", "type", "date"),
    Index("event_logs_date", "date"),
    Index("event_logs_to_check", "event_id", postgresql_where=text("to_check = 'YES'")),
    storage=VACUUMED_EARLY,
)
table(
    "event_log_hostnames",
    "Nodes of an event.",
    key("event_id"),
    Column("hostname", String(255), primary_key=True),
    Index("event_log_hostnames_host", "hostname", "event_id"),
)

# -- predictions of the scheduler -------------------------------------------------------------------------------------

for _suffix, _reader in (("", "the scheduler"), ("_visu", "other programs")):
    table(
        f"gantt_jobs_predictions{_suffix}",
        f"Planned starts of alternatives, for {_reader}; row 0: the date of the last scheduling pass.",
        key("moldable_job_id"),
        number("start_time"),
        storage=VACUUMED_EARLY,
    )
    table(
        f"gantt_jobs_sets{_suffix}",
        f"Planned resources of alternatives, for {_reader}. One row for each alternative: a scheduling pass may write "
        "thousands.",
        key("moldable_job_id"),
        Column("resources", ARRAY(Integer), nullable=False),
        storage=VACUUMED_EARLY,
    )
table(
    "gantt_jobs_predictions_log",
    "Former plans: starts.",
    key("sched_date"),
    key("moldable_job_id"),
    number("start_time"),
    storage=VACUUMED_EARLY,
)
table(
    "gantt_jobs_resources_log",
    "Former plans: resources.",
    key("sched_date"),
    key("moldable_job_id"),
    resource_key(),
    storage=VACUUMED_EARLY,
)

# -- queues, rules, accounting ----------------------------------------------------------------------------------------

table(
    "queues",
    "Queues. orphaned: a removed queue of an advance reservation that is still live.",
    Column("queue_name", String(100), primary_key=True),
    integer("priority"),
    string("scheduler_policy", 100),
    one_of("state", 9, "Active", states.QueueState),
)
table(
    "scheduler",
    "Names of policies, for tools of sites; OAR never reads them.",
    Column("name", String(100), primary_key=True),
    string("script", 100),
    string("description", 255),
)
table(
    "admission_rules",
    "Admission rules, in the order of their priorities.",
    sequence_number("id"),
    integer("priority"),
    flag("enabled", "YES"),
    Column("rule", Text, nullable=False),
)
table(
    "admission_rules_log",
    "Texts of admission rules before each change.",
    sequence_number("log_id"),
    Column("id", BigInteger, nullable=False),
    number("date"),
    string("author", 255),
    string("action", 8),
    long_text("rule"),
    Index("admission_rules_log_rule", "id", "log_id"),
)
table(
    "accounting",
    "Consumption in each window of accounting, in resource seconds.",
    Column("window_start", BigInteger, nullable=False),
    number("window_stop"),
    string("accounting_user", 255),
    string("accounting_project", 255),
    string("queue_name", 100),
    one_of("consumption_type", 5, states.ConsumptionType.ASKED, list(states.ConsumptionType)),
    number("consumption"),
    PrimaryKeyConstraint(
        "window_start", "window_stop", "accounting_user", "accounting_project", "queue_name", "consumption_type"
    ),
    Index("accounting_by_user", "accounting_user", "window_start"),
    Index("accounting_by_project", "accounting_project", "window_start"),
    Index("accounting_by_queue", "queue_name", "window_start"),
)

# -- internal tables: not for external readers ------------------------------------------------------------------------

table(
    "job_runs",
    "Progress of each job that the Runner starts, watches or ends.",
    key("job_id"),
    integer("attempt"),
    one_of("phase", 16, "CLAIMED", states.Phase),
    string("head_host", 255),
    long_text("bad_hosts"),
    Column("oarexec_code", Integer),
    Column("script_status", Integer),
    number("report_date"),
    string("boot_id", 64),
    integer("failures"),
    number("silent_since"),
    number("updated"),
    long_text("detail"),
    long_text("reason"),
    storage=VACUUMED_EARLY,
)
table(
    "job_reasons",
    "Why a waiting job has not started.",
    key("job_id"),
    Column("date", BigInteger, nullable=False),
    Column("code", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    long_text("data", "{}"),
    integer("changes", 1),
    storage=VACUUMED_EARLY,
)
table(
    "job_waits",
    "What a job has waited for, one row for each change of its reason. Many old rows are folded: a row with seconds is "
    "the sum of the times with that code before the first row without, and its date is the start of the first.",
    key("job_id"),
    Column("date", BigInteger, primary_key=True, autoincrement=False),
    Column("code", String(16), nullable=False),
    Column("seconds", BigInteger),
)
table(
    "job_predictions",
    "Predicted and real starts of jobs that waited. first_: the first prediction; near_: the first within an hour.",
    key("job_id"),
    string("queue_name", 100),
    number("first_date"),
    number("first_start"),
    number("near_date"),
    number("near_start"),
    number("real_start"),
    Index("job_predictions_start", "real_start"),
    storage=VACUUMED_EARLY,
)
table(
    "auto_resubmissions",
    "Automatic resubmissions. The primary key makes a second resubmission of a job impossible.",
    key("job_id"),
    Column("new_job_id", BigInteger, nullable=False),
)
table(
    "job_ends",
    "Why a job ended, written together with its final state.",
    key("job_id"),
    Column("date", BigInteger, nullable=False),
    Column("code", String(32), nullable=False),
    long_text("data", "{}"),
    Index("job_ends_code", "code", "job_id"),
)
table(
    "job_usage",
    "What a job used on each of its nodes.",
    key("job_id"),
    Column("network_address", String(100), primary_key=True),
    Column("cpu_seconds", Float(53)),
    Column("memory_peak", BigInteger),
    Column("read_bytes", BigInteger),
    Column("write_bytes", BigInteger),
    integer("cores"),
    Column("memory_limit", BigInteger),
    Column("oom_kills", BigInteger),
    Column("forks_denied", BigInteger),
)
table(
    "job_curves",
    "What a job used over time on each of its nodes: a value for each step, NULL if nobody has measured it. Steps of"
    " step seconds from the date begin. cpu: thousandths of a processor; memory, gpu_memory: MiB; gpu: per mille of the"
    " job's GPUs there, of which there are gpus.",
    key("job_id"),
    Column("network_address", String(100), primary_key=True),
    number("begin"),
    integer("step"),
    integer("gpus"),
    *(Column(name, ARRAY(Integer), nullable=False, server_default="{}") for name in ("cpu", "memory")),
    *(Column(name, ARRAY(Integer), nullable=False, server_default="{}") for name in ("gpu", "gpu_memory")),
    storage=VACUUMED_EARLY,
)
table(
    "api_tokens",
    "Tokens. token_hash is the SHA-256 of the secret in hexadecimal; the secret itself is not stored.",
    sequence_number("token_id"),
    Column("token_user", String(255), nullable=False),
    Column("token_hash", String(64), nullable=False, unique=True),
    string("scope", 255, "rw"),
    long_text("comment"),
    number("created"),
    number("expires"),
    number("last_used"),
    number("revoked"),
    number("proved"),
    number("parent"),
)
table(
    "token_jobs",
    "Jobs that were submitted with tokens that permit submissions only.",
    key("job_id"),
    number("token_id"),
)
table(
    "submission_keys",
    "Submissions that clients may repeat: hashes of the key and the request, and the response.",
    Column("key_user", String(255), nullable=False),
    Column("key_hash", String(64), nullable=False),
    Column("request_hash", String(64), nullable=False),
    long_text("answer"),
    number("created"),
    PrimaryKeyConstraint("key_user", "key_hash"),
    Index("submission_keys_created", "created"),
)
table(
    "launch_holds",
    "Launches that wait until a fault is repaired; job_user '': those of all users.",
    sequence_number("hold_id"),
    one_of("fault", 16, states.LaunchFault.ACCOUNT, states.LaunchFault),
    string("job_user", 255),
    string("node", 255),
    number("began"),
    integer("failures"),
    number("next_try"),
    flag("confirmed"),
    number("trial_job"),
    long_text("reason"),
    Index("launch_holds_fault", "fault", "job_user", unique=True),
)
table(
    "state_reasons",
    "Why a resource is Suspected, Absent or Dead; author '': OAR decided it.",
    resource_key(),
    number("date"),
    string("author", 255),
    long_text("reason"),
    string("node_check", 16),
    string("job_user", 255),
)
table(
    "history_positions",
    "How far each reader of the history has come: the last rows of job_state_logs and event_logs.",
    Column("reader", String(32), primary_key=True),
    number("state_log"),
    number("event"),
)
table(
    "occupancy_hours",
    "Resource seconds of ended jobs in each hour, by the day on which the jobs ended. Both count from 1970, in UTC.",
    Column("stop_day", Integer, primary_key=True, autoincrement=False),
    Column("hour", Integer, primary_key=True, autoincrement=False),
    number("resource_seconds"),
)
table(
    "outbox",
    "Mails and notices that are not sent yet, and lines of reservation logs of which the site is not notified yet.",
    sequence_number("outbox_id"),
    number("date"),
    string("job_user", 255),
    long_text("message"),
)
table(
    "server_state",
    "State that the programs of the server keep between runs, by name: the clock watch, the steps of oar_phoenix.",
    Column("name", String(32), primary_key=True),
    long_text("value"),
)
table(
    "task_runs",
    "Last success of each task that a timer starts on the server: accounting, purge, phoenix.",
    Column("task", String(32), primary_key=True),
    number("last_success"),
)
table(
    "server_generation",
    "One row. generation: number of the last take-over, which write transactions of the server check, and server_name"
    " the server that took over. wanted: the server that must take over, wanted_at the date, wanted_reason why ('': an"
    " administrator asked for it). count_requested_at: when the active server asked how many nodes the others reach.",
    key("generation"),
    string("server_name", 255),
    number("since"),
    number("take_overs"),
    string("wanted", 255),
    number("wanted_at"),
    string("wanted_reason", 255),
    number("count_requested_at"),
)
table(
    "servers",
    "The servers of the site, as each one reports itself; they do not decide which one is active. sees_nodes: the nodes"
    " that it reached at counted_at, -1: its check failed. chosen_at: its last automatic hand-over.",
    Column("server_name", String(255), primary_key=True),
    string("host", 255),
    integer("server_port"),
    one_of("role", 8, "stopped", states.ServerRole),
    number("since"),
    number("last_seen"),
    string("version", 32),
    string("config_digest", 64),
    integer("sees_nodes"),
    number("counted_at"),
    number("chosen_at"),
)
table(
    "policy_log",
    "Changes of queues, rules and settings: former and new value; NULL: there was none, or there is none.",
    sequence_number("log_id"),
    number("date"),
    string("author", 255),
    string("kind", 16),
    string("name", 255),
    Column("former", Text),
    Column("value", Text),
    Index("policy_log_name", "kind", "name", "log_id"),
)

#: All tables, by name.
TABLES = tuple(metadata.sorted_tables)

"""The tables in SQLAlchemy, for comparison, missing indexes and programs that build queries.

``setup/database/schema.sql`` creates the tables of an installation; a test checks that both give the same catalog. The
statements of the running system are SQL text (``oar/lib/db/``) and do not load this module. In addition to the columns
here, ``resources`` has those that administrators added.
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

from oar.lib.db import schema_reservations
from oar.lib.db.schema_columns import (
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

__all__ = ["SECRET", "VIEWS", "metadata"]

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
    *("history_positions", "policy_log", "task_runs"),
)


_LIVE = text("state <> 'Terminated' AND state <> 'Error'")

schema = table("schema", Column("version", String(255), nullable=False), string("name", 255), string("revision", 32))
alembic_version = table(
    "alembic_version",
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

# -- resources --------------------------------------------------------------------------------------------------------

resources = table(
    "resources",
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
)
resource_logs = table(
    "resource_logs",
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

jobs = table(
    "jobs",
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
)
moldable_job_descriptions = table(
    "moldable_job_descriptions",
    sequence_number("moldable_id"),
    number("moldable_job_id"),
    number("moldable_walltime"),
    index_column("moldable_index"),
    number("default_walltime"),
    Index("job_mold", "moldable_job_id"),
    Index("moldable_current", "moldable_id", postgresql_where=text("moldable_index = 'CURRENT'")),
)
job_resource_groups = table(
    "job_resource_groups",
    sequence_number("res_group_id"),
    number("res_group_moldable_id"),
    Column("res_group_property", Text),
    index_column("res_group_index"),
    Index("moldable_job", "res_group_moldable_id"),
)
job_resource_descriptions = table(
    "job_resource_descriptions",
    key("res_job_group_id"),
    Column("res_job_resource_type", String(255), primary_key=True),
    Column("res_job_order", Integer, primary_key=True, autoincrement=False),
    integer("res_job_value"),
    index_column("res_job_index"),
)
job_types = table(
    "job_types",
    sequence_number("job_type_id"),
    number("job_id"),
    string("type", 255),
    index_column("types_index"),
    Column("type_index", String(7), Computed("types_index", persisted=True)),
    Index("job_types_job", "job_id"),
    Index("job_types_current", "type", "job_id", postgresql_where=text("types_index = 'CURRENT'")),
)
job_dependencies = table(
    "job_dependencies",
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
job_state_logs = table(
    "job_state_logs",
    sequence_number("job_state_log_id"),
    number("job_id"),
    one_of("job_state", 16, "Waiting", states.JobState),
    number("date_start"),
    number("date_stop"),
    Index("job_state_logs_job", "job_id", "date_start"),
    Index("job_state_logs_state", "job_state", "date_start"),
    Index("job_state_logs_open", "job_id", unique=True, postgresql_where=text("date_stop = 0")),
)
assigned_resources = table(
    "assigned_resources",
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
frag_jobs = table(
    "frag_jobs",
    key("frag_id_job"),
    number("frag_date"),
    one_of("frag_state", 16, "LEON", states.KillState),
    string("frag_cause", 32),
    long_text("frag_data", "{}"),
    Index("frag_jobs_open", "frag_state", "frag_id_job", postgresql_where=text("frag_state <> 'FRAGGED'")),
)
walltime_change = table(
    "walltime_change",
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
challenges = table(
    "challenges",
    key("job_id"),
    string("challenge", 255),
    Column("ssh_private_key", Text),
    Column("ssh_public_key", Text),
)
files = table(
    "files",
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

event_logs = table(
    "event_logs",
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
)
event_log_hostnames = table(
    "event_log_hostnames",
    key("event_id"),
    Column("hostname", String(255), primary_key=True),
    Index("event_log_hostnames_host", "hostname", "event_id"),
)

# -- predictions of the scheduler -------------------------------------------------------------------------------------

for _suffix in ("", "_visu"):
    table(f"gantt_jobs_predictions{_suffix}", key("moldable_job_id"), number("start_time"))
    table(f"gantt_jobs_sets{_suffix}", key("moldable_job_id"), Column("resources", ARRAY(Integer), nullable=False))
table("gantt_jobs_predictions_log", key("sched_date"), key("moldable_job_id"), number("start_time"))
table("gantt_jobs_resources_log", key("sched_date"), key("moldable_job_id"), resource_key())

# -- queues, rules, accounting ----------------------------------------------------------------------------------------

queues = table(
    "queues",
    Column("queue_name", String(100), primary_key=True),
    integer("priority"),
    string("scheduler_policy", 100),
    one_of("state", 9, "Active", states.QueueState),
)
scheduler = table(
    "scheduler", Column("name", String(100), primary_key=True), string("script", 100), string("description", 255)
)
admission_rules = table(
    "admission_rules",
    sequence_number("id"),
    integer("priority"),
    flag("enabled", "YES"),
    Column("rule", Text, nullable=False),
)
admission_rules_log = table(
    "admission_rules_log",
    sequence_number("log_id"),
    Column("id", BigInteger, nullable=False),
    number("date"),
    string("author", 255),
    string("action", 8),
    long_text("rule"),
    Index("admission_rules_log_rule", "id", "log_id"),
)
accounting = table(
    "accounting",
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

job_runs = table(
    "job_runs",
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
)
job_reasons = table(
    "job_reasons",
    key("job_id"),
    Column("date", BigInteger, nullable=False),
    Column("code", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    long_text("data", "{}"),
    integer("changes", 1),
)
job_waits = table(
    "job_waits",
    key("job_id"),
    Column("date", BigInteger, primary_key=True, autoincrement=False),
    Column("code", String(16), nullable=False),
    Column("seconds", BigInteger),
)
job_predictions = table(
    "job_predictions",
    key("job_id"),
    string("queue_name", 100),
    number("first_date"),
    number("first_start"),
    number("near_date"),
    number("near_start"),
    number("real_start"),
    Index("job_predictions_start", "real_start"),
)
auto_resubmissions = table("auto_resubmissions", key("job_id"), Column("new_job_id", BigInteger, nullable=False))
job_ends = table(
    "job_ends",
    key("job_id"),
    Column("date", BigInteger, nullable=False),
    Column("code", String(32), nullable=False),
    long_text("data", "{}"),
)
job_usage = table(
    "job_usage",
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
api_tokens = table(
    "api_tokens",
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
token_jobs = table("token_jobs", key("job_id"), number("token_id"))
submission_keys = table(
    "submission_keys",
    Column("key_user", String(255), nullable=False),
    Column("key_hash", String(64), nullable=False),
    Column("request_hash", String(64), nullable=False),
    long_text("answer"),
    number("created"),
    PrimaryKeyConstraint("key_user", "key_hash"),
    Index("submission_keys_created", "created"),
)
launch_holds = table(
    "launch_holds",
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
state_reasons = table(
    "state_reasons",
    resource_key(),
    number("date"),
    string("author", 255),
    long_text("reason"),
    string("node_check", 16),
    string("job_user", 255),
)
history_positions = table(
    "history_positions", Column("reader", String(32), primary_key=True), number("state_log"), number("event")
)
task_runs = table("task_runs", Column("task", String(32), primary_key=True), number("last_success"))
policy_log = table(
    "policy_log",
    sequence_number("log_id"),
    number("date"),
    string("author", 255),
    string("kind", 16),
    string("name", 255),
    Column("former", Text),
    Column("value", Text),
    Index("policy_log_name", "kind", "name", "log_id"),
)

"""The tables, as SQLAlchemy describes them: for comparison, missing indexes and programs that build queries.

An installation is made by ``setup/database/schema.sql``; a test requires that both give the same catalog.  The running
system's statements are SQL text (``oar/lib/db/``) and do not load this module.  ``resources`` has, besides the columns
here, those that administrators added.
"""

from collections.abc import Iterable

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    Float,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.schema import SchemaItem

from oar.lib.facts import states

metadata = MetaData()

#: Views of the schema public.
VIEWS = (
    "gantt_jobs_resources",
    "gantt_jobs_resources_visu",
    "view_ar_attribute",
    "view_ar_jobs",
    "view_ar_log",
    "view_ar_time_usage",
    "view_ar_usage",
    "view_jobs",
    "view_nodes",
    "view_usage_daily",
)
#: Tables that nobody but the owner may read in full: oar_public.jobs stands for jobs, files has some open columns.
SECRET = ("challenges", "api_tokens", "job_runs", "jobs", "files")


def _table(name: str, *parts: SchemaItem) -> Table:
    """Return the table; an enumeration's CHECK is named after its table and column."""
    table = Table(name, metadata, *parts)
    for column in table.columns:
        values = column.info.get("values")
        if values:
            listed = ", ".join(f"'{value}'" for value in values)
            table.append_constraint(CheckConstraint(f"{column.name} IN ({listed})", name=f"{name}_{column.name}_check"))
    return table


def _id(name: str) -> Column[int]:
    """A number from a sequence of its own."""
    return Column(name, BigInteger, primary_key=True)


def _key(name: str) -> Column[int]:
    """A number that is, or is a part of, the primary key, and comes from another table."""
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _resource_key() -> Column[int]:
    return Column("resource_id", Integer, primary_key=True, autoincrement=False)


def _number(name: str, default: int = 0) -> Column[int]:
    """A date, a duration, an id or an amount."""
    return Column(name, BigInteger, nullable=False, server_default=text(str(default)))


def _integer(name: str, default: int = 0) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text(str(default)))


def _string(name: str, length: int, default: str = "") -> Column[str]:
    return Column(name, String(length), nullable=False, server_default=default)


def _text(name: str, default: str = "") -> Column[str]:
    return Column(name, Text, nullable=False, server_default=default)


def _one_of(name: str, length: int, default: str, values: Iterable[str]) -> Column[str]:
    """An enumeration."""
    return Column(name, String(length), nullable=False, server_default=default, info={"values": list(values)})


def _flag(name: str, default: str = "NO") -> Column[str]:
    return _one_of(name, 3, default, ("YES", "NO"))


def _index_column(name: str) -> Column[str]:
    """Whether the row is one of a live job."""
    return _one_of(name, 7, "CURRENT", states.Index)


_LIVE = text("state <> 'Terminated' AND state <> 'Error'")

schema = _table("schema", Column("version", String(255), nullable=False), _string("name", 255))
alembic_version = _table(
    "alembic_version",
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

# -- resources --------------------------------------------------------------------------------------------------------

resources = _table(
    "resources",
    Column("resource_id", Integer, primary_key=True),
    _string("type", 100, "default"),
    _string("network_address", 100),
    _one_of("state", 9, "Alive", states.ResourceState),
    _one_of("next_state", 9, "UnChanged", [states.UNCHANGED, *states.ResourceState]),
    _flag("finaud_decision"),
    _flag("next_finaud_decision"),
    _integer("state_num"),
    _flag("suspended_jobs"),
    _number("scheduler_priority"),
    Column("switch", String(50)),
    Column("cpu", Integer),
    _string("cpuset", 255, "0"),
    _flag("besteffort", "YES"),
    _flag("deploy"),
    _number("expiry_date"),
    _flag("desktop_computing"),
    _number("last_job_date"),
    _number("available_upto", states.ALWAYS_AVAILABLE),
    _number("last_available_upto"),
    _flag("drain"),
    CheckConstraint("available_upto BETWEEN 0 AND 2147483647", name="resources_available_upto_check"),
    Index("resource_state", "state"),
    Index("resource_type", "type"),
    Index("resource_network_address", "network_address"),
    Index("resource_next_state", "resource_id", postgresql_where=text("next_state <> 'UnChanged'")),
    Index("resource_suspended_jobs", "resource_id", postgresql_where=text("suspended_jobs = 'YES'")),
)
resource_logs = _table(
    "resource_logs",
    _id("resource_log_id"),
    _integer("resource_id"),
    _string("attribute", 255),
    _string("value", 255),
    _number("date_start"),
    _number("date_stop"),
    _flag("finaud_decision"),
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

# -- jobs and what they ask for ---------------------------------------------------------------------------------------

jobs = _table(
    "jobs",
    _id("job_id"),
    _number("array_id"),
    _integer("array_index", 1),
    _integer("array_limit"),
    Column("initial_request", Text),
    Column("job_name", String(100)),
    _string("cpuset_name", 255),
    _one_of("job_type", 11, "PASSIVE", states.JobType),
    Column("info_type", String(255)),
    _one_of("state", 16, "Waiting", states.JobState),
    _one_of("reservation", 10, "None", states.Reservation),
    _text("message"),
    _text("scheduler_info"),
    _string("job_user", 255),
    _string("project", 255),
    _string("job_group", 255),
    Column("command", Text),
    Column("exit_code", Integer, server_default=text("0")),
    _string("queue_name", 100),
    Column("properties", Text),
    _text("launching_directory"),
    _number("submission_time"),
    _number("start_time"),
    _number("stop_time"),
    Column("file_id", BigInteger),
    _one_of("accounted", 3, "NO", states.Accounted),
    Column("notify", Text),
    Column("assigned_moldable_job", BigInteger, server_default=text("0")),
    _number("checkpoint"),
    _integer("checkpoint_signal", 12),
    Column("stdout_file", Text),
    Column("stderr_file", Text),
    _number("resubmit_job_id"),
    _flag("suspended"),
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
moldable_job_descriptions = _table(
    "moldable_job_descriptions",
    _id("moldable_id"),
    _number("moldable_job_id"),
    _number("moldable_walltime"),
    _index_column("moldable_index"),
    Index("job_mold", "moldable_job_id"),
    Index("moldable_current", "moldable_id", postgresql_where=text("moldable_index = 'CURRENT'")),
)
job_resource_groups = _table(
    "job_resource_groups",
    _id("res_group_id"),
    _number("res_group_moldable_id"),
    Column("res_group_property", Text),
    _index_column("res_group_index"),
    Index("moldable_job", "res_group_moldable_id"),
)
job_resource_descriptions = _table(
    "job_resource_descriptions",
    _key("res_job_group_id"),
    Column("res_job_resource_type", String(255), primary_key=True),
    Column("res_job_order", Integer, primary_key=True, autoincrement=False),
    _integer("res_job_value"),
    _index_column("res_job_index"),
)
job_types = _table(
    "job_types",
    _id("job_type_id"),
    _number("job_id"),
    _string("type", 255),
    _index_column("types_index"),
    Column("type_index", String(7), Computed("types_index", persisted=True)),
    Index("job_types_job", "job_id"),
    Index("job_types_current", "type", "job_id", postgresql_where=text("types_index = 'CURRENT'")),
)
job_dependencies = _table(
    "job_dependencies",
    _key("job_id"),
    _key("job_id_required"),
    _index_column("job_dependency_index"),
    _string("min_start_shift", 12),
    _string("max_start_shift", 12),
    _one_of("dependency_condition", 5, "", ["", *states.DependencyCondition]),
    Index("job_dependencies_required", "job_id_required"),
    Index(
        "job_dependencies_current",
        "job_id",
        "job_id_required",
        postgresql_where=text("job_dependency_index = 'CURRENT'"),
    ),
)
job_state_logs = _table(
    "job_state_logs",
    _id("job_state_log_id"),
    _number("job_id"),
    _one_of("job_state", 16, "Waiting", states.JobState),
    _number("date_start"),
    _number("date_stop"),
    Index("job_state_logs_job", "job_id", "date_start"),
    Index("job_state_logs_state", "job_state", "date_start"),
    Index("job_state_logs_open", "job_id", unique=True, postgresql_where=text("date_stop = 0")),
)
assigned_resources = _table(
    "assigned_resources",
    _key("moldable_job_id"),
    _resource_key(),
    _index_column("assigned_resource_index"),
    Index("assigned_resources_history", "resource_id", "moldable_job_id"),
    Index(
        "assigned_resources_current",
        "resource_id",
        "moldable_job_id",
        postgresql_where=text("assigned_resource_index = 'CURRENT'"),
    ),
)
frag_jobs = _table(
    "frag_jobs",
    _key("frag_id_job"),
    _number("frag_date"),
    _one_of("frag_state", 16, "LEON", states.KillState),
    _string("frag_cause", 32),
    _text("frag_data", "{}"),
    Index("frag_jobs_open", "frag_state", "frag_id_job", postgresql_where=text("frag_state <> 'FRAGGED'")),
)
walltime_change = _table(
    "walltime_change",
    _key("job_id"),
    _number("pending"),
    _flag("force"),
    _flag("delay_next_jobs"),
    _flag("whole"),
    _number("granted"),
    _number("granted_with_force"),
    _number("granted_with_delay_next_jobs"),
    _number("granted_with_whole"),
    _number("timeout"),
)
challenges = _table(
    "challenges",
    _key("job_id"),
    _string("challenge", 255),
    Column("ssh_private_key", Text),
    Column("ssh_public_key", Text),
)
files = _table(
    "files",
    _id("file_id"),
    Column("idfile", BigInteger, Computed("file_id", persisted=True)),
    Column("md5sum", String(255)),
    Column("location", String(255)),
    Column("method", String(255)),
    Column("compression", String(255)),
    _number("size"),
    Index("md5sum", "md5sum"),
)

# -- events -----------------------------------------------------------------------------------------------------------

event_logs = _table(
    "event_logs",
    _id("event_id"),
    _string("type", 100),
    _number("job_id"),
    _number("date"),
    _text("description"),
    _flag("to_check", "YES"),
    Index("event_logs_job", "job_id"),
    Index("event_logs_type", "type", "date"),
    Index("event_logs_date", "date"),
    Index("event_logs_to_check", "event_id", postgresql_where=text("to_check = 'YES'")),
)
event_log_hostnames = _table(
    "event_log_hostnames",
    _key("event_id"),
    Column("hostname", String(255), primary_key=True),
    Index("event_log_hostnames_host", "hostname", "event_id"),
)

# -- predictions of the scheduler -------------------------------------------------------------------------------------

for _suffix in ("", "_visu"):
    _table(f"gantt_jobs_predictions{_suffix}", _key("moldable_job_id"), _number("start_time"))
    _table(f"gantt_jobs_sets{_suffix}", _key("moldable_job_id"), Column("resources", ARRAY(Integer), nullable=False))
_table("gantt_jobs_predictions_log", _key("sched_date"), _key("moldable_job_id"), _number("start_time"))
_table("gantt_jobs_resources_log", _key("sched_date"), _key("moldable_job_id"), _resource_key())

# -- queues, rules, accounting ----------------------------------------------------------------------------------------

queues = _table(
    "queues",
    Column("queue_name", String(100), primary_key=True),
    _integer("priority"),
    _string("scheduler_policy", 100),
    _one_of("state", 9, "Active", states.QueueState),
)
scheduler = _table(
    "scheduler", Column("name", String(100), primary_key=True), _string("script", 100), _string("description", 255)
)
admission_rules = _table(
    "admission_rules",
    _id("id"),
    _integer("priority"),
    _flag("enabled", "YES"),
    Column("rule", Text, nullable=False),
)
admission_rules_log = _table(
    "admission_rules_log",
    _id("log_id"),
    Column("id", BigInteger, nullable=False),
    _number("date"),
    _string("author", 255),
    _string("action", 8),
    _text("rule"),
    Index("admission_rules_log_rule", "id", "log_id"),
)
accounting = _table(
    "accounting",
    Column("window_start", BigInteger, nullable=False),
    _number("window_stop"),
    _string("accounting_user", 255),
    _string("accounting_project", 255),
    _string("queue_name", 100),
    _one_of("consumption_type", 5, states.ConsumptionType.ASKED, list(states.ConsumptionType)),
    _number("consumption"),
    PrimaryKeyConstraint(
        "window_start", "window_stop", "accounting_user", "accounting_project", "queue_name", "consumption_type"
    ),
    Index("accounting_by_user", "accounting_user", "window_start"),
    Index("accounting_by_project", "accounting_project", "window_start"),
    Index("accounting_by_queue", "queue_name", "window_start"),
)

# -- OAR's own: not for readers outside -------------------------------------------------------------------------------

job_runs = _table(
    "job_runs",
    _key("job_id"),
    _integer("attempt"),
    _one_of("phase", 16, "CLAIMED", states.Phase),
    _string("head_host", 255),
    _text("bad_hosts"),
    Column("oarexec_code", Integer),
    Column("script_status", Integer),
    _number("report_date"),
    _string("boot_id", 64),
    _integer("failures"),
    _number("next_try"),
    _number("updated"),
    _text("detail"),
    _text("reason"),
)
job_reasons = _table(
    "job_reasons",
    _key("job_id"),
    Column("date", BigInteger, nullable=False),
    Column("code", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    _text("data", "{}"),
    _integer("changes", 1),
)
job_waits = _table(
    "job_waits",
    _key("job_id"),
    Column("date", BigInteger, primary_key=True, autoincrement=False),
    Column("code", String(16), nullable=False),
    Column("seconds", BigInteger),
)
job_predictions = _table(
    "job_predictions",
    _key("job_id"),
    _string("queue_name", 100),
    _number("first_date"),
    _number("first_start"),
    _number("near_date"),
    _number("near_start"),
    _number("real_start"),
    Index("job_predictions_start", "real_start"),
)
auto_resubmissions = _table("auto_resubmissions", _key("job_id"), Column("new_job_id", BigInteger, nullable=False))
job_ends = _table(
    "job_ends",
    _key("job_id"),
    Column("date", BigInteger, nullable=False),
    Column("code", String(32), nullable=False),
    _text("data", "{}"),
)
job_usage = _table(
    "job_usage",
    _key("job_id"),
    Column("network_address", String(100), primary_key=True),
    Column("cpu_seconds", Float(53)),
    Column("memory_peak", BigInteger),
    Column("read_bytes", BigInteger),
    Column("write_bytes", BigInteger),
    _integer("cores"),
    Column("memory_limit", BigInteger),
    Column("oom_kills", BigInteger),
    Column("forks_denied", BigInteger),
)
reservation_logs = _table(
    "reservation_logs",
    _id("reservation_log_id"),
    _number("job_id"),
    _number("date"),
    _string("event", 50),
    _one_of("state", 1, "w", "wrxdWE"),
    _string("hostname", 255),
    _text("message"),
    Index("reservation_logs_job", "job_id", "reservation_log_id"),
)
reservation_usage = _table(
    "reservation_usage",
    _key("job_id"),
    Column("queue_name", String(100), primary_key=True),
    Column("network_address", String(100), primary_key=True),
    _integer("resources"),
    _number("reserved"),
    _number("used"),
    _number("termination_time"),
)
api_tokens = _table(
    "api_tokens",
    _id("token_id"),
    Column("token_user", String(255), nullable=False),
    Column("token_hash", String(64), nullable=False, unique=True),
    _string("scope", 255, "rw"),
    _text("comment"),
    _number("created"),
    _number("expires"),
    _number("last_used"),
    _number("revoked"),
)

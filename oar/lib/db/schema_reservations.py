"""The tables of advance reservations (docs/design/reservations.rst) and the views about them."""

from sqlalchemy import ARRAY, TIMESTAMP, BigInteger, Column, Computed, Index, Integer, String, Text, text

from oar.lib.db.schema_tables import (
    UPDATED_IN_PLACE,
    flag,
    integer,
    key,
    long_text,
    number,
    one_of,
    sequence_number,
    string,
    table,
)
from oar.lib.reservations.states import ChangeAnswer, IntervalKind, ReservationState

_LIVE = text("ended = 0")


def _resource_ids(name: str) -> Column[list[int]]:
    return Column(name, ARRAY(Integer), nullable=False, server_default="{}")


table(
    "reservations",
    "Advance reservations; rows are never deleted. ar_id is the number for users; it returns to 1 after 9999999, and "
    "no other reservation gets the number of a live one (ended = 0). state: '' requested, n rejected or withdrawn, "
    "w waiting, W waiting with missing resources, r running, E running with missing resources, x ended, d deleted.",
    sequence_number("reservation_id"),
    Column("ar_id", Integer, Computed("((reservation_id - 1) % 9999999 + 1)::integer", persisted=True)),
    string("ar_name", 128),
    string("account", 255),
    string("owner", 255),
    string("owner_group", 255),
    string("project", 255, "default"),
    string("queue_name", 100),
    number("submission_time"),
    number("start_time"),
    number("end_time"),
    number("start_window"),
    number("time_offset"),
    one_of("state", 1, "", ReservationState),
    number("state_date"),
    number("ended"),
    flag("error_handling"),
    flag("replace_lost"),
    flag("flex"),
    flag("interactive"),
    flag("ignore_jobs"),
    number("idle_limit"),
    long_text("request", "[]"),
    integer("alternative"),
    long_text("resource_list", "[]"),
    long_text("queue_list"),
    long_text("master_queue_list"),
    long_text("host_list"),
    long_text("properties"),
    long_text("checkpoint_name"),
    long_text("pe"),
    long_text("pe_range"),
    long_text("granted_pe"),
    integer("granted_slots"),
    string("mail_options", 3, "n"),
    long_text("mail_list"),
    _resource_ids("resources"),
    _resource_ids("missing"),
    number("frame_id"),
    number("series_id"),
    integer("series_index"),
    integer("revision", 1),
    long_text("message"),
    number("proposal"),
    string("deleted_by", 255),
    Index("reservations_number", "ar_id", unique=True, postgresql_where=_LIVE),
    Index("reservations_any_number", "ar_id", "reservation_id"),
    Index("reservations_owner", "owner", "reservation_id"),
    Index("reservations_name", "ar_name", "reservation_id", postgresql_where=text("ar_name <> ''")),
    Index("reservations_end", "end_time"),
    Index("reservations_frame", "frame_id", unique=True, postgresql_where=text("frame_id <> 0")),
    Index("reservations_series", "series_id", "series_index", postgresql_where=text("series_id <> 0")),
    storage=UPDATED_IN_PLACE,
)
table(
    "reservation_acl",
    'Who may use a reservation: entries as given, a denial without its "!".',
    key("reservation_id"),
    Column("entry_order", Integer, primary_key=True, autoincrement=False),
    Column("entry", String(255), nullable=False),
    flag("denied"),
)
table(
    "reservation_jobs",
    "Reservations of jobs that run in one.",
    key("job_id"),
    Column("reservation_id", BigInteger, nullable=False),
    Index("reservation_jobs_reservation", "reservation_id", "job_id"),
)
table(
    "reservation_revisions",
    'One row when a reservation is granted, and one for each change. granted_resources: "default@node-1=4,licence=2".',
    sequence_number("revision_id"),
    Column("reservation_id", BigInteger, nullable=False),
    Column("revision", Integer, nullable=False),
    number("date"),
    string("author", 255),
    string("ar_name", 128),
    string("account", 255),
    number("start_time"),
    number("end_time"),
    long_text("granted_pe"),
    long_text("granted_resources"),
    Index("reservation_revisions_number", "reservation_id", "revision", unique=True),
)
table(
    "reservation_changes",
    "Changes that the scheduler decides. answer '': not decided; at most one of these for each reservation.",
    sequence_number("change_id"),
    Column("reservation_id", BigInteger, nullable=False),
    number("date"),
    string("author", 255),
    long_text("change", "{}"),
    one_of("answer", 8, "", ChangeAnswer),
    long_text("message"),
    number("proposal"),
    number("expires"),
    Index("reservation_changes_open", "reservation_id", unique=True, postgresql_where=text("answer = ''")),
)
table(
    "reservation_logs",
    "Events of reservations.",
    sequence_number("reservation_log_id"),
    Column("reservation_id", BigInteger, nullable=False),
    number("date"),
    string("event", 50),
    one_of("state", 1, "", ReservationState),
    string("hostname", 255),
    long_text("message"),
    string("author", 255),
    Index("reservation_logs_reservation", "reservation_id", "reservation_log_id"),
    Index("reservation_logs_event", "event", "date"),
)
table(
    "reservation_intervals",
    "When a resource was granted to a reservation or missing in it; date_stop 0: it still is.",
    Column("reservation_id", BigInteger, nullable=False),
    Column("resource_id", Integer, nullable=False),
    one_of("kind", 7, "granted", IntervalKind),
    number("date_start"),
    number("date_stop"),
    Index("reservation_intervals_reservation", "reservation_id", "resource_id"),
)
table(
    "reservation_usage",
    "The bill in slot seconds, one row for each node (network_address: the type for resources without node).",
    sequence_number("reservation_usage_id"),
    Column("reservation_id", BigInteger, nullable=False),
    Column("queue_name", String(100), nullable=False),
    Column("network_address", String(100), nullable=False),
    integer("slots"),
    number("reserved"),
    number("used"),
    number("unusable"),
    number("termination_time"),
    Index("reservation_usage_place", "reservation_id", "queue_name", "network_address", unique=True),
)
table(
    "reservation_series",
    "Repeated reservations. rule: RFC 5545; template: the request of each occurrence; depth: occurrences that are "
    "requested in advance; next_index: the next one to request; next_start 0: there is none.",
    sequence_number("series_id"),
    string("owner", 255),
    long_text("rule"),
    long_text("time_zone"),
    number("first_start"),
    number("duration"),
    long_text("template", "{}"),
    integer("depth"),
    flag("skips_conflicts"),
    integer("occurrences"),
    integer("next_index", 1),
    number("next_start"),
    number("ended"),
    Index("reservation_series_live", "series_id", postgresql_where=_LIVE),
)
table(
    "usersets", "Named lists of users.", Column("userset_name", String(100), primary_key=True), long_text("description")
)
table(
    "userset_entries",
    "Entries of usersets: login names, patterns, and @group for a group of the system.",
    Column("userset_name", String(100), primary_key=True),
    Column("entry", String(255), primary_key=True),
)
table(
    "sge_version",
    "Version of Grid Engine's reporting model, for its programs.",
    Column("v_id", Integer, primary_key=True, autoincrement=False),
    Column("v_version", Text, nullable=False),
    Column("v_time", TIMESTAMP, nullable=False),
)

#: Views of the schema public about reservations.
VIEWS = (
    "ended_jobs",
    "sge_ar",
    "sge_ar_attribute",
    "sge_ar_log",
    "sge_ar_resource_usage",
    "sge_ar_usage",
    "sge_job",
    "sge_job_usage",
    "view_accounting",
    "view_ar_attribute",
    "view_ar_efficiency",
    "view_ar_jobs",
    "view_ar_log",
    "view_ar_resource_usage",
    "view_ar_time_usage",
    "view_ar_usage",
    "view_job_times",
)

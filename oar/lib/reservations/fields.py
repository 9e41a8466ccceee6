"""The fields of an advance reservation, declared once for its row, all output formats, the REST API and its schema.

To add a field, declare it here and add its value to ``field_values`` (``oar/lib/reservations/views.py``).  A field with
a column is also an attribute of ``AdvanceReservation``.
"""

from typing import NamedTuple

from oar.lib.jobs.fields import Kind


class ReservationField(NamedTuple):
    """A field of an advance reservation."""

    name: str  #: key of its value and, with a column, attribute of ``AdvanceReservation``
    kind: Kind
    meaning: str = ""
    column: str = ""  #: of the table ``reservations``
    record: str = ""  #: key in the machine formats of qrstat and in the REST API
    text: str = ""  #: label in the details of qrstat
    is_left_out: bool = False  #: not in the details of qrstat if it is no, or 0
    options: tuple[str, ...] = ()  #: fields of ``ReservationOptions`` that set it


# One field per paragraph: the formatter would write one argument per line.
# fmt: off
#: In the order of the formats.
FIELDS: tuple[ReservationField, ...] = (
    ReservationField("number", Kind.NUMBER, "Number of the reservation.", column="ar_id", record="id", text="id"),
    ReservationField("name", Kind.TEXT, "Name.", column="ar_name", record="ar_name", text="ar_name",
        options=("name",)),
    ReservationField("submission_time", Kind.DATE, "Date of the request.", column="submission_time",
        record="submission_time", text="submission_time"),
    ReservationField("owner", Kind.TEXT, "Owner.", column="owner", record="owner", text="owner", options=("owner",)),
    ReservationField("allowed", Kind.TEXTS, "Entries of the access list; empty if the reader may not see it.",
        record="acl_list", text="acl_list", options=("users",)),
    ReservationField("start", Kind.DATE, "Start.", column="start_time", record="start_time", text="start_time",
        options=("start",)),
    ReservationField("real_end", Kind.DATE, "End, or the earlier date at which the idle reservation was ended.",
        record="end_time", text="end_time", options=("end",)),
    ReservationField("real_duration", Kind.DURATION, "Seconds from start to end.", record="duration", text="duration",
        options=("duration",)),
    ReservationField("granted", Kind.RECORDS, "Granted slots of each host.", record="granted_slots",
        text="granted_slots"),
    ReservationField("requested", Kind.RECORDS, "Requested resources, and the number of granted slots.",
        record="resource_list", text="resource_list", options=("resources",)),
    ReservationField("state", Kind.TEXT, "State.", column="state", record="state", text="state"),
    ReservationField("reasons", Kind.TEXTS, "Why resources are missing.", record="reasons", text="message"),
    ReservationField("change_text", Kind.TEXT, text="change_asked"),
    ReservationField("owner_group", Kind.TEXT, "Main group of the owner.", column="owner_group", record="group",
        text="group"),
    ReservationField("account", Kind.TEXT, "Account to charge; empty if the reader may not see it.", column="account",
        record="account", text="account", options=("account",)),
    ReservationField("project", Kind.TEXT, "Project.", column="project", record="project", text="project",
        options=("project",)),
    ReservationField("queue", Kind.TEXT, "Queue.", column="queue_name", record="queue"),
    ReservationField("time_limit", Kind.DURATION, "Longest walltime of its jobs.", record="time_limit",
        text="time_limit"),
    ReservationField("error_handling", Kind.TEXT, "hard: no job of it starts while resources are missing; soft.",
        record="error_handling", text="error_handling", options=("hard",)),
    ReservationField("replaces_lost", Kind.FLAG, "Whether lost resources are replaced.", column="replace_lost",
        record="replace", text="replace", options=("replace",)),
    ReservationField("is_flexible", Kind.FLAG, "Whether its jobs may run also outside of it.", column="flex",
        record="flex", text="flex", is_left_out=True, options=("flex",)),
    ReservationField("idle_limit", Kind.DURATION, "It ends after this time without a job; 0: never.",
        column="idle_limit", record="idle_limit", options=("idle",)),
    ReservationField("denied", Kind.TEXTS, "Denied entries of the access list.", record="xacl_list", text="xacl_list",
        options=("users",)),
    ReservationField("granted_environment", Kind.RECORD, "Granted parallel environment and its slots.",
        record="granted_parallel_environment", text="granted_parallel_environment"),
    ReservationField("environment", Kind.RECORD, "Requested parallel environment or allocation rule, and slots.",
        record="parallel_environment", text="parallel_environment", options=("pe", "allocation")),
    ReservationField("queue_list", Kind.TEXTS, "Requested queues.", column="queue_list", record="queue_list",
        text="queue_list", options=("queues",)),
    ReservationField("master_queue_list", Kind.TEXTS, "Queues of the master host.", column="master_queue_list",
        record="master_queue_list", text="master_queue_list", options=("master_queues",)),
    ReservationField("host_list", Kind.TEXTS, "Requested hosts.", column="host_list", record="host_list",
        text="host_list", options=("hosts",)),
    ReservationField("properties", Kind.TEXT, "Condition on resource properties.", column="properties",
        record="properties", text="properties", options=("properties",)),
    ReservationField("is_interactive", Kind.FLAG, "Whether it has only resources for interactive jobs.",
        column="interactive", record="interactive", text="interactive", is_left_out=True, options=("now",)),
    ReservationField("ignores_jobs", Kind.FLAG, "Whether running jobs were ignored.", column="ignore_jobs",
        record="ignore_jobs", text="ignore_jobs", is_left_out=True, options=("ignore_jobs",)),
    ReservationField("idle_limit", Kind.DURATION, text="idle_limit", is_left_out=True, options=("idle",)),  # in details
    ReservationField("start_window", Kind.DURATION, "Longest delay of the start.", column="start_window",
        record="start_window", text="start_window", is_left_out=True, options=("window", "earliest")),
    ReservationField("checkpoint_name", Kind.TEXT, "Checkpointing environment.", column="checkpoint_name",
        record="checkpoint_name", text="checkpoint_name", options=("checkpoint",)),
    ReservationField("mail_options", Kind.TEXT, "Mails at begin (b), end (e), error (a), or none (n).",
        column="mail_options", record="mail_options", text="mail_options", options=("mail_options",)),
    ReservationField("mail_list", Kind.TEXTS, "Mail recipients; empty if the reader may not see them.",
        column="mail_list", record="mail_list", text="mail_list", options=("mail_list",)),
    ReservationField("resources", Kind.NUMBERS, "Ids of the granted resources.", column="resources",
        record="resources"),
    ReservationField("missing", Kind.NUMBERS, "Ids of the granted resources on which no job could start now.",
        column="missing", record="missing"),
    ReservationField("jobs", Kind.RECORD, "Ids of its live jobs.", record="jobs", text="jobs"),
    ReservationField("change", Kind.RECORD, "Requested change that is not decided yet.", record="change"),
    ReservationField("series", Kind.TEXT, text="series", options=("rule",)),
    ReservationField("series_id", Kind.NUMBER, "Series; 0: none.", column="series_id", record="series_id",
        options=("rule",)),
    ReservationField("series_index", Kind.NUMBER, "Index in its series, from 1.", column="series_index",
        record="series_index"),
    ReservationField("revision", Kind.NUMBER, "Number of its updates.", column="revision", record="revision",
        text="revision"),
    ReservationField("ended", Kind.DATE, "Date at which it left the system; 0: it is live.", column="ended",
        record="ended"),
    ReservationField("usage", Kind.RECORDS, "Slot seconds of each host, after the end.", record="usage"),
    ReservationField("id", Kind.NUMBER, column="reservation_id"),
    ReservationField("end", Kind.DATE, column="end_time"),
    ReservationField("time_offset", Kind.DURATION, column="time_offset"),
    ReservationField("state_date", Kind.DATE, column="state_date"),
    ReservationField("is_hard", Kind.FLAG, column="error_handling"),
    ReservationField("request", Kind.TEXT, column="request"),
    ReservationField("alternative", Kind.NUMBER, column="alternative"),
    ReservationField("resource_list", Kind.TEXT, column="resource_list"),
    ReservationField("pe", Kind.TEXT, column="pe"),
    ReservationField("pe_range", Kind.TEXT, column="pe_range"),
    ReservationField("granted_pe", Kind.TEXT, column="granted_pe"),
    ReservationField("granted_slots", Kind.NUMBER, column="granted_slots"),
    ReservationField("frame_id", Kind.NUMBER, column="frame_id"),
    ReservationField("message", Kind.TEXT, column="message"),
    ReservationField("proposal", Kind.DATE, column="proposal"),
    ReservationField("deleted_by", Kind.TEXT, column="deleted_by"),
)
# fmt: on

#: The column of each field that has one, and the fields whose columns hold YES or NO.
COLUMNS = {field.name: field.column for field in FIELDS if field.column}
FLAGS = frozenset(field.name for field in FIELDS if field.column and field.kind is Kind.FLAG)
#: The fields of the machine formats, by key.
RECORD = {field.record: field for field in FIELDS if field.record}

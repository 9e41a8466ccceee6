"""The fields of a job, declared once for its row, all output formats, the REST API and the documentation.

To add a field, declare it here and add its value to ``JobValues`` (``oar/lib/jobs/formats.py``). A field with
a column is also an attribute of ``Job``. See docs/design/formats.rst, "Records".
"""

from enum import Enum, auto
from typing import NamedTuple


class Kind(Enum):
    """The type of the values of a field."""

    TEXT = auto()
    NUMBER = auto()
    FLAG = auto()
    DATE = auto()  #: epoch seconds, 0 or None: not known
    DURATION = auto()  #: seconds
    WAIT_STATUS = auto()  #: exit code * 256 + signal, as of waitpid
    FLOAT = auto()
    RATIO = auto()  #: percent in texts
    SIZE = auto()  #: bytes
    TEXTS = auto()
    NUMBERS = auto()
    RECORD = auto()
    RECORDS = auto()


class JobField(NamedTuple):
    """A field of a job."""

    name: str  #: attribute of ``JobValues`` and, with a column, of ``Job``
    kind: Kind
    meaning: str = ""
    column: str = ""  #: of the table ``jobs``
    records: tuple[str, ...] = ()  #: keys in the machine formats of oarstat
    text: str = ""  #: key in ``oarstat -f``
    text_3: str = ""  #: the same from layout 3 on, if it differs
    v1: str = ""  #: key in the REST API
    is_listed: bool = False  #: lists of the REST APIs show it
    is_null: bool = False  #: null in the REST API if it is not known
    is_left_out: bool = False  #: not in ``oarstat -f`` if it is empty or 0
    legacy: tuple[str, ...] = ()  #: keys in the APIs of OAR 2.5 and OAR 3
    separator: str = ", "  #: between the members of a list in ``oarstat -f``
    missing: str = ""  #: what ``oarstat -f`` shows if there is no value
    options: tuple[str, ...] = ()  #: fields of a job request that set it


# One field per paragraph: the formatter would write one argument per line.
# fmt: off
FIELDS: tuple[JobField, ...] = (
    JobField("id", Kind.NUMBER, "Job id.", column="job_id", records=("Job_Id", "id"), v1="id", is_listed=True,
        legacy=("id", "job_id")),
    JobField("array_id", Kind.NUMBER, "Id of the array; the id of its first job.", column="array_id",
        records=("array_id",), text="job_array_id", text_3="array_id", v1="array", is_listed=True,
        legacy=("array_id",)),
    JobField("array_index", Kind.NUMBER, "Index in the array, from 1.", column="array_index",
        records=("array_index",), text="job_array_index", text_3="array_index", v1="array_index", is_listed=True,
        legacy=("array_index",)),
    JobField("name", Kind.TEXT, "Job name.", column="job_name", records=("name",), text="name", v1="name",
        is_listed=True, is_null=True, legacy=("name",), options=("name",)),
    JobField("project", Kind.TEXT, "Project.", column="project", records=("project",), text="project", v1="project",
        is_listed=True, legacy=("project",), options=("project",)),
    JobField("user", Kind.TEXT, "Owner.", column="job_user", records=("owner", "job_user"), text="owner", v1="user",
        is_listed=True, legacy=("owner", "user")),
    JobField("state", Kind.TEXT, "State.", column="state", records=("state",), text="state", v1="state",
        is_listed=True, legacy=("state",), options=("hold",)),
    JobField("wanted_resources", Kind.TEXT, "Requested resources, as with ``-l``.", records=("wanted_resources",),
        text="wanted_resources", v1="resources_asked", legacy=("wanted_resources",),
        options=("resources", "memory", "memory_per_core")),
    JobField("types", Kind.TEXTS, "Types.", records=("types",), text="types", v1="types", legacy=("types",),
        options=("types", "max_restarts")),
    JobField("dependencies", Kind.NUMBERS, "Ids of the jobs that it depends on.", records=("dependencies",),
        text="dependencies", v1="dependencies", legacy=("dependencies",), separator=" ", options=("dependencies",)),
    JobField("resources", Kind.NUMBERS, "Ids of the assigned resources.", records=("assigned_resources",),
        text="assigned_resources", v1="resources", separator="+"),
    JobField("nodes", Kind.TEXTS, "Assigned nodes.", records=("assigned_network_address",), text="assigned_hostnames",
        v1="nodes", separator="+"),
    JobField("queue", Kind.TEXT, "Queue.", column="queue_name", records=("queue",), text="queue", v1="queue",
        is_listed=True, legacy=("queue", "queue_name"), options=("queue",)),
    JobField("command", Kind.TEXT, "Command; empty if the reader may not see it.", column="command",
        records=("command",), text="command", v1="command", is_null=True, legacy=("command",),
        options=("command", "script", "parameters")),
    JobField("exit_code", Kind.WAIT_STATUS, "Wait status of the command: exit code * 256 + signal.",
        column="exit_code", records=("exit_code",), text="exit_code", v1="exit_code", is_null=True, is_listed=True,
        is_left_out=True, legacy=("exit_code",)),
    JobField("launching_directory", Kind.TEXT, "Working directory.", column="launching_directory",
        records=("launchingDirectory", "launching_directory"), text="launchingDirectory",
        text_3="launching_directory", v1="directory", legacy=("launching_directory",), options=("directory",)),
    JobField("stdout_file", Kind.TEXT, "File for standard output.", column="stdout_file", records=("stdout_file",),
        text="stdout_file", v1="stdout", legacy=("stdout_file",), options=("stdout",)),
    JobField("stderr_file", Kind.TEXT, "File for standard error.", column="stderr_file", records=("stderr_file",),
        text="stderr_file", v1="stderr", legacy=("stderr_file",), options=("stderr",)),
    JobField("job_type", Kind.TEXT, "PASSIVE, or INTERACTIVE for a job with a shell.", column="job_type",
        records=("jobType", "type"), text="jobType", text_3="type", v1="kind", is_listed=True, legacy=("type",)),
    JobField("properties", Kind.TEXT, "Condition on resource properties.", column="properties",
        records=("properties",), text="properties", v1="properties", is_null=True, legacy=("properties",),
        options=("properties", "nodelist", "exclude")),
    JobField("reservation", Kind.TEXT, "None, toSchedule or Scheduled: whether the job has a reserved start.",
        column="reservation", records=("reservation",), text="reservation", v1="reservation", is_listed=True,
        legacy=("reservation",), options=("reservation",)),
    JobField("advance_reservation", Kind.NUMBER, "Number of the advance reservation that it runs in.",
        records=("advance_reservation",), text="advance_reservation", v1="advance_reservation", is_null=True,
        is_left_out=True, legacy=("advance_reservation",), options=("advance_reservation",)),
    JobField("reserved_resources", Kind.NUMBERS, "Ids of the resources of an accepted reservation before its start.",
        records=("reserved_resources",), text="reserved_resources", v1="reserved_resources", separator="+"),
    JobField("walltime", Kind.DURATION, "Walltime of the chosen alternative, else of the first one.",
        records=("walltime",), text="walltime", v1="walltime", is_null=True, legacy=("walltime",),
        options=("walltime",)),
    JobField("submission_time", Kind.DATE, "Date of the submission.", column="submission_time",
        records=("submissionTime", "submission_time"), text="submissionTime", text_3="submission_time",
        v1="submitted", is_listed=True, is_left_out=True, legacy=("submission", "submission_time")),
    JobField("started", Kind.DATE, "Date of the start.", records=("startTime", "start_time"), text="startTime",
        text_3="start_time", v1="started", is_listed=True, is_null=True, is_left_out=True),
    JobField("start_time", Kind.DATE, "Date of the start, or the requested date of a reservation.",
        column="start_time", legacy=("start_time",)),
    JobField("stop_time", Kind.DATE, "Date of the end of its processes.", column="stop_time",
        records=("stopTime", "stop_time"), text="stopTime", text_3="stop_time", is_left_out=True,
        legacy=("stop_time",)),
    JobField("ended", Kind.DATE, "Date of the end; null before the job is in a final state.", v1="ended",
        is_listed=True, is_null=True),
    JobField("cpuset_name", Kind.TEXT, "Name of its control group.", column="cpuset_name", records=("cpuset_name",),
        text="cpuset_name", v1="cpuset_name", legacy=("cpuset_name",), options=("cpuset_name",)),
    JobField("initial_request", Kind.TEXT, "Command line of the submission; empty if the reader may not see it.",
        column="initial_request", records=("initial_request",), text="initial_request", v1="initial_request",
        is_null=True, legacy=("initial_request",)),
    JobField("message", Kind.TEXT, "Message of the scheduler.", column="message", records=("message",),
        text="message", v1="message", is_listed=True, legacy=("message",)),
    JobField("scheduled_start", Kind.DATE, "Planned start of a job that has not started.",
        records=("scheduledStart", "scheduled_start"), text="scheduledStart", text_3="scheduled_start", v1="planned",
        is_null=True, legacy=("scheduled_start",), missing="no prediction"),
    JobField("foreseen_at", Kind.DATE,
        "Date of the scheduling pass that planned the start, if it was not the last one.", records=("foreseen_at",),
        text="foreseen_at", v1="foreseen_at", is_null=True, is_left_out=True),
    JobField("resubmit_job_id", Kind.NUMBER, "Id of the job of which it is a copy.", column="resubmit_job_id",
        records=("resubmit_job_id",), text="resubmit_job_id", v1="resubmitted_from", is_null=True,
        legacy=("resubmit_job_id",)),
    JobField("resubmitted_as", Kind.NUMBER, "Id of its last copy.", records=("resubmitted_as",),
        text="resubmitted_as", v1="resubmitted_as", is_null=True, is_left_out=True, legacy=("resubmitted_as",)),
    JobField("events", Kind.RECORDS, "Events of the job.", records=("events",), legacy=("events",)),
    JobField("event_items", Kind.RECORDS, "Events of the job.", v1="events"),
    JobField("outcome", Kind.TEXT,
        "How it ended: done, failed, timeout, out-of-memory, cancelled, evicted, node-failure, expired or unknown.",
        records=("outcome",), text="outcome", v1="outcome", is_listed=True, is_null=True, is_left_out=True),
    JobField("end", Kind.RECORD, "Cause of the end: code, data, sentence, advice.", records=("end",), text="end",
        v1="end", is_null=True, legacy=("end", "cause")),
    JobField("cpu_seconds", Kind.FLOAT, "CPU time used, in seconds.", records=("cpu_seconds",), v1="cpu_seconds",
        is_null=True, legacy=("cpu_seconds",)),
    JobField("cpu_efficiency", Kind.RATIO, "CPU time used, divided by the CPU time of the assigned cores.",
        records=("cpu_efficiency",), text="cpu_efficiency", v1="cpu_efficiency", is_null=True, is_left_out=True,
        legacy=("cpu_efficiency",)),
    JobField("max_rss", Kind.SIZE, "Peak memory on the node that used most.", records=("max_rss",), text="max_rss",
        v1="max_rss", is_null=True, is_left_out=True, legacy=("max_rss",)),
    JobField("array_limit", Kind.NUMBER, "Jobs of the array that may run at the same time; 0: all.",
        column="array_limit", records=("array_limit",), text="array_limit", v1="array_limit", is_null=True,
        is_left_out=True, legacy=("array_limit",), options=("array_limit",)),
    JobField("checkpoint", Kind.DURATION,
        "Time before the end of the walltime at which it gets the checkpoint signal.", column="checkpoint",
        records=("checkpoint",), text="checkpoint", v1="checkpoint", is_null=True, is_left_out=True,
        legacy=("checkpoint",), options=("checkpoint",)),
    JobField("checkpoint_signal", Kind.NUMBER, "Number of the checkpoint signal; 0: the default of the site.",
        column="checkpoint_signal", records=("checkpoint_signal",), text="checkpoint_signal", v1="signal",
        is_null=True, is_left_out=True, legacy=("checkpoint_signal",), options=("signal",)),
    JobField("notify", Kind.TEXT, "Notification of the owner; empty if the reader may not see it.", column="notify",
        records=("notify",), text="notify", v1="notify", is_null=True, is_left_out=True, legacy=("notify",),
        options=("notify",)),
    JobField("suspended", Kind.FLAG, "Whether it was suspended.", column="suspended", records=("suspended",),
        text="suspended", v1="suspended", is_left_out=True, legacy=("suspended",)),
    JobField("last_karma", Kind.FLOAT, "Karma of its owner in the last scheduling pass that considered it.",
        column="last_karma", records=("karma",), text="karma", is_left_out=True, v1="karma", is_null=True,
        legacy=("karma",)),
    JobField("version", Kind.TEXT, "Changes with each update of the job: for ``If-Match``.", v1="version"),
    JobField("scheduler_info", Kind.TEXT, column="scheduler_info", legacy=("scheduler_info",)),
    JobField("assigned_moldable", Kind.NUMBER, column="assigned_moldable_job", legacy=("assigned_moldable_job",)),
    JobField("info_type", Kind.TEXT, column="info_type"),
    JobField("env", Kind.TEXT, column="job_env"),
    JobField("file_id", Kind.NUMBER, column="file_id"),
    JobField("accounted", Kind.TEXT, column="accounted"),
)
# fmt: on

#: Kinds of which 0 is a value like any other; 0 of other kinds stands for nothing.
ZERO_COUNTS = frozenset({Kind.WAIT_STATUS, Kind.FLOAT, Kind.RATIO, Kind.SIZE, Kind.RECORD})

#: The column of each field that has one.
COLUMNS = {field.name: field.column for field in FIELDS if field.column}

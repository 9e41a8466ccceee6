"""Schemas of records in responses, for the OpenAPI document; ``openapi_operations`` uses them.

Handlers return bytes, so that nothing here runs for a request; the tests of the API compare every
response with its schema: no key may be missing, and none may be unknown here.
"""

from collections.abc import Mapping
from typing import Any

from oar.lib.jobs.fields import JobField, Kind
from oar.lib.jobs.formats import V1, V1_LISTED
from oar.lib.reservations.fields import RECORD as RESERVATION_FIELDS

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}


def or_null(schema: Schema) -> Schema:
    """Return a schema that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def many(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    """Return the schema of an object whose keys are names of the site."""
    return {"type": "object", "additionalProperties": schema}


#: The name of a schema in the document, which contains it once.
NAME = "x-name"


def named(name: str, schema: Schema) -> Schema:
    """Return a schema with a name in the document and in generated clients."""
    return {**schema, NAME: name}


def record(name: str, fields: Mapping[str, Schema], **sometimes: Schema) -> Schema:
    """Return the schema of a record with these keys; ``sometimes``: optional keys."""
    return named(name, {"type": "object", "required": [*fields], "properties": {**fields, **sometimes}})


#: The keys of an item of a list, unless a client selects ``fields``.
WHOLE = "x-whole"


def partly(whole: Schema, name: str = "") -> Schema:
    """Return the schema of a record whose fields clients can select; ``name``: another name."""
    return named(name or whole[NAME], {**whole, "required": [], WHOLE: whole["required"]})


MAYBE_TEXT, MAYBE_INTEGER, MAYBE_NUMBER = or_null(TEXT), or_null(INTEGER), or_null(NUMBER)
TEXTS, INTEGERS = many(TEXT), many(INTEGER)
PAIRS = many({"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2})
PROBLEM = record(
    "ItemProblem",
    {"status": INTEGER, "type": TEXT, "title": TEXT, "detail": TEXT},
    hint=TEXT,
    field=TEXT,
    output=TEXT,
    reason=TEXT,
)
REASON = record("Reason", {"code": TEXT, "text": TEXT, "data": by_name(ANY)})
OUTLOOK = record(
    "WaitingInfo",
    {"scheduled_start": MAYBE_INTEGER, "foreseen_at": MAYBE_INTEGER, "why": TEXT, "code": MAYBE_TEXT}
    | {"reason": MAYBE_TEXT, "data": by_name(ANY)},
)
PREDICTED_START = record(
    "PredictedStart",
    {"date": INTEGER, "hosts": TEXTS, "resources": INTEGER, "firmness": TEXT, "because": MAYBE_TEXT}
    | {
        "jobs_before": INTEGER,
        "foreseen_at": MAYBE_INTEGER,
        "half_off_by": MAYBE_INTEGER,
        "most_off_by": MAYBE_INTEGER,
    },
)
EXPLANATION_FIELDS = (
    {"job_id": INTEGER, "state": TEXT, "queue": TEXT, "submission_time": INTEGER, "start_time": INTEGER}
    | {"code": MAYBE_TEXT, "since": MAYBE_INTEGER, "reason": MAYBE_TEXT, "sentence": TEXT, "data": by_name(ANY)}
    | {"trouble": MAYBE_TEXT, "advice": MAYBE_TEXT, "lost_nodes": many(by_name(ANY)), "start": or_null(PREDICTED_START)}
    | {"in_front": many(record("BlockingJob", {"job_id": INTEGER, "owner": TEXT, "state": TEXT, "end": MAYBE_INTEGER}))}
    | {"waited": INTEGER, "waited_for": by_name(INTEGER)}
)
EXPLANATION = record("Explanation", EXPLANATION_FIELDS)
STATE_CHANGES = many(record("StateSpan", {"state": TEXT, "from": INTEGER, "to": MAYBE_INTEGER}))
_USED = {"cores": INTEGER, "cpu_seconds": MAYBE_NUMBER, "cpu_efficiency": MAYBE_NUMBER, "max_rss": MAYBE_INTEGER} | {
    "memory_limit": MAYBE_INTEGER,
    "oom_kills": MAYBE_INTEGER,
}
JOB_USAGE = record(
    "JobUsage",
    {"job_id": INTEGER, "owner": TEXT, "state": TEXT, "elapsed": INTEGER, "core_seconds": INTEGER, "complete": FLAG}
    | {**_USED, "nodes": by_name(record("NodeUsage", {**_USED, "forks_denied": MAYBE_INTEGER}))},
)
PREDICTIONS = many(
    record("PredictionRecord", {"when": TEXT, "date": INTEGER, "start": INTEGER, "late_by": MAYBE_INTEGER})
)
JOBS_AROUND = record(
    "JobDependencies",
    {
        "dependencies": many(
            record(
                "Dependency",
                {"job": INTEGER, "requires": INTEGER, "condition": MAYBE_TEXT, "min_shift": MAYBE_TEXT}
                | {"max_shift": MAYBE_TEXT},
            )
        ),
        "jobs": many(record("RelatedJob", {"id": INTEGER, "user": TEXT, "name": MAYBE_TEXT, "state": TEXT})),
        "complete": FLAG,
    },
)
JOB_END = record(
    "JobEnd", {"cause": TEXT, "data": by_name(ANY), "sentence": TEXT, "advice": TEXT, "resubmitted_as": MAYBE_INTEGER}
)
EVENT = record(
    "Event", {"id": INTEGER, "type": TEXT, "job": MAYBE_INTEGER, "date": INTEGER, "text": TEXT, "nodes": TEXTS}
)
_KINDS: Mapping[Kind, Schema] = {
    Kind.TEXT: TEXT,
    **dict.fromkeys((Kind.NUMBER, Kind.DATE, Kind.DURATION, Kind.WAIT_STATUS, Kind.SIZE), INTEGER),
    **dict.fromkeys((Kind.FLOAT, Kind.RATIO), NUMBER),
    Kind.FLAG: FLAG,
    Kind.TEXTS: TEXTS,
    Kind.NUMBERS: INTEGERS,
    Kind.RECORD: JOB_END,
    Kind.RECORDS: many(EVENT),
}


def _of_job(field: JobField) -> Schema:
    schema = _KINDS[field.kind]
    described = schema if NAME in schema else {**schema, "description": field.meaning.replace("``", "`")}
    return or_null(described) if field.is_null else described


JOB_ITEM = {key: _of_job(field) for key, field in V1_LISTED.items()}
JOB_DETAILS = {key: _of_job(field) for key, field in V1.items()}
MEMBERS = record("JobMembers", {"total": INTEGER, "jobs": PAIRS, "started": MAYBE_INTEGER})
_MORE_OF_JOBS = {name: schema for name, schema in JOB_DETAILS.items() if name not in JOB_ITEM}
JOB_PAGE = record(
    "JobPage",
    {
        "items": many(partly(record("JobItem", JOB_ITEM, outlook=or_null(OUTLOOK), members=MEMBERS, **_MORE_OF_JOBS))),
        "next": MAYBE_INTEGER,
    },
    total=INTEGER,
    more_than_total=FLAG,
)
CHANGE = record(
    "StateEvent",
    {"event": {"const": "state"}, "id": INTEGER, "job": INTEGER, "state": TEXT, "from": MAYBE_TEXT, "date": INTEGER}
    | {"user": TEXT, "name": MAYBE_TEXT, "queue": TEXT, "array": INTEGER},
)
HAPPENED = record("LoggedEvent", {"event": {"const": "event"}, **EVENT["properties"]})
DONE_WITH_JOB = record("JobResult", {"id": INTEGER, "done": TEXT, "warnings": TEXTS})
SUBMITTED = {"id": INTEGER, "ids": INTEGERS, "warnings": TEXTS, "output": TEXT}
ESTIMATE = {"feasible": or_null(FLAG), "start": MAYBE_INTEGER, "not_before": MAYBE_INTEGER, "walltime": INTEGER} | {
    "resources": INTEGERS,
    "hosts": TEXTS,
    "reasons": many(REASON),
    "sentence": TEXT,
}
QUEUE = record(
    "Queue",
    {"name": TEXT, "priority": INTEGER, "policy": TEXT, "state": TEXT, "jobs": by_name(INTEGER), "version": TEXT}
    | {"oldest_waiting": MAYBE_INTEGER},
)
CONDITIONS = {"free": INTEGER, "used": INTEGER, "reserved": INTEGER, "draining": INTEGER, "absent": INTEGER} | {
    "suspected": INTEGER,
    "dead": INTEGER,
}
WITH_STANDBY = CONDITIONS | {"standby": INTEGER}
OCCUPANCY = {"total": INTEGER, **CONDITIONS, "drain": FLAG}
GROUP = record("Group", WITH_STANDBY | {"value": TEXT, "total": INTEGER, "next_free": MAYBE_INTEGER})
NODE = OCCUPANCY | {"name": TEXT, "jobs": INTEGERS, "reason": MAYBE_TEXT}
RESOURCE = record(
    "Resource",
    {"id": INTEGER, "node": MAYBE_TEXT, "state": TEXT, "available_upto": INTEGER, "drain": TEXT, "next_state": TEXT}
    | {"jobs": INTEGERS, "advance_reservations": INTEGERS, "properties": by_name(ANY)},
    maintenance=TEXT,
)
SLOTS = many(record("Slots", {"queue": TEXT, "host": TEXT, "slots": INTEGER}))
ENVIRONMENT = record("Environment", {"name": TEXT}, slots=INTEGER, range=TEXT)
RESERVATION_USAGE = record(
    "ReservationUsage",
    {"queue": TEXT, "host": TEXT, "slots": INTEGER, "reserved": INTEGER, "used": INTEGER, "unusable": INTEGER},
)
_RESERVATION_RECORDS: Mapping[str, Schema] = {
    "granted": SLOTS,
    "requested": many(record("ResourceRequest", {"name": TEXT, "value": ANY})),
    "granted_environment": or_null(ENVIRONMENT),
    "environment": or_null(ENVIRONMENT),
    "jobs": record("ReservationJobs", {"running": INTEGERS, "waiting": INTEGERS}),
    "change": or_null(named("PendingChange", by_name(ANY))),
    "usage": many(RESERVATION_USAGE),
}
RESERVATION = {
    key: _RESERVATION_RECORDS.get(field.name, {**_KINDS[field.kind], "description": field.meaning})
    for key, field in RESERVATION_FIELDS.items()
}
RESERVATION_LOG = record(
    "ReservationLogEntry",
    {"date": INTEGER, "event": TEXT, "state": TEXT, "host": TEXT, "message": TEXT, "author": TEXT},
)
DRAWN_JOB = {
    "id": INTEGER,
    "name": MAYBE_TEXT,
    "user": TEXT,
    "project": TEXT,
    "queue": TEXT,
    "types": TEXTS,
    "state": TEXT,
} | {"kind": TEXT, "submitted": INTEGER, "start": INTEGER, "walltime": INTEGER, "is_planned": FLAG, "resources": PAIRS}
RULE = {"id": INTEGER, "priority": INTEGER, "enabled": FLAG, "text": TEXT, "version": TEXT}
USERSET = {"name": TEXT, "entries": TEXTS, "version": TEXT}
OUTPUT_FILE = record(
    "OutputFile", {"path": TEXT, "size": MAYBE_INTEGER, "modified": MAYBE_INTEGER, "problem": MAYBE_TEXT}
)
TOKEN = record(
    "Token",
    {"id": INTEGER, "user": TEXT, "scope": TEXT, "comment": TEXT, "created": INTEGER, "expires": MAYBE_INTEGER}
    | {"last_used": MAYBE_INTEGER},
)
MACHINES = many(record("Machine", {"node": TEXT, "properties": by_name(ANY)}))

JOB = record(
    "Job",
    JOB_DETAILS,
    explanation=EXPLANATION,
    states=STATE_CHANGES,
    usage=JOB_USAGE,
    predictions=PREDICTIONS,
    jobs_around=JOBS_AROUND,
)
SUBMISSION = record("Submission", SUBMITTED, reservation=TEXT)
WHOLE_RESERVATION = record("Reservation", RESERVATION, version=TEXT, log=many(RESERVATION_LOG))
SERVER_STATUS = named("ServerStatus", by_name(ANY))

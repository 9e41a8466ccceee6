"""What answers hold, for the OpenAPI document: the record of each operation.

Handlers give finished bytes, so that nothing here runs when a request is answered; the tests of the API compare every
answer that they get with it: no key may be missing, and none may be unknown here.
"""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}


def or_null(schema: Schema) -> Schema:
    """Return a schema of something that may be null: it is not known, or has not happened."""
    return {"anyOf": [schema, {"type": "null"}]}


def many(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    """Return the schema of an object whose keys are names of the site."""
    return {"type": "object", "additionalProperties": schema}


def record(fields: Mapping[str, Schema], **sometimes: Schema) -> Schema:
    """Return the schema of a record with these keys; ``sometimes``: those that it may be without."""
    return {"type": "object", "required": [*fields], "properties": {**fields, **sometimes}}


#: The keys that an item of a list has unless a client asks for some ``fields`` only.
WHOLE = "x-whole"


def partly(whole: Schema) -> Schema:
    """Return the schema of a record of which clients may ask for some fields only."""
    return {**whole, "required": [], WHOLE: whole["required"]}


def _known(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


MAYBE_TEXT, MAYBE_INTEGER, MAYBE_NUMBER = or_null(TEXT), or_null(INTEGER), or_null(NUMBER)
TEXTS, INTEGERS = many(TEXT), many(INTEGER)
PAIRS = many({"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2})
PROBLEM = record(
    {"status": INTEGER, "type": TEXT, "title": TEXT, "detail": TEXT}, hint=TEXT, field=TEXT, output=TEXT, reason=TEXT
)
REASON = record({"code": TEXT, "text": TEXT, "data": by_name(ANY)})
OUTLOOK = record(
    {"scheduled_start": MAYBE_INTEGER, "foreseen_at": MAYBE_INTEGER, "why": TEXT, "code": MAYBE_TEXT}
    | {"reason": MAYBE_TEXT, "data": by_name(ANY)}
)
PREDICTED_START = record(
    {"date": INTEGER, "hosts": TEXTS, "resources": INTEGER, "firmness": TEXT, "because": MAYBE_TEXT}
    | {"jobs_before": INTEGER, "foreseen_at": MAYBE_INTEGER, "half_off_by": MAYBE_INTEGER, "most_off_by": MAYBE_INTEGER}
)
EXPLANATION_FIELDS = (
    {"job_id": INTEGER, "state": TEXT, "queue": TEXT, "submission_time": INTEGER, "start_time": INTEGER}
    | {"code": MAYBE_TEXT, "since": MAYBE_INTEGER, "reason": MAYBE_TEXT, "sentence": TEXT, "data": by_name(ANY)}
    | {"trouble": MAYBE_TEXT, "advice": MAYBE_TEXT, "lost_nodes": many(by_name(ANY)), "start": or_null(PREDICTED_START)}
    | {"in_front": many(record({"job_id": INTEGER, "owner": TEXT, "state": TEXT, "end": MAYBE_INTEGER}))}
    | {"waited": INTEGER, "waited_for": by_name(INTEGER)}
)
EXPLANATION = record(EXPLANATION_FIELDS)
STATE_CHANGES = many(record({"state": TEXT, "from": INTEGER, "to": MAYBE_INTEGER}))
_USED = {"cores": INTEGER, "cpu_seconds": MAYBE_NUMBER, "cpu_efficiency": MAYBE_NUMBER, "max_rss": MAYBE_INTEGER} | {
    "memory_limit": MAYBE_INTEGER,
    "oom_kills": MAYBE_INTEGER,
}
JOB_USAGE = record(
    {"job_id": INTEGER, "owner": TEXT, "state": TEXT, "elapsed": INTEGER, "core_seconds": INTEGER, "complete": FLAG}
    | {**_USED, "nodes": by_name(record({**_USED, "forks_denied": MAYBE_INTEGER}))}
)
TOLD_STARTS = many(record({"when": TEXT, "date": INTEGER, "start": INTEGER, "late_by": MAYBE_INTEGER}))
JOBS_AROUND = record(
    {
        "dependencies": many(
            record(
                {"job": INTEGER, "requires": INTEGER, "condition": MAYBE_TEXT, "min_shift": MAYBE_TEXT}
                | {"max_shift": MAYBE_TEXT}
            )
        ),
        "jobs": many(record({"id": INTEGER, "user": TEXT, "name": MAYBE_TEXT, "state": TEXT})),
        "complete": FLAG,
    }
)
JOB_ITEM = (
    {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "project": TEXT, "queue": TEXT, "state": TEXT, "array": INTEGER}
    | {"array_index": INTEGER, "kind": TEXT, "reservation": TEXT, "submitted": INTEGER, "started": MAYBE_INTEGER}
    | {"ended": MAYBE_INTEGER, "exit_code": MAYBE_INTEGER, "message": TEXT}
)
JOB_END = record(
    {"cause": TEXT, "data": by_name(ANY), "sentence": TEXT, "advice": TEXT, "resubmitted_as": MAYBE_INTEGER}
)
JOB_DETAILS = JOB_ITEM | (
    {"version": TEXT, "types": TEXTS, "resources_asked": TEXT, "properties": MAYBE_TEXT, "walltime": MAYBE_INTEGER}
    | {"planned": MAYBE_INTEGER, "foreseen_at": MAYBE_INTEGER, "nodes": TEXTS, "resources": INTEGERS}
    | {"reserved_resources": INTEGERS, "advance_reservation": MAYBE_INTEGER, "dependencies": INTEGERS}
    | {"command": MAYBE_TEXT, "initial_request": MAYBE_TEXT, "directory": TEXT, "stdout": TEXT, "stderr": TEXT}
    | {"resubmitted_from": MAYBE_INTEGER, "resubmitted_as": MAYBE_INTEGER, "events": many(_known("Event"))}
    | {"end": or_null(JOB_END), "cpu_seconds": MAYBE_NUMBER, "cpu_efficiency": MAYBE_NUMBER, "max_rss": MAYBE_INTEGER}
)
_MORE_OF_JOBS = {name: schema for name, schema in JOB_DETAILS.items() if name not in JOB_ITEM}
JOB_PAGE = record(
    {"items": many(partly(record(JOB_ITEM, outlook=or_null(OUTLOOK), **_MORE_OF_JOBS))), "next": MAYBE_INTEGER},
    total=INTEGER,
    more_than_total=FLAG,
)
EVENT = record({"id": INTEGER, "type": TEXT, "job": MAYBE_INTEGER, "date": INTEGER, "text": TEXT, "nodes": TEXTS})
CHANGE = record(
    {"event": {"const": "state"}, "id": INTEGER, "job": INTEGER, "state": TEXT, "from": MAYBE_TEXT, "date": INTEGER}
    | {"user": TEXT, "name": MAYBE_TEXT, "queue": TEXT, "array": INTEGER}
)
HAPPENED = record({"event": {"const": "event"}, **EVENT["properties"]})
DONE_WITH_JOB = record({"id": INTEGER, "done": TEXT, "warnings": TEXTS})
SUBMITTED = {"id": INTEGER, "ids": INTEGERS, "warnings": TEXTS, "output": TEXT}
ESTIMATE = {"feasible": or_null(FLAG), "start": MAYBE_INTEGER, "not_before": MAYBE_INTEGER, "walltime": INTEGER} | {
    "resources": INTEGERS,
    "hosts": TEXTS,
    "reasons": many(REASON),
    "sentence": TEXT,
}
QUEUE = record(
    {"name": TEXT, "priority": INTEGER, "policy": TEXT, "state": TEXT, "jobs": by_name(INTEGER), "version": TEXT}
    | {"oldest_waiting": MAYBE_INTEGER}
)
CONDITIONS = {"free": INTEGER, "used": INTEGER, "reserved": INTEGER, "draining": INTEGER, "absent": INTEGER} | {
    "suspected": INTEGER,
    "dead": INTEGER,
}
WITH_STANDBY = CONDITIONS | {"standby": INTEGER}
OCCUPANCY = {"total": INTEGER, **CONDITIONS, "drain": FLAG}
NODE = OCCUPANCY | {"name": TEXT, "jobs": INTEGERS, "reason": MAYBE_TEXT}
RESOURCE = record(
    {"id": INTEGER, "node": MAYBE_TEXT, "state": TEXT, "available_upto": INTEGER, "drain": TEXT, "next_state": TEXT}
    | {"jobs": INTEGERS, "advance_reservations": INTEGERS, "properties": by_name(ANY)},
    maintenance=TEXT,
)
SLOTS = many(record({"queue": TEXT, "host": TEXT, "slots": INTEGER}))
ENVIRONMENT = record({"name": TEXT}, slots=INTEGER, range=TEXT)
RESERVATION_USAGE = record(
    {"queue": TEXT, "host": TEXT, "slots": INTEGER, "reserved": INTEGER, "used": INTEGER, "unusable": INTEGER}
)
RESERVATION = (
    {"id": INTEGER, "ar_name": TEXT, "submission_time": INTEGER, "owner": TEXT}
    | {"acl_list": TEXTS, "start_time": INTEGER, "end_time": INTEGER, "duration": INTEGER, "granted_slots": SLOTS}
    | {"resource_list": many(record({"name": TEXT, "value": ANY})), "state": TEXT, "reasons": TEXTS, "group": TEXT}
    | {"account": TEXT, "project": TEXT, "queue": TEXT, "time_limit": INTEGER, "error_handling": TEXT, "replace": FLAG}
    | {"flex": FLAG, "idle_limit": INTEGER, "xacl_list": TEXTS, "granted_parallel_environment": or_null(ENVIRONMENT)}
    | {"parallel_environment": or_null(ENVIRONMENT), "queue_list": TEXTS, "master_queue_list": TEXTS}
    | {"host_list": TEXTS, "properties": TEXT, "interactive": FLAG, "ignore_jobs": FLAG, "start_window": INTEGER}
    | {"checkpoint_name": TEXT, "mail_options": TEXT, "mail_list": TEXTS, "resources": INTEGERS, "missing": INTEGERS}
    | {"jobs": record({"running": INTEGERS, "waiting": INTEGERS}), "change": or_null(by_name(ANY))}
    | {"series_id": INTEGER, "series_index": INTEGER, "revision": INTEGER, "ended": INTEGER}
    | {"usage": many(RESERVATION_USAGE)}
)
RESERVATION_LOG = record({"date": INTEGER, "event": TEXT, "state": TEXT, "host": TEXT, "message": TEXT, "author": TEXT})
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
OUTPUT_FILE = record({"path": TEXT, "size": MAYBE_INTEGER, "modified": MAYBE_INTEGER, "problem": MAYBE_TEXT})
TOKEN = record(
    {"id": INTEGER, "user": TEXT, "scope": TEXT, "comment": TEXT, "created": INTEGER, "expires": MAYBE_INTEGER}
    | {"last_used": MAYBE_INTEGER}
)
MACHINES = many(record({"node": TEXT, "properties": by_name(ANY)}))

#: Records that several operations answer with.
COMPONENTS: Mapping[str, Schema] = {
    "Event": EVENT,
    "Job": record(
        JOB_DETAILS,
        explanation=EXPLANATION,
        states=STATE_CHANGES,
        usage=JOB_USAGE,
        predictions=TOLD_STARTS,
        jobs_around=JOBS_AROUND,
    ),
    "JobPage": JOB_PAGE,
    "Explanation": EXPLANATION,
    "DoneWithJob": DONE_WITH_JOB,
    "Submitted": record(SUBMITTED, reservation=TEXT),
    "Resource": RESOURCE,
    "Reservation": record(RESERVATION, version=TEXT, log=many(RESERVATION_LOG)),
}


def _items(schema: Schema, **more: Schema) -> Schema:
    return record({"items": many(schema), **more})


def _done(name: Schema | None = None, **more: Schema) -> Schema:
    return record({**({"name": name} if name else {}), "done": TEXT, **more, "warnings": TEXTS})


FATE = {"start": INTEGER, "end": MAYBE_INTEGER, "fate": {"enum": ["ends", "cut", "delayed"]}}
#: The record of each operation that answers with JSON.
ANSWERS: Mapping[str, Schema] = {
    "entry": record({"oar": TEXT, "api": TEXT, "links": many(record({"rel": TEXT, "href": TEXT, "title": TEXT}))}),
    "version": record({"oar": TEXT, "api": TEXT, "time_zone": TEXT, "now": INTEGER}),
    "whoami": record({"user": MAYBE_TEXT, "way": TEXT, "scope": MAYBE_TEXT, "is_administrator": FLAG}),
    "health_live": record({"status": TEXT}),
    "health_ready": record(
        {"database": TEXT, "schema": TEXT, "feed": record({"mode": TEXT, "lag": NUMBER, "is_well": FLAG})}
        | {"workers": record({"idle": INTEGER, "all": INTEGER}), "threads": record({"busy": INTEGER, "all": INTEGER})}
        | {"server": record({"running": or_null(FLAG), "round_age": or_null(INTEGER)})}
    ),
    "site": record(
        {"queues": TEXTS, "properties": by_name(TEXT), "resources": by_name(INTEGER), "time_zone": TEXT}
        | {"templates": many(by_name(TEXT)), "features": by_name(FLAG)}
    ),
    "dashboard": record(
        {"resources": record({"total": INTEGER, **WITH_STANDBY}), "queues": many(QUEUE)}
        | {"jobs": or_null(_known("JobPage")), "events": many(_known("Event")), "last_round": MAYBE_INTEGER}
    ),
    "jobs_list": _known("JobPage"),
    "job": _known("Job"),
    "job_explanation": record(EXPLANATION_FIELDS, smallest_change=MAYBE_TEXT, smallest_change_known=FLAG),
    "job_states": _items(STATE_CHANGES["items"]),
    "job_usage": JOB_USAGE,
    "job_predictions": _items(TOLD_STARTS["items"]),
    "job_dependencies": JOBS_AROUND,
    "job_walltime_changes": record(
        {"id": INTEGER, "is_enabled": FLAG, "walltime": INTEGER, "possible_increase": MAYBE_INTEGER}
        | {"granted": INTEGER, "pending": INTEGER, "timeout": MAYBE_INTEGER, "may": by_name(FLAG)}
    ),
    "job_submit": _known("Submitted"),
    "jobs_submit": _items(record({"status": INTEGER}, problem=PROBLEM, **SUBMITTED)),
    **dict.fromkeys(
        ("job_delete", "job_hold", "job_resume", "job_checkpoint", "job_signal", "job_walltime", "job_alter"),
        _known("DoneWithJob"),
    ),
    "job_besteffort": _known("DoneWithJob"),
    "job_resubmit": record({"id": INTEGER, "warnings": TEXTS}),
    **dict.fromkeys(
        ("jobs_act", "array_alter"), _items(record({"id": INTEGER}, done=TEXT, problem=PROBLEM), warnings=TEXTS)
    ),
    "estimates": _items(
        record(
            {},
            problem=PROBLEM,
            **ESTIMATE,
            jobs=many(record(ESTIMATE)),
            warnings=TEXTS,
            output=TEXT,
            initial_request=TEXT,
        )
    ),
    "job_output": record({"stdout": OUTPUT_FILE, "stderr": OUTPUT_FILE, "complete": FLAG}),
    "events": _items({"anyOf": [CHANGE, HAPPENED]}, position=TEXT, more=FLAG),
    "event_log": _items(partly(EVENT), next=MAYBE_INTEGER),
    "nodes_list": _items(partly(record(NODE)), total=record(OCCUPANCY)),
    "node": record(NODE | {"resources": many(_known("Resource")), "events": many(_known("Event"))}),
    "node_history": _items(
        record({"attribute": TEXT, "value": TEXT, "from": INTEGER, "to": MAYBE_INTEGER, "resources": INTEGERS}),
        **{"from": INTEGER},
        to=INTEGER,
        seconds=by_name(INTEGER),
    ),
    "resources_outlook": record(
        {"from": INTEGER, "to": MAYBE_INTEGER, "nodes": many(record({"name": TEXT, "empty": MAYBE_INTEGER}))}
        | {"jobs": many(record({"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "state": TEXT, **FATE}))}
        | {
            "reservations": many(
                record({"id": INTEGER, "ar_name": MAYBE_TEXT, "owner": TEXT, "start": INTEGER, "end": INTEGER})
            )
        }
    ),
    "resources_list": _items(partly(RESOURCE)),
    "resource": record(
        {name: RESOURCE["properties"][name] for name in RESOURCE["required"]} | {"version": TEXT}, maintenance=TEXT
    ),
    "resource_log": record(
        {
            "items": many(
                record({"id": INTEGER, "attribute": TEXT, "value": TEXT, "from": INTEGER, "to": MAYBE_INTEGER})
            ),
            "next": MAYBE_INTEGER,
        }
    ),
    "resources_change": record({"ids": INTEGERS, "jobs": INTEGERS, "updated": by_name(INTEGER), "warnings": TEXTS}),
    "resources_add": record({"ids": INTEGERS, "warnings": TEXTS}),
    "machines_add": record({"items": MACHINES}, new_properties=TEXTS, ids=INTEGERS, warnings=TEXTS),
    "resource_remove": record({"id": INTEGER, "done": TEXT, "purged": INTEGERS, "warnings": TEXTS}),
    "grid": record(
        {
            "items": many(
                record({"name": TEXT, "marks": TEXT, "held": many(INTEGERS), "group": MAYBE_TEXT}),
            ),
            "letters": by_name(TEXT),
            "total": record(WITH_STANDBY),
            "jobs": many(record({"id": INTEGER, "user": TEXT, "name": MAYBE_TEXT, "queue": TEXT})),
            "reasons": by_name(TEXT),
            "properties": TEXTS,
        }
    ),
    "gantt_index": _items(
        record({"day": TEXT, "version": TEXT, "jobs": INTEGER, "states": INTEGER, "from": INTEGER}),
    ),
    "gantt_live": record(
        {
            "running": many(record(DRAWN_JOB)),
            "planned": many(record(DRAWN_JOB | {"reason": MAYBE_TEXT})),
            "suspended": or_null(many(record({"job": INTEGER, "from": INTEGER, "to": MAYBE_INTEGER}))),
            "states": or_null(many(record({"state": TEXT, "from": INTEGER, "resources": PAIRS}))),
            "reservations": or_null(
                many(
                    record(
                        {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "from": INTEGER, "to": INTEGER}
                        | {"resources": PAIRS, "missing": PAIRS}
                    )
                )
            ),
            "gone": INTEGERS,
            "since": MAYBE_TEXT,
            "cursor": TEXT,
        }
    ),
    "gantt_occupancy": record(
        {"from": INTEGER, "bucket": INTEGER, "now": INTEGER, "resources": INTEGER}
        | {"used": many(NUMBER), "planned": many(NUMBER), "unusable": many(NUMBER)}
    ),
    "gantt_nodes": record(
        {
            "from": INTEGER,
            "to": INTEGER,
            "nodes": many(record({"name": TEXT, "resources": PAIRS})),
            "jobs": many(
                record(
                    {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "state": TEXT, "start": INTEGER}
                    | {"end": MAYBE_INTEGER, "is_over": FLAG, "is_planned": FLAG, "resources": PAIRS}
                )
            ),
            "states": many(record({"state": TEXT, "from": INTEGER, "to": MAYBE_INTEGER, "resources": PAIRS})),
        }
    ),
    "gantt_density": record(
        {"from": INTEGER, "bucket": INTEGER, "parts": INTEGER, "groups": many(PAIRS)}
        | {"used": TEXT, "besteffort": TEXT, "unusable": TEXT}
    ),
    "gantt_plans": _items(INTEGER),
    "gantt_plan": record(
        {
            "date": INTEGER,
            "items": many(
                record(
                    {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "start": INTEGER, "end": INTEGER}
                    | {"started": MAYBE_INTEGER, "ended": MAYBE_INTEGER, "resources": PAIRS}
                )
            ),
            "is_cut": FLAG,
        }
    ),
    "gantt_quotas": _items(record({"name": TEXT, "from": INTEGER, "to": INTEGER, "rules": INTEGER})),
    "gantt_rows": record(
        {
            "levels": TEXTS,
            "items": many(record({"type": TEXT, "labels": TEXTS, "number": INTEGER, "resources": PAIRS})),
            "properties": TEXTS,
        }
    ),
    "queues_list": _items(partly(QUEUE)),
    "queue": QUEUE,
    "queue_add": _done(TEXT),
    "queue_change": _done(TEXT),
    "queue_remove": _done(TEXT, advance_reservations=INTEGERS),
    "queues_switch": _done(),
    "properties_list": _items(
        record(
            {"name": TEXT, "type": TEXT, "values": MAYBE_INTEGER, "resources_without": MAYBE_INTEGER, "version": TEXT}
        )
    ),
    "property": record(
        {"name": TEXT, "type": TEXT, "largest": {"anyOf": [INTEGER, TEXT, {"type": "null"}]}, "version": TEXT}
    ),
    "property_add": _done(TEXT),
    "property_rename": _done(TEXT, jobs=INTEGERS),
    "property_remove": _done(TEXT),
    "rules_list": _items(record(RULE)),
    "rule": record(
        RULE
        | {"trouble": MAYBE_TEXT}
        | {"history": many(record({"date": INTEGER, "author": TEXT, "done": TEXT, "text_before": TEXT}))}
    ),
    "rule_add": record(RULE),
    "rule_change": record(RULE),
    "rule_remove": record({"id": INTEGER, "done": TEXT}),
    "rules_try": record(
        {"user": TEXT, "queue": TEXT, "project": TEXT, "name": MAYBE_TEXT, "types": TEXTS, "properties": MAYBE_TEXT}
        | {"resources_asked": TEXTS, "resources": INTEGER, "output": TEXT}
    ),
    "usersets_list": _items(record(USERSET)),
    "userset": record(USERSET),
    **dict.fromkeys(("userset_add", "userset_add_one"), record(USERSET | {"added": TEXTS, "warnings": TEXTS})),
    "userset_remove": record(USERSET | {"removed": TEXTS}),
    "userset_delete": record({"name": TEXT, "done": TEXT}),
    "accounting_count": record({"jobs": INTEGER, "windows": INTEGER, "complete": FLAG}),
    "accounting_purge": record({"windows": INTEGER}),
    "usage": record(
        {
            "items": many(
                record({"from": INTEGER, "used": INTEGER, "asked": INTEGER}, user=TEXT, project=TEXT, queue=TEXT),
            ),
            "capacity": INTEGER,
            "unavailable": by_name(INTEGER),
        }
    ),
    "usage_waits": record(
        {
            "sizes": many(record({"from": INTEGER, "to": MAYBE_INTEGER})),
            "items": many(
                record({"size": INTEGER, "queue": MAYBE_TEXT, "jobs": INTEGER, "half": INTEGER, "most": INTEGER}),
            ),
            "hours": many(record({"size": INTEGER, "block": INTEGER, "jobs": INTEGER, "half": INTEGER})),
            "block_hours": INTEGER,
            "trend": many(
                record({"size": INTEGER, "from": INTEGER, "jobs": INTEGER, "half": INTEGER, "most": INTEGER})
            ),
            "is_cut": FLAG,
        }
    ),
    "prediction_errors": _items(
        record(
            {"queue": MAYBE_TEXT, "jobs": INTEGER, "half": INTEGER, "most": INTEGER, "late": INTEGER}
            | {"most_late": INTEGER}
        ),
    ),
    "usage_nodes": _items(record({"node": TEXT, "suspected": INTEGER, "seconds": by_name(INTEGER)}), halted=INTEGER),
    "fairshare": record(
        {"user": TEXT, "project": TEXT, "karma": NUMBER, "window": INTEGER}
        | {
            "terms": many(
                record({"name": TEXT, "used": NUMBER, "target": NUMBER, "weight": NUMBER, "karma": NUMBER}),
            )
        }
        | {
            "ahead": or_null(
                many(record({"user": TEXT, "project": TEXT, "waiting": INTEGER, "karma": NUMBER, "by": TEXT}))
            ),
            "step": INTEGER,
            "fades": many(NUMBER),
        }
    ),
    "reservations_list": _items(record({}, **RESERVATION), next=MAYBE_INTEGER),
    "reservation": _known("Reservation"),
    "reservation_log": _items(RESERVATION_LOG),
    "reservation_jobs": _known("JobPage"),
    "reservation_resources": record(
        {"resources": INTEGERS, "granted_slots": SLOTS, "missing": INTEGERS, "reasons": TEXTS}
    ),
    "reservation_usage": _items(RESERVATION_USAGE),
    "reservation_revisions": _items(
        record(
            {"revision": INTEGER, "date": INTEGER, "author": TEXT, "ar_name": TEXT, "account": TEXT}
            | {"start_time": INTEGER, "end_time": INTEGER, "granted_parallel_environment": TEXT}
            | {"granted_resources": TEXT}
        )
    ),
    "reservation_events": _items(
        record(
            {"id": INTEGER, "kind": {"type": "string", "enum": ["ADD", "MOD", "DEL"]}, **RESERVATION_LOG["properties"]}
            | {"number": MAYBE_INTEGER, "reservation": or_null(_known("Reservation"))}
        ),
        next=INTEGER,
    ),
    "reservation_request": _items(
        _known("Reservation"),
        series=MAYBE_INTEGER,
        skipped=many(record({"index": INTEGER, "start": INTEGER, "reason": TEXT})),
        output=TEXT,
        warnings=TEXTS,
    ),
    "reservation_alter": record(RESERVATION | {"message": MAYBE_TEXT, "lost_jobs": INTEGERS, "warnings": TEXTS}),
    "reservation_series_alter": _items(
        record({"id": INTEGER, "done": TEXT, "message": MAYBE_TEXT, "lost_jobs": INTEGERS, "proposal": MAYBE_INTEGER}),
        series=INTEGER,
        warnings=TEXTS,
    ),
    "reservation_alter_try": record(
        {"granted": FLAG, "start_time": MAYBE_INTEGER, "end_time": MAYBE_INTEGER, "resources": INTEGERS}
        | {"ended_jobs": INTEGERS, "lost_jobs": INTEGERS, "reason": MAYBE_TEXT, "proposal": MAYBE_INTEGER}
    ),
    "reservation_delete": _known("DoneWithJob"),
    "reservation_series_delete": _items(record({"id": INTEGER, "done": TEXT}), series=INTEGER, warnings=TEXTS),
    "reservation_try": record(
        {
            "granted": FLAG,
            "items": many(
                record(
                    {"start_time": INTEGER, "end_time": INTEGER, "state": TEXT, "reasons": TEXTS}
                    | {"granted_slots": SLOTS, "resources": INTEGERS}
                )
            ),
            "reason": MAYBE_TEXT,
            "proposal": MAYBE_INTEGER,
            "output": TEXT,
        }
    ),
    "array": record(
        {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "project": TEXT, "queue": TEXT, "submitted": INTEGER}
        | {"limit": MAYBE_INTEGER, "total": INTEGER, "counts": by_name(INTEGER), "letters": by_name(TEXT)}
        | {"jobs": PAIRS, "marks": TEXT}
        | dict.fromkeys(("started", "ended", "shortest", "median", "longest"), MAYBE_INTEGER)
    ),
    "rounds": _items(
        record(
            {"date": INTEGER, "duration": NUMBER, "result": TEXT, "kind": MAYBE_TEXT, "waiting": MAYBE_INTEGER}
            | {"undecided": MAYBE_INTEGER, "started": INTEGER, "phases": or_null(by_name(NUMBER))}
        )
    ),
    "administration": record(
        {
            "versions": record({"api": TEXT, "server": MAYBE_TEXT, "schema": MAYBE_TEXT}),
            "database": record(
                {"postgresql": TEXT, "size": INTEGER, "connections": INTEGER, "most_connections": INTEGER}
            ),
            "server": or_null(by_name(ANY)),
            "modules": or_null(by_name(by_name(ANY))),
            "rounds": record({"last": MAYBE_INTEGER, "durations": or_null(by_name(ANY))}),
            "queues": many(QUEUE),
            "rules": or_null(many(record({"id": INTEGER, "priority": INTEGER, "enabled": FLAG, "begins": TEXT}))),
            "keys": many(record({"key": TEXT, "value": TEXT, "default": TEXT, "meaning": TEXT})),
        }
    ),
    "server": by_name(ANY),
    "server_notify": _done(),
    "session_begin": record({"user": TEXT}),
    "tokens_list": _items(TOKEN),
    "token_create": record({"id": INTEGER, "token": TEXT, "user": TEXT, "scope": TEXT, "expires": INTEGER}),
}

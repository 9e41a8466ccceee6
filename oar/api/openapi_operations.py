"""The record of each operation that answers with JSON, for the OpenAPI document.  See ``schemas``."""

from collections.abc import Mapping

from oar.api.openapi_schemas import (
    ANY,
    CHANGE,
    DONE_WITH_JOB,
    DRAWN_JOB,
    ESTIMATE,
    EVENT,
    EXPLANATION_FIELDS,
    FLAG,
    GROUP,
    HAPPENED,
    INTEGER,
    INTEGERS,
    JOB,
    JOB_PAGE,
    JOB_USAGE,
    JOBS_AROUND,
    MACHINES,
    MAYBE_INTEGER,
    MAYBE_TEXT,
    NODE,
    NUMBER,
    OCCUPANCY,
    OUTPUT_FILE,
    PAIRS,
    PREDICTIONS,
    PROBLEM,
    QUEUE,
    RESERVATION,
    RESERVATION_LOG,
    RESERVATION_USAGE,
    RESOURCE,
    RULE,
    SERVER_STATUS,
    SLOTS,
    STATE_CHANGES,
    SUBMISSION,
    SUBMITTED,
    TEXT,
    TEXTS,
    TOKEN,
    USERSET,
    WHOLE_RESERVATION,
    WITH_STANDBY,
    Schema,
    by_name,
    many,
    named,
    or_null,
    partly,
    record,
)


def _items(name: str, schema: Schema, **more: Schema) -> Schema:
    return record(name, {"items": many(schema), **more})


def _done(name: str, of: Schema | None = None, **more: Schema) -> Schema:
    return record(name, {**({"name": of} if of else {}), "done": TEXT, **more, "warnings": TEXTS})


FATE = {"start": INTEGER, "end": MAYBE_INTEGER, "fate": {"enum": ["ends", "cut", "delayed"]}}
#: The record of each operation that answers with JSON.
ANSWERS: Mapping[str, Schema] = {
    "entry": record(
        "ApiRoot", {"oar": TEXT, "api": TEXT, "links": many(record("Link", {"rel": TEXT, "href": TEXT, "title": TEXT}))}
    ),
    "version": record("Version", {"oar": TEXT, "api": TEXT, "time_zone": TEXT, "now": INTEGER}),
    "whoami": record("Whoami", {"user": MAYBE_TEXT, "way": TEXT, "scope": MAYBE_TEXT, "is_administrator": FLAG}),
    "health_live": record("Liveness", {"status": TEXT}),
    "health_ready": record(
        "Readiness",
        {"database": TEXT, "schema": TEXT, "feed": record("FeedState", {"mode": TEXT, "lag": NUMBER, "is_well": FLAG})}
        | {
            "workers": record("Workers", {"idle": INTEGER, "all": INTEGER}),
            "threads": record("Threads", {"busy": INTEGER, "all": INTEGER}),
        }
        | {"server": record("ServerHealth", {"running": or_null(FLAG), "round_age": or_null(INTEGER)})},
    ),
    "site": record(
        "Site",
        {"queues": TEXTS, "properties": by_name(TEXT), "resources": by_name(INTEGER), "time_zone": TEXT}
        | {"templates": many(by_name(TEXT)), "features": by_name(FLAG)},
    ),
    "dashboard": record(
        "Dashboard",
        {"resources": record("ResourceTotals", {"total": INTEGER, **WITH_STANDBY}), "queues": many(QUEUE)}
        | {"jobs": or_null(JOB_PAGE), "events": many(EVENT), "last_round": MAYBE_INTEGER}
        | {"lost_nodes": many(record("UnavailableNode", {"node": TEXT, "state": TEXT, "since": MAYBE_INTEGER}))}
        | {"full_disks": many(record("FullDisk", {"path": TEXT, "free": INTEGER, "total": INTEGER}))},
    ),
    "jobs_list": JOB_PAGE,
    "job": JOB,
    "job_explanation": record(
        "JobExplanation", EXPLANATION_FIELDS, smallest_change=MAYBE_TEXT, smallest_change_known=FLAG
    ),
    "job_states": _items("JobStates", STATE_CHANGES["items"]),
    "job_usage": JOB_USAGE,
    "job_predictions": _items("JobPredictions", PREDICTIONS["items"]),
    "job_dependencies": JOBS_AROUND,
    "job_walltime_changes": record(
        "WalltimeOptions",
        {"id": INTEGER, "is_enabled": FLAG, "walltime": INTEGER, "possible_increase": MAYBE_INTEGER}
        | {"granted": INTEGER, "pending": INTEGER, "timeout": MAYBE_INTEGER, "may": by_name(FLAG)},
    ),
    "job_submit": SUBMISSION,
    "jobs_submit": _items("SubmittedJobs", record("SubmittedJob", {"status": INTEGER}, problem=PROBLEM, **SUBMITTED)),
    **dict.fromkeys(
        ("job_delete", "job_hold", "job_resume", "job_checkpoint", "job_signal", "job_walltime", "job_alter"),
        DONE_WITH_JOB,
    ),
    "job_besteffort": DONE_WITH_JOB,
    "job_resubmit": record("ResubmittedJob", {"id": INTEGER, "warnings": TEXTS}),
    **dict.fromkeys(
        ("jobs_act", "array_alter"),
        _items("BulkResults", record("BulkResult", {"id": INTEGER}, done=TEXT, problem=PROBLEM), warnings=TEXTS),
    ),
    "estimates": _items(
        "Estimates",
        record(
            "Estimate",
            {},
            problem=PROBLEM,
            **ESTIMATE,
            jobs=many(record("EstimatedJob", ESTIMATE)),
            warnings=TEXTS,
            output=TEXT,
            initial_request=TEXT,
        ),
    ),
    "job_output": record("JobOutput", {"stdout": OUTPUT_FILE, "stderr": OUTPUT_FILE, "complete": FLAG}),
    "events": _items("EventPage", {"anyOf": [CHANGE, HAPPENED]}, position=TEXT, more=FLAG),
    "event_log": _items("EventLog", partly(EVENT, "EventItem"), next=MAYBE_INTEGER),
    "nodes_list": _items("NodePage", partly(record("NodeItem", NODE)), total=record("Occupancy", OCCUPANCY)),
    "node": record("Node", NODE | {"resources": many(RESOURCE), "events": many(EVENT)}),
    "node_history": _items(
        "NodeHistory",
        record(
            "NodeSpan", {"attribute": TEXT, "value": TEXT, "from": INTEGER, "to": MAYBE_INTEGER, "resources": INTEGERS}
        ),
        **{"from": INTEGER},
        to=INTEGER,
        seconds=by_name(INTEGER),
    ),
    "resources_outlook": record(
        "MaintenancePreview",
        {
            "from": INTEGER,
            "to": MAYBE_INTEGER,
            "nodes": many(record("NodeIdleTime", {"name": TEXT, "empty": MAYBE_INTEGER})),
        }
        | {"jobs": many(record("JobImpact", {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "state": TEXT, **FATE}))}
        | {
            "reservations": many(
                record(
                    "AffectedReservation",
                    {"id": INTEGER, "ar_name": MAYBE_TEXT, "owner": TEXT, "start": INTEGER, "end": INTEGER},
                )
            )
        },
    ),
    "resources_list": _items("ResourcePage", partly(RESOURCE, "ResourceItem")),
    "resource": record(
        "ResourceDetails",
        {name: RESOURCE["properties"][name] for name in RESOURCE["required"]} | {"version": TEXT},
        maintenance=TEXT,
    ),
    "resource_log": record(
        "ResourceLog",
        {
            "items": many(
                record(
                    "ResourceLogEntry",
                    {"id": INTEGER, "attribute": TEXT, "value": TEXT, "from": INTEGER, "to": MAYBE_INTEGER},
                )
            ),
            "next": MAYBE_INTEGER,
        },
    ),
    "resources_change": record(
        "UpdatedResources", {"ids": INTEGERS, "jobs": INTEGERS, "updated": by_name(INTEGER), "warnings": TEXTS}
    ),
    "resources_add": record("CreatedResources", {"ids": INTEGERS, "warnings": TEXTS}),
    "machines_add": record("CreatedMachines", {"items": MACHINES}, new_properties=TEXTS, ids=INTEGERS, warnings=TEXTS),
    "resource_remove": record("DeletedResource", {"id": INTEGER, "done": TEXT, "purged": INTEGERS, "warnings": TEXTS}),
    "grid": record(
        "Grid",
        {
            "items": many(
                record("GridNode", {"name": TEXT, "marks": TEXT, "held": many(INTEGERS), "group": MAYBE_TEXT}),
            ),
            "letters": by_name(TEXT),
            "total": record("GridTotals", WITH_STANDBY),
            "jobs": many(record("GridJob", {"id": INTEGER, "user": TEXT, "name": MAYBE_TEXT, "queue": TEXT})),
            "reasons": by_name(TEXT),
            "since": by_name(INTEGER),
            "properties": TEXTS,
        },
    ),
    "property_values": _items(
        "PropertyValues", record("PropertyValueList", {"name": TEXT, "values": TEXTS, "more": INTEGER})
    ),
    "groups": _items("Groups", GROUP, by=MAYBE_TEXT, properties=TEXTS, more=INTEGER, pools=many(GROUP)),
    "gantt_index": _items(
        "GanttIndex",
        record("GanttDay", {"day": TEXT, "version": TEXT, "jobs": INTEGER, "states": INTEGER, "from": INTEGER}),
    ),
    "gantt_live": record(
        "GanttLive",
        {
            "running": many(record("DrawnJob", DRAWN_JOB)),
            "planned": many(record("PlannedJob", DRAWN_JOB | {"reason": MAYBE_TEXT})),
            "suspended": or_null(many(record("SuspendedSpan", {"job": INTEGER, "from": INTEGER, "to": MAYBE_INTEGER}))),
            "states": or_null(many(record("DrawnState", {"state": TEXT, "from": INTEGER, "resources": PAIRS}))),
            "reservations": or_null(
                many(
                    record(
                        "DrawnReservation",
                        {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "from": INTEGER, "to": INTEGER}
                        | {"resources": PAIRS, "missing": PAIRS},
                    )
                )
            ),
            "gone": INTEGERS,
            "since": MAYBE_TEXT,
            "cursor": TEXT,
        },
    ),
    "gantt_occupancy": record(
        "GanttOccupancy",
        {"from": INTEGER, "bucket": INTEGER, "now": INTEGER, "resources": INTEGER}
        | {"used": many(NUMBER), "planned": many(NUMBER), "unusable": many(NUMBER)},
    ),
    "gantt_nodes": record(
        "GanttNodes",
        {
            "from": INTEGER,
            "to": INTEGER,
            "nodes": many(record("DrawnNode", {"name": TEXT, "resources": PAIRS})),
            "jobs": many(
                record(
                    "NodeJob",
                    {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "state": TEXT, "start": INTEGER}
                    | {"end": MAYBE_INTEGER, "is_over": FLAG, "is_planned": FLAG, "resources": PAIRS},
                )
            ),
            "states": many(
                record("NodeState", {"state": TEXT, "from": INTEGER, "to": MAYBE_INTEGER, "resources": PAIRS})
            ),
        },
    ),
    "gantt_density": record(
        "GanttDensity",
        {"from": INTEGER, "bucket": INTEGER, "parts": INTEGER, "groups": many(PAIRS)}
        | {"used": TEXT, "besteffort": TEXT, "unusable": TEXT},
    ),
    "gantt_plans": _items("GanttPlans", INTEGER),
    "gantt_plan": record(
        "GanttPlan",
        {
            "date": INTEGER,
            "items": many(
                record(
                    "PlanItem",
                    {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "start": INTEGER, "end": INTEGER}
                    | {"started": MAYBE_INTEGER, "ended": MAYBE_INTEGER, "resources": PAIRS},
                )
            ),
            "is_cut": FLAG,
        },
    ),
    "gantt_quotas": _items(
        "GanttQuotas", record("QuotaSpan", {"name": TEXT, "from": INTEGER, "to": INTEGER, "rules": INTEGER})
    ),
    "gantt_rows": record(
        "GanttRows",
        {
            "levels": TEXTS,
            "items": many(record("GanttRow", {"type": TEXT, "labels": TEXTS, "number": INTEGER, "resources": PAIRS})),
            "properties": TEXTS,
        },
    ),
    "queues_list": _items("QueuePage", partly(QUEUE, "QueueItem")),
    "queue": QUEUE,
    "queue_add": _done("NamedResult", TEXT),
    "queue_change": _done("NamedResult", TEXT),
    "queue_remove": _done("DeletedQueue", TEXT, advance_reservations=INTEGERS),
    "queues_switch": _done("Result"),
    "properties_list": _items(
        "PropertyPage",
        record(
            "PropertyItem",
            {"name": TEXT, "type": TEXT, "values": MAYBE_INTEGER, "resources_without": MAYBE_INTEGER, "version": TEXT},
        ),
    ),
    "property": record(
        "Property",
        {"name": TEXT, "type": TEXT, "largest": {"anyOf": [INTEGER, TEXT, {"type": "null"}]}, "version": TEXT},
    ),
    "property_add": _done("NamedResult", TEXT),
    "property_rename": _done("RenamedProperty", TEXT, jobs=INTEGERS),
    "property_remove": _done("NamedResult", TEXT),
    "rules_list": _items("RulePage", record("Rule", RULE)),
    "rule": record(
        "RuleWithHistory",
        RULE
        | {"trouble": MAYBE_TEXT}
        | {
            "history": many(record("RuleVersion", {"date": INTEGER, "author": TEXT, "done": TEXT, "text_before": TEXT}))
        },
    ),
    "rule_add": record("Rule", RULE),
    "rule_change": record("Rule", RULE),
    "rule_remove": record("DeletedRule", {"id": INTEGER, "done": TEXT}),
    "rules_try": record(
        "RuleTestResult",
        {"user": TEXT, "queue": TEXT, "project": TEXT, "name": MAYBE_TEXT, "types": TEXTS, "properties": MAYBE_TEXT}
        | {"resources_asked": TEXTS, "resources": INTEGER, "output": TEXT},
    ),
    "usersets_list": _items("UsersetPage", record("Userset", USERSET)),
    "userset": record("Userset", USERSET),
    **dict.fromkeys(
        ("userset_add", "userset_add_one"), record("UsersetAdditions", USERSET | {"added": TEXTS, "warnings": TEXTS})
    ),
    "userset_remove": record("UsersetRemovals", USERSET | {"removed": TEXTS}),
    "userset_delete": record("DeletedUserset", {"name": TEXT, "done": TEXT}),
    "accounting_count": record("AccountingUpdateResult", {"jobs": INTEGER, "windows": INTEGER, "complete": FLAG}),
    "accounting_purge": record("AccountingPurgeResult", {"windows": INTEGER}),
    "usage": record(
        "Usage",
        {
            "items": many(
                record(
                    "UsageEntry",
                    {"from": INTEGER, "used": INTEGER, "asked": INTEGER},
                    user=TEXT,
                    project=TEXT,
                    queue=TEXT,
                ),
            ),
            "capacity": INTEGER,
            "unavailable": by_name(INTEGER),
        },
    ),
    "usage_waits": record(
        "WaitingTimes",
        {
            "sizes": many(record("SizeClass", {"from": INTEGER, "to": MAYBE_INTEGER})),
            "items": many(
                record(
                    "WaitingTimeBySize",
                    {"size": INTEGER, "queue": MAYBE_TEXT, "jobs": INTEGER, "half": INTEGER, "most": INTEGER},
                ),
            ),
            "hours": many(
                record("WaitingTimeByHour", {"size": INTEGER, "block": INTEGER, "jobs": INTEGER, "half": INTEGER})
            ),
            "block_hours": INTEGER,
            "trend": many(
                record(
                    "WaitingTimeTrend",
                    {"size": INTEGER, "from": INTEGER, "jobs": INTEGER, "half": INTEGER, "most": INTEGER},
                )
            ),
            "is_cut": FLAG,
        },
    ),
    "prediction_errors": _items(
        "PredictionAccuracy",
        record(
            "PredictionError",
            {"queue": MAYBE_TEXT, "jobs": INTEGER, "half": INTEGER, "most": INTEGER, "late": INTEGER}
            | {"most_late": INTEGER},
        ),
    ),
    "usage_nodes": _items(
        "NodeUnavailability",
        record("NodeUnavailabilityItem", {"node": TEXT, "suspected": INTEGER, "seconds": by_name(INTEGER)}),
        halted=INTEGER,
    ),
    "fairshare": record(
        "FairShare",
        {"user": TEXT, "project": TEXT, "karma": NUMBER, "window": INTEGER}
        | {
            "terms": many(
                record(
                    "FairShareTerm", {"name": TEXT, "used": NUMBER, "target": NUMBER, "weight": NUMBER, "karma": NUMBER}
                ),
            )
        }
        | {
            "ahead": or_null(
                many(
                    record(
                        "FairShareUser",
                        {"user": TEXT, "project": TEXT, "waiting": INTEGER, "karma": NUMBER, "by": TEXT},
                    )
                )
            ),
            "step": INTEGER,
            "fades": many(NUMBER),
        },
    ),
    "reservations_list": _items("ReservationPage", record("ReservationItem", {}, **RESERVATION), next=MAYBE_INTEGER),
    "reservation": WHOLE_RESERVATION,
    "reservation_log": _items("ReservationLog", RESERVATION_LOG),
    "reservation_jobs": JOB_PAGE,
    "reservation_resources": record(
        "ReservationResources", {"resources": INTEGERS, "granted_slots": SLOTS, "missing": INTEGERS, "reasons": TEXTS}
    ),
    "reservation_usage": _items("ReservationUsages", RESERVATION_USAGE),
    "reservation_revisions": _items(
        "ReservationRevisions",
        record(
            "ReservationRevision",
            {"revision": INTEGER, "date": INTEGER, "author": TEXT, "ar_name": TEXT, "account": TEXT}
            | {"start_time": INTEGER, "end_time": INTEGER, "granted_parallel_environment": TEXT}
            | {"granted_resources": TEXT},
        ),
    ),
    "reservation_events": _items(
        "ReservationChanges",
        record(
            "ReservationChange",
            {"id": INTEGER, "kind": {"type": "string", "enum": ["ADD", "MOD", "DEL"]}, **RESERVATION_LOG["properties"]}
            | {"number": MAYBE_INTEGER, "reservation": or_null(WHOLE_RESERVATION)},
        ),
        next=INTEGER,
    ),
    "reservation_request": _items(
        "CreatedReservations",
        WHOLE_RESERVATION,
        series=MAYBE_INTEGER,
        skipped=many(record("SkippedReservation", {"index": INTEGER, "start": INTEGER, "reason": TEXT})),
        output=TEXT,
        warnings=TEXTS,
    ),
    "reservation_alter": record(
        "UpdatedReservation", RESERVATION | {"message": MAYBE_TEXT, "lost_jobs": INTEGERS, "warnings": TEXTS}
    ),
    "reservation_series_alter": _items(
        "UpdatedSeries",
        record(
            "SeriesItem",
            {"id": INTEGER, "done": TEXT, "message": MAYBE_TEXT, "lost_jobs": INTEGERS, "proposal": MAYBE_INTEGER},
        ),
        series=INTEGER,
        warnings=TEXTS,
    ),
    "reservation_alter_try": record(
        "ReservationUpdateTest",
        {"granted": FLAG, "start_time": MAYBE_INTEGER, "end_time": MAYBE_INTEGER, "resources": INTEGERS}
        | {"ended_jobs": INTEGERS, "lost_jobs": INTEGERS, "reason": MAYBE_TEXT, "proposal": MAYBE_INTEGER},
    ),
    "reservation_delete": DONE_WITH_JOB,
    "reservation_series_delete": _items(
        "DeletedSeries", record("DeletedSeriesItem", {"id": INTEGER, "done": TEXT}), series=INTEGER, warnings=TEXTS
    ),
    "reservation_try": record(
        "ReservationTest",
        {
            "granted": FLAG,
            "items": many(
                record(
                    "ReservationTestItem",
                    {"start_time": INTEGER, "end_time": INTEGER, "state": TEXT, "reasons": TEXTS}
                    | {"granted_slots": SLOTS, "resources": INTEGERS},
                )
            ),
            "reason": MAYBE_TEXT,
            "proposal": MAYBE_INTEGER,
            "output": TEXT,
        },
    ),
    "array": record(
        "JobArray",
        {"id": INTEGER, "name": MAYBE_TEXT, "user": TEXT, "project": TEXT, "queue": TEXT, "submitted": INTEGER}
        | {"limit": MAYBE_INTEGER, "total": INTEGER, "counts": by_name(INTEGER), "letters": by_name(TEXT)}
        | {"jobs": PAIRS, "marks": TEXT}
        | dict.fromkeys(("started", "ended", "shortest", "median", "longest"), MAYBE_INTEGER),
    ),
    "rounds": _items(
        "SchedulingPasses",
        record(
            "SchedulingPass",
            {"date": INTEGER, "duration": NUMBER, "result": TEXT, "kind": MAYBE_TEXT, "waiting": MAYBE_INTEGER}
            | {
                "undecided": MAYBE_INTEGER,
                "started": INTEGER,
                "phases": or_null(named("PhaseSeconds", by_name(NUMBER))),
            },
        ),
    ),
    "administration": record(
        "Administration",
        {
            "versions": record("Versions", {"api": TEXT, "server": MAYBE_TEXT, "schema": MAYBE_TEXT}),
            "database": record(
                "DatabaseState",
                {"postgresql": TEXT, "size": INTEGER, "connections": INTEGER, "most_connections": INTEGER},
            ),
            "server": or_null(SERVER_STATUS),
            "modules": or_null(named("Modules", by_name(named("ModuleStatus", by_name(ANY))))),
            "rounds": record(
                "SchedulingStatus", {"last": MAYBE_INTEGER, "durations": or_null(named("Durations", by_name(ANY)))}
            ),
            "queues": many(QUEUE),
            "rules": or_null(
                many(record("RuleSummary", {"id": INTEGER, "priority": INTEGER, "enabled": FLAG, "begins": TEXT}))
            ),
            "keys": many(record("ConfigurationKey", {"key": TEXT, "value": TEXT, "default": TEXT, "meaning": TEXT})),
        },
    ),
    "server": SERVER_STATUS,
    "server_notify": _done("Result"),
    "session_begin": record("Session", {"user": TEXT}),
    "tokens_list": _items("TokenPage", TOKEN),
    "token_create": record("NewToken", {"id": INTEGER, "token": TEXT, "user": TEXT, "scope": TEXT, "expires": INTEGER}),
}

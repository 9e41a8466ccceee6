# Refuse requests by properties that are OAR's own
SYSTEM_PROPERTIES = {
    "type",
    "state",
    "next_state",
    "finaud_decision",
    "next_finaud_decision",
    "state_num",
    "suspended_jobs",
    "scheduler_priority",
    "cpuset",
    "besteffort",
    "deploy",
    "expiry_date",
    "desktop_computing",
    "last_job_date",
    "available_upto",
    "last_available_upto",
    "drain",
}
for groups, _ in resource_request:
    for group in groups:
        for level in group["resources"]:
            if level["resource"].lower() in SYSTEM_PROPERTIES:
                reject(f"[ADMISSION RULE] '{level['resource']}' resource is not allowed")

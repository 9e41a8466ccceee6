"""An example of each body that a client may send, for the OpenAPI document."""

from collections.abc import Mapping

_JOB = {"command": "./run.sh", "resources": "nodes=2/core=4", "walltime": 7200, "name": "sim"}
_PERIOD = {"name": "course", "start": "2030-01-07 08:00", "duration": "4:00"}
#: By the names of their schemas.
EXAMPLES: Mapping[str, Mapping[str, object]] = {
    "JobRequest": _JOB,
    "JobBatch": {"jobs": [_JOB, {"command": "./next.sh", "types": ["besteffort"]}]},
    "EstimateRequest": {"alternatives": [_JOB, {**_JOB, "walltime": 3600}]},
    "JobUpdate": {"name": "sim-2", "properties": "gpu = 'YES'"},
    "BulkRequest": {"act": "delete", "user": "me", "state": "Waiting", "dry_run": True},
    "HoldRequest": {"running": False},
    "JobSignal": {"signal": "USR1"},
    "WalltimeChange": {"change": "+1:00:00", "delay_next_jobs": True},
    "BesteffortSetting": {"on": True},
    "ReservationRequest": {**_PERIOD, "resources": ["nodes=4"], "users": ["alice", "@teachers"]},
    "ReservationUpdate": {"duration": "6:00"},
    "SeriesUpdate": {"users": ["alice", "bob"]},
    "UsersetEntries": {"entries": ["alice", "@teachers"]},
    "NewResources": {"nodes": ["node-7", "node-7"], "properties": {"cluster": "hot"}},
    "NewMachines": {"hosts": 2, "prefix": "node-", "cpus": 2, "cores": 16, "dry_run": True},
    "ResourceUpdate": {"nodes": ["node-7"], "drain": True},
    "MaintenanceWindow": {"nodes": ["node-7"], "from": 1893999600, "to": 1894014000},
    "NewProperty": {"name": "gpu_model", "type": "varchar"},
    "PropertyUpdate": {"name": "gpu_kind"},
    "NewQueue": {"name": "night", "priority": 3},
    "QueueUpdate": {"enabled": False},
    "QueueSwitch": {"enabled": True},
    "NewRule": {"priority": 10, "text": "if user == 'guest': reject('guests submit no jobs')"},
    "RuleUpdate": {"enabled": False},
    "RuleTest": {"job": _JOB, "user": "alice"},
    "AccountingUpdate": {"anew": False},
    "ServerNotification": {"tag": "Term"},
    "TokenRequest": {"scope": "submit", "days": 30, "comment": "the portal"},
    "Login": {"user": "alice", "password": "correct horse"},
}

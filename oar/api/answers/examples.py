"""An example of each body that a client may send, for the OpenAPI document."""

from collections.abc import Mapping

_JOB = {"command": "./run.sh", "resources": "nodes=2/core=4", "walltime": 7200, "name": "sim"}
_PERIOD = {"name": "course", "start": "2030-01-07 08:00", "duration": "4:00"}
#: By the names of their schemas.
EXAMPLES: Mapping[str, Mapping[str, object]] = {
    "JobRequest": _JOB,
    "JobRequests": {"jobs": [_JOB, {"command": "./next.sh", "types": ["besteffort"]}]},
    "EstimatesWish": {"alternatives": [_JOB, {**_JOB, "walltime": 3600}]},
    "JobAlteration": {"name": "sim-2", "properties": "gpu = 'YES'"},
    "ManyJobs": {"act": "delete", "user": "me", "state": "Waiting", "dry_run": True},
    "HoldWish": {"running": False},
    "SignalWish": {"signal": "USR1"},
    "WalltimeWish": {"change": "+1:00:00", "delay_next_jobs": True},
    "BesteffortWish": {"on": True},
    "ReservationRequest": {**_PERIOD, "resources": ["nodes=4"], "users": ["alice", "@teachers"]},
    "ReservationAlteration": {"duration": "6:00"},
    "SeriesAlteration": {"users": ["alice", "bob"]},
    "UsersetEntries": {"entries": ["alice", "@teachers"]},
    "NewResources": {"nodes": ["node-7", "node-7"], "properties": {"cluster": "hot"}},
    "NewMachines": {"hosts": 2, "prefix": "node-", "cpus": 2, "cores": 16, "dry_run": True},
    "ResourceChange": {"nodes": ["node-7"], "drain": True},
    "Absence": {"nodes": ["node-7"], "from": 1893999600, "to": 1894014000},
    "NewProperty": {"name": "gpu_model", "type": "varchar"},
    "PropertyRenaming": {"name": "gpu_kind"},
    "NewQueue": {"name": "night", "priority": 3},
    "QueueChange": {"enabled": False},
    "QueueSwitch": {"enabled": True},
    "NewRule": {"priority": 10, "text": "if user == 'guest': reject('guests submit no jobs')"},
    "RuleChange": {"enabled": False},
    "RuleTrial": {"job": _JOB, "user": "alice"},
    "CountWish": {"anew": False},
    "ServerNotice": {"tag": "Term"},
    "TokenWish": {"scope": "submit", "days": 30, "comment": "the portal"},
    "Login": {"user": "alice", "password": "correct horse"},
}

"""Records of resources: rows of ``resources``, and of the reasons for their states."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from oar.lib.nodes.states import NodeCheck, ResourceState

#: Columns of resources that concern the system alone: nobody sets them, no text shows them.
SYSTEM_PROPERTIES = frozenset(
    {
        "resource_id",
        "state",
        "state_num",
        "next_state",
        "finaud_decision",
        "next_finaud_decision",
        "last_job_date",
        "suspended_jobs",
        "expiry_date",
        "scheduler_priority",
    }
)


#: Columns of OAR itself, which are neither added, nor renamed, nor removed, and the keywords of the request language.
OUR_PROPERTIES = SYSTEM_PROPERTIES | frozenset(
    {
        "type",
        "network_address",
        "cpuset",
        "besteffort",
        "deploy",
        "desktop_computing",
        "available_upto",
        "last_available_upto",
        "drain",
        "walltime",
        "nodes",
        "resource",
    }
)


#: A value of a column of ``resources``.
PropertyValue = str | int | None


class Resource(NamedTuple):
    """The smallest unit of allocation, a row of ``resources`` with all its columns."""

    id: int
    type: str
    network_address: str
    state: ResourceState
    next_state: str
    finaud_decision: bool
    available_upto: int
    suspended_jobs: bool
    properties: Mapping[str, PropertyValue] = {}  #: every column, by name

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any]) -> "Resource":
        """Return the resource for all columns of its row."""
        return cls(
            id=columns["resource_id"],
            type=columns["type"],
            network_address=columns["network_address"],
            state=ResourceState(columns["state"]),
            next_state=columns["next_state"],
            finaud_decision=columns["finaud_decision"] == "YES",
            available_upto=columns["available_upto"],
            suspended_jobs=columns["suspended_jobs"] == "YES",
            properties=columns,
        )


class StateReason(NamedTuple):
    """Why a resource is in its state, a row of ``state_reasons``."""

    resource: int
    date: int
    author: str  #: the user who asked for the state; '' = OAR itself
    reason: str
    check: NodeCheck | None = None  #: the check that ends a suspicion
    user: str = ""  #: whose account or home is checked

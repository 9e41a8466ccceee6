"""States of resources, and the checks that can end a suspicion of a node."""

from collections.abc import Mapping
from enum import StrEnum


class ResourceState(StrEnum):
    """State of a resource, ``resources.state``."""

    ALIVE = "Alive"  #: may run jobs
    ABSENT = "Absent"  #: switched off, asleep or in maintenance
    SUSPECTED = "Suspected"  #: something went wrong on it
    DEAD = "Dead"  #: no longer part of the cluster


#: ``resources.next_state``: the value that means that no change is asked.
UNCHANGED = "UnChanged"


#: ``resources.state_num``, written with each state.
STATE_NUMBERS: Mapping[ResourceState, int] = {
    ResourceState.ALIVE: 1,
    ResourceState.ABSENT: 2,
    ResourceState.SUSPECTED: 3,
    ResourceState.DEAD: 4,
}


#: Codes of ``resources.available_upto`` that are not dates.
NEVER_HALTED_NOR_WOKEN = 0
HALTED_NEVER_WOKEN = 1
STANDBY_FOR_EVER = 2147483646
ALWAYS_AVAILABLE = 2147483647


class NodeCheck(StrEnum):
    """A check that a node runs by itself (``oar/tools/node_check.py``), ``state_reasons.node_check``."""

    ACCOUNT = "account"  #: the account of a user is known
    HOME = "home"  #: the home directory of a user is there
    DISK = "disk"  #: the runtime directory can be written
    CGROUP = "cgroup"  #: a control group can be made and removed
    REACH = "reach"  #: a session of the server works

"""Freezes and thaws what a job's user runs on this node.

Actions ``suspend`` and ``resume``.  Data: ``job_id``, ``name`` (of the group), ``user``, ``cpuset_path``, ``options``.
Processes that do not obey in time are left thawed.

See docs/design/nodes.rst, "Freezing".
"""

import json
import sys

import node_base
import node_cgroups
from node_base import NodeError
from node_protocol import ManagerExit, ProgramAction, SuspendExit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from node_base import Data, Kinds

SHORT = True  #: may be run by a worker of the session
JOB: "Kinds" = {"job_id": int, "name": (str,), "user": (str,), "cpuset_path": (str, type(None))}


def main(action: str, data: "Data") -> int:
    """Carry out one action; return its exit code."""
    try:
        if action not in (ProgramAction.SUSPEND, ProgramAction.RESUME):
            raise NodeError(ManagerExit.ACTION, "unknown action '%s'" % node_base.escaped(str(action)))
        try:
            node_base.require(data, JOB)
        except NodeError as error:
            raise NodeError(ManagerExit.DATA, str(error)) from None
        change(data, action == ProgramAction.SUSPEND)
    except NodeError as error:
        node_base.complain("[suspend_resume_manager] " + str(error))
        return error.code
    return ManagerExit.OK


def change(data: "Data", frozen: bool) -> None:
    """Freeze or thaw a job; raise NodeError if it is not here or not all of it obeyed."""
    groups = node_cgroups.groups_of(data)
    confinement = node_cgroups.Confinement(groups, data["name"], data["user"], data["job_id"])
    if groups is not None and not confinement.exists():
        raise NodeError(SuspendExit.NO_JOB, "job %d has no group on this node" % data["job_id"])
    if confinement.freeze(frozen):
        return
    if frozen:
        confinement.freeze(False)
    text = "not all processes of job %d were %s in time" % (data["job_id"], "stopped" if frozen else "continued")
    raise NodeError(SuspendExit.NOT_IN_TIME, text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))

"""Freezes and thaws what a job's user runs on this node (node.md 3.6).

Actions ``suspend`` and ``resume``.  Data: ``job_id``, ``name`` (of the group), ``user``, ``cpuset_path``, ``options``.
Exit 0 done, 2 data, 3 action, 4 not all processes obeyed in time (they are left thawed), 5 the job is not here.
"""

import json
import sys

import node_base
import node_cgroups
from node_base import NodeError

SHORT = True  #: may be run by a worker of the session
JOB = {"job_id": int, "name": (str,), "user": (str,), "cpuset_path": (str, type(None))}


def main(action, data):
    """Carry out one action; its exit code."""
    try:
        if action not in ("suspend", "resume"):
            raise NodeError(3, "unknown action '%s'" % node_base.escaped(str(action)))
        try:
            node_base.require(data, JOB)
        except NodeError as error:
            raise NodeError(2, str(error)) from None
        change(data, action == "suspend")
    except NodeError as error:
        node_base.complain("[suspend_resume_manager] " + str(error))
        return error.code
    return 0


def change(data, frozen):
    groups = node_cgroups.groups_of(data)
    confinement = node_cgroups.Confinement(groups, data["name"], data["user"], data["job_id"])
    if confinement.real and not confinement.exists():
        raise NodeError(5, "job %d has no group on this node" % data["job_id"])
    if confinement.freeze(frozen):
        return
    if frozen:
        confinement.freeze(False)
    raise NodeError(
        4, "not all processes of job %d were %s in time" % (data["job_id"], "stopped" if frozen else "continued")
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))

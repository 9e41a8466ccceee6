"""What this node knows of jobs: their phases, from state files and locks (node.md 4.4).

Action ``probe``.  Data: ``oar_tmp_directory``, ``cpuset_path``, ``options``, ``jobs`` = list of {``job_id``, ``name``
(of the group), ``user``, ``challenge`` (SHA-256 in hexadecimal digits), ``attempt``, ``fence``}.  One line of JSON per
job: ``job_id``, ``answer``, ``boot_id``, ``frozen``, ``processes``, and from the state file ``attempt``, ``times``,
``code``, ``status``, ``usage``, ``reason``.  Answers: ``never init ready started running aborted ended died``.  With
``fence`` a job that was never started never will be by an attempt up to the one given.

Action ``ping``: exit 0.
"""

import json
import os
import sys
import time

import node_base
import node_cgroups
from node_base import ABORTED, ENDED, INIT, READY, RUNNING, JobFiles, NodeError

SHORT = True  #: may be run by a worker of the session
TOLD = ("attempt", "times", "code", "status", "usage", "reason")  #: of the state file
JOB = {"job_id": int, "name": (str,), "user": (str,), "challenge": (str,), "attempt": int}


def main(action, data):
    """Carry out one action; its exit code."""
    if action == "ping":
        return 0
    try:
        if action != "probe":
            raise NodeError(3, "unknown action '%s'" % node_base.escaped(str(action)))
        node_base.require(data, {"oar_tmp_directory": (str,), "jobs": list})
        directory = node_base.runtime_directory(data["oar_tmp_directory"], 13)
        groups = node_cgroups.groups_of(data)
        with node_base.acting_as(node_base.oar_account()):
            for job in data["jobs"]:
                node_base.require(job, JOB)
                node_base.say(json.dumps(answer(directory, groups, job)))
    except NodeError as error:
        node_base.complain("[node_probe] " + str(error))
        return error.code
    return 0


def answer(directory, groups, job):
    """What is known of one job."""
    files = JobFiles(directory, job["job_id"])
    found = {"job_id": job["job_id"], "boot_id": node_base.boot_id()}
    found["answer"], state = phase(files, job)
    if found["answer"] == "never" and job.get("fence"):
        found["answer"], state = fence(files, job)
    if state is not None:
        found.update({key: state[key] for key in TOLD if key in state})
    confinement = node_cgroups.Confinement(groups, job["name"], job["user"], job["job_id"])
    found["frozen"] = confinement.exists() and confinement.is_frozen()
    found["processes"] = len(confinement.payload()) if confinement.exists() else 0
    if found["answer"] == RUNNING and confinement.exists():
        found["usage"] = confinement.usage()
    return found


def phase(files, job):
    """The answer for a job and the state that it comes from, None if that state is of another life of the job."""
    alive = node_base.lock_is_held(files)
    state = node_base.read_state(files)
    if state is None:
        return (INIT if alive else "never"), None
    if state.get("challenge") != job["challenge"]:
        return "never", None
    if state["phase"] in (ENDED, ABORTED) or alive:
        return state["phase"], state
    state = node_base.read_state(files) or state  # it may have ended between the two looks
    if state["phase"] in (ENDED, ABORTED):
        return state["phase"], state
    return ("never" if state["phase"] in (INIT, READY) else "died"), state


def fence(files, job):
    """Forbid a start of this job by attempts up to this one; the answer if an oarexec was quicker."""
    fd = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not node_base.try_lock(fd):
            return INIT, None
        state = {
            "job_id": job["job_id"],
            "user": job["user"],
            "challenge": job["challenge"],
            "attempt": job["attempt"],
            "boot_id": node_base.boot_id(),
            "phase": ABORTED,
            "times": {ABORTED: int(time.time())},
        }
        node_base.write_state(files, state)
        return "never", state
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))

"""Measure the usage of the jobs on this node: print a line for the server in each period.

See docs/design/nodes.rst, "Curves of jobs".

Action ``watch``.  Data: ``oar_tmp_directory``, ``cpuset_path``, ``options``, ``period`` (seconds).  It runs until the
end of its input.  After each period with jobs, it prints one line of JSON: ``seconds`` since the last sample; ``jobs``:
a list for each job of both samples.  The list contains the id of the job, its milliseconds of processor since the last
sample, its bytes of memory now, and for a job with GPUs their number, their present use (per mille, the mean;
``node_gpus`` defines its period) and their used bytes of memory.  ``null``: the kernel reports no value, or the drivers
do not report all GPUs of the job.

It starts no process and writes no file.  A sample costs a look into the directory of the groups and two files for each
job; what does not change while a job is here is read once.
"""

import json
import os
import re
import select
import sys
import time

import node_base
import node_cgroups
import node_gpus
import node_kernel
from node_base import NodeError
from node_protocol import ManagerExit, ProgramAction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Union

    from node_base import Data

    #: What is told of a job: its id, then what it used.
    Row = list[Union[int, None]]

MOST_JOBS = 4096  #: of a node, that are told
#: The name of a group of one job ends like this, and the leaf of a job in a group of several ones.
JOB_ID = re.compile(r"_([0-9]{1,18})\Z")


class WatchedJob:
    """A job in its groups: where its figures are, what they were, and its GPUs."""

    def __init__(self, job_id: int, cpu: "str | None", memory: "str | None", gpus: "list[str]") -> None:
        self.job_id = job_id
        self.cpu = cpu
        self.memory = memory
        self.gpus = gpus  #: their names
        self.cpu_us: "int | None" = None  #: at the last sample


class Watch:
    """The jobs on this node from sample to sample."""

    def __init__(self, groups: "node_cgroups.Groups", directory: str, drivers: "node_gpus.Drivers") -> None:
        self.groups = groups
        self.directory = directory
        self.drivers = drivers
        self.jobs: "dict[str, list[WatchedJob]]" = {}  #: by the name of their group
        self.at: "float | None" = None

    def sample(self, now: float) -> "Data | None":
        """Return what the jobs used since the last sample; None if there is nothing to tell."""
        before, self.at = self.at, now
        former = self.jobs
        self.jobs = {name: self.jobs_in(name, former) for name in self.names()[:MOST_JOBS]}
        if not any(self.jobs.values()):
            return None
        known = {job for jobs in former.values() for job in jobs}
        gpus = self.drivers.read() if any(job.gpus for jobs in self.jobs.values() for job in jobs) else {}
        rows = [(job in known, self.row(job, gpus)) for jobs in self.jobs.values() for job in jobs]
        told = [row for was_here, row in rows if was_here]
        return {"seconds": round(now - before, 3), "jobs": told[:MOST_JOBS]} if before is not None and told else None

    def names(self) -> "list[str]":
        """Return the names of the groups of jobs."""
        return node_cgroups.names_in(self.groups.tracker(""))

    def jobs_in(self, name: str, former: "dict[str, list[WatchedJob]]") -> "list[WatchedJob]":
        """Return the jobs of a group: those that are known, or a look for them."""
        match = JOB_ID.search(name)
        own = match is not None and os.path.isdir(self.groups.tracker(name + "/" + node_cgroups.PAYLOAD))
        if match is not None and own:
            return former.get(name) or [self.job(int(match.group(1)), name, name + "/" + node_cgroups.PAYLOAD, True)]
        known = {job.job_id: job for job in former.get(name, [])}
        jobs = []
        for leaf in node_cgroups.names_in(self.groups.tracker(name)):
            match = JOB_ID.search(leaf) if leaf.startswith(node_cgroups.PAYLOAD + "_") else None
            if match is not None:
                job_id = int(match.group(1))
                jobs.append(known.get(job_id) or self.job(job_id, name, name + "/" + leaf, False))
        return jobs

    def job(self, job_id: int, group: str, payload: str, alone: bool) -> WatchedJob:
        """Return a job that is new here."""
        cpu, memory = self.groups.live_files(group, payload, alone)
        gpus = node_gpus.gpus_of(node_base.JobFiles(self.directory, job_id))
        return WatchedJob(job_id, cpu, memory, gpus)

    def row(self, job: WatchedJob, gpus: "node_gpus.Readings") -> "Row":
        """Return what is told of a job."""
        before, job.cpu_us = job.cpu_us, self.groups.cpu_us(job.cpu)
        used = None if before is None or job.cpu_us is None else max(0, job.cpu_us - before) // 1000
        row: "Row" = [job.job_id, used, node_kernel.number(job.memory) if job.memory else None]
        return row + node_gpus.summary(job.gpus, gpus)


def main(action: str, data: "Data") -> int:
    """Carry out one action; return its exit code."""
    try:
        if action != ProgramAction.WATCH:
            raise NodeError(ManagerExit.ACTION, "unknown action '%s'" % node_base.escaped(str(action)))
        node_base.require(data, {"oar_tmp_directory": (str,), "period": int})
        groups = node_cgroups.groups_of(data)
        if groups is None:
            raise node_cgroups.unusable("jobs have no control groups here, so nothing tells what they use")
        watch(Watch(groups, data["oar_tmp_directory"], node_gpus.Drivers()), max(1, data["period"]))
    except NodeError as error:
        node_base.complain("[node_curves] " + str(error))
        return error.code


def watch(watched: Watch, period: int) -> "NoReturn":
    """Tell in each period what the jobs used, until the end of the input."""
    next_sample = time.monotonic()
    while True:
        ready, _, _ = select.select([0], [], [], max(0.0, next_sample - time.monotonic()))
        if ready and not os.read(0, 4096):
            sys.exit(ManagerExit.OK)
        now = time.monotonic()
        if now >= next_sample:
            next_sample = max(next_sample + period, now)
            told = watched.sample(now)
            if told is not None:
                node_base.say(json.dumps(told, separators=(",", ":")))


def is_repeatable(action: str, data: "Data") -> bool:
    """Return whether a request may run twice: it only looks."""
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))

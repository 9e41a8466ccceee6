"""A site with history and plan for diagrams: nodes that were busy for days, running jobs, waiting jobs.

Nodes form lanes of one or more; in each lane jobs follow each other, some after a pause.  Jobs that end before now have
ended, jobs that span now are running, later jobs are planned.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.nodes.records import PropertyValue

DAY = 86400
#: Widths of lanes in nodes, in the frequency of this list.
WIDTHS = (1, 1, 1, 1, 2, 2, 4, 8, 16)
USERS = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy")
NAMES = ("sim", "train", "scan", "post", "fold", "render")
QUEUES = ("default", "default", "default", "besteffort", "admin")
PROJECTS = ("ml", "phys", "bio", "default")
#: Seconds after now up to which starts are planned.
PLANNED = DAY // 2
#: Walltime of a job in excess of its real duration, in seconds.
SPARE = 1800
_JOBS = """
    INSERT INTO jobs (job_id, job_name, state, job_user, project, queue_name, submission_time, start_time, stop_time,
        assigned_moldable_job, command, launching_directory, properties, initial_request, stdout_file, stderr_file)
    VALUES %s"""
_MOLDABLES = (
    "INSERT INTO moldable_job_descriptions (moldable_id, moldable_job_id, moldable_walltime, moldable_index) VALUES %s"
)
_ASSIGNED = "INSERT INTO assigned_resources (moldable_job_id, resource_id, assigned_resource_index) VALUES %s"
_STARTS = "INSERT INTO gantt_jobs_predictions_visu (moldable_job_id, start_time) VALUES %s"
_PLACES = "INSERT INTO gantt_jobs_sets_visu (moldable_job_id, resources) VALUES %s"
_STATES = "INSERT INTO resource_logs (resource_id, attribute, value, date_start, date_stop) VALUES %s"


class DrawnSize(NamedTuple):
    """Size of the site."""

    nodes: int
    cores: int  #: resources per node
    days: float  #: length of the history
    jobs: int  #: approximate number of jobs


class LaneJob(NamedTuple):
    """A job in a lane."""

    begin: int
    end: int
    first: int  #: its first resource
    width: int  #: number of its resources


def fill(database: Database, size: DrawnSize, now: int, seed: int = 1) -> int:
    """Create the site; return the number of its jobs."""
    rng = random.Random(seed)
    with database.begin() as tx:
        rows: list[dict[str, PropertyValue]] = [
            {"network_address": f"node-{node}", "cpuset": str(core), "state_num": 1}
            for node in range(1, size.nodes + 1)
            for core in range(size.cores)
        ]
        first = min(tx.resources.insert(rows))
        jobs = list(_jobs(size, now, first, rng))
        _write(tx, jobs, now, rng)
        _suspect(tx, size, now, first, rng)
    return len(jobs)


def _jobs(size: DrawnSize, now: int, first: int, rng: random.Random) -> Iterator[LaneJob]:
    lanes = list(_lanes(size.nodes, rng))
    usual = size.days * DAY * len(lanes) / size.jobs
    for node, width in lanes:
        at = now - size.days * DAY
        while at < now + PLANNED:
            length = int(min(max(60, rng.expovariate(1 / usual)), 20 * usual))
            yield LaneJob(int(at), int(at) + length, first + node * size.cores, width * size.cores)
            at += length + (int(rng.expovariate(4 / usual)) if rng.random() < 0.3 else 1)


def _lanes(nodes: int, rng: random.Random) -> Iterator[tuple[int, int]]:
    node = 0
    while node < nodes:
        width = min(rng.choice(WIDTHS), nodes - node)
        yield node, width
        node += width


def _write(tx: Transaction, jobs: list[LaneJob], now: int, rng: random.Random) -> None:
    numbered = list(enumerate(sorted(jobs), 1))
    tx.insert_many(_JOBS, [_row(number, job, now, rng) for number, job in numbered])
    tx.execute("SELECT setval('jobs_job_id_seq', %s)", (len(jobs),))
    tx.execute("SELECT setval('moldable_job_descriptions_moldable_id_seq', %s)", (len(jobs),))
    walltimes = [(number, job, job.end - job.begin + rng.randrange(SPARE)) for number, job in numbered]
    tx.insert_many(_MOLDABLES, [(n, n, wall, "LOG" if job.end <= now else "CURRENT") for n, job, wall in walltimes])
    assigned = [
        (number, resource, "LOG" if job.end <= now else "CURRENT")
        for number, job in numbered
        if job.begin <= now
        for resource in range(job.first, job.first + job.width)
    ]
    tx.insert_many(_ASSIGNED, assigned)
    planned = [(number, job) for number, job in numbered if job.begin > now]
    tx.insert_many(_STARTS, [(number, job.begin) for number, job in planned])
    tx.insert_many(_PLACES, [(number, list(range(job.first, job.first + job.width))) for number, job in planned])


def _row(number: int, job: LaneJob, now: int, rng: random.Random) -> tuple[object, ...]:
    ended = rng.choices(("Terminated", "Error"), (9, 1))[0]
    state = "Waiting" if job.begin > now else "Running" if job.end > now else ended
    submitted = min(job.begin, now) - rng.randrange(7200)
    start, stop = (job.begin if job.begin <= now else 0), (job.end if job.end <= now else 0)
    name, user, project, queue = rng.choice(NAMES), rng.choice(USERS), rng.choice(PROJECTS), rng.choice(QUEUES)
    fixed = ("./run.sh", f"/home/{user}", "", "oarsub ./run.sh", "OAR.%jobid%.stdout", "OAR.%jobid%.stderr")
    return (number, name, state, user, project, queue, submitted, start, stop, number if start else 0, *fixed)


def _suspect(tx: Transaction, size: DrawnSize, now: int, first: int, rng: random.Random) -> None:
    """Log periods in which a node was unavailable, for one node in fifty."""
    rows = []
    for node in range(0, size.nodes, 50):
        begin = now - rng.randrange(int(size.days * DAY))
        end = 0 if node % 150 == 0 else min(now, begin + rng.randrange(3600, 2 * DAY))
        value = rng.choice(("Absent", "Suspected", "Dead"))
        rows += [(first + node * size.cores + core, "state", value, begin, end) for core in range(size.cores)]
    tx.insert_many(_STATES, rows)

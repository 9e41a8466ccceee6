"""Cost of the user commands: ``python -m bench.commands [JOBS ENDED]``.

CPU is the time of the process itself, without sudo; elapsed time includes the database.  The first table shows the
start-up of each command on an empty cluster, compared with Python alone; the second oarstat and oarnodes with many jobs
and resources, and again with many ended jobs in the tables.  Below each of these: the ratio of ``oarstat -J`` to its
text form (limit 1.3) and the cost of one job (limit 70 ms of CPU).  At the end oaraccounting processes the ended jobs.
"""

import sys
import time
from collections.abc import Iterable

from bench.ground import Cost, Ground, command, cost, ground
from oar.lib.jobs import accounting
from oar.lib.jobs.sql_accounting import Rules

WAITING = 10_000
NODES, CORES = 1_000, 32
RUNNING = 500  #: nodes with one running job each
ENDED = 1_000_000

USER_COMMANDS = {
    "Python alone": ["-c", ""],
    "Python, click and psycopg2": ["-c", "import click, psycopg2"],
    "oarstat": command("oarstat"),
    "oarnodes": command("oarnodes", "-s"),
    "oardel": command("oardel", "999999999"),
    "oarhold": command("oarhold", "999999999"),
    "oarsub": command("oarsub", "--help"),
}

LISTINGS = {
    "oarstat": command("oarstat"),
    "oarstat --format 2": command("oarstat", "--format", "2"),
    "oarstat -f": command("oarstat", "-f"),
    "oarstat -J": command("oarstat", "-J"),
    "oarstat -Y": command("oarstat", "-Y"),
    "oarstat -X": command("oarstat", "-X"),
    "oarstat -D": command("oarstat", "-D"),
    "oarstat -u alice": command("oarstat", "-u", "alice"),
    "oarstat -s -j": command("oarstat", "-s", "-j", "1"),
    "oarstat -j": command("oarstat", "-j", "1"),
    "oarstat -f -j": command("oarstat", "-f", "-j", "1"),
    "oarstat -J -j": command("oarstat", "-J", "-j", "1"),
    "oarstat --fields": command("oarstat", "--fields", "id,name,state,nodes"),
    "oarstat --sql (indexed)": command("oarstat", "--sql", "job_user = 'alice' AND state = 'Running'"),
    "oarnodes": command("oarnodes"),
    "oarnodes -s": command("oarnodes", "-s"),
    "oarnodes -j": command("oarnodes", "-j"),
    "oarnodes -J": command("oarnodes", "-J"),
    "oarnodes --summary": command("oarnodes", "--summary"),
}

#: Commands that show one job.
ONE_JOB = ("oarstat -s -j", "oarstat -j", "oarstat -f -j", "oarstat -J -j")

_RESOURCES = """
    INSERT INTO resources (network_address, cpuset, state_num)
    SELECT 'node-' || node, core::text, 1 FROM generate_series(1, %s) node, generate_series(0, %s) core
    ORDER BY node, core"""
_JOBS = """
    INSERT INTO jobs (job_id, array_id, initial_request, job_name, cpuset_name, state, message, job_user, project,
        command, exit_code, queue_name, properties, launching_directory, submission_time, start_time, stop_time,
        stdout_file, stderr_file, assigned_moldable_job)
    SELECT id, id, 'oarsub -l /core=4 ./run.sh', 'simulation', 'alice_' || id, %(state)s,
        'R=4,W=2:0:0,J=B,N=simulation', (ARRAY['alice', 'bob', 'carol'])[1 + id %% 3], 'default', './run.sh ' || id,
        CASE WHEN %(ended)s THEN 0 END, 'default', '(desktop_computing = ''NO'') AND (drain=''NO'')', '/home/alice/run',
        1900000000, CASE WHEN %(started)s THEN 1900000100 ELSE 0 END, CASE WHEN %(ended)s THEN 1900000200 ELSE 0 END,
        'OAR.%%jobid%%.stdout', 'OAR.%%jobid%%.stderr', CASE WHEN %(started)s THEN id ELSE 0 END
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) id;
    INSERT INTO moldable_job_descriptions (moldable_id, moldable_job_id, moldable_walltime, moldable_index)
    SELECT id, id, 7200, %(index)s FROM generate_series(%(first)s::bigint, %(last)s::bigint) id;
    INSERT INTO job_resource_groups (res_group_id, res_group_moldable_id, res_group_property, res_group_index)
    SELECT id, id, 'type = ''default''', %(index)s FROM generate_series(%(first)s::bigint, %(last)s::bigint) id;
    INSERT INTO job_resource_descriptions
    SELECT id, 'core', 0, 4, %(index)s FROM generate_series(%(first)s::bigint, %(last)s::bigint) id;
    INSERT INTO job_types (job_id, type, types_index)
    SELECT id, 'besteffort', %(index)s FROM generate_series(%(first)s::bigint, %(last)s::bigint) id;
    INSERT INTO event_logs (job_id, type, date, description, to_check)
    SELECT id, 'SWITCH_INTO_TERMINATE_STATE', 1900000200, '[bipbip] Ask to change the job state', 'NO'
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) id WHERE %(ended)s"""
_ASSIGNED = """
    INSERT INTO assigned_resources (moldable_job_id, resource_id, assigned_resource_index)
    SELECT id, 1 + (id - %(first)s) * %(cores)s %% %(all)s + core, %(index)s
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) id, generate_series(0, %(each)s - 1) core"""


def add_jobs(stand: Ground, first: int, number: int, state: str, each: int = 0) -> None:
    """Add jobs in a state, with their requests; started jobs have or had ``each`` resources."""
    ended, started = state == "Terminated", state != "Waiting"
    values = {
        "first": first,
        "last": first + number - 1,
        "state": state,
        "ended": ended,
        "started": started,
        "index": "LOG" if ended else "CURRENT",
        "cores": CORES,
        "all": NODES * CORES,
        "each": each,
    }
    with stand.database.begin() as tx:
        tx.execute(_JOBS, values)
        if each:
            tx.execute(_ASSIGNED, values)
        tx.execute("SELECT setval('jobs_job_id_seq', %s)", (first + number,))


def show(title: str, rows: Iterable[tuple[str, Cost]]) -> None:
    """Print a table row by row, and the ratios with limits if it contains them."""
    print(f"\n{title}\n{'':28}  CPU (ms)  elapsed (ms)", flush=True)
    costs: dict[str, Cost] = {}
    for name, each in rows:
        costs[name] = each
        print(f"{name:28}  {each.cpu * 1000:8.0f}  {each.elapsed * 1000:12.0f}", flush=True)
    if "oarstat -J" in costs:
        machine, text = costs["oarstat -J"], costs["oarstat -f"]
        print(
            f"oarstat -J / -f: CPU {machine.cpu / text.cpu:.2f}, elapsed {machine.elapsed / text.elapsed:.2f};"
            f" one job: {max(costs[name].cpu for name in ONE_JOB) * 1000:.0f} ms of CPU",
            flush=True,
        )


def count(stand: Ground) -> None:
    """Print the time of oaraccounting for all ended jobs."""
    start = time.perf_counter()
    batches = accounting.count(stand.database, Rules(86400))
    jobs = sum(len(batch.ids) for batch in batches)
    elapsed = time.perf_counter() - start
    print(f"\noaraccounting: {jobs} jobs in {elapsed:.1f} s, {jobs / max(elapsed, 1e-9):.0f} in a second", flush=True)


def main() -> None:
    """Print the tables."""
    ended = int(sys.argv[1]) if len(sys.argv) > 1 else ENDED
    with ground() as stand:
        show("Start-up", ((name, cost(stand, arguments)) for name, arguments in USER_COMMANDS.items()))
        with stand.database.begin() as tx:
            tx.execute(_RESOURCES, (NODES, CORES - 1))
        add_jobs(stand, 1, RUNNING, "Running", CORES)
        add_jobs(stand, RUNNING + 1, WAITING, "Waiting")
        stand.analyze()
        title = f"{WAITING} waiting jobs, {RUNNING} running, {NODES} nodes x {CORES} cores"
        show(title, ((name, cost(stand, arguments, 3)) for name, arguments in LISTINGS.items()))
        if ended:
            add_jobs(stand, RUNNING + WAITING + 1, ended, "Terminated", 2)
            stand.analyze()
            title = f"The same with {ended} ended jobs"
            show(title, ((name, cost(stand, arguments, 3)) for name, arguments in LISTINGS.items()))
            count(stand)


if __name__ == "__main__":
    main()

"""Advance reservations on a site without nodes: ``python -m bench.reservation_site [part ...]``.

It uses a private PostgreSQL, real commands, and a scheduler that answers each request immediately.  Elapsed times are
waiting times of the user; CPU is that of the command, without server and database.  Parts: ``idle``, ``busy``,
``listings``, ``ends``, ``reports``.  ``bench.reservations`` measures the planner alone.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench import rounds, snapshots
from bench.figures import Figures, heading
from bench.ground import Cost, Ground, command, cost, ground
from oar.kao.facts.snapshot import Snapshot
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.lib.reservations import requests
from oar.lib.reservations.options import ReservationRequest
from oar.lib.reservations.records import AccessEntry, NewReservation, ReservationAlternative, encode
from oar.lib.reservations.requests import ReservationListener
from oar.lib.runtime import Runtime
from oar.lib.submission.resource_request import parse_request
from oar.modules import leon
from tests.builders import add_job

DAY = 86400
RESERVATIONS, WAITING, ENDED, REPORTED = 1_000, 10_000, 100_000, 200_000
CORES = 10_000
CONFIG = Config(max_job_per_queues_group_scheduling_round=0, scheduler_timeout=1000, reservation_answer_timeout=300)

_NODES = """
    INSERT INTO resources (network_address, cpuset)
    SELECT 'node-' || node, core::text FROM generate_series(1, 1000) node, generate_series(0, 9) core
    ORDER BY node, core"""
_ENDED = """
    INSERT INTO reservations (owner, owner_group, queue_name, submission_time, start_time, end_time, time_offset, state,
        state_date, ended, granted_slots, resources, resource_list)
    SELECT (ARRAY['alice', 'bob', 'carol'])[1 + n %% 3], 'users', 'default', day - 3600, day, day + 3600, 6, 'x',
        day + 3600, day + 3600, 2, '{1,2}', '[["slots", "2"]]'
    FROM (SELECT n, extract(epoch FROM now())::bigint - 86400 * (2 + n %% 300) AS day
          FROM generate_series(1, %s) n) AS days"""
_HISTORY = """
    INSERT INTO reservation_revisions (reservation_id, revision, date, author, start_time, end_time, granted_resources)
    SELECT reservation_id, 1, submission_time, owner, start_time, end_time, 'default@node-1=2' FROM reservations;
    INSERT INTO reservation_logs (reservation_id, date, event, state)
    SELECT reservation_id, CASE WHEN event = 'CREATED' THEN submission_time
        WHEN event = 'START TIME REACHED' THEN start_time ELSE end_time END, event, state
    FROM reservations, (VALUES ('CREATED', 'w'), ('START TIME REACHED', 'r'), ('END TIME REACHED', 'x'),
        ('TERMINATED', 'x')) AS events (event, letter);
    INSERT INTO reservation_usage (reservation_id, queue_name, network_address, slots, reserved, used, termination_time)
    SELECT reservation_id, 'default', 'node-1', 2, 7200, 3000, end_time FROM reservations;
    INSERT INTO jobs (job_id, array_id, job_user, project, queue_name, state, submission_time, start_time, stop_time,
        exit_code, assigned_moldable_job)
    SELECT reservation_id, reservation_id, owner, 'default', 'default', 'Terminated', submission_time, start_time,
        start_time + 1500, 0, reservation_id FROM reservations;
    INSERT INTO job_usage (job_id, network_address, cpu_seconds, memory_peak)
    SELECT reservation_id, 'node-1', 1400, 1073741824 FROM reservations;
    INSERT INTO reservation_jobs (job_id, reservation_id) SELECT reservation_id, reservation_id FROM reservations"""


@contextmanager
def server(stand: Ground) -> Iterator[threading.Event]:
    """Answer requests like the server until the end; the event is set while no scheduling pass is running."""
    database = Database(stand.database.settings)
    scheduler = MetaScheduler(Runtime(CONFIG, database))
    is_over, is_idle = threading.Event(), threading.Event()

    def serve() -> None:
        with ReservationListener(database) as listener:
            listener.listen()
            scheduler.round()
            is_idle.set()
            while not is_over.is_set():
                listener.wait(0.5)
                with database.snapshot() as tx:
                    asked = tx.value("SELECT count(*) FROM reservations WHERE state = '' AND ended = 0")
                if asked:
                    is_idle.clear()
                    scheduler.round()
                    is_idle.set()

    thread = threading.Thread(target=serve)
    thread.start()
    is_idle.wait()
    try:
        yield is_idle
    finally:
        is_over.set()
        thread.join()
        scheduler.close()
        database.close()


def reserve(database: Database, start: int, count: int, seconds: int, each_day: int = 1000) -> list[int]:
    """Request reservations of one node each, several at the same time; return their ids."""
    request = encode([ReservationAlternative(parse_request("/network_address=1").groups)])
    ids = []
    for number in range(count):
        begin = start + number // each_day * DAY
        new = NewReservation("alice", begin, begin + seconds, request, queue="default", time_offset=6)
        with database.begin() as tx:
            ids.append(requests.create(tx, ReservationRequest(new, (AccessEntry("alice"),)), limit=0).id)
    return ids


def typed(stand: Ground, *words: str, runs: int = 7) -> Cost:
    """Return the median times of a command."""
    return cost(stand, command(*words), runs)


def idle(figures: Figures) -> None:
    """Measure qrsub on an idle cluster of 1,000 nodes."""
    heading("An idle cluster of 1,000 nodes with 10 cores")
    with ground() as stand:
        with stand.database.begin() as tx:
            tx.execute(_NODES)
        stand.analyze()
        with server(stand):
            took = typed(stand, "qrsub", "-a", "+1h", "-d", "60", "-l", "/network_address=1", runs=15)
        bare = cost(stand, ["-c", "import click, psycopg2"])
    figures.note("CPU of Python with click and psycopg2 alone", 1000 * bare.cpu)
    figures.add("qrsub", 1000 * took.elapsed, 300)
    figures.add("of which CPU of the command", 1000 * took.cpu, 90)


def machine(database: Database, jobs: int) -> None:
    """Fill the database with a busy cluster and waiting jobs."""
    snapshot = snapshots.plain(jobs, CORES)
    shift = int(time.time()) - snapshots.NOW
    running = tuple(replace(job, start_time=job.start_time + shift) for job in snapshot.running)
    present: Snapshot = replace(snapshot, running=running)
    database.run(lambda tx: rounds.fill(tx, present))
    database.run(lambda tx: tx.execute("SELECT setval('jobs_job_id_seq', (SELECT max(job_id) FROM jobs))"))


def busy(figures: Figures) -> None:
    """Measure qrsub with waiting jobs and other reservations."""
    heading(f"{WAITING} waiting jobs, {RESERVATIONS} reservations, {ENDED} ended ones, {CORES} cores")
    with ground() as stand:
        machine(stand.database, WAITING)
        with stand.database.begin() as tx:
            tx.execute(_ENDED, (ENDED,))
        reserve(stand.database, int(time.time()) + 100 * DAY, RESERVATIONS, DAY // 2, 500)
        stand.analyze()
        with server(stand) as is_idle:

            def asked(start: str) -> float:
                words = command("qrsub", "-a", start, "-d", "1h", "-l", "/network_address=1")
                return 1000 * cost(stand, words, 5, before=is_idle.wait).elapsed

            far, near = asked("+150d"), asked("+3d")
    figures.add("qrsub for a date behind all jobs", far, 1000)
    figures.add("qrsub that takes the places of waiting jobs", near, 1000)


def listings(figures: Figures) -> None:
    """Measure qrstat."""
    heading(f"{RESERVATIONS} live reservations, {ENDED} ended ones, 1,000 nodes")
    with ground() as stand:
        with stand.database.begin() as tx:
            tx.execute(_NODES)
            tx.execute(_ENDED, (ENDED,))
        (first, *_) = reserve(stand.database, int(time.time()) + DAY, RESERVATIONS, 3600)
        stand.analyze()
        with server(stand):
            pass
        limits = {"": 150, "-explain": 150, "-xml": 250, "-J": 250, f"-ar {first}": 100}
        for words, most in limits.items():
            took = typed(stand, "qrstat", *words.split(), runs=9)
            figures.add(f"qrstat {words}".strip(), 1000 * took.elapsed, most)
            figures.note("of which CPU of the command", 1000 * took.cpu)


def ends(figures: Figures) -> None:
    """Measure the end of simultaneous reservations, each with a waiting job and one that ran in it."""
    heading(f"{RESERVATIONS} reservations that end together")
    with ground() as stand:
        now = int(time.time())
        database = Database(stand.database.settings, clock=lambda: now)
        runtime = Runtime(CONFIG, database)
        scheduler = MetaScheduler(runtime)
        with database.begin() as tx:
            tx.execute(_NODES)
        ids = reserve(database, now, RESERVATIONS, 3600)
        scheduler.round()
        with database.snapshot() as tx:
            granted = tx.reservations.select(ids)
        for each in granted:
            inside = (f"inner={each.frame_id}",)
            jobs = [add_job(database, types=inside), add_job(database, JobState.TERMINATED, on=each.resources)]
            with database.begin() as tx:
                tx.reservations.add_job(each.id, jobs)
        stand.analyze()
        now += 3600
        begin, cpu = time.perf_counter(), time.process_time()
        scheduler.round()
        asked = time.perf_counter() - begin
        leon.run(runtime)
        over = time.perf_counter() - begin
        scheduler.round()
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        with database.snapshot() as tx:
            left = tx.value("SELECT count(*) FROM reservations WHERE ended = 0")
        scheduler.close()
        database.close()
    if left:
        sys.exit(f"{left} reservations have not ended")
    figures.note("until the ends of all jobs are asked for", asked, "s")
    figures.note("until they have ended", over, "s")
    figures.add("until all reservations are closed", elapsed, 10, "s")
    figures.note("of which CPU of the scheduler", cpu, "s")


def reports(figures: Figures) -> None:
    """Measure the queries of ARCo."""
    heading(f"{REPORTED} ended reservations with a job each: the queries of ARCo")
    with ground() as stand:
        with stand.database.begin() as tx:
            tx.execute(_ENDED, (REPORTED,))
            tx.execute(_HISTORY)
        stand.analyze()
        for path in sorted((rounds.SETUP / "arco").glob("*.sql")):
            query = path.read_text().replace(":'ar_number'", "'4711'").replace(":'ar_owner'", "'alice'")
            begin = time.perf_counter()
            with stand.database.snapshot() as tx:
                count = len(tx.rows(query))
            figures.add(f"{path.stem}: {count} rows", time.perf_counter() - begin, 1.5, "s")


PARTS: dict[str, Callable[[Figures], None]] = {
    "idle": idle,
    "busy": busy,
    "listings": listings,
    "ends": ends,
    "reports": reports,
}


def main(wanted: list[str]) -> None:
    """Print the tables."""
    figures = Figures()
    for name in wanted or PARTS:
        PARTS[name](figures)
    figures.end()


if __name__ == "__main__":
    main(sys.argv[1:])

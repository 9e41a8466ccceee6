"""Cost of a long history: ``python -m bench.retention [JOBS ENDED]``, ``python -m bench.retention curve``.

Two databases have the same unfinished jobs, one of them also a history.  The commands of users run on both alternately;
the minimum counts.  With the history, the elapsed time may be 20 % longer.
Then the oldest jobs are purged, a million of their rows, during scheduling passes, on a database with durable commits:
no transaction of the purge, and therefore none of its locks, may last longer than 100 ms.
``curve``: the occupancy of a year in which a million jobs ended, by days, may take 1 s.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

from bench.figures import Figures, heading
from bench.ground import Ground, command, cost, ground
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.config.files import Config
from oar.lib.history.occupancy import DAY, OccupancyKeeper, occupancy_curve
from oar.lib.jobs.retention import JOBS, kept
from oar.lib.runtime import Runtime
from tests.db import history

ENDED, LIVE = 10_000_000, 500
#: Approximate number of rows of an ended job in all tables; number of rows that the measured purge deletes.
ROWS_OF_A_JOB, PURGED = 12, 1_000_000
#: Limit of the ratio of a command's times, and of a transaction of the purge (ms).
LONGER, LONGEST = 1.2, 100.0
#: Runs of each command on each database.
TURNS = 7
#: Commands about unfinished jobs, and about one job: ``{live}``.
QUESTIONS = {
    "oarstat": ("oarstat",),
    "oarstat -u": ("oarstat", "-u", "user7"),
    "oarstat -f -j": ("oarstat", "-f", "-j", "{live}"),
    "oarstat -s -j": ("oarstat", "-s", "-j", "{live}"),
    "oarstat --explain": ("oarstat", "--explain", "{live}"),
    "oarnodes -s": ("oarnodes", "-s"),
    "oarnodes -j": ("oarnodes", "-j"),
    "oarsub": ("oarsub", "-l", "/resource_id=1,walltime=0:1", "true"),
    "oardel (no such job)": ("oardel", "999999999"),
}
#: The curve: its days, the jobs that ended in them, each with 4 resources for at most half a day.
DAYS_OF_CURVE, JOBS_OF_CURVE = 365, 1_000_000
_YEAR = """
    INSERT INTO resources (network_address, cpuset)
    SELECT 'node-' || i / 32, (i %% 32)::text FROM generate_series(1, 3200) i;
    CREATE TEMPORARY TABLE made AS
    SELECT nextval('jobs_job_id_seq') AS id, nextval('moldable_job_descriptions_moldable_id_seq') AS moldable, i,
        %(first)s + (i * %(step)s)::bigint AS stop, 600 + i * 7919::bigint %% 40000 AS length
    FROM generate_series(1, %(jobs)s) i;
    INSERT INTO jobs (job_id, array_id, state, job_user, queue_name, start_time, stop_time, assigned_moldable_job)
    SELECT id, id, 'Terminated', 'user' || i %% 50, 'default', stop - length, stop, moldable FROM made;
    INSERT INTO assigned_resources (moldable_job_id, resource_id, assigned_resource_index)
    SELECT moldable, 1 + (4 * i + k) %% 3200, 'LOG' FROM made, generate_series(0, 3) k;
    DROP TABLE made"""
_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


def filled(stand: Ground, ended: int) -> int:
    """Fill a database with ended and unfinished jobs; return the id of its newest job."""
    history.fill(stand.database, finished=ended, live=LIVE)
    stand.analyze()
    with stand.database.begin() as tx:
        newest: int = tx.value("SELECT max(job_id) FROM jobs")
    return newest


def ask(figures: Figures, empty: tuple[Ground, int], full: tuple[Ground, int]) -> None:
    """Print the ratio of each command's time with and without the history."""
    for name, (program, *words) in QUESTIONS.items():
        pairs = [
            [
                cost(stand, command(program, *(word.format(live=newest) for word in words)), 1).elapsed
                for stand, newest in (empty, full)
            ]
            for _ in range(TURNS)
        ]
        without, with_past = (min(times) for times in zip(*pairs, strict=True))
        figures.add(f"{name} ({without * 1000:.0f} ms without a past)", with_past / without, LONGER, "x")


def make_durable(stand: Ground) -> None:
    """Turn on disk writes."""
    for name in _DURABLE:
        stand.server.execute(f"ALTER SYSTEM SET {name} = on")
    stand.server.execute("SELECT pg_reload_conf()")
    stand.server.execute("CHECKPOINT")


def measure_curve(figures: Figures, jobs: int) -> None:
    """Print the time of a curve of a year, before and after its days are stored, and of the storage of a day."""
    now = int(time.time())
    first = now // DAY - DAYS_OF_CURVE
    heading(f"Occupancy of {DAYS_OF_CURVE} days in which {jobs} jobs ended")
    with ground() as stand:
        with stand.database.begin() as tx:
            tx.execute(_YEAR, {"first": first * DAY, "jobs": jobs, "step": DAYS_OF_CURVE * DAY / jobs})
        stand.analyze()

        def curve() -> float:
            begin = time.perf_counter()
            with stand.database.snapshot() as tx:
                occupancy_curve(tx, first * DAY, DAY, DAYS_OF_CURVE + 1)
            return 1000 * (time.perf_counter() - begin)

        figures.note("the curve, of jobs", curve())
        keeper, begin = OccupancyKeeper(), time.perf_counter()
        days = sum(1 for _ in iter(lambda: keeper.look(stand.database), False))
        figures.note("storage of a day", 1000 * (time.perf_counter() - begin) / days)
        figures.add("the curve, of stored days", median(curve() for _ in range(5)), 1000)


def rounds(stand: Ground) -> Iterator[float]:
    """Make scheduling passes for ever; yield the seconds of each."""
    scheduler = MetaScheduler(Runtime(Config(), stand.database), goes_on=False)
    while True:
        begin = time.perf_counter()
        scheduler.round()
        yield time.perf_counter() - begin


def purge(stand: Ground, ended: int, times: list[float]) -> None:
    """Purge a million rows, or half of the history; record the time of each transaction."""
    (jobs,) = (each for each in kept(Config(retention_jobs=1)) if each.key == "RETENTION_JOBS")
    wanted = min(PURGED // ROWS_OF_A_JOB, ended // 2)
    pieces = jobs.purge(stand.database, 1)
    removed = 0
    while removed < wanted:
        begin = time.perf_counter()
        removed += next(pieces)
        times.append((time.perf_counter() - begin) / 2)  # it rests as long as it works


def watch(figures: Figures, stand: Ground, ended: int) -> None:
    """Print the times of the transactions of a purge, and of scheduling passes without and during it."""
    every, times = rounds(stand), list[float]()
    quiet = [next(every) for _ in range(20)]
    worker = threading.Thread(target=purge, args=(stand, ended, times))
    worker.start()
    beside = []
    while worker.is_alive():
        beside.append(next(every))
    figures.note(f"transactions of at most {JOBS} jobs", len(times), "")
    figures.note("the median of a transaction", median(times) * 1000)
    figures.add("the longest transaction", max(times) * 1000, LONGEST)
    for name, which in (("without the purge", quiet), ("beside the purge", beside)):
        figures.note(f"a round {name}: median of {len(which)}", median(which) * 1000)
        figures.note(f"a round {name}: longest", max(which) * 1000)


def main() -> None:
    """Print the tables."""
    figures = Figures()
    if sys.argv[1:] == ["curve"]:
        measure_curve(figures, JOBS_OF_CURVE)
        figures.end()
    ended = int(sys.argv[1]) if len(sys.argv) > 1 else ENDED
    with ExitStack() as stack:
        empty, full = (stack.enter_context(ground()) for _ in range(2))
        newest = filled(empty, 0), filled(full, ended)
        heading(f"Questions with {ended} ended jobs, times what they take without")
        ask(figures, (empty, newest[0]), (full, newest[1]))
        make_durable(full)
        heading("A purge beside the rounds of the scheduler")
        watch(figures, full, ended)
    figures.end()


if __name__ == "__main__":
    main()

"""Cost of complete scheduling passes, with a private PostgreSQL: ``python -m bench.rounds [word ...]``.

The cluster and the jobs come from ``bench/snapshots.py``; commits are durable.  The first scheduler makes passes like
the worker of Almighty, with slices in between until the plan is complete; the second one plans all jobs in each pass.
The table shows the CPU seconds of the scheduler and the seconds until the plan is complete, with limits; the CPU
seconds of PostgreSQL, the elapsed seconds, and the share of waiting jobs whose planned start or resources changed.
"""

import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import snapshots
from bench.figures import Figures, heading
from oar.kao.facts.snapshot import Snapshot
from oar.kao.rounds.garbage_collection import defer_full_collections
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.config.files import Config
from oar.lib.db import migrations
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.statements import Connection
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.records import Level
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.postgres import DURABLE, PostgreSQL, running

SETUP = Path(__file__).parent.parent / "setup" / "database"
#: The default limits, and none.
SHIPPED = Config()
UNLIMITED = Config(max_job_per_queues_group_scheduling_round=0, scheduler_timeout=1000)
#: CPU seconds of a slice between two scheduling passes.
LONGEST_SLICE = 0.3
#: Seconds from a change to the end of the full plan that includes it.
COMPLETE = 60

_FORESEEN = """
    SELECT p.moldable_job_id, p.start_time, s.resources FROM gantt_jobs_predictions p
    JOIN gantt_jobs_sets s USING (moldable_job_id) JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id
    JOIN jobs j ON j.job_id = m.moldable_job_id WHERE j.state = 'Waiting'"""
_PROPERTIES = "ALTER TABLE resources ADD node varchar(255), ADD core integer"
_RESOURCES = """
    INSERT INTO resources (network_address, node, switch, cpu, core, cpuset)
    SELECT 'node-' || i / 20, 'node-' || lpad((i / 20)::text, 6, '0'), i / 500, i / 10, i, i % 20
    FROM generate_series(0, {} - 1) i"""


def fill(tx: Transaction, snapshot: Snapshot) -> None:
    """Store the jobs of a snapshot."""
    tx.execute(_PROPERTIES)
    tx.execute(_RESOURCES.format(len(snapshot.resources.ids)))
    submit(
        tx, [(job.id, job.alternatives[0].walltime, job.alternatives[0].groups[0].levels) for job in snapshot.waiting]
    )
    submit(tx, [(job.id, job.walltime, (Level("core", 1),)) for job in snapshot.running])
    tx.execute(
        "UPDATE jobs j SET assigned_moldable_job = m.moldable_id FROM moldable_job_descriptions m"
        " WHERE m.moldable_job_id = j.job_id AND j.job_id = ANY(%s)",
        ([job.id for job in snapshot.running],),
    )
    for job in snapshot.running:
        tx.execute("UPDATE jobs SET state = 'Running', start_time = %s WHERE job_id = %s", (job.start_time, job.id))
    tx.insert_many(
        "INSERT INTO assigned_resources (moldable_job_id, resource_id) VALUES %s",
        [
            (moldable, number)
            for job in snapshot.running
            for moldable in tx.column(
                "SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = %s", (job.id,)
            )
            for number in snapshot.resources.ids_of(job.resources)
        ],
    )


def submit(tx: Transaction, jobs: Sequence[tuple[int, int, tuple[Level, ...]]]) -> None:
    """Store waiting jobs."""
    tx.insert_many(
        "INSERT INTO jobs (job_id, array_id, state, job_user, project, queue_name, properties) VALUES %s",
        [
            (number, number, "Waiting", f"user{number % 50}", "default", "default", "desktop_computing = 'NO'")
            for number, _, _ in jobs
        ],
    )
    moldables = tx.insert_returning(
        "INSERT INTO moldable_job_descriptions (moldable_job_id, moldable_walltime) VALUES %s RETURNING moldable_id",
        [(number, walltime) for number, walltime, _ in jobs],
    )
    groups = tx.insert_returning(
        "INSERT INTO job_resource_groups (res_group_moldable_id, res_group_property) VALUES %s RETURNING res_group_id",
        [(row[0], "type = 'default'") for row in moldables],
    )
    tx.insert_many(
        "INSERT INTO job_resource_descriptions"
        " (res_job_group_id, res_job_resource_type, res_job_value, res_job_order) VALUES %s",
        [
            (row[0], level.property, level.quantity, order)
            for row, (_, _, levels) in zip(groups, jobs, strict=True)
            for order, level in enumerate(levels)
        ],
    )


class Bench:
    """A database with a cluster and jobs, and a scheduler."""

    def __init__(
        self, server: PostgreSQL, name: str, snapshot: Snapshot, config: Config, figures: Figures, *, goes_on: bool
    ) -> None:
        self.server, self.figures = server, figures
        settings = DatabaseSettings(host=server.socket, name=name, patience=0)
        migrations.Migrator(
            settings, SETUP, connect_admin=lambda base: server.connect(base, "postgres"), with_rules=False
        ).create()
        self.now = snapshots.NOW
        self.database = Database(settings, clock=lambda: self.now)
        self.database.run(lambda tx: fill(tx, snapshot))
        self.database.run(lambda tx: tx.execute("SELECT setval('jobs_job_id_seq', (SELECT max(job_id) FROM jobs))"))
        with_analysis: Connection = self.database.connection()
        with_analysis.cursor().execute("VACUUM ANALYZE")
        with_analysis.close()
        self.scheduler = MetaScheduler(Runtime(config, self.database), goes_on=goes_on)

    def round(self, what: str, most: float) -> None:
        """Make a scheduling pass, then the following slices, and print the cost of both."""
        before, database = self._foreseen(), cpu_of(self.server)
        begin, cpu = time.perf_counter(), time.process_time()
        self.scheduler.round()
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        self.figures.add(what, cpu, most, "s")
        self.figures.note("elapsed", elapsed, "s")
        slices = [self._slice() for _ in iter(self.scheduler.due, None)]
        if slices:
            self.figures.add(f"{what}: the longest slice", max(slices), LONGEST_SLICE, "s")
            self.figures.note(f"{len(slices)} slices", sum(slices), "s")
            self.figures.add(f"{what}: all is planned", time.perf_counter() - begin, COMPLETE, "s")
        self.figures.note("PostgreSQL", cpu_of(self.server) - database, "s")
        after = self._foreseen()
        changed = sum(before.get(moldable) != place for moldable, place in after.items())
        self.figures.note("places changed", 100 * changed / max(1, len(after)), "%")

    def _slice(self) -> float:
        """Make a slice when it is due; return its CPU seconds."""
        time.sleep(self.scheduler.due() or 0.0)
        begin = time.process_time()
        self.scheduler.go_on()
        return time.process_time() - begin

    def _foreseen(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        with self.database.snapshot() as tx:
            return {row[0]: (row[1], tuple(row[2])) for row in tx.rows(_FORESEEN)}

    @property
    def running(self) -> int:
        """The number of running jobs."""
        with self.database.snapshot() as tx:
            return len(tx.column("SELECT job_id FROM jobs WHERE state = 'Running'"))

    def submit(self) -> None:
        """Add a job after all others."""
        with self.database.begin() as tx:
            submit(tx, [(tx.new_jobs.new_id(), 3600, (Level("core", 4),))])

    def withdraw(self, share: float) -> None:
        """Delete the waiting job that precedes this share of them."""
        with self.database.begin() as tx:
            waiting = tx.column("SELECT job_id FROM jobs WHERE state = 'Waiting' ORDER BY job_id")
            gone = [waiting[-int(len(waiting) * share)]]
            for state in (JobState.TO_ERROR, JobState.ERROR):
                tx.jobs.move(gone, state, list(JobState))
            tx.jobs.close(gone)

    def end(self, count: int) -> None:
        """End running jobs before their walltime."""
        with self.database.begin() as tx:
            running = tx.column("SELECT job_id FROM jobs WHERE state = 'Running' ORDER BY job_id")
            ended = random.Random(1).sample(running, count)
            for state in (JobState.FINISHING, JobState.TERMINATED):
                tx.jobs.move(ended, state, list(JobState))
            tx.jobs.close(ended)


def cpu_of(server: PostgreSQL) -> float:
    """Return the CPU seconds of a PostgreSQL and its processes, including ended ones."""
    root, ticks = server.process.pid if server.process else 0, 0
    for path in (process / "stat" for process in Path("/proc").glob("[0-9]*")):
        try:
            values = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(values[1]) == root or path.parent.name == str(root):
            ticks += sum(map(int, values[11:15] if path.parent.name == str(root) else values[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def case(name: str, bench: Bench, most: float, first: float) -> None:
    """Print the scheduling passes of one case: ``most`` is the limit of each, ``first`` that of the first one."""
    heading(name)
    bench.round("first round: nothing is foreseen yet", first)
    bench.round("nothing has changed", most)
    bench.now += 10
    bench.submit()
    bench.round("one submission, 10 s later", most)
    bench.withdraw(0.07)
    bench.round("a waiting job taken back, with 7 % behind it", most)
    bench.end(1)
    bench.round("a running job has ended early", most)
    bench.end(min(200, bench.running // 2))
    bench.round("200 running jobs have ended", most)
    bench.scheduler.close()
    bench.database.close()


def main(wanted: Sequence[str]) -> None:
    """Print the table."""
    defer_full_collections()  # as the worker does
    figures = Figures()
    cases = (
        ("1,000 jobs, 10,000 cores, limits as shipped", 1000, SHIPPED, True, 1.0, 1.5),
        ("10,000 jobs, 10,000 cores, limits as shipped", 10000, SHIPPED, True, 1.5, 4.0),
        ("50,000 jobs, 10,000 cores, limits as shipped", 50000, SHIPPED, True, 2.0, 4.0),
        ("10,000 jobs, 10,000 cores, no limits", 10000, UNLIMITED, True, 1.5, 4.0),
        ("10,000 jobs, 10,000 cores, each round plans all", 10000, UNLIMITED, False, 14.0, 14.0),
    )
    with running(DURABLE) as server:
        for number, (name, jobs, config, goes_on, most, first) in enumerate(cases):
            if not wanted or any(word in name for word in wanted):
                snapshot = snapshots.plain(jobs, 10000)
                case(
                    name,
                    Bench(server, f"bench_{number}", snapshot, config, figures, goes_on=goes_on),
                    most,
                    first,
                )
    figures.end()


if __name__ == "__main__":
    main(sys.argv[1:])

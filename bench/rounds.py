"""Cost of whole rounds, with a PostgreSQL of its own: ``python -m bench.rounds``.

The machine and the jobs are those of ``bench/snapshots.py``.  The database runs without fsync, as that of the tests.
Elapsed and CPU seconds, and the share of the waiting jobs whose foreseen start or resources the round changed; a warm
scheduler, but for the first line.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path

from bench import snapshots
from oar.kao.facts.snapshot import Snapshot
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.config.files import Config
from oar.lib.db import migrations
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.statements import Connection
from oar.lib.db.transaction import Transaction
from oar.lib.facts.records import Level
from oar.lib.facts.states import JobState
from oar.lib.runtime import Runtime
from tests.postgres import PostgreSQL

SETUP = Path(__file__).parent.parent / "setup" / "database"
CONFIG = Config(max_job_per_queues_group_scheduling_round=0, scheduler_timeout=1000)

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
        [(number, number, "Waiting", "ann", "default", "default", "desktop_computing = 'NO'") for number, _, _ in jobs],
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
    """A database with a machine and jobs, and a scheduler."""

    def __init__(self, server: PostgreSQL, name: str, snapshot: Snapshot) -> None:
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
        self.scheduler = MetaScheduler(Runtime(CONFIG, self.database))

    def round(self, what: str) -> None:
        """Make a round and print what it cost."""
        before = self._foreseen()
        begin, cpu = time.perf_counter(), time.process_time()
        self.scheduler.round()
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        after = self._foreseen()
        changed = sum(before.get(moldable) != place for moldable, place in after.items()) / len(after)
        print(f"  {what:60} {elapsed:7.2f} {cpu:7.2f} {changed:6.1%}", flush=True)

    def _foreseen(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        with self.database.snapshot() as tx:
            return {row[0]: (row[1], tuple(row[2])) for row in tx.rows(_FORESEEN)}

    def submit(self) -> None:
        """Add a job behind all others."""
        with self.database.begin() as tx:
            submit(tx, [(tx.new_jobs.new_id(), 3600, (Level("core", 4),))])

    def withdraw(self, share: float) -> None:
        """Take back the waiting job behind which this share of them stands."""
        with self.database.begin() as tx:
            waiting = tx.column("SELECT job_id FROM jobs WHERE state = 'Waiting' ORDER BY job_id")
            gone = [waiting[-int(len(waiting) * share)]]
            for state in (JobState.TO_ERROR, JobState.ERROR):
                tx.jobs.move(gone, state, list(JobState))
            tx.jobs.close(gone)

    def end(self, count: int) -> None:
        """Let running jobs end, as their owners' programs do."""
        with self.database.begin() as tx:
            running = tx.column("SELECT job_id FROM jobs WHERE state = 'Running' ORDER BY job_id")
            ended = random.Random(1).sample(running, count)
            for state in (JobState.FINISHING, JobState.TERMINATED):
                tx.jobs.move(ended, state, list(JobState))
            tx.jobs.close(ended)


def case(server: PostgreSQL, jobs: int, cores: int) -> None:
    """Print the rounds of one case."""
    print(f"{jobs} waiting jobs on {cores} cores: elapsed and CPU seconds, share of changed places", flush=True)
    bench = Bench(server, f"bench_{jobs}_{cores}", snapshots.plain(jobs, cores))
    bench.round("first round: nothing is foreseen yet")
    bench.round("nothing has changed")
    bench.now += 10
    bench.submit()
    bench.round("after one submission, 10 s later")
    bench.withdraw(0.07)
    bench.round("after a waiting job was taken back, with 7 % behind it")
    bench.end(1)
    bench.round("after a running job has ended early")
    bench.round("nothing has changed again")
    bench.scheduler.close()
    bench.database.close()


def main() -> None:
    """Print the table."""
    server = PostgreSQL()
    try:
        server.start()
        case(server, 1000, 10000)
        case(server, 10000, 10000)
    finally:
        server.stop()


if __name__ == "__main__":
    main()

"""Rounds among everything else: submissions, deletions, holds, ends and failures of nodes, in order and all at once."""

import random
from collections.abc import Iterator, Sequence

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.bus.messages import Ask, Effect, JobAction
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import lifecycle
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState
from tests.builders import add_job
from tests.db.test_random_lives import MODULES, PEOPLE, Cluster, act_at_once, all_ended

pytestmark = pytest.mark.slow

#: Types of jobs, and the queues that they go to.
KINDS: tuple[tuple[str, ...], ...] = ((), (), (), ("idempotent",), ("besteffort",), ("noop",), ("container",))

#: A resource that several jobs hold that run: a suspended one may lend its own, and end meanwhile.
_TWICE = """
    SELECT a.resource_id, array_agg(j.job_id) FROM assigned_resources a
    JOIN jobs j ON j.assigned_moldable_job = a.moldable_job_id
    WHERE a.assigned_resource_index = 'CURRENT' AND j.state IN ('toLaunch', 'Launching', 'Running', 'Finishing')
      AND NOT (j.state = 'Finishing' AND j.suspended = 'YES')
    GROUP BY a.resource_id HAVING count(*) > 1"""
#: Predictions that the public tables do not show; a job that has ended is shown there until the next round.
_NOT_SHOWN = "SELECT * FROM gantt_jobs_predictions EXCEPT SELECT * FROM gantt_jobs_predictions_visu"
#: Jobs that wait in an active queue, without prediction and without reason.
_UNEXPLAINED = """
    SELECT j.job_id FROM jobs j WHERE j.state = 'Waiting' AND NOT EXISTS (
        SELECT 1 FROM job_reasons r WHERE r.job_id = j.job_id)"""


class Scheduled(Cluster):
    """The same, with the real scheduler; a suspended job goes on when the scheduler asks for it."""

    def __init__(self, settings: DatabaseSettings) -> None:
        super().__init__(settings)
        self.may_go_on: set[int] = set()
        self.database.deliver = self._hear
        self.scheduler = MetaScheduler(self.runtime)

    def _hear(self, effects: Sequence[Effect]) -> None:
        self.may_go_on |= {each.job_id for each in effects if isinstance(each, Ask) and each.action is JobAction.RESUME}

    def submit(self, dice: random.Random) -> None:
        """Somebody submits a job."""
        types = dice.choice(KINDS)
        queue = "besteffort" if "besteffort" in types else dice.choice(["default", "default", "admin"])
        checkpoint = dice.choice([0, 0, 30])
        add_job(self.database, walltime=dice.choice([60, 600]), types=types, queue=queue, checkpoint=checkpoint)

    def schedule(self, dice: random.Random) -> None:
        """A round; after it nobody holds what another has."""
        self.scheduler.round()
        with self.database.snapshot() as tx:
            assert tx.rows(_TWICE) == []
            assert tx.rows(_NOT_SHOWN) == []
            assert tx.rows("SELECT * FROM job_reasons WHERE code = 'INTERNAL'") == []

    def _freeze(self, tx: Transaction, dice: random.Random, job: Job) -> None:
        if job.state is not JobState.RESUMING:
            super()._freeze(tx, dice, job)
        elif job.id in self.may_go_on:
            self.may_go_on.discard(job.id)
            lifecycle.move(tx, job.id, JobState.RUNNING)


@pytest.fixture
def cluster(settings: DatabaseSettings) -> Iterator[Scheduled]:
    """Three nodes, nothing on them."""
    made = Scheduled(settings)
    yield made
    made.scheduler.close()
    made.database.close()


RUNNER = ("launch", "launch", "end", "end", "freeze", "sweep")


def settled(cluster: Scheduled, dice: random.Random) -> None:
    """With nothing else going on, every job that waits has its reason, and all come to their end."""
    for _ in range(3):
        cluster.node_change_state(dice)
    cluster.schedule(dice)
    with cluster.database.snapshot() as tx:
        assert tx.rows(_UNEXPLAINED) == []
        assert tx.value("SELECT count(*) FROM jobs WHERE assigned_moldable_job <> 0") > 0
    cluster.check()
    cluster.finish(dice)
    cluster.check()
    assert all_ended(cluster)


@pytest.mark.parametrize("seed", range(3))
def test_one_after_the_other(cluster: Scheduled, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(250):
        getattr(cluster, dice.choice((*PEOPLE, *RUNNER * 2, *MODULES, "schedule", "schedule", "schedule")))(dice)
    settled(cluster, dice)


@pytest.mark.parametrize("seed", range(2))
def test_all_at_once(cluster: Scheduled, seed: int) -> None:
    actors = [PEOPLE, PEOPLE, ("schedule",), RUNNER, RUNNER, *((one,) for one in MODULES)]
    act_at_once(cluster, seed, actors, 90)
    settled(cluster, random.Random(seed))

"""Schedulers of the site in one round: each plans the jobs of its queue after the earlier decisions.

The program works on the gantt tables between two transactions of OAR.  The tables contain the decisions so far, and the
program adds the placements of the jobs of its queue.  Other clients do not see these tables before the end of the
round.

See docs/design/planner.rst, "Schedulers of the site".
"""

import logging
import time
from collections.abc import Collection, Sequence

from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.site.external_proposals import SchedulerProposal
from oar.kao.rounds.reading.situation import Situation
from oar.kao.rounds.site.scheduler_programs import GAVE_UP, ProgramOutput, SchedulerPrograms
from oar.kao.rounds.site.scheduler_proposals import ProposalReader, WrittenTables, occupied
from oar.lib.db.database import Database
from oar.lib.jobs.records import Queue

log = logging.getLogger(__name__)


class ExternalSchedulers:
    """Runs the programs of the site in one round."""

    def __init__(
        self, database: Database, programs: SchedulerPrograms, situation: Situation, *, may_start_jobs: bool
    ) -> None:
        """``may_start_jobs``: whether lines in the output of programs may request starts in this round."""
        self.seconds = 0.0  #: how long the programs have run
        self.was_used = False
        self._database = database
        self._programs = programs
        self._situation = situation
        self._may_start_jobs = may_start_jobs

    def plans(self, queue: Queue) -> bool:
        """Return whether a program plans the jobs of a queue."""
        return self._programs.plans(queue)

    def plan(self, queue: Queue, jobs: Sequence[WaitingJob], placed: Collection[Placement]) -> SchedulerProposal:
        """Run the program of a queue; return its proposal.  ``placed``: the placements so far."""
        self.was_used = True
        snapshot = self._situation.snapshot
        before = occupied(snapshot, placed)
        self._database.run(lambda tx: tx.plan.propose(before, snapshot.now))
        output = self._run(queue)
        if output is None:
            return SchedulerProposal(queue.policy, is_failed=True)
        reader = ProposalReader(snapshot, self._situation.reasons, queue, jobs)
        lines = output.lines if self._may_start_jobs else ()
        proposal = reader.read(self._read_tables(jobs), lines, [row.moldable for row in before])
        for warning in reader.warnings:
            log.warning("%s", warning)
        if output.gave_up and not proposal.given_up:
            log.warning("scheduler %s ended with %d and gave up no job: it may have failed", queue.policy, GAVE_UP)
        return proposal

    def _run(self, queue: Queue) -> ProgramOutput | None:
        begin = time.monotonic()
        output = self._programs.run(queue, self._situation.snapshot.now)
        self.seconds += time.monotonic() - begin
        return output

    def _read_tables(self, jobs: Sequence[WaitingJob]) -> WrittenTables:
        alternatives = {alternative.id for job in jobs for alternative in job.alternatives}
        with self._database.snapshot() as tx:
            starts = tx.plan.starts()
            return WrittenTables(
                starts,
                tx.plan.resources([number for number in starts if number in alternatives]),
                {row.id: row for row in tx.rounds.jobs([job.id for job in jobs])},
            )

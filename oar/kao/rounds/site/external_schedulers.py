"""Schedulers of the site in one round: each plans the jobs of its queue after the earlier decisions.

The program works on the gantt tables between two transactions of OAR.  The tables contain the decisions so far, and the
program adds the placements of the jobs of its queue.  Its proposal is read from the tables and from its output.  Other
clients do not see these tables before the end of the round.

See docs/design/planner.rst, "Schedulers of the site".
"""

import json
import logging
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oar.kao.facts.plan import Answer, Placement
from oar.kao.facts.snapshot import Alternative, Snapshot, WaitingJob
from oar.kao.planner.placement.site_extensions import SchedulerProposal
from oar.kao.rounds.reading.situation import Situation
from oar.kao.rounds.site.scheduler_programs import GAVE_UP, SchedulerPrograms
from oar.lib.base.resource_set import from_positions
from oar.lib.db.database import Database
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Queue
from oar.lib.jobs.sql_waits import StoredReason
from oar.lib.jobs.states import JobState
from oar.lib.planning.sql_plan import PredictionRow
from oar.lib.planning.sql_rounds import JobRow

#: A line with which a program asks for the start of a job in this round.
_START_LINE = re.compile(
    r"SCHEDRUN\s+JOB_ID=([0-9]{1,18})\s+MOLDABLE_JOB_ID=([0-9]{1,18})\s+RESOURCES=([0-9]{1,9}(?:,[0-9]{1,9})*)\s*\Z",
    re.ASCII,
)


#: Messages that are ours begin so; a program may write others.
_OUR_MESSAGE = "R="


class WrittenTables(NamedTuple):
    """The content of the tables after a program has ended."""

    starts: Mapping[int, int]  #: by alternative
    resources: Mapping[int, Sequence[int]]  #: ids by alternative
    rows: Mapping[int, JobRow]  #: the jobs of the queue, by id


@dataclass(frozen=True, slots=True)
class _Choice:
    """A placement written by a program."""

    job_id: int
    alternative: int
    start: int
    resources: Sequence[int]


class ProposalReader:
    """Reads the proposal for the jobs of one queue; ``warnings`` are lines for the log."""

    def __init__(
        self, snapshot: Snapshot, reasons: Mapping[int, StoredReason], queue: Queue, jobs: Sequence[WaitingJob]
    ) -> None:
        """``reasons``: the reasons stored in earlier rounds, by job."""
        self.warnings: list[str] = []
        self._now = snapshot.now
        self._reasons = reasons
        self._queue = queue
        self._jobs = {job.id: job for job in jobs}
        self._job_ids = {alternative.id: job.id for job in jobs for alternative in job.alternatives}
        self._bits = {number: bit for bit, number in enumerate(snapshot.resources.ids)}

    def read(
        self, tables: WrittenTables, lines: Iterable[str], placed_before: Collection[int] = ()
    ) -> SchedulerProposal:
        """Return the proposal.

        ``lines``: the output that may request starts in this round.  ``placed_before``: the alternatives that the
        tables contained before the program ran.
        """
        for alternative in sorted(tables.starts.keys() - {0, *placed_before} - self._job_ids.keys()):
            self.warnings.append(
                f"rejected placement of alternative {alternative}: it belongs to no waiting job of queue"
                f" {self._queue.name}"
            )
        placements, rejected = self._placements(self._choices(tables, lines))
        rows = tables.rows
        return SchedulerProposal(
            self._queue.policy,
            tuple(placement for placement in placements.values() if placement.job_id not in rejected),
            rejected,
            said={job_id: row.scheduler_info for job_id, row in rows.items() if self._is_said_by_program(row)},
            messages={
                job_id: row.message
                for job_id, row in rows.items()
                if row.message and not row.message.startswith(_OUR_MESSAGE)
            },
            given_up=tuple(Answer(row.id, row.message) for row in rows.values() if row.state is JobState.TO_ERROR),
            gone=frozenset(
                job_id
                for job_id in self._jobs
                if job_id not in rows or rows[job_id].state not in (JobState.WAITING, JobState.TO_ERROR)
            ),
        )

    def _choices(self, tables: WrittenTables, lines: Iterable[str]) -> list[_Choice]:
        """Return the placements in the tables; a start in this round replaces the placement of the same job."""
        matches = filter(None, map(_START_LINE.match, lines))
        immediate = {
            int(match[1]): _Choice(
                int(match[1]), int(match[2]), self._now, [int(number) for number in match[3].split(",")]
            )
            for match in matches
        }
        planned = [
            _Choice(self._job_ids[alternative], alternative, start, tables.resources.get(alternative, ()))
            for alternative, start in sorted(tables.starts.items())
            if alternative in self._job_ids
        ]
        return [choice for choice in planned if choice.job_id not in immediate] + list(immediate.values())

    def _placements(self, choices: Iterable[_Choice]) -> tuple[dict[int, Placement], dict[int, str]]:
        """Return the valid placements by job, and why the others are rejected."""
        placements: dict[int, Placement] = {}
        rejected: dict[int, str] = {}
        for choice in choices:
            job_id, alternative = choice.job_id, self._alternative(choice)
            if alternative is None:
                self.warnings.append(
                    f"rejected start of job {job_id}: {choice.alternative} is not an alternative of a waiting job of"
                    f" queue {self._queue.name}"
                )
            elif job_id in placements:
                rejected[job_id] = "it has several alternatives"
            elif unknown := [number for number in choice.resources if number not in self._bits]:
                rejected[job_id] = f"there is no resource {unknown[0]}"
            else:
                resources = from_positions(self._bits[number] for number in choice.resources)
                walltime = alternative.walltime_from(choice.start)
                placements[job_id] = Placement(job_id, alternative.id, choice.start, walltime, resources)
        return placements, rejected

    def _alternative(self, choice: _Choice) -> Alternative | None:
        job = self._jobs.get(choice.job_id)
        alternatives = job.alternatives if job else ()
        return next((alternative for alternative in alternatives if alternative.id == choice.alternative), None)

    def _is_said_by_program(self, row: JobRow) -> bool:
        """Return whether the program wrote ``scheduler_info``, and not an earlier round."""
        reason = self._reasons.get(row.id)
        if not row.scheduler_info or reason is None or reason.reason != row.scheduler_info:
            return bool(row.scheduler_info)
        return reason.code == ReasonCode.EXTERNAL and bool(json.loads(reason.data).get("said"))


def occupied(snapshot: Snapshot, placed: Collection[Placement]) -> list[PredictionRow]:
    """Return all current and future occupations, which a program must not use."""
    spans = {job.alternative: (job.start_time, job.resources) for job in snapshot.running}
    spans |= {
        job.granted.alternative: (job.start_time, job.granted.resources) for job in snapshot.waiting if job.granted
    }
    spans |= {placement.alternative: (placement.start, placement.resources) for placement in placed}
    ids = snapshot.resources.ids_of
    return [PredictionRow(number, start, tuple(ids(resources))) for number, (start, resources) in spans.items()]


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
        return self._programs.plans(queue)

    def plan(self, queue: Queue, jobs: Sequence[WaitingJob], placed: Collection[Placement]) -> SchedulerProposal:
        """Run the program of a queue; return its proposal.  ``placed``: the placements so far."""
        self.was_used = True
        snapshot = self._situation.snapshot
        before = occupied(snapshot, placed)
        self._database.run(lambda tx: tx.plan.propose(before, snapshot.now))
        begin = time.monotonic()
        output = self._programs.run(queue, self._situation.snapshot.now)
        self.seconds += time.monotonic() - begin
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

    def _read_tables(self, jobs: Sequence[WaitingJob]) -> WrittenTables:
        alternatives = {alternative.id for job in jobs for alternative in job.alternatives}
        with self._database.snapshot() as tx:
            starts = tx.plan.starts()
            return WrittenTables(
                starts,
                tx.plan.resources([number for number in starts if number in alternatives]),
                {row.id: row for row in tx.rounds.jobs([job.id for job in jobs])},
            )

"""Schedulers of the site as programs: they are run, and what they write is read back.

Between two transactions of ours the program works on the gantt tables.  It finds there what has been decided so far and
adds the places of the jobs of its queue; nobody else sees these tables before the round is over.

See docs/design/planner.rst, "Schedulers of the site".
"""

import json
import logging
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from oar.kao.facts.plan import Answer, Placement
from oar.kao.facts.queue_policies import policy_of
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.site.external_proposals import SchedulerProposal
from oar.kao.rounds.situation import Situation
from oar.lib.db.gantt import PredictionRow
from oar.lib.db.job_waits import StoredReason
from oar.lib.db.rounds import JobRow
from oar.lib.facts.messages import Mail
from oar.lib.facts.records import Queue
from oar.lib.facts.resource_set import from_positions
from oar.lib.facts.states import JobState, QueueState, ReasonCode
from oar.lib.facts.times import format_date
from oar.lib.io import processes
from oar.lib.runtime import DEFAULT_PATH, Runtime

log = logging.getLogger(__name__)

#: Names of programs: they are joined to a directory, and come from the database.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\Z", re.ASCII)
#: Asks for the start of a job in this round.
_RUN = re.compile(
    r"SCHEDRUN\s+JOB_ID=([0-9]{1,18})\s+MOLDABLE_JOB_ID=([0-9]{1,18})\s+RESOURCES=([0-9]{1,9}(?:,[0-9]{1,9})*)\s*\Z",
    re.ASCII,
)
#: Messages that are ours begin so; a program may write others.
_OURS = "R="
#: A program may take so many times SCHEDULER_TIMEOUT, and at least so many seconds.
PATIENCE, LEAST_SECONDS = 3, 30.0
#: Between SIGTERM and SIGKILL.
GRACE = 5.0
#: So much of what it writes is read.
LONGEST_OUTPUT = 1 << 26
#: And so much of each line goes to the log.
LONGEST_LINE = 1000
GAVE_UP = 1  #: it put jobs into toError
GOOD_CODES = (0, GAVE_UP)


class SchedulerOutput(NamedTuple):
    """A program that has ended well."""

    lines: list[str]
    gave_up: bool


class ExternalSchedulers:
    """The programs of a site.  How often each has failed in a row is known as long as the scheduler is warm."""

    def __init__(self, runtime: Runtime) -> None:
        config = runtime.config
        self.database = runtime.database
        self._directory = Path(runtime.oardir) / config.schedulers_path
        self._is_everywhere = config.metascheduler_mode == "external"
        self._limit = max(PATIENCE * config.scheduler_timeout, LEAST_SECONDS)
        self._most_failures = config.external_scheduler_max_failures
        self._starts_now = config.scheduler_launcher_optimization
        self._failures: dict[str, int] = {}
        self._environment = {"OARCONFFILE": runtime.conf_file, "OARDIR": runtime.oardir, "PATH": DEFAULT_PATH}

    def plans(self, queue: Queue) -> bool:
        """Whether the jobs of a queue are planned by a program."""
        if policy_of(queue.policy) is None:
            return True
        return self._is_everywhere and bool(_NAME.match(queue.policy)) and os.access(self._program(queue), os.X_OK)

    def run(self, queue: Queue, now: int) -> SchedulerOutput | None:
        """Run the program of a queue; return what it wrote and how it ended, None if it failed."""
        if not _NAME.match(queue.policy):
            self._failed(queue, f"Execution of {queue.policy} failed (this cannot be the name of a program)")
            return None
        argv = [str(self._program(queue)), queue.name, str(now), format_date(now)]
        outcome = processes.run(
            argv, timeout=self._limit, environment=self._environment, grace=GRACE, tail_bytes=LONGEST_OUTPUT
        )
        was_started = outcome.code is not None or outcome.timed_out
        lines = outcome.output.splitlines() if was_started else []
        for line in lines:
            log.info("Read on the scheduler output:%s", line[:LONGEST_LINE])
        trouble = self._trouble(queue.policy, outcome, now)
        if trouble:
            self._failed(queue, trouble)
            return None
        self._failures.pop(queue.name, None)
        return SchedulerOutput(lines, gave_up=outcome.code == GAVE_UP)

    def wished_starts(self, lines: Sequence[str]) -> dict[int, tuple[int, list[int]]]:
        """Return the jobs that a program wants to be started now: alternative and resources."""
        found = [_RUN.match(line) for line in lines] if self._starts_now else []
        return {
            int(match[1]): (int(match[2]), [int(number) for number in match[3].split(",")]) for match in found if match
        }

    def _program(self, queue: Queue) -> Path:
        return self._directory / queue.policy

    def _trouble(self, name: str, outcome: processes.CommandOutcome, now: int) -> str:
        """Return what is wrong with the end of a program; '' if nothing is."""
        if outcome.timed_out:
            return f"Execution of {name} failed (signal=15: no end within {self._limit:.0f} s)"
        if outcome.code is None:
            return f"Execution of {name} failed ({outcome.output})"
        if outcome.code < 0:
            return f"Execution of {name} failed (signal={-outcome.code})"
        if outcome.code in GOOD_CODES:
            return ""
        return f"Scheduler {name} returned a bad value: {outcome.code}, at time {now}"

    def _failed(self, queue: Queue, trouble: str) -> None:
        """Note a failure; after too many in a row the queue is stopped, and the administrator told."""
        count = self._failures[queue.name] = self._failures.get(queue.name, 0) + 1
        if count < self._most_failures:
            log.error("%s. Failure %d of %d in a row; queue %s waits", trouble, count, self._most_failures, queue.name)
            return
        text = f"{trouble}. Disabling queue {queue.name} (see oarnotify)"
        log.error("%s", text)
        del self._failures[queue.name]
        with self.database.begin() as tx:
            tx.queues.set_state([queue.name], QueueState.NOT_ACTIVE)
            tx.outbox.append(Mail(f"Queue {queue.name} stopped", text))


@dataclass(frozen=True, slots=True)
class _Choice:
    """A place as a program wrote it."""

    job: int
    alternative: int
    start: int
    resources: Sequence[int]


class RoundPrograms:
    """The programs in one round."""

    def __init__(self, programs: ExternalSchedulers, situation: Situation) -> None:
        self.seconds = 0.0  #: how long the programs have run
        self.was_used = False
        self._programs = programs
        self._situation = situation
        self._now = situation.snapshot.now
        self._bits = {number: bit for bit, number in enumerate(situation.snapshot.resources.ids)}

    def plans(self, queue: Queue) -> bool:
        """Whether the jobs of a queue are planned by a program."""
        return self._programs.plans(queue)

    def plan(self, queue: Queue, jobs: Sequence[WaitingJob], placed: Collection[Placement]) -> SchedulerProposal:
        """Let the program of a queue plan its jobs, behind what has been placed before."""
        self.was_used = True
        before = self._predictions(placed)
        self._programs.database.run(lambda tx: tx.gantt.propose(before, self._now))
        begin = time.monotonic()
        ran = self._programs.run(queue, self._now)
        self.seconds += time.monotonic() - begin
        if ran is None:
            return SchedulerProposal(queue.policy, is_failed=True)
        alternatives = {alternative.id: job.id for job in jobs for alternative in job.alternatives}
        with self._programs.database.snapshot() as tx:
            starts = tx.gantt.starts()
            resources = tx.gantt.resources([number for number in starts if number in alternatives])
            rows = {row.id: row for row in tx.rounds.jobs([job.id for job in jobs])}
        for number in sorted(starts.keys() - alternatives.keys() - {each.moldable for each in before} - {0}):
            log.warning("rejected placement of alternative %d: it is of no waiting job of queue %s", number, queue.name)
        choices = [
            _Choice(alternatives[number], number, starts[number], resources.get(number, ()))
            for number in sorted(starts.keys() & alternatives.keys())
        ]
        wished = self._programs.wished_starts(ran.lines)
        choices = [each for each in choices if each.job not in wished]
        choices += [_Choice(job, number, self._now, members) for job, (number, members) in wished.items()]
        proposal = self._proposal(queue, {job.id: job for job in jobs}, choices, rows)
        if ran.gave_up and not proposal.given_up:
            log.warning("scheduler %s ended with %d and gave up no job: it may have failed", queue.policy, GAVE_UP)
        return proposal

    def _predictions(self, placed: Collection[Placement]) -> list[PredictionRow]:
        """Return all that has resources, or will have some: what a program must leave alone."""
        snapshot = self._situation.snapshot
        known = {job.alternative: (job.start_time, job.resources) for job in snapshot.running}
        known |= {
            each.granted.alternative: (each.start_time, each.granted.resources)
            for each in snapshot.waiting
            if each.granted
        }
        known |= {each.alternative: (each.start, each.resources) for each in placed}
        ids = snapshot.resources.ids_of
        return [PredictionRow(number, start, tuple(ids(members))) for number, (start, members) in known.items()]

    def _proposal(
        self,
        queue: Queue,
        jobs: Mapping[int, WaitingJob],
        choices: Sequence[_Choice],
        rows: Mapping[int, JobRow],
    ) -> SchedulerProposal:
        """Return what a program decided."""
        placements: dict[int, Placement] = {}
        rejected: dict[int, str] = {}
        for each in choices:
            job = jobs.get(each.job)
            alternative = next((one for one in job.alternatives if one.id == each.alternative), None) if job else None
            if alternative is None:
                what = f"{each.alternative} is no alternative of a waiting job"
                log.warning("rejected start of job %d: %s of queue %s", each.job, what, queue.name)
            elif each.job in placements:
                rejected[each.job] = "it has several alternatives"
            elif unknown := [one for one in each.resources if one not in self._bits]:
                rejected[each.job] = f"there is no resource {unknown[0]}"
            else:
                held = from_positions(self._bits[one] for one in each.resources)
                placements[each.job] = Placement(each.job, alternative.id, each.start, alternative.walltime, held)
        return SchedulerProposal(
            queue.policy,
            tuple(each for each in placements.values() if each.job_id not in rejected),
            rejected,
            said={number: row.scheduler_info for number, row in rows.items() if self._is_told(row)},
            messages={number: row.message for number, row in rows.items() if _is_own_message(row.message)},
            given_up=tuple(Answer(each.id, each.message) for each in rows.values() if each.state is JobState.TO_ERROR),
            gone=frozenset(
                number
                for number in jobs
                if number not in rows or rows[number].state not in (JobState.WAITING, JobState.TO_ERROR)
            ),
        )

    def _is_told(self, row: JobRow) -> bool:
        """Whether ``scheduler_info`` is from the program: not what we wrote after an earlier round."""
        reason = self._situation.reasons.get(row.id)
        return bool(row.scheduler_info) and (
            reason is None or reason.reason != row.scheduler_info or is_said_by_program(reason)
        )


def _is_own_message(message: str) -> bool:
    """Whether a program has put its own message in the place of ours."""
    return bool(message) and not message.startswith(_OURS)


def is_said_by_program(reason: StoredReason) -> bool:
    """Whether a stored reason is what a program said."""
    return reason.code == ReasonCode.EXTERNAL and bool(json.loads(reason.data).get("said"))

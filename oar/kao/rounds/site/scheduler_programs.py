"""Run scheduler programs of the site as processes and count consecutive failures.

See docs/design/planner.rst, "Schedulers of the site".
"""

import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from oar.lib.base import processes
from oar.lib.base.programs import DEFAULT_PATH
from oar.lib.base.times import format_date
from oar.lib.bus.messages import Mail
from oar.lib.jobs.queue_policies import POLICIES, policy_of
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import QueueState
from oar.lib.runtime import Runtime

log = logging.getLogger(__name__)

#: Names of programs: they are joined to a directory, and come from the database.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\Z", re.ASCII)
#: A program may take so many times SCHEDULER_TIMEOUT, and at least so many seconds.
PATIENCE, LEAST_SECONDS = 3, 30.0
#: Between SIGTERM and SIGKILL.
GRACE = 5.0
#: So much of what it writes is read.
LONGEST_OUTPUT = 1 << 26
#: And so much of each line goes to the log.
LONGEST_LINE = 1000
#: The exit code of a program that put jobs into toError.
GAVE_UP = 1
GOOD_CODES = (0, GAVE_UP)


class ProgramOutput(NamedTuple):
    """The standard output and the result of a program that did not fail."""

    lines: list[str]
    gave_up: bool


def unknown_policy(runtime: Runtime, policy: str) -> str | None:
    """Return why a policy schedules no jobs; return None if it is built in or a program of the site."""
    directory = Path(runtime.oardir) / runtime.config.schedulers_path
    if policy in POLICIES or (directory / policy).is_file():
        return None
    policies = ", ".join(sorted(each for each in POLICIES if each))
    return f"{policy} must be a program in {directory}, or one of {policies}"


def policy_warnings(runtime: Runtime, queues: Iterable[Queue]) -> list[str]:
    reasons = [(queue.name, unknown_policy(runtime, queue.policy)) for queue in queues]
    return [f"No job of queue {name} will start: {reason}." for name, reason in reasons if reason]


class SchedulerPrograms:
    """The programs of a site.  Their failures are counted as long as the scheduler is warm."""

    def __init__(self, runtime: Runtime) -> None:
        config = runtime.config
        self._database = runtime.database
        self._directory = Path(runtime.oardir) / config.schedulers_path
        self._is_everywhere = config.metascheduler_mode == "external"
        self._limit = max(PATIENCE * config.scheduler_timeout, LEAST_SECONDS)
        self._most_failures = config.external_scheduler_max_failures
        self._failures: dict[str, int] = {}
        self._environment = {"OARCONFFILE": runtime.conf_file, "OARDIR": runtime.oardir, "PATH": DEFAULT_PATH}

    def plans(self, queue: Queue) -> bool:
        if policy_of(queue.policy) is None:
            return True
        return self._is_everywhere and bool(_NAME.match(queue.policy)) and os.access(self._program(queue), os.X_OK)

    def run(self, queue: Queue, now: int) -> ProgramOutput | None:
        """Run the program of a queue; return its output and result, or None if it failed."""
        if not _NAME.match(queue.policy):
            self._failed(queue, f"Execution of {queue.policy} failed (not a valid program name)")
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
        return ProgramOutput(lines, gave_up=outcome.code == GAVE_UP)

    def _program(self, queue: Queue) -> Path:
        return self._directory / queue.policy

    def _trouble(self, name: str, outcome: processes.CommandOutcome, now: int) -> str:
        """Return why a program has failed; return '' if it has not."""
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
        """Record a failure; after too many consecutive ones, stop the queue and notify the administrator."""
        count = self._failures[queue.name] = self._failures.get(queue.name, 0) + 1
        if count < self._most_failures:
            log.error("%s. Failure %d of %d in a row; queue %s waits", trouble, count, self._most_failures, queue.name)
            return
        text = (
            f"{trouble}. The queue {queue.name} is stopped."
            f" Correct the scheduler, then run: oarqueue --enable {queue.name}"
        )
        log.error("%s", text)
        del self._failures[queue.name]
        with self._database.begin() as tx:
            tx.queues.set_state([queue.name], QueueState.NOT_ACTIVE)
            tx.outbox.append(Mail(f"Queue {queue.name} stopped", text))

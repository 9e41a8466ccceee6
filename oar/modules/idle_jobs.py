"""Idle jobs: warn the owners of jobs that leave their GPUs or cores idle, then end these jobs.

Sarko looks at the curves of running jobs every ``LOOK_SECONDS``, if the site has rules: between its passes, in slices,
so that no walltime waits for it. A warning is an event and a mail to the owner; an end has its own cause. See
docs/administrator-guide.rst, "Idle jobs".
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.base.times import format_date
from oar.lib.bus.messages import UserMail
from oar.lib.config.idle_rules import IdleRule, written_duration
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control
from oar.lib.jobs.curves import PERIOD, ends_of
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.idleness import Kind, Step, Watched, judge
from oar.lib.jobs.sql_curves import HeldUnits, IdleCandidate
from oar.lib.jobs.states import JobState
from oar.lib.jobs.usage import GPU_PROPERTY, count_gpus, count_processors
from oar.modules.worker import run_in_batches

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.runtime import Runtime

log = logging.getLogger(__name__)

LOOK_SECONDS = 120.0
#: Limits of a slice: jobs, and curves of jobs with several nodes.
_MOST_JOBS, _MOST_CURVES = 100, 200

Rules = Mapping[Kind, Sequence[IdleRule]]


def rules_of(config: "Config") -> Rules:
    """Return the rules of the site about each kind."""
    return {Kind.GPU: config.idle_gpu_rules, Kind.CPU: config.idle_cpu_rules}


class IdleWatch:
    """The looks at idle jobs, in slices between the passes of a module."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self._next = 0.0
        self._waiting: list[IdleCandidate] = []  #: that are still to be judged in this look
        self._measured: dict[int, int] = {}  #: ends of curves that were later than the clock, as after it was set back
        self._has_failed = False  #: in this look
        self._is_known_to_fail = False  #: the look before has failed

    def follow(self, runtime: "Runtime") -> None:
        """Use a configuration from now on."""
        self._runtime = runtime

    def due(self) -> float | None:
        """Return the time in seconds until the next slice; None if the site has no rules."""
        if self._runtime is None or not any(rules_of(self._runtime.config).values()):
            return None
        return 0.0 if self._waiting else max(0.0, self._next - time.monotonic())

    def go_on(self) -> None:
        """Do a slice. A failure is logged once, until a look succeeds; the next slice has other jobs."""
        assert self._runtime is not None
        try:
            self._do_slice(self._runtime, rules_of(self._runtime.config))
        except DatabaseUnavailable as error:
            self._waiting = []
            self._complain(f"cannot look for idle jobs: {error}")
        except Exception as error:  # noqa: BLE001 - no error here may end the module
            self._complain("cannot judge some jobs by the rules about idle jobs", error)

    def _complain(self, text: str, error: Exception | None = None) -> None:
        if not (self._has_failed or self._is_known_to_fail):
            log.error("%s", text, exc_info=error)
        self._has_failed = True

    def _do_slice(self, runtime: "Runtime", rules: Rules) -> None:
        if not self._waiting:
            self._next = time.monotonic() + LOOK_SECONDS
            self._is_known_to_fail, self._has_failed = self._has_failed, False
            self._waiting = self._candidates(runtime, rules)
            return
        part, self._waiting = split(self._waiting)
        with runtime.database.snapshot() as tx:
            steps = list(self._steps(tx, part, rules, runtime.config))
        run_in_batches(runtime.database, [step for step in steps if not step.ends], _warn)
        ends = partial(_end, config=runtime.config)
        run_in_batches(runtime.database, [step for step in steps if step.ends], ends)

    def _candidates(self, runtime: "Runtime", rules: Rules) -> list[IdleCandidate]:
        shortest = min(rule.seconds for of_kind in rules.values() for rule in of_kind)
        with runtime.database.snapshot() as tx:
            candidates = tx.job_curves.idle_candidates(tx.now - shortest)
        ids = {candidate.job_id for candidate in candidates}
        self._measured = {job_id: date for job_id, date in self._measured.items() if job_id in ids}
        return candidates

    def _steps(
        self, tx: "Transaction", candidates: Sequence[IdleCandidate], rules: Rules, config: "Config"
    ) -> Iterator[Step]:
        kinds = {rule.sentence(kind): kind for kind in rules for rule in rules[kind]}
        ids = [candidate.job_id for candidate in candidates]
        warnings = tx.job_curves.idle_warnings(ids)
        for job in watched_jobs(tx, candidates, config.job_resource_manager_property_db_field):
            warned = {text: date for text in kinds if (date := _warned(warnings.get(job.job_id, ()), text))}
            if step := judge(self._since_measured(job, tx.now), rules, warned, tx.now):
                yield step

    def _since_measured(self, job: Watched, now: int) -> Watched:
        """Return a job without the time before the end of a curve that was once later than the clock.

        After the clock was set back, no points are stored for that time: those that exist are of the time before.
        """
        until = max(ends_of(job.curves))
        if until > now + max(curve.step for curve in job.curves):
            self._measured[job.job_id] = until
        return job._replace(running_since=max(job.running_since, self._measured.get(job.job_id, 0)))


def split(candidates: Sequence[IdleCandidate]) -> tuple[list[IdleCandidate], list[IdleCandidate]]:
    """Return the candidates of a slice, at least one, and the others."""
    number, curves = 0, 0
    while number < min(len(candidates), _MOST_JOBS) and (not number or curves < _MOST_CURVES):
        curves += candidates[number].curves
        number += 1
    return list(candidates[:number]), list(candidates[number:])


def watched_jobs(tx: "Transaction", candidates: Sequence[IdleCandidate], core_property: str | None) -> list[Watched]:
    """Return the candidates with their curves, and with what they have."""
    ids = [candidate.job_id for candidate in candidates]
    curves = tx.job_curves.of_jobs(ids)
    units: dict[int, list[HeldUnits]] = {job_id: [] for job_id in ids}
    columns = tx.resources.columns()
    gpus, cores = (name if name in columns else None for name in (GPU_PROPERTY, core_property))
    for held in tx.job_curves.held_units(ids, gpus, cores):
        units[held.job_id].append(held)
    return [
        Watched(
            job_id,
            user,
            since,
            sum(count_processors(held.cores) for held in units[job_id]),
            {held.node: count_gpus(held.gpus) for held in units[job_id]},
            curves[job_id],
        )
        for job_id, user, since, _ in candidates
        if curves[job_id]
    ]


def _warned(warnings: Sequence[tuple[int, str]], rule: str) -> int:
    return max((date for date, text in warnings if text.endswith(_rule_text(rule))), default=0)


def _rule_text(sentence: str) -> str:
    return f"Rule of this site: {sentence}"


def _about(step: Step) -> str:
    idle, kind = step.idle, step.kind
    things = f"{idle.size} {'GPU' if kind is Kind.GPU else 'core'}{'s' * (idle.size != 1)}"
    length = written_duration((idle.until - idle.since) // PERIOD * PERIOD)
    return f"used {idle.per_mille / 10:g} % of its {things} for {length}, since {format_date(idle.since)}"


def _warn(tx: "Transaction", steps: Sequence[Step]) -> None:
    """Write the events and the mails of warnings."""
    for step in steps:
        job_id, rule = step.job.job_id, _rule_text(step.rule.sentence(step.kind))
        tx.events.add(EventType.IDLE_JOB_WARNED, job_id, f"[Sarko] job {job_id} {_about(step)}. {rule}")
        end = ""
        if step.rule.grace is not None:
            end = f"\nThe server will end it at {format_date(tx.now + step.rule.grace)} if it stays idle."
        text = (
            f"Job {job_id} {_about(step)}.{end}\n{rule}.\n\n"
            f"Show what it used over time: oarstat --usage -f {job_id}\n"
            f"Delete it if you do not need it: oardel {job_id}\n"
        )
        tx.outbox.append(UserMail((step.job.user,), f"job {job_id} is idle", text))


def _end(tx: "Transaction", steps: Sequence[Step], *, config: "Config") -> None:
    """Request the end of jobs; those that do not run any more are not changed."""
    running = {job.id for job in tx.jobs.select([step.job.job_id for step in steps]) if job.state is JobState.RUNNING}
    ending = [step for step in steps if step.job.job_id in running]
    control.ask_end(
        tx,
        {step.job.job_id: _cause(step) for step in ending},
        with_inner=config.kill_inner_jobs_with_container,
        reasons=[(EventType.IDLE_JOB_ENDED, step.job.job_id, _end_text(step)) for step in ending],
    )


def _cause(step: Step) -> Cause:
    return Cause(EndCode.IDLE, {"idle": _about(step), "rule": step.rule.sentence(step.kind)})


def _end_text(step: Step) -> str:
    rule = _rule_text(step.rule.sentence(step.kind))
    return f"[Sarko] job {step.job.job_id} {_about(step)}: it is killed. {rule}"

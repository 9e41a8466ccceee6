"""Idle jobs: warn the owners of jobs that leave their GPUs or cores idle, then end these jobs.

Sarko looks at the curves of running jobs every ``LOOK_SECONDS``, if the site has rules. A warning is an event and a
mail to the owner; an end has its own cause. See docs/administrator-guide.rst, "Idle jobs".
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from oar.lib.base.times import format_date, format_duration
from oar.lib.bus.messages import UserMail
from oar.lib.config.idle_rules import IdleRule
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.idleness import Kind, Step, Watched, judge
from oar.lib.jobs.sql_curves import IdleCandidate
from oar.lib.jobs.states import JobState
from oar.lib.jobs.usage import job_usages
from oar.modules.worker import run_in_batches

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.runtime import Runtime

LOOK_SECONDS = 120.0
#: Jobs whose curves are read together.
_TOGETHER = 200

Rules = Mapping[Kind, Sequence[IdleRule]]


def rules_of(config: "Config") -> Rules:
    """Return the rules of the site about each kind."""
    return {Kind.GPU: config.idle_gpu_rules, Kind.CPU: config.idle_cpu_rules}


class IdleWatch:
    """The looks at idle jobs between passes."""

    def __init__(self) -> None:
        self._next = 0.0

    def follow(self, runtime: "Runtime") -> None:
        """Look at the running jobs, if it is time and the site has rules."""
        rules = rules_of(runtime.config)
        if any(rules.values()) and time.monotonic() >= self._next:
            self._next = time.monotonic() + LOOK_SECONDS
            look(runtime, rules)


def look(runtime: "Runtime", rules: Rules) -> None:
    """Warn and end idle jobs."""
    steps = list(_steps(runtime, rules))
    run_in_batches(runtime.database, [step for step in steps if not step.ends], _warn)
    ends = partial(_end, config=runtime.config)
    run_in_batches(runtime.database, [step for step in steps if step.ends], ends)


def _steps(runtime: "Runtime", rules: Rules) -> Iterator[Step]:
    shortest = min(rule.seconds for of_kind in rules.values() for rule in of_kind)
    with runtime.database.snapshot() as tx:
        candidates = tx.job_curves.idle_candidates(tx.now - shortest)
    for start in range(0, len(candidates), _TOGETHER):
        with runtime.database.snapshot() as tx:
            yield from _judged(tx, candidates[start : start + _TOGETHER], rules, runtime.config)


def _judged(tx: "Transaction", candidates: Sequence[IdleCandidate], rules: Rules, config: "Config") -> Iterator[Step]:
    ids = [candidate.job_id for candidate in candidates]
    curves, warnings = tx.job_curves.of_jobs(ids), tx.job_curves.idle_warnings(ids)
    usages = job_usages(tx, tx.jobs.select(ids), config.job_resource_manager_property_db_field)
    cores = {usage.job.id: usage.cores for usage in usages}
    for each in candidates:
        job = Watched(*each, cores.get(each.job_id, 0), curves[each.job_id])
        texts = {rule.text(kind): kind for kind in rules for rule in rules[kind]}
        warned = {text: date for text in texts if (date := _warned(warnings.get(each.job_id, ()), text))}
        if step := judge(job, rules, warned, tx.now):
            yield step


def _warned(warnings: Sequence[tuple[int, str]], rule: str) -> int:
    return max((date for date, text in warnings if f"({rule})" in text), default=0)


def _about(step: Step) -> str:
    idle, kind = step.idle, step.kind
    things = f"{idle.size} {'GPU' if kind is Kind.GPU else 'core'}{'s' * (idle.size != 1)}"
    length = format_duration(idle.until - idle.since)
    return f"used {idle.per_mille / 10:g} % of its {things} for {length}, since {format_date(idle.since)}"


def _warn(tx: "Transaction", steps: Sequence[Step]) -> None:
    """Write the events and the mails of warnings."""
    for step in steps:
        job_id, rule = step.job.job_id, step.rule.text(step.kind)
        tx.events.add(EventType.IDLE_JOB_WARNED, job_id, f"[Sarko] job {job_id} {_about(step)} ({rule})")
        end = ""
        if step.rule.grace is not None:
            end = f"\nIt is ended at {format_date(tx.now + step.rule.grace)} if it stays idle."
        text = (
            f"Job {job_id} {_about(step)}.{end}\nRule of this site: {rule}\n\n"
            f"What it used over time: oarstat --usage -f {job_id}\nEnd it if you do not need it: oardel {job_id}\n"
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
    return Cause(EndCode.IDLE, {"idle": _about(step), "rule": step.rule.text(step.kind)})


def _end_text(step: Step) -> str:
    return f"[Sarko] job {step.job.job_id} {_about(step)}: it is killed ({step.rule.text(step.kind)})"

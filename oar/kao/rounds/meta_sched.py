"""One scheduling round: read, plan, write, tell.

``MetaScheduler`` is warm: it lives as long as its worker and keeps what the next round may use again.  A cold one
decides the same.  It opens no connection to nodes or frontends; what they must be told it leaves to the Runner.

See docs/design/planner.rst, "A round".
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from oar.kao.facts.job_types import expiry_date
from oar.kao.facts.plan import KillAction, Plan
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.schedule import Round
from oar.kao.rounds import plugins, token_scripts
from oar.kao.rounds.external_schedulers import ExternalSchedulers, RoundPrograms
from oar.kao.rounds.garbage_collection import resting
from oar.kao.rounds.plan_faults import PlanGuard
from oar.kao.rounds.plan_writer import PlanWriter
from oar.kao.rounds.situation import Situation, TokenCounts
from oar.kao.rounds.snapshot_files import save_latest
from oar.kao.rounds.snapshot_reader import CACHE_LIFETIME, SnapshotReader
from oar.kao.rounds.timing_log import TimingLog
from oar.kao.rounds.walltime_updates import WalltimeUpdates
from oar.lib.db.lock_keys import ROUND_LOCK
from oar.lib.db.locks import Locks
from oar.lib.db.transaction import Transaction
from oar.lib.facts.errors import Unavailable
from oar.lib.facts.messages import Ask, JobAction, Mail
from oar.lib.facts.states import JobState, QueueState, Reservation
from oar.lib.facts.times import format_date
from oar.lib.runtime import Runtime

log = logging.getLogger(__name__)

#: Exit codes of a round (docs/how-it-works.rst, "The automaton").
DONE, AGAIN, KILL = 0, 1, 2

#: An interactive job hears its prediction when it changes, and at least so often.
PREDICTION_PERIOD = 60

Announce = Callable[[Sequence[str]], None]


def nobody(queues: Sequence[str]) -> None:
    """Announce a group of queues to nobody."""


class MetaScheduler:
    """The scheduler of a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database
        self._platform = SnapshotReader(runtime.database, runtime.config)
        self._writer = PlanWriter(keeps_all_plans=runtime.config.scheduler_log_decisions)
        self._locks: Locks | None = None
        self._last_date = 0
        self._programs = ExternalSchedulers(runtime)
        self._timings = TimingLog(runtime.config)
        self._has_extra = plugins.has_extra(runtime.config)
        self._config = runtime.config
        self._granting = WalltimeUpdates(runtime.database, runtime.config)
        self._guard = PlanGuard(runtime.config.oar_run_dir)
        self._run_dir, self._rounds_kept = Path(runtime.config.oar_run_dir), runtime.config.scheduler_rounds_kept
        self._memory: RoundMemory | None = None
        self._planned_anew = 0  #: date of the last plan from nothing
        self.next_start: int | None = None  #: when the next job is to start or to be given up, as the last round knows
        self._told: dict[int, tuple[str, int]] = {}
        scripts = runtime.config.scheduler_token_scripts or {}
        self._ask_tokens = partial(token_scripts.ask, scripts, runtime.config.scheduler_timeout or 10)
        self._levels = [name for name in runtime.config.scheduler_priority_hierarchy_order.split("/") if name]
        self._logs_weights = runtime.config.log_scheduler_priority_changes
        self._is_weighed = True  #: there may be weights; the first round looks

    def round(self, *, disable: Sequence[str] = (), announce: Announce = nobody) -> int:
        """Make one round; return its exit code.

        ``disable``: queues to stop first.  ``announce`` is told each group of queues before it is planned.  Raises
        Unavailable when another round is going on.
        """
        with self._alone(), resting():
            if disable:
                self._stop_queues(disable)
            self._weigh()
            try:
                plan = self._read_and_plan(announce)
            except BaseException:
                self._forget()
                raise
        return exit_code(plan)

    def _read_and_plan(self, announce: Announce) -> Plan:
        tokens = _asked_once(self._ask_tokens)
        situation = self._platform.read(tokens)
        if self._granting.grant(situation):
            self._platform.forget()
            situation = self._platform.read(tokens)
        if situation.starts.get(0, 0) != self._last_date:
            self._writer.forget()
            self._memory = None
        plan = self._plan(situation, announce)
        self._write(situation, plan)
        self.next_start = next_start(situation, plan)
        return plan

    def _forget(self) -> None:
        """Begin anew with the next round: this one has broken off."""
        self._platform.forget()
        self._writer.forget()
        self._memory = None

    def close(self) -> None:
        """Give back the connection that holds the lock."""
        if self._locks:
            self._locks.close()
            self._locks = None

    def _plan(self, situation: Situation, announce: Announce) -> Plan:
        begin = time.monotonic()
        now = situation.snapshot.now
        if self._rounds_kept:
            save_latest(situation.snapshot, self._run_dir, "round", self._rounds_kept)
        if self._memory is None or not 0 <= now - self._planned_anew < CACHE_LIFETIME:
            self._memory, self._planned_anew = None, now
        outside = RoundPrograms(self._programs, situation)
        site = plugins.site_of(self._config, outside)
        this = Round(situation.snapshot, lambda: time.monotonic() - begin - outside.seconds, self._memory, site)
        made = this.plan(announce)
        plan = self._guard.without_faults(situation.snapshot, made, this.requests)
        self._timings.write(situation.snapshot, plan, this.seconds)
        self._guard.log_troubles(situation.snapshot, plan)
        log.debug("%d of %d jobs have not changed", this.reused, len(situation.snapshot.waiting))
        is_ours = plan is made and not (outside.was_used or self._has_extra)
        self._memory = this.memory(plan) if is_ours else None
        if outside.was_used:
            self._writer.forget()
        return plan

    def _write(self, situation: Situation, plan: Plan) -> None:
        told = self._predictions(situation, plan)

        def work(tx: Transaction) -> None:
            self._writer.write(tx, situation, plan)
            tx.outbox.extend(Ask(JobAction.TELL, job_id, (line,)) for job_id, line in told)

        self._database.run(work)
        self._writer.remember(situation, plan)
        self._last_date = plan.now

    def _predictions(self, situation: Situation, plan: Plan) -> list[tuple[int, str]]:
        """Return the lines for interactive jobs that wait: those that changed, and those not heard for a while."""
        starts = {placement.job_id: placement.start for placement in plan.placements}
        started = {start.placement.job_id for start in plan.started}
        told: dict[int, tuple[str, int]] = {}
        lines = []
        for job in situation.snapshot.waiting:
            is_asking = job.is_interactive and job.reservation is Reservation.NONE and job.state is JobState.WAITING
            if not is_asking or job.id in started or job.id not in plan.messages:
                continue
            text = prediction_text(plan, job.id, starts.get(job.id))
            before, date = self._told.get(job.id, ("", 0))
            if text == before and plan.now - date < PREDICTION_PERIOD:
                told[job.id] = before, date
                continue
            told[job.id] = text, plan.now
            lines.append((job.id, f"[{format_date(plan.now)}] Start prediction: {text}"))
        self._told = told
        return lines

    def _weigh(self) -> None:
        """Let ``scheduler_priority`` say near which resources there are besteffort and timesharing jobs."""
        if not self._levels:
            return
        with self._database.begin() as tx:
            shared = tx.resources.has_shared_jobs()
            if shared or self._is_weighed:
                columns = tx.resources.columns()
                levels = [name for name in self._levels if name in columns]
                tx.resources.weigh(levels, logged=self._logs_weights)
            self._is_weighed = shared

    def _stop_queues(self, names: Sequence[str]) -> None:
        """Stop queues at which rounds broke off; the others are scheduled without them."""
        text = f"Rounds broke off at the queues {', '.join(names)}: they are stopped (see oarnotify -e)."
        log.error("%s", text)
        with self._database.begin() as tx:
            tx.queues.set_state(names, QueueState.NOT_ACTIVE)
            tx.outbox.append(Mail("Queues stopped", text))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other rounds from beginning."""
        if self._locks is None or not self._locks.alive():
            self._locks = self._database.locks()
        if not self._locks.acquire(ROUND_LOCK):
            raise Unavailable(f"another round is going on: {self._database.lock_holder(ROUND_LOCK)}")
        try:
            yield
        finally:
            self._locks.release(ROUND_LOCK)


def _asked_once(ask: TokenCounts) -> TokenCounts:
    """Return what asks the site for each token once, however often it is called."""
    known: dict[str, int | None] = {}

    def tokens(names: Iterable[str]) -> Mapping[str, int | None]:
        wanted = list(names)
        known.update(ask([name for name in wanted if name not in known]))
        return {name: known[name] for name in wanted}

    return tokens


def prediction_text(plan: Plan, job_id: int, start: int | None) -> str:
    """Return when an interactive job is expected to start, and its message; else why that is not known."""
    if start is None:
        reason = plan.reasons.get(job_id)
        return f"undefined ({reason.text if reason else ''})"
    return f"{format_date(start)} ({plan.messages[job_id]})"


def exit_code(plan: Plan) -> int:
    """Return what Almighty has to do after a round."""
    if any(each.action is not KillAction.CHECKPOINT for each in plan.kills):
        return KILL
    return AGAIN if any(answer.start <= plan.now + 1 for answer in plan.accepted) else DONE


def next_start(situation: Situation, plan: Plan) -> int | None:
    """Return the first date after now at which a job is to start, or to be given up.

    Reservations are not counted, Sarko watches them.
    """
    waiting = situation.snapshot.waiting
    reserved = {job.id for job in waiting if job.reservation is not Reservation.NONE}
    starts = (each.start for each in plan.placements if each.job_id not in reserved)
    ends = (expiry_date(job) for job in waiting if job.types and job.id not in reserved)
    return min((date for date in (*starts, *ends) if date > plan.now), default=None)


def run(runtime: Runtime, *, disable: Sequence[str] = (), announce: Announce = nobody) -> int:
    """Make one round with a scheduler of its own."""
    scheduler = MetaScheduler(runtime)
    try:
        return scheduler.round(disable=disable, announce=announce)
    finally:
        scheduler.close()

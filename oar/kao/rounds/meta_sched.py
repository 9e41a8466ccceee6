"""One scheduling round: read, plan, write, notify.

``MetaScheduler`` is warm: it exists as long as its worker and keeps data for the next round.  A cold one makes the same
decisions.  It opens no connections to nodes or frontends; the Runner sends the messages to them.

See docs/design/planner.rst, "A round".
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.advance_reservations.search import SEARCH_SECONDS, SearchClock
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.planner.schedule import Round
from oar.kao.rounds.garbage_collection import collect, is_full_collection_due, resting
from oar.kao.rounds.plan_faults import PlanGuard
from oar.kao.rounds.plan_tail import Foreseen, FullPlan, MakeRound, PlanTail
from oar.kao.rounds.reading.policy_watch import PolicyWatch
from oar.kao.rounds.reading.situation import Situation, TokenCounts
from oar.kao.rounds.reading.snapshot_reader import CACHE_LIFETIME, SnapshotReader
from oar.kao.rounds.round_lock import RoundLock
from oar.kao.rounds.round_results import (
    InteractivePredictions,
    RoundPart,
    RoundPhases,
    exit_code,
    next_start,
    report_timings,
)
from oar.kao.rounds.site import plugins, token_scripts
from oar.kao.rounds.site.external_schedulers import ExternalSchedulers
from oar.kao.rounds.site.scheduler_programs import SchedulerPrograms
from oar.kao.rounds.snapshot_files import save_latest
from oar.kao.rounds.writing import held_launches
from oar.kao.rounds.writing.plan_writer import PlanWriter
from oar.kao.rounds.writing.walltime_updates import WalltimeUpdates
from oar.lib.base.clock_watch import ClockWatch
from oar.lib.base.errors import Unavailable
from oar.lib.bus.messages import Ask, JobAction, Mail, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.states import QueueState
from oar.lib.reservations import repairs as reservation_repairs
from oar.lib.runtime import Runtime


class ResourceWeights:
    """Keeps ``scheduler_priority`` of all resources up to date."""

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._levels = [name for name in config.scheduler_priority_hierarchy_order.split("/") if name]
        self._are_changes_logged = config.log_scheduler_priority_changes
        self._may_be_set = True  #: there may be weights; the first round looks

    def update(self) -> None:
        """Update the weights while there are besteffort or timesharing jobs, and once after the last of them."""
        if not self._levels or not (self._may_be_set or self._database.look(_has_shared_jobs)):
            return
        with self._database.begin() as tx:
            has_shared_jobs = _has_shared_jobs(tx)
            columns = tx.resources.columns()
            levels = [name for name in self._levels if name in columns]
            tx.resources.weigh(levels, logged=self._are_changes_logged)
        self._may_be_set = has_shared_jobs


def _has_shared_jobs(tx: Transaction) -> bool:
    return tx.resources.has_shared_jobs()


log = logging.getLogger(__name__)


#: An urgent pass that cannot say what starts tries to so long, in seconds.
LONGEST_URGENT = 1.0


#: After so many seconds in which it was not certain what may start, a round plans all jobs.
LONGEST_DOUBT = 30


#: The predictions of so many jobs are written between two rounds.
PORTION = 400


Announce = Callable[[Sequence[str]], None]


def nobody(queues: Sequence[str]) -> None:
    """Ignore the announcement of a group of queues."""


class MetaScheduler:
    """Makes the scheduling rounds of a runtime."""

    def __init__(self, runtime: Runtime, *, goes_on: bool = False, watch: ClockWatch | None = None) -> None:
        """``goes_on``: the caller calls ``go_on`` between the rounds, so that a round need not plan all jobs.

        ``watch`` detects changes of the clock; None: changes are not detected.
        """
        self._database = runtime.database
        self._platform = SnapshotReader(runtime.database, runtime.config, watch)
        self._policies = PolicyWatch(runtime.database, runtime.config)
        self._writer = PlanWriter(runtime.config)
        self._lock = RoundLock(runtime.database)
        self._last_date = 0
        self._programs = SchedulerPrograms(runtime)
        self._has_extra = plugins.has_extra(runtime.config)
        self._config = runtime.config
        self._granting = WalltimeUpdates(runtime.database, runtime.config)
        self._guard = PlanGuard(runtime.config.oar_run_dir)
        self._reservation_guard = PlanGuard(runtime.config.oar_run_dir)
        self._run_dir, self._rounds_kept = Path(runtime.config.oar_run_dir), runtime.config.scheduler_rounds_kept
        self._urgent_time = runtime.config.scheduler_urgent_time if goes_on else 0.0
        self._tail = PlanTail(PlanGuard(runtime.config.oar_run_dir))
        self._foreseen = Foreseen()
        self._situation: Situation | None = None  #: of the last round
        self._requests: tuple[Snapshot, CompiledRequests] | None = None
        self._certain_at = 0  #: date of the last round that could decide on all starts
        self._is_tail_broken = False
        self._clock = SearchClock()  #: of the present round
        self._planned_anew = 0  #: date of the last plan from nothing
        self.next_start: int | None = None  #: when the next job is to start or to be given up, as the last round knows
        self.starts = 0  #: jobs that the last round has started
        self.phases = RoundPhases()  #: of the last round
        self._predictions = InteractivePredictions()
        scripts = runtime.config.scheduler_token_scripts or {}
        self._ask_tokens = partial(token_scripts.ask, scripts, runtime.config.scheduler_timeout or 10)
        self._weights = ResourceWeights(runtime.database, runtime.config)

    def round(self, *, disable: Sequence[str] = (), announce: Announce = nobody) -> int:
        """Make one round; return its exit code.

        ``disable``: queues to stop first.  ``announce`` is called with each group of queues before it is planned.

        Raises Unavailable if another round is running.
        """
        self.phases = RoundPhases()
        with self._lock.held() as is_first, resting():
            if is_first:
                self._forget()
            if disable:
                self._stop_queues(disable)
            self._weights.update()
            try:
                plan = self._read_and_plan(announce)
            except BaseException:
                self._forget()
                raise
        return exit_code(plan)

    def _read_and_plan(self, announce: Announce) -> Plan:
        tokens = _asked_once(self._ask_tokens)
        with self.phases.of(RoundPart.READ):
            situation = self._read(tokens)
        if situation.starts.get(0, 0) != self._last_date:
            self._writer.forget()
            self._tail.forget()
            self._foreseen.forget()
        self._clock = SearchClock(time.monotonic)
        with self.phases.of(RoundPart.PLAN):
            has_answered = self._answer_reservations(situation)
        if has_answered:
            with self.phases.of(RoundPart.READ):
                situation = self._platform.read(tokens)
        self.phases.jobs = len(situation.snapshot.waiting)
        self.phases.file_errors = self._platform.file_errors
        with self.phases.of(RoundPart.PLAN):
            plan = self._plan(situation, announce)
        if rivals := held_launches.find_rivals(situation, plan):
            with self.phases.of(RoundPart.READ):
                situation = self._platform.read(tokens, rivals=rivals)
            self._clock = SearchClock(time.monotonic)  # the time used for rivals does not reduce that of other searches
            with self.phases.of(RoundPart.PLAN):
                plan = self._plan(situation, announce)
        plan = held_launches.restrain(situation, plan)
        with self.phases.of(RoundPart.WRITE):
            self._write(situation, plan)
        trials = [hold.next_try for hold in situation.launch_holds if hold.next_try > plan.now]
        following = min(filter(None, [next_start(situation.snapshot, plan), *trials]), default=None)
        self.next_start = following + self._platform.ahead if following else None
        return plan

    def _read(self, tokens: TokenCounts) -> Situation:
        """Read the situation; read it again if repairs or walltime grants have changed the data."""
        situation = self._platform.read(tokens)
        self._policies.look(situation.snapshot.queues, situation.snapshot.now)
        if self._repair(situation) or self._granting.grant(situation):
            self._platform.forget()
            situation = self._platform.read(tokens)
        return situation

    def _answer_reservations(self, situation: Situation) -> bool:
        """Write the due decisions on advance reservations early, before the jobs; return whether anything was due."""
        snapshot = situation.snapshot
        is_due = snapshot.reservation_changes or any(each.is_due(snapshot.now) for each in snapshot.reservations)
        if not is_due:
            return False
        planning = Round(snapshot, memory=self._tail.memory, requests=self._requests, clock=self._clock)
        plan = self._reservation_guard.without_faults(snapshot, planning.plan_reservations(), planning.requests)
        self._reservation_guard.log_troubles(snapshot, plan)
        self._database.run(lambda tx: self._writer.write_reservations(tx, situation, plan))
        if self._clock.left_over:
            text = "%d advance reservations wait for the next round: the searches for others have taken %g s"
            log.warning(text, len(self._clock.left_over), SEARCH_SECONDS)
        return True

    def _repair(self, situation: Situation) -> bool:
        """Repair inconsistent rows of advance reservations; return whether there were any."""
        if not situation.reservations_need_repair:
            return False
        patience, ahead = self._config.reservation_answer_timeout, self._platform.ahead
        with self._database.begin() as tx:
            mended = reservation_repairs.repair(tx, patience=patience, ahead=ahead)
        for fault, number in mended.items():
            log.warning("%d rows of advance reservations are mended: %s", number, fault)
        return True

    def _forget(self) -> None:
        """Delete all cached data, because this round was aborted; the next round is cold."""
        self._platform.forget()
        self._writer.forget()
        self._tail.forget()
        self._foreseen.forget()
        self._requests = None

    def close(self) -> None:
        self._lock.close()

    def due(self) -> float | None:
        """Return the number of seconds until ``go_on`` has work; return None if there is none."""
        return 0.0 if self._foreseen.has_rest or is_full_collection_due() else self._tail.due()

    def go_on(self) -> None:
        """Continue a full plan between rounds; request a round when the plan is complete."""
        if is_full_collection_due():  # a collection takes a slice of its own
            collect()
            return
        try:
            if self._foreseen.has_rest:
                self._write_portion()
            elif self._tail.go_on() and self._tail.last:
                self._foreseen.renew(self._tail.last)
        except Unavailable:  # another process makes a round, which replaces all predictions
            self._forget()
        except Exception:  # the next round makes the full plan and reports the error
            log.exception("a full plan broke off")
            self._forget()
            self._is_tail_broken = True

    def _write_portion(self) -> None:
        """Write a portion of a full plan; after the last one, request a round that checks the plan again."""
        situation = self._situation
        if situation is None:
            self._foreseen.forget()
            return
        with self._lock.held() as is_first, resting():
            if is_first:
                self._forget()
                return
            plan = self._foreseen.portion(PORTION, self._last_date)
            is_last = not self._foreseen.has_rest

            def work(tx: Transaction) -> None:
                self._writer.write_portion(tx, situation, plan)
                if is_last:
                    tx.outbox.append(Wake(Tag.SCHEDULING))

            self._database.run(work)
            self._writer.remember_portion(plan)

    def _plan(self, situation: Situation, announce: Announce) -> Plan:
        begin = time.monotonic()
        snapshot = situation.snapshot
        if self._rounds_kept:
            save_latest(snapshot, self._run_dir, "round", self._rounds_kept)
        if self._tail.memory is None or not 0 <= snapshot.now - self._planned_anew < CACHE_LIFETIME:
            self._tail.memory, self._planned_anew = None, snapshot.now
        memory = self._tail.memory
        may_start_jobs = self._config.scheduler_launcher_optimization
        external = ExternalSchedulers(self._database, self._programs, situation, may_start_jobs=may_start_jobs)
        site = plugins.site_of(self._config, external)

        def make(elapsed: Callable[[], float]) -> Round:
            return Round(snapshot, elapsed, memory, site, requests=requests, clock=self._clock)

        requests = self._requests
        planning = make(lambda: time.monotonic() - begin - external.seconds)
        unchecked = self._planned(planning, snapshot, announce)
        if unchecked is None:
            planning = make(lambda: time.monotonic() - begin - external.seconds)
            unchecked = planning.plan(announce)
        self._requests = planning.compiled
        plan = self._guard.without_faults(snapshot, unchecked, planning.requests)
        report_timings(self._config, snapshot, plan, planning.seconds)
        self._guard.log_troubles(snapshot, plan)
        log.debug("%d of %d jobs have not changed", planning.reused, len(snapshot.waiting))
        self.phases.undecided = len(plan.undecided)
        if external.was_used:
            self._writer.forget()
        if plan.undecided:
            return self._with_tail(plan, snapshot, make)
        is_ours = plan is unchecked and not (external.was_used or self._has_extra)
        full = FullPlan(snapshot, plan)
        self._tail.take_over(full, planning.memory(plan) if is_ours else None)
        self._foreseen.settle(full)
        self._is_tail_broken = False
        return plan

    def _with_tail(self, plan: Plan, snapshot: Snapshot, make: MakeRound) -> Plan:
        """Return a plan with predictions for the other jobs; request a full plan unless it exists."""
        merged = self._foreseen.merged(plan, snapshot)
        if self._tail.last is None or not self._tail.last.is_of(snapshot):
            self._tail.want(snapshot, make)
            return merged
        return merged if self._foreseen.has_rest else replace(merged, foreseen_at=plan.now)

    def _planned(self, planning: Round, snapshot: Snapshot, announce: Announce) -> Plan | None:
        """Return the plan of a round, urgent if possible; return None if only a full plan can decide what starts."""
        if self._urgent_time <= 0 or self._is_tail_broken:
            return planning.plan(announce)
        begin = time.process_time()  # CPU time, so that the load of the machine has no influence
        least = 0.0 if self._tail.is_resting else self._urgent_time
        plan = planning.urgent(
            lambda: time.process_time() - begin >= least,
            lambda: time.process_time() - begin > max(LONGEST_URGENT, 2 * least),
            announce,
        )
        if plan.is_certain or not self._certain_at:
            self._certain_at = snapshot.now
            return plan
        is_settled = self._tail.last is not None and self._tail.last.is_of(snapshot)
        return None if is_settled or snapshot.now - self._certain_at > LONGEST_DOUBT else plan

    def _write(self, situation: Situation, plan: Plan) -> None:
        lines = self._predictions.lines(situation.snapshot.waiting, plan)

        def work(tx: Transaction) -> int:
            started = self._writer.write(tx, situation, plan)
            tx.outbox.extend(Ask(JobAction.TELL, line.job_id, (line.text,)) for line in lines)
            return len(started)

        self.starts = self._database.run(work)
        self._writer.remember(situation, plan)
        self._tail.pause(self._writer.changes)
        self._last_date = plan.now
        self._situation = situation

    def _stop_queues(self, names: Sequence[str]) -> None:
        """Stop queues whose rounds failed; the other queues are scheduled without them."""
        text = (
            f"queues stopped: {', '.join(names)}: their scheduling passes failed."
            " Correct the error in LOG_FILE, then run for each queue: oarqueue --enable QUEUE"
        )
        log.error("%s", text)
        with self._database.begin() as tx:
            tx.queues.set_state(names, QueueState.NOT_ACTIVE)
            tx.outbox.append(Mail("Queues stopped", text))


def _asked_once(ask: TokenCounts) -> TokenCounts:
    """Return a function that requests each token count from the site only once."""
    counts: dict[str, int | None] = {}

    def tokens(names: Iterable[str]) -> Mapping[str, int | None]:
        asked_names = list(names)
        counts.update(ask([name for name in asked_names if name not in counts]))
        return {name: counts[name] for name in asked_names if name in counts}

    return tokens


def run(runtime: Runtime, *, disable: Sequence[str] = (), announce: Announce = nobody) -> int:
    scheduler = MetaScheduler(runtime)
    try:
        return scheduler.round(disable=disable, announce=announce)
    finally:
        scheduler.close()

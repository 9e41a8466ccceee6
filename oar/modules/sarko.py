"""Sarko: monitor deadlines.

The deadlines are walltimes, checkpoints before them, unanswered kills, starts of reservations, desktop computers
without requests, and nodes that stay Suspected. Sarko only requests actions; Leon, the Runner, the meta-scheduler and
NodeChangeState carry them out. Each pass returns the time of the next deadline, so walltimes are exact to the second.

See docs/design/launch.rst, "Deadlines".
"""

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.clock_watch import GRACE, ClockWatch, Look
from oar.lib.base.times import format_date, format_duration
from oar.lib.bus.exit_codes import SarkoCode
from oar.lib.bus.messages import Ask, JobAction, Mail, Tag, Wake
from oar.lib.db.system import ServerState
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.sql_requests import KillTimer, TimeLimit
from oar.lib.jobs.states import FINAL, JobState, KillState
from oar.modules import idle_jobs, worker
from oar.modules.chronicle import Chronicle
from oar.modules.worker import run_in_batches

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.runtime import Runtime


#: A checkpoint signal that could not be sent is sent again after this time, in seconds.
CHECKPOINT_RETRY = 60
#: After a start of the server, the nodes have this time, in seconds, to report jobs that ended during the stop.
GRACE_AFTER_START = 60


class SarkoPass(NamedTuple):
    """The result of a pass."""

    code: int
    next: int | None  #: the next date at which there is something to do


class DeadlineCheck(NamedTuple):
    """The result of a check of one deadline."""

    passed: bool
    next: int | None = None  #: date of the next check


def run(runtime: "Runtime", clock: ClockWatch | None = None) -> SarkoPass:
    """Run one pass. Return code 1 if Leon has work.

    ``clock`` has recorded the clock in former passes; it is None if there were none.
    """
    config, clock, before = runtime.config, clock or ClockWatch(), time.monotonic()
    with runtime.database.snapshot() as tx:
        deadlines = tx.deadlines
        now, start = tx.now, tx.system.active_since()
        timers, limits = deadlines.kill_timers(), deadlines.time_limits()
        starts = deadlines.reservation_starts()
        signals = deadlines.checkpoints([limit.job_id for limit in limits if limit.checkpoint])
    changes = [change] if (change := clock.set_by(Look(now, before, time.monotonic()))) else []
    held, ahead = clock.held_until(now), clock.ahead(now)
    soft, hard = config.jobdel_softwalltime, config.jobdel_walltime
    kills = []
    for timer in timers:
        corrected = timer._replace(asked=clock.moved(timer.asked, now), sent=clock.moved(timer.sent, now))
        kills.append((timer, kill_step(corrected, now, soft, hard)))
    walltimes = {limit.job_id: check_walltime(limit, now, start, held) for limit in limits}
    checkpoints = {
        limit.job_id: check_checkpoint(limit, now - ahead, signals.get(limit.job_id))
        for limit in limits
        if limit.checkpoint and not walltimes[limit.job_id].passed
    }
    expired = [limit for limit in limits if walltimes[limit.job_id].passed]
    due = [limit for limit in limits if limit.job_id in checkpoints and checkpoints[limit.job_id].passed]
    unanswered = run_in_batches(runtime.database, kills, partial(_move_kills, config=config))
    ended = run_in_batches(runtime.database, expired, partial(end_jobs, config=config))
    run_in_batches(runtime.database, due, _checkpoint)
    if any(start <= now for start in starts):  # possibly no other event requests a scheduling pass
        run_in_batches(runtime.database, [Wake(Tag.SCHEDULING)], lambda tx, wakes: tx.outbox.extend(wakes))
    run_in_batches(runtime.database, [config] if not held else [], _watch_resources)
    run_in_batches(runtime.database, changes, partial(_tell_of_clock, limits=limits))
    dates = [step.next for _, step in kills] + [check.next for check in walltimes.values()]
    dates += [check.next + ahead for check in checkpoints.values() if check.next]
    dates += [start for start in starts if start > now]
    code = SarkoCode.KILL if any(unanswered) or any(ended) else SarkoCode.NOTHING
    return SarkoPass(code, min((date for date in dates if date is not None), default=None))


# -- kills that were sent ---------------------------------------------------------------------------------------------


class KillStep(NamedTuple):
    """The next state of a kill request."""

    to: KillState | None  #: None: it has more time
    next: int | None = None


def kill_step(timer: KillTimer, now: int, soft: int, hard: int) -> KillStep:
    """Decide the next state of a kill: done, sent again every ``soft`` seconds, given up after ``hard`` seconds."""
    if timer.state is None or timer.state in FINAL or timer.state is JobState.FINISHING:
        return KillStep(KillState.FRAGGED)
    if now > timer.asked + hard:
        return KillStep(KillState.LEON_EXTERMINATE)
    again = max(timer.asked, timer.sent) + soft
    if now > again:
        return KillStep(KillState.LEON)
    return KillStep(None, min(again, timer.asked + hard) + 1)


def _move_kills(tx: "Transaction", kills: Sequence[tuple[KillTimer, KillStep]], *, config: "Config") -> bool:
    """Update kill requests. Return whether Leon has work."""
    moved: dict[KillState, list[int]] = {}
    for state in (KillState.FRAGGED, KillState.LEON, KillState.LEON_EXTERMINATE):
        ids = [timer.job_id for timer, step in kills if step.to is state]
        moved[state] = tx.job_requests.move_kill(ids, state, (KillState.TIMER_ARMED,)) if ids else []
    if config.kill_inner_jobs_with_container:  # an inner job may have been submitted after the container was killed
        ended = set(moved[KillState.FRAGGED])
        control.end_inner_jobs(tx, [timer.job_id for timer, _ in kills if timer.is_container and timer.job_id in ended])
    return bool(moved[KillState.LEON] or moved[KillState.LEON_EXTERMINATE])


# -- walltimes --------------------------------------------------------------------------------------------------------


def check_walltime(limit: TimeLimit, now: int, server_start: int | None, held_until: int = 0) -> DeadlineCheck:
    """Return whether the walltime of a running job has expired. No walltime expires before ``held_until``."""
    if now <= limit.end:
        return DeadlineCheck(False, limit.end + 1)
    if now < held_until:
        return DeadlineCheck(False, held_until)
    if server_start is not None and limit.heard < server_start and now < server_start + GRACE_AFTER_START:
        return DeadlineCheck(False, server_start + GRACE_AFTER_START)
    return DeadlineCheck(True)


def end_jobs(tx: "Transaction", limits: Sequence[TimeLimit], *, config: "Config") -> bool:
    """End jobs whose walltime has expired. Return whether there were any.

    Jobs that have ended meanwhile, were suspended, or got a longer walltime are not changed.
    """
    expired = {limit.job_id for limit in tx.deadlines.time_limits() if limit.end < tx.now}
    causes = dict.fromkeys([limit.job_id for limit in limits if limit.job_id in expired], Cause(EndCode.WALLTIME))
    ended = set(control.ask_end(tx, causes, with_inner=config.kill_inner_jobs_with_container))
    tx.events.add_many(
        [
            (
                EventType.WALLTIME,
                limit.job_id,
                f"[Sarko] job {limit.job_id} has reached its walltime {format_duration(limit.walltime)}: it is killed",
            )
            for limit in limits
            if limit.job_id in ended
        ]
    )
    return bool(ended)


# -- a changed clock --------------------------------------------------------------------------------------------------


def clock_text(seconds: int, now: int, over: Sequence[int]) -> str:
    """Return the mail text about a changed clock. ``over``: jobs whose walltime expires because of the change."""
    length = format_duration(abs(seconds))
    if seconds < 0:
        return (
            f"The clock of the database was set back by {length}. Jobs that run may run so much longer than their"
            " walltimes; dates of the time between are given twice."
        )
    text = (
        f"The clock of the database was set ahead by {length}. No job is ended for its walltime, and rounds plan by the"
        f" old date, before {format_date(now + GRACE)}: if the clock is wrong, set it back until then. If it is right"
        f" now, extend the jobs by the lost time: oarwalltime <job> +{length} (with WALLTIME_CHANGE_ENABLED)"
    )
    return text + (f". Over by the new date: {', '.join(map(str, over))}" if over else "")


def _tell_of_clock(tx: "Transaction", changes: Sequence[int], *, limits: Sequence[TimeLimit]) -> None:
    for seconds in changes:
        text = clock_text(seconds, tx.now, [limit.job_id for limit in limits if limit.end < tx.now])
        tx.outbox.append(Mail("The clock was set", text))


# -- checkpoints ------------------------------------------------------------------------------------------------------


def check_checkpoint(limit: TimeLimit, now: int, sent: tuple[int, bool] | None) -> DeadlineCheck:
    """Decide whether a job gets its checkpoint signal. ``sent``: time of the last signal, and whether it failed.

    A signal that reached the job is not repeated: the job is writing its checkpoint.
    """
    begins = limit.end - limit.checkpoint
    if sent is not None:
        date, failed = sent
        if not failed:
            return DeadlineCheck(False)
        begins = max(begins, date + CHECKPOINT_RETRY)
    return DeadlineCheck(True) if now >= begins else DeadlineCheck(False, begins)


def _checkpoint(tx: "Transaction", limits: Sequence[TimeLimit]) -> None:
    tx.events.add_many(
        [
            (
                EventType.CHECKPOINT,
                limit.job_id,
                f"[Sarko] job {limit.job_id} gets the checkpoint signal {limit.checkpoint} s before its end",
            )
            for limit in limits
        ]
    )
    tx.outbox.extend(Ask(JobAction.SIGNAL, limit.job_id) for limit in limits)


# -- resources --------------------------------------------------------------------------------------------------------


def _watch_resources(tx: "Transaction", configs: "Sequence[Config]") -> None:
    """Suspect desktop computers without a request in time. Declare nodes Dead that stay Suspected too long."""
    deadlines = tx.deadlines
    silent = deadlines.expire_desktops()
    if silent:
        names = sorted(set(silent.values()))
        tx.nodes.set_reason(silent, "", "no call in time")
        tx.events.add(EventType.LOG_SUSPECTED, 0, f"[Sarko] no call in time: {', '.join(names)}", hosts=names)
    dead_after = configs[0].dead_switch_time
    buried = deadlines.expire_suspected(dead_after) if dead_after > 0 else set()
    if silent or buried:
        tx.outbox.append(Wake(Tag.CHSTATE))


class Watcher:
    """Monitor deadlines; between the passes, update the chronicle and look for idle jobs: Sarko is rarely busy."""

    def __init__(self) -> None:
        self._chronicle = Chronicle()
        self._clock: ClockWatch | None = None
        self._idle = idle_jobs.IdleWatch()
        self._parts: tuple[worker.Sequel, ...] = (self._chronicle, self._idle)

    def run(self, runtime: "Runtime", order: worker.PassOrder) -> SarkoPass:
        """Run a pass. The clock watch starts with the saved state of the previous Sarko, even after a stop."""
        self._chronicle.follow(runtime)
        if self._clock is None:
            with runtime.database.snapshot() as tx:
                self._clock = ClockWatch(tx.system.read_state(ServerState.CLOCK))
        done = run(runtime, self._clock)
        with runtime.database.begin() as tx:
            tx.commit_asynchronously()
            tx.system.store_state(ServerState.CLOCK, self._clock.memory)
        self._idle.follow(runtime)
        while not order.goes_on and self._idle.due() == 0:
            self._idle.go_on()
        return done

    def due(self) -> float | None:
        """Return the time in seconds until there is work between the passes, None if there is none."""
        return min((due for part in self._parts if (due := part.due()) is not None), default=None)

    def go_on(self) -> None:
        """Write the new entries of the chronicle; judge some of the jobs that may be idle."""
        for part in self._parts:
            if part.due() == 0:
                part.go_on()


def main() -> int:
    watcher = Watcher()
    return worker.main_of_scheduler("sarko", watcher.run, watcher)


if __name__ == "__main__":
    sys.exit(main())

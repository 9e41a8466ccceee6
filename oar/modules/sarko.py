"""Sarko: watches deadlines (server.md 5.1).

Walltimes, checkpoints before them, kills without answer, reservations that begin, desktop computers that do not call,
nodes that stay suspected.  It asks; Leon, the Runner, the meta-scheduler and NodeChangeState act.  Each pass returns
the next date at which there is something to do, so that a walltime is kept to the second.
"""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from oar.lib import control
from oar.lib.db.deadlines import Deadlines, KillTimer, TimeLimit
from oar.lib.messages import Ask, JobAction, Tag, Wake
from oar.lib.model import Cause
from oar.lib.states import FINAL, EndCode, EventType, JobState, KillState
from oar.lib.times import format_duration
from oar.modules import worker
from oar.modules.guard import in_groups

if TYPE_CHECKING:
    from oar.lib.config import Config
    from oar.lib.db.engine import Transaction
    from oar.lib.runtime import Runtime

NOTHING, LEON_HAS_WORK = 0, 1

#: A checkpoint signal that could not be sent is sent again after this time.
CHECKPOINT_RETRY = 60
#: After a start of the server, a job whose walltime passed during the stop has this time to tell that it had ended.
MERCY_AFTER_START = 60


class Pass(NamedTuple):
    """How a pass ended."""

    code: int
    next: int | None  #: the next date at which there is something to do


class Look(NamedTuple):
    """What a look at one deadline gave."""

    passed: bool
    next: int | None = None  #: when to look again


def run(runtime: "Runtime") -> Pass:
    """Make one pass; code 1 if Leon has work."""
    config = runtime.config
    with runtime.database.snapshot() as tx:
        deadlines = Deadlines(tx)
        now, start = tx.now, deadlines.server_start()
        timers, limits = deadlines.kill_timers(), deadlines.time_limits()
        starts = deadlines.reservation_starts()
        signals = deadlines.checkpoints([limit.job_id for limit in limits if limit.checkpoint])
    kills = [(timer, kill_step(timer, now, config.jobdel_softwalltime, config.jobdel_walltime)) for timer in timers]
    over = {limit.job_id: look_at_end(limit, now, start) for limit in limits}
    asked = {
        limit.job_id: look_at_checkpoint(limit, now, signals.get(limit.job_id))
        for limit in limits
        if limit.checkpoint and not over[limit.job_id].passed
    }
    guilty = in_groups(runtime.database, kills, partial(_move_kills, config=config))
    ended = in_groups(
        runtime.database, [one for one in limits if over[one.job_id].passed], partial(end_jobs, config=config)
    )
    in_groups(
        runtime.database, [one for one in limits if one.job_id in asked and asked[one.job_id].passed], _checkpoint
    )
    in_groups(runtime.database, [start for start in starts if start <= now], _begin_reservations)
    in_groups(runtime.database, [config], _watch_resources)
    dates = [step.next for _, step in kills] + [look.next for look in (*over.values(), *asked.values())]
    dates += [start for start in starts if start > now]
    return Pass(LEON_HAS_WORK if any(guilty) or any(ended) else NOTHING, _earliest(dates))


def _earliest(dates: Iterable[int | None]) -> int | None:
    return min((date for date in dates if date is not None), default=None)


# -- kills that were sent ---------------------------------------------------------------------------------------------


class KillStep(NamedTuple):
    """What becomes of a kill that was sent."""

    to: KillState | None  #: None: it has more time
    next: int | None = None


def kill_step(timer: KillTimer, now: int, soft: int, hard: int) -> KillStep:
    """Decide what becomes of a kill: obeyed, sent again after each ``soft`` seconds, given up after ``hard``."""
    if timer.state is None or timer.state in FINAL or timer.state is JobState.FINISHING:
        return KillStep(KillState.FRAGGED)
    if now > timer.asked + hard:
        return KillStep(KillState.LEON_EXTERMINATE)
    again = max(timer.asked, timer.sent) + soft
    if now > again:
        return KillStep(KillState.LEON)
    return KillStep(None, min(again, timer.asked + hard) + 1)


def _move_kills(tx: "Transaction", kills: Sequence[tuple[KillTimer, KillStep]], *, config: "Config") -> bool:
    """Move kill requests; return whether Leon has to act."""
    moved: dict[KillState, list[int]] = {}
    for state in (KillState.FRAGGED, KillState.LEON, KillState.LEON_EXTERMINATE):
        ids = [timer.job_id for timer, step in kills if step.to is state]
        moved[state] = tx.runs.move_kill(ids, state, (KillState.TIMER_ARMED,)) if ids else []
    if config.kill_inner_jobs_with_container:  # one may have been submitted since the container was killed
        ended = set(moved[KillState.FRAGGED])
        control.end_inner_jobs(tx, [timer.job_id for timer, _ in kills if timer.is_container and timer.job_id in ended])
    return bool(moved[KillState.LEON] or moved[KillState.LEON_EXTERMINATE])


# -- walltimes --------------------------------------------------------------------------------------------------------


def look_at_end(limit: TimeLimit, now: int, server_start: int | None) -> Look:
    """Decide whether the time of a running job is over."""
    if now <= limit.end:
        return Look(False, limit.end + 1)
    if server_start is not None and limit.heard < server_start and now < server_start + MERCY_AFTER_START:
        return Look(False, server_start + MERCY_AFTER_START)
    return Look(True)


def end_jobs(tx: "Transaction", limits: Sequence[TimeLimit], *, config: "Config") -> bool:
    """End jobs whose time is over; return whether there were any.

    One that has ended meanwhile, was suspended, or was given more time is left alone.
    """
    over = {one.job_id for one in Deadlines(tx).time_limits() if one.end < tx.now}
    causes = dict.fromkeys([one.job_id for one in limits if one.job_id in over], Cause(EndCode.WALLTIME))
    ended = set(control.ask_end(tx, causes, with_inner=config.kill_inner_jobs_with_container))
    tx.events.add_many(
        [
            (
                EventType.WALLTIME,
                one.job_id,
                f"[Sarko] job {one.job_id} has reached its walltime {format_duration(one.walltime)}: it is killed",
            )
            for one in limits
            if one.job_id in ended
        ]
    )
    return bool(ended)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def look_at_checkpoint(limit: TimeLimit, now: int, sent: tuple[int, bool] | None) -> Look:
    """Decide whether a job gets its checkpoint signal.  ``sent``: when it last did, and whether that failed.

    Once is enough: the job is writing.  Only a signal that did not reach it is sent again.
    """
    begins = limit.end - limit.checkpoint
    if sent is not None:
        date, failed = sent
        if not failed:
            return Look(False)
        begins = max(begins, date + CHECKPOINT_RETRY)
    return Look(True) if now >= begins else Look(False, begins)


def _checkpoint(tx: "Transaction", limits: Sequence[TimeLimit]) -> None:
    tx.events.add_many(
        [
            (
                EventType.CHECKPOINT,
                one.job_id,
                f"[Sarko] job {one.job_id} is asked to write a checkpoint {one.checkpoint} s before its end",
            )
            for one in limits
        ]
    )
    tx.outbox.extend(Ask(JobAction.SIGNAL, one.job_id) for one in limits)


# -- reservations -----------------------------------------------------------------------------------------------------


def _begin_reservations(tx: "Transaction", starts: Sequence[int]) -> None:
    """Have a round made: nothing else may happen at the moment at which a reservation begins."""
    tx.outbox.append(Wake(Tag.SCHEDULING))


# -- resources --------------------------------------------------------------------------------------------------------


def _watch_resources(tx: "Transaction", configs: "Sequence[Config]") -> None:
    deadlines = Deadlines(tx)
    silent = deadlines.expire_desktops()
    if silent:
        names = sorted(silent)
        tx.events.add(EventType.LOG_SUSPECTED, 0, f"[Sarko] no call in time: {', '.join(names)}", hosts=names)
    dead_after = configs[0].dead_switch_time
    buried = deadlines.bury(dead_after) if dead_after > 0 else set()
    if silent or buried:
        tx.outbox.append(Wake(Tag.CHSTATE))


def main() -> int:
    """Run as a program."""
    return worker.main("sarko", run)


if __name__ == "__main__":
    sys.exit(main())

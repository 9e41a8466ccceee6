"""Advance reservations in the plan, without the database: ``python -m bench.reservations``.

A machine of 10,000 cores, busy and with 2,000 waiting jobs (``bench.planner``), and granted reservations of one node
each.  A round from nothing and a warm one in which nothing has changed, without reservations and with 1,000 of them;
then a new request beside them.  Seconds of CPU of one thread, the least of three.
"""

import time
from dataclasses import replace

from bench.planner import CORES, CPUS, NOW, plain
from oar.kao.facts.planned_reservations import PlannedReservation
from oar.kao.facts.request_groups import RequestGroup
from oar.kao.facts.snapshot import Alternative, Snapshot, StoredPlacement, WaitingJob
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.schedule import Round
from oar.kao.rounds.garbage_collection import resting
from oar.lib.facts.records import Level
from oar.lib.facts.reservation_states import ReservationState
from oar.lib.facts.states import JobState, Reservation

MACHINE, JOBS, RESERVATIONS = 10_000, 2_000, 1_000
NODE = CORES * CPUS
DAY = 86400
#: Seconds of CPU: more than this for 1,000 reservations is a fault.
MOST_FOR_ALL = 0.2


def with_reservations(snapshot: Snapshot, count: int, asked: int = 0) -> Snapshot:
    """Return a situation with granted reservations, after the end of what runs, and requests beside them."""
    nodes = MACHINE // NODE
    reservations, frames = [], []
    for number in range(1, count + asked + 1):
        is_granted = number <= count
        held = ((1 << NODE) - 1) << (NODE * (number % nodes)) if is_granted else 0
        start = NOW + 3 * DAY + (number // nodes) * DAY
        frame, groups = 10_000_000 + number, (RequestGroup(0, (Level("core", NODE),)),)
        types = ("container", "noop", "state=permissive", "no_quotas", f"ar={number}")
        frames.append(
            WaitingJob(
                frame, "default", "u", "p", "", JobState.WAITING,
                reservation=Reservation.SCHEDULED if is_granted else Reservation.TO_SCHEDULE,
                types=types, alternatives=(Alternative(frame, DAY, groups),), start_time=start,
                granted=StoredPlacement(frame, start, held) if is_granted else None,
            )
        )  # fmt: skip
        state = ReservationState.WAITING if is_granted else ReservationState.ASKED
        reservations.append(
            PlannedReservation(
                number, number, frame, state, 1, "default", start, start + DAY, 0, 6,
                is_hard=False, replaces_lost=False, is_flexible=False, ignores_jobs=False, idle_limit=0, message="",
                resources=held, groups=groups if is_granted else (),
            )
        )  # fmt: skip
    return replace(snapshot, waiting=(*snapshot.waiting, *frames), reservations=tuple(reservations))


def round_of(snapshot: Snapshot, memory: RoundMemory | None = None) -> tuple[float, RoundMemory]:
    """Return the CPU time of a round, and its memory."""
    with resting():
        begin = time.process_time()
        this = Round(snapshot, memory=memory)
        plan = this.plan()
        return time.process_time() - begin, this.memory(plan)


def measure(snapshot: Snapshot) -> tuple[float, float]:
    """Return the seconds of a round from nothing and of a warm one, the least of three."""
    cold = [round_of(snapshot) for _ in range(3)]
    memory = cold[0][1]
    warm = [round_of(snapshot, memory)[0] for _ in range(3)]
    return min(seconds for seconds, _ in cold), min(warm)


def main() -> None:
    """Print the table."""
    snapshot = plain(JOBS, MACHINE)
    rows = [
        ("no reservations", measure(snapshot)),
        (f"{RESERVATIONS} reservations", measure(with_reservations(snapshot, RESERVATIONS))),
        ("and a request", measure(with_reservations(snapshot, RESERVATIONS, 1))),
    ]
    print(f"{'':<20} {'cold':>8} {'warm':>8}")
    for name, (cold, warm) in rows:
        print(f"{name:<20} {cold:8.3f} {warm:8.3f}")
    more = rows[1][1][1] - rows[0][1][1]
    print(f"a quiet round pays {1000 * more / RESERVATIONS:.3f} ms for a reservation")
    print("ok" if more <= MOST_FOR_ALL else f"TOO SLOW: more than {MOST_FOR_ALL} s")


if __name__ == "__main__":
    main()

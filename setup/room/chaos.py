"""Random faults under a load of jobs: `setup/cluster chaos`. The seed determines the order of the faults.

After each fault it waits until jobs are accepted and started again, and checks what must always hold: no acknowledged
job is lost, none runs twice, no id is given twice, the generations of servers do not interleave, a former server has no
process and no session. At the end all jobs have ended, nothing of them is left on the nodes, and the servers hold no
more processes, sessions, locks, tables and files than before.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from . import census, client, fault_log, layout
from .harm import SERVICE_SECONDS, TAKE_OVERS, Fault, Harm
from .layout import Room, RoomError
from .load import Load, query, shell, wait_until

_END_SECONDS = 480.0
#: Seconds in which idle processes and sessions end.
_IDLE_SECONDS = 120.0
#: Jobs after which the processes and sessions of a server are counted as those of a working server.
_FIRST_JOBS = 10
_LEFTOVERS = "ls /var/lib/oar/oarexec_* 2>/dev/null; pgrep -u alice,bob,carol -a"


class Plan(NamedTuple):
    """What is to be done to a room."""

    seed: int
    minutes: float
    faults: int | None = None  #: number of faults, in place of the duration
    only: str = ""  #: kind of faults; '' for all
    clients: int = 1  #: that submit jobs, on each server

    def steps(self) -> Iterator[int]:
        """Yield the numbers of the faults until there are enough."""
        end = time.monotonic() + 60 * self.minutes
        step = 0
        while step < self.faults if self.faults is not None else time.monotonic() < end:
            step += 1
            yield step


class Chaos:
    """A room under load, and the faults that it must survive."""

    def __init__(self, room: Room, machines: Mapping[str, Mapping[str, object]], plan: Plan) -> None:
        self._room = room
        self._plan = plan
        self._harm = Harm(room, Random(plan.seed), plan.only)
        self._load = Load(room, Path(f"/proc/{machines[layout.SERVER]['pid']}/root"))
        self._durations: dict[str, list[float]] = {}

    def run(self, report: Callable[[str], None]) -> list[str]:
        """Apply faults; return what is wrong. Raises RoomError if the service does not return."""
        self._change_schema(fault_log.FORGET + fault_log.RECORD)
        try:
            before = self._begin_at_rest()
            self._begin()
            for step in self._plan.steps():
                fault = self._harm.choose()
                report(f"{time.strftime('%T')} {step}: {fault}")
                if problems := self._survive(fault, report):
                    return problems
            return self._end(before, report)
        finally:
            with suppress(RoomError):  # what went wrong before is reported
                self._load.end_clients(SERVICE_SECONDS)
                self._change_schema(fault_log.FORGET)

    def _begin_at_rest(self) -> Counter[str]:
        """Let some jobs run; return what the servers hold when these have ended."""
        self._begin()
        wait_until(lambda: len(self._load.starts()) >= _FIRST_JOBS, "jobs start", SERVICE_SECONDS)
        self._load.stop(_END_SECONDS)
        self._load.resume()
        return census.take(self._room)

    def _survive(self, fault: Fault, report: Callable[[str], None]) -> list[str]:
        """Apply a fault, wait until it is repaired, and return what is wrong then."""
        self._harm.apply(fault)
        if self._harm.take_over:
            self._durations.setdefault(fault.action, []).append(self._harm.take_over.seconds)
            report(f"{time.strftime('%T')} {self._harm.take_over}")
        self._begin()
        back = self._load.wait_for_service(SERVICE_SECONDS)
        report(f"{time.strftime('%T')} jobs are accepted and started, {back:.1f} s after the repair")
        return self._problems()

    def _end(self, before: Counter[str], report: Callable[[str], None]) -> list[str]:
        """Wait for the end of all jobs; report figures; return what is wrong."""
        self._load.stop(_END_SECONDS)
        jobs, excused = len(self._load.acknowledged()), len(self._harm.excused)
        report(f"{time.strftime('%T')} {jobs} jobs, of which {excused} may have failed with their node")
        for action, seconds in sorted(self._durations.items()):
            late = sum(value > TAKE_OVERS[action] for value in seconds)
            report(
                f"{action}: {len(seconds)} take-overs, {min(seconds):.1f} to {max(seconds):.1f} s;"
                f" {late} later than {TAKE_OVERS[action]:.0f} s"
            )
        return self._problems() + self._leftovers() + self._leaks(before)

    def _change_schema(self, statements: str) -> None:
        """Run statements that lock tables of the server; give way to its transactions."""
        patient = "SET client_min_messages TO error; SET lock_timeout TO '100ms';"
        wait_until(lambda: query(self._room, patient + statements) == [], "the triggers are changed", SERVICE_SECONDS)

    def _begin(self) -> None:
        for server in self._room.server_names:
            self._load.start(server, self._plan.clients)

    def _problems(self) -> list[str]:
        """Return what does not hold that must always hold."""
        problems = self._load.violations(self._harm.excused)
        if self._room.servers > 1:
            one_generation = partial(self._count, fault_log.GENERATIONS)
            wait_until(lambda: self._harm.count_active() == 1, "one server is active", SERVICE_SECONDS)
            wait_until(lambda: one_generation() == 1, "one generation is left", SERVICE_SECONDS)
            if rows := query(self._room, fault_log.INTERLEAVED):
                problems.append(f"writes after those of a later generation: {rows[:5]}")
        return problems

    def _count(self, statement: str) -> int:
        return len(query(self._room, statement))

    def _leftovers(self) -> list[str]:
        """Return what jobs have left on nodes."""
        for node in self._room.node_names:
            left = partial(shell, self._room, node, "root", _LEFTOVERS)
            wait_until(lambda: not left().strip(), f"nothing of a job is left on {node}", SERVICE_SECONDS)  # noqa: B023
        check = client.run(self._room, layout.SERVER, "root", ["oar-database --check --deep"])
        return [check.err.decode(errors="replace")] if check.code else []

    def _leaks(self, before: Counter[str]) -> list[str]:
        """Return what the servers hold that they did not hold before. Idle processes and sessions end soon."""
        with suppress(RoomError):
            wait_until(lambda: not self._grown(before), "nothing more is held than before", _IDLE_SECONDS)
        return [f"more than before: {line}" for line in self._grown(before)]

    def _grown(self, before: Counter[str]) -> list[str]:
        return census.grown(before, census.take(self._room))


def run(room: Room, plan: Plan) -> int:
    """Run faults in a room; print them; return the exit code. Raises RoomError with the seed."""

    def report(text: str) -> None:
        print(text, flush=True)

    report(f"seed {plan.seed}")
    machines = client.ask(room, {"action": "status"})["machines"]
    try:
        problems = Chaos(room, machines, plan).run(report)  # type: ignore[arg-type]
    except RoomError as error:
        raise RoomError(f"seed {plan.seed}: {error}") from None
    for problem in problems:
        print(f"cluster: seed {plan.seed}: {problem}", file=sys.stderr)
    return 1 if problems else 0

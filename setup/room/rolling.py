"""A rolling upgrade of a room with two servers, under a storm of submissions: `setup/cluster upgrade`.

The standby gets the release of these sources, takes over, and then the other one gets it. No user may see an error, no
job may be lost or run twice, and a running job may not notice it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random

from . import client, fault_log, layout, releases, services
from .harm import SERVICE_SECONDS, Harm
from .layout import Room
from .load import Load, query, shell, wait_until

_END_SECONDS = 900.0
#: Jobs that start before the upgrade begins, and after each step.
_JOBS = 10
_LONG_JOB = "until [ -e end ]; do sleep 0.2; done; exit 7"
#: The note that a request is stored while no server is active; it is no error.
_LATER = " will be treated later."


class RollingUpgrade:
    """Two servers under load, which get another release one after the other."""

    def __init__(
        self, room: Room, machines: Mapping[str, Mapping[str, object]], clients: int, report: Callable[[str], None]
    ) -> None:
        self._room = room
        self._roots = {name: Path(f"/proc/{machines[name]['pid']}/root") for name in room.server_names}
        self._clients = clients
        self._report = report
        self._harm = Harm(room, Random(0))
        self._load = Load(room, self._roots[layout.SERVER], pause=0.0)

    def run(self) -> list[str]:
        """Upgrade both servers and return to the first one; return what is wrong. Raises RoomError."""
        query(self._room, f"SET client_min_messages TO error; {fault_log.FORGET}{fault_log.RECORD}")
        try:
            return self._run()
        finally:
            self._load.end_clients(SERVICE_SECONDS)
            query(self._room, f"SET client_min_messages TO error; {fault_log.FORGET}")

    def _run(self) -> list[str]:
        job = self._start_long_job()
        begin = time.monotonic()
        self._load.start(layout.SERVER, self._clients)
        self._wait_for_jobs()
        first = self._harm.active()
        other = next(name for name in self._room.server_names if name != first)
        for standby, active in ((other, first), (first, other)):
            self._upgrade(standby)
            self._hand_over(active)
        seconds = time.monotonic() - begin
        self._load.end_clients(SERVICE_SECONDS)
        self._report_figures(seconds)
        shell(self._room, layout.SERVER, "alice", "touch end")
        self._load.stop(_END_SECONDS)
        return self._load.violations({job}) + self._errors() + self._changes(job) + self._versions()

    def _start_long_job(self) -> int:
        shell(self._room, layout.SERVER, "alice", "rm -f end")
        words = ["oarsub", "-l", "core=1,walltime=1:00", _LONG_JOB]
        printed = client.run(self._room, layout.SERVER, "alice", ["/usr/bin/env", *words]).out.decode()
        job = int(printed.partition("OAR_JOB_ID=")[2].split()[0])
        started = f"SELECT 1 FROM job_runs WHERE job_id = {job} AND phase = 'STARTED'"
        wait_until(lambda: query(self._room, started), f"job {job} runs", SERVICE_SECONDS)
        return job

    def _wait_for_jobs(self) -> None:
        goal = len(self._load.starts()) + _JOBS
        wait_until(lambda: len(self._load.starts()) >= goal, "jobs start", SERVICE_SECONDS)

    def _upgrade(self, standby: str) -> None:
        """Install the release on the standby."""
        self._report(f"{time.strftime('%T')} {standby} gets another release")
        for service in ("server", "commands"):
            services.control(self._room, service, "stop", standby)
        releases.install(self._room, standby, self._roots[standby])
        for service in ("server", "commands"):
            services.control(self._room, service, "start", standby)
        wait_until(self._harm.is_pair, f"{standby} waits for the lock", SERVICE_SECONDS)

    def _hand_over(self, active: str) -> None:
        since = fault_log.now(self._room)
        services.control(self._room, "server", "hand-over", active)
        wait_until(partial(self._harm.has_taken_over, active, since), "the other server is active", SERVICE_SECONDS)
        self._report(f"{time.strftime('%T')} {fault_log.newest(self._room, since)}")
        self._wait_for_jobs()

    def _report_figures(self, seconds: float) -> None:
        jobs, pauses = len(self._load.acknowledged()), self._load.pauses()
        self._report(f"{jobs} submissions in {seconds:.1f} s, {jobs / seconds:.1f} each second")
        self._report(f"longest submission: {pauses.submission:.2f} s")
        self._report(f"longest time without an accepted job: {pauses.acceptance:.2f} s")
        self._report(f"longest time without a job that starts: {pauses.start:.2f} s")

    def _errors(self) -> list[str]:
        """Return what users saw that is no job and no note about a later treatment."""
        wrong = [line for line in self._load.errors().splitlines() if line and _LATER not in line]
        return [f"users saw: {wrong[:5]}"] if wrong else []

    def _changes(self, job: int) -> list[str]:
        """Return what the job that was running has noticed."""
        rows = query(self._room, f"SELECT state, exit_code FROM jobs WHERE job_id = {job}")
        return [] if rows == [["Terminated", str(7 << 8)]] else [f"the running job {job} ended with {rows}"]

    def _versions(self) -> list[str]:
        """Report the versions of the servers; return what is wrong with them."""
        rows = query(self._room, "SELECT server_name, role, version FROM servers ORDER BY server_name")
        self._report(", ".join(f"{name}: {role}, OAR {version}" for name, role, version in rows))
        return [] if len({version for _, _, version in rows}) == 1 else [f"different releases: {rows}"]


def run(room: Room, clients: int) -> int:
    """Upgrade the servers of a room to the release of these sources; print figures; return the exit code."""

    def report(text: str) -> None:
        print(text, flush=True)

    machines = client.ask(room, {"action": "status"})["machines"]
    problems = RollingUpgrade(room, machines, clients, report).run()  # type: ignore[arg-type]
    for problem in problems:
        print(f"cluster: {problem}", file=sys.stderr)
    return 1 if problems else 0

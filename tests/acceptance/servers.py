"""Two servers of OAR with one database: their faults, and which of them is active."""

from __future__ import annotations

import sys
import time

from room import fault_log, harm, layout, services

from oar.lib.db.lock_keys import SERVER_LOCK
from tests.acceptance.faults import Machine
from tests.acceptance.harness import Cluster, wait_until

#: The limits are those of the specification for a real site; a test fails after so many times that. All machines of a
#: room share the processors of this computer.
SLACK = 4
#: Server faults that last, each with the actions that end it.
_CURES = {
    "cut": ("heal",),
    "cut-database": ("heal",),
    "cut-nodes": ("heal",),
    "hang": ("resume",),
    "cut-and-hang": ("heal", "resume"),
}
_HOLDERS = f"""
SELECT a.client_addr, a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.classid = {SERVER_LOCK[0]} AND l.objid = {SERVER_LOCK[1]} AND l.granted"""


class Servers:
    """Two servers with one database."""

    def __init__(self, cluster: Cluster) -> None:
        status = cluster.status()
        self.cluster = cluster
        self.room = services.room_of(status)
        self.names = layout.SERVERS
        self._hosts = {facts["address"]: name for name, facts in status["machines"].items()}

    def active(self) -> str:
        """Return the host of the session that holds the server lock, '' if none does."""
        rows = self.cluster.sql(_HOLDERS)
        assert len(rows) <= 1, f"several holders of the server lock: {rows}"
        return self._hosts[rows[0][0]] if rows else ""

    def other(self, name: str) -> str:
        """Return the host of the other server."""
        return next(other for other in self.names if other != name)

    def do(self, name: str, action: str) -> None:
        """Apply an action to a server."""
        if action.startswith("kill-") and action != "kill-all":
            for process in Machine(self.cluster, name).processes(f"oar.modules.{action.removeprefix('kill-')}"):
                process.kill()
            return
        for part in ("cut", "hang") if action == "cut-and-hang" else (action,):
            self.cluster.server_on(name).do(part)

    def cure(self, name: str, fault: str) -> None:
        """Undo a fault, and wait until the server is active or standby."""
        for action in (*_CURES.get(fault, ()), "start"):
            self.do(name, action)
        wait_until(lambda: self.parts(name) >= {"almighty", "warden"}, f"{name} is active or standby")

    def parts(self, name: str) -> set[str]:
        """Return the programs of the server that run on a host."""
        commands = [process.command for process in Machine(self.cluster, name).processes("oar.modules.")]
        return {command.partition("oar.modules.")[2].split()[0] for command in commands}

    def are_ready(self) -> bool:
        """Return whether both servers run."""
        return all(self.parts(name) >= {"almighty", "warden"} for name in self.names)

    def wait_for_take_over(self, by: str, fault: str) -> None:
        """Wait until a server is the active one, for `SLACK` times the limit of the specification."""
        limit = SLACK * harm.TAKE_OVERS.get(fault, max(harm.TAKE_OVERS.values()))
        wait_until(lambda: self.active() == by, lambda: f"{by} is active: {self.active()}", within=limit)

    def print_take_over(self, fault: str, since: float) -> None:
        """Print the times of the newest take-over since a date, for a comparison with the specification."""
        sys.stderr.write(f"\n{time.strftime('%T')} {fault}: {fault_log.newest(self.room, since)}")

    def now(self) -> float:
        """Return the date of PostgreSQL."""
        return fault_log.now(self.room)

    def assert_sound(self) -> None:
        """Check that generations did not interleave, and that nothing of a former one is left."""
        active = wait_until(self.active, "a server is active")
        standby = self.other(active)
        wait_until(
            lambda: self.parts(standby) == {"almighty", "warden"},
            lambda: f"{standby} is standby: {self.parts(standby)}",
        )
        wait_until(lambda: len(self.cluster.sql(fault_log.GENERATIONS)) == 1, "one generation has sessions")
        interleaved = self.cluster.sql(fault_log.INTERLEAVED)
        assert not interleaved, f"writes after those of a later generation: {interleaved}"

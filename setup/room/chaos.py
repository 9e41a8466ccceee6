"""Random faults under a load of jobs: `setup/cluster chaos`. The seed determines the order of the faults.

After each fault it waits until jobs are accepted and started again, and checks what must always hold: no acknowledged
job is lost, none runs twice, no id is given twice, the generations of servers do not interleave, a former server has no
process and no session. At the end all jobs have ended, and nothing of them is left on the nodes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from . import client, layout, services
from .layout import Room, RoomError
from .load import Load, query, shell, wait_until

#: Seconds after which a fault counts as not survived.
_SERVICE_SECONDS = 240.0
_END_SECONDS = 480.0
#: Seconds for which a fault lasts that the room does not notice by itself.
_SHORT, _LONG = 1.0, 15.0
#: Faults, each with the action that ends it.
SERVER_FAULTS = {
    "kill": "start",
    "stop": "start",
    "hang": "resume",
    "cut": "heal",
    "cut-database": "heal",
    "power-off": "start",
}
DATABASE_FAULTS = ("kill", "power-off")
NODE_FAULTS = {
    "crash": "reboot",
    "power-off": "reboot",
    "cut": "heal",
    "hang": "resume",
    "sshd-stop": "sshd-start",
    "reboot": "",
}
FORGET = "DROP SCHEMA IF EXISTS fault_log CASCADE;"
#: Records the generation of each session that writes about jobs.
RECORD = """
CREATE SCHEMA fault_log;
CREATE TABLE fault_log.writes (id bigserial, generation bigint);
CREATE FUNCTION fault_log.record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO fault_log.writes (generation)
    SELECT substring(current_setting('application_name') FROM ' g([0-9]+)')::bigint;
    RETURN NULL;
END $$;
""" + "".join(
    f"CREATE TRIGGER fault_log AFTER INSERT OR UPDATE ON {table} EXECUTE FUNCTION fault_log.record();"
    for table in ("jobs", "job_runs", "event_logs", "assigned_resources")
)
#: Writes that were committed after one of a later generation. PostgreSQL must have track_commit_timestamp.
INTERLEAVED = """
SELECT * FROM (
    SELECT generation, max(generation) OVER (ORDER BY pg_xact_commit_timestamp(xmin), generation) AS latest
    FROM fault_log.writes WHERE generation IS NOT NULL) w
WHERE generation < latest"""
GENERATIONS = """
SELECT DISTINCT substring(application_name FROM ' g([0-9]+)') FROM pg_stat_activity
WHERE application_name ~ ' g[0-9]+'"""
#: The programs of the server on one machine, without those of nodes.
_PROGRAMS = r"""
mine=$(readlink /proc/self/ns/pid)
for directory in /proc/[0-9]*; do
    [ "$(readlink $directory/ns/pid 2>/dev/null)" = "$mine" ] || continue
    tr '\0' ' ' <$directory/cmdline 2>/dev/null | grep -o ' -m oar\.modules\.[a-z_]*' | sed 's/.*\.//'
done"""
_ACTIVE_ONLY = {"runner", "meta_sched", "sarko", "leon", "node_change_state", "finaud", "greta"}
_LEFTOVERS = "ls /var/lib/oar/oarexec_* 2>/dev/null; pgrep -u alice,bob,carol -a"


class Fault(NamedTuple):
    """Something that happens to a machine of a room."""

    kind: str  #: server, database or node
    host: str
    action: str

    def __str__(self) -> str:
        """Return the arguments of setup/cluster."""
        return f"{self.kind} {self.host} {self.action}"


class Chaos:
    """A room under load, and the faults that it must survive."""

    def __init__(self, room: Room, machines: Mapping[str, Mapping[str, object]], seed: int) -> None:
        self._room = room
        self._random = Random(seed)
        self._load = Load(room, Path(f"/proc/{machines[layout.SERVER]['pid']}/root"))
        self._primary, *self._replicas = self._databases()
        self._excused: set[int] = set()

    def _databases(self) -> list[str]:
        """Return the hosts of PostgreSQL, the primary first."""
        names = self._room.database_names
        if len(names) == 1:
            return list(names)
        ask = "psql -XAtq -h /run/postgresql{} -U postgres oar -c 'SELECT pg_is_in_recovery()'"
        answers = {
            name: shell(self._room, layout.SERVER, "root", ask.format(name.removeprefix(layout.DATABASE)))
            for name in names
        }
        return sorted(names, key=lambda name: answers[name].strip() != "f")

    def run(self, seconds: float, report: Callable[[str], None]) -> list[str]:
        """Apply faults for so many seconds; return what is wrong. Raises RoomError if the service does not return."""
        self._change_schema(FORGET + RECORD)
        try:
            self._begin()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                fault = self._choose()
                report(f"{time.strftime('%T')} {fault}")
                self._apply(fault)
                self._begin()
                back = self._load.wait_for_service(_SERVICE_SECONDS)
                report(f"{time.strftime('%T')} jobs are accepted and started, {back:.1f} s after the repair")
                if problems := self._problems():
                    return problems
            self._load.stop(_END_SECONDS)
            jobs, excused = len(self._load.acknowledged()), len(self._excused)
            report(f"{time.strftime('%T')} {jobs} jobs, of which {excused} may have failed with their node")
            return self._problems() + self._leftovers()
        finally:
            with suppress(RoomError):  # what went wrong before is reported
                self._load.end_clients(_SERVICE_SECONDS)
                self._change_schema(FORGET)

    def _change_schema(self, statements: str) -> None:
        """Run statements that lock tables of the server; give way to its transactions."""
        patient = "SET client_min_messages TO error; SET lock_timeout TO '100ms';"
        wait_until(lambda: query(self._room, patient + statements) == [], "the triggers are changed", _SERVICE_SECONDS)

    def _begin(self) -> None:
        for server in self._room.server_names:
            self._load.start(server)

    def _choose(self) -> Fault:
        """Choose the next fault. With several servers, half of them concern servers."""
        kinds = ["server", "server", "node"] + (["database"] if self._replicas else [])
        kind = self._random.choice(kinds)
        if kind == "server":
            actions = SERVER_FAULTS if self._room.servers > 1 else ("kill", "stop", "hang")
            return Fault(kind, self._random.choice(self._room.server_names), self._random.choice(sorted(actions)))
        if kind == "database":
            return Fault(kind, self._primary, self._random.choice(DATABASE_FAULTS))
        return Fault(kind, self._random.choice(self._room.node_names), self._random.choice(sorted(NODE_FAULTS)))

    def _apply(self, fault: Fault) -> None:
        """Let a fault happen, and repair it."""
        if fault.kind == "database":
            self._fail_over(fault)
        elif fault.kind == "node":
            self._harm_node(fault)
        else:
            services.control(self._room, fault.kind, fault.action, fault.host)
            time.sleep(self._random.choice((_SHORT, _LONG)))
            services.control(self._room, fault.kind, SERVER_FAULTS[fault.action], fault.host)
            if SERVER_FAULTS[fault.action] != "start":
                services.control(self._room, fault.kind, "start", fault.host)

    def _fail_over(self, fault: Fault) -> None:
        replica = self._replicas[0]
        services.control(self._room, "database", fault.action, fault.host)
        services.control(self._room, "database", "promote", replica)
        self._primary, self._replicas = replica, [fault.host]
        services.control(self._room, "database", "follow", fault.host)

    def _harm_node(self, fault: Fault) -> None:
        begin = int(time.time()) - 2
        client.ask(self._room, {"action": fault.action, "node": fault.host})
        time.sleep(self._random.choice((_SHORT, _LONG)))
        if NODE_FAULTS[fault.action]:
            client.ask(self._room, {"action": NODE_FAULTS[fault.action], "node": fault.host})
        wait_until(lambda: self._revive(fault.host), f"{fault.host} is Alive", _SERVICE_SECONDS)
        self._excused |= self._jobs_on(fault.host, begin)

    def _revive(self, node: str) -> bool:
        """Return whether a node is Alive. An administrator sets it to Alive if OAR does not do it soon."""
        rows = query(self._room, f"SELECT state FROM resources WHERE network_address = '{node}' AND state <> 'Alive'")
        if rows:
            shell(self._room, layout.SERVER, "root", f"oarnodesetting -h {node} -s Alive")
        return not rows

    def _jobs_on(self, node: str, since: int) -> set[int]:
        """Return the jobs that had resources of a node since a date."""
        rows = query(
            self._room,
            "SELECT DISTINCT j.job_id FROM jobs j"
            " JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job"
            f" JOIN resources r USING (resource_id) WHERE r.network_address = '{node}'"
            f" AND (j.stop_time = 0 OR j.stop_time >= {since})",
        )
        return {int(row[0]) for row in rows}

    def _problems(self) -> list[str]:
        """Return what does not hold that must always hold."""
        problems = self._load.violations(self._excused)
        if self._room.servers > 1:
            wait_until(lambda: self._active_servers() == 1, "one server is active", _SERVICE_SECONDS)
            wait_until(lambda: len(query(self._room, GENERATIONS)) == 1, "one generation is left", _SERVICE_SECONDS)
            if rows := query(self._room, INTERLEAVED):
                problems.append(f"writes after those of a later generation: {rows[:5]}")
        return problems

    def _active_servers(self) -> int:
        """Return the number of servers with processes that only an active one has."""
        programs = [set(shell(self._room, name, "root", _PROGRAMS).split()) for name in self._room.server_names]
        return sum(bool(names & _ACTIVE_ONLY) for names in programs)

    def _leftovers(self) -> list[str]:
        """Return what jobs have left on nodes."""
        for node in self._room.node_names:
            left = partial(shell, self._room, node, "root", _LEFTOVERS)
            wait_until(lambda: not left().strip(), f"nothing of a job is left on {node}", _SERVICE_SECONDS)  # noqa: B023
        check = client.run(self._room, layout.SERVER, "root", ["oar-database --check --deep"])
        return [check.err.decode(errors="replace")] if check.code else []


def run(room: Room, seed: int, minutes: float) -> int:
    """Run faults in a room; print them; return the exit code. Raises RoomError with the seed."""

    def report(text: str) -> None:
        print(text, flush=True)

    report(f"seed {seed}")
    machines = client.ask(room, {"action": "status"})["machines"]
    try:
        problems = Chaos(room, machines, seed).run(60 * minutes, report)  # type: ignore[arg-type]
    except RoomError as error:
        raise RoomError(f"seed {seed}: {error}") from None
    for problem in problems:
        print(f"cluster: seed {seed}: {problem}", file=sys.stderr)
    return 1 if problems else 0

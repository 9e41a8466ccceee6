"""Faults of servers, databases and nodes of a room: the choice at random, the fault itself, and its repair."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from . import census, client, fault_log, layout, services
from .fault_log import TakeOver
from .layout import Room
from .load import query, shell, wait_until

#: Seconds after which a fault counts as not survived.
SERVICE_SECONDS = 240.0
#: Seconds for which a fault lasts that the room does not notice by itself.
_SHORT, _LONG = 1.0, 15.0
#: Kinds of faults. A take-over is a fault of the active server that lasts until another server is active.
TAKE_OVER, SERVER, DATABASE, NODE = KINDS = ("take-over", "server", "database", "node")
#: Faults, each with the action that ends it.
SERVER_FAULTS = {
    "kill": "start",
    "kill-all": "start",
    "stop": "start",
    "hang": "resume",
    "cut": "heal",
    "cut-database": "heal",
    "cut-nodes": "heal",
    "power-off": "start",
}
#: Faults after which another server must be active, with the limit of the specification in seconds.
TAKE_OVERS = {
    "hand-over": 3.0,
    "stop": 3.0,
    "kill": 5.0,
    "kill-all": 5.0,
    "hang": 15.0,
    "cut": 15.0,
    "cut-database": 15.0,
    "power-off": 15.0,
}
#: Programs that only an active server has.
ACTIVE_ONLY = {"bipbip_commander", "meta_sched", "sarko", "leon", "node_change_state", "finaud", "greta"}
_ALONE = ("kill", "stop", "hang")  #: faults of a room with one server
_DATABASE_FAULTS = ("kill", "power-off")
#: Patroni promotes the replica, or starts PostgreSQL again.
_PATRONI_FAULTS = {"kill": "start", "power-off": "start", "cut": "heal", "stop": "start", "promote": "start"}
NODE_FAULTS = {
    "crash": "reboot",
    "power-off": "reboot",
    "cut": "heal",
    "hang": "resume",
    "sshd-stop": "sshd-start",
    "reboot": "",
}


class Fault(NamedTuple):
    """Something that happens to a machine of a room."""

    kind: str
    host: str
    action: str

    def __str__(self) -> str:
        """Return the arguments of setup/cluster."""
        return f"{SERVER if self.kind == TAKE_OVER else self.kind} {self.host} {self.action}"


class Harm:
    """The faults of a room."""

    def __init__(self, room: Room, random: Random, only: str = "") -> None:
        self._room = room
        self._random = random
        self._kinds = (only,) if only else self._usual_kinds()
        self.excused: set[int] = set()  #: jobs that may have failed with their node
        self.take_over: TakeOver | None = None  #: the last one

    def _usual_kinds(self) -> tuple[str, ...]:
        """Return the kinds to choose from. Half of the faults concern servers."""
        kinds = (SERVER, SERVER, NODE)
        return kinds + ((DATABASE,) if self._room.databases > 1 else ())

    def choose(self) -> Fault:
        """Choose the next fault. Raises RoomError."""
        kind = self._random.choice(self._kinds)
        if kind == TAKE_OVER:
            action = self._random.choice(list(TAKE_OVERS))
            return Fault(kind, self.active(), action)
        if kind == SERVER:
            actions = sorted(SERVER_FAULTS) if self._room.servers > 1 else _ALONE
            return Fault(kind, self._random.choice(self._room.server_names), self._random.choice(actions))
        if kind == DATABASE:
            return self._choose_of_database()
        return Fault(kind, self._random.choice(self._room.node_names), self._random.choice(sorted(NODE_FAULTS)))

    def _choose_of_database(self) -> Fault:
        primary, *replicas = self.databases()
        if not self._room.has_patroni:
            return Fault(DATABASE, primary, self._random.choice(_DATABASE_FAULTS))
        action = self._random.choice(sorted(_PATRONI_FAULTS))
        if action == "promote":
            return Fault(DATABASE, replicas[0], action)
        hosts = self._room.etcd_names if action == "power-off" else (primary, *replicas)
        return Fault(DATABASE, self._random.choice(hosts), action)

    def active(self) -> str:
        """Return the server that took over last. Raises RoomError."""
        return query(self._room, "SELECT server_name FROM server_generation")[0][0]

    def databases(self) -> list[str]:
        """Return the hosts of PostgreSQL, the primary first."""
        ask = "psql -XAtq -h /run/postgresql{} -U postgres oar -c 'SELECT pg_is_in_recovery()'"
        answers = {
            name: shell(self._room, layout.SERVER, "root", ask.format(name.removeprefix(layout.DATABASE)))
            for name in self._room.database_names
        }
        return sorted(answers, key=lambda name: answers[name].strip() != "f")

    def apply(self, fault: Fault) -> None:
        """Let a fault happen, and repair it. Raises RoomError."""
        self.take_over = None
        actions: dict[str, Callable[[Fault], None]] = {
            TAKE_OVER: self._let_take_over,
            SERVER: self._harm_server,
            DATABASE: self._fail_over_by_patroni if self._room.has_patroni else self._fail_over,
            NODE: self._harm_node,
        }
        actions[fault.kind](fault)

    def _control(self, fault: Fault, action: str = "") -> None:
        kind = SERVER if fault.kind == TAKE_OVER else fault.kind
        services.control(self._room, kind, action or fault.action, fault.host)

    def _harm_server(self, fault: Fault) -> None:
        self._control(fault)
        self._last()
        self._mend_server(fault)
        if fault.action == "cut-nodes":
            self._revive_all()

    def _mend_server(self, fault: Fault) -> None:
        cure = SERVER_FAULTS.get(fault.action, "start")
        self._control(fault, cure)
        if cure != "start":
            self._control(fault, "start")

    def _last(self) -> None:
        """Let a fault last for a random time."""
        time.sleep(self._random.choice((_SHORT, _LONG)))

    def _let_take_over(self, fault: Fault) -> None:
        """Let another server become active, and repair this one."""
        wait_until(self.is_pair, "one server is active and another one waits for the lock", SERVICE_SECONDS)
        begin = fault_log.now(self._room)
        self._control(fault)
        wait_until(lambda: self.has_taken_over(fault.host, begin), "another server is active", SERVICE_SECONDS)
        self._mend_server(fault)
        self.take_over = fault_log.newest(self._room, begin)

    def is_pair(self) -> bool:
        """Return whether one server is active and all others wait for the lock. Raises RoomError."""
        wardens = query(self._room, "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'oar:warden%'")
        return len(wardens) == self._room.servers and self.count_active() == 1

    def count_active(self) -> int:
        """Return the number of servers with processes that only an active one has. Raises RoomError."""
        found = [{name.rpartition(".")[2] for name in census.programs(self._room, host)} for host in self._servers]
        return sum(bool(names & ACTIVE_ONLY) for names in found)

    @property
    def _servers(self) -> tuple[str, ...]:
        return self._room.server_names

    def has_taken_over(self, former: str, since: float) -> bool:
        """Return whether another server is active and has scheduled a job."""
        latest = fault_log.newest(self._room, since)
        return bool(latest and latest.server != former and latest.round_seconds is not None)

    def _fail_over(self, fault: Fault) -> None:
        primary, replica = self.databases()
        self._control(fault)
        services.control(self._room, DATABASE, "promote", replica)
        services.control(self._room, DATABASE, "follow", primary)

    def _fail_over_by_patroni(self, fault: Fault) -> None:
        self._control(fault)
        self._last()
        cure = _PATRONI_FAULTS[fault.action]
        if cure != "start":
            self._control(fault, cure)
        for host in self._room.etcd_names:
            services.control(self._room, DATABASE, "start", host)

    def _harm_node(self, fault: Fault) -> None:
        begin = int(time.time()) - 2
        client.ask(self._room, {"action": fault.action, "node": fault.host})
        self._last()
        if NODE_FAULTS[fault.action]:
            client.ask(self._room, {"action": NODE_FAULTS[fault.action], "node": fault.host})
        wait_until(partial(self._revive, fault.host), f"{fault.host} is Alive", SERVICE_SECONDS)
        self.excused |= self._jobs_on(fault.host, begin)

    def _revive_all(self) -> None:
        """Wait until all nodes are Alive."""
        for node in self._room.node_names:
            wait_until(partial(self._revive, node), f"{node} is Alive", SERVICE_SECONDS)

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

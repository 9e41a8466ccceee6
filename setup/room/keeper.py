"""The keeper of a test cluster ("room"): a process outside that creates, crashes, repairs and removes its machines.

Every process, mount, link and namespace of a room ends with the first process of its server, which ends with the
keeper. The keeper's guard, a second process that waits for the keeper's end, removes what the kernel leaves: control
group directories and the directory of the room. If the guard is killed, the keeper removes them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import cgroups, client, door, kernel, layout, machine, runs, world
from .layout import Room, RoomError

_MACHINE_DEADLINE = 120.0
_END_DEADLINE = 60.0
#: Timeout in seconds of a client's request; the keeper serves one client at a time.
_REQUEST_DEADLINE = 30.0
_STOP_DEADLINE = 3 * _END_DEADLINE
#: Private namespaces of each machine, in addition to its view of the control groups.
_NAMESPACES = kernel.NEW_MOUNT | kernel.NEW_UTS | kernel.NEW_IPC | kernel.NEW_PID | kernel.NEW_NET


@dataclass
class Machine:
    """State of the server or of a node."""

    name: str
    number: int
    cgroups: list[str] = field(default_factory=list)
    pid: int = 0
    handle: int = -1
    channel: socket.socket | None = None
    is_cut: bool = False
    is_hung: bool = False
    has_sshd: bool = True

    @property
    def link(self) -> str:
        """Name of the room's end of the machine's veth pair."""
        return f"v{self.number}"

    @property
    def state(self) -> str:
        """State of the machine in the status output."""
        if not self.pid:
            return "down"
        return "hung" if self.is_hung else "cut" if self.is_cut else "up"

    def as_facts(self) -> dict[str, object]:
        """Entry of the status output."""
        return {
            "state": self.state,
            "address": layout.address(self.number),
            "pid": self.pid,
            "sshd": self.has_sshd and bool(self.pid),
            "cgroups": self.cgroups,
        }


class Keeper:
    """One room and its machines."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.group = f"{cgroups.PREFIX}{room.name}-{os.getpid()}"
        self.machines = {name: Machine(name, number) for name, number in room.machines.items()}
        #: Commands of clients and port forwarders: a handle and the pid of each.
        self.runs: dict[int, int] = {}
        #: Address at which browsers on the host reach the server.
        self.addresses: list[str] = []

    @property
    def server(self) -> Machine:
        """The machine whose end ends the room."""
        return self.machines[layout.SERVER]

    @property
    def nodes(self) -> list[Machine]:
        """All machines except the first server."""
        return [entry for entry in self.machines.values() if entry.number]

    def build(self) -> None:
        """Start the server, then all nodes concurrently."""
        cgroups.create_room(self.group)
        self._begin(self.server)
        self._expect(self.server, b"joined")
        self._expect(self.server, b"ready")
        self.power_on(self.nodes)

    def power_on(self, nodes: list[Machine]) -> None:
        """Start the nodes that are down."""
        for node in nodes:
            self._begin(node)
        for node in nodes:
            self._expect(node, b"joined")
        lines = [line for node in nodes for line in self._cable(node)]
        if lines:
            self._in_server_network(lines)
        for node in nodes:
            node.is_cut = node.is_hung = False
            node.has_sshd = True
            self._channel(node).send(b"linked")
        for node in nodes:
            self._expect(node, b"ready")

    @staticmethod
    def _cable(node: Machine) -> list[str]:
        hardware = layout.hardware_address(node.number)
        return [
            f"link add {node.link} type veth peer name eth0 address {hardware} netns {node.pid}",
            f"link set {node.link} master br0 up",
        ]

    def _begin(self, entry: Machine) -> None:
        """Fork a machine's first process; its first message contains its pid."""
        (self.room.logs / entry.name).mkdir(exist_ok=True)
        entry.cgroups = cgroups.create_machine(self.group, entry.name)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.settimeout(_MACHINE_DEADLINE)
        entry.channel = ours
        maker = machine.fork(lambda: self._make_server(theirs) if entry.number == 0 else self._make_node(entry, theirs))
        theirs.close()
        if entry.number:
            os.waitpid(maker, 0)

    def _make_server(self, channel: socket.socket) -> None:
        """Run in a child that stays outside as the parent of the server's first process."""
        kernel.die_with_parent()
        cgroups.begin_namespace(self.server.cgroups)
        kernel.unshare(_NAMESPACES)
        log = self.room.logs / layout.SERVER / "init.log"

        def first_process() -> None:
            kernel.die_with_parent()
            machine.run(log, channel, lambda: world.build_server(self.room), 0)

        child = machine.fork(first_process)
        channel.close()
        kernel.set_process_name("room-holder")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.waitpid(child, 0)

    def _make_node(self, node: Machine, channel: socket.socket) -> None:
        """Run in a child: enter the room, then fork twice, because a pid namespace applies to children only."""
        cgroups.begin_namespace(node.cgroups)
        kernel.enter_namespaces(self.server.pid, ("ipc", "uts", "net", "pid", "mnt"))
        log = layout.ROOM_DIR / "logs" / node.name

        def first_process() -> None:
            machine.run(log / "init.log", channel, lambda: world.build_copy(node.name, str(log)), node.number)

        def inside() -> None:
            kernel.unshare(_NAMESPACES)
            machine.fork(first_process)

        _wait_for(machine.fork(inside))

    def _in_server_network(self, lines: list[str], *, force: bool = False) -> None:
        """Run ip commands in the network namespace of the room's bridge; pids are those of the host."""

        def job() -> None:
            kernel.enter_namespaces(self.server.pid, ("net",))
            machine.ip_batch(lines, force=force)

        if _wait_for(machine.fork(job)) and not force:
            raise RoomError(f"the network of the room could not be changed: {lines}")

    @staticmethod
    def _channel(entry: Machine) -> socket.socket:
        if entry.channel is None or not entry.pid:
            raise RoomError(f"{entry.name} is down")
        return entry.channel

    def _expect(self, entry: Machine, word: bytes) -> None:
        """Read one message of a machine; the first one also contains its pid."""
        assert entry.channel is not None
        size = struct.calcsize("3i")
        try:
            message, ancillary, _, _ = entry.channel.recvmsg(4096, socket.CMSG_SPACE(size))
        except TimeoutError:
            raise RoomError(f"{entry.name} does not answer") from None
        if message != word:
            text = message.decode(errors="replace").removeprefix("error ") or "it ended at once"
            raise RoomError(f"{entry.name} cannot start: {text}")
        if not entry.pid:
            credentials = next(data for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS)
            entry.pid = struct.unpack("3i", credentials[:size])[0]
            entry.handle = os.pidfd_open(entry.pid)

    # -- actions on a node -------------------------------------------------------------------------------------------

    def crash(self, node: Machine) -> None:
        """Kill the node's processes; its peers see closed connections."""
        self._end(node)

    def power_off(self, node: Machine) -> None:
        """Make the node silent: its peers get no packets."""
        self.cut(node)
        self._end(node)

    def cut(self, node: Machine) -> None:
        """Disconnect the node from the network."""
        self._channel(node)
        self._in_server_network([f"link set {node.link} down"])
        node.is_cut = True

    def heal(self, node: Machine) -> None:
        """Reconnect the node to the network."""
        self._channel(node)
        self._in_server_network([f"link set {node.link} up"])
        node.is_cut = False

    def hang(self, node: Machine) -> None:
        """Freeze every process: the kernel still accepts connections, but no process answers."""
        self._channel(node)
        self._freeze(node, frozen=True)

    def resume(self, node: Machine) -> None:
        """Resume a hung node."""
        self._channel(node)
        self._freeze(node, frozen=False)

    @staticmethod
    def _freeze(node: Machine, *, frozen: bool) -> None:
        """Freeze or resume by control group, or without one by a signal to all processes except the first."""
        number = signal.SIGSTOP if frozen else signal.SIGCONT

        def signal_all() -> None:
            kernel.enter_namespaces(node.pid, ("pid",))
            _wait_for(machine.fork(lambda: os.kill(-1, number)))

        if node.cgroups:
            cgroups.freeze(node.cgroups, frozen=frozen)
        else:
            _wait_for(machine.fork(signal_all))
        node.is_hung = frozen

    def stop_sshd(self, node: Machine) -> None:
        """Stop sshd: new connections are refused; open connections and jobs continue."""
        self._channel(node).send(b"stop-sshd")
        self._expect(node, b"ok")
        node.has_sshd = False

    def start_sshd(self, node: Machine) -> None:
        """Undo stop_sshd."""
        self._channel(node).send(b"start-sshd")
        self._expect(node, b"ok")
        node.has_sshd = True

    def reboot(self, node: Machine) -> None:
        """Restart the node: same name and address, empty /tmp and /run."""
        if node.pid:
            self._end(node)
        self.power_on([node])

    def _end(self, node: Machine) -> None:
        self._channel(node)
        signal.pidfd_send_signal(node.handle, signal.SIGKILL)
        cgroups.thaw(node.cgroups)
        if not select.select([node.handle], [], [], _END_DEADLINE)[0]:
            raise RoomError(f"{node.name} does not end")
        self._forget(node)

    def _forget(self, node: Machine) -> None:
        """Clean up after the end of a node, whether requested or not."""
        self._in_server_network([f"link del {node.link}"], force=True)
        os.close(node.handle)
        if node.channel is not None:
            node.channel.close()
        node.pid, node.handle, node.channel = 0, -1, None
        for path in node.cgroups:
            cgroups.kill_processes(Path(path))

    # -- requests ----------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        """Return the status of the room."""
        return {
            "room": self.room.as_facts(),
            "keeper": os.getpid(),
            "directory": str(self.room.directory),
            "logs": str(self.room.logs),
            "addresses": self.addresses,
            "machines": {name: entry.as_facts() for name, entry in self.machines.items()},
        }

    def answer(self, request: dict[str, Any]) -> dict[str, object]:
        """Carry out one request of the control socket."""
        actions: dict[str, Callable[[Machine], None]] = {
            "crash": self.crash,
            "power-off": self.power_off,
            "cut": self.cut,
            "heal": self.heal,
            "hang": self.hang,
            "resume": self.resume,
            "sshd-stop": self.stop_sshd,
            "sshd-start": self.start_sshd,
            "reboot": self.reboot,
        }
        if request["action"] == "status":
            return self.status()
        if request["action"] == "publish":
            return self.publish(int(request["port"]), int(request["inner"]))
        node = self.machines.get(request.get("node", ""))
        if node is None or not node.number:
            raise RoomError(f"no node {request.get('node')!r} in room {self.room.name!r}: it has {_listed(self.nodes)}")
        if request["action"] not in actions:
            raise RoomError(f"nothing called {request['action']!r} can be done to a node")
        actions[request["action"]](node)
        return {"node": node.name, "state": node.state, "sshd": node.has_sshd and bool(node.pid)}

    def publish(self, port: int, inner: int) -> dict[str, object]:
        """Forward a port of the host to a port of the server, until the room ends."""
        pid, port = door.begin(self.server.pid, port, inner)
        self.runs[os.pidfd_open(pid)] = pid
        self.addresses.append(f"http://{door.HOST}:{port}")
        return {"address": self.addresses[-1]}

    def serve(self, listener: socket.socket, stop: int, lease: int | None) -> None:
        """Serve requests until the room ends: by request, by signal, or because the process of its lease has ended."""
        while True:
            handles = {entry.handle: entry for entry in self.nodes if entry.pid}
            ends = {stop, self.server.handle} | (set() if lease is None else {lease})
            watched: list[socket.socket | int] = [listener, *ends, *handles, *self.runs]
            ready, _, _ = select.select(watched, [], [])
            for handle in self.runs.keys() & set(ready):
                os.waitpid(self.runs.pop(handle), 0)
                os.close(handle)
            for handle, node in handles.items():
                if handle in ready and node.pid:
                    self._forget(node)
            if ends.intersection(ready):
                return
            if listener in ready and self._serve_one(listener):
                return

    def _serve_one(self, listener: socket.socket) -> bool:
        """Serve one request; return whether it was a request to stop."""
        connection, _ = listener.accept()
        connection.settimeout(_REQUEST_DEADLINE)
        with connection, contextlib.suppress(OSError, ValueError, KeyError):
            request, streams = runs.receive(connection)
            try:
                if request["action"] == "stop":
                    connection.sendall(b"{}\n")
                    return True
                if answer := self._guarded(request, connection, streams):
                    connection.sendall(json.dumps(answer).encode() + b"\n")
            finally:
                for stream in streams:
                    os.close(stream)
        return False

    def _run(self, request: dict[str, Any], connection: socket.socket, streams: list[int]) -> dict[str, object]:
        """Start a command; its process sends the response when the command has ended."""
        pid = runs.begin(self.status(), request, connection, streams)
        self.runs[os.pidfd_open(pid)] = pid
        return {}

    def _guarded(self, request: dict[str, Any], connection: socket.socket, streams: list[int]) -> dict[str, object]:
        try:
            if request["action"] == "run":
                return self._run(request, connection, streams)
            return self.answer(request)
        except (OSError, RoomError) as error:
            return {"error": str(error)}


def _listed(nodes: list[Machine]) -> str:
    return ", ".join(node.name for node in nodes)


def _wait_for(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# -- start and cleanup ---------------------------------------------------------------------------------------------


def start(room: Room, lease: int | None) -> None:
    """Create the room and return when its machines answer; guard and keeper continue as daemons.

    `lease`: pid of a process; the room ends when it ends.
    """
    _claim_directory(room)
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.close(read_end)
        _daemonize(room.directory / "keeper.log", keep=write_end)
        _guard(room, write_end, lease)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        report = answer.readline().strip()
    if report != "ready":
        raise RoomError(report or f"the room ended while it started: see {room.directory}")


def _claim_directory(room: Room) -> None:
    cgroups.sweep()
    if is_running(room):
        raise RoomError(f"room {room.name!r} is running: stop it, or give setup/cluster another name with --room")
    shutil.rmtree(room.directory, ignore_errors=True)
    room.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    room.directory.mkdir(mode=0o700)
    for name in ("logs", "disk"):
        (room.directory / name).mkdir(mode=0o755)


def is_running(room: Room) -> bool:
    """Return whether the keeper of this room answers."""
    try:
        client.ask(room, {"action": "status"})
    except (OSError, RoomError):
        return False
    return True


def stop(room: Room) -> None:
    """End a room and return when all of it is removed."""
    status = client.ask(room, {"action": "status"})
    keeper = os.pidfd_open(int(str(status["keeper"])))
    client.ask(room, {"action": "stop"})
    if not select.select([keeper], [], [], _STOP_DEADLINE)[0]:
        raise RoomError(f"room {room.name!r} does not end: see {room.directory}")
    os.close(keeper)
    deadline = time.monotonic() + _STOP_DEADLINE
    while room.directory.exists():
        if time.monotonic() > deadline:
            raise RoomError(f"{room.directory} could not be removed")
        time.sleep(0.005)


def _daemonize(log: Path, keep: int) -> None:
    os.setsid()
    os.chdir("/")
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    machine.close_all_but(0, 1, 2, keep)


def _guard(room: Room, report: int, lease: int | None) -> None:
    """Start the keeper, wait for its end, remove what is left."""
    kernel.adopt_orphans()
    keeper = machine.fork(lambda: _keep(room, report, lease))
    os.close(report)
    kernel.set_process_name("room-guard")
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(keeper, signal.SIGTERM))
    while os.waitpid(-1, 0)[0] != keeper:  # other children: commands whose client has disconnected
        pass
    cgroups.kill_room(f"{cgroups.PREFIX}{room.name}-{keeper}")
    deadline = time.monotonic() + _END_DEADLINE
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:  # directories that the keeper has left
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.005)
    _clear(room, keeper)


def _keep(room: Room, report: int, lease: int | None) -> None:
    """Run as the keeper."""
    kernel.die_with_parent(signal.SIGTERM)
    kernel.set_process_name("room-keeper")
    stop, stop_write = os.pipe()
    os.set_blocking(stop_write, False)
    signal.set_wakeup_fd(stop_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    guard = os.getppid()
    keeper = Keeper(room)
    try:
        handle = None if lease is None else os.pidfd_open(lease)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(room.control))
        listener.listen(64)
        keeper.build()
    except (OSError, RoomError) as error:
        os.write(report, " ".join(f"{error}; {keep_logs(room)}".split()).encode() + b"\n")
        return
    os.write(report, b"ready\n")
    os.close(report)
    keeper.serve(listener, stop, handle)
    if os.getppid() != guard:
        _kill_server(keeper)
        _clear(room, os.getpid())


def keep_logs(room: Room) -> str:
    """Copy the logs to a directory that survives the room; return a text that names it."""
    target = tempfile.mkdtemp(prefix=f"oar-room-{room.name}-logs-")
    shutil.copytree(room.logs, target, dirs_exist_ok=True)
    return f"the logs are in {target}"


def _kill_server(keeper: Keeper) -> None:
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(keeper.server.handle, signal.SIGKILL)


def _clear(room: Room, keeper: int) -> None:
    """Remove the directories of a room whose processes have ended or are about to end."""
    left = cgroups.remove_room(f"{cgroups.PREFIX}{room.name}-{keeper}")
    deadline = time.monotonic() + _END_DEADLINE
    while room.directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(room.directory, ignore_errors=True)
    if left:
        print(f"not removed: {left}", file=sys.stderr)

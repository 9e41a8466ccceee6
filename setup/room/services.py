"""The steps from empty machines to a working cluster, and actions on its services."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import client, database, layout, machine
from .layout import Room, RoomError

#: Steps of `start`, in order.
STEPS = ("nodes", "postgresql", "database", "server", "resources", "commands")
_STEP_DEADLINE = 300.0

#: Services that systemd starts on real machines: the program with its socket, and the socket's path.
_SERVICES = {
    "commands": ("oar-commands --listen /run/oar-commands/socket", "/run/oar-commands/socket"),
    "api": ("oar-api", "/run/oar/api.sock"),
}
#: Address of the REST API in the room (API_LISTEN).
API_PORT = 6668

_ADDRESS = f"{layout.address(0)}/{layout.NETWORK.prefixlen}"
#: Restores the address and the neighbour entry of the server, as its start would.
_PLUG_IN = f"ip addr replace {_ADDRESS} dev br0 && {database.neighbour()}"
#: Removes the server's address, so that no packet about its end reaches others; kills its processes except those of the
#: machine itself, of PostgreSQL and of nodes, which have separate networks; drops its connections.
_POWER_OFF = f"""\
ip addr del {_ADDRESS} dev br0
mine=$(readlink /proc/self/ns/net)
for directory in /proc/[0-9]*; do
    pid=${{directory#/proc/}}
    case $pid-$(cat $directory/comm 2>/dev/null) in 1-* | $$-* | $PPID-* | *-sshd) continue ;; esac
    [ "$(readlink $directory/ns/net 2>/dev/null)" = "$mine" ] && kill -KILL $pid 2>/dev/null
done
{machine.destroy_sockets()}"""

#: Passwords of the room only; its network is private.
PASSWORD = "room"
READ_PASSWORD = "room-ro"


def room_of(status: dict[str, object]) -> Room:
    """Return the status of the room from its keeper."""
    facts = status["room"]
    assert isinstance(facts, dict)
    return Room(**facts)


def inside(room: Room, user: str, command: str) -> str:
    """Run shell text on the server; return its output. If it fails, raise RoomError with its last lines."""
    done = client.run(room, layout.SERVER, user, [command], deadline=_STEP_DEADLINE)
    if done.code:
        said = "\n".join((done.err + done.out).decode(errors="replace").strip().splitlines()[-8:])
        raise RoomError(f"in the room, as {user}: {command.splitlines()[0]} ended with {done.code}:\n{said}")
    return done.out.decode(errors="replace")


def start(room: Room, settings: Sequence[str], until: str) -> None:
    """Carry out the steps up to and including `until`."""
    actions = {
        "nodes": lambda: _write_configuration(room, settings),
        "postgresql": lambda: _start_postgresql(room),
        "database": lambda: _create_database(room),
        "server": lambda: control(room, "server", "start"),
        "resources": lambda: _declare_resources(room),
        "commands": lambda: control(room, "commands", "start"),
    }
    for step in STEPS[: STEPS.index(until) + 1]:
        actions[step]()


def _start_postgresql(room: Room) -> None:
    data = database.directory(fast=room.fast_database)
    inside(room, "root", f"install -d -o postgres -g postgres -m 700 {data}")
    inside(room, "root", f"install -o postgres -m 640 /dev/null {database.LOG}")
    inside(room, "root", database.network_script())
    inside(room, "postgres", database.create_script(fast=room.fast_database))
    control(room, "database", "start")


def control(room: Room, service: str, action: str) -> None:
    """Carry out an action on a service (``docs/cluster-tool.rst``, "Failures")."""
    if service == layout.DATABASE:
        inside(room, "root", database.control_command(action, fast=room.fast_database))
    elif service in _SERVICES:
        signal = {"stop": "TERM", "kill": "KILL"}.get(action)
        inside(room, "root", f"kill -{signal} $(cat /run/oar-{service}.pid)" if signal else _start_script(service))
    elif action == "kill":
        inside(room, "root", "kill -KILL $(cat /run/oar/oar-server.pid)")
    elif action == "power-off":
        inside(room, "root", _POWER_OFF)
    elif action == "start":
        inside(room, "root", f"{_PLUG_IN} && oar-server start")
    else:
        inside(room, "root", f"oar-server {action}")


def _start_script(service: str) -> str:
    """Return shell text that starts a service as oar and returns when it listens."""
    program, listening = _SERVICES[service]
    return f"""
install -d -o oar -g oar {os.path.dirname(listening)}
install -o oar /dev/null /run/oar-{service}.pid
rm -f {listening}
cd /
setsid setpriv --reuid=oar --regid=oar --init-groups env -i PATH={layout.PATH} LANG=C.UTF-8 OARDIR={layout.OARDIR} \\
    sh -c 'echo $$ >/run/oar-{service}.pid; exec {layout.OARDIR}/{program}' \\
    </dev/null >>/var/log/oar-{service}.log 2>&1 &
while [ ! -S {listening} ]; do
    kill -0 $! || {{ tail -n 5 /var/log/oar-{service}.log >&2; exit 1; }}
    sleep 0.02
done"""


def _create_database(room: Room) -> None:
    inside(room, "root", "oar-database --create --db-is-local --force-yes")


def _write_configuration(room: Room, settings: Sequence[str]) -> None:
    """Append the lines of this room to the installed oar.conf: the last assignment of a key counts."""
    lines = [
        f'DB_HOSTNAME="{layout.DATABASE}"',
        f'DB_BASE_PASSWD="{PASSWORD}"',
        f'DB_BASE_PASSWD_RO="{READ_PASSWORD}"',
        f'SERVER_HOSTNAME="{layout.SERVER}"',
        'LOG_LEVEL="3"',
        f'OARSH_OARSTAT_CMD="{layout.OARDIR}/oarstat"',
        *(['CGROUP_MANAGER="none"'] if room.is_rootless else []),
        *settings,
    ]
    text = "\n".join(["", "# This room.", *lines])
    inside(room, "root", f"cat >> /etc/oar/oar.conf <<'END'\n{text}\nEND\nchown root:oar /etc/oar/oar.conf")


def _declare_resources(room: Room) -> None:
    size = f"--hosts {room.nodes} --cpus 1 --cores {room.cores} --cputopo {processors_of_cores(room.cores)}"
    inside(room, "root", f"oar_resources_add --execute {size} --host-prefix node-")


def processors_of_cores(cores: int) -> str:
    """Return the processor of each core of a node: the host's processors, repeated if there are fewer."""
    processors = sorted(os.sched_getaffinity(0))
    return ",".join(str(processors[core % len(processors)]) for core in range(cores))

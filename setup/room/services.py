"""The steps from empty machines to a working cluster, and actions on its services."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from . import client, database, layout, machine, patroni
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

#: Applies a command to the processes of a server except those of the machine itself, of PostgreSQL and of nodes, which
#: have separate networks.
_EACH_PROCESS = """\
mine=$(readlink /proc/self/ns/net)
for directory in /proc/[0-9]*; do
    pid=${{directory#/proc/}}
    case $pid-$(cat $directory/comm 2>/dev/null) in 1-* | $$-* | $PPID-* | *-sshd) continue ;; esac
    [ "$(readlink $directory/ns/net 2>/dev/null)" = "$mine" ] && kill -{signal} $pid 2>/dev/null
done
"""
#: Ends all processes of the server of OAR at once.
_KILL_ALL = """\
mine=$(readlink /proc/self/ns/pid)
for directory in /proc/[0-9]*; do
    [ "$(readlink $directory/ns/pid 2>/dev/null)" = "$mine" ] || continue
    tr '\\0' ' ' <$directory/cmdline 2>/dev/null | grep -q ' -m oar\\.modules\\.' && echo ${directory#/proc/}
done | xargs -r kill -KILL"""
#: An interface that drops all packets; packets from hosts to which its routes lead are dropped, too.
_VOID = "void"

#: Passwords of the room only; its network is private.
PASSWORD = "room"
READ_PASSWORD = "room-ro"


def room_of(status: dict[str, object]) -> Room:
    """Return the status of the room from its keeper."""
    facts = status["room"]
    assert isinstance(facts, dict)
    return Room(**facts)


def inside(room: Room, user: str, command: str, server: str = layout.SERVER) -> str:
    """Run shell text on a server; return its output. If it fails, raise RoomError with its last lines."""
    done = client.run(room, server, user, [command], deadline=_STEP_DEADLINE)
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
        "server": lambda: _on_all_servers(room, "server"),
        "resources": lambda: _declare_resources(room),
        "commands": lambda: _on_all_servers(room, "commands"),
    }
    for step in STEPS[: STEPS.index(until) + 1]:
        actions[step]()


def _on_all_servers(room: Room, service: str) -> None:
    for server in room.server_names:
        control(room, service, "start", server)


def _start_postgresql(room: Room) -> None:
    if room.has_patroni:
        _start_patroni(room)
        return
    for target in database.servers(room):
        inside(room, "root", database.prepare_script(target))
        inside(room, "root", database.network_script(target, room))
    for server in room.server_names:
        inside(room, "root", database.neighbours(room, _device(server)), server)
    primary, *replicas = room.database_names
    inside(room, "postgres", database.create_script(database.server(room, primary), room))
    _control_database(room, "start", primary)
    for replica in replicas:
        _control_database(room, "follow", replica)


def _start_patroni(room: Room) -> None:
    members = patroni.members(room)
    for target in members:
        inside(room, "root", patroni.prepare_script(target, room))
        inside(room, "root", database.network_script(target, room))
    for server in room.server_names:
        inside(room, "root", database.neighbours(room, _device(server)), server)
    for target in members:
        inside(room, "root", patroni.start_etcd(target, room))
    for target in members:
        inside(room, "root", patroni.control_command(target, room, "start"))


def control(room: Room, service: str, action: str, host: str = "") -> None:
    """Carry out an action on a service of a host (``docs/cluster-tool.rst``, "Failures")."""
    if service == layout.DATABASE:
        _control_database(room, action, host or room.database_names[-1 if action == "promote" else 0])
        return
    server = host or layout.SERVER
    if server not in room.server_names:
        raise RoomError(f"no server {server!r} in room {room.name!r}: it has {', '.join(room.server_names)}")
    if service in _SERVICES:
        signal = {"stop": "TERM", "kill": "KILL"}.get(action)
        # Its port is free when the process has ended.
        end = f"read -r pid </run/oar-{service}.pid; kill -{signal} $pid && tail --pid=$pid -f /dev/null"
        script = end if signal else _start_script(service)
    else:
        script = _server_script(room, action, server)
    inside(room, "root", script, server)


def _control_database(room: Room, action: str, host: str) -> None:
    if room.has_patroni:
        inside(room, "root", patroni.control_command(patroni.member(room, host), room, action))
        return
    target = database.server(room, host)
    if action == "follow":
        others = [entry for entry in database.servers(room) if entry != target]
        if not others:
            raise RoomError(f"{host} is the only database of room {room.name!r}; use `start --databases 2`")
        script = database.follow_script(target, others[0], is_asynchronous=room.is_asynchronous)
    else:
        script = database.control_command(target, action)
    inside(room, "root", script)


def _server_script(room: Room, action: str, server: str) -> str:
    """Return shell text for root on a server of OAR: an action on it."""
    scripts = {
        "kill": "kill -KILL $(cat /run/oar/oar-server.pid)",
        "kill-all": _KILL_ALL,
        "power-off": _power_off(room, server),
        "cut": _cut(room, server, (*room.machines, *room.database_names)),
        "cut-nodes": _cut(room, server, room.node_names),
        "cut-database": _cut(room, server, room.database_names),
        "heal": f"ip link del {_VOID}",
        "hang": f"{_EACH_PROCESS.format(signal='STOP') * 2}true",  # a process may have started another one meanwhile
        "resume": f"{_EACH_PROCESS.format(signal='CONT')}true",
        "start": f"{_plug_in(room, server)} && oar-server start",
    }
    return scripts.get(action, f"oar-server {action}")


def _device(server: str) -> str:
    """Return the network interface of a server."""
    return "br0" if server == layout.SERVER else "eth0"


def _own_address(room: Room, server: str) -> str:
    return f"{layout.address(room.machines[server])}/{layout.NETWORK.prefixlen}"


def _plug_in(room: Room, server: str) -> str:
    """Return shell text that restores the address and the neighbour entries of a server, as its start would."""
    device = _device(server)
    return f"ip addr replace {_own_address(room, server)} dev {device} && {database.neighbours(room, device)}"


def _power_off(room: Room, server: str) -> str:
    """Return shell text that makes a server silent.

    It removes the address, so that no packet about the end reaches others; kills the processes; drops the connections.
    """
    return f"""\
ip addr del {_own_address(room, server)} dev {_device(server)}
{_EACH_PROCESS.format(signal="KILL")}
{machine.destroy_sockets()}"""


def _cut(room: Room, server: str, peers: Iterable[str]) -> str:
    """Return shell text that disconnects a server from some hosts: no connection is closed."""
    addresses = {
        **{name: layout.address(number) for name, number in room.machines.items() if name != server},
        **{name: layout.database_address(name) for name in room.database_names},
    }
    routes = "\n".join(f"ip route replace {addresses[name]}/32 dev {_VOID}" for name in peers if name in addresses)
    return f"""\
set -e
ip link show {_VOID} >/dev/null 2>&1 || ip link add {_VOID} type bridge
ip link set {_VOID} arp off up
echo 1 >/proc/sys/net/ipv4/conf/{_device(server)}/rp_filter
{routes}"""


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
        f'DB_HOSTNAME="{" ".join(room.database_names)}"',
        f'DB_BASE_PASSWD="{PASSWORD}"',
        f'DB_BASE_PASSWD_RO="{READ_PASSWORD}"',
        f'SERVER_HOSTNAME="{" ".join(room.server_names)}"',
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

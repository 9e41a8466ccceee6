"""PostgreSQL managed by Patroni in a room (``start --patroni``): a leader and a synchronous replica.

Each host of PostgreSQL runs Patroni and a member of etcd; a third host, the witness, runs a member of etcd only.
Patroni chooses the leader. The settings are those of ``docs/installation.rst``, "PostgreSQL with Patroni".
"""

from __future__ import annotations

from . import database, layout
from .database import Server
from .layout import Room

_STATE = "/run/patroni"
#: Password of Patroni's accounts; the network of the room is private.
_PASSWORD = "room"
#: Seconds for a member to start: at the first start it copies the data of the leader.
_START_SECONDS = 120

_SETTINGS = """\
scope: oar
name: {name}
restapi:
  listen: {address}:8008
  connect_address: {address}:8008
etcd:
  hosts: {members}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 5
    retry_timeout: 5
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 300
        wal_keep_size: 256MB
        track_commit_timestamp: true
  initdb: [{{encoding: UTF8}}, {{locale: C.UTF-8}}]
postgresql:
  listen: 127.0.0.1,{address}:5432
  connect_address: {address}:5432
  use_unix_socket: true
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  data_dir: {data}
  bin_dir: {binaries}
  pgpass: {state}/{name}.pgpass
  authentication:
    superuser: {{username: postgres, password: {password}}}
    replication: {{username: replicator, password: {password}}}
  parameters:
{parameters}
  pg_hba:
{access}
  pg_ident:
{names}
"""

#: Shell functions: the processes of a program on a host, and whether there are any.
_RUNS = """\
pids() {
    for pid in $(ip netns pids $1); do
        [ "$(cat /proc/$pid/comm 2>/dev/null)" = $2 ] && echo $pid
    done
    return 0
}
runs() { [ -n "$(pids $1 $2)" ]; }
"""


def members(room: Room) -> list[Server]:
    """Return the hosts with a member of etcd."""
    return [Server(name, room.fast_database) for name in room.etcd_names]


def member(room: Room, name: str) -> Server:
    """Return a host. Raises RoomError."""
    if name == layout.WITNESS:
        return Server(name, room.fast_database)
    return database.server(room, name)


def prepare_script(target: Server, room: Room) -> str:
    """Return shell text for root: the directories and the configuration of a host."""
    settings = ""
    if target.name != layout.WITNESS:
        settings = f"{database.prepare_script(target)}cat >{_file(target)} <<'END'\n{_settings(target, room)}END\n"
    return f"""\
set -e
install -d -o postgres -g postgres -m 700 {_STATE} {_STATE}/etcd-{target.name}
install -o postgres -m 640 /dev/null {_log(target, "etcd")}
install -o postgres -m 640 /dev/null {_log(target, "patroni")}
{settings}"""


def control_command(target: Server, room: Room, action: str) -> str:
    """Return shell text for root: an action on a host (``docs/cluster-tool.rst``, "Failures")."""
    if action in ("start", "follow"):
        return start_etcd(target, room) + ("" if target.name == layout.WITNESS else _start_postgresql(target))
    switch_over = f"patronictl -c {_file(target)} switchover oar --force --candidate {target.name}"
    stop = f"pids {target.name} patroni | xargs -r kill -TERM"
    commands = {
        "stop": f"{stop}; while runs {target.name} patroni; do sleep 0.05; done",
        "promote": f"{database.as_postgres(target)} {switch_over}",
    }
    command = commands.get(action)
    return f"{_RUNS}cd / && {command}" if command else database.control_command(target, action)


def start_etcd(target: Server, room: Room) -> str:
    """Return shell text for root: start the member of etcd of a host unless it runs.

    All members must run once before Patroni starts: until then the cluster does not know its version.
    """
    peers = ",".join(f"{peer.name}=http://{peer.address}:2380" for peer in members(room))
    etcd = f"""\
etcd --name {target.name} --enable-v2 --data-dir {_STATE}/etcd-{target.name} --initial-cluster {peers} \\
    --listen-peer-urls http://{target.address}:2380 --initial-advertise-peer-urls http://{target.address}:2380 \\
    --listen-client-urls http://{target.address}:2379 --advertise-client-urls http://{target.address}:2379"""
    return f"""\
{_RUNS}cd /
ip link set {target.link} up
runs {target.name} etcd || {_in_background(target, etcd, "etcd")}
"""


def _start_postgresql(target: Server) -> str:
    """Return shell text that starts Patroni unless it runs, and waits until PostgreSQL serves its role."""
    url = f"http://{target.address}:8008"
    ask = f"{database.as_postgres(target)} curl -sf -o /dev/null"
    return f"""\
runs {target.name} patroni || {_in_background(target, f"patroni {_file(target)}", "patroni")}
end=$(($(date +%s) + {_START_SECONDS}))
until {ask} {url}/primary || {ask} {url}/synchronous; do
    [ $(date +%s) -lt $end ] || {{ tail -n 5 {_log(target, "patroni")} >&2; exit 1; }}
    sleep 0.1
done
"""


def _in_background(target: Server, command: str, name: str) -> str:
    environment = f"env -i PATH={layout.PATH} LANG=C.UTF-8 HOME={_STATE}"
    log = _log(target, name)
    return f"{{ {database.as_postgres(target)} setsid {environment} {command} </dev/null >>{log} 2>&1 & }}"


def _log(target: Server, name: str) -> str:
    return f"/var/log/{name}-{target.name}.log"


def _file(target: Server) -> str:
    return f"{_STATE}/{target.name}.yml"


def _settings(target: Server, room: Room) -> str:
    lines = (target.sockets_line + database.parameters(target, room)).splitlines()
    parameters = [(name, value.strip("'")) for name, _, value in (line.partition(" = ") for line in lines)]
    parameters = [entry for entry in parameters if entry[0] != "full_page_writes"]  # pg_rewind needs them
    access = database.ACCESS.splitlines()
    # Also from itself: without it, Patroni cannot read the timeline of a former leader and does not rewind it.
    for address in ("127.0.0.1", *(peer.address for peer in database.servers(room))):
        access += [f"host all,replication postgres,replicator {address}/32 scram-sha-256"]
    return _SETTINGS.format(
        name=target.name,
        address=target.address,
        members=",".join(f"{peer.address}:2379" for peer in members(room)),
        data=target.directory,
        binaries=database.binaries(),
        state=_STATE,
        password=_PASSWORD,
        parameters="\n".join(f"    {name}: '{value}'" for name, value in parameters),
        access="\n".join(f"    - {line}" for line in access),
        names="\n".join(f"    - {line}" for line in database.NAMES.splitlines()),
    )

"""A complete cluster on one computer, for tests, demonstrations and developers of tools for OAR.

A room is one server (also the frontend) and some nodes, made of namespaces: each machine has its own host name,
address, processes, /tmp, /run, /var/lib/oar, view of the control groups, and a real sshd on port 6667. Accounts: oar,
alice, bob, carol, the same on all machines, which also share /home. PostgreSQL and the server of OAR run in it. This
computer is not changed; when the room ends, everything is removed. Several rooms with different names can run at the
same time.

  setup/cluster start --nodes 4            # everything up: nodes, database, server, resources
  setup/cluster run alice 'oarsub -l nodes=2 "oarprint host"'
  setup/cluster shell bob                  # a login on the frontend
  setup/cluster status                     # JSON
  setup/cluster node node-2 crash          # see below
  setup/cluster stop

Actions on a node:
  crash       kill its processes; peers see closed connections
  power-off   make it silent; peers notice nothing until they time out
  cut, heal   disconnect the network, connect it again
  hang, resume  freeze every process; the kernel still accepts connections
  sshd-stop, sshd-start  refuse new connections; open sessions and jobs continue
  reboot      start it again (also after crash or power-off): same name and address, empty /tmp and
              /run; /var/lib/oar is kept
  run         setup/cluster node node-2 run [--as USER] COMMAND [ARGUMENT...]

With `start --servers 2` and `--databases 2`, a second server of OAR (server2) and a replica of PostgreSQL (database2):
  setup/cluster server [HOST] ACTION     stop, kill, kill-all, start, hand-over, hang, resume, cut, cut-database,
                                         cut-nodes, heal, power-off
  setup/cluster database [HOST] ACTION   stop, kill, start, promote, follow, cut, heal, power-off
With `--patroni`, Patroni promotes the replica, and a third host (witness) has a member of etcd.

`setup/cluster chaos --seed N --minutes M` chooses faults of servers, databases and nodes at random, under a load of
jobs. After each one it checks that no job is lost and none runs twice. It prints the seed, and ends at the first fault
that was not survived. `--only take-over --count 200` lets one server take over from the other 200 times.

`setup/cluster upgrade` upgrades both servers to the sources from which it is called, one after the other, under a storm
of submissions. It prints the longest pauses, and fails if a user saw an error or a job noticed it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Sequence

from . import chaos, client, enter, harm, keeper, layout, levels, product, rolling, services
from .layout import Room, RoomError

SERVER_ACTIONS = ("kill-all", "hand-over", "hang", "resume", "cut", "cut-database", "cut-nodes", "heal", "power-off")
DATABASE_ACTIONS = ("promote", "follow", "cut", "heal", "power-off")
NODE_ACTIONS = ("crash", "power-off", "cut", "heal", "hang", "resume", "sshd-stop", "sshd-start", "reboot")


def main(arguments: Sequence[str] | None = None) -> int:
    """The program setup/cluster."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.action(options)
    except (RoomError, OSError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="setup/cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--room", default=os.environ.get("OAR_ROOM", "main"), help="name of the room (default: $OAR_ROOM, else main)"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_start(actions)
    actions.add_parser("check", help="tell whether this computer can have a room").set_defaults(action=_check)
    stop = actions.add_parser("stop", help="end the room; nothing of it is left")
    stop.set_defaults(action=_stop)
    actions.add_parser("status", help="the facts of the room as JSON").set_defaults(action=_status)
    shell = actions.add_parser("shell", help="open a shell on the server")
    shell.add_argument("user", nargs="?", default="alice")
    shell.set_defaults(action=_shell)
    run = actions.add_parser("run", help="run a command as a user")
    run.add_argument("--on", dest="machine", default=layout.SERVER, help="machine (default: the server)")
    run.add_argument("user")
    _add_command(run)
    run.set_defaults(action=_run)
    node = actions.add_parser("node", help="do something to a node, or run a command on it")
    node.add_argument("node")
    node.add_argument("what", choices=[*NODE_ACTIONS, "run"])
    node.add_argument("--as", dest="user", default="root", help="account for `run` (default root)")
    node.add_argument("command", nargs=argparse.REMAINDER)
    node.set_defaults(action=_node, env=[])
    for name, text, hosts, more in (
        (layout.SERVER, "a server of OAR", layout.SERVERS, SERVER_ACTIONS),
        (layout.DATABASE, "PostgreSQL", (*layout.DATABASES, layout.WITNESS), DATABASE_ACTIONS),
        ("commands", "the server that answers commands", layout.SERVERS, ()),
        ("api", "the REST API with its pages", layout.SERVERS, ()),
    ):
        service = actions.add_parser(name, help=f"do something to {text}")
        service.add_argument("host", nargs="?", default="", metavar="HOST", help=f"one of: {', '.join(hosts)}")
        service.add_argument("what", choices=["stop", "kill", "start", *more])
        service.set_defaults(action=_service, service=name)
    chaos_action = actions.add_parser("chaos", help="let random faults happen under a load of jobs, and check the jobs")
    chaos_action.add_argument("--seed", type=int, help="order of the faults (default: random)")
    chaos_action.add_argument("--minutes", type=float, default=10.0, help="duration (default 10)")
    chaos_action.add_argument("--count", type=int, help="number of faults, in place of a duration")
    chaos_action.add_argument(
        "--only",
        default="",
        choices=harm.KINDS,
        help="kind of faults; take-over: faults of the active server, each until another server is active",
    )
    chaos_action.add_argument("--clients", type=int, default=1, help="clients that submit, on each server (default 1)")
    chaos_action.set_defaults(action=_chaos)
    upgrade = actions.add_parser("upgrade", help="upgrade both servers to these sources, under a storm of submissions")
    upgrade.add_argument("--clients", type=int, default=4, help="clients that submit without a pause (default 4)")
    upgrade.set_defaults(action=_upgrade)
    publish = actions.add_parser("publish", help="let browsers of this computer reach the API; print its address")
    publish.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: one that is free)")
    publish.set_defaults(action=_publish)
    logs = actions.add_parser("logs", help="print the logs of all machines")
    logs.add_argument("--lines", type=int, default=200, help="at most so many of each file (default 200)")
    logs.set_defaults(action=_logs)
    return parser


def _add_start(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    start = actions.add_parser("start", help="start a room with everything in it")
    start.add_argument("--nodes", type=int, default=4)
    start.add_argument("--servers", type=int, default=1, choices=(1, 2), help="servers of OAR (default 1)")
    start.add_argument(
        "--databases",
        type=int,
        default=1,
        choices=(1, 2),
        help="PostgreSQL servers: a primary and a replica (default 1)",
    )
    start.add_argument(
        "--asynchronous", action="store_true", help="acknowledge a commit before the replica has it, which may lose it"
    )
    start.add_argument(
        "--patroni",
        action="store_true",
        help="let Patroni choose the primary (Debian packages patroni, etcd-server, curl)",
    )
    start.add_argument("--cores", type=int, default=2, help="resources of each node (default 2)")
    start.add_argument("--fast-db", action="store_true", help="PostgreSQL in memory without fsync: for tests")
    start.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="line for the server's oar.conf")
    start.add_argument(
        "--show", action="append", default=[], metavar="DIR", help="let all machines see this directory, read-only"
    )
    start.add_argument(
        "--until", default=services.STEPS[-1], choices=services.STEPS, help="stop after this step of the start"
    )
    start.add_argument("--while", dest="lease", type=int, metavar="PID", help="end the room when this process ends")
    start.set_defaults(action=_start)


def _add_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="add to the environment")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="one word goes to a shell, several are run as they are"
    )


def _room(options: argparse.Namespace) -> Room:
    return Room(layout.check_name(options.room), 0, 0)


def _start(options: argparse.Namespace) -> int:
    if problem := levels.missing():
        raise RoomError(problem)
    for option, number in (("--nodes", options.nodes), ("--cores", options.cores)):
        if not 1 <= number <= 1000:
            raise RoomError(f"{option} must be between 1 and 1000")
    if options.patroni and (options.databases < 2 or options.asynchronous):
        raise RoomError("--patroni needs --databases 2, without --asynchronous")
    name = layout.check_name(options.room)
    shown = tuple(layout.check_shown(path) for path in options.show)
    levels.become_root_of_a_namespace(sys.argv[1:])
    installation = product.install()
    is_rootless = levels.is_rootless()
    room = Room(
        name,
        options.nodes,
        options.cores,
        str(installation),
        options.fast_db,
        is_rootless,
        shown,
        servers=options.servers,
        databases=options.databases,
        is_asynchronous=options.asynchronous,
        has_patroni=options.patroni,
    )
    keeper.start(room, options.lease)
    try:
        services.start(room, options.set, options.until)
    except BaseException:
        print(f"cluster: {keeper.keep_logs(room)}", file=sys.stderr)
        keeper.stop(room)
        raise
    print(levels.describe(is_rootless=room.is_rootless))
    if options.cores > (processors := len(os.sched_getaffinity(0))):
        print(f"The {options.cores} cores of each node share the processors of this computer, which has {processors}.")
    print(f"Room {name!r} is up: {', '.join(room.server_names)} and {options.nodes} nodes, logs in {room.logs}.")
    return 0


def _check(_: argparse.Namespace) -> int:
    if problem := levels.missing():
        raise RoomError(problem)
    print(levels.describe(is_rootless=os.getuid() != 0))
    return 0


def _stop(options: argparse.Namespace) -> int:
    keeper.stop(_room(options))
    return 0


def _status(options: argparse.Namespace) -> int:
    print(json.dumps(client.ask(_room(options), {"action": "status"}), indent=2))
    return 0


def _shell(options: argparse.Namespace) -> int:
    return _run_on(options, layout.SERVER, options.user, ["/bin/bash", "-l"])


def _run(options: argparse.Namespace) -> int:
    return _run_on(options, options.machine, options.user, options.command)


def _run_on(options: argparse.Namespace, machine: str, user: str, command: list[str]) -> int:
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise RoomError("which command?")
    extra = dict(entry.split("=", 1) for entry in getattr(options, "env", []))
    where = enter.place(client.ask(_room(options), {"action": "status"}), machine)
    return enter.run(where, user, command, extra)


def _node(options: argparse.Namespace) -> int:
    if options.what == "run":
        return _run_on(options, options.node, options.user, options.command)
    print(json.dumps(client.ask(_room(options), {"action": options.what, "node": options.node})))
    return 0


def _service(options: argparse.Namespace) -> int:
    status = client.ask(_room(options), {"action": "status"})
    services.control(services.room_of(status), options.service, options.what, options.host)
    return 0


def _chaos(options: argparse.Namespace) -> int:
    if not 0 < options.minutes <= 10_000:
        raise RoomError(f"--minutes: {options.minutes:g} must be between 0 and 10000")
    for option, number in (("--count", options.count), ("--clients", options.clients)):
        if number is not None and not 1 <= number <= 10_000:
            raise RoomError(f"{option}: {number} must be between 1 and 10000")
    room = services.room_of(client.ask(_room(options), {"action": "status"}))
    if options.only == harm.TAKE_OVER and room.servers < 2:
        raise RoomError("--only take-over needs a room with --servers 2")
    if options.only == harm.DATABASE and room.databases < 2:
        raise RoomError("--only database needs a room with --databases 2")
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    return chaos.run(room, chaos.Plan(seed, options.minutes, options.count, options.only, options.clients))


def _upgrade(options: argparse.Namespace) -> int:
    if not 1 <= options.clients <= 1000:
        raise RoomError(f"--clients: {options.clients} must be between 1 and 1000")
    room = services.room_of(client.ask(_room(options), {"action": "status"}))
    if room.servers < 2 or room.is_rootless:
        raise RoomError("upgrade needs root, and a room with --servers 2")
    return rolling.run(room, options.clients)


def _publish(options: argparse.Namespace) -> int:
    request = {"action": "publish", "port": options.port, "inner": services.API_PORT}
    print(client.ask(_room(options), request)["address"])
    return 0


def _logs(options: argparse.Namespace) -> int:
    """Print the logs from inside: in a rootless room only its root may read them."""
    tail = f"tail -n {options.lines}"
    shown = f'find . -type f -size +0 | sort | while read -r f; do echo "==> ${{f#./}} <=="; {tail} "$f"; echo; done'
    return _run_on(options, layout.SERVER, "root", [f"cd {layout.ROOM_DIR}/logs && {shown}"])

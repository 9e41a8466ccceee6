"""Engines that oar-launch starts, and JupyterHub: they do their work on a real cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from installer.target import InstallError

from tests.acceptance.conftest import looked_after
from tests.acceptance.harness import Cluster, wait_until
from tests.acceptance.programs import ENGINES, Desk
from tests.index_programs import environment


@pytest.fixture(scope="module")
def small_room(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Path]]:
    """Two nodes that see the engines."""
    try:
        venv = environment(ENGINES)
    except InstallError as error:
        pytest.fail(f"the engines cannot be installed: {error}", pytrace=False)
    settings = ("--set", "JOB_KILL_GRACE=1")
    cluster = Cluster.start(
        f"engines-{os.getpid()}", "--nodes", "2", "--cores", "2", "--fast-db", "--show", str(venv), *settings
    )
    for room in looked_after(request, cluster):
        yield room, venv


@pytest.fixture
def desk(small_room: tuple[Cluster, Path], request: pytest.FixtureRequest) -> Iterator[Desk]:
    """A directory for one test."""
    cluster, venv = small_room
    yield Desk.made(cluster, venv, request.node.name.partition("[")[0])
    cluster.calm()


# -- oar-launch -------------------------------------------------------------------------------------------------------


#: Somebody else on the node asks whatever listens there for Alice: her ports, then a line for each answer that refuses
#: nothing.  What the monitor of Ray counts is no secret.
STRANGER = """
import http.client, pwd

PATHS = ("/", "/metrics", "/info/main/workers.html", "/v1/submissions/status/x", "/api/job_agent/jobs/")
alice = pwd.getpwnam("alice").pw_uid


def ports():
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for fields in map(str.split, open(name).readlines()[1:]):
            if fields[3] == "0A" and int(fields[7]) == alice:
                yield int(fields[1].rpartition(":")[2], 16)


def answer(host, port, path):
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(200)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


found = sorted(set(ports()))
print(*found)
for port in found:
    for host in ("node-1", "127.0.0.1"):
        for path in PATHS:
            told = answer(host, port, path)
            if told is None:
                break
            if told[0] < 400 and b"autoscaler_" not in told[1]:
                print(port, path, *told)
"""
#: Ports that engines take unless they are told otherwise: two jobs on a node would be in each other's way.
USUAL_PORTS = frozenset({4040, 6066, 6379, 7077, 8080, 8081, 8265, 8786, 8787, 10001, 52365})


@pytest.mark.parametrize("engine", ["dask", "ray", "spark"])
def test_an_engine_computes_on_all_nodes_for_its_user_alone_and_ends_with_its_program(desk: Desk, engine: str) -> None:
    program = f"{engine}_engine.py"
    desk.put(program)
    desk.put("work.sh", f"python3 {program} && touch computed && until [ -e seen ]; do sleep 0.1; done\n")
    place = f"/home/alice/{desk.name}"
    path = f"PATH={desk.venv}/bin:/usr/local/bin:/usr/bin:/bin"
    line = f"oar-launch {engine} sh work.sh"
    job = desk.person.submit(f"-d {place} -O out -E err --env {path} -l nodes=2,walltime=0:20 '{line}'")
    wait_until(lambda: "computed" in desk.run("ls") or desk.cluster.state(job) == "Terminated")
    stranger = desk.cluster.node("node-1").as_user("bob")
    ports, *answers = stranger.run("python3 -", stdin=STRANGER).splitlines()
    desk.run("touch seen")
    desk.cluster.wait_for_state(job, "Terminated")
    printed = desk.attempt("grep -xE '285|node-1 node-2' out")  # Ray adds remarks about a part that was started again
    assert printed.out == "285\nnode-1 node-2\n", desk.run("cat out err oar-launch.*.log")
    assert desk.cluster.cause(job) == "SUCCESS"
    assert answers == []
    assert len(ports.split()) > 1
    assert USUAL_PORTS.isdisjoint(map(int, ports.split()))


# -- JupyterHub -------------------------------------------------------------------------------------------------------

#: What a site adds: how users log in, where the proxy is; and somebody who may ask the hub for everything.
HUB = """
load_subconfig("jupyterhub_config.py")
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {"alice"}
c.JupyterHub.hub_connect_ip = "server"
c.ConfigurableHTTPProxy.command = ["configurable-http-proxy"]
c.JupyterHub.services = [{"name": "tester", "api_token": "secret-of-the-tester"}]
c.JupyterHub.load_roles = [
    {"name": "tester", "services": ["tester"], "scopes": ["admin:servers", "admin:users", "access:servers"]}
]
"""
#: Asks the hub for a server of Alice, looks whether it answers, and has it ended.
SESSION = """
import subprocess, sys, time, requests

head = {"Authorization": "token secret-of-the-tester"}
top = "http://127.0.0.1:8000"
hub = subprocess.Popen(["jupyterhub", "-f", "site.py"], stdout=open("hub.log", "w"), stderr=subprocess.STDOUT)


def ask(method, path):
    return requests.request(method, top + path, headers=head, timeout=60)


def wait(condition):
    while True:
        try:
            if condition():
                return
        except requests.ConnectionError:
            pass
        if hub.poll() is not None:
            sys.exit("the hub has ended")
        time.sleep(0.2)


try:
    wait(lambda: ask("GET", "/hub/api/").ok)
    assert ask("POST", "/hub/api/users/alice/server").status_code in (201, 202)
    wait(lambda: ask("GET", "/hub/api/users/alice").json()["servers"].get("", {}).get("ready"))
    print(sorted(ask("GET", "/user/alice/api/status").json()), flush=True)
    running = "job_name = 'jupyterhub' AND state = 'Running'"
    print(subprocess.check_output(["oarstat", "-f", "--sql", running], text=True))
    assert ask("DELETE", "/hub/api/users/alice/server").status_code in (202, 204)
    wait(lambda: not ask("GET", "/hub/api/users/alice").json()["servers"])
finally:
    hub.terminate()
    hub.wait()
"""


def test_jupyterhub_runs_the_servers_of_its_users_as_jobs(desk: Desk) -> None:
    place = f"/home/alice/{desk.name}"
    for name, text in (("jupyterhub_config.py", ""), ("site.py", HUB), ("session.py", SESSION)):
        desk.put(name, text)
    path = f"{desk.venv}/bin:/usr/local/bin:/usr/bin:/bin"
    root = desk.cluster.as_user("root")
    work = "mkdir -m 700 /root/hub && cp *.py /root/hub && cd /root/hub && python3 session.py"
    done = root.attempt(f"cd {place} && {work}", env={"PATH": path})
    assert done.code == 0, (done, root.attempt("tail -n 50 /root/hub/hub.log").out)
    assert done.out.startswith("['connections', 'kernels', "), done
    assert "owner = alice" in done.out
    assert wait_for_jobs(desk) == ["Error"]


def wait_for_jobs(desk: Desk) -> list[str]:
    """Wait until the servers of the hub have ended; their states."""
    condition = "job_name = 'jupyterhub'"
    wait_until(lambda: set(desk.states(condition)) <= {"Terminated", "Error"}, lambda: desk.states(condition))
    return desk.states(condition)

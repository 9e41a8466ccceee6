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


@pytest.mark.parametrize("engine", ["dask", "ray", "spark"])
def test_an_engine_computes_on_all_nodes_of_its_job_and_ends_with_its_program(desk: Desk, engine: str) -> None:
    program = f"{engine}_engine.py"
    desk.put(program)
    place = f"/home/alice/{desk.name}"
    path = f"PATH={desk.venv}/bin:/usr/local/bin:/usr/bin:/bin"
    line = f"oar-launch {engine} python3 {program}"
    job = desk.person.submit(f"-d {place} -O out -E err --env {path} -l nodes=2,walltime=0:20 '{line}'")
    desk.cluster.wait_for_state(job, "Terminated")
    assert desk.run("cat out") == "285\nnode-1 node-2\n", desk.run("cat err oar-launch.*.log")
    assert desk.cluster.cause(job) == "SUCCESS"


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

"""Programs with web pages in jobs: who can open a real JupyterLab, which the first run fetches from PyPI (network)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from installer.target import InstallError

from tests.acceptance.conftest import looked_after
from tests.acceptance.harness import Cluster, Person, wait_until
from tests.acceptance.terminal import INTERRUPT, Terminal
from tests.index_programs import environment

REQUIREMENTS = Path(__file__).parent / "apps.txt"
#: Prints the status of a GET without and with the token, then runs a line in a kernel of the notebook server.
CLIENT = r"""
import json, sys, urllib.error, urllib.request, uuid, websocket
base, token = sys.argv[1:3]
def get(path, **headers):
    try:
        return urllib.request.urlopen(urllib.request.Request(base + path, headers=headers)).status
    except urllib.error.HTTPError as error:
        return error.code
mine = {"Authorization": "token " + token}
print(get("/api/contents"), get("/api/contents", Authorization="token 0"), get("/api/contents", **mine))
if token != "0":
    made = urllib.request.Request(base + "/api/kernels", b"{}", {**mine, "Content-Type": "application/json"})
    kernel = json.load(urllib.request.urlopen(made))["id"]
    channel = websocket.create_connection(
        base.replace("http", "ws", 1) + "/api/kernels/" + kernel + "/channels",
        header=["Authorization: token " + token], timeout=60,
    )
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": "1"}
    header["version"] = "5.3"
    code = "import os; print(os.uname().nodename, os.environ['OAR_JOB_ID'])"
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    request = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    channel.send(json.dumps(request))
    while True:
        message = json.loads(channel.recv())
        if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == header["msg_id"]:
            print(message["content"]["text"], end="")
            break
"""


@pytest.fixture(scope="module")
def jupyter_room(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Path]]:
    """Two nodes that see JupyterLab."""
    try:
        venv = environment(REQUIREMENTS)
    except InstallError as error:
        pytest.fail(f"JupyterLab cannot be installed from PyPI: {error}", pytrace=False)
    options = ("--nodes", "2", "--cores", "2", "--fast-db", "--show", str(venv), "--set", "JOB_KILL_GRACE=1")
    cluster = Cluster.start(f"apps-{os.getpid()}", *options)
    for room in looked_after(request, cluster):
        yield room, venv


def test_the_owner_alone_opens_a_notebook_server(jupyter_room: tuple[Cluster, Path]) -> None:
    cluster, venv = jupyter_room
    alice, bob = cluster.as_user("alice"), cluster.as_user("bob")
    path = f"{venv}/bin:/usr/local/bin:/usr/bin:/bin"
    with Terminal(alice, f"oarsub --app jupyter -l core=2,walltime=0:30 --env PATH={path}") as terminal:
        job = int(terminal.expect(r"OAR_JOB_ID=(\d+)\n")[1])
        host = terminal.expect(r"# The job runs on (\S+)\. Waiting for jupyter\.\n")[1]
        line = terminal.expect(r"ssh -N -L (\d+):([0-9.]+):(\d+) alice@server\n")
        url = terminal.expect(r"http://localhost:(\d+)(/jobs/\d+)/lab\?token=([0-9a-f]{64})\n")
        assert line[1] == line[3] == url[1]
        assert url[2] == f"/jobs/{job}"
        base, token = f"http://{line[2]}:{line[3]}{url[2]}", url[3]
        script = f"{venv}/bin/python - {base}"
        assert alice.run(f"{script} {token}", stdin=CLIENT) == f"403 403 200\n{host} {job}\n"
        for other in (bob, cluster.node(host).as_user("bob")):
            assert other.run(f"{script} 0", stdin=CLIENT) == "403 403 403\n"
        assert_secret(cluster, bob, job, host, token)
        terminal.press(INTERRUPT)
        terminal.expect(rf"# Job {job} goes on\. Come back: oarsub --app {job}\n# End it: oardel {job}\n")
        assert terminal.exit() == 0
    with Terminal(alice, f"oarsub --app {job}") as terminal:
        terminal.expect(rf"http://localhost:{line[1]}/jobs/{job}/lab\?token={token}\n")
        alice.run(f"oardel {job}")
        terminal.expect(r"# .*deleted.*\n")
        assert terminal.exit() == 0
    cluster.wait_for_state(job, "Error")
    refusals = [alice.attempt(f"oarsub --app {job}").err, bob.attempt(f"oarsub --app {job}").err]
    assert refusals == [
        f"# Error: job {job} has ended: submit another one with --app.\n",
        f"# Error: job {job} belongs to alice: only he can open its program.\n",
    ]


def assert_secret(cluster: Cluster, bob: Person, job: int, host: str, token: str) -> None:
    """Check that the token is nowhere where another user, or a reader of logs and of the database, can see it."""
    seen = [
        bob.run("oarstat -f; oarstat -J"),
        cluster.node(host).as_user("root").run("ps -ef ww"),
        cluster.as_user("root").run("cat /home/alice/OAR.jupyter.*; cat /var/log/oar.log || true"),
        str(cluster.sql(f"SELECT * FROM jobs WHERE job_id = {job}")),
        str(cluster.sql("SELECT * FROM event_logs")),
    ]
    assert not [text for text in seen if token in text]
    assert "[token]" in seen[2] or "is ready on port" in seen[2]
    file = f"/home/alice/.oar/apps/server/{job}.json"
    assert cluster.as_user("root").run(f"stat -c %a:%U {file}") == "600:alice\n"
    assert bob.attempt(f"cat {file}").code


def test_a_program_that_is_not_installed_is_one_clear_line(jupyter_room: tuple[Cluster, Path]) -> None:
    cluster, _ = jupyter_room
    alice = cluster.as_user("alice")
    done = alice.attempt("oarsub --app code-server")
    assert done.code == 11
    path = re.search(r"See the output: (\S+)\n", done.err)
    assert path, done.err
    text = alice.run(f"cat {path[1]}")
    assert re.match(r"# Error: the program code-server is not installed on node-\d, or not in PATH\. Ask", text)


def test_the_site_defines_programs_and_a_mistake_is_found_by_the_check(jupyter_room: tuple[Cluster, Path]) -> None:
    cluster, _ = jupyter_room
    root, alice = cluster.as_user("root"), cluster.as_user("alice")
    page = "command: [python3, -m, http.server, --bind, '{address}', '{port}']\nenvironment: {TOKEN: '{token}'}\n"
    root.run("mkdir -p /etc/oar/apps.d && cat >/etc/oar/apps.d/files.yaml", stdin=page)
    with Terminal(alice, "oarsub --app files") as terminal:
        job = int(terminal.expect(r"OAR_JOB_ID=(\d+)\n")[1])
        terminal.expect(r"http://localhost:\d+/\n# User: alice, password: [0-9a-f]{64}\n")
        alice.run(f"oardel {job}")
        assert terminal.exit() == 0
    root.run("cat >/etc/oar/apps.d/files.yaml", stdin="command: x\n")
    wait_until(lambda: "files.yaml: command: {port} is missing" in root.attempt("oar-conf --check").err, "it is found")
    refused = alice.attempt("oarsub --app files")
    assert refused.code
    assert "/etc/oar/apps.d/files.yaml: command: {port} is missing" in refused.err
    root.run("rm /etc/oar/apps.d/files.yaml")
    assert (
        "unknown program 'files'. Programs of this site: code-server, jupyter, rstudio."
        in alice.attempt("oarsub --app files").err
    )

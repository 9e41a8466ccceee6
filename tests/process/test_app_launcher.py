"""The launcher of programs with web pages, as a process: what it writes, and what other users of the node can see."""

import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oar.lib.apps.definitions import App
from oar.lib.apps.launcher import script_of
from oar.lib.apps.session_file import AppSession, parse_session, session_path

JOB = 42
#: Ports of this file alone.
PORTS = (28100, 28199)
#: A program that tells its token, as many do, and answers each request with what it has.
PROGRAM = """
import http.server, json, os, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = {"path": self.path, "token": os.environ["TOKEN"], "conf": open(sys.argv[2]).read()}
        self.send_response(200); self.end_headers(); self.wfile.write(json.dumps(known).encode())
    def log_message(self, *_):
        pass
print("open http://here/?token=" + os.environ["TOKEN"], flush=True)
http.server.HTTPServer(("", int(sys.argv[1])), Page).serve_forever()
"""
#: The account of the tests has its home in their directory.
HOME = """import os, pwd
_account = list(pwd.getpwuid(os.getuid()))
_account[5] = os.environ["TEST_HOME"]
pwd.getpwuid = lambda uid: pwd.struct_passwd(_account)
"""


def app(*command: str, **fields: Any) -> App:
    files, environment = {"x.conf": "secret {token}"}, {"TOKEN": "{token}"}
    return App("web", command, **{"files": files, "environment": environment, "path": "/lab?t={token}", **fields})


def web(**fields: Any) -> App:
    """Return a program that works."""
    return app(sys.executable, "-c", PROGRAM, "{port}", "{directory}/x.conf", **fields)


@contextmanager
def launched(
    home: Path, program: App, ports: tuple[int, int] = PORTS, *, refresh: float = 86400
) -> Iterator["subprocess.Popen[str]"]:
    """Run a program as a job does; it has ended afterwards.  ``refresh``: seconds between two session files."""
    script = HOME + script_of(program, ports, "server").replace("REFRESH = 30, 86400.0", f"REFRESH = 30, {refresh}")
    environment = {**os.environ, "OAR_JOB_ID": str(JOB), "TEST_HOME": str(home), "TMPDIR": str(home)}
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def until(condition: Callable[[], Any]) -> Any:
    """Return the first value that counts as true; at the limit the last one."""
    limit = time.monotonic() + 60
    while not (value := condition()) and time.monotonic() < limit:
        time.sleep(0.02)
    return value


def session_of(home: Path) -> AppSession:
    """Return the session of the program once it listens."""
    path = Path(session_path(str(home), "server", JOB))
    assert until(path.exists)
    session = parse_session(path.read_bytes(), JOB, PORTS)
    assert session
    return session


def page(session: AppSession) -> dict[str, str]:
    with socket.create_connection(("127.0.0.1", session.port)) as connection:
        connection.sendall(f"GET {session.path} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    record: dict[str, str] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return record


def test_the_owner_finds_the_program_by_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    with launched(tmp_path, web()) as process:
        session = session_of(tmp_path)
        known = page(session)
        token = session.token
        assert known == {"path": f"/lab?t={token}", "token": token, "conf": f"secret {token}"}
        (directory,) = tmp_path.glob("oar-app-*")
        private = [tmp_path / ".oar" / "apps" / "server" / "42.json", directory / "x.conf"]
        assert [stat.S_IMODE(path.stat().st_mode) for path in private] == [0o600, 0o600]
        places = [tmp_path / ".oar", tmp_path / ".oar" / "apps", private[0].parent, directory]
        assert {stat.S_IMODE(path.stat().st_mode) for path in places} == {0o700}
        process.terminate()
        out, err = process.communicate()
    assert process.returncode == 128 + 15
    assert not private[0].exists()
    assert not directory.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", session.port))
    assert (out, err) == (f"open http://here/?token=[token]\nweb is ready on port {session.port}.\n", "")


def test_the_token_is_in_no_process_list(tmp_path: Path) -> None:
    with launched(tmp_path, web()):
        token = session_of(tmp_path).token
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        assert not [line for line in lines if token.encode() in line]


def test_the_token_is_removed_from_long_lines_too(tmp_path: Path) -> None:
    """A line is copied in pieces of 64 KiB; the token may begin in one and end in the next."""
    text = "import os; t = os.environ['TOKEN']; print('x' * 65500 + t + 'y' * 65500 + t, end=' end')"
    with launched(tmp_path, app(sys.executable, "-c", text, "{port}")) as process:
        out, _ = process.communicate(timeout=60)
    assert out == "x" * 65500 + "[token]" + "y" * 65500 + "[token] end"


def test_the_program_has_the_umask_of_its_user(tmp_path: Path) -> None:
    made = "import os; open(os.environ['TMPDIR'] + '/made', 'w')"
    former = os.umask(0o027)
    try:
        with launched(tmp_path, app(sys.executable, "-c", made, "{port}")) as process:
            process.communicate(timeout=60)
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o640


def test_each_run_has_a_token_of_its_own(tmp_path: Path) -> None:
    tokens = set()
    for number in range(2):
        home = tmp_path / str(number)
        home.mkdir()
        with launched(home, web()):
            tokens.add(session_of(home).token)
    assert len(tokens) == 2
    assert all(re.fullmatch("[0-9a-f]{64}", token) for token in tokens)


def test_lines_of_the_site_run_before_the_program(tmp_path: Path) -> None:
    with launched(tmp_path, web(before='export TOKEN="$TOKEN$OAR_JOB_ID"')):
        session = session_of(tmp_path)
        assert page(session)["token"] == f"{session.token}{JOB}"


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (app("no-such-program", "{port}"), 127, "the program no-such-program is not installed on"),
        (app("no-such-program", "{port}", before="true"), 127, "web ended with exit code 127 before it listened"),
        (app("false", "{port}"), 1, "web ended with exit code 1 before it listened on its port"),
        (app("sleep", "1000", seconds=1), 1, "does not listen on port"),
    ],
)
def test_a_program_that_does_not_start_is_one_clear_line(tmp_path: Path, program: App, code: int, said: str) -> None:
    with launched(tmp_path, program) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.splitlines()[-1].startswith("# Error: ")
    assert said in err
    assert not list(tmp_path.glob("oar-app-*"))
    assert not list(tmp_path.glob(".oar/apps/server/*"))


def test_a_port_on_which_another_process_listens_is_not_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", PORTS[0])) as other:
        other.listen()
        with launched(tmp_path, web(), (PORTS[0], PORTS[0])) as process:
            _, err = process.communicate(timeout=60)
    assert f"no port from {PORTS[0]} to {PORTS[0]} is free on this node" in err


@pytest.mark.skipif(os.geteuid() != 0, reason="a process of another user needs root")
def test_a_port_that_another_user_takes_meanwhile_gets_no_session_file(tmp_path: Path) -> None:
    """Else the owner would send his token to that user."""
    thief = "import os, socket, sys, time\nos.setuid(65534)\ns = socket.create_server(('', int(sys.argv[1])))\n"
    with launched(tmp_path, app(sys.executable, "-c", f"{thief}time.sleep(1000)", "{port}")) as process:
        _, err = process.communicate(timeout=60)
    assert "other processes take the ports of web" in err
    assert not list(tmp_path.glob(".oar/apps/server/*"))


def test_a_job_that_runs_for_months_keeps_its_session_file(tmp_path: Path) -> None:
    """Other jobs of its user delete old files, which jobs that were killed left behind."""
    path = Path(session_path(str(tmp_path), "server", JOB))
    with launched(tmp_path, web(), refresh=0.05):
        session = session_of(tmp_path)
        os.utime(path, (0, 0))
        assert until(lambda: path.stat().st_mtime > 0)
        path.unlink()
        assert until(path.exists)
        assert session_of(tmp_path) == session
    assert not path.exists()

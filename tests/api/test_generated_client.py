"""A client that a generator has made of the document runs jobs, as the documentation shows it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.api.test_output import NOBODY, home, needs_root
from tests.builders import add_resources, for_no_reason
from tests.documents import named_blocks
from tests.index_programs import environment

__all__ = ["home"]

pytestmark = [needs_root, pytest.mark.slow]

Start = Callable[[str], subprocess.Popen[str]]

GENERATOR = Path(__file__).parent / "generator.txt"
DOCS = Path(__file__).parent.parent.parent / "docs"
PROGRAM = named_blocks(DOCS / "api.rst")["generated-client"]


@pytest.fixture(scope="module")
def venv() -> Path:
    """What the generator and its clients need."""
    return environment(GENERATOR)


@pytest.fixture(scope="module")
def client(venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a program that uses the client."""
    place = tmp_path_factory.mktemp("client")
    generator = str(venv / "bin" / "openapi-python-client")
    command = [generator, "generate", "--path", str(DOCS / "openapi.json"), "--meta", "none"]
    path = {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}  # it runs its own ruff
    subprocess.run([*command, "--output-path", str(place / "oar_client")], check=True, env=path, cwd=place)
    (place / "run.py").write_text(PROGRAM)
    return place


@pytest.fixture
def token(nobody: httpx.Client) -> str:
    """The token of a user."""
    return nobody.headers["authorization"].removeprefix("Bearer ")


@pytest.fixture
def start(venv: Path, client: Path, api: Api) -> Iterator[Start]:
    """Starts the program with a token."""
    started: list[subprocess.Popen[str]] = []

    def program(token: str) -> subprocess.Popen[str]:
        told = {"PATH": os.environ["PATH"], "TOKEN": token, "OAR_API": f"http://127.0.0.1:{api.port}"}
        command = [str(venv / "bin" / "python"), "run.py"]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, cwd=client, env=told, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield program
    for process in started:
        process.kill()
        process.communicate()


def _submitted(database: Database, process: subprocess.Popen[str]) -> int:
    """Wait for the job that the program submits."""
    while True:
        with database.snapshot() as tx:
            if jobs := list(tx.jobs.live("nobody")):
                return jobs[0].id
        assert process.poll() is None, process.communicate()


def test_its_program_prints_what_the_job_wrote(start: Start, database: Database, token: str, home: Path) -> None:
    add_resources(database)
    process = start(token)
    job = _submitted(database, process)
    out = home / "out"
    out.write_text("hello\n")
    os.chown(out, NOBODY.pw_uid, NOBODY.pw_gid)
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET stdout_file = %s", (str(out),))
    with database.begin() as tx:
        lifecycle.move_all(tx, [job], JobState.ERROR, because=for_no_reason(job))
    assert process.communicate() == (f"job {job}: Error\nhello\n", "")


def test_its_program_deletes_the_job_when_it_is_interrupted(
    start: Start, api: Api, database: Database, token: str
) -> None:
    add_resources(database)
    process = start(token)
    job = _submitted(database, process)
    while not api.service.hub.listeners:  # it waits for the end of the job
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.communicate() == ("", f"job {job} is deleted\n")
    with database.snapshot() as tx:
        assert tx.job_requests.jobs_to_kill([job])


def test_its_program_is_told_why_there_is_no_job(start: Start) -> None:
    process = start("oar_" + "x" * 43)
    assert process.communicate() == (
        "",
        "the token is not valid: it is unknown, revoked or expired. Create another one: oar-token create\n",
    )


def test_the_types_of_the_client_are_right(venv: Path, client: Path) -> None:
    options = ["--strict", "--no-error-summary", "--python-executable", str(venv / "bin" / "python")]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir", "cache", "run.py", "oar_client"]
    done = subprocess.run(command, cwd=client, capture_output=True, text=True, check=False)
    of_the_generator = "oar_client/client.py:"  # a file that is the same whatever the document is
    found = [line for line in done.stdout.splitlines() if not line.startswith(of_the_generator)]
    assert not found, done.stderr

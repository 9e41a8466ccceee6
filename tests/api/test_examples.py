"""What docs/api.rst tells programmers to type is typed, as it stands there, against a running service."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from oar.api import job_output
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.api.test_output import NOBODY, home, needs_root
from tests.builders import add_job, add_resources, for_no_reason
from tests.documents import named_blocks

__all__ = ["home"]

pytestmark = needs_root

CHAPTER = Path(__file__).parent.parent.parent / "docs" / "api.rst"
#: A command line, and those that go on behind its backslashes.
_LINE = re.compile(r"^    \$ ((?:.*\\\n)*.*)$", re.MULTILINE)
#: Before each line: an answer that is an error is one of the line, too.
_STRICT = 'set -e -o pipefail\ncurl() { command curl --fail-with-body -sS "$@"; }\n'


def examples() -> list[str]:
    """The lines that call curl."""
    return [line for line in _LINE.findall(CHAPTER.read_text()) if "curl" in line]


@pytest.fixture
def environment(api: Api, nobody: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a programmer has in his shell; the end of an output is told at once."""
    monkeypatch.setattr(job_output, "LAST_SECONDS", 0.0)
    token = nobody.headers["authorization"].removeprefix("Bearer ")
    return {"PATH": os.environ["PATH"], "TOKEN": token, "OAR_API": f"http://127.0.0.1:{api.port}"}


def _ended_job(database: Database, home: Path) -> int:
    (home / "out").write_text("one\ntwo\n")
    os.chown(home / "out", NOBODY.pw_uid, NOBODY.pw_gid)
    job = add_job(database, user="nobody", launching_directory=str(home), stdout_file="out", stderr_file="err")
    _end(database, job)
    return job


def _end(database: Database, job: int) -> None:
    with database.begin() as tx:
        lifecycle.move_all(tx, [job], JobState.ERROR, because=for_no_reason(job))


@pytest.mark.parametrize("line", examples())
def test_a_line_of_the_chapter_is_answered(
    api: Api, environment: dict[str, str], database: Database, home: Path, line: str
) -> None:
    add_resources(database)
    script = home / "run.sh"
    script.write_text("#!/bin/sh\n#OAR -n example\n")
    script.chmod(0o755)
    os.chown(script, NOBODY.pw_uid, NOBODY.pw_gid)
    job = _ended_job(database, home)
    typed = line.replace("http://127.0.0.1:6668", environment["OAR_API"]).replace("/run/oar/api.sock", api.socket)
    typed = re.sub(r"/jobs/42\b", f"/jobs/{job}", typed).replace("since_id=4711&wait=30", "since_id=0&wait=0")
    typed = typed.replace("~/run.sh", str(script))
    done = subprocess.run(["bash", "-c", _STRICT + typed], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def _started(name: str, environment: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of the chapter, behind the lines with which all but one begin."""
    blocks = named_blocks(CHAPTER)
    program = blocks[name] if name == "python-stream" else blocks["python-ask"] + blocks[name]
    command = [sys.executable, "-I", "-c", program, *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_program_that_runs_a_job_prints_what_it_wrote(
    api: Api, environment: dict[str, str], database: Database, home: Path
) -> None:
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0)
    add_resources(database)
    with _started("python-job", environment) as process:
        while not (jobs := [job.id for job in _jobs(database)]):
            assert process.poll() is None
        out = home / "out"
        out.write_text("hello\n")
        os.chown(out, NOBODY.pw_uid, NOBODY.pw_gid)
        with database.begin() as tx:
            tx.execute("UPDATE jobs SET stdout_file = %s", (str(out),))
        _end(database, jobs[0])
        assert process.stdout
        assert process.stdout.read() == f"job {jobs[0]}: Error\nhello\n"
        assert process.wait() == 0


def test_the_program_that_reads_an_output_prints_it_as_it_grows(
    api: Api, environment: dict[str, str], database: Database, home: Path
) -> None:
    out = home / "out"
    out.write_text("one\n")
    os.chown(out, NOBODY.pw_uid, NOBODY.pw_gid)
    resources = add_resources(database)
    job = add_job(
        database, JobState.RUNNING, user="nobody", on=resources[:1], launching_directory=str(home), stdout_file="out"
    )
    with _started("python-output", environment, str(job)) as process:
        assert process.stdout
        assert process.stdout.readline() == "one\n"
        with out.open("a") as more:
            more.write("two\n")
        assert process.stdout.readline() == "two\n"
        with database.begin() as tx:
            lifecycle.move_all(tx, [job], JobState.FINISHING, because=for_no_reason(job))
            lifecycle.move_all(tx, [job], JobState.TERMINATED, because=for_no_reason(job))
        assert (process.stdout.read(), process.wait()) == ("", 0)


def test_the_program_that_lists_jobs_finds_each_once(
    environment: dict[str, str], database: Database, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    api.runtime.config = Config(api_rate_read=0, api_max_limit=3)
    jobs = [add_job(database, user="nobody") for _ in range(7)]
    add_job(database, user="daemon")
    _end(database, jobs[0])
    with _started("python-pages", environment) as process:
        assert process.stdout
        lines = process.stdout.read().splitlines()
        assert [int(line.split()[0]) for line in lines] == jobs
        assert (lines[0].split()[1], process.wait()) == ("Error", 0)


def test_the_program_that_runs_an_array_deletes_the_rest_when_a_job_fails(
    environment: dict[str, str], database: Database
) -> None:
    add_resources(database)
    with _started("python-array", environment) as process:
        assert process.stdout
        assert process.stdout.readline() == "3 waiting\n"
        _end(database, _jobs(database)[1].id)
        rest = process.stdout.read().splitlines()
        assert [line for line in rest if line != "3 waiting"] == ["2 waiting, 1 error", "2 jobs are deleted"]
        assert process.wait() == 0
    with database.snapshot() as tx:
        assert len(tx.job_requests.jobs_to_kill([job.id for job in _jobs(database)])) == 2


def test_the_program_that_follows_a_job_prints_its_life(
    environment: dict[str, str], database: Database, api: Api
) -> None:
    job, other = add_job(database, user="nobody"), add_job(database, user="nobody")
    with _started("python-events", environment, str(job)) as process:
        while not api.service.hub.listeners:
            assert process.poll() is None
        _end(database, other)
        with database.begin() as tx:
            tx.events.add(EventType.SUSPEND_ERROR, job, "a try")
        _end(database, job)
        assert process.stdout
        told = [line.split(" ", 1)[1] for line in process.stdout.read().splitlines()]
        assert "Waiting -> Error" in told
        assert "SUSPEND_ERROR a try" in told
        assert process.wait() == 0


def _jobs(database: Database) -> list[Job]:
    with database.snapshot() as tx:
        return list(tx.jobs.live("nobody"))


def test_the_program_that_follows_prints_each_change(environment: dict[str, str], database: Database, api: Api) -> None:
    with _started("python-stream", environment) as process:
        while not api.service.hub.listeners:
            assert process.poll() is None
        job = add_job(database)
        _end(database, job)
        assert process.stdout
        assert process.stdout.readline() == f"{job} None -> Waiting\n"
        assert process.stdout.readline() == f"{job} Waiting -> Error\n"

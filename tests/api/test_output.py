"""The output of jobs is read with the rights of their owner, and of nobody else."""

import os
import pwd
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.facts.states import JobState, JobType
from tests.api.conftest import Api
from tests.builders import add_job

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of the user ``nobody``."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chown(directory, NOBODY.pw_uid, NOBODY.pw_gid)
        yield Path(directory)


def _job(database: Database, home: Path, state: JobState = JobState.WAITING) -> int:
    return add_job(
        database, state, user="nobody", launching_directory=str(home), stdout_file="%jobid%.out", stderr_file="err"
    )


def _write(home: Path, job: int, data: bytes) -> None:
    path = home / f"{job}.out"
    path.write_bytes(data)
    path.chmod(0o600)
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)


@needs_root
def test_the_owner_reads_what_his_job_has_written(nobody: httpx.Client, database: Database, home: Path) -> None:
    job = _job(database, home)
    _write(home, job, b"one\ntwo\nthree\n")
    whole = nobody.get(f"/v1/jobs/{job}/output/stdout")
    assert (whole.status_code, whole.text) == (200, "one\ntwo\nthree\n")
    assert (whole.headers["x-oar-size"], whole.headers["x-oar-complete"]) == ("14", "no")
    assert whole.headers["x-content-type-options"] == "nosniff"
    record = nobody.get(f"/v1/jobs/{job}/output").json()
    assert (record["stdout"]["size"], record["stderr"]["size"]) == (14, None)


@needs_root
@pytest.mark.parametrize(
    "piece",
    [
        ({"offset": "4"}, "", 200, "two\nthree\n"),
        ({"offset": "4", "limit": "3"}, "", 200, "two"),
        ({"offset": "99"}, "", 200, ""),
        ({"tail": "2"}, "", 200, "two\nthree\n"),
        ({"tail": "9"}, "", 200, "one\ntwo\nthree\n"),
        ({}, "bytes=0-2", 206, "one"),
        ({}, "bytes=8-", 206, "three\n"),
        ({}, "bytes=-6", 206, "three\n"),
        ({}, "bytes=99-", 416, ""),
        ({}, "lines=1-2", 200, "one\ntwo\nthree\n"),
        ({"limit": "0"}, "", 400, None),
        ({"tail": "-1"}, "", 400, None),
        ({"offset": str(2**63)}, "", 400, None),
    ],
)
def test_a_piece_of_it_is_read(
    nobody: httpx.Client, database: Database, home: Path, piece: tuple[dict[str, str], str, int, str | None]
) -> None:
    parameters, asked, status, text = piece
    job = _job(database, home)
    _write(home, job, b"one\ntwo\nthree\n")
    answer = nobody.get(f"/v1/jobs/{job}/output/stdout", params=parameters, headers={"Range": asked} if asked else {})
    assert answer.status_code == status
    assert text is None or answer.text == text


@needs_root
def test_nobody_else_reads_it(
    daemon: httpx.Client, anonymous: httpx.Client, local: httpx.Client, database: Database, home: Path
) -> None:
    job = _job(database, home)
    _write(home, job, b"secret")
    for client, status in ((daemon, 403), (anonymous, 401), (local, 403)):
        answer = client.get(f"/v1/jobs/{job}/output/stdout")
        assert answer.status_code == status
        assert "secret" not in answer.text


@needs_root
@pytest.mark.parametrize(
    "found",
    [
        (lambda path: path.symlink_to("/etc/shadow"), 403),
        (lambda path: os.mkfifo(path, 0o666), 404),
        (lambda path: path.symlink_to("/dev/zero"), 404),
        (lambda path: path.mkdir(), 404),
        (lambda path: None, 404),
    ],
)
def test_what_its_owner_may_not_read_or_is_no_plain_file_is_not_read(
    nobody: httpx.Client, database: Database, home: Path, found: tuple[Callable[[Path], None], int]
) -> None:
    job = _job(database, home)
    make, status = found
    make(home / f"{job}.out")
    answer = nobody.get(f"/v1/jobs/{job}/output/stdout")
    assert answer.status_code == status
    assert answer.json()["type"] in ("not-allowed", "output-not-here")


def test_an_interactive_job_and_a_site_without_output_have_none(
    api: Api, nobody: httpx.Client, database: Database, home: Path
) -> None:
    interactive = add_job(database, user="nobody", job_type=JobType.INTERACTIVE)
    assert nobody.get(f"/v1/jobs/{interactive}/output").status_code == 404
    api.runtime.config = Config(api_output=False)
    assert nobody.get(f"/v1/jobs/{_job(database, home)}/output").status_code == 404

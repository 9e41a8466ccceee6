"""Programs with web pages: the API lists them, and opens a running one for its owner alone."""

import json
import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
NOBODY = pwd.getpwnam("nobody")
TOKEN = "ab" * 32


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of the user ``nobody``."""
    account = list(NOBODY)
    with TemporaryDirectory(dir="/tmp") as directory:
        account[5] = directory
        os.chown(directory, NOBODY.pw_uid, NOBODY.pw_gid)
        former = pwd.getpwuid
        monkeypatch.setattr(
            pwd, "getpwuid", lambda uid: pwd.struct_passwd(account) if uid == NOBODY.pw_uid else former(uid)
        )
        yield Path(directory)


def write_session(home: Path, job: int, **changes: Any) -> Path:
    """Write the file as the launcher in the job does."""
    record = {
        "job": job,
        "app": "jupyter",
        "family": 4,
        "port": 20123,
        "token": TOKEN,
        "path": f"/jobs/{job}/?t={TOKEN}",
    }
    path = home / ".oar" / "apps" / Config().server_hostname / f"{job}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**record, **changes}))
    for place in (home / ".oar", home / ".oar" / "apps", path.parent):
        place.chmod(0o700)
        os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    path.chmod(0o600)
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    return path


def running(
    database: Database, user: str = "nobody", types: tuple[str, ...] = ("app=jupyter",), host: str = "frontend"
) -> int:
    resources = add_resources(database, nodes=1, network_address="127.0.0.1")
    job = add_job(database, JobState.RUNNING, on=resources[:1], user=user, types=types, info_type=host)
    with database.begin() as tx:
        tx.job_runs.claim(job, "127.0.0.1")
    return job


def test_the_programs_are_listed(anonymous: httpx.Client) -> None:
    items = anonymous.get("/v1/apps").json()["items"]
    assert {"name": "jupyter", "title": "JupyterLab", "description": "Notebooks, editor and terminals."} in items


@needs_root
def test_the_owner_gets_the_address(nobody: httpx.Client, database: Database, home: Path) -> None:
    job = running(database)
    before = nobody.get(f"/v1/jobs/{job}/app")
    assert (before.json()["ready"], before.json()["url"]) == (False, None)
    write_session(home, job)
    answer = nobody.get(f"/v1/jobs/{job}/app")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {
        "job_id": job,
        "app": "jupyter",
        "ready": True,
        "host": "127.0.0.1",
        "command": "ssh -N -L 20123:127.0.0.1:20123 nobody@frontend",
        "url": f"http://localhost:20123/jobs/{job}/?t={TOKEN}",
        "password": None,
    }


@needs_root
def test_a_job_that_was_submitted_to_the_api_names_no_frontend(
    nobody: httpx.Client, database: Database, home: Path
) -> None:
    job = running(database, host=os.uname().nodename)
    write_session(home, job)
    assert nobody.get(f"/v1/jobs/{job}/app").json()["command"].endswith(" nobody@LOGIN_HOST")


@needs_root
def test_a_program_without_a_token_in_its_address_has_a_password(
    nobody: httpx.Client, database: Database, home: Path
) -> None:
    job = running(database)
    write_session(home, job, path="/")
    assert nobody.get(f"/v1/jobs/{job}/app").json()["password"] == TOKEN


@needs_root
def test_nobody_else_gets_it(
    known: Callable[..., httpx.Client],
    anonymous: httpx.Client,
    local: httpx.Client,
    database: Database,
    home: Path,
) -> None:
    job = running(database)
    write_session(home, job)
    clients = {
        anonymous: 401,
        local: 403,
        known("daemon"): 403,
        known("nobody", "ro"): 403,
        known("nobody", "submit"): 403,
    }
    for client, status in clients.items():
        answer = client.get(f"/v1/jobs/{job}/app")
        assert answer.status_code == status
        assert TOKEN not in answer.text


@needs_root
@pytest.mark.parametrize("changes", [{"port": 6667}, {"app": None}, {"path": "//evil/"}, {"token": "x"}, {"family": 7}])
def test_a_file_with_other_values_opens_nothing(
    nobody: httpx.Client, database: Database, home: Path, changes: dict[str, Any]
) -> None:
    job = running(database)
    write_session(home, job, **changes)
    assert not nobody.get(f"/v1/jobs/{job}/app").json()["ready"]


def test_a_job_without_a_program_is_told_so(nobody: httpx.Client, database: Database) -> None:
    job = add_job(database, user="nobody")
    answer = nobody.get(f"/v1/jobs/{job}/app")
    assert answer.status_code == 404
    assert f"job {job} has no program with web pages" in answer.text
    ended = add_job(database, JobState.TERMINATED, user="nobody", types=("app=jupyter",))
    assert nobody.get(f"/v1/jobs/{ended}/app").status_code == 404

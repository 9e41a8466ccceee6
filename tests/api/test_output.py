"""The output of jobs is read with the rights of their owner, and of nobody else."""

import json
import os
import pwd
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from oar.api import job_output
from oar.api.concurrency import UnderWay
from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState, JobType
from oar.lib.user_files import files
from tests.api.conftest import Api
from tests.builders import add_job, for_no_reason
from tests.process.this_machine import is_alive, wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
NOBODY = pwd.getpwnam("nobody")
_Told = TypeVar("_Told")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of the user ``nobody``."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chown(directory, NOBODY.pw_uid, NOBODY.pw_gid)
        yield Path(directory)


def _job(database: Database, home: Path) -> int:
    return add_job(database, user="nobody", launching_directory=str(home), stdout_file="%jobid%.out", stderr_file="err")


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
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["content-disposition"] == f"inline; filename*=UTF-8''{job}.out"
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
    assert f"{home}/{job}.out" in answer.json()["detail"]
    assert status == 403 or os.uname().nodename in answer.json()["detail"]


def test_an_interactive_job_and_a_site_without_output_have_none(
    api: Api, nobody: httpx.Client, database: Database, home: Path
) -> None:
    interactive = add_job(database, user="nobody", job_type=JobType.INTERACTIVE)
    assert nobody.get(f"/v1/jobs/{interactive}/output").status_code == 404
    api.runtime.config = Config(api_output=False)
    assert nobody.get(f"/v1/jobs/{_job(database, home)}/output").status_code == 404


# -- following ---------------------------------------------------------------------------------------------------------


@contextmanager
def _followed(client: httpx.Client, job: int, **headers: str) -> Iterator[Iterator[tuple[str, dict[str, Any], str]]]:
    """Give the messages of the stream of a job's output: name, data, id."""
    with client.stream(
        "GET", f"/v1/jobs/{job}/output/stdout", headers={"Accept": "text/event-stream", **headers}
    ) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        yield _messages(answer.iter_lines())


def _messages(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any], str]]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif not line and "event" in fields:
            yield fields["event"], json.loads(fields["data"]), fields.get("id", "")
            fields = {}


def _append(home: Path, job: int, data: bytes) -> None:
    with (home / f"{job}.out").open("ab") as file:
        file.write(data)


def _text(messages: Iterator[tuple[str, dict[str, Any], str]], wanted: str) -> str:
    """Read messages until their text is as wanted, or something else comes; return the last id."""
    text, last = "", ""
    while text != wanted:
        name, data, last = next(messages)
        assert name == "data"
        text += data["text"]
        assert wanted.startswith(text)
    return last


@needs_root
def test_output_is_followed_as_it_is_written(nobody: httpx.Client, database: Database, home: Path) -> None:
    job = _job(database, home)
    _write(home, job, b"one\n")
    with _followed(nobody, job) as messages:
        assert _text(messages, "one\n") == "4"
        _append(home, job, "zwö".encode()[:-1])  # half a character is not told
        assert _text(messages, "zw") == "6"
        _append(home, job, "zwö".encode()[-1:] + b"\n")
        assert _text(messages, "ö\n") == "9"
    with _followed(nobody, job, **{"Last-Event-ID": "6"}) as messages:
        assert _text(messages, "ö\n") == "9"


@needs_root
def test_a_file_that_comes_later_or_begins_anew_is_followed(
    nobody: httpx.Client, database: Database, home: Path
) -> None:
    job = _job(database, home)
    with _followed(nobody, job) as messages:
        _write(home, job, b"first\n")
        assert _text(messages, "first\n") == "6"
        _write(home, job, b"2\n")
        assert next(messages)[0] == "truncated"
        assert _text(messages, "2\n") == "2"
        (home / f"{job}.out").rename(home / "old")
        _write(home, job, b"third\n")
        assert next(messages)[0] == "truncated"
        assert _text(messages, "third\n") == "6"


@needs_root
def test_a_stream_ends_some_time_after_the_job(
    nobody: httpx.Client, database: Database, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_output, "LAST_SECONDS", 2.0)
    job = _job(database, home)
    _write(home, job, b"out")
    with _followed(nobody, job) as messages:
        _text(messages, "out")
        with database.begin() as tx:
            lifecycle.move_all(tx, [job], JobState.ERROR, because=for_no_reason(job))
        assert [name for name, _, _ in messages] == ["end"]
    with _followed(nobody, job) as messages:
        _text(messages, "out")
        assert [name for name, _, _ in messages] == ["end"]


@needs_root
def test_a_stream_begins_near_the_end_and_skips_what_is_too_much(
    nobody: httpx.Client, database: Database, home: Path
) -> None:
    job = _job(database, home)
    _write(home, job, b"x" * (1 << 20))
    with _followed(nobody, job) as messages:
        assert _text(messages, "x" * (1 << 16)) == str(1 << 20)
        with (home / f"{job}.out").open("ab") as file:
            file.truncate(1 << 25)
        # Who was just looking for the end of the file may find the first of it.
        name, data, _ = next(message for message in messages if message[0] != "data")
        assert (name, data["offset"]) == ("skipped", (1 << 25) - (1 << 16))


@needs_root
def test_who_may_not_read_or_follows_too_much_gets_no_stream(
    nobody: httpx.Client, daemon: httpx.Client, api: Api, database: Database, home: Path
) -> None:
    job = _job(database, home)
    _write(home, job, b"x")
    assert daemon.get(f"/v1/jobs/{job}/output/stdout?follow=true").status_code == 403
    api.service.follows = UnderWay("followed outputs", 1)
    with _followed(nobody, job) as messages:
        next(messages)
        assert nobody.get(f"/v1/jobs/{job}/output/stdout?follow=true").status_code == 503
    (home / f"{job}.out").unlink()
    (home / f"{job}.out").symlink_to("/etc/shadow")
    awaited = 503
    while awaited == 503:  # the stream that was left gives its place back when its program has ended
        answer = nobody.get(f"/v1/jobs/{job}/output/stdout?follow=true")
        awaited = answer.status_code
    assert (awaited, answer.json()["type"]) == (403, "not-allowed")


@needs_root
def test_a_token_that_is_revoked_reads_no_more(local: httpx.Client, api: Api, database: Database, home: Path) -> None:
    with database.begin() as tx:
        number, token = tokens.create(tx, User("nobody", NOBODY.pw_uid), scope="ro")
    job = _job(database, home)
    _write(home, job, b"x")
    headers = {"Authorization": f"Bearer {token}"}
    with (
        api.client(headers=headers) as client,
        _followed(client, job) as messages,
    ):
        _text(messages, "x")
        assert local.delete(f"/v1/tokens/{number}").status_code == 204
        assert [name for name, _, _ in messages] == ["bye"]


# -- programs that their user has stopped ------------------------------------------------------------------------------


class StoppedPrograms:
    """Programs of a user that say nothing; they write the numbers of their processes to a file."""

    def __init__(self, numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._numbers, self._monkeypatch = numbers, monkeypatch
        program = ["/bin/sh", "-c", f"sleep 1000 & echo $$ $! >> {numbers}; kill -STOP $$"]
        monkeypatch.setattr(files, "_program", lambda *_: program)

    def _begun(self) -> list[int]:
        return [int(number) for number in self._numbers.read_text().split()] if self._numbers.exists() else []

    def are_gone(self) -> bool:
        """Whether there were some, and nothing is left of them."""
        found = self._begun()
        return bool(found) and not any(map(is_alive, found))

    def asked(self, ask: Callable[[], _Told]) -> _Told:
        """Ask for what they do not say; with more time, if a busy machine came to the beginning of none."""
        for seconds in (5, 10, 20, 40):
            self._monkeypatch.setattr(files, "ANSWER_SECONDS", float(seconds))
            told = ask()
            if self._begun():
                return told
        pytest.fail(f"no program began; the last answer: {told}")


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, home: Path) -> StoppedPrograms:
    """Every program of a user that the service starts says nothing."""
    monkeypatch.setattr(job_output, "CLEANING_SECONDS", 0.1)
    return StoppedPrograms(home / "numbers", monkeypatch)


@needs_root
def test_programs_that_their_user_has_stopped_leave_threads_for_others(
    nobody: httpx.Client, anonymous: httpx.Client, database: Database, home: Path, stopped: StoppedPrograms
) -> None:
    job = _job(database, home)

    def ask() -> list[httpx.Response]:
        with ThreadPoolExecutor(32) as pool:
            asked = [pool.submit(nobody.get, f"/v1/jobs/{job}/output/stdout") for _ in range(32)]
            assert anonymous.get("/v1/queues").status_code == 200
            return [each.result() for each in asked]

    answers = stopped.asked(ask)
    told = Counter((each.status_code, each.json()["type"]) for each in answers)
    assert set(told) == {(503, "silent-program"), (503, "too-many")}, told
    assert all("kill -CONT" in each.json()["hint"] for each in answers if "silent" in each.text)
    wait_until(stopped.are_gone)


@needs_root
def test_a_stream_whose_program_is_stopped_is_refused_and_ends(
    nobody: httpx.Client, database: Database, home: Path, stopped: StoppedPrograms
) -> None:
    address = f"/v1/jobs/{_job(database, home)}/output/stdout?follow=true"
    answer = stopped.asked(lambda: nobody.get(address))
    assert (answer.status_code, answer.json()["type"]) == (503, "silent-program")
    wait_until(stopped.are_gone)


@needs_root
def test_a_stream_ends_though_its_program_was_stopped_on_the_way(
    nobody: httpx.Client, database: Database, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_output, "LAST_SECONDS", 5.0)
    monkeypatch.setattr(job_output, "CLEANING_SECONDS", 0.1)
    job = _job(database, home)
    _write(home, job, b"out")
    with _followed(nobody, job) as messages:
        _text(messages, "out")
        processes = list(Path("/proc").glob("[0-9]*"))
        found = [each for each in processes if f"{home}/{job}.out".encode() in _bytes(each / "cmdline")]
        for each in found:
            os.kill(int(each.name), signal.SIGSTOP)
        with database.begin() as tx:
            lifecycle.move_all(tx, [job], JobState.ERROR, because=for_no_reason(job))
        assert [name for name, _, _ in messages] == ["end"]
    assert found
    wait_until(lambda: not any(each.exists() for each in found))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@needs_root
def test_an_empty_file_is_followed_at_once(nobody: httpx.Client, database: Database, home: Path) -> None:
    job = _job(database, home)
    _write(home, job, b"")
    with _followed(nobody, job) as messages:  # the answer begins before the job has written anything
        _append(home, job, b"x")
        assert _text(messages, "x") == "1"


@needs_root
@pytest.mark.parametrize(
    "said", ["", "x", "[]", "1", '{"length": "x"}', '{"length": -1}', '{"length": 99}', "x" * 5000]
)
def test_a_program_of_which_its_user_has_made_another_ends_the_stream(
    nobody: httpx.Client, database: Database, home: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(files, "_program", lambda *_: ["/bin/sh", "-c", f"echo '{said}'"])
    job = _job(database, home)
    assert nobody.get(f"/v1/jobs/{job}/output/stdout?follow=true").status_code == 403
    assert nobody.get(f"/v1/jobs/{job}/output/stdout").status_code == 403

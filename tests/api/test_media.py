"""Files of users on the addresses of older clients: with the rights of the user, beneath the site's directories."""

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from oar.api import job_output
from oar.api.job_output import UserProgram
from oar.lib.config.files import Config
from oar.lib.user_files.files import UserFiles
from tests.api.conftest import Api
from tests.api.test_output import NOBODY, home, needs_root
from tests.process.this_machine import wait_until

__all__ = ["home"]

pytestmark = needs_root


@pytest.fixture
def files(api: Api, home: Path, nobody: httpx.Client) -> httpx.Client:
    """A client whose user has files beneath ``home``."""
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, api_media=True, api_media_roots=(str(home),))
    return nobody


def _own(path: Path, data: bytes = b"") -> Path:
    path.write_bytes(data)
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    return path


def test_a_file_is_written_read_and_removed(files: httpx.Client, home: Path) -> None:
    data = os.urandom(700_000)
    octets = {"Content-Type": "application/octet-stream"}
    address = f"/oarapi/media{home}/new file"
    made = files.post(address, content=data, headers=octets)
    assert (made.status_code, made.json()["success"]) == (201, "true"), made.text
    path = home / "new file"
    assert (path.read_bytes() == data, path.stat().st_uid) == (True, NOBODY.pw_uid)
    assert files.get(made.json()["links"][0]["href"]).content == data
    again = files.post(address, content=b"x", headers=octets)
    assert (again.status_code, path.read_bytes() == data) == (403, True)
    assert files.post(f"/media/force{home}/new file", content=b"x", headers=octets).status_code == 201
    assert files.post(f"{address}?force=1", content=b"y", headers=octets).status_code == 201
    assert path.read_bytes() == b"y"
    assert files.delete(address).status_code == 204
    assert list(home.iterdir()) == []
    assert files.get(address).status_code == files.delete(address).status_code == 404


def test_the_addresses_of_both_versions_mean_the_same(files: httpx.Client, home: Path) -> None:
    _own(home / "out.json", b"one\ntwo\nthree\n")
    for address in (f"/media{home}/out.json", f"/media/{home}/out.json", f"/media?path_filename={home}/out.json"):
        answer = files.get(address)
        assert (answer.text, answer.headers["content-type"]) == ("one\ntwo\nthree\n", "application/octet-stream")
        assert answer.headers["content-disposition"].startswith("attachment")
    assert files.get(f"/media{home}/out.json?tail=2").text == "two\nthree\n"
    assert files.get(f"/media{home}/out.json?tail=0").text == "one\ntwo\nthree\n"
    assert files.get(f"/media{home}/out.json?tail=100001").status_code == 400


def test_forms_carry_files(files: httpx.Client, home: Path) -> None:
    data = os.urandom(300_000) + b"\r\n--\r\n-"
    form = files.post(
        f"/media{home}/a", files={"file": ("a", data)}, data={"more": "x"}, headers={"X-OAR-Request": "1"}
    )
    assert (form.status_code, (home / "a").read_bytes() == data) == (201, True), form.text
    empty = files.post(f"/media{home}/b", data={"x": "1"}, files={"y": (None, "z")}, headers={"X-OAR-Request": "1"})
    assert (empty.status_code, (home / "b").exists()) == (400, False)


def test_a_directory_is_listed(files: httpx.Client, home: Path) -> None:
    _own(home / "a", b"12345").chmod(0o640)
    (home / "d").mkdir()
    (home / "l").symlink_to("/etc/passwd")
    listed = files.get(f"/media/ls{home}?limit=2").json()
    assert listed["total"] == 3
    assert [(item["name"], item["type"]) for item in listed["items"]] == [("a", "f"), ("d", "d")]
    assert (listed["items"][0]["size"], listed["items"][0]["mode"]) == (5, 0o100640)
    assert files.get(listed["items"][0]["links"][0]["href"]).text == "12345"
    assert files.get(listed["items"][1]["links"][0]["href"]).json()["items"] == []
    assert files.get(f"/media/ls{home}/a").status_code == 400


def test_rights_are_changed_but_for_those_that_make_others(files: httpx.Client, home: Path) -> None:
    path = _own(home / "a")
    assert files.post(f"/media/chmod{home}/a", json={"mode": "755"}).status_code == 202
    assert files.post(f"/media/chmod?path_filename={home}/a&mode=0700", json={}).status_code == 202
    assert path.stat().st_mode & 0o7777 == 0o700
    for mode in ("4755", "99", "u+s", "", "7777"):
        assert files.post(f"/media/chmod{home}/a", json={"mode": mode}).status_code == 400, mode


def test_directories_go_only_when_that_is_meant(files: httpx.Client, home: Path) -> None:
    (home / "d").mkdir()
    os.chown(home / "d", NOBODY.pw_uid, NOBODY.pw_gid)
    _own(home / "d" / "f")
    assert files.delete(f"/media{home}/d").status_code == 400
    assert files.delete(f"/media{home}/d?recursive=1").status_code == 204
    assert not (home / "d").exists()
    assert files.delete(f"/media{home}").status_code == 403


def test_nothing_leads_out_of_the_directories(files: httpx.Client, home: Path) -> None:
    (home / "passwd").symlink_to("/etc/passwd")
    (home / "etc").symlink_to("/etc")
    os.mkfifo(home / "pipe", 0o666)
    for path in (
        *("/etc/passwd", "/", f"{home}/passwd", f"{home}/etc/passwd", f"{home}/../../etc/passwd", f"{home}x/y"),
        *(f"{home}/pipe", f"{home}", "~", "~root/x", "/proc/self/environ", f"{home}/%00"),
    ):
        assert files.get("/media", params={"path_filename": path}).status_code in (400, 403, 404), path
    assert files.get(f"/media{home}/%2e%2e/%2e%2e/etc/passwd").status_code == 403
    assert files.get(f"/media/ls{home}/etc").status_code == 403
    octets = {"Content-Type": "application/octet-stream"}
    for address in (f"/media{home}/etc/x", "/media/tmp/x", f"/media{home}/..", "/media"):
        assert files.post(address, content=b"x", headers=octets).status_code in (400, 403), address
    assert files.delete(f"/media{home}/passwd").status_code == 204  # the link, not where it leads
    assert Path("/etc/passwd").exists()


def test_the_kernel_decides_what_a_user_may(files: httpx.Client, home: Path) -> None:
    secret = home / "secret"
    secret.write_bytes(b"hush")
    secret.chmod(0o600)
    assert files.get(f"/media{home}/secret").status_code == 403
    assert b"hush" not in files.get(f"/media/ls{home}").content


def test_who_may_not_read_as_the_user_reads_no_files(
    api: Api, files: httpx.Client, anonymous: httpx.Client, known: Callable[[str, str], httpx.Client], home: Path
) -> None:
    _own(home / "a", b"x")
    assert anonymous.get(f"/media{home}/a").status_code == 401
    assert known("nobody", "ro").get(f"/media{home}/a").status_code == 200
    assert known("nobody", "ro").delete(f"/media{home}/a").status_code == 403
    assert known("nobody", "submit").get(f"/media{home}/a").status_code == 403
    assert known("root", "admin").get(f"/media{home}/a").status_code == 403
    api.runtime.config = Config(api_rate_read=0)
    assert files.get(f"/media{home}/a").status_code == 501


def test_an_upload_that_breaks_off_leaves_nothing(api: Api, files: httpx.Client, home: Path) -> None:
    token = files.headers["authorization"]
    head = f"POST /media{home}/a HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\ncontent-length: 900000\r\n"
    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        connection.sendall(head.encode() + b"content-type: application/octet-stream\r\n\r\n" + b"x" * 500_000)
        while not any(home.iterdir()):
            pass
    while any(home.iterdir()):
        pass
    assert files.get(f"/media{home}/a").status_code == 404


def test_an_upload_that_is_too_large_leaves_nothing(api: Api, files: httpx.Client, home: Path) -> None:
    api.runtime.config = Config(api_rate_change=0, api_media=True, api_media_roots=(str(home),), api_max_upload=1000)

    def without_length() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    octets = {"Content-Type": "application/octet-stream"}
    declared = files.post(f"/media{home}/a", content=b"x" * 1001, headers=octets)
    assert (declared.status_code, "API_MAX_UPLOAD" in declared.text) == (413, True)
    assert files.post(f"/media{home}/a", content=without_length(), headers=octets).status_code == 413
    assert list(home.iterdir()) == []
    assert files.post(f"/media{home}/a", content=b"x" * 1000, headers=octets).status_code == 201


def test_a_file_whose_reader_goes_is_let_go(api: Api, files: httpx.Client, home: Path) -> None:
    _own(home / "a", bytes(30_000_000))
    for _ in range(3):
        with files.stream("GET", f"/media{home}/a") as answer:
            next(answer.iter_bytes())
    assert files.get(f"/media{home}/a?tail=1").status_code == 200


def test_a_program_that_its_user_has_stopped_stops_nothing_else(
    api: Api, files: httpx.Client, home: Path, anonymous: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = ["/bin/sh", "-c", "kill -STOP $$"]
    monkeypatch.setattr(UserFiles, "keeping", lambda *_: (stopped, {}))
    monkeypatch.setattr(job_output, "CLEANING_SECONDS", 0.1)
    api.runtime.config = api.runtime.config.replace(api_timeout=2)
    octets = {"Content-Type": "application/octet-stream"}
    asks: tuple[Callable[[], httpx.Response], ...] = (
        lambda: files.get(f"/media{home}/a"),
        lambda: files.delete(f"/media{home}/a"),
        lambda: files.post(f"/media{home}/a", content=bytes(900_000), headers=octets),
    )
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(ask) for ask in asks]
        assert anonymous.get("/v1/queues").status_code == 200
        for answer in answers:
            assert (answer.result().status_code, "does not answer" in answer.result().text) == (503, True)
    wait_until(lambda: not UserProgram._ending)  # they are killed, and nobody waits for that


@pytest.mark.parametrize("name", ["data#1", "a?b", "100%", "%41", "+ &", "é"])
def test_a_name_means_the_file_that_has_it(files: httpx.Client, home: Path, name: str) -> None:
    _own(home / name, b"x")
    (item,) = files.get(f"/media/ls{home}").json()["items"]
    address = item["links"][0]["href"]
    assert (item["name"], files.get(address).text) == (name, "x")
    assert files.delete(address).status_code == 204
    assert list(home.iterdir()) == []


def test_a_name_that_is_no_text_hides_no_others(files: httpx.Client, home: Path) -> None:
    (home / os.fsdecode(b"\xff")).touch()
    (home / "z").touch()
    assert {item["name"] for item in files.get(f"/media/ls{home}").json()["items"]} == {"\ufffd", "z"}


def test_a_mode_is_no_file(api: Api, files: httpx.Client, home: Path) -> None:
    _own(home / "a")
    api.runtime.config = api.runtime.config.replace(api_max_body=1000)
    large = files.post(f"/media/chmod{home}/a", content=b" " * 1001, headers={"Content-Type": "application/json"})
    assert large.status_code == 413


def test_a_name_may_be_as_long_as_names_can_be_and_no_longer(files: httpx.Client, home: Path) -> None:
    octets = {"Content-Type": "application/octet-stream"}
    for name in ("é" * 127, "a" * 255):
        assert files.post(f"/media{home}/{name}", content=b"x", headers=octets).status_code == 201, name
        assert files.delete(f"/media{home}/{name}").status_code == 204
    for method, content in (("POST", b"x"), ("GET", b""), ("DELETE", b"")):
        answer = files.request(method, f"/media{home}/{'a' * 256}", content=content, headers=octets)
        assert (answer.status_code, "too long" in answer.json()["detail"]) == (400, True), method
    assert list(home.iterdir()) == []

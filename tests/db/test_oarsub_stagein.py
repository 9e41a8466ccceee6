"""oarsub --stagein: what is kept for computers that fetch their work, and how long."""

import fcntl
import hashlib
import os
import stat
from pathlib import Path

import pytest

from oar.cli.common.command import CommandResult
from oar.lib.access.records import User
from oar.lib.db.database import Database
from tests.builders import add_resources
from tests.frontend import LoginNode, add_rules

BOB = User("bob", 0)


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> LoginNode:
    """A site with a computer that fetches its work."""
    add_resources(database, nodes=1, cores=1, desktop_computing="YES")
    add_rules(database)
    site = LoginNode(database)
    site.config = site.config.replace(stagein_dir=str(tmp_path / "kept"), api_max_upload=1000)
    return site


def give(desk: LoginNode, *words: object) -> CommandResult:
    return desk.oarsub("-t", "desktop_computing", *words, "x")


def rows(desk: LoginNode) -> list[tuple[str, str, str, int]]:
    with desk.database.snapshot() as tx:
        return tx.rows("SELECT md5sum, method, compression, size FROM files ORDER BY file_id")


def test_ordinary_jobs_do_not_use_it(desk: LoginNode) -> None:
    add_resources(desk.database)
    result = desk.oarsub("-s", "/data.tar", "x")
    assert (result.exit, result.err) == (0, "# Warning: --stagein is only used by desktop_computing jobs.\n")


def test_several_servers_need_shared_directories(desk: LoginNode) -> None:
    desk.config = desk.config.replace(server_hostnames=("srv1", "srv2"))
    refused = give(desk)
    assert refused.exit != 0
    assert "they do not share STAGEIN_DIR and STAGEOUT_DIR (DESKTOP_COMPUTING_SHARED_DIRECTORIES)" in refused.err
    desk.config = desk.config.replace(desktop_computing_shared_directories=True)
    assert give(desk).exit == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [("data.tar", "tar"), ("-x.tgz", "tar.gz"), ("a'b $(id) `id` \n.zip", "zip"), ("ä;é", ""), ("*", "")],
)
def test_the_file_is_kept_by_its_sum_whatever_its_name(desk: LoginNode, tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(b"content")
    result = give(desk, f"--stagein={tmp_path}/{name}")
    assert (result.exit, result.err) == (0, "")
    md5sum = hashlib.md5(b"content", usedforsecurity=False).hexdigest()
    assert rows(desk) == [(md5sum, "FILE", kind, 7)]
    assert desk.jobs()[0].file_id
    kept = tmp_path / "kept" / f"{md5sum}.alice"
    assert (kept.read_bytes(), stat.S_IMODE(kept.stat().st_mode)) == (b"content", 0o600)
    assert os.listdir(tmp_path / "kept") == [kept.name]


def test_what_is_kept_is_not_copied_again_and_may_be_named_by_its_sum(desk: LoginNode, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"content")
    md5sum = hashlib.md5(b"content", usedforsecurity=False).hexdigest()
    give(desk, "-s", tmp_path / "data")
    kept = tmp_path / "kept" / f"{md5sum}.alice"
    first = kept.stat().st_ino
    assert give(desk, "-s", tmp_path / "data", "--stagein-md5sum", md5sum.upper()).exit == 0
    assert give(desk, "--stagein-md5sum", md5sum).exit == 0
    assert len({job.file_id for job in desk.jobs()}) == len(rows(desk)) == 1
    assert kept.stat().st_ino == first


def test_nobody_gets_what_another_has_staged_by_its_sum(desk: LoginNode, tmp_path: Path) -> None:
    """Two files can be made that have one sum; and a sum is no secret."""
    (tmp_path / "data").write_bytes(b"of alice")
    md5sum = hashlib.md5(b"of alice", usedforsecurity=False).hexdigest()
    assert give(desk, "-s", tmp_path / "data").exit == 0
    (tmp_path / "kept" / f"{md5sum}.alice").write_bytes(b"another content of this sum")
    by_sum = desk.oarsub("-t", "desktop_computing", "--stagein-md5sum", md5sum, "x", user=BOB)
    refusal = f"# Error: you have no staged file with the checksum {md5sum}: use --stagein with the file.\n"
    assert by_sum == CommandResult(12, "", refusal)
    assert desk.oarsub("-t", "desktop_computing", "-s", tmp_path / "data", "x", user=BOB).exit == 0
    assert (tmp_path / "kept" / f"{md5sum}.bob").read_bytes() == b"of alice"
    assert len({job.file_id for job in desk.jobs()}) == len(rows(desk)) == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-s", "{}/data", "--stagein-md5sum", "0" * 32], "# Error: stage-in checksum mismatch.\n"),
        (
            ["--stagein-md5sum", "0" * 32],
            f"# Error: you have no staged file with the checksum {'0' * 32}: use --stagein with",
        ),
        (["--stagein-md5sum", "x"], '# Error: "x" is not an MD5 sum: use 32 hexadecimal digits.\n'),
        (["-s", "{}/gone"], "[ERROR] Cannot open the stage-in file"),
        (["-s", "{}"], "[ERROR] Cannot open the stage-in file"),
        (["-s", "/dev/zero"], "[ERROR] Cannot open the stage-in file /dev/zero.\n"),
        (["-s", "{}/large"], "# Error: the stage-in file is larger than 1000 bytes.\n"),
    ],
)
def test_what_cannot_be_kept_leaves_nothing(desk: LoginNode, tmp_path: Path, words: list[str], text: str) -> None:
    (tmp_path / "data").write_bytes(b"content")
    (tmp_path / "large").write_bytes(bytes(1001))
    result = give(desk, *(word.replace("{}", str(tmp_path)) for word in words))
    assert (result.exit, result.err.startswith(text)) == (12, True), result.err
    assert desk.is_empty()
    assert not rows(desk)
    assert not any((tmp_path / "kept").glob("*"))
    assert not any((tmp_path / "kept").glob(".*"))


def test_what_those_left_who_were_killed_goes_with_the_next_copy(desk: LoginNode, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in (".1.2", ".3.4", ".5.6", "0" * 32 + ".bob", "1" * 32 + ".bob"):
        (kept / name).write_bytes(b"part")
    for name in (".1.2", ".3.4", "0" * 32 + ".bob"):
        os.utime(kept / name, (0, 0))
    (tmp_path / "data").write_bytes(b"content")
    with (kept / ".3.4").open() as written:
        fcntl.flock(written, fcntl.LOCK_SH)
        assert give(desk, "-s", tmp_path / "data").exit == 0
    (row,) = rows(desk)
    assert sorted(os.listdir(kept)) == sorted([".3.4", ".5.6", "1" * 32 + ".bob", f"{row[0]}.alice"])


def test_a_refused_job_leaves_no_file(desk: LoginNode, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"content")
    assert give(desk, "-s", tmp_path / "data", "-l", "nodes=99").exit == 8
    assert not rows(desk)
    assert os.listdir(tmp_path / "kept") == []


def test_a_file_goes_when_no_job_has_wanted_it_for_long(desk: LoginNode, tmp_path: Path) -> None:
    for content in (b"old", b"used", b"new"):
        (tmp_path / "data").write_bytes(content)
        give(desk, "-s", tmp_path / "data")
    for path in (tmp_path / "kept").iterdir():
        os.utime(path, (0, 0))
    old, used, _ = (job.id for job in desk.jobs())
    with desk.database.begin() as tx:
        tx.execute("UPDATE jobs SET submission_time = 0, start_time = 0")
        tx.execute("UPDATE jobs SET state = 'Terminated' WHERE job_id = %s", (old,))
    (tmp_path / "data").write_bytes(b"another")
    give(desk, "-s", tmp_path / "data")
    assert len(rows(desk)) == len(os.listdir(tmp_path / "kept")) == 3
    assert {job.id: job.file_id is None for job in desk.jobs()}[old]
    assert not {job.id: job.file_id is None for job in desk.jobs()}[used]


@pytest.mark.parametrize("words", [["-I"], ["--checkpoint", "60", "x"], ["-r", "2100-01-01 00:00:00"]])
def test_what_needs_a_way_to_the_computer_is_refused(desk: LoginNode, words: list[str]) -> None:
    refused = desk.oarsub("-t", "desktop_computing", *words)
    assert refused.exit != 0
    assert "# Error: not available for desktop_computing jobs." in refused.err

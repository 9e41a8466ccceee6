"""Why a server cannot write its files, as ``oar-server status --check`` says it: on real file systems."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.cli.common.health_probes import find_writing_problem
from oar.lib.jobs import recovery
from oar.modules.chronicle import append

_PAGE = 4096


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A log that a server of root writes, on a file system of its own with some pages."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={4 * _PAGE},nr_inodes=100", "oar-test", str(tmp_path)], check=True
    )
    path = tmp_path / "oar.log"
    path.touch(mode=0o644)
    yield path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.fixture
def nobody() -> Iterator[int]:
    """A process of an account that owns nothing."""
    server = subprocess.Popen(["sleep", "1000"], user="nobody", group="nogroup", extra_groups=[])
    yield server.pid
    server.kill()
    server.wait()


def test_a_log_that_is_written_is_no_trouble(log: Path) -> None:
    assert find_writing_problem(str(log), os.getpid()) == ""
    assert find_writing_problem("syslog", os.getpid()) == ""


def test_a_log_that_is_not_there_is_named_by_the_kernel(tmp_path: Path) -> None:
    log = tmp_path / "oar.log"
    assert find_writing_problem(str(log), os.getpid()) == f"{log}: No such file or directory"


def test_a_file_system_that_can_only_be_read_is_told(log: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(log.parent)], check=True)
    assert find_writing_problem(str(log), os.getpid()) == f"{log}: its file system is read-only"
    subprocess.run(["mount", "-o", "remount,rw", str(log.parent)], check=True)
    assert find_writing_problem(str(log), os.getpid()) == ""


def test_a_full_file_system_is_told(log: Path) -> None:
    room = os.statvfs(log)
    log.write_bytes(b"x" * room.f_bavail * room.f_bsize)
    assert find_writing_problem(str(log), os.getpid()) == f"{log}: no space is left on its file system"


def test_a_file_system_without_inodes_is_told(log: Path) -> None:
    number = 0
    while os.statvfs(log).f_favail:
        number += 1
        (log.parent / str(number)).touch()
    told = f"{log}: no inode is left on its file system (df -i)"
    assert find_writing_problem(str(log), os.getpid()) == told
    assert find_writing_problem(str(log.parent), os.getpid()) == told.replace(str(log), str(log.parent))


def test_what_cannot_be_kept_for_want_of_space_is_named(log: Path) -> None:
    room = os.statvfs(log)
    log.write_bytes(b"x" * room.f_bavail * room.f_bsize)
    with pytest.raises(OSError, match="No space left on device") as caught:
        recovery.write_newest_job(str(log.parent), 12)
    assert caught.value.filename == str(log.parent / recovery.NEWEST_JOB_FILE)
    completions = str(log.parent / "completions")
    with pytest.raises(OSError, match="No space left on device") as caught:
        append(completions, b"x" * _PAGE)
    assert caught.value.filename == completions


def test_a_log_of_another_account_is_told(log: Path, nobody: int) -> None:
    assert find_writing_problem(str(log), nobody) == f"{log}: the account of the server has no write permission"
    os.chown(log, 65534, 65534)
    assert find_writing_problem(str(log), nobody) == ""

"""What jobs leave on the computers of agents is removed, and nothing beside it."""

import fcntl
import hashlib
import os
import threading
from pathlib import Path
from typing import IO

import agent_jobs
from agent_server import OarServer

from tests.process.this_machine import wait_until


def test_a_link_that_could_not_be_removed_leads_nowhere(tmp_path: Path) -> None:
    file, directory = tmp_path / "file", tmp_path / "directory"
    file.write_text("not the job's")
    directory.mkdir()
    (directory / "other").write_text("not the job's either")
    file.chmod(0o444)
    directory.chmod(0o555)
    for target in (file, directory):
        own = tmp_path / "job" / target.name
        own.parent.mkdir(exist_ok=True)
        own.symlink_to(target)
        agent_jobs.make_removable(os.unlink, str(own), None)
        assert not own.is_symlink()
    assert (file.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o444, 0o555)
    assert os.listdir(directory) == ["other"]


def test_a_directory_without_rights_is_removed(tmp_path: Path) -> None:
    own = tmp_path / "job"
    (own / "within").mkdir(parents=True)
    own.chmod(0o000)
    agent_jobs.make_removable(os.scandir, str(own), None)
    assert not own.exists()


class Forgetful(OarServer):
    """A server of files during whose answers somebody tries to forget what is kept."""

    def __init__(self, content: bytes, stageins: agent_jobs.Stageins) -> None:
        super().__init__("https://localhost", "here", "")
        self.content, self._stageins = content, stageins

    def fetch(self, job_id: int, target: IO[bytes], most: int) -> None:
        """Write the file."""
        self._stageins.forget()
        target.write(self.content)
        target.flush()


def test_who_waits_for_a_lock_that_is_forgotten_locks_the_new_one(tmp_path: Path) -> None:
    stageins = agent_jobs.Stageins(str(tmp_path), -60)  # everything is forgotten that nobody holds
    server = Forgetful(b"input", stageins)
    staged = {"md5sum": hashlib.md5(server.content).hexdigest(), "size": len(server.content)}
    lock_path = tmp_path / f"{staged['md5sum']}.lock"
    found: list[bytes] = []

    def read() -> None:
        with stageins.file(server, 1, staged) as file:
            found.append(file.read())

    with lock_path.open("wb") as former:
        fcntl.flock(former, fcntl.LOCK_EX)
        reader = threading.Thread(target=read)
        reader.start()
        wait_until(lambda: _waiters(former) == 1)
        lock_path.unlink()
    reader.join()
    assert found == [server.content]
    assert lock_path.exists()


def _waiters(lock: IO[bytes]) -> int:
    """How many wait for the lock of a file."""
    inode = os.fstat(lock.fileno()).st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return sum("->" in line and f":{inode} " in line for line in lines)

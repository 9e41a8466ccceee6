"""What sessions leave in the home of oar on a frontend (node.md 2.3)."""

import os
import zlib
from pathlib import Path

import pytest

from oar.cli.as_user import UserFiles
from oar.cli.node_shell import Way
from oar.lib.config import Config
from oar.lib.model import User

NOBODYS_PID = 999999999


def test_only_what_processes_of_this_machine_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    sessions = tmp_path / ".ssh" / "sessions"
    sessions.mkdir(parents=True)
    here = f"{zlib.crc32(os.uname().nodename.encode()):08x}"
    names = [f"{here}.{NOBODYS_PID}.socket", f"{here}.1.socket", f"0.{NOBODYS_PID}.socket"]
    for name in names:
        (sessions / name).touch()
    Way(Config(), UserFiles(User("alice", os.geteuid()), ""), {}).close()
    assert sorted(os.listdir(sessions)) == sorted(names[1:])

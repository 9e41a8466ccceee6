"""Nodes that do not answer a ping, told apart from a ping that cannot be used."""

from pathlib import Path

import pytest

from oar.lib.config.files import Config
from oar.lib.facts.errors import ConfigError
from oar.lib.io import ping_checker


def use_ping(directory: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """Put a ping in the place of the computer's own: it ends as a shell says that has the host in ``$6``."""
    program = directory / "ping"
    program.write_text(f"#!/bin/sh\n{ends}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


def test_hosts_that_are_silent_or_not_known_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ping(tmp_path, monkeypatch, "case $6 in silent) exit 1;; unknown) echo 'not known' >&2; exit 2;; esac")
    assert ping_checker.silent_hosts(Config(), ["n1", "silent", "unknown"]) == ["silent", "unknown"]


def test_nobody_is_silent_where_ping_may_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ping(tmp_path, monkeypatch, "echo 'ping: socket: Operation not permitted' >&2; exit 2")
    with pytest.raises(ConfigError, match="ping cannot be used here: ping: socket: Operation not permitted"):
        ping_checker.silent_hosts(Config(), ["n1", "n2"])


def test_nobody_is_silent_where_there_is_no_ping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="ping cannot be run: No such file"):
        ping_checker.silent_hosts(Config(), ["n1"])

"""``oar-server status --check`` says in one line why nobody can tell how the server is, with the code for that."""

import os
import tracemalloc
from pathlib import Path

import pytest

from oar.cli import oar_server
from oar.cli.common.command import invoke
from oar.lib.access.records import User
from oar.lib.config.files import Config, Parsed

CRITICAL, UNKNOWN = 2, 3
_NOBODY = 65534


@pytest.mark.parametrize(
    ("user", "told"),
    [
        (User("root", 0), "cannot read the configuration file {}: No such file or directory"),
        (User("monitor", 4711), "only root and oar may ask the server: sudo -u oar oar-server status --check"),
    ],
)
def test_who_cannot_read_the_configuration_is_told_so(
    user: User, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "oar.conf"
    monkeypatch.setattr(oar_server, "conf_file", lambda environment: str(path))
    result = invoke(oar_server.main, ["status", "--check"], user=user)
    assert (result.exit, result.out, result.err) == (UNKNOWN, f"OAR UNKNOWN: {told.format(path)}\n", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to read as another account")
def test_a_configuration_that_the_account_of_the_server_cannot_read_is_critical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "oar.conf"
    path.write_text("")
    path.chmod(0o600)
    for directory in (tmp_path, *tmp_path.parents[:-2]):
        directory.chmod(0o755)
    monkeypatch.setattr(oar_server, "conf_file", lambda environment: str(path))
    os.seteuid(_NOBODY)
    try:
        result = invoke(oar_server.main, ["status", "--check"], user=User("oar", _NOBODY))
    finally:
        os.seteuid(0)
    way_out = f"(run: chown root:oar {path}; chmod 640 {path})"
    assert (result.exit, result.out) == (CRITICAL, f"OAR CRITICAL: the account oar cannot read {path} {way_out}\n")


def _stopped(directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is told of a server that does not run."""
    config = Config(log_file=str(directory / "oar.log"), oar_run_dir=str(directory))
    assert oar_server.Server(Parsed(config, (), (), {}), "", {}).check() == CRITICAL
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("E|2026-11-02T10:00:00.000|Almighty/7||the server ends: no port | is free", ": no port | is free"),
        ("E|2026-11-02T10:00:00.000|Almighty/7||module finaud failed: it took too long", ""),
        ("E|2026-11-02T10:00:00.000|Runner/8|12|the server ends: as a job says", ""),
        ("I|2026-11-02T10:00:00.000|Almighty/7||the OAR server stops", ""),
        ("E|torn", ""),
    ],
)
def test_only_the_server_s_own_end_is_told_as_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: str, told: str
) -> None:
    (tmp_path / "oar.log").write_text(f"W|2026-11-02T09:00:00.000|Almighty/7||something\n{last}\n")
    assert _stopped(tmp_path, capsys) == f"OAR CRITICAL: oar-server is stopped{told}\n"


def test_of_a_large_log_the_end_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open(tmp_path / "oar.log", "wb") as log:
        log.truncate(1 << 28)  # a hole, which takes no space
        log.seek(0, 2)
        log.write(b"\nE|2026-11-02T10:00:00.000|Almighty/7||the server ends: no port\n")
    tracemalloc.start()
    try:
        assert _stopped(tmp_path, capsys) == "OAR CRITICAL: oar-server is stopped: no port\n"
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()

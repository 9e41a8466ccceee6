"""``oar-server status --check`` says in one line why nobody can tell how the server is, with the code for that."""

from pathlib import Path

import pytest

from oar.cli import oar_server
from oar.cli.common.command import invoke
from oar.lib.facts.records import User

UNKNOWN = 3


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

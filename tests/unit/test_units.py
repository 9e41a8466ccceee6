"""The units of systemd: what the server relies on."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "setup" / "systemd"


def unit(name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their capitals
    parser.read(UNITS / name)
    return parser


def test_the_server_runs_as_oar_tells_when_it_is_up_and_is_always_started_again() -> None:
    service = unit("oar-server.service")["Service"]
    assert service["Type"] == "notify"
    assert service["User"] == "oar"
    assert service["Restart"] == "always"
    assert service["RestartSec"] == "2"


def test_a_stop_signals_the_server_alone_and_gives_it_time() -> None:
    service = unit("oar-server.service")["Service"]
    assert service["KillMode"] == "mixed"
    assert service["TimeoutStopSec"] == "60"


def test_the_server_starts_after_network_and_database() -> None:
    assert unit("oar-server.service")["Unit"]["After"] == "network-online.target postgresql.service"


VERIFIED = (
    "oar-server.service",
    "oar-api.service",
    "oar-accounting.service",
    "oar-accounting.timer",
    "oar.target",
)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not on this machine")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name in (
        "oar-server.service",
        "oar-api.service",
        "oar-accounting.service",
        "oar-accounting.timer",
        "oar.target",
    ):
        text = (UNITS / name).read_text().replace("/usr/lib/oar/", "/bin/true #").replace("Documentation=", "#")
        text = text.replace("=+/bin/true #", "=/bin/true #")
        (tmp_path / name).write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert name not in done.stderr

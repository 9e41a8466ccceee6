"""The units of systemd: what the server relies on."""

import configparser
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from installer.tables import COMMAND_SOCKET

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


def test_a_node_whose_sshd_is_stopped_and_started_says_that_it_is_back() -> None:
    unit_of_reports = unit("oar-node-script.service")
    assert unit_of_reports["Unit"]["Requires"] == "oar-node.service"
    assert unit_of_reports["Install"]["WantedBy"].split() == ["multi-user.target", "oar-node.service"]


def test_a_stop_of_the_api_lets_its_workers_do_what_has_begun() -> None:
    service = unit("oar-api.service")["Service"]
    assert (service["KillMode"], service["TimeoutStopSec"]) == ("mixed", "30")


@pytest.mark.parametrize("name", ["oar-server.service", "oar-api.service"])
def test_the_directory_of_server_and_api_stays_when_one_of_them_ends(name: str) -> None:
    service = unit(name)["Service"]
    assert (service["RuntimeDirectory"], service["RuntimeDirectoryPreserve"]) == ("oar", "yes")


@pytest.mark.parametrize("name", ["oar-server", "oar-api", "oar-commands", "oar-node"])
def test_a_process_that_took_too_much_memory_does_not_end_the_others(name: str) -> None:
    assert unit(f"{name}.service")["Service"]["OOMPolicy"] == "continue"


def test_the_server_starts_after_network_database_and_a_clock_that_is_right() -> None:
    assert unit("oar-server.service")["Unit"]["After"] == "network-online.target postgresql.service time-sync.target"


def test_the_command_server_can_give_nobody_rights() -> None:
    service = unit("oar-commands.service")["Service"]
    assert service["User"] == "oar"
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""


def test_commands_come_after_launches_and_scheduling() -> None:
    assert int(unit("oar-commands.service")["Service"]["CPUWeight"]) < 100


def test_the_socket_of_the_command_server_is_the_one_that_commands_ask() -> None:
    assert unit("oar-commands.socket")["Socket"]["ListenSequentialPacket"] == COMMAND_SOCKET


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not on this machine")
def test_the_command_server_is_exposed_to_little(tmp_path: Path) -> None:
    name = "oar-commands.service"
    (tmp_path / name).write_text((UNITS / name).read_text())
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("task", ["accounting", "purge", "phoenix"])
def test_the_tasks_of_timers_run_only_on_the_active_server(task: str) -> None:
    assert unit(f"oar-{task}.service")["Service"]["ExecCondition"] == "/usr/lib/oar/oar-server is-active"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not on this machine")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    names = sorted(path.name for path in UNITS.iterdir() if not path.name.startswith("oar-node"))
    for name in names:
        text = (UNITS / name).read_text().replace("/usr/lib/oar/", "/bin/true #").replace("Documentation=", "#")
        text = text.replace("ExecStart=oar-agent ", "ExecStart=/bin/true #")
        (tmp_path / name).write_text(text.replace("=+/bin/true #", "=/bin/true #"))
    for name in names:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        )
        assert name not in done.stderr

"""The demonstration of the README: one command, real work, a clear verdict, nothing left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.harness import PATIENCE, TOOL, tool, wait_until

DEMO = TOOL.parent / "demo"
#: A room of our own: somebody may be looking at the one called demo.
ROOM = f"demo-{os.getpid()}"
DIRECTORY = Path("/var/lib/oar-room", ROOM)


@pytest.fixture(autouse=True)
def _own_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let setup/demo use our room, and end it."""
    monkeypatch.setenv("OAR_ROOM", ROOM)
    yield
    tool("stop", room=ROOM)


def demo(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run setup/demo."""
    return subprocess.run(
        [str(DEMO), *arguments], input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def whoami(address: str, token: str) -> str:
    """Ask the REST API of the room, as a program on this computer does."""
    asked = urllib.request.Request(f"{address}/v1/whoami", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=PATIENCE) as answer:
        return str(json.load(answer)["user"])


def is_up() -> bool:
    """True while the room of the demonstration is there."""
    return tool("status", room=ROOM).code == 0


def test_the_demonstration_shows_real_work_and_leaves_nothing() -> None:
    done = demo("--nodes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "The cluster works: everything went as it should."
    assert "hello from node-2, I am alice" in done.stdout
    assert "= 2262, expected 2262" in done.stdout
    assert "I am on node-1, in job 12" in done.stdout
    assert "Job would start at" in done.stdout
    assert "It reached its walltime: it had requested 0:0:3" in done.stdout
    assert "denied: Reservation can't be granted" in done.stdout
    assert "ok     bob was refused beside the advance reservation 1, and granted" in done.stdout
    assert "ran in the advance reservation 1\n       inside course" in done.stdout
    assert "/ui/\n       nodes there: node-1, node-2" in done.stdout
    assert not DIRECTORY.exists()


def test_a_demonstration_that_is_kept_can_be_entered_and_stopped() -> None:
    kept = demo("--keep", "--nodes", "1")
    assert kept.returncode == 0, kept.stdout + kept.stderr
    address = re.search(r"http://127.0.0.1:\d+", kept.stdout)
    token = re.search(r"\boar_[-\w]{30,}", kept.stdout)
    assert address
    assert token
    assert whoami(address[0], token[0]) == "alice"
    entered = demo("shell", "bob", stdin="whoami; hostname; exit\n")
    assert entered.stdout.split() == ["bob", "server"]
    assert demo("stop").returncode == 0
    assert not is_up()
    with pytest.raises(OSError, match="refused"):
        whoami(address[0], token[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demonstration_that_is_interrupted_leaves_nothing(number: signal.Signals) -> None:
    heeding = ["env", "--default-signal=INT"]  # whoever runs the tests in the background ignores it, and so do children
    with subprocess.Popen([*heeding, str(DEMO), "--nodes", "1"], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("alice$"):
                break
        os.kill(running.pid, number)
        running.stdout.read()
    wait_until(lambda: not DIRECTORY.exists(), "the room is gone")

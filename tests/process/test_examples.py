"""Examples that a site copies, run as the server runs them, with a stand-in for what reaches other machines."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.documents import SOURCE

EXAMPLES = SOURCE / "setup" / "examples"
ETHERS = "# comment node-9\n00:11:22:33:44:55 node-1\n00:11:22:33:44:66 node-2\n"


class Desk:
    """A directory whose programs write down how they were called."""

    def __init__(self, place: Path) -> None:
        self._place, self._said = place, place / "said"
        (place / "ethers").write_text(ETHERS)

    def program(self, name: str, script: str) -> None:
        path = self._place / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, example: str, *words: str, typed: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = {"PATH": f"{self._place}:{os.environ['PATH']}", "ETHERS": str(self._place / "ethers")}
        environment |= {"SAID": str(self._said), **variables}
        return subprocess.run(
            [EXAMPLES / example, *words], input=typed, env=environment, capture_output=True, text=True, check=False
        )

    def said(self) -> list[str]:
        return sorted(self._said.read_text().splitlines()) if self._said.exists() else []


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_nodes_are_woken_by_their_addresses(desk: Desk) -> None:
    desk.program("wakeonlan", 'echo "$1" >>"$SAID"')
    done = desk.run("wake_up_nodes.sh", typed="node-1\nnode-2\n")
    assert (done.returncode, desk.said()) == (0, ["00:11:22:33:44:55", "00:11:22:33:44:66"])


def test_a_node_without_an_address_is_named_and_the_others_are_woken(desk: Desk) -> None:
    desk.program("wakeonlan", 'echo "$1" >>"$SAID"')
    done = desk.run("wake_up_nodes.sh", typed="node-9\nnode-2\n")
    assert (done.returncode, desk.said()) == (1, ["00:11:22:33:44:66"])
    assert "no line for 'node-9'" in done.stderr


NODES = """{
    "1": {"network_address": "node-1", "jobs": "12"}, "2": {"network_address": "node-1", "jobs": "12"},
    "3": {"network_address": "node-2", "jobs": "12"}, "4": {"network_address": "node-2"},
    "5": {"network_address": "node-3", "jobs": "11, 12"}, "6": {"network_address": "node-4", "jobs": "112"}
}"""


@pytest.mark.parametrize("action", ["START", "STOP"])
def test_access_is_changed_on_the_nodes_that_a_job_has_as_a_whole(desk: Desk, action: str) -> None:
    desk.program("oarnodes", f"cat <<'END'\n{NODES}\nEND")
    desk.program(
        "ssh", 'for word; do [ "$word" = -- ] && break; shift; done; echo "$2 $3" >>"$SAID"; [ "$2" != node-3 ]'
    )
    done = desk.run("oar_server_proepilogue", action, "12", OAR_USER="alice")
    assert done.returncode == 0
    assert [line.split()[0] for line in desk.said()] == ["node-1", "node-3"]
    assert all("+ : alice : ALL #12" in line for line in desk.said())
    assert done.stdout == f"{action}: the access list of node-3 was not changed\n"


@pytest.mark.parametrize(
    ("words", "user"),
    [(["START", "x"], "alice"), (["GO", "12"], "alice"), (["START"], "alice"), (["STOP", "12"], "a;b")],
)
def test_what_is_no_job_or_user_is_refused(desk: Desk, words: list[str], user: str) -> None:
    desk.program("oarnodes", "echo {}")
    desk.program("ssh", 'echo called >>"$SAID"')
    assert desk.run("oar_server_proepilogue", *words, OAR_USER=user).returncode == 1
    assert desk.said() == []

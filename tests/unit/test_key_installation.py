"""The script that brings keys to nodes: run by a real shell, in a home of its own."""

import os
import subprocess
from pathlib import Path

import pytest

from oar.lib.remote.key_installation import KeyFiles, host_keys, merged, node_script, port_of

FILES = KeyFiles(
    "ssh-ed25519 AAAAserver oar server\n", "-----PRIVATE-----\n$HOME `id`\n", "ssh-ed25519 AAAAoarsh oarsh\n"
)
LINES = """environment="OAR_KEY=1" ssh-ed25519 AAAAserver oar server
command="/opt/oar/oarsh_shell --oarsh",environment="OAR_KEY=0",restrict,pty,X11-forwarding ssh-ed25519 AAAAoarsh oarsh
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of oar on a node; the programs that tell who is who know nothing else."""
    (tmp_path / "bin").mkdir()
    for name, text in (
        ("id", "echo oar"),
        ("getent", f"echo oar:x:1:1::{tmp_path}/home:/opt/oar/oarsh_shell"),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def install(home: Path, files: KeyFiles) -> subprocess.CompletedProcess[str]:
    """Run the script as ssh does; ``~oar`` is the home of the test."""
    script = node_script(files).replace("cd ~oar", f"cd {home}")
    path = f"{home.parent}/bin:{os.environ['PATH']}"
    return subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, env={"PATH": path}, check=False)


def test_files_are_installed_and_other_lines_stay(home: Path) -> None:
    (home / ".ssh").mkdir(mode=0o755)
    (home / ".ssh/authorized_keys").write_text('ssh-rsa BBBB admin\nenvironment="OAR_KEY=1" ssh-rsa OLD\n')
    for _ in range(2):
        done = install(home, FILES._replace(known_hosts="node-1 ssh-ed25519 CCCC\n"))
        assert (done.returncode, done.stderr) == (0, "")
    ssh = home / ".ssh"
    assert (ssh / "authorized_keys").read_text() == "ssh-rsa BBBB admin\n" + LINES
    assert (ssh / "oarsh_key").read_text() == FILES.oarsh_private
    assert (ssh / "known_hosts").read_text() == "node-1 ssh-ed25519 CCCC\n"
    assert {path.name: path.stat().st_mode & 0o777 for path in ssh.iterdir()} == dict.fromkeys(
        ("authorized_keys", "oarsh_key", "oarsh_key.pub", "known_hosts"), 0o600
    )
    assert ssh.stat().st_mode & 0o777 == 0o700


def test_another_server_gets_the_key_of_the_server(home: Path) -> None:
    done = install(home, FILES._replace(server_private="-----OWN-----\n", server_key="id_rsa"))
    assert (done.returncode, done.stderr) == (0, "")
    ssh = home / ".ssh"
    assert (ssh / "id_rsa").read_text() == "-----OWN-----\n"
    assert (ssh / "id_rsa.pub").read_text() == FILES.server_public
    assert (ssh / "id_rsa").stat().st_mode & 0o777 == 0o600
    (home.parent / "bin/getent").write_text("#!/bin/sh\nexit 2\n")
    failed = install(home, FILES._replace(server_private="-----OWN-----\n"))
    assert failed.stderr == "there is no account oar: install oar-server first\n"


def test_a_node_without_programs_is_told(home: Path) -> None:
    (home.parent / "bin/getent").write_text("#!/bin/sh\necho oar:x:1:1::/:/bin/bash\n")
    done = install(home, FILES)
    assert done.returncode == 1
    told = "the login shell of oar is /bin/bash and not oarsh_shell: install oar-node first\n"
    assert done.stderr == told
    assert list(home.iterdir()) == []
    (home.parent / "bin/getent").write_text("#!/bin/sh\nexit 2\n")
    done = install(home, FILES)
    assert (done.returncode, done.stderr) == (1, "there is no account oar: install oar-node first\n")


def test_host_keys_are_what_a_node_says_and_nothing_else() -> None:
    said = "Welcome!\nssh-ed25519 AAAA root@node-1\nssh-ed25519 $(id)\n"
    assert list(host_keys(said, "node-1", 6667)) == ["[node-1]:6667 ssh-ed25519 AAAA"]
    assert list(host_keys(said, "node-1", 22)) == ["node-1 ssh-ed25519 AAAA"]


def test_a_node_that_was_installed_anew_has_its_new_key() -> None:
    known = "[node-1]:6667 ssh-ed25519 OLD\n[node-2]:6667 ssh-ed25519 TWO\n"
    new = merged(known, ["[node-1]:6667 ssh-ed25519 NEW", "[node-1]:6667 ssh-ed25519 NEW"])
    assert new == "[node-2]:6667 ssh-ed25519 TWO\n[node-1]:6667 ssh-ed25519 NEW\n"
    assert merged(new, []) == new


def test_the_port_is_that_of_the_command() -> None:
    assert [port_of(text.split()) for text in ("ssh -p 6667", "ssh -p6667 -q", "ssh -oPort=24", "ssh -x")] == [
        6667,
        6667,
        24,
        22,
    ]

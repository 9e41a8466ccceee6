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


def install(
    home: Path, files: KeyFiles, *, is_replacing: bool = False, size: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script as ssh does; ``~oar`` is the home of the test. ``size``: so much of it arrives."""
    script = node_script(files, is_replacing=is_replacing).replace("cd ~oar", f"cd {home}")[:size]
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


def fake(home: Path, name: str, text: str) -> None:
    (home.parent / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (home.parent / "bin" / name).chmod(0o755)


@pytest.mark.parametrize("account", ["oar", "root"])
def test_keys_are_in_no_argument_of_a_process(home: Path, account: str) -> None:
    fake(home, "id", f"echo {account}")
    fake(home, "runuser", f'echo "$@" >{home.parent}/runuser\nshift 3\nexec "$@"')
    fake(home, "mv", f'cat /proc/[0-9]*/cmdline >>{home.parent}/arguments 2>/dev/null\nexec /bin/mv "$@"')
    hosts = "".join(f"node-{number} ssh-ed25519 CCCC\n" for number in range(10_000))
    done = install(home, FILES._replace(server_private="-----OWN-----\n", known_hosts=hosts))
    assert (done.returncode, done.stderr) == (0, "")
    arguments = (home.parent / "arguments").read_bytes()
    assert b"-----OWN" + b"-----" not in arguments
    assert b"-----PRIVATE" + b"-----" not in arguments
    assert (home / ".ssh/known_hosts").read_text() == hosts
    if account == "root":
        assert (home.parent / "runuser").read_text() == "-u oar -- sh -s\n"


def test_a_part_of_the_script_changes_nothing(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/known_hosts").write_text("node-1 ssh-ed25519 OLD\n")
    files = FILES._replace(known_hosts="node-1 ssh-ed25519 NEW\n")
    whole = len(node_script(files))
    for size in (whole // 2, whole - 150, whole - 60):
        install(home, files, size=size)
        assert [path.name for path in (home / ".ssh").iterdir()] == ["known_hosts"]
        assert (home / ".ssh/known_hosts").read_text() == "node-1 ssh-ed25519 OLD\n"


def test_hosts_that_only_the_other_machine_knows_stay(home: Path) -> None:
    (home / ".ssh").mkdir()
    before = (
        "# ours\n@revoked node-1 ssh-rsa R\nnode-1,node-8 ssh-rsa OLD x\n\n  \nnode-2 ssh-rsa O\nnode-9 ssh-rsa N\n"
    )
    (home / ".ssh/known_hosts").write_text(before)
    new = ["node-1 ssh-ed25519 CCCC", "node-1 ssh-rsa DDDD", "node-2 ssh-ed25519 EEEE"]
    files = FILES._replace(known_hosts="".join(f"{line}\n" for line in new))
    after = "# ours\n@revoked node-1 ssh-rsa R\nnode-8 ssh-rsa OLD x\nnode-9 ssh-rsa N\n" + files.known_hosts
    for _ in range(2):
        assert install(home, files).returncode == 0
        assert (home / ".ssh/known_hosts").read_text() == after
    assert merged(before, new) == after


def generated(path: Path) -> tuple[str, str]:
    """Return a private key and its public key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "c", "-f", str(path)], check=True)
    return path.read_text(), path.with_name(f"{path.name}.pub").read_text()


def test_a_server_key_of_the_other_server_is_replaced_only_on_request(home: Path, tmp_path: Path) -> None:
    private, public = generated(tmp_path / "ours")
    other, other_public = generated(tmp_path / "other")
    ssh = home / ".ssh"
    ssh.mkdir()
    for name, text in (("id_rsa", other), ("id_rsa.pub", other_public), ("known_hosts", "node-9 ssh-rsa N\n")):
        (ssh / name).write_text(text)
        (ssh / name).chmod(0o600)
    files = FILES._replace(server_public=public, server_private=private, known_hosts="node-1 ssh-rsa A\n")
    refused = install(home, files)
    assert (refused.returncode, refused.stderr) == (
        1,
        "~oar/.ssh/id_rsa is another server key: nothing was changed. To replace it, give --replace-keys, too\n",
    )
    assert (ssh / "id_rsa").read_text() == other
    assert (ssh / "known_hosts").read_text() == "node-9 ssh-rsa N\n"
    assert install(home, files, is_replacing=True).stderr == ""
    assert sorted(path.name for path in ssh.glob("id_*")) == ["id_ed25519", "id_ed25519.pub"]
    (ssh / "id_ed25519.pub").unlink()
    assert install(home, files).stderr == ""  # the same key
    assert (ssh / "id_ed25519.pub").read_text() == public


def test_an_oarsh_key_of_the_other_server_is_replaced_only_on_request(home: Path, tmp_path: Path) -> None:
    """Nodes that have it would refuse the sessions of users otherwise."""
    private, public = generated(tmp_path / "ours")
    other, _ = generated(home / "oarsh_key")
    ssh = home / ".ssh"
    ssh.mkdir()
    (home / "oarsh_key").rename(ssh / "oarsh_key")
    files = FILES._replace(server_public=public, server_private=private)
    refused = install(home, files)
    assert (refused.returncode, refused.stderr) == (
        1,
        "~oar/.ssh/oarsh_key is another oarsh key: nothing was changed. To replace it, give --replace-keys, too\n",
    )
    assert [path.name for path in ssh.iterdir()] == ["oarsh_key"]
    assert (ssh / "oarsh_key").read_text() == other
    assert install(home, files, is_replacing=True).stderr == ""
    assert install(home, files).stderr == ""  # the same key


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

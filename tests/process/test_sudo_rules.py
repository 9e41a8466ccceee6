"""The rules of sudo, by a real sudo: what ``oar`` may do on a frontend, on the machine of the API, and on a node."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import SOURCE, named_blocks
from tests.process.node_box import NodeBox

RULES = Path(__file__).resolve().parents[2] / "setup" / "nodes"


class Machine:
    """A machine of which OAR has installed some parts."""

    def __init__(self, box: NodeBox) -> None:
        self._box = box

    def install(self, *parts: str) -> None:
        """Let the machine have the rules that every machine has, and those of some parts."""
        self._as_root("rm /etc/sudoers.d/oar*", "")
        for name in ("oar", *(f"oar-{part}" for part in parts)):
            text = (RULES / name.replace("oar", "sudoers", 1)).read_text()
            path = f"/etc/sudoers.d/{name}"
            self._as_root(f"cat >{path} && chmod 440 {path}", text.replace("/usr/lib/oar", str(self._box.oardir)))

    def add(self, name: str, rule: str) -> None:
        """Let the machine have a file of the site in ``/etc/sudoers.d``."""
        path = f"/etc/sudoers.d/{name}"
        self._as_root(f"cat >{path} && chmod 440 {path} && visudo -c -q -f {path}", rule)

    def set_administrators(self, members: str) -> None:
        """Say who is in the group ``sudo``."""
        self._as_root("sed -i '/^sudo:/d' /etc/group && cat >>/etc/group", f"sudo:x:27:{members}\n")

    def _as_root(self, script: str, stdin: str) -> None:
        subprocess.run([*self._box.enter(), "sh", "-c", script], input=stdin, text=True, timeout=120, check=True)

    def as_oar(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command as the account of OAR."""
        return self._run("oar", *words)

    def _run(self, account: str, *words: str) -> "subprocess.CompletedProcess[str]":
        argv = [*self._box.enter(), "setpriv", f"--reuid={account}", f"--regid={account}", "--init-groups", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)

    def sudo_of(self, user: str, *words: str) -> str:
        """Return what sudo prints for a user who asks for ``oar``; '' if it refuses."""
        done = self._run(user, "sudo", "-n", "-u", "oar", *words)
        return done.stdout.strip() if done.returncode == 0 else ""

    def sudo(self, *words: str) -> str:
        """Return what sudo prints for ``oar``; '' if it refuses."""
        done = self.as_oar("sudo", "-n", *words)
        return done.stdout.strip() if done.returncode == 0 else ""


@pytest.fixture
def machine(box: NodeBox) -> Iterator[Machine]:
    machine = Machine(box)
    yield machine
    machine.install("node")


@pytest.mark.parametrize("name", ["sudoers", "sudoers-node", "sudoers-api"])
def test_the_rules_are_rules(name: str) -> None:
    subprocess.run(["visudo", "-c", "-q", "-f", RULES / name], check=True)


def test_on_a_frontend_it_acts_as_users_for_their_files_and_never_as_root(machine: Machine) -> None:
    machine.install()
    assert machine.sudo("-u", "alice", "--", "id", "-un") == "alice"
    assert machine.sudo("-u", "#5001", "--", "id", "-u") == "5001"
    for who in (("-u", "root"), ("-u", "#0"), ("-u", "#00"), ("-u", "#-1"), ("-u", "#4294967295"), ("-g", "root"), ()):
        assert machine.sudo(*who, "--", "id", "-u") == "", who


def test_users_run_the_programs_of_users_as_oar_and_nothing_else(machine: Machine, box: NodeBox) -> None:
    machine.install()
    for name in ("oarstat", "oar-almighty", "oarsh"):
        program = box.oardir / name
        former = program.read_bytes() if program.exists() else None
        program.write_text("#!/bin/sh\nid -un\n")
        program.chmod(0o755)
        try:
            may = {user for user in ("alice", "daemon") if machine.sudo_of(user, str(program)) == "oar"}
        finally:
            program.unlink() if former is None else program.write_bytes(former)
        assert may == {"oarstat": {"alice", "daemon"}, "oar-almighty": set(), "oarsh": {"alice"}}[name], name
    for words in (("id",), ("/bin/sh", "-c", "id"), (f"{box.oardir}/../lib/oarstat",)):
        assert machine.sudo_of("alice", *words) == "", words


def test_a_site_can_keep_oar_from_its_administrators(machine: Machine) -> None:
    machine.install()
    machine.add("oar-site", named_blocks(SOURCE / "docs" / "security.rst")["accounts that oar may not use"].lstrip())
    machine.set_administrators("bob")
    try:
        assert machine.sudo("-u", "alice", "--", "id", "-un") == "alice"
        assert machine.sudo("-u", "bob", "--", "id", "-un") == ""
    finally:
        machine.set_administrators("")


def test_on_the_machine_of_the_api_it_checks_passwords_as_root_and_nothing_else(machine: Machine, box: NodeBox) -> None:
    check = box.oardir / "oar-password-check"
    check.write_text("#!/bin/sh\nid -u\n")
    check.chmod(0o755)
    machine.install("api")
    assert machine.sudo(str(check)) == "0"
    assert machine.sudo("id", "-u") == ""
    assert machine.sudo(str(check), "-x") == "", machine.as_oar("sudo", "-n", "-l").stdout


def test_on_a_node_its_session_is_root(machine: Machine) -> None:
    machine.install("node")
    assert machine.sudo("id", "-u") == "0"

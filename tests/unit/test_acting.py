"""The person who acts as root or oar: what counts of what a process and its environment say."""

import os
import subprocess
import sys
from collections.abc import Mapping
from subprocess import PIPE

import pytest

from oar.cli.common.command import caller, with_person
from oar.lib.access.acting import Origin, find_person, login_uid, login_uid_of
from oar.lib.access.records import User, is_named

NAMES = {0: "root", 999: "oar", 1001: "anna", 1002: "bob"}
OAR, ANNA, BOB = 999, 1001, 1002


@pytest.mark.parametrize(
    ("uid", "login", "environment", "account", "person"),
    [
        (0, None, {}, "root", ""),
        (0, 0, {}, "root", ""),
        (0, ANNA, {}, "root", "anna"),
        (0, None, {"SUDO_USER": "anna"}, "root", "anna"),
        (0, ANNA, {"SUDO_USER": "anna"}, "root", "anna"),
        (0, 54321, {}, "root", "uid 54321"),
        # anna becomes bob by su, and root by sudo; or bob has set the login user of a process that had none
        (0, ANNA, {"SUDO_USER": "bob"}, "root", "anna, sudo: bob"),
        # a wrapper that root runs becomes oar by sudo, which sets SUDO_USER to root
        (OAR, None, {"SUDO_USER": "root", "SUDO_UID": "0", "OAR_SUDO_USER": "anna"}, "root", "anna"),
        (OAR, ANNA, {"SUDO_USER": "root", "SUDO_UID": "0"}, "root", "anna"),
        (OAR, ANNA, {}, "oar", "anna"),
        # what root has not set
        (OAR, None, {"SUDO_USER": "bob"}, "oar", ""),
        (OAR, None, {"OAR_SUDO_USER": "bob"}, "oar", ""),
        (OAR, None, {"SUDO_USER": "eve", "SUDO_UID": "1002", "OAR_SUDO_USER": "bob"}, "oar", ""),
        (0, None, {"OAR_SUDO_USER": "bob"}, "root", ""),
        # no name of an account
        (0, None, {"SUDO_USER": "bob)\n[admin] user=root (anna"}, "root", ""),
        (0, None, {"SUDO_USER": "bob, sudo: anna"}, "root", ""),
        (0, None, {"SUDO_USER": "x" * 1000}, "root", ""),
    ],
)
def test_a_variable_counts_only_if_root_has_set_it(
    uid: int, login: int | None, environment: Mapping[str, str], account: str, person: str
) -> None:
    assert find_person(Origin(uid, login, environment), account, NAMES.__getitem__) == person


@pytest.mark.parametrize("variables", [{"SUDO_USER": "bob"}, {"SUDO_UID": "0", "SUDO_USER": "bob"}])
def test_a_user_who_sets_the_variables_of_sudo_stays_himself(variables: Mapping[str, str]) -> None:
    user = with_person(caller(variables, ANNA, ANNA, NAMES.__getitem__), variables)
    assert (user, user.author) == (User("anna", ANNA), "anna")


def test_the_login_user_of_a_peer_is_asked_of_its_own_process_only() -> None:
    program = "open('/proc/self/loginuid', 'w').write('4711'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=PIPE, stdout=PIPE, stderr=PIPE) as child:
        assert child.stdin
        assert child.stdout
        is_set = bool(child.stdout.readline())  # a login user that is set already cannot be changed without rights
        expected = 4711 if is_set else login_uid()
        assert login_uid_of(child.pid, os.getuid()) == expected
        assert login_uid_of(child.pid, os.getuid() + 1) is None
        child.stdin.close()
    assert login_uid_of(child.pid, os.getuid()) is None


def test_a_peer_of_another_pid_namespace_is_unknown_and_not_this_process() -> None:
    """The kernel names such a peer 0."""
    program = (
        "open('/proc/self/loginuid', 'w').write('4711')\n"
        "from oar.lib.access.acting import login_uid, login_uid_of\n"
        "import os\n"
        "print(login_uid(), login_uid_of(0, os.getuid()), login_uid_of(os.getpid(), os.getuid()))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if result.returncode == 0:  # otherwise the kernel forbids to set it
        assert result.stdout.split() == ["4711", "None", "4711"]
    assert login_uid_of(0, os.getuid()) is None


@pytest.mark.parametrize("name", ["anna", "root", "bob", "root (anna, sudo: bob)"])
def test_an_author_is_found_by_each_of_its_names(name: str) -> None:
    assert is_named(name, "root (anna, sudo: bob)")
    assert not is_named(name[:2], "root (anna, sudo: bob)")

"""The acting person of real processes: sudo replaces forged variables, and a user gains nothing by them."""

import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_SOURCE = Path(__file__).parents[2]
_PROGRAM = f"""
import os, sys
sys.path[:0] = {[str(_SOURCE), *sys.path]!r}
from oar.cli.common.command import caller, with_person
from oar.lib.access import acting
acting.login_uid = lambda: None  # as without pam_loginuid
print(with_person(caller(os.environ, os.getuid(), os.geteuid()), os.environ).author)
"""
_LIES = {"SUDO_USER": "daemon", "OAR_SUDO_USER": "daemon", "SUDO_UID": "0"}


def said(words: list[str], environment: Mapping[str, str]) -> str:
    """Return what a process says about who acts."""
    command = [*words, sys.executable, "-c", _PROGRAM]
    variables = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


def as_user(name: str) -> list[str]:
    account = pwd.getpwnam(name)
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_who_forges_the_variables_of_sudo_is_himself() -> None:
    assert said(as_user("nobody"), _LIES) == "nobody"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs no password for sudo")
def test_sudo_replaces_the_user_that_its_caller_names() -> None:
    assert said(["sudo", "-n"], _LIES) == "root"
    assert said([], {"SUDO_USER": "daemon"}) == "root (daemon)"  # what sudo sets for the commands of daemon

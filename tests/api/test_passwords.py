"""The file of htpasswd, and the program that asks PAM."""

import subprocess
import sys
from pathlib import Path

import bcrypt
import pytest

from oar.api import password_check, passwords

CHECK = "import sys; from oar.api.password_check import main; sys.exit(main(sys.argv[1]))"


@pytest.mark.parametrize("password", ["a", "exactly sixteen!", "longer than sixteen, with ä and 漢"])
def test_the_sum_of_apache_is_that_of_openssl(password: str) -> None:
    command = ["openssl", "passwd", "-apr1", "-salt", "abcdefgh", "-stdin"]
    theirs = subprocess.run(command, input=password.encode(), capture_output=True, check=True).stdout.decode().strip()
    assert passwords.apache_md5(password.encode(), b"abcdefgh") == theirs


def test_every_kind_of_sum_fits_its_password_only() -> None:
    sums = [
        bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode(),
        bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$"),
        passwords.apache_md5(b"secret", b"x"),
        "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
    ]
    assert [passwords.matches("secret", each) for each in sums] == [True] * 4
    assert [passwords.matches("Secret", each) for each in sums] == [False] * 4


@pytest.mark.parametrize("stored", ["secret", "", "$2b$broken", "$apr1$", "$6$salt$x", "*", "!", "x"])
def test_what_is_no_sum_lets_nobody_in(stored: str) -> None:
    assert not passwords.matches("secret", stored)
    assert not passwords.matches("", stored)


def _ask(directory: Path, question: bytes) -> int:
    return subprocess.run([sys.executable, "-c", CHECK, str(directory)], input=question, check=False).returncode


@pytest.fixture
def pam(tmp_path: Path) -> Path:
    """A configuration of PAM that takes one password of everybody."""
    program = tmp_path / "compare"
    program.write_text('#!/bin/sh\n[ "$(tr -d "\\0")" = "the password" ] && [ "$PAM_USER" = alice ]\n')
    program.chmod(0o755)
    rules = f"auth required pam_exec.so expose_authtok quiet {program}\naccount required pam_permit.so\n"
    (tmp_path / "oar-api").write_text(rules)
    return tmp_path


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (b"alice\0the password", password_check.RIGHT),
        (b"alice\0another", password_check.WRONG),
        (b"alice\0", password_check.WRONG),
        (b"bob\0the password", password_check.WRONG),
        (b"root\0the password", password_check.WRONG),
        (b"alice the password", password_check.WRONG),
        (b"alice\0the\0password", password_check.WRONG),
        (b"../alice\0the password", password_check.WRONG),
        (b"", password_check.WRONG),
        (b"\0", password_check.WRONG),
        (b"alice\0" + b"x" * 100_000, password_check.WRONG),
    ],
)
def test_pam_tells_whether_a_password_is_right(pam: Path, question: bytes, code: int) -> None:
    assert _ask(pam, question) == code


def test_an_account_that_pam_does_not_let_in_is_not_let_in(pam: Path) -> None:
    rules = (pam / "oar-api").read_text().replace("pam_permit", "pam_deny")
    (pam / "oar-api").write_text(rules)
    assert _ask(pam, b"alice\0the password") == password_check.WRONG


def test_what_runs_as_root_loads_nothing_of_the_package() -> None:
    code = "import sys, oar.api.password_check; print([name for name in sys.modules if name.startswith('oar')])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "['oar', 'oar.api', 'oar.api.password_check']"

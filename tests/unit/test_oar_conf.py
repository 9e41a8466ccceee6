"""oar-conf: what it prints, and what it calls bad."""

import os
import tempfile
from pathlib import Path

import pytest

from oar.cli import oar_conf as oar_conf_command
from oar.cli.common.command import CommandResult, invoke
from oar.cli.oar_conf import main
from oar.lib.access.records import User
from oar.lib.config import files
from oar.lib.config.files import Config, parse, sample

OAR = User("oar", 6660)


def oar_conf(file: Path, *arguments: str, user: User = OAR) -> CommandResult:
    return invoke(main, arguments, user=user, environment={"OARCONFFILE": str(file)})


def check(file: Path) -> CommandResult:
    """Check a configuration whose database is away, which is its last line and the last one that is told of it."""
    text = file.read_text()
    file.write_text(f"{text}DB_HOSTNAME={file.parent}\n")
    result = oar_conf(file, "--check", "--connect")
    file.write_text(text)
    lines = result.err.splitlines(keepends=True)
    (of_database,) = [line for line in lines if line.startswith("/!\\ DB_HOSTNAME: ")]
    return result._replace(err="".join(line for line in lines if line != of_database))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "oar.conf"


def test_each_value_is_shown_with_its_origin(file: Path) -> None:
    file.write_text("# mine\nSERVER_PORT=7000\nLEON_WALLTIME=400\n")
    result = oar_conf(file)
    lines = result.out.splitlines()
    assert result.exit == 0
    assert len(lines) == len(Config.options())
    assert f'SERVER_PORT="7000"  # {file}:2' in lines
    assert f'JOBDEL_WALLTIME="400"  # {file}:3' in lines
    assert 'APPENDICE_SERVER_PORT="6670"  # default' in lines


def test_what_is_shown_can_be_read_as_a_configuration(file: Path) -> None:
    file.write_text('LOG_FORMAT="json"\nSCHEDULER_TOKEN_SCRIPTS="{ a => \'/bin/a -x\' }"\nMAIL_RECIPIENT="a@b,c@d"\n')
    parsed = parse(oar_conf(file).out)
    assert parsed.errors == ()
    assert parsed.config.log_format == "json"
    assert parsed.config.mail_recipient == ("a@b", "c@d")
    assert parsed.config.scheduler_token_scripts == {"a": "/bin/a -x"}


def test_one_key_may_be_asked_for_by_any_of_its_names(file: Path) -> None:
    file.write_text("")
    assert oar_conf(file, "leon_walltime").out == 'JOBDEL_WALLTIME="300"  # default\n'
    unknown = oar_conf(file, "COLOUR")
    assert (unknown.exit, unknown.err) == (
        1,
        "[ERROR] Unknown key 'COLOUR': oar-conf without argument lists all keys.\n",
    )


def test_passwords_are_not_listed_but_told_when_asked_for(file: Path) -> None:
    file.write_text("DB_BASE_PASSWD=hidden\n")
    assert "hidden" not in oar_conf(file).out
    assert 'DB_BASE_PASSWD="***"' in oar_conf(file).out
    assert "hidden" in oar_conf(file, "DB_BASE_PASSWD").out


def test_a_check_names_all_that_is_wrong(file: Path) -> None:
    file.write_text("SEVER_PORT=1\nLOG_LEVEL=loud\nFINAUD_FREQUENCY=x\n")
    result = check(file)
    assert result.exit == 1
    assert result.out == ""
    assert result.err.splitlines() == [
        f"/!\\ {file}:1: SEVER_PORT: unknown key, ignored; the nearest known key is SERVER_PORT",
        f"[ERROR] {file}:2: LOG_LEVEL: write a whole number",
        f"[ERROR] {file}:3: FINAUD_FREQUENCY: write a whole number",
    ]


def test_a_check_names_a_file_that_the_server_cannot_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oar_conf_command, "ACCOUNT", "nobody")
    with tempfile.NamedTemporaryFile(dir="/tmp") as quotas:
        file.write_text(f'QUOTAS_CONF_FILE="{quotas.name}"\n')
        os.chmod(quotas.name, 0o644)
        assert check(file) == CommandResult(0, "", "")
        os.chmod(quotas.name, 0o000)
        told = f"/!\\ QUOTAS_CONF_FILE: the account nobody cannot read {quotas.name}, and so the server does not\n"
        assert check(file) == CommandResult(0, "", told)


def test_a_check_names_an_installed_configuration_that_the_server_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oar_conf_command, "ACCOUNT", "nobody")
    with tempfile.NamedTemporaryFile(dir="/tmp") as installed:
        path = Path(installed.name)
        monkeypatch.setattr(oar_conf_command, "DEFAULT_FILES", (str(path),))
        path.chmod(0o640)
        told = f"[ERROR] the account nobody cannot read {path} (run: chown root:nobody {path}; chmod 640 {path})"
        result = oar_conf(path, "--check")
        assert (result.exit, told in result.err.splitlines()) == (1, True)
        path.chmod(0o644)
        result = oar_conf(path, "--check")
        assert (result.exit, "cannot read" in result.err) == (0, False)


@pytest.mark.parametrize("option", ["--check", "--sample"])
def test_a_word_that_means_nothing_beside_an_option_is_not_passed_over(file: Path, option: str) -> None:
    file.write_text("SEVER_PORT=1\n")
    result = oar_conf(file, option, "/tmp/other.conf")
    assert result.exit != 0
    assert result.out == ""
    told = f"{option} takes no argument, not /tmp/other.conf; the variable OARCONFFILE names the file."
    assert result.err.splitlines()[0] == told


def test_keys_of_other_versions_are_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (files, oar_conf_command):
        monkeypatch.setattr(module, "UNREAD", {"stageout_dir", "api_media_roots", "api_media"})
    file.write_text("QUOTAS=no\nSTAGEOUT_DIR=/x\nAPI_MEDIA_ROOTS=x\n")
    assert check(file) == CommandResult(
        0,
        "",
        f"/!\\ {file}:2: STAGEOUT_DIR: not in this version, it has no effect\n"
        f"/!\\ {file}:3: API_MEDIA_ROOTS: not in this version, it has no effect\n",
    )
    assert f'STAGEOUT_DIR="/x"  # {file}:2, not in this version' in oar_conf(file).out.splitlines()
    assert oar_conf(file, "API_MEDIA").out == 'API_MEDIA="no"  # default, not in this version\n'


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("QUEUE=a\nQUEUE=b\n", 0), ("SEVER_PORT=1\n", 1), ("LOG_LEVEL=x\n", 1)]
)
def test_a_check_is_good_unless_a_key_or_a_value_is_bad(file: Path, text: str, code: int) -> None:
    file.write_text(text)
    assert oar_conf(file, "--check").exit == code


def test_a_database_that_is_away_is_told_once(file: Path) -> None:
    file.write_text(f"QUOTAS=yes\nDB_HOSTNAME={file.parent}\n")
    result = oar_conf(file, "--check", "--connect")
    assert (result.exit, result.out) == (0, "")
    assert result.err.startswith("/!\\ DB_HOSTNAME: ")
    assert result.err.count("\n") == 1


def test_a_bad_value_is_told_beside_the_values_in_force(file: Path) -> None:
    file.write_text("LOG_LEVEL=loud\n")
    result = oar_conf(file)
    assert result.exit == 1
    assert 'LOG_LEVEL="2"' in result.out
    assert "write a whole number" in result.err


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    result = oar_conf(file)
    assert result.exit == 1
    assert str(file) in result.err


def test_others_are_refused(file: Path) -> None:
    file.write_text("")
    assert oar_conf(file, user=User("alice", os.geteuid() + 1)).exit == 77


def test_the_sample_file_is_printed_to_anybody(file: Path) -> None:
    assert oar_conf(file, "--sample", user=User("alice", 1001)).out == sample()

"""Hostile values for every option of every command: no sentence of PostgreSQL, Python or a library reaches a user."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.cli import oardel, oarnodes, oarstat
from oar.cli.common.command import Command
from oar.cli.common.options import ADMIN, OptionalArgument, PlainOption
from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources
from tests.frontend import ALICE, Frontend, add_rules

pytestmark = pytest.mark.slow

ROOT = User("root", 0)
INTERNAL = 3
#: Commands that only read and change the database.
NAMES = (
    *("oarsub", "oarstat", "oarnodes", "oardel", "oarhold", "oarresume", "oaralter", "oarwalltime", "oaruserset"),
    *("oaraccounting", "oaradmissionrules", "oarnodesetting", "oarnotify", "oarproperty", "oarqueue"),
    *("oarremoveresource", "oar_token", "oar2trace", "oar_resources_add", "qrsub", "qrstat", "qralter", "qrdel"),
    *("oar_conf", "oar_database", "oar_keys", "oar_phoenix", "oar_resources_init", "oar_server"),
)
#: Options that wait, start programs or write files.
LEFT_OUT = frozenset(
    {"follow", "watch", "wait", "patience", "timeout", "edit", "connect", "completion", "to_file", "path"}
)
HOSTILE = (
    *("", " ", "0", "-1", "1e9", "99999999999999999999", "9223372036854775807", "2147483648", "NaN", "x" * 300),
    *("'", '"', "`", "\\", "%s", "%(a)s", "{}", "{0}", "$x", "a\nb", "\x1b[31m", "é\udcff", "\u202e", "\uff11", "½"),
    *("2026-02-30", "2026-13-01 00:00:00", "9999-12-31 23:59:59", "0000-00-00", "1:2:3:4", "+999999d", "99:99:99"),
    *("2026-02-30,2026-02-31", "now,now", "a=b", "a=b,c", "=", ",", "/", "//", "{", "}", "(", ")", "[", "*", "-", "--"),
    *("core=1/0", "1,2", "1-0", "@", "a@b@c", "../..", "/dev/null", "\t", "yes", "on", "mail:", "exec:", "[END"),
    *("cpuset = 99999999999999999999", "1/0 = 1", "state = ", "job_id = '½'", "resource_id LIKE '\\'"),
)
FOREIGN = re.compile(
    r"internal error|Traceback|psycopg|LINE \d|at or near|out of range|invalid input|invalid literal|could not convert"
    r"|codec|must be in \d|must be in the range|No closing|No escaped|unterminated|list index|has no attribute|NoneType"
    r"|expected \w+ (got|but)|unexpected (end|EOF|char)|Errno|<class|object at 0x|not supported between|Invalid value"
    r"|No such option|Missing (argument|option|parameter)|nothing to repeat|bad escape|division by zero"
    r"|unexpected extra|connection to server|could not translate|FATAL|is not one of|is not a valid (int|float|bool)"
    r"|embedded null|violates|relation|DETAIL|HINT|CONTEXT|SQLSTATE|operator does not exist|does not match format"
)


def command_of(name: str) -> Command:
    """Return a command by the name of its module."""
    command: Command = importlib.import_module(f"oar.cli.{name}").main
    return command


@pytest.fixture
def site(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frontend:
    """Two nodes with the default rules, and a waiting job of alice."""
    monkeypatch.chdir(tmp_path)  # some values name files
    write_conf(database, tmp_path)
    add_resources(database)
    add_rules(database)
    add_job(database, JobState.WAITING, user="alice")
    with database.begin() as tx:
        tx.access.add_to_userset("arusers", ["alice"])
    return Frontend(database)


def write_conf(database: Database, directory: Path) -> None:
    """Write the ``oar.conf`` of the database into a directory."""
    settings = database.settings
    keys = {"HOSTNAME": settings.host, "BASE_NAME": settings.name, "BASE_LOGIN": settings.user}
    keys["ARCHIVE_BASE_NAME"] = "no_archive"
    lines = [f'DB_{key}="{value}"' for key, value in keys.items()]
    (directory / "oar.conf").write_text("\n".join([*lines, f'DB_BASE_LOGIN_RO="{settings.ro_user}"', ""]))


#: Words without which a command only says that they are missing, or waits.
NEEDED = {
    "oar-token": ["create"],
    "oarwalltime": ["1"],
    "oaralter": ["1"],
    "oarsub": ["--estimate", "true"],
    "oar2trace": ["-f", "-"],
    "oar-database": ["--check"],
    "oar-keys": ["--ssh", "false"],
}
#: Each option gets one of so many parts of the values.
PARTS = 4


def lines(command: Command) -> Iterator[list[str]]:
    """Iterate over command lines with hostile values of each option that takes one."""
    options = [each for each in command.params if isinstance(each, PlainOption) and not each.is_flag]
    for number, option in enumerate(option for option in options if option.name not in LEFT_OUT):
        spelling = max(option.opts, key=len)
        for value in HOSTILE[number % PARTS :: PARTS]:
            words = [f"{spelling}={value}"] if isinstance(option, OptionalArgument) else [spelling, value]
            yield words + [value] * (option.nargs - 1) + NEEDED.get(str(command.name), [])


@pytest.mark.parametrize("name", NAMES)
def test_no_foreign_sentence_answers_a_value(site: Frontend, name: str) -> None:
    command, found = command_of(name), []
    for words in lines(command):
        user = ROOT if command.style is ADMIN else ALICE
        result = site.type(command, *words, user=user, environment={"OARCONFFILE": "oar.conf"})
        if result.exit == INTERNAL or FOREIGN.search(result.out + result.err):
            found.append((words, result))
    assert found == []


@pytest.mark.parametrize("action", ["check", "setup", "purge", "archive", "after-restore", "adopt"])
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--db-host /nowhere", "no server listens at this socket. Start PostgreSQL there"),
        ("--db-host 127.0.0.1 --db-port 1", "no server listens at this address. Start PostgreSQL there"),
        ("--db-host no.such.invalid", "the host name has no address. Start PostgreSQL there"),
        ("--db-name nothing", "it has no such database. Create it: oar-database --create"),
        ("--db-user nobody", "it has no such login. Correct DB_BASE_NAME, DB_BASE_LOGIN and DB_BASE_PASSWD"),
    ],
)
def test_a_database_that_cannot_be_used_is_said_in_our_words(
    site: Frontend, action: str, words: str, reason: str
) -> None:
    origin = ["--from", f"postgresql:///{site.database.settings.name}?host={site.database.settings.host}"]
    more = origin if action == "adopt" else []
    environment = {"OARCONFFILE": "oar.conf"}
    result = site.type(
        command_of("oar_database"), f"--{action}", *words.split(), *more, user=ROOT, environment=environment
    )
    assert result.exit == 1
    assert not FOREIGN.search(result.out + result.err), result
    is_refused_first = action == "adopt" and "Cannot open the old database" in result.err
    assert is_refused_first or reason in result.err


def test_an_archive_that_cannot_be_used_is_named(site: Frontend) -> None:
    result = site.type(command_of("oar_database"), "--archive", user=ROOT, environment={"OARCONFFILE": "oar.conf"})
    assert (result.exit, result.err) == (
        1,
        f"[ERROR] Cannot use the archive (DB_ARCHIVE_*): no_archive at {site.database.settings.host}:5432:"
        " it has no such database. Create it: oar-database --create --db-name no_archive\n",
    )


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("oarqueue", "12", "Unexpected argument: 12: oarqueue takes no arguments. See: oarqueue --help"),
        ("oarnotify", "Qsub 12", "Unexpected argument: 12: oarnotify takes 1 argument. See: oarnotify --help"),
        ("oar_server", "begin", 'Value "begin" invalid for argument ACTION (one of: start, stop, '),
    ],
)
def test_a_word_too_many_and_a_wrong_word_are_named(site: Frontend, name: str, words: str, told: str) -> None:
    result = site.type(command_of(name), *words.split(), user=ROOT)
    assert result.err.startswith(told)


@pytest.mark.parametrize("command", [oarstat.main, oarnodes.main, oardel.main], ids=lambda command: command.name)
def test_no_foreign_sentence_answers_sql_of_administrators(site: Frontend, command: Command) -> None:
    for value in HOSTILE:
        result = site.type(command, "--sql", value, user=ROOT)
        assert not FOREIGN.search(result.out + result.err), result


@pytest.mark.parametrize("name", NAMES)
def test_no_foreign_sentence_answers_an_operand(site: Frontend, name: str) -> None:
    command, found = command_of(name), []
    for value in HOSTILE[::PARTS]:
        for words in ([value], ["--", value], ["1", value]):
            result = site.type(command, *words)
            if FOREIGN.search(result.out + result.err):
                found.append((words, result))
    assert found == []


@pytest.mark.parametrize("name", NAMES)
def test_no_foreign_sentence_answers_an_empty_or_a_senseless_line(site: Frontend, name: str) -> None:
    command = command_of(name)
    for words in ([], ["--nonsense"], ["-%"], ["--", "--"], ["--debug="]):
        result = site.type(command, *words, user=ROOT)
        assert result.exit != INTERNAL
        assert not FOREIGN.search(result.out + result.err), result

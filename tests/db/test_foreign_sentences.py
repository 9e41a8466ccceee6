"""Hostile values for every option of every command: no sentence of PostgreSQL, Python or a library reaches a user."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.cli import oardel, oarnodes, oarstat
from oar.cli.common.command import Command
from oar.cli.common.options import ADMIN, OptionalArgument, PlainOption
from oar.lib.db.database import Database
from oar.lib.facts.records import User
from oar.lib.facts.states import JobState
from tests.builders import add_job, add_resources
from tests.frontend import ALICE, Frontend, add_rules

ROOT = User("root", 0)
INTERNAL = 3
#: Commands that only read and change the database.
NAMES = (
    *("oarsub", "oarstat", "oarnodes", "oardel", "oarhold", "oarresume", "oaralter", "oarwalltime", "oaruserset"),
    *("oaraccounting", "oaradmissionrules", "oarnodesetting", "oarnotify", "oarproperty", "oarqueue"),
    *("oarremoveresource", "oar_token", "oar2trace", "oar_resources_add", "qrsub", "qrstat", "qralter", "qrdel"),
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
    add_resources(database)
    add_rules(database)
    add_job(database, JobState.WAITING, user="alice")
    with database.begin() as tx:
        tx.usersets.add("arusers", ["alice"])
    return Frontend(database)


#: Words without which a command only says that they are missing, or waits.
NEEDED = {
    "oar-token": ["create"],
    "oarwalltime": ["1"],
    "oaralter": ["1"],
    "oarsub": ["--estimate", "true"],
    "oar2trace": ["-f", "-"],
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
        result = site.type(command, *words, user=ROOT if command.style is ADMIN else ALICE)
        if result.exit == INTERNAL or FOREIGN.search(result.out + result.err):
            found.append((words, result))
    assert found == []


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

"""The example of the administrator's guide, "A site of three groups", typed as it stands."""

import json
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from oar.cli import oarproject, oarsub, oaruserset
from oar.cli.common.command import Command, CommandResult
from oar.lib.access.records import User
from oar.lib.accounts import quota_files
from oar.lib.accounts.limit_rules import waiting_rules
from oar.lib.config.files import parse
from oar.lib.db.database import Database
from tests.builders import add_resources
from tests.documents import SOURCE, named_blocks
from tests.frontend import LoginNode, add_rules

BLOCKS = named_blocks(SOURCE / "docs" / "administrator-guide.rst")
COMMANDS: dict[str, Command] = {
    "oarproject": oarproject.main,
    "oarsub": oarsub.main,
    "oaruserset": oaruserset.main,
}
_PROMPT = re.compile(r"\s*(\w+)[#$] (.+)")


@pytest.fixture
def site(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoginNode:
    add_resources(database, nodes=2, cores=2)
    add_rules(database)
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "job"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    (tmp_path / "projects.csv").write_text(_text("projects of three groups"))
    made = LoginNode(database)
    parsed = parse(_text("keys of three groups"))
    assert parsed.errors == ()
    made.config = parsed.config
    return made


def _text(name: str) -> str:
    return re.sub(r"^    ", "", BLOCKS[name], flags=re.MULTILINE)


def follow(site: LoginNode, name: str) -> None:
    """Type the commands of a block; each prints the lines below it, if there are any; ``...``: any lines."""
    for user, words, shown in _typed(name):
        typist = User("root", 0) if user == "server" else User(user, 0)
        result: CommandResult = site.type(COMMANDS[words[0]], *words[1:], user=typist)
        printed = result.out + result.err
        is_error = any(line.startswith("# Error:") for line in shown)
        assert (result.exit != 0) is is_error, printed
        if shown:
            lines = [re.escape(line) + r"\n" if line != "..." else r"(?:.*\n)*" for line in shown]
            assert re.fullmatch("".join(lines), printed), printed


def _typed(name: str) -> Iterator[tuple[str, list[str], list[str]]]:
    lines = _text(name).rstrip().split("\n")
    for number, line in enumerate(lines):
        if match := _PROMPT.fullmatch(line):
            yield (
                match[1],
                shlex.split(match[2]),
                list(takewhile(lambda text: not _PROMPT.match(text), lines[number + 1 :])),
            )


def test_the_site_of_three_groups_is_set_up_and_holds(site: LoginNode) -> None:
    for name in ("usersets of three groups", "import of three groups", "trials of three groups"):
        follow(site, name)
    assert [(job.user, job.project) for job in site.jobs()] == [
        ("ada", "physics.cms"),
        ("chen", "genomics"),
        ("olga", "physics.atlas"),
    ]


def test_the_example_has_forty_users_and_valid_limits() -> None:
    users = {name for _, words, _ in _typed("usersets of three groups") for name in words[2].split(",")}
    managers = set(re.findall(r",(\w+),manager", _text("projects of three groups")))
    assert len(users | managers) == 40
    quotas = _text("quotas of three groups")
    assert len(quota_files.parse(quotas).rules["quotas"]) == 4
    assert len(waiting_rules(json.loads(quotas))) == 1

"""Announcements of administrators: stored, shown to users, withdrawn."""

from types import SimpleNamespace

import pytest

from oar.cli import oarnotify
from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest
from oar.lib.db.database import Database
from oar.lib.history import announcements
from oar.lib.history.sql_announcements import LONGEST, MOST
from tests.builders import execute_sql
from tests.db.console import EVE, Console
from tests.frontend import LoginNode

ROOT = User("root", 0, administers=True)


def test_a_text_is_announced_listed_and_withdrawn(console: Console) -> None:
    said = console.type(oarnotify.main, "--announce", "Power  cut\nat 8:00", "--until", "2037-01-01 12:00")
    assert said.exit == 0
    assert said.out.startswith("Announcement ")
    assert said.out.endswith(" is shown until 2037-01-01 12:00:00.\n")
    number = said.out.split()[1]
    listed = console.type(oarnotify.main, "--announcements").out
    assert listed.startswith(f"{number}\tPower cut at 8:00 (root, ")
    assert listed.endswith(", until 2037-01-01 12:00:00)\n")
    gone = console.type(oarnotify.main, "--withdraw", number)
    assert gone.out == f"Withdraw announcement {number}: Power cut at 8:00\n"
    assert console.type(oarnotify.main, "--announcements").out == "There are no announcements.\n"
    with console.database.snapshot() as tx:
        rows = tx.rows("SELECT action, object, former_value, new_value FROM audit_log ORDER BY audit_id", ())
    assert rows == [
        ("add", f"announcement {number}", "", "Power cut at 8:00 until 2037-01-01 12:00:00"),
        ("remove", f"announcement {number}", "Power cut at 8:00", ""),
    ]


@pytest.mark.parametrize(
    ("arguments", "trouble"),
    [
        (["--announce", " \n"], "the announcement is empty: write a text"),
        (["--announce", "red \x1b[31m"], "has control characters: write plain text"),
        (["--announce", "x" * (LONGEST + 1)], f"has {LONGEST + 1} characters: write at most {LONGEST}"),
        (["--announce", "x", "--until", "2001-01-01 00:00"], "which is past: give a later date"),
        (["--announce", "x", "--until", "sometime"], "sometime"),
        (["--until", "2037-01-01 12:00"], "--until needs --announce TEXT"),
        (["--withdraw", "77"], "there is no announcement 77. List them: oarnotify --announcements"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(console: Console, arguments: list[str], trouble: str) -> None:
    said = console.type(oarnotify.main, *arguments)
    assert said.exit != 0
    assert trouble in said.out + said.err
    with console.database.snapshot() as tx:
        assert tx.announcements.shown() == []
        assert tx.value("SELECT count(*) FROM audit_log", ()) == 0


def test_users_announce_nothing(console: Console) -> None:
    for arguments in (["--announce", "x"], ["--announcements"], ["--withdraw", "1"]):
        assert console.type(oarnotify.main, *arguments, user=EVE).exit != 0


def test_there_are_a_few_at_a_time_and_expired_ones_go(database: Database) -> None:
    with database.begin() as tx:
        tx.announcements.add("root", tx.now - 1, "expired")
        for number in range(MOST):
            announcements.announce(tx, ROOT, f"text {number}")
        assert tx.announcements.texts() == [f"text {number}" for number in range(MOST)]
        assert tx.value("SELECT count(*) FROM announcements", ()) == MOST
        with pytest.raises(BadRequest, match="withdraw one first"):
            announcements.announce(tx, ROOT, "one more")


def test_oarsub_shows_announcements_to_people_and_not_to_programs(
    login: LoginNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute_sql(login.database, "INSERT INTO announcements (text) VALUES (%s)", "Power cut\x1b[31m")
    assert login.oarsub("true").out.splitlines()[-1].startswith("OAR_JOB_ID=")  # a pipe
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("oar.cli.oarsub_parts.submission.sys", terminal)
    assert login.oarsub("true").out.endswith("\n# Announcement: Power cut [31m\n")
    for option in ("--json", "--parsable"):
        assert "Power" not in login.oarsub(option, "true").out

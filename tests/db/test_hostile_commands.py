"""Hostile conditions through every command that takes one: each refuses in one line, and nothing has happened."""

from collections.abc import Sequence

import pytest

from oar.cli import oaralter, oardel, oarhold, oarnodes, oarresume, oarstat, oarsub
from oar.cli.common.command import Command
from oar.lib.db.database import Database
from oar.lib.facts.states import JobState
from tests.builders import add_job, add_resources
from tests.conditions_corpus import HOSTILE
from tests.frontend import Frontend, add_rules

#: Stands for the number of the waiting job.
JOB = "JOB"
#: Each command with what stands before the condition.
COMMANDS: Sequence[tuple[Command, Sequence[str]]] = (
    (oarsub.main, ("true", "-p")),
    (oarsub.main, ("--estimate", "true", "-p")),
    (oaralter.main, (JOB, "-p")),
    (oarstat.main, ("--sql",)),
    (oardel.main, ("--sql",)),
    (oarhold.main, ("--sql",)),
    (oarresume.main, ("--sql",)),
    (oarnodes.main, ("--sql",)),
)
#: Blanks alone are no condition.
TEXTS = [text for text in HOSTILE if text.strip()]


@pytest.fixture
def site(database: Database) -> Frontend:
    """Two nodes with the default rules, and a waiting job of alice."""
    add_resources(database)
    add_rules(database)
    add_job(database, JobState.WAITING, user="alice")
    return Frontend(database)


@pytest.mark.parametrize(
    ("command", "words"), COMMANDS, ids=lambda part: getattr(part, "name", "") or " ".join(map(str, part))
)
def test_no_command_accepts_a_hostile_condition(site: Frontend, command: Command, words: Sequence[str]) -> None:
    (job,) = site.jobs()
    for text in TEXTS:
        result = site.type(command, *(job.id if word == JOB else word for word in words), text)
        assert result.exit != 0, text
        assert "SQL condition: " in result.err or "UTF-8 text" in result.err, (text, result.err)
    (job,) = site.jobs()
    assert (job.state, job.properties) == (JobState.WAITING, "")
    assert site.count("event_logs") == 0


def test_no_hostile_condition_stands_in_the_braces_of_a_request(site: Frontend) -> None:
    for text in TEXTS:
        result = site.type(oarsub.main, "-l", f"{{{text}}}/nodes=1", "true")
        assert result.exit != 0, text
        assert "internal error" not in result.err, text
    assert len(site.jobs()) == 1

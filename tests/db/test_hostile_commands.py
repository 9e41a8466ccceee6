"""Hostile conditions through every command that takes one: each refuses in one line, and nothing has happened."""

from collections.abc import Sequence

import pytest

from oar.cli import oaralter, oardel, oarhold, oarnodes, oarresume, oarstat, oarsub, qralter, qrdel, qrstat, qrsub
from oar.cli.common.command import Command
from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources
from tests.conditions_corpus import HOSTILE
from tests.frontend import Frontend, add_rules

pytestmark = pytest.mark.slow

#: Stands for the number of the waiting job.
JOB = "JOB"
ROOT = User("root", 0)
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
    (qrsub.main, ("-w", "v", "-a", "+1h", "-d", "60", "-p")),
)
#: Blanks alone are no condition.
TEXTS = [text for text in HOSTILE if text.strip()]


@pytest.fixture
def site(database: Database) -> Frontend:
    """Two nodes with the default rules, and a waiting job of alice, who may reserve."""
    add_resources(database)
    add_rules(database)
    add_job(database, JobState.WAITING, user="alice")
    with database.begin() as tx:
        tx.access.add_to_userset("arusers", ["alice"])
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
    assert site.count("event_logs WHERE type <> 'SUBMISSION_INVALID'") == 0


def test_no_hostile_condition_stands_in_the_braces_of_a_request(site: Frontend) -> None:
    for text in TEXTS:
        result = site.type(oarsub.main, "-l", f"{{{text}}}/nodes=1", "true")
        assert result.exit != 0, text
        assert "internal error" not in result.err, text
    assert len(site.jobs()) == 1


#: Words of Grid Engine's language, and options of the commands for advance reservations that take a text.
WORDS: Sequence[tuple[Command, Sequence[str]]] = (
    *((qrsub.main, ("-w", "v", "-a", "+1h", "-d", "60", option)) for option in ("-N", "-u", "-q", "-h", "-M", "-ckpt")),
    *((qrsub.main, ("-w", "v", "-a", "+1h", "-d", "60", "-pe", name)) for name in ("mpi", "*")),
    (qrsub.main, ("-w", "v", "-d", "60", "-a")),
    (qrsub.main, ("-w", "v", "-a", "+1h", "-d")),
    (qrsub.main, ("-w", "v", "-a", "+1h", "-d", "60", "-l")),
    (qralter.main, ("-N",)),
    (qrstat.main, ("-ar",)),
    (qrstat.main, ("-u",)),
    (qrdel.main, ()),
)


@pytest.mark.parametrize(("command", "words"), WORDS, ids=lambda part: getattr(part, "name", "") or " ".join(part))
def test_no_hostile_word_breaks_a_command_for_reservations(
    site: Frontend, command: Command, words: Sequence[str]
) -> None:
    for text in TEXTS[::3]:
        result = site.type(command, *words, text, user=ROOT)
        assert result.exit in (0, 1), (text, result)
        assert "internal error" not in result.err, (text, result)
        assert "\x1b" not in result.out + result.err, text
    assert site.count("reservations") == 0

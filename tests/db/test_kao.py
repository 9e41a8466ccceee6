"""``kao`` by hand: only ``kao round`` makes a round."""

import subprocess
import sys
from pathlib import Path

import pytest

from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.modules.worker import USAGE
from tests.builders import add_resources, state_of
from tests.db.test_meta_sched import submit
from tests.db.test_replay import configured


class Kao:
    """A site with a job that can start, and the program of its scheduler."""

    def __init__(self, database: Database, conf_file: Path) -> None:
        self.database, self._conf_file = database, conf_file
        add_resources(database)
        self._job = submit(database)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Type kao."""
        argv = [sys.executable, "-m", "oar.modules.meta_sched", *words]
        environment = {"OARCONFFILE": str(self._conf_file), "PATH": "/usr/bin:/bin"}
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    def has_made_a_round(self) -> bool:
        """Whether a round has started the job."""
        return state_of(self.database, self._job) is not JobState.WAITING


@pytest.fixture
def kao(database: Database, settings: DatabaseSettings, tmp_path: Path) -> Kao:
    return Kao(database, configured(settings, tmp_path))


@pytest.mark.parametrize("words", [(), ("-h",), ("--help",), ("round", "--help")], ids=" ".join)
def test_help_makes_no_round(kao: Kao, words: tuple[str, ...]) -> None:
    result = kao.run(*words)
    assert (result.returncode, result.stderr) == (0 if words else USAGE, "")
    assert result.stdout.startswith("usage: kao")
    assert "round" in result.stdout
    assert not kao.has_made_a_round()


@pytest.mark.parametrize("words", [("rounds",), ("round", "now"), ("--worker",)], ids=" ".join)
def test_what_is_not_understood_makes_no_round(kao: Kao, words: tuple[str, ...]) -> None:
    result = kao.run(*words)
    assert result.returncode in (2, USAGE)
    assert result.stderr.startswith("usage: ")
    assert not kao.has_made_a_round()


def test_kao_round_makes_a_round(kao: Kao) -> None:
    result = kao.run("round")
    assert (result.returncode, result.stdout) == (0, "")
    assert kao.has_made_a_round()

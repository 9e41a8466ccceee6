"""Sarko, Leon and NodeChangeState run by hand, as an administrator does without a server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobState, KillState
from tests.builders import add_job, add_resources, state_of

pytestmark = pytest.mark.slow


REPOSITORY = Path(__file__).parent.parent.parent


class ByHand:
    """A directory with an oar.conf, and the programs that read it."""

    def __init__(self, directory: Path, settings: DatabaseSettings) -> None:
        self.log = directory / "oar.log"
        self.conf = directory / "oar.conf"
        self.conf.write_text(
            f"DB_HOSTNAME={settings.host}\nDB_BASE_NAME={settings.name}\nDB_BASE_LOGIN={settings.user}\n"
            f"LOG_FILE={self.log}\nSERVER_HOSTNAME=127.0.0.1\nAPPENDICE_SERVER_PORT=1\n"
        )

    def run(self, module: str, *arguments: str) -> int:
        """Run a module once; return its exit code."""
        environment = os.environ | {"OARCONFFILE": str(self.conf), "PYTHONPATH": str(REPOSITORY)}
        command = [sys.executable, "-m", f"oar.modules.{module}", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False).returncode


@pytest.fixture
def by_hand(tmp_path: Path, settings: DatabaseSettings) -> ByHand:
    """The programs, on the database of the test."""
    return ByHand(tmp_path, settings)


def kill_of(database: Database, job_id: int) -> KillState | None:
    """Return how far the kill request of a job is."""
    with database.begin() as tx:
        request = tx.job_requests.find_kill(job_id)
    return request.state if request else None


def test_a_job_goes_through_the_modules_to_its_end(by_hand: ByHand, database: Database) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database), walltime=100)
    with database.begin() as tx:
        tx.jobs.update(job_id, start_time=tx.now - 1000)
    assert by_hand.run("sarko") == 1
    assert by_hand.run("leon") == 0
    assert kill_of(database, job_id) is KillState.TIMER_ARMED
    with database.begin() as tx:
        tx.job_requests.move_kill([job_id], KillState.LEON_EXTERMINATE, [KillState.TIMER_ARMED])
    assert by_hand.run("leon", str(job_id)) == 0
    assert state_of(database, job_id) is JobState.FINISHING
    with database.begin() as tx:
        tx.events.add(EventType.EXTERMINATE_JOB, job_id, "", to_check=True)
    # Without a job resource manager nobody cleans the nodes: they are suspected, a resource changes.
    assert by_hand.run("node_change_state") == 1
    assert state_of(database, job_id) is JobState.ERROR
    assert kill_of(database, job_id) is KillState.FRAGGED


def test_leon_is_not_talked_into_an_extermination(by_hand: ByHand, database: Database) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    assert by_hand.run("leon", str(job_id)) == 0
    assert state_of(database, job_id) is JobState.RUNNING
    assert "must not be exterminated" in by_hand.log.read_text()
    assert by_hand.run("leon", "all", "of", "them") == 64

"""Programs of the previous release work with the database of this one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oar.lib.base.version import SCHEMA, VERSION
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.migrations import read_rules
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources, state_of
from tests.documents import SOURCE
from tests.previous import PREVIOUS, previous_sources

pytestmark = pytest.mark.slow(reason="about upgrades: runs the programs of the previous release")

_CONF = """DB_HOSTNAME="{host}"
DB_PORT="{port}"
DB_BASE_NAME="{name}"
SERVER_HOSTNAME="127.0.0.1"
LOG_FILE="/dev/null"
"""


class OtherPrograms:
    """Commands of another release."""

    def __init__(self, sources: Path, conf: Path) -> None:
        self._sources = sources
        self._environment = {**os.environ, "PYTHONPATH": str(sources), "OARCONFFILE": str(conf)}

    def run(self, command: str, *arguments: str) -> str:
        """Run a command that succeeds; return what it prints."""
        module = f"oar.cli.{command.replace('-', '_')}"
        return self._python(
            "-c", f"import sys; from {module} import main; sys.argv[0] = {command!r}; main()", *arguments
        )

    def make_round(self) -> None:
        """Let the scheduler make one round."""
        self._python("-m", "oar.modules.meta_sched", "round")

    def _python(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
            cwd=self._sources,
            timeout=120,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return previous_sources(tmp_path_factory.mktemp("previous") / "oar")


@pytest.fixture
def previous(sources: Path, settings: DatabaseSettings, tmp_path: Path) -> OtherPrograms:
    conf = tmp_path / "oar.conf"
    conf.write_text(_CONF.format(host=settings.host, port=settings.port, name=settings.name))
    return OtherPrograms(sources, conf)


def test_it_is_the_previous_release_and_accepts_the_database(previous: OtherPrograms) -> None:
    assert PREVIOUS in previous.run("oarstat", "--version")
    assert "is accessible and ready" in previous.run("oar-database", "--check")


def test_users_of_a_frontend_that_is_not_upgraded_yet_go_on(previous: OtherPrograms, database: Database) -> None:
    resources = add_resources(database)
    running = add_job(database, JobState.RUNNING, on=resources[:1])
    job = int(previous.run("oarsub", "-l", "nodes=1,walltime=0:05", "true").rpartition("OAR_JOB_ID=")[2])
    assert state_of(database, job) is JobState.WAITING
    listed = previous.run("oarstat", "-J")
    assert {f'"{running}"', f'"{job}"'} <= set(listed.replace(":", " ").split())
    assert "node-1" in previous.run("oarnodes")
    previous.run("oarhold", str(job))
    assert state_of(database, job) is JobState.HOLD
    previous.run("oarresume", str(job))
    previous.run("oardel", str(job), str(running))
    with database.snapshot() as tx:
        assert tx.column("SELECT frag_id_job FROM frag_jobs ORDER BY 1") == [running, job]


def test_administrators_with_the_previous_programs_go_on(previous: OtherPrograms, database: Database) -> None:
    previous.run("oarnodesetting", "-a", "-h", "node-9")
    previous.run("oarqueue", "--add", "night,3,kamelot")
    add_job(database, JobState.ERROR)
    previous.run("oaraccounting", "-q")
    assert "night" in previous.run("oarqueue", "-l")
    assert "is up to date" in previous.run("oar-database", "--setup")
    with database.snapshot() as tx:
        assert tx.queues.exists("night")


def test_a_round_of_the_previous_release_starts_a_job(previous: OtherPrograms, database: Database) -> None:
    """The site has gone back to the former release: its server works with the database as it is."""
    add_resources(database)
    job = int(previous.run("oarsub", "-l", "nodes=1,walltime=0:05", "true").rpartition("OAR_JOB_ID=")[2])
    previous.make_round()
    assert state_of(database, job) is JobState.TO_LAUNCH


@pytest.mark.parametrize("owner", ["this release", "the previous release"])
def test_standard_rules_of_a_release_admit_jobs_of_both(
    owner: str, previous: OtherPrograms, sources: Path, database: Database, tmp_path: Path
) -> None:
    """Rules are in the database, which programs of both releases use during an upgrade or after a downgrade."""
    add_resources(database)
    top = SOURCE if owner == "this release" else sources
    with database.begin() as tx:
        for rule in read_rules(top / "setup/database/admission_rules"):
            enabled = rule.enabled and "no_root" not in rule.name  # the tests run as root
            tx.admission_rules.insert(rule.text, priority=rule.priority, enabled=enabled, author="root")
    current = OtherPrograms(SOURCE, tmp_path / "oar.conf")
    for programs in (previous, current):
        job = int(programs.run("oarsub", "-t", "besteffort", "-l", "nodes=1", "true").rpartition("OAR_JOB_ID=")[2])
        assert state_of(database, job) is JobState.WAITING


def test_a_fix_release_needs_no_setup(tmp_path: Path, settings: DatabaseSettings) -> None:
    sources = tmp_path / "fix"
    shutil.copytree(SOURCE / "oar", sources / "oar", ignore=shutil.ignore_patterns("__pycache__", "static"))
    path = sources / "oar/lib/base/version.py"
    path.write_text(path.read_text().replace(f'VERSION = "{VERSION}"', f'VERSION = "{SCHEMA}.99"'))
    conf = tmp_path / "oar.conf"
    conf.write_text(_CONF.format(host=settings.host, port=settings.port, name=settings.name))
    fix = OtherPrograms(sources, conf)
    assert f"{SCHEMA}.99" in fix.run("oarstat", "--version")
    assert "is accessible and ready" in fix.run("oar-database", "--check")
    assert fix.run("oarstat") == ""

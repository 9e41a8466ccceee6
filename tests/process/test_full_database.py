"""A server whose PostgreSQL has no room on its disk: it waits, says why in a line, and works on when there is some."""

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from oar.lib.base.errors import DatabaseUnavailable, DatabaseWithoutRoom
from oar.lib.bus.doorbell import Doorbell
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.builders import add_array, add_job, add_resources
from tests.postgres import PostgreSQL
from tests.process.test_server import Installation, installation
from tests.process.this_machine import wait_until

pytestmark = pytest.mark.slow

__all__ = ["installation"]


#: Bytes that are free on the disk of the database at first.
ROOM = 8 << 20


class SmallDisk:
    """The disk of the database, which can be filled."""

    def __init__(self, place: Path) -> None:
        self._filler = place / "filler"

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))

    def make_room(self) -> None:
        self._filler.unlink(missing_ok=True)


@pytest.fixture
def disk(settings: DatabaseSettings, postgres: PostgreSQL) -> Iterator[SmallDisk]:
    """Put the database on a small file system; nothing that tests before left in it has room for anything."""
    postgres.execute("VACUUM FULL", settings.name)
    with closing(Database(settings)) as database, database.begin() as tx:
        size = tx.figures.database_figures().size + ROOM
    with mounted(size) as place, tablespace(postgres, place):
        _move(postgres, settings.name, "small")
        disk = SmallDisk(place)
        yield disk
        disk.make_room()
        _move(postgres, settings.name, "pg_default")


def _move(postgres: PostgreSQL, database: str, to: str) -> None:
    """Move a database to a tablespace, which sessions that somebody has left there would prevent."""
    with postgres.outage(database):
        postgres.execute(f"ALTER DATABASE {database} SET TABLESPACE {to}")


@contextmanager
def mounted(size: int) -> Iterator[Path]:
    """A file system of so many bytes, which belongs to PostgreSQL."""
    place = Path(tempfile.mkdtemp(prefix="oar-small-", dir="/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "oar-test", str(place)], check=True)
    try:
        account = pwd.getpwnam("postgres")
        os.chown(place, account.pw_uid, account.pw_gid)
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
        place.rmdir()


@contextmanager
def tablespace(postgres: PostgreSQL, place: Path) -> Iterator[None]:
    """A tablespace there, named small."""
    postgres.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
    try:
        yield
    finally:
        postgres.execute("DROP TABLESPACE small")


def add_jobs_until_it_is_full(database: Database) -> DatabaseWithoutRoom:
    """Add jobs that wait; return the error of the one for which there is no room."""
    with pytest.raises(DatabaseWithoutRoom) as caught:
        while True:
            add_job(database, JobState.WAITING)
    return caught.value


def test_who_writes_has_to_wait_until_there_is_room(settings: DatabaseSettings, disk: SmallDisk) -> None:
    with closing(Database(settings)) as database:
        disk.fill()
        error = add_jobs_until_it_is_full(database)
        assert isinstance(error, DatabaseUnavailable)  # what the server waits for, and gives no job up for
        assert str(error).startswith("the disk of PostgreSQL is full: could not extend file")
        assert "\n" not in str(error)
        disk.make_room()
        add_job(database)


def test_the_server_says_so_in_a_line_and_goes_on_by_itself(
    disk: SmallDisk, installation: Installation, settings: DatabaseSettings
) -> None:
    with closing(Database(settings)) as database:
        add_resources(database, nodes=1)
        add_array(database, 300)  # what is foreseen for so many fits into no page that a table has by chance
        disk.fill()
        add_jobs_until_it_is_full(database)
    assert installation.control("start").returncode == 0
    with Doorbell("127.0.0.1", installation.tags) as bell:
        bell.ring(Wake(Tag.QSUB))
    wait_until(lambda: "the pass broke off: the disk of PostgreSQL is full" in installation.log())
    assert "Traceback" not in installation.log()
    disk.make_room()
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    # The jobs are started: all that is wrong now is their node, which does not exist.
    node = "OAR CRITICAL: no job can start: no node is Alive, 1 are Suspected or Absent"
    wait_until(lambda: installation.control("check").stdout.startswith(node))
    assert installation.control("stop").returncode == 0

"""Many commands of one user at once: PostgreSQL keeps connections for the server and for other users."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.base.user_places import OF_ALL, OF_FURTHER, OF_ONE, UserPlace
from oar.lib.db.connections import ConnectionPool, DatabaseSettings
from oar.lib.db.database import Database
from tests.postgres import PostgreSQL
from tests.process.this_machine import wait_until

REPOSITORY = Path(__file__).parent.parent.parent
#: Forks commands of users, as many as are asked for, each with a file for what it says; ends with the codes of all.
_COMMANDS = """\
import json, os, sys
sys.path.insert(0, {repository!r})
from oar.cli import oarstat
from oar.cli.common.command import Context
from oar.lib import runtime
from oar.lib.access.records import User
from oar.lib.base import user_places
runtime.DEFAULT_FILES = ({conf!r},)
user_places.place_of = lambda uid: user_places.UserPlace(uid, {places!r})
pids = []
for number in range(int(sys.argv[2])):
    if not (pid := os.fork()):
        os.dup2(os.open(f"{{sys.argv[3]}}.{{number}}", os.O_WRONLY | os.O_CREAT), 2)
        os.dup2(2, 1)
        user = User("somebody", int(sys.argv[1]))
        os._exit(oarstat.main.run([], Context(oarstat.main, {{}}, user, None)))
    pids.append(pid)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]))
"""
#: Forks a process for each of some users, which holds a place if it gets one, until its input ends.
_HOLDERS = """\
import os, sys
sys.path.insert(0, {repository!r})
from oar.lib.base.user_places import UserPlace
for uid in sys.argv[2:]:
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, b"%d" % UserPlace(int(uid), sys.argv[1]).take())
        sys.stdin.read()
        os._exit(0)
    sys.stdout.write(os.read(reader, 1).decode())
print(flush=True)
sys.stdin.read()
"""


class Commands:
    """Commands of users."""

    def __init__(self, settings: DatabaseSettings, directory: Path) -> None:
        self._directory = directory
        conf = directory / "oar.conf"
        conf.write_text(f'DB_HOSTNAME="{settings.host}"\nDB_BASE_NAME="{settings.name}"\n')
        self._text = _COMMANDS.format(repository=str(REPOSITORY), conf=str(conf), places=str(directory / "places"))

    def start(self, uid: int, number: int) -> subprocess.Popen[str]:
        """Start so many commands of a user at once."""
        said = str(self._directory / str(uid))
        words = [sys.executable, "-I", "-c", self._text, str(uid), str(number), said]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def said(self, uid: int) -> list[str]:
        """Return what each command of a user has printed."""
        return [path.read_text() for path in self._directory.glob(f"{uid}.*")]


@contextmanager
def held(path: Path, *uids: int) -> Iterator[str]:
    """Give which of some processes have got a place, 1 or 0 each; they hold them while the block lasts."""
    words = [sys.executable, "-I", "-c", _HOLDERS.format(repository=str(REPOSITORY)), str(path), *map(str, uids)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        process.communicate("")


def test_many_commands_of_a_user_leave_connections_to_the_server_and_to_others(
    database: Database, settings: DatabaseSettings, postgres: PostgreSQL, tmp_path: Path
) -> None:
    commands, number = Commands(settings, tmp_path), 50
    with postgres.outage(settings.name, left=2 * OF_ONE + 4), Database(settings).begin() as server:
        server.execute("LOCK TABLE jobs")  # so that all of them are there at once
        started = commands.start(1001, number)
        waiting = "all connections for your commands to the OAR database at "
        wait_until(lambda: sum(waiting in said for said in commands.said(1001)) == number - OF_ONE)
        other = Database(settings._replace(patience=0))
        with other.begin() as tx:
            assert tx.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oar:oarstat'") == OF_ONE
        other.close()
        asked = commands.start(1002, 1)
        wait_until(lambda: server.value("SELECT count(*) FROM pg_locks WHERE NOT granted") == OF_ONE + 1)
        assert commands.said(1002) == [""]
    for process in (started, asked):
        assert set(json.loads(process.communicate()[0])) == {0}


def test_a_user_has_a_part_of_the_places_and_ends_give_them_back(tmp_path: Path) -> None:
    path = tmp_path / "places"
    with held(path, *[7] * (OF_ONE + 1), 8) as got:
        assert got == "1" * OF_ONE + "01"
        own, other = UserPlace(7, str(path)), UserPlace(9, str(path))
        assert (own.take(), own.is_own_missing, other.take()) == (False, True, True)
        other.give_back()
    with held(path, *range(1, OF_ALL + 1)) as got:
        assert got == "1" * OF_ALL
        other = UserPlace(OF_ALL + 1, str(path))
        assert (other.take(), other.is_own_missing) == (False, False)
    assert wait_until(own.take)
    own.give_back()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_few_users_leave_first_places_to_others(tmp_path: Path) -> None:
    path, users = tmp_path / "places", [uid for uid in range(1, 5) for _ in range(OF_ONE)]
    others = range(100, 100 + OF_ALL - OF_FURTHER - 4)
    with held(path, *users, *others, others.stop) as got:
        assert got[: len(users)].count("1") == OF_FURTHER + 4
        assert got[len(users) :] == "1" * len(others) + "0"
        second = UserPlace(others[0], str(path))
        assert (second.take(), second.is_own_missing) == (False, False)


class CountedPlace:
    """A place that is there."""

    is_own_missing = False

    def __init__(self) -> None:
        self.is_held = False

    def take(self) -> bool:
        self.is_held = True
        return True

    def give_back(self) -> None:
        self.is_held = False


def test_a_try_that_fails_gives_no_place_of_a_connection_back(settings: DatabaseSettings) -> None:
    pool, place = ConnectionPool(settings._replace(patience=0), "test"), CountedPlace()
    pool.place = place
    pool._lock_holder = pool._lock_holder._replace(user="nobody_has_this_login")
    writer = pool.new_writer()
    with pytest.raises(DatabaseUnavailable):
        pool.new_lock_holder()
    assert place.is_held
    writer.close()
    pool.close()
    assert not place.is_held


def test_where_places_cannot_be_counted_there_always_is_one(tmp_path: Path) -> None:
    assert UserPlace(1, str(tmp_path / "nothing" / "places")).take()

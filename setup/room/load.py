"""A load of jobs in a room, and what must hold after a fault: no acknowledged job is lost, none runs twice."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from . import client, layout
from .layout import Room, RoomError

USER = "alice"
#: Exit status of the jobs, as the database stores it.
STATUS = 7 << 8
_WORK = "echo start >> starts/$OAR_JOB_ID; sleep 0.$((RANDOM % 10)); exit 7"
#: A client that submits one job after the other; the file `typed` contains the responses, `times` when they came.
_CLIENT = f"""\
until [ -e stop ]; do
    begin=$EPOCHREALTIME
    oarsub -l core=1,walltime=0:10 '{_WORK}' >>typed 2>>errors
    echo $begin $EPOCHREALTIME >>times
    sleep {{pause}}
done"""
_FIND = "pgrep -u $(id -u) -f '^bash script'"
_FILES = "typed errors times"
_UNFINISHED = "state NOT IN ('Terminated', 'Error')"
_PAUSE = 0.25
#: Seconds for which a client may need to submit a job.
_CLIENT_SECONDS = 120.0


def query(room: Room, statement: str) -> list[list[str]]:
    """Run a statement on the primary as its administrator; return rows of texts. Raises RoomError."""
    sockets = ",".join(f"/run/postgresql{name.removeprefix(layout.DATABASE)}" for name in room.database_names)
    primary = f"host={sockets} user=postgres dbname=oar target_session_attrs=read-write connect_timeout=5"
    words = ["/usr/bin/env", "psql", "-XAtq", "-F", "\t", "-v", "ON_ERROR_STOP=1", primary, "-c", statement]
    done = client.run(room, layout.SERVER, "root", words)
    if done.code:
        raise RoomError(f"psql: {done.err.decode(errors='replace').strip()}")
    return [line.split("\t") for line in done.out.decode(errors="replace").splitlines()]


def shell(room: Room, machine: str, user: str, command: str) -> str:
    """Run shell text; return its output, whatever its exit code."""
    return client.run(room, machine, user, [command]).out.decode(errors="replace")


def wait_until(condition: Callable[[], object], what: str, seconds: float) -> None:
    """Wait until a condition is true. Raises RoomError. A failed query counts as false: the database may be down."""
    end = time.monotonic() + seconds
    while not _is_true(condition):
        if time.monotonic() > end:
            raise RoomError(f"not within {seconds:.0f} s: {what}")
        time.sleep(_PAUSE)


def _is_true(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except RoomError:
        return False


def _longest_gap(dates: Sequence[float]) -> float:
    return max((later - earlier for earlier, later in pairwise(sorted(dates))), default=0.0)


class Pauses(NamedTuple):
    """The longest times that users noticed, in seconds."""

    submission: float  #: of one submission
    acceptance: float  #: between two accepted jobs
    start: float  #: between two starts of jobs


class Load:
    """Clients of a user on servers, which submit short jobs until `stop`."""

    def __init__(self, room: Room, root: Path, pause: float = 0.2) -> None:
        """`root`: the root directory of the server, as this computer sees it. `pause`: between two submissions."""
        self._room = room
        self._home = root / "home" / USER
        self.end_clients(_CLIENT_SECONDS)  # of a load that was broken off
        shell(room, layout.SERVER, USER, f"rm -rf starts stop {_FILES}; mkdir starts; touch {_FILES}")
        script = _CLIENT.replace("{pause}", f"{pause:g}")
        client.run(room, layout.SERVER, USER, ["cat >script"], given=script.encode())
        self.first = 1 + int(query(room, "SELECT coalesce(max(job_id), 0) FROM jobs")[0][0])

    def start(self, server: str, clients: int = 1) -> None:
        """Start clients on a server until there are as many as wanted."""
        count = f"number=$({_FIND} | wc -l); while [ $number -lt {clients} ]"
        begin = "setsid bash script </dev/null >/dev/null 2>&1 & number=$((number + 1))"
        shell(self._room, server, USER, f"{count}; do {begin}; done")

    def acknowledged(self) -> list[int]:
        """Return the ids that oarsub has printed."""
        return [int(job) for job in re.findall(r"OAR_JOB_ID=(\d+)\n", (self._home / "typed").read_text())]

    def errors(self) -> str:
        """Return what the clients have printed to standard error."""
        return (self._home / "errors").read_text()

    def starts(self) -> dict[int, int]:
        """Return how often the command of each job was started."""
        return {int(path.name): len(path.read_text().split()) for path in (self._home / "starts").iterdir()}

    def pauses(self) -> Pauses:
        """Return the longest pauses until now."""
        times = [tuple(map(float, line.split())) for line in (self._home / "times").read_text().splitlines()]
        starts = [path.stat().st_mtime for path in (self._home / "starts").iterdir()]
        return Pauses(
            max((end - begin for begin, end in times), default=0.0),
            _longest_gap([end for _, end in times]),
            _longest_gap(starts),
        )

    def wait_for_service(self, seconds: float) -> float:
        """Wait until jobs are accepted and started again. Return the seconds that it took. Raises RoomError."""
        begin = time.monotonic()
        accepted, started = len(self.acknowledged()), len(self.starts())
        wait_until(lambda: len(self.acknowledged()) > accepted, "jobs are accepted", seconds)
        wait_until(lambda: len(self.starts()) > started, "jobs are started", seconds)
        return time.monotonic() - begin

    def stop(self, seconds: float) -> None:
        """Stop the clients, and wait until all jobs have ended. Raises RoomError."""
        self.end_clients(seconds)
        living = f"SELECT job_id, state FROM jobs WHERE job_id >= {self.first} AND {_UNFINISHED}"
        wait_until(lambda: not query(self._room, living), "all jobs have ended", seconds)

    def resume(self) -> None:
        """Let clients begin again after `stop`."""
        (self._home / "stop").unlink(missing_ok=True)

    def end_clients(self, seconds: float) -> None:
        """Let the clients end after their present submission, and wait for it. Raises RoomError."""
        (self._home / "stop").touch()
        for server in self._room.server_names:
            clients = partial(shell, self._room, server, USER, _FIND)
            wait_until(lambda: not clients(), f"the client on {server} has ended", seconds)  # noqa: B023

    def violations(self, excused: set[int]) -> list[str]:
        """Return what is wrong with the jobs that have ended. `excused`: jobs that may have ended otherwise.

        An excused job is one on a node that has failed: it is not lost, and does not run twice.
        """
        acknowledged = self.acknowledged()  # in this order: jobs are submitted, and end, meanwhile
        rows = query(self._room, f"SELECT job_id, state, exit_code FROM jobs WHERE job_id >= {self.first}")
        starts = self.starts()
        states = {int(job): (state, int(code or 0)) for job, state, code in rows}
        twice = sorted(job for job, number in Counter(acknowledged).items() if number > 1)
        problems = [f"ids that were given twice: {twice}"] if twice else []
        if lost := sorted(set(acknowledged) - states.keys()):
            problems.append(f"acknowledged jobs that the database does not have: {lost}")
        if again := sorted(job for job, number in starts.items() if number > 1):
            problems.append(f"jobs that ran twice: {again}")
        ended = {job: facts for job, facts in states.items() if facts[0] in ("Terminated", "Error")}
        for job, facts in sorted(ended.items()):
            if (facts, starts.get(job, 0)) != (("Terminated", STATUS), 1) and job not in excused:
                problems.append(f"job {job}: {facts[0]}, exit code {facts[1]}, started {starts.get(job, 0)} times")
        return problems

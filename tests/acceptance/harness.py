"""The test cluster as tests see it: people who type commands, nodes that can be harmed, and conditions to wait for."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psycopg2
import psycopg2.extensions
from room import client, layout

TOOL = Path(__file__).resolve().parent.parent.parent / "setup" / "cluster"
#: A deadline ends what hangs. It is far above the need of a busy machine, and only a test that fails waits so long.
PATIENCE = 480.0
_FINAL = ("Terminated", "Error")

#: Values of all types as the texts that PostgreSQL sends.
_AS_TEXT = psycopg2.extensions.new_type(
    tuple(psycopg2.extensions.string_types), "AS_TEXT", lambda value, _: "" if value is None else value
)

T = TypeVar("T")


class CommandFailedError(AssertionError):
    """A command of a test ended otherwise than the test expected."""


@dataclass(frozen=True)
class Result:
    """What a command left."""

    command: str
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        """All of it, for the report of a failed test."""
        return f"{self.command!r} ended with {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def wait_until(condition: Callable[[], T], what: str | Callable[[], object] = "", *, within: float = PATIENCE) -> T:
    """Ask again and again until the answer is true, and return it; fail when patience ends.

    `within`: seconds, only where the time itself is what is tested.

    `what` says for what one waits; if it has to be looked up, only a failure does.
    """
    end = time.monotonic() + within
    pause = 0.01
    while not (answer := condition()):
        if time.monotonic() > end:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {within:.0f} s: {told or condition}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)
    return answer


def tool(*arguments: str, room: str, stdin: str = "") -> Result:
    """Run setup/cluster."""
    done = subprocess.run(
        [str(TOOL), "--room", room, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=PATIENCE,
        check=False,
    )
    return Result(" ".join(arguments), done.returncode, done.stdout, done.stderr)


def room_named(name: str) -> layout.Room:
    """A room, known by its name alone."""
    return layout.Room(name, 0, 0)


def _text(printed: bytes) -> str:
    """What a program printed, as text that keeps each byte; lines end as on any terminal."""
    return printed.decode(errors="surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


def checked(result: Result) -> Result:
    """The same result, if it is a success."""
    if result.code:
        raise CommandFailedError(str(result))
    return result


@dataclass(frozen=True)
class Person:
    """An account on the server or, with `machine`, on a node."""

    room: str
    name: str
    machine: str = "server"

    def run(
        self,
        command: str | Sequence[str],
        *,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command that has to succeed, a line for the shell or a program with arguments; what it printed."""
        return checked(self.attempt(command, stdin=stdin, env=env)).out

    def attempt(
        self,
        command: str | Sequence[str],
        *,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """The same where a failure may be what is wanted."""
        words = [command] if isinstance(command, str) else ["/usr/bin/env", "--", *command]
        shown = " ".join(["run", "--on", self.machine, self.name, *words])
        given = stdin.encode(errors="surrogateescape")
        try:
            done = client.run(
                room_named(self.room), self.machine, self.name, words, extra=env, given=given, deadline=PATIENCE
            )
        except layout.RoomError as error:
            return Result(shown, 1, "", f"cluster: {error}\n")
        return Result(shown, done.code, _text(done.out), _text(done.err))

    def on(self, machine: str) -> Person:
        """Return the same account on another machine."""
        return Person(self.room, self.name, machine)

    def submit(self, arguments: str) -> int:
        """Submit one job with oarsub; its number."""
        return self.submit_all(arguments)[0]

    def submit_all(self, arguments: str) -> list[int]:
        """Submit an array with oarsub; the numbers of its jobs."""
        printed = self.run(f"oarsub {arguments}")
        return [int(line.partition("=")[2]) for line in printed.splitlines() if line.startswith("OAR_JOB_ID=")]

    def jobs(self, arguments: str = "") -> dict[int, dict[str, Any]]:
        """What oarstat tells this person."""
        return {int(number): facts for number, facts in json.loads(self.run(f"oarstat -J {arguments}") or "{}").items()}


@dataclass(frozen=True)
class Node:
    """A node and what can happen to it."""

    room: str
    name: str

    def as_user(self, name: str) -> Person:
        """Somebody at work on this node."""
        return Person(self.room, name, self.name)

    def do(self, action: str) -> None:
        """crash, power-off, cut, heal, hang, resume, sshd-stop, sshd-start or reboot."""
        client.ask(room_named(self.room), {"action": action, "node": self.name})


@dataclass(frozen=True)
class Service:
    """A server of OAR or a PostgreSQL server, the first one unless a host is named."""

    room: str
    name: str
    host: str = ""

    def do(self, action: str) -> None:
        """stop, kill, start or another action of setup/cluster."""
        checked(tool(self.name, *([self.host] if self.host else []), action, room=self.room))


@dataclass(frozen=True)
class Cluster:
    """One running room."""

    room: str

    @staticmethod
    def obstacle() -> str:
        """Why there can be no room on this computer, or an empty text."""
        result = tool("check", room="none")
        return result.err.strip() if result.code else ""

    @classmethod
    def start(cls, room: str, *options: str) -> Cluster:
        """Start a room that ends with this process at the latest."""
        checked(tool("start", "--while", str(os.getpid()), *options, room=room))
        return cls(room)

    def stop(self) -> None:
        """End it."""
        checked(tool("stop", room=self.room))

    def status(self) -> dict[str, Any]:
        """The facts of the room."""
        facts: dict[str, Any] = client.ask(room_named(self.room), {"action": "status"})
        return facts

    def as_user(self, name: str) -> Person:
        """Somebody at work on the server, which is the frontend too."""
        return Person(self.room, name)

    def node(self, name: str) -> Node:
        """A node by its name."""
        return Node(self.room, name)

    @property
    def nodes(self) -> list[Node]:
        """Every node."""
        return [Node(self.room, name) for name in self.status()["machines"] if name not in layout.SERVERS]

    @property
    def server(self) -> Service:
        """The server of OAR."""
        return Service(self.room, "server")

    @property
    def database(self) -> Service:
        """PostgreSQL."""
        return Service(self.room, "database")

    def server_on(self, host: str) -> Service:
        """Return the server of OAR on a host."""
        return Service(self.room, "server", host)

    def database_on(self, host: str) -> Service:
        """Return the PostgreSQL server on a host."""
        return Service(self.room, "database", host)

    @property
    def commands(self) -> Service:
        """The server that answers commands."""
        return Service(self.room, "commands")

    def sql(self, statement: str) -> list[list[str]]:
        """Ask the primary itself, from outside, as its administrator; rows of texts as psql shows them."""
        status = self.status()
        top = f"/proc/{status['machines']['server']['pid']}/root/run"
        sockets = ",".join([f"{top}/postgresql", f"{top}/postgresql2"][: status["room"]["databases"]])
        primary = f"host={sockets} user=postgres dbname=oar target_session_attrs=read-write"
        with contextlib.closing(psycopg2.connect(primary)) as connection:
            connection.autocommit = True
            psycopg2.extensions.register_type(_AS_TEXT, connection)
            cursor = connection.cursor()
            cursor.execute(statement)
            return [list(row) for row in cursor.fetchall()] if cursor.description else []

    def state(self, job: int) -> str:
        """The state of a job, from the database."""
        rows = self.sql(f"SELECT state FROM jobs WHERE job_id = {job}")
        return rows[0][0] if rows else ""

    def phase(self, job: int) -> str:
        """How far the server has come with a job."""
        return self.sql(f"SELECT phase FROM job_runs WHERE job_id = {job}")[0][0]

    def cause(self, job: int) -> str:
        """Return the code of why a job ended."""
        return self.sql(f"SELECT code FROM job_ends WHERE job_id = {job}")[0][0]

    def events(self, job: int) -> list[str]:
        """The types of the events of a job, in their order."""
        return [row[0] for row in self.sql(f"SELECT type FROM event_logs WHERE job_id = {job} ORDER BY event_id")]

    def copies(self, job: int) -> list[int]:
        """The jobs that were submitted in place of a job."""
        return [int(row[0]) for row in self.sql(f"SELECT job_id FROM jobs WHERE resubmit_job_id = {job}")]

    def node_state(self, name: str) -> str:
        """The state of the resources of a node."""
        return self.sql(f"SELECT DISTINCT state FROM resources WHERE network_address = '{name}'")[0][0]

    def now(self) -> int:
        """The time of the database."""
        return int(self.sql("SELECT extract(epoch FROM clock_timestamp())::bigint")[0][0])

    def wait_for_end(self, *jobs: int) -> dict[int, tuple[str, str]]:
        """Wait until jobs are in a final state; the state and the wait status of each."""
        numbers = ", ".join(map(str, jobs))

        def facts() -> dict[int, tuple[str, str]]:
            rows = self.sql(f"SELECT job_id, state, exit_code FROM jobs WHERE job_id IN ({numbers}) ORDER BY job_id")
            return {int(job): (state, status) for job, state, status in rows}

        wait_until(lambda: all(state in _FINAL for state, _ in facts().values()), facts)
        return facts()

    def wait_for_state(self, job: int, *states: str, within: float = PATIENCE) -> str:
        """Wait until a job is in one of these states; which."""
        reached = wait_until(
            lambda: self._state_among(job, (*states, *_FINAL)),
            lambda: f"job {job} in {' or '.join(states)}: {self.story(job)}",
            within=within,
        )
        assert reached in states, f"job {job} ended in {reached}, wanted {' or '.join(states)}\n{self.story(job)}"
        return reached

    def wait_for_start(self, *jobs: int) -> None:
        """Wait until the commands of jobs run, as the server knows: it writes Running before it lets them begin."""
        for job in jobs:
            self.wait_for_state(job, "Running")
            wait_until(lambda: self.phase(job) == "STARTED", lambda: self.story(job))  # noqa: B023 - it is over then

    def let_pass(self, seconds: int, job: int) -> None:
        """Have a job run for so many seconds more: it began so much earlier."""
        self.sql(f"UPDATE jobs SET start_time = start_time - {seconds} WHERE job_id = {job}")

    def _state_among(self, job: int, states: Sequence[str]) -> str:
        """The state of a job if it is one of these."""
        state = self.state(job)
        return state if state in states else ""

    def story(self, job: int) -> str:
        """What is known of a job that went wrong."""
        facts = self.sql(f"SELECT state, exit_code, message FROM jobs WHERE job_id = {job}")
        events = self.sql(f"SELECT type, description FROM event_logs WHERE job_id = {job} ORDER BY event_id")
        return f"{facts} {events}"

    def calm(self) -> None:
        """Undo what a test did: nodes up and alive, services running, no job left."""
        for name, facts in self.status()["machines"].items():
            self._mend(Node(self.room, name), facts)
        self.as_user("root").run("oar-server start")
        wait_until(self._no_job_lives, "every job of the last test has ended")
        wait_until(self._all_alive, "every resource is Alive")

    @staticmethod
    def _mend(node: Node, facts: Mapping[str, Any]) -> None:
        if node.name in layout.SERVERS:
            return
        cures = {"down": "reboot", "hung": "resume", "cut": "heal"}
        if facts["state"] in cures:
            node.do(cures[facts["state"]])
        elif not facts["sshd"]:
            node.do("sshd-start")

    def _no_job_lives(self) -> bool:
        living = [row[0] for row in self.sql("SELECT job_id FROM jobs WHERE state NOT IN ('Terminated', 'Error')")]
        if living:
            self.as_user("root").attempt(f"oardel {' '.join(living)}")
        return not living

    def _all_alive(self) -> bool:
        ill = self.sql("SELECT 1 FROM resources WHERE state <> 'Alive' LIMIT 1")
        if ill:
            self.as_user("root").attempt("oarnodesetting --sql \"state <> 'Alive'\" -s Alive")
        return not ill


@contextlib.contextmanager
def configured(cluster: Cluster, *lines: str) -> Iterator[None]:
    """The server with some more lines in its oar.conf, which it reads without a restart."""
    root, path = cluster.as_user("root"), "/etc/oar/oar.conf"
    former = root.run(f"cat {path}")
    root.run(f"cat >>{path}", stdin="".join(f"{line}\n" for line in lines))
    try:
        yield
    finally:  # nobody reads half of it
        root.run(f"cp -p {path} {path}.new && cat >{path}.new && mv {path}.new {path}", stdin=former)

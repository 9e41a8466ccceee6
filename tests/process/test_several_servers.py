"""Two real servers with one database: one is active, and the other one takes over whatever happens to the first."""

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from oar.lib.bus.control_client import ask
from oar.lib.bus.frames import Status, StatusQuestion
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.history import audit
from oar.lib.history.sql_audit import AuditFilter
from oar.lib.jobs.states import JobState
from tests.builders import add_job
from tests.process.test_server import Installation, command_line, descendants
from tests.process.this_machine import is_alive, wait_until
from tests.smtp import MailServer

pytestmark = pytest.mark.slow

NAMES = ("127.0.0.1", "127.0.0.2")
#: Every statement that writes is noted with the session that has sent it.
WRITE_LOG = """
    CREATE TABLE write_log (number bigserial, session text);
    CREATE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO write_log (session) VALUES (current_setting('application_name')); RETURN NULL; END $$;
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'write_log' LOOP
            EXECUTE format('CREATE TRIGGER note_write AFTER INSERT OR UPDATE OR DELETE ON public.%I'
                           ' FOR EACH STATEMENT EXECUTE FUNCTION note_write()', name);
        END LOOP; END $$"""


class Pair:
    """Two servers on one machine, each with its own directory, ports and name."""

    def __init__(self, directory: Path, settings: DatabaseSettings) -> None:
        self.database = Database(settings)
        self.servers: dict[str, Installation] = {}
        for name in NAMES:
            (directory / name).mkdir()
            self.servers[name] = Installation(directory / name, settings)
            self.configure(name)

    def configure(self, name: str, **values: object) -> None:
        own = {"SERVER_HOSTNAME": " ".join(NAMES), "SERVER_NAME": name, "MAX_DB_CONNECTION_TIMEOUT": 1}
        self.servers[name].configure(**{**own, **values})

    def start(self) -> tuple[Installation, Installation]:
        """Start both. Return the active and the standby one."""
        for server in self.servers.values():
            started = server.control("start")
            assert started.returncode == 0, started.stderr
        active, standby = (self.servers[name] for name in NAMES)
        wait_until(lambda: works(active))
        wait_until(lambda: stands_by(standby))
        return active, standby

    def roles(self) -> dict[str, str]:
        """Return the roles in the table ``servers``."""
        with self.database.begin() as tx:
            return {row.server_name: str(row.role) for row in tx.servers.all()}

    def events(self) -> list[str]:
        with self.database.begin() as tx:
            return tx.column("SELECT description FROM event_logs WHERE type = 'SERVER_TAKE_OVER' ORDER BY event_id")

    def close(self) -> None:
        for server in self.servers.values():
            for pid in children_of(server):
                signal_all([pid], signal.SIGCONT)
            server.control("stop")
        self.database.close()


@pytest.fixture
def pair(tmp_path: Path, settings: DatabaseSettings) -> Iterator[Pair]:
    pair = Pair(tmp_path, settings)
    with pair.database.begin() as tx:
        tx.execute(WRITE_LOG)
    yield pair
    pair.close()
    with Database(settings).begin() as tx:
        tx.execute("DROP FUNCTION note_write() CASCADE; DROP TABLE write_log")


@pytest.fixture
def mails() -> Iterator[MailServer]:
    with MailServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def state_of(server: Installation) -> dict[str, Any]:
    """Return the status record, empty if the server does not answer: it may just become standby."""
    answer = ask(Config(oar_run_dir=str(server.directory / "run")), StatusQuestion(), Status, 1)
    return answer.state if isinstance(answer, Status) else {}


def works(server: Installation) -> bool:
    """Return whether a server is active, and a scheduling pass has succeeded."""
    state = state_of(server)
    return bool(state.get("role") == "active" and state["modules"]["meta_sched"]["last_code"] == 0)


def stands_by(server: Installation) -> bool:
    return state_of(server).get("role") == "standby"


def children_of(server: Installation) -> list[int]:
    """Return all processes of a server."""
    try:
        return descendants(server.pid())
    except FileNotFoundError:
        return []


def signal_all(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def warden_of(server: Installation) -> int:
    return next(pid for pid in children_of(server) if "oar.modules.warden" in command_line(pid))


def generations_of_writes(database: Database) -> list[int]:
    """Return the generations in the order of their writes, each run of the same one once."""
    with database.begin() as tx:
        sessions = tx.column("SELECT session FROM write_log WHERE session ~ ' g[0-9]+' ORDER BY number")
    numbers = [int(found[1]) for session in sessions if (found := re.search(r" g(\d+)", session))]
    return [number for number, _ in groupby(numbers)]


def assert_no_interleaving(database: Database, at_least: int = 2) -> None:
    generations = generations_of_writes(database)
    assert generations == sorted(set(generations))
    assert len(generations) >= at_least


def kill_everything(server: Installation) -> None:
    """Kill all processes, the warden first: otherwise it may have time to report the end of Almighty."""
    signal_all([warden_of(server), *children_of(server)], signal.SIGKILL)


def kill_almighty(server: Installation) -> None:
    os.kill(server.pid(), signal.SIGKILL)


@pytest.mark.parametrize(("kill", "role"), [(kill_everything, "fenced"), (kill_almighty, "stopped")])
def test_the_standby_takes_over_from_a_server_that_is_killed(
    pair: Pair, kill: Callable[[Installation], None], role: str
) -> None:
    active, standby = pair.start()
    status = standby.control("status").stdout
    assert re.search(r"^127\.0\.0\.1 +active .* same$", status, re.MULTILINE), status
    assert pair.roles() == {NAMES[0]: "active", NAMES[1]: "standby"}
    left = children_of(active)
    job_id = add_job(pair.database, JobState.ERROR)
    kill(active)
    wait_until(lambda: works(standby))
    assert pair.events() == [f"{NAMES[1]} has taken over from {NAMES[0]}: {NAMES[0]} no longer holds the server lock"]
    assert pair.roles() == {NAMES[0]: role, NAMES[1]: "active"}
    wait_until(lambda: f"|{job_id}|ended: Error, " in active.log() + standby.log())
    wait_until(lambda: not any(is_alive(pid) for pid in left))
    assert active.control("start").returncode == 0
    wait_until(lambda: stands_by(active))
    assert works(standby)
    assert_no_interleaving(pair.database)


def test_one_of_both_is_active_after_a_warden_was_killed(pair: Pair) -> None:
    active, standby = pair.start()
    almighty = active.pid()
    os.kill(warden_of(active), signal.SIGKILL)
    wait_until(lambda: "becomes standby: its warden has ended" in active.log())
    wait_until(lambda: len(generations_of_writes(pair.database)) == 2)
    wait_until(lambda: works(active) != works(standby))
    assert active.pid() == almighty
    assert_no_interleaving(pair.database)


def test_a_server_that_was_stopped_and_goes_on_commits_nothing_and_is_standby(pair: Pair) -> None:
    active, standby = pair.start()
    stopped = children_of(active)
    signal_all(stopped, signal.SIGSTOP)
    wait_until(lambda: works(standby))
    written = generations_of_writes(pair.database)
    signal_all(stopped, signal.SIGCONT)
    wait_until(lambda: "becomes standby: " in active.log())
    wait_until(lambda: stands_by(active))
    assert not [pid for pid in stopped[1:] if is_alive(pid)]
    assert generations_of_writes(pair.database) == written
    assert_no_interleaving(pair.database)
    assert works(standby)


def test_a_server_without_its_database_ends_its_work_and_is_standby(pair: Pair) -> None:
    """The connection of the warden hangs: its server answers no more."""
    active, standby = pair.start()
    os.kill(warden_of(active), signal.SIGSTOP)
    wait_until(lambda: "becomes standby: PostgreSQL has not answered for 6 s" in active.log())
    wait_until(lambda: len(generations_of_writes(pair.database)) == 2)
    wait_until(lambda: works(active) != works(standby))
    assert_no_interleaving(pair.database)


def test_an_administrator_hands_over_and_back(pair: Pair) -> None:
    active, standby = pair.start()
    refused = active.control(f"hand_over {NAMES[0]}")
    assert refused.returncode != 0
    assert f"--to: {NAMES[0]} must be a running standby server; running standby servers: {NAMES[1]}" in refused.stderr
    for server, other, action in ((active, standby, "hand_over"), (standby, active, f"hand_over {NAMES[0]}")):
        handed = server.control(action)
        name = other.values["SERVER_NAME"]
        assert (handed.returncode, handed.stdout) == (0, f"{name} is the active server.\n"), handed.stderr
        wait_until(lambda other=other: works(other))  # type: ignore[misc]
        wait_until(lambda server=server: stands_by(server))  # type: ignore[misc]
    assert [text.partition(": ")[2] for text in pair.events()] == 2 * ["an administrator asked for it"]
    with pair.database.snapshot() as tx:
        recorded = audit.find(tx, AuditFilter(person="anna", action="hand-over"), 10)
    assert [(entry.former_value, entry.new_value) for entry in recorded] == [tuple(NAMES[::-1]), tuple(NAMES)]
    assert_no_interleaving(pair.database, 3)


def test_only_the_active_server_runs_the_tasks_of_timers_and_differences_are_shown(pair: Pair) -> None:
    pair.configure(NAMES[1], SARKO_FREQUENCY=17)
    active, standby = pair.start()
    codes = [server.control("is_active").returncode for server in (active, standby)]
    assert codes == [0, 3]
    status = active.control("status").stdout
    assert re.search(r"^127\.0\.0\.2 +standby .* different$", status, re.MULTILINE)
    checked = standby.control("check")
    assert (checked.returncode, checked.stdout) == (0, "OAR OK: no problems found\n")


def test_administrators_get_a_mail_about_a_take_over(pair: Pair, mails: MailServer) -> None:
    for name in NAMES:
        pair.configure(name, MAIL_SMTP_SERVER=mails.address, MAIL_RECIPIENT="root@site", MAIL_SENDER="oar@site")
    active, _ = pair.start()
    kill_everything(active)
    text = f"{NAMES[1]} has taken over from {NAMES[0]}: {NAMES[0]} no longer holds the server lock."
    wait_until(lambda: any(text in mail.text.replace("=\n", "") for mail in mails.mails))


def test_the_status_is_a_record_of_all_servers(pair: Pair) -> None:
    _, standby = pair.start()
    printed = standby.control("status --json")
    record = json.loads(printed.stdout)
    assert (printed.returncode, record["pid"], record["role"]) == (0, standby.pid(), "standby")
    assert [(row["server_name"], row["role"], row["config_differs"]) for row in record["servers"]] == [
        (NAMES[0], "active", False),
        (NAMES[1], "standby", True),  # it has other ports
    ]
    (database,) = record["databases"]
    assert (database["role"], database["timeline"], database["lag_seconds"]) == ("primary", 1, None)
    assert (record["database_error"], record["date"] > 0) == ("", True)


def test_the_status_without_database_shows_what_the_warden_has_read(pair: Pair) -> None:
    active, _ = pair.start()
    wait_until(lambda: len(json.loads((active.directory / "run" / "servers").read_text())["servers"]) == 2)
    working = active.values["DB_HOSTNAME"]
    pair.configure(NAMES[0], DB_HOSTNAME="/none")
    printed = active.control("status")
    assert printed.returncode == 2
    assert printed.stdout.startswith(f"oar-server is running (pid {active.pid()}).\nThe database cannot be used: ")
    assert re.search(r"no server listens at this socket. The servers as this one saw them at 20", printed.stdout)
    assert re.search(r"^127\.0\.0\.2 +standby ", printed.stdout, re.MULTILINE)
    record = json.loads(active.control("status --json").stdout)
    assert (record["role"], record["database_error"]) == ("active", "no server listens at this socket")
    roles = {row["server_name"]: row["role"] for row in record["servers"]}
    assert roles == {NAMES[0]: "active", NAMES[1]: "standby"}
    assert record["databases"][0]["role"] == "unreachable"
    (active.directory / "run" / "servers").write_text("[]")
    unknown = active.control("status")
    assert (unknown.returncode, unknown.stdout.splitlines()[1:]) == (
        2,
        ["The database cannot be used: no server listens at this socket."],
    )
    pair.configure(NAMES[0], DB_HOSTNAME=working)


def test_a_standby_whose_schema_was_upgraded_does_not_take_over(pair: Pair) -> None:
    active, standby = pair.start()
    with pair.database.begin() as tx:
        tx.execute("UPDATE schema SET version = '99.0', revision = '99.0'")
    kill_everything(active)
    wait_until(lambda: not children_of(standby))
    assert re.search(r"Warden/\d+\|\|.*99\.0", standby.log())
    assert pair.roles()[NAMES[1]] != "active"


def test_a_server_that_is_not_named_does_not_start(pair: Pair) -> None:
    server = pair.servers[NAMES[0]]
    pair.configure(NAMES[0], SERVER_NAME="127.0.0.3")
    started = server.control("start")
    assert started.returncode == 1
    assert "SERVER_NAME: 127.0.0.3 must be one of SERVER_HOSTNAME (127.0.0.1 127.0.0.2)" in started.stderr


def test_a_standby_binds_no_port(pair: Pair) -> None:
    _, standby = pair.start()
    port: Any = standby.values["SERVER_PORT"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((NAMES[1], int(port)))

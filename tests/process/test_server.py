"""The whole server as it is installed: oar-server, Almighty, the real modules, the Runner and its bipbips."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oar.lib.bus import frames, sockets
from oar.lib.bus.doorbell import Doorbell
from oar.lib.bus.frames import Status, StatusQuestion
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db import migrations
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import SERVER_LOCK
from oar.lib.jobs.states import JobState
from tests.builders import add_job
from tests.conftest import SETUP
from tests.postgres import PostgreSQL, running_pair
from tests.process.this_machine import free_ports, is_alive, wait_until

CONTROL = Path(__file__).with_name("server_control.py")

#: Resident memory of the idle server with all its processes, in MiB.
MOST_MEMORY = 400


class Installation:
    """A server's directory and configuration."""

    def __init__(self, directory: Path, settings: DatabaseSettings) -> None:
        self.directory = directory
        tags, lines, jobs = free_ports(3)
        self.tags = tags
        self.values = {
            "DB_HOSTNAME": settings.host,
            "DB_PORT": settings.port,
            "DB_BASE_NAME": settings.name,
            "SERVER_HOSTNAME": "127.0.0.1",
            "BIPBIP_COMMANDER_SERVER": "127.0.0.1",
            "SERVER_PORT": lines,
            "APPENDICE_SERVER_PORT": tags,
            "BIPBIP_COMMANDER_PORT": jobs,
            "OAR_RUN_DIR": directory / "run",
            "LOG_FILE": directory / "oar.log",
            "FINAUD_FREQUENCY": 0,
            "ADMISSION_RULES_ACK_EMPTY": "yes",
        }

    def configure(self, **values: object) -> None:
        self.values |= values
        text = "".join(f'{key}="{value}"\n' for key, value in self.values.items())
        (self.directory / "oar.conf").write_text(text)

    def control(self, action: str) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, str(CONTROL), str(self.directory / "oar.conf"), str(self.directory), action]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)

    def pid(self) -> int:
        return int((self.directory / "run" / "oar-server.pid").read_text())

    def state(self) -> dict[str, Any]:
        with sockets.connected(f"ipc://{self.directory}/run/ipc/almighty.ipc") as dealer:
            dealer.send(frames.encode(StatusQuestion()))
            assert sockets.Poll(dealer).wait(60)
            answer = frames.decode(dealer.receive()[0])
        assert isinstance(answer, Status)
        return answer.state

    def log(self) -> str:
        file = self.directory / "oar.log"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def installation(tmp_path: Path, settings: DatabaseSettings) -> Iterator[Installation]:
    installation = Installation(tmp_path, settings)
    installation.configure()
    yield installation
    installation.control("stop")


def readers(database: Database) -> list[str]:
    """Who has begun to follow what happens to jobs."""
    with database.begin() as tx:
        return tx.column("SELECT reader FROM history_positions ORDER BY 1")


def descendants(pid: int) -> list[int]:
    """Return a process and all that it has started."""
    parents: dict[int, list[int]] = {}
    for entry in (process / "stat" for process in Path("/proc").glob("[0-9]*")):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def command_line(pid: int) -> str:
    """Return the command line of a process, '' if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def resident(pid: int) -> float:
    """Return the memory of a process in MiB, 0 if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def test_the_server_is_started_asked_and_stopped(installation: Installation) -> None:
    assert installation.control("status").stdout == "oar-server is stopped.\n"
    assert installation.control("status").returncode == 3
    started = installation.control("start")
    pid = installation.pid()
    assert (started.returncode, started.stdout) == (0, f"oar-server is started (pid {pid}).\n"), started.stderr
    assert installation.control("status").stdout == f"oar-server is running (pid {pid}).\n"
    again = installation.control("start")
    assert (again.returncode, again.stdout) == (0, f"oar-server is already running (pid {pid}).\n")
    processes = descendants(pid)
    stopped = installation.control("stop")
    assert (stopped.returncode, stopped.stdout) == (0, "oar-server has stopped.\n")
    assert not [one for one in processes if is_alive(one)]
    assert installation.control("stop").returncode == 0
    assert not [line for line in installation.log().splitlines() if line.startswith("E|")]


def test_all_real_modules_make_their_first_pass_and_follow_tags(installation: Installation) -> None:
    assert installation.control("start").returncode == 0
    names = {"node_change_state", "meta_sched", "sarko"}

    def passed(*names: str) -> bool:
        modules = installation.state()["modules"]
        return all(modules[name]["last_code"] == 0 for name in names)

    wait_until(lambda: passed(*names))
    with Doorbell("127.0.0.1", installation.tags) as bell:
        bell.ring(Wake(Tag.QDEL), Wake(Tag.FINAUD), Wake(Tag.QSUB))
    wait_until(lambda: passed("leon", "finaud"))
    assert {name: module["failures"] for name, module in installation.state()["modules"].items()} == dict.fromkeys(
        installation.state()["modules"], 0
    )


def test_the_server_tells_the_lives_of_jobs_and_that_it_is_well(
    installation: Installation, settings: DatabaseSettings
) -> None:
    completions = installation.directory / "completions"
    installation.configure(COMPLETION_LOG=completions)
    assert (installation.control("check").returncode, installation.control("start").returncode) == (2, 0)
    assert completions.read_text() == ""  # it is there before the first job ends: /var/log is not the server's
    database = Database(settings)
    wait_until(lambda: readers(database) == ["completions", "log"])
    job_id = add_job(database, JobState.ERROR)
    database.close()
    wait_until(lambda: f"|{job_id}|ended: Error, " in installation.log())
    assert f"|{job_id}|submitted by alice to queue default" in installation.log()
    wait_until(lambda: completions.read_text() != "")
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    checked = installation.control("check")
    assert (checked.returncode, checked.stdout) == (0, "OAR OK: no problems found\n")
    installation.configure(DB_BASE_NAME="nowhere")
    checked = installation.control("check")
    assert checked.returncode == 2
    assert checked.stdout.startswith("OAR CRITICAL: the database cannot be used: ")
    assert checked.stdout.count("\n") == 1


@pytest.fixture
def small_disk(installation: Installation) -> Iterator[Path]:
    """OAR_RUN_DIR is a file system of its own, with room for the sockets and little else."""
    run = installation.directory / "run"
    run.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=755", "oar-test", str(run)], check=True)
    yield run
    installation.control("stop")
    subprocess.run(["umount", str(run)], check=True)


@pytest.mark.slow
def test_a_run_directory_that_is_full_while_the_server_runs_is_told_and_stops_nothing(
    installation: Installation, small_disk: Path, settings: DatabaseSettings
) -> None:
    installation.configure(COMPLETION_LOG=installation.directory / "completions")
    assert installation.control("start").returncode == 0
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * 100_000)
    database = Database(settings)
    wait_until(lambda: readers(database) == ["completions", "log"])
    job_id = add_job(database, JobState.ERROR)
    database.close()
    wait_until(lambda: f"|{job_id}|ended: Error, " in installation.log())
    wait_until(lambda: "No space left on device" in installation.log())
    wait_until(lambda: (installation.directory / "completions").read_text() != "")
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    told = f"OAR WARNING: cannot write the state files of the server: OAR_RUN_DIR: {filler.parent}: no space is left"
    checked = installation.control("check")
    assert (checked.returncode, checked.stdout) == (1, f"{told} on its file system\n")
    filler.unlink()
    assert installation.control("check").stdout == "OAR OK: no problems found\n"
    assert installation.control("restart").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "reason"), [("full", "No space left on device"), ("ro", "Read-only file system")])
def test_a_run_directory_that_takes_nothing_keeps_the_server_from_starting_and_is_named(
    installation: Installation, small_disk: Path, harm: str, reason: str
) -> None:
    if harm == "full":
        with pytest.raises(OSError, match="No space"):
            (small_disk / "filler").write_bytes(b"x" * 100_000)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    started = installation.control("start")
    assert started.returncode == 1
    assert f"[ERROR] cannot write in {small_disk}: {reason}" in started.stderr.splitlines()
    told = f"OAR CRITICAL: oar-server is stopped: cannot write in {small_disk}: {reason}\n"
    checked = installation.control("check")
    assert (checked.returncode, checked.stdout) == (2, told)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    (small_disk / "filler").unlink(missing_ok=True)
    assert installation.control("start").returncode == 0


@pytest.mark.slow
def test_the_idle_server_stays_small(installation: Installation) -> None:
    assert installation.control("start").returncode == 0
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    assert sum(resident(pid) for pid in descendants(installation.pid())) <= MOST_MEMORY


@pytest.mark.slow
def test_the_server_made_what_it_needs_once(installation: Installation) -> None:
    assert installation.control("start").returncode == 0
    key = installation.directory / ".ssh" / "id_ed25519"
    made = key.read_text()
    assert key.stat().st_mode & 0o777 == 0o600
    assert (installation.directory / ".ssh" / "oarsh_key.pub").exists()
    assert (installation.directory / ".ssh").stat().st_mode & 0o777 == 0o700
    assert installation.control("restart").returncode == 0
    assert key.read_text() == made


@pytest.mark.slow
def test_a_server_that_was_killed_is_started_again_at_once(installation: Installation) -> None:
    assert installation.control("start").returncode == 0
    old = installation.pid()
    left = descendants(old)
    os.kill(old, signal.SIGKILL)
    started = installation.control("start")
    assert started.returncode == 0, started.stderr
    assert installation.pid() != old
    wait_until(lambda: not [one for one in left if is_alive(one)])


@pytest.mark.slow
def test_a_runner_that_waits_for_a_locked_row_does_not_keep_the_next_server_from_starting(
    installation: Installation, settings: DatabaseSettings
) -> None:
    assert installation.control("start").returncode == 0
    database, locking = Database(settings), Database(settings)
    job_id = add_job(database, JobState.RUNNING)

    def waits() -> bool:
        with database.begin() as tx:
            return bool(tx.column("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))

    with ThreadPoolExecutor() as pool:
        with locking.begin() as tx:
            tx.jobs.lock(job_id)
            with socket.create_connection(("127.0.0.1", int(str(installation.values["SERVER_PORT"])))) as node:
                node.sendall(f"OAREXEC_{job_id}_0_0_4299\n".encode())
                wait_until(waits)
                os.kill(installation.pid(), signal.SIGKILL)
                starting = pool.submit(installation.control, "start")
                wait_until(lambda: starting.done() or not waits())
        assert starting.result().returncode == 0, starting.result().stderr
    database.close()
    locking.close()


@pytest.mark.slow
def test_each_process_of_the_server_may_be_killed(installation: Installation) -> None:
    assert installation.control("start").returncode == 0
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    almighty = installation.pid()
    for victim in descendants(almighty)[1:]:
        if "oar.modules.warden" in command_line(victim):
            continue
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_until(lambda: installation.state()["runner"]["restarts"] >= 1)
    before = installation.state()["modules"]["meta_sched"]["passes"]
    with Doorbell("127.0.0.1", installation.tags) as bell:
        bell.ring(Wake(Tag.QSUB))
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["passes"] > before)
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    assert installation.pid() == almighty


@pytest.mark.slow
def test_a_server_whose_warden_is_killed_begins_anew_as_the_same_process(installation: Installation) -> None:
    assert installation.control("start").returncode == 0
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    almighty = installation.pid()
    children = descendants(almighty)[1:]
    (warden,) = (child for child in children if "oar.modules.warden" in command_line(child))
    os.kill(warden, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(child) for child in children))
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    assert installation.pid() == almighty


@pytest.mark.slow
def test_the_server_goes_on_when_the_database_has_a_free_connection_again(
    installation: Installation, settings: DatabaseSettings, postgres: PostgreSQL
) -> None:
    installation.configure(MAX_DB_CONNECTION_TIMEOUT=1)
    assert installation.control("start").returncode == 0
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    with postgres.outage(settings.name):
        with Doorbell("127.0.0.1", installation.tags) as bell:
            bell.ring(Wake(Tag.QSUB))
        wait_until(lambda: installation.state()["modules"]["meta_sched"]["failures"] >= 2)
        wait_until(lambda: re.search(r"\|Runner/.*the database cannot be reached", installation.log()))
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    database = Database(settings)
    wait_until(lambda: "warden" in database.lock_holder(SERVER_LOCK))
    database.close()


@pytest.mark.slow
def test_the_server_goes_on_with_a_promoted_replica(installation: Installation) -> None:
    with running_pair() as (primary, replica):
        both = DatabaseSettings(host=f"{primary.socket} {replica.socket}")
        migrations.Migrator(
            both, SETUP, connect_admin=lambda name: primary.connect(name, "postgres"), with_rules=False
        ).create()
        replica.await_commits(primary)
        installation.configure(DB_HOSTNAME=both.host, DB_BASE_NAME=both.name, MAX_DB_CONNECTION_TIMEOUT=1)
        assert installation.control("start").returncode == 0
        wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
        assert installation.state()["ready"]
        primary.stop()
        wait_until(lambda: re.search(r"\|Runner/.*the database cannot be reached", installation.log()))
        wait_until(lambda: not installation.state()["ready"])
        assert installation.state()["waits_for"].startswith(f"waiting for the database at {primary.socket}:")
        replica.promote()
        wait_until(lambda: installation.state()["ready"])
        database = Database(both._replace(host=replica.socket))
        wait_until(lambda: "warden" in database.lock_holder(SERVER_LOCK))
        database.close()
        passes = installation.state()["modules"]["meta_sched"]["passes"]
        with Doorbell("127.0.0.1", installation.tags) as bell:
            bell.ring(Wake(Tag.QSUB))
        wait_until(lambda: installation.state()["modules"]["meta_sched"]["passes"] > passes)
        wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
        assert installation.control("stop").returncode == 0


@pytest.mark.slow
def test_a_server_whose_login_is_refused_says_so_and_ends_at_once(installation: Installation) -> None:
    installation.configure(DB_BASE_LOGIN="nobody_here")
    start = installation.control("start")
    assert start.returncode != 0
    told = "the database does not let the server in (DB_* in oar.conf)"
    assert f"[ERROR] {told}; see {installation.directory}/oar.log\n" in start.stderr
    assert re.search(r"does not let nobody_here in \(DB_\* in oar\.conf\): .*nobody_here", installation.log())
    assert told in installation.log()


@pytest.mark.slow
def test_a_server_whose_database_is_away_is_started_says_so_and_works_when_it_is_there(
    installation: Installation, settings: DatabaseSettings
) -> None:
    installation.configure(DB_HOSTNAME=installation.directory)
    started = installation.control("start")
    awaited = f"waiting for the database at {installation.directory}:{settings.port} (connection to server on socket"
    told = f"oar-server is started (pid {installation.pid()}), and {awaited}"
    assert (started.returncode, started.stdout[: len(told)]) == (0, told)
    assert not installation.state()["ready"]
    installation.configure(DB_HOSTNAME=settings.host, MAX_DB_CONNECTION_TIMEOUT=1)
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)


@pytest.mark.slow
def test_commands_elsewhere_follow_a_reload_at_once(installation: Installation) -> None:
    """A round stores the values: it does not wait for its period."""
    assert installation.control("start").returncode == 0
    wait_until(lambda: installation.state()["modules"]["meta_sched"]["last_code"] == 0)
    rounds = installation.state()["rounds"]["number"]
    installation.configure(MAIL_SENDER="oar@server")
    assert installation.control("reload").returncode == 0
    wait_until(lambda: re.search(r"MetaSched/\d+\|\|the configuration was read again", installation.log()))
    assert installation.state()["rounds"]["number"] <= rounds + 2


def test_a_reload_of_a_bad_configuration_fails_and_says_why(installation: Installation) -> None:
    assert installation.control("start").returncode == 0
    installation.configure(BIPBIP_WORKERS="none")
    told = installation.control("reload")
    error = r"\[ERROR\] .*oar\.conf:\d+: BIPBIP_WORKERS: write a whole number.*: the server uses the former values\.\n"
    assert told.returncode == 1
    assert re.fullmatch(error, told.stderr)
    wait_until(lambda: re.search(r"\|Almighty/.*was not read again: .*write a whole number", installation.log()))
    assert installation.control("status").returncode == 0


@pytest.mark.slow
def test_the_runner_follows_the_configuration_by_itself(installation: Installation) -> None:
    assert installation.control("start").returncode == 0
    installation.configure(JOB_PROBE_FREQUENCY=301)
    wait_until(lambda: re.search(r"\|Runner/.*the configuration was read again", installation.log()))
    installation.configure(JOB_PROBE_FREQUENCY="often")
    wait_until(lambda: re.search(r"\|Runner/.*write a whole number: the old values stay", installation.log()))


def test_a_bad_configuration_keeps_the_server_from_starting_and_is_named(installation: Installation) -> None:
    installation.configure(SERVER_PORT="many", BIPBIP_WORKERS="none")
    started = installation.control("start")
    assert started.returncode == 1
    assert "oar.conf:6: SERVER_PORT: write a whole number" in started.stderr
    assert "BIPBIP_WORKERS: write a whole number" in started.stderr


@pytest.mark.slow
def test_a_port_that_is_taken_keeps_the_server_from_starting_and_is_named(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        installation.configure(APPENDICE_SERVER_PORT=other.getsockname()[1])
        started = installation.control("start")
    assert started.returncode == 1
    assert f"{installation.values['APPENDICE_SERVER_PORT']} is in use" in started.stderr

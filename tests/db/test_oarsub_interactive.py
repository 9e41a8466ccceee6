"""oarsub -I and -C: what is shown while one waits, what opens a session, what its end means."""

import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oar.cli.common.command import CommandResult
from oar.cli.oarsub_parts.interactive import LaunchStatus, StartWait
from oar.lib.access.records import User
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control, lifecycle
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState, JobType, Phase, Reservation
from tests.builders import add_job, add_resources, move_job
from tests.frontend import ALICE, LoginNode, add_rules
from tests.process.this_machine import wait_until

BOB = User("bob", 0)
GOOD, STARTING = "GOOD JOB", "Starting..."
FIRST = "[2031-03-04 10:11:12] Start prediction: 2031-03-04 10:20:00 (R=1,W=2:0:0,J=I)"
SAME = FIRST.replace("10:11:12", "10:12:12")
OTHER = SAME.replace("10:20", "10:30")
#: A client that notes what it is given, and ends as it is told.
SSH = """#!/bin/sh
case "$*" in *" -M "*) exit 1 ;; esac
{ echo "$@"; env | grep ^OAR_ | sort; } >> BASE/ssh
exit $(cat BASE/code)
"""


@dataclass
class Site(LoginNode):
    """Four nodes of two cores, and an ssh of which the end is known beforehand."""

    base: Path = Path()
    resource: int = 0  #: a core of node1

    def ssh_ends_with(self, code: int) -> None:
        """Let sessions end with this status."""
        (self.base / "code").write_text(str(code))

    def sessions(self) -> list[str]:
        """The lines that the client has noted."""
        path = self.base / "ssh"
        return path.read_text().splitlines() if path.exists() else []

    def interactive(self, *words: object, server: Callable[["Site", Job], None]) -> CommandResult:
        """Type oarsub -I while something happens to the job."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                server(self, self.waiting_job())
            except BaseException as error:  # noqa: BLE001 - told below
                failed.append(error)
                signal.raise_signal(signal.SIGTERM)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            return self.oarsub("-I", *words)
        finally:
            thread.join()
            assert not failed, failed

    def waiting_job(self) -> Job:
        """Wait for the submission."""
        for _ in range(2000):
            with self.database.snapshot() as tx:
                found = tx.jobs.in_states([JobState.WAITING, JobState.HOLD])
            if found:
                return found[0]
            threading.Event().wait(0.01)
        raise AssertionError("no job was submitted")

    def say(self, job: Job, *lines: str) -> None:
        """Call the oarsub that waits."""
        assert job.info_type is not None
        for line in lines:
            with socket.create_connection(("127.0.0.1", int(job.info_type.rpartition(":")[2])), 5) as call:
                call.sendall(line.encode() + b"\n")

    def move(self, job: Job, *states: JobState) -> None:
        """Let the job go on."""
        move_job(self.database, job.id, *states)

    def start(self, job: Job, line: str = GOOD) -> None:
        """Do what the scheduler and the Runner do for a job that starts; ``line`` is what the oarsub hears first."""
        self.move(job, JobState.TO_LAUNCH, JobState.LAUNCHING)
        with self.database.begin() as tx:
            moldable = tx.new_jobs.moldables_of_jobs([job.id])[job.id][0].id
            tx.jobs.update(job.id, assigned_moldable_job=moldable)
            tx.insert_many(
                "INSERT INTO assigned_resources (moldable_job_id, resource_id) VALUES %s", [(moldable, self.resource)]
            )
            tx.job_runs.claim(job.id, "node1")
            assert lifecycle.move(tx, job.id, JobState.RUNNING)
            tx.job_runs.update(job.id, phase=Phase.STARTED)
        self.say(job, line)

    def events(self, job: Job) -> set[str]:
        """The types of the events of a job."""
        with self.database.snapshot() as tx:
            return {event.type for event in tx.events.of_jobs([job.id]).get(job.id, [])}

    def is_killed(self, job: Job) -> bool:
        """Whether the end of a job was asked for."""
        with self.database.snapshot() as tx:
            return tx.job_requests.find_kill(job.id) is not None


@pytest.fixture
def site(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site on which nobody has worked yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    resources = add_resources(database, nodes=4, cores=2)
    add_rules(database)
    ssh = tmp_path / "client"
    ssh.write_text(SSH.replace("BASE", str(tmp_path)))
    ssh.chmod(0o755)
    site = Site(database, base=tmp_path, resource=resources[0])
    site.config = site.config.replace(openssh_cmd=str(ssh), job_resource_manager_property_db_field="cpuset")
    site.ssh_ends_with(0)
    former = signal.getsignal(signal.SIGTERM)
    yield site
    signal.signal(signal.SIGTERM, former)


@pytest.fixture
def no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing else happens, the end of a job need not be waited for."""
    monkeypatch.setattr("oar.cli.oarsub_parts.job_shell._DOUBT", 0.0)


def said_by(result: CommandResult) -> list[str]:
    """The comments of oarsub, without those of the rules."""
    return [line for line in result.out.splitlines() if not line.startswith(("[ADMISSION", "OAR_JOB_ID="))]


class TestWaiting:
    def test_one_sees_what_the_server_tells_then_has_the_shell(self, site: Site) -> None:
        def server(site: Site, job: Job) -> None:
            site.say(job, FIRST, SAME, OTHER, "something \x1b[2J else", STARTING)
            site.start(job)

        result = site.interactive(server=server)
        (job,) = site.jobs()
        assert (result.exit, result.err) == (0, "")
        assert said_by(result) == [
            "# Interactive mode: waiting...",
            f"# {FIRST}",
            f"# {OTHER}",
            "# something  [2J else",
            "# Starting...",
            f"Disconnected from OAR job {job.id}.",
        ]
        assert (job.job_type, job.command, job.message[-3:]) == (JobType.INTERACTIVE, "", "J=I")
        assert Wake(Tag.QSUB_INTERACTIVE) in site.told

    def test_the_server_is_heard_also_when_the_shell_is_open_already(self, site: Site) -> None:
        def server(site: Site, job: Job) -> None:
            (site.base / "code").unlink()
            os.mkfifo(site.base / "code")  # the session lasts until it is told how to end
            site.start(job, line=STARTING)
            wait_until(site.sessions)
            site.say(job, GOOD)
            site.ssh_ends_with(0)

        assert site.interactive(server=server).exit == 0

    def test_the_session_is_the_main_one_of_the_job(self, site: Site) -> None:
        site.interactive(server=Site.start)
        (job,) = site.jobs()
        words, *variables = site.sessions()
        assert re.search(r" -T -x -- node1$", words)
        assert variables == [
            f"OAR_CPUSET=/oar/alice_{job.id}",
            f"OAR_JOB_ID={job.id}",
            "OAR_JOB_USER=alice",
            "OAR_SESSION=main",
        ]

    def test_what_the_database_does_not_say_is_not_believed(self, site: Site) -> None:
        def server(site: Site, job: Job) -> None:
            site.say(job, "JOB KILLED", GOOD, "BAD JOB", "ERROR: some resources did not respond")
            site.start(job)

        result = site.interactive(server=server)
        assert (result.exit, said_by(result)[1:2]) == (0, ["# Starting..."])
        assert len(site.sessions()) == 4 + 1

    def test_a_call_that_got_lost_costs_one_look(self, site: Site) -> None:
        def server(site: Site, job: Job) -> None:
            site.move(job, JobState.ERROR)
            site.say(job, "")

        result = site.interactive(server=server)
        (job,) = site.jobs()
        assert (result.exit, result.err) == (
            11,
            f"# Error: job {job.id} ended before it could be connected.\n"
            f"# The cause of its end is unknown: {job.message}.\n",
        )

    @pytest.mark.parametrize(
        ("lines", "shown"),
        [
            (["BAD JOB"], ["# BAD JOB"]),
            (["no more tokens", "BAD JOB"], ["# no more tokens", "# BAD JOB"]),
            (["JOB KILLED"], ["# JOB KILLED"]),
            (["ERROR: SERVER PROLOGUE timed out"], ["# ERROR: SERVER PROLOGUE timed out"]),
            (["ERROR: an error occured on the first job node", "BAD JOB"],
             ["# ERROR: an error occured on the first job node"]),
        ],
    )  # fmt: skip
    def test_the_end_is_told_with_its_code(self, site: Site, lines: list[str], shown: list[str]) -> None:
        def server(site: Site, job: Job) -> None:
            site.say(job, *lines[:-1])
            site.move(job, JobState.ERROR)
            site.say(job, lines[-1])

        result = site.interactive(server=server)
        assert (result.exit, result.err, said_by(result)[1:]) == (11, "", shown)

    def test_the_line_that_tells_why_may_come_after_the_end_itself(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look, is_seen = StartWait._look, threading.Event()

        def watched_look(wait: StartWait) -> LaunchStatus | None:
            status = look(wait)
            if status is not None and status.is_over(""):
                is_seen.set()
            return status

        def server(site: Site, job: Job) -> None:
            site.move(job, JobState.ERROR)
            site.say(job, "")
            assert is_seen.wait(120)
            site.say(job, "no more tokens", "BAD JOB")

        monkeypatch.setattr(StartWait, "_look", watched_look)
        result = site.interactive(server=server)
        assert (result.exit, result.err, said_by(result)[1:]) == (11, "", ["# no more tokens", "# BAD JOB"])

    def test_where_the_line_is_lost_the_database_tells_why(self, site: Site) -> None:
        def server(site: Site, job: Job) -> None:
            site.ask(lambda tx: control.delete(tx, ALICE, [job.id], with_inner=True))
            site.move(job, JobState.ERROR)
            site.say(job, "")

        result = site.interactive(server=server)
        (job,) = site.jobs()
        assert result.exit == 11
        assert result.err.splitlines() == [
            f"# Error: job {job.id} ended before it could be connected.",
            f"# Its owner {ALICE.name} deleted it (oardel).",
        ]

    def test_a_kill_that_was_asked_for_is_believed_before_it_is_carried_out(self, site: Site) -> None:
        def server(site: Site, job: Job) -> None:
            site.ask(lambda tx: control.delete(tx, ALICE, [job.id], with_inner=True))
            site.say(job, "JOB KILLED")

        assert site.interactive(server=server).exit == 11

    def test_a_held_job_says_so(self, site: Site) -> None:
        def server(site: Site, job: Job) -> None:
            site.move(job, JobState.WAITING)
            site.start(job)

        result = site.interactive("--hold", server=server)
        assert said_by(result)[1] == "# Start prediction: undefined (Hold)"

    def test_machine_formats_have_the_document_alone_then_the_session(self, site: Site) -> None:
        result = site.interactive("-J", server=Site.start)
        (job,) = site.jobs()
        assert result.out == f'{{\n   "job_id" : "{job.id}"\n}}\nDisconnected from OAR job {job.id}.\n'
        assert site.sessions()

    def test_who_interrupts_wants_the_job_no_more(self, site: Site) -> None:
        result = site.interactive(server=lambda site, job: os.kill(os.getpid(), signal.SIGINT))
        (job,) = site.jobs()
        assert (result.exit, result.err) == (
            1,
            f"# Caught Interrupt (^C), Deleting the job {job.id}...\nJob(s) deleted.\n",
        )
        assert site.is_killed(job)

    def test_who_is_hung_up_wants_it_no_more_either(self, site: Site) -> None:
        result = site.interactive(server=lambda site, job: os.kill(os.getpid(), signal.SIGTERM))
        assert (result.exit, result.err) == (1, "")
        assert site.is_killed(site.jobs()[0])


class TestEnd:
    @pytest.mark.parametrize(
        ("words", "status", "code"),
        [
            ([], 0, 0),
            ([], 2, 2),
            (["--propagate-exit"], 0, 0),
            (["--propagate-exit"], 7, 7),
            ([], 62, 21),
            ([], 255, 21),
        ],
    )
    @pytest.mark.usefixtures("no_doubt")
    def test_of_a_session_has_its_code(self, site: Site, words: list[str], status: int, code: int) -> None:
        site.ssh_ends_with(status)
        result = site.interactive(*words, server=Site.start)
        (job,) = site.jobs()
        told = f"# Error: an unknown error occured ({status}).\n" if code == 21 else ""
        assert (result.exit, result.err) == (code, told)
        assert said_by(result)[-1] == f"Disconnected from OAR job {job.id}."
        assert site.is_killed(job) is (code == 21)
        assert (EventType.LOST_SESSION in site.events(job)) is (code == 21)

    @pytest.mark.parametrize("status", [0, 255])
    def test_of_the_job_under_the_session_is_told(self, site: Site, status: int) -> None:
        def server(site: Site, job: Job) -> None:
            site.ask(lambda tx: control.delete(tx, User("root", 0), [job.id], with_inner=True))
            site.start(job)

        site.ssh_ends_with(status)
        result = site.interactive(server=server)
        assert result.exit == 19
        assert result.err.startswith("# Error: job was terminated.\n# ")
        assert "root" in result.err


class TestConnect:
    def running(self, site: Site, **columns: Any) -> int:
        """A job that runs on node1."""
        job_id = add_job(site.database, JobState.RUNNING, on=[site.resource], **columns)
        site.ask(lambda tx: tx.job_runs.claim(job_id, "node1"))
        return job_id

    def test_a_further_session(self, site: Site) -> None:
        job_id = self.running(site)
        result = site.oarsub("-v", "-C", job_id)
        assert (result.exit, result.err) == (0, "")
        assert result.out == f"# Connect to OAR job {job_id} via node node1\nDisconnected from OAR job {job_id}.\n"
        assert site.sessions()[-1] == "OAR_SESSION=connect"
        assert not site.is_killed(site.jobs()[0])

    def test_the_only_running_job_is_meant(self, site: Site) -> None:
        job_id = self.running(site)
        add_job(site.database, JobState.WAITING)
        assert site.oarsub("-C").out == f"Disconnected from OAR job {job_id}.\n"

    def test_an_administrator_enters_as_the_owner(self, site: Site) -> None:
        job_id = self.running(site)
        assert site.oarsub("-C", job_id, user=User("root", 0)).exit == 0
        assert "OAR_JOB_USER=alice" in site.sessions()

    def test_a_forced_name_of_the_cpuset_is_taken_as_it_is_stored(self, site: Site) -> None:
        job_id = self.running(site, cpuset_name="alice_x")
        site.oarsub("-C", job_id)
        assert "OAR_CPUSET=/oar/alice_x" in site.sessions()

    def test_a_job_without_nodes_of_its_own_has_no_cpuset_where_it_runs(self, site: Site) -> None:
        site.oarsub("-C", self.running(site, types=["cosystem"]))
        assert "OAR_CPUSET=" in site.sessions()

    def test_a_reservation_is_entered_in_the_same_way(self, site: Site) -> None:
        job_id = self.running(site, job_type=JobType.INTERACTIVE, reservation=Reservation.SCHEDULED)
        assert site.oarsub("-C", job_id).exit == 0

    def test_the_end_of_the_job_is_told(self, site: Site) -> None:
        job_id = self.running(site)
        site.ssh_ends_with(255)
        site.ask(lambda tx: lifecycle.move(tx, job_id, JobState.FINISHING))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("oar.cli.oarsub_parts.job_shell._check", lambda *_: None)
            result = site.oarsub("-C", job_id)
        assert (result.exit, result.err) == (19, "# Error: job was terminated.\n")

    @pytest.mark.usefixtures("no_doubt")
    def test_a_broken_session_leaves_the_job_alone(self, site: Site) -> None:
        job_id = self.running(site)
        site.ssh_ends_with(255)
        assert site.oarsub("-C", job_id) == CommandResult(
            21, f"Disconnected from OAR job {job_id}.\n", "# Error: an unknown error occured (255).\n"
        )
        assert not site.is_killed(site.jobs()[0])

    @pytest.mark.parametrize(
        ("types", "code", "text"),
        [
            (["noop"], 17, "it is not possible to connect to a NOOP job."),
            (["desktop_computing"], 20, "not available for desktop_computing jobs."),
        ],
    )
    def test_of_what_runs_nowhere_there_is_no_shell(self, site: Site, types: list[str], code: int, text: str) -> None:
        job_id = self.running(site, types=types)
        assert site.oarsub("-C", job_id) == CommandResult(code, "", f"# Error: {text}\n")

    def test_others_are_refused(self, site: Site) -> None:
        job_id = self.running(site)
        assert site.oarsub("-C", job_id, user=BOB) == CommandResult(
            20, "", f"# Error: you are not the right user for job {job_id}. This job is owned by alice.\n"
        )
        assert site.sessions() == []

"""oar-agent as a process against a real service: it fetches jobs, runs them, and tells what became of them."""

import hashlib
import io
import os
import pwd
import signal
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.states import JobState, Phase
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.modules.runner.actions.launch import launch_job
from tests.api.conftest import Api
from tests.builders import state_of
from tests.desktop import HOST, Desk
from tests.process.agents import ACCOUNT, AgentProcess
from tests.process.this_machine import free_ports, text_in, wait_until


class Room:
    """A server, its API, and the agent of one computer."""

    def __init__(self, desk: Desk, api: Api, agent: AgentProcess, home: Path) -> None:
        self.desk, self.api, self.agent, self.home = desk, api, agent, home

    def submit(self, command: str, **columns: Any) -> int:
        """Let a job wait for the agent."""
        columns = {"user": ACCOUNT, "launching_directory": str(self.home), **columns}
        job_id = self.desk.job(command=command, **columns)
        launch_job(self.desk.context, job_id)
        return job_id

    def run(self, command: str, **columns: Any) -> Cause:
        """Let a job come to its end; why it ended."""
        return self.end_of(self.submit(command, **columns))

    def end_of(self, job_id: int) -> Cause:
        """Wait for the report of the end of a job, and do the rest; why it ended."""
        wait_until(lambda: self.agent.is_alive() and self.desk.code(job_id) is not None)
        return self.desk.end(job_id)

    def end_of_silent(self, job_id: int) -> Cause:
        """Do what is left of the end of a job whose agent has told it, and has ended; why the job ended."""
        assert self.desk.code(job_id) is not None, self.agent.log()
        return self.desk.end(job_id)

    def stage(self, data: bytes, kind: str, md5sum: str = "") -> int:
        """Keep a file as oarsub --stagein does; return its id."""
        place = self.home.parent / "stageins"
        place.mkdir(exist_ok=True)
        (place / "given").write_bytes(data)
        with self.desk.database.begin() as tx:
            found = md5sum or hashlib.md5(data, usedforsecurity=False).hexdigest()
            return tx.new_jobs.add_file(found, str(place / "given"), kind, len(data)).id

    def state(self) -> ResourceState:
        """Let NodeChangeState do its work; return the state of the computer."""
        self.desk.node_change_state()
        return self.desk.state()[0]

    def serve_again(self) -> None:
        """Start the API again on its port."""
        self.api = Api(self.api.runtime, self.home.parent / "socket", self.api.port)
        self.api.start()

    def is_running(self, job_id: int) -> bool:
        return self.desk.phase(job_id) is Phase.STARTED

    def file(self, name: str) -> str:
        """Return what a job has left in its launching directory."""
        return (self.home / name).read_text()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory into which others than root may go."""
    with tempfile.TemporaryDirectory(prefix="desktop-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def room(database: Database, place: Path) -> Iterator[Room]:
    desk = Desk(
        database,
        stageout_dir=str(place / "stageouts"),
        stagein_dir=str(place / "stageins"),
        api_rate_change=0,
        api_max_upload=1 << 21,
    )
    api = Api(Runtime(desk.config, database), place / "socket")
    api.start()
    with database.begin() as tx:
        _, token = tokens.create(tx, User("root", 0, administers=True), scope=f"agent:{HOST}")
    agent = AgentProcess(place / "agent", api.port, HOST, token)
    home = place / "home"
    home.mkdir()
    os.chown(home, *(pwd.getpwnam(ACCOUNT)[2:4] if os.geteuid() == 0 else (os.geteuid(), os.getegid())))
    room = Room(desk, api, agent, home)
    yield room
    if agent.process is not None and agent.process.poll() is None:
        agent.end(signal.SIGKILL)
    room.api.stop()


def test_a_job_runs_and_its_results_come_to_its_directory(room: Room) -> None:
    room.agent.start()
    job_id = room.submit("echo $OAR_JOB_ID $(cat $OAR_NODEFILE); mkdir d; echo made >d/new; exit 3")
    assert room.end_of(job_id) == Cause(EndCode.EXIT_STATUS, {"status": 3})
    assert room.file(f"OAR.{job_id}.stdout") == f"{job_id} {HOST}\n"
    assert room.file("d/new") == "made\n"
    assert not list((room.home.parent / "stageouts").iterdir())
    wait_until(lambda: not (room.agent.directory / str(job_id)).exists())
    assert room.agent.end() == 0


# -- stage-in ---------------------------------------------------------------------------------------------------------


def _tar(members: dict[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name, member in members.items():
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.name = name
            data = b"" if isinstance(member, tarfile.TarInfo) else member
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def _zip(name: str, data: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, data)
    return made.getvalue()


def _special(kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


GOOD = {
    "tar": _tar({"in/data": b"given"}, "w"),
    "tar.gz": _tar({"in/data": b"given"}),
    "tar.bz2": _tar({"in/data": b"given"}, "w:bz2"),
    "zip": _zip("in/data", b"given"),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_file_of_the_user_is_unpacked_before_the_command(room: Room, kind: str) -> None:
    room.agent.start()
    job_id = room.submit("cat in/data; echo more >>in/data", file_id=room.stage(GOOD[kind], kind))
    assert room.end_of(job_id) == Cause(EndCode.SUCCESS)
    assert room.file(f"OAR.{job_id}.stdout") == "given"
    assert room.file("in/data") == "givenmore\n"


def test_a_file_is_fetched_once_for_several_jobs(room: Room) -> None:
    room.agent.start()
    file_id = room.stage(GOOD["tar"], "tar")
    assert room.run("cat in/data", file_id=file_id) == Cause(EndCode.SUCCESS)
    (room.home.parent / "stageins" / "given").unlink()
    assert room.run("cat in/data", file_id=file_id) == Cause(EndCode.SUCCESS)
    assert not (room.home / "in").exists()  # what was not changed is no result


BAD = {
    "absolute": _tar({"/tmp/x": b"x"}),
    "above": _tar({"a/../../x": b"x"}),
    "link out": _tar({"l": _special(tarfile.SYMTYPE, "../x")}),
    "link to root": _tar({"l": _special(tarfile.SYMTYPE, "/etc")}),
    "through a link": _tar({"l": _special(tarfile.SYMTYPE, "d"), "l/x": b"x"}),
    "hard link out": _tar({"l": _special(tarfile.LNKTYPE, "../x")}),
    "device": _tar({"d": _special(tarfile.CHRTYPE)}),
    "pipe": _tar({"d": _special(tarfile.FIFOTYPE)}),
    "bomb": _tar({str(number): bytes(1 << 20) for number in range(40)}),
    "cut": GOOD["tar.gz"][:40],
    "rubbish": b"\x1f\x8b" + b"x" * 100,
}


@pytest.mark.parametrize("name", BAD)
def test_an_archive_that_is_more_than_files_is_refused(room: Room, name: str) -> None:
    room.agent.start()
    cause = room.run("true", file_id=room.stage(BAD[name], "tar.gz"))
    assert (cause.code, cause.data["node"]) == (EndCode.STAGING, HOST)
    assert cause.data["text"]


def test_a_file_that_was_changed_on_the_way_is_refused(room: Room) -> None:
    room.agent.start()
    cause = room.run("true", file_id=room.stage(b"x", "", md5sum="0" * 32))
    assert "the checksum of the fetched file is wrong" in cause.data["text"]


# -- ends and kills ---------------------------------------------------------------------------------------------------


def test_a_killed_job_ends_with_all_its_processes_and_what_it_had_made(room: Room) -> None:
    room.agent.start()
    job_id = room.submit("echo half >made; setsid sleep 1000 & echo $! >pid; trap '' TERM; while :; do sleep 1; done")
    wait_until(lambda: room.is_running(job_id))
    pid = int(text_in(room.agent.directory / str(job_id) / "pid"))
    room.desk.kill(job_id)
    assert room.end_of(job_id).code is EndCode.STOPPED
    assert state_of(room.desk.database, job_id) is JobState.ERROR
    assert room.file("made") == "half\n"
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_the_agent_watches_the_walltime_where_nobody_else_does(room: Room) -> None:
    room.agent.start()
    job_id = room.submit("sleep 1000", walltime=1)
    assert room.end_of(job_id).code is EndCode.WALLTIME


def test_an_agent_that_is_told_to_end_ends_its_jobs_first(room: Room) -> None:
    room.agent.start()
    job_id = room.submit("echo begun >made; sleep 1000")
    wait_until(lambda: room.is_running(job_id))
    assert text_in(room.agent.directory / str(job_id) / "made") == "begun\n"
    assert room.agent.end() == 0
    assert room.end_of_silent(job_id) == Cause(EndCode.NODE_SHUTDOWN, {"nodes": [HOST]})
    assert room.file("made") == "begun\n"
    assert room.state() is ResourceState.ABSENT
    room.agent.start()
    wait_until(lambda: room.state() is ResourceState.ALIVE)


def test_an_agent_that_was_killed_tells_after_its_restart_that_the_job_is_lost(room: Room) -> None:
    room.agent.start()
    job_id = room.submit("echo $$ >pid; sleep 1000")
    wait_until(lambda: room.is_running(job_id))
    pid = int(text_in(room.agent.directory / str(job_id) / "pid"))
    room.agent.end(signal.SIGKILL)
    room.agent.start()
    assert room.end_of(job_id) == Cause(EndCode.AGENT_LOST, {"node": HOST})
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert room.run("true") == Cause(EndCode.SUCCESS)


def test_jobs_go_on_while_the_server_is_away(room: Room) -> None:
    room.agent.start()
    job_id = room.submit("while [ ! -e go ]; do sleep 0.1; done; exit 4")
    wait_until(lambda: room.is_running(job_id))
    room.api.stop()
    (room.agent.directory / str(job_id) / "go").touch()
    wait_until(lambda: "results are not sent yet" in room.agent.log())
    room.serve_again()
    assert room.end_of(job_id) == Cause(EndCode.EXIT_STATUS, {"status": 4})


def test_an_agent_asks_the_next_server_if_one_does_not_answer(room: Room) -> None:
    (silent,) = free_ports(1)
    room.agent.start([f"http://127.0.0.1:{silent}"])
    job_id = room.submit("while [ ! -e go ]; do sleep 0.1; done; exit 4")
    wait_until(lambda: room.is_running(job_id))
    room.api.stop()
    room.api = Api(room.api.runtime, room.home.parent / "socket", silent)
    room.api.start()
    (room.agent.directory / str(job_id) / "go").touch()
    assert room.end_of(job_id) == Cause(EndCode.EXIT_STATUS, {"status": 4})


def test_two_agents_of_one_name_share_its_jobs_and_run_none_twice(room: Room) -> None:
    with room.desk.database.begin() as tx:
        _, token = tokens.create(tx, User("root", 0, administers=True), scope=f"agent:{HOST}")
    second = AgentProcess(room.home.parent / "second", room.api.port, HOST, token)
    room.agent.start()
    second.start()
    try:
        jobs = [room.submit(f"echo run >>ran{number}; sleep 3") for number in range(6)]
        causes = [room.end_of(job_id) for job_id in jobs]
        assert causes == [Cause(EndCode.SUCCESS)] * len(jobs)
        assert [room.file(f"ran{number}") for number in range(len(jobs))] == ["run\n"] * len(jobs)
    finally:
        second.end(signal.SIGKILL)
    assert room.agent.is_alive()


def test_an_agent_keeps_the_name_of_its_directory(room: Room) -> None:
    identity = room.agent.directory / ".oar-agent" / "identity"
    room.agent.start()
    wait_until(identity.exists)
    text = identity.read_text()
    assert room.agent.end() == 0
    room.agent.start()
    wait_until(lambda: room.state() is ResourceState.ALIVE)
    assert identity.read_text() == text


# -- who may -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-n", "desk-2"], 2, "the server reports: 403"),
        (["-i", "0"], 1, "-i: '0' must be a number of seconds"),
        (["-x"], 1, "option -x not recognized"),
        (["http://example.org/"], 1, "http://example.org/: the token must be sent encrypted"),
        (["-h"], 0, ""),
    ],
)
def test_an_agent_that_cannot_work_says_why(room: Room, words: list[str], code: int, said: str) -> None:
    room.agent.start(words, last=True)
    assert room.agent.process is not None
    assert room.agent.process.wait(60) == code
    assert said in room.agent.log()


def test_a_token_that_others_may_read_is_refused(room: Room) -> None:
    (room.agent.directory / "token").chmod(0o644)
    room.agent.start()
    assert room.agent.process is not None
    assert room.agent.process.wait(60) == 1
    assert "others may read it" in room.agent.log()


# -- results ----------------------------------------------------------------------------------------------------------


def test_results_wait_where_their_directory_is_not_on_the_server(room: Room) -> None:
    room.agent.start()
    job_id = room.submit("echo made >new", launching_directory="/no/such/directory")
    assert room.end_of(job_id) == Cause(EndCode.SUCCESS)
    with tarfile.open(room.home.parent / "stageouts" / f"{job_id}.tgz") as archive:
        assert "new" in archive.getnames()


def test_names_with_a_dot_are_left_in_the_archive(room: Room) -> None:
    room.agent.start()
    job_id = room.submit("mkdir .ssh; echo mine >.ssh/authorized_keys; echo mine >.bashrc; echo made >new")
    assert room.end_of(job_id) == Cause(EndCode.SUCCESS)
    assert room.file("new") == "made\n"
    assert not [path for path in room.home.iterdir() if path.name.startswith(".")]
    assert "STAGEOUT_ERROR" in room.desk.events(job_id)
    assert (room.home.parent / "stageouts" / f"{job_id}.tgz").exists()


def test_links_to_names_with_a_dot_are_left_in_the_archive(room: Room) -> None:
    (room.home / ".bashrc").write_text("mine")
    room.agent.start()
    job_id = room.submit("echo bad >.bashrc; ln -s .bashrc OAR.9.stdout; ln .bashrc OAR.8.stdout; ln -s new link; >new")
    assert room.end_of(job_id) == Cause(EndCode.SUCCESS)
    assert (room.home / ".bashrc").read_text() == "mine"
    names = {path.name for path in room.home.iterdir()}
    assert names & {"OAR.8.stdout", "OAR.9.stdout", "link", "new"} == {"link", "new"}


def test_results_do_not_follow_links_of_the_user(room: Room) -> None:
    (room.home.parent / "elsewhere").mkdir(mode=0o777)
    (room.home / "out").symlink_to(room.home.parent / "elsewhere")
    room.agent.start()
    job_id = room.submit("mkdir out; echo bad >out/x")
    assert room.end_of(job_id) == Cause(EndCode.SUCCESS)
    assert not list((room.home.parent / "elsewhere").iterdir())
    assert "STAGEOUT_ERROR" in room.desk.events(job_id)

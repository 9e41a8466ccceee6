"""Almighty as a real process with real children, sockets and signals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from oar.lib.bus import frames, sockets
from oar.lib.bus.doorbell import Doorbell
from oar.lib.bus.frames import RoundsAnswer, RoundsQuestion, Status, StatusQuestion, Waited, WaitForRound
from oar.lib.bus.messages import Ask, Energy, EnergyCommand, JobAction, Tag, Wake
from oar.lib.monitoring.health import ServerHealth, judge_status
from oar.modules.automaton import Module
from oar.modules.worker import UNAVAILABLE
from tests.process.this_machine import free_ports, is_alive, wait_until

PROGRAM = Path(__file__).with_name("server_program.py")
MODULES = [module.value for module in Module]


class Server:
    """A running Almighty and what its children are told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.longest_pass = "600"
        self.orphan_patience = "60"
        tags, lines, jobs = free_ports(3)
        self.settings = {
            "SERVER_HOSTNAME": "127.0.0.1",
            "BIPBIP_COMMANDER_SERVER": "127.0.0.1",
            "SERVER_PORT": str(lines),
            "APPENDICE_SERVER_PORT": str(tags),
            "BIPBIP_COMMANDER_PORT": str(jobs),
            "OAR_RUN_DIR": str(directory / "run"),
            "LOG_FILE": str(directory / "oar.log"),
            "LOG_LEVEL": "3",
            "SARKO_FREQUENCY": "1000",
            "FINAUD_FREQUENCY": "1000",
        }
        self.process: subprocess.Popen[str] | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def configure(self, **settings: object) -> "Server":
        self.settings |= {name: str(value) for name, value in settings.items()}
        text = "".join(f'{key}="{value}"\n' for key, value in self.settings.items())
        (self.directory / "oar.conf").write_text(text)
        return self

    def start(self) -> "Server":
        self.configure()
        before = {name: self.passes(name) for name in ("node_change_state", "meta_sched", "sarko", "finaud")}
        self.process = self.another()
        wait_until(lambda: self._has_looked_since(before))
        return self

    def start_idle(self) -> None:
        """Start it and wait until nothing is to be done."""
        self.start()
        wait_until(self.is_idle)

    def _has_looked_since(self, before: Mapping[str, int]) -> bool:
        assert self.process
        assert self.process.stderr
        assert self.process.poll() is None, f"the server has ended: {self.process.stderr.read()}"
        return all(self.passes(name) > count for name, count in before.items())

    def another(self, **environment: str) -> "subprocess.Popen[str]":
        """Start a server without waiting for it."""
        files = [str(self.directory / "oar.conf"), str(self.directory)]
        argv = [sys.executable, str(PROGRAM), *files, self.longest_pass, self.orphan_patience]
        return subprocess.Popen(
            argv,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OARCONFFILE": str(self.directory / "oar.conf"), **environment},
        )

    def say(self, name: str, what: str, value: object) -> None:
        file = self.directory / f"{name}.{what}"
        temporary = file.with_suffix(".new")
        temporary.write_text(str(value))
        temporary.rename(file)

    def notes(self, name: str, word: str = "") -> list[str]:
        file = self.directory / f"{name}.log"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.startswith(word)]

    def passes(self, name: str) -> int:
        return len(self.notes(name, "pass"))

    def has_run(self, *names: str) -> bool:
        return all(self.passes(name) for name in names)

    def ring(self, *effects: Wake | Ask) -> None:
        with Doorbell("127.0.0.1", int(self.settings["APPENDICE_SERVER_PORT"])) as bell:
            bell.ring(*effects)

    def write_line(self, text: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", int(self.settings["SERVER_PORT"])), timeout=60) as client:
            client.sendall(text)
            return client.makefile("rb").read()

    def dealer(self) -> sockets.Dealer:
        return sockets.Dealer(self._context, f"ipc://{self.directory}/run/ipc/almighty.ipc")

    def ask(self, question: frames.Frame) -> frames.Frame:
        dealer = self.dealer()
        try:
            dealer.send(frames.encode(question))
            assert sockets.Poll(dealer).wait(60)
            return frames.decode(dealer.receive()[0])
        finally:
            dealer.close()

    def status(self) -> dict[str, Any]:
        answer = self.ask(StatusQuestion())
        assert isinstance(answer, Status)
        return answer.state

    def rounds(self, number: int) -> list[dict[str, Any]]:
        answer = self.ask(RoundsQuestion(number))
        assert isinstance(answer, RoundsAnswer)
        found: list[dict[str, Any]] = answer.state["rounds"]
        return found

    def is_idle(self) -> bool:
        lanes = self.status()["lanes"].values()
        return not any(lane["running"] or lane["waiting"] for lane in lanes)

    def pids(self) -> dict[str, int]:
        status = self.status()
        pids = {name: module["pid"] for name, module in status["modules"].items()}
        return {name: pid for name, pid in {**pids, "runner": status["runner"]["pid"]}.items() if pid}

    def log(self) -> str:
        return (self.directory / "oar.log").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.process = None
        return code

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stderr is not None
            self.process.stderr.close()
        for name in (*MODULES, "runner"):
            pids = [int(line.split()[1]) for line in self.notes(name, "start")]
            wait_until(lambda pids=pids: not any(is_alive(pid) for pid in pids))  # type: ignore[misc]
        self._context.destroy(linger=0)  # a test that failed may have left a socket open


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


# -- start and stop ---------------------------------------------------------------------------------------------------


def test_the_server_starts_its_children_looks_at_everything_and_stops_cleanly(server: Server) -> None:
    server.start()
    assert (server.directory / "run" / "oar-server.pid").read_text() == f"{server.status()['pid']}\n"
    wait_until(server.is_idle)
    pids = server.pids()
    assert set(pids) == {*MODULES, "runner"} - {"greta"}
    assert server.stop() == 0
    assert not any(is_alive(pid) for pid in pids.values())
    assert list((server.directory / "run").rglob("*.ipc")) == []
    assert not (server.directory / "run" / "oar-server.pid").exists()
    assert server.notes("runner", "StopChild()")
    assert not [line for line in server.log().splitlines() if line.startswith(("E|", "W|"))]


def test_children_do_not_survive_a_server_that_is_killed(server: Server) -> None:
    server.start()
    pids = server.pids()
    assert server.stop(signal.SIGKILL) == -9
    for pid in pids.values():
        wait_until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
    server.start()
    assert server.stop() == 0


@pytest.mark.slow
def test_a_module_in_the_middle_of_a_pass_does_not_survive_either(server: Server) -> None:
    server.start_idle()
    server.say("finaud", "do", "slow")
    server.ring(Wake(Tag.FINAUD))
    wait_until(lambda: server.status()["lanes"]["check"]["running"] == "finaud")
    pid = server.pids()["finaud"]
    assert server.stop(signal.SIGKILL) == -9
    wait_until(lambda: not is_alive(pid))


def test_a_second_server_ends_at_once_and_the_first_goes_on(server: Server) -> None:
    server.start()
    second = server.another()
    _, text = second.communicate(timeout=60)
    assert second.returncode == 4
    assert "an Almighty process must be already started" in text
    assert server.status()["ready"]


@pytest.mark.parametrize(
    ("name", "word", "value", "code"),
    [("warden", "holder", "oar:warden@srv2", 4), ("warden", "code", "1", 1), ("runner", "code", "1", 1)],
)
def test_the_only_server_ends_if_another_one_is_active_or_the_schema_is_another(
    server: Server, name: str, word: str, value: str, code: int
) -> None:
    server.orphan_patience = "0"
    server.say(name, word, value)
    server.configure()
    process = server.another()
    process.communicate(timeout=60)
    assert process.returncode == code
    assert not server.has_run("meta_sched")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["runner", "warden"])
def test_nothing_runs_before_the_warden_and_the_runner_are_ready(server: Server, name: str) -> None:
    server.say(name, "code", 3)
    server.configure()
    server.process = server.another()
    wait_until(lambda: (server.directory / "oar.log").exists() and "exit code 3" in server.log())
    assert not server.has_run("meta_sched")
    (server.directory / f"{name}.code").unlink()
    wait_until(lambda: server.has_run("meta_sched"))


def standby(server: Server) -> None:
    """Start one of two servers while the other one is active."""
    server.say("warden", "holder", "oar:warden@srv2")
    server.configure(SERVER_HOSTNAME="127.0.0.1 srv2", SERVER_NAME="127.0.0.1")
    server.process = server.another()
    wait_until(lambda: (server.directory / "oar.log").exists() and "standby for" in server.log())


def test_a_standby_listens_to_nobody_and_starts_nothing_until_it_is_active(server: Server) -> None:
    standby(server)
    assert server.status()["role"] == "standby"
    assert not server.notes("runner")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(server.settings["SERVER_PORT"])))
    (server.directory / "warden.holder").unlink()
    wait_until(lambda: server.has_run("meta_sched"))
    assert server.status()["role"] == "active"
    assert server.write_line(b"OAREXEC_42_0_N_1\n") == b"OK\n"
    assert server.stop() == 0
    assert server.notes("warden", "end")


@pytest.mark.parametrize("fault", ["lost", "silent", "killed"])
def test_a_server_that_is_no_longer_active_ends_its_children_and_is_standby(server: Server, fault: str) -> None:
    server.configure(SERVER_HOSTNAME="127.0.0.1 srv2", SERVER_NAME="127.0.0.1").start()
    children, process = server.pids(), server.status()["pid"]
    server.say("warden", "holder", "oar:warden@srv2")
    if fault == "killed":
        os.kill(int(server.notes("warden", "start")[-1].split()[1]), signal.SIGKILL)
    else:
        server.say("warden", fault, "another server has taken over")
    wait_until(lambda: "standby for oar:warden@srv2" in server.log())
    assert not any(is_alive(child) for child in children.values())
    assert (server.status()["role"], server.status()["pid"]) == ("standby", process)
    second = server.another()
    second.communicate(timeout=60)
    assert second.returncode == 4


@contextmanager
def systemd_of(server: Server) -> Iterator[socket.socket]:
    """Listen as systemd does, at ``notify`` in the directory of the server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(server.directory / "notify"))
        systemd.settimeout(60)
        yield systemd


def test_systemd_is_told_that_the_server_is_up_and_stops(server: Server) -> None:
    with systemd_of(server) as systemd:
        server.configure()
        server.process = server.another(NOTIFY_SOCKET=str(server.directory / "notify"), WATCHDOG_USEC="200000")
        heard = set()
        while b"READY=1" not in heard or b"WATCHDOG=1" not in heard:
            heard.add(systemd.recv(1000))
        assert server.notes("runner", "start")
        server.process.terminate()
        while b"STOPPING=1" not in heard:
            heard.add(systemd.recv(1000))
        assert server.process.wait(60) == 0


def test_systemd_is_told_of_a_database_that_is_away_and_waits_no_longer(server: Server) -> None:
    server.say("runner", "code", 3)
    with systemd_of(server) as systemd:
        server.configure(DB_HOSTNAME="db.example")
        server.process = server.another(NOTIFY_SOCKET=str(server.directory / "notify"))
        heard = [systemd.recv(1000)]
        while heard[-1] != b"READY=1":
            heard.append(systemd.recv(1000))
        assert heard[-2] == b"STATUS=waiting for the database at db.example:5432"
        (server.directory / "runner.code").unlink()
        while heard[-1] != b"STATUS=up":
            heard.append(systemd.recv(1000))


def test_systemd_is_told_of_a_configuration_that_is_not_read(server: Server) -> None:
    with systemd_of(server) as systemd:
        server.configure()
        server.process = server.another(NOTIFY_SOCKET=str(server.directory / "notify"))
        heard = [systemd.recv(1000)]
        while heard[-1] != b"STATUS=up":
            heard.append(systemd.recv(1000))
        good = (server.directory / "oar.conf").read_text()
        for text, told in ((f'{good}SARKO_FREQUENCY="10\n', "the quote is not closed"), (good, "was read again")):
            (server.directory / "oar.conf").write_text(text)
            server.process.send_signal(signal.SIGHUP)
            while b"STATUS=the configuration was" not in heard[-1] or told.encode() not in heard[-1]:
                heard.append(systemd.recv(1000))


# -- tags and lanes ---------------------------------------------------------------------------------------------------


def test_a_kill_is_not_delayed_by_a_round_that_hangs(server: Server) -> None:
    server.start_idle()
    server.say("meta_sched", "do", "wait")
    server.ring(Wake(Tag.QSUB))
    wait_until(lambda: server.status()["lanes"]["sched"]["running"] == "meta_sched")
    server.ring(Wake(Tag.QDEL))
    wait_until(lambda: server.has_run("leon"))
    assert server.status()["lanes"]["sched"]["running"] == "meta_sched"
    server.say("meta_sched", "do", "")


@contextmanager
def pushing(port: str) -> Iterator["zmq.Socket[bytes]"]:
    """Connect to a port of the server, as programs of the site do."""
    with zmq.Context() as context:
        socket_ = context.socket(zmq.PUSH)
        socket_.connect(f"tcp://127.0.0.1:{port}")
        yield socket_
        socket_.close(20000)


def test_malformed_messages_harm_nobody(server: Server) -> None:
    server.start()
    junk = (
        b"",
        b"(",
        b"\xff\xfe",
        b"[]",
        b'{"cmd": "("}',
        b'{"cmd": {}}',
        b'{"cmd":"OARRUN","job_id":-1}',
        b"[" * 9999,
    )
    with pushing(server.settings["APPENDICE_SERVER_PORT"]) as push:
        for data in junk:
            push.send(data)
        push.send_multipart([b"a", b"b", b"c"])
    dealer = server.dealer()
    for data in (
        b"",
        b"{}",
        b'{"m":"HELLO","name":"sarko","pid":1}',
        b'{"m":"DONE","id":1,"code":0}',
        b'{"m":"READY"}',
    ):
        dealer.send(data)
    dealer.close()
    assert server.write_line(b"(\n") == b""
    before = server.passes("finaud")
    server.ring(Wake(Tag.FINAUD))
    wait_until(lambda: server.passes("finaud") == before + 1)
    assert server.stop() == 0


# -- the line port and the Runner -------------------------------------------------------------------------------------


def test_a_report_goes_to_the_runner_and_its_answer_comes_back(server: Server) -> None:
    server.start()
    assert server.write_line(b"OAREXEC_42_0_256_12345\n") == b"OK\n"
    assert server.write_line(b"OAREXEC_404_0_N_12345\n") == b"GONE\n"
    [first, second] = server.notes("runner", "EndReport")
    assert "job_id=42, code=0, status='256', challenge='12345'" in first
    assert "job_id=404" in second
    assert "12345" not in server.log()


def test_tags_and_jobs_come_by_every_door(server: Server) -> None:
    server.start()
    assert server.write_line(b"OARRUNJOB_7\n") == b"OK\n"
    assert server.write_line(b"Finaud\n") == b"OK\n"
    server.ring(Ask(JobAction.SIGNAL, 8))
    with Doorbell("127.0.0.1", int(server.settings["BIPBIP_COMMANDER_PORT"])) as bell:
        bell.ring(Ask(JobAction.RUN, 9))
    wait_until(lambda: len(server.notes("runner", "Ask")) == 3)
    jobs = {line.split("job_id=")[1].split(",")[0] for line in server.notes("runner", "Ask")}
    assert jobs == {"7", "8", "9"}
    wait_until(lambda: server.passes("finaud") == 2)


def test_a_runner_that_is_killed_is_started_again_and_reports_meanwhile_are_not_answered(server: Server) -> None:
    server.start()
    os.kill(server.pids()["runner"], signal.SIGKILL)
    wait_until(lambda: server.write_line(b"OAREXEC_42_0_N_1\n") == b"OK\n")
    assert len(server.notes("runner", "start")) == 2
    assert "signal SIGKILL" in server.log()


def test_the_check_says_that_the_runner_does_not_work_until_it_does(server: Server) -> None:
    server.start()
    wait_until(lambda: server.status()["runner"]["ready"])
    server.say("runner", "code", 3)  # it refuses to start: the database is away
    os.kill(server.pids()["runner"], signal.SIGKILL)
    wait_until(lambda: not server.status()["runner"]["ready"])
    report = judge_status(server.status(), time.time())
    assert report.health is ServerHealth.CRITICAL
    assert "no job can start or end: the Runner does not work" in report.line
    (server.directory / "runner.code").unlink()
    wait_until(lambda: server.status()["runner"]["ready"])


# -- children that go wrong -------------------------------------------------------------------------------------------


def test_a_module_that_crashes_is_started_again_and_its_last_words_are_logged(server: Server) -> None:
    server.start_idle()
    server.say("finaud", "do", "crash")
    server.ring(Wake(Tag.FINAUD))
    wait_until(lambda: server.passes("finaud") >= 3)
    assert "its last words" in server.log()
    server.say("finaud", "do", "")
    wait_until(lambda: server.status()["modules"]["finaud"]["last_code"] == 0)
    assert server.status()["modules"]["finaud"]["failures"] >= 2
    assert server.status()["modules"]["finaud"]["restarts"] >= 2


def test_a_pass_without_a_database_names_it_instead_of_a_code(server: Server) -> None:
    server.start_idle()
    server.say("finaud", "code", UNAVAILABLE)
    server.ring(Wake(Tag.FINAUD))
    wait_until(lambda: "module finaud failed: the database cannot be used" in server.log())
    assert "ended with code 69" not in server.log()


@pytest.mark.slow
def test_a_module_that_dies_between_two_passes_is_there_for_the_next(server: Server) -> None:
    server.start_idle()
    os.kill(server.pids()["finaud"], signal.SIGKILL)
    before = server.passes("finaud")
    server.ring(Wake(Tag.FINAUD))
    wait_until(lambda: server.passes("finaud") > before)


@pytest.mark.slow
def test_a_pass_that_takes_too_long_is_ended(server: Server) -> None:
    server.longest_pass = "1"
    server.start_idle()
    server.say("finaud", "do", "slow")
    server.ring(Wake(Tag.FINAUD))
    wait_until(lambda: server.status()["modules"]["finaud"]["failures"] >= 1)
    assert "takes longer than 1 s" in server.log()
    server.say("finaud", "do", "")
    wait_until(lambda: server.status()["modules"]["finaud"]["last_code"] == 0)


def renewals(server: Server) -> int:
    return server.log().count("meta_sched is renewed")


def one_round(server: Server) -> None:
    before = server.passes("meta_sched")
    server.ring(Wake(Tag.QSUB))
    wait_until(lambda: server.passes("meta_sched") > before and server.is_idle())


def rounds(server: Server, count: int, grow: int = 0) -> None:
    """Have so many rounds made, one after the other, in which the meta-scheduler grows by so many MiB each."""
    server.say("meta_sched", "grow", grow or "")
    for _ in range(count):
        one_round(server)


@pytest.mark.slow
def test_a_meta_scheduler_that_has_grown_is_renewed_when_nothing_is_due(server: Server) -> None:
    server.configure(MODULE_MAX_MEMORY=0.0001)
    server.say("meta_sched", "next", 25)
    server.start_idle()
    first = server.pids()["meta_sched"]
    rounds(server, 3)
    rounds(server, 1, grow=40)
    rounds(server, 2)
    assert (server.pids()["meta_sched"], renewals(server)) == (first, 0)  # a job is to start soon
    server.say("meta_sched", "next", "")
    one_round(server)
    wait_until(lambda: server.pids().get("meta_sched", first) != first)
    rounds(server, 2)
    status = server.status()["modules"]["meta_sched"]
    assert (status["passes"], status["failures"], renewals(server)) == (server.passes("meta_sched"), 0, 1)
    assert len(server.notes("meta_sched", "start")) == 2
    assert "ERROR" not in server.log()
    assert "failed" not in server.log()


def test_the_last_round_is_told(server: Server) -> None:
    server.start_idle()
    assert server.status()["last_round"] == {}
    server.say("meta_sched", "jobs", "5")
    one_round(server)
    wait_until(lambda: server.status()["last_round"] == {"jobs": 5})
    before = server.rounds(500)
    one_round(server)
    wait_until(lambda: len(server.rounds(500)) > len(before))
    last, *others = server.rounds(500)
    assert (last["jobs"], last["started"], last["result"]) == (5, 0, "nothing more to do")
    assert others == before
    assert (server.rounds(1), server.rounds(0), server.rounds(-1)) == ([last], [], [])


@pytest.mark.slow
def test_one_that_has_grown_far_too_much_is_renewed_at_once_and_loses_no_round(server: Server) -> None:
    server.configure(MODULE_MAX_MEMORY=0.0001)
    server.start_idle()
    rounds(server, 3)
    rounds(server, 3, grow=250)
    status = server.status()["modules"]["meta_sched"]
    assert (status["passes"], status["failures"]) == (server.passes("meta_sched"), 0)
    assert renewals(server) >= 1
    assert len(server.notes("meta_sched", "start")) >= 2
    assert "ERROR" not in server.log()


@pytest.mark.slow
def test_an_outside_meta_scheduler_without_worker_form_is_run_for_each_round(server: Server) -> None:
    script = server.directory / "outside"
    script.write_text(
        f'#!/bin/sh\n[ "$2" = --worker ] && exit 2\necho "pass $$ $1" >> {server.directory}/meta_sched.log\nexit 0\n'
    )
    script.chmod(0o755)
    server.configure(META_SCHED_CMD="outside policy")
    server.start_idle()
    server.ring(Wake(Tag.QSUB))
    wait_until(lambda: server.passes("meta_sched") >= 2)
    assert server.notes("meta_sched", "pass")[0].endswith("policy")
    assert server.status()["modules"]["meta_sched"]["failures"] == 0


# -- control ----------------------------------------------------------------------------------------------------------


def test_the_status_tells_what_runs_and_what_the_runner_has_to_do(server: Server) -> None:
    server.start_idle()
    status = server.status()
    assert status["runner"]["waiting"] == 3
    assert status["runner"]["running"] == 4
    assert status["modules"]["sarko"]["passes"] == 1
    assert status["modules"]["sarko"]["last_code"] == 0
    assert json.dumps(status)


def test_one_can_wait_for_the_end_of_a_round_that_begins_later(server: Server) -> None:
    server.start_idle()
    server.say("meta_sched", "do", "wait")
    before = server.passes("meta_sched")
    server.ring(Wake(Tag.QSUB))
    wait_until(lambda: server.passes("meta_sched") == before + 1)
    dealer = server.dealer()
    dealer.send(frames.encode(WaitForRound("Term")))
    wait_until(lambda: "meta_sched" in server.status()["lanes"]["sched"]["waiting"])
    server.say("meta_sched", "do", "")
    assert sockets.Poll(dealer).wait(60)
    assert frames.decode(dealer.receive()[0]) == Waited(0)
    assert server.passes("meta_sched") == before + 2
    dealer.close()


def test_a_hang_up_reads_the_configuration_again_and_a_bad_one_changes_nothing(server: Server) -> None:
    server.start()
    assert server.process is not None
    server.configure(SARKO_FREQUENCY="never")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "SARKO_FREQUENCY: write a whole number" in server.log())
    before = server.passes("sarko")
    server.configure(SARKO_FREQUENCY="1")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.passes("sarko") >= before + 2)
    assert server.stop() == 0


@pytest.mark.slow
def test_a_stop_does_not_wait_for_a_pass_that_hangs(server: Server) -> None:
    server.start_idle()
    server.say("finaud", "do", "slow")
    server.ring(Wake(Tag.FINAUD))
    wait_until(lambda: server.status()["lanes"]["check"]["running"] == "finaud")
    assert server.stop() == 0


# -- Greta ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def saving_server(server: Server) -> Server:
    """A running server that saves energy, with the port for programs of the site."""
    port = free_ports(1)[0]
    server.configure(ENERGY_SAVING_INTERNAL="yes", GRETA_SERVER="127.0.0.1", GRETA_PORT=port).start()
    wait_until(lambda: server.has_run("greta"))
    wait_until(server.is_idle)
    return server


def push(port: str, *requests: bytes) -> None:
    """Write to a port of the server, as a program of the site does."""
    with pushing(port) as socket_:
        for request in requests:
            socket_.send(request)


def test_an_order_of_a_program_of_the_site_reaches_greta(saving_server: Server) -> None:
    server, before = saving_server, saving_server.passes("greta")
    bad = (b'{"cmd":"HALT","nodes":"n1"}', b'{"cmd":"HALT","nodes":[1]}', b'{"cmd":"SLEEP","nodes":["n1"]}', b"(")
    push(server.settings["GRETA_PORT"], *bad, b'{"cmd":"HALT","nodes":["n1","n2"]}', b'{"cmd":"CHECK"}')
    wait_until(lambda: server.notes("greta", "Energy"))
    assert server.notes("greta", "Energy") == [str(Energy(EnergyCommand.HALT, ("n1", "n2")))]
    wait_until(lambda: server.passes("greta") > before)


@pytest.mark.slow
def test_a_doorbell_of_an_order_wakes_greta(saving_server: Server) -> None:
    before = saving_server.passes("greta")
    dealer = saving_server.dealer()
    dealer.send(frames.encode(Ask(JobAction.ENERGY, 0)))
    wait_until(lambda: saving_server.passes("greta") > before)
    dealer.close()
    assert not saving_server.notes("runner", "Ask(action=<JobAction.ENERGY")


@pytest.mark.slow
def test_a_greta_that_dies_is_started_again_and_scheduling_goes_on(saving_server: Server) -> None:
    server = saving_server
    server.say("greta", "do", "crash")
    push(server.settings["GRETA_PORT"], b'{"cmd":"CHECK"}')
    wait_until(lambda: server.status()["modules"]["greta"]["failures"] >= 2)
    rounds = server.passes("meta_sched")
    server.ring(Wake(Tag.QSUB))
    wait_until(lambda: server.passes("meta_sched") > rounds)
    before = server.passes("greta")
    server.say("greta", "do", "")
    wait_until(lambda: server.status()["modules"]["greta"]["last_code"] == 0 and server.passes("greta") > before)


@pytest.mark.slow
def test_an_order_that_comes_while_there_is_no_greta_starts_her_and_reaches_her(saving_server: Server) -> None:
    server, pid = saving_server, saving_server.pids()["greta"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: server.pids().get("greta") != pid)
    push(server.settings["GRETA_PORT"], b'{"cmd":"WAKEUP","nodes":["n1"]}')
    wait_until(lambda: server.notes("greta", "Energy"))
    assert server.notes("greta", "Energy") == [str(Energy(EnergyCommand.WAKEUP, ("n1",)))]


@pytest.mark.slow
def test_greta_begins_and_ends_when_the_configuration_is_read_again(saving_server: Server) -> None:
    server, process = saving_server, saving_server.process
    assert process is not None
    pid = server.pids()["greta"]
    server.configure(ENERGY_SAVING_INTERNAL="no")
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: not is_alive(pid))
    wait_until(lambda: "greta" not in server.pids())
    push(server.settings["GRETA_PORT"], b'{"cmd":"HALT","nodes":["n1"]}')
    wait_until(lambda: "Greta does not take HALT n1: ENERGY_SAVING_INTERNAL is no" in server.log())
    server.configure(ENERGY_SAVING_INTERNAL="yes")
    before = server.passes("greta")
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.passes("greta") > before)

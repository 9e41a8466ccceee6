"""The node session: many requests over one channel, each in its own process."""

import errno
import hashlib
import json
import os
import select
import signal
import subprocess
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import node_session
import pytest
from node_session import Child, SessionLoop

from oar.lib.remote import bootstrap
from tests.process.this_machine import wait_until

PROGRAM = """
import os, sys, time, signal
def main(action, data):
    if action == "talk":
        os.write(1, b"ready\\n")
        while True:
            line = os.read(0, 1000)
            if not line:
                os.write(1, b"bye\\n")
                return 7
            os.write(1, b"heard " + line)
    if action == "fail":
        os.write(2, b"x" * 10000 + b" the end")
        return 3
    if action == "raise":
        raise ValueError("no such thing")
    if action == "sleep":
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep(1000)
    if action == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep(1000)
    if action == "descriptors":
        os.write(1, (" ".join(sorted(os.listdir("/proc/self/fd")))).encode() + b"\\n")
    if action == "detach":
        os.write(1, b"\\0independent\\n%d\\n\\0detached\\n" % os.getpid())
        time.sleep(1000)
    if action == "wait":
        os.read(0, 1)
        open(data["file"], "w").close()
    if action == "independent":
        os.write(1, b"\\0independent\\n")
        os.read(0, 1)
        return 9
    if action == "many":
        os.write(1, b"".join(b"line %d\\n" % i for i in range(data["count"])) + b"unfinished")
    if action == "node":
        os.write(1, os.environ["TAKTUK_HOSTNAME"].encode())
    return 0
"""


SHORT_PROGRAM = """
SHORT = True
import os, time
def main(action, data):
    os.write(1, b"%d\\n" % os.getpid())
    if action == "slow":
        time.sleep(1000)
    if action == "fail":
        os.write(2, b"it failed")
        return 5
    if action == "raise":
        raise ValueError("no such thing")
    return 0
"""


STANDING_PROGRAM = """
STANDING = True
import os, sys, time
def main(action, data):
    os.write(1, b"%d\\n" % os.getpid())
    if action == "refuse":
        sys.exit(6)
    os.write(1, b"heard " + os.read(0, 1000))
    os.write(1, b"\\0independent\\n\\0detached\\n")
    while not os.path.exists(data["file"]):
        time.sleep(0.01)
    if action == "spent":
        sys.exit(5)
    return 4
"""


class Session:
    """The session program at the end of a pipe, spoken to by hand."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", bootstrap.command(())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        self._buffer = b""
        self._numbers = 0
        self._in.write(bootstrap.session_program())
        assert self.receive()["hello"] == 1
        self.hash = hashlib.sha256(PROGRAM.encode()).hexdigest()
        self.send(op="load", name="tester", hash=self.hash, source=PROGRAM)

        self.short_hash = hashlib.sha256(SHORT_PROGRAM.encode()).hexdigest()
        self.send(op="load", name="short", hash=self.short_hash, source=SHORT_PROGRAM)

        self.standing_hash = hashlib.sha256(STANDING_PROGRAM.encode()).hexdigest()
        self.send(op="load", name="standing", hash=self.standing_hash, source=STANDING_PROGRAM)

    def let_stand(self, action: str, path: Path) -> tuple[int, str]:
        """Let a standing program go on by itself until a file is there; its process, and what it heard."""
        number = self.run(action, program="standing", hash=self.standing_hash, data={"file": str(path)})
        self.send(op="line", id=number, text="hello")
        code, _, (pid, heard) = self.end(number)
        assert code == 0
        return int(pid), heard

    def told_of(self, pid: int) -> int:
        """Wait until the session tells the end of what went on by itself; its exit code."""
        while (message := self.receive()).get("left") != pid:
            pass
        return int(message["exit"])

    def run_short(self, action: str, **more: Any) -> int:
        """Send a request that a worker carries out; its number."""
        return self.run(action, program="short", hash=self.short_hash, **more)

    def send(self, **message: Any) -> None:
        self._in.write(json.dumps(message).encode() + b"\n")

    def run(self, action: str, **more: Any) -> int:
        """Send a request; its number."""
        self._numbers += 1
        asked = {"program": "tester", "hash": self.hash, "action": action, "node": "n1", "data": {}, **more}
        self.send(op="run", id=self._numbers, **asked)
        return self._numbers

    def receive(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            assert select.select([self._out], [], [], 120)[0], "the session says nothing"
            block = os.read(self._out.fileno(), 65536)
            assert block, "the session has ended"
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def next_line(self) -> str:
        """Return the next line of any program."""
        while "line" not in (message := self.receive()):
            pass
        return str(message["line"])

    def end(self, number: int) -> tuple[int, str, list[str]]:
        """Return exit code, standard error and lines of a request."""
        lines = []
        while True:
            message = self.receive()
            if message.get("id") == number and "line" in message:
                lines.append(message["line"])
            if message.get("id") == number and "exit" in message:
                return message["exit"], message["stderr"], lines

    def close(self) -> None:
        self._in.close()
        self.process.wait(120)
        self._out.close()


@pytest.fixture
def session() -> Iterator[Session]:
    one = Session()
    yield one
    one.close()


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_requests_are_talked_with_at_the_same_time(session: Session) -> None:
    first, second = session.run("talk"), session.run("talk")
    session.send(op="line", id=first, text="one")
    session.send(op="line", id=second, text="two")
    session.send(op="close", id=first)
    assert session.end(first) == (7, "", ["ready", "heard one", "bye"])
    session.send(op="close", id=second)
    assert session.end(second)[0] == 7


def test_the_end_carries_exit_code_and_the_tail_of_standard_error(session: Session) -> None:
    code, said, lines = session.end(session.run("fail"))
    assert (code, lines, len(said)) == (3, [], 4096)
    assert said.endswith("the end")


def test_a_program_that_raises_ends_alone(session: Session) -> None:
    assert session.end(session.run("raise"))[:2] == (1, "ValueError: no such thing\n")
    assert session.end(session.run("node"))[2] == ["n1"]


def test_everything_that_was_written_comes_before_the_end(session: Session) -> None:
    _, _, lines = session.end(session.run("many", data={"count": 5000}))
    assert lines == [f"line {number}" for number in range(5000)] + ["unfinished"]


def test_a_child_has_no_descriptor_but_its_own_three(session: Session) -> None:
    session.run("talk")
    assert session.end(session.run("descriptors"))[2] == ["0 1 2 3"]  # 3 is the listing itself


def test_the_end_of_a_program_that_went_on_by_itself_is_told(session: Session) -> None:
    number = session.run("detach")
    code, _, lines = session.end(number)
    assert code == 0
    os.kill(int(lines[0]), signal.SIGKILL)
    while "left" not in (message := session.receive()):
        pass
    assert message == {"left": int(lines[0]), "exit": 128 + signal.SIGKILL}


@pytest.mark.slow
def test_a_node_gives_signs_of_life(session: Session) -> None:
    while "beat" not in (message := session.receive()):
        pass
    assert message == {"beat": 1}


def test_a_request_past_its_deadline_is_ended(session: Session) -> None:
    code, seconds, lines = 0, 5, list[str]()
    while not lines:  # on a busy machine it may be over before the program has begun
        code, _, lines = session.end(session.run("sleep", deadline=seconds))
        seconds *= 2
    assert code == 128 + signal.SIGTERM
    assert not alive(int(lines[0]))


def test_a_request_that_is_cancelled_ends_and_the_others_go_on(session: Session) -> None:
    other = session.run("talk")
    number = session.run("sleep")
    session.send(op="cancel", id=number)
    assert session.end(number)[0] == 128 + signal.SIGTERM
    session.send(op="close", id=other)
    assert session.end(other)[0] == 7


def test_a_program_that_is_its_own_master_is_not_ended_with_its_request(session: Session) -> None:
    number = session.run("independent", deadline=5)
    assert session.end(number)[0] == 9  # it saw the end of its input and ended by itself


def test_short_programs_are_run_by_one_worker_as_long_as_it_is_free(session: Session) -> None:
    code, said, (first,) = session.end(session.run_short("fail"))
    assert (code, said) == (5, "it failed")
    assert session.end(session.run_short("quick")) == (0, "", [first])
    slow = session.run_short("slow")
    assert session.next_line() == first
    other = session.end(session.run_short("quick"))[2]
    assert other != [first]
    session.send(op="cancel", id=slow)
    assert session.end(slow)[0] == 128 + signal.SIGTERM
    assert session.end(session.run_short("quick"))[2] == other


def test_a_worker_that_dies_is_replaced(session: Session) -> None:
    code, said, (first,) = session.end(session.run_short("raise"))
    assert (code, said) == (1, "ValueError: no such thing\n")
    _, _, (second,) = session.end(session.run_short("quick"))
    assert second != first
    os.kill(int(second), signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{second}").exists())
    assert session.end(session.run_short("quick"))[0] == 0


def test_a_standing_program_comes_back_for_its_next_request(session: Session, tmp_path: Path) -> None:
    first, heard = session.let_stand("go", tmp_path / "over")
    assert heard == "heard hello"
    other, _ = session.let_stand("go", tmp_path / "over 2")  # the first one is away
    assert other != first
    (tmp_path / "over").touch()
    assert session.told_of(first) == 4
    assert session.let_stand("go", tmp_path / "over")[0] == first
    assert session.told_of(first) == 4
    assert session.end(session.run_short("quick"))[2] == [str(first)]
    (tmp_path / "over 2").touch()
    assert session.told_of(other) == 4


def test_a_burst_of_ends_leaves_a_worker_for_each_of_the_launches_that_follow(session: Session, tmp_path: Path) -> None:
    """More workers than ``IDLE_WORKERS``: no launch costs the node a fork."""
    count = 3 * node_session.IDLE_WORKERS
    ended = {session.let_stand("go", tmp_path / "over")[0] for _ in range(count)}
    (tmp_path / "over").touch()
    left = {session.receive()["left"] for _ in range(count)}
    assert left == ended
    followers = {session.let_stand("go", tmp_path / "over 2")[0] for _ in range(count)}
    assert followers == ended
    (tmp_path / "over 2").touch()
    assert {session.receive()["left"] for _ in range(count)} == ended


def test_a_standing_program_that_is_spent_ends(session: Session, tmp_path: Path) -> None:
    pid, _ = session.let_stand("spent", tmp_path / "over")
    (tmp_path / "over").touch()
    assert session.told_of(pid) == 5
    assert not alive(pid)
    refusing = session.run("refuse", program="standing", hash=session.standing_hash)
    code, _, (other,) = session.end(refusing)
    assert (code, alive(int(other))) == (6, False)


def test_a_standing_program_that_is_killed_while_it_is_away_is_told(session: Session, tmp_path: Path) -> None:
    pid, _ = session.let_stand("go", tmp_path / "over")
    os.kill(pid, signal.SIGKILL)
    assert session.told_of(pid) == 128 + signal.SIGKILL
    assert session.end(session.run_short("quick"))[0] == 0


def test_workers_that_do_not_have_a_new_program_go(session: Session) -> None:
    (old,) = session.end(session.run_short("quick"))[2]
    changed = SHORT_PROGRAM + "# another text\n"
    session.short_hash = hashlib.sha256(changed.encode()).hexdigest()
    session.send(op="load", name="short", hash=session.short_hash, source=changed)
    assert session.end(session.run_short("quick"))[2] != [old]
    wait_until(lambda: not alive(int(old)))


def test_a_program_that_was_not_loaded_is_refused(session: Session) -> None:
    code, said, _ = session.end(session.run("talk", hash="0" * 64))
    assert code == 31
    assert "not loaded" in said


def test_an_argument_list_runs_with_the_input_it_was_given(session: Session) -> None:
    session.send(
        op="command", id=99, argv=["sh", "-c", 'cat; echo "$1"; exit 4', "sh", "it's"], stdin="a\nb\n", node="n"
    )
    assert session.end(99) == (4, "", ["a", "b", "it's"])


def test_a_detached_process_and_a_waiting_program_outlive_the_session_but_a_command_does_not(tmp_path: Path) -> None:
    session = Session()
    code, _, (pid,) = session.end(session.run("detach"))
    detached = int(pid)
    assert (code, alive(detached)) == (0, True)
    session.run("wait", data={"file": str(tmp_path / "over")})
    session.send(op="command", id=50, argv=["sh", "-c", "echo $$; sleep 1000"], node="n")
    command = int(session.next_line())
    session.close()
    wait_until((tmp_path / "over").exists)
    wait_until(lambda: not alive(command))
    assert alive(detached)
    os.kill(detached, signal.SIGKILL)


def test_a_session_ends_with_its_channel(session: Session) -> None:
    session.close()
    assert session.process.returncode == 0


def test_without_an_interpreter_the_bootstrap_says_so(tmp_path: Path) -> None:
    command = bootstrap.command(()).replace("/usr/libexec/platform-python", "/nonexistent")
    done = subprocess.run(["/bin/sh", "-c", command], env={"PATH": str(tmp_path)}, capture_output=True, check=False)
    assert done.returncode == 32
    assert b"no python3 of version 3.6 or newer" in done.stderr


def test_a_session_program_that_does_not_come_is_not_waited_for() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", bootstrap.command(())], input=b"500\nimport os", capture_output=True, check=False
    )
    assert done.returncode == 30


@pytest.fixture
def loop() -> Iterator[SessionLoop]:
    """The state of a session that is not served."""
    made = SessionLoop()
    yield made
    os.close(made.wake_read)
    os.close(made.wake_write)


def test_what_comes_together_is_written_together(loop: SessionLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write would be a packet, which the server decrypts and a thread of it wakes for."""
    written: list[bytes] = []

    def write(_: int, data: bytes) -> int:
        written.append(data)
        return len(data)

    loop.send({"id": 1, "line": "STARTED"})
    loop.send({"id": 1, "exit": 0, "stderr": ""})
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        loop.flush()
    assert [block.count(b"\n") for block in written] == [2]


def test_the_acceptance_of_a_request_to_a_worker_is_sent_with_the_first_line_of_the_program(
    loop: SessionLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(loop, 1)
    assert not loop.is_urgent
    loop.take_lines(loop.children[1], b"ready\n")
    assert [json.loads(line).get("line") for line in loop.to_send.splitlines()] == [None, "ready"]
    monkeypatch.setattr(node_session, "ACCEPT_DELAY", 0.0)
    loop.is_urgent = False
    accept(loop, 2)
    assert loop.enforce() == 0.0
    assert loop.is_urgent  # a program that writes nothing


def test_the_acceptance_of_a_command_is_sent_at_once(loop: SessionLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server repeats a request if the connection ends before its acceptance."""
    monkeypatch.setattr(loop, "fork", lambda *_: Child(1, -1, -1, -1))
    loop.start({"op": "command", "id": 1}, lambda: 0)
    assert loop.is_urgent


EPILOGUE = {"options": {"epilogue": "/site/epilogue"}}


@pytest.mark.parametrize(
    ("request_of", "data", "may_wait"),
    [
        ("oarexec run", {}, True),
        ("oarexec ctl", {}, False),
        ("node_probe probe", {}, True),
        ("job_resource_manager_cgroups init", {}, False),
        ("job_resource_manager_cgroups clean", {}, True),
        ("job_resource_manager_cgroups clean", EPILOGUE, False),
        ("job_resource_manager_cgroups sweep", {}, False),
        ("suspend_resume_manager suspend", {}, False),
    ],
)
def test_the_acceptance_of_a_request_that_must_not_run_twice_is_sent_at_once(
    loop: SessionLoop, monkeypatch: pytest.MonkeyPatch, request_of: str, data: dict[str, Any], may_wait: bool
) -> None:
    program, action = request_of.split()
    path = next(path for path in bootstrap.TOOLS.iterdir() if path.name in (program, f"{program}.py"))
    module = types.ModuleType(program)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    monkeypatch.setattr(loop, "fork", lambda *_: Child(1, os.open("/dev/null", os.O_WRONLY), -1, -1))
    loop.programs[program] = ("h", module)
    loop.handle({"op": "run", "id": 1, "program": program, "hash": "h", "action": action, "data": data}, b"")
    os.close(loop.children[1].stdin or -1)
    assert json.loads(loop.to_send)["accepted"] == 1
    assert loop.is_urgent is not may_wait


def accept(loop: SessionLoop, number: int) -> None:
    loop.accept(Child(number, -1, -1, -1), {"id": number})


def test_a_node_without_room_for_a_process_is_told_from_a_wrong_program(
    loop: SessionLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    loop.programs["node_session"] = ("h", node_session)
    is_open = set(os.listdir("/proc/self/fd"))
    for op in ({"op": "command", "argv": ["true"]}, {"op": "run", "program": "node_session", "hash": "h"}):
        loop.handle({**op, "id": 1}, b"")
    answers = [json.loads(line) for line in loop.to_send.splitlines()]
    assert [answer["exit"] for answer in answers] == [30, 30]
    assert all("cannot start a process" in answer["stderr"] for answer in answers)
    assert set(os.listdir("/proc/self/fd")) == is_open
    loop.handle({"op": "run", "id": 2, "program": "node_session", "hash": "other"}, b"")
    assert json.loads(loop.to_send.splitlines()[-1])["exit"] == 31


def is_null(descriptor: int) -> bool:
    """Whether a descriptor is still that of /dev/null; threads of others may open files meanwhile."""
    try:
        return os.fstat(descriptor).st_rdev == os.stat("/dev/null").st_rdev
    except OSError:
        return False


def test_workers_that_go_on_by_themselves_do_not_take_all_descriptors(
    loop: SessionLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_session, "MOST_AWAY", 2)
    opened: list[int] = []
    for number in range(1, 4):
        descriptors = [os.open("/dev/null", os.O_RDWR) for _ in range(3)]
        opened += descriptors
        child = Child(number, *descriptors)
        child.is_worker, child.request_id, loop.children[number] = True, number, child
        goes_on = loop.take_lines(child, node_session.DETACHED + b"\n")
        assert goes_on is (number < 3)
    assert (len(loop.away), loop.strays, loop.children) == (2, [3], {})
    assert [is_null(each) for each in opened] == [True] * 6 + [False] * 3
    for child in loop.away:
        loop.hang_up(child)


def test_a_node_whose_jobs_have_all_workers_keeps_some_for_other_requests(
    loop: SessionLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_session, "MOST_AWAY", 2)
    loop.away += [Child(number, -1, -1, -1) for number in (1, 2)]
    for number in range(node_session.IDLE_WORKERS + 1):
        worker = Child(number, -1, -1, -1)
        assert loop.is_wanted(worker) is (number < node_session.IDLE_WORKERS)
        loop.idle.append(worker)


def test_workers_of_a_burst_are_ended_when_nothing_follows(loop: SessionLoop) -> None:
    ages = [node_session.BURST_SECONDS, *[node_session.BURST_SECONDS - 1] * (node_session.IDLE_WORKERS + 1)]
    for number, age in enumerate(ages):
        loop.idle.append(Child(number, *(os.open("/dev/null", os.O_RDWR) for _ in range(3))))
        loop.idle[-1].idle_since = 1000.0 - age
    loop.trim(1000.0)
    assert (loop.strays, [child.pid for child in loop.idle]) == ([0], [*range(1, len(ages))])
    loop.trim(1001.0)
    assert (loop.strays, len(loop.idle)) == ([0, 1], node_session.IDLE_WORKERS)
    for child in loop.idle:
        loop.hang_up(child)


@pytest.mark.parametrize(("status", "is_urgent"), [(0, False), (signal.SIGKILL, True), (70 << 8, True)])
def test_only_a_bad_end_on_its_own_is_told_at_once(loop: SessionLoop, status: int, is_urgent: bool) -> None:
    loop.strays.append(5)
    loop.bury(5, status)
    assert loop.is_urgent is is_urgent
    assert loop.to_send.startswith(b'{"left": 5')

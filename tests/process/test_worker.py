"""The worker form of a module: a real process, spoken to as Almighty does."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from oar.lib.bus import frames, sockets
from oar.lib.bus.frames import At, Done, Frame, Hello, Ping, Pong, Renewal, RunPass, Status, StatusQuestion, StopChild
from oar.lib.bus.messages import (
    Ask,
    Due,
    Energy,
    EnergyCommand,
    JobAction,
    Mail,
    Notice,
    NoticeTag,
    OarsubLine,
    Tag,
    Wake,
    announcements,
)
from oar.lib.control_delivery import losses
from oar.modules.worker import BROKEN, SETTLING


def resident_bytes_of(pid: int) -> int:
    """Return the memory that a process uses, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


CHILDREN = Path(__file__).with_name("server_children.py")
ROOT = Path(__file__).parent.parent.parent


class Parent:
    """The other end of a worker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        endpoint = f"ipc://{directory}/ipc/x.ipc"
        self._router = sockets.Router(self._context, endpoint)
        self._poll = sockets.Poll(self._router)
        self._heard: list[tuple[bytes, bytes]] = []  # what came together is heard one by one
        (directory / "oar.conf").write_text(f"LOG_FILE={directory}/oar.log\n")
        self.child = subprocess.Popen(
            [sys.executable, str(CHILDREN), "sarko", str(directory), "--worker", endpoint],
            env={**os.environ, "OARCONFFILE": str(directory / "oar.conf")},
        )
        self._identity = b""
        assert self.hear() == Hello("sarko", self.child.pid)

    def hear(self) -> Frame:
        if not self._heard:
            assert self._poll.wait(60)
            self._heard = self._router.receive()
        self._identity, data = self._heard.pop(0)
        return frames.decode(data)

    def tell(self, frame: Frame) -> None:
        assert self._router.send(self._identity, frames.encode(frame))

    def ask(self, frame: Frame) -> Frame:
        self.tell(frame)
        return self.hear()

    def say(self, what: str, value: object) -> None:
        (self.directory / f"sarko.{what}").write_text(str(value))

    def noted(self) -> list[str]:
        return (self.directory / "sarko.log").read_text().splitlines()

    def passes(self) -> list[str]:
        return [line for line in self.noted() if line.startswith("pass")]

    def log(self) -> str:
        file = self.directory / "oar.log"
        return file.read_text() if file.exists() else ""

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        self._router.close()
        self._context.destroy(linger=0)


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    parent = Parent(tmp_path)
    yield parent
    parent.close()


def test_a_worker_makes_a_pass_for_each_order_and_gives_the_code_back(parent: Parent) -> None:
    parent.say("code", 1)
    assert parent.ask(RunPass(7)) == Done(7, 1, None)
    assert parent.ask(RunPass(8)) == Done(8, 1, None)
    assert len(parent.passes()) == 2


def test_the_next_date_of_a_pass_comes_with_its_code(parent: Parent) -> None:
    parent.say("next", 30)
    done = parent.ask(RunPass(1))
    assert isinstance(done, Done)
    assert done.next is not None


def test_the_meta_scheduler_gets_the_queues_to_disable_and_tells_where_it_is(parent: Parent) -> None:
    parent.say("at", "batch,night")
    assert parent.ask(RunPass(1, ("broken", "bad"))) == At(("batch", "night"))
    assert parent.hear() == Done(1, 0, None)
    assert parent.passes()[0].endswith("broken,bad")


def test_a_pass_that_breaks_off_gives_a_code_that_no_module_uses_and_a_trace_in_the_log(parent: Parent) -> None:
    parent.say("do", "raise")
    assert parent.ask(RunPass(1)) == Done(1, BROKEN, None)
    assert "RuntimeError: it broke" in parent.log()
    parent.say("do", "")
    assert parent.ask(RunPass(2)) == Done(2, 0, None)


def test_a_worker_goes_on_with_what_is_left_between_passes_and_still_answers(parent: Parent) -> None:
    parent.say("rest", "abc")
    assert parent.ask(RunPass(1)) == Done(1, 0, None)
    while "slice c" not in parent.noted():
        assert parent.ask(Ping()) == Pong()
    assert [line for line in parent.noted() if line.startswith("slice")] == ["slice a", "slice b", "slice c"]


def test_a_worker_survives_what_it_does_not_understand(parent: Parent) -> None:
    parent.tell(Hello("x", 1))
    assert parent.ask(Ping()) == Pong()


def test_a_worker_ends_when_it_is_told_to(parent: Parent) -> None:
    parent.tell(StopChild())
    assert parent.child.wait(60) == 0


def test_a_worker_that_has_grown_asks_to_be_replaced_and_goes_on(parent: Parent) -> None:
    (parent.directory / "oar.conf").write_text(f"LOG_FILE={parent.directory}/oar.log\nMODULE_MAX_MEMORY=0.0001\n")
    needed = [parent.ask(RunPass(number)) for number in range(1, SETTLING + 1)]
    assert needed == [Done(number, 0) for number in range(1, SETTLING + 1)]
    held = resident_bytes_of(parent.child.pid)
    parent.say("grow", 0.75 * held // 2**20)
    assert parent.ask(RunPass(4)) == Done(4, 0, None, Renewal.WHEN_IDLE)
    parent.say("grow", 2 * held // 2**20)
    assert parent.ask(RunPass(5)) == Done(5, 0, None, Renewal.NOW)
    assert parent.ask(Ping()) == Pong()
    parent.tell(StopChild())
    assert parent.child.wait(60) == 0


def test_a_worker_ends_on_a_signal(parent: Parent) -> None:
    parent.child.send_signal(signal.SIGTERM)
    assert parent.child.wait(60) == 0


def test_a_changed_configuration_is_read_before_the_next_pass(parent: Parent) -> None:
    parent.ask(RunPass(1))
    other = parent.directory / "other.log"
    (parent.directory / "oar.conf").write_text(f"LOG_FILE={other}\nLOG_LEVEL=3\n")
    parent.ask(RunPass(2))
    assert "the configuration was read again" in other.read_text()


def test_a_bad_configuration_changes_nothing(parent: Parent) -> None:
    (parent.directory / "oar.conf").write_text("LOG_LEVEL=much\n")
    assert parent.ask(RunPass(1)) == Done(1, 0, None)
    assert "the old values stay" in parent.log()


EFFECTS = (
    Wake(Tag.TERM),
    Ask(JobAction.TELL, 7, (OarsubLine.GOOD_JOB,)),
    Mail("Suspecting nodes", "node-1"),
    Notice(7, "sleeper", "alice", "mail:alice@site", "frontend", NoticeTag.END, "it ended", why="END"),
    Due(1930003200),
)


def pass_by_hand(directory: Path) -> "subprocess.Popen[str]":
    """Start a module that is run by hand and leaves all kinds of effects."""
    program = directory / "program.py"
    program.write_text(
        "import sys\nfrom oar.modules import worker\n"
        "from tests.process.test_worker import EFFECTS\n"
        "def run(runtime):\n    runtime.database.deliver(EFFECTS)\n    return 1\n"
        "sys.exit(worker.main('sarko', run))\n"
    )
    (directory / "oar.conf").write_text(f"LOG_FILE={directory}/oar.log\nOAR_RUN_DIR={directory}\n")
    environment = {**os.environ, "OARCONFFILE": str(directory / "oar.conf"), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, str(program)], env=environment, stderr=subprocess.PIPE, text=True)


def test_a_module_run_by_hand_delivers_all_its_effects_over_the_control_endpoint(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with (
        closing(sockets.Router(context, f"ipc://{tmp_path}/ipc/almighty.ipc")) as router,
        pass_by_hand(tmp_path) as child,
    ):
        poll, received = sockets.Poll(router), list[tuple[bytes, bytes]]()
        while len(received) <= len(announcements(EFFECTS)):
            assert poll.wait(60)
            received += router.receive()
        assert router.send(received[-1][0], frames.encode(Status()))
        assert (child.wait(60), child.stderr.read() if child.stderr else "") == (1, "")
    context.term()
    assert [frames.decode(data) for _, data in received] == [*announcements(EFFECTS), StatusQuestion()]


def test_a_module_run_by_hand_says_what_is_lost_without_a_server(tmp_path: Path) -> None:
    with pass_by_hand(tmp_path) as child:
        _, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "# Warning: cannot contact the OAR server" in errors
    assert "lost" not in errors  # mails and notices are stored
    assert losses([Energy(EnergyCommand.HALT, ("node-1",)), *EFFECTS]) == [
        "orders to halt or wake nodes that are lost, because the OAR server does not answer: 1"
    ]


def test_a_module_run_by_hand_makes_one_pass_and_refuses_other_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom oar.modules import worker\n"
        "def run(runtime):\n    print('ran')\n    return 1\n"
        "sys.exit(worker.main('sarko', run))\n"
    )
    (tmp_path / "oar.conf").write_text(f"LOG_FILE={tmp_path}/oar.log\n")
    environment = {**os.environ, "OARCONFFILE": str(tmp_path / "oar.conf")}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "ran\n")
    bad = subprocess.run(
        [sys.executable, str(program), "--what"], env=environment, capture_output=True, check=False, timeout=60
    )
    assert bad.returncode == 64
    environment["OARCONFFILE"] = str(tmp_path / "none.conf")
    none = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, check=False, timeout=60)
    assert none.returncode == 1
    assert b"none.conf" in none.stderr

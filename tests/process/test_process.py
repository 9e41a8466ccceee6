"""Children, deadlines, signals and systemd's datagrams, with real processes."""

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import IO

import pytest

from oar.lib.base import processes
from oar.lib.base.processes import ChildProcess, Lifeline, ParentWatch, PidFile, ServiceManager, is_ending
from tests.process.this_machine import is_alive, wait_until

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def ended(child: ChildProcess) -> int:
    wait_until(lambda: child.poll() is not None)
    code = child.poll()
    assert code is not None
    return code


# -- one command ------------------------------------------------------------------------------------------------------


def test_a_command_gives_its_code_and_what_it_wrote() -> None:
    outcome = processes.run(["sh", "-c", "cat; echo bad >&2; exit 3"], timeout=30, stdin=b"given\n")
    assert (outcome.code, outcome.timed_out, outcome.output) == (3, False, "given\nbad\n")
    assert not outcome.succeeded


def test_arguments_are_data() -> None:
    nasty = "a b'\"$(x);\n*"
    assert processes.run(["printf", "%s", nasty], timeout=30).output == nasty


def broken_off(script: str, has_begun: Path, grace: float = 0) -> processes.CommandOutcome:
    """Run a script that is too slow; with more time, if a busy machine did not come to its beginning."""
    seconds = 1.0
    while True:
        outcome = processes.run(["sh", "-c", script], timeout=seconds, grace=grace)
        if has_begun.exists() and has_begun.read_text().endswith("\n"):
            return outcome
        seconds *= 2


def test_a_command_that_is_too_slow_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    outcome = broken_off(f"sleep 1000 & echo $! $$ > {pids}; wait", pids)
    assert (outcome.code, outcome.timed_out) == (None, True)
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: not is_alive(int(pid)))  # type: ignore[misc]


def test_a_command_may_be_given_time_to_end_by_itself(tmp_path: Path) -> None:
    last, pids = tmp_path / "last", tmp_path / "pids"
    polite = f"trap 'echo bye > {last}; exit 0' TERM; sleep 1000 & echo $! > {pids}; wait"
    assert broken_off(polite, pids, grace=60).timed_out
    assert last.read_text() == "bye\n"
    wait_until(lambda: not is_alive(int(pids.read_text())))
    pids.unlink()
    stubborn = f"trap '' TERM; echo $$ > {pids}; while :; do sleep 0.1; done"
    assert broken_off(stubborn, pids, grace=0.2).timed_out
    wait_until(lambda: not is_alive(int(pids.read_text())))


def test_the_end_of_what_a_command_writes_is_kept() -> None:
    assert processes.run(["printf", "12345"], timeout=30, tail_bytes=3).output == "345"


def test_a_daemon_left_behind_does_not_hold_the_caller(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    outcome = processes.run(["sh", "-c", f"sleep 1000 & echo $! > {pid}; echo done"], timeout=30)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert (outcome.code, outcome.output) == (0, "done\n")


def test_a_command_that_is_not_there_is_an_outcome_too() -> None:
    outcome = processes.run(["/no/such/program"], timeout=30)
    assert outcome.code is None
    assert "cannot start /no/such/program" in outcome.output
    assert processes.run(["a\0b"], timeout=30).code is None


def test_a_killed_command_tells_its_signal() -> None:
    assert processes.run(["sh", "-c", "kill -9 $$"], timeout=30).code == -9
    assert processes.describe_exit(-9) == "signal SIGKILL"
    assert processes.describe_exit(2) == "exit code 2"


# -- long-lived children ----------------------------------------------------------------------------------------------


def test_the_last_lines_of_a_child_are_kept() -> None:
    child = ChildProcess(["sh", "-c", "seq 1 1000; echo why >&2; printf unfinished; exit 4"], environment=ENVIRONMENT)
    while not child.is_silent:
        select.select([child], [], [], 30)
        child.read()
    assert ended(child) == 4
    assert child.last_output().split("\n")[-3:] == ["1000", "why", "unfinished"]
    assert len(child.tail) == 20
    child.close()


def test_a_signal_reaches_the_whole_group() -> None:
    child = ChildProcess(["sh", "-c", "sleep 1000 & echo $!; wait"], environment=ENVIRONMENT)
    wait_until(lambda: len(child.read()) == 1)
    grandchild = int(child.tail[0])
    child.send_signal(signal.SIGKILL)
    assert ended(child) == -9
    wait_until(lambda: not is_alive(grandchild))
    child.send_signal(signal.SIGKILL)
    child.close()


def test_closing_a_child_leaves_no_process() -> None:
    child = ChildProcess(["sleep", "1000"], environment=ENVIRONMENT)
    child.close()
    assert not is_alive(child.pid)


def test_a_child_that_cannot_be_started_raises() -> None:
    try:
        ChildProcess(["/no/such/program"], environment=ENVIRONMENT)
    except FileNotFoundError:
        return
    raise AssertionError("it was started")


CHILD = """
import os, select, sys
from oar.lib.base import processes
watch = processes.watch_parent(os.environ)
print("up", flush=True)
select.select([watch], [], [], 60)
print("gone" if watch.is_gone() else "woken", flush=True)
"""


def test_a_child_notices_that_its_parent_has_closed_the_lifeline() -> None:
    lifeline = Lifeline()
    child = ChildProcess([sys.executable, "-c", CHILD], environment=os.environ, lifeline=lifeline)
    wait_until(lambda: "up" in child.read())
    lifeline.close()
    assert ended(child) == 0
    assert "gone" in child.last_output()
    child.close()


@pytest.mark.usefixtures("many_descriptors")
def test_a_child_with_many_descriptors_ends_after_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    ended_with: Queue[int] = Queue()
    monkeypatch.setattr(os, "_exit", ended_with.put)
    lifeline = Lifeline()
    with open(os.dup(lifeline.child_end), "rb") as child_end:
        ParentWatch(child_end.fileno()).limit_life(0)
        lifeline.close()
        assert ended_with.get(timeout=30) == 1


PARENT = f"""
import os, sys, time
from oar.lib.base.processes import ChildProcess, Lifeline
lifeline = Lifeline()
child = ChildProcess([sys.executable, "-c", {CHILD!r}], environment=os.environ, lifeline=lifeline)
while not child.tail:
    child.read()
    time.sleep(0.01)
print(child.pid, flush=True)
time.sleep(1000)
"""


def test_a_child_does_not_survive_the_sudden_death_of_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not is_alive(pid))


def test_a_process_started_by_hand_has_no_parent_to_follow() -> None:
    assert processes.watch_parent({}) is None
    assert processes.watch_parent({"OAR_LIFELINE": "99999"}) is None
    assert processes.watch_parent({"OAR_LIFELINE": "x"}) is None


# -- signals ----------------------------------------------------------------------------------------------------------


def test_signals_set_flags_and_wake_a_poll() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with processes.signals() as taken:
        assert not select.select([taken], [], [], 0)[0]
        os.kill(os.getpid(), signal.SIGHUP)
        assert select.select([taken], [], [], 30)[0]
        assert (taken.reload, taken.stop) == (True, False)
        taken.clear()
        assert not select.select([taken], [], [], 0)[0]
        os.kill(os.getpid(), signal.SIGTERM)
        assert select.select([taken], [], [], 30)[0]
        assert taken.stop
    assert signal.getsignal(signal.SIGTERM) is before


EXECUTED_AGAIN = """
import os, signal, sys
from oar.lib.base import processes
with processes.signals() as taken:
    if sys.argv[1:]:
        print(taken.stop, taken.reload)
    else:
        processes.hold_signals()
        for number in (signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        os.execv(sys.executable, [*sys.orig_argv, "again"])
"""


def test_signals_to_a_process_that_executes_its_program_again_are_not_lost() -> None:
    outcome = processes.run([sys.executable, "-c", EXECUTED_AGAIN], timeout=60)
    assert (outcome.code, outcome.output) == (0, "True True\n")


def test_the_end_of_a_child_wakes_a_poll() -> None:
    with processes.signals() as taken:
        child = ChildProcess(["true"], environment=ENVIRONMENT)
        assert select.select([taken], [], [], 30)[0]
        assert ended(child) == 0
        child.close()


# -- systemd ----------------------------------------------------------------------------------------------------------


def test_systemd_is_told_in_datagrams(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(30)
        manager = ServiceManager({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "60000000"})
        manager.ready()
        manager.status("two\nlines")
        manager.alive()
        manager.stopping()
        assert [systemd.recv(100) for _ in range(4)] == [b"READY=1", b"STATUS=two lines", b"WATCHDOG=1", b"STOPPING=1"]
        assert manager.watchdog_period == 30.0


def test_without_systemd_nothing_is_told() -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": "/no/such/socket", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    manager.ready()
    assert manager.watchdog_period is None
    ServiceManager({}).ready()


# -- the pid file -----------------------------------------------------------------------------------------------------


def test_a_killed_process_is_ending_before_it_is_gone() -> None:
    child = subprocess.Popen(["sleep", "60"])
    assert not is_ending(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    assert is_ending(child.pid)
    child.wait()
    assert is_ending(child.pid)


class Watched(PidFile):
    """A pid file that tells when somebody has asked for its holder."""

    asked = 0

    def holder(self) -> int | None:
        """Like the other."""
        self.asked += 1
        return super().holder()


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Watched]:
    """The pid file of a daemon that starts."""
    file = Watched(tmp_path / "pid")
    yield file
    file.release()


@contextmanager
def locked_by(pid: int, path: Path) -> Iterator[PidFile]:
    """Have the locked pid file of a daemon with this pid."""
    file = PidFile(path)
    assert file.lock()
    path.write_text(f"{pid}\n")
    yield file
    file.release()


def test_a_killed_daemon_whose_lock_is_still_there_is_awaited(tmp_path: Path, starting: Watched) -> None:
    child = subprocess.Popen(["sleep", "60"])
    with locked_by(child.pid, tmp_path / "pid") as former, ThreadPoolExecutor() as pool:
        assert not starting.lock()
        child.kill()
        child.wait()
        starting.asked = 0
        is_locked = pool.submit(starting.lock)
        wait_until(lambda: starting.asked > 1)
        assert not is_locked.done()
        former.release()
        assert is_locked.result()


def test_who_looks_whether_a_daemon_runs_does_not_keep_one_from_starting(tmp_path: Path, starting: Watched) -> None:
    with (tmp_path / "pid").open("w") as looking, ThreadPoolExecutor() as pool:
        fcntl.flock(looking, fcntl.LOCK_SH)  # as holder does for a moment
        is_locked = pool.submit(starting.lock)
        wait_until(lambda: is_locked.done() or starting.asked > 1)
        assert not is_locked.done()
        fcntl.flock(looking, fcntl.LOCK_UN)
        assert is_locked.result()


def test_the_lock_of_a_file_that_was_removed_meanwhile_is_none(
    tmp_path: Path, starting: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    with locked_by(os.getpid(), tmp_path / "pid") as former:

        def flock_late(file: IO[str], operation: int) -> None:
            monkeypatch.setattr(fcntl, "flock", flock)
            former.release()
            flock(file, operation)

        monkeypatch.setattr(fcntl, "flock", flock_late)
        assert starting.lock()
        assert PidFile(tmp_path / "pid").holder() == os.getpid()


def test_a_stranger_who_locks_the_file_of_a_killed_daemon_keeps_none_from_starting(
    tmp_path: Path, starting: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LEAVING_SECONDS", 0.0)
    path, child = tmp_path / "pid", subprocess.Popen(["true"])
    child.wait()
    path.write_text(f"{child.pid}\n")
    with path.open() as stranger:
        fcntl.flock(stranger, fcntl.LOCK_EX)  # who may read a file may lock it
        assert starting.lock()
        assert PidFile(path).holder() == os.getpid()

"""The locks of the programs on nodes: who goes first, and who does not wait for whom."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import node_base
import pytest

from tests.process.this_machine import wait_until

CODE = 17


def test_who_wants_a_user_alone_goes_before_those_who_share_him_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that begin and end all the time could otherwise keep a group of several jobs waiting for ever."""
    path, order, is_at_gate = str(tmp_path / "user.lock"), list[str](), Event()
    pass_gate = node_base.pass_gate

    def noted(path: str, seconds: float) -> bool:
        is_at_gate.set()
        return pass_gate(path, seconds)

    def take(name: str, *, alone: bool) -> None:
        with node_base.user_locked(path, CODE, alone):
            order.append(name)

    with ThreadPoolExecutor(2) as threads:
        with node_base.user_locked(path, CODE, alone=False):
            alone = threads.submit(take, "alone", alone=True)
            wait_until(lambda: not pass_gate(path, 0))
            monkeypatch.setattr(node_base, "pass_gate", noted)
            later = threads.submit(take, "later", alone=False)
            assert is_at_gate.wait(60)
        alone.result(60)
        later.result(60)
    assert order == ["alone", "later"]
    assert pass_gate(path, 0)


def test_a_gate_that_stays_closed_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "user.lock")
    monkeypatch.setattr(node_base, "GATE_SECONDS", 0)
    with node_base.locked(node_base.gate_path(path), CODE), node_base.user_locked(path, CODE, alone=False):
        pass


def test_programs_without_the_gate_exclude_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of release 3.2 hold the lock of a user alone, and do not look at the gate."""
    path = str(tmp_path / "user.lock")
    monkeypatch.setattr(node_base, "LOCK_SECONDS", 0)
    with node_base.locked(path, CODE):
        for alone in (True, False):
            with pytest.raises(node_base.NodeError, match=r"holds the lock .*user\.lock"):
                node_base.user_locked(path, CODE, alone).__enter__()
    assert node_base.pass_gate(path, 0)  # they have opened it again


def test_a_job_whose_user_is_busy_does_not_stop_those_of_others(tmp_path: Path) -> None:
    """The jobs 1 and 65 have the same lock file: who waits for the user of one does not hold it."""
    directory, is_waiting = str(tmp_path), Event()

    def enter() -> None:
        is_waiting.set()
        with node_base.job_locked(directory, "nobody.1", 1, CODE):
            pass

    with ThreadPoolExecutor(1) as threads:
        with node_base.user_locked(node_base.user_lock_path(directory, "nobody.1"), CODE, alone=True):
            waiting = threads.submit(enter)
            assert is_waiting.wait(60)
            with node_base.job_locked(directory, "nobody.2", 65, CODE):
                assert not waiting.done()
        waiting.result(60)

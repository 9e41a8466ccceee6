"""The last result of work that may take long: how long it is repeated."""

import threading
import time
from unittest.mock import Mock

import pytest

from oar.lib.base import latest
from oar.lib.base.latest import Latest
from tests.process.this_machine import wait_until


def fail() -> str:
    raise ValueError("no result")


@pytest.fixture
def figures() -> Latest[str]:
    """Return a Latest with the result "new"."""
    made = Latest("none", "figures")
    assert made.value(lambda: "new") == "none"
    wait_until(lambda: made._value == "new" and made._awaited is None)
    return made


def at(monkeypatch: pytest.MonkeyPatch, date: float) -> None:
    monkeypatch.setattr(latest, "time", Mock(monotonic=Mock(return_value=date)))


def test_a_result_holds_until_the_next_request_however_late_that_is(
    figures: Latest[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, time.monotonic() + 3600)
    assert figures.value(lambda: "newer") == "new"


def test_the_last_result_is_not_repeated_without_end_if_the_next_one_hangs(
    figures: Latest[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, may_end = time.monotonic(), threading.Event()

    def hang() -> str:
        may_end.wait()
        return "newer"

    at(monkeypatch, now)
    assert figures.value(hang) == "new"
    at(monkeypatch, now + latest.PATIENCE_SECONDS - 1)
    assert figures.value(hang) == "new"
    at(monkeypatch, now + latest.PATIENCE_SECONDS)
    assert figures.value(hang) == "none"
    may_end.set()
    wait_until(lambda: figures._awaited is None)
    assert figures.value(hang) == "newer"


def test_the_last_result_is_not_repeated_without_end_if_the_next_one_fails(
    figures: Latest[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = Mock()
    monkeypatch.setattr(threading, "excepthook", failures)
    now = time.monotonic()
    at(monkeypatch, now)
    assert figures.value(fail) == "new"
    wait_until(lambda: failures.call_count == 1)
    at(monkeypatch, now + latest.PATIENCE_SECONDS)
    assert figures.value(fail) == "none"
    wait_until(lambda: failures.call_count == 2)

"""Whether the server is well: oar/lib/rules/server_health.py."""

from typing import Any

import pytest

from oar.lib.rules.server_health import LATE_ROUND, LOST_ROUND, MANY_ACTIONS, ServerHealth, judged, surroundings

NOW = 1_900_000_000.0


def status(**changes: Any) -> dict[str, Any]:
    """Return the status of a server that is well, with changes."""
    well = {
        "ready": True,
        "start": NOW - 10_000,
        "modules": {
            "meta_sched": {"last_start": NOW - 20, "last_result": "nothing more to do"},
            "finaud": {"last_start": None, "last_result": None},
        },
        "runner": {"waiting": 3},
    }
    return well | changes


def rounds(seconds: float, result: str = "nothing more to do") -> dict[str, Any]:
    return {"meta_sched": {"last_start": NOW - seconds, "last_result": result}}


def test_a_server_that_is_well_says_so() -> None:
    found = judged(status(), NOW)
    assert (found.health, found.line) == (ServerHealth.OK, "OAR OK: the server is well")


@pytest.mark.parametrize(
    ("record", "health", "text"),
    [
        (None, ServerHealth.CRITICAL, "does not answer"),
        (status(ready=False), ServerHealth.WARNING, "is starting"),
        ({}, ServerHealth.WARNING, "is starting"),
        (status(modules=rounds(20, "failed")), ServerHealth.CRITICAL, "the last pass of meta_sched failed"),
        (status(modules=rounds(LATE_ROUND + 1)), ServerHealth.WARNING, "no round of the scheduler has begun for 301 s"),
        (
            status(modules=rounds(LOST_ROUND + 1)),
            ServerHealth.CRITICAL,
            "no round of the scheduler has begun for 901 s",
        ),
        (status(modules={}), ServerHealth.CRITICAL, "no round"),
        (status(runner={"waiting": MANY_ACTIONS + 1}), ServerHealth.WARNING, "1001 actions on jobs wait"),
    ],
)
def test_what_is_wrong_is_named(record: dict[str, Any] | None, health: ServerHealth, text: str) -> None:
    found = judged(record, NOW)
    assert found.health is health
    assert text in found.line
    assert found.line.startswith(f"OAR {health.name}: ")


def test_a_server_that_has_just_begun_has_time_for_its_first_round() -> None:
    assert judged(status(start=NOW - 5, modules={}), NOW).health is ServerHealth.OK


def test_the_worst_comes_first() -> None:
    found = judged(status(modules=rounds(20, "failed"), runner={"waiting": 9999}), NOW)
    assert found.line.startswith("OAR CRITICAL: the last pass of meta_sched failed; 9999 actions")


def test_a_database_that_does_not_answer_is_told_before_what_follows_from_it() -> None:
    failed = judged(status(modules=rounds(20, "failed")), NOW)
    line = failed.joined(surroundings("no such host", {"LOG_FILE": "no space is left there"})).line
    assert line == (
        "OAR CRITICAL: the database cannot be used: no such host; the last pass of meta_sched failed;"
        " the log cannot be written (LOG_FILE): no space is left there"
    )
    assert judged(status(), NOW).joined(surroundings("", {})).health is ServerHealth.OK


def test_a_file_that_a_reload_refuses_is_told() -> None:
    found = judged(status(), NOW).joined(surroundings("", {}, ["/etc/oar/oar.conf:3: SERVER_PORT: 'x' is not a port"]))
    assert found.line == (
        "OAR WARNING: the old configuration stays, and no start would succeed:"
        " /etc/oar/oar.conf:3: SERVER_PORT: 'x' is not a port"
    )

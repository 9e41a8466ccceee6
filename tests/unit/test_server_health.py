"""The health of the server: oar/lib/monitoring/health.py."""

from typing import Any

import pytest

from oar.lib.base.times import format_date
from oar.lib.jobs.ends import EndCode
from oar.lib.monitoring.health import (
    LATE_ACCOUNTING,
    LATE_ROUND,
    LOST_ROUND,
    MANY_ACTIONS,
    ServerHealth,
    Surroundings,
    judge_cluster,
    judge_status,
    judge_surroundings,
)
from oar.lib.monitoring.records import FailedLaunches, HealthFacts, QueueStatus, Refusals, ServerTask, UserHold

NOW = 1_900_000_000.0
#: A finding about a pass that failed.
FAILED = f"the last pass of meta_sched, begun at {format_date(int(NOW) - 20)}, failed. See LOG_FILE"


def status(**changes: Any) -> dict[str, Any]:
    """Return the status of a server that is well, with changes."""
    well = {
        "ready": True,
        "start": NOW - 10_000,
        "modules": {
            "meta_sched": {"last_start": NOW - 20, "last_result": "nothing more to do"},
            "finaud": {"last_start": None, "last_result": None, "period": None},
            "sarko": {"last_start": NOW - 20, "last_success": NOW - 20, "last_result": "nothing", "period": 30},
        },
        "runner": {"waiting": 3},
    }
    return well | changes


def rounds(seconds: float, result: str = "nothing more to do") -> dict[str, Any]:
    return {"meta_sched": {"last_start": NOW - seconds, "last_result": result}}


def late(name: str, seconds: float, period: float) -> dict[str, Any]:
    """Return modules of which one has not succeeded for some time, as if it hung."""
    return rounds(20) | {name: {"last_success": NOW - seconds, "last_result": "nothing", "period": period}}


def test_a_server_that_is_well_says_so() -> None:
    found = judge_status(status(), NOW)
    assert (found.health, found.line) == (ServerHealth.OK, "OAR OK: no problems found")


@pytest.mark.parametrize(
    ("record", "health", "text"),
    [
        (None, ServerHealth.CRITICAL, "the server runs and did not answer within 0 s. See LOG_FILE"),
        (status(ready=False), ServerHealth.WARNING, "is starting"),
        ({}, ServerHealth.WARNING, "is starting"),
        (status(ready=False, runner={"ready": True}), ServerHealth.WARNING, "the server cannot work"),
        (status(modules=rounds(20, "failed")), ServerHealth.CRITICAL, FAILED),
        (status(modules=rounds(LATE_ROUND + 1)), ServerHealth.WARNING, "no scheduling pass has begun for 301 s"),
        (
            status(modules=rounds(LOST_ROUND + 1)),
            ServerHealth.CRITICAL,
            "no scheduling pass has begun for 901 s",
        ),
        (status(modules={}), ServerHealth.CRITICAL, "no scheduling pass"),
        (status(ready=False, waits_for="waiting for the database at db:5432"), ServerHealth.WARNING, "at db:5432"),
        (status(runner={"ready": False}), ServerHealth.CRITICAL, "no job can start or end: the Runner does not work"),
        (status(modules=late("sarko", 301, 30)), ServerHealth.WARNING, "no pass of sarko has succeeded for 301 s"),
        (status(modules=late("sarko", 901, 30)), ServerHealth.CRITICAL, "no pass of sarko has succeeded for 901 s"),
        (status(modules=late("finaud", 3000, 300)), ServerHealth.WARNING, "no pass of finaud has succeeded"),
        (status(modules=late("finaud", 4000, 300)), ServerHealth.CRITICAL, "no pass of finaud has succeeded"),
        (
            status(last_round={"file_errors": ["cannot read the quotas: /etc/oar/quotas.json: Permission denied."]}),
            ServerHealth.WARNING,
            "OAR WARNING: cannot read the quotas: /etc/oar/quotas.json: Permission denied",
        ),
        (status(runner={"waiting": MANY_ACTIONS + 1}), ServerHealth.WARNING, "1001 actions on jobs wait"),
    ],
)
def test_what_is_wrong_is_named(record: dict[str, Any] | None, health: ServerHealth, text: str) -> None:
    found = judge_status(record, NOW)
    assert found.health is health
    assert text in found.line
    assert found.line.startswith(f"OAR {health.name}: ")


def test_a_server_that_has_just_begun_has_time_for_its_first_round() -> None:
    assert judge_status(status(start=NOW - 5, modules={}), NOW).health is ServerHealth.OK


def test_the_worst_comes_first() -> None:
    found = judge_status(status(modules=rounds(20, "failed"), runner={"waiting": 9999}), NOW)
    assert found.line.startswith(f"OAR CRITICAL: {FAILED}; 9999 actions")


def test_a_database_that_does_not_answer_is_told_before_what_follows_from_it() -> None:
    failed = judge_status(status(modules=rounds(20, "failed")), NOW)
    line = failed.joined(
        judge_surroundings(Surroundings("no such host", places={"LOG_FILE": "/l: no space is left on its file system"}))
    ).line
    assert line == (
        f"OAR CRITICAL: the database cannot be used: no such host; {FAILED};"
        " cannot write the log: LOG_FILE: /l: no space is left on its file system"
    )
    assert judge_status(status(), NOW).joined(judge_surroundings(Surroundings())).health is ServerHealth.OK


def test_a_file_that_a_reload_refuses_is_told() -> None:
    found = judge_surroundings(Surroundings(configuration=["/etc/oar/oar.conf:3: SERVER_PORT: 'x' is not a port"]))
    assert found.line == (
        "OAR WARNING: oar.conf has errors: /etc/oar/oar.conf:3: SERVER_PORT: 'x' is not a port: the server uses the"
        " former values and would not start again. Correct oar.conf before you restart it: oar-conf --check"
    )


# -- jobs -------------------------------------------------------------------------------------------------------------

REPAIR = "Correct SERVER_PROLOGUE_EXEC_FILE."
ON, OFF = QueueStatus("default", is_active=True), QueueStatus("night", is_active=False, author="root")
STOPPED = OFF._replace(author="")


@pytest.mark.parametrize(
    ("facts", "health", "text"),
    [
        (HealthFacts([ON]), ServerHealth.OK, ""),
        (
            HealthFacts([ON, OFF]),
            ServerHealth.WARNING,
            "OAR WARNING: jobs of stopped queues cannot start: night (by root). If the reason is gone, run:"
            " oarqueue --enable night",
        ),
        (
            HealthFacts([ON, STOPPED._replace(since=86400)]),
            ServerHealth.WARNING,
            f"night (by OAR after failures since {format_date(86400)}). Correct the error in LOG_FILE, then run:"
            " oarqueue --enable night",
        ),
        (
            HealthFacts([OFF]),
            ServerHealth.CRITICAL,
            "no job can start: all queues are stopped: night (by root). If the reason is gone, run: oarqueue"
            " --enable-all",
        ),
        (
            HealthFacts([STOPPED, STOPPED._replace(name="day")]),
            ServerHealth.CRITICAL,
            "all queues are stopped: night, day (by OAR after failures). Correct the error in LOG_FILE, then run:"
            " oarqueue --enable-all",
        ),
        (
            HealthFacts([QueueStatus("admin", is_active=True), OFF, STOPPED._replace(name="day")]),
            ServerHealth.CRITICAL,
            "OAR CRITICAL: no job of a user can start: only the queue admin is active, the others are stopped: night"
            " (by root) and day (by OAR after failures). Correct the error in LOG_FILE, then run: oarqueue --enable"
            " night --enable day",
        ),
        (
            HealthFacts([ON, *(OFF._replace(name=name) for name in "abcdefg")]),
            ServerHealth.WARNING,
            "a, b, c, d, e (by root) and 2 more (oarqueue). If",
        ),
        (HealthFacts([]), ServerHealth.CRITICAL, "no job can start: there is no queue. Add one: oarqueue --add"),
        (
            "the database: it is starting",
            ServerHealth.WARNING,
            "cannot check the jobs: the database: it is starting. Run",
        ),
        (HealthFacts([ON], resources=10, suspected=5), ServerHealth.OK, ""),
        (HealthFacts([ON], resources=10, suspected=6), ServerHealth.WARNING, "6 of 10 resources are Suspected"),
        (HealthFacts([ON], resources=4, suspected=4, lost_nodes=2), ServerHealth.CRITICAL, "no job can start: no node"),
        (HealthFacts([ON], refusals=Refusals(2, "no")), ServerHealth.OK, ""),
        (HealthFacts([ON], refusals=Refusals(3, "of bob:\n no")), ServerHealth.WARNING, "the last 3 submissions"),
        (
            HealthFacts([ON], refusals=Refusals(3, "a submission of bob: Not you.")),
            ServerHealth.WARNING,
            "the last one: a submission of bob: Not you. See LOG_FILE, or run the rules as a user: oaradmissionrules"
            " --test --as LOGIN -- -l nodes=1 date",
        ),
        (
            HealthFacts([ON], rule_errors=["admission rule 7 is not Python: line 1: invalid syntax"]),
            ServerHealth.CRITICAL,
            "no job can be submitted: admission rule 7 is not Python",
        ),
        (HealthFacts([ON], failed_launches=FailedLaunches(EndCode.PROLOGUE, 2)), ServerHealth.OK, ""),
        (HealthFacts([ON], launch_holds=["TAKTUK_CMD"]), ServerHealth.CRITICAL, "no job is started: TAKTUK_CMD"),
        (
            HealthFacts([ON], user_holds=[UserHold("bob", "the server prologue fails", REPAIR)]),
            ServerHealth.WARNING,
            f"launches of bob are held: the server prologue fails. {REPAIR}",
        ),
        (
            HealthFacts([ON], user_holds=[UserHold(user, "it fails", REPAIR) for user in ("bob", "anna", "bob")]),
            ServerHealth.WARNING,
            f"launches of bob and anna are held: it fails. {REPAIR}",
        ),
        (
            HealthFacts([ON], user_holds=[UserHold(user, "it fails", REPAIR) for user in "abcde"]),
            ServerHealth.WARNING,
            f"launches of a, b and 3 more users are held: it fails. {REPAIR}",
        ),
        (
            HealthFacts([ON], failed_launches=FailedLaunches(EndCode.PROLOGUE, 3)),
            ServerHealth.WARNING,
            "failed: PROLOGUE.",
        ),
    ],
)
def test_what_keeps_jobs_from_running_is_named(facts: HealthFacts | str, health: ServerHealth, text: str) -> None:
    report = judge_cluster(facts, NOW)
    assert report.health is health
    assert text in report.line


@pytest.mark.parametrize(
    ("last_run", "oldest", "health"),
    [
        (LATE_ACCOUNTING + 1, LATE_ACCOUNTING + 1, ServerHealth.WARNING),
        (LATE_ACCOUNTING + 1, 60, ServerHealth.OK),  # the job has just ended
        (60, LATE_ACCOUNTING + 1, ServerHealth.OK),  # the timer works
    ],
)
def test_accounting_that_stopped_is_reported_once_a_job_waits_for_it(
    last_run: int, oldest: int, health: ServerHealth
) -> None:
    successes = [(str(ServerTask.ACCOUNTING), int(NOW) - last_run)]
    facts = HealthFacts([ON], oldest_not_accounted=int(NOW) - oldest, successes=successes)
    assert judge_cluster(facts, NOW).health is health


def test_a_site_that_never_accounts_is_not_warned() -> None:
    assert judge_cluster(HealthFacts([ON], oldest_not_accounted=1), NOW).health is ServerHealth.OK


def test_a_lost_key_is_critical_and_a_stopped_timer_is_not() -> None:
    report = judge_surroundings(Surroundings(key="/var/lib/oar/.ssh/id_ed25519: ...", timers=["x.timer is stopped"]))
    assert report.line == (
        "OAR CRITICAL: no node can be reached: /var/lib/oar/.ssh/id_ed25519: ...; x.timer is stopped"
    )

"""What the site gives to rounds: files of quotas and weights, scripts, schedulers of its own."""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.reading.policy_files import NO_QUOTAS
from oar.lib.base.times import format_date
from oar.lib.bus.messages import Effect, Mail, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs import explanations
from oar.lib.jobs.states import JobPriority, JobState
from oar.lib.runtime import Runtime
from tests.builders import add_resources, execute_sql, state_of
from tests.db.test_meta_sched import NOW, at, job, submit

Make = Callable[..., MetaScheduler]


@pytest.fixture
def clocked(database: Database) -> Database:
    return at(database, NOW)


@pytest.fixture
def scheduler_with(clocked: Database, runtime: Runtime) -> Iterator[Make]:
    """Make a scheduler with other values of oar.conf."""
    made: list[MetaScheduler] = []

    def make(**keys: Any) -> MetaScheduler:
        made.append(MetaScheduler(Runtime(runtime.config.replace(**keys), clocked)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def policy(database: Database, name: str) -> None:
    with database.begin() as tx:
        tx.queues.update("default", policy=name)


def test_quotas_of_a_file_hold_and_a_bad_file_leaves_them_in_force(
    clocked: Database, scheduler_with: Make, sent: list[Effect], tmp_path: Path
) -> None:
    add_resources(clocked, nodes=1, cores=4)
    policy(clocked, "kamelot")
    file = tmp_path / "quotas.json"
    file.write_text('{"quotas": {"*,*,*,/": ["0.5*ALL", -1, -1]}}')
    scheduler = scheduler_with(quotas=True, quotas_conf_file=str(file))
    first, second = submit(clocked, "/resource_id=2"), submit(clocked, "/resource_id=1")
    scheduler.round()
    assert state_of(clocked, first) is JobState.TO_LAUNCH
    assert job(clocked, second, "scheduler_info") == "quota_exceeded:*,*,*,/=[3,2,1.00]>[2,-1,-1]"
    assert "(quota_exceeded:*,*,*,/" in job(clocked, second, "message")
    file.write_text('{"quotas": {\n"*,*,*,/": [100\n}}')
    scheduler.round()
    scheduler.round()
    assert state_of(clocked, second) is JobState.WAITING
    mails = [each for each in sent if isinstance(each, Mail)]
    assert len(mails) == 1
    assert "line 3" in mails[0].text


def test_who_asks_for_quotas_without_a_queue_that_obeys_them_is_told_once(
    clocked: Database, scheduler_with: Make, caplog: pytest.LogCaptureFixture
) -> None:
    execute_sql(clocked, "UPDATE queues SET scheduler_policy = 'oar_sched_gantt_with_timesharing'")
    scheduler = scheduler_with(quotas=True)
    scheduler.round()
    scheduler.round()
    assert [record.getMessage() for record in caplog.records] == [NO_QUOTAS]
    policy(clocked, "kamelot")
    caplog.clear()
    scheduler_with(quotas=True, quotas_conf_file="/dev/null").round()
    assert NO_QUOTAS not in caplog.text


def test_a_queue_that_weights_do_not_name_is_named_once(
    clocked: Database, scheduler_with: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "priority.yaml"
    file.write_text("queue_weight: 1\nqueue_coefs: {admin: 1, default: 0}\n")
    scheduler = scheduler_with(job_priority=JobPriority.MULTIFACTOR, priority_conf_file=str(file))
    scheduler.round()
    scheduler.round()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"the queue besteffort is not in queue_coefs of {file}: queue_weight has no effect on its jobs"]


def test_the_times_of_jobs_are_logged_and_written(
    clocked: Database, scheduler_with: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (resource,) = add_resources(clocked, nodes=1, cores=1)
    first = submit(clocked, name="fem", types=("idempotent",))
    second = submit(clocked, "/resource_id=2", after=[first])
    file = tmp_path / "times.yaml"
    caplog.set_level(logging.INFO)
    scheduler = scheduler_with(scheduler_log_job_scheduling_time=True, scheduler_job_scheduling_time_yaml=str(file))
    scheduler.round()
    scheduler.round()
    assert re.search(rf"^.*scheduling timing: job {first} scheduled in \d+\.\d{{3}} ms$", caplog.text, re.MULTILINE)
    one, two = yaml.safe_load_all(file.read_text())
    assert [each.pop("scheduling_time_ms") >= 0 for each in (*one, *two)] == [True] * 3
    with clocked.begin() as tx:
        moldable = tx.new_jobs.moldables_of_jobs([first])[first][0].id
    common = {"queue": "default", "user": "alice", "project": "default", "walltime": 3600}
    start = {"start_time": NOW, "moldable_id": moldable, "resources": [resource]}
    waiting = {"job_id": second, "dependencies": [first], **common}
    assert one == [{"job_id": first, "name": "fem", "types": ["idempotent"], **common, **start}, waiting]
    assert two == [waiting]


def test_a_file_of_times_that_cannot_be_written_stops_nothing(
    clocked: Database, scheduler_with: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_resources(clocked)
    number = submit(clocked)
    scheduler_with(scheduler_job_scheduling_time_yaml=str(tmp_path)).round()
    assert state_of(clocked, number) is JobState.TO_LAUNCH
    assert f"cannot write SCHEDULER_JOB_SCHEDULING_TIME_YAML {tmp_path}: Is a directory" in caplog.text


def test_the_file_of_weights_orders_the_jobs(clocked: Database, scheduler_with: Make, tmp_path: Path) -> None:
    add_resources(clocked, nodes=1, cores=1)
    policy(clocked, "kamelot")
    file = tmp_path / "priority.yaml"
    file.write_text("qos_weight: 1\n")
    submit(clocked)
    better = submit(clocked, types=("qos=1",))
    scheduler_with(job_priority=JobPriority.MULTIFACTOR, priority_conf_file=str(file)).round()
    assert state_of(clocked, better) is JobState.TO_LAUNCH


def test_tokens_are_counted_by_scripts(clocked: Database, scheduler_with: Make, tmp_path: Path) -> None:
    add_resources(clocked, nodes=2, cores=2)
    calls = tmp_path / "calls"
    script = tmp_path / "free"
    script.write_text(f"#!/bin/sh\necho $1 >> {calls}\necho 3\n")
    script.chmod(0o755)
    two, more = (submit(clocked, types=("token:matlab=2",)) for _ in range(2))
    scheduler_with(scheduler_token_scripts={"matlab": f"{script} matlab"}).round()
    assert state_of(clocked, two) is JobState.TO_LAUNCH
    assert job(clocked, more, "scheduler_info") == "no enough tokens: matlab (1 < 2)"
    assert calls.read_text() == "matlab\n"


def test_a_job_whose_token_has_no_script_any_more_is_told_so(
    clocked: Database, scheduler_with: Make, caplog: pytest.LogCaptureFixture
) -> None:
    add_resources(clocked)
    stuck, good = submit(clocked, types=("token:gone=1",)), submit(clocked)
    scheduler = scheduler_with()
    for _ in range(3):
        scheduler.round()
    assert state_of(clocked, good) is JobState.TO_LAUNCH
    assert "gone" not in caplog.text
    with clocked.snapshot() as tx:
        (told,) = explanations.explain(tx, [tx.jobs.get(stuck)], Config())
    assert told.sentence == "It needs tokens gone, which do not exist at this site."
    assert told.advice.solution.endswith(f"SCHEDULER_TOKEN_SCRIPTS; oardel {stuck} deletes the job.")


@pytest.mark.parametrize("body", ["exit 3", "echo many", "exec sleep 30"])
def test_a_token_script_that_fails_concerns_its_jobs_only(
    clocked: Database, scheduler_with: Make, tmp_path: Path, body: str
) -> None:
    add_resources(clocked)
    script = tmp_path / "free"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    stuck, good = submit(clocked, types=("token:x=1",)), submit(clocked)
    scheduler_with(scheduler_token_scripts={"x": str(script)}, scheduler_timeout=1).round()
    assert job(clocked, stuck, "scheduler_info") == "token value cannot be retrieved (x)"
    assert state_of(clocked, good) is JobState.TO_LAUNCH


def test_a_change_of_walltime_is_granted_and_the_round_plans_with_it(clocked: Database, scheduler_with: Make) -> None:
    add_resources(clocked, nodes=1, cores=1)
    first, second = submit(clocked), submit(clocked)
    scheduler = scheduler_with(walltime_change_enabled=True)
    scheduler.round()
    with clocked.begin() as tx:
        tx.jobs.move([first], JobState.RUNNING, list(JobState))
        tx.execute(
            "INSERT INTO walltime_change (job_id, pending, force, delay_next_jobs) VALUES (%s, 600, 'YES', 'YES')",
            (first,),
        )
    scheduler.round()
    with clocked.begin() as tx:
        rows = tx.rows("SELECT pending, granted, granted_with_force, granted_with_whole, force FROM walltime_change")
        events = tx.rows("SELECT type, description FROM event_logs WHERE job_id = %s", (first,))
        starts: dict[int, int] = dict(tx.rows("SELECT moldable_job_id, start_time FROM gantt_jobs_predictions"))
        moldable = tx.value("SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = %s", (second,))
    assert rows == [(0, 600, 600, 0, "NO")]
    text = "Walltime changed: 1:10:0 (granted: +0:10:0/pending: 0:0:0/force/delay next jobs)"
    assert ("WALLTIME_CHANGED", text) in events
    assert starts[moldable] == NOW + 3600 + 600 + 1


def test_a_round_tells_when_the_next_job_is_to_start(clocked: Database, scheduler_with: Make) -> None:
    add_resources(clocked, nodes=1, cores=3)
    scheduler = scheduler_with()
    scheduler.round()
    assert scheduler.next_start is None
    submit(clocked)
    for seconds in (500, 50):
        submit(clocked, types=(f"postpone={format_date(NOW + seconds)}",))
    scheduler.round()
    assert scheduler.next_start == NOW + 50


@pytest.mark.parametrize(
    ("types", "seconds"),
    [
        ([("expire", 40)], 41),
        ([("deadline", 3640)], 41),
        ([("expire", 90), ("deadline", 3640)], 41),
        ([("expire", 40), ("expire", 90)], 41),
        ([("deadline", 7300), ("expire", 3700)], 3701),
    ],
)
def test_a_round_tells_when_the_next_job_is_to_be_given_up(
    clocked: Database, scheduler_with: Make, types: list[tuple[str, int]], seconds: int
) -> None:
    submit(clocked, types=tuple(f"{name}={format_date(NOW + date)}" for name, date in types))
    scheduler = scheduler_with()
    scheduler.round()
    assert scheduler.next_start == NOW + seconds


def test_sarko_is_told_of_a_walltime_that_becomes_shorter(
    clocked: Database, scheduler_with: Make, sent: list[Effect]
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    number = submit(clocked)
    scheduler = scheduler_with(walltime_change_enabled=True)
    scheduler.round()
    with clocked.begin() as tx:
        tx.jobs.move([number], JobState.RUNNING, list(JobState))
        tx.execute("INSERT INTO walltime_change (job_id, pending) VALUES (%s, -600)", (number,))
    scheduler.round()
    assert Wake(Tag.VILLAINS) in sent


def test_an_inner_job_waits_for_a_container_on_hold(clocked: Database, scheduler_with: Make) -> None:
    add_resources(clocked, nodes=1, cores=2)
    container = submit(clocked, types=("container=c",), state=JobState.HOLD)
    by_name, by_number = submit(clocked, types=("inner=c",)), submit(clocked, types=(f"inner={container}",))
    nobody = submit(clocked, types=("inner=d",))
    scheduler_with().round()
    assert job(clocked, by_name, "state", "scheduler_info") == (
        "Waiting",
        "inner job: container c is not known yet",
    )
    assert state_of(clocked, by_number) is JobState.WAITING
    assert state_of(clocked, nobody) is JobState.ERROR


def test_scripts_of_tokens_are_asked_once_in_a_round_that_changes_a_walltime(
    clocked: Database, scheduler_with: Make, tmp_path: Path
) -> None:
    (resource, _) = add_resources(clocked, nodes=1, cores=2)
    calls, script = tmp_path / "calls", tmp_path / "free"
    script.write_text(f"#!/bin/sh\necho asked >> {calls}\necho 1\n")
    script.chmod(0o755)
    runs = submit(clocked, state=JobState.RUNNING, on=[resource])
    execute_sql(clocked, "INSERT INTO walltime_change (job_id, pending) VALUES (%s, 600)", runs)
    wants = submit(clocked, types=("token:lic=1",))
    scheduler_with(walltime_change_enabled=True, scheduler_token_scripts={"lic": str(script)}).round()
    assert state_of(clocked, wants) is JobState.TO_LAUNCH
    assert calls.read_text() == "asked\n"
    with clocked.begin() as tx:
        assert tx.value("SELECT granted FROM walltime_change") == 600

"""METRICS_FILE: what Prometheus is told without the API."""

import json
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from machines import roots
from room import cache

from oar.lib.base.formats import read_yaml
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.history.records import JobStateChange, Position
from oar.lib.history.sql_feed import News
from oar.lib.jobs.states import JobState, LaunchFault, QueueState
from oar.lib.jobs.states import JobState as J
from oar.lib.monitoring import replication
from oar.lib.monitoring.metrics import Happenings, rounds_of, server_families
from oar.lib.monitoring.prometheus_text import (
    ROUND_BOUNDS,
    WAIT_BOUNDS,
    Histogram,
    HistogramFamily,
    MetricFamily,
    document,
    family_lines,
)
from oar.lib.monitoring.records import ServerTask
from oar.lib.runtime import Runtime
from oar.modules import chronicle as chronicle_module
from oar.modules.chronicle import Chronicle, MetricsFile
from tests.builders import add_job, add_resources, execute_sql
from tests.db.reservation_rows import add_reservation
from tests.process.this_machine import wait_until
from tests.unit.sources import ROOT

MONITORING = ROOT / "setup" / "monitoring"
NOW = 1_900_000_130.0
STATUS = {
    "start": 1_900_000_000,
    "modules": {
        "meta_sched": {
            "pid": 9,
            "lane": "sched",
            "passes": 7,
            "failures": 1,
            "last_duration": 0.25,
            "period": 60.0,
            "last_success": 1_900_000_100,
        },
        "leon": {"pid": 10, "lane": "kill", "passes": 0, "failures": 0, "last_duration": 0, "period": None},
    },
    "runner": {"waiting": 3, "running": 2, "ready": False},
    "rounds": Histogram(ROUND_BOUNDS).record,
    "last_round": {
        "jobs": 12,
        "phases": {"read": 0.01, "plan": 0.5, "write": 0.02},
        "file_errors": ["cannot read the quotas: /etc/oar/quotas_conf.json: Permission denied."],
    },
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(metrics_file=str(tmp_path / "oar.prom"), oar_run_dir=str(tmp_path))


def written(config: Config) -> list[str]:
    return Path(config.metrics_file or "").read_text().splitlines()


@pytest.fixture
def chronicle(database: Database, config: Config, monkeypatch: pytest.MonkeyPatch) -> Chronicle:
    """Who writes the file at each look, and has no server to ask."""
    monkeypatch.setattr(chronicle_module, "PERIOD", 0.0)
    monkeypatch.setattr(chronicle_module, "PATIENCE", 0.0)
    made = Chronicle()
    made.follow(Runtime(config, database))
    made.go_on()
    return made


def test_a_postgresql_server_that_does_not_answer_does_not_delay_the_file(
    database: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = threading.Event()
    monkeypatch.setattr(replication, "read_hosts", lambda settings: may_answer.wait() and [])
    monkeypatch.setattr(chronicle_module, "PATIENCE", 0.0)
    several = Database(database.settings._replace(host=f"{database.settings.host} 127.0.0.1:1"))
    try:
        MetricsFile(config, config.metrics_file or "").look(several)
        assert any(line.startswith("oar_") for line in written(config))
    finally:
        may_answer.set()
        several.close()


def test_the_file_tells_the_present_and_what_has_happened(
    database: Database, chronicle: Chronicle, config: Config
) -> None:
    resources = add_resources(database)
    add_job(database)
    add_job(database, JobState.RUNNING, on=resources[:1])
    add_job(database, JobState.ERROR)
    with database.begin() as tx:
        tx.events.add(EventType.SUBMISSION_REFUSED, 0, "")
        tx.events.add(EventType.SUBMISSION_INVALID, 0, "")
    add_reservation(database, 12, state="w")
    add_reservation(database, 13, state="E", missing=[5, 6])
    add_reservation(database, 14, state="x", ended=5)
    chronicle.go_on()
    lines = written(config)
    assert [line for line in lines if line.startswith("oar_reservation")] == [
        'oar_reservations{state="E"} 1',
        'oar_reservations{state="w"} 1',
        "oar_reservation_missing_slots 2",
    ]
    assert 'oar_jobs{state="Waiting",queue="default"} 1' in lines
    assert 'oar_jobs{state="Running",queue="default"} 1' in lines
    assert 'oar_resources{type="default",state="busy"} 1' in lines
    assert 'oar_job_steps_total{step="submitted"} 3' in lines
    assert 'oar_job_steps_total{step="started"} 1' in lines
    assert 'oar_job_steps_total{step="refused"} 1' in lines
    assert 'oar_job_steps_total{step="invalid"} 1' in lines
    assert 'oar_job_wait_seconds_bucket{queue="default",le="+Inf"} 1' in lines
    assert "oar_job_launch_seconds_count 1" in lines
    assert [line for line in lines if re.fullmatch(r'oar_jobs_ended_total\{queue="default",cause="[A-Z_]+"\} 1', line)]
    assert 'oar_jobs_submitted_total{queue="default"} 3' in lines


def test_only_confirmed_holds_are_told_those_of_users_by_themselves(
    database: Database, chronicle: Chronicle, config: Config
) -> None:
    with database.begin() as tx:
        tx.launch_holds.hold(LaunchFault.ACCOUNT, "anna", "node-1", 0, "", is_confirmed=True)
        tx.launch_holds.hold(LaunchFault.HOME, "anna", "node-1", 0, "", is_confirmed=True)
        tx.launch_holds.hold(LaunchFault.HOME, "ben", "node-2", 0, "", is_confirmed=False)
    chronicle.go_on()
    assert {'oar_launch_holds{scope="all"} 0', 'oar_launch_holds{scope="user"} 1'} <= set(written(config))
    with database.begin() as tx:
        tx.launch_holds.hold(LaunchFault.PROLOGUE, "", "node-1", 0, "", is_confirmed=True)
    chronicle.go_on()
    assert 'oar_launch_holds{scope="all"} 1' in written(config)


def test_what_the_check_of_the_server_judges_is_told(database: Database, chronicle: Chronicle, config: Config) -> None:
    add_resources(database, nodes=1, state="Suspected")
    with database.begin() as tx:
        tx.queues.set_state(["default"], QueueState.NOT_ACTIVE)
        tx.launch_holds.hold(LaunchFault.CONFIGURATION, "", "", 0, "TAKTUK_CMD: no such program", is_confirmed=True)
        tx.figures.record_success(ServerTask.ACCOUNTING)
        tx.execute("UPDATE task_runs SET last_success = last_success - 100")
    launch = add_job(database, JobState.ERROR)
    execute_sql(database, "UPDATE job_ends SET code = 'PROLOGUE' WHERE job_id = %s", launch)
    chronicle.go_on()
    lines = written(config)
    assert 'oar_queue_active{queue="default"} 0' in lines
    assert 'oar_queue_active{queue="admin"} 1' in lines
    assert "oar_queues_stopped_by_oar 1" in lines
    assert {'oar_launch_holds{scope="all"} 1', 'oar_launch_holds{scope="user"} 0'} <= set(lines)
    assert 'oar_resources_suspected{type="default"} 2' in lines
    assert 'oar_launches_failed_total{cause="PROLOGUE"} 1' in lines
    assert 'oar_launches_failed_total{cause="NODE_SETUP"} 0' in lines
    (age,) = [line for line in lines if line.startswith('oar_task_success_age_seconds{task="accounting"}')]
    assert 100 <= float(age.rpartition(" ")[2]) < 200


def test_how_good_predictions_were_and_how_far_launches_are_is_told(
    database: Database, chronicle: Chronicle, config: Config
) -> None:
    resources = add_resources(database)
    job = add_job(database, JobState.RUNNING, on=resources[:1])
    with database.begin() as tx:
        (start,) = tx.jobs.select([job])
        sql = "INSERT INTO job_predictions (job_id, queue_name, first_date, first_start) VALUES (%s, 'default', 1, %s)"
        tx.execute(sql, (job, start.start_time - 100))
    launched = add_job(database, JobState.LAUNCHING, on=resources[1:2])
    execute_sql(
        database, "INSERT INTO job_runs (job_id, phase) VALUES (%s, 'NODES_OK') ON CONFLICT DO NOTHING", launched
    )
    chronicle.go_on()
    lines = written(config)
    assert 'oar_job_start_error_seconds_sum{queue="default"} 100' in lines
    assert [line for line in lines if line.startswith("oar_actions_pending{")]


def test_sessions_that_wait_for_a_lock_are_told(database: Database, chronicle: Chronicle, config: Config) -> None:
    def waits() -> bool:
        chronicle.go_on()
        return 'oar_database_sessions{state="waiting"} 1' in written(config)

    with database.begin() as tx:
        tx.execute("LOCK TABLE scheduler")
        waiter = threading.Thread(target=lock_scheduler_names, args=(database,))
        waiter.start()
        wait_until(waits)
    waiter.join()
    assert not waits()


def lock_scheduler_names(database: Database) -> None:
    execute_sql(database, "LOCK TABLE scheduler")


def test_the_file_is_replaced_as_a_whole_and_can_be_read_by_others(chronicle: Chronicle, config: Config) -> None:
    chronicle.go_on()
    path = Path(config.metrics_file or "")
    assert path.stat().st_mode & 0o777 == 0o644
    assert sorted(each.name for each in path.parent.glob("oar.prom*")) == ["oar.prom"]


def test_the_server_tells_its_modules() -> None:
    lines = document(map(family_lines, server_families(STATUS, NOW))).splitlines()
    assert 'oar_module_passes_total{module="meta_sched"} 7' in lines
    assert 'oar_module_failures_total{module="meta_sched"} 1' in lines
    assert 'oar_modules_up{module="meta_sched"} 1' in lines
    assert 'oar_module_last_duration_seconds{module="meta_sched"} 0.25' in lines
    assert 'oar_runner_actions{state="waiting"} 3' in lines
    assert 'oar_round_phase_seconds{phase="plan"} 0.5' in lines
    assert "oar_round_jobs 12" in lines
    assert "oar_policy_file_errors 1" in lines
    assert "oar_runner_ready 0" in lines
    assert 'oar_module_success_age_seconds{lane="sched",module="meta_sched"} 30' in lines
    assert 'oar_module_success_age_seconds{lane="kill",module="leon"} 130' in lines  # since the start of the server
    assert [line for line in lines if line.startswith("oar_module_period_seconds{")] == [
        'oar_module_period_seconds{lane="sched",module="meta_sched"} 60'
    ]
    assert 'oar_server_role{role="active"} 1' in lines
    assert list(server_families({}, NOW)) == []
    rounds = Histogram(ROUND_BOUNDS)
    rounds.add(0.3)
    (told,) = rounds_of({"rounds": json.loads(json.dumps(rounds.record))})
    assert told.lines() == HistogramFamily.of(told.name, told.help, rounds).lines()
    assert 'oar_round_seconds_bucket{le="0.5"} 1' in told.lines()
    assert rounds_of({}) == []


def test_labels_are_escaped_and_numbers_are_written_as_prometheus_reads_them() -> None:
    family = MetricFamily("x", "X.", ("a",), [(('q"\\\n',), float("inf")), (("b",), 2.0), (("c",), 0.5)])
    assert family_lines(family)[2:] == ['x{a="q\\"\\\\\\n"} +Inf', 'x{a="b"} 2', 'x{a="c"} 0.5']


def test_a_histogram_counts_each_job_in_all_classes_above_it() -> None:
    waits = HistogramFamily("w", "W.", WAIT_BOUNDS)
    for seconds in (5, 61, 10**9):
        waits.add(seconds)
    lines = waits.lines()
    assert tuple(lines[place] for place in (2, 3, 4, -3)) == (
        'w_bucket{le="10"} 1',
        'w_bucket{le="60"} 1',
        'w_bucket{le="300"} 2',
        'w_bucket{le="+Inf"} 3',
    )
    assert lines[-2:] == ["w_sum 1000000066", "w_count 3"]


def test_how_long_things_took_is_told_by_queue(database: Database) -> None:
    happenings = Happenings()
    resources = add_resources(database)
    runs = add_job(database, J.TERMINATED, on=resources[:1])
    stays = add_job(database, J.RUNNING, on=resources[1:2], queue="night")
    fails = add_job(database, J.ERROR, queue="night")
    with database.begin() as tx:
        for job, start, stop in ((runs, 1000, 1500), (stays, 1010, 0), (fails, 0, 1200)):
            tx.execute(
                "UPDATE jobs SET submission_time = 900, start_time = %s, stop_time = %s WHERE job_id = %s",
                (start, stop, job),
            )
        ways = {
            runs: (J.WAITING, J.TO_LAUNCH, J.LAUNCHING, J.RUNNING, J.FINISHING, J.TERMINATED),
            stays: (J.WAITING, J.TO_LAUNCH, J.LAUNCHING, J.RUNNING),
            fails: (J.WAITING, J.TO_LAUNCH, J.ERROR),
        }
        for job, way in ways.items():
            steps = [
                JobStateChange(0, job, state, former, 990 + 7 * place, "alice", "", "default", 0)
                for place, (former, state) in enumerate(pairwise(way))
            ]
            for step in steps:  # as the feed may tell them: each by itself
                happenings.count(tx, News([step], (), frozenset(), Position(0, 0)))
    told = {family.name: family.lines() for family in happenings.histograms()}
    assert 'oar_job_wait_seconds_sum{queue="default"} 100' in told["oar_job_wait_seconds"]
    assert 'oar_job_wait_seconds_sum{queue="night"} 110' in told["oar_job_wait_seconds"]
    assert told["oar_job_launch_seconds"][-2:] == ["oar_job_launch_seconds_sum 28", "oar_job_launch_seconds_count 2"]
    assert 'oar_job_run_seconds_sum{queue="default"} 500' in told["oar_job_run_seconds"]
    assert not [line for line in told["oar_job_run_seconds"] if "night" in line]  # one runs, the other never did


# -- dashboards and alert rules ---------------------------------------------------------------------------------------


def expressions() -> list[str]:
    """Return what dashboards and rules ask Prometheus."""
    found = []
    for path in MONITORING.glob("*.json"):
        found += [
            target["expr"] for panel in json.loads(path.read_text())["panels"] for target in panel.get("targets", [])
        ]
    rules: Any = read_yaml((MONITORING / "oar-alerts.yml").read_text())
    for group in rules["groups"]:
        found += [rule["expr"] for rule in group["rules"]]
    return found


def test_dashboards_and_rules_ask_for_numbers_that_are_written(chronicle: Chronicle, config: Config) -> None:
    told = {line.split()[2] for line in written(config) if line.startswith("# TYPE")}
    told |= {family.name for family in server_families(STATUS, NOW)} | {family.name for family in rounds_of(STATUS)}
    asked = {name for text in expressions() for name in re.findall(r"\boar_\w+", text)}
    assert len(expressions()) > 12
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} <= told


def test_there_are_two_dashboards_and_each_panel_has_a_place_of_its_own() -> None:
    paths = sorted(MONITORING.glob("*.json"))
    assert len(paths) == 2
    for path in paths:
        dashboard = json.loads(path.read_text())
        places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in dashboard["panels"]]
        assert dashboard["title"]
        assert dashboard["uid"]
        assert len(set(places)) == len(places)


@pytest.fixture(scope="session")
def promtool() -> str:
    """The program of Prometheus that checks files, as Debian has it; it is fetched once."""
    place = cache.kept("prometheus", lambda place: roots.unpack("bookworm", "prometheus", place))
    return str(place / "unpacked/usr/bin/promtool")


def test_promtool_accepts_the_rules_and_what_dashboards_ask(promtool: str, tmp_path: Path) -> None:
    rules = [{"record": f"asked:{number}", "expr": expr} for number, expr in enumerate(expressions())]
    asked = tmp_path / "asked.yml"
    asked.write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    words = [promtool, "check", "rules", "--lint=none", str(asked), str(MONITORING / "oar-alerts.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_promtool_accepts_the_numbers(
    promtool: str, database: Database, chronicle: Chronicle, config: Config, tmp_path: Path
) -> None:
    add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    chronicle.go_on()
    texts = [*map(family_lines, server_families(STATUS, NOW)), *(each.lines() for each in rounds_of(STATUS))]
    numbers = document([written(config), *texts])
    done = subprocess.run([promtool, "check", "metrics"], input=numbers, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


#: What a sick and a healthy server tell, minute by minute.
ILL = {
    'oar_launch_holds{scope="all"}': "1x60",
    'oar_launch_holds{scope="user"}': "3x60",
    "oar_runner_ready": "0x60",
    'oar_module_success_age_seconds{lane="kill",module="sarko"}': "1000x60",
    'oar_module_period_seconds{lane="kill",module="sarko"}': "30x60",
    'oar_queue_active{queue="default"}': "0x60",
    'oar_queue_active{queue="night"}': "0x60",
    'oar_queue_active{queue="admin"}': "1x60",  # it is not for ordinary users
    "oar_queues_stopped_by_oar": "2x60",
    'oar_job_steps_total{step="refused"}': "0+1x60",
    'oar_job_steps_total{step="submitted"}': "5x60",
    'oar_job_steps_total{step="started"}': "5x60",
    'oar_launches_failed_total{cause="PROLOGUE"}': "0+1x60",
    'oar_task_success_age_seconds{task="accounting"}': "20000x60",
    "oar_policy_file_errors": "1x60",
    'oar_resources_suspected{type="default"}': "20x60",
    'node_textfile_mtime_seconds{file="/var/oar.prom"}': "0x60",
    "oar_round_age_seconds": "600x60",
    'oar_module_failures_total{module="sarko"}': "0+1x60",
    'oar_resources{type="default",state="suspected"}': "20x60",
    'oar_resources{type="default",state="free"}': "80x60",
    'oar_jobs_ended_total{queue="default",cause="NODE_LOST"}': "0+1x60",
    'oar_jobs_ended_total{cause="SUCCESS"}': "0+1x60",
    'oar_runner_actions{state="waiting"}': "2000x60",
    'oar_database_sessions{state="waiting"}': "9x60",
}
WELL = {
    'oar_launch_holds{scope="all"}': "0x60",
    'oar_launch_holds{scope="user"}': "0x60",
    "oar_runner_ready": "1x60",
    'oar_module_success_age_seconds{lane="kill",module="sarko"}': "20x60",
    'oar_module_period_seconds{lane="kill",module="sarko"}': "30x60",
    'oar_module_success_age_seconds{lane="kill",module="leon"}': "5000x60",  # nothing was to be killed
    'oar_module_success_age_seconds{lane="check",module="finaud"}': "1000x60",
    'oar_module_period_seconds{lane="check",module="finaud"}': "300x60",
    'oar_queue_active{queue="default"}': "1x60",
    'oar_queue_active{queue="night"}': "1x60",
    "oar_queues_stopped_by_oar": "0x60",
    'oar_job_steps_total{step="refused"}': "0+1x60",
    'oar_job_steps_total{step="submitted"}': "0+1x60",
    'oar_job_steps_total{step="started"}': "0+1x60",
    'oar_launches_failed_total{cause="PROLOGUE"}': "0+1x60",
    'oar_task_success_age_seconds{task="accounting"}': "4000x60",
    'oar_task_success_age_seconds{task="purge"}': "90000x60",
    "oar_policy_file_errors": "0x60",
    'oar_resources_suspected{type="default"}': "1x60",
    'node_textfile_mtime_seconds{file="/var/oar.prom"}': "0+60x60",
    "oar_round_age_seconds": "3x60",
    'oar_module_failures_total{module="sarko"}': "1x60",
    'oar_resources{type="default",state="suspected"}': "1x60",
    'oar_resources{type="default",state="free"}': "99x60",
    'oar_jobs_ended_total{queue="default",cause="NODE_LOST"}': "0+1x60",
    'oar_jobs_ended_total{cause="SUCCESS"}': "0+50x60",
    'oar_runner_actions{state="waiting"}': "2x60",
    'oar_database_sessions{state="waiting"}': "0x60",
}


def alert_test(numbers: Mapping[str, str], ringing: Sequence[str]) -> dict[str, Any]:
    """Return what promtool tests: which alerts ring after three quarters of an hour."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in numbers.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "45m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in ringing],
            }
        ],
    }


def test_each_alert_rings_for_what_it_names_and_no_other(promtool: str, tmp_path: Path) -> None:
    test = tmp_path / "alerts.yml"
    rules: Any = read_yaml((MONITORING / "oar-alerts.yml").read_text())
    names = sorted(rule["alert"] for group in rules["groups"] for rule in group["rules"])
    tests = [alert_test(ILL, names), alert_test(WELL, [])]
    test.write_text(json.dumps({"rule_files": [str(MONITORING / "oar-alerts.yml")], "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(test)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

"""What jobs are told of their start is kept and compared with the truth."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oar.kao.rounds.writing import plan_writer
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.modules import kao_commands, prediction_errors
from tests.builders import move_job
from tests.db.test_meta_sched import ask, submit
from tests.db.test_oarstat_explain import NOW, Site
from tests.db.test_replay import configured

HOUR = 3600


@pytest.fixture
def site(database: Database) -> Iterator[Site]:
    made = Site(database, Config(job_resource_manager_property_db_field="cpuset"))
    yield made
    made.scheduler.close()


def row(site: Site, job_id: int) -> Any:
    found = ask(
        site.database,
        "SELECT queue_name, first_date, first_start, near_date, near_start, real_start FROM job_predictions"
        " WHERE job_id = %s",
        job_id,
    )
    return found[0] if found else None


def fill(site: Site) -> int:
    """Add a job that takes everything for two hours."""
    return submit(site.database, "/resource_id=2,walltime=2")


def end(site: Site, job_id: int) -> None:
    site.move(job_id, JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING, JobState.TERMINATED)


def test_what_a_job_is_told_first_and_when_its_start_is_near_is_kept_with_its_start(site: Site) -> None:
    first, second = fill(site), submit(site.database)
    site.round(NOW)
    foreseen = NOW + 2 * HOUR + 1
    assert row(site, second) == ("default", NOW, foreseen, 0, 0, 0)
    site.round(NOW + 60)
    assert row(site, second) == ("default", NOW, foreseen, 0, 0, 0)
    site.round(NOW + HOUR + 60)
    assert row(site, second) == ("default", NOW, foreseen, NOW + HOUR + 60, foreseen, 0)
    end(site, first)
    site.round(NOW + HOUR + 120)
    assert row(site, second) == ("default", NOW, foreseen, NOW + HOUR + 60, foreseen, NOW + HOUR + 120)
    assert row(site, first) is None


def test_a_cold_scheduler_goes_on_where_a_warm_one_was(site: Site) -> None:
    fill(site), submit(site.database)
    for date in (NOW, NOW + 10, NOW + HOUR + 60, NOW + HOUR + 70):
        site.round(date)
        site.scheduler._forget()
    rows = ask(site.database, "SELECT first_date, near_date FROM job_predictions")
    assert rows == [(NOW, NOW + HOUR + 60)]


def test_of_a_job_that_never_starts_nothing_is_kept(site: Site) -> None:
    fill(site)
    second = submit(site.database)
    site.round(NOW)
    move_job(site.database, second, JobState.ERROR)
    assert row(site, second) is None


def test_what_was_told_is_forgotten_after_a_while(site: Site) -> None:
    fill(site)
    with site.database.begin() as tx:
        tx.job_waits.store_first_predictions([])
        for number, age in ((1001, plan_writer.PREDICTION_RETENTION + 1), (1002, plan_writer.PREDICTION_RETENTION - 1)):
            tx.execute(
                "INSERT INTO job_predictions (job_id, first_date, first_start, real_start) VALUES (%s, 1, 1, %s)",
                (number, NOW - age),
            )
    site.round(NOW)
    assert (row(site, 1001) is None, row(site, 1002) is None) == (True, False)


# -------------------------------------------------------------------------------------------------------- what is shown


@pytest.fixture
def told(database: Database, settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Ten jobs that started 0, 10, ... 90 s later than foretold, one of another queue that started an hour early."""
    rows = [(number, "default", 10 * number) for number in range(10)] + [(10, "night", -HOUR)]
    with database.begin() as tx:
        for number, queue, error in rows:
            tx.execute(
                "INSERT INTO job_predictions VALUES (%s, %s, %s, %s, 0, 0, %s)",
                (number + 1, queue, tx.now - 9000, tx.now - 5000, tx.now - 5000 + error),
            )
        tx.execute("UPDATE job_predictions SET near_date = 1, near_start = real_start WHERE job_id = 3")
        tx.execute("INSERT INTO job_predictions VALUES (100, 'default', 1, 1, 0, 0, 0)")
    monkeypatch.setenv("OARCONFFILE", str(configured(settings, tmp_path)))
    return database


def test_the_median_and_nine_of_ten_are_shown_for_each_queue_and_for_all(told: Database) -> None:
    with told.snapshot() as tx:
        lines = prediction_errors.errors_by_queue(tx, tx.now - 86400)
    found = {(line.horizon, line.errors.queue): tuple(line.errors)[1:] for line in lines}
    assert found == {
        ("at first", "default"): (10, 40, 80, 9, 80),
        ("at first", "night"): (1, 3600, 3600, 0, -3600),
        ("at first", None): (11, 50, 90, 9, 80),
        ("within 1 h", "default"): (1, 0, 0, 0, 0),
        ("within 1 h", None): (1, 0, 0, 0, 0),
    }


def test_kao_honesty_prints_a_table(told: Database, capsys: Any) -> None:
    assert kao_commands.main(["honesty"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "queue"
    assert [line.split() for line in lines[1:3]] == [
        ["default", "at", "first", "10", "0:0:40", "0:1:20", "9", "0:1:20"],
        ["night", "at", "first", "1", "1:0:0", "1:0:0", "0", "not", "late"],
    ]
    assert lines[3].split()[0] == "all"


def test_kao_honesty_speaks_to_programs(told: Database, capsys: Any) -> None:
    assert kao_commands.main(["honesty", "-J", "--days", "1"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert first == {
        "foretold": "at first",
        "queue": "default",
        "jobs": 10,
        "half": 40,
        "most": 80,
        "late": 9,
        "most_late": 80,
    }
    assert kao_commands.main(["honesty", "--yaml"]) == 0
    assert "queue: default" in capsys.readouterr().out


def test_where_nobody_had_to_wait_that_is_said() -> None:
    assert prediction_errors.table([], 7) == "No job that had to wait has started in the last 7 days.\n"

"""Programs of the site that plan a queue: real small ones, good and bad."""

import logging
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.site import scheduler_programs
from oar.lib.base.times import format_date
from oar.lib.bus.exit_codes import MetaSchedCode
from oar.lib.bus.messages import Ask, Effect, JobAction, Mail
from oar.lib.db.database import Database
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, JobType, QueueState
from oar.lib.runtime import Runtime
from tests.builders import add_resources, execute_sql, state_of
from tests.db.test_meta_sched import NOW, ask, at, held, job, submit, tables
from tests.documents import SOURCE, named_blocks

#: What a program of a site begins with: it finds the database by oar.conf, and its queue in its arguments.
STOPPED = "The queue default is stopped. Correct the scheduler, then run: oarqueue --enable default"
HEADER = """\
    #!{python}
    import os, psycopg2, sys
    queue, now, date = sys.argv[1:]
    now = int(now)
    keys = dict(line.strip().split("=", 1) for line in open(os.environ["OARCONFFILE"]) if "=" in line)
    keys = {{name: value.strip('"') for name, value in keys.items()}}
    database = psycopg2.connect(host=keys["DB_HOSTNAME"], port=keys["DB_PORT"], dbname=keys["DB_BASE_NAME"],
                                user=keys["DB_BASE_LOGIN"], password=keys["DB_BASE_PASSWD"])
    database.autocommit = True
    cursor = database.cursor()
    def rows(text, *values):
        cursor.execute(text, values)
        return cursor.fetchall()
    def place(moldable, start, *resources):
        cursor.execute("INSERT INTO gantt_jobs_predictions VALUES (%s, %s)", (moldable, start))
        for each in resources:
            cursor.execute("INSERT INTO gantt_jobs_resources VALUES (%s, %s)", (moldable, each))
    jobs = rows("SELECT job_id, moldable_id FROM jobs JOIN moldable_job_descriptions ON moldable_job_id = job_id"
                " WHERE state = 'Waiting' AND queue_name = %s ORDER BY job_id", queue)
"""


class Site:
    """A site with programs of its own for the queue ``default``."""

    def __init__(self, database: Database, runtime: Runtime, directory: Path) -> None:
        self.database = database
        self.directory = directory
        self._runtime = runtime
        self._made: list[MetaScheduler] = []
        settings = database.settings
        self.conf_file = directory / "oar.conf"
        self.conf_file.write_text(
            f'DB_HOSTNAME="{settings.host}"\nDB_PORT="{settings.port}"\nDB_BASE_NAME="{settings.name}"\n'
            f'DB_BASE_LOGIN="{settings.user}"\nDB_BASE_PASSWD="{settings.password}"\n'
        )
        (directory / "schedulers").mkdir()

    def program(self, body: str, name: str = "mine", queue: str = "default", header: str = HEADER) -> None:
        """Write a program, and give it a queue."""
        path = self.directory / "schedulers" / name
        path.write_text(textwrap.dedent(header).format(python=sys.executable) + textwrap.dedent(body))
        path.chmod(0o755)
        self.policy(name, queue)

    def shell(self, body: str) -> None:
        self.program(body, header="#!/bin/sh\n")

    def policy(self, name: str, queue: str = "default") -> None:
        with self.database.begin() as tx:
            tx.queues.update(queue, policy=name)

    def scheduler(self, **keys: Any) -> MetaScheduler:
        config = self._runtime.config.replace(**keys)
        runtime = Runtime(config, self.database, str(self.conf_file), str(self.directory))
        self._made.append(MetaScheduler(runtime))
        return self._made[-1]

    def close(self) -> None:
        for each in self._made:
            each.close()


@pytest.fixture
def site(database: Database, runtime: Runtime, tmp_path: Path) -> Iterator[Site]:
    made = Site(at(database, NOW), runtime, tmp_path)
    yield made
    made.close()


def reason(site: Site, number: int) -> tuple[str, str]:
    return ask(site.database, "SELECT code, reason FROM job_reasons WHERE job_id = %s", number)[0]


def test_a_program_gives_jobs_their_places_behind_all_that_was_decided_before(
    site: Site, sent: list[Effect], caplog: pytest.LogCaptureFixture
) -> None:
    ids = add_resources(site.database, nodes=1, cores=4)
    with site.database.begin() as tx:
        tx.queues.insert(Queue("low", 1, "default", QueueState.ACTIVE))
    runs = submit(site.database, state=JobState.RUNNING, on=ids[:1])
    urgent = submit(site.database, queue="admin")
    first, second = submit(site.database), submit(site.database)
    behind = submit(site.database, "/resource_id=4", queue="low")
    site.program("""
        taken = {row[0] for row in rows("SELECT resource_id FROM gantt_jobs_resources")}
        free = [row[0] for row in rows("SELECT resource_id FROM resources ORDER BY 1 DESC") if row[0] not in taken]
        place(jobs[0][1], now, free[0])
        place(jobs[1][1], now + 5000, free[1])
        print("planned", queue, now, date, os.environ["OARDIR"] + os.environ["PATH"][:4])
        print("environment", " ".join(sorted(os.environ)))
        assert sys.stdin.read() == ""
    """)
    caplog.set_level(logging.INFO)
    assert site.scheduler().round() == MetaSchedCode.DONE
    assert held(site.database, urgent) == ids[1:2]
    assert state_of(site.database, first) is JobState.TO_LAUNCH
    assert held(site.database, first) == ids[3:]
    assert Ask(JobAction.RUN, first) in sent
    assert reason(site, second) == ("EXTERNAL", f"foreseen for {format_date(NOW + 5000)} (scheduler mine)")
    assert job(site.database, second, "message").startswith("R=1,W=1:0:0,J=B (foreseen for ")
    starts = dict(ask(site.database, "SELECT moldable_job_id, start_time FROM gantt_jobs_predictions"))
    moldable = ask(
        site.database, "SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = %s", behind
    )
    assert starts[moldable[0][0]] == NOW + 5000 + 3601
    stored = tables(site.database)
    assert (stored["predictions"], stored["resources"]) == (stored["predictions_visu"], stored["resources_visu"])
    said = [record.getMessage() for record in caplog.records if "Read on" in record.getMessage()]
    assert said[0] == (f"Read on the scheduler output:planned default {NOW} {format_date(NOW)} {site.directory}/usr")
    seen = set(said[1].partition(":environment ")[2].split())
    assert seen - {"LC_CTYPE"} == {"OARCONFFILE", "OARDIR", "PATH"}  # Python adds that one itself
    assert state_of(site.database, runs) is JobState.RUNNING


def test_a_line_of_the_output_starts_a_job_at_once_where_that_is_allowed(site: Site) -> None:
    ids = add_resources(site.database, nodes=1, cores=2)
    number = submit(site.database)
    site.program(f"""
        print("SCHEDRUN JOB_ID=%d MOLDABLE_JOB_ID=%d RESOURCES={ids[0]},{ids[1]}" % jobs[0])
        print("SCHEDRUN JOB_ID=999999 MOLDABLE_JOB_ID=1 RESOURCES=1")
    """)
    site.scheduler(scheduler_launcher_optimization=False).round()
    assert reason(site, number) == ("EXTERNAL", "has no place yet (scheduler mine)")
    site.scheduler().round()
    assert held(site.database, number) == ids


@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        ("place(jobs[0][1], now - 1, free)", f"it begins at {NOW - 1}, before {NOW}"),
        ("place(jobs[0][1], now, busy)", "the resources {busy} are not free"),
        ("place(jobs[0][1], now + 1800, busy)", "the resources {busy} are not free"),
        ("place(jobs[0][1], now, dead)", "the resources {dead} cannot be used"),
        ("place(jobs[0][1], now)", "it has no resources"),
        ("place(jobs[0][1], now, 123456)", "there is no resource 123456"),
        ("print(f'SCHEDRUN JOB_ID={jobs[0][0]} MOLDABLE_JOB_ID={jobs[0][1]} RESOURCES={busy}')",
         "the resources {busy} are not free"),
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_is_deleted_and_the_job_told(site: Site, body: str, trouble: str) -> None:
    free, busy, dead = add_resources(site.database, nodes=1, cores=3)
    execute_sql(site.database, "UPDATE resources SET state = 'Dead' WHERE resource_id = %s", dead)
    submit(site.database, state=JobState.RUNNING, on=[busy])
    number = submit(site.database)
    site.program(f"free, busy, dead = {free}, {busy}, {dead}\n{body}\n")
    assert site.scheduler().round() == MetaSchedCode.DONE
    assert reason(site, number) == ("EXTERNAL", "rejected placement: " + trouble.format(busy=busy, dead=dead))
    assert job(site.database, number, "state", "scheduler_info")[0] == "Waiting"
    assert job(site.database, number, "scheduler_info").startswith("rejected placement: ")
    mine = ask(
        site.database,
        "SELECT count(*) FROM gantt_jobs_predictions p JOIN moldable_job_descriptions m"
        " ON m.moldable_id = p.moldable_job_id WHERE m.moldable_job_id = %s",
        number,
    )
    assert mine == [(0,)]


def test_places_of_jobs_that_are_not_its_own_are_put_right(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    ids = add_resources(site.database, nodes=1, cores=3)
    runs = submit(site.database, state=JobState.RUNNING, on=ids[:1])
    other = submit(site.database, queue="besteffort", types=("besteffort",))
    mine = submit(site.database)
    before = ask(site.database, "SELECT assigned_moldable_job FROM jobs WHERE job_id = %s", runs)[0][0]
    site.program(f"""
        cursor.execute("DELETE FROM gantt_jobs_predictions WHERE moldable_job_id = {before}")
        cursor.execute("DELETE FROM gantt_jobs_resources WHERE moldable_job_id = {before}")
        other = rows("SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = {other}")[0][0]
        place(other, now, {ids[1]})
        place(jobs[0][1], now, {ids[2]})
    """)
    site.scheduler().round()
    assert held(site.database, mine) == ids[2:]
    assert held(site.database, other) == ids[1:2]  # where the planner has put it
    stored = ask(site.database, "SELECT moldable_job_id, resource_id FROM gantt_jobs_resources ORDER BY 2")
    assert (before, ids[0]) in stored
    assert "it belongs to no waiting job of queue default" in caplog.text


def test_jobs_that_a_program_gives_up_end_in_error_and_whoever_waits_is_told(site: Site, sent: list[Effect]) -> None:
    add_resources(site.database)
    bad = submit(site.database, job_type=JobType.INTERACTIVE, info_type="frontend:4242")
    good = submit(site.database)
    site.program("""
        cursor.execute("UPDATE jobs SET state = 'toError', message = 'not here' WHERE job_id = %s", (jobs[0][0],))
        place(jobs[1][1], now, rows("SELECT min(resource_id) FROM resources")[0][0])
        sys.exit(1)
    """)
    assert site.scheduler().round() == MetaSchedCode.DONE
    assert job(site.database, bad, "state", "message") == ("Error", "not here")
    assert Ask(JobAction.TELL, bad, ("not here", "BAD JOB")) in sent
    assert state_of(site.database, good) is JobState.TO_LAUNCH


def test_a_program_that_says_it_gave_up_jobs_and_did_not_is_suspected(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    add_resources(site.database)
    submit(site.database)
    site.shell("exit 1")
    site.scheduler().round()
    assert "scheduler mine ended with 1 and gave up no job: it may have failed" in caplog.text


def test_what_a_program_says_about_a_job_stays_until_it_says_something_else(site: Site) -> None:
    add_resources(site.database)
    number, silent = submit(site.database), submit(site.database)
    site.program("""
        if rows("SELECT message FROM jobs WHERE job_id = %s", jobs[0][0]) != [("later",)]:
            cursor.execute("UPDATE jobs SET message = 'later', scheduler_info = 'I do not like it' WHERE job_id = %s",
                           (jobs[0][0],))
    """)
    scheduler = site.scheduler()
    for _ in range(3):
        scheduler.round()
        assert job(site.database, number, "message", "scheduler_info") == ("later", "I do not like it")
        assert reason(site, number) == ("EXTERNAL", "I do not like it")
        assert reason(site, silent) == ("EXTERNAL", "has no place yet (scheduler mine)")


def test_besteffort_jobs_of_its_queue_come_after_all_others(site: Site) -> None:
    ids = add_resources(site.database, nodes=1, cores=2)
    with site.database.begin() as tx:
        tx.queues.insert(Queue("low", 0, "default", QueueState.ACTIVE))
    fill = submit(site.database, types=("besteffort",))
    low = submit(site.database, queue="low")
    site.program("""
        taken = {row[0] for row in rows("SELECT resource_id FROM gantt_jobs_resources")}
        free = [row[0] for row in rows("SELECT resource_id FROM resources ORDER BY 1") if row[0] not in taken]
        place(jobs[0][1], now, free[0])
    """)
    site.scheduler().round()
    assert (held(site.database, low), held(site.database, fill)) == (ids[:1], ids[1:])


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are given a second."""
    monkeypatch.setattr(scheduler_programs, "PATIENCE", 0)
    monkeypatch.setattr(scheduler_programs, "LEAST_SECONDS", 1.0)
    monkeypatch.setattr(scheduler_programs, "GRACE", 0.2)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        ("exit 3", "Scheduler mine returned a bad value: 3, at time {now}"),
        ("kill -9 $$", "Execution of mine failed (signal=9)"),
        ("trap '' TERM; sleep 600 & wait", "Execution of mine failed (signal=15: no end within 1 s)"),
    ],
)
def test_a_program_that_fails_too_often_loses_its_queue_and_the_others_go_on(
    site: Site, body: str, trouble: str, sent: list[Effect], caplog: pytest.LogCaptureFixture
) -> None:
    add_resources(site.database, nodes=2)
    site.shell(body)
    number = submit(site.database)
    scheduler = site.scheduler(external_scheduler_max_failures=2)
    urgent = submit(site.database, queue="admin")
    scheduler.round()
    trouble = trouble.format(now=NOW)
    assert state_of(site.database, urgent) is JobState.TO_LAUNCH
    assert reason(site, number) == ("EXTERNAL", "the scheduler mine failed, see the log")
    assert f"{trouble}. Failure 1 of 2 in a row; queue default waits" in caplog.text
    assert not any(isinstance(each, Mail) for each in sent)
    scheduler.round()
    text = f"{trouble}. {STOPPED}"
    assert Mail("Queue default stopped", text) in sent
    assert ask(site.database, "SELECT state FROM queues WHERE queue_name = 'default'") == [("notActive",)]
    scheduler.round()
    assert "queue default is not active" in job(site.database, number, "message")


def test_a_success_in_between_forgives_failures(site: Site, tmp_path: Path) -> None:
    add_resources(site.database)
    submit(site.database)
    scheduler = site.scheduler(external_scheduler_max_failures=2)
    for body in ("exit 7", "exit 0", "exit 7"):
        site.shell(body)
        scheduler.round()
    assert ask(site.database, "SELECT state FROM queues WHERE queue_name = 'default'") == [("Active",)]


@pytest.mark.parametrize("name", ["nowhere", "../../bin/true", ".hidden", "a b"])
def test_a_name_that_is_no_program_stops_the_queue(site: Site, name: str, sent: list[Effect]) -> None:
    add_resources(site.database)
    submit(site.database)
    site.policy(name)
    site.scheduler(external_scheduler_max_failures=1).round()
    mails = [each for each in sent if isinstance(each, Mail)]
    assert mails[0].text.startswith(f"Execution of {name} failed (")
    assert mails[0].text.endswith(f". {STOPPED}")


def test_a_program_replaces_a_policy_of_ours_where_schedulers_are_external(site: Site) -> None:
    ids = add_resources(site.database, nodes=1, cores=2)
    number, urgent = submit(site.database), submit(site.database, queue="admin")
    site.program("place(jobs[0][1], now, rows('SELECT max(resource_id) FROM resources')[0][0])", name="kamelot_fifo")
    with site.database.begin() as tx:
        tx.queues.update("default", policy="kamelot_fifo")
    site.scheduler(metascheduler_mode="external").round()
    assert (held(site.database, number), held(site.database, urgent)) == (ids[1:], ids[:1])


def test_no_program_is_called_while_nothing_is_planned_at_all(site: Site, tmp_path: Path) -> None:
    add_resources(site.database)
    add_resources(site.database, nodes=1, cores=1, type="licence", state="Suspected")
    site.shell(f"touch {tmp_path}/called")
    number = submit(site.database)
    site.scheduler(scheduler_resources_always_assigned_type="licence").round()
    assert reason(site, number)[0] == "NOT_ALIVE"
    assert not (tmp_path / "called").exists()


def test_a_queue_without_waiting_job_calls_nothing(site: Site, tmp_path: Path) -> None:
    add_resources(site.database)
    site.shell(f"touch {tmp_path}/called")
    site.scheduler().round()
    assert not (tmp_path / "called").exists()


def test_the_scheduler_of_the_document_draws_lots(site: Site) -> None:
    program = named_blocks(SOURCE / "docs" / "scheduler.rst")["scheduler"]
    program = program.replace("/usr/lib/oar/venv/bin/python", sys.executable)
    ids = add_resources(site.database, nodes=1, cores=3)
    jobs = [submit(site.database, "/resource_id=2") for _ in range(3)]
    runs = submit(site.database, state=JobState.RUNNING, on=ids[:1])
    path = site.directory / "schedulers" / "lottery"
    path.write_text(program)
    path.chmod(0o755)
    site.policy("lottery")
    site.scheduler().round()
    started = [number for number in jobs if state_of(site.database, number) is JobState.TO_LAUNCH]
    assert len(started) == 1
    assert held(site.database, started[0]) == ids[1:]
    assert held(site.database, runs) == ids[:1]
    assert {reason(site, number)[0] for number in jobs if number not in started} == {"EXTERNAL"}

"""Several questions about the same things are one statement, with the same answers as one after the other."""

import pytest

from oar.lib.db.database import Database
from oar.lib.db.sql import statements
from oar.lib.db.sql.statements import psycopg2
from oar.lib.facts.states import JobState
from oar.lib.views.jobs import job_view, job_views
from oar.lib.views.privacy import Privacy
from tests.builders import add_job, add_resources


def test_the_answers_together_are_those_of_each(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    resources = add_resources(database)
    ids = [
        add_job(database, JobState.RUNNING, on=resources[:2], types=("deploy", "x=ünï\"'%s")),
        add_job(database, JobState.TERMINATED, on=resources[2:3], name="a\tb\\"),
        add_job(database, JobState.HOLD),
    ]
    with database.begin() as tx:
        tx.events.add("OUTPUT_FILES", ids[0], 'a text with "quotes" and 100 %', hosts=("node-2", "node-1"))
    with database.snapshot() as tx:
        together = job_views(tx, tx.jobs.select(ids), Privacy(None))
        alone = [job_view(tx, job_id, Privacy(None)) for job_id in ids]
        monkeypatch.setattr(statements, "_TOGETHER", 0)
        as_range = job_views(tx, tx.jobs.select(ids), Privacy(None))
        without_the_second = job_views(tx, tx.jobs.select(ids[::2]), Privacy(None))
        monkeypatch.setattr(statements, "_SPREAD", 0)
        as_list = job_views(tx, tx.jobs.select(ids), Privacy(None))
    assert together == alone == as_range == as_list
    assert without_the_second == alone[::2]
    assert together[0].events[0].hosts == ("node-1", "node-2")


def test_a_look_survives_connections_that_have_died(database: Database) -> None:
    job = add_job(database)
    pids = set()
    for _ in range(2):
        pids.add(database.look(lambda tx: tx.value("SELECT pg_backend_pid()")))
    assert len(pids) == 1
    other = database.connection()
    other.cursor().execute("SELECT pg_terminate_backend(%s, 10000)", (pids.pop(),))
    other.close()
    assert database.look(lambda tx: tx.jobs.get(job)).id == job


def test_a_look_that_fails_leaves_its_connection_usable(database: Database) -> None:
    pid = database.look(lambda tx: tx.value("SELECT pg_backend_pid()"))
    with pytest.raises(psycopg2.Error):
        database.look(lambda tx: tx.value("SELECT 1 / 0"))
    assert database.look(lambda tx: tx.value("SELECT pg_backend_pid()")) == pid


def test_a_look_knows_the_time_if_it_is_asked_for(database: Database) -> None:
    ago = database.look(lambda tx: int(tx.value("SELECT extract(epoch FROM clock_timestamp())")) - tx.now)
    assert 0 <= ago <= 60

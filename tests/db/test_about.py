"""Several questions about the same things are one statement, with the same answers as one after the other."""

from unittest.mock import Mock

import pytest

from oar.lib.db import statements
from oar.lib.db.database import Database
from oar.lib.db.statements import About, psycopg2
from oar.lib.jobs.privacy import Privacy
from oar.lib.jobs.records import Group, Level
from oar.lib.jobs.states import JobState
from oar.lib.jobs.views import job_view, job_views
from oar.lib.submission.sql_new_jobs import NewAlternative
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


ONE = NewAlternative(60, (Group("", (Level("core", 1),)),))
OTHER = NewAlternative(60, (Group("gpu = 'YES'", (Level("core", 2),)),))
SEVERAL = (
    NewAlternative(60, (Group("a = 'b'", (Level("node", 2), Level("core", 1))), Group("", (Level("core", -1),)))),
    NewAlternative(30, (Group("", (Level("switch", 1), Level("node", 2), Level("core", 4))),)),
)


@pytest.mark.parametrize(
    "requests",
    [
        [(ONE,), (OTHER,), (ONE,)],
        [(ONE,), (ONE, OTHER)],
        [SEVERAL, (ONE,), SEVERAL],
        [(ONE,), (NewAlternative(60, ()),), (NewAlternative(60, (Group("", ()),)), OTHER)],
    ],
    ids=["a line each", "two alternatives of a line", "several groups and levels", "no groups, no levels"],
)
def test_alternatives_of_many_jobs_are_those_of_each(
    database: Database, monkeypatch: pytest.MonkeyPatch, requests: list[tuple[NewAlternative, ...]]
) -> None:
    first, *others = ids = [add_job(database, alternatives=request) for request in requests]
    with database.begin() as tx:  # its groups are younger than those of the others
        tx.new_jobs.replace_groups(tx.new_jobs.moldables_of_jobs([first])[first][0].id, SEVERAL[0].groups)
    requests[0] = (requests[0][0]._replace(groups=SEVERAL[0].groups), *requests[0][1:])
    with database.snapshot() as tx:
        alone = {job_id: tx.new_jobs.moldables_of_jobs([job_id])[job_id] for job_id in ids}
        assert tx.new_jobs.moldables_of_jobs(ids) == alone
        assert tx.about(ids, tx.new_jobs.OF_JOBS) == [alone]
        monkeypatch.setattr(statements, "_TOGETHER", 0)
        assert tx.about(ids, tx.new_jobs.OF_JOBS) == [alone]
        assert tx.about([first, *others, ids[-1] + 1], tx.new_jobs.OF_JOBS) == [alone]
        assert tx.about([ids[-1] + 1], tx.new_jobs.OF_JOBS) == [{}]
        (with_those_between,) = tx.about([first, ids[-1]], tx.new_jobs.OF_JOBS)
        assert with_those_between == {job_id: alone[job_id] for job_id in with_those_between}
        assert {first, ids[-1]} <= with_those_between.keys()
        monkeypatch.setattr(statements, "_SPREAD", 0)
        assert tx.about(ids, tx.new_jobs.OF_JOBS) == [alone]
    for job_id, request in zip(ids, requests, strict=True):
        shown = [(each.walltime, each.groups) for each in alone[job_id]]
        assert shown == [(each.walltime, each.groups) for each in request]


def test_of_many_ids_that_lie_together_the_ends_are_sent(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven questions are asked of ten thousand jobs: to write their ids as often would take as long as the answers."""
    write = Mock(wraps=statements._literal)
    monkeypatch.setattr(statements, "_literal", write)
    jobs = [add_job(database), add_job(database)]
    question = About("SELECT job_id FROM jobs WHERE job_id = ANY(%s) OR array_id = ANY(%s) ORDER BY job_id", list)
    other = About("SELECT id FROM unnest(%s::bigint[]) id JOIN jobs ON job_id = id ORDER BY id", list)
    with database.snapshot() as tx:
        write.reset_mock()
        first = jobs[0]
        assert tx.about(range(first, first + 5000), question, other) == [[(job,) for job in jobs]] * 2
        write.assert_not_called()
        assert tx.about(range(first, first + 50_000, 10), question, other) == [[(first,)]] * 2
        write.assert_called_once()


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

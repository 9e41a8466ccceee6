"""Statements: what a connection prepares, and several questions about the same objects in one statement."""

from contextlib import closing
from typing import Any
from unittest.mock import Mock

import pytest

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.db import statements
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.statements import CLOCK, LONG_LIST, About, Prepared, Statements, psycopg2
from oar.lib.jobs.privacy import Privacy
from oar.lib.jobs.records import Group, Level
from oar.lib.jobs.states import JobState
from oar.lib.jobs.views import job_view, job_views
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.builders import add_job, add_resources

_ADD = Prepared("SELECT %(one)s::int + %(two)s::int + %(one)s::int, '100 %%'")
_BOTH = Prepared("UPDATE jobs SET message = %s WHERE job_id = %s; SELECT count(*) FROM jobs WHERE job_id = ANY(%s)")
_ROWS = Prepared("SELECT * FROM unnest(%s::bigint[], %s::text[])")
_WRONG = Prepared("SELECT 1 / %s::int")


def prepared(tx: Statements) -> list[str]:
    """Return what the session of a transaction has prepared, without the question for the time of its begin."""
    found = tx.column("SELECT statement FROM pg_prepared_statements")
    return sorted(statement for statement in found if CLOCK not in statement)


def test_a_statement_is_prepared_when_it_runs_for_the_second_time(database: Database) -> None:
    with database.begin() as tx:
        assert tx.rows(_ADD, {"one": 1, "two": 20}) == [(22, "100 %")]
        assert prepared(tx) == []
        assert tx.rows(_ADD, {"one": 2, "two": 20}) == [(24, "100 %")]
        assert len(prepared(tx)) == 1
    with database.begin() as tx:
        assert tx.rows(_ADD, {"one": 3, "two": 20}) == [(26, "100 %")]
        assert len(prepared(tx)) == 1


def test_the_time_is_asked_with_the_begin_of_a_transaction_and_planned_once(database: Database) -> None:
    question = "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE position(%s IN statement) > 0"
    dates = []
    for _ in range(5):
        with database.begin() as tx:
            dates.append(tx.now)
            plans = tx.rows(question, (CLOCK,))
    assert plans == [(4, 0)]
    assert dates == sorted(dates)
    assert 0 <= dates[-1] - dates[0] < 60


def test_what_is_prepared_is_planned_once(database: Database) -> None:
    """For arrays of few jobs PostgreSQL would plan it anew each time, which costs more than the statement."""
    with database.begin() as tx:
        for number in range(20):
            tx.value(_BOTH, ("x", number, [number]))
        assert tx.rows("SELECT generic_plans, custom_plans FROM pg_prepared_statements") == [(19, 0)] * 2


def test_a_plan_that_was_made_for_few_is_not_used_for_many(database: Database) -> None:
    """It was made when tables were small, and goes through the whole of one for each element."""
    with database.begin() as tx:
        for _ in range(3):
            tx.value(_BOTH, ("x", 1, [1, 2]))
        plans = tx.rows("SELECT generic_plans, custom_plans FROM pg_prepared_statements")
        assert tx.value(_BOTH, ("x", 1, [*range(LONG_LIST)])) == 0
        assert tx.rows("SELECT generic_plans, custom_plans FROM pg_prepared_statements") == plans


def test_several_statements_of_a_text_are_prepared_each(database: Database) -> None:
    with database.begin() as tx:
        for _ in range(3):
            assert tx.value(_BOTH, ("x", 1, [1, 2])) == 0
        assert len(prepared(tx)) == 2


def test_another_connection_begins_anew(settings: DatabaseSettings) -> None:
    with closing(Database(settings)) as database:
        for _ in range(2):
            with database.begin() as tx:
                assert tx.value(_ADD, {"one": 1, "two": 2}) == 4
                session = tx.value("SELECT pg_backend_pid()")
        with closing(database.connection()) as other:
            other.cursor().execute("SELECT pg_terminate_backend(%s, 10000)", (session,))
        with database.begin() as tx:
            assert tx.value("SELECT pg_backend_pid()") != session
            for _ in range(2):
                assert tx.value(_ADD, {"one": 1, "two": 2}) == 4
            assert len(prepared(tx)) == 1


def test_a_rollback_takes_nothing_away_that_is_prepared(database: Database) -> None:
    def fail() -> None:
        with database.begin() as tx:
            assert tx.value(_WRONG, (1,)) == 1
            tx.value(_WRONG, (0,))

    for _ in range(3):
        with pytest.raises(psycopg2.errors.DivisionByZero):
            fail()
    with database.begin() as tx:
        assert tx.value(_WRONG, (1,)) == 1
        assert len(prepared(tx)) == 1


def test_a_preparation_that_is_lost_is_made_again_by_another_name(database: Database) -> None:
    with database.begin() as tx:
        tx.value(_ADD, {"one": 1, "two": 2})
        run = tx._cursor.execute
        names: list[str] = []

        def broken(sql: str) -> Any:
            run(sql)
            names.append(sql.split()[1])
            raise DatabaseUnavailable

        with pytest.raises(DatabaseUnavailable):
            tx._preparations.call(_ADD, broken)
        assert tx.value(_ADD, {"one": 1, "two": 2}) == 4
        assert names == ["oar_0"]
        assert tx.column("SELECT name FROM pg_prepared_statements ORDER BY name") == ["oar_0", "oar_1"]


@pytest.mark.parametrize("length", [LONG_LIST - 1, LONG_LIST])
def test_a_long_list_arrives_as_a_short_one_does(database: Database, length: int) -> None:
    texts = ['a "quoted" one', "back\\slash", "it's", "{1,2}", "", "NULL", "null", None, "new\nline", "ünï %s", " , "]
    texts = (texts * length)[:length]
    numbers = [*range(-5, length - 5)]
    with database.begin() as tx:
        for _ in range(3):  # as text, when it is prepared, and afterwards
            rows = tx.rows(_ROWS, (numbers, texts))
            assert rows == list(zip(numbers, texts, strict=True))
        named = tx.column("SELECT unnest(%(numbers)s::bigint[])", {"numbers": numbers})
        assert named == numbers
        assert tx.value("SELECT cardinality(%s::boolean[])", ([True] * length,)) == length


def test_a_long_list_is_one_literal(database: Database) -> None:
    with database.begin() as tx:
        tx.value("SELECT 5 = ANY(%s)", ([*range(LONG_LIST)],))
        assert tx._cursor.query is not None
        assert b"ANY('{0,1,2," in tx._cursor.query


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

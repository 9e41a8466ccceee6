"""Statements that a connection prepares."""

from contextlib import closing
from typing import Any

import pytest

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.statements import CLOCK, LONG_LIST, Prepared, Statements, psycopg2

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

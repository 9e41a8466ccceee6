"""SQL conditions of users on a real server: what they find, and what they cannot reach."""

import psycopg2
import pytest

from oar.lib.db.engine import Database, DatabaseSettings
from oar.lib.db.usersql import Table, check, evaluate, evaluate_all
from oar.lib.errors import BadSql, ConfigError


@pytest.fixture
def resources(database: Database) -> dict[str, int]:
    """Three nodes on two switches; the id of each by its name."""
    with database.begin() as tx:
        tx.execute("ALTER TABLE resources ADD COLUMN memnode varchar(255)")
        rows = tx.rows(
            "INSERT INTO resources (network_address, switch, cpu, cpuset, memnode, drain) VALUES"
            " ('node-1', 'sw1', 1, '0', '4', 'NO'), ('node-2', 'sw1', 2, '1', '8', 'NO'),"
            " ('100%', 'sw2', 3, '0-1', NULL, 'YES') RETURNING network_address, resource_id"
        )
    return dict(rows)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cpu = 1", ["node-1"]),
        ("true", ["node-1", "node-2", "100%"]),
        ('switch = "sw1"', ["node-1", "node-2"]),
        ('"switch" = "sw1"', ["node-1", "node-2"]),
        ("SWITCH = 'sw1' AND Cpu > 1", ["node-2"]),
        ("cpuset = 1", ["node-2"]),
        ("cpuset IN (0, 1)", ["node-1", "node-2"]),
        ("cpu = '2'", ["node-2"]),
        ("memnode = 4", ["node-1"]),
        ("memnode IS NULL", ["100%"]),
        ("network_address LIKE '%'", ["node-1", "node-2", "100%"]),
        ("network_address LIKE '100%' AND cpu % 2 = 1", ["100%"]),
        ("network_address = '%s %(a)s'", []),
        ("cpu = (SELECT max(cpu) FROM resources WHERE switch = 'sw1')", ["node-2"]),
        ("cpu = 1 OR\ncpu = 2", ["node-1", "node-2"]),
    ],
)
def test_conditions_on_resources(database: Database, resources: dict[str, int], text: str, found: list[str]) -> None:
    assert evaluate(database, Table.RESOURCES, text) == [resources[name] for name in found]


def test_conditions_on_jobs(database: Database) -> None:
    with database.begin() as tx:
        rows = tx.rows(
            "INSERT INTO jobs (job_name, job_user, resubmit_job_id, job_env) VALUES"
            " ('42', 'alice', 42, 'A=1'), ('x', 'bob', 0, 'A=1') RETURNING job_id"
        )
    first, second = (row[0] for row in rows)
    assert evaluate(database, Table.JOBS, "resubmit_job_id = '42'") == [first]
    assert evaluate(database, Table.JOBS, "job_name = 42") == [first]
    assert evaluate(database, Table.JOBS, "job_user IN ('bob')") == [second]
    assert evaluate(database, Table.JOBS, "job_env IS NOT NULL OR job_env LIKE '%A%'") == []


ESCAPES = [
    "1=1; UPDATE queues SET priority = 99",
    "1=1); UPDATE queues SET priority = 99; SELECT (1=1",
    "1=1) OR (1=1",
    "1=1) UNION SELECT job_id FROM challenges WHERE (1=1",
    "1=1 -- hide the rest",
    "1=1 /* hide the rest",
    "true UNION SELECT 1",
    "true GROUP BY resource_id",
    "true ORDER BY resource_id",
    "true LIMIT 1",
    "true FOR UPDATE",
    "true) INTO mine FROM (SELECT 1",
    "resource_id IN (SELECT job_id FROM challenges)",
    "resource_id IN (SELECT token_id FROM api_tokens)",
    "resource_id IN (SELECT job_id FROM job_runs)",
    "resource_id IN (SELECT job_id FROM public.jobs)",
    "resource_id IN (SELECT file_id FROM files WHERE md5sum LIKE 'e%')",
    "resource_id IN (SELECT file_id FROM files WHERE location LIKE '%/e%')",
    "EXISTS (WITH gone AS (DELETE FROM queues RETURNING 1) SELECT 1 FROM gone)",
    "EXISTS (SELECT 1 FROM resources FOR UPDATE)",
    "pg_advisory_lock(20304210, 0) IS NULL",
    "pg_sleep(60) IS NULL",
    "pg_notify('oar_event', 'jobs') IS NULL",
    "pg_terminate_backend(1)",
    "pg_read_file('/etc/passwd') IS NOT NULL",
    "lo_import('/etc/passwd') > 0",
    "set_config('statement_timeout', '0', false) = ''",
    'query_to_xml("SELECT 1", true, true, "") IS NULL',
    '"set_config"("a", "b", false) = ""',
    'U&"\\0073et_config"("a", "b", false) = ""',
    "E'\\'' = ') OR true --'",
    "1e'x\\' = 1) OR true --'",
    "$$x$$ = 'x'",
    "nextval('jobs_job_id_seq') > 0",
    "cpu = %s",
    "cpu",
    "nothing = 1",
    "cpu = 'a'",
    "",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_an_escape_is_refused_in_one_line(database: Database, resources: dict[str, int], text: str) -> None:
    with database.begin() as tx:
        before = tx.rows("SELECT * FROM queues ORDER BY 1")
    for question in (evaluate, check):
        with pytest.raises(BadSql, match=r"^(invalid|cannot evaluate the) SQL condition: [^\n]+$"):
            question(database, Table.RESOURCES, text)
    with database.begin() as tx:
        assert tx.rows("SELECT * FROM queues ORDER BY 1") == before


def test_the_message_of_the_server_is_passed_on(database: Database) -> None:
    with pytest.raises(BadSql) as caught:
        evaluate(database, Table.RESOURCES, "nothing = 1")
    assert str(caught.value) == 'cannot evaluate the SQL condition: column "nothing" does not exist'


def test_a_condition_that_takes_too_long_is_ended_on_the_server_too(settings: DatabaseSettings) -> None:
    database = Database(settings._replace(user_sql_timeout=1), application="oar:slow")
    endless = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i % 2 FROM n) SELECT count(*) FROM n) > 0"
    with database.begin() as tx:
        tx.execute("INSERT INTO resources (network_address) VALUES ('node-1')")
    with pytest.raises(BadSql, match="it takes longer than 1 s"):
        evaluate(database, Table.RESOURCES, endless)
    with database.begin() as tx:
        busy = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND state = 'active'"
        assert tx.value(busy, (settings.ro_user,)) == 0
    database.close()


def test_one_bad_condition_does_not_spoil_the_others(database: Database, resources: dict[str, int]) -> None:
    answers = evaluate_all(database, Table.RESOURCES, ["cpu = 1", "cpu =", "cpu / 0 = 1", "cpu = 2", "cpu = 1"])
    assert answers["cpu = 1"] == [resources["node-1"]]
    assert answers["cpu = 2"] == [resources["node-2"]]
    assert isinstance(answers["cpu ="], BadSql)
    assert isinstance(answers["cpu / 0 = 1"], BadSql)


def test_what_is_checked_can_be_used_in_parentheses(database: Database, resources: dict[str, int]) -> None:
    assert check(database, Table.RESOURCES, 'switch = "sw1" AND cpuset = 0') == "switch = 'sw1' AND cpuset = '0'"


def test_without_a_read_only_login_nothing_is_evaluated() -> None:
    with pytest.raises(ConfigError, match="DB_BASE_LOGIN_RO is not configured"):
        evaluate(Database(DatabaseSettings(ro_user="")), Table.JOBS, "true")


def test_even_past_the_tokenizer_the_login_protects_the_tables(database: Database) -> None:
    """The walls stand alone: the same escapes, sent as they are, change nothing."""
    for text in ESCAPES:
        with database.readonly() as tx:
            try:
                tx.execute("SELECT resource_id FROM resources WHERE (" + text.replace("%", "%%") + "\n)", ("",))
            except (psycopg2.Error, TypeError):
                continue
    with database.begin() as tx:
        assert tx.value("SELECT max(priority) FROM queues") == 10

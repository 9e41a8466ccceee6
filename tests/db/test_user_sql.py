"""Conditions of users on a real server: what they find, what they cannot reach, and what they cannot cost."""

import os
from pathlib import Path

import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oar.lib.base.errors import BadCondition, ConfigError
from oar.lib.base.resource_set import positions
from oar.lib.conditions.in_memory import ColumnIndex, NotInMemory
from oar.lib.conditions.in_memory import evaluate as evaluate_in_memory
from oar.lib.conditions.parser import parse
from oar.lib.conditions.tree import columns
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.statements import Parameters, Statements
from oar.lib.db.user_sql import SITE, Asker, Subject, condition_table, evaluate, session
from tests.builders import execute_sql
from tests.conditions_corpus import ACCEPTED, AT_THE_LIMITS, COLUMNS, HOSTILE

ALICE = Asker("alice", frozenset({"job_env", "notify", "initial_request"}))


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


def found(database: Database, text: str, asker: Asker = ALICE) -> list[int]:
    return evaluate(database, Subject.RESOURCES, text, asker)


@pytest.mark.parametrize(
    ("text", "names"),
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
        ("cpu in (SELECT cpu FROM resources WHERE switch='sw1' GROUP BY cpu HAVING count(*)>0)", ["node-1", "node-2"]),
        ("cpu = 1 OR\ncpu = 2", ["node-1", "node-2"]),
        ("split_part(network_address, '-', 2) = '2'", ["node-2"]),
        ("case when drain = 'YES' then cpu = 3 else cpu = 1 end", ["node-1", "100%"]),
    ],
)  # fmt: skip
def test_conditions_on_resources(database: Database, resources: dict[str, int], text: str, names: list[str]) -> None:
    assert found(database, text) == [resources[name] for name in names]


def test_conditions_on_jobs(database: Database) -> None:
    with database.begin() as tx:
        rows = tx.rows(
            "INSERT INTO jobs (job_name, job_user, resubmit_job_id, job_env) VALUES"
            " ('42', 'alice', 42, 'A=1'), ('x', 'bob', 0, 'A=1') RETURNING job_id"
        )
    first, second = (row[0] for row in rows)

    def jobs(text: str) -> list[int]:
        return evaluate(database, Subject.JOBS, text, ALICE)

    assert jobs("resubmit_job_id = '42'") == [first]
    assert jobs("job_name = 42") == [first]
    assert jobs("job_user IN ('bob')") == [second]
    assert jobs("job_env IS NOT NULL OR job_env LIKE '%A%'") == []


def test_what_listings_hide_cannot_be_read_letter_by_letter(database: Database) -> None:
    with database.begin() as tx:
        rows = tx.rows(
            "INSERT INTO jobs (job_user, initial_request, notify, command) VALUES"
            " ('alice', 'oarsub secret', 'mail:a', 'secret'), ('bob', 'oarsub secret', 'mail:a', 'secret')"
            " RETURNING job_id"
        )
    own, other = (row[0] for row in rows)
    for text in (
        "initial_request LIKE 'oarsub s%'",
        "notify ~ '^m'",
        "length(initial_request) > 1",
        "notify || '' > ''",
    ):
        assert evaluate(database, Subject.JOBS, text, ALICE) == [own]
    assert evaluate(database, Subject.JOBS, "command = 'secret'", ALICE) == [own, other]
    assert evaluate(database, Subject.JOBS, "notify IS NULL", ALICE) == [other]
    assert evaluate(database, Subject.JOBS, "notify = 'mail:a'", Asker("root")) == [own, other]


@pytest.fixture
def site(database: Database) -> Database:
    """A cluster with the properties that sites add: six nodes, some of them with a gap in their description."""
    with database.begin() as tx:
        for name, type_ in COLUMNS.items():
            tx.execute(f'ALTER TABLE resources ADD COLUMN IF NOT EXISTS "{name}" {type_}')
        for number in range(1, 7):
            name, cluster = f"node-{number}", "dahu" if number % 2 else "yeti"
            tx.execute(
                "INSERT INTO resources (network_address, host, cluster, gpu_count, memnode, gpu, cpucore, thread_count,"
                " cpuset) VALUES (%s, %s, %s, %s, %s, %s, 8, 16, %s)",
                (name, name, cluster, number, number * 32768, "YES" if number > 3 else None, str(number % 2)),
            )
    return database


def test_a_hostile_condition_is_refused_in_one_line(site: Database) -> None:
    with site.begin() as tx:
        queues = tx.rows("SELECT * FROM queues ORDER BY 1")
    for text in HOSTILE:
        with pytest.raises(BadCondition, match=r"^(invalid|cannot evaluate the) SQL condition: [^\n]+$"):
            found(site, text)
    with site.begin() as tx:
        assert tx.rows("SELECT * FROM queues ORDER BY 1") == queues


def test_the_conditions_of_a_session_share_a_savepoint(site: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission has several, and each statement is a round trip."""
    sent: list[str] = []
    execute_really = Statements.execute

    def execute(tx: Statements, sql: str, parameters: Parameters = ()) -> int:
        sent.append(sql)
        return execute_really(tx, sql, parameters)

    monkeypatch.setattr(Statements, "execute", execute)
    with session(site, Subject.RESOURCES, SITE) as opened:
        for _ in range(3):
            with pytest.raises(BadCondition, match="a number is divided by zero"):
                opened.check("cpu = 1/0")
            assert opened.check("cpu = 1") == "cpu = 1"
    assert sent.count("SAVEPOINT condition") == 1


def test_a_condition_that_fails_leaves_the_limit_as_it_is(site: Database) -> None:
    with session(site, Subject.RESOURCES, SITE) as opened:
        opened.check("cpu = 1")
        opened.limit(2)
        with pytest.raises(BadCondition):
            opened.check("cpu = 1/0")
        with opened.guarded() as tx:
            assert tx.value("SHOW statement_timeout") == "2s"


def test_what_is_just_allowed_costs_little_time_and_memory(site: Database) -> None:
    execute_sql(
        site,
        "INSERT INTO resources (network_address, host, cpu, cpufreq)"
        " SELECT 'n' || i, repeat('e', 240) || i, i, 2.4 FROM generate_series(1, 500) i",
    )
    for text in AT_THE_LIMITS:
        with session(site, Subject.RESOURCES, ALICE) as opened:
            with opened.guarded() as tx:
                process = tx.value("SELECT pg_backend_pid()")
            before, used = peak_of(process), cpu_seconds_of(process)
            opened.limit(60)
            opened.ids(text)
            assert cpu_seconds_of(process) - used < 3, text
            assert peak_of(process) - before < 48 * 2**20, text
        _agree(site, text)


def cpu_seconds_of(process: int) -> float:
    """Return the processor time that a process has used: it does not grow while others have the processor."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_of(process: int) -> int:
    """Return the most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_what_sites_write_is_evaluated_by_the_server_and_in_memory_alike(site: Database) -> None:
    in_memory = [text for text in ACCEPTED if _agree(site, text)]
    assert len(in_memory) > len(ACCEPTED) / 2


def _agree(site: Database, text: str) -> bool:
    """Compare the answers; tell whether there was one in memory."""
    with site.begin() as tx:
        table = condition_table(tx, Subject.RESOURCES)
        tree = parse(text, table).tree
        names = sorted(columns(tree) or {"cpu"})
        rows = tx.rounds.column_values(names)
    ids = sorted(rows)
    indexes = {
        name: ColumnIndex([rows[number][place] for number in ids], is_text=table.is_text(name))
        for place, name in enumerate(names)
        if table.types[name] != "numeric"
    }
    expected = found(site, text)
    try:
        members = evaluate_in_memory(tree, indexes, len(ids))
    except NotInMemory:
        return False
    assert ([ids[place] for place in positions(members)], text) == (expected, text)
    return True


texts = st.one_of(
    st.sampled_from(["'a'", "'b'", "'ab'", "'%'", "''", "'_'"]),
    st.text(alphabet="aAbBéİı%_.*0 ", max_size=7).map(lambda text: f"'{text}'"),
)
tests = st.one_of(
    st.tuples(st.sampled_from(["switch", "cpuset"]), st.sampled_from(["=", "<>", "LIKE", "NOT LIKE", "ILIKE"]), texts),
    st.tuples(
        st.just("cpu"),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.sampled_from(["0", "1", "'2'", "'02'", "99999999999", "' 1'"]),
    ),
    st.tuples(st.sampled_from(["1", "2"]), st.sampled_from(["=", "<", ">="]), st.just("cpu")),
    st.tuples(st.sampled_from(["switch", "cpu"]), st.sampled_from(["IS NULL", "IS NOT NULL"]), st.just("")),
    st.tuples(
        st.just("cpu"),
        st.sampled_from(["IN", "NOT IN"]),
        st.sampled_from(["(1, 2)", "(0)", "(1, NULL)", "('1', 2)", "(NULL)"]),
    ),
    st.tuples(st.just("switch"), st.sampled_from(["IN", "NOT IN"]), st.sampled_from(["('a', 'b')", "('ab')"])),
    st.tuples(st.just("cpu"), st.sampled_from(["BETWEEN", "NOT BETWEEN"]), st.just("1 AND 2")),
).map(" ".join)
conditions = st.recursive(
    tests,
    lambda parts: st.one_of(
        st.tuples(parts, st.sampled_from([" AND ", " OR "]), parts).map(lambda three: f"({''.join(three)})"),
        parts.map(lambda part: f"(NOT {part})"),
    ),
    max_leaves=6,
)
values = st.tuples(
    st.one_of(st.sampled_from(["a", "b", "ab", "B", "", "%", None]), st.text(alphabet="aAbBéİı%_.*0 ", max_size=7)),
    st.sampled_from(["0", "1", "a"]),
    st.sampled_from([0, 1, 2, None]),
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(rows=st.lists(values, min_size=1, max_size=8), text=conditions)
def test_memory_and_server_agree(database: Database, rows: list[tuple[str, str, int | None]], text: str) -> None:
    with database.begin() as tx:
        tx.execute("ALTER TABLE resources ALTER cpu DROP NOT NULL, ALTER switch DROP NOT NULL")
        tx.execute("DELETE FROM resources")
        ids = [
            tx.value("INSERT INTO resources (switch, cpuset, cpu) VALUES (%s, %s, %s) RETURNING resource_id", row)
            for row in rows
        ]
        table = condition_table(tx, Subject.RESOURCES)
    indexes = {
        "switch": ColumnIndex([row[0] for row in rows], is_text=True),
        "cpuset": ColumnIndex([row[1] for row in rows], is_text=True),
        "cpu": ColumnIndex([row[2] for row in rows], is_text=False),
    }
    try:
        members = evaluate_in_memory(parse(text, table).tree, indexes, len(rows))
    except NotInMemory:
        return
    assert [ids[place] for place in positions(members)] == found(database, text)


def test_a_column_of_text_in_arithmetic_is_refused_with_the_way_out(database: Database) -> None:
    refusal = r"these types: mod\(character varying, integer\)\. Convert a text to a number first, as in cpuset::int$"
    with pytest.raises(BadCondition, match=refusal):
        found(database, "cpuset % 2 = 1")


def test_one_refusal_leaves_the_session_usable(database: Database, resources: dict[str, int]) -> None:
    with session(database, Subject.RESOURCES, ALICE) as opened:
        assert opened.ids("cpu = 1") == [resources["node-1"]]
        for text in ("cpu =", "cpu / 0 = 1", "cpu = 'a'", "cpu"):
            with pytest.raises(BadCondition):
                opened.ids(text)
        assert opened.ids("cpu = 2") == [resources["node-2"]]


def test_what_is_checked_can_be_used_in_parentheses(database: Database, resources: dict[str, int]) -> None:
    with session(database, Subject.RESOURCES, ALICE) as opened:
        assert opened.check('switch = "sw1" AND cpuset = 0') == "switch = 'sw1' AND cpuset = '0'"
        assert opened.check('switch = "it\'s" or cpu = 1') == "switch = 'it''s' or cpu = 1"


ENDLESS = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i % 2 FROM n) SELECT count(*) FROM n) > 0"


def test_a_condition_that_takes_too_long_is_ended_on_the_server_too(settings: DatabaseSettings) -> None:
    database = Database(settings._replace(user_sql_timeout=1), application="oar:slow")
    execute_sql(database, "INSERT INTO resources (network_address) VALUES ('node-1')")
    with pytest.raises(BadCondition, match="it takes longer than 1 s"):
        found(database, ENDLESS, SITE)
    with database.begin() as tx:
        busy = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND state = 'active'"
        assert tx.value(busy, (settings.ro_user,)) == 0
    database.close()


def test_administrators_have_all_of_sql_under_an_account_that_only_reads(
    database: Database, resources: dict[str, int]
) -> None:
    text = "cpu = (SELECT max(cpu) FROM resources)"
    assert found(database, text, SITE) == [resources["100%"]]
    with pytest.raises(BadCondition, match="invalid SQL condition: unexpected SELECT at character 8"):
        found(database, text)
    for secret in ("challenges", "job_runs", "public.jobs", "api_tokens"):
        with pytest.raises(BadCondition, match="users may not read"):
            found(database, f"EXISTS (SELECT 1 FROM {secret})", SITE)


def test_without_a_read_only_login_nothing_is_evaluated() -> None:
    with pytest.raises(ConfigError, match="DB_BASE_LOGIN_RO is not configured"):
        evaluate(Database(DatabaseSettings(ro_user="")), Subject.JOBS, "true", ALICE)


def test_even_past_the_parser_the_login_protects_the_tables(database: Database) -> None:
    """The walls stand alone: the same texts, sent as they are, change nothing."""
    costly = (
        "generate_series",
        "RECURSIVE",
        "900000",
        "factorial",
        "sleep",
        "cross",
        "resources b",
        "power",
        "^",
        "{255}",
    )
    for text in HOSTILE:
        if any(word in text for word in costly) or "\0" in text or "\ud800" in text:
            continue
        with database.readonly() as tx:
            try:
                tx.execute("SELECT resource_id FROM resources WHERE (" + text.replace("%", "%%") + "\n)", ("",))
            except (psycopg2.Error, TypeError, ValueError):
                continue
    with database.begin() as tx:
        assert tx.value("SELECT max(priority) FROM queues") == 10

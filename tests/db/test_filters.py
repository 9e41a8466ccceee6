"""Conditions in rounds: evaluated once, in memory where that is possible, and never at the cost of others."""

import time
from types import SimpleNamespace

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.reading import filter_pools
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.user_sql import Conditions, TooSlow
from oar.lib.history.event_types import EventType
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.builders import add_resources, execute_sql
from tests.db.test_meta_sched import clocked, submit  # noqa: F401 - a fixture

#: A condition that the database takes for ever to evaluate, as an older version has stored it.
ENDLESS = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i % 2 FROM n) SELECT count(*) FROM n) > 0"


def store_condition(database: Database, job: int, text: str) -> None:
    execute_sql(database, "UPDATE jobs SET properties = %s WHERE job_id = %s", text, job)


def states_of(database: Database) -> dict[int, JobState]:
    with database.begin() as tx:
        return {row[0]: JobState(row[1]) for row in tx.rows("SELECT job_id, state FROM jobs")}


def reason_of(database: Database, job: int) -> str:
    with database.begin() as tx:
        code: str = tx.value("SELECT code FROM job_reasons WHERE job_id = %s", (job,))
    return code


def test_a_condition_of_the_language_asks_no_server_twice(
    clocked: Database,  # noqa: F811
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_resources(clocked, nodes=2)
    asked: list[str] = []
    ids = Conditions.ids

    def ask(self: Conditions, text: str) -> list[int]:
        asked.append(text)
        return ids(self, text)

    monkeypatch.setattr(Conditions, "ids", ask)
    for text in ("network_address = 'node-1'", "lower(network_address) = 'node-2'"):
        store_condition(clocked, submit(clocked), text)
    reader = SnapshotReader(clocked, runtime.config)
    pools = [pool.members.bit_count() for pool in reader.read().snapshot.pools]
    assert (sorted(pools), asked) == ([2, 2], ["lower(network_address) = 'node-2'"])
    submit(clocked)
    reader.read()
    assert asked == ["lower(network_address) = 'node-2'"]


def test_a_stored_condition_that_is_none_concerns_its_job_only(clocked: Database, runtime: Runtime) -> None:  # noqa: F811
    add_resources(clocked, nodes=2)
    bad, good = submit(clocked), submit(clocked, user="bob")
    store_condition(clocked, bad, ENDLESS)
    MetaScheduler(runtime).round()
    assert states_of(clocked) == {bad: JobState.WAITING, good: JobState.TO_LAUNCH}
    assert reason_of(clocked, bad) == ReasonCode.CONDITION


def pools_of(reader: SnapshotReader) -> list[int]:
    """Read a situation; return how many resources each filter leaves."""
    return [pool.members.bit_count() for pool in reader.read().snapshot.pools]


def test_large_conditions_of_one_user_do_not_hold_up_a_round(
    clocked: Database,  # noqa: F811
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To read them takes time, too; each round reads some of them, until all have an answer."""
    own_work = SimpleNamespace(monotonic=time.thread_time)  # a busy machine stops a short evaluation for a while, too
    monkeypatch.setattr(filter_pools, "time", own_work)
    add_resources(clocked, nodes=2)
    numbers = ", ".join(map(str, range(2500)))
    for number in range(12):
        store_condition(clocked, submit(clocked), f"resource_id <> {number} AND resource_id NOT IN (-1, {numbers})")
    store_condition(clocked, submit(clocked, user="bob"), "network_address = 'node-1'")
    reader = SnapshotReader(clocked, runtime.config.replace(user_sql_round_seconds=0.1))
    reasons = [pool.trouble for pool in reader.read().snapshot.pools]
    assert (reasons[-1], any(reasons)) == ("", True)
    for _ in range(40):
        if not any(pool.trouble for pool in reader.read().snapshot.pools):
            break
    assert not any(pool.trouble for pool in reader.read().snapshot.pools)


def test_a_pattern_that_would_never_end_as_a_regular_expression_ends(clocked: Database, runtime: Runtime) -> None:  # noqa: F811
    add_resources(clocked, nodes=2)
    store_condition(clocked, submit(clocked), f"network_address LIKE '{'%' * 255}z'")
    assert pools_of(SnapshotReader(clocked, runtime.config)) == [0]


def test_a_condition_is_blamed_only_if_it_had_its_time(
    clocked: Database,  # noqa: F811
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What came too late because another condition of the same user took long is evaluated in the next round."""
    add_resources(clocked, nodes=2)
    for cpuset in "01":
        store_condition(clocked, submit(clocked), f"lower(cpuset) = '{cpuset}'")
    clock = [0.0]
    limits: list[float] = []
    ids, limit = Conditions.ids, Conditions.limit

    def take_long(self: Conditions, text: str) -> list[int]:
        clock[0] += min(limits[-1], 0.3)
        if limits[-1] < 0.3:
            raise TooSlow(text)
        return ids(self, text)

    def note_limit(self: Conditions, seconds: float) -> None:
        limits.append(seconds)
        limit(self, seconds)

    monkeypatch.setattr(Conditions, "ids", take_long)
    monkeypatch.setattr(Conditions, "limit", note_limit)
    monkeypatch.setattr(filter_pools, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    reader = SnapshotReader(clocked, runtime.config.replace(user_sql_round_seconds=2.0))
    first = reader.read()
    assert [pool.members.bit_count() for pool in first.snapshot.pools] == [2, 0]
    assert first.deferrals == ()
    assert pools_of(reader) == [2, 2]
    assert limits == pytest.approx([0.4, 0.1, 0.4])


def test_a_condition_that_takes_too_long_is_put_aside_and_named(
    clocked: Database,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only who may use all of SQL can still write one that is so slow."""
    config = Config(user_sql_full_users=("alice",), user_sql_round_seconds=0.5)
    add_resources(clocked, nodes=2)
    slow, other, good = submit(clocked), submit(clocked), submit(clocked, user="bob")
    store_condition(clocked, slow, ENDLESS)
    store_condition(clocked, other, f"true AND {ENDLESS}")
    scheduler = MetaScheduler(Runtime(config, clocked))
    scheduler.round()
    assert states_of(clocked)[good] is JobState.TO_LAUNCH
    assert {reason_of(clocked, slow), reason_of(clocked, other)} == {ReasonCode.CONDITION}
    with clocked.begin() as tx:
        texts = tx.column("SELECT description FROM event_logs WHERE type = %s", (EventType.CONDITION_TOO_SLOW,))
    assert len(texts) == 1
    assert "the condition of alice takes longer than 0.10 s" in texts[0]
    asked: list[str] = []

    def ask(self: Conditions, text: str) -> list[int]:
        asked.append(text)
        return []

    monkeypatch.setattr(Conditions, "ids", ask)
    submit(clocked, user="bob")
    scheduler.round()
    assert ENDLESS not in asked

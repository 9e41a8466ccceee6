"""A warm scheduler reads, plans and writes what has changed, and comes to the same as a cold one."""

from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

import pytest

from oar.kao.planner import job_messages
from oar.kao.rounds.meta_sched import MetaScheduler, ResourceWeights
from oar.kao.rounds.reading.snapshot_reader import CACHE_LIFETIME, SnapshotReader
from oar.kao.rounds.writing import plan_writer
from oar.lib.config.keys import Config
from oar.lib.db.database import Database
from oar.lib.db.statements import Parameters, Prepared, Statements
from oar.lib.jobs import control
from oar.lib.jobs.records import Dependency
from oar.lib.jobs.states import JobState
from oar.lib.nodes.records import PropertyValue
from oar.lib.planning.sql_rounds import ResourceRow, Rounds
from oar.lib.runtime import Runtime
from oar.lib.submission.resource_request import format_job_message
from tests.builders import add_resources, execute_sql, for_no_reason
from tests.db.test_meta_sched import NOW, at, clocked, submit  # noqa: F401 - a fixture


def test_what_is_read_warm_follows_every_change(clocked: Database, runtime: Runtime) -> None:  # noqa: F811
    add_resources(clocked, nodes=4, cores=2)
    first, second, third = (submit(clocked, "/network_address=1") for _ in range(3))
    warm = SnapshotReader(clocked, runtime.config)
    MetaScheduler(runtime).round()
    waiting = submit(clocked, "/network_address=4", user="bob")

    def is_followed() -> bool:
        read = warm.read()
        cold = SnapshotReader(clocked, runtime.config).read()
        return read == cold

    assert is_followed()
    execute_sql(clocked, "INSERT INTO job_dependencies (job_id, job_id_required) VALUES (%s, %s)", waiting, first)
    assert is_followed()
    with clocked.begin() as tx:
        tx.execute("UPDATE moldable_job_descriptions SET moldable_walltime = 7 WHERE moldable_job_id = %s", (second,))
        tx.jobs.insert_types({third: ("besteffort",)})
    assert is_followed()
    with clocked.begin() as tx:
        control.ask_end(tx, for_no_reason(waiting))
    assert is_followed()
    with clocked.begin() as tx:
        tx.jobs.move([first], JobState.LAUNCHING, list(JobState))
        tx.execute("UPDATE jobs SET job_name = 'other' WHERE job_id = %s", (waiting,))
    assert is_followed()


def test_jobs_that_have_not_changed_are_the_same_objects_until_everything_is_read_anew(
    clocked: Database,  # noqa: F811
    runtime: Runtime,
) -> None:
    add_resources(clocked)
    submit(clocked)
    warm = SnapshotReader(clocked, runtime.config)
    (before,) = warm.read().snapshot.waiting
    submit(clocked, "{cpuset = '0'}/resource_id=1")
    assert warm.read().snapshot.waiting[0] is before
    at(clocked, NOW + CACHE_LIFETIME)
    anew = warm.read().snapshot.waiting[0]
    assert anew is not before
    assert replace(anew) == before


def test_what_each_round_asks_is_planned_by_the_database_once(
    clocked: Database,  # noqa: F811
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round for each job that is submitted alone: with a running job, and one that is new."""
    add_resources(clocked)
    submit(clocked)
    reader, weights = SnapshotReader(clocked, runtime.config), ResourceWeights(clocked, runtime.config)
    MetaScheduler(runtime).round()
    weights.update()
    reader.read()
    submit(clocked)
    asked: list[str] = []
    run_really = Statements._run

    def run(tx: Statements, sql: str, parameters: Parameters) -> None:
        asked.append(sql)
        run_really(tx, sql, parameters)

    monkeypatch.setattr(Statements, "_run", run)
    weights.update()
    assert len(asked) == 1
    reader.read()
    assert [sql for sql in asked if not isinstance(sql, Prepared)] == []
    assert len(asked) <= 21, "\n".join(asked)


def test_weights_are_asked_for_as_soon_as_a_job_has_them(clocked: Database, runtime: Runtime) -> None:  # noqa: F811
    add_resources(clocked)
    with clocked.begin() as tx:
        assert not tx.resources.has_shared_jobs()
    submit(clocked, types=("besteffort",), queue="besteffort")
    with clocked.begin() as tx:
        assert not tx.resources.has_shared_jobs()
    MetaScheduler(runtime).round()
    with clocked.begin() as tx:
        assert tx.resources.has_shared_jobs()


def test_what_a_job_requires_is_read_whatever_became_of_it(clocked: Database, runtime: Runtime) -> None:  # noqa: F811
    add_resources(clocked)
    first, second = submit(clocked), submit(clocked)
    with clocked.begin() as tx:
        tx.execute("INSERT INTO job_dependencies (job_id, job_id_required) VALUES (%s, %s)", (second, first))
        for state in (JobState.TO_ERROR, JobState.ERROR):
            tx.jobs.move([first], state, list(JobState))
    snapshot = SnapshotReader(clocked, runtime.config).read().snapshot
    assert [(each.id, each.state) for each in snapshot.required] == [(first, JobState.ERROR)]
    assert snapshot.waiting[0].dependencies == (Dependency(second, first),)


def test_resources_are_read_again_when_more_than_their_last_use_has_changed(
    clocked: Database,  # noqa: F811
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, *_ = add_resources(clocked, nodes=2)
    submit(clocked, "{last_job_date > 0}/resource_id=1")
    submit(clocked, "{network_address <> 'node-2'}/resource_id=1")
    reads: list[str] = []
    rows, values = Rounds.resources, Rounds.column_values

    def read_rows(self: Rounds, names: Sequence[str], order: str, reservation_order: str) -> list[ResourceRow]:
        reads.append("resources")
        return rows(self, names, order, reservation_order)

    def read_columns(self: Rounds, names: Sequence[str]) -> dict[int, Sequence[PropertyValue]]:
        reads.extend(names)
        return values(self, names)

    monkeypatch.setattr(Rounds, "resources", read_rows)
    monkeypatch.setattr(Rounds, "column_values", read_columns)
    warm = SnapshotReader(clocked, runtime.config)

    def read_after(change: str) -> list[str]:
        """What was read again: resources, filters."""
        execute_sql(clocked, change)
        reads.clear()
        situation, found = warm.read(), list(reads)
        assert situation == SnapshotReader(clocked, runtime.config).read()
        return found

    everything = ["resources", "last_job_date", "network_address"]
    assert read_after("UPDATE resources SET last_job_date = 5") == everything
    assert read_after(f"UPDATE resources SET last_job_date = 7 WHERE resource_id = {first}") == everything
    assert read_after(f"UPDATE resources SET last_job_date = 0 WHERE resource_id = {second}") == ["last_job_date"]
    assert read_after(f"UPDATE resources SET state = 'Suspected' WHERE resource_id = {second}") == everything


def test_reasons_and_messages_that_have_not_changed_are_not_formatted_again(
    clocked: Database,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The jobs behind SCHEDULER_MAX_JOBS_PER_USER get a new, equal reason in each pass."""
    add_resources(clocked, nodes=1, cores=1)
    for user in ("alice", "alice", "alice", "alice", "bob", "bob"):
        submit(clocked, "/resource_id=1", user=user)
    limits = Config(job_resource_manager_property_db_field="cpuset", scheduler_max_jobs_per_user=2)
    scheduler = MetaScheduler(Runtime(limits, clocked), goes_on=True)
    for _ in range(3):  # the first one starts a job
        scheduler.round()
    stored = mock.Mock(wraps=plan_writer._stored)
    formatted = mock.Mock(wraps=format_job_message)
    monkeypatch.setattr(plan_writer, "_stored", stored)
    monkeypatch.setattr(job_messages, "format_job_message", formatted)
    scheduler.round()
    assert scheduler.phases.jobs == 5
    assert (stored.call_count, formatted.call_count) == (0, 0)

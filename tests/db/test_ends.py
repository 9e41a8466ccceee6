"""Why jobs ended and what they used is stored with their final state, and goes with them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from oar.lib.access.records import User
from oar.lib.bus import sockets
from oar.lib.bus.exit_codes import NodeChangeStateCode
from oar.lib.bus.frames import EndReport
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.statements import Statements
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control, lifecycle, sessions
from oar.lib.jobs.ends import Cause, EndCode, ExecCode
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import JobState, Phase
from oar.lib.remote.protocol import NodeFault, NodeFaultKind, ReportAnswer
from oar.lib.runtime import Runtime
from oar.modules import leon, node_change_state, sarko
from oar.modules.runner.actions import signals
from oar.modules.runner.bipbip_commander import Runner
from oar.modules.runner.dispatch import ActionKind
from oar.modules.runner.end_reports import EndReports
from tests.builders import add_job, add_resources, execute_sql, for_no_reason, move_job, state_of

ALICE, ROOT = User("alice", 1000), User("root", 0)


def cause_of(database: Database, job_id: int) -> Cause | None:
    """Return why a job ended."""
    with database.begin() as tx:
        return tx.job_runs.end_causes([job_id]).get(job_id)


def finishing(database: Database, code: int, status: int | None, **columns: Any) -> int:
    """Add a job whose end its node has told."""
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database), **columns)
    with database.begin() as tx:
        tx.job_runs.claim(job_id, "node-1")
        tx.job_runs.report(job_id, code, status)
        lifecycle.move(tx, job_id, JobState.FINISHING)
        tx.jobs.update(job_id, exit_code=status)
        tx.job_runs.update(job_id, phase=Phase.CLEANED)
    return job_id


def end(database: Database, job_id: int, to: JobState = JobState.TERMINATED) -> Cause:
    move_job(database, job_id, to)
    cause = cause_of(database, job_id)
    assert cause is not None
    return cause


@pytest.mark.parametrize(("ago", "after_start"), [(0, 900), (600, 300), (3600, 0)])
def test_an_end_reported_late_keeps_its_date_not_before_the_start(
    database: Database, ago: int, after_start: int
) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    with database.begin() as tx:
        start = tx.now - 900
        tx.jobs.update(job_id, start_time=start)
        tx.job_runs.claim(job_id, "node-1")
        tx.execute("UPDATE challenges SET challenge = '7' WHERE job_id = %s", (job_id,))
        assert EndReports().store(tx, [EndReport(-1, job_id, 0, "0", "7", ago)]) == [ReportAnswer.OK]
    with database.begin() as tx:
        job = tx.jobs.find(job_id)
        assert job is not None
        assert job.state is JobState.FINISHING
        assert job.stop_time == start + after_start


def end_all(database: Database, monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[int, int]:
    """Let so many jobs end together, from their reports to their final states; return transactions and statements."""
    ids = [add_job(database, JobState.RUNNING, on=add_resources(database)[:1]) for _ in range(count)]
    with database.begin() as tx:
        for job_id in ids:
            tx.job_runs.claim(job_id, "node-1")
        tx.execute("UPDATE challenges SET challenge = '7' WHERE job_id = ANY(%s)", (ids,))
    transactions = create_autospec(Database._started, side_effect=Database._started)
    statements = create_autospec(Statements._run, side_effect=Statements._run)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "_started", transactions)
        patch.setattr(Statements, "_run", statements)
        with database.begin() as tx:
            answers = EndReports().store(tx, [EndReport(-1, job_id, 0, "0", "7", 0) for job_id in ids])
        with database.begin() as tx:
            tx.job_runs.conclude(ids, ())
            ends = [(EventType.SWITCH_INTO_TERMINATE_STATE, job_id, "") for job_id in ids]
            tx.events.add_many(ends, to_check=True)
        node_change_state.run(Runtime(Config(), database))
    assert answers == [ReportAnswer.OK] * count
    assert {state_of(database, job_id) for job_id in ids} == {JobState.TERMINATED}
    return transactions.call_count, statements.call_count


def test_a_hundred_jobs_that_end_together_cost_the_transactions_and_statements_of_two(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = end_all(database, monkeypatch, 2)
    assert end_all(database, monkeypatch, 100) == two


def test_a_hundred_kills_cost_the_statements_of_two(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_kills(count: int) -> int:
        ids = [add_job(database, JobState.RUNNING, on=add_resources(database)[:1]) for _ in range(count)]
        with database.begin() as tx:
            tx.job_requests.request_kill({job_id: Cause(EndCode.DELETED) for job_id in ids})
        statements = create_autospec(Statements._run, side_effect=Statements._run)
        with database.begin() as tx, monkeypatch.context() as patch:
            patch.setattr(Statements, "_run", statements)
            kills = signals._read_kills(tx, ids)
        assert [(data and data.job.id, kill and kill.job_id) for data, kill in kills] == [(each, each) for each in ids]
        return int(statements.call_count)

    assert read_kills(100) == read_kills(2)


def test_the_runner_does_not_read_a_job_again_whose_end_it_has_just_stored(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    with database.begin() as tx:
        tx.job_runs.claim(job_id, "node-1")
        tx.execute("UPDATE challenges SET challenge = '7' WHERE job_id = %s", (job_id,))
    transactions = create_autospec(Database._started, side_effect=Database._started)
    with sockets.connected(f"ipc://{tmp_path}/server") as dealer:
        runner = Runner(Runtime(Config(), database), dealer)
        runner._treat(EndReport(-1, job_id, 0, "0", "7", 0))
        with monkeypatch.context() as patch:
            patch.setattr(Database, "_started", transactions)
            runner._store_reports()
            runner._follow_doorbells()
        ((_, action),) = runner._dispatch.due(0.0)
    assert transactions.call_count == 1
    assert (action.kind, action.job_id, action.host) == (ActionKind.END, job_id, "node-1")


def test_the_fault_reported_by_the_node_is_part_of_the_cause(database: Database) -> None:
    job_id = finishing(database, ExecCode.OUTPUT, None)
    with database.begin() as tx:
        tx.job_runs.note_fault(job_id, NodeFault(NodeFaultKind.OUTPUT, "EACCES", "/root/é"))
        tx.job_runs.note_fault(job_id, NodeFault(NodeFaultKind.FULL, "", "/elsewhere"))
    found = end(database, job_id, JobState.ERROR)
    assert found == Cause(EndCode.OUTPUT_DENIED, {"node": "node-1", "path": "/root/é", "errno": "EACCES"})


def test_a_signal_that_a_user_had_oar_send_is_known_with_its_request(database: Database) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    with database.begin() as tx:
        control.request_signal(tx, ALICE, job_id, 15)
        control.request_signal(tx, ROOT, job_id, 10)
        tx.job_runs.claim(job_id, "node-1")
        tx.job_runs.report(job_id, ExecCode.SIGNALLED, 15)
        lifecycle.move(tx, job_id, JobState.FINISHING)
        tx.jobs.update(job_id, exit_code=15)
    text = f"User alice requested the signal 15 for the job {job_id}"
    assert end(database, job_id) == Cause(EndCode.SIGNAL_SENT, {"signal": 15, "text": text})


def test_the_memory_that_ran_out_is_named_by_node(database: Database) -> None:
    job_id = finishing(database, ExecCode.OK, 137 << 8)
    good, bad = NodeUsage("node-1", 2, 1.5, 1000, 2000, 0, 0), NodeUsage("node-2", 2, 0.5, 2000, 2000, 4, 0)
    with database.begin() as tx:
        tx.job_runs.add_usage([(job_id, good), (job_id, bad)])
    assert end(database, job_id).data["nodes"] == {"node-2": {"kills": 4, "peak": 2000, "limit": 2000}}
    with database.begin() as tx:
        assert tx.job_runs.usage([job_id]) == {job_id: [good, bad]}


def test_a_second_cleanup_without_figures_keeps_the_first_ones(database: Database) -> None:
    job_id = finishing(database, ExecCode.OK, 0)
    found = NodeUsage("node-1", 2, 1.5, 1000, None, 0, 0)
    for figures in (found, NodeUsage("node-1", 2)):
        with database.begin() as tx:
            tx.job_runs.add_usage([(job_id, figures)])
    with database.begin() as tx:
        assert tx.job_runs.usage([job_id])[job_id] == [found]


@pytest.mark.parametrize(
    ("user", "cause"),
    [(ALICE, Cause(EndCode.DELETED, {"by": "alice"})), (ROOT, Cause(EndCode.ADMINISTRATOR, {"by": "root"}))],
)
def test_who_deleted_a_waiting_job_is_remembered(runtime: Runtime, user: User, cause: Cause) -> None:
    job_id = add_job(runtime.database)
    with runtime.database.begin() as tx:
        control.delete(tx, user, [job_id], with_inner=True)
    leon.run(runtime)
    assert cause_of(runtime.database, job_id) == cause


def test_the_first_kill_request_is_the_cause(database: Database) -> None:
    job_id = finishing(database, ExecCode.KILLED, None)
    with database.begin() as tx:
        control.ask_end(tx, {job_id: Cause(EndCode.EVICTED, {"for_job": 4711})})
        control.ask_end(tx, {job_id: Cause(EndCode.WALLTIME)})
    assert end(database, job_id, JobState.ERROR) == Cause(EndCode.EVICTED, {"for_job": 4711})


@pytest.mark.parametrize(
    ("exit_code", "code"), [(99 << 8, EndCode.EVICTED), (10, EndCode.EVICTED), (0, EndCode.SUCCESS)]
)
def test_an_evicted_job_that_ends_before_its_kill_names_the_eviction(
    database: Database, exit_code: int, code: EndCode
) -> None:
    job_id = finishing(database, ExecCode.OK, exit_code)
    with database.begin() as tx:
        control.ask_end(tx, {job_id: Cause(EndCode.EVICTED, {"for_job": 4711})})
    assert end(database, job_id).code is code


def test_the_cause_of_a_passed_walltime_holds_the_run_time(runtime: Runtime) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database), walltime=100)
    with database.begin() as tx:
        tx.jobs.update(job_id, start_time=tx.now - 130)
    sarko.run(runtime)
    with database.begin() as tx:
        tx.job_runs.report(job_id, ExecCode.KILLED, None)
        lifecycle.move(tx, job_id, JobState.FINISHING)
    found = end(database, job_id, JobState.ERROR)
    assert found.code is EndCode.WALLTIME
    assert found.data["walltime"] == 100
    assert found.data["ran"] in (130, 131)


def test_the_inner_jobs_of_a_container_end_because_of_it(runtime: Runtime) -> None:
    database = runtime.database
    outer = add_job(database, types=["container"])
    inner = add_job(database, types=[f"inner={outer}"])
    with database.begin() as tx:
        control.ask_end(tx, for_no_reason(outer))
    leon.run(runtime)
    assert cause_of(database, inner) == Cause(EndCode.CONTAINER, {"container": outer})
    assert cause_of(database, outer) == Cause(EndCode.STOPPED)


def test_the_cause_of_a_withdrawn_node_names_it(runtime: Runtime) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    execute_sql(database, "UPDATE resources SET next_state = 'Absent' WHERE network_address = 'node-2'")
    assert node_change_state.run(runtime) == NodeChangeStateCode.KILL
    with database.begin() as tx:
        tx.job_runs.exterminate([job_id])
        lifecycle.move(tx, job_id, JobState.FINISHING)
    assert end(database, job_id, JobState.ERROR) == Cause(EndCode.NODE_TAKEN, {"nodes": ["node-2"], "unanswered": True})


def _forget(tx: Transaction, job_id: int) -> None:
    tx.retention.remove_jobs([job_id])


def _roll_back(tx: Transaction, job_id: int) -> None:
    raise InterruptedError


@pytest.mark.parametrize("then", [_forget, _roll_back])
def test_no_cause_or_usage_remains_of_removed_or_rolled_back_jobs(
    database: Database, then: Callable[[Transaction, int], None]
) -> None:
    job_id = finishing(database, ExecCode.OK, 0)
    try:
        with database.begin() as tx:
            tx.job_runs.add_usage([(job_id, NodeUsage("node-1"))])
            lifecycle.move(tx, job_id, JobState.TERMINATED)
            then(tx, job_id)
    except InterruptedError:
        pass
    with database.begin() as tx:
        assert tx.value("SELECT count(*) FROM job_ends") == tx.value("SELECT count(*) FROM job_usage") == 0


@pytest.mark.parametrize("code", list(EndCode))
def test_every_cause_can_be_asked_for_and_stored(database: Database, code: EndCode) -> None:
    job_id = finishing(database, ExecCode.KILLED, None)
    with database.begin() as tx:
        control.ask_end(tx, {job_id: Cause(code, {"text": "é\x00"})})
    found = end(database, job_id, JobState.ERROR)
    assert (found.code, found.data["text"]) == (code, "é\x00")


@pytest.mark.parametrize(("data", "code"), [("[1]", "WALLTIME"), ("5", "WALLTIME"), ("{", "UNKNOWN")])
def test_a_kill_that_somebody_wrote_by_hand_does_not_keep_a_job_from_its_end(
    database: Database, data: str, code: str
) -> None:
    job_id = finishing(database, ExecCode.KILLED, None)
    with database.begin() as tx:
        row = (job_id, "WALLTIME", data)
        tx.execute("INSERT INTO frag_jobs (frag_id_job, frag_cause, frag_data) VALUES (%s, %s, %s)", row)
    assert end(database, job_id, JobState.ERROR).code == code


def test_a_cause_of_another_version_is_unknown_and_named(database: Database) -> None:
    job_id = finishing(database, ExecCode.OK, 0)
    end(database, job_id)
    execute_sql(database, "UPDATE job_ends SET code = 'MOONLIGHT', data = '{}' WHERE job_id = %s", job_id)
    assert cause_of(database, job_id) == Cause(EndCode.UNKNOWN, {"text": "MOONLIGHT"})


@pytest.mark.parametrize(
    ("cause", "is_main", "by_others"),
    [
        (EndCode.SESSION_OVER, True, False),
        (EndCode.SESSION_OVER, False, True),
        (EndCode.WALLTIME, True, True),
        (None, True, True),
    ],
)
def test_a_client_that_looks_after_the_whole_end_sees_who_ended_its_session(
    database: Database, cause: EndCode | None, is_main: bool, by_others: bool
) -> None:
    """The row of the run is gone by then: the stored cause remains."""
    job_id = add_job(database, JobState.RUNNING)
    if cause is not None:
        with database.begin() as tx:
            tx.job_runs.store_ends({job_id: Cause(cause)})
    move_job(database, job_id, JobState.FINISHING, JobState.TERMINATED)
    with database.begin() as tx:
        assert tx.job_runs.find(job_id) is None
        assert sessions.is_ended_by_others(tx, job_id, is_main=is_main) is by_others

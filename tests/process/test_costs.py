"""What one job costs: statements, commits that wait for the disk, processes."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.db.database import Database
from oar.lib.db.statements import Parameters, Prepared, Statements
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.states import JobState
from oar.lib.remote.protocol import NodeAction
from oar.lib.remote.requests import NodeCommand, NodeRequest, Outcome
from oar.lib.runtime import Runtime
from oar.modules import node_change_state
from oar.modules.runner.actions import signals
from oar.modules.runner.actions.launch import launch_job
from tests.builders import add_job
from tests.process.world import World


class Counted:
    """What is asked of the database by those who wait for it: statements, transactions, commits that wait for the disk.

    That a job has started is stored soon, by a timer: on a busy machine before the job has ended, else behind it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.transactions = 0
        self.synced = 0
        run_really, transact_really = Statements._run, Database._transaction

        def run(tx: Statements, sql: str, parameters: Parameters) -> None:
            if threading.current_thread() is threading.main_thread():
                self.statements.append(sql)
            run_really(tx, sql, parameters)

        @contextmanager
        def transaction(database: Database, kind: str, since: float | None = None) -> Iterator[Transaction]:
            with transact_really(database, kind, since) as tx:
                yield tx
                self.transactions += threading.current_thread() is threading.main_thread()
                run_really(tx, "SELECT pg_current_xact_id_if_assigned()", ())
                self.synced += tx._cursor.fetchall()[0][0] is not None and not tx.is_asynchronous

        monkeypatch.setattr(Statements, "_run", run)
        monkeypatch.setattr(Database, "_transaction", transaction)


def test_a_job_costs_few_statements_and_two_commits_that_wait_for_the_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From toLaunch to its concluded end; another one was before, as on every day."""
    end_well(world, world.job("true"))
    world.context.steps.settle()
    job_id = world.job("true")
    with monkeypatch.context() as patch:
        counted = Counted(patch)
        end_well(world, job_id)
    assert counted.synced == 2  # GO, and the end report
    assert counted.transactions == 4  # claim, GO, end report, conclusion
    assert len(counted.statements) <= 20, "\n".join(counted.statements)
    assert [sql for sql in counted.statements if not isinstance(sql, Prepared)] == []


def test_a_job_waits_for_the_disk_twice_from_the_round_that_starts_it_to_its_final_state(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its submission, which was acknowledged, is a third commit that waits."""
    runtime = Runtime(world.context.config, world.database)
    scheduler = MetaScheduler(runtime)
    scheduler.round()
    job_id = add_job(world.database, command="true", launching_directory=str(world.box.home("alice")))
    with monkeypatch.context() as patch:
        counted = Counted(patch)
        scheduler.round()
        end_well(world, job_id)
        node_change_state.run(runtime)
        scheduler.round()
    scheduler.close()
    assert world.row(job_id).state is JobState.TERMINATED
    assert counted.synced == 2  # GO, and the end report


def test_a_launch_looks_for_kill_requests_once_before_each_thing_that_it_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the server prologue, before oarexec, before GO."""
    config = world.context.config.replace(server_prologue_exec_file="/bin/true")
    job_id = world.job("true")
    with monkeypatch.context() as patch:
        counted = Counted(patch)
        assert launch_job(replace(world.context, config=config), job_id) is None
    looks = [sql for sql in counted.statements if "frag_jobs" in sql]
    assert len(looks) == 3, "\n".join(looks)


def test_a_job_costs_a_node_no_process_but_its_command(world: World) -> None:
    """oarexec, clean-ups and probes are done by workers that are there; other jobs were before, as on every day."""
    end_well(world, world.job("true"))
    costs = [processes_of_a_job(world) for _ in range(5)]
    assert min(costs) == 1, costs  # a worker may be on its way back from the job before


def processes_of_a_job(world: World) -> int:
    """Run a job; return how many processes its node has begun for it."""
    before, of_looking = next_process(world), next_process(world)
    end_well(world, world.job("true"))
    return next_process(world) - of_looking - (of_looking - before)


def test_a_signal_to_a_job_costs_a_node_no_process(world: World) -> None:
    """A burst of kills would fork a worker for each."""
    job_id = world.launched("sleep 1000")
    job = {"job_id": job_id}
    assert world.box.ctl(job, "USR1") == 0  # means nothing to a job without a session
    before, of_looking = next_process(world), next_process(world)
    assert world.box.ctl(job, "USR1") == 0
    assert world.box.ctl({"job_id": job_id + 1}, "USR1") == signals.NO_OAREXEC
    assert next_process(world) - of_looking == of_looking - before
    assert world.box.ctl(job, "TERM") == 0
    world.finish(job_id)


def test_a_clean_up_is_sent_no_resources(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node of a job of a thousand nodes would read a thousand descriptions."""
    sent: list[NodeRequest] = []
    run_really = world.context.remote.run

    def run(requests: Mapping[str, NodeRequest | NodeCommand], seconds: float) -> dict[str, Outcome]:
        sent.extend(request for request in requests.values() if isinstance(request, NodeRequest))
        return run_really(requests, seconds)

    monkeypatch.setattr(world.context.remote, "run", run)
    end_well(world, world.job("true"))
    (cleaning,) = (request.data for request in sent if request.action == NodeAction.CLEAN)
    assert not cleaning.keys() & {"resources", "nodes", "types", "job_env"}


def next_process(world: World) -> int:
    """Return the number of a new process of the node: they are counted there."""
    return int(world.box.sh("echo $$"))


def end_well(world: World, job_id: int) -> None:
    """Launch a job and bring it to its end."""
    assert launch_job(world.context, job_id) is None
    world.finish(job_id)

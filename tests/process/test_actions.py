"""The actions of the bipbips on a real node and a real database: launch, end, kill, signal, probe, sweep."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from oar.lib.bus.messages import Ask, Due, JobAction, Mail, OarsubLine
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType, signal_event
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import Cause, EndCode, ExecCode, cause_text
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import JobState, JobType, Phase, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.remote.pool import Remote
from oar.lib.remote.requests import CommandRan, RemoteSettings
from oar.lib.remote.transports import CannotReach, LocalTransport, SessionChannel
from oar.lib.runtime import Runtime
from oar.modules import node_change_state
from oar.modules.runner.actions import finish, launch, nodes, probe, signals
from oar.modules.runner.actions.context import RetryAfter
from oar.modules.runner.actions.launch import launch_job
from oar.modules.runner.actions.notices import tell
from oar.modules.runner.bipbip import Bipbip
from oar.modules.runner.dispatch import Action, ActionKind
from tests.builders import add_job, add_resources, execute_sql, for_no_reason, state_of
from tests.process.node_box import NODE
from tests.process.this_machine import free_ports, text_in, wait_until
from tests.process.world import Nowhere, World, end, slowed


def test_a_job_runs_and_ends_with_its_exit_code(world: World) -> None:
    job_id = world.launched("echo $OAR_JOB_ID; exit 3")
    assert state_of(world.database, job_id) is JobState.RUNNING
    world.take_report(job_id)
    assert state_of(world.database, job_id) is JobState.FINISHING
    finish.finish(world.context, job_id)
    assert world.phase(job_id) is Phase.CLEANED
    assert world.events(job_id) == [EventType.SWITCH_INTO_TERMINATE_STATE]
    assert world.row(job_id).exit_code == 3 * 256
    assert (world.box.home("alice") / f"OAR.{job_id}.stdout").read_text() == f"{job_id}\n"
    assert not [group for group in world.box.groups() if str(job_id) in group.name]
    assert world.cause(job_id) == Cause(EndCode.EXIT_STATUS, {"status": 3})
    with world.database.begin() as tx:
        (used,) = tx.job_runs.usage([job_id])[job_id]
    assert (used.node, used.cores, used.oom_kills) == (NODE, 1, 0)
    assert used.cpu_seconds


def test_launching_twice_starts_the_command_once(world: World) -> None:
    job_id = world.launched("echo x >>count; sleep 100")
    launch_job(world.context, job_id)
    count = world.box.home("alice") / "count"
    assert text_in(count) == "x\n"
    end(world, job_id)
    count.unlink()


def test_a_job_killed_while_it_runs_has_no_exit_code(world: World) -> None:
    job_id = world.launched("sleep 100")
    end(world, job_id)
    assert world.events(job_id) == [EventType.SWITCH_INTO_ERROR_STATE]
    assert world.row(job_id).exit_code is None
    text = (world.box.home("alice") / f"OAR.{job_id}.stderr").read_text()
    assert f"Job {job_id} KILLED ##" in text


def test_a_job_whose_deletion_was_asked_before_its_start_never_starts(world: World) -> None:
    job_id = world.job("touch started")
    with world.database.begin() as tx:
        tx.job_requests.request_kill(for_no_reason(job_id))
    assert launch_job(world.context, job_id) is None
    run = world.run(job_id)
    assert (run.oarexec_code, run.report_date > 0) == (ExecCode.KILLED, True)
    finish.finish(world.context, job_id)
    assert world.events(job_id) == [EventType.SWITCH_INTO_ERROR_STATE]
    assert not (world.box.home("alice") / "started").exists()


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.NODES_OK, Phase.PROLOGUE_OK, Phase.EXEC_SENT])
def test_a_launch_that_broke_off_goes_on_after_its_phase(world: World, phase: Phase) -> None:
    job_id = world.job("true", JobState.LAUNCHING)
    with world.database.begin() as tx:
        tx.job_runs.claim(job_id, NODE)
        tx.job_runs.update(job_id, phase=phase)
    assert launch_job(world.context, job_id) is None
    world.finish(job_id)
    assert world.events(job_id) == [EventType.SWITCH_INTO_TERMINATE_STATE]


def test_one_disturbance_of_a_connection_does_not_spend_all_attempts_of_a_launch(world: World) -> None:
    job_id = world.job("true", JobState.LAUNCHING)
    with world.database.begin() as tx:  # the first session was lost, and the one that followed at once
        tx.job_runs.claim(job_id, NODE)
        tx.job_runs.update(job_id, phase=Phase.EXEC_SENT, attempt=2)
    pause = launch_job(world.context, job_id)
    assert pause is not None
    assert 0 < pause.seconds <= launch.RETRY_PAUSE
    assert world.run(job_id).attempt == 2
    with world.database.begin() as tx:
        tx.execute("UPDATE job_runs SET updated = updated - %s", (launch.RETRY_PAUSE,))
    assert launch_job(world.context, job_id) is None
    assert world.run(job_id).attempt == 3
    world.finish(job_id)
    assert world.events(job_id) == [EventType.SWITCH_INTO_TERMINATE_STATE]


def test_a_job_that_is_deleted_between_two_attempts_of_its_launch_ends_at_once(world: World) -> None:
    job_id = world.job("touch started", JobState.LAUNCHING)
    with world.database.begin() as tx:
        tx.job_runs.claim(job_id, NODE)
        tx.job_runs.update(job_id, phase=Phase.EXEC_SENT, attempt=2)
        tx.job_requests.request_kill(for_no_reason(job_id))
    assert launch_job(world.context, job_id) is None
    run = world.run(job_id)
    assert (run.oarexec_code, run.report_date > 0) == (ExecCode.KILLED, True)
    assert not (world.box.home("alice") / "started").exists()


def test_a_go_that_was_lost_is_said_again(world: World) -> None:
    job_id = world.job("echo once >>lost; sleep 100", JobState.RUNNING)
    with world.database.begin() as tx:
        tx.job_runs.claim(job_id, NODE)
        tx.job_runs.update(job_id, phase=Phase.GO)
    assert launch_job(world.context, job_id) is None
    world.context.steps.settle()
    assert world.phase(job_id) is Phase.STARTED
    lost = world.box.home("alice") / "lost"
    assert text_in(lost) == "once\n"
    end(world, job_id)
    lost.unlink()


def test_a_running_job_is_found_again_by_a_new_launcher(world: World) -> None:
    job_id = world.launched("sleep 100")
    with world.database.begin() as tx:  # as if the bipbip had died before it noted the start
        tx.job_runs.update(job_id, phase=Phase.GO)
    assert launch_job(world.context, job_id) is None
    assert world.phase(job_id) is Phase.STARTED
    assert EventType.JOB_RECOVERED in world.events(job_id)
    end(world, job_id)


def test_of_a_running_job_a_probe_keeps_what_it_has_used_by_now(world: World) -> None:
    job_id = world.launched("while :; do :; done")

    def used() -> float | None:
        probe.probe(world.context, NODE)
        with world.database.begin() as tx:
            (found,) = tx.job_runs.usage([job_id]).get(job_id) or [NodeUsage(NODE)]
        return found.cpu_seconds

    before = wait_until(used)
    wait_until(lambda: (used() or 0) > before + 0.05)
    end(world, job_id)


def interrupted(*_: object) -> None:
    raise InterruptedError


def test_a_job_that_ran_out_of_memory_is_told_with_peak_and_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow = "y = []\nwhile True: y.append(bytes(1 << 22))"
    job_id = world.launched(f"until [ -e go ]; do sleep 0.02; done; python3 -c '{grow}'; exit 8")
    (limit,) = (
        path
        for group in world.box.groups()
        for path in group.glob("payload/memory.limit_in_bytes")
        if group.name == f"alice_{job_id}"
    )
    limit.write_text(str(64 << 20))
    (world.box.home("alice") / "go").touch()
    world.take_report(job_id)
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):  # killed when the node has been cleaned
        patch.setattr(finish, "_conclude", interrupted)
        finish.finish(world.context, job_id)
    finish.finish(world.context, job_id)
    cause = world.cause(job_id)
    assert (cause.code, cause.data["status"]) == (EndCode.OUT_OF_MEMORY, 8)
    figures = cause.data["nodes"][NODE]
    assert figures["limit"] == 64 << 20
    assert figures["peak"] == pytest.approx(64 << 20, rel=0.1)
    (world.box.home("alice") / "go").unlink()


def test_a_job_has_the_memory_that_it_asked_for_and_no_more(world: World) -> None:
    world.context = replace(world.context, config=world.context.config.replace(memory_property="memory"))
    job_id = world.job("exec python3 -c 'y = []\nwhile True: y.append(bytes(1 << 22))'")
    execute_sql(world.database, "UPDATE moldable_job_descriptions SET memory_per_core = 64")
    launch_job(world.context, job_id)
    world.take_report(job_id)
    finish.finish(world.context, job_id)
    cause = world.cause(job_id)
    assert (cause.code, cause.data["nodes"][NODE]["limit"]) == (EndCode.OUT_OF_MEMORY, 64 << 20)


def test_an_end_whose_report_was_lost_is_fetched_from_the_node(world: World) -> None:
    job_id = world.launched("exit 7")
    assert world.port.report("").job_id == job_id  # closed without an answer: oarexec keeps the end
    probe.probe(world.context, NODE)
    run = world.run(job_id)
    assert (run.oarexec_code, run.script_status) == (0, 7 * 256)
    assert Ask(JobAction.END, job_id) in world.told
    finish.finish(world.context, job_id)
    assert world.events(job_id) == [EventType.SWITCH_INTO_TERMINATE_STATE]


def test_an_oarexec_that_died_is_found_dead(world: World) -> None:
    job_id = world.launched("sleep 100")
    world.kill_oarexec(job_id)
    world.probe_until_reported(job_id)
    finish.finish(world.context, job_id)
    assert world.events(job_id) == [EventType.OAREXEC_DIED, EventType.EXIT_VALUE_OAREXEC]
    assert world.cause(job_id) == Cause(EndCode.OAREXEC_LOST, {"node": NODE})
    wait_until(lambda: world.box.sh("pgrep -u alice sleep || true") == "")  # who was killed waits to be buried


@pytest.mark.parametrize(("is_heard", "code"), [(False, EndCode.RESTORED), (True, EndCode.OAREXEC_LOST)])
def test_the_end_of_a_job_that_ended_before_the_database_was_restored_is_unknown(
    world: World, is_heard: bool, code: EndCode
) -> None:
    job_id = world.launched("sleep 100")
    probe.probe(world.context, NODE)  # its start is stored
    with world.database.begin() as tx:
        tx.events.add(EventType.DATABASE_RESTORED, 0, "The database has been restored from a dump.")
        tx.execute("UPDATE event_logs SET date = date - 5 WHERE type = 'DATABASE_RESTORED'")
        tx.execute("UPDATE job_runs SET updated = updated - 10")
    if is_heard:
        probe.probe(world.context, NODE)
    world.kill_oarexec(job_id, waits=True)
    world.probe_until_reported(job_id)
    finish.finish(world.context, job_id)
    assert world.cause(job_id) == Cause(code, {"node": NODE})


def test_a_job_whose_account_its_node_does_not_know_names_the_node(world: World) -> None:
    job_id = world.launched("true", user="gone")
    finish.finish(world.context, job_id)
    with world.database.begin() as tx:
        (failure,) = tx.events.failures([EventType.USER_SHELL], 0)
    assert (failure.job, failure.user, failure.node) == (job_id, "gone", NODE)
    assert world.cause(job_id) == Cause(EndCode.ACCOUNT_UNKNOWN, {"node": NODE})


def test_a_job_that_died_with_its_node_has_ended_at_the_boot_at_the_latest(world: World) -> None:
    job_id = world.launched("sleep 100")
    world.kill_oarexec(job_id)
    state_file = world.box.runtime / f"oarexec_{job_id}.state"
    state_file.write_text(json.dumps(json.loads(state_file.read_text()) | {"boot_id": "that of before"}))
    wait_until(lambda: world.box.age > 3)
    with world.database.begin() as tx:
        tx.jobs.update(job_id, start_time=1)
        boot = tx.now - world.box.age
    world.probe_until_reported(job_id)
    finish.finish(world.context, job_id)
    with world.database.begin() as tx:
        assert 1 < tx.jobs.get(job_id).stop_time <= boot + 1  # both are cut to seconds


def silent_for(world: World, seconds: int, node: str = NODE) -> None:
    """Let a node have been silent for so long."""
    with world.database.begin() as tx:
        tx.job_runs.note_silence(node, tx.now - seconds)


def test_a_job_whose_node_is_silent_for_a_minute_goes_on_and_is_lost_with_it_later(world: World) -> None:
    job_id = world.launched("sleep 100", types=["idempotent"])
    way = Nowhere(world.box.enter())
    with Remote(RemoteSettings(), way) as remote:
        context = replace(world.context, remote=remote)
        silent_for(world, 60)
        assert probe.probe(context, NODE) is not None
        assert world.phase(job_id) is Phase.STARTED
        way.is_shut = False
        assert probe.probe(context, NODE) is None
        run = world.run(job_id)
        assert (run.silent_since, run.failures) == (0, 0)
    silent_for(world, world.context.config.node_lost_timeout)
    way.is_shut = True
    with Remote(RemoteSettings(), way) as remote:
        context = replace(world.context, remote=remote)
        assert probe.probe(context, NODE) is None
        finish.finish(context, job_id)
    assert world.events(job_id) == [EventType.NODE_LOST, EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB]
    assert world.cause(job_id) == Cause(EndCode.NODE_LOST, {"nodes": [NODE]})
    with world.database.begin() as tx:
        assert {(one.state, one.finaud_decision) for one in tx.resources.of_nodes([NODE])} == {
            (ResourceState.SUSPECTED, True)
        }
        assert EventType.RESUBMIT_JOB_AUTOMATICALLY in world.events(job_id)


def test_a_host_is_given_up_behind_what_is_done_for_its_jobs_meanwhile(world: World) -> None:
    """Both lock a job before what is noted of its launch: neither waits for the other for ever (a deadlock)."""
    job_id = world.launched("sleep 100")
    silent_for(world, world.context.config.node_lost_timeout)
    with Remote(RemoteSettings(), Nowhere(world.box.enter())) as remote, ThreadPoolExecutor() as pool:
        with world.database.begin() as tx:
            tx.jobs.lock(job_id)
            given_up = pool.submit(probe.probe, replace(world.context, remote=remote), NODE)
            wait_until(lambda: is_waited_for(world))
            tx.job_runs.update(job_id)
        assert given_up.result() is None
    run = world.run(job_id)
    assert run.oarexec_code == ExecCode.DIED


def is_waited_for(world: World) -> bool:
    """Whether a transaction waits for another one."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with world.database.begin() as tx:
        return bool(tx.value(waiting))


def test_no_job_is_lost_while_the_server_hears_no_node_at_all(world: World) -> None:
    nodes = [f"node-{number}" for number in range(2, probe.TOO_MANY_TO_FAIL + 3)]
    job_id = world.launched("sleep 100")
    for node in nodes:
        other = world.job("", JobState.RUNNING)
        with world.database.begin() as tx:
            tx.job_runs.claim(other, node)
            tx.execute("UPDATE job_runs SET phase = 'STARTED', updated = 0 WHERE job_id = %s", (other,))
    with world.database.begin() as tx:
        tx.execute("UPDATE job_runs SET updated = 0")
    for node in (NODE, *nodes[:-1]):
        silent_for(world, 300, node)
    with Remote(RemoteSettings(), Nowhere()) as remote:
        context = replace(world.context, remote=remote)
        assert probe.probe(context, NODE) is not None
        assert world.phase(job_id) is Phase.STARTED
        assert Ask(JobAction.PROBE, 0, (nodes[-1],)) in world.told
        with world.database.begin() as tx:  # the other one answers
            tx.execute("UPDATE job_runs SET updated = %s WHERE head_host = %s", (tx.now, nodes[-1]))
        assert probe.probe(context, NODE) is None
    assert world.phase(job_id) is Phase.REPORTED


def test_a_job_whose_node_was_rebooted_ends_with_that_cause_and_the_node_returns(world: World) -> None:
    job_id = world.launched("sleep 100", types=["idempotent"])
    world.context.steps.settle()
    with world.database.begin() as tx:  # nothing else of a reboot can be had in a box
        tx.job_runs.update(job_id, boot_id="the boot before")
    world.kill_oarexec(job_id)
    world.probe_until_reported(job_id)
    finish.finish(world.context, job_id)
    assert world.events(job_id) == [EventType.NODE_REBOOTED]
    assert world.cause(job_id) == Cause(EndCode.NODE_REBOOTED, {"nodes": [NODE]})
    assert EventType.RESUBMIT_JOB_AUTOMATICALLY in world.events(job_id)
    assert Ask(JobAction.SWEEP, 0, (NODE,)) in world.told
    assert probe.sweep(world.context, NODE) is None
    node_change_state.run(Runtime(world.context.config, world.database))
    with world.database.begin() as tx:
        assert {one.state for one in tx.resources.of_nodes([NODE])} == {ResourceState.ALIVE}


def shut_down(world: World, job_id: int) -> None:
    """Let the node of a job go down as far as the job can see it."""
    pid = (world.box.runtime / f"pid_of_oarexec_for_jobId_{job_id}").read_text()
    with world.box.going_down():
        world.box.sh(f"kill {pid}")
        world.probe_until_reported(job_id)


@pytest.mark.parametrize("is_back", [False, True], ids=["still down", "booted again"])
def test_a_job_whose_node_was_shut_down_is_run_again_and_the_node_comes_back_by_itself(
    world: World, is_back: bool
) -> None:
    job_id = world.launched("sleep 100", types=["idempotent"])
    shut_down(world, job_id)
    if is_back:  # nothing else of a boot can be had in a box
        with world.database.begin() as tx:
            tx.job_runs.update(job_id, boot_id="the boot before")
    finish.finish(world.context, job_id)
    assert world.events(job_id) == [EventType.NODE_SHUTDOWN]
    assert world.cause(job_id) == Cause(EndCode.NODE_SHUTDOWN, {"nodes": [NODE]})
    assert EventType.RESUBMIT_JOB_AUTOMATICALLY in world.events(job_id)
    with world.database.begin() as tx:
        resources = tx.resources.of_nodes([NODE])
    expected = ResourceState.ALIVE if is_back else ResourceState.SUSPECTED
    assert {(one.state, one.finaud_decision) for one in resources} == {(expected, not is_back)}


def test_a_node_that_goes_down_is_neither_blamed_for_its_clean_up_nor_swept(world: World) -> None:
    outcome = CommandRan(143, (), "")
    assert not nodes.answer_of(outcome).reached
    with world.box.going_down():
        answer = world.box.run("job_resource_manager_cgroups", "sweep", world.box.init_data() | {"jobs": []})
    assert isinstance(answer, CommandRan)
    assert (answer.exit, "goes down" in answer.stderr) == (6, True)


def test_a_working_directory_that_is_not_there_is_the_user_s_error(world: World) -> None:
    job_id = world.job("true")
    with world.database.begin() as tx:
        tx.jobs.update(job_id, launching_directory="/nonexistent/dir")
    assert launch_job(world.context, job_id) is None
    finish.finish(world.context, job_id)
    assert world.events(job_id) == [EventType.SWITCH_INTO_ERROR_STATE, EventType.WORKING_DIRECTORY]
    with world.database.begin() as tx:
        (event,) = tx.events.of_types(job_id, [EventType.WORKING_DIRECTORY])
    assert "/nonexistent/dir" in event.description
    found = {"node": NODE, "path": "/nonexistent/dir", "errno": "ENOENT"}
    assert world.cause(job_id) == Cause(EndCode.DIRECTORY_MISSING, found)


def configured_with_scripts(world: World, **scripts: str) -> None:
    """Give the site a prologue or an epilogue of nodes, with these lines."""
    keys: dict[str, object] = {}
    for name, lines in scripts.items():
        path = world.box.base / f"node_{name}"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        keys[f"node_{name}_file"] = str(path)
    world.context = replace(world.context, config=world.context.config.replace(**keys))


def test_prologue_and_epilogue_of_nodes_are_run_once_round_a_job(world: World) -> None:
    said = world.box.base / "said"
    line = f"echo {{}} $1 $OAR_USER $(id -un) >>{said}"
    configured_with_scripts(world, prologue=line.format("P"), epilogue=line.format("E"))
    job_id = world.launched(f"cat {said} >seen")
    world.finish(job_id)
    assert (world.box.home("alice") / "seen").read_text() == f"P {job_id} alice root\n"
    assert said.read_text() == f"P {job_id} alice root\nE {job_id} alice root\n"
    cause = world.cause(job_id)
    assert cause.code is EndCode.SUCCESS
    said.unlink()


def test_a_prologue_of_nodes_that_fails_ends_the_launch_as_a_fault_of_the_prologue(world: World) -> None:
    configured_with_scripts(world, prologue="echo no licence; exit 3")
    job_id = world.launched("true")
    assert (world.phase(job_id), world.events(job_id)[-1]) == (Phase.FAILED, "PROLOGUE_ERROR")
    assert world.box.files_of(job_id) == set()
    cause = world.cause(job_id)
    assert (cause.code, cause.data["nodes"]) == (EndCode.PROLOGUE, [NODE])
    assert "exit code 3: no licence" in cause_text(cause, job_id).sentence
    with world.database.begin() as tx:
        assert {row.state for row in tx.resources.select(world.resources)} == {ResourceState.SUSPECTED}


def test_an_epilogue_of_nodes_that_fails_suspects_the_node_and_leaves_the_job_its_exit_code(world: World) -> None:
    configured_with_scripts(world, epilogue="exit 4")
    job_id = world.launched("true")
    world.finish(job_id)
    assert "EPILOGUE_ERROR" in world.events(job_id)
    cause = world.cause(job_id)
    assert (cause.code, cause.data["node"]) == (EndCode.EPILOGUE, NODE)
    assert (world.row(job_id).state, world.row(job_id).exit_code) == (JobState.TERMINATED, 0)
    with world.database.begin() as tx:
        assert {row.state for row in tx.resources.select(world.resources)} == {ResourceState.SUSPECTED}


def test_processors_that_the_node_does_not_have_are_an_error_of_its_description(world: World) -> None:
    with world.database.begin() as tx:
        tx.resources.set_property(world.resources, "cpuset", "4095")
    job_id = world.launched("true")
    assert world.phase(job_id) is Phase.FAILED
    assert world.events(job_id) == [EventType.CPUSET_PROPERTY_ERROR]
    cause = world.cause(job_id)
    assert (cause.code, cause.data["nodes"]) == (EndCode.NODE_DESCRIPTION, [NODE])
    named = f"the property cpuset of resource {world.resources[0]} is '4095', but this node has the processors "
    assert named in cause.data["text"]
    (mail,) = [effect for effect in world.told if isinstance(effect, Mail) and "description" in effect.subject]
    assert named in mail.text


def test_signals_reach_the_command_and_are_answered_for(world: World) -> None:
    job_id = world.launched("trap 'echo got >>signalled' USR1; while :; do sleep 0.1; done")
    with world.database.begin() as tx:
        tx.events.add(signal_event(10), job_id, "oardel -s")
    signals.signal(world.context, job_id)
    assert EventType.SIG_SUCCESS in world.events(job_id)
    wait_until((world.box.home("alice") / "signalled").exists)
    signals.signal(world.context, job_id)
    assert world.events(job_id).count(EventType.SIG_SUCCESS) == 1
    end(world, job_id)
    (world.box.home("alice") / "signalled").unlink()


def test_a_sweep_removes_what_belongs_to_no_job_and_says_so(world: World) -> None:
    job_id = world.launched("sleep 100")
    with world.database.begin() as tx:
        tx.job_runs.report(job_id, ExecCode.DIED, None)
        finish.note_finishing(tx, job_id, ExecCode.DIED, None)
        lifecycle.move(tx, job_id, JobState.ERROR)
        tx.resources.move(world.resources, ResourceState.SUSPECTED, finaud=False)
        tx.resources.ask_state(world.resources, ResourceState.ALIVE)
    assert probe.sweep(world.context, NODE) is None
    wait_until(lambda: world.box.sh("pgrep -u alice sleep || true") == "")  # who was killed waits to be buried
    with world.database.begin() as tx:
        assert [event.type for event in tx.events.pending()] == [EventType.NODE_SWEPT]


def test_a_node_that_cannot_be_reached_fails_the_launch_at_once(world: World) -> None:
    job_id = world.job("true")
    with Remote(RemoteSettings(), Nowhere()) as remote:
        assert launch_job(replace(world.context, remote=remote), job_id) is None
    assert world.phase(job_id) is Phase.FAILED
    assert world.events(job_id) == [EventType.PING_CHECKER_NODE_SUSPECTED]  # Finaud may take it back


def test_a_reservation_that_lost_all_its_nodes_ends(world: World) -> None:
    job_id = world.job("true", reservation=Reservation.SCHEDULED)
    with Remote(RemoteSettings(), Nowhere()) as remote:
        assert launch_job(replace(world.context, remote=remote), job_id) is None
    node_change_state.run(Runtime(world.context.config, world.database))
    assert state_of(world.database, job_id) is JobState.ERROR
    with world.database.begin() as tx:
        assert {resource.state for resource in tx.resources.all()} == {ResourceState.SUSPECTED}


class WithoutOne(LocalTransport):
    """A way to nodes of which one cannot be reached."""

    def __init__(self, node: str, prefix: list[str]) -> None:
        super().__init__(prefix)
        self._node = node

    def open(self, node: str, command: str, seconds: float) -> SessionChannel:
        if node == self._node:
            raise CannotReach("no route to host")
        return super().open(node, command, seconds)


@pytest.mark.parametrize("was_sent", [False, True])
def test_a_reservation_whose_head_alone_is_gone_goes_on_with_another(world: World, was_sent: bool) -> None:
    (gone,) = add_resources(world.database, nodes=1, cores=1, network_address="a-node")
    job_id = world.job("cat $OAR_NODEFILE", reservation=Reservation.SCHEDULED)
    with world.database.begin() as tx:
        tx.execute(
            "INSERT INTO assigned_resources (moldable_job_id, resource_id)"
            " SELECT assigned_moldable_job, %s FROM jobs WHERE job_id = %s",
            (gone, job_id),
        )
        if was_sent:  # by a server that died meanwhile, and the head has been silent since
            assert lifecycle.move(tx, job_id, JobState.LAUNCHING)
            tx.job_runs.claim(job_id, "a-node")
            tx.execute("UPDATE job_runs SET phase = 'EXEC_SENT', updated = 0")
    with Remote(RemoteSettings(), WithoutOne("a-node", world.box.enter())) as remote:
        context = replace(world.context, remote=remote)
        assert launch_job(context, job_id) is None
        assert state_of(world.database, job_id) is JobState.RUNNING
        world.take_report(job_id)
        finish.finish(context, job_id)
    ended = [EventType.PING_CHECKER_NODE_SUSPECTED, EventType.SWITCH_INTO_TERMINATE_STATE]
    assert world.events(job_id) == ended
    assert (world.box.home("alice") / f"OAR.{job_id}.stdout").read_text() == f"{NODE}\n"
    run = world.run(job_id)
    assert run.head_host == NODE
    node_change_state.run(Runtime(world.context.config, world.database))
    assert state_of(world.database, job_id) is JobState.TERMINATED
    with world.database.begin() as tx:
        states = {one.network_address: one.state for one in tx.resources.all()}
    assert states == {"a-node": ResourceState.SUSPECTED, NODE: ResourceState.ALIVE}


def test_an_accepted_reservation_is_looked_at_when_it_begins(world: World) -> None:
    job_id = world.job("true", JobState.TO_ACK_RESERVATION, reservation=Reservation.SCHEDULED)
    tell(world.context, job_id, ())
    assert state_of(world.database, job_id) is JobState.WAITING
    assert Due(world.row(job_id).start_time) in world.told


def test_an_interrupted_launch_goes_on_unless_the_job_is_to_end(world: World) -> None:
    job_id = world.job("true")
    world.interrupted.add(job_id)  # as for a signal, or by a kill of a former launch
    assert launch_job(slowed(world, 3), job_id) is None
    assert state_of(world.database, job_id) is JobState.RUNNING
    world.take_report(job_id)
    assert world.row(job_id).exit_code == 0


def test_an_action_that_finds_no_database_has_not_failed(world: World) -> None:
    nowhere = Runtime(world.context.config, Database(DatabaseSettings(host="127.0.0.1", port=1, patience=0)))
    did = Bipbip(nowhere, world.box.remote, lambda order: None).carry_out(Action(ActionKind.LAUNCH, 1))
    assert (did.failed, did.retry_after is None) == (False, False)


def test_a_hung_launch_is_left_when_the_job_is_to_be_killed(world: World) -> None:
    slow = slowed(world, 100)
    job_id = world.job("true")
    results: list[RetryAfter | None] = []
    launcher = threading.Thread(target=lambda: results.append(launch_job(slow, job_id)))
    launcher.start()
    wait_until(lambda: world.phase(job_id) is Phase.EXEC_SENT)
    world.ask_kill(job_id)
    world.interrupted.add(job_id)
    launcher.join(120)
    assert results == [None]
    run = world.run(job_id)
    assert run.oarexec_code == ExecCode.KILLED


def test_the_end_of_a_container_asks_for_the_end_of_what_is_in_it(world: World) -> None:
    container = world.job("", JobState.RUNNING, types=["container", "noop"])
    inner = add_job(world.database, types=[f"inner={container}"])
    with world.database.begin() as tx:
        tx.job_runs.report(container, 0, 0)
    finish.finish(world.context, container)
    with world.database.begin() as tx:
        assert tx.job_requests.jobs_to_kill([container, inner]) == {inner}


def test_a_noop_job_is_not_asked_for_where_nothing_of_it_runs(world: World) -> None:
    job_id = world.launched("", types=["noop"])
    probe.probe(world.context, NODE)
    assert world.row(job_id).state is JobState.RUNNING
    run = world.run(job_id)
    assert run.report_date == 0


class TestWaitingOarsub:
    """What follows when nobody is there to be told."""

    @pytest.fixture(autouse=True)
    def no_pause(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("oar.modules.runner.actions.notices.PAUSE", 0.0)

    @pytest.fixture
    def nobody(self) -> str:
        """An address at which nobody listens."""
        return f"127.0.0.1:{free_ports(1)[0]}"

    def waiting(self, world: World, address: str, state: JobState = JobState.WAITING, **columns: object) -> int:
        return world.job("", state, job_type=JobType.INTERACTIVE, info_type=address, **columns)

    @pytest.mark.parametrize("state", [JobState.WAITING, JobState.HOLD])
    def test_a_job_for_which_nobody_waits_any_more_is_given_up(
        self, world: World, nobody: str, state: JobState
    ) -> None:
        job_id = self.waiting(world, nobody, state)
        tell(world.context, job_id, ["Start prediction: undefined (Hold)"])
        assert EventType.LOST_SESSION in world.events(job_id)
        with world.database.begin() as tx:
            assert tx.job_requests.jobs_to_kill([job_id]) == {job_id}

    def test_one_that_is_out_of_reach_or_reserved_is_not(self, world: World, nobody: str) -> None:
        jobs = [
            self.waiting(world, "not-a-host.invalid:7"),
            self.waiting(world, nobody, reservation=Reservation.SCHEDULED),
            self.waiting(world, nobody, JobState.RUNNING),
            world.job("true", JobState.WAITING, info_type=nobody),
        ]
        for job_id in jobs:
            tell(world.context, job_id, ["something"])
        with world.database.begin() as tx:
            assert not tx.job_requests.jobs_to_kill(jobs)

    def test_a_start_that_nobody_hears_of_is_undone(self, world: World, nobody: str) -> None:
        job_id = self.waiting(world, nobody, JobState.RUNNING)
        tell(world.context, job_id, [OarsubLine.GOOD_JOB])
        assert EventType.CANNOT_NOTIFY_OARSUB in world.events(job_id)
        with world.database.begin() as tx:
            assert tx.job_requests.jobs_to_kill([job_id]) == {job_id}

    def test_it_hears_that_its_job_is_held(self, world: World) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            tell(world.context, self.waiting(world, address), ())
            tell(world.context, self.waiting(world, address, JobState.HOLD), ())
            connection, _ = listener.accept()
            with connection, connection.makefile() as lines:
                assert lines.read() == "Start prediction: undefined (Hold)\n"

    def test_a_launch_that_is_broken_off_is_told(self, world: World) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            job_id = self.waiting(world, f"127.0.0.1:{listener.getsockname()[1]}", JobState.TO_LAUNCH)
            world.ask_kill(job_id)
            launch_job(world.context, job_id)
            assert Ask(JobAction.TELL, job_id, ("JOB KILLED",)) in world.told

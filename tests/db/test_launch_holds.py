"""Failures of several nodes or jobs are judged together: oar/lib/jobs/launch_holds.py."""

import json
import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.reading.situation import Situation
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.kao.rounds.writing import held_launches
from oar.lib.bus.exit_codes import MetaSchedCode
from oar.lib.bus.messages import Ask, Effect, JobAction, Mail, Tag, Wake
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs import launch_holds, lifecycle
from oar.lib.jobs.launch_holds import FIRST_PAUSE, LONGEST_PAUSE, QUEUE_FAILURES, Blame
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Group, LaunchHold, Level
from oar.lib.jobs.states import JobState, LaunchFault, QueueState, Reservation
from oar.lib.nodes import state_changes
from oar.lib.nodes.state_changes import Suspicion
from oar.lib.nodes.states import NodeCheck, ResourceState
from oar.lib.remote.requests import CommandRan, NodeRequest, Outcome
from oar.lib.runtime import Runtime
from oar.lib.submission.resource_request import JobTypes
from oar.lib.submission.sql_new_jobs import NewAlternative
from oar.modules import node_change_state
from oar.modules.runner.actions import node_checks
from oar.modules.runner.actions.context import ActionContext
from tests.builders import add_job, add_resources, execute_sql, for_no_reason, move_job, state_of


def fail(
    runtime: Runtime, type_: str, user: str, *, on: Sequence[int], hosts: Sequence[str] = (), queue: str = "default"
) -> int:
    """Let the launch of a job fail; return the job."""
    job_id = add_job(runtime.database, JobState.LAUNCHING, on=on, user=user, queue=queue)
    with runtime.database.begin() as tx:
        tx.events.add(type_, job_id, f"{user} fails", to_check=True, hosts=hosts)
    node_change_state.run(runtime)
    return job_id


def fail_on_nodes(runtime: Runtime, type_: str, resources: Sequence[int], users: Sequence[str] = ()) -> list[int]:
    """Let a launch fail on each of the first nodes, each of another user; return the jobs."""
    return [
        fail(runtime, type_, users[number] if users else f"user{number}", on=[resource], hosts=[f"node-{number + 1}"])
        for number, resource in enumerate(resources)
    ]


def fail_trial(runtime: Runtime, hold: LaunchHold, type_: str, hosts: Sequence[str] = ()) -> None:
    with runtime.database.begin() as tx:
        assert lifecycle.move(tx, hold.trial_job, JobState.LAUNCHING)
        tx.events.add(type_, hold.trial_job, "again", to_check=True, hosts=hosts)
    node_change_state.run(runtime)


def cluster(runtime: Runtime, nodes: int) -> tuple[Database, list[int]]:
    """Add nodes with one core each; return the database and their resources."""
    return runtime.database, add_resources(runtime.database, nodes=nodes, cores=1)


def node_states(database: Database) -> dict[str, str]:
    """Return the state of each node."""
    with database.begin() as tx:
        return {one.network_address: str(one.state) for one in tx.resources.all()}


def holds(database: Database) -> list[LaunchHold]:
    """Return the holds."""
    with database.begin() as tx:
        return tx.launch_holds.all()


def copies(database: Database, *jobs: int) -> list[int]:
    """Return the jobs that are copies of others."""
    with database.begin() as tx:
        return tx.column("SELECT job_id FROM jobs WHERE resubmit_job_id = ANY(%s) ORDER BY 1", (list(jobs),))


def reason(database: Database, job_id: int) -> str:
    """Return the code of the reason why a job waits."""
    with database.begin() as tx:
        return str(tx.job_waits.stored_reasons()[job_id].code)


def stopped_queues(database: Database) -> set[str]:
    with database.begin() as tx:
        return {queue.name for queue in tx.queues.all() if queue.state is not QueueState.ACTIVE}


def mails(sent: Sequence[Effect]) -> list[str]:
    """Return the subjects of the mails."""
    return [effect.subject for effect in sent if isinstance(effect, Mail)]


def pass_time(database: Database, seconds: int) -> None:
    """Let all holds have begun earlier."""
    with database.begin() as tx:
        tx.execute("UPDATE launch_holds SET next_try = next_try - %s, began = began - %s", (seconds, seconds))
        tx.execute("UPDATE event_logs SET date = date - %s", (seconds,))
        tx.execute("UPDATE job_state_logs SET date_start = date_start - %s", (seconds,))


def launched(database: Database, job_id: int) -> None:
    """Let a job that was started run."""
    with database.begin() as tx:
        assert lifecycle.move(tx, job_id, JobState.LAUNCHING)
        assert lifecycle.move(tx, job_id, JobState.RUNNING)


# -- a directory, a file server ---------------------------------------------------------------------------------------


def test_ldap_failures_hold_the_jobs_of_the_users_and_suspect_no_node(runtime: Runtime, sent: list[Effect]) -> None:
    database, resources = cluster(runtime, 6)
    users = ("anna", "ben", "cleo")
    failed = fail_on_nodes(runtime, "USER_SHELL", resources[:3], users)
    assert set(node_states(database).values()) == {"Alive"}
    assert [(hold.fault, hold.user, hold.node) for hold in holds(database)] == [
        (LaunchFault.ACCOUNT, user, f"node-{number + 1}") for number, user in enumerate(users)
    ]
    assert Ask(JobAction.CHECK, 0, ("node-2",)) in sent
    local = add_job(database, user="local")
    MetaScheduler(runtime).round()
    waiting = copies(database, *failed)
    assert len(waiting) == 3
    assert {state_of(database, job) for job in waiting} == {JobState.WAITING}
    assert {reason(database, job) for job in waiting} == {"FAULT"}
    assert state_of(database, local) is JobState.TO_LAUNCH


def test_a_directory_failure_is_mailed_once_and_launches_resume_when_the_account_is_known(
    runtime: Runtime, sent: list[Effect]
) -> None:
    database, resources = cluster(runtime, 3)
    failed = fail_on_nodes(runtime, "USER_SHELL", resources[:2], ("anna", "ben"))
    for _ in range(2):
        for hold in holds(database):
            with database.begin() as tx:
                launch_holds.store_check(tx, hold, Blame.SERVICE, ["node-3"])
    assert mails(sent) == ["Launches of anna are held"]
    assert [hold.is_confirmed for hold in holds(database)] == [True, True]
    for hold in holds(database):
        with database.begin() as tx:
            launch_holds.store_check(tx, hold, Blame.NOBODY, [])
    assert holds(database) == []
    MetaScheduler(runtime).round()
    assert {state_of(database, job) for job in copies(database, *failed)} == {JobState.TO_LAUNCH}


def test_a_hold_is_confirmed_after_two_checks_without_result(runtime: Runtime, sent: list[Effect]) -> None:
    database, resources = cluster(runtime, 3)
    fail(runtime, "USER_SHELL", "anna", on=resources[:1], hosts=["node-1"])
    for is_confirmed in (False, True, True):
        (hold,) = holds(database)
        with database.begin() as tx:
            launch_holds.store_check(tx, hold, Blame.UNKNOWN, [])
        assert [hold.is_confirmed for hold in holds(database)] == [is_confirmed]
    assert mails(sent) == ["Launches of anna are held"]


# -- scripts of the site ----------------------------------------------------------------------------------------------


def test_a_prologue_that_fails_everywhere_suspects_only_the_first_nodes(runtime: Runtime, sent: list[Effect]) -> None:
    database, resources = cluster(runtime, 6)
    failed = fail_on_nodes(runtime, "PROLOGUE_ERROR", resources[:4])
    assert list(node_states(database).values()) == ["Suspected"] * 2 + ["Alive"] * 4
    (hold,) = holds(database)
    assert (hold.fault, hold.user) == (LaunchFault.PROLOGUE, "")
    assert mails(sent).count("Launches of all users are held") == 1
    scheduler = MetaScheduler(runtime)
    scheduler.round()
    waiting = copies(database, *failed)
    assert {state_of(database, job) for job in waiting} == {JobState.WAITING}
    assert scheduler.next_start == hold.next_try
    pass_time(database, FIRST_PAUSE)
    scheduler.round()
    (trial,) = [job for job in waiting if state_of(database, job) is JobState.TO_LAUNCH]
    scheduler.round()
    assert [state_of(database, job) for job in waiting].count(JobState.TO_LAUNCH) == 1
    launched(database, trial)
    scheduler.round()
    assert holds(database) == []
    assert JobState.WAITING not in {state_of(database, job) for job in waiting}
    with database.begin() as tx:
        assert tx.resources.to_sweep() == ["node-1", "node-2"]  # suspected before the fault was known to be common


def test_nodes_stay_suspected_after_a_common_failure_if_repair_is_disabled(runtime: Runtime) -> None:
    runtime = Runtime(runtime.config.replace(disable_suspected_nodes_repair=True), runtime.database)
    _, resources = cluster(runtime, 6)
    fail_on_nodes(runtime, "PROLOGUE_ERROR", resources[:3])
    with runtime.database.begin() as tx:
        assert tx.resources.to_sweep() == []


def test_only_nodes_that_are_suspected_for_the_prologue_come_back_with_its_hold(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 7)
    with database.begin() as tx:
        for _ in range(3):
            tx.events.add(EventType.FINAUD_RECOVER, 0, "[NodeChangeState] node-1: not to blame", hosts=["node-1"])
    fail(runtime, "PROLOGUE_ERROR", "early", on=resources[5:6], hosts=["node-6"])
    pass_time(database, 1)
    add_job(database, JobState.RUNNING, on=resources[6:])
    pass_time(database, 1)
    fail_on_nodes(runtime, "PROLOGUE_ERROR", resources[:2])
    with database.begin() as tx:
        state_changes.change_state(
            tx, resources[2:3], ResourceState.SUSPECTED, by="root", reason="PROLOGUE_ERROR: look"
        )
    fail(runtime, "PROLOGUE_ERROR", "user2", on=resources[2:3], hosts=["node-3"])
    assert [hold.user for hold in holds(database)] == [""]
    with database.begin() as tx:
        assert tx.resources.to_sweep() == ["node-2"]  # node-1 came back too often, node-6 failed while others worked


def hold_all(runtime: Runtime, resources: Sequence[int]) -> list[int]:
    """Hold all launches by a failing prologue, give all nodes to besteffort jobs; return those jobs."""
    database = runtime.database
    fail_on_nodes(runtime, "PROLOGUE_ERROR", resources[:3])
    execute_sql(database, "UPDATE resources SET state = 'Alive'")
    besteffort = [
        add_job(database, JobState.RUNNING, on=[one], types=["besteffort"], queue="besteffort") for one in resources
    ]
    pass_time(database, FIRST_PAUSE)
    (hold,) = holds(database)
    assert hold.user == ""
    return besteffort


def killed(database: Database) -> list[int]:
    """Return the jobs that must end."""
    with database.begin() as tx:
        return tx.column("SELECT frag_id_job FROM frag_jobs ORDER BY 1")


def test_besteffort_jobs_are_killed_for_the_trial_only(runtime: Runtime) -> None:
    database = runtime.database
    besteffort = hold_all(runtime, add_resources(database, nodes=3, cores=1))
    scheduler = MetaScheduler(runtime)
    for _ in range(3):  # the trial has one node until the killed job has ended, the others have none
        scheduler.round()
        assert len(killed(database)) == 1
    (victim,) = killed(database)
    assert victim in besteffort
    with database.begin() as tx:
        for step in (JobState.FINISHING, JobState.TERMINATED):
            assert lifecycle.move_all(tx, [victim], step, because=for_no_reason(victim))
    scheduler.round()
    (hold,) = holds(database)
    assert state_of(database, hold.trial_job) is JobState.TO_LAUNCH
    assert killed(database) == [victim]


def test_no_besteffort_job_is_killed_beside_a_trial_that_starts(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 4)
    hold_all(runtime, resources[:3])
    assert MetaScheduler(runtime).round() == MetaSchedCode.DONE
    (hold,) = holds(database)
    assert state_of(database, hold.trial_job) is JobState.TO_LAUNCH
    assert killed(database) == []
    with database.begin() as tx:
        waiting = [job.id for job in tx.jobs.in_states([JobState.WAITING])]
        explained = tx.job_waits.stored_reasons()
    assert waiting
    for job in waiting:
        assert (explained[job].code, "the prologue fails" in explained[job].reason) == (ReasonCode.FAULT, True)


def test_a_held_reservation_kills_nobody_and_names_the_hold(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 1)
    add_job(database, JobState.RUNNING, on=resources, types=["besteffort"], queue="besteffort")
    with database.begin() as tx:
        tx.launch_holds.hold(LaunchFault.ACCOUNT, "anna", "node-1", tx.now + 300, "unknown", is_confirmed=True)
        now = tx.now
    reserved = add_job(database, user="anna", reservation=Reservation.TO_SCHEDULE, start_time=now)
    MetaScheduler(runtime).round()
    move_job(database, reserved, JobState.WAITING)
    assert MetaScheduler(runtime).round() == MetaSchedCode.DONE
    assert (killed(database), reason(database, reserved)) == ([], "FAULT")


def add_random_jobs(database: Database, rng: random.Random, resources: Sequence[int]) -> None:
    """Add besteffort jobs on some of the resources, and jobs of several users that wait."""
    for one in resources:
        if rng.random() < 0.3:
            types, queue = (["besteffort"], "besteffort") if rng.random() < 0.5 else ([], "default")
            walltime = rng.choice([600, 3600])
            add_job(database, JobState.RUNNING, on=[one], user="eve", types=types, queue=queue, walltime=walltime)
    for _ in range(rng.randint(6, 16)):
        request = (Group("", (Level("resource_id", rng.choice([1, 1, 2, 3])),)),)
        user, walltime = rng.choice(("anna", "ben", "cleo", "dora")), rng.choice([300, 3600, 7200])
        add_job(database, user=user, alternatives=[NewAlternative(walltime, request)])


def add_random_holds(database: Database, rng: random.Random) -> dict[str, int]:
    """Hold the launches of one or two users; return for each of them how many trials may start."""
    trials = {}
    with database.begin() as tx:
        for user in rng.sample(("anna", "ben"), rng.randint(1, 2)):
            fault = rng.choice(
                (LaunchFault.HOME, LaunchFault.PROLOGUE, LaunchFault.NODE_SETUP, LaunchFault.SERVER_SCRIPT)
            )
            is_due = rng.random() < 0.8
            date = tx.now - 10 if is_due else tx.now + 300
            tx.launch_holds.hold(fault, user, "node-1", date, "it fails", is_confirmed=True)
            trials[user] = int(is_due and fault is not LaunchFault.HOME)
    return trials


@pytest.mark.parametrize("seed", range(12))
def test_held_users_and_their_trials_delay_no_other_job(runtime: Runtime, seed: int) -> None:
    rng, database = random.Random(seed), runtime.database
    add_random_jobs(database, rng, add_resources(database, nodes=6, cores=1))
    trials = add_random_holds(database, rng)

    def started() -> list[str]:
        MetaScheduler(runtime).round()
        with database.begin() as tx:
            return sorted(job.user for job in tx.jobs.in_states([JobState.TO_LAUNCH]))

    first = started()
    second = started()
    assert [user for user in first if user not in trials] == [user for user in second if user not in trials]
    for user, most in trials.items():
        assert second.count(user) <= most
    with database.begin() as tx:
        gaining = {json.loads(data)["for_job"] for data in tx.column("SELECT frag_data FROM frag_jobs")}
        users = [tx.jobs.get(job).user for job in gaining]
    for user, most in trials.items():
        assert users.count(user) <= most


def test_a_trial_that_fails_is_repeated_after_a_longer_pause(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 3)
    fail_on_nodes(runtime, "PROLOGUE_ERROR", resources[:3])
    pass_time(database, FIRST_PAUSE)
    MetaScheduler(runtime).round()
    (trial,) = holds(database)
    fail_trial(runtime, trial, "PROLOGUE_ERROR", hosts=["node-3"])
    (hold,) = holds(database)
    with database.begin() as tx:
        assert (hold.failures, hold.trial_job) == (2, trial.trial_job)
        assert FIRST_PAUSE < hold.next_try - tx.now <= 2 * FIRST_PAUSE
    assert node_states(database)["node-3"] == "Alive"


def test_nodes_that_fail_while_others_start_jobs_are_to_blame(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 6)
    for number in range(3):
        fail(runtime, "PROLOGUE_ERROR", f"user{number}", on=[resources[number]], hosts=[f"node-{number + 1}"])
        pass_time(database, 1)
        add_job(database, JobState.RUNNING, on=resources[5:])
    assert holds(database) == []
    assert list(node_states(database).values()).count("Suspected") == 3


def test_a_server_prologue_that_fails_once_holds_the_jobs_of_its_user_only(
    runtime: Runtime, sent: list[Effect]
) -> None:
    database, resources = cluster(runtime, 3)
    failed = fail(runtime, "SERVER_PROLOGUE_EXIT_CODE_ERROR", "anna", on=resources[:1])
    other = add_job(database, user="ben")
    MetaScheduler(runtime).round()
    assert state_of(database, other) is JobState.TO_LAUNCH
    (copy,) = copies(database, failed)
    assert reason(database, copy) == ReasonCode.FAULT
    assert stopped_queues(database) == set()
    pass_time(database, FIRST_PAUSE)
    MetaScheduler(runtime).round()
    assert state_of(database, copy) is JobState.TO_LAUNCH


@pytest.mark.parametrize("type_", ["SERVER_PROLOGUE_TIMEOUT", "SERVER_EPILOGUE_ERROR"])
def test_a_queue_is_stopped_when_its_jobs_fail_one_after_the_other(
    runtime: Runtime, sent: list[Effect], type_: str
) -> None:
    database, resources = cluster(runtime, 2)
    for number in range(QUEUE_FAILURES):
        assert stopped_queues(database) == set()
        fail(runtime, type_, f"user{number}", on=resources[:1])
    assert stopped_queues(database) == {"default"}
    assert mails(sent).count("The queue default is stopped") == 1


def test_a_success_between_failures_keeps_a_queue_active(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 2)
    for number in range(QUEUE_FAILURES):
        fail(runtime, "SERVER_PROLOGUE_ERROR", f"user{number}", on=resources[:1])
        if number == 2:
            pass_time(database, 1)
            add_job(database, JobState.RUNNING, on=resources[1:], queue="default")
            pass_time(database, 1)
    assert stopped_queues(database) == set()


def test_failures_of_the_server_prologue_between_launches_hold_only_their_users(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 3)
    fail(runtime, "SERVER_PROLOGUE_EXIT_CODE_ERROR", "anna", on=resources[:1])
    pass_time(database, 2)
    add_job(database, JobState.RUNNING, on=resources[1:2], user="cleo")
    pass_time(database, 1)
    fail(runtime, "SERVER_PROLOGUE_EXIT_CODE_ERROR", "ben", on=resources[:1])
    assert [hold.user for hold in holds(database)] == ["anna", "ben"]


def test_failures_of_the_server_prologue_for_two_users_without_a_launch_hold_all(
    runtime: Runtime, sent: list[Effect]
) -> None:
    _, resources = cluster(runtime, 3)
    for user in ("anna", "ben"):
        fail(runtime, "SERVER_PROLOGUE_EXIT_CODE_ERROR", user, on=resources[:1])
    assert [hold.user for hold in holds(runtime.database)] == [""]
    assert mails(sent) == ["Launches of anna are held", "Launches of all users are held"]


@pytest.mark.parametrize("type_", ["SERVER_PROLOGUE_ERROR", "SERVER_EPILOGUE_ERROR"])
def test_failures_processed_hours_later_do_not_hold_all_users(runtime: Runtime, type_: str) -> None:
    database, resources = cluster(runtime, 2)
    job_id = add_job(database, JobState.LAUNCHING, on=resources[:1], user="anna")
    with database.begin() as tx:
        tx.events.add(type_, job_id, "late", to_check=True)
    pass_time(database, 7200)
    node_change_state.run(runtime)
    assert "" not in {hold.user for hold in holds(database)}


def test_a_failing_server_epilogue_holds_no_launch(runtime: Runtime) -> None:
    _, resources = cluster(runtime, 2)
    for user in ("anna", "ben"):
        fail(runtime, "SERVER_EPILOGUE_ERROR", user, on=resources[:1])
    assert holds(runtime.database) == []


@pytest.mark.parametrize(
    ("type_", "held"), [("SERVER_PROLOGUE_ERROR", ["anna"]), ("SERVER_EPILOGUE_EXIT_CODE_ERROR", [])]
)
def test_one_user_stops_no_queue(runtime: Runtime, type_: str, held: list[str]) -> None:
    database, resources = cluster(runtime, 2)
    for _ in range(QUEUE_FAILURES + 1):
        fail(runtime, type_, "anna", on=resources[:1])
    assert stopped_queues(database) == set()
    assert [hold.user for hold in holds(database)] == held


def test_after_a_failed_trial_another_user_gets_the_next_trial(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 3)
    for user in ("anna", "ben"):
        fail(runtime, "SERVER_PROLOGUE_ERROR", user, on=resources[:1])
    users = []
    for _ in range(3):
        pass_time(database, 600)
        MetaScheduler(runtime).round()
        (hold,) = holds(database)
        users.append(hold.trial_user)
        fail_trial(runtime, hold, "SERVER_PROLOGUE_ERROR")
        first = add_job(database, user=hold.trial_user)  # waits with the smallest use, too
        assert state_of(database, first) is JobState.WAITING
    assert users in (["anna", "ben", "anna"], ["ben", "anna", "ben"])


def test_the_only_user_whose_job_can_start_gets_the_next_trial(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 3)
    fail(runtime, "SERVER_PROLOGUE_ERROR", "anna", on=resources[:1])
    for failures in (2, 3):
        pass_time(database, 600)
        MetaScheduler(runtime).round()
        (hold,) = holds(database)
        fail_trial(runtime, hold, "SERVER_PROLOGUE_ERROR")
        (hold,) = holds(database)
        assert (hold.trial_user, hold.failures) == ("anna", failures)


@pytest.mark.parametrize("fault", [LaunchFault.PROLOGUE, LaunchFault.NODE_SETUP, LaunchFault.SERVER_SCRIPT])
def test_the_hold_of_a_user_ends_with_his_last_job(runtime: Runtime, fault: LaunchFault) -> None:
    database = runtime.database
    add_resources(database, nodes=2, cores=1)
    add_job(database, user="ben", state=JobState.HOLD)
    with database.begin() as tx:
        for user in ("", "anna", "ben"):
            tx.launch_holds.hold(fault, user, "node-1", tx.now + 300, "it fails", is_confirmed=True)
    MetaScheduler(runtime).round()
    assert [hold.user for hold in holds(database)] == ["", "ben"]


@pytest.mark.parametrize("fault", [LaunchFault.CONFIGURATION, LaunchFault.NODE_SETUP, LaunchFault.SERVER_SCRIPT])
def test_a_hold_ends_when_no_job_is_left_that_would_be_its_trial(runtime: Runtime, fault: LaunchFault) -> None:
    database, resources = cluster(runtime, 2)
    ended = add_job(database, JobState.ERROR, on=resources[:1])
    add_job(database, JobState.RUNNING, on=resources[1:])
    waiting = add_job(database, JobState.HOLD)
    with database.begin() as tx:
        tx.launch_holds.hold(fault, "", "", tx.now + 300, "it fails", is_confirmed=True, trial_job=ended)
    MetaScheduler(runtime).round()
    pass_time(database, 600)
    MetaScheduler(runtime).round()
    assert [hold.fault for hold in holds(database)] == [fault]  # the job on hold may come back
    with database.begin() as tx:
        lifecycle.move(tx, waiting, JobState.TO_ERROR)
        lifecycle.move(tx, waiting, JobState.ERROR)
    MetaScheduler(runtime).round()
    assert holds(database) == []


@pytest.mark.parametrize(("place", "reads"), [("network_address = 'no'", 1), ("", 2)])
def test_a_round_is_planned_again_only_if_a_rival_has_a_place(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, place: str, reads: int
) -> None:
    database, resources = cluster(runtime, 3)
    fail(runtime, "SERVER_PROLOGUE_ERROR", "anna", on=resources[:1])
    add_job(database, user="anna", properties=place)
    pass_time(database, 600)
    count = []
    read_really = SnapshotReader.read

    def read(reader: SnapshotReader, *words: Any, **more: Any) -> Situation:
        count.append(reader)
        return read_really(reader, *words, **more)

    monkeypatch.setattr(SnapshotReader, "read", read)
    MetaScheduler(runtime).round()
    assert len(count) == reads
    assert [hold.trial_job > 0 for hold in holds(database)] == [True]


def test_the_hold_of_a_removed_account_ends_when_its_jobs_are_deleted(runtime: Runtime) -> None:
    database = runtime.database
    add_resources(database, nodes=2, cores=1)
    with database.begin() as tx:
        tx.launch_holds.hold(LaunchFault.ACCOUNT, "gone", "node-1", tx.now, "unknown", is_confirmed=False)
    MetaScheduler(runtime).round()
    (hold,) = holds(database)  # the check has still to say whether the node is to blame
    with database.begin() as tx:
        launch_holds.store_check(tx, hold, Blame.SERVICE, ["node-2"])
    MetaScheduler(runtime).round()
    assert holds(database) == []


def test_the_hold_of_a_user_does_not_protect_nodes_of_other_users(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 7)
    fail_on_nodes(runtime, "PROLOGUE_ERROR", resources[:3], ["anna"] * 3)
    assert [hold.user for hold in holds(database)] == ["anna"]
    pass_time(database, 1)
    add_job(database, JobState.RUNNING, on=resources[5:6], user="cleo")
    fail(runtime, "PROLOGUE_ERROR", "ben", on=resources[6:], hosts=["node-7"])
    assert [hold.user for hold in holds(database)] == ["anna"]
    assert node_states(database)["node-7"] == "Suspected"
    fail(runtime, "PROLOGUE_ERROR", "anna", on=resources[4:5], hosts=["node-5"])
    assert node_states(database)["node-5"] == "Alive"


def test_the_end_of_a_hold_has_nodes_checked_and_makes_none_alive(runtime: Runtime, sent: list[Effect]) -> None:
    database, resources = cluster(runtime, 6)
    with database.begin() as tx:
        for _ in range(3):
            tx.events.add(EventType.FINAUD_RECOVER, 0, "[Finaud] node-1: checked again: disk works", hosts=["node-1"])
    fail_on_nodes(runtime, "CAN_NOT_WRITE_NODE_FILE", resources[:3])
    pass_time(database, FIRST_PAUSE)
    MetaScheduler(runtime).round()
    (hold,) = holds(database)
    launched(database, hold.trial_job)
    MetaScheduler(runtime).round()
    assert holds(database) == []
    assert Ask(JobAction.CHECK, 0, ("node-2", "node-3")) in sent
    with database.begin() as tx:
        assert tx.resources.to_sweep() == []


# -- faults of the configuration --------------------------------------------------------------------------------------


def test_no_job_starts_and_no_besteffort_job_leaves_while_the_configuration_is_wrong(
    runtime: Runtime, sent: list[Effect]
) -> None:
    database, resources = cluster(runtime, 2)
    add_job(database, JobState.RUNNING, on=resources[:1], types=["besteffort"], queue="besteffort")
    waiting = [add_job(database, user="anna"), add_job(database, user="ben"), add_job(database, types=["noop"])]
    with database.begin() as tx:
        launch_holds.hold_for_configuration(tx, "OPENSSH_CMD: /no/ssh: no such program.")
    pass_time(database, 600)  # the Runner would have ended the hold
    MetaScheduler(runtime).round()
    assert {state_of(database, job) for job in waiting} == {JobState.WAITING}
    assert {reason(database, job) for job in waiting} == {ReasonCode.FAULT}
    assert killed(database) == []
    assert mails(sent) == ["No job is started"]


def begin_configuration_trial(database: Database, **columns: Any) -> int:
    """Let a launch find a fault of the configuration and be its first trial; the pause is over."""
    trial = add_job(database, JobState.LAUNCHING, **columns)
    with database.begin() as tx:
        launch_holds.hold_for_configuration(tx, "the checker fails", trial)
    pass_time(database, 600)
    return trial


def may_go_on(database: Database, job_id: int, *types: str) -> bool:
    """Whether the launch of a job may go on."""
    with database.begin() as tx:
        return launch_holds.may_go_on(tx, tx.jobs.get(job_id), JobTypes(types))


def test_a_launch_that_waited_for_a_trial_goes_on_when_that_runs(runtime: Runtime, sent: list[Effect]) -> None:
    database, resources = cluster(runtime, 3)
    trial = begin_configuration_trial(database, on=resources[:1])
    others = [add_job(database, JobState.LAUNCHING, on=[resource]) for resource in resources[1:]]
    assert not may_go_on(database, others[0])
    move_job(database, trial, JobState.RUNNING)
    assert Wake(Tag.SCHEDULING) in sent
    assert all(may_go_on(database, other) for other in others)
    assert [hold.trial_job for hold in holds(database)] == [trial]
    MetaScheduler(runtime).round()
    assert holds(database) == []


def test_a_fault_that_a_launch_found_concerns_all_that_run_the_checker(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 3)
    trial = begin_configuration_trial(database, on=resources[:1], types=["deploy"])
    other = add_job(database, JobState.LAUNCHING, on=resources[1:2])
    assert [may_go_on(database, other, name) for name in ("deploy", "cosystem", "noop")] == [False, False, True]
    with database.begin() as tx:
        tx.execute("UPDATE launch_holds SET next_try = %s", (tx.now + 60,))
    assert not may_go_on(database, trial, "deploy")


def test_only_one_of_two_candidates_becomes_the_trial(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 3)
    failed = begin_configuration_trial(database, on=resources[:1])
    with database.begin() as tx:
        lifecycle.move(tx, failed, JobState.FINISHING)
        lifecycle.move(tx, failed, JobState.ERROR)
    launching = add_job(database, JobState.LAUNCHING, on=resources[1:2])
    waiting = add_job(database)
    situation = SnapshotReader(database, runtime.config).read()
    assert may_go_on(database, launching)
    with database.begin() as tx:
        assert held_launches.begin_trials(tx, situation, [waiting]) == {waiting}
    assert [hold.trial_job for hold in holds(database)] == [launching]


# -- what is not planned meanwhile ------------------------------------------------------------------------------------


def test_a_job_that_depends_on_a_held_launch_waits(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 3)
    failed = fail(runtime, "USER_SHELL", "anna", on=resources[:1], hosts=["node-1"])
    (copy,) = copies(database, failed)
    dependant = add_job(database, user="ben", after=[copy])
    MetaScheduler(runtime).round()
    assert state_of(database, dependant) is JobState.WAITING
    assert reason(database, dependant) == ReasonCode.DEPENDENCY


def test_an_inner_job_waits_for_a_container_whose_launch_is_held(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 3)
    fail(runtime, "USER_SHELL", "anna", on=resources[:1], hosts=["node-1"])
    container = add_job(database, user="anna", types=["container=c"])
    inner = add_job(database, user="ben", types=["inner=c"])
    MetaScheduler(runtime).round()
    assert (state_of(database, container), state_of(database, inner)) == (JobState.WAITING, JobState.WAITING)


def test_jobs_that_need_no_account_on_a_node_are_not_held(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 3)
    fail(runtime, "USER_SHELL", "anna", on=resources[:1], hosts=["node-1"])
    noop = add_job(database, user="anna", types=["noop"])
    MetaScheduler(runtime).round()
    assert state_of(database, noop) is JobState.TO_LAUNCH


# -- suspicions that end by a check -----------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["CPUSET_CLEAN_ERROR", "CAN_NOT_WRITE_NODE_FILE", "SSH_TRANSFER_TIMEOUT"])
def test_a_suspicion_that_a_check_can_clear_is_handled_by_finaud(runtime: Runtime, type_: str) -> None:
    database, resources = cluster(runtime, 2)
    fail(runtime, type_, "anna", on=resources[:1], hosts=["node-1"])
    with database.begin() as tx:
        (one,) = tx.resources.of_nodes(["node-1"])
        assert (one.state, one.finaud_decision) == ("Suspected", True)
        assert list(tx.nodes.due_checks()) == ["node-1"]


def test_a_node_whose_checks_succeed_too_often_stays_suspected(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 2)
    with database.begin() as tx:
        for _ in range(3):
            tx.events.add(EventType.FINAUD_RECOVER, 0, "[Finaud] node-1: checked again: disk works", hosts=["node-1"])
    fail(runtime, "CAN_NOT_WRITE_NODE_FILE", "anna", on=resources[:1], hosts=["node-1"])
    with database.begin() as tx:
        (one,) = tx.resources.of_nodes(["node-1"])
        assert (one.state, one.finaud_decision) == ("Suspected", False)
        assert tx.nodes.due_checks() == {}


def test_common_failures_do_not_count_as_checks_of_a_node(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 2)
    with database.begin() as tx:
        for text in ("not to blame: the prologue fails", "checked again: disk works") * 2:
            tx.events.add(EventType.FINAUD_RECOVER, 0, f"node-1: {text}", hosts=["node-1"])
    fail(runtime, "CAN_NOT_WRITE_NODE_FILE", "anna", on=resources[:1], hosts=["node-1"])
    with database.begin() as tx:
        assert list(tx.nodes.due_checks()) == ["node-1"]


def suspect(database: Database, suspicion: Suspicion) -> None:
    """Suspect node-1."""
    with database.begin() as tx:
        state_changes.suspect(tx, ["node-1"], finaud=True, reasons={"node-1": suspicion})


def test_a_required_check_of_a_node_is_not_replaced(runtime: Runtime) -> None:
    database = runtime.database
    add_resources(database, nodes=2, cores=1)
    suspect(database, Suspicion("CPUSET_ERROR", NodeCheck.CGROUP))
    suspect(database, Suspicion("no home", NodeCheck.HOME, "mallory"))
    with database.begin() as tx:
        assert tx.nodes.due_checks() == {"node-1": [(NodeCheck.CGROUP, "")]}


def test_a_node_suspected_without_check_gets_a_required_check(runtime: Runtime) -> None:
    database = runtime.database
    add_resources(database, nodes=2, cores=1)
    suspect(database, Suspicion("does not answer"))
    suspect(database, Suspicion("CPUSET_ERROR", NodeCheck.CGROUP))
    with database.begin() as tx:
        assert tx.nodes.due_checks() == {"node-1": [(NodeCheck.CGROUP, "")]}


# -- what a node answers ----------------------------------------------------------------------------------------------


class Answers:
    """Nodes that answer checks: ``missing`` are the users whose home or account is missing on node-1."""

    def __init__(self, missing: set[str], *, is_of_node: bool, is_busy: bool = False) -> None:
        self.missing = missing
        self.error = None if is_busy else "missing"
        self.is_of_node = is_of_node  #: node-1 knows that no user has caused it

    def run(self, requests: Mapping[str, NodeRequest], _seconds: float) -> dict[str, Outcome]:
        return {node: CommandRan(0, self._lines(node, request.data["checks"])) for node, request in requests.items()}

    def _lines(self, node: str, checks: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
        bad = self.missing if node == "node-1" else set()
        answers = [{"error": self.error if one["user"] in bad else "", "is_of_node": self.is_of_node} for one in checks]
        return tuple(json.dumps(answer) for answer in answers)


def ask(runtime: Runtime, missing: set[str], *, is_of_node: bool = False, is_busy: bool = False) -> None:
    """Let node-1 and others be asked about the holds of node-1."""
    pass_time(runtime.database, LONGEST_PAUSE)
    remote = Answers(missing, is_of_node=is_of_node, is_busy=is_busy)
    context = SimpleNamespace(config=runtime.config, database=runtime.database, remote=remote)
    node_checks.check(cast(ActionContext, context), "node-1")


@pytest.mark.parametrize("users", [["mallory"], ["mallory", "trudy"]])
def test_users_cannot_suspect_a_node_by_their_own_homes(runtime: Runtime, sent: list[Effect], users: list[str]) -> None:
    database, resources = cluster(runtime, 4)
    for user in users:
        fail(runtime, "HOME_MISSING", user, on=resources[:1], hosts=["node-1"])
    for _ in range(2):
        ask(runtime, set(users))
    assert set(node_states(database).values()) == {"Alive"}
    assert [(hold.user, hold.is_confirmed) for hold in holds(database)] == [(user, True) for user in users]
    assert mails(sent) == ["Launches of mallory are held"]
    ask(runtime, set())
    assert holds(database) == []


def test_a_node_that_cannot_check_a_home_now_ends_no_hold(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 4)
    fail(runtime, "HOME_MISSING", "anna", on=resources[:1], hosts=["node-1"])
    ask(runtime, {"anna"}, is_busy=True)
    assert [(hold.user, hold.failures) for hold in holds(database)] == [("anna", 2)]
    assert node_states(database)["node-1"] == "Alive"
    with database.begin() as tx:
        tx.resources.move(resources[:1], ResourceState.SUSPECTED, finaud=False)
    ask(runtime, {"anna"}, is_busy=True)
    assert [hold.failures for hold in holds(database)] == [3]


def test_a_node_that_reports_its_homes_as_missing_is_suspected(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 4)
    fail(runtime, "HOME_MISSING", "anna", on=resources[:1], hosts=["node-1"])
    ask(runtime, {"anna"}, is_of_node=True)
    assert node_states(database)["node-1"] == "Suspected"
    assert holds(database) == []
    ask(runtime, {"anna"}, is_of_node=True)
    with database.begin() as tx:
        assert tx.resources.to_sweep() == []
    ask(runtime, {"anna"})  # from now on that is her own doing
    with database.begin() as tx:
        assert tx.resources.to_sweep() == ["node-1"]


def test_launches_resume_when_the_node_without_the_home_is_absent(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 4)
    fail(runtime, "HOME_MISSING", "anna", on=resources[:1], hosts=["node-1"])
    ask(runtime, {"anna"})
    with database.begin() as tx:
        tx.resources.move(resources[:1], ResourceState.ABSENT, finaud=False)
    ask(runtime, {"anna"})
    assert holds(database) == []


def test_a_node_that_knows_no_account_is_suspected_at_once(runtime: Runtime) -> None:
    database, resources = cluster(runtime, 4)
    fail(runtime, "USER_SHELL", "anna", on=resources[:1], hosts=["node-1"])
    ask(runtime, {"anna"}, is_of_node=True)
    assert node_states(database)["node-1"] == "Suspected"

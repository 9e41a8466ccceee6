"""Events and pending states are worked off, each with all its traces: oar/modules/node_change_state.py."""

import threading
from collections.abc import Iterator

import pytest

from oar.lib.access.records import User
from oar.lib.bus.exit_codes import NodeChangeStateCode
from oar.lib.bus.messages import Ask, Effect, JobAction, Mail, Notice, Tag, Topic, Wake
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.statements import Connection, Parameters, Statements
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event
from oar.lib.jobs import control
from oar.lib.jobs.control import HoldRules
from oar.lib.jobs.states import JobState, JobType, KillState
from oar.lib.nodes import state_changes
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.modules import node_change_state as ncs
from tests.builders import add_job, add_resources, execute_sql, for_no_reason, state_of

ROOT = User("root", 0)


def happen(database: Database, type_: str, job_id: int, *hosts: str, text: str = "") -> int:
    """Write an event that is to be checked."""
    with database.begin() as tx:
        return tx.events.add(type_, job_id, text, to_check=True, hosts=hosts)


def events_of(database: Database, job_id: int, type_: str = "") -> list[Event]:
    """Return the events of a job."""
    with database.begin() as tx:
        return [event for event in tx.events.of_jobs([job_id]).get(job_id, []) if type_ in ("", event.type)]


def unchecked(database: Database) -> list[str]:
    """Return the types of the events that are still to be acted on."""
    with database.begin() as tx:
        return [event.type for event in tx.events.pending()]


def states(database: Database) -> dict[int, tuple[str, str, bool]]:
    """Return state, asked state and who decided, of each resource."""
    with database.begin() as tx:
        return {one.id: (str(one.state), one.next_state, one.finaud_decision) for one in tx.resources.all()}


def log_of(database: Database, resource: int) -> list[str]:
    """Return the states that a resource has had."""
    with database.begin() as tx:
        return tx.column(
            "SELECT value FROM resource_logs WHERE resource_id = %s AND attribute = 'state' ORDER BY resource_log_id",
            (resource,),
        )


# -- ends of jobs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "state"),
    [("SWITCH_INTO_TERMINATE_STATE", JobState.TERMINATED), ("SWITCH_INTO_ERROR_STATE", JobState.ERROR)],
)
def test_an_event_ends_a_job_with_everything_that_belongs_to_it(
    runtime: Runtime, sent: list[Effect], type_: str, state: JobState
) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.FINISHING, on=add_resources(database), notify="mail:alice@example.org")
    happen(database, type_, job_id)
    assert ncs.run(runtime) == NodeChangeStateCode.NOTHING
    assert state_of(database, job_id) is state
    assert unchecked(database) == []
    assert Wake(Tag.CHSTATE) in sent
    assert [effect.tag for effect in sent if isinstance(effect, Notice)][-1] == (
        "END" if state is JobState.TERMINATED else "ERROR"
    )
    with database.begin() as tx:
        assert tx.jobs.assigned([job_id], current=True) == {}


def test_the_end_of_a_job_tells_listeners_nothing_of_resources(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them would read the resources anew at each end, and find what it knows."""
    topics = told(monkeypatch)
    job_id = add_job(runtime.database, JobState.FINISHING, on=add_resources(runtime.database))
    happen(runtime.database, "SWITCH_INTO_TERMINATE_STATE", job_id)
    topics.clear()
    ncs.run(runtime)
    assert topics == {Topic.JOBS, Topic.GANTT, Topic.EVENTS}


def test_a_pass_without_work_is_three_questions(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is such a pass before most rounds."""
    add_resources(runtime.database)
    asked: list[str] = []
    run_really = Statements._run

    def run(tx: Statements, sql: str, parameters: Parameters) -> None:
        asked.append(sql)
        run_really(tx, sql, parameters)

    def begin(database: Database, kind: str) -> Transaction:
        raise AssertionError(f"a transaction has begun: {kind}")

    monkeypatch.setattr(Statements, "_run", run)
    monkeypatch.setattr(Database, "_transaction", begin)
    assert ncs.run(runtime) == NodeChangeStateCode.NOTHING
    assert len(asked) == 3


def test_listeners_are_told_of_resources_that_change(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = told(monkeypatch)
    resources = add_resources(runtime.database)
    topics.clear()
    with runtime.database.begin() as tx:
        state_changes.ask_state(tx, resources, ResourceState.ABSENT)
    assert topics == {Topic.RESOURCES}
    topics.clear()
    assert ncs.run(runtime) == NodeChangeStateCode.SCHEDULE
    assert Topic.RESOURCES in topics


def told(monkeypatch: pytest.MonkeyPatch) -> set[Topic]:
    """Return the set to which the topics are added of which listeners are told from now on."""
    topics: set[Topic] = set()

    def note(database: Database, connection: Connection, tx: Transaction) -> bool:
        topics.update(tx.topics)
        return True

    monkeypatch.setattr(Database, "_notify", note)
    return topics


def test_an_event_that_fails_does_not_block_others(runtime: Runtime, stubborn: None) -> None:
    database = runtime.database
    good, bad, last = (add_job(database, JobState.FINISHING, on=add_resources(database)) for _ in range(3))
    execute_sql(database, f"UPDATE jobs SET message = 'cannot end' WHERE job_id = {bad}")
    for job_id in (good, bad, last):
        happen(database, "SWITCH_INTO_TERMINATE_STATE", job_id)
    ncs.run(runtime)
    assert [state_of(database, one) for one in (good, bad, last)] == [
        JobState.TERMINATED,
        JobState.FINISHING,
        JobState.TERMINATED,
    ]
    assert unchecked(database) == ["SWITCH_INTO_TERMINATE_STATE"]


@pytest.fixture
def stubborn(database: Database) -> Iterator[None]:
    """Let the database refuse the end of a job whose message says so."""
    execute_sql(
        database, "ALTER TABLE jobs ADD CONSTRAINT refuses CHECK (message <> 'cannot end' OR state <> 'Terminated')"
    )
    yield
    execute_sql(database, "ALTER TABLE jobs DROP CONSTRAINT refuses")


def test_events_without_job_or_of_unknown_type_are_closed(runtime: Runtime) -> None:
    for type_, job_id in [("NONSENSE", 0), ("SWITCH_INTO_ERROR_STATE", 4711), ("RESUME_JOB", 0), ("WALLTIME", 0)]:
        happen(runtime.database, type_, job_id)
    assert ncs.run(runtime) == NodeChangeStateCode.NOTHING
    assert unchecked(runtime.database) == []


def test_two_concurrent_passes_process_an_event_once(runtime: Runtime) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.LAUNCHING, on=add_resources(database))
    happen(database, "PROLOGUE_ERROR", job_id)
    passes = [threading.Thread(target=ncs.run, args=(runtime,)) for _ in range(2)]
    for one in passes:
        one.start()
    for one in passes:
        one.join(120)
    assert state_of(database, job_id) is JobState.ERROR
    assert len(events_of(database, job_id, "RESUBMIT_JOB_AUTOMATICALLY")) == 1


# -- suspicions -------------------------------------------------------------------------------------------------------


def test_the_head_of_a_job_whose_prologue_failed_is_suspected(runtime: Runtime, sent: list[Effect]) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=2, cores=2)
    job_id = add_job(database, JobState.FINISHING, on=ids)
    happen(database, "PROLOGUE_ERROR", job_id)
    (reason,) = (f"{event.type}: {event.description}" for event in events_of(database, job_id, "PROLOGUE_ERROR"))
    assert ncs.run(runtime) == NodeChangeStateCode.SCHEDULE
    assert [state[0] for state in states(database).values()] == ["Suspected", "Suspected", "Alive", "Alive"]
    assert log_of(database, ids[0]) == ["Alive", "Suspected"]
    assert log_of(database, ids[2]) == ["Alive"]
    assert Ask(JobAction.HEAL, 0, (f"{ids[0]} node-1", f"{ids[1]} node-1")) in sent
    way_out = "Repair them, then run: oarnodesetting -h NODE -s Alive"
    assert Mail("Suspecting nodes", f"node-1\n{reason}\n{way_out}") in sent
    with database.begin() as tx:
        named = tx.events.of_nodes(["node-1"])["node-1"]
    assert [(event.type, event.description) for event in named] == [
        ("LOG_SUSPECTED", f"[NodeChangeState] node-1: Suspected: {reason}")
    ]


@pytest.mark.parametrize("is_repair_disabled", [False, True])
def test_the_mail_of_a_suspicion_states_whether_nodes_recover_automatically(
    runtime: Runtime, sent: list[Effect], *, is_repair_disabled: bool
) -> None:
    add_resources(runtime.database)
    happen(runtime.database, "PING_CHECKER_NODE_SUSPECTED", 0, "node-1")
    config = Config(disable_suspected_nodes_repair=is_repair_disabled)
    ncs.run(Runtime(config, runtime.database))
    (mail,) = (one for one in sent if isinstance(one, Mail) and one.subject == "Suspecting nodes")
    by_themselves = (
        "OAR waits until these nodes answer, removes leftover processes and uses them again by itself."
        " If one stays Suspected: oarnodes --reasons"
    )
    by_hand = "Repair them, then run: oarnodesetting -h NODE -s Alive"
    assert mail.text.splitlines()[-1] == (by_hand if is_repair_disabled else by_themselves)


@pytest.mark.parametrize("servers", [("srv1",), ("srv1", "srv2")])
def test_a_node_that_does_not_answer_wakes_finaud_if_another_server_may_reach_it(
    runtime: Runtime, sent: list[Effect], servers: tuple[str, ...]
) -> None:
    add_resources(runtime.database)
    happen(runtime.database, "PING_CHECKER_NODE_SUSPECTED", 0, "node-1")
    ncs.run(Runtime(Config(server_hostnames=servers), runtime.database))
    assert (Wake(Tag.REACHABILITY) in sent) is (len(servers) > 1)
    assert Wake(Tag.FINAUD) not in sent


def test_hosts_of_an_event_are_suspected_once(runtime: Runtime) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=1, cores=1)
    happen(database, "PING_CHECKER_NODE_SUSPECTED_END_JOB", 0, "node-1")
    assert ncs.run(runtime) == NodeChangeStateCode.SCHEDULE
    assert states(database)[ids[0]] == ("Suspected", "UnChanged", True)
    happen(database, "PING_CHECKER_NODE_SUSPECTED_END_JOB", 0, "node-1")
    assert ncs.run(runtime) == NodeChangeStateCode.NOTHING
    happen(database, "SUSPEND_ERROR", 0, "node-1")
    assert ncs.run(runtime) == NodeChangeStateCode.SCHEDULE
    assert states(database)[ids[0]] == ("Suspected", "UnChanged", False)


@pytest.mark.parametrize("state", [ResourceState.ABSENT, ResourceState.DEAD])
def test_absent_and_dead_nodes_are_not_suspected(runtime: Runtime, state: ResourceState) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=1, cores=1)
    with database.begin() as tx:
        tx.resources.move(ids, state, finaud=False)
    happen(database, "CPUSET_CLEAN_ERROR", 0, "node-1")
    assert ncs.run(runtime) == NodeChangeStateCode.NOTHING
    assert states(database)[ids[0]][0] == state


# -- submitted again --------------------------------------------------------------------------------------------------


def copies_of(database: Database, job_id: int) -> list[int]:
    """Return the jobs that are a copy of one."""
    with database.begin() as tx:
        return tx.column("SELECT job_id FROM jobs WHERE resubmit_job_id = %s ORDER BY 1", (job_id,))


def test_a_job_that_failed_through_no_fault_of_its_own_is_resubmitted(runtime: Runtime, sent: list[Effect]) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.LAUNCHING, on=add_resources(database))
    dependant = add_job(database)
    execute_sql(database, "INSERT INTO job_dependencies (job_id, job_id_required) VALUES (%s, %s)", dependant, job_id)
    happen(database, "PROLOGUE_ERROR", job_id)
    ncs.run(runtime)
    (copy,) = copies_of(database, job_id)
    assert state_of(database, job_id) is JobState.ERROR
    assert state_of(database, copy) is JobState.WAITING
    (event,) = events_of(database, job_id, "RESUBMIT_JOB_AUTOMATICALLY")
    assert f"(new id = {copy})" in event.description
    assert Wake(Tag.QSUB) in sent
    with database.begin() as tx:
        assert [one.required for one in tx.jobs.dependencies([dependant])[dependant]] == [copy]


def test_resubmissions_in_a_row_are_limited(runtime: Runtime) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.LAUNCHING, on=add_resources(database))
    for _ in range(3):
        happen(database, "PROLOGUE_ERROR", job_id)
        ncs.run(runtime)
        (job_id,) = copies_of(database, job_id)
        with database.begin() as tx:
            tx.execute("UPDATE jobs SET state = 'Launching' WHERE job_id = %s", (job_id,))
            tx.execute("UPDATE job_state_logs SET job_state = 'Launching' WHERE job_id = %s", (job_id,))
    happen(database, "PROLOGUE_ERROR", job_id)
    ncs.run(runtime)
    assert copies_of(database, job_id) == []
    (event,) = events_of(database, job_id, "RESUBMIT_JOB_AUTOMATICALLY_CANCELLED")
    assert "3 times in a row" in event.description


def test_an_idempotent_besteffort_job_that_was_killed_for_another_waits_again(runtime: Runtime) -> None:
    database = runtime.database
    types = ["besteffort", "idempotent"]
    job_id = add_job(database, JobState.FINISHING, on=add_resources(database), types=types)
    with database.begin() as tx:
        tx.job_requests.request_kill(for_no_reason(job_id))
        tx.events.add(EventType.BESTEFFORT_KILL, job_id, "")
        tx.events.add(EventType.SEND_KILL_JOB, job_id, "")
        tx.job_runs.report(job_id, 3, None)
    happen(database, "SWITCH_INTO_ERROR_STATE", job_id)
    ncs.run(runtime)
    assert len(copies_of(database, job_id)) == 1


# -- hold and resume --------------------------------------------------------------------------------------------------


def steer(runtime: Runtime, job_id: int, what: str) -> None:
    """Ask to hold, suspend or resume a job, and let it be treated."""
    rules = HoldRules()
    with runtime.database.begin() as tx:
        if what == "resume":
            control.resume(tx, ROOT, [job_id], rules)
        else:
            control.hold(tx, ROOT, [job_id], rules, running=what == "suspend")
    ncs.run(runtime)


def test_a_waiting_job_is_held_and_released(runtime: Runtime, sent: list[Effect]) -> None:
    job_id = add_job(runtime.database, job_type=JobType.INTERACTIVE, info_type="frontend:4242")
    happen(runtime.database, "HOLD_WAITING_JOB", job_id)
    ncs.run(runtime)
    assert state_of(runtime.database, job_id) is JobState.HOLD
    assert Ask(JobAction.TELL, job_id) in sent
    happen(runtime.database, "RESUME_JOB", job_id)
    ncs.run(runtime)
    assert state_of(runtime.database, job_id) is JobState.WAITING
    assert Wake(Tag.QRESUME) in sent
    assert unchecked(runtime.database) == []


def test_hold_and_resume_in_one_pass_come_in_order(runtime: Runtime) -> None:
    job_id = add_job(runtime.database)
    happen(runtime.database, "HOLD_WAITING_JOB", job_id)
    happen(runtime.database, "RESUME_JOB", job_id)
    happen(runtime.database, "HOLD_WAITING_JOB", job_id)
    ncs.run(runtime)
    assert state_of(runtime.database, job_id) is JobState.HOLD
    assert unchecked(runtime.database) == []


def test_a_running_job_is_frozen_by_the_runner_and_the_request_kept_until_then(
    runtime: Runtime, sent: list[Effect]
) -> None:
    job_id = add_job(runtime.database, JobState.RUNNING, on=add_resources(runtime.database))
    steer(runtime, job_id, "suspend")
    assert Ask(JobAction.SUSPEND, job_id) in sent
    assert state_of(runtime.database, job_id) is JobState.RUNNING
    assert unchecked(runtime.database) == ["HOLD_RUNNING_JOB"]


def test_a_job_of_which_nothing_runs_is_suspended_at_once(runtime: Runtime, sent: list[Effect]) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database), types=["noop"])
    steer(runtime, job_id, "suspend")
    assert state_of(database, job_id) is JobState.SUSPENDED
    assert Wake(Tag.TERM) in sent
    steer(runtime, job_id, "resume")
    assert state_of(database, job_id) is JobState.RESUMING
    assert Wake(Tag.QRESUME) in sent
    steer(runtime, job_id, "hold")
    assert state_of(database, job_id) is JobState.SUSPENDED


def test_a_deploy_job_is_not_suspended(runtime: Runtime) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database), types=["deploy"])
    happen(database, "HOLD_RUNNING_JOB", job_id)
    ncs.run(runtime)
    assert state_of(database, job_id) is JobState.RUNNING
    assert unchecked(database) == []
    (event,) = events_of(database, job_id, "SUSPEND_ERROR")
    assert event.hosts == ()


def test_the_owner_is_notified_of_a_deletion(runtime: Runtime, sent: list[Effect]) -> None:
    job_id = add_job(runtime.database, notify="mail:alice@example.org")
    with runtime.database.begin() as tx:
        control.delete(tx, ROOT, [job_id], with_inner=True)
    ncs.run(runtime)
    (notice,) = [effect for effect in sent if isinstance(effect, Notice)]
    assert notice.tag == "INFO"
    assert notice.text.startswith("Your job was asked to be deleted - User root")


# -- pending states ---------------------------------------------------------------------------------------------------


def ask(database: Database, ids: list[int], to: ResourceState, *, finaud: bool = False) -> None:
    """Ask for a state of resources."""
    with database.begin() as tx:
        tx.resources.ask_state(ids, to, finaud=finaud)


def test_a_requested_state_change_is_made_and_logged(runtime: Runtime, sent: list[Effect]) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=1, cores=2)
    ask(database, ids, ResourceState.SUSPECTED, finaud=True)
    assert ncs.run(runtime) == NodeChangeStateCode.SCHEDULE
    assert states(database) == dict.fromkeys(ids, ("Suspected", "UnChanged", True))
    assert log_of(database, ids[0]) == ["Alive", "Suspected"]
    assert Ask(JobAction.HEAL, 0, tuple(f"{one} node-1" for one in ids)) in sent
    assert Mail("Resource state modifications", "node-1: Alive -> Suspected (2 resources)") in sent


def test_a_change_to_the_present_state_is_dropped(runtime: Runtime, sent: list[Effect]) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=1, cores=1)
    ask(database, ids, ResourceState.ALIVE)
    assert ncs.run(runtime) == NodeChangeStateCode.NOTHING
    assert states(database) == {ids[0]: ("Alive", "UnChanged", False)}
    assert log_of(database, ids[0]) == ["Alive"]
    assert sent == []


@pytest.mark.parametrize("state", [ResourceState.DEAD, ResourceState.ABSENT])
def test_jobs_on_resources_that_leave_are_killed(runtime: Runtime, sent: list[Effect], state: ResourceState) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=2, cores=1)
    here = add_job(database, JobState.RUNNING, on=ids[:1])
    noop = add_job(database, JobState.RUNNING, on=ids[:1], types=["noop"])
    cosystem = add_job(database, JobState.RUNNING, on=ids[:1], types=["cosystem"])
    there = add_job(database, JobState.RUNNING, on=ids[1:])
    ask(database, ids[:1], state)
    assert ncs.run(runtime) == NodeChangeStateCode.KILL
    with database.begin() as tx:
        requests = [request.job_id for request in tx.job_requests.kills_in_states([KillState.LEON])]
    assert requests == [here]
    assert Wake(Tag.QDEL) in sent
    assert {noop, cosystem, there}.isdisjoint(requests)
    assert events_of(database, here)[0].description == f"User oar requested to frag the job {here}"


@pytest.mark.parametrize("state", [ResourceState.SUSPECTED, ResourceState.ABSENT])
def test_a_node_is_cleaned_before_it_comes_back(runtime: Runtime, sent: list[Effect], state: ResourceState) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=2, cores=1)
    with database.begin() as tx:
        tx.resources.move(ids, state, finaud=False)
    ask(database, ids, ResourceState.ALIVE)
    assert ncs.run(runtime) == NodeChangeStateCode.NOTHING
    assert states(database) == dict.fromkeys(ids, (str(state), "Alive", False))
    assert sent == [Ask(JobAction.SWEEP, 0, ("node-1", "node-2"))]
    happen(database, "NODE_SWEPT", 0, "node-1")
    assert ncs.run(runtime) == NodeChangeStateCode.SCHEDULE
    assert [one[0] for one in states(database).values()] == ["Alive", str(state)]
    assert unchecked(database) == []


def test_a_cleaning_counts_once(runtime: Runtime) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=1, cores=1)
    happen(database, "NODE_SWEPT", 0, "node-1")
    ncs.run(runtime)
    with database.begin() as tx:
        tx.resources.move(ids, ResourceState.SUSPECTED, finaud=False)
    ask(database, ids, ResourceState.ALIVE)
    ncs.run(runtime)
    assert states(database)[ids[0]] == ("Suspected", "Alive", False)


def test_resources_without_node_or_cleaning_become_alive_at_once(runtime: Runtime) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=1, cores=1, type="licence", network_address="")
    ids += add_resources(database, nodes=1, cores=1, desktop_computing="YES")
    with database.begin() as tx:
        tx.resources.move(ids, ResourceState.ABSENT, finaud=False)
    ask(database, ids, ResourceState.ALIVE)
    ncs.run(runtime)
    assert {one[0] for one in states(database).values()} == {"Alive"}


def test_without_a_job_resource_manager_nothing_is_cleaned(runtime: Runtime) -> None:
    database = runtime.database
    ids = add_resources(database, nodes=1, cores=1)
    with database.begin() as tx:
        tx.resources.move(ids, ResourceState.ABSENT, finaud=False)
    ask(database, ids, ResourceState.ALIVE)
    config = runtime.config.replace(job_resource_manager_property_db_field=None)
    assert ncs.run(Runtime(config, database)) == NodeChangeStateCode.SCHEDULE
    assert states(database)[ids[0]][0] == "Alive"

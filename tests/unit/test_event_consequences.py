"""What follows from an event or an exit code of oarexec: oar/lib/history/event_consequences.py."""

import re

import pytest

from oar.lib.bus.messages import JobAction, Tag
from oar.lib.history.event_consequences import (
    CONSEQUENCES,
    EXEC_EVENTS,
    ConsequenceSettings,
    JobFacts,
    Verdict,
    event_type,
    events_of,
    events_without_home,
    judge,
    may_be_rerun,
)
from oar.lib.history.event_types import EventType
from oar.lib.history.node_reboots import count_boots, describe_reboot
from oar.lib.history.records import Event
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import FINAL, JOB_MOVES, Accounted, JobState, JobType, Reservation
from oar.lib.nodes.states import NodeCheck
from oar.lib.submission.resource_request import JobTypes
from oar.modules.runner.actions.server_scripts import SiteScript

SITE = ConsequenceSettings(confines=True, max_resubmissions=3)
HOSTS = ("node-1", "node-2")

JOB = Job(
    id=42,
    array_id=42,
    array_index=1,
    array_limit=0,
    name=None,
    user="alice",
    project="default",
    queue="default",
    state=JobState.FINISHING,
    job_type=JobType.PASSIVE,
    reservation=Reservation.NONE,
    message="",
    scheduler_info="",
    command="true",
    initial_request="",
    info_type="frontend",
    properties="",
    launching_directory="/home/alice",
    cpuset_name="alice_42",
    submission_time=1000,
    start_time=2000,
    stop_time=3000,
    exit_code=0,
    assigned_moldable=1,
    checkpoint=0,
    checkpoint_signal=12,
    stdout_file=None,
    stderr_file=None,
    notify=None,
    env=None,
    resubmit_job_id=0,
    suspended=False,
    file_id=None,
    accounted=Accounted.NO,
    last_karma=None,
)


def facts(*types: str, job: Job = JOB, **known: object) -> JobFacts:
    """Return what is known of a job with some types."""
    return JobFacts(job, JobTypes(types), HOSTS, **known)  # type: ignore[arg-type]


def job(**columns: object) -> Job:
    """Return the job with other values."""
    return JOB._replace(**columns)  # type: ignore[arg-type]


def verdict(type_: str, known: JobFacts | None, *, hosts: tuple[str, ...] = (), text: str = "") -> Verdict:
    """Return the judgement of an event."""
    return judge(Event(1, type_, 42 if known else 0, 3000, text, True, hosts), known, SITE)


# -- exit codes -------------------------------------------------------------------------------------------------------


def test_every_exit_code_ends_the_job_or_says_that_nothing_was_done() -> None:
    silent = {code for code in ExecCode if code not in EXEC_EVENTS}
    assert silent == {ExecCode.STALE}
    for code in EXEC_EVENTS:
        assert any(verdict(type_, facts()).state in FINAL for type_ in events_of(code)), code


def test_an_unknown_exit_code_is_an_error_of_oarexec() -> None:
    assert events_of(77) == (EventType.EXIT_VALUE_OAREXEC,)


@pytest.mark.parametrize(
    ("code", "state"),
    [(0, "Terminated"), (2, "Terminated"), (3, "Error"), (4, "Error"), (10, "Error"), (22, "Error"), (33, "Terminated")]
    + [(34, "Terminated"), (40, "Terminated"), (41, "Terminated"), (42, "Terminated"), (50, "Error"), (60, "Error")]
    + [(code, "Error") for code in (1, 5, 6, 7, 8, 30, 31, 32, 99)],
)
def test_the_first_event_that_ends_the_job_tells_how(code: int, state: str) -> None:
    states = [verdict(type_, facts()).state for type_ in events_of(code)]
    assert next(found for found in states if found) == state


# -- states and suspicions --------------------------------------------------------------------------------------------


def test_no_consequence_asks_for_what_no_job_can_do() -> None:
    targets = {consequence.state for consequence in CONSEQUENCES.values()} - {None}
    assert targets == {JobState.TERMINATED, JobState.ERROR}
    assert all(may in JOB_MOVES[JobState.FINISHING] for may in targets)


def test_a_final_state_is_not_left() -> None:
    ended = facts(job=job(state=JobState.TERMINATED))
    for type_ in CONSEQUENCES:
        assert verdict(type_, ended).state is None
        assert not verdict(type_, ended).resubmit


def test_the_head_is_to_blame_for_what_happens_on_it() -> None:
    assert verdict("PROLOGUE_ERROR", facts()).suspects == ("node-1",)
    assert verdict("EPILOGUE_ERROR", facts()).suspects == ("node-1",)
    assert verdict("LAUNCHING_OAREXEC_TIMEOUT", facts()).suspects == ("node-1",)


def test_hosts_that_an_event_names_are_to_blame_and_no_other() -> None:
    assert verdict("CPUSET_CLEAN_ERROR", facts(), hosts=("node-2",)).suspects == ("node-2",)
    assert verdict("EXIT_VALUE_OAREXEC", facts()).suspects == ()
    assert verdict("EXIT_VALUE_OAREXEC", facts(), hosts=("node-1",)).suspects == ("node-1",)


def test_a_suspicion_by_a_ping_may_be_taken_back_by_finaud() -> None:
    assert verdict("PING_CHECKER_NODE_SUSPECTED", facts(), hosts=("node-2",)).by_finaud
    assert not verdict("SUSPEND_ERROR", facts(), hosts=("node-2",)).by_finaud


def test_a_node_that_does_not_answer_may_come_back_by_itself() -> None:
    found = verdict("NODE_LOST", facts(), hosts=("node-1",))
    assert (found.state, found.suspects, found.by_finaud, found.returning) == (JobState.ERROR, ("node-1",), True, ())
    assert not found.resubmit
    assert verdict("NODE_LOST", facts("idempotent"), hosts=("node-1",)).resubmit


def test_a_node_that_was_rebooted_returns_unless_that_happens_again_and_again() -> None:
    found = verdict("NODE_REBOOTED", facts("idempotent"), hosts=("node-1",))
    assert (found.suspects, found.by_finaud, found.returning, found.resubmit) == (HOSTS[:1], True, HOSTS[:1], True)
    broken = facts()._replace(unstable_hosts=frozenset(HOSTS[:1]))
    again = verdict("NODE_REBOOTED", broken, hosts=("node-1",))
    assert (again.suspects, again.by_finaud, again.returning, again.unstable) == (HOSTS[:1], False, (), HOSTS[:1])
    no_repair = judge(Event(1, "NODE_REBOOTED", 42, 0, "", True, HOSTS[:1]), facts(), SITE._replace(heals=False))
    assert (no_repair.by_finaud, no_repair.returning) == (True, ())


def test_a_node_that_was_shut_down_may_come_back_and_its_jobs_run_again_as_after_a_crash() -> None:
    found = verdict("NODE_SHUTDOWN", facts("idempotent"), hosts=("node-1",))
    assert (found.state, found.suspects, found.by_finaud, found.resubmit) == (JobState.ERROR, HOSTS[:1], True, True)
    assert not verdict("NODE_SHUTDOWN", facts(), hosts=("node-1",)).resubmit
    text = "node-1 was shut down; the command was not started"
    assert judge(Event(1, "NODE_SHUTDOWN", 42, 0, text, True, HOSTS[:1]), facts(), SITE).resubmit


def test_a_wrong_description_suspects_two_nodes_at_most() -> None:
    first = verdict("CPUSET_PROPERTY_ERROR", facts(job=job(state=JobState.LAUNCHING)), hosts=("node-1",))
    assert (first.state, first.suspects, first.resubmit) == (JobState.ERROR, ("node-1",), True)
    copy = facts(job=job(state=JobState.LAUNCHING), chain=1)
    second = verdict("CPUSET_PROPERTY_ERROR", copy, hosts=("node-2",))
    assert (second.suspects, second.by_finaud, second.resubmit) == (("node-2",), False, False)
    assert "a third node may fail in the same way" in second.not_resubmitted


def test_a_reboot_that_ended_many_jobs_counts_once() -> None:
    texts = [f"[bipbip {job}] {describe_reboot('node-1', boot)}" for boot in ("b1", "b2") for job in (1, 2, 3)]
    events = [Event(number, "NODE_REBOOTED", number, 0, text, False) for number, text in enumerate(texts)]
    assert count_boots([*events, Event(9, "FINAUD_ERROR", 0, 0, "", False)]) == 2


def test_bad_data_is_nobody_elses_fault() -> None:
    assert verdict("BAD_HASHTABLE_DUMP", facts()) == Verdict(state=JobState.ERROR)


def test_errors_of_a_command_on_a_frontend_suspect_no_node() -> None:
    for name in ("deploy", "cosystem"):
        for type_ in ("PROLOGUE_ERROR", "EPILOGUE_ERROR", "USER_SHELL", "FORCE_TERMINATE_FINISHING_JOB"):
            assert verdict(type_, facts(name)).suspects == ()
        assert not verdict("PROLOGUE_ERROR", facts(name)).resubmit


@pytest.mark.parametrize(
    ("code", "events"),
    [
        (ExecCode.DIRECTORY, ["HOME_MISSING"]),
        (ExecCode.DIRECTORY_EPILOGUE, ["HOME_MISSING", "EPILOGUE_ERROR"]),
        (ExecCode.OUTPUT, ["HOME_MISSING"]),
        (ExecCode.OUTPUT_EPILOGUE, ["HOME_MISSING", "EPILOGUE_ERROR"]),
    ],
)
def test_a_missing_home_hides_no_broken_epilogue(code: ExecCode, events: list[str]) -> None:
    assert list(events_without_home(code)) == events


@pytest.mark.parametrize("type_", ["USER_SHELL", "HOME_MISSING"])
def test_what_nodes_check_themselves_blames_none_before(type_: str) -> None:
    assert verdict(type_, facts(), hosts=("node-1",)) == Verdict(state=JobState.ERROR, resubmit=True)


def test_a_common_fault_of_a_prologue_blames_no_node_and_counts_against_no_job() -> None:
    assert verdict("PROLOGUE_ERROR", facts(is_common=True, chain=9)) == Verdict(state=JobState.ERROR, resubmit=True)
    assert verdict("CAN_NOT_WRITE_PID_FILE", facts(is_common=True)).suspects == HOSTS[:1]


def test_what_the_manager_of_a_site_needs_cannot_be_checked() -> None:
    event = Event(1, "CPUSET_ERROR", 42, 0, "", True, ("node-2",))
    assert judge(event, facts(), ConsequenceSettings()).check is NodeCheck.CGROUP
    verdict = judge(event, facts(), ConsequenceSettings(has_own_manager=True))
    assert (verdict.suspects, verdict.check, verdict.by_finaud) == (("node-2",), None, False)


def test_all_nodes_are_suspected_when_nothing_cleans_them() -> None:
    assert verdict("FORCE_TERMINATE_FINISHING_JOB", facts()).suspects == HOSTS
    assert verdict("EXTERMINATE_JOB", facts(), hosts=HOSTS).suspects == ()
    unconfined = judge(Event(1, "EXTERMINATE_JOB", 42, 0, "", True), facts(), ConsequenceSettings(confines=False))
    assert unconfined.suspects == HOSTS


@pytest.mark.parametrize("type_", ["PING_CHECKER_NODE_SUSPECTED", "CPUSET_ERROR"])
def test_a_reservation_goes_on_without_its_bad_hosts(type_: str) -> None:
    launching = job(state=JobState.LAUNCHING, reservation=Reservation.SCHEDULED)
    found = verdict(type_, facts(job=launching), hosts=("node-2",))
    assert (found.state, found.suspects) == (None, ("node-2",))
    assert verdict("PROLOGUE_ERROR", facts(job=launching)).state is JobState.ERROR
    assert verdict("RESERVATION_NO_NODE", facts(job=launching)).state is JobState.ERROR


@pytest.mark.parametrize("type_", [type_ for type_ in EventType if re.match("SERVER_(PRO|EPI)LOGUE", type_)])
def test_errors_of_the_server_blame_no_node(type_: str) -> None:
    assert verdict(type_, facts()).state is JobState.ERROR
    assert verdict(type_, facts()).suspects == ()


def test_an_event_of_a_node_concerns_no_job() -> None:
    found = verdict("PING_CHECKER_NODE_SUSPECTED", None, hosts=("node-1",))
    assert found == Verdict(suspects=("node-1",), by_finaud=True)
    assert verdict("RESUME_JOB", None) == Verdict()


def test_what_nobody_knows_is_done_with() -> None:
    assert verdict("SOMETHING_ELSE", facts()) == Verdict()


def test_old_spellings_are_read() -> None:
    assert event_type("CANNOT_WRITE_NODE_FILE") is EventType.CAN_NOT_WRITE_NODE_FILE
    assert verdict("CANNOT_WRITE_PID_FILE", facts()).state is JobState.ERROR


# -- submitted again --------------------------------------------------------------------------------------------------


def test_a_job_that_broke_without_its_fault_is_submitted_again() -> None:
    assert verdict("PROLOGUE_ERROR", facts()).resubmit
    assert verdict("SERVER_PROLOGUE_ERROR", facts()).resubmit
    assert not verdict("BAD_HASHTABLE_DUMP", facts()).resubmit
    assert not verdict("SWITCH_INTO_ERROR_STATE", facts()).resubmit


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (facts(job=job(job_type=JobType.INTERACTIVE)), "it is interactive"),
        (facts(job=job(reservation=Reservation.SCHEDULED)), "it is a reservation"),
        (facts("deploy"), "its command runs on a frontend"),
        (facts(was_resubmitted=True), "it was resubmitted before"),
        (facts(has_kill_request=True), "its deletion was requested"),
        (facts(chain=3), "it was resubmitted 3 times in a row"),
    ],
)
def test_some_jobs_are_not_submitted_again_and_that_is_said(known: JobFacts, reason: str) -> None:
    found = verdict("PROLOGUE_ERROR", known)
    assert (found.resubmit, found.not_resubmitted) == (False, reason)


def test_a_command_that_may_have_run_is_only_repeated_if_it_is_idempotent() -> None:
    for text, types, again in [
        ("state unknown", (), False),
        ("state unknown", ("idempotent",), True),
        ("proved: not started", (), True),
    ]:
        assert verdict("LAUNCHING_OAREXEC_TIMEOUT", facts(*types), text=text).resubmit is again
    assert not verdict("EXIT_VALUE_OAREXEC", facts()).resubmit
    assert verdict("EXIT_VALUE_OAREXEC", facts("idempotent")).resubmit


def test_a_node_without_interpreter_did_not_run_the_command() -> None:
    assert verdict("EXIT_VALUE_OAREXEC", facts(oarexec_code=32), hosts=("node-1",)).resubmit


RERUN = job(exit_code=99 << 8)


@pytest.mark.parametrize("type_", ["SWITCH_INTO_TERMINATE_STATE", "SWITCH_INTO_ERROR_STATE"])
def test_an_idempotent_job_asks_for_another_run_by_its_exit_status(type_: str) -> None:
    assert verdict(type_, facts("idempotent", job=RERUN)).resubmit


@pytest.mark.parametrize(
    "known",
    [
        facts(job=RERUN),
        facts("idempotent"),
        facts("idempotent", job=RERUN._replace(exit_code=99)),
        facts("idempotent", job=RERUN._replace(exit_code=None)),
        facts("idempotent", job=RERUN._replace(stop_time=2060)),
        facts("idempotent", job=RERUN._replace(reservation=Reservation.SCHEDULED)),
        facts("idempotent", job=RERUN._replace(job_type=JobType.INTERACTIVE)),
        facts("idempotent", job=RERUN, was_resubmitted=True),
        facts("idempotent", job=RERUN, kill_sent=True),
    ],
)
def test_no_other_job_gets_another_run_by_it(known: JobFacts) -> None:
    found = verdict("SWITCH_INTO_TERMINATE_STATE", known)
    assert (found.state, found.resubmit, found.not_resubmitted) == (JobState.TERMINATED, False, "")


@pytest.mark.parametrize(("chain", "again"), [(0, True), (1, True), (2, False), (3, False)])
def test_an_idempotent_job_may_say_how_often_it_is_run_again(chain: int, again: bool) -> None:
    found = verdict("SWITCH_INTO_TERMINATE_STATE", facts("idempotent=2", job=RERUN, chain=chain))
    assert found.resubmit is again
    assert (found.not_resubmitted == "") is again
    types = ("idempotent=2", "besteffort")
    lost = facts(*types, chain=chain, besteffort_kill=True, oarexec_code=ExecCode.KILLED)
    assert verdict("SWITCH_INTO_ERROR_STATE", lost).resubmit is again


@pytest.mark.parametrize("type_", ["SWITCH_INTO_ERROR_STATE", "EXTERMINATE_JOB"])
def test_an_idempotent_besteffort_job_that_lost_its_place_is_submitted_again(type_: str) -> None:
    both = ("besteffort", "idempotent")
    assert verdict(
        type_, facts(*both, besteffort_kill=True, has_kill_request=True, kill_sent=True, oarexec_code=3)
    ).resubmit
    assert not verdict(type_, facts(*both, oarexec_code=3)).resubmit
    assert not verdict(type_, facts("besteffort", besteffort_kill=True)).resubmit
    assert not verdict(type_, facts(*both, besteffort_kill=True, oarexec_code=20)).resubmit


def test_more_is_only_asked_about_jobs_that_may_be_rerun() -> None:
    assert not may_be_rerun(EventType.SWITCH_INTO_TERMINATE_STATE, JOB)
    assert may_be_rerun(EventType.SWITCH_INTO_TERMINATE_STATE, RERUN)
    assert may_be_rerun(EventType.PROLOGUE_ERROR, JOB)
    assert not may_be_rerun(EventType.CPUSET_CLEAN_ERROR, JOB)


# -- hold and resume --------------------------------------------------------------------------------------------------


def steered(type_: str, state: JobState, *types: str, **columns: object) -> Verdict:
    """Return the judgement of a request about a job in some state."""
    return verdict(type_, facts(*types, job=job(state=state, **columns)))


@pytest.mark.parametrize("type_", ["HOLD_WAITING_JOB", "HOLD_RUNNING_JOB"])
def test_any_hold_stops_what_waits_or_is_about_to_go_on(type_: str) -> None:
    assert steered(type_, JobState.WAITING) == Verdict(state=JobState.HOLD)
    assert steered(type_, JobState.RESUMING) == Verdict(state=JobState.SUSPENDED, tag=Tag.TERM)


def test_an_accepted_reservation_is_not_held() -> None:
    assert steered("HOLD_WAITING_JOB", JobState.WAITING, reservation=Reservation.SCHEDULED) == Verdict()


def test_only_the_hold_of_running_jobs_suspends() -> None:
    assert steered("HOLD_WAITING_JOB", JobState.RUNNING) == Verdict()
    assert steered("HOLD_RUNNING_JOB", JobState.RUNNING) == Verdict(action=JobAction.SUSPEND, pending=True)
    assert steered("HOLD_RUNNING_JOB", JobState.RUNNING, "noop") == Verdict(state=JobState.SUSPENDED, tag=Tag.TERM)


@pytest.mark.parametrize("state", [JobState.TO_LAUNCH, JobState.LAUNCHING])
def test_the_hold_of_a_job_that_starts_waits_until_it_runs(state: JobState) -> None:
    assert steered("HOLD_RUNNING_JOB", state) == Verdict(pending=True)
    assert steered("HOLD_WAITING_JOB", state) == Verdict()


def test_what_cannot_be_frozen_is_not_suspended() -> None:
    assert "cosystem" in steered("HOLD_RUNNING_JOB", JobState.RUNNING, "cosystem").refused
    assert "deploy" in steered("HOLD_RUNNING_JOB", JobState.RUNNING, "deploy").refused
    request = Event(1, "HOLD_RUNNING_JOB", 42, 0, "", True)
    running = facts(job=job(state=JobState.RUNNING))
    assert "CPUSET" in judge(request, running, ConsequenceSettings(confines=False)).refused


def test_resume_undoes_each_kind_of_hold() -> None:
    assert steered("RESUME_JOB", JobState.HOLD) == Verdict(state=JobState.WAITING, tag=Tag.QRESUME)
    assert steered("RESUME_JOB", JobState.SUSPENDED) == Verdict(state=JobState.RESUMING, tag=Tag.QRESUME)
    assert steered("RESUME_JOB", JobState.RUNNING) == Verdict()


@pytest.mark.parametrize("type_", ["HOLD_WAITING_JOB", "HOLD_RUNNING_JOB", "RESUME_JOB"])
@pytest.mark.parametrize("state", list(JobState))
def test_requests_only_ask_for_legal_moves(type_: str, state: JobState) -> None:
    wanted = steered(type_, state).state
    assert wanted is None or wanted in JOB_MOVES[state]


def test_the_owner_hears_of_a_deletion() -> None:
    assert verdict("FRAG_JOB_REQUEST", facts()) == Verdict(notice=True)


@pytest.mark.parametrize("script", list(SiteScript))
def test_failures_of_scripts_of_the_site_have_consequences(script: SiteScript) -> None:
    is_around_the_job = script in (SiteScript.PROLOGUE, SiteScript.EPILOGUE)
    in_table = {event in CONSEQUENCES for event in script.value}
    assert in_table == {is_around_the_job}, "suspension has a way of its own to end the job"

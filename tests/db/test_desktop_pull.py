"""PULL: what the agents of desktop computers tell, and what comes of it; the agent itself is in tests/process."""

import gzip
import io
import os
import pwd
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.desktop import stageouts
from oar.lib.desktop.pull import UNPACKED_TIMES, NoDesktopComputer, UnknownComputer
from oar.lib.desktop.records import AgentJob, PullAnswer
from oar.lib.history.event_consequences import NOT_FOR_DESKTOPS
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control
from oar.lib.jobs.control import ControlOutcome, ControlRefusal
from oar.lib.jobs.ends import Cause, EndCode, ExecCode
from oar.lib.jobs.sql_runs import HostsHeard
from oar.lib.jobs.states import JobState, KillState, Phase
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.lib.user_files.files import UserFiles
from oar.modules import sarko
from oar.modules.runner.actions import desktop, finish, probe
from oar.modules.runner.actions.context import RetryAfter
from oar.modules.runner.actions.launch import launch_job
from tests.builders import state_of
from tests.desktop import EXPIRY, HOST, OTHER, RUNNING, STAGING, Desk, ended


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


def test_a_job_runs_and_ends_with_its_status(desk: Desk) -> None:
    job_id = desk.job(command="./run", stdout_file="out.%jobid%")
    pause = launch_job(desk.context, job_id)
    assert isinstance(pause, RetryAfter)
    assert (state_of(desk.database, job_id), desk.phase(job_id)) == (JobState.LAUNCHING, Phase.EXEC_SENT)
    order = desk.pull().launch[job_id]
    assert (state_of(desk.database, job_id), desk.phase(job_id)) == (JobState.RUNNING, Phase.GO)
    assert (order["command"], order["stdout_file"], order["walltime"]) == ("./run", f"out.{job_id}", 3600)
    assert order["environment"]["OAR_JOB_ID"] == str(job_id)
    assert order["nodes"] == [HOST]
    assert desk.pull({job_id: RUNNING}) == PullAnswer({}, (), 30)
    assert desk.phase(job_id) is Phase.STARTED
    assert desk.pull({job_id: ended(3 << 8)}).kill == ()
    assert desk.end(job_id) == Cause(EndCode.EXIT_STATUS, {"status": 3})
    assert state_of(desk.database, job_id) is JobState.TERMINATED
    assert desk.state() == (ResourceState.ALIVE, False)


# -- starts and lost answers ------------------------------------------------------------------------------------------


def test_an_answer_that_was_lost_is_given_again_and_nothing_runs_twice(desk: Desk) -> None:
    job_id = desk.job()
    launch_job(desk.context, job_id)
    first, second = desk.pull().launch, desk.pull().launch
    assert first == second
    assert desk.pull({job_id: STAGING}).launch == {}
    assert desk.pull({job_id: ended()}).launch == {}
    assert desk.pull({job_id: ended(9)}).kill == ()  # the answer to the end was lost: it is told again
    assert desk.end(job_id) == Cause(EndCode.SUCCESS)


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.PROLOGUE_OK, Phase.EXEC_SENT])
def test_a_launch_that_broke_off_goes_on_after_its_phase(desk: Desk, phase: Phase) -> None:
    job_id = desk.job(JobState.LAUNCHING)
    with desk.database.begin() as tx:
        tx.job_runs.claim(job_id, HOST)
        tx.job_runs.update(job_id, phase=phase)
    assert isinstance(launch_job(desk.context, job_id), RetryAfter)
    assert list(desk.pull().launch) == [job_id]


def test_a_server_that_died_behind_go_leaves_the_job_to_its_agent(desk: Desk) -> None:
    job_id = desk.job()
    launch_job(desk.context, job_id)
    desk.pull()
    assert isinstance(launch_job(desk.context, job_id), RetryAfter)  # what the next server does
    assert desk.phase(job_id) is Phase.GO
    assert list(desk.pull().launch) == [job_id]
    desk.pull({job_id: RUNNING})
    assert launch_job(desk.context, job_id) is None


def test_a_job_that_nobody_fetches_is_given_up_and_submitted_again(desk: Desk) -> None:
    job_id = desk.job()
    launch_job(desk.context, job_id)
    desk.execute("UPDATE job_runs SET updated = updated - %s", 2 * EXPIRY - 30)
    pause = launch_job(desk.context, job_id)
    assert pause is not None
    assert 0 < pause.seconds <= 30
    desk.execute("UPDATE job_runs SET updated = updated - 30")
    assert launch_job(desk.context, job_id) is None
    assert desk.settle(job_id).code is EndCode.LAUNCH_UNKNOWN
    assert desk.events(job_id)[:1] == [EventType.LAUNCHING_OAREXEC_TIMEOUT]
    assert EventType.RESUBMIT_JOB_AUTOMATICALLY in desk.events(job_id)
    assert desk.state() == (ResourceState.SUSPECTED, True)
    desk.pull()
    desk.node_change_state()
    assert desk.state()[0] is ResourceState.ALIVE


def test_a_job_comes_to_its_own_computer_only(desk: Desk) -> None:
    job_id = desk.job(host=1)
    launch_job(desk.context, job_id)
    assert desk.pull().launch == {}
    assert list(desk.pull(host=OTHER).launch) == [job_id]


def test_jobs_of_others_are_not_fetched(desk: Desk, database: Database) -> None:
    job_id = desk.job(types=("noop",))
    launch_job(desk.context, job_id)
    assert desk.pull().launch == {}
    assert state_of(database, job_id) is JobState.RUNNING


# -- hostile agents ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [RUNNING, ended(), ended(None, "lost"), ended(0, "walltime"), ended(0, "quit")])
def test_what_an_agent_says_of_a_job_of_another_changes_nothing(desk: Desk, told: AgentJob) -> None:
    mine, other = desk.running(), desk.job(host=1)
    launch_job(desk.context, other)
    desk.pull(host=OTHER)
    unknown = mine + 1_000_000
    answer = desk.pull({mine: told, unknown: told}, host=OTHER)
    assert answer.kill == ((mine, unknown) if told is RUNNING else ())
    assert (desk.code(mine), state_of(desk.database, mine)) == (None, JobState.RUNNING)


@pytest.mark.parametrize("told", [RUNNING, ended(), ended(0, "walltime")])
def test_a_job_that_was_not_told_to_an_agent_is_not_ended_by_it(desk: Desk, told: AgentJob) -> None:
    waiting, launching = desk.job(JobState.WAITING), desk.job(JobState.LAUNCHING)
    desk.pull({waiting: told, launching: told})
    assert (desk.code(waiting), desk.code(launching)) == (None, None)


def test_nobody_reaches_a_walltime_before_its_time(desk: Desk) -> None:
    job_id = desk.running()
    desk.pull({job_id: ended(15, "walltime")})
    assert desk.end(job_id) == Cause(EndCode.SIGNAL, {"signal": 15})


# -- ends -------------------------------------------------------------------------------------------------------------


def test_a_walltime_that_the_agent_has_watched_alone_is_the_cause(desk: Desk) -> None:
    job_id = desk.running(walltime=60)
    desk.execute("UPDATE jobs SET start_time = start_time - 100")
    desk.pull({job_id: ended(15, "walltime")})
    assert desk.end(job_id).code is EndCode.WALLTIME
    assert state_of(desk.database, job_id) is JobState.ERROR


@pytest.mark.parametrize(
    ("told", "code", "cause"),
    [
        (ended(None, "not started: it has ../x"), ExecCode.STAGING, EndCode.STAGING),
        (ended(None, "lost: the agent ended while it ran"), ExecCode.DIED, EndCode.AGENT_LOST),
        (ended(None), ExecCode.DIED, EndCode.AGENT_LOST),
        (ended(15, "quit"), ExecCode.SHUTDOWN, EndCode.NODE_SHUTDOWN),
        (ended(0, "no results: 413"), ExecCode.OK, EndCode.SUCCESS),
    ],
)
def test_an_end_has_the_cause_that_its_agent_tells(desk: Desk, told: AgentJob, code: ExecCode, cause: EndCode) -> None:
    job_id = desk.running()
    desk.pull({job_id: told})
    assert desk.code(job_id) == code
    assert desk.end(job_id).code is cause
    assert desk.state() == (ResourceState.ALIVE, False)
    assert (EventType.STAGEOUT_ERROR in desk.events(job_id)) is (code is ExecCode.OK)


def test_a_job_that_its_agent_does_not_name_twice_is_lost(desk: Desk) -> None:
    job_id = desk.running()
    desk.pull()
    desk.pull({job_id: RUNNING})
    desk.pull()
    assert desk.code(job_id) is None
    desk.pull()
    assert desk.end(job_id) == Cause(EndCode.AGENT_LOST, {"node": HOST})


@pytest.mark.parametrize("again", [False, True])
def test_an_end_that_broke_off_is_done_once(desk: Desk, again: bool) -> None:
    job_id = desk.running()
    desk.pull({job_id: ended(0)})
    if again:
        desk.end(job_id)
    assert desk.end(job_id) == Cause(EndCode.SUCCESS)
    assert desk.events(job_id).count(EventType.SWITCH_INTO_TERMINATE_STATE) == 1


# -- kills ------------------------------------------------------------------------------------------------------------


def test_a_job_that_is_killed_before_its_agent_asks_never_starts(desk: Desk) -> None:
    job_id = desk.job()
    launch_job(desk.context, job_id)
    desk.kill(job_id)
    assert desk.pull() == PullAnswer({}, (), 30)
    assert desk.end(job_id).code is EndCode.STOPPED
    assert state_of(desk.database, job_id) is JobState.ERROR


def test_a_kill_is_in_the_answers_until_the_end_is_told(desk: Desk) -> None:
    job_id = desk.running()
    desk.kill(job_id)
    assert desk.pull({job_id: RUNNING}).kill == (job_id,)
    assert desk.pull({job_id: RUNNING}).kill == (job_id,)
    assert desk.pull({job_id: ended(15, "killed")}).kill == ()
    assert desk.end(job_id).code is EndCode.STOPPED
    assert state_of(desk.database, job_id) is JobState.ERROR
    with desk.database.begin() as tx:
        assert tx.jobs.get(job_id).exit_code is None


def test_a_killed_job_whose_start_was_lost_ends_with_the_next_question(desk: Desk) -> None:
    job_id = desk.job()
    launch_job(desk.context, job_id)
    desk.pull()
    desk.kill(job_id)
    assert desk.pull().launch == {}
    assert desk.code(job_id) == ExecCode.KILLED


def test_a_job_whose_agent_does_not_obey_is_exterminated(desk: Desk) -> None:
    job_id = desk.running()
    desk.kill(job_id)
    with desk.database.begin() as tx:
        tx.job_requests.move_kill([job_id], KillState.LEON_EXTERMINATE, [KillState.TIMER_ARMED])
    desk.leon()
    assert desk.end(job_id).data["unanswered"]
    assert desk.state() == (ResourceState.SUSPECTED, True)
    assert desk.pull({job_id: RUNNING}).kill == (job_id,)
    desk.node_change_state()
    assert desk.state()[0] is ResourceState.ALIVE


def test_no_probe_looks_for_jobs_of_agents(desk: Desk) -> None:
    job_id = desk.running()
    desk.pull()  # the job was not named
    with desk.database.begin() as tx:
        assert tx.job_runs.hosts_heard_since(0) == HostsHeard([], 0, [])
    assert probe.probe(desk.context, HOST) is None
    assert state_of(desk.database, job_id) is JobState.RUNNING


# -- computers --------------------------------------------------------------------------------------------------------


def test_a_computer_that_is_silent_is_suspected_until_its_agent_asks(desk: Desk) -> None:
    desk.pull()
    desk.execute("UPDATE resources SET expiry_date = 1 WHERE network_address = %s", HOST)
    sarko.run(Runtime(desk.config, desk.database))
    desk.node_change_state()
    assert desk.state() == (ResourceState.SUSPECTED, True)
    desk.pull()
    desk.node_change_state()
    assert (desk.state()[0], desk.state(1)) == (ResourceState.ALIVE, (ResourceState.ALIVE, False))


def test_a_computer_whose_agent_ends_is_absent_until_it_begins_again(desk: Desk) -> None:
    running, launching = desk.running(), desk.job()
    launch_job(desk.context, launching)
    desk.pull({running: ended(15, "quit")}, quits=True)
    desk.node_change_state()
    assert desk.state() == (ResourceState.ABSENT, True)
    assert desk.end(running) == Cause(EndCode.NODE_SHUTDOWN, {"nodes": [HOST]})
    assert desk.end(launching).code is EndCode.NODE_SHUTDOWN
    assert EventType.RESUBMIT_JOB_AUTOMATICALLY in desk.events(launching)  # it was not started
    assert EventType.RESUBMIT_JOB_AUTOMATICALLY not in desk.events(running)
    desk.pull()
    desk.node_change_state()
    assert desk.state()[0] is ResourceState.ALIVE


@pytest.mark.parametrize("state", [ResourceState.ABSENT, ResourceState.SUSPECTED, ResourceState.DEAD])
def test_what_an_administrator_decided_stays(desk: Desk, state: ResourceState) -> None:
    with desk.database.begin() as tx:
        tx.resources.ask_state(desk.resources[:1], state)
    desk.node_change_state()
    desk.pull()
    desk.node_change_state()
    assert desk.state() == (state, False)


def test_an_agent_that_comes_back_before_its_leave_was_noted_stays(desk: Desk) -> None:
    desk.pull(quits=True)
    desk.pull()
    desk.node_change_state()
    assert desk.state()[0] is ResourceState.ALIVE


def test_only_declared_desktop_computers_are_served(desk: Desk, database: Database) -> None:
    with pytest.raises(UnknownComputer, match=r"^desk-9 is not a known Desktop Computing node, declare it"):
        desk.pull(host="desk-9")
    for name in ("../x", "a b", "x" * 300, ""):
        with pytest.raises(UnknownComputer):
            desk.pull(host=name, may_create=True)
    desk.execute("UPDATE resources SET desktop_computing = 'NO' WHERE network_address = %s", OTHER)
    with pytest.raises(NoDesktopComputer, match=r"^desk-2 is not declared as a Desktop Computing node in OAR database"):
        desk.pull(host=OTHER)


def test_an_unknown_computer_may_declare_itself_where_the_site_lets_it(desk: Desk) -> None:
    desk.pull(host="desk-9", may_create=True)
    with desk.database.begin() as tx:
        (made,) = tx.resources.of_nodes(["desk-9"])
    assert (made.state, made.properties["desktop_computing"]) == (ResourceState.ALIVE, "YES")
    assert made.properties["expiry_date"]


# -- what is refused, and what grows old ------------------------------------------------------------------------------


def test_nothing_is_sent_to_a_running_job(desk: Desk) -> None:
    job_id, alice = desk.running(), User("alice", 1000)
    with desk.database.begin() as tx:
        outcomes = [control.request_signal(tx, alice, job_id, number) for number in (None, 10)]
        root = User("root", 0, administers=True)
        (held,) = control.hold(tx, root, [job_id], control.HoldRules(), running=True)
    assert [outcome.refusal for outcome in outcomes if isinstance(outcome, ControlOutcome)] == [
        ControlRefusal.FETCHED
    ] * 2
    assert (held.refusal, held.text) == (ControlRefusal.WRONG_STATE, NOT_FOR_DESKTOPS)
    assert control.why_not_ended(outcomes[0], "signal").endswith(NOT_FOR_DESKTOPS)  # type: ignore[arg-type]


def test_results_go_some_days_after_the_end_of_their_job(database: Database, tmp_path: Path) -> None:
    desk = Desk(database, stageout_dir=str(tmp_path), stagein_cache_expiry=1)
    live, fresh, old = desk.running(), desk.job(JobState.TERMINATED), desk.job(JobState.TERMINATED)
    desk.execute("UPDATE jobs SET stop_time = %s WHERE job_id = %s", 1, old)
    for name in (
        *(f"{job_id}.tgz" for job_id in (live, fresh, old, old + 1_000_000)),
        "notes",
        ".1.2.part",
        ".1.3.part",
    ):
        (tmp_path / name).touch()
    os.utime(tmp_path / ".1.3.part", (1, 1))
    assert stageouts.remove_old(database, desk.config) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"{live}.tgz", f"{fresh}.tgz", "notes", ".1.2.part"]
    )


def test_a_file_that_is_not_written_to_its_end_leaves_nothing(database: Database, tmp_path: Path) -> None:
    config = Desk(database, stageout_dir=str(tmp_path)).config
    with pytest.raises(ZeroDivisionError), stageouts.new_file(config, 1) as file:
        file.write(b"x")
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
    with stageouts.new_file(config, 1) as file:
        file.write(b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["1.tgz"]


def _tar(*members: tuple[str, int]) -> bytes:
    """An archive with files of zeros, which become small."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w:gz") as archive:
        for name, size in members:
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    return text.getvalue()


def _lying_tar() -> bytes:
    """An archive whose only file is larger than the archive, as its head says."""
    info = tarfile.TarInfo("x")
    info.size = 1 << 40
    return gzip.compress(info.tobuf() + bytes(1024))


BOMBS = {
    "one large file": _tar(("x", 1 << 21)),
    "many files": _tar(*((str(number), 1 << 16) for number in range(32))),
    "a large file behind a small one": _tar(("a", 1), ("x", 1 << 21)),
    "a head that lies": _lying_tar(),
    "a bomb in a bomb": gzip.compress(_tar(("x", 1 << 21))),
    "nothing but zeros": gzip.compress(bytes(1 << 24)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_results_that_become_larger_than_may_be_are_not_unpacked(database: Database, tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    desk = Desk(database, stageout_dir=str(tmp_path / "out"), api_max_upload=(1 << 20) // UNPACKED_TIMES)
    job_id = desk.running(user=pwd.getpwuid(os.geteuid()).pw_name, launching_directory=str(home))
    desk.pull({job_id: ended()})
    with stageouts.new_file(desk.config, job_id) as file:
        file.write(BOMBS[name])
    assert desk.end(job_id).code is EndCode.SUCCESS
    assert list(home.iterdir()) == []
    if name != "nothing but zeros":  # an archive without a file
        assert "STAGEOUT_ERROR" in desk.events(job_id)
        assert Path(stageouts.path_of(desk.config, job_id)).read_bytes() == BOMBS[name]


@pytest.fixture
def with_results(database: Database, tmp_path: Path) -> tuple[Desk, int]:
    """A job that has ended, and whose results have come."""
    desk = Desk(database, stageout_dir=str(tmp_path))
    job_id = desk.running(user=pwd.getpwuid(os.geteuid()).pw_name, launching_directory=str(tmp_path))
    desk.pull({job_id: ended()})
    with stageouts.new_file(desk.config, job_id) as file:
        file.write(b"x")
    return desk, job_id


def test_an_unpacking_that_its_user_has_stopped_holds_up_no_end(
    with_results: tuple[Desk, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, job_id = with_results
    stopped = ["/bin/sh", "-c", f"echo $$ > {tmp_path}/pid; kill -STOP $$"]
    monkeypatch.setattr(UserFiles, "running", lambda *_: (stopped, {}))
    monkeypatch.setattr(desktop, "SECONDS", 6.0)

    def kill(_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(subprocess.Popen, "kill", kill)  # as where sudo has started it
    assert desk.end(job_id).code is EndCode.SUCCESS
    assert "STAGEOUT_ERROR" in desk.events(job_id)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    while desktop.unpackings.left():
        pass


def test_an_end_waits_for_its_turn_to_unpack_without_holding_up_others(
    with_results: tuple[Desk, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, job_id = with_results
    with monkeypatch.context() as patch:
        patch.setattr(desktop, "MOST_OF_A_USER", 0)
        assert finish.finish(desk.context, job_id) == RetryAfter(finish.CROWDED_SECONDS)
    assert desk.phase(job_id) is Phase.REPORTED
    assert finish.finish(desk.context, job_id) is None
    assert desk.phase(job_id) is Phase.CLEANED


# -- agents of one name -----------------------------------------------------------------------------------------------


def test_a_job_is_of_the_agent_that_has_fetched_it_whoever_else_has_its_name(desk: Desk) -> None:
    job_id = desk.job()
    launch_job(desk.context, job_id)
    assert list(desk.pull(agent="first").launch) == [job_id]
    for _ in range(3):
        assert desk.pull(agent="second") == PullAnswer({}, (), 30)
    assert list(desk.pull(agent="first").launch) == [job_id]  # its answer may have been lost
    desk.pull({job_id: RUNNING}, agent="first")
    for _ in range(3):
        assert desk.pull(agent="second").launch == {}
    assert desk.pull({job_id: ended(9)}, agent="second").kill == ()  # it is none of its jobs
    assert desk.pull({job_id: RUNNING}, agent="second").kill == (job_id,)
    assert state_of(desk.database, job_id) is JobState.RUNNING
    desk.pull({job_id: ended()}, agent="first")
    assert desk.end(job_id) == Cause(EndCode.SUCCESS)


def test_an_agent_that_leaves_takes_the_jobs_of_another_of_its_name_not_with_it(desk: Desk) -> None:
    job_id = desk.job()
    launch_job(desk.context, job_id)
    desk.pull(agent="first")
    desk.pull({job_id: RUNNING}, agent="first")
    desk.pull(agent="second", quits=True)
    desk.node_change_state()
    assert desk.state()[0] is ResourceState.ABSENT
    desk.pull({job_id: RUNNING}, agent="first")
    desk.node_change_state()
    assert (state_of(desk.database, job_id), desk.state()[0]) == (JobState.RUNNING, ResourceState.ALIVE)


@pytest.mark.parametrize("has_arrived", [True, False])
def test_a_job_of_an_agent_whose_directory_is_gone_is_lost_and_not_run_again(desk: Desk, has_arrived: bool) -> None:
    job_id = desk.job()
    launch_job(desk.context, job_id)
    desk.pull(agent="of the disk that was replaced")
    if has_arrived:
        desk.pull({job_id: RUNNING}, agent="of the disk that was replaced")
    desk.pull(agent="new")
    assert desk.code(job_id) is None
    desk.execute("UPDATE job_runs SET silent_since = silent_since - %s", EXPIRY + 1)
    assert desk.pull(agent="new").launch == {}
    assert desk.code(job_id) is None
    assert desk.pull(agent="new").launch == {}
    assert desk.end(job_id).code is EndCode.AGENT_LOST


def test_an_agent_that_names_its_job_is_not_silent(desk: Desk) -> None:
    job_id = desk.job()
    launch_job(desk.context, job_id)
    desk.pull(agent="first")
    desk.execute("UPDATE job_runs SET silent_since = silent_since - %s", EXPIRY + 1)
    desk.pull({job_id: RUNNING}, agent="first")
    for _ in range(3):
        desk.pull(agent="second")
    assert desk.code(job_id) is None

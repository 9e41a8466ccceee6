"""What oardel, oarhold and oarresume print, and how they end."""

import io
import json
import threading
from collections.abc import Iterator

import pytest
import zmq

from oar.cli import oardel, oarhold, oarresume
from oar.cli.common.command import CommandResult
from oar.lib.access.records import User
from oar.lib.bus import sockets
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.job_lists import WAY_OUT
from oar.lib.jobs.states import JobState, JobType, Reservation
from tests.builders import add_array, add_job, add_resources, execute_sql
from tests.db.reservation_rows import add_reservation
from tests.frontend import ALICE, Frontend
from tests.process.this_machine import free_ports

ROOT = User("root", 0)
WRITE = f"W{WAY_OUT[1:]}"
WAY = f"# {WRITE}\n"
STATES = "\n# Write letters or names, as W,R,H or Waiting"


class Users(Frontend):
    """A machine on which users type commands."""

    def oardel(self, *arguments: object, user: User = ALICE) -> CommandResult:
        """Run oardel as a user."""
        return self.type(oardel.main, *arguments, user=user)

    def running(self, *types: str, **columns: object) -> int:
        """Add a running job of alice, whose head is node-1."""
        nodes = add_resources(self.database, nodes=1)
        job_id = add_job(self.database, JobState.RUNNING, on=nodes, types=types, **columns)  # type: ignore[arg-type]
        with self.database.begin() as tx:
            tx.job_runs.claim(job_id, "node-1")
        return job_id


@pytest.fixture
def frontend(database: Database) -> Users:
    """A frontend of a site as shipped, whose server is not there."""
    return Users(
        database,
        Config(
            appendice_server_port=free_ports(1)[0],
            server_hostnames=("127.0.0.1",),
            job_resource_manager_property_db_field="cpuset",
            oar_ssh_connection_timeout=120,
        ),
    )


class Runner(threading.Thread):
    """Says what came of signals as soon as it is rung for a job."""

    def __init__(self, frontend: Users, result: EventType) -> None:
        super().__init__()
        self.frontend = frontend
        self.result = result
        self.heard: list[bytes] = []
        self._over = threading.Event()
        self._zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._bell = sockets.Pull(self._zmq, "127.0.0.1", frontend.config.appendice_server_port)

    def run(self) -> None:
        """Serve until it is stopped."""
        poll = sockets.Poll(self._bell)
        while not self._over.is_set():
            poll.wait(0.05)
            self.heard += self._bell.receive()
            with self.frontend.database.begin() as tx:
                for request in tx.job_runs.signal_requests(0) if self.heard else []:
                    tx.events.add(self.result, request.job_id, "")

    def stop(self) -> None:
        """End."""
        self._over.set()
        self.join(120)
        self._bell.close()
        self._zmq.destroy(linger=0)


@pytest.fixture
def runner(frontend: Users) -> Iterator[Runner]:
    """A Runner that succeeds."""
    runner = Runner(frontend, EventType.CHECKPOINT_SUCCESS)
    runner.start()
    yield runner
    runner.stop()


# -- delete -----------------------------------------------------------------------------------------------------------


def test_a_deletion_is_registered(frontend: Users) -> None:
    first, second = add_job(frontend.database), add_job(frontend.database)
    assert frontend.oardel(first, second) == CommandResult(
        0,
        f"Deleting the job = {first} ...REGISTERED.\n"
        f"Deleting the job = {second} ...REGISTERED.\n"
        f"The job(s) [ {first} {second} ] will be deleted in the near future.\n",
        "",
    )


@pytest.mark.parametrize(
    ("whose", "reason", "code"),
    [
        ("bob", "You are not the right user.", 1),
        ("alice", "This job was already killed.", 6),
        (None, "This job does not exist.", 7),
    ],
)
def test_a_rejected_deletion_reports_the_reason(frontend: Users, whose: str | None, reason: str, code: int) -> None:
    job_id = add_job(frontend.database, user=whose) if whose else 4711
    if whose == "alice":
        frontend.oardel(job_id)
    assert frontend.oardel(job_id) == CommandResult(
        code, f"Deleting the job = {job_id} ...ERROR.\n", f"Cannot frag {job_id} ; {reason}\n"
    )


def test_deleting_an_ended_job_succeeds(frontend: Users) -> None:
    ended, live = add_job(frontend.database, JobState.ERROR), add_job(frontend.database)
    assert frontend.oardel(ended) == CommandResult(
        0, f"Deleting the job = {ended} ...ENDED.\nThe job(s) [ {ended} ] had ended before.\n", ""
    )
    assert frontend.oardel(ended, live).out.endswith(
        f"The job(s) [ {live} ] will be deleted in the near future.\nThe job(s) [ {ended} ] had ended before.\n"
    )


def test_invalid_ids_are_reported_and_valid_ones_are_processed(frontend: Users) -> None:
    job_id = add_job(frontend.database)
    result = frontend.oardel("abc", job_id, "12x", "9" * 40)
    assert result.exit == 4
    assert f"[ {job_id} ]" in result.out
    assert result.err == (
        f'[ERROR] "abc" is not a valid job identifier\n{WAY}'
        f'[ERROR] "12x" is not a valid job identifier\n{WAY}'
        f'[ERROR] "{"9" * 40}" is not a valid job identifier\n{WAY}'
    )


def test_options_of_other_schedulers_are_explained(frontend: Users) -> None:
    expected = "Unknown option: j\n# Here: job ids, without an option\n"
    assert frontend.type(oardel.main, "-j", "12") == CommandResult(1, "", expected)


@pytest.mark.parametrize(
    ("word", "way_out"),
    [
        ("all", "All your jobs: --all"),
        ("12..15", WRITE),
        ("12.server", WRITE),
        ("15-12", "Write the lower number first: 12-15"),
        ("1-10001", "1-10001 has more than 10000 numbers; use a smaller range, --array or --sql"),
        ("12[x]", "Write the indices as 12[3], 12[3-7] or 12[1,3-7]"),
    ],
)
def test_a_wrong_list_of_jobs_is_told_the_right_form(frontend: Users, word: str, way_out: str) -> None:
    expected = f'[ERROR] "{word}" is not a valid job identifier\n# {way_out}\n'
    assert frontend.type(oardel.main, word) == CommandResult(4, "", expected)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        *(("{0}-{4}", [0, 1, 2, 3, 4]), ("{3},{0}", [0, 3]), ("{0} {1}", [0, 1]), ("{array}[2]", [2])),
        *(("{array}[1-2]", [1, 2]), ("{array}_[1,3]", [1, 3]), ("{array}_3", [3]), ("{array}[]", [1, 2, 3])),
        *(("{array}[*]", [1, 2, 3]), ("{0},{array}[3-9]", [0, 3])),
    ],
)
def test_lists_of_jobs(frontend: Users, text: str, indices: list[int]) -> None:
    ids = [add_job(frontend.database), *(add_job(frontend.database, array_id=900, array_index=i) for i in (1, 2, 3))]
    ids.append(add_job(frontend.database))
    result = frontend.type(oarhold.main, text.format(*ids, array=900))
    assert (result.exit, result.err) == (0, "")
    assert [job.id for job in frontend.jobs() if job.state is JobState.HOLD] == [ids[index] for index in indices]


def test_a_list_without_jobs(frontend: Users) -> None:
    job = add_job(frontend.database, array_id=900)
    for text, reason in {
        "800-810": "no job has an id from 800 to 810.",
        "77[1]": "array 77 does not exist.",
        "900[2-4]": "array 900 has no job with index 2-4: its indices are 1-1.",
    }.items():
        assert frontend.type(oardel.main, text) == CommandResult(4, "", f"[ERROR] {reason}\n")
    assert f"= {job} " in frontend.type(oardel.main, f"{job}-{job + 9000}").out


def test_a_range_leaves_out_frames_of_advance_reservations(frontend: Users) -> None:
    frame, job = add_job(frontend.database), add_job(frontend.database)
    add_reservation(frontend.database, frame_id=frame)
    assert frontend.type(oarhold.main, f"{frame}-{job}").out.startswith(f"[{job}] Hold request")
    assert [each.state for each in frontend.jobs()] == [JobState.WAITING, JobState.HOLD]


def test_ranges_with_array_are_of_array_ids(frontend: Users) -> None:
    first, *others = add_array(frontend.database, 3)
    result = frontend.oardel("--array", f"{first}-{first + 1000}")
    assert (result.exit, result.err) == (0, "")
    assert result.out.endswith(f"The job(s) [ {first} {others[0]} {others[1]} ] will be deleted in the near future.\n")
    refused = frontend.oardel("--array", f"{first}[1]")
    assert "# With --array write ids of arrays; without it the elements 120[3]\n" in refused.err


@pytest.mark.parametrize("order", ["before", "behind"])
def test_all_jobs_of_an_array(frontend: Users, order: str) -> None:
    first = add_job(frontend.database, array_id=100)
    second = add_job(frontend.database, array_id=100, array_index=2)
    add_job(frontend.database)
    result = frontend.oardel("--array", 100) if order == "before" else frontend.oardel(100, "--array")
    assert result.out.endswith(f"The job(s) [ {first} {second} ] will be deleted in the near future.\n")


def test_an_unknown_array_is_reported(frontend: Users) -> None:
    assert frontend.oardel("--array", "42", "x") == CommandResult(
        4,
        "",
        f'[ERROR] "x" is not a valid job array identifier\n{WAY}[ERROR] "42" is not a valid array job\n',
    )


def test_jobs_by_a_condition_and_by_id(frontend: Users) -> None:
    named = add_job(frontend.database, name="long")
    other = add_job(frontend.database)
    result = frontend.oardel(other, "--sql", "job_name = 'long'")
    assert result.out.endswith(f"The job(s) [ {other} {named} ] will be deleted in the near future.\n")
    assert frontend.oardel("--sql", "job_name = 'none'") == CommandResult(
        0, "", "# Warning: no job satisfies the SQL condition.\n"
    )


def test_a_condition_is_limited_to_the_named_user(frontend: Users) -> None:
    mine = [add_job(frontend.database, name=name) for name in ("long", "short")]
    others = add_job(frontend.database, user="bob", name="long")
    said = frontend.oardel("--sql", "job_name = 'long'", "-u", "carol", user=ROOT)
    assert said == CommandResult(0, "", "# Warning: no such job of carol.\n")
    assert frontend.oardel("--sql", "job_name = 'none'", "-u", "bob", user=ROOT).err.count("\n") == 1
    result = frontend.oardel(mine[1], "--sql", "job_name = 'long'", "-u", "bob", user=ROOT)
    assert result.out.endswith(f"The job(s) [ {mine[1]} {others} ] will be deleted in the near future.\n")
    result = frontend.oardel("--sql", "job_name = 'long'", "--state", "W")
    assert result.out.endswith(f"The job(s) [ {mine[0]} ] will be deleted in the near future.\n")


def test_nothing_to_do_shows_the_usage(frontend: Users) -> None:
    for command in (oardel.main, oarhold.main, oarresume.main):
        result = frontend.type(command)
        assert (result.exit, result.out) == (1, "")
        assert result.err.startswith(f"Usage: {command.name}")


# -- checkpoint and signal --------------------------------------------------------------------------------------------


def test_a_checkpoint_is_requested_and_its_result_awaited(frontend: Users, runner: Runner) -> None:
    job_id = frontend.running()
    assert frontend.oardel("-c", job_id) == CommandResult(
        0,
        f"Checkpointing the job {job_id} ...DONE.\nThe job {job_id} was notified to checkpoint itself on node-1.\n",
        "",
    )
    assert runner.heard == [b'{"cmd": "SIGNAL", "job_id": %d}' % job_id]


@pytest.mark.parametrize("word", ["USR1", "SIGUSR1", "usr1", "10"])
def test_a_signal_is_requested_by_name_or_number(frontend: Users, runner: Runner, word: str) -> None:
    runner.result = EventType.SIG_SUCCESS
    job_id = frontend.running()
    assert frontend.oardel("-s", word, job_id) == CommandResult(
        0,
        f"Signaling the job {job_id} with SIGUSR1 signal.\nDONE.\n"
        f"The job {job_id} was notified to signal itself with SIGUSR1 on node-1.\n",
        "",
    )
    with frontend.database.begin() as tx:
        assert len(tx.events.of_types(job_id, ["SIGNAL_10"])) == 1


def test_a_node_that_does_not_answer_is_named(frontend: Users, runner: Runner) -> None:
    runner.result = EventType.CHECKPOINT_ERROR
    job_id = frontend.running()
    assert frontend.oardel("-c", job_id) == CommandResult(
        3, f"Checkpointing the job {job_id} ...ERROR.\n", "Cannot contact node-1, operation timed out (120 s).\n"
    )


def test_a_server_that_does_not_answer_is_an_error_of_a_signal(frontend: Users) -> None:
    job_id = frontend.running()
    port = frontend.config.server_port
    assert frontend.oardel("-c", job_id) == CommandResult(
        2, f"Checkpointing the job {job_id} ...ERROR.\n", f"Cannot contact the OAR server 127.0.0.1:{port}.\n"
    )


def test_which_jobs_take_no_signal(frontend: Users) -> None:
    others = frontend.running(user="bob")
    interactive = frontend.running(job_type=JobType.INTERACTIVE)
    waiting, noop = add_job(frontend.database), frontend.running("noop")
    for job_id, reason, code in [
        (noop, "The job is of the noop type.", 7),
        (others, "You are not the right user.", 1),
        (waiting, "This job is not running.", 5),
        (interactive, "The job is Interactive.", 7),
        (4711, "This job does not exist.", 7),
    ]:
        assert frontend.oardel("-c", job_id) == CommandResult(
            code, f"Checkpointing the job {job_id} ...ERROR.\n", f"Cannot checkpoint {job_id} ; {reason}\n"
        )
        assert frontend.oardel("-s", "TERM", job_id) == CommandResult(
            code,
            f"Signaling the job {job_id} with SIGTERM signal.\nERROR.\n",
            f"Cannot signal {job_id} ; {reason}\n",
        )


@pytest.mark.parametrize("word", ["FOO", "0", "65", "-9", "9 9", "\u0661"])
def test_an_unknown_signal_is_refused(frontend: Users, word: str) -> None:
    assert frontend.oardel(f"--signal={word}", 1) == CommandResult(
        1, "", f'Unknown signal "{word}"\n# Write a name or a number: USR1, SIGTERM, 9\n'
    )


# -- for administrators -----------------------------------------------------------------------------------------------


def test_besteffort_is_set_and_removed(frontend: Users) -> None:
    job_id = frontend.running()
    assert frontend.oardel("-b", job_id, user=ROOT) == CommandResult(
        0, f"Add besteffort type for the job {job_id}.\n", ""
    )
    assert frontend.oardel("-b", job_id, user=ROOT).out == f"Remove besteffort type for the job {job_id}.\n"
    waiting = add_job(frontend.database)
    assert frontend.oardel("-b", waiting, user=ROOT) == CommandResult(
        9, "", f"The job {waiting} is not in the Running state.\n"
    )


def test_a_job_stuck_in_its_end_is_freed(frontend: Users) -> None:
    job_id = add_job(frontend.database, JobState.FINISHING, on=add_resources(frontend.database))
    begin = f"Force the termination of the job = {job_id} ..."
    early = frontend.oardel("--force-terminate-finishing-job", job_id, user=ROOT)
    assert (early.exit, early.out) == (11, f"{begin}ERROR.\n")
    assert early.err.startswith(f"The job {job_id} is not in the Finishing state for more than 540s (")
    execute_sql(frontend.database, "UPDATE job_state_logs SET date_start = date_start - 541 WHERE job_id = %s", job_id)
    assert frontend.oardel("--force", job_id, user=ROOT) == CommandResult(0, f"{begin}REGISTERED.\n", "")
    waiting = add_job(frontend.database)
    assert frontend.oardel("--force", waiting, user=ROOT) == CommandResult(
        10,
        f"Force the termination of the job = {waiting} ...ERROR.\n",
        f"The job {waiting} is not in the Finishing state.\n",
    )


def test_users_cannot_set_besteffort_or_force_an_end(frontend: Users) -> None:
    assert frontend.oardel("-b", 1) == CommandResult(8, "", "You must be oar or root to use the -b option\n")
    assert frontend.oardel("--force-terminate-finishing-job", 1) == CommandResult(
        8, "", "You must be oar or root to use the --force-terminate-finishing-job option\n"
    )


# -- oarhold, oarresume -----------------------------------------------------------------------------------------------


def test_why_a_job_is_not_held(frontend: Users) -> None:
    running = frontend.running()
    others = add_job(frontend.database, user="bob")
    reserved = add_job(frontend.database, reservation=Reservation.SCHEDULED)
    ended = add_job(frontend.database, JobState.ERROR)
    for options, job_id, reason in [
        ((), ended, "it has ended."),
        ((), 4711, "this job does not exist."),
        ((), others, "you are not the right user."),
        ((), running, "the job is not in the right state: it has begun (try '-r' option)."),
        ((), reserved, "the job is not in the right state (try '-r' option)."),
        (("-r",), running, "only oar or root users can use '-r' option."),
    ]:
        result = frontend.type(oarhold.main, *options, job_id)
        assert result == CommandResult(1, "", f"/!\\ Cannot hold {job_id}: {reason}\n")


def test_kinds_of_jobs_that_are_never_suspended(frontend: Users) -> None:
    job_id = frontend.running("deploy")
    assert frontend.type(oarhold.main, "-r", job_id, user=ROOT) == CommandResult(
        2, "", "This job is of the deploy type. We cannot suspend this kind of jobs.\n"
    )
    frontend.config = frontend.config.replace(job_resource_manager_property_db_field=None)
    assert frontend.type(oarhold.main, "-r", frontend.running(), user=ROOT) == CommandResult(
        2, "", "CPUSET tag is not configured in the oar.conf.\n"
    )


def test_why_a_job_is_not_resumed(frontend: Users) -> None:
    suspended = add_job(frontend.database, JobState.SUSPENDED, on=add_resources(frontend.database))
    others = add_job(frontend.database, JobState.HOLD, user="bob")
    for job_id, reason in [
        (4711, "this job does not exist."),
        (others, "you are not the right user."),
        (add_job(frontend.database), "the job is not in the Hold or Suspended state."),
        (suspended, "only oar or root user can resume Suspended jobs."),
    ]:
        assert frontend.type(oarresume.main, job_id) == CommandResult(1, "", f"/!\\ Cannot resume {job_id}: {reason}\n")


def test_bad_ids_of_a_hold(frontend: Users) -> None:
    for command in (oarhold.main, oarresume.main):
        assert frontend.type(command, "x") == CommandResult(2, "", f'[ERROR] "x" is not a valid job identifier\n{WAY}')


# -- which jobs, and how programs are told -----------------------------------------------------------------------------


def test_jobs_by_whose_they_are_their_state_and_their_name(frontend: Users) -> None:
    mine, running = add_job(frontend.database), frontend.running(name="fem")
    others = add_job(frontend.database, user="bob", name="fem")
    add_job(frontend.database, JobState.ERROR)
    for words, found in [
        (("-u",), [mine, running]),
        (("-u", "alice"), [mine, running]),
        (("--state", "W,Hold"), [mine]),
        (("--state", "Running"), [running]),
        (("--name", "fem"), [running]),
        (("-u", "bob", "--name", "fem"), [others]),
        ((running, "--state", "W"), [running, mine]),
    ]:
        told = json.loads(frontend.oardel("-J", "-s", "TERM", *words).out)
        assert [each["job_id"] for each in told] == found
    assert frontend.oardel("-u", "carol") == CommandResult(0, "", "# Warning: no such job of carol.\n")
    assert frontend.oardel("--state", "W,Z") == CommandResult(1, "", f'Unknown state "Z"{STATES}\n')


def test_option_all_means_own_jobs_and_for_administrators_all_jobs(frontend: Users) -> None:
    mine, running = add_job(frontend.database), frontend.running(name="fem")
    others = add_job(frontend.database, user="bob", name="fem")
    for user, words, found in [
        (ALICE, ("--all",), [mine, running]),
        (ROOT, ("--all",), [mine, running, others]),
        (ROOT, ("--all", "--name", "fem"), [running, others]),
        (ROOT, ("--all", "-u", "bob"), [others]),
    ]:
        told = json.loads(frontend.oardel("-J", "-s", "TERM", *words, user=user).out)
        assert [each["job_id"] for each in told] == found
    assert frontend.oardel("--all", "--state", "Hold", user=ROOT) == CommandResult(0, "", "# Warning: no such job.\n")
    assert frontend.oardel("--state", "") == CommandResult(1, "", f'Unknown state ""{STATES}\n')


def test_each_job_is_confirmed(frontend: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = add_job(frontend.database), add_job(frontend.database, name="a\nb")
    third, others = add_job(frontend.database), add_job(frontend.database, user="bob")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\nYes\n"))
    result = frontend.oardel("-i", first, second, others, third)
    assert result.exit == 1
    questions = [
        f"Do you mean the job {first} of alice (Waiting)? [y/N] ",
        f"Do you mean the job {second} of alice (a\\nb, Waiting)? [y/N] ",
        f"Do you mean the job {third} of alice (Waiting)? [y/N] ",
    ]
    assert result.err == "".join(questions) + f"Cannot frag {others} ; You are not the right user.\n"
    assert frontend.ask(lambda tx: tx.job_requests.jobs_to_kill([first, second, third, others])) == {second}


def test_all_jobs_of_a_user_are_held_and_resumed(frontend: Users) -> None:
    running = frontend.running()

    def end(tx: Transaction) -> bool:
        return lifecycle.move(tx, job_id, JobState.ERROR)

    for words in (("-u",), ("--all",), ("-u", "--state", "W")):
        job_id = add_job(frontend.database)
        result = frontend.type(oarhold.main, *words)
        assert result == CommandResult(0, f"[{job_id}] Hold request was sent to the OAR server.\n", result.err)
        result = frontend.type(oarresume.main, "-u", "--state", "Hold")
        assert result == CommandResult(0, f"[{job_id}] Resume request was sent to the OAR server.\n", result.err)
        assert frontend.ask(end)
    assert frontend.type(oarhold.main, "-u", "--state", "R").exit == 1
    waiting = add_job(frontend.database)
    told = json.loads(frontend.type(oarhold.main, "-J", "-r", "--all", user=ROOT).out)
    assert [(each["job_id"], each["ok"]) for each in told] == [(running, True), (waiting, True)]


def test_users_cannot_act_on_jobs_of_others(frontend: Users) -> None:
    job_id = add_job(frontend.database, user="bob")
    assert frontend.oardel("-u", "bob").exit == 1
    assert frontend.type(oarhold.main, "-u", "bob").exit == 1
    assert frontend.ask(lambda tx: tx.job_requests.jobs_to_kill([job_id])) == set()


def test_machine_formats_list_the_result_of_each_request(frontend: Users) -> None:
    mine, others = add_job(frontend.database), add_job(frontend.database, user="bob")
    result = frontend.oardel("--json", mine, others, "abc")
    assert result.exit == 15
    assert result.err == f'[ERROR] "abc" is not a valid job identifier\n{WAY}'
    assert json.loads(result.out) == [
        {"job_id": mine, "ok": True, "message": f"Deleting the job = {mine} ...REGISTERED."},
        {"job_id": others, "ok": False, "message": f"Cannot frag {others} ; You are not the right user."},
    ]
    held = add_job(frontend.database)
    (told,) = json.loads(frontend.type(oarhold.main, "-J", held).out)
    assert told == {"job_id": held, "ok": True, "message": f"[{held}] Hold request was sent to the OAR server."}
    result = frontend.type(oarresume.main, "-J", 4711)
    assert (result.exit, result.err) == (1, "")
    assert json.loads(result.out) == [
        {"job_id": 4711, "ok": False, "message": "/!\\ Cannot resume 4711: this job does not exist."}
    ]

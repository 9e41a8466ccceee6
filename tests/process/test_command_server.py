"""Commands answered by a warm server: the real server, the real client, a real PostgreSQL."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from oar.cli import oarsub
from oar.cli.command_server import manager
from oar.cli.command_server.request import PROTOCOL
from oar.cli.common.process import Hangup
from oar.lib.base.version import VERSION
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources
from tests.postgres import PostgreSQL
from tests.process.command_server import (
    EXIT_UNKNOWN,
    GREETING,
    LONGEST,
    OTHER,
    REPOSITORY,
    UNKNOWN,
    CommandServer,
    by_sudo,
    command_server,
    hears_no_more,
)
from tests.process.this_machine import is_alive, wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="to be several users needs root")
READING = b"\0".join([PROTOCOL, VERSION.encode(), b"oarsub", b"/", b"18 2 -1 -1 -1 -1", b"-S", b"-"])
REQUEST = b"\0".join([PROTOCOL, VERSION.encode(), b"oarstat", b"/", b"18 0 -1 -1 -1 -1"])


@pytest.fixture(scope="module")
def shared(shared_settings: DatabaseSettings) -> Iterator[CommandServer]:
    with command_server(shared_settings) as server:
        yield server


@pytest.fixture
def server(shared: CommandServer, database: Database) -> CommandServer:
    """A server that answers, on an empty database."""
    shared.wait_until_it_answers()
    return shared


def asking(
    server: CommandServer,
    *words: str,
    user: str | None = None,
    limits: Mapping[str, int] | None = None,
    env: Mapping[str, str] | None = None,
) -> "subprocess.Popen[str]":
    """Ask for something that begins with reading standard input, and return when it does."""
    while True:
        process = server.asking("oarsub", "-S", "-", *words, user=user, limits=limits, env=env)
        wait_until(lambda: readers(server, process) or process.poll() is not None)  # noqa: B023 - it is over then
        if process.returncode is None:
            return process
        assert process.communicate()[0] == by_sudo("-S", "-", *words).out


def reading(server: CommandServer, process: "subprocess.Popen[str]") -> int:
    """Return the process that waits for the input of a command."""
    (pid,) = readers(server, process)
    return pid


def readers(server: CommandServer, process: "subprocess.Popen[str]") -> list[int]:
    """Return the processes whose standard input is the pipe of a command; one that has just ended may have another."""
    assert process.stdin
    pipe = os.readlink(f"/proc/self/fd/{process.stdin.fileno()}")
    return [pid for pid in server.processes() if standard_input(pid) == pipe]


def standard_input(pid: int) -> str:
    """Return what a process has as its standard input; '' if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return os.readlink(f"/proc/{pid}/fd/0")
    return ""


# -- answers ----------------------------------------------------------------------------------------------------------


def test_a_command_prints_on_the_streams_of_its_user_and_ends_with_its_code(
    server: CommandServer, database: Database
) -> None:
    job = add_job(database, JobState.WAITING, user="alice")
    shown = server.ask("oarstat", "-s", "-j", str(job))
    assert (shown.code, shown.out, shown.err) == (0, f"{job}: Waiting\n", "")
    nothing = server.ask("oarstat", "-j", env={"OAR_JOB_ID": ""})
    assert (nothing.code, nothing.out) == (255, "")
    assert "No job id provided" in nothing.err


def test_variables_of_the_user_count(server: CommandServer, database: Database) -> None:
    job = add_job(Database(database.settings, clock=lambda: 86400 * 200), JobState.WAITING)
    assert server.ask("oarstat", "-s", "-j", env={"OAR_JOB_ID": str(job)}).out == f"{job}: Waiting\n"
    there, here = (server.ask("oarstat", env={"TZ": zone}).out for zone in ("Asia/Tokyo", "UTC"))
    assert ("1970-07-20 09:00:00" in there, "1970-07-20 00:00:00" in here) == (True, True)


def test_a_job_is_submitted_from_the_directory_of_its_user(server: CommandServer, database: Database) -> None:
    add_resources(database, 1)
    done = server.ask("oarsub", "-l", "resource_id=1", "true", user=OTHER if os.geteuid() == 0 else None)
    assert "OAR_JOB_ID=" in done.out, done
    with database.snapshot() as tx:
        (job,) = tx.jobs.live()
    assert (job.launching_directory, job.user) == (str(server.directory), OTHER)


def test_several_users_at_once_get_each_his_own_answer(server: CommandServer, database: Database) -> None:
    jobs = [add_job(database, JobState.WAITING, name=f"n{number}") for number in range(12)]

    def shown(job: int) -> str:
        return server.ask("oarstat", "-s", "-j", str(job)).out

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(shown, jobs * 3))
    assert answers == [f"{job}: Waiting\n" for job in jobs * 3]


@needs_root
def test_who_asks_is_who_the_kernel_says(server: CommandServer, database: Database) -> None:
    job = add_job(database, JobState.WAITING, user="bin")
    lies = {"SUDO_UID": "0", "SUDO_USER": "root", "OARDO_USER": "bin", "OAR_USER": "bin", "USER": "bin"}
    refused = server.ask("oardel", str(job), user=OTHER, env=lies)
    assert refused.code != 0
    with database.snapshot() as tx:
        assert tx.jobs.get(job).state == JobState.WAITING
    assert server.ask("oarhold", str(job), user="bin").code == 0


@needs_root
def test_files_are_opened_with_the_rights_of_the_user(server: CommandServer, database: Database) -> None:
    add_resources(database, 1)
    script = server.directory / "secret"
    script.write_text("#!/bin/sh\n#OAR -n of_the_script\n")
    script.chmod(0o700)
    denied = server.ask("oarsub", "-S", "./secret", user=OTHER)
    assert (denied.code, "Cannot open the file ./secret" in denied.err) == (12, True), denied
    os.chown(script, 1, 1)
    assert "OAR_JOB_ID=" in server.ask("oarsub", "-S", "./secret", user=OTHER).out
    with database.snapshot() as tx:
        assert [job.name for job in tx.jobs.live()] == ["of_the_script"]


# -- signals and ends -------------------------------------------------------------------------------------------------


def test_an_interrupt_interrupts_the_command(server: CommandServer) -> None:
    process = asking(server)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert (process.returncode, said) == (1, "")


def test_a_command_whose_user_is_gone_ends(server: CommandServer) -> None:
    process = asking(server)
    pid = reading(server, process)
    process.kill()
    process.communicate()
    wait_until(lambda: not is_alive(pid))
    assert server.ask("oarstat").code == 0


def test_a_command_whose_process_dies_is_not_done_twice(server: CommandServer) -> None:
    process = asking(server)
    pid = reading(server, process)
    os.kill(pid, signal.SIGKILL)
    out, said = process.communicate()
    assert (process.returncode, out, said) == (EXIT_UNKNOWN, "", UNKNOWN)


def test_output_that_nobody_reads_ends_the_command_as_everywhere(server: CommandServer) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {"PATH": os.environ["PATH"]}
    command = server.command("oarstat", "--help")

    def code() -> int:
        """Return the exit code, 0 where the server was late: then the wrapper is killed."""
        code = subprocess.run(
            command, stdout=writer, stderr=subprocess.DEVNULL, check=False, env=environment
        ).returncode
        return 0 if code in (-signal.SIGPIPE, by_sudo().code) else code

    assert wait_until(code) == 141
    os.close(writer)
    assert server.ask("oarstat").code == 0


def test_a_service_that_is_stopped_finishes_what_it_has_begun(settings: DatabaseSettings) -> None:
    with command_server(settings) as server:
        process = asking(server)
        assert server.process
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.ask_once("oarstat").out == by_sudo().out)
        _, said = process.communicate("#!/bin/sh\n")
        assert (process.returncode, "There are not enough resources" in said) == (8, True), said


@pytest.mark.slow
def test_a_stop_counts_though_the_program_is_another_meanwhile(settings: DatabaseSettings) -> None:
    with command_server(settings, of_own_version=True) as server:
        process = asking(server)
        assert server.process
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.ask_once("oarstat").out == by_sudo().out)
        server.version.write_text("another")
        process.communicate("#!/bin/sh\n")
        assert server.process.wait(LONGEST) == 0


@pytest.mark.slow
def test_a_program_that_is_another_takes_over_the_socket(settings: DatabaseSettings) -> None:
    with command_server(settings, of_own_version=True) as server:
        former = server.processes()
        server.version.write_text("another")
        wait_until(lambda: not former & server.processes())
        assert server.ask("oarstat").code == 0
        assert server.process
        assert server.process.poll() is None


def test_a_second_server_does_not_take_the_socket_of_the_first(server: CommandServer) -> None:
    done = subprocess.run(server.words, capture_output=True, text=True, check=False, timeout=LONGEST)
    assert (done.returncode, done.stderr) == (
        1,
        f"oar-commands: cannot listen on {server.socket}: Address already in use\n",
    )
    assert server.ask("oarstat").code == 0


# -- the other way ----------------------------------------------------------------------------------------------------


def test_without_a_server_a_command_goes_by_sudo(server: CommandServer) -> None:
    absent = str(server.directory / "absent")
    assert server.ask_once("oarstat", "-J", "a b", place=absent) == by_sudo("-J", "a b")


def test_another_version_goes_by_sudo(server: CommandServer) -> None:
    assert server.ask_once("oarstat", version="3.1.0") == by_sudo()
    assert server.ask_once("oarstatt") == by_sudo()


def test_a_configuration_of_ones_own_goes_by_sudo(server: CommandServer) -> None:
    assert server.ask_once("oarstat", env={"OARCONFFILE": "/dev/null"}) == by_sudo()


@pytest.mark.parametrize("words", [["oarstat", "--to"], ["oarsub", "--app", "jupyter"]])
def test_what_lasts_goes_by_sudo_though_the_wrapper_asks(server: CommandServer, words: list[str]) -> None:
    assert server.ask_once(*words) == by_sudo(*words[1:])


@pytest.mark.parametrize("stream", [0, 2])
def test_a_closed_stream_goes_by_sudo(server: CommandServer, stream: int) -> None:
    words = ["sh", "-c", f'exec "$@" {stream}>&-', "sh", *server.command("oarstat")]
    done = subprocess.run(words, check=False, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert (done.returncode, done.stdout) == (by_sudo().code, by_sudo().out)


def test_a_request_that_is_too_long_goes_by_sudo(server: CommandServer) -> None:
    words = ["x" * 100_000] * 6
    assert server.ask_once("oarstat", *words) == by_sudo(*words)


def test_a_silent_or_full_server_is_not_waited_for(server: CommandServer) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        place = str(server.directory / "silent")
        silent.bind(place)
        os.chmod(place, 0o666)
        silent.listen(0)
        assert server.ask_once("oarstat", place=place) == by_sudo()
        assert server.ask_once("oarstat", place=place) == by_sudo()  # the first connection fills the queue


def spoken(server: CommandServer, name: str, *, reads: bool) -> "subprocess.Popen[str]":
    """Be a server that says it is ready, and is gone; whether it has read the request."""
    place = str(server.directory / name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place)
        listener.listen(1)
        while True:
            process = server.asking("oarstat", place=place)
            connection, _ = listener.accept()
            with connection, suppress(ConnectionError):
                assert connection.recv(64) == GREETING
                connection.send(b"ready")
                if request := connection.recv(64, 0 if reads else socket.MSG_PEEK):
                    assert request.startswith(PROTOCOL)
                    return process
            assert process.communicate()[0] == by_sudo().out  # this server was late


def test_who_was_told_to_begin_and_is_gone_may_have_done_it(server: CommandServer) -> None:
    out, said = (process := spoken(server, "begun", reads=True)).communicate()
    assert (process.returncode, out, said) == (EXIT_UNKNOWN, "", UNKNOWN)


def test_who_has_not_read_that_he_is_to_begin_has_done_nothing(server: CommandServer) -> None:
    out, said = (process := spoken(server, "not-begun", reads=False)).communicate()
    assert (process.returncode, out, said) == (by_sudo().code, by_sudo().out, "")


# -- changes ----------------------------------------------------------------------------------------------------------


def test_a_change_of_the_configuration_counts_at_once(server: CommandServer, database: Database) -> None:
    add_job(database, JobState.WAITING)
    server.configure('OARSTAT_DEFAULT_OUTPUT_FORMAT="2"')
    server.wait_until_it_answers()
    assert "System message" in server.ask("oarstat").out
    server.configure()
    server.wait_until_it_answers()
    assert "System message" not in server.ask("oarstat").out


def test_with_a_faulty_configuration_commands_go_by_sudo_and_say_so_there(server: CommandServer) -> None:
    server.configure('SERVER_PORT="x"')
    wait_until(lambda: server.ask_once("oarstat") == by_sudo())
    server.configure()
    server.wait_until_it_answers()


def test_a_restart_of_the_database_is_not_noticed(
    server: CommandServer, database: Database, postgres: PostgreSQL
) -> None:
    server.ask("oarstat")
    ours = "application_name LIKE 'oar:%' AND application_name <> 'oar:test'"
    postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
    assert server.ask("oarstat", "--sql", "true").code == 0
    assert server.ask("oarstat").code == 0


def test_a_locale_that_the_machine_does_not_have_is_no_matter(server: CommandServer) -> None:
    assert server.ask("oarstat", "--version", env={"LC_ALL": "xx_YY.UTF-8", "LANG": "xx_YY"}).err == ""


# -- hostile users ----------------------------------------------------------------------------------------------------


def test_words_that_are_no_request_are_refused(server: CommandServer) -> None:
    streams = [0, 1, 2]
    for data, sent in [
        (b"x", streams),
        (REQUEST.replace(b"oarstat", b"../sh"), streams),
        (REQUEST.replace(b"18 0", b"18 9"), streams),
        (REQUEST.replace(b"18 0", b"x 0"), streams),
        (REQUEST, []),
        (REQUEST, [0, 1]),
        (REQUEST, [0, 1, 2, 2]),
        (REQUEST + b"\0" * 200_000, [0] * 200),
    ]:
        with server.talk() as connection:
            if sent:
                socket.send_fds(connection, [data], sent)
            else:
                connection.send(data)
            assert hears_no_more(connection)
    assert server.ask("oarstat").code == 0


def test_who_does_not_say_what_he_wants_is_let_go(server: CommandServer) -> None:
    with server.talk() as connection:
        assert hears_no_more(connection)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(server.socket))
        assert hears_no_more(silent)


@pytest.mark.slow
def test_thousands_of_connections_are_bounded_and_others_are_answered(server: CommandServer) -> None:
    assert server.process
    open_before = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    silent = []
    for _ in range(2000):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            connection.connect(str(server.socket))
        except BlockingIOError:
            connection.close()
            continue
        silent.append(connection)
    most = open_before + manager.MOST_OF_ONE + 10
    wait_until(lambda: len(os.listdir(f"/proc/{server.process and server.process.pid}/fd")) <= most)
    if os.geteuid() == 0:
        assert server.ask("oarstat", "--version", user=OTHER).code == 0
    for connection in silent:
        connection.close()
    server.wait_until_it_answers()


@needs_root
def test_a_user_who_lets_all_his_processes_wait_takes_none_of_others(server: CommandServer) -> None:
    held = [asking(server, user=OTHER) for _ in range(2)]
    assert server.ask("oarstat", user="bin").code == 0
    wait_until(lambda: server.ask_once("oarstat", user=OTHER) == by_sudo())
    for process in held:
        process.communicate("")
    assert server.ask("oarstat", user=OTHER).code == 0


def test_a_client_that_stands_still_holds_nobody_up(server: CommandServer, tmp_path: Path) -> None:
    process = asking(server)
    process.send_signal(signal.SIGSTOP)
    assert server.ask("oarstat").code == 0
    process.send_signal(signal.SIGCONT)
    process.communicate("")
    assert process.returncode not in (EXIT_UNKNOWN, by_sudo().code)


# -- what a client sends while its command runs -----------------------------------------------------------------------


def requested(server: CommandServer) -> tuple[socket.socket, int, int]:
    """Request a command that reads its input; return the connection, the other end of its input, and its process."""
    reader, writer = os.pipe()
    connection = server.talk()
    socket.send_fds(connection, [READING], [reader, reader, reader])
    os.close(reader)
    pipe = os.readlink(f"/proc/self/fd/{writer}")
    (pid,) = wait_until(lambda: [pid for pid in server.processes() if standard_input(pid) == pipe])
    return connection, writer, pid


@pytest.mark.parametrize(
    "message",
    [
        *(b"done\00\0x", b"done\00", b"done", b"signal", b"signal\09", b"signal\02\02"),
        *(b"signal\0x", b"garbage", b"\0", b"\0" * 64, b"signal\0" + b"2" * 5000, b"\xff" * 10_000),
    ],
)
def test_a_client_that_breaks_the_protocol_counts_as_gone(server: CommandServer, message: bytes) -> None:
    connection, writer, pid = requested(server)
    with connection, open(writer, "wb"):
        connection.send(message)
        wait_until(lambda: not is_alive(pid))


def test_a_client_that_answers_with_one_word_too_many_loses_no_process(server: CommandServer, tmp_path: Path) -> None:
    """The command lets the client read a script."""
    request = b"\0".join([PROTOCOL, VERSION.encode(), b"oarsub", b"/", b"18 2 -1 -1 -1 -1", b"-S", b"./script"])
    for last in (b"done\00\00", b"don", b""):
        with server.talk() as connection:
            socket.send_fds(connection, [request], [0, 1, 2])
            data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 2)
            assert data.startswith(b"run\0")
            for descriptor in descriptors:
                os.close(descriptor)
            if last:
                connection.send(last)
                while connection.recv(1 << 16):
                    pass
    wait_until(lambda: all(standard_input(pid) == "/dev/null" for pid in server.processes()))
    assert server.ask("oarstat").code == 0


@needs_root
def test_clients_that_let_their_processes_wait_take_none_from_others(server: CommandServer) -> None:
    held = [asking(server, user=user) for user in ("sys", "games", "man", "lp") for _ in range(2)]
    assert len({reading(server, process) for process in held}) == len(held)
    assert server.ask("oarstat", user="bin").code == 0
    for process in held:
        process.communicate("")


@pytest.mark.slow
def test_a_command_that_runs_for_too_long_is_told_so_and_gives_its_process_back(settings: DatabaseSettings) -> None:
    with command_server(settings, longest=1) as server:
        process = server.asking("oarsub", "-S", "-")
        assert process.wait(LONGEST) == oarsub.main.exit_codes[Hangup]
        _, said = process.communicate()
        assert said.startswith(
            "# Error: the command ran for 0 minutes, the longest time of the command service, and was ended."
            " Set OAR_BY_SUDO=yes to run it without this limit.\n"
        )


def test_a_client_that_reads_nothing_holds_nobody_up(server: CommandServer) -> None:
    reader, writer = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent, open(reader), open(writer, "wb"):
        silent.connect(str(server.socket))
        silent.send(GREETING)
        socket.send_fds(silent, [REQUEST], [reader, writer, writer])
        assert server.ask("oarstat").code == 0


def test_processes_that_answer_end_on_sigterm_and_finish_what_they_have_begun(server: CommandServer) -> None:
    process = asking(server)
    busy = reading(server, process)
    others = server.processes() - {busy}
    for pid in (busy, *others):
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not any(map(is_alive, others)))
    _, said = process.communicate("#!/bin/sh\n")
    assert (process.returncode, "There are not enough resources" in said) == (8, True), said
    wait_until(lambda: not is_alive(busy))
    assert server.ask("oarstat").code == 0


# -- nothing is carried over ------------------------------------------------------------------------------------------


@pytest.fixture
def single(settings: DatabaseSettings, database: Database) -> Iterator[CommandServer]:
    """A server in which one process works at a time."""
    with command_server(settings, processes=1) as server:
        yield server


def answering(server: CommandServer, user: str, *, limits: Mapping[str, int] | None = None, **surroundings: str) -> int:
    """Let a command of a user read its input; return its process, which has ended the command."""
    process = asking(server, user=user, limits=limits, env=surroundings)
    pid = reading(server, process)
    process.communicate("")
    return pid


@needs_root
def test_a_process_serves_one_user_after_another_and_carries_nothing_over(
    single: CommandServer, database: Database
) -> None:
    job = add_job(Database(database.settings, clock=lambda: 86400 * 200), JobState.WAITING)
    limits = {"fsize": 12345, "cpu": 77, "data": 3 << 30}
    own = {"OAR_JOB_ID": str(job), "TZ": "Asia/Tokyo", "LANG": "xx_YY", "OAR_OARSTAT_OUTPUT_FORMAT": "2"}

    def was_shared() -> bool:
        former = answering(single, OTHER, limits=limits, **own)
        shown = single.ask("oarstat", user="bin")
        assert ("1970-07-20 00:00:00" in shown.out, "System message" in shown.out) == (True, False)
        assert "No job id provided" in single.ask("oarstat", "-j", user="bin").err
        return answering(single, "bin") == former

    wait_until(was_shared, 300)
    for pid in single.processes():
        found = Path(f"/proc/{pid}/limits").read_text()
        assert not {"12345", "77"} & set(found.split())
        assert "Umask:\t0022" in Path(f"/proc/{pid}/status").read_text()
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert {os.readlink(f"/proc/{pid}/fd/{stream}") for stream in (0, 1, 2)} == {"/dev/null"}


_RULE = """
import os, random, signal, sys
print("seen:", getattr(os, "left_by", "nothing"))
os.left_by = user
os.umask(0o077)
random.seed(1)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
"""


@needs_root
def test_what_an_admission_rule_leaves_behind_reaches_nobody_else(single: CommandServer, database: Database) -> None:
    add_resources(database, 1)
    with database.begin() as tx:
        tx.execute("INSERT INTO admission_rules (priority, enabled, rule) VALUES (1, 'YES', %s)", (_RULE,))
    first = single.ask("oarsub", "-l", "resource_id=1", "true", user=OTHER)
    assert "seen: nothing" in first.out, first
    for user in ("bin", "sys", "bin"):
        submitted = single.ask("oarsub", "-l", "resource_id=1", "true", user=user)
        assert ("seen: nothing" in submitted.out) or f"seen: {user}" in submitted.out, submitted
        assert OTHER not in submitted.out


@pytest.mark.slow
@needs_root
def test_a_process_in_which_a_rule_has_run_is_kept_for_its_user(single: CommandServer, database: Database) -> None:
    add_resources(database, 1)
    with database.begin() as tx:
        tx.execute("INSERT INTO admission_rules (priority, enabled, rule) VALUES (1, 'YES', %s)", (_RULE,))

    def was_kept() -> bool:
        single.ask("oarsub", "-l", "resource_id=1", "true", user=OTHER)
        return f"seen: {OTHER}" in single.ask("oarsub", "-l", "resource_id=1", "true", user=OTHER).out

    wait_until(was_kept, 300)


@pytest.mark.slow
@needs_root
def test_a_process_that_was_interrupted_answers_nobody_more(single: CommandServer) -> None:
    process = asking(single, user=OTHER)
    pid = reading(single, process)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert answering(single, "bin") != pid


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["as", "data"])
@pytest.mark.parametrize("mebibytes", [40, 60, 80, 200])
def test_a_limit_of_memory_below_what_a_process_has_goes_by_sudo(
    server: CommandServer, limit: str, mebibytes: int
) -> None:
    assert server.ask_once("oarstat", limits={limit: mebibytes << 20}) == by_sudo()
    assert server.ask("oarstat").code == 0


def test_a_limit_of_memory_that_leaves_room_is_taken_over(server: CommandServer) -> None:
    assert server.ask("oarstat", limits={"as": 4 << 30}).code == 0


# -- what is loaded ---------------------------------------------------------------------------------------------------

LOADED = """
import sys
sys.path.insert(0, {repository!r})
from oar.cli.command_server import manager
from oar.cli.common.command import Context, invoke
from oar.cli.common.start_up import load
from oar.lib.access.records import User
from oar.lib.runtime import open_runtime

manager.preload()
before, executed = set(sys.modules), []
sys.addaudithook(lambda event, arguments: executed.append(arguments) if event == "exec" else None)
runtime = open_runtime("test", {conf!r})
for words in {commands!r}:
    done = invoke(load(f"oar.cli.{{words[0]}}"), words[1:], runtime=runtime, user=User("alice", 4242))
    assert "nternal error" not in done.err, done
print(*sorted(set(sys.modules) - before), *executed)
"""
COMMANDS = [
    ["oarsub", "-l", "resource_id=1", "--hold", "-n", "x", "-t", "besteffort", "-p", "cpuset = '0'", "true"],
    ["oarsub", "-l", "nodes=999", "true"],
    ["oarsub", "-l", "{"],
    *(["oarstat", *words] for words in (["-J"], ["-f"], ["-Y"], ["-X"], ["-D"], ["--start"], ["-S", "state = 'Hold'"])),
    *(["oarnodes", *words] for words in ([], ["-s"], ["-J"], ["--summary"])),
    *([name, "1"] for name in ("oarhold", "oarresume", "oardel", "oarwalltime")),
    ["oaralter", "-n", "y", "1"],
    ["qrstat"],
    ["qrstat", "-ar", "1", "-xml"],
    ["qrsub", "-d", "60", "-l", "/resource_id=1", "-N", "x"],
    ["qrsub", "-a", "+1h", "-d", "60", "-pe", "mpi", "1-2", "-rrule", "FREQ=DAILY;COUNT=2"],
    ["qralter", "-N", "y", "-u", "root", "1"],
    ["qralter", "-u", "@root", "1"],
    ["qrdel", "x"],
    ["oaruserset", "-l"],
]


@pytest.mark.slow
def test_a_process_that_answers_loads_and_executes_nothing_more(server: CommandServer, database: Database) -> None:
    add_resources(database, 1)
    code = LOADED.format(repository=str(REPOSITORY), conf=str(server.conf), commands=COMMANDS)
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr

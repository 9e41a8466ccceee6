"""What makes oarsub fit into scripts: waiting for the end, ids alone, variables, scripts that are kept, defaults."""

import base64
import fcntl
import io
import os
import pty
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oar.cli import oarsub
from oar.cli.common.command import CommandResult, Context
from oar.cli.oarsub_parts import wait
from oar.lib.access.records import User
from oar.lib.db import channel_listener
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.end_listener import EndListener
from oar.lib.jobs.states import JobState
from oar.lib.submission import job_environment, resubmission
from tests.builders import add_resources, execute_sql, move_job
from tests.frontend import LoginNode, add_rules

REPOSITORY = Path(__file__).parents[2]


def handed_over(**variables: str) -> dict[str, str]:
    """The environment of oarsub as the wrapper hands over that of its caller."""
    text = "".join(f"{name}={value}\0" for name, value in variables.items())
    return {"OAR_SUBMIT_ENV": base64.b64encode(text.encode()).decode()}


class Site(LoginNode):
    """Four nodes of two cores, with the default admission rules."""

    def variables(self, *words: object, environment: dict[str, str] | None = None) -> dict[str, str]:
        """Submit one job; return its variables."""
        return job_environment.variables_of(self.submit(*words, environment=environment).env)

    def end_rules(self) -> None:
        """Let everybody submit, root too."""
        execute_sql(self.database, "DELETE FROM admission_rules")

    def submit_again(self) -> None:
        """End the last job in Error, and submit it again as the system does."""
        old = self.jobs()[-1].id
        with self.database.begin() as tx:
            resubmission.copy(tx, old, automatically=True)
            lifecycle.move(tx, old, JobState.TO_ERROR)
            lifecycle.move(tx, old, JobState.ERROR)

    def end(self, state: JobState, exit_codes: list[int | None]) -> None:
        """End all jobs."""
        with self.database.begin() as tx:
            ids = tx.column("SELECT job_id FROM jobs ORDER BY 1")
            for job_id, code in zip(ids, exit_codes, strict=True):
                tx.execute("UPDATE jobs SET exit_code = %s, state = 'Finishing' WHERE job_id = %s", (code, job_id))
                if state is JobState.ERROR:
                    lifecycle.move(tx, job_id, JobState.TO_ERROR)
                lifecycle.move(tx, job_id, state)


@pytest.mark.parametrize("handed", ["é", "=", "////", "A"])
def test_nonsense_in_the_place_of_the_environment_is_no_environment(site: Site, handed: str) -> None:
    result = site.oarsub("--env", "X", "true", environment={"OAR_SUBMIT_ENV": handed})
    assert (result.exit, result.err.partition("\n")[0]) == (1, "# Error: the variable X is not set here.")


@pytest.fixture
def site(database: Database) -> Site:
    add_resources(database, nodes=4, cores=2)
    add_rules(database)
    return Site(database)


@pytest.fixture
def then(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let something happen while oarsub pauses between two looks, at a site without notifications."""

    def when_it_pauses(*what: Callable[[], None]) -> None:
        site.database.settings = site.database.settings._replace(notify=False)
        acts = iter(what)
        monkeypatch.setattr("time.sleep", lambda seconds: next(acts, lambda: None)())

    return when_it_pauses


class TestWait:
    @pytest.mark.parametrize(
        ("state", "status", "code"),
        [
            (JobState.TERMINATED, 0, 0),
            (JobState.TERMINATED, 3 << 8, 3),
            (JobState.TERMINATED, 15, 143),
            (JobState.TERMINATED, None, 0),
            (JobState.ERROR, 9, 137),
            (JobState.ERROR, None, 11),
            (JobState.ERROR, 0, 11),
        ],
    )
    def test_it_ends_as_the_job_did(
        self,
        site: Site,
        then: Callable[[Callable[[], None]], None],
        state: JobState,
        status: int | None,
        code: int,
    ) -> None:
        then(lambda: site.end(state, [status]))
        result = site.oarsub("--wait", "x")
        assert (result.exit, result.err) == (code, "")
        assert "OAR_JOB_ID=" in result.out

    def test_an_array_ends_as_its_worst_job(self, site: Site, then: Callable[[Callable[[], None]], None]) -> None:
        then(lambda: site.end(JobState.TERMINATED, [0, 2 << 8, 9]))
        assert site.oarsub("--array", 3, "--wait", "x").exit == 137

    def test_the_command_is_not_taken_for_its_argument(
        self, site: Site, then: Callable[[Callable[[], None]], None]
    ) -> None:
        then(lambda: site.end(JobState.TERMINATED, [0]))
        assert site.oarsub("--wait", "kill").exit == 0
        assert site.jobs()[0].command == "kill"

    def test_an_interrupt_leaves_the_job_alone(self, site: Site, then: Callable[[Callable[[], None]], None]) -> None:
        then(interrupt)
        result = site.oarsub("--wait", "x")
        job_id = site.jobs()[0].id
        assert (result.exit, result.err) == (1, f"# The job {job_id} goes on; oardel {job_id} ends it.\n")
        assert site.count("frag_jobs") == 0

    def test_an_interrupt_ends_the_job_where_that_is_wanted(
        self, site: Site, then: Callable[[Callable[[], None]], None]
    ) -> None:
        then(interrupt)
        result = site.oarsub("--wait=kill", "x")
        assert result.exit == 1
        assert result.err.endswith("Job(s) deleted.\n")
        assert site.count("frag_jobs") == 1

    def test_a_job_that_is_gone_ended_badly(self, site: Site, then: Callable[[Callable[[], None]], None]) -> None:
        def forget() -> None:
            execute_sql(site.database, "DELETE FROM jobs")

        then(forget)
        assert site.oarsub("--wait", "x").exit == 11

    def test_a_job_that_the_system_submits_again_is_followed(self, site: Site, then: Callable[..., None]) -> None:
        then(site.submit_again, site.submit_again, lambda: site.end(JobState.TERMINATED, [1 << 8, 2 << 8, 3 << 8]))
        result = site.oarsub("--wait", "--parsable", "x")
        old, first, second = [job.id for job in site.jobs()]
        assert result.out == f"{old}\n"
        assert (result.exit, result.err) == (
            3,
            f"# The job {old} was submitted again by itself, waiting for job {first}.\n"
            f"# The job {first} was submitted again by itself, waiting for job {second}.\n",
        )

    def test_an_interrupt_ends_the_copy_where_that_is_wanted(self, site: Site, then: Callable[..., None]) -> None:
        then(site.submit_again, interrupt)
        assert site.oarsub("--wait=kill", "x").exit == 1
        with site.database.snapshot() as tx:
            assert tx.column("SELECT frag_id_job FROM frag_jobs") == [site.jobs()[-1].id]

    def test_pauses_grow_with_what_was_waited(self) -> None:
        assert [wait.pause(waited) for waited in (0, 60, 3600)] == [0.5, 3.0, 15.0]

    @pytest.mark.parametrize(("words", "said"), [(["--wait=no", "x"], "--wait takes"), (["--wait", "-I"], "batch")])
    def test_what_makes_no_sense_is_refused(self, site: Site, words: list[str], said: str) -> None:
        result = site.oarsub(*words)
        assert (result.exit, said in result.err, site.jobs()) == (1, True, [])


def interrupt() -> None:
    raise KeyboardInterrupt


class TestParsable:
    def test_the_id_is_alone(self, site: Site) -> None:
        first = int(site.oarsub("--parsable", "x").out)
        assert site.oarsub("--parsable", "--array", 3, "x") == CommandResult(0, f"{first + 1}\n", "")

    def test_it_excludes_other_formats(self, site: Site) -> None:
        assert site.oarsub("--parsable", "-J", "x").exit == 1


class TestCommand:
    def test_it_may_be_an_option(self, site: Site) -> None:
        assert site.submit("--wrap", "sleep 10; date").command == "sleep 10; date"

    def test_it_is_given_once(self, site: Site) -> None:
        result = site.oarsub("--wrap", "sleep 10", "date")
        assert (result.exit, "the command is given twice" in result.err) == (5, True)


class TestEnvironment:
    def test_a_value_is_what_was_typed(self, site: Site) -> None:
        value = 'it\'s "two"\nlines = é $HOME'
        assert site.variables("--env", f"A={value}", "--env", "B=", "x") == {"A": value, "B": ""}

    def test_a_name_alone_takes_the_callers_value(self, site: Site) -> None:
        assert site.variables("--env", "A", "x", environment=handed_over(A="1\n2", B="3")) == {"A": "1\n2"}

    def test_all_leaves_out_what_belongs_to_the_session_here(self, site: Site) -> None:
        caller = handed_over(A="1", PATH="/opt/bin", OAR_JOB_ID="4", SSH_AUTH_SOCK="/tmp/x", DISPLAY=":0", HOME="/h")
        assert site.variables("--env", "ALL", "--env", "A=2", "x", environment=caller) == {"A": "2", "PATH": "/opt/bin"}

    def test_none_forgets_what_was_said_before(self, site: Site) -> None:
        caller = handed_over(A="1")
        assert site.variables("--env", "ALL", "--env", "NONE", "--env", "C=3", "x", environment=caller) == {"C": "3"}

    def test_no_value_is_kept_in_the_request(self, site: Site) -> None:
        job = site.submit("--env", "TOKEN=secret", "--env=OTHER=secret", "--env", "HOME=/x", "x")
        assert job.initial_request == "oarsub --env TOKEN=[HIDDEN] --env=OTHER=[HIDDEN] --env HOME=[HIDDEN] x"

    @pytest.mark.parametrize(
        ("wish", "said"),
        [
            ("OAR_JOB_ID=3", "the variable OAR_JOB_ID is set by OAR itself."),
            ("2A=3", 'bad variable "2A"'),
            ("A B", 'bad variable "A B"'),
            ("MISSING", "the variable MISSING is not set here."),
            (f"A={'x' * 70_000}", "too long"),
            ("A=\udcff", "the variable A is not UTF-8 text."),
        ],
    )
    def test_what_no_job_can_have_is_refused(self, site: Site, wish: str, said: str) -> None:
        result = site.oarsub("--env", wish, "x")
        assert result.exit in (1, 8)
        assert said in result.err
        assert site.jobs() == []

    def test_rules_do_not_see_what_the_caller_has(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OAR_SUBMIT_ENV", "secret")
        monkeypatch.setenv("OAR_TEST", "1")
        add_rules(
            site.database, "import os\nprint(sorted(each for each in os.environ if 'OAR_' in each))", defaults=False
        )
        seen = site.oarsub("x").out
        assert ("OAR_TEST" in seen, "OAR_SUBMIT" in seen) == (True, False)

    def test_an_array_bounds_what_each_job_may_have(self, site: Site) -> None:
        result = site.oarsub("--array", 1000, "--env", f"A={'x' * 20_000}", "x")
        assert (result.exit, "array of 1000 jobs" in result.err) == (8, True)


class TestScript:
    def test_it_is_read_from_standard_input_and_kept(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "#!/bin/sh\n#OAR -n piped\necho $1\n"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        job = site.submit("-S", "--", "-", "two words")
        assert (job.name, job.command) == ("piped", "- 'two words'")
        assert job_environment.script_of(job.env) == text
        assert job_environment.command_in_job(job.command or "", job.env) == "\"$OAR_SCRIPT\" 'two words'"

    @pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
    def test_standard_input_may_have_its_name_as_a_file(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        text = "#!/bin/sh\n#OAR -n piped\necho $1\n"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        job = site.submit("-S", "--", name, "one")
        assert (job.name, job_environment.script_of(job.env)) == ("piped", text)
        assert job_environment.command_in_job(job.command or "", job.env) == '"$OAR_SCRIPT" one'

    def test_a_file_is_kept_as_it_is_now(self, site: Site, tmp_path: Path) -> None:
        script = tmp_path / "run.sh"
        script.write_text("#!/bin/sh\n#OAR --env A=1\ndate\n")
        job = site.submit("-S", "--spool", f"{script} 3")
        script.write_text("changed")
        assert job_environment.script_of(job.env) == "#!/bin/sh\n#OAR --env A=1\ndate\n"
        assert job_environment.variables_of(job.env) == {"A": "1"}
        assert (job.initial_request or "").endswith("; #OAR --env A=[HIDDEN]")

    def test_only_what_is_read_can_be_kept(self, site: Site) -> None:
        assert site.oarsub("--spool", "./run.sh").exit == 1

    def test_one_that_is_too_long_is_refused(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"#" * (1 << 20) + b"\n")))
        result = site.oarsub("-S", "-")
        assert (result.exit, "the script is too long" in result.err) == (8, True)

    def test_a_user_s_jobs_that_have_not_ended_keep_so_much_and_no_more(self, site: Site) -> None:
        site.config = site.config.replace(max_kept_bytes_per_user=1000)
        large = ("--env", f"A={'x' * 400}", "x")
        ended = site.submit(*large)
        assert site.submit(*large)
        result = site.oarsub(*large)
        assert result.exit == 8
        assert result.err.startswith(
            "# Error: the live jobs of alice hold 818 bytes of scripts and variables, 409 more would exceed the limit"
            " of 1000: wait until jobs have ended, or submit without --spool and --env.\n"
        )
        assert site.oarsub("--env", f"A={'x' * 100}", "--array", 2, "x").exit == 8
        assert site.type(oarsub.main, *large, user=User("bob", 0)).exit == site.oarsub("x").exit == 0
        move_job(site.database, ended.id, JobState.ERROR)
        assert site.oarsub(*large).exit == 0
        result = site.oarsub("--resubmit", ended.id)
        assert (result.exit, "exceed the limit of 1000" in result.err) == (4, True)


class TestDefaults:
    def rc(self, tmp_path: Path, text: str) -> dict[str, str]:
        path = tmp_path / ".oarsubrc"
        path.write_text(text)
        return {"OAR_SUBMIT_DEFAULTS": str(path)}

    def test_they_hold_where_nothing_else_is_said(self, site: Site, tmp_path: Path) -> None:
        environment = self.rc(tmp_path, "# mine\n--project bio\n#OAR -n every\n-l nodes=2\n\n-t idempotent\n")
        job = site.submit("x", environment=environment)
        assert (job.project, job.name, job.message) == ("bio", "every", "R=4,W=2:0:0,J=B,N=every,P=bio,T=idempotent")
        job = site.submit("-n", "other", "-l", "nodes=1", "x", environment=environment)
        assert (job.project, job.name, job.message) == ("bio", "other", "R=2,W=2:0:0,J=B,N=other,P=bio,T=idempotent")

    def test_variables_are_added_below_those_that_are_typed(self, site: Site, tmp_path: Path) -> None:
        environment = self.rc(tmp_path, "--env A=1\n--env B=1\n")
        assert site.variables("--env", "B=2", "x", environment=environment) == {"A": "1", "B": "2"}

    def test_what_is_not_understood_is_named(self, site: Site, tmp_path: Path) -> None:
        result = site.oarsub("x", environment=self.rc(tmp_path, "--nonsense 3\n"))
        assert (result.exit, site.jobs()) == (12, [])
        assert "/!\\ Not able to scan file line: #OAR --nonsense 3." in result.err


def test_a_reservation_that_is_waited_for_ends_as_its_job(
    site: Site, then: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from oar.cli.oarsub_parts import reservation
    from oar.lib.submission.job_reservation import Decision

    monkeypatch.setattr(reservation, "wait_for_answer", lambda *_: Decision(True))
    then(lambda: site.end(JobState.TERMINATED, [4 << 8]))
    assert site.oarsub("--wait", "-r", "tomorrow 8:00", "-l", "nodes=1,walltime=1", "x").exit == 4


def test_who_waits_is_told_of_the_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "PAUSE_IF_TOLD", 3600.0)
    looks: list[wait.Ends] = []
    look = wait._look

    def look_and_count(context: Context, ids: list[int]) -> wait.Ends:
        looks.append(look(context, ids))
        return looks[-1]

    monkeypatch.setattr(wait, "_look", look_and_count)

    def end_all_jobs() -> None:
        while not (looks and _listeners(site.database)):
            time.sleep(0.01)
        for job in site.jobs():
            with site.database.begin() as tx:
                tx.execute("UPDATE jobs SET exit_code = 256, state = 'Finishing' WHERE job_id = %s", (job.id,))
                lifecycle.move(tx, job.id, JobState.TERMINATED)

    acting = threading.Thread(target=end_all_jobs)
    acting.start()
    assert LoginNode(Database(site.database.settings)).oarsub("--array", 3, "--wait", "x").exit == 1
    acting.join()
    assert len(looks) == 2


def _listeners(database: Database) -> int:
    with database.snapshot() as tx:
        count: int = tx.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'", ())
    return count


def test_who_listens_gives_the_connection_back_when_they_become_scarce(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EndListener(site.database) as listener:
        assert listener.listen()
        assert listener.listen()
        monkeypatch.setattr(channel_listener, "SCARCE", 0.0)
        assert not listener.listen()
    monkeypatch.setattr(channel_listener, "PLENTY", 0.0)
    with EndListener(site.database) as listener:
        assert not listener.listen()


def test_who_listens_sees_that_postgresql_was_restarted(site: Site) -> None:
    with EndListener(site.database) as listener:
        assert listener.listen()
        with site.database.begin() as tx:
            tx.value("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'", ())
        listener.wait([1], 3600)
        assert not listener.listen()


def test_nobody_is_kept_from_the_database_by_those_who_wait(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_listener, "PLENTY", 0.0)

    def connections() -> object:
        with site.database.snapshot() as tx:
            return tx.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oar:waiting'")

    seen: list[object] = []
    waiting = Database(site.database.settings, application="oar:waiting")

    def look_then_end(seconds: float) -> None:
        limit = time.monotonic() + 120  # a process of PostgreSQL ends a moment after its connection
        while (now := connections()) and time.monotonic() < limit:
            pass
        seen.append(now)
        site.end(JobState.TERMINATED, [0])

    monkeypatch.setattr("time.sleep", look_then_end)
    LoginNode(waiting).oarsub("--wait", "x")
    assert seen == [0]


def test_on_a_terminal_an_interrupt_asks_first(site: Site, tmp_path: Path) -> None:
    (tmp_path / "oar.conf").write_text(f'DB_HOSTNAME="{site.database.settings.host}"\n')
    program = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from oar.cli.oarsub import main; main()"
    site.end_rules()
    environment = {"OARCONFFILE": str(tmp_path / "oar.conf"), "PATH": os.environ["PATH"]}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-I", "-c", program, "--wait", "-q", "default", "-l", "nodes=1,walltime=1", "x"],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - the terminal becomes its own
    ) as running:
        os.close(theirs)
        shows(ours, "# Waiting for the job")
        for answer, told in ((b"n\n", "# Waiting for the job"), (b"y\n", "ends it.")):
            os.write(ours, b"\x03")
            shows(ours, "goes on. [y/N] ")
            os.write(ours, answer)
            shows(ours, told)
        assert running.wait(60) == 1
    os.close(ours)
    assert [job.state for job in site.jobs()] == [JobState.WAITING]


def shows(terminal: int, text: str) -> None:
    """Wait until a terminal shows a text."""
    seen = b""
    while text.encode() not in seen:
        assert select.select([terminal], [], [], 60)[0], seen
        seen += os.read(terminal, 4096)

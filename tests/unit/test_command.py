"""The frame of commands: options by GNU's rules, who is asking, how a command ends."""

import ast
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from oar.cli.common.command import CommandResult, Context, caller, invoke, oar_command
from oar.cli.common.options import ADMIN, NUMBER, USER, Stop, machine_formats, optional_argument
from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest, DatabaseReadOnly, DatabaseWithoutRoom, NotAllowed, Refused
from oar.lib.base.formats import Format
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime

REPOSITORY = Path(__file__).parent.parent.parent
EVE = User("eve", 1001)
ROOT = User("root", 0)


@oar_command("probe", summary="Shows what it was given.")
@optional_argument("-j", "--job", "jobs", numeric=True)
@optional_argument("-u", "--user", "users")
@click.option("-f", "--full", is_flag=True)
@click.option("-n", "--number", type=NUMBER)
@click.option("-l", "--resource", "resources", multiple=True)
@click.option("--reservation")
@machine_formats
@click.argument("words", nargs=-1)
def probe(context: Context, machine: Format | None, **given: object) -> None:
    """Show the options that are set, in alphabetical order."""
    shown = [f"{name}={value}" for name, value in sorted(given.items()) if value not in ((), None, False)]
    click.echo(" ".join([*shown, *([f"machine={machine}"] if machine else []), f"dashes={context.dashes}"]))


@oar_command("tool", summary="For administrators.", style=ADMIN, admins_only=True)
@click.option("--sql-text")
@click.option("-a", "--add", is_flag=True)
def tool(context: Context, sql_text: str | None, add: bool) -> int:
    """Show its options."""
    click.echo(f"{sql_text} {add}")
    return 4


@oar_command("plain", summary="Has options of click's own types.")
@click.option("--count", type=click.IntRange(1, 5))
@click.option("--colour", type=click.Choice(["red", "blue"]))
@click.argument("first", type=click.INT)
@click.argument("second", required=False)
def plain(context: Context, first: int, **given: object) -> None:
    """Find an option that the reader of options does not know."""
    raise click.NoSuchOption("--colur", possibilities=["--colour"] * first)


def given(*arguments: str) -> str:
    """Return what the probe shows, without the end that says that there was no "--"."""
    result = invoke(probe, arguments)
    assert (result.exit, result.err) == (0, "")
    return result.out.strip().removesuffix(" dashes=None").removesuffix("dashes=None")


def refused(*arguments: str) -> str:
    """Return the line with which the probe refuses."""
    result = invoke(probe, arguments)
    assert (result.exit, result.out) == (1, "")
    return result.err.rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--number=4"], "number=4"),
        (["--number", "4"], "number=4"),
        (["-n4"], "number=4"),
        (["-n", "-4"], "number=-4"),
        (["--num", "4"], "number=4"),
        (["--reso", "x"], "resources=('x',)"),
        (["-l", " walltime=0:15\t", "-lb"], "resources=('walltime=0:15', 'b')"),
        (["-l", "--full"], "resources=('--full',)"),
        (["-l="], "resources=('=',)"),
        (["word", "-f", "other"], "full=True words=('word', 'other')"),
        (["-f", "-"], "full=True words=('-',)"),
        (["-fj", "42"], "full=True jobs=(42,)"),
        (["-Jfj", "42"], "full=True jobs=(42,) machine=json"),
        (["-fj42"], "full=True jobs=(42,)"),
        (["-j42f"], "full=True jobs=(42,)"),
        (["-jf"], "full=True jobs=(None,)"),
        (["-j"], "jobs=(None,)"),
        (["-j", "-f"], "full=True jobs=(None,)"),
        (["-j", "1", "-j", "2"], "jobs=(1, 2)"),
        (["-j", "n1"], "jobs=(None,) words=('n1',)"),
        (["--job=7", "--job"], "jobs=(7, None)"),
        (["-u"], "users=(None,)"),
        (["-fu"], "full=True users=(None,)"),
        (["-u", "-f"], "full=True users=(None,)"),
        (["-u", "eve"], "users=('eve',)"),
        (["-ueve"], "users=('eve',)"),
        (["-X", "-D"], "machine=dumper"),
        (["--json", "--yaml"], "machine=yaml"),
    ],
)
def test_options_are_read_by_the_rules_of_gnu(arguments: list[str], expected: str) -> None:
    assert given(*arguments) == expected


def test_two_dashes_end_the_options() -> None:
    assert given("a", "--", "-f", "--number") == "words=('a', '-f', '--number') dashes=1"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--foo"], "Unknown option: foo"),
        (["--foo=3"], "Unknown option: foo"),
        (["-fz"], "Unknown option: z"),
        (["--="], "Unknown option: "),
        (["--number"], "Option number requires an argument"),
        (["-n"], "Option n requires an argument"),
        (["--full=1"], "Option full does not take an argument"),
        (["--res", "x"], "Option res is ambiguous (reservation, resource)"),
        (["-n", "x"], 'Value "x" invalid for option number (number expected)'),
        (["--job=x"], 'Value "x" invalid for option job (number expected)'),
        (["-n", "99999999999999999999"], 'Value "99999999999999999999" invalid for option number (number expected)'),
        (["-n", "9223372036854775808"], 'Value "9223372036854775808" invalid for option number (number expected)'),
        (["-n", "\u0663"], 'Value "\u0663" invalid for option number (number expected)'),
    ],
)
def test_a_wrong_option_is_named_in_one_line(arguments: list[str], expected: str) -> None:
    assert refused(*arguments) == expected


def test_bytes_that_are_not_utf8_are_only_data() -> None:
    assert refused("--\udcff") == "Unknown option: \\udcff"
    assert given("-l", "a").isascii()


def test_version_and_help_need_neither_configuration_nor_database() -> None:
    unreadable = {"OARCONFFILE": "/nonexistent/oar.conf"}
    assert invoke(probe, ["-V"], user=EVE, environment=unreadable) == CommandResult(0, USER.version + "\n", "")
    assert invoke(probe, ["--vers"], user=EVE, environment=unreadable).out == USER.version + "\n"
    for asked in ("-h", "--help"):
        result = invoke(probe, [asked], user=EVE, environment=unreadable)
        assert (result.exit, result.err) == (0, "")
        assert result.out.startswith("Usage: probe")


def test_an_administrators_command_takes_underscores_and_shows_its_usage_after_an_error() -> None:
    assert invoke(tool, ["--sql_text", "x"], user=ROOT) == CommandResult(4, "x False\n", "")
    assert invoke(tool, ["--sql_t=x", "-a"], user=ROOT) == CommandResult(4, "x True\n", "")
    result = invoke(tool, ["--foo"], user=ROOT)
    assert (result.exit, result.out) == (1, "")
    assert result.err.splitlines()[0] == "Unknown option: foo"
    assert result.err.splitlines()[1].startswith("Usage: tool")


def test_others_than_oar_and_root_may_not_run_an_administrators_command() -> None:
    assert invoke(tool, ["--sql-text", "x"], user=EVE) == CommandResult(77, "", "You must be oar or root.\n")


# ---------------------------------------------------------------------------------------------------------- identity


LOGINS = {0: "root", 999: "oar", 1001: "eve"}


@pytest.mark.parametrize(
    ("variables", "real", "effective", "name"),
    [
        ({}, 1001, 1001, "eve"),
        ({}, 0, 0, "root"),
        ({"SUDO_UID": "1001"}, 999, 999, "eve"),
        ({"SUDO_UID": "0"}, 999, 999, "root"),
        ({}, 999, 999, "oar"),
        # Whoever sets the variable himself is who he is: alone, as root, or under a setuid wrapper.
        ({"SUDO_UID": "0", "OARDO_USER": "root"}, 1001, 1001, "eve"),
        ({"SUDO_UID": "1001"}, 0, 0, "root"),
        ({"SUDO_UID": "0"}, 1001, 999, "eve"),
    ],
)
def test_the_kernel_and_sudo_tell_who_is_asking(
    variables: dict[str, str], real: int, effective: int, name: str
) -> None:
    asking = caller(variables, real, effective, LOGINS.__getitem__)
    assert asking.name == name
    assert LOGINS[asking.uid] == name


@pytest.mark.parametrize("variables", [{"SUDO_UID": "54321"}, {"SUDO_UID": "x"}, {"SUDO_UID": "9" * 40}])
def test_a_uid_without_a_name_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(
        NotAllowed,
        match=r"cannot identify the user: uid .*: no account on this machine has it\. Check the name service: getent",
    ):
        caller(variables, 999, 999, LOGINS.__getitem__)


def test_this_process_has_a_name() -> None:
    assert caller({}, os.getuid(), os.geteuid()) == User(pwd.getpwuid(os.getuid()).pw_name, os.getuid())


# ------------------------------------------------------------------------------------------------------------- errors


def failing(error: BaseException, **settings: object) -> CommandResult:
    """Return how a command ends in which ``error`` is raised."""

    @oar_command("failing", summary="Fails.", exit_codes={BadRequest: 18, KeyboardInterrupt: 1})
    def main(context: Context) -> None:
        """Fail."""
        raise error

    return invoke(main, [], user=EVE, **settings)  # type: ignore[arg-type]


class DiskFull(Exception):
    """As psycopg2 has it."""

    pgcode = "53100"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            DiskFull("could not extend file"),
            3,
            "# Error: cannot use the OAR database: its disk is full. An administrator has to free disk space there.",
        ),
        (
            DatabaseWithoutRoom("the disk of PostgreSQL is full: ..."),
            2,
            "# Error: cannot use the OAR database: its disk is full. An administrator has to free disk space there.",
        ),
        (
            DatabaseReadOnly("PostgreSQL takes no changes: ..."),
            2,
            "# Error: cannot change the OAR database: it is read-only."
            " An administrator has to check whether DB_HOSTNAME names a standby server.",
        ),
        (BadRequest("walltime must be greater than 0"), 18, "# Error: walltime must be greater than 0"),
        (NotAllowed("job 3 is not yours"), 1, "# Error: job 3 is not yours"),
        (Refused("[ADMISSION RULE] no"), 254, "[ADMISSION RULE] no"),
        (Stop("Bad syntax for --gantt", 1), 1, "Bad syntax for --gantt"),
        (ZeroDivisionError("division"), 3, "# Error: internal error (ZeroDivisionError), see the server logs"),
        (BadRequest("a\nb \x1b[2J"), 18, "# Error: a b \\x1b[2J"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(error: Exception, code: int, line: str) -> None:
    assert failing(error) == CommandResult(code, "", line + "\n")


def test_an_interrupt_ends_with_the_code_of_the_command_and_without_a_word() -> None:
    assert failing(KeyboardInterrupt()) == CommandResult(1, "", "")


def test_a_stack_trace_is_shown_only_when_asked_for() -> None:
    assert "Traceback" not in failing(ZeroDivisionError()).err
    assert "Traceback" in failing(ZeroDivisionError(), environment={"OAR_DEBUG": "1"}).err


@oar_command("asking", summary="Asks the database.")
def asking(context: Context) -> None:
    """Ask for the queues."""
    with context.database.snapshot() as tx:
        click.echo(len(tx.queues.all()))


def test_a_database_that_does_not_answer_is_said_in_one_line(tmp_path: Path) -> None:
    nowhere = Runtime(Config(), Database(DatabaseSettings(host=str(tmp_path), patience=0)))
    assert invoke(asking, [], runtime=nowhere, user=EVE) == CommandResult(
        2,
        "",
        f"# Error: cannot reach the OAR database: oar at {tmp_path}:5432: no server listens at this socket."
        " Try again later, or inform an administrator.\n",
    )


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    result = invoke(asking, [], user=ROOT, environment={"OARCONFFILE": f"{tmp_path}/none"})
    assert result == CommandResult(
        1, "", f"# Error: cannot read the configuration file {tmp_path}/none: No such file or directory\n"
    )


# ------------------------------------------------------------------------------------------------------------ process

SCRIPT = """
import sys
from oar.cli.common.command import click, oar_command
from oar.cli.common.process import Hangup

@oar_command("script", summary="Prints.", exit_codes={Hangup: 10})
@click.argument("words", nargs=-1)
def main(context, words):
    if words:
        click.echo(" ".join(words))
    for _ in range(100000):
        click.echo("a line")

main()
"""


def start(*arguments: bytes, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Start the script as a program in a poor environment."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=REPOSITORY,
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    with start() as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(timeout=120) == 141


def test_output_that_nothing_takes_is_said_in_one_line() -> None:
    with open("/dev/full", "wb") as full, start(stdout=full.fileno()) as program:
        assert program.communicate(timeout=120)[1] == b"# Error: cannot write the output: No space left on device.\n"
        assert program.returncode == 3


def test_a_name_cut_short_is_the_option_that_goes_no_further() -> None:
    @oar_command("show", summary="Show.")
    @click.option("--state")
    @click.option("--states")
    @click.option("--start", is_flag=True)
    def show(context: Context, **options: Any) -> None:
        click.echo(options)

    assert "'state': 'R'" in invoke(show, ["--stat", "R"]).out
    assert "'states': 'R'" in invoke(show, ["--states", "R"]).out
    assert invoke(show, ["--sta", "R"]).err == "Option sta is ambiguous (start, state, states)\n"


def test_bytes_that_are_not_utf8_pass_through() -> None:
    with start(b"a\xff\xc3\xa9") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"a\xff\xc3\xa9\n"
        program.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 10), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_with_its_code_and_without_a_trace(number: int, code: int) -> None:
    with start(b"begun") as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == b"begun\n"
        program.send_signal(number)
        program.stdout.read()
        assert program.stderr.read() == b""
        assert program.wait(timeout=120) == code


@pytest.mark.parametrize(
    ("callers", "ours"), [(0o777, 0o077), (0o700, 0o022), (0o000, 0o022), (0o027, 0o027), (0o177, 0o077)]
)
def test_a_caller_cannot_make_files_of_ours_that_we_cannot_read(callers: int, ours: int) -> None:
    program = "import os; from oar.cli.common.process import prepare_process as prepare"
    shown = subprocess.run(
        [sys.executable, "-c", f"{program}; os.umask({callers}); prepare(); print(os.umask(0))"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(shown.stdout) == ours


def test_variables_of_postgresql_are_deleted_but_those_that_the_command_reads() -> None:
    program = (
        "import os; from oar.cli.common.process import prepare_process as prepare; from oar.cli import oar_database"
    )
    shown = subprocess.run(
        [sys.executable, "-c", f"{program}; prepare(oar_database.main.kept_variables); print(sorted(os.environ))"],
        cwd=REPOSITORY,
        env={**os.environ, "PGPASSWORD": "x", "PGPASSFILE": "y", "PGHOST": "z", "PGOPTIONS": "-c a=b"},
        capture_output=True,
        text=True,
        check=True,
    )
    kept = [name for name in ast.literal_eval(shown.stdout) if name.startswith("PG")]
    assert kept == ["PGPASSFILE", "PGPASSWORD"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--count", "9", "1"], "Option --count: 9 is not in the range 1<=x<=5."),
        (["--colour", "green", "1"], "Option --colour: 'green' is not one of 'red', 'blue'."),
        (["x"], "Argument FIRST: 'x' is not a valid integer."),
        ([], "Argument FIRST is missing"),
        (["1"], "Unknown option: --colur. Similar options: --colour"),
        (["0"], "Unknown option: --colur."),
        (["1", "2", "3"], "Unexpected argument: 3: plain takes 2 arguments. See: plain --help"),
    ],
)
def test_what_click_refuses_is_named(arguments: list[str], said: str) -> None:
    assert invoke(plain, arguments).err.splitlines()[0] == said

"""The frame of every command: parsing of options by GNU's rules, caller, configuration, database, exit code.

A command is a function under ``@oar_command``, with click's declarations of its options below:

    @oar_command("oarstat", summary="Show the jobs.", examples={"oarstat -u": "List your jobs."})
    @optional_argument("-j", "--job", "jobs", numeric=True)
    @machine_formats
    def main(context: Context, jobs: tuple[int | None, ...], machine: Format | None) -> int | None: ...

Click's parser never sees the original arguments: ``OptionReader`` converts them to the one spelling in which nothing is
left to guess (docs/design/formats.rst, "Options").
"""

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from oar.cli.common.option_reader import OptionReader
from oar.cli.common.options import (
    ADMIN,
    EXIT_BAD_OPTION,
    USER,
    BadOption,
    PlainOption,
    Stop,
    Style,
    canonical_name,
    name_of,
)
from oar.cli.common.process import Hangup, ignoring_terminal_stops, limited_lookups, prepare_process
from oar.lib.access import name_service
from oar.lib.access.records import User
from oar.lib.base.errors import (
    DatabaseFull,
    DatabaseReadOnly,
    DatabaseUnavailable,
    DatabaseWithoutRoom,
    NotAllowed,
    OarError,
    Refused,
    UserConnectionsUsed,
    WordedRefusal,
)
from oar.lib.base.version import explain_schema_mismatch
from oar.lib.db.database import Database
from oar.lib.runtime import LATER, Runtime, command_delivery, conf_file, is_frontend, open_runtime

if TYPE_CHECKING:
    from oar.lib.db.connections import DatabaseSettings
    from oar.lib.db.transaction import Transaction
    from oar.lib.db.user_sql import Asker
    from oar.lib.jobs.privacy import Privacy
    from oar.lib.user_files.files import Start, UserFiles

#: Errors of a database that answers and cannot be changed, by the code of PostgreSQL.
_CANNOT_WRITE = {"53100": DatabaseWithoutRoom, "25006": DatabaseReadOnly}
#: The code of PostgreSQL for a lock that was not free in time.
_LOCKED = "55P03"
ExitCodes = Mapping[type[BaseException], int]
#: The topics of the help, each with one spelling of its options.
Topics = Mapping[str, Sequence[str]]

EXIT_INTERNAL = 3
EXIT_HUNG_UP = 129
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


# ------------------------------------------------------------------------------------------------------------ context


def login_of(uid: int) -> str:
    """Return the name of a user.  Raises KeyError if there is none."""
    return name_service.account(uid).pw_name


def caller(environment: Mapping[str, str], real: int, effective: int, name_of: Callable[[int], str] = login_of) -> User:
    """Return the user who runs the command, from the uids and the variables of sudo.

    Under sudo both uids are oar's and sudo sets ``SUDO_UID``; otherwise the real uid counts.
    Raises NotAllowed for a uid without a name.
    """
    uid = real
    try:
        if real == effective and "SUDO_UID" in environment and name_of(real) == "oar":
            uid = int(environment["SUDO_UID"])
        return User(name_of(uid), uid)
    except (KeyError, ValueError, OverflowError):
        reason = f"no account on this machine has it. Check the name service: getent passwd {uid}"
        raise NotAllowed(f"cannot identify the user: uid {uid}: {reason}") from None


def with_person(user: User, environment: Mapping[str, str], process: int | None = None) -> User:
    """Return an administrator with the person who acts; other users are themselves.

    ``process``: id of the caller's process as the kernel names it, None for this one.
    """
    if not user.is_admin:
        return user
    from oar.lib.access.acting import Origin, find_person, login_uid, login_uid_of

    if process is None:
        origin = Origin(os.getuid(), login_uid(), environment)
    else:
        origin = Origin(user.uid, login_uid_of(process, user.uid), environment)
    return user._replace(person=find_person(origin, user.name, login_of))


class CallersPlace(NamedTuple):
    """Where the caller is: None where it is this process itself."""

    directory: str | None = None  #: his working directory
    start: "Start | None" = None  #: starts a program as the user there


class Context:
    """The context of a command: user, configuration, database."""

    def __init__(
        self,
        command: "Command",
        environment: Mapping[str, str],
        user: User | None,
        runtime: Runtime | None,
        place: CallersPlace | None = None,
    ) -> None:
        """``place``: directory and processes of the caller, if they differ from those of this process."""
        self.command = command
        self.environment = environment
        self.place = place or CallersPlace()
        self.arguments: tuple[str, ...] = ()  #: the command line as it was given
        self.dashes: int | None = None  #: number of words before a "--" in the command line, None if there was none
        self._user = user
        self._runtime = runtime
        self._is_ours = False  #: it was opened here
        self.fate = LATER  #: the fate of a request if the server cannot be notified; '' = print no warning
        self._is_checked = False
        self._follows_server = False

    @property
    def user(self) -> User:
        """The user who runs the command."""
        if self._user is None:
            self._user = with_person(caller(self.environment, os.getuid(), os.geteuid()), self.environment)
        return self._user

    @property
    def runtime(self) -> Runtime:
        """Configuration and database.  Raises ConfigError."""
        runtime = self._runtime
        if runtime is None:
            runtime = open_runtime(
                self.command.name or "", self._conf_file(), is_of_user=self.command.style is not ADMIN
            )
            self.speak_for(runtime)
            self._is_ours = True
            if not self.user.is_admin and self.user.uid != os.geteuid():
                from oar.lib.base.user_places import place_of

                runtime.database.pool.place = place_of(self.user.uid)
        if not self._follows_server:
            self._follows_server = True
            self._follow_server(runtime)
        return runtime

    def _follow_server(self, runtime: Runtime) -> None:
        """Use the values that the server has stored of its oar.conf, where the file is a copy.

        Raises DatabaseUnavailable.
        """
        if self.command.style is ADMIN or not is_frontend(runtime.oardir):
            return
        from oar.lib.jobs.server_keys import stored_texts, with_server_values

        with runtime.database.snapshot() as tx:
            if tx.system.schema_version() is not None:
                runtime.config = with_server_values(runtime.config, stored_texts(tx))

    def speak_for(self, runtime: Runtime) -> None:
        """Use a runtime; print its warnings to the user."""
        self._runtime = runtime
        runtime.database.deliver = command_delivery(
            runtime.config, self.command.style.cannot_contact, lambda: self.fate
        )
        runtime.database.pool.outage.follow(self._tell_waiting)
        runtime.database.around_writing = ignoring_terminal_stops

    @property
    def files(self) -> "UserFiles":
        """The files of the user."""
        from oar.lib.user_files.files import UserFiles

        return UserFiles(self.user, self.runtime.config.oar_privilege_cmd, self.place.start)

    def _tell_waiting(self, problem: DatabaseUnavailable) -> None:
        settings = self.runtime.database.settings
        where = f"the OAR database at {settings.servers}"
        match problem:
            case UserConnectionsUsed():
                what = f"all connections for {problem.whose} to {where} are in use"
            case DatabaseFull():
                what = f"{where} has no free connection"
            case _:
                what = f"cannot reach {where}"
        self.warn(f"{what}, trying for {settings.patience:g} s.")

    @property
    def database_settings(self) -> "DatabaseSettings | None":
        """Where the database is; None before the configuration is read."""
        return self._runtime.database.settings if self._runtime else None

    @property
    def database(self) -> Database:
        """The database, after a check of its schema version.  Raises Stop, DatabaseUnavailable."""
        database = self.runtime.database
        if not self._is_checked:
            with database.snapshot() as tx:
                mismatch = explain_schema_mismatch(tx.system.schema_version())
            if mismatch:
                raise Stop(f"[ERROR] {mismatch}")
            self._is_checked = True
        return database

    @property
    def asker(self) -> "Asker":
        """Whose conditions (--sql) the command evaluates."""
        from oar.lib.db.user_sql import Asker
        from oar.lib.jobs.privacy import privacy_for

        config, user = self.runtime.config, self.user
        has_full_sql = user.is_admin or user.name in config.user_sql_full_users
        return Asker(user.name, privacy_for(config, user).hidden_columns(), has_full_sql)

    def managed_projects(self, tx: "Transaction") -> frozenset[str]:
        """Return the projects whose jobs the user controls as a manager."""
        config = self.runtime.config
        if not config.project_managers_control_jobs:
            return frozenset()
        from oar.lib.accounts.projects import controlled_by

        return controlled_by(tx, config, self.user)

    def privacy(self, tx: "Transaction") -> "Privacy":
        """Return what the user may see of other users' jobs."""
        from oar.lib.jobs.privacy import privacy_for

        return privacy_for(self.runtime.config, self.user, self.managed_projects(tx))

    def past_date(self, text: str) -> int:
        """Return the date of an option that looks back; the clock is that of the database. Raises BadRequest."""
        from oar.lib.base.times import parse_date

        with self.database.snapshot() as tx:
            return parse_date(text, tx.now, is_past=True)

    def require_admin(self) -> None:
        """Refuse to go on for others than oar and root.  Raises Stop."""
        if not self.user.is_admin:
            raise Stop("You must be oar or root.", self.command.not_admin)

    def warn(self, text: str) -> None:
        """Print a warning on stderr."""
        click.echo(self.command.style.warning + text, err=True)

    def close(self) -> None:
        """Close what this context has opened."""
        if self._runtime is not None and self._is_ours:
            self._runtime.close()

    def _conf_file(self) -> str:
        """Return the path of oar.conf; OARCONFFILE counts only where it gives the user no additional rights."""
        if self.user.is_admin or self.user.uid == os.geteuid():
            return conf_file(self.environment)
        return conf_file({})


# ------------------------------------------------------------------------------------------------------------ command


class Command(click.Command):
    """A command of OAR.  Calling it runs it as a program."""

    def __init__(
        self,
        name: str,
        *,
        style: Style,
        not_admin: int,
        exit_codes: ExitCodes,
        signed_operands: bool = False,
        kept_variables: Collection[str] = (),
        examples: Mapping[str, str] | None = None,
        topics: Topics | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(name, **settings)
        self.kept_variables = kept_variables
        self.signed_operands = signed_operands
        self.style = style
        self.not_admin = not_admin
        self.exit_codes = exit_codes
        self.examples: Mapping[str, str] = examples or {}
        self.topics: Topics = topics or {}

    def options_by_topic(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        """Return the options in the order of the help; those without a topic come last."""
        topic_of = {name: topic for topic, names in self.topics.items() for name in names}
        last = "Other options" if self.topics else "Options"
        found: dict[str, list[click.Option]] = {topic: [] for topic in (*self.topics, last)}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option):
                named = (topic_of[name] for name in parameter.opts if name in topic_of)
                found[next(named, last)].append(parameter)
        return {topic: options for topic, options in found.items() if options}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, by topic."""
        for topic, options in self.options_by_topic(ctx).items():
            with formatter.section(topic):
                formatter.write_dl([row for row in (option.get_help_record(ctx) for option in options) if row])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write_dl(list(self.examples.items()))

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Run as a program."""
        prepare_process(self.kept_variables)
        # UTF-8 whatever the locale; bytes that are not UTF-8 become lone surrogates.
        arguments = [os.fsencode(argument).decode("utf-8", "surrogateescape") for argument in sys.argv[1:]]
        code = self.run(arguments, Context(self, os.environ, None, None))
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)  # everything is closed; to take the interpreter apart would cost 10 ms

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments by GNU's rules."""
        reader = OptionReader(
            self.get_params(ctx), self.style, signed_operands=self.signed_operands, command=self.name or ""
        )
        canonical = reader.read(args)
        if isinstance(ctx.obj, Context):
            ctx.obj.arguments = tuple(args)
            ctx.obj.dashes = reader.dashes
            for option in reader.repeated.values():
                ctx.obj.warn(
                    f"{option.name} is given several times: the last value is used: {_printable(option.value)}"
                )
        ctx.allow_extra_args = True  # so that the message about them is ours
        extra = super().parse_args(ctx, canonical)
        if extra:
            most = sum(isinstance(parameter, click.Argument) for parameter in self.params)
            number = "no arguments" if not most else "1 argument" if most == 1 else f"{most} arguments"
            way_out = f"See: {self.name} {'-help' if self.style.words else '--help'}"
            raise click.UsageError(f"Unexpected argument: {extra[0]}: {self.name} takes {number}. {way_out}")
        return extra

    def lasts(self, arguments: Sequence[str]) -> bool:
        """Return whether an option lets the command use the terminal or wait for hours."""
        lasting = {canonical_name(option.opts) for option in self.params if getattr(option, "lasts", False)}
        if not lasting:
            return False
        reader = OptionReader(self.params, self.style, signed_operands=self.signed_operands)
        with suppress(BadOption):  # the command reports it
            reader.read(arguments)
        return not lasting.isdisjoint(reader.options)

    def spell(self, names: Collection[str]) -> str:
        """Return the spellings of options, in the order of the help.  ``names``: of their values."""
        return ", ".join(max(option.opts, key=len) for option in self.params if option.name in names)

    def run(self, arguments: Sequence[str], context: Context) -> int:
        """Run the command; return its exit code."""
        debug = context.environment.get("OAR_DEBUG") == "1" or "--debug" in arguments
        try:
            with (
                name_service.watched(limited_lookups(context.warn)),
                self.make_context(self.name, list(arguments), obj=context) as ctx,
            ):
                code: int | None = self.invoke(ctx)
            sys.stdout.flush()
            return code or 0
        except click.exceptions.Exit as end:
            return end.exit_code
        except BrokenPipeError:
            _forget_stdout()
            return EXIT_BROKEN_PIPE
        except (KeyboardInterrupt, click.Abort):
            return self.exit_codes.get(KeyboardInterrupt, EXIT_INTERRUPTED)
        except Hangup:
            return self.exit_codes.get(Hangup, EXIT_HUNG_UP)
        except Exception as error:  # noqa: BLE001 - the guard of commands: nobody sees a stack trace unasked
            if debug:
                import traceback

                click.echo("".join(traceback.format_exception(error)), err=True)
            return self._report(error, context)
        finally:
            context.close()

    def _report(self, error: Exception, context: Context) -> int:
        """Print an error, in one line unless its text has several; return the exit code."""
        lines = self._sentence(error, context.database_settings).split("\n")
        has_own_lines = isinstance(error, Stop | Refused | WordedRefusal)
        text = "\n".join(lines) if has_own_lines else " ".join(line.strip() for line in lines)
        click.echo(_printable(text), err=True)
        if isinstance(error, BadOption | click.UsageError):
            if self.style.usage_after_error:
                click.echo(self.get_usage(click.Context(self, info_name=self.name)), err=True)
            if self.style.words:
                click.echo(f"  {self.name} -help prints the options", err=True)
        return self._code(error)

    def _sentence(self, error: Exception, settings: "DatabaseSettings | None") -> str:
        if isinstance(error, Stop | Refused | WordedRefusal):
            return str(error)
        if kind := _CANNOT_WRITE.get(getattr(error, "pgcode", None) or ""):
            error = kind()
        if isinstance(error, DatabaseUnavailable):
            from oar.cli.common.database_texts import for_users

            return self.style.error + for_users(error, settings)
        if isinstance(error, OarError):
            return f"{self.style.error}{error}"
        if isinstance(error, click.UsageError):
            return _usage_sentence(error)
        if isinstance(error, UnicodeEncodeError):
            return f"{self.style.error}an argument is not valid UTF-8: use UTF-8 text."
        return f"{self.style.error}{_unexpected(error)}"

    def _code(self, error: Exception) -> int:
        if isinstance(error, Stop):
            return error.exit_code
        for kind in type(error).__mro__:
            if kind in self.exit_codes:
                return self.exit_codes[kind]
        if isinstance(error, OarError):
            return error.exit_code
        return EXIT_BAD_OPTION if isinstance(error, click.UsageError | UnicodeEncodeError) else EXIT_INTERNAL


def _usage_sentence(error: click.UsageError) -> str:
    """Return the message for an error that click found in the command line."""
    if isinstance(error, click.NoSuchOption):
        similar = f" Similar options: {', '.join(error.possibilities)}" if error.possibilities else ""
        return f"Unknown option: {error.option_name}.{similar}"
    parameter = error.param if isinstance(error, click.BadParameter) else None
    if parameter is None or error.message.startswith("Value "):  # the message names the parameter
        return error.message
    place = f"{'Option' if isinstance(parameter, click.Option) else 'Argument'} {name_of(parameter)}"
    if not isinstance(error, click.MissingParameter):
        return f"{place}: {error.message}"
    choices = f" (one of: {', '.join(parameter.type.choices)})" if isinstance(parameter.type, click.Choice) else ""
    return f"{place} is missing{choices}"


def no_argument(command: Command) -> Stop:
    """Return the end of a command that was called with nothing, in the words of Grid Engine."""
    usage = command.get_usage(click.get_current_context())
    return Stop(f"ERROR! no option argument\n{usage}\n  {command.name} -help prints the options")


def oar_command(
    name: str,
    *,
    summary: str,
    examples: Mapping[str, str] | None = None,
    topics: Topics | None = None,
    style: Style = USER,
    admins_only: bool = False,
    not_admin: int = 77,
    exit_codes: ExitCodes | None = None,
    signed_operands: bool = False,
    kept_variables: Collection[str] = (),
    help_names: Sequence[str] = ("-h", "--help"),
    version_names: Sequence[str] = ("-V", "--version"),
) -> Callable[[Callable[..., int | None]], Command]:
    """Make a command of a function that gets a ``Context`` and its options, and returns its exit code (None: 0).

    ``examples``: command lines and what they do; the help, the manual page and docs/commands.rst end with them.
    ``topics``: how these group the options; without it, all options are in one group.
    ``admins_only``: users other than oar and root get ``not_admin``; a partly open command calls
    ``context.require_admin()`` itself.  ``exit_codes``: what an error ends with where its own code is not right.
    ``signed_operands``: after the first operand, an argument such as -1 is an operand.
    ``kept_variables``: those of PostgreSQL that the command reads; all others are deleted.
    """

    def decorate(function: Callable[..., int | None]) -> Command:
        def callback(**options: Any) -> int | None:
            context: Context = click.get_current_context().obj
            if admins_only:
                context.require_admin()
            return function(context, **options)

        parameters: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
        declared = {name for parameter in parameters for name in parameter.opts}
        version = _printing([*version_names, "show_version"], lambda ctx: style.version, "Print the version and exit.")
        debug = PlainOption(["--debug"], is_flag=True, expose_value=False, help="Print a stack trace on errors.")
        help_ = _printing(help_names, click.Context.get_help, "Show this message and exit.")
        common = [option for option in (version, debug, help_) if declared.isdisjoint(option.opts)]
        return Command(
            name,
            style=style,
            not_admin=not_admin,
            exit_codes=exit_codes or {},
            signed_operands=signed_operands,
            kept_variables=kept_variables,
            examples=examples,
            topics=topics,
            callback=callback,
            params=[*parameters, *common],
            help=summary,
            add_help_option=False,  # it is among the common ones
            context_settings={"max_content_width": 120},
        )

    return decorate


def _printing(names: Sequence[str], text: Callable[[click.Context], str], help: str) -> PlainOption:
    """Return an option that prints a text and ends the command."""

    def stop(ctx: click.Context, parameter: click.Parameter, is_given: bool) -> None:
        if is_given:
            click.echo(text(ctx))
            ctx.exit()

    return PlainOption(names, is_flag=True, is_eager=True, expose_value=False, callback=stop, help=help)


class CommandResult(NamedTuple):
    """The exit code and the output of a command."""

    exit: int
    out: str
    err: str


def invoke(
    command: Command,
    arguments: Sequence[str],
    *,
    runtime: Runtime | None = None,
    user: User | None = None,
    environment: Mapping[str, str] | None = None,
) -> CommandResult:
    """Run a command inside this process: for tests, and for commands that call another one."""
    from contextlib import redirect_stderr, redirect_stdout
    from io import StringIO

    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = command.run(arguments, Context(command, environment or {}, user, runtime))
    return CommandResult(code, out.getvalue(), err.getvalue())


# ------------------------------------------------------------------------------------------------------------ process


def _printable(text: str) -> str:
    """Return a text that every stream can print; control characters are escaped."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(
        f"\\x{ord(character):02x}"
        if (character < " " and character not in "\t\n") or "\x7f" <= character < "\xa0"
        else character
        for character in text
    )


def _forget_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's last flush cannot fail."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process


def _unexpected(error: Exception) -> str:
    """Return the message for an error that no code of OAR raises on purpose."""
    if isinstance(error, OSError):
        try:
            sys.stdout.flush()
        except OSError:  # what was printed is still there: nothing takes it
            return f"cannot write the output: {error.strerror}."
    if getattr(error, "pgcode", None) == _LOCKED:
        return "the change waited too long for another transaction: nothing was changed. Try again."
    return f"internal error ({type(error).__name__}), see the server logs"

"""What the commands of advance reservations share: lists of names, answers, and files of default options.

See docs/advance-reservations.rst, "Default requests".
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import click
from click.core import ParameterSource

from oar.cli.common.command import Command, Context
from oar.cli.common.options import Stop, names_nothing, option
from oar.lib.base.errors import BadRequest, OarError
from oar.lib.base.formats import Format, dump

#: The items of most lists, in error messages.
RESERVATION_NAMES = "numbers or names"

owners_option = option(
    "-u",
    "-user",
    "owners",
    multiple=True,
    metavar="LIST",
    help="Only reservations of these owners ($user: you; patterns allowed).",
)


def listed(program: str, texts: Sequence[str], option_name: str = "", *, kind: str = RESERVATION_NAMES) -> list[str]:
    """Return the items of comma-separated lists.  ``option_name``: '' = arguments; ``kind``: what they name.

    An empty list is rejected: an empty variable of a script must not select all.  Raises Stop.
    """
    items: list[str] = []
    for text in texts:
        words = [word.strip() for word in text.split(",") if word.strip()]
        if not words:
            raise names_nothing(program, option_name, text, kind)
        items += words
    return items


def warn_of_mail(context: Context, letters: str | None) -> None:
    """Warn if mails are requested (``-m``) and the site sends none; other code rejects wrong letters."""
    if letters and set(letters) <= set("bea"):
        from oar.lib.submission.preparation import mail_warnings

        for warning in mail_warnings(f"mails of -m {letters}", context.runtime.config):
            context.warn(warning)


def nothing_named(context: Context) -> int:
    """Reject a command that names no reservation; without any argument print the usage.

    Raises Stop; else returns the exit code.
    """
    if context.arguments:
        program = context.command.name
        hint = _swallowed(context.arguments) or "write numbers or names after the options"
        raise Stop(f"{program}: no advance reservation is given\n  {hint}")
    click.echo(context.command.get_help(click.get_current_context()))
    return 1


def _swallowed(arguments: Sequence[str]) -> str:
    """Return what to say if the last option seems to have taken the number: the variable of a script was empty."""
    option, value = arguments[-2:] if len(arguments) > 1 else ("", "")
    if not (option.startswith("-") and value.isdigit()):
        return ""
    return f"{option} used {value} as its value: is a variable empty?  write {option} VALUE {value}"


# -- answers ----------------------------------------------------------------------------------------------------------


class ReservationOutcome(NamedTuple):
    """The outcome for one reservation or series."""

    ok: bool
    message: str
    reason: str | None = None  #: why the scheduler refused it
    proposal: int | None = None  #: the date that would be possible instead


class OutcomePrinter:
    """Prints outcomes as they arrive; with a machine format as one document at the end, by name.

    A command that is rejected as a whole prints one outcome, as qrsub does.
    """

    def __init__(self, machine: Format | None) -> None:
        self._machine = machine
        self._answers: dict[str, ReservationOutcome] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._machine is None or not (error is None or isinstance(error, OarError)):
            return
        document: dict[str, object] = {name: answer._asdict() for name, answer in self._answers.items()}
        if error is not None and not document:
            document = ReservationOutcome(False, str(error))._asdict()
        click.echo(dump(document, self._machine), nl=False)

    def done(self, name: str, text: str) -> None:
        """Record and print a success."""
        self._answers[name] = ReservationOutcome(True, text)
        if self._machine is None:
            click.echo(text)

    def refused(self, name: str, text: str, reason: str | None = None, proposal: int | None = None) -> None:
        """Record a failure and print it on stderr."""
        from oar.cli.common.render import visible

        self._answers[name] = ReservationOutcome(False, text, reason, proposal)
        click.echo("\n".join(map(visible, text.split("\n"))), err=True)


#: The variable by which the shell of the user names his file: the command runs as oar, and has another home.
OF_USER = "OAR_SUBMIT_DEFAULTS"
#: The values of all files are joined.
_JOINED = "resources"
#: Options that replace each other.
_EXCLUSIVE = (frozenset({"pe", "allocation"}), frozenset({"window", "earliest"}))


def with_default_options(context: Context, given: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    """Return the values of options; files provide those that the command line does not set.

    ``names``: the options allowed in files.  Raises Stop.
    """
    values = dict(given)
    source = click.get_current_context().get_parameter_source
    set_options = {name for name in given if source(name) is ParameterSource.COMMANDLINE}
    for place in reversed(list(_places(context, names))):  # the nearest one first
        joined = (*place.get(_JOINED, ()), *values[_JOINED])  # type: ignore[misc]  # texts of -l
        for name, value in place.items():
            others = next((names for names in _EXCLUSIVE if name in names), {name})
            if set_options.isdisjoint(others):
                values[name] = value
        set_options |= place.keys()
        values[_JOINED] = joined
    return values


def _places(context: Context, names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Iterate over the values in the files, the site's first."""
    command = context.command
    options = [parameter for parameter in command.params if parameter.name in names]
    parser = Command(
        command.name or "", style=command.style, not_admin=command.not_admin, exit_codes={}, params=options
    )
    path = context.runtime.config.reservation_request_file
    if os.path.exists(path):
        yield _read(parser, path, _of_site(path))
    own = context.environment.get(OF_USER)
    if own:
        try:
            data = context.files.read(own).data
        except OSError:
            raise Stop(f"error: cannot read {own}") from None
        yield _read(parser, own, data.decode("utf-8", "surrogateescape"))


def _of_site(path: str) -> str:
    """Return the text of the file of the site.  Raises Stop if others than administrators could have written it."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Stop(
                f"error: {path}: others than root and oar can write it. Run: chown root {path}; chmod go-w {path}"
            )
        return file.read()


def _read(parser: Command, path: str, text: str) -> dict[str, object]:
    """Return the values of the options in a file.  Raises Stop."""
    from oar.lib.base.texts import shell_words

    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    try:
        parsed = parser.make_context(parser.name, shell_words("\n".join(lines)))
    except (Stop, click.UsageError, BadRequest) as error:
        raise Stop(f"error: {path}: {error}") from None
    source = parsed.get_parameter_source
    return {name: value for name, value in parsed.params.items() if source(name) is ParameterSource.COMMANDLINE}

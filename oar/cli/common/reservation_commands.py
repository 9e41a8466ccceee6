"""x"""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import click

from oar.cli.common.command import Context
from oar.cli.common.options import Stop, names_nothing
from oar.cli.common.render import visible
from oar.lib.base.errors import OarError
from oar.lib.base.formats import Format, dump

#: What most lists name.
RESERVATION_NAMES = "numbers or names"


def listed(program: str, texts: Sequence[str], option: str = "", *, kind: str = RESERVATION_NAMES) -> list[str]:
    """Return the words of comma lists.  ``option``: '' = they are arguments; ``kind``: what they name.

    A list without a word is refused: a script whose variable is empty does not mean all.  Raises Stop.
    """
    return [word for text in texts for word in _words(program, text, option, kind)]


def _words(program: str, text: str, option: str, kind: str) -> Iterator[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise names_nothing(program, option, text, kind)
    return iter(words)


def warn_of_mail(context: Context, letters: str | None) -> None:
    """Tell who asks for mails (``-m``) where the site sends none; letters that are wrong are refused elsewhere."""
    if letters and set(letters) <= set("bea"):
        from oar.lib.submission.preparation import mail_warnings

        for warning in mail_warnings(f"mails of -m {letters}", context.runtime.config):
            context.warn(warning)


def nothing_named(context: Context) -> int:
    """Refuse a command that is told what to do, and not with which reservations; one without a word gets its usage.

    Raises Stop; else returns the exit code.
    """
    if context.arguments:
        program = context.command.name
        hint = _swallowed(context.arguments) or "write numbers or names behind the options"
        raise Stop(f"{program}: no advance reservation is named\n  {hint}")
    click.echo(context.command.get_help(click.get_current_context()))
    return 1


def _swallowed(arguments: Sequence[str]) -> str:
    """Return what to say if the last option seems to have taken the number: the variable of a script was empty."""
    option, value = arguments[-2:] if len(arguments) > 1 else ("", "")
    if not (option.startswith("-") and value.isdigit()):
        return ""
    return f"{option} took {value} as its value: is a variable empty?  write {option} VALUE {value}"


# -- answers ----------------------------------------------------------------------------------------------------------


class ToldAnswer(NamedTuple):
    """What became of one thing that was asked for."""

    ok: bool
    message: str
    reason: str | None = None  #: why the scheduler refused it
    proposal: int | None = None  #: the date that would be possible instead


class ToldAnswers:
    """Prints answers as they come; for machine formats they are one document at the end, by what they are about.

    A command that is refused as a whole prints one answer, as qrsub does.
    """

    def __init__(self, machine: Format | None) -> None:
        self._machine = machine
        self._answers: dict[str, ToldAnswer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._machine is None or not (error is None or isinstance(error, OarError)):
            return
        document: dict[str, object] = {name: answer._asdict() for name, answer in self._answers.items()}
        if error is not None and not document:
            document = ToldAnswer(False, str(error))._asdict()
        click.echo(dump(document, self._machine), nl=False)

    def done(self, name: str, text: str) -> None:
        """Tell what was done."""
        self._answers[name] = ToldAnswer(True, text)
        if self._machine is None:
            click.echo(text)

    def refused(self, name: str, text: str, reason: str | None = None, proposal: int | None = None) -> None:
        """Tell what was not done, on stderr and in the document."""
        self._answers[name] = ToldAnswer(False, text, reason, proposal)
        click.echo("\n".join(map(visible, text.split("\n"))), err=True)

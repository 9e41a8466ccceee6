"""What the commands of advance reservations are told, lists of names, and what they tell of each of these."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import click

from oar.cli.common.options import Stop
from oar.cli.common.render import visible
from oar.lib.facts.errors import OarError
from oar.lib.facts.formats import Format, dump


def listed(program: str, texts: Sequence[str], option: str = "") -> list[str]:
    """Return the words of comma lists.  ``option``: '' = they are arguments.

    A list without a word is refused: a script whose variable is empty does not mean all.  Raises Stop.
    """
    return [word for text in texts for word in _words(program, text, option)]


def _words(program: str, text: str, option: str) -> Iterator[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        place = f" {option}" if option else ""
        raise Stop(f'{program}:{place} "{visible(text)}" names nothing\n  leave it out, or write numbers or names')
    return iter(words)


def is_number(word: str) -> bool:
    """Whether a word is the number of a reservation or a series, and no name."""
    return word.isascii() and word.isdigit() and len(word) <= 7


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

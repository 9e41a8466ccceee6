"""Titles of answers by which clients of OAR 2.5 know what was refused."""

from collections.abc import Iterator
from contextlib import contextmanager

from oar.lib.base.errors import OarError, UserError


class Titled(UserError):
    """An error whose answer has a title of its own."""

    def __init__(self, why: OarError, title: str) -> None:
        super().__init__(str(why))
        self.why = why
        self.title = title


def title_of(act: str) -> str:
    """Return the title of the refusal of an act, such as ``Delete``."""
    return f"{act} error"


@contextmanager
def refusing(act: str) -> Iterator[None]:
    """Let what is refused meanwhile be a refusal of this act.  Raises Titled."""
    try:
        yield
    except UserError as error:
        raise Titled(error, title_of(act)) from error

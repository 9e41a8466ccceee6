"""oarstat --watch: the same again and again."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from oar.cli.common.process import ending_with_caller
from oar.lib.facts.errors import BadRequest, DatabaseUnavailable

if TYPE_CHECKING:
    from oar.cli.common.command import Context

DEFAULT_SECONDS = 2
LONGEST_SECONDS = 86400
_TOP, _CLEAR_LINE, _CLEAR_BELOW = "\033[H", "\033[K", "\033[J"


def read_seconds(text: str | None) -> int:
    """Return the seconds of ``--watch[=s]``.  Raises BadRequest."""
    if text is None:
        return DEFAULT_SECONDS
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= LONGEST_SECONDS):
        raise BadRequest(f'--watch takes a number of seconds, not "{text}"')
    return int(text)


def repeat(context: "Context", seconds: int, show: Callable[[], str]) -> None:
    """Print what ``show`` returns until somebody interrupts: drawn over the last on a terminal, else below it."""
    draw = _draw if sys.stdout.isatty() else _append
    try:
        with ending_with_caller():
            draw(show())
            while True:
                context.database.close()  # no connection is kept from others between two looks
                time.sleep(seconds)
                try:
                    draw(show())
                except DatabaseUnavailable:
                    draw("# cannot reach the OAR database, trying again.\n")
    except KeyboardInterrupt:
        if draw is _draw:
            sys.stdout.write("\n")


def _append(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _draw(text: str) -> None:
    """Write over what is there line by line, so that nothing flickers; what is too long for the terminal is cut."""
    import shutil

    columns, lines = shutil.get_terminal_size()
    shown = [time.strftime("%Y-%m-%d %H:%M:%S"), "", *text.splitlines()][: lines - 1]
    sys.stdout.write(_TOP + "".join(f"{line[:columns]}{_CLEAR_LINE}\n" for line in shown) + _CLEAR_BELOW)
    sys.stdout.flush()

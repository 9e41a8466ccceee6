"""oarstat --follow and --watch: output until the user interrupts it.

--follow prints a line for each change of a state and each event.  It reads the journal as the REST API does
(docs/design/events.rst, "The feed"): each row once, in order, none lost.  --watch prints the same table repeatedly.
"""

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.cli.common import render
from oar.cli.common.process import ending_with_caller
from oar.lib.base.errors import BadRequest, DatabaseUnavailable, NoSuchJob
from oar.lib.base.formats import Format
from oar.lib.base.times import format_date
from oar.lib.history.records import Event, JobStateChange, Position
from oar.lib.history.sql_feed import Feed, News, news_between, placed
from oar.lib.history.views import change_item, event_item
from oar.lib.jobs.states import FINAL

if TYPE_CHECKING:
    from oar.cli.common.command import Context

#: Seconds between two checks for new rows and for the caller.
PATIENCE = 5.0


class Followed(NamedTuple):
    """The jobs to follow; None does not restrict."""

    ids: Collection[int] | None
    arrays: Collection[int] | None
    user: str | None
    queue: str | None

    @property
    def names_jobs(self) -> bool:
        """Whether the output ends with the end of given jobs."""
        return self.ids is not None or bool(self.arrays)

    def takes(self, row: JobStateChange | Event) -> bool:
        """Whether to print a row; an event contains only the id of its job."""
        if self.ids is not None and row.job_id not in self.ids:
            return False
        if isinstance(row, Event):
            return self.arrays is None and self.user is None and self.queue is None
        return self.takes_of(row.owner, row.queue) and (self.arrays is None or row.array_id in self.arrays)

    def takes_of(self, user: str | None, queue: str | None) -> bool:
        """Whether to print rows of jobs of a user in a queue."""
        return self.user in (None, user) and self.queue in (None, queue)


def follow(context: "Context", followed: Followed, since: str | None, machine: Format | None) -> None:
    """Print events from a position or from now on, until interrupted or until the given jobs have ended.

    Raises BadRequest, NoSuchJob, DatabaseUnavailable.
    """
    if machine not in (None, Format.JSON):
        raise BadRequest("--follow supports text and --json only: use one of them")
    begin = Position.parse(since) if since else None
    try:
        with ending_with_caller(), Feed(context.database) as feed:
            output = _Output(as_json=machine is not None)
            now = feed.begin()
            states = _states(context, followed)
            left = _live(states)
            if begin is None:
                output.begin(states)
            for news in _since(context, begin, now):
                left -= output.print(news, followed)
            while left or not followed.names_jobs:
                left -= output.print(_next(context, feed), followed)
                if not left and followed.arrays:
                    left = _live(_states(context, followed))  # what was submitted again belongs to its array
                    if not left:  # and may have ended meanwhile
                        output.print(_next(context, feed, 0), followed)
    except KeyboardInterrupt:
        pass


def _states(context: "Context", followed: Followed) -> Mapping[int, str]:
    """Return the states of the followed jobs or array jobs.  Raises NoSuchJob."""
    ids, arrays = followed.ids, followed.arrays or ()
    with context.database.snapshot() as tx:
        jobs = tx.jobs.select(ids) if ids is not None else tx.jobs.of_arrays(arrays) if arrays else []
    existing = {job.id if ids is not None else job.array_id for job in jobs}
    for number in ids if ids is not None else arrays:
        if number not in existing:
            raise NoSuchJob(number)
    return {job.id: str(job.state) for job in jobs if followed.takes_of(job.user, job.queue)}


def _live(states: Mapping[int, str]) -> set[int]:
    return {job_id for job_id, state in states.items() if state not in FINAL}


def _since(context: "Context", begin: Position | None, now: Position) -> Iterator[News]:
    """Yield the rows between two positions. Raises BadRequest if the first is not of this database."""
    if begin is None:
        return
    if begin.state_log > now.state_log or begin.event > now.event:
        raise BadRequest(
            f'"{begin}" is not a position in the history of this database: use a position that --follow printed.'
        )
    while begin != now:
        with context.database.snapshot() as tx:
            news = news_between(tx, begin, now)
        begin = news.position
        yield news


def _next(context: "Context", feed: Feed, seconds: float = PATIENCE) -> News:
    """Return new rows, none without the database; release the connection meanwhile."""
    context.database.close()
    try:
        return feed.next(seconds)
    except DatabaseUnavailable:
        context.warn("cannot reach the OAR database, trying again.")
        feed.wait_until(lambda _: False, PATIENCE)
        return News((), (), frozenset(), feed.begin())


class _Output:
    """The printed lines."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def begin(self, states: Mapping[int, str]) -> None:
        """Write the present states of the given jobs, as text only."""
        if not self._as_json:
            self._write([f"{format_date(int(time.time()))} {job_id:<10} {state}" for job_id, state in states.items()])

    def print(self, news: News, followed: Followed) -> set[int]:
        """Write the rows that are followed, each in a line; return the jobs that have ended."""
        rows = [(row, place) for row, place in placed(news) if followed.takes(row)]
        self._write([_json(row, place) if self._as_json else _text(row) for row, place in rows])
        return {row.job_id for row, _ in rows if isinstance(row, JobStateChange) and row.state in FINAL}

    @staticmethod
    def _write(lines: Sequence[str]) -> None:
        if lines:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()


def _json(row: JobStateChange | Event, place: Position) -> str:
    item = change_item(row) if isinstance(row, JobStateChange) else event_item(row)
    name = "state" if isinstance(row, JobStateChange) else "event"
    return json.dumps({"event": name, **item, "position": str(place)}, ensure_ascii=False)


def _text(row: JobStateChange | Event) -> str:
    """Return a row as people read it.

    >>> _text(Event(1, "SUBMITTED", 12, 0, "by alice", False, ("n1",)))[19:]
    ' 12         SUBMITTED n1: by alice'
    """
    begin = f"{format_date(row.date)} {row.job_id or '-':<10}"
    if isinstance(row, JobStateChange):
        return f"{begin} {row.former or '-'} -> {row.state}"
    hosts = f" {','.join(row.hosts)}" if row.hosts else ""
    text = f": {render.visible(row.description)}" if row.description else ""
    return f"{begin} {row.type}{hosts}{text}"


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
    """Print what ``show`` returns until interrupted: on a terminal over the former output, else below it."""
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
    """Overwrite the former output line by line, without flicker; cut what does not fit the terminal."""
    import shutil

    columns, lines = shutil.get_terminal_size()
    shown = [time.strftime("%Y-%m-%d %H:%M:%S"), "", *text.splitlines()][: lines - 1]
    sys.stdout.write(_TOP + "".join(f"{line[:columns]}{_CLEAR_LINE}\n" for line in shown) + _CLEAR_BELOW)
    sys.stdout.flush()

"""The screen of oarstat --top: what is on it, and how it is drawn for a size of the terminal.

Nothing here reads the database or the terminal.
"""

import time
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from rich.text import Text

from oar.cli.common.render import cell, visible
from oar.lib.jobs.states import STATE_LETTERS, JobState

#: Smallest terminal on which the whole screen is readable.
NARROWEST, LOWEST = 40, 8
#: Lines that are not jobs or queues: title, nodes, resources, more queues, head of the jobs, more jobs, keys.
_FRAME = 7
_MOST_QUEUES = 4
_COLORS = {"R": "green", "L": "green", "W": "yellow", "H": "yellow", "S": "cyan", "F": "cyan", "E": "red", "T": "cyan"}

HELP = """\
oarstat --top shows the cluster, the queues and your jobs. It follows the changes in the database.

  up, down, k, j     select a job, or scroll a text
  page up, page down scroll by a page
  e, Enter           explain the selected job: why it waits, when it starts
  l                  show the end of the standard output of the job; o: of the standard error
  d                  delete the job, after a question
  a                  show the jobs of all users, or yours
  r                  read again
  q, Escape          leave a text, or quit
"""


class Screen(Enum):
    """What is shown."""

    JOBS = 0
    TEXT = 1


class TopJob(NamedTuple):
    """A line of the list of jobs."""

    id: int
    user: str
    name: str
    queue: str
    state: JobState
    start: int  #: of a job that waits the predicted one, 0 = unknown
    left: int | None  #: seconds until its walltime; None for a job that does not run
    note: str  #: where it runs, or why it waits


class TopQueue(NamedTuple):
    """A line of the list of queues."""

    name: str
    state: str
    running: int
    waiting: int


class Board(NamedTuple):
    """The data of one reading of the database."""

    date: int
    nodes: dict[str, int]  #: number of nodes by condition
    resources: dict[str, int]  #: number of resources by condition
    queues: tuple[TopQueue, ...]
    jobs: tuple[TopJob, ...]
    hidden: int  #: number of jobs that are not in ``jobs``


class View(NamedTuple):
    """The state of the screen."""

    board: Board
    user: str
    shows_all: bool = False
    selected: int = 0  #: id of the selected job
    screen: Screen = Screen.JOBS
    title: str = ""  #: of the text
    lines: tuple[str, ...] = ()  #: of the text
    offset: int = 0  #: first line of the text that is shown
    message: str = ""  #: the answer to the last key, or a problem
    question: int = 0  #: the job that is deleted if the next key is y

    @property
    def place(self) -> int:
        """The position of the selected job; the first one if it is no longer in the list."""
        return next((index for index, job in enumerate(self.board.jobs) if job.id == self.selected), 0)

    @property
    def job(self) -> TopJob | None:
        """The selected job; None if there is no job."""
        return self.board.jobs[self.place] if self.board.jobs else None

    def moved(self, by: int, height: int) -> "View":
        """Return the view with another selection, or with the text scrolled."""
        if self.screen is Screen.TEXT:
            last = max(0, len(self.lines) - text_lines(height))
            return self._replace(offset=min(max(0, self.offset + by), last))
        if not self.board.jobs:
            return self
        index = min(max(0, self.place + by), len(self.board.jobs) - 1)
        return self._replace(selected=self.board.jobs[index].id, message="")


def text_lines(height: int) -> int:
    """Return the number of lines of a text that are visible."""
    return max(1, height - 3)


def draw(view: View, width: int, height: int) -> Text:
    """Return the screen: at most ``height`` lines of at most ``width`` places."""
    lines = _text_screen(view, height) if view.screen is Screen.TEXT else _jobs_screen(view, width, height)
    cut = []
    for line in lines[:height]:
        line.truncate(width, overflow="crop")
        cut.append(line)
    return Text("\n", no_wrap=True, end="").join(cut)


def _jobs_screen(view: View, width: int, height: int) -> list[Text]:
    board = view.board
    queues = board.queues[: _MOST_QUEUES if height >= 20 else 1 if height >= 12 else 0]
    room = max(1, height - _FRAME - len(queues))
    first = max(0, min(view.place - room // 2, len(board.jobs) - room))
    jobs = board.jobs[first : first + room]
    more = len(board.jobs) - first - len(jobs) + board.hidden
    whom = "User" if view.shows_all else "Name"
    whose = "all jobs" if view.shows_all else f"jobs of {visible(view.user)}"
    return [
        Text(f"OAR  {whose}  {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(board.date))}", style="bold"),
        Text.assemble(("nodes     ", "bold"), _numbers(board.nodes)),
        Text.assemble(("resources ", "bold"), _numbers(board.resources)),
        *_queue_lines(queues, len(board.queues) - len(queues)),
        Text(_job_line(("Job", "S", whom, "Queue", "Start", "Left", "Nodes, reason")), style="dim"),
        *(_drawn_job(job, view, width) for job in jobs),
        *([Text("No jobs.")] if not jobs else []),
        *[Text("")] * (room - max(1, len(jobs))),
        Text(f"{more} more jobs" if more > 0 else "", style="dim"),
        _last_line(view),
    ]


def _queue_lines(queues: Sequence[TopQueue], more: int) -> list[Text]:
    lines = [
        Text.assemble(
            (f"{cell(visible(queue.name), 15)} ", "bold"),
            f"{queue.running:>6} running {queue.waiting:>6} waiting",
            ("" if queue.state == "Active" else f"  {queue.state}", "red"),
        )
        for queue in queues
    ]
    rest = [Text(f"{more} more queues" if more > 0 else "", style="dim")]
    return [*lines, *rest]


def _numbers(numbers: dict[str, int]) -> str:
    return "  ".join(f"{number} {name}" for name, number in numbers.items() if number) or "none"


def _job_line(cells: tuple[str, str, str, str, str, str, str]) -> str:
    number, letter, name, queue, start, left, note = cells
    return f"{number:>8} {letter} {cell(name, 14)} {cell(queue, 8)} {start:<11} {left:>8} {note}"


def _drawn_job(job: TopJob, view: View, width: int) -> Text:
    letter = STATE_LETTERS[job.state]
    name = visible(job.user if view.shows_all else job.name)
    start = time.strftime("%m-%d %H:%M", time.localtime(job.start)) if job.start else "-"
    left = "-" if job.left is None else _short(job.left)
    line = _job_line((str(job.id), letter, name, visible(job.queue), start, left, visible(job.note)))
    text = Text(line, style=_COLORS.get(letter, ""))
    if view.job == job:
        text.pad_right(max(0, width - text.cell_len))
        text.stylize("reverse")
    return text


def _short(seconds: int) -> str:
    """Return a duration in at most 8 places.

    >>> _short(59), _short(3720), _short(200_000)
    ('0:00:59', '1:02:00', '2d07h')
    """
    days, rest = divmod(max(0, seconds), 86400)
    hours, rest = divmod(rest, 3600)
    return f"{days}d{hours:02}h" if days else f"{hours}:{rest // 60:02}:{rest % 60:02}"


def _last_line(view: View) -> Text:
    if view.question:
        return Text(f"Delete job {view.question}? [y/N]", style="bold red")
    if view.message:
        return Text(visible(view.message), style="bold")
    return Text("e explain  l log  d delete  a all/mine  h help  q quit", style="dim")


def _text_screen(view: View, height: int) -> list[Text]:
    room = text_lines(height)
    shown = view.lines[view.offset : view.offset + room]
    place = f"  {view.offset + 1}-{view.offset + len(shown)} of {len(view.lines)}" if len(view.lines) > room else ""
    return [
        Text(visible(view.title) + place, style="bold"),
        Text(""),
        *(Text(visible(line)) for line in shown),
        *[Text("")] * (room - len(shown)),
        Text("up/down scroll  q back", style="dim"),
    ]

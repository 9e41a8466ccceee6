"""oarstat --top: the cluster, the queues and the jobs of a user, live on a terminal.

Notifications of the database cause a new reading, at most every MIN_SECONDS, and never more often than that reading
takes a tenth of the time.  Without notifications the database is read every POLL_SECONDS.
"""

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from oar.cli.common.options import Stop
from oar.cli.common.process import ending_with_caller
from oar.cli.oarstat_parts.explain import explained
from oar.cli.oarstat_parts.top_view import HELP, LOWEST, NARROWEST, Board, Screen, TopJob, TopQueue, View, draw
from oar.lib.base.errors import DatabaseUnavailable, OarError
from oar.lib.bus.messages import Channel
from oar.lib.db.channel_listener import ChannelListener
from oar.lib.jobs import control
from oar.lib.jobs.explanations import outlooks
from oar.lib.jobs.output_names import output_path
from oar.lib.jobs.script_names import script_name
from oar.lib.jobs.states import NOT_STARTED, JobState
from oar.lib.nodes.occupancy import Condition, condition
from oar.lib.reservations import job_deletion

if TYPE_CHECKING:
    from oar.cli.common.command import Context
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.privacy import Privacy
    from oar.lib.jobs.records import Job

MIN_SECONDS, POLL_SECONDS, PART_OF_TIME = 1.0, 5.0, 10.0
#: Jobs that are listed; lines and bytes of a log.
MOST_JOBS, LOG_LINES, LOG_BYTES = 500, 1000, 1 << 18
_KEYS = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "page-up", "\x1b[6~": "page-down", "\r": "e", "\n": "e", "?": "h", "\x1b": "q", "\x04": "q",
}  # fmt: skip
#: One key of those that were typed: an escape sequence, or a character.
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
_UNREACHABLE = "The OAR database cannot be reached. Trying again."
_NOT_A_TERMINAL = "# Error: --top needs a terminal: use oarstat, or oarstat --watch."


def run(context: "Context", user: str) -> None:
    """Show the dashboard until the user quits.  Raises Stop without a terminal, DatabaseUnavailable."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Stop(_NOT_A_TERMINAL)
    console = Console(highlight=False, markup=False, emoji=False)
    top = Top(context, user, console)
    try:
        with (
            ending_with_caller(),
            _keys_at_once(),
            changes(context) as wakes,
            Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live,
        ):
            top.loop(wakes, lambda: live.update(top.drawn(), refresh=True))
    except KeyboardInterrupt:
        pass


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Read keys without Return and without showing them."""
    former = termios.tcgetattr(0)
    tty.setcbreak(0, termios.TCSADRAIN)  # keys that were typed meanwhile count
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, former)


@contextmanager
def changes(context: "Context") -> Iterator[int]:
    """Yield a descriptor from which a byte can be read after each change of the database or of the terminal's size."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def wake(*_: object) -> None:
        with suppress(OSError):  # a wake-up is pending, or the command ends
            os.write(write_end, b".")

    former = signal.signal(signal.SIGWINCH, wake)
    listener = ChannelListener(context.runtime.database, Channel.EVENT)

    def listen() -> None:
        while not listener.is_interrupted:
            listener.listen()
            listener.wait_until(lambda _: True, POLL_SECONDS)
            wake()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield read_end
    finally:
        listener.interrupt()  # a thread that does not listen sleeps, and ends with the process
        signal.signal(signal.SIGWINCH, former)


class Top:
    """The dashboard: reads, draws, and does what keys request."""

    def __init__(self, context: "Context", user: str, console: Console) -> None:
        self._context = context
        self._console = console
        self._next_reading = 0.0
        self.view = View(self._board(user), user)

    def loop(self, wakes: int, refresh: Callable[[], None]) -> None:
        """Draw, wait for a key or a change, again and again until the user quits."""
        is_stale = False
        while True:
            refresh()
            pause = max(0.0, self._next_reading - time.monotonic()) if is_stale else POLL_SECONDS
            ready, _, _ = select.select([0, wakes], [], [], pause)
            if wakes in ready:
                os.read(wakes, 4096)
                is_stale = True
            if 0 in ready and not self._take(os.read(0, 256).decode("utf-8", "replace")):
                return
            if (is_stale or not ready) and time.monotonic() >= self._next_reading:
                self.read()
                is_stale = False

    def drawn(self) -> Text:
        """Return the screen for the present size of the terminal."""
        width, height = self._console.size
        return draw(self.view, max(width, NARROWEST), max(height, LOWEST))

    def read(self) -> None:
        """Read the database again; a failure is a message on the screen."""
        try:
            message = self.view.message.replace(_UNREACHABLE, "")
            self.view = self.view._replace(board=self._board(self.view.user), message=message)
        except DatabaseUnavailable:
            self.view = self.view._replace(message=_UNREACHABLE)
            self._next_reading = time.monotonic() + POLL_SECONDS

    def _board(self, user: str) -> Board:
        begin = time.monotonic()
        view = getattr(self, "view", None)
        with self._context.database.snapshot() as tx:
            board = read_board(tx, None if view and view.shows_all else user, self._context.privacy(tx))
        self._context.database.close()  # connections are few
        now = time.monotonic()
        self._next_reading = now + max(MIN_SECONDS, (now - begin) * PART_OF_TIME)
        return board

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _take(self, typed: str) -> bool:
        """Do what several keys request; return False to quit, also when the terminal is gone."""
        return bool(typed) and all(self.press(key) for key in _KEY.findall(typed))

    def press(self, typed: str) -> bool:
        """Do what a key requests; return False to quit."""
        key = _KEYS.get(typed, typed.lower())
        view, height = self.view._replace(message=""), self._console.size.height
        self.view = view
        if view.question:
            self.view = view._replace(question=0)
            if key == "y":
                self._act(lambda: self._delete(view.question))
            return True
        moves = {"up": -1, "down": 1, "page-up": 5 - height, "page-down": height - 5}
        if key in moves:
            self.view = view.moved(moves[key], height)
        elif key == "q" and view.screen is Screen.JOBS:
            return False
        elif key == "q":
            self.view = view._replace(screen=Screen.JOBS, message="")
        elif key == "h":
            self._show("Help", HELP)
        elif view.screen is Screen.JOBS:
            self._press_on_job(key)
        return True

    def _press_on_job(self, key: str) -> None:
        job = self.view.job
        if key == "a":
            self.view = self.view._replace(shows_all=not self.view.shows_all)
            self.read()
        elif key == "r":
            self.read()
        elif job is None and key in ("e", "l", "o", "d"):
            self.view = self.view._replace(message="There is no job.")
        elif job and key == "d":
            self.view = self.view._replace(question=job.id)
        elif job and key == "e":
            self._act(lambda: self._explain(job.id))
        elif job and key in ("l", "o"):
            self._act(lambda: self._log(job.id, is_error=key == "o"))

    def _act(self, action: Callable[[], None]) -> None:
        """Carry out an action; why it fails is a message on the screen."""
        try:
            action()
        except (OarError, OSError) as error:
            text = str(error.strerror or error) if isinstance(error, OSError) else str(error)
            self.view = self.view._replace(message=text.splitlines()[0].removeprefix("# Error: "))
        finally:
            self._context.database.close()

    def _show(self, title: str, text: str, *, at_end: bool = False) -> None:
        self.view = self.view._replace(screen=Screen.TEXT, title=title, lines=tuple(text.splitlines()), offset=0)
        if at_end:
            self.view = self.view.moved(len(self.view.lines), self._console.size.height)

    def _explain(self, job_id: int) -> None:
        with self._context.database.snapshot() as tx:
            text = explained(self._context, tx, [tx.jobs.get(job_id)], None, with_change=False)
        self._show(f"Job {job_id}", text)

    def _log(self, job_id: int, *, is_error: bool) -> None:
        """Show the end of an output file, which is read with the rights of the user."""
        with self._context.database.snapshot() as tx:
            job = tx.jobs.get(job_id)
        path = output_path(job, "stderr" if is_error else "stdout")
        part = self._context.files.read_part(path, 0, LOG_BYTES, lines=LOG_LINES)
        self._show(path, part.data.decode("utf-8", "replace") or "(empty)", at_end=True)

    def _delete(self, job_id: int) -> None:
        with_inner = self._context.runtime.config.kill_inner_jobs_with_container
        with self._context.database.begin() as tx:
            managed = self._context.managed_projects(tx)
            deletions = job_deletion.delete_jobs(
                tx, self._context.user, [job_id], with_inner=with_inner, managed=managed
            )
        (answer,) = deletions.answers
        text = control.why_not_ended(answer, "delete") if answer.refusal else f"Job {job_id} will be deleted."
        self.view = self.view._replace(message=text)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_board(tx: "Transaction", user: str | None, privacy: "Privacy") -> Board:
    """Return what is shown; ``user``: whose jobs, None for all; ``privacy``: of the user who reads."""
    ids, number = tx.listings.first_live(user, MOST_JOBS)
    jobs = sorted(tx.jobs.select(ids), key=lambda job: (job.state in NOT_STARTED, job.id))
    return Board(
        date=tx.now,
        nodes=_nodes(tx),
        resources=_resources(tx),
        queues=tuple(_queues(tx)),
        jobs=tuple(_jobs(tx, jobs, privacy)),
        hidden=number - len(jobs),
    )


def _nodes(tx: "Transaction") -> dict[str, int]:
    """Return the number of nodes that are free as a whole, of others that are Alive, and of the rest."""
    nodes = tx.listings.capacity(())["nodes"]
    return {"free": nodes.free, "not free": nodes.up - nodes.free, "not alive": nodes.total - nodes.up}


def _resources(tx: "Transaction") -> dict[str, int]:
    numbers = dict.fromkeys(map(str, Condition), 0)
    for alike in tx.listings.alike(tx.now):
        kind = condition(alike.state, is_held=alike.is_held, is_reserved=alike.is_reserved, is_drained=alike.is_drained)
        numbers[str(kind)] += alike.number
    return numbers


def _queues(tx: "Transaction") -> Iterator[TopQueue]:
    numbers: dict[str, list[int]] = {}
    for (name, state), number in tx.listings.live_by_queue().items():
        numbers.setdefault(name, [0, 0])[state in NOT_STARTED] += number
    for queue in sorted(tx.queues.all(), key=lambda queue: (-queue.priority, queue.name)):
        if queue.name in numbers or queue.state != "Active":
            yield TopQueue(queue.name, str(queue.state), *numbers.get(queue.name, (0, 0)))


def _jobs(tx: "Transaction", jobs: "list[Job]", privacy: "Privacy") -> Iterator[TopJob]:
    ids = [job.id for job in jobs]
    assigned, walltimes = tx.listings.assigned(ids), tx.listings.walltimes(ids)
    waiting = {outlook.job.id: outlook for outlook in outlooks(tx, jobs)}
    commands, _, _ = privacy.texts(jobs)
    for job, command in zip(jobs, commands, strict=True):
        outlook, left, note = waiting.get(job.id), None, ""
        if job.id in assigned and outlook is None:
            nodes = assigned[job.id].nodes
            note = " ".join(nodes[:1]) + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")
        if job.state is JobState.RUNNING and job.id in walltimes:
            left = job.start_time + walltimes[job.id] - tx.now
        start = job.start_time if outlook is None else outlook.start or 0
        note = note if outlook is None else outlook.why
        yield TopJob(job.id, job.user, job.name or script_name(command), job.queue, job.state, start, left, note)

"""The chronicle: write the life of each job to the log and to COMPLETION_LOG.

Any program on any machine may submit a job, start it or report its end. So these programs do not write the lines: the
chronicle derives them from the history in the database. It writes each state once, even if the server was stopped
meanwhile. The position is stored after the lines: if the server is killed in between, a few lines are repeated.

See docs/design/events.rst, "The chronicle".
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.bus.control_client import ask
from oar.lib.bus.frames import Status, StatusQuestion
from oar.lib.bus.messages import Mail
from oar.lib.history.completions import completions, end_line, start_line, started_on, submission_line
from oar.lib.history.event_types import EventType
from oar.lib.history.occupancy import OccupancyKeeper
from oar.lib.history.records import Event, JobStateChange, Position
from oar.lib.history.sql_feed import News, SettledRows, news_between
from oar.lib.history.sql_history import Log
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import FINAL, JobState
from oar.lib.logs import of_job
from oar.lib.monitoring.metrics import Happenings, Labels, families, rounds_of, server_families
from oar.lib.monitoring.prometheus_text import document, family_lines
from oar.lib.monitoring.replication import LatestReplication
from oar.modules.runner.restored_database import repair_if_restored

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction
    from oar.lib.runtime import Runtime

log = logging.getLogger(__name__)

#: Events of rejected submissions.
_REJECTIONS = (EventType.SUBMISSION_REFUSED, EventType.SUBMISSION_INVALID)
#: Seconds between two looks, and after a look that failed.
LOOK, AFTER_FAILURE = 2.0, 30.0

#: Seconds between two metrics files, and for the server to report its status.
PERIOD, PATIENCE = 15.0, 2.0

#: Looks at the database, and says whether to look again at once.
_Look = Callable[["Database"], bool]
#: Faults, each with the mail about it.
_Mails = Mapping[str, Mail]
#: Writes news when the transaction is over; returns what to mail, unless it was mailed within a day.
_Deed = Callable[[], _Mails]


class HistoryReader:
    """Read the history in parts, and store the current position."""

    def __init__(self, name: str, treat: "Callable[[Transaction, News], _Deed]") -> None:
        """``treat``: reads the data for the news, and returns the function that writes them."""
        self._name = name
        self._treat = treat
        self._read: Position | None = None
        self._logs: tuple[SettledRows, SettledRows] | None = None

    def look(self, database: "Database") -> bool:
        """Handle the next part of the history. Return whether there was one. Raises DatabaseUnavailable, OSError."""
        with database.begin() as tx:  # each statement reads all rows committed before it
            until = self._settled(tx)
        assert self._read is not None
        if until == self._read:
            return False
        with database.snapshot() as tx:
            news = news_between(tx, self._read, until)
            deed = self._treat(tx, news)
        mailed = _send(database, deed())
        with database.begin() as tx:
            tx.history.store_position(self._name, news.position)
            for fault in mailed:
                tx.events.add(EventType.FAULT_MAILED, 0, fault)
        self._read = news.position
        return True

    def _settled(self, tx: "Transaction") -> Position:
        """Return the position below which the history is complete."""
        if self._logs is None:
            self._read = tx.history.find_position(self._name)
            if self._read is None:
                self._read = tx.history.newest()
                tx.history.store_position(self._name, self._read)
            self._logs = (
                SettledRows(Log.STATES, self._read.state_log, tx.history.writers(Log.STATES)),
                SettledRows(Log.EVENTS, self._read.event, tx.history.writers(Log.EVENTS)),
            )
        for rows in self._logs:
            rows.advance(tx.history)
        return Position(self._logs[0].last, self._logs[1].last)


def _send(database: "Database", mails: _Mails) -> Collection[str]:
    """Send the mails about faults that were not mailed within a day. Return these faults.

    They are stored later: after a crash in between, a mail is sent twice.
    """
    if not mails:
        return ()
    with database.begin() as tx:
        due = {fault: mail for fault, mail in mails.items() if not tx.events.was_mailed(fault)}
        tx.outbox.extend(due.values())
    return due


class Chronicle:
    """Write the history of jobs, in slices between the passes of a module."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self._looks: list[_Look] = []
        self._next = 0.0

    def follow(self, runtime: "Runtime") -> None:
        """Use the files of a configuration from now on."""
        if self._runtime is runtime:
            return
        self._runtime = runtime
        config = runtime.config
        self._looks = [HistoryReader("log", tell).look, partial(repair_if_restored, run_directory=config.oar_run_dir)]
        self._looks.append(OccupancyKeeper().look)
        path = config.completion_log
        if path:
            self._looks.append(HistoryReader("completions", lambda tx, news: complete(tx, news, path)).look)
        if config.metrics_file:
            metrics = MetricsFile(config, config.metrics_file)
            self._looks += [HistoryReader("metrics", metrics.count).look, metrics.look]

    def due(self) -> float | None:
        """Return the time in seconds until the next work, None before the first call of ``follow``."""
        return max(0.0, self._next - time.monotonic()) if self._runtime else None

    def go_on(self) -> None:
        """Do a slice. A failure is logged and retried later: no line is lost."""
        pauses = [self._pause_after(look) for look in self._looks]
        self._next = time.monotonic() + (AFTER_FAILURE if AFTER_FAILURE in pauses else min(pauses, default=LOOK))

    def _pause_after(self, look: _Look) -> float:
        """Do one slice. Return the seconds until the next one."""
        assert self._runtime is not None
        try:
            return 0.0 if look(self._runtime.database) else LOOK
        except DatabaseUnavailable as error:
            log.error("cannot write the events of jobs: %s", error)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            log.error("cannot write the events of jobs: %s%s", place, error.strerror)
        except Exception:  # no error here may end the module
            log.exception("cannot write the events of jobs")
        return AFTER_FAILURE


# -- the log ----------------------------------------------------------------------------------------------------------


def tell(tx: "Transaction", news: News) -> _Deed:
    """Prepare a log line for each job that was submitted, refused, started or ended."""
    changes = [change for change in news.changes if _kind(change)]
    jobs = _work(tx, changes)
    texts = _texts(tx, changes, jobs)
    refused = [event for event in news.events if event.type in _REJECTIONS]
    failed = [event for event in news.events if event.type == EventType.ADMISSION_RULE_FAILED]

    def write() -> _Mails:
        for job, nodes, text in texts:
            of_job(log, job.id, queue=job.queue, nodes=nodes).info("%s", text)
        for event in refused:
            log.info("refused: %s", event.description)
        for event in failed:
            log.error("an admission rule failed: %s", event.description)
        return {event.description.partition(":")[0]: _rule_mail(event) for event in reversed(failed)}

    return write


def _rule_mail(failed: Event) -> Mail:
    """Return the mail about a failed admission rule."""
    text = f"An admission rule failed and refused a submission: {failed.description}"
    number = re.search(r"rule #(\d+)", failed.description)
    rule, rule_id = (f"rule {number[1]}", number[1]) if number else ("the rule", "ID")
    advice = (
        f"Correct {rule}, or disable it: oaradmissionrules -m {rule_id} -N."
        " Failures in the next 24 h are in LOG_FILE only. Test the rules: oaradmissionrules --test --as LOGIN --"
        " -l nodes=1 date"
    )
    return Mail("An admission rule fails", f"{text}\n{advice}")


def _kind(change: JobStateChange) -> JobState | None:
    """Return the state that represents a step in the life of a job, None if the step is not logged."""
    if change.former is None:
        return JobState.WAITING
    if change.state in FINAL:
        return JobState.TERMINATED
    is_start = change.state is JobState.RUNNING and change.former is JobState.LAUNCHING
    return JobState.RUNNING if is_start else None


def _work(tx: "Transaction", changes: Sequence[JobStateChange]) -> dict[int, Job]:
    """Return the existing jobs of state changes, without frames of advance reservations."""
    ids = {change.job_id for change in changes}
    frames = tx.jobs.frames_of_ended(ids) if ids else set()
    return {job.id: job for job in tx.jobs.select(ids - frames)} if ids - frames else {}


def _texts(
    tx: "Transaction", changes: Sequence[JobStateChange], jobs: dict[int, Job]
) -> list[tuple[Job, tuple[str, ...], str]]:
    """Return jobs, the nodes that they had at the step, and the log text of the step."""
    kinds = [(jobs[change.job_id], _kind(change)) for change in changes if change.job_id in jobs]
    ended = {end.job.id: end for end in completions(tx, _of(kinds, JobState.TERMINATED))}
    nodes = started_on(tx, [job.id for job in _of(kinds, JobState.RUNNING)])
    texts: list[tuple[Job, tuple[str, ...], str]] = []
    for job, kind in kinds:
        if kind is JobState.WAITING:
            texts.append((job, (), submission_line(job)))
        elif kind is JobState.RUNNING:
            had = nodes.get(job.id, ())
            texts.append((job, had, start_line(had)))
        else:
            end = ended[job.id]
            text = end_line(job, end.cause, end.usage.elapsed, end.usage.sentence)
            texts.append((job, end.nodes, text))
    return texts


def _of(kinds: Sequence[tuple[Job, JobState | None]], wanted: JobState) -> list[Job]:
    return [job for job, kind in kinds if kind is wanted]


# -- COMPLETION_LOG ---------------------------------------------------------------------------------------------------


def complete(tx: "Transaction", news: News, path: str) -> _Deed:
    """Prepare the lines of the jobs that have ended."""
    changes = [change for change in news.changes if change.state in FINAL]
    jobs = _work(tx, changes)
    ended = [jobs[change.job_id] for change in changes if change.job_id in jobs]
    lines = [json.dumps(end.record, ensure_ascii=False) + "\n" for end in completions(tx, ended)]

    def write() -> _Mails:
        append(path, "".join(lines).encode("utf-8", "backslashreplace"))
        return {}

    return write


def append(path: str, text: bytes) -> None:
    """Append all lines to a file or none, and wait until they are on disk. Raises OSError.

    The file is opened on each call, so that it may be moved at any time.
    """
    if not text:
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        size = os.fstat(file).st_size
        try:
            while text:
                text = text[os.write(file, text) :]
        except OSError as error:
            os.ftruncate(file, size)
            raise OSError(error.errno, error.strerror, path) from None
        os.fsync(file)
    finally:
        os.close(file)


# -- METRICS_FILE -----------------------------------------------------------------------------------------------------


class MetricsFile:
    """Count events, and periodically write the metrics for Prometheus, for a server without the API.

    Counters include the history since the process started; Prometheus handles the reset of counters.
    """

    def __init__(self, config: "Config", path: str) -> None:
        self._config = config
        self._path = path
        self._happenings = Happenings()
        self._written = float("-inf")
        self._replication = LatestReplication()

    def count(self, tx: "Transaction", news: News) -> _Deed:
        """Count new events. Nothing is written."""
        self._happenings.count(tx, news)
        return dict

    def look(self, database: "Database") -> bool:
        """Write the file if it is due. Return False: there is no more work now. Raises DatabaseUnavailable, OSError."""
        if time.monotonic() < self._written + PERIOD:
            return False
        with database.snapshot() as tx:
            present = list(families(tx, Labels.of(self._config)))
        present += self._replication.families(database.settings)
        answer = ask(self._config, StatusQuestion(), Status, PATIENCE)
        state = answer.state if isinstance(answer, Status) else {}
        present += [*server_families(state, time.time()), *self._happenings.families()]
        histograms = [*self._happenings.histograms(), *rounds_of(state)]
        new_path = f"{self._path}.new"  # another account may read the file at any time: replace it atomically
        with open(new_path, "w", encoding="utf-8", errors="replace") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(document([*map(family_lines, present), *(histogram.lines() for histogram in histograms)]))
        os.replace(new_path, self._path)
        self._written = time.monotonic()
        return False

"""Mails about arrays: one mail of each kind for the whole array instead of one for each of its jobs."""

import time
from collections import OrderedDict
from dataclasses import dataclass

from oar.lib.bus.messages import Notice, NoticeTag
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs.sql_jobs import ArraySummary

#: Number of arrays in memory; for the others, the mails that were sent are read from the events in the database.
MAX_ARRAYS = 1000
#: The summary of an array is read again after this time, in case the notice of its last job was lost.
LOOK_SECONDS = 5.0
_MAIL_EVENTS = (EventType.USER_MAIL_NOTIFICATION, EventType.MAIL_NOTIFICATION_ERROR)


@dataclass(slots=True)
class _Array:
    """The mails about an array that were sent, and the number of its jobs that have ended."""

    sent_tags: set[str]
    summary: ArraySummary
    summary_time: float  #: of the monotonic clock


class ArrayMails:
    """Replace notices about jobs by mails about their arrays. After a restart, continue from the events of the jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._arrays: OrderedDict[int, _Array] = OrderedDict()

    def instead_of(self, notice: Notice) -> list[Notice]:
        """Return the notices to mail instead of the notice of one job. A job outside of arrays keeps its notice.

        Raises DatabaseUnavailable.
        """
        array = self._array(notice.array_id)
        if array.summary.size < 2:
            return [notice]
        mails = []
        if notice.tag is not NoticeTag.END and notice.tag not in array.sent_tags:
            mails.append(_first(notice, array.summary.size))
        is_end = notice.tag in (NoticeTag.END, NoticeTag.ERROR)
        if is_end and NoticeTag.END not in array.sent_tags and self._is_over(array, notice):
            text = _totals(array.summary)
            mails.append(notice._replace(job_id=notice.array_id, tag=NoticeTag.END, text=text, why=""))
        array.sent_tags.update(mail.tag for mail in mails)
        return mails

    def _array(self, array_id: int) -> _Array:
        if array_id not in self._arrays:
            with self._database.begin() as tx:
                summary = tx.jobs.array_summary(array_id)
                self._arrays[array_id] = _Array(_read_sent_tags(tx, array_id), summary, time.monotonic())
            while len(self._arrays) > MAX_ARRAYS:
                self._arrays.popitem(last=False)
        self._arrays.move_to_end(array_id)
        return self._arrays[array_id]

    def _is_over(self, array: _Array, notice: Notice) -> bool:
        """Return whether all jobs of the array have ended. Read the database only if that may have changed."""
        live = array.summary.live
        is_fresh = time.monotonic() < array.summary_time + LOOK_SECONDS
        if live is None or (live != notice.job_id and is_fresh):
            return live is None
        with self._database.begin() as tx:
            array.summary, array.summary_time = tx.jobs.array_summary(notice.array_id), time.monotonic()
        return array.summary.live is None


def _read_sent_tags(tx: Transaction, array_id: int) -> set[str]:
    """Return the tags of the mails that were sent or failed. The descriptions of their events begin with "[TAG]"."""
    events = tx.events.of_types(array_id, _MAIL_EVENTS)
    return {event.description.partition("]")[0].removeprefix("[") for event in events}


def _first(notice: Notice, size: int) -> Notice:
    text = f"{notice.text}\nThis is job {notice.job_id}, the first of the {size} jobs of the array {notice.array_id}."
    return notice._replace(job_id=notice.array_id, text=text)


def _totals(summary: ArraySummary) -> str:
    total = summary.good + summary.bad + summary.errors
    return (
        f"Array stopped: {total} jobs have ended.\n"
        f"exit code 0: {summary.good}\n"
        f"another exit code: {summary.bad}\n"
        f"in error: {summary.errors}"
    )

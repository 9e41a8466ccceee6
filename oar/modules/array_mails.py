"""Mails about arrays: one of each kind for the whole array instead of one for each of its jobs."""

import time
from collections import OrderedDict
from dataclasses import dataclass

from oar.lib.db.engine import Database, Transaction
from oar.lib.db.jobs import ArraySummary
from oar.lib.messages import Notice
from oar.lib.states import EventType

#: Of so many arrays is kept in memory what was told; of the others the events of the database tell it.
REMEMBERED = 1000
#: An array is looked at again after so long, in case the notice of the job that was waited for was lost.
LOOK_SECONDS = 5.0
_NOTED = (EventType.USER_MAIL_NOTIFICATION, EventType.MAIL_NOTIFICATION_ERROR)


@dataclass(slots=True)
class _Known:
    """What is known of an array."""

    told: set[str]  #: tags
    summary: ArraySummary
    looked: float  #: monotonic time of the summary


class ArrayMails:
    """What was told of arrays; the events of their first jobs keep it over a restart."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._arrays: OrderedDict[int, _Known] = OrderedDict()

    def instead_of(self, notice: Notice) -> list[Notice]:
        """Return what is to be told instead of the notice of one job: the same, if the job is no part of an array.

        Raises DatabaseUnavailable.
        """
        array = self._known(notice.array_id)
        if array.summary.size < 2:
            return [notice]
        mails = []
        if notice.tag != "END" and notice.tag not in array.told:
            mails.append(_first(notice, array.summary.size))
        if notice.tag in ("END", "ERROR") and "END" not in array.told and self._is_over(array, notice):
            mails.append(notice._replace(job_id=notice.array_id, tag="END", text=_totals(array.summary), why=""))
        array.told.update(mail.tag for mail in mails)
        return mails

    def _known(self, array_id: int) -> _Known:
        if array_id not in self._arrays:
            with self._database.begin() as tx:
                told = _told(tx, array_id)
                self._arrays[array_id] = _Known(told, tx.jobs.array_summary(array_id), time.monotonic())
            while len(self._arrays) > REMEMBERED:
                self._arrays.popitem(last=False)
        self._arrays.move_to_end(array_id)
        return self._arrays[array_id]

    def _is_over(self, array: _Known, notice: Notice) -> bool:
        """Whether no job of the array is left; asks the database only when that may have changed."""
        live = array.summary.live
        is_fresh = time.monotonic() < array.looked + LOOK_SECONDS
        if live is None or (live != notice.job_id and is_fresh):
            return live is None
        with self._database.begin() as tx:
            array.summary, array.looked = tx.jobs.array_summary(notice.array_id), time.monotonic()
        return array.summary.live is None


def _told(tx: Transaction, array_id: int) -> set[str]:
    """Tags of the mails that were sent, or could not be: their events begin with "[TAG]"."""
    events = tx.events.of_types(array_id, _NOTED)
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

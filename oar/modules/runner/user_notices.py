"""Notices to users: by mail, or by a command that a bipbip runs (``oarsub --notify``).

Arrays get one mail of each kind for the whole array. The log of advance reservations becomes mails, and actions that
run the site's script.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from oar.lib.base.errors import BadRequest, DatabaseUnavailable
from oar.lib.bus.messages import Notice, NoticeTag, ReservationMail
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs.sql_jobs import ArraySummary
from oar.lib.logs import of_job
from oar.lib.notifications.mailer import Mailer
from oar.lib.notifications.notices import Subscription, mail_subject, one_line, parse_subscription
from oar.lib.reservations import mails
from oar.lib.reservations.states import ReservationEvent
from oar.modules.runner.dispatch import Action, ActionKind

log = logging.getLogger("runner")

#: Number of arrays in memory; for the others, the mails that were sent are read from the events in the database.
MAX_ARRAYS = 1000
#: The summary of an array is read again after this time, in case the notice of its last job was lost.
LOOK_SECONDS = 5.0
_MAIL_EVENTS = (EventType.USER_MAIL_NOTIFICATION, EventType.MAIL_NOTIFICATION_ERROR)


class UserNotices:
    """Send notices.

    ``add_action`` adds an action that runs a user's command; it returns False if the action is refused.
    """

    def __init__(self, config: Config, database: Database, add_action: Callable[[Action], bool]) -> None:
        self.mailer = Mailer(config)
        self._database = database
        self._array_mails = ArrayMails(database)
        self._add_action = add_action

    def follow_configuration(self, config: Config) -> None:
        """Use the mail settings of another configuration from now on. Waiting mails are still sent."""
        self.mailer.close(0)
        self.mailer = Mailer(config)

    def send(self, notice: Notice) -> None:
        """Mail the owner of a job, or run his command, according to the job's subscription."""
        try:
            subscription = parse_subscription(notice.notify)
            if subscription.way == "exec":
                self._run_command(notice, subscription)
                return
            for mail in [notice] if subscription.is_each else self._array_mails.instead_of(notice):
                if subscription.wants(mail.tag):
                    self._mail(mail, subscription)
        except (BadRequest, DatabaseUnavailable) as error:
            of_job(log, notice.job_id).warning("the notice %s is not sent: %s", notice.tag, error)

    def send_about_reservation(self, mail: ReservationMail) -> None:
        """Mail the recipients of notices about an advance reservation."""
        subject = one_line(f"*OAR* {mail.topic} on {self.mailer.instance}")
        note = partial(self._note, mail.frame_id, f"[{mail.topic}] {','.join(mail.recipients)}")
        self.mailer.user(mail.recipients, subject, mail.text, note, mail.user)

    def _run_command(self, notice: Notice, subscription: Subscription) -> None:
        if not subscription.wants(notice.tag):
            return
        about_job = (str(notice.job_id), notice.job_name, notice.tag, notice.text)
        args = (notice.user, notice.host, notice.tag, *subscription.targets, *about_job)
        if self._add_action(Action(ActionKind.NOTICE, notice.job_id, notice.host, args)):
            return
        with self._database.begin() as tx:
            text = f"[{notice.tag}] {subscription.targets[0]} on {notice.host}: too many commands are waiting"
            tx.events.add(EventType.USER_EXEC_NOTIFICATION_ERROR, notice.job_id, text)

    def _mail(self, notice: Notice, subscription: Subscription) -> None:
        subject = mail_subject(notice.tag, notice.job_id, notice.job_name, self.mailer.instance)
        text = f"{notice.text}\n\n{notice.why}" if notice.why else notice.text
        note = partial(self._note, notice.job_id, f"[{notice.tag}] {notice.notify}")
        self.mailer.user(subscription.targets, subject, text, note, notice.user)

    def _note(self, job_id: int, text: str, error: str) -> None:
        """Store the event of a mail: sent, or failed with ``error``. The mailer's thread calls this."""
        event = EventType.MAIL_NOTIFICATION_ERROR if error else EventType.USER_MAIL_NOTIFICATION
        try:
            with self._database.begin() as tx:
                tx.events.add(event, job_id, f"{text}: {error}" if error else text)
        except DatabaseUnavailable as unavailable:
            of_job(log, job_id).warning("a mail cannot be noted: %s", unavailable)


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
            position = f"the first of the {array.summary.size} jobs of the array {notice.array_id}"
            text = f"{notice.text}\nThis is job {notice.job_id}, {position}."
            mails.append(notice._replace(job_id=notice.array_id, text=text))
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


def _totals(summary: ArraySummary) -> str:
    total = summary.good + summary.bad + summary.errors
    return (
        f"Array stopped: {total} jobs have ended.\n"
        f"exit code 0: {summary.good}\n"
        f"another exit code: {summary.bad}\n"
        f"in error: {summary.errors}"
    )


class ReservationNewsfeed:
    """Report each line of the log of reservations at most once, from the start of the Runner on.

    The lines of one reservation are written while its row is locked, so their numbers are in commit order. This does
    not hold between reservations.
    """

    def __init__(self) -> None:
        self._first = 0  #: the newest line when the Runner began
        self._told: dict[int, int] = {}  #: by reservation, the newest line that was told

    def begin(self, tx: Transaction) -> None:
        """Skip the existing lines."""
        self._first = tx.reservation_logs.last_line()

    def tell(self, tx: Transaction, frame_ids: Collection[int]) -> list[Action]:
        """Add the mails about ended reservations to the outbox.

        Return the actions that notify the site of all new lines.
        """
        lines = tx.reservation_logs.new_lines(frame_ids, self._first)
        new = [line for line in lines if line.line > self._told.get(line.reservation_id, 0)]
        self._told |= {line.reservation_id: line.line for line in new}
        ended = {line.reservation_id for line in new if line.event == ReservationEvent.TERMINATED}
        usages = tx.reservation_logs.select_bills(ended) if ended else {}
        for reservation in tx.reservations.select(ended):
            mails.send(tx, reservation, ReservationEvent.TERMINATED, "", usages[reservation.id])
        arguments = [(line.line, line.reservation_id, line.number, line.event, line.state) for line in new]
        return [
            Action(ActionKind.AR_EVENT, line.frame_id, args=tuple(map(str, texts)))
            for line, texts in zip(new, arguments, strict=True)
        ]

"""Deliver the outbox: mails, and actions that run commands of users (``oarsub --notify``) and the site's script.

Arrays get one mail of each kind for the whole array. See docs/design/events.rst, "The outbox".
"""

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from oar.lib.base.errors import BadRequest, DatabaseUnavailable
from oar.lib.bus.messages import Mail, Notice, NoticeTag, ReservationMail, ReservationNews, UserMail
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.outbox import UnsentMessage
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs.sql_jobs import ArraySummary
from oar.lib.logs import of_job
from oar.lib.notifications.mailer import Mailer
from oar.lib.notifications.notices import Subscription, mail_subject, one_line, parse_subscription
from oar.lib.reservations.records import LogLine
from oar.modules.runner.dispatch import Action, ActionKind

log = logging.getLogger("runner")

#: Number of waiting messages, and how many the user with the most loses at a time when there are more.
MAX_WAITING, MAX_DROPPED = 10_000, 1000
#: Number of arrays in memory; for the others, the mails that were sent are read from the events in the database.
MAX_ARRAYS = 1000
#: The summary of an array is read again after this time, in case the notice of its last job was lost.
LOOK_SECONDS = 5.0
_MAIL_EVENTS = (EventType.USER_MAIL_NOTIFICATION, EventType.MAIL_NOTIFICATION_ERROR)


class UserNotices:
    """Deliver the messages of the outbox, and delete them afterwards.

    The messages in hand are not read again: each is delivered once, unless the Runner ends before it is deleted.
    ``add_action`` adds an action that runs a command; it returns False if the action is refused.
    """

    def __init__(self, config: Config, database: Database, add_action: Callable[[Action], bool]) -> None:
        self.mailer = Mailer(config)
        self._config = config
        self._database = database
        self._array_mails = ArrayMails(database)
        self._add_action = add_action
        self._in_hand: Counter[int] = Counter()  #: the open deliveries of each message
        self._delivered: list[int] = []  #: messages that are not deleted yet
        self._lock = threading.Lock()  #: the mailer reports in its own thread

    def follow_configuration(self, config: Config) -> None:
        """Use the settings of another configuration from now on, also for waiting mails."""
        self._config = config
        self.mailer.follow(config)

    def send_waiting(self) -> None:
        """Begin to deliver the messages of the outbox that are not in hand. Raises DatabaseUnavailable."""
        ids = self._database.look(lambda tx: tx.unsent.ids())
        if len(ids) > MAX_WAITING:
            with self._database.begin() as tx:
                dropped = _drop_surplus(tx, len(ids) - MAX_WAITING)
            self.mailer.forget(dropped)
            for number in dropped:
                del self._in_hand[number]
        new = [number for number in ids if number not in self._in_hand]
        if not new:
            return
        with self._database.snapshot() as tx:
            messages = tx.unsent.read(new)
            news = [message.content.line for message in messages if isinstance(message.content, ReservationNews)]
            lines = {line.line: line for line in tx.reservation_logs.lines(news)} if news else {}
        for number in set(new).difference(message.id for message in messages):
            self._in_hand[number] = 1  # the Runner of a later release, which can parse it, delivers it
        for message in messages:
            self._in_hand[message.id] = 1
            try:
                self._deliver(message, lines)
            except DatabaseUnavailable:
                del self._in_hand[message.id]
                raise
        self.settle()

    def finish(self, number: int, *, is_deleted: bool = False) -> None:
        """Note that a delivery of a message has ended. ``is_deleted``: the message was deleted with its last one."""
        with self._lock:
            self._in_hand[number] -= 1
            if is_deleted:
                del self._in_hand[number]
            elif self._in_hand[number] <= 0:
                self._delivered.append(number)

    def settle(self) -> None:
        """Delete the delivered messages. Raises DatabaseUnavailable."""
        with self._lock:
            delivered = self._delivered[:]
        if delivered:
            with self._database.begin() as tx:
                tx.unsent.remove(delivered)
            with self._lock:
                del self._delivered[: len(delivered)]
                for number in delivered:
                    del self._in_hand[number]

    def close(self, seconds: float) -> None:
        """Send waiting mails for at most ``seconds``; the next Runner sends the others."""
        self.mailer.close(seconds)
        with suppress(DatabaseUnavailable):
            self.settle()

    def _deliver(self, message: UnsentMessage, lines: Mapping[int, LogLine]) -> None:
        """Begin to deliver a message. ``lines``: the lines of reservation logs that messages name."""
        match message.content:
            case Notice() as notice:
                self._send(notice, message)
            case ReservationMail() as mail:
                self._send_about_reservation(mail, message)
            case ReservationNews(line):
                self._run_script(lines.get(line), message.id)
            case UserMail(recipients, topic, text):
                subject = one_line(f"*OAR* {topic} on {self.mailer.instance}")
                report = partial(self._finish_mail, message.id)
                self.mailer.user(recipients, subject, text, report, "", id=message.id, date=message.date)
            case Mail(subject, text):
                log.warning("%s: %s", subject, text.strip().replace("\n", "; "))
                report = partial(self._finish_mail, message.id)
                self.mailer.administrators(subject, text, report, id=message.id, date=message.date)

    def _finish_mail(self, number: int, _error: str) -> None:
        self.finish(number)

    def _send(self, notice: Notice, message: UnsentMessage) -> None:
        """Mail the owner of a job, or run his command, according to the job's subscription."""
        try:
            subscription = parse_subscription(notice.notify)
            if subscription.way == "exec":
                if subscription.wants(notice.tag):
                    self._run_command(notice, subscription, message.id)
                    return
            else:
                mails = [notice] if subscription.is_each else self._array_mails.instead_of(notice)
                mails = [mail for mail in mails if subscription.wants(mail.tag)]
                with self._lock:
                    self._in_hand[message.id] += len(mails)
                for mail in mails:
                    self._mail(mail, subscription, message)
        except BadRequest as error:
            of_job(log, notice.job_id).warning("the notice %s is not sent: %s", notice.tag, error)
        self.finish(message.id)

    def _send_about_reservation(self, mail: ReservationMail, message: UnsentMessage) -> None:
        subject = one_line(f"*OAR* {mail.topic} on {self.mailer.instance}")
        report = partial(self._note, message.id, mail.frame_id, f"[{mail.topic}] {','.join(mail.recipients)}")
        self.mailer.user(mail.recipients, subject, mail.text, report, mail.user, id=message.id, date=message.date)

    def _run_script(self, line: LogLine | None, number: int) -> None:
        """Notify the site of a line in the log of an advance reservation, if it has a script."""
        if line is not None and self._config.reservation_event_exec_file:
            texts = (line.line, line.reservation_id, line.number, line.event, line.state)
            action = Action(ActionKind.AR_EVENT, line.frame_id, args=tuple(map(str, texts)), message=number)
            if self._add_action(action):
                return
            log.warning("too many scripts of advance reservations are waiting: left out is %s", action.args)
        self.finish(number)

    def _run_command(self, notice: Notice, subscription: Subscription, number: int) -> None:
        about_job = (str(notice.job_id), notice.job_name, notice.tag, notice.text)
        args = (notice.user, notice.host, notice.tag, *subscription.targets, *about_job)
        if self._add_action(Action(ActionKind.NOTICE, notice.job_id, notice.host, args, message=number)):
            return
        with self._database.begin() as tx:
            text = f"[{notice.tag}] {subscription.targets[0]} on {notice.host}: too many commands are waiting"
            tx.events.add(EventType.USER_EXEC_NOTIFICATION_ERROR, notice.job_id, text)
        self.finish(number)

    def _mail(self, notice: Notice, subscription: Subscription, message: UnsentMessage) -> None:
        subject = mail_subject(notice.tag, notice.job_id, notice.job_name, self.mailer.instance)
        text = f"{notice.text}\n\n{notice.why}" if notice.why else notice.text
        report = partial(self._note, message.id, notice.job_id, f"[{notice.tag}] {notice.notify}")
        self.mailer.user(subscription.targets, subject, text, report, notice.user, id=message.id, date=message.date)

    def _note(self, number: int, job_id: int, text: str, error: str) -> None:
        """Store the event of a mail: sent, or failed with ``error``. The mailer's thread calls this."""
        event = EventType.MAIL_NOTIFICATION_ERROR if error else EventType.USER_MAIL_NOTIFICATION
        is_last = self._in_hand[number] == 1
        try:
            with self._database.begin() as tx:
                tx.events.add(event, job_id, f"{text}: {error}" if error else text)
                if is_last:
                    tx.unsent.remove([number])
        except DatabaseUnavailable as unavailable:
            of_job(log, job_id).warning("a mail cannot be noted: %s", unavailable)
            is_last = False
        self.finish(number, is_deleted=is_last)


def _drop_surplus(tx: Transaction, surplus: int) -> set[int]:
    """Delete the oldest messages of the users with the most messages; return their ids."""
    dropped: set[int] = set()
    while len(dropped) < surplus:
        user, ids = tx.unsent.remove_oldest(min(surplus - len(dropped), MAX_DROPPED))
        if not ids:
            break
        dropped.update(ids)
        whose = f"of jobs of {user}" if user else "to administrators"
        text = f"[Runner] {len(ids)} waiting messages {whose} were dropped: more than {MAX_WAITING} wait"
        tx.events.add(EventType.MESSAGES_DROPPED, 0, text)
    return dropped


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

"""Mails to administrators and users, sent by a background thread.

No function here raises an exception if the mail server fails. Mails wait until it accepts connections again; a mail
that it does not accept for now is tried again later. See docs/design/events.rst, "The outbox".
"""

import logging
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from oar.lib.base.hourly_limit import HourlyLimit
from oar.lib.config.files import Config

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

LOG = logging.getLogger(__name__)

#: Mails of one subject to the administrators within an hour; the others become one digest.
MAX_PER_HOUR = 20
#: Seconds for one step of the dialogue with the mail server, and for one mail.
_STEP = 20.0
_LONGEST = 60.0
#: Seconds until the next attempt, doubled with each failure: to connect to the mail server, and to send a mail that it
#: did not accept.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 60.0
_FIRST_DELAY, _LONGEST_DELAY = 60.0, 3600.0
#: Seconds after which a mail that cannot be sent is dropped.
_LONGEST_LIFE = 5 * 86400
#: Numbers of waiting mails to administrators and to users.
_MAX_URGENT, _MAX_OF_USERS = 10_000, 10_000
_TOO_MANY = "too many mails are waiting"
_SMTP_PORT = 25
#: SMTP: a code from 500 on is final.
_FINAL_CODE = 500


class Delivery(Enum):
    """The outcome of an attempt to send a mail."""

    DONE = auto()  #: sent, perhaps not to all recipients, or finally rejected
    DEFERRED = auto()  #: the mail server does not accept this mail now
    AWAY = auto()  #: the mail server cannot be reached


@dataclass(frozen=True, slots=True)
class QueuedMail:
    """A mail in the queue. ``report`` is called with the error text, "" if the mail was sent."""

    recipients: tuple[str, ...]
    subject: str
    text: str
    report: Callable[[str], None] | None = None
    is_limited: bool = False  #: counts against the mails of its subject within an hour
    owner: str = ""  #: the user whose job it is about
    id: int = 0  #: its row in the outbox; 0 if it has none
    date: float = field(default_factory=time.time)
    attempts: int = 0


class MailQueue:
    """The waiting mails: first those to the administrators, then those to users, one of each user in turn.

    If the queue is full, the newest mail of the user with the most mails is dropped.
    """

    def __init__(self, max_urgent: int = _MAX_URGENT, max_of_users: int = _MAX_OF_USERS) -> None:
        self._max_urgent = max_urgent
        self._max_of_users = max_of_users
        self._urgent: deque[QueuedMail] = deque()
        self._of_users: OrderedDict[str, deque[QueuedMail]] = OrderedDict()
        self._number = 0  #: of mails to users

    def __len__(self) -> int:
        return len(self._urgent) + self._number

    def add(self, mail: QueuedMail) -> QueuedMail | None:
        """Add a mail. Return the mail that is dropped because the queue is full, None if none is."""
        if mail.is_limited:
            if len(self._urgent) >= self._max_urgent:
                return mail
            self._urgent.append(mail)
            return None
        self._of_users.setdefault(mail.owner, deque()).append(mail)
        self._number += 1
        return self._drop_newest(mail.owner) if self._number > self._max_of_users else None

    def _drop_newest(self, preferred: str) -> QueuedMail:
        """Drop the newest mail of the user with the most mails; prefer ``preferred`` among equals."""
        owner = max((preferred, *self._of_users), key=lambda user: len(self._of_users[user]))
        mails = self._of_users[owner]
        mail = mails.pop()
        if not mails:
            del self._of_users[owner]
        self._number -= 1
        return mail

    def put_back(self, mail: QueuedMail) -> None:
        """Make a mail that was taken the next one."""
        if mail.is_limited:
            self._urgent.appendleft(mail)
            return
        self._of_users.setdefault(mail.owner, deque()).appendleft(mail)
        self._of_users.move_to_end(mail.owner, last=False)
        self._number += 1

    def forget(self, ids: Collection[int]) -> None:
        """Remove mails by their rows in the outbox."""
        self._urgent = deque(mail for mail in self._urgent if mail.id not in ids)
        kept = {user: deque(mail for mail in mails if mail.id not in ids) for user, mails in self._of_users.items()}
        self._of_users = OrderedDict((user, mails) for user, mails in kept.items() if mails)
        self._number = sum(map(len, self._of_users.values()))

    def take(self) -> QueuedMail | None:
        """Take the next mail, None if none is waiting."""
        if self._urgent:
            return self._urgent.popleft()
        if not self._of_users:
            return None
        owner, mails = self._of_users.popitem(last=False)
        mail = mails.popleft()
        if mails:
            self._of_users[owner] = mails
        self._number -= 1
        return mail


class Mailer:
    """Send mails in the background. Do nothing if oar.conf has no mail server or no sender.

    A mail server that does not answer delays only mails. A user with many notices does not delay mails to the
    administrators or to other users.
    """

    def __init__(
        self, config: Config, *, step: float = _STEP, longest: float = _LONGEST, pause: float = _FIRST_PAUSE
    ) -> None:
        """``pause``: seconds after the first failure to connect."""
        self._changed = threading.Condition()  #: a mail has been added, the settings have changed, or the end has come
        self.follow(config)
        self._step = step
        self._longest = longest
        self._first_pause = pause
        self._mails = MailQueue()
        self._deferred: list[tuple[float, QueuedMail]] = []  #: with the time of the next attempt
        self.failures = 0  #: to connect to the mail server, one after the other
        self._is_closed = False
        self._limit = HourlyLimit(MAX_PER_HOUR)
        self._thread: threading.Thread | None = None

    def follow(self, config: Config) -> None:
        """Use the settings of another configuration from now on, also for waiting mails."""
        with self._changed:
            self._server = config.mail_smtp_server
            self._sender = config.mail_sender
            self._administrators = tuple(config.mail_recipient or ())
            self.instance = config.instance_name or socket.gethostname()
            self._next_try = 0.0
            self._changed.notify()

    def administrators(
        self, subject: str, text: str, report: Callable[[str], None] | None = None, **fields: Any
    ) -> None:
        """Mail the administrators: at most 20 mails per subject within an hour, then one digest.

        ``report`` is called in another thread with the error text, "" if the mail was sent or counts for the digest.
        ``fields``: other fields of the queued mail.
        """
        self.post(QueuedMail(self._administrators, subject, text, report, is_limited=True, **fields))

    def user(
        self,
        recipients: Sequence[str],
        subject: str,
        text: str,
        report: Callable[[str], None] | None = None,
        owner: str = "",
        **fields: Any,
    ) -> None:
        """Mail a user. ``report`` is called in another thread with the error text, "" if the mail was sent."""
        self.post(QueuedMail(tuple(recipients), subject, text, report, owner=owner, **fields))

    def forget(self, ids: Collection[int]) -> None:
        """Remove waiting mails by their rows in the outbox."""
        with self._changed:
            self._mails.forget(ids)
            self._deferred = [(due, mail) for due, mail in self._deferred if mail.id not in ids]

    def close(self, deadline: float) -> None:
        """Send the waiting mails, for at most ``deadline`` seconds. Give up if the mail server cannot be reached.

        After an outage, the mail server is tried once more at once: a mail about the stop would be lost otherwise.
        """
        if self._thread is not None:
            with self._changed:
                self._is_closed = True
                self._next_try = 0.0
                self._changed.notify()
            self._thread.join(deadline)  # if the time is too short, the thread ends with the process

    def post(self, mail: QueuedMail) -> None:
        """Add a mail to the queue."""
        if self._server is None or self._sender is None or not mail.recipients:
            self._finish(mail, "mail is not configured")
            return
        with self._changed:
            refused = self._mails.add(mail)
            self._changed.notify()
        if refused is not None:
            self._finish(refused, _TOO_MANY)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mailer", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        hello = socket.getfqdn()
        while True:
            mail = self._next_mail()
            now = time.monotonic()
            for subject, count in self._limit.digests(now, everything=mail is None and self._is_closed):
                text = f"{count} more mails with this subject."
                self._try(
                    QueuedMail(self._administrators, f"{subject} (digest)", text, is_limited=True, attempts=1), hello
                )
            if mail is None:
                if self._is_closed:
                    return
            elif mail.is_limited and not mail.attempts and not self._limit.allows(mail.subject, now):
                self._finish(mail, "")
            else:
                self._try(mail, hello)

    def _next_mail(self) -> QueuedMail | None:
        """Wait for a mail that may be sent now; return None if a digest may be due, or at the end."""
        refused: list[QueuedMail] = []
        with self._changed:
            while not (self._is_closed or self._is_due()) and (seconds := self._until_due()) != 0:
                self._changed.wait(seconds)
            now = time.monotonic()
            for due, mail in [*self._deferred]:
                if due <= now:
                    self._deferred.remove((due, mail))
                    refused += filter(None, [self._mails.add(mail)])
            is_away = bool(self.failures) and now < self._next_try
            mail_to_send = None if is_away else self._mails.take()
        for mail in refused:
            self._finish(mail, _TOO_MANY)
        return mail_to_send

    def _is_due(self) -> bool:
        now = time.monotonic()
        is_waiting = bool(self._mails) or any(due <= now for due, _ in self._deferred)
        return is_waiting and now >= self._next_try

    def _until_due(self) -> float | None:
        """Return the seconds until the next attempt or digest, None if nothing is to be done."""
        now = time.monotonic()
        dates = [due - now for due, _ in self._deferred]
        dates += [self._next_try - now] if self._mails else []
        digest = self._limit.next_digest(now)
        dates += [] if digest is None else [digest]
        return max(0.0, min(dates)) if dates else None

    def _try(self, mail: QueuedMail, hello: str) -> None:
        """Send a mail, or keep it for a later attempt."""
        outcome, error = self._send(mail, hello)
        if outcome is not Delivery.AWAY:
            self.failures, self._next_try = 0, 0.0
        if outcome is Delivery.DONE or time.time() > mail.date + _LONGEST_LIFE:
            self._finish(mail, error)
            return
        tried = replace(mail, attempts=mail.attempts + 1)
        with self._changed:
            if outcome is Delivery.AWAY:
                pause = min(self._first_pause * 2**self.failures, _LONGEST_PAUSE)
                self.failures, self._next_try = self.failures + 1, time.monotonic() + pause
                self._mails.put_back(tried)
            else:
                delay = min(_FIRST_DELAY * 2**mail.attempts, _LONGEST_DELAY)
                self._deferred.append((time.monotonic() + delay, tried))
        LOG.warning("mail %r to %s is tried again later: %s", mail.subject, ", ".join(mail.recipients), error)

    def _finish(self, mail: QueuedMail, error: str) -> None:
        if mail.report is not None:
            mail.report(error)
        elif error and self._server is not None and mail.recipients:
            LOG.warning("mail %r to %s not sent: %s", mail.subject, ", ".join(mail.recipients), error)

    def _send(self, mail: QueuedMail, hello: str) -> tuple[Delivery, str]:
        """Try to send a mail. Return the outcome, with the error if it was not sent to all recipients."""
        import smtplib

        smtp = smtplib.SMTP(local_hostname=hello, timeout=self._step)
        over_time = threading.Timer(self._longest, _hang_up, (smtp,))
        over_time.daemon = True
        over_time.start()
        failure = Delivery.AWAY
        try:
            host, _, port = (self._server or "").partition(":")
            smtp.connect(host, int(port) if port else _SMTP_PORT)
            failure = Delivery.DEFERRED
            refused = smtp.send_message(self._message(mail, hello))
            with suppress(OSError, smtplib.SMTPException):  # the server has accepted the mail
                smtp.quit()
        except Exception as error:  # noqa: BLE001 - an error of one mail may not stop the others
            is_final = failure is not Delivery.AWAY and _is_final(error)
            return Delivery.DONE if is_final else failure, str(error) or type(error).__name__
        finally:
            over_time.cancel()
            smtp.close()
        return Delivery.DONE, f"refused for {', '.join(refused)}" if refused else ""

    def _message(self, mail: QueuedMail, hello: str) -> "EmailMessage":
        from email.message import EmailMessage
        from email.utils import formatdate, make_msgid

        message = EmailMessage()
        message["From"] = _header(self._sender or "")
        message["To"] = _header(", ".join(mail.recipients))
        message["Subject"] = _header(mail.subject)
        message["Date"] = formatdate(localtime=True)
        message["Message-ID"] = make_msgid(domain=hello)
        message["Auto-Submitted"] = "auto-generated"  # prevents automatic replies
        message.set_content(mail.text.encode("utf-8", "replace").decode())
        return message


def _is_final(error: Exception) -> bool:
    """Return whether another attempt would have the same result."""
    import smtplib

    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= _FINAL_CODE for code, _ in error.recipients.values())
    if isinstance(error, smtplib.SMTPResponseException):
        return error.smtp_code >= _FINAL_CODE
    return isinstance(error, smtplib.SMTPNotSupportedError) or not isinstance(error, OSError)


def _hang_up(smtp: "smtplib.SMTP") -> None:
    """Interrupt a dialogue that takes too long: the waiting thread gets an error."""
    if smtp.sock is not None:
        with suppress(OSError):
            smtp.sock.shutdown(socket.SHUT_RDWR)


def _header(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable.encode("utf-8", "replace").decode()

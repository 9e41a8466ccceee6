"""Mails to administrators and users, sent by a background thread.

Delivery is best effort: no function here raises an exception if the mail server fails.
"""

import logging
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
#: Numbers of waiting mails to administrators and to users.
_MAX_URGENT, _MAX_OF_USERS = 1000, 1000
_SMTP_PORT = 25


@dataclass(frozen=True, slots=True)
class QueuedMail:
    """A mail in the queue. ``report`` is called with the error text, "" if the mail was sent."""

    recipients: tuple[str, ...]
    subject: str
    text: str
    report: Callable[[str], None] | None = None
    is_limited: bool = False  #: counts against the mails of its subject within an hour
    owner: str = ""  #: the user whose job it is about


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

    Each mail is tried once. A mail server that does not answer delays only mails. A user with many notices does not
    delay mails to the administrators or to other users.
    """

    def __init__(self, config: Config, *, step: float = _STEP, longest: float = _LONGEST) -> None:
        self._server = config.mail_smtp_server
        self._sender = config.mail_sender
        self._administrators = tuple(config.mail_recipient or ())
        self.instance = config.instance_name or socket.gethostname()
        self._step = step
        self._longest = longest
        self._mails = MailQueue()
        self._changed = threading.Condition()  #: a mail has been added, or the end has come
        self._is_closed = False
        self._limit = HourlyLimit(MAX_PER_HOUR)
        self._thread: threading.Thread | None = None

    def administrators(self, subject: str, text: str) -> None:
        """Mail the administrators: at most 20 mails per subject within an hour, then one digest."""
        if self._administrators:
            self._post(QueuedMail(self._administrators, subject, text, is_limited=True))

    def user(
        self,
        recipients: Sequence[str],
        subject: str,
        text: str,
        report: Callable[[str], None] | None = None,
        owner: str = "",
    ) -> None:
        """Mail a user. ``report`` is called in another thread with the error text, "" if the mail was sent."""
        self._post(QueuedMail(tuple(recipients), subject, text, report, owner=owner))

    def close(self, deadline: float) -> None:
        """Send the waiting mails, for at most ``deadline`` seconds."""
        if self._thread is not None:
            with self._changed:
                self._is_closed = True
                self._changed.notify()
            self._thread.join(deadline)  # if the time is too short, the thread ends with the process

    def _post(self, mail: QueuedMail) -> None:
        if self._server is None or self._sender is None:
            self._finish(mail, "mail is not configured")
            return
        with self._changed:
            refused = self._mails.add(mail)
            self._changed.notify()
        if refused is not None:
            self._finish(refused, "too many mails are waiting")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mailer", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        hello = socket.getfqdn()
        is_over = False
        while not is_over:
            with self._changed:
                pause = self._limit.next_digest(time.monotonic())
                self._changed.wait_for(lambda: self._mails or self._is_closed, pause)
                mail = self._mails.take()
                is_over = mail is None and self._is_closed
            now = time.monotonic()
            mails = [
                QueuedMail(self._administrators, f"{subject} (digest)", f"{count} more mails with this subject.")
                for subject, count in self._limit.digests(now, everything=is_over)
            ]
            if mail and (not mail.is_limited or self._limit.allows(mail.subject, now)):
                mails.append(mail)
            for queued in mails:
                self._finish(queued, self._send(queued, hello))

    def _finish(self, mail: QueuedMail, error: str) -> None:
        if mail.report is not None:
            mail.report(error)
        elif error and self._server is not None:
            LOG.warning("mail %r to %s not sent: %s", mail.subject, ", ".join(mail.recipients), error)

    def _send(self, mail: QueuedMail, hello: str) -> str:
        import smtplib

        smtp = smtplib.SMTP(local_hostname=hello, timeout=self._step)
        over_time = threading.Timer(self._longest, _hang_up, (smtp,))
        over_time.daemon = True
        over_time.start()
        try:
            host, _, port = (self._server or "").partition(":")
            smtp.connect(host, int(port) if port else _SMTP_PORT)
            refused = smtp.send_message(self._message(mail, hello))
            with suppress(OSError, smtplib.SMTPException):  # the server has accepted the mail
                smtp.quit()
        except Exception as error:  # noqa: BLE001 - an error of one mail may not stop the others
            return str(error) or type(error).__name__
        finally:
            over_time.cancel()
            smtp.close()
        return f"refused for {', '.join(refused)}" if refused else ""

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


def _hang_up(smtp: "smtplib.SMTP") -> None:
    """Interrupt a dialogue that takes too long: the waiting thread gets an error."""
    if smtp.sock is not None:
        with suppress(OSError):
            smtp.sock.shutdown(socket.SHUT_RDWR)


def _header(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable.encode("utf-8", "replace").decode()

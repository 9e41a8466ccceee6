"""Mail to administrators and users, and lines to the oarsub that waits for its job.

Nothing here raises for what fails outside: a notice is best effort, and its sender has better things to do.
"""

import errno
import logging
import os
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oar.lib.config import Config

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

LOG = logging.getLogger(__name__)

#: Mails of one subject to the administrator within an hour; what comes beyond is told in one digest.
MOST_PER_HOUR = 20
_HOUR = 3600.0
#: Seconds for one step of the talk with the mail server, and for one mail.
_STEP = 20.0
_LONGEST = 60.0
#: How many mails to the administrator may wait, and how many to users.
_MOST_URGENT, _MOST_OF_USERS = 1000, 1000
_SMTP_PORT = 25


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail on its way.  ``told`` gets "" or what went wrong."""

    recipients: tuple[str, ...]
    subject: str
    text: str
    told: Callable[[str], None] | None = None
    is_limited: bool = False  #: counts against the mails of its subject within an hour
    owner: str = ""  #: the user whose job it is about


class Waiting:
    """Mails that wait: those to the administrator first, then one of each user in turn.

    Where there is no more place, who has most gives one to those who have less.
    """

    def __init__(self, most_urgent: int = _MOST_URGENT, most_of_users: int = _MOST_OF_USERS) -> None:
        self._most_urgent = most_urgent
        self._most_of_users = most_of_users
        self._urgent: deque[Letter] = deque()
        self._of_users: OrderedDict[str, deque[Letter]] = OrderedDict()
        self._number = 0  #: of those to users

    def __len__(self) -> int:
        return len(self._urgent) + self._number

    def add(self, letter: Letter) -> Letter | None:
        """Let a mail wait; return the one for which there is no place, None if there is."""
        if letter.is_limited:
            if len(self._urgent) >= self._most_urgent:
                return letter
            self._urgent.append(letter)
            return None
        self._of_users.setdefault(letter.owner, deque()).append(letter)
        self._number += 1
        return self._newest_of_most(letter.owner) if self._number > self._most_of_users else None

    def _newest_of_most(self, newcomer: str) -> Letter:
        owner = max((newcomer, *self._of_users), key=lambda each: len(self._of_users[each]))
        letters = self._of_users[owner]
        letter = letters.pop()
        if not letters:
            del self._of_users[owner]
        self._number -= 1
        return letter

    def take(self) -> Letter | None:
        """Return the next one; None if none waits."""
        if self._urgent:
            return self._urgent.popleft()
        if not self._of_users:
            return None
        owner, letters = self._of_users.popitem(last=False)
        letter = letters.popleft()
        if letters:
            self._of_users[owner] = letters
        self._number -= 1
        return letter


class Mailer:
    """Sends mails in the background, those to the administrator first; does nothing where oar.conf names no mail server
    or no sender.

    Each mail is tried once (server.md 8.2).  A mail server that does not answer holds up nothing but mails, and a user
    who is told of many jobs holds up no mail to the administrator or to another user.
    """

    def __init__(self, config: Config, *, step: float = _STEP, longest: float = _LONGEST) -> None:
        self._server = config.mail_smtp_server
        self._sender = config.mail_sender
        self._administrators = tuple(config.mail_recipient or ())
        self.instance = config.instance_name or socket.gethostname()
        self._step = step
        self._longest = longest
        self._letters = Waiting()
        self._changed = threading.Condition()  #: of what waits, or the end has come
        self._is_closed = False
        self._limit = HourlyLimit(MOST_PER_HOUR)
        self._thread: threading.Thread | None = None

    def administrators(self, subject: str, text: str) -> None:
        """Mail the administrators; at most 20 of a subject within an hour, then one digest."""
        if self._administrators:
            self._post(Letter(self._administrators, subject, text, is_limited=True))

    def user(
        self,
        recipients: Sequence[str],
        subject: str,
        text: str,
        told: Callable[[str], None] | None = None,
        owner: str = "",
    ) -> None:
        """Mail a user; ``told`` is called, in another thread, with "" or with what went wrong."""
        self._post(Letter(tuple(recipients), subject, text, told, owner=owner))

    def close(self, deadline: float) -> None:
        """Send what waits, for at most ``deadline`` seconds."""
        if self._thread is not None:
            with self._changed:
                self._is_closed = True
                self._changed.notify()
            self._thread.join(deadline)  # it may have more to do than the time that is left: it ends with us

    def _post(self, letter: Letter) -> None:
        if self._server is None or self._sender is None:
            self._tell(letter, "mail is not configured")
            return
        with self._changed:
            refused = self._letters.add(letter)
            self._changed.notify()
        if refused is not None:
            self._tell(refused, "too many mails are waiting")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mailer", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        hello = socket.getfqdn()
        is_over = False
        while not is_over:
            with self._changed:
                pause = self._limit.next_digest(time.monotonic())
                self._changed.wait_for(lambda: self._letters or self._is_closed, pause)
                letter = self._letters.take()
                is_over = letter is None and self._is_closed
            letters = [letter] if letter else []
            for one in (*self._digests(everything=is_over), *filter(self._may_pass, letters)):
                self._tell(one, self._send(one, hello))

    def _digests(self, *, everything: bool) -> list[Letter]:
        ready = self._limit.digests(time.monotonic(), everything=everything)
        return [
            Letter(self._administrators, f"{subject} (digest)", f"{count} more mails with this subject.")
            for subject, count in ready
        ]

    def _may_pass(self, letter: Letter) -> bool:
        return not letter.is_limited or self._limit.allows(letter.subject, time.monotonic())

    def _tell(self, letter: Letter, problem: str) -> None:
        if letter.told is not None:
            letter.told(problem)
        elif problem and self._server is not None:
            LOG.warning("mail %r to %s not sent: %s", letter.subject, ", ".join(letter.recipients), problem)

    def _send(self, letter: Letter, hello: str) -> str:
        import smtplib

        smtp = smtplib.SMTP(local_hostname=hello, timeout=self._step)
        over_time = threading.Timer(self._longest, _hang_up, (smtp,))
        over_time.daemon = True
        over_time.start()
        try:
            host, _, port = (self._server or "").partition(":")
            smtp.connect(host, int(port) if port else _SMTP_PORT)
            refused = smtp.send_message(self._message(letter, hello))
            with suppress(OSError, smtplib.SMTPException):  # it has the mail
                smtp.quit()
        except Exception as error:  # noqa: BLE001 - whatever becomes of this mail, the others are sent
            return str(error) or type(error).__name__
        finally:
            over_time.cancel()
            smtp.close()
        return f"refused for {', '.join(refused)}" if refused else ""

    def _message(self, letter: Letter, hello: str) -> "EmailMessage":
        from email.message import EmailMessage
        from email.utils import formatdate, make_msgid

        message = EmailMessage()
        message["From"] = _header(self._sender or "")
        message["To"] = _header(", ".join(letter.recipients))
        message["Subject"] = _header(letter.subject)
        message["Date"] = formatdate(localtime=True)
        message["Message-ID"] = make_msgid(domain=hello)
        message["Auto-Submitted"] = "auto-generated"  # no notice of absence comes back
        message.set_content(letter.text.encode("utf-8", "replace").decode())
        return message


def _hang_up(smtp: "smtplib.SMTP") -> None:
    """End a talk that takes too long: who waits in it gets an error."""
    if smtp.sock is not None:
        with suppress(OSError):
            smtp.sock.shutdown(socket.SHUT_RDWR)


def _header(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable.encode("utf-8", "replace").decode()


class HourlyLimit:
    """Lets ``most`` things of a name pass within an hour, and counts the others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._passed: dict[str, deque[float]] = {}
        self._held: dict[str, int] = {}

    def allows(self, name: str, now: float) -> bool:
        """Whether one more may pass at ``now``."""
        passed = self._recent(name, now)
        if len(passed) < self._most:
            passed.append(now)
            return True
        self._held[name] = self._held.get(name, 0) + 1
        return False

    def digests(self, now: float, *, everything: bool = False) -> list[tuple[str, int]]:
        """Names of which some were held back and may pass again, with how many; forgets them."""
        ready = [name for name in self._held if everything or len(self._recent(name, now)) < self._most]
        return [(name, self._held.pop(name)) for name in ready]

    def next_digest(self, now: float) -> float | None:
        """Seconds until one of those that were held back may pass again; None if none was."""
        return min((max(0.0, self._passed[name][0] + _HOUR - now) for name in self._held), default=None)

    def _recent(self, name: str, now: float) -> deque[float]:
        passed = self._passed.setdefault(name, deque())
        while passed and passed[0] <= now - _HOUR:
            passed.popleft()
        return passed


#: Said of an address at which nobody listens: the oarsub is gone, and not only out of reach.
REFUSED = os.strerror(errno.ECONNREFUSED)


def tell_oarsub(address: str, line: str, timeout: float) -> str:
    """Send one line to the oarsub that waits at ``host:port``; "" or what went wrong, ``REFUSED`` if nobody is."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        return f"'{address}' is not host:port"
    text = "".join(character if character.isprintable() else " " for character in line)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
            connection.sendall(text.encode("utf-8", "replace") + b"\n")
    except ConnectionRefusedError:
        return REFUSED
    except (OSError, UnicodeError) as error:
        return str(error) or type(error).__name__
    return ""

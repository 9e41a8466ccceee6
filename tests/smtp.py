"""A mail server for tests, in a test or as a program: ``python3 smtp.py PORT`` prints each mail as a line of JSON.

Whom a mail is for decides what becomes of it: ``refused@`` is refused, for ``silent@`` the server says nothing more,
``dripping@`` gets an answer that never ends, ``busy@`` is accepted at the second attempt.
"""

from __future__ import annotations

import json
import socketserver
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass

_DRIP_SECONDS = 0.05
_SILENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Mail:
    """A mail as it came: envelope and text."""

    sender: str
    recipients: tuple[str, ...]
    text: str


class _Talk(socketserver.StreamRequestHandler):
    """One client."""

    server: MailServer
    timeout = _SILENCE_SECONDS

    def handle(self) -> None:
        """Answer line by line."""
        self._say("220 here")
        sender, recipients = "", list[str]()
        while line := self.rfile.readline().decode():
            verb = line.upper()
            if verb.startswith("MAIL FROM:"):
                sender, recipients = _address(line), []
            elif verb.startswith("RCPT TO:"):
                recipients.append(_address(line))
            if verb.startswith("RCPT") and self._is_busy(recipients[-1]):
                recipients.pop()
                self._say("450 try again later")
            elif verb.startswith("RCPT") and not self._takes(recipients[-1]):
                recipients.pop()
                self._say("550 no such user")
            elif verb.startswith("DATA"):
                self._say("354 go on")
                self.server.keep(Mail(sender, tuple(recipients), self._text()))
                self._say("250 ok")
            else:
                self._say("221 bye" if verb.startswith("QUIT") else "250 ok")

    def _is_busy(self, recipient: str) -> bool:
        self.server.attempts[recipient] += 1
        return recipient.startswith("busy@") and self.server.attempts[recipient] == 1

    def _takes(self, recipient: str) -> bool:
        name = recipient.partition("@")[0]
        if name == "silent":
            self.rfile.readline()
        if name == "dripping":
            self._drip()
        return name != "refused"

    def _drip(self) -> None:
        try:
            while True:
                self.wfile.write(b"2")
                time.sleep(_DRIP_SECONDS)
        except OSError:
            return

    def _text(self) -> str:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.decode().replace("\r\n", "\n"))
        return "".join(lines)

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    """Keeps the mails that come."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        """Listen on a port of this computer; 0: on any that is free."""
        super().__init__(("127.0.0.1", port), _Talk)
        self.mails: list[Mail] = []
        self.attempts: Counter[str] = Counter()  #: by recipient

    @property
    def address(self) -> str:
        """Where it listens, as in oar.conf."""
        return f"127.0.0.1:{self.server_address[1]}"

    def keep(self, mail: Mail) -> None:
        """Take a mail."""
        self.mails.append(mail)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hang up."""


class _Printer(MailServer):
    _mutex = threading.Lock()

    def keep(self, mail: Mail) -> None:
        """Print it."""
        with self._mutex:
            sys.stdout.write(json.dumps(asdict(mail)) + "\n")
            sys.stdout.flush()


def _address(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]


if __name__ == "__main__":
    with _Printer(int(sys.argv[1])) as printer:
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        printer.serve_forever()

"""A mail server in a room, and the mails that came there."""

from __future__ import annotations

import contextlib
import email
import email.policy
import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path

from tests.acceptance.harness import PATIENCE, TOOL, Cluster

#: The port at which the server of the room sends its mails.
MAIL_PORT = 2525
_SMTP = Path(__file__).resolve().parent.parent / "smtp.py"


@dataclass
class Post:
    """The mails that came so far."""

    mails: list[EmailMessage] = field(default_factory=list)

    def to(self, recipient: str) -> list[tuple[str, str]]:
        """Subject and text of each mail to somebody."""
        mine = [mail for mail in self.mails if mail["To"] == recipient]
        return [(mail["Subject"], str(mail.get_payload()).strip()) for mail in mine]

    def tags(self, recipient: str) -> list[str]:
        """What the mails to somebody were about."""
        return [subject.partition("[")[2].partition("]")[0] for subject, _ in self.to(recipient)]


@contextlib.contextmanager
def mail_server(cluster: Cluster) -> Iterator[Post]:
    """A mail server on the server of the room."""
    post = Post()
    with _SMTP.open() as program:
        server = subprocess.Popen(
            [str(TOOL), "--room", cluster.room, "run", "carol", "python3", "-", str(MAIL_PORT)],
            stdin=program,
            stdout=subprocess.PIPE,
            text=True,
        )
    assert server.stdout is not None
    assert server.stdout.readline() == "listening\n"

    def read(lines: Iterator[str]) -> None:
        for line in lines:
            post.mails.append(email.message_from_string(json.loads(line)["text"], policy=email.policy.default))

    reader = threading.Thread(target=read, args=(iter(server.stdout),))
    reader.start()
    try:
        yield post
    finally:
        cluster.as_user("carol").run("kill $(pgrep -u carol -f '^python3 - ')")
        server.wait(PATIENCE)
        reader.join(PATIENCE)
        server.stdout.close()

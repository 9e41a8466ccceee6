"""The session file of a program that runs in a job: it is in the home of the user, who alone can read it.

The launcher in the job writes it (oar/tools/app_launcher.py).  The user can write into it whatever he likes, so all
values are checked.  The host is never read from it.
"""

import json
import os
import re
import socket
from typing import NamedTuple

#: Bytes of a session file, at most.
LARGEST = 4096
_TOKEN = r"[0-9a-f]{64}"
_PATH = r"/[!-~]{0,500}"


class AppSession(NamedTuple):
    """A program that listens."""

    job_id: int
    app: str
    family: int  #: 4 or 6: the version of IP on which it listens
    port: int
    token: str
    path: str  #: path and query of its first page

    @property
    def has_token_in_path(self) -> bool:
        """Whether the first page needs no password."""
        return self.token in self.path


def session_path(home: str, instance: str, job_id: int) -> str:
    """Return the path of the session file of a job."""
    return os.path.join(home, ".oar", "apps", instance, f"{job_id}.json")


def parse_session(data: bytes, job_id: int, ports: tuple[int, int]) -> AppSession | None:
    """Return the session of a job, None if the file has no valid one; ``ports``: those of the site."""
    try:
        record = json.loads(data[:LARGEST])
        job, app, family = record["job"], record["app"], record["family"]
        port, token, path = record["port"], record["token"], record["path"]
    except (ValueError, TypeError, KeyError):
        return None
    are_numbers = all(type(value) is int for value in (job, family, port))
    are_texts = all(type(value) is str for value in (app, token, path))
    if not (are_numbers and are_texts) or job != job_id or family not in (4, 6) or not ports[0] <= port <= ports[1]:
        return None
    if not re.fullmatch(_TOKEN, token) or not re.fullmatch(_PATH, path) or path.startswith("//"):
        return None
    return AppSession(job, app, family, port, token, path) if app.isprintable() else None


def ssh_command(host: str, session: AppSession, login: str) -> str | None:
    """Return the line that forwards a port of the user's computer; None if the host of the job has no address here.

    Another user's process could listen on the same port with the other version of IP, so names are not used.
    ``login``: user and frontend.
    """
    family = socket.AF_INET if session.family == 4 else socket.AF_INET6
    try:
        address = str(socket.getaddrinfo(host, session.port, family, socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None
    target = f"[{address}]" if ":" in address else address
    return f"ssh -N -L {session.port}:{target}:{session.port} {login}"


def local_url(session: AppSession) -> str:
    """Return the address that the user opens while the port is forwarded."""
    return f"http://localhost:{session.port}{session.path}"

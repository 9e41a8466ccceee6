"""The OAR server, as ``oar-agent`` sees it: questions over HTTPS, each answered at once.

A part of ``oar-agent``.  Python >= 3.6, standard library only.  See docs/design/desktop.rst, "Protocol".
"""

import contextlib
import http.client
import json
import os
import urllib.error
import urllib.request

from agent_archives import BLOCK, pour

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO, Any

BAD_USAGE, REFUSED = 1, 2
#: Seconds for an answer.
ANSWER_SECONDS = 60.0
LONGEST_ANSWER = 1 << 26


class AgentError(Exception):
    """Ends the agent: exit code and one line."""

    def __init__(self, code: int, text: str) -> None:
        Exception.__init__(self, text)
        self.code = code


class OarSilent(Exception):
    """The server does not answer, or not now."""


class StayHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the token is for one server."""

    def redirect_request(self, *_: "Any") -> None:
        """Refuse."""


class Parcel:
    """The body of a request: a head, a file, a tail."""

    def __init__(self, head: bytes, file: "IO[bytes]", tail: bytes) -> None:
        self._head, self._file, self._tail = head, file, tail

    def read(self, size: int = BLOCK) -> bytes:
        """Return the next bytes."""
        if self._head:
            head, self._head = self._head, b""
            return head
        block = self._file.read(size)
        if not block:
            block, self._tail = self._tail, b""
        return block


class OarServer:
    """The OAR server, as agents see it: the first of its addresses that answers."""

    def __init__(self, urls: "Sequence[str]", name: str, token: str) -> None:
        """``name``: of this computer."""
        self._urls, self._name, self._token = list(urls), name, token
        self._opener = urllib.request.build_opener(StayHere)

    def ask(self, request: str, **fields: "Any") -> "dict[str, Any]":
        """Return the answer to a question; raise OarSilent, AgentError."""
        with self._open(self._plain(request, fields)) as answer:
            try:
                told = json.loads(answer.read(LONGEST_ANSWER).decode())
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise OarSilent("the answer cannot be read: %s" % error) from None
        if not isinstance(told, dict):
            raise OarSilent("the answer must be an object")
        return told

    def fetch(self, job_id: int, target: "IO[bytes]", most: int) -> None:
        """Write the file of a job to an open one; raise OarSilent, AgentError, NotStarted."""
        with self._open(self._plain("STAGEIN", {"job_id": job_id})) as answer:
            try:
                pour(answer, target, most)
            except (OSError, http.client.HTTPException) as error:
                raise OarSilent("the file was not received: %s" % error) from None

    def send(self, job_id: int, path: str) -> None:
        """Send the results of a job; raise OarSilent, AgentError."""
        border = "oar-%s" % os.urandom(16).hex()
        fields = (("request", "STAGEOUT"), ("hostname", self._name), ("job_id", str(job_id)))
        line = '--%s\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'
        head = "".join(line % (border, name, "") + value + "\r\n" for name, value in fields)
        head += line % (border, "file", '; filename="%d.tgz"\r\nContent-Type: application/gzip' % job_id)
        tail = "\r\n--%s--\r\n" % border
        with open(path, "rb") as file:
            body = Parcel(head.encode(), file, tail.encode())
            size = len(head.encode()) + os.fstat(file.fileno()).st_size + len(tail)
            headers = {"Content-Type": "multipart/form-data; boundary=%s" % border, "Content-Length": str(size)}
            self._open(self._request(body, headers)).close()

    def _plain(self, request: str, fields: "Mapping[str, Any]") -> urllib.request.Request:
        """Return a question without a file."""
        told = dict(fields, request=request, hostname=self._name)
        return self._request(json.dumps(told).encode(), {"Content-Type": "application/json"})

    def _request(self, body: "Any", headers: "Mapping[str, str]") -> urllib.request.Request:
        """Return a request that shows the token."""
        return urllib.request.Request(
            self._urls[0], body, dict(headers, Authorization="Bearer " + self._token), method="POST"
        )

    def _open(self, request: urllib.request.Request) -> "Any":
        """Return the answer, open; raise OarSilent, AgentError."""
        try:
            return self._opener.open(request, timeout=ANSWER_SECONDS)
        except urllib.error.HTTPError as error:
            with error:
                text = "%d %s" % (error.code, problem_in(error))
            if 300 <= error.code < 500 and error.code not in (408, 429):
                raise AgentError(REFUSED, "the server reports: %s" % text) from None
            self._leave(request.full_url)
            raise OarSilent(text) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._leave(request.full_url)
            raise OarSilent(str(getattr(error, "reason", error))) from None

    def _leave(self, url: str) -> None:
        """Use the next address from now on, unless another thread has done that."""
        first, *others = self._urls
        if url == first:
            self._urls = [*others, first]


def problem_in(answer: "Any") -> str:
    with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
        return str(json.loads(answer.read(BLOCK).decode()).get("detail", ""))[:500]
    return ""

"""The log of the server: format, secrets, categories. The runtime sets it up once per process.

Each module has its logger, ``logging.getLogger(__name__)``. Lines about a job are written with ``of_job``, lines about
nodes with ``of_nodes``. A line is one ``write`` to a file opened for appending, so that many processes can share it.
With the journal, a line is one datagram, with job, queue and nodes as fields.

See docs/design/events.rst, "Log".
"""

import json
import logging
import os
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from oar.lib.config.files import Config
from oar.lib.config.kinds import JOURNAL

#: LOG_LEVEL -> lowest level that is written.
_LEVELS = {0: logging.CRITICAL, 1: logging.ERROR, 2: logging.INFO}
_LETTERS = ((logging.ERROR, "E"), (logging.WARNING, "W"), (logging.INFO, "I"))
#: Letter of a line -> its priority in the journal.
_PRIORITIES = {"E": "3", "W": "4", "I": "6", "D": "7"}
_NAMED = {"E": "error", "W": "warning", "I": "info", "D": "debug"}
#: First part of a logger's name -> category of LOG_CATEGORIES; the others are "main".
_CATEGORIES = (("oar.kao", "scheduler"), ("oar.modules.greta", "energy"))
#: Libraries that log too much, each with its lowest level; failures of connections to nodes are logged by our own code.
_VERBOSE_LIBRARIES = {"paramiko": logging.CRITICAL, "asyncio": logging.WARNING}
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: The challenge of an end report, which is hidden wherever it appears in a message.
_CHALLENGE = re.compile(r"(OAREXEC_[0-9]+_[0-9]+_(?:[0-9]+|N)_)[0-9]+")
_LONGEST = 32768

JobLogger = logging.LoggerAdapter[logging.Logger]


def of_job(logger: logging.Logger, job_id: int, *, queue: str = "", nodes: Iterable[str] = ()) -> JobLogger:
    """Return a logger that adds the job to each line, and in the journal also its queue and nodes."""
    return logging.LoggerAdapter(logger, {"job": job_id, "queue": queue, "nodes": tuple(nodes)})


def of_nodes(logger: logging.Logger, *nodes: str) -> JobLogger:
    """Return a logger that adds nodes as fields to each line in the journal."""
    return logging.LoggerAdapter(logger, {"nodes": nodes})


@contextmanager
def logging_to(config: Config, module: str) -> Iterator[None]:
    """Write the log according to the configuration, under the name of ``module``, until the end of the block."""
    set_up(config, module)
    try:
        yield
    finally:
        _take_down()


def set_up(config: Config, module: str) -> None:
    """Replace the log handler, at the start and after a change of the configuration.

    The handler belongs to the root logger, since a module that runs as a program is named ``__main__``.
    """
    handler: ServerHandler
    if config.log_file == JOURNAL:
        handler = JournalHandler(Journal(), module, _secrets(config))
    else:
        handler = LineHandler(config.log_file, config.log_format, module, _secrets(config))
    handler.addFilter(_CategoryFilter(config.log_categories))
    root = logging.getLogger()
    _take_down()
    handler.former_level = root.level
    root.addHandler(handler)
    root.setLevel(_LEVELS.get(config.log_level, logging.DEBUG))
    for name, level in _VERBOSE_LIBRARIES.items():
        logging.getLogger(name).setLevel(level)


def _take_down() -> None:
    """Remove the log handler, and restore the level of the root logger."""
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, ServerHandler)]:
        root.removeHandler(old)
        root.setLevel(old.former_level)
        old.close()


def _secrets(config: Config) -> tuple[str, ...]:
    values = (str(getattr(config, option.name) or "") for option in Config.options() if option.secret)
    return tuple(sorted({value for value in values if len(value) >= 4}, key=len, reverse=True))


def camel_case(name: str) -> str:
    """Return the name of a module in the log.

    >>> camel_case("node_change_state")
    'NodeChangeState'
    """
    return "".join(part.capitalize() for part in name.split("_"))


def escaped(text: str) -> str:
    """Return a text on one line, without control characters."""
    return _CONTROL.sub(lambda match: _SHORT.get(match[0]) or _code(ord(match[0])), text)


def _code(number: int) -> str:
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


class _CategoryFilter(logging.Filter):
    """Accept errors, warnings, and all lines of the selected categories."""

    def __init__(self, categories: Sequence[str]) -> None:
        super().__init__()
        self._categories = frozenset(category.lower() for category in categories)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING or "all" in self._categories:
            return True
        for prefix, category in _CATEGORIES:
            if record.name.startswith(prefix):
                return category in self._categories
        return "main" in self._categories


class ServerHandler(logging.Handler):
    """Base of the log handlers: format the message of a record, without secrets."""

    def __init__(self, module: str, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._module = module
        self._secrets = tuple(secrets)
        self.former_level = logging.WARNING  #: of the root logger, before this handler was its own

    def _message(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + (self.formatter or logging.Formatter()).formatException(record.exc_info)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return escaped(_CHALLENGE.sub(r"\1***", text))[:_LONGEST]


def _letter(record: logging.LogRecord) -> str:
    return next((letter for level, letter in _LETTERS if record.levelno >= level), "D")


class JournalHandler(ServerHandler):
    """Write records to the journal, or to standard error if the journal does not accept them."""

    def __init__(self, journal: "Journal", module: str, secrets: Sequence[str] = ()) -> None:
        super().__init__(module, secrets)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        fields = self.fields(record)
        try:
            self._journal.send(fields)
        except OSError as error:
            line = f"{dict(fields)['MESSAGE']}\ncannot write to the journal: {error.strerror or error}\n"
            try:
                os.write(2, line.encode("utf-8", "backslashreplace"))
            except OSError:
                return

    def fields(self, record: logging.LogRecord) -> list[tuple[str, str]]:
        """Return the fields of a record: its message, and the job, queue and nodes that it concerns."""
        fields = [
            ("MESSAGE", self._message(record)),
            ("PRIORITY", _PRIORITIES[_letter(record)]),
            ("SYSLOG_IDENTIFIER", "oar"),
            ("MODULE", self._module),
        ]
        about = [("JOB", str(getattr(record, "job", "") or "")), ("QUEUE", getattr(record, "queue", ""))]
        about += [("NODE", node) for node in getattr(record, "nodes", ())]
        return fields + [(name, value) for name, value in about if value]

    def close(self) -> None:
        """Close the connection to the journal."""
        self._journal.close()
        super().close()


class LineHandler(ServerHandler):
    """Write each record as one line. Reopen the file if it was moved."""

    def __init__(self, path: str, layout: str, module: str, secrets: Sequence[str] = ()) -> None:
        super().__init__(module, secrets)
        self._path = path
        self._layout = layout
        self._file = {":stdout:": 1, ":stderr:": 2}.get(path, -1)
        self._is_regular = self._file == -1  #: not one of the standard streams

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, to standard error if the file cannot be written."""
        line = self.line(record).encode("utf-8", "backslashreplace") + b"\n"
        try:
            os.write(self._open(), line)
        except OSError as error:
            try:
                os.write(2, line + f"cannot write {self._path}: {error.strerror}\n".encode())
            except OSError:
                return

    def line(self, record: logging.LogRecord) -> str:
        """Return the text of a record, without the newline."""
        letter = _letter(record)
        date = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03d}"
        job = str(getattr(record, "job", "") or "")
        message = self._message(record)
        if self._layout != "json":
            return self._layout % (letter, date, self._module, record.process, job, message)
        fields = {
            "level": _NAMED[letter],
            "date": date,
            "module": self._module,
            "pid": record.process,
            "job": int(job) if job else None,
            "message": message,
        }
        return json.dumps(fields, ensure_ascii=False)

    def _open(self) -> int:
        """Return the file descriptor. Reopen the file if the path now refers to another file."""
        if not self._is_regular:
            return self._file
        if self._file >= 0 and not self._moved():
            return self._file
        self._shut()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        return self._file

    def _moved(self) -> bool:
        """Return whether the path refers to another file: logrotate has moved the open one."""
        mine = os.fstat(self._file)
        if not stat.S_ISREG(mine.st_mode):
            return False
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)

    def _shut(self) -> None:
        if self._is_regular and self._file >= 0:
            os.close(self._file)
            self._file = -1

    def close(self) -> None:
        self._shut()
        super().close()


# -- the journal of systemd: its native protocol, lines with fields by which ``journalctl`` filters --------------------

#: Where the journal listens.
SOCKET = "/run/systemd/journal/socket"

#: Seconds that a journal may need to take a line.
PATIENCE = 5.0


def datagram(fields: Iterable[tuple[str, str]]) -> bytes:
    r"""Return fields in the format of the journal. A name may be repeated.

    >>> datagram([("MESSAGE", "job ended"), ("JOB", "12")])
    b'MESSAGE=job ended\nJOB=12\n'
    """
    return b"".join(_field(name.encode(), value.encode("utf-8", "backslashreplace")) for name, value in fields)


def _field(name: bytes, value: bytes) -> bytes:
    """Return one field. A value of several lines follows its length."""
    if b"\n" not in value:
        return name + b"=" + value + b"\n"
    return name + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


class Journal:
    """A connection to the journal, opened at the first line, and opened again in a forked process."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._opener = 0

    def send(self, fields: Iterable[tuple[str, str]]) -> None:
        """Write a line.  Raises OSError."""
        self._opened().sendto(datagram(fields), self._path)

    def _opened(self) -> socket.socket:
        if self._socket is None or self._opener != os.getpid():
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(PATIENCE)
            self._opener = os.getpid()
        return self._socket

    def close(self) -> None:
        """Close the connection. The next line opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

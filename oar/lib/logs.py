"""Lines of the server's log (server.md 8.1), set up once per process, by the runtime.

Each module has its logger, ``logging.getLogger(__name__)``; a line about a job carries ``extra={"job": job_id}``, or is
written through ``of_job``.  A line is one ``write`` to a file opened for appending, so that many processes share it.
"""

import json
import logging
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oar.lib.config import Config

#: LOG_LEVEL -> what is written.
_LEVELS = {0: logging.CRITICAL, 1: logging.ERROR, 2: logging.INFO}
_LETTERS = ((logging.ERROR, "E"), (logging.WARNING, "W"), (logging.INFO, "I"))
_NAMED = {"E": "error", "W": "warning", "I": "info", "D": "debug"}
#: First part of a logger's name -> category of LOG_CATEGORIES; the others are "main".
_CATEGORIES = (("oar.kao", "scheduler"), ("oar.modules.greta", "energy"))
#: Libraries that tell what only their authors want to know; what fails on the way to a node is told once, by us.
_TALKATIVE = {"paramiko": logging.CRITICAL, "asyncio": logging.WARNING}
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: The challenge of an end report, wherever it slips into a message.
_CHALLENGE = re.compile(r"(OAREXEC_[0-9]+_[0-9]+_(?:[0-9]+|N)_)[0-9]+")
_LONGEST = 32768

JobLogger = logging.LoggerAdapter[logging.Logger]


def of_job(logger: logging.Logger, job_id: int) -> JobLogger:
    """The logger that names the job in each line."""
    return logging.LoggerAdapter(logger, {"job": job_id})


@contextmanager
def logging_to(config: Config, module: str) -> Iterator[None]:
    """Write what loggers get as the configuration says, in the name of ``module``, until the end."""
    set_up(config, module)
    try:
        yield
    finally:
        _take_down()


def set_up(config: Config, module: str) -> None:
    """Replace what loggers write to; also after the configuration has changed.

    The root logger is taken, since a module that runs as a program is called ``__main__``.
    """
    handler = LineHandler(config.log_file, config.log_format, module, _secrets(config))
    handler.addFilter(_CategoryFilter(config.log_categories))
    root = logging.getLogger()
    _take_down()
    root.addHandler(handler)
    root.setLevel(_LEVELS.get(config.log_level, logging.DEBUG))
    for name, level in _TALKATIVE.items():
        logging.getLogger(name).setLevel(level)


def _take_down() -> None:
    """Let loggers write nowhere."""
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, LineHandler)]:
        root.removeHandler(old)
        old.close()


def _secrets(config: Config) -> tuple[str, ...]:
    values = (str(getattr(config, option.name) or "") for option in Config.options() if option.secret)
    return tuple(sorted({value for value in values if len(value) >= 4}, key=len, reverse=True))


def spoken(name: str) -> str:
    """Return a module's name as the log has it.

    >>> spoken("node_change_state")
    'NodeChangeState'
    """
    return "".join(part.capitalize() for part in name.split("_"))


def escaped(text: str) -> str:
    """``text`` on one line, without control characters."""
    return _CONTROL.sub(lambda match: _SHORT.get(match[0]) or _code(ord(match[0])), text)


def _code(number: int) -> str:
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


class _CategoryFilter(logging.Filter):
    """Lets errors and warnings pass, and the rest of the wanted categories."""

    def __init__(self, wanted: Sequence[str]) -> None:
        super().__init__()
        self._wanted = frozenset(word.lower() for word in wanted)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING or "all" in self._wanted:
            return True
        for prefix, category in _CATEGORIES:
            if record.name.startswith(prefix):
                return category in self._wanted
        return "main" in self._wanted


class LineHandler(logging.Handler):
    """Writes a record as one line; opens the file again when it was moved away."""

    def __init__(self, path: str, layout: str, module: str, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._path = path
        self._layout = layout
        self._module = module
        self._secrets = tuple(secrets)
        self._file = {":stdout:": 1, ":stderr:": 2}.get(path, -1)
        self._own = self._file == -1

    def emit(self, record: logging.LogRecord) -> None:
        """Write it; without a way to the file, to standard error."""
        line = self.line(record).encode("utf-8", "backslashreplace") + b"\n"
        try:
            os.write(self._open(), line)
        except OSError as error:
            try:
                os.write(2, line + f"cannot write {self._path}: {error.strerror}\n".encode())
            except OSError:
                return

    def line(self, record: logging.LogRecord) -> str:
        """The text of a record, without the newline."""
        letter = next((letter for level, letter in _LETTERS if record.levelno >= level), "D")
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

    def _message(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + (self.formatter or logging.Formatter()).formatException(record.exc_info)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return escaped(_CHALLENGE.sub(r"\1***", text))[:_LONGEST]

    def _open(self) -> int:
        """The file to write to; what stands at the path now."""
        if not self._own:
            return self._file
        if self._file >= 0 and not self._moved():
            return self._file
        self._shut()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        return self._file

    def _moved(self) -> bool:
        mine = os.fstat(self._file)
        if not stat.S_ISREG(mine.st_mode):
            return False
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)

    def _shut(self) -> None:
        if self._own and self._file >= 0:
            os.close(self._file)
            self._file = -1

    def close(self) -> None:
        """Close the file."""
        self._shut()
        super().close()

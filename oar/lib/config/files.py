"""oar.conf: parse its text to a ``Config``, and render the sample file from the declarations.

All errors of a file are collected at once, each with file, line and key. The caller decides the consequence of an
invalid value: the server does not start, a command uses the default and prints a warning.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from oar.lib.config.keys import UNREAD, Config
from oar.lib.config.kinds import Key

__all__ = ["Config", "ConfigProblem", "Parsed", "option_of", "parse", "sample"]

#: API_SECRET_KEY of the file that OAR 3 delivers: with it anybody could sign tokens for any user.
_PUBLISHED_KEY = "3f22a0a65212bfb6cdf0dc4b39be189b3c89c6c2c8ed0d1655e0df837145208b"
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)\Z", re.ASCII)
_COMMENT = re.compile(r"(?:\A|\s)#.*\Z")


class ConfigProblem(NamedTuple):
    """A problem in a configuration file."""

    origin: str
    line: int  #: 0 = not one line's fault
    key: str
    text: str

    def __str__(self) -> str:
        where = f"{self.origin}:{self.line}" if self.line else self.origin
        return f"{where}: {self.key}: {self.text}" if self.key else f"{where}: {self.text}"


#: Makes a problem of a key, another key that it depends on, and a text.
_Problem = Callable[[str, str, str], ConfigProblem]


class Parsed(NamedTuple):
    """The content of a file: the values (defaults for missing or invalid ones), and the problems."""

    config: Config
    errors: tuple[ConfigProblem, ...]
    warnings: tuple[ConfigProblem, ...]
    origins: Mapping[str, str]  #: key -> "file:line", only keys that the file sets
    unread: tuple[ConfigProblem, ...] = ()  #: keys of other versions: known, and without effect


class _Assignment(NamedTuple):
    line: int
    key: str
    text: str


class _BadLineError(ValueError):
    """A line that is not an assignment."""


def parse(text: str, origin: str = "oar.conf") -> Parsed:
    """Parse the text of oar.conf. ``origin`` is the name of the file in messages.

    >>> parse("SERVER_PORT=7777  # ours").config.server_port
    7777
    >>> str(parse("SERVER_PORT=x", "/etc/oar/oar.conf").errors[0])
    '/etc/oar/oar.conf:1: SERVER_PORT: write a whole number'
    """
    names = _names()
    values: dict[str, Any] = {}
    places: dict[str, int] = {}
    errors: list[ConfigProblem] = []
    warnings: list[ConfigProblem] = []
    unread: list[ConfigProblem] = []
    for item in _assignments(text, origin, errors):
        option = names.get(item.key)
        if option is None:
            warnings.append(
                ConfigProblem(origin, item.line, item.key, f"unknown key, ignored{_nearest(item.key, names)}")
            )
            continue
        if option.key in places:
            warnings.append(
                ConfigProblem(origin, item.line, item.key, f"set again: line {places[option.key]} is ignored")
            )
        places[option.key] = item.line
        if option.name in UNREAD:
            unread.append(ConfigProblem(origin, item.line, item.key, "not in this version, it has no effect"))
        values.pop(option.name, None)
        try:
            values[option.name] = option.read(item.text)
        except ValueError as error:
            errors.append(ConfigProblem(origin, item.line, item.key, str(error)))
            continue
        if option.fixed and values[option.name] != option.default:
            warnings.append(ConfigProblem(origin, item.line, item.key, f"has no effect: {_clause(option.doc)}"))
        if option.same_as and item.text == "":
            del values[option.name]
    config = Config(**values)
    config = _agree(config, origin, places, errors, warnings)
    origins = {key: f"{origin}:{line}" for key, line in places.items()}
    return Parsed(config, tuple(errors), tuple(warnings), origins, tuple(unread))


def _clause(sentence: str) -> str:
    """Return a sentence as the end of another one, in lower case unless it begins with a name in capitals."""
    first = sentence.split(maxsplit=1)[0]
    is_name = sum(letter.isupper() for letter in first) > 1
    return (sentence if is_name else sentence[0].lower() + sentence[1:]).rstrip(".")


def option_of(key: str) -> "Key[Any] | None":
    """Return the declaration of a key, also by an older name, None if there is none."""
    return _names().get(key.upper())


def _names() -> "dict[str, Key[Any]]":
    names: dict[str, Key[Any]] = {}
    for option in Config.options():
        names[option.key] = option
        names.update(dict.fromkeys(option.aliases, option))
    return names


def _nearest(key: str, names: Iterable[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(key.upper(), list(names), n=1)
    return f"; the nearest known key is {nearest[0]}" if nearest else ""


# -- syntax: assignments of a shell, without its expansions -----------------------------------------------------------


def _assignments(text: str, origin: str, errors: list[ConfigProblem]) -> Iterator[_Assignment]:
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _ASSIGNMENT.match(line.rstrip())
        if match is None:
            errors.append(ConfigProblem(origin, number, "", 'not an assignment: write KEY="value"'))
            continue
        try:
            yield _Assignment(number, match[1], _value(match[2]))
        except _BadLineError as error:
            errors.append(ConfigProblem(origin, number, match[1], str(error)))


def _value(text: str) -> str:
    """Return the value in the text after ``=``."""
    if text[:1] not in ("'", '"'):
        return _COMMENT.sub("", text).strip()
    value, following = _single_quoted(text) if text[0] == "'" else _double_quoted(text)
    if _COMMENT.sub("", following).strip() or following.startswith("#"):
        raise _BadLineError("text after the closing quote")
    return value


def _single_quoted(text: str) -> tuple[str, str]:
    end = text.find("'", 1)
    if end < 0:
        raise _BadLineError("the quote is not closed on this line")
    return text[1:end], text[end + 1 :]


def _double_quoted(text: str) -> tuple[str, str]:
    """Parse like bash: a backslash quotes only a backslash, a double quote, a dollar sign and a backquote."""
    parts: list[str] = []
    position = 1
    while position < len(text):
        character = text[position]
        if character == '"':
            return "".join(parts), text[position + 1 :]
        if character == "\\" and text[position + 1 : position + 2] in ("\\", '"', "$", "`"):
            position += 1
            character = text[position]
        parts.append(character)
        position += 1
    raise _BadLineError("the quote is not closed on this line")


# -- dependencies between values --------------------------------------------------------------------------------------


def _agree(
    config: Config, origin: str, places: Mapping[str, int], errors: list[ConfigProblem], warnings: list[ConfigProblem]
) -> Config:
    """Check values that depend on each other. The defaults are consistent, so one of the keys is in the file."""

    def problem(key: str, other: str, text: str) -> ConfigProblem:
        return ConfigProblem(origin, places.get(key) or places.get(other, 0), key, text)

    if config.jobdel_walltime <= config.jobdel_softwalltime:
        least = config.jobdel_softwalltime + 1
        warnings.append(
            problem("JOBDEL_WALLTIME", "JOBDEL_SOFTWALLTIME", f"must be above JOBDEL_SOFTWALLTIME: {least} is used")
        )
        config = config.replace(jobdel_walltime=least)
    if config.job_kill_grace >= config.jobdel_softwalltime:
        errors.append(problem("JOB_KILL_GRACE", "JOBDEL_SOFTWALLTIME", "must be below JOBDEL_SOFTWALLTIME"))
    if config.taktuk_cmd:
        text = (
            "checks nodes, if PINGCHECKER_TAKTUK_ARG_COMMAND is set; jobs are prepared over ssh connections that stay"
        )
        warnings.append(problem("TAKTUK_CMD", "", f"{text}: they need no taktuk"))
    if config.energy_saving_window_timeout <= config.energy_saving_window_time:
        errors.append(
            problem(
                "ENERGY_SAVING_WINDOW_TIMEOUT", "ENERGY_SAVING_WINDOW_TIME", "must be above ENERGY_SAVING_WINDOW_TIME"
            )
        )
    if config.energy_saving_internal and not (config.sleep_command or config.wake_command):
        keys = "ENERGY_SAVING_NODE_MANAGER_SLEEP_CMD", "ENERGY_SAVING_NODE_MANAGER_WAKE_UP_CMD"
        warnings.append(problem("ENERGY_SAVING_INTERNAL", "", f"no effect without {keys[0]} or {keys[1]}"))
    if config.greta_port and not config.energy_saving_internal:
        warnings.append(problem("GRETA_PORT", "", "no effect without ENERGY_SAVING_INTERNAL"))
    if config.api_secret_key == _PUBLISHED_KEY:
        text = "the published default key of OAR 3 is not used: create a key with openssl rand -hex 32"
        warnings.append(problem("API_SECRET_KEY", "", text))
        config = config.replace(api_secret_key=None)
    _agree_on_ports(config, problem, errors)
    _agree_on_mail(config, problem, warnings)
    window = config.scheduler_fairsharing_window_size
    if 0 < config.retention_accounting * 86400 < window:
        text = (
            f"must be at least SCHEDULER_FAIRSHARING_WINDOW_SIZE, {window} s: the fair share does not count purged jobs"
        )
        warnings.append(problem("RETENTION_ACCOUNTING", "SCHEDULER_FAIRSHARING_WINDOW_SIZE", text))
    return config


def _agree_on_ports(config: Config, problem: _Problem, errors: list[ConfigProblem]) -> None:
    """Report ports of the server that are used twice."""
    taken = {config.server_port: "SERVER_PORT"}
    for option in (Config.appendice_server_port, Config.bipbip_commander_port, Config.greta_port):
        port = getattr(config, option.name)
        first = taken.setdefault(port, option.key) if port else option.key
        if first != option.key:
            text = f"{port} is also {first}: use a different port for each ({option.default or 'a free one'})"
            errors.append(problem(option.key, first, text))


def _agree_on_mail(config: Config, problem: _Problem, warnings: list[ConfigProblem]) -> None:
    """Report incomplete mail settings."""
    options = (Config.mail_smtp_server, Config.mail_sender, Config.mail_recipient)
    given = [option.key for option in options if getattr(config, option.name)]
    missing = [option.key for option in options if option.key not in given]
    if given and missing:
        text = f"the administrator gets no mail: {' and '.join(missing)} must be set, too"
        warnings.append(problem(given[0], "", text))


# -- the sample file --------------------------------------------------------------------------------------------------

#: Name of the first option of each group of the sample file -> title of the group.
GROUPS: Mapping[str, str] = {
    "db_type": "Database",
    "server_hostnames": "Server and bus",
    "log_level": "Log and mail",
    "oarsub_default_resources": "Submission and display",
    "desktop_computing_allow_create_node": "Desktop computing",
    "detach_job_from_server": "Execution of jobs",
    "openssh_cmd": "Remote access",
    "finaud_frequency": "Health of the nodes",
    "suspend_resume_file": "Suspending jobs",
    "job_resource_manager_property_db_field": "Job resource manager",
    "oarsh_oarstat_cmd": "oarsh",
    "scheduler_min_time_between_2_calls": "Scheduling",
    "walltime_change_enabled": "Changes of walltime (all but the first also as a table by queue, _ = other queues)",
    "scheduler_node_manager_idle_time": "Energy saving",
    "api_root_path": "API and web pages",
    "phoenix_logdir": "oar_phoenix",
    "max_advance_reservations": "Advance reservations",
    "retention_jobs": "Retention and archive",
    "sqlalchemy_pool_size": "Read and without effect",
}

_HEAD = """\
# Configuration of OAR, read by the server, the commands and the API.
#
# Lines are assignments as in a shell: KEY="value".  A key in a comment has the default that it shows.
# oar-conf --check reports errors in this file; oar-conf prints all values and their sources.
"""


def sample() -> str:
    """Return the text of etc/oar.conf: each key with its default and a line of documentation."""
    parts = [_HEAD]
    for option in Config.options():
        if option.name in GROUPS:
            parts.append(f"\n{'#' * 80}\n# {GROUPS[option.name]}\n{'#' * 80}\n")
        parts.append(_entry(option))
    return "".join(parts)


def _entry(option: "Key[Any]") -> str:
    text = option.text(option.default) if option.shipped is None else option.shipped
    notes = "  Not in this version." if option.name in UNREAD else ""
    notes += f"  Older names: {', '.join(option.aliases)}." if option.aliases else ""
    return (
        f"\n# {option.doc}  ({option.kind.name}){notes}\n"
        f"{'#' if option.shipped is None else ''}{option.key}={quoted(text)}\n"
    )


def quoted(text: str) -> str:
    """Return ``text`` as the value of an assignment."""
    escaped = re.sub(r'([\\"$`])', r"\\\1", text) if re.search(r'["$`]|\\[\\"$`]|\\\Z', text) else text
    return f'"{escaped}"'

"""The definitions of programs with web pages: those of OAR, and those of the site in APPS_DIRECTORY.

Each file ``NAME.yaml`` defines the program NAME; it replaces a definition of OAR with the same name.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from oar.lib.apps.builtin import BUILTIN
from oar.lib.base.errors import BadRequest, ConfigError
from oar.lib.base.formats import read_yaml
from oar.lib.base.texts import nearest

NAME = r"[a-z][a-z0-9_-]{0,31}"
SUFFIX = ".yaml"
#: Names in braces that are replaced in the job (``app_launcher.PLACEHOLDER``).
PLACEHOLDERS = ("address", "port", "prefix", "token", "directory", "user", "job")
TOKEN = "{token}"
#: Seconds that a program has to listen on its port.
DEFAULT_SECONDS, MOST_SECONDS = 120, 3600
#: Characters of a file, at most.
LARGEST = 1 << 16


class App(NamedTuple):
    """A program with web pages."""

    name: str
    command: tuple[str, ...] = ()
    title: str = ""
    description: str = ""
    before: str = ""  #: lines that a login shell runs before the program, such as ``module load``
    environment: Mapping[str, str] = {}
    files: Mapping[str, str] = {}  #: content by name, written into the private directory of the job
    path: str = "/"  #: path and query of the first page
    seconds: int = DEFAULT_SECONDS


class Apps(NamedTuple):
    """All programs of a site, and what is wrong in its files."""

    items: Mapping[str, App]
    problems: tuple[str, ...]


def read_apps(directory: str) -> Apps:
    """Return the programs; a file with mistakes defines none, and hides a definition of OAR with its name."""
    items = dict(_builtin())
    problems: list[str] = []
    for file in _files(directory, problems):
        path, name = os.path.join(directory, file), file.removesuffix(SUFFIX)
        items.pop(name, None)
        try:
            with open(path, encoding="utf-8") as source:
                app, found = parse_app(name, read_yaml(_whole(source.read(LARGEST + 1))))
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {getattr(error, 'strerror', None) or error}. Correct the file.")
            continue
        problems += [f"{path}: {problem}." for problem in found]
        if not found:
            items[name] = app
    return Apps(items, tuple(problems))


def _whole(text: str) -> str:
    """Return the text of a file.  Raises ValueError if it was cut."""
    if len(text) > LARGEST:
        raise ValueError(f"the file has more than {LARGEST} characters")
    return text


def find_app(directory: str, name: str) -> App:
    """Return a program by its name.  Raises BadRequest, ConfigError for a file with mistakes."""
    apps = read_apps(directory)
    if name in apps.items:
        return apps.items[name]
    file = os.path.join(directory, f"{name}{SUFFIX}")
    mistake = next((problem for problem in apps.problems if problem.startswith(f"{file}: ")), None)
    if mistake:
        raise ConfigError(mistake)
    known = ", ".join(sorted(apps.items)) or "none"
    raise BadRequest(f"unknown program {name[:60]!r}. Programs of this site: {known}.")


def _builtin() -> Iterator[tuple[str, App]]:
    for name, content in BUILTIN.items():
        app, problems = parse_app(name, content)
        if problems:
            raise ValueError(f"{name}: {problems[0]}")
        yield name, app


def _files(directory: str, problems: list[str]) -> Iterator[str]:
    """Yield the names of the files of a site; note those that are ignored."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(f"{directory}: {error.strerror}.")
        return
    for name in names:
        if re.fullmatch(NAME + re.escape(SUFFIX), name):
            yield name
        elif not name.startswith(".") and name.endswith((SUFFIX, ".yml")):
            wanted = "small letters, digits, _ and -, then .yaml"
            problems.append(f"{os.path.join(directory, name)}: the file is ignored. Rename it: {wanted}.")


# -- one definition ---------------------------------------------------------------------------------------------------


def parse_app(name: str, content: object) -> tuple[App, list[str]]:
    """Return a definition, and all mistakes in it.

    >>> parse_app("x", {"command": "x --token {token} {port}"})[1]
    ['command: {token} would be visible in the list of processes. Use it in environment or files']
    """
    if not isinstance(content, dict):
        return App(name), ["the file must have lines KEY: VALUE"]
    problems: list[str] = []
    fields: dict[str, Any] = {}
    for key, value in content.items():
        read = _READERS.get(str(key))
        if read is None:
            problems.append(f"unknown key {key!r}. Use one of: {', '.join(_READERS)}")
            continue
        try:
            fields[str(key)] = read(value)
        except ValueError as error:
            problems.append(f"{key}: {error}")
    if "command" not in content:
        problems.append("the key command is missing")
    app = App(name, **fields)
    if not problems and not any(TOKEN in text for text in (*app.environment.values(), *app.files.values())):
        problems.append(
            f"nothing uses {TOKEN}: every user of the cluster could open the program. Use it in environment or files"
        )
    return app, problems


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text. Put it in quotes")
    if "\0" in value:
        raise ValueError("a text must not contain NUL")
    return value


def _line(value: object) -> str:
    text = _text(value).strip()
    if not text.isprintable():
        raise ValueError("the text must be one line")
    return text


def _visible(value: object) -> str:
    """Return a text that other users can see in the list of processes."""
    text = _known_names(_text(value))
    if TOKEN in text:
        raise ValueError(f"{TOKEN} would be visible in the list of processes. Use it in environment or files")
    return text


def _known_names(text: str) -> str:
    for name in re.findall(r"\{([a-z_]+)\}", text):
        if name not in PLACEHOLDERS:
            raise ValueError(f"unknown name {{{name}}}. Use one of: {', '.join(PLACEHOLDERS)}")
    return text


def _of_file(text: str) -> str:
    """Return the content of a file, in which braces may mean other things.  Raises ValueError for a misspelt name."""
    for name in re.findall(r"\{(\w+)\}", text):
        if name not in PLACEHOLDERS and (meant := nearest(name, PLACEHOLDERS)):
            raise ValueError(f"unknown name {{{name}}}. Write {{{meant}}}, or choose another name")
    return text


def _command(value: object) -> tuple[str, ...]:
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not str(words[0]).strip():
        raise ValueError("it must be a text or a list of words")
    if not any("{port}" in str(word) for word in words):
        raise ValueError("{port} is missing: the program must listen on the port that the job chooses")
    return tuple(_visible(word) for word in words)


def _path(value: object) -> str:
    text = _known_names(_line(value))
    if not re.fullmatch(r"(/|\{prefix\}/)[!-~]*", text) or text.startswith("//"):
        raise ValueError(f"{text!r} is not a path. It begins with / or {{prefix}}/")
    return text


def _mapping(name: str, check: Callable[[str], str]) -> Callable[[object], Mapping[str, str]]:
    """Return a reader of names and texts; ``name``: what a name looks like; ``check`` is called with each text."""

    def read(value: object) -> Mapping[str, str]:
        if not isinstance(value, dict):
            raise ValueError("it must have lines NAME: TEXT")
        for key, text in value.items():
            if not isinstance(key, str) or not re.fullmatch(name, key):
                raise ValueError(f"bad name {key!r}")
            try:
                check(_text(text))
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        return value

    return read


def _seconds(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_SECONDS:
        raise ValueError(f"{value!r} is not a number from 1 to {MOST_SECONDS}")
    return value


_READERS: Mapping[str, Callable[[object], object]] = {
    "title": _line,
    "description": _line,
    "command": _command,
    "before": _visible,
    "environment": _mapping(r"[A-Za-z_][A-Za-z0-9_]*", _known_names),
    "files": _mapping(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", _of_file),
    "path": _path,
    "seconds": _seconds,
}

"""What a site adds to its pages: a file in YAML, read again when it has changed."""

import logging
import os
from collections.abc import Mapping, Sequence

import yaml

#: What a template of a submission may fill in, as the fields of the form are called.
FIELDS = ("command", "name", "queue", "project", "nodes", "each", "walltime", "properties", "types")
#: What it is called in the list.
LABEL = "label"
Template = Mapping[str, str]

_log = logging.getLogger(__name__)


class SiteFile:
    """The file; what is wrong with it is logged once, and what it said before stays."""

    def __init__(self) -> None:
        self._templates: Sequence[Template] = ()
        self._stamp: tuple[object, ...] = ()

    def templates(self, path: str) -> Sequence[Template]:
        """Return the templates of submissions, none where there is no file."""
        stamp = _stamp(path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._templates = _read(path)
            except (OSError, ValueError, yaml.YAMLError) as error:
                _log.error("cannot read %s: %s; what it said before stays in force", path, " ".join(str(error).split()))
        return self._templates


def _stamp(path: str) -> tuple[object, ...]:
    try:
        found = os.stat(path)
    except OSError as error:
        return path, error.errno
    return path, found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: str) -> Sequence[Template]:
    """Return what a file says.  Raises OSError, ValueError, YAMLError."""
    try:
        with open(path, encoding="utf-8") as file:
            # All values are texts: 4:00 is a walltime, and no number to the base of 60.
            content = yaml.load(file, Loader=yaml.BaseLoader)  # it makes texts, lists and mappings only
    except FileNotFoundError:
        return ()
    return templates_of(content)


def templates_of(content: object) -> Sequence[Template]:
    """Return the templates that are written in a file.  Raises ValueError.

    >>> templates_of({"templates": [{"label": "small", "walltime": "4:00"}]})
    [{'label': 'small', 'walltime': '4:00'}]
    """
    if content in (None, ""):
        return ()
    if not isinstance(content, dict) or set(content) != {"templates"} or not isinstance(content["templates"], list):
        raise ValueError("it says templates: and below it a list")
    return [_template(number, each) for number, each in enumerate(content["templates"], 1)]


def _template(number: int, fields: object) -> Template:
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise ValueError(f"template {number}: each line is a field and its value")
    unknown = next((name for name in fields if name not in (LABEL, *FIELDS)), None)
    if unknown is not None:
        raise ValueError(f"template {number}: there is no field {unknown!r}, but {', '.join((LABEL, *FIELDS))}")
    if not fields.get(LABEL):
        raise ValueError(f"template {number}: {LABEL} is missing")
    return {name: value.strip() for name, value in fields.items()}

"""What a site adds to its pages: a file in YAML, read again when it has changed."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import yaml

#: What a template of a submission may fill in, as the fields of the form are called.
FIELDS = (
    *("command", "name", "queue", "project", "nodes", "gpus", "each", "walltime", "properties", "types"),
    *("directory", "array", "limit", "after", "mail"),
)
#: What it is called in the list.
LABEL = "label"
Template = Mapping[str, str]


class SiteChoices(NamedTuple):
    """What the file says, each under its name."""

    templates: Sequence[Template] = ()  #: of submissions
    group_by: str = ""  #: the property by whose values the first page tells how busy the cluster is
    queues: Mapping[str, str] = {}  #: who may use each queue, and for what: texts


_log = logging.getLogger(__name__)


class SiteFile:
    """The file; what is wrong with it is logged once, and what it said before stays."""

    def __init__(self) -> None:
        self._choices = SiteChoices()
        self._stamp: tuple[object, ...] = ()

    def choices(self, path: str) -> SiteChoices:
        """Return what a site has chosen, the defaults where there is no file."""
        stamp = _stamp(path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._choices = _read(path)
            except (OSError, ValueError, yaml.YAMLError) as error:
                reason = " ".join(str(error).split())
                _log.error(
                    "cannot read the site file: %s: %s. The pages use the former content. Correct the file.",
                    path,
                    reason,
                )
        return self._choices


def _stamp(path: str) -> tuple[object, ...]:
    try:
        found = os.stat(path)
    except OSError as error:
        return path, error.errno
    return path, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read(path: str) -> SiteChoices:
    """Return what a file says.  Raises OSError, ValueError, YAMLError."""
    try:
        with open(path, encoding="utf-8") as file:
            # All values are texts: 4:00 is a walltime, and no number to the base of 60.
            content = yaml.load(file, Loader=yaml.BaseLoader)  # it makes texts, lists and mappings only
    except FileNotFoundError:
        return SiteChoices()
    return choices_of(content)


def choices_of(content: object) -> SiteChoices:
    """Return what is written in a file.  Raises ValueError.

    >>> choices_of({"templates": [{"label": "small", "walltime": "4:00"}]}).templates
    [{'label': 'small', 'walltime': '4:00'}]
    """
    if content in (None, ""):
        return SiteChoices()
    if not isinstance(content, dict) or not set(content) <= set(SiteChoices._fields):
        raise ValueError(f"each line must begin with one of {', '.join(f'{name}:' for name in SiteChoices._fields)}")
    templates, group_by = content.get("templates", []), content.get("group_by", "")
    if not isinstance(templates, list):
        raise ValueError("below templates: is a list")
    if not isinstance(group_by, str):
        raise ValueError("group_by: is the name of a property")
    queues = content.get("queues") or {}
    if not isinstance(queues, dict) or not all(isinstance(text, str) for text in queues.values()):
        raise ValueError("below queues: each line is the name of a queue and a text")
    shown = [_template(number, each) for number, each in enumerate(templates, 1)]
    return SiteChoices(shown, group_by.strip(), {name: text.strip() for name, text in queues.items()})


def _template(number: int, fields: object) -> Template:
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise ValueError(f"template {number}: each line is a field and its value")
    unknown = next((name for name in fields if name not in (LABEL, *FIELDS)), None)
    if unknown is not None:
        raise ValueError(f"template {number}: unknown field {unknown!r}: use {', '.join((LABEL, *FIELDS))}")
    if not fields.get(LABEL):
        raise ValueError(f"template {number}: {LABEL} is missing")
    return {name: value.strip() for name, value in fields.items()}

"""Submissions as clients of OAR 2.5 and OAR 3 write them: their fields become those of ``POST /v1/jobs``."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from oar.api.errors import bad_request_of, field_of
from oar.api.job_request import JobRequest
from oar.api.legacy.requests import is_on, number_of
from oar.api.legacy.titles import Titled
from oar.lib.base.did_you_mean import nearest
from oar.lib.base.errors import BadRequest
from oar.lib.submission.job_form import parameters_of

#: Returns what is in a file of the user, whose name may count from his home.  Raises OSError, SilentProgram, TooMany.
ReadFile = Callable[[str], bytes]

#: Another name of a field -> its name here, with ``_`` for ``-``.
_ALIASES = {
    "resource": "resources",
    "script_path": "command",
    "property": "properties",
    "type": "types",
    "anterior": "dependencies",
    "after": "dependencies",
    "dependency": "dependencies",
    "param_file": "parameters",
    "import_job_key_inline": "ssh_private_key",
    "import_job_key_inline_priv": "ssh_private_key",
    "import_job_key_inline_pub": "ssh_public_key",
    "force_cpuset_name": "cpuset_name",
    "ar": "advance_reservation",
}
#: Options that change the output of a command only.
_IGNORED = frozenset({"dumper", "xml", "yaml", "json", "help", "version"})
_OF_TERMINALS = frozenset({"connect", "wait", "parsable", "completion", "propagate_exit", "verbose"})
_SWITCHES = frozenset({"hold", "use_job_key", "scanscript", "estimate"})
_LISTS = frozenset({"resources", "types", "dependencies", "nodelist", "exclude"})
_NUMBERS = frozenset({"checkpoint", "array", "max_restarts"})
#: Files that a field names, and the field that is in the file.
_FILES = {"array_param_file": "parameters", "import_job_key_from_file": "ssh_private_key"}
#: Names by which the clients of 2.5 are known: they escape for the shells through which it passed everything.
_OLD_NAMES = frozenset({"resources", "script_path", "param_file"})
_ESCAPED = re.compile(r"\\([$`\"\\])")
_NEITHER = "A job must have a script, a command (script_path) or must be a reservation!"


class LegacyJob(NamedTuple):
    """A submission, read."""

    wanted: JobRequest
    resubmits: int = 0  #: the job that is to be submitted again, instead
    is_old: bool = False  #: as clients of 2.5 write it
    is_estimate: bool = False  #: it is only to be told when it would start


def read_job(fields: Mapping[str, Any], read: ReadFile, *, unescapes: bool) -> LegacyJob:
    """Return the submission that the fields of a body describe.

    ``read``: reads a file with the rights of the user; ``unescapes``: undo what clients of 2.5 write for its shells.
    Raises BadRequest, Titled, SilentProgram, TooMany.
    """
    is_old = not _OLD_NAMES.isdisjoint(fields)
    named = _named(fields)
    if "resubmit" in named:
        return LegacyJob(JobRequest.model_construct(), number_of(str(named["resubmit"]), "resubmit"), is_old)
    values: dict[str, Any] = {}
    for name, value in named.items():
        field = _FILES.get(name, name)
        given = _read(read, _below(named.get("workdir"), str(value)), name) if name in _FILES else value
        if (understood := _value(field, given)) is not None:
            values[field] = understood
    if is_old and unescapes:
        _unescape(values)
    if not any(values.get(name) for name in ("command", "script", "reservation")):
        raise Titled(BadRequest(_NEITHER), "Missing Required Field")
    is_estimate = values.pop("estimate", False)
    return LegacyJob(_checked(_placed(values)), is_old=is_old, is_estimate=is_estimate)


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields by the names that they have here; empty ones are not given.  Raises BadRequest."""
    named: dict[str, Any] = {}
    for spelt, value in fields.items():
        name = spelt.replace("-", "_")
        if name in _IGNORED:
            continue
        if name == "interactive" and is_on(value):
            raise BadRequest("The API cannot manage interactive jobs").of(spelt)
        if name in _OF_TERMINALS and is_on(value):
            raise BadRequest(f"{spelt}: this option is for terminals").of(spelt)
        if name in _OF_TERMINALS or name == "interactive":
            continue
        name = _ALIASES.get(name, name)
        is_switch = name in _SWITCHES
        if value is None or (value == "" and not is_switch):
            continue
        named[name] = value
    return named


def _value(name: str, value: Any) -> Any:
    """Return a value in the form that requests have here, None for one that is off.  Raises BadRequest."""
    if name in _SWITCHES:
        return True if is_on(value) else None
    if name == "env" and isinstance(value, list):
        return dict(str(each).partition("=")[::2] for each in value)
    if name in _LISTS:
        return value if isinstance(value, list) else _listed(name, value)
    if not isinstance(value, str):
        return value
    if name == "parameters":
        return list(parameters_of(value))
    return number_of(value, name) if name in _NUMBERS or (name == "walltime" and value.isdecimal()) else value


def _listed(name: str, value: Any) -> list[Any]:
    """Return what stands in the place of a list: words with commas between them, or one request."""
    if name in ("types", "nodelist", "exclude"):
        return [word.strip() for word in str(value).split(",")]
    return [value]


def _unescape(values: dict[str, Any]) -> None:
    """Take away quotes round resources, and the backslashes that kept the shells of 2.5 from what is in commands."""
    if isinstance(command := values.get("command"), str):
        values["command"] = _ESCAPED.sub(r"\1", command)
    if "resources" in values:
        values["resources"] = [_unquoted(each) for each in values["resources"]]


def _unquoted(text: Any) -> Any:
    is_quoted = isinstance(text, str) and len(text) > 1 and text[0] == text[-1] == '"'
    return text[1:-1] if is_quoted else text


def _placed(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with the working directory as the directory of the job, if it names none itself."""
    workdir = values.pop("workdir", None)
    if not workdir:
        return values
    if "directory" not in values:
        return {**values, "directory": workdir}
    directory = values["directory"]
    return {**values, "directory": _below(workdir, directory) if isinstance(directory, str) else directory}


def _below(workdir: object, path: str) -> str:
    """Return a path that counts from the working directory, if there is one and the path counts from anywhere."""
    is_whole = path.startswith(("/", "~", "$HOME"))
    return os.path.join(workdir, path) if isinstance(workdir, str) and not is_whole else path


def _checked(values: Mapping[str, Any]) -> JobRequest:
    try:
        return JobRequest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            field = field_of(first["loc"])
            near = nearest(field, (*JobRequest.model_fields, *_ALIASES))
            way_out = f"\ndid you mean {near!r}?" if near else ""
            raise BadRequest(f"there is no field {field!r}{way_out}").of(field) from None
        raise bad_request_of([first]) from None


def _read(read: ReadFile, path: str, name: str) -> str:
    """Return the text of a file of the user.  Raises BadRequest."""
    if "\0" in path:
        raise BadRequest(f"{name}: a name of a file holds no NUL").of(name)
    try:
        return read(path).decode(errors="replace")
    except OSError as error:
        why = error.strerror or "not with your rights"
        raise BadRequest(f"{name}: {path} cannot be read: {why}").of(name) from None

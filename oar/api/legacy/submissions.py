"""Job submissions of clients of OAR 2.5 and OAR 3: their fields become those of ``POST /v1/jobs``."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from oar.api.errors import bad_request_of, field_of
from oar.api.job_request import JobRequest
from oar.api.legacy.requests import Titled, is_on, parse_number
from oar.lib.base.errors import BadRequest
from oar.lib.base.texts import nearest
from oar.lib.submission.options import parameters_of

#: Returns the content of a file of the user; relative names are below the home.  Raises OSError, Unavailable.
ReadFile = Callable[[str], bytes]

#: Options that only change the output of the command.
_IGNORED = frozenset({"dumper", "xml", "yaml", "json", "help", "version"})
_TERMINAL_OPTIONS = frozenset({"connect", "wait", "parsable", "completion", "propagate_exit", "verbose"})
_SWITCHES = frozenset({"hold", "use_job_key", "scanscript", "estimate"})
_LISTS = frozenset({"resources", "types", "dependencies", "nodelist", "exclude"})
_COMMA_LISTS = frozenset({"types", "nodelist", "exclude"})
_NUMBERS = frozenset({"checkpoint", "array", "max_restarts"})
#: Fields that name a file of the user, and the field that has the content of the file.
_FILES = {"array_param_file": "parameters", "import_job_key_from_file": "ssh_private_key"}
#: Fields that only clients of OAR 2.5 send. They escape values for the shells through which it passed them.
_OAR2_FIELDS = frozenset({"resources", "script_path", "param_file"})
_ESCAPED = re.compile(r"\\([$`\"\\])")
_NO_COMMAND = "A job must have a script, a command (script_path) or must be a reservation!"


class Submission(NamedTuple):
    """A parsed submission."""

    wanted: JobRequest
    resubmitted_id: int = 0  #: the job to resubmit instead
    is_oar2: bool = False  #: has fields that only clients of OAR 2.5 send
    is_estimate: bool = False  #: estimate the start time, submit nothing


def parse_submission(
    fields: Mapping[str, Any], aliases: Mapping[str, Sequence[str]], read: ReadFile, *, unescape: bool
) -> Submission:
    """Return the submission in the fields of a body.

    ``aliases``: other names of fields; ``unescape``: remove the escapes of clients of OAR 2.5.  Raises BadRequest,
    Titled, Unavailable.
    """
    is_oar2 = not _OAR2_FIELDS.isdisjoint(fields)
    renamed = _rename(fields, {alias: name for name, others in aliases.items() for alias in others})
    if "resubmit" in renamed:
        return Submission(JobRequest.model_construct(), parse_number(str(renamed["resubmit"]), "resubmit"), is_oar2)
    values: dict[str, Any] = {}
    for name, value in renamed.items():
        field = _FILES.get(name, name)
        content = _read(read, _below(renamed.get("workdir"), str(value)), name) if name in _FILES else value
        if (parsed := _parse(field, content)) is not None:
            values[field] = parsed
    if is_oar2 and unescape:
        _unescape(values)
    if not any(values.get(name) for name in ("command", "script", "reservation")):
        raise Titled(BadRequest(_NO_COMMAND), "Missing Required Field")
    is_estimate = values.pop("estimate", False)
    workdir = values.pop("workdir", None)
    if workdir and "directory" not in values:
        values["directory"] = workdir
    elif workdir and isinstance(values["directory"], str):
        values["directory"] = _below(workdir, values["directory"])
    return Submission(_validate(values, aliases), is_oar2=is_oar2, is_estimate=is_estimate)


def _rename(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields by their names in ``/v1``, without empty ones.  Raises BadRequest."""
    renamed: dict[str, Any] = {}
    for sent, value in fields.items():
        name = sent.replace("-", "_")
        if name == "interactive" and is_on(value):
            raise BadRequest("The API cannot manage interactive jobs").of(sent)
        if name in _TERMINAL_OPTIONS and is_on(value):
            raise BadRequest(f"{sent}: this option needs a terminal").of(sent)
        if name in _IGNORED or name in _TERMINAL_OPTIONS or name == "interactive":
            continue
        name = names.get(name, name)
        if value is not None and (value != "" or name in _SWITCHES):
            renamed[name] = value
    return renamed


def _parse(name: str, value: Any) -> Any:
    """Return the value of a field in the form of ``/v1``; None for a switch that is off.  Raises BadRequest."""
    if name in _SWITCHES:
        return True if is_on(value) else None
    if name == "env" and isinstance(value, list):
        return dict(str(setting).partition("=")[::2] for setting in value)
    if name in _LISTS and not isinstance(value, list):
        return [word.strip() for word in str(value).split(",")] if name in _COMMA_LISTS else [value]
    if not isinstance(value, str):
        return value
    if name == "parameters":
        return list(parameters_of(value))
    return parse_number(value, name) if name in _NUMBERS or (name == "walltime" and value.isdecimal()) else value


def _unescape(values: dict[str, Any]) -> None:
    if isinstance(command := values.get("command"), str):
        values["command"] = _ESCAPED.sub(r"\1", command)
    if "resources" in values:
        values["resources"] = [_without_quotes(text) for text in values["resources"]]


def _without_quotes(text: Any) -> Any:
    is_quoted = isinstance(text, str) and len(text) > 1 and text[0] == text[-1] == '"'
    return text[1:-1] if is_quoted else text


def _below(workdir: object, path: str) -> str:
    """Return a path; a relative one below the working directory, if there is one."""
    is_absolute = path.startswith(("/", "~", "$HOME"))
    return os.path.join(workdir, path) if isinstance(workdir, str) and not is_absolute else path


def _validate(values: Mapping[str, Any], aliases: Mapping[str, Sequence[str]]) -> JobRequest:
    try:
        return JobRequest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] != "extra_forbidden":
            raise bad_request_of([first]) from None
        field = field_of(first["loc"])
        near = nearest(field, (*JobRequest.model_fields, *(alias for others in aliases.values() for alias in others)))
        hint = f"\ndid you mean {near!r}?" if near else ""
        raise BadRequest(f"there is no field {field!r}{hint}").of(field) from None


def _read(read: ReadFile, path: str, name: str) -> str:
    """Return the text of a file.  Raises BadRequest."""
    if "\0" in path:
        raise BadRequest(f"{name}: the name of a file must not contain NUL").of(name)
    try:
        return read(path).decode(errors="replace")
    except OSError as error:
        reason = error.strerror or "permission denied"
        raise BadRequest(f"{name}: {path} cannot be read: {reason}").of(name) from None

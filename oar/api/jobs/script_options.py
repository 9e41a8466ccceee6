"""The options in the ``#OAR`` lines of a script that is submitted; what the request itself says wins."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oar.lib.facts.errors import BadRequest
from oar.lib.submission.job_form import JobForm, parameters_of
from oar.lib.submission.script_lines import Argument, Value, doubts, joined, option_of, values_of, with_place

if TYPE_CHECKING:
    from oar.api.jobs.asked_jobs import AskedJobs
    from oar.api.workers import Desk
    from oar.lib.user_files import UserFiles

Absolute = Callable[[str], str]

#: Options of which those of a script are added behind those of the request.
ADDED = frozenset({"requests", "types", "dependencies"})


def with_script_options(desk: "Desk", files: "UserFiles", absolute: Absolute, asked: "AskedJobs") -> "AskedJobs":
    """Return a request with what the lines of its script ask for; ``absolute``: makes whole names of files.

    Raises BadRequest.
    """
    text = asked.script if asked.script is not None else _script_of(files, absolute, asked.command)
    values = values_of(text)
    desk.warnings.extend(doubts("the script", text, has_options=bool(values)))
    merged = asked._replace(scans=False, form=_form(desk, asked.form, values))
    if asked.script is None and not merged.form.directory:
        merged = merged._replace(command=with_place(asked.command))
    if "parameter_file" in values and asked.parameters is None:
        merged = merged._replace(parameters=parameters_of(_read(files, absolute, values["parameter_file"][-1])))
    given = {name: str(each[-1]) for name, each in values.items()}
    environment = tuple(map(str, values.get("environment", ())))
    key = asked.key._replace(
        use=asked.key.use or "use_job_key" in values,
        private=asked.key.private or given.get("key_inline") or _key(files, absolute, values),
        public=asked.key.public or given.get("public_key"),
        export=asked.key.export or given.get("key_export"),
    )
    file = asked.file._replace(
        path=asked.file.path or given.get("stagein"), md5sum=asked.file.md5sum or given.get("stagein_md5sum")
    )
    return merged._replace(env=(*environment, *asked.env), key=key, file=file)


def _form(desk: "Desk", form: JobForm, values: Mapping[str, Sequence[Value]]) -> JobForm:
    """Return a form with the values of a script; one that the request has already is told and ignored."""
    replaces = desk.config.oarsub_script_resources == "replace" and bool(form.requests)
    changes: dict[str, Any] = {}
    for name in (field for field in JobForm._fields if field in values):
        option, typed = option_of(name), getattr(form, name)
        value = joined(option, values[name])
        if option.kind is not Argument.TEXTS and name != "properties" and len(set(values[name])) > 1:
            desk.warnings.append(f"{option.long} is given several times: {value}: the last value counts.")
        if name in ADDED and not (name == "requests" and replaces):
            changes[name] = (*typed, *values[name])
        elif typed is False or typed in (None, "", ()):
            changes[name] = value
        elif option.kind is not Argument.FLAG:
            shown = " ".join(map(str, values[name]))
            desk.warnings.append(f"ignore script value for {option.long}: {shown}; the request has another one.")
    return form._replace(**changes)


def _script_of(files: "UserFiles", absolute: Absolute, command: str) -> str:
    """Return the text of the script that a command begins with.  Raises BadRequest."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if not words:
        raise BadRequest("scanscript: there is no script and no command")
    return _read(files, absolute, words[0])


def _key(files: "UserFiles", absolute: Absolute, values: Mapping[str, Sequence[Value]]) -> str | None:
    return _read(files, absolute, values["key_file"][-1]) if "key_file" in values else None


def _read(files: "UserFiles", absolute: Absolute, path: Value) -> str:
    """Return the text of a file of the user.  Raises BadRequest."""
    if "\0" in str(path):
        raise BadRequest("scanscript: a name of a file holds no NUL")
    try:
        return files.read(absolute(str(path))).data.decode("utf-8", "replace")
    except OSError as error:
        raise BadRequest(f"scanscript: {path} cannot be read: {error.strerror or 'not with your rights'}") from None

"""The command line that is stored with the job, without keys and without the values of variables."""

import re
from collections.abc import Iterable

#: How the options begin whose argument is a private key.
_KEY_OPTIONS = ("--import-job-key-i", "--ssh_pr", "--ssh-pr")
_HIDDEN_KEY = "[HIDDEN INLINE JOB KEY]"
_HIDDEN_VALUE = "[HIDDEN]"
_KEY_LINE = rf"(?s)((?:{'|'.join(_KEY_OPTIONS)})[\w-]*(?:\s+|=)).*"
_VARIABLE_LINE = r"(?s)(--env?(?:\s+|=)\s*[\"']?\w+=).*"
_TYPE = r"(?s)--t(?:y(?:p(?:e)?)?)?(?:=(?P<value>.*))?\Z"


def initial_request(arguments: Iterable[str]) -> str:
    """Return the command line to store.

    Types are written as ``-t <type>``, because other programs search for this form.
    """
    arguments_kept: list[str] = ["oarsub"]
    secret = ""  #: what the next argument holds: a key, a variable, or nothing that is secret
    for argument in arguments:
        name, equals, value = argument.partition("=")
        is_long = argument.startswith("--")
        type_option = re.match(_TYPE, argument) if argument.startswith("--t") else None
        announced = _secret_of(name) if is_long and not secret else ""
        if secret:
            arguments_kept.append(_hidden(secret, argument))
        elif announced and equals:
            arguments_kept.append(f"{name}={_hidden(announced, value)}")
        elif type_option:
            arguments_kept += ["-t", *([type_option["value"]] if type_option["value"] is not None else [])]
        elif argument.startswith("-t") and len(argument) > 2:
            arguments_kept += ["-t", argument[2:]]
        else:
            arguments_kept.append(argument)
        secret = announced if announced and not equals else ""
    return " ".join(arguments_kept)


def script_line(line: str) -> str:
    """Return an ``#OAR`` line of a script in the form that is stored."""
    line = re.sub(_VARIABLE_LINE, lambda match: match[1] + _HIDDEN_VALUE, line)
    return re.sub(_KEY_LINE, lambda match: match[1] + _HIDDEN_KEY, line)


def _secret_of(option: str) -> str:
    """Return the kind of secret in the value of an option; '' if it is not secret."""
    if option.startswith(_KEY_OPTIONS):
        return "key"
    return "variable" if len(option) > len("--e") and "--env".startswith(option) else ""


def _hidden(secret: str, text: str) -> str:
    if secret == "key":
        return _HIDDEN_KEY
    name, equals, _ = text.partition("=")
    return f"{name}={_HIDDEN_VALUE}" if equals else name

"""The environment that a user defines for a job, and the script that is stored with it.

It is stored as a JSON object of variables, in a column that other users cannot read.  Names that begin with ``OAR_``
are reserved for OAR; one of them, ``SCRIPT``, holds the text of a spooled script.

See docs/design/schema.rst, "Logins".
"""

import json
import re
from collections.abc import Iterable, Mapping

from oar.lib.base.errors import BadRequest
from oar.lib.base.texts import is_storable

#: The variable that holds the text of the spooled script here, and its path in the job.
SCRIPT = "OAR_SCRIPT"
ALL, NONE = "ALL", "NONE"
#: Bytes of all variables of a job, of its script, and of both in all jobs of an array.
MOST_VARIABLES = 1 << 16
MOST_SCRIPT = 1 << 20
MOST_OF_ARRAY = 16 << 20

_NAME = r"(?a)[A-Za-z_][A-Za-z0-9_]*\Z"
_RESERVED = "OAR_"
#: Variables of a session on the frontend, which would be wrong, or dangerous, anywhere else.
_OF_SESSION = frozenset(
    {
        *("HOME", "SHELL", "USER", "LOGNAME", "MAIL", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "TERM", "_"),
        *("DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "WINDOWID", "DBUS_SESSION_BUS_ADDRESS", "TMUX", "STY"),
    }
)
#: Variables that each job has of its own, so that those of the job from which another is submitted are wrong there:
#: ``mpi_variables`` and ``gpu_variables`` of the programs for nodes.
_OF_JOB = frozenset(
    {
        *("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile"),
        *("PRTE_MCA_plm_ssh_agent", "PRTE_MCA_prte_default_hostfile"),
        *("HYDRA_LAUNCHER", "HYDRA_LAUNCHER_EXEC", "HYDRA_HOST_FILE"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
    }
)
_SESSIONS = ("SSH_", "SUDO_", "XDG_", "BASH_FUNC_", _RESERVED)


def chosen(requests: Iterable[str], caller: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of each ``--env``, in order: ``NAME=value``, ``NAME`` of the caller, ALL, NONE.

    >>> chosen(["NONE", "A=1", "B"], {"B": "2", "C": "3"})
    {'A': '1', 'B': '2'}

    Raises BadRequest.
    """
    variables: dict[str, str] = {}
    for request in requests:
        name, equals, value = request.partition("=")
        if request == NONE:
            variables = {}
        elif request == ALL:
            variables |= {name: text for name, text in caller.items() if _is_portable(name, text)}
        elif not re.match(_NAME, name):
            raise BadRequest(f'bad variable "{name}": write --env NAME, NAME=value, ALL or NONE.')
        elif name.startswith(_RESERVED):
            raise BadRequest(f"the variable {name} is set by OAR itself.")
        elif equals:
            variables[name] = value
        elif name in caller:
            variables[name] = caller[name]
        else:
            raise BadRequest(f"the variable {name} is not set here.")
    return variables


def _is_portable(name: str, value: str) -> bool:
    if not re.match(_NAME, name) or name in _OF_SESSION | _OF_JOB or name.startswith(_SESSIONS):
        return False
    return is_storable(value)


def check(environment: Mapping[str, str], jobs: int) -> None:
    """Raise BadRequest if a value is not UTF-8 text, or if the environment is too large for ``jobs`` jobs."""
    for name, value in environment.items():
        if not re.match(_NAME, name) or (name.startswith(_RESERVED) and name != SCRIPT):
            raise BadRequest(f'a job cannot have the variable "{name}".')
        if not is_storable(value):
            label = "the script" if name == SCRIPT else f"the variable {name}"
            raise BadRequest(f"{label} is not UTF-8 text.")
    script = len(environment.get(SCRIPT, "").encode())
    variables = sum(len(name) + len(value.encode()) + 2 for name, value in environment.items() if name != SCRIPT)
    if variables > MOST_VARIABLES:
        raise BadRequest(f"the variables of --env are too long ({variables} bytes, at most {MOST_VARIABLES}).")
    if script > MOST_SCRIPT:
        raise BadRequest(f"the script is too long ({script} bytes, at most {MOST_SCRIPT}).")
    if (script + variables) * jobs > MOST_OF_ARRAY:
        raise BadRequest(
            f"script and variables are too long for an array of {jobs} jobs ({script + variables} bytes each,"
            f" at most {MOST_OF_ARRAY // jobs})."
        )


def variables_of(text: str | None) -> dict[str, str]:
    """Return the variables of a stored environment."""
    return {name: value for name, value in read(text).items() if name != SCRIPT}


def script_of(text: str | None) -> str | None:
    """Return the script of a stored environment; None if there is none."""
    return read(text).get(SCRIPT)


def command_in_job(command: str, text: str | None) -> str:
    r"""Return the command to execute; for a spooled script, the variable with its path replaces the name of the script.

    >>> command_in_job("./run.sh -n '4 5'", '{"OAR_SCRIPT": "#!/bin/sh"}'), command_in_job("./run.sh", None)
    ('"$OAR_SCRIPT" -n \'4 5\'', './run.sh')
    """
    if script_of(text) is None:
        return command
    import io
    import shlex

    stream = io.StringIO(command)
    reader = shlex.shlex(stream, posix=True)
    reader.whitespace_split = True
    reader.commenters = ""
    reader.get_token()
    arguments = stream.read()
    return f'"${SCRIPT}"' + (f" {arguments}" if arguments else "")


def read(text: str | None) -> dict[str, str]:
    """Return a stored environment, including its script."""
    return dict(json.loads(text)) if text else {}

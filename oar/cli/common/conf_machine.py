"""What a configuration asks for and this machine does not have: programs, files, directories, names.

Each finding is one line with the key, what is wrong, and the way out.  What only the server needs is looked for where
the server is; elsewhere the same file says nothing wrong.
"""

import errno
import os
import shlex
import socket
import stat
from collections.abc import Callable, Iterator, Mapping

from oar.kao.rounds.reading.planner_settings import settings_of
from oar.kao.rounds.reading.policy_files import parse_quotas, parse_weights
from oar.lib.base import programs
from oar.lib.config.files import Config
from oar.lib.config.kinds import Key, Target
from oar.lib.jobs.states import JobPriority
from oar.lib.nodes import ping_checker
from oar.lib.remote.key_installation import ACCOUNT


def findings(config: Config, path: str, oardir: str) -> Iterator[str]:
    """Give what is wrong.  ``path``: of oar.conf; ``oardir``: the directory of OAR's programs."""
    yield from _secrets(config, path)
    yield from _server_name(config)
    if _is_server(oardir):
        yield from _policies(config)


def missing(config: Config, oardir: str) -> Iterator[str]:
    """Give the programs, files and directories that the configuration names and this machine does not have."""
    if _is_server(oardir):
        yield from _missing(config, oardir)
    elif config.oarsh_oarstat_cmd and os.path.exists(f"{oardir}/oarsh"):
        yield from _fault(Config.oarsh_oarstat_cmd.key, Target.SERVER_PROGRAM, config.oarsh_oarstat_cmd, oardir)


def _is_server(oardir: str) -> bool:
    return os.path.exists(f"{oardir}/oar-almighty")


def _secrets(config: Config, path: str) -> Iterator[str]:
    if config.db_base_passwd and os.stat(path).st_mode & stat.S_IROTH:
        yield f"DB_BASE_PASSWD: {path}: every user can read it. Run: chown root:{ACCOUNT} {path}; chmod 640 {path}"


def _server_name(config: Config) -> Iterator[str]:
    try:
        socket.getaddrinfo(config.server_hostname, None)
    except OSError as error:
        yield (
            f"SERVER_HOSTNAME: {config.server_hostname}: it has no address on this machine ({error.strerror})."
            " Write the name by which frontends and nodes reach the server, and add it to /etc/hosts or the DNS."
        )


def _missing(config: Config, oardir: str) -> Iterator[str]:
    """Give the programs, files and directories of the server that keys name, and that do not exist."""
    for key in Config.options():
        value = getattr(config, key.name)
        if key.fixed or not value or (key is Config.taktuk_cmd and not _needs_taktuk(config)):
            continue
        if isinstance(value, Mapping):
            for name, command in value.items():
                yield from _fault(f"{key.key}: {name}", key.kind.target, command, oardir)
        elif key.kind.target is Target.SERVER_PROGRAM or key.name in config.changed:
            yield from _fault(key.key, key.kind.target, value, oardir)
    rules = Config.admission_rules_path
    if config.admission_rules_in_files and rules.name not in config.changed:
        yield from _fault(rules.key, rules.kind.target, config.admission_rules_path, oardir)


def _needs_taktuk(config: Config) -> bool:
    return bool(config.pingchecker_taktuk_arg_command) and not ping_checker.replaces_taktuk(config)


def _fault(key: str, target: Target, value: str, oardir: str) -> Iterator[str]:
    find = _FAULTS.get(target)
    if fault := find(value, key.partition(":")[0], oardir) if find else "":
        yield f"{key}: {fault}"


def _find_program_fault(command: str, key: str, _: str) -> str:
    return programs.find_fault(command, key)


def _find_site_program_fault(path: str, key: str, oardir: str) -> str:
    program = os.path.join(oardir, shlex.split(path)[0])
    if path == "kao" or programs.site_program(path) is None or os.path.exists(program):
        return ""
    return programs.describe_missing(program, key)


def _find_file_fault(path: str, key: str, _: str) -> str:
    way_out = f"Create it, or remove {key} from oar.conf."
    return "" if os.path.exists(path) else f"{path}: no such file on this machine. {way_out}"


def _find_directory_fault(path: str, key: str, _: str) -> str:
    way_out = f"Create it, or remove {key} from oar.conf."
    return "" if os.path.isdir(path) else f"{path}: no such directory on this machine. {way_out}"


def _find_output_fault(path: str, _: str, __: str) -> str:
    directory = os.path.dirname(path)
    if not path.startswith("/"):
        return ""  # a standard stream, or the journal
    if not os.path.isdir(directory):
        return f"{directory}: no such directory on this machine. Create it for the account {ACCOUNT}."
    return f"{path}: it is a directory. Write the path of a file." if os.path.isdir(path) else ""


#: What finds out why a target cannot be used: from the value of the key, the key and OARDIR.
_FAULTS: Mapping[Target, Callable[[str, str, str], str]] = {
    Target.SERVER_PROGRAM: _find_program_fault,
    Target.SITE_PROGRAM: _find_site_program_fault,
    Target.SERVER_FILE: _find_file_fault,
    Target.SERVER_OUTPUT: _find_output_fault,
    Target.SERVER_DIRECTORY: _find_directory_fault,
}


def _policies(config: Config) -> Iterator[str]:
    if config.quotas:
        yield from _content(config, Config.quotas_conf_file, "quotas", parse_quotas)
    if settings_of(config).job_priority is JobPriority.MULTIFACTOR:
        yield from _content(config, Config.priority_conf_file, "priorities", parse_weights)


def _content(config: Config, key: Key[str], what: str, parse: Callable[[str], object]) -> Iterator[str]:
    """Give why the content of a file cannot be used; ``missing`` gives the files that are set and do not exist."""
    path: str = getattr(config, key.name)
    try:
        with open(path, encoding="utf-8") as file:
            parse(file.read())
    except OSError as error:
        is_told = error.errno == errno.EACCES or (error.errno == errno.ENOENT and key.name in config.changed)
        if not is_told:
            yield f"{key.key}: {path}: {error.strerror}. The scheduler treats the file as empty. Correct the file."
    except ValueError as error:
        after = f"The scheduler uses the former content, and no {what} after a restart. Correct the file."
        yield f"{key.key}: {path}: {error}. {after}"

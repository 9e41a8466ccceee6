"""What a configuration asks for and this machine does not have: programs, files, directories, names.

Each finding is one line with the key, what is wrong, and the way out.  What only the server needs is looked for where
the server is; elsewhere the same file says nothing wrong.
"""

import errno
import os
import shlex
import shutil
import socket
import stat
from collections.abc import Callable, Iterator

from oar.kao.rounds.reading.planner_settings import settings_of
from oar.kao.rounds.reading.policy_files import parse_quotas, parse_weights
from oar.lib.config.files import Config
from oar.lib.config.kinds import Key
from oar.lib.facts.states import JobPriority
from oar.lib.rules.key_installation import ACCOUNT
from oar.lib.runtime import DEFAULT_PATH

#: Programs that the server starts by themselves.
_PROGRAMS = (
    Config.openssh_cmd,
    Config.pingchecker_sentinelle_script_command,
    Config.pingchecker_fping_command,
    Config.pingchecker_nmap_command,
    Config.pingchecker_generic_command,
    Config.suspected_healing_exec_file,
    Config.server_prologue_exec_file,
    Config.server_epilogue_exec_file,
    Config.just_after_suspend_exec_file,
    Config.just_before_resume_exec_file,
    Config.scheduler_node_manager_sleep_cmd,
    Config.scheduler_node_manager_wake_up_cmd,
    Config.energy_saving_node_manager_sleep_cmd,
    Config.energy_saving_node_manager_wake_up_cmd,
    Config.phoenix_soft_rebootcmd,
    Config.phoenix_hard_rebootcmd,
    Config.reservation_event_exec_file,
)
#: Files that the server writes.
_WRITTEN = (Config.log_file, Config.completion_log, Config.metrics_file, Config.scheduler_job_scheduling_time_yaml)


def findings(config: Config, path: str, oardir: str) -> Iterator[str]:
    """Give what is wrong.  ``path``: of oar.conf; ``oardir``: the directory of OAR's programs."""
    yield from _secrets(config, path)
    yield from _server_name(config)
    if os.path.exists(f"{oardir}/oar-almighty"):
        yield from _programs(config, oardir)
        yield from _written(config)
        yield from _policies(config)


def _secrets(config: Config, path: str) -> Iterator[str]:
    if config.db_base_passwd and os.stat(path).st_mode & stat.S_IROTH:
        yield f"DB_BASE_PASSWD: every user can read it in {path}: chown root:{ACCOUNT} {path}; chmod 640 {path}"


def _server_name(config: Config) -> Iterator[str]:
    try:
        socket.getaddrinfo(config.server_hostname, None)
    except OSError as error:
        yield (
            f"SERVER_HOSTNAME: {config.server_hostname} has no address here ({error.strerror}): write the name under"
            " which frontends and nodes reach the server, and let /etc/hosts or the DNS know it"
        )


def _programs(config: Config, oardir: str) -> Iterator[str]:
    for key in _PROGRAMS:
        yield from _program(key.key, getattr(config, key.name))
    for token, command in (config.scheduler_token_scripts or {}).items():
        yield from _program(f"SCHEDULER_TOKEN_SCRIPTS: {token}", command)
    if config.meta_sched_cmd != "kao":
        yield from _program("META_SCHED_CMD", os.path.join(oardir, config.meta_sched_cmd))


def _program(key: str, command: str | None) -> Iterator[str]:
    """Say that the program of a command line cannot be started."""
    if not command:
        return
    program = shlex.split(command)[0]
    if os.path.exists(program) and not os.access(program, os.X_OK):
        yield f"{key}: {program} cannot be executed: chmod 755 {program}"
    elif shutil.which(program, path=DEFAULT_PATH) is None:
        yield f"{key}: there is no program {program} on this machine: install it, or take the key out"


def _written(config: Config) -> Iterator[str]:
    for key in _WRITTEN:
        path = getattr(config, key.name)
        if path and path.startswith("/"):
            yield from _directory_of(key, path)


def _directory_of(key: "Key[str] | Key[str | None]", path: str) -> Iterator[str]:
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        yield f"{key.key}: there is no directory {directory}: make it, for the account {ACCOUNT}"
    elif os.path.isdir(path):
        yield f"{key.key}: {path} is a directory: write the name of a file in it"


def _policies(config: Config) -> Iterator[str]:
    if config.quotas:
        yield from _content(Config.quotas_conf_file, config.quotas_conf_file, parse_quotas)
    if settings_of(config).job_priority is JobPriority.MULTIFACTOR:
        yield from _content(Config.priority_conf_file, config.priority_conf_file, parse_weights)


def _content(key: Key[str], path: str, parse: Callable[[str], object]) -> Iterator[str]:
    """Say that a file is not there or is no such file; who may read it is looked at elsewhere."""
    try:
        with open(path, encoding="utf-8") as file:
            parse(file.read())
    except OSError as error:
        if error.errno != errno.EACCES:
            yield f"{key.key}: {path}: {error.strerror}: rounds do as if it were empty"
    except ValueError as error:
        yield f"{key.key}: {path}: {error}: rounds go on with what it said before, after a start with nothing"

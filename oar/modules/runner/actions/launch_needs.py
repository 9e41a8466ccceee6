"""Check the programs and files in oar.conf that every launch and every end needs on the server.

Only the administrator can repair a fault in them, so no job and no node is held responsible.
"""

import os
import threading
import time
from concurrent.futures import Future, wait
from pathlib import Path

from oar.lib.base import programs
from oar.lib.config.files import Config
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import launch_holds
from oar.lib.nodes import ping_checker
from oar.lib.remote import transports
from oar.lib.remote.requests import RemoteSettings
from oar.modules.runner.actions import nodes
from oar.modules.runner.actions.context import log

#: Seconds to wait for the result; the check usually takes a millisecond.
LOOK_SECONDS = 1.0
#: Files that do not answer for this time, in seconds, are a fault.
SILENT_SECONDS = 30.0


class LaunchNeedsWatch:
    """Find faults in a separate thread: a file server that does not answer must not block the Runner."""

    def __init__(self) -> None:
        self._config: Config | None = None  #: of the look that is under way
        self._look: Future[str] = Future()
        self._begun = 0.0

    def find_fault(self, config: Config, oardir: str) -> str | None:
        """Return the result of ``find_fault``, None if it is not available yet because the files do not answer."""
        if config is not self._config:
            self._config, self._look, self._begun = config, Future(), time.monotonic()
            arguments = (self._look, config, oardir)
            threading.Thread(target=_answer, args=arguments, name="launch needs", daemon=True).start()
            wait([self._look], LOOK_SECONDS)
        if self._look.done():
            self._config = None
            return self._look.result()
        if time.monotonic() - self._begun < SILENT_SECONDS:
            return None
        reason = f"no answer of their file system for {SILENT_SECONDS:.0f} s"
        mounts = ", ".join(_checked_keys(config))
        return f"cannot check the programs of oar.conf: {reason}. Check the mounts of {mounts}."


def follow(tx: Transaction, fault: str | None) -> None:
    """Hold all launches if the configuration has a fault; release them if it has none ('').

    Do nothing if ``fault`` is None (unknown).
    """
    if fault:
        launch_holds.hold_for_configuration(tx, fault)
    elif fault is not None and launch_holds.end_repaired(tx):
        log.info("the configuration is repaired: jobs are started again")


def _answer(look: Future[str], config: Config, oardir: str) -> None:
    try:
        look.set_result(find_fault(config, oardir))
    except Exception as error:  # noqa: BLE001 - it is raised again where the result is read
        look.set_exception(error)


def find_fault(config: Config, oardir: str) -> str:
    """Return the first fault of the configuration that makes every launch fail, '' if there is none."""
    return (
        find_end_fault(config, oardir)
        or _program_fault(Config.server_prologue_exec_file.key, config.server_prologue_exec_file)
        or ping_checker.find_fault(config)
        or _ssh_fault(config)
    )


def _checked_keys(config: Config) -> list[str]:
    """Return the keys whose files ``find_fault`` reads."""
    has_manager = config.job_resource_manager_property_db_field and nodes.site_manager(config)
    keys = {
        Config.job_resource_manager_file.key: has_manager,
        Config.server_prologue_exec_file.key: config.server_prologue_exec_file,
        Config.server_epilogue_exec_file.key: config.server_epilogue_exec_file,
        ping_checker.key_of(config): ping_checker.key_of(config),
        Config.openssh_cmd.key: config.oar_ssh_transport != "paramiko",
    }
    return [key for key, is_read in keys.items() if is_read]


def find_end_fault(config: Config, oardir: str) -> str:
    """Return the first fault of the configuration that prevents jobs from ending, '' if there is none."""
    manager_fault = ""
    if config.job_resource_manager_property_db_field:
        manager_fault = _file_fault(Config.job_resource_manager_file.key, nodes.site_manager(config), oardir)
    return manager_fault or _program_fault(Config.server_epilogue_exec_file.key, config.server_epilogue_exec_file)


def _file_fault(key: str, path: str | None, oardir: str) -> str:
    if path is None or os.access(file := Path(oardir) / path, os.R_OK):
        return ""
    if not os.path.exists(file):
        return f"{key}: {programs.describe_missing(str(file), key)}"
    return f"{key}: {file}: permission denied. Make it readable for oar."


def _program_fault(key: str, command: str | None) -> str:
    fault = programs.find_fault(command, key, os.environ.get("PATH", programs.DEFAULT_PATH)) if command else ""
    return f"{key}: {fault}" if fault else ""


def _ssh_fault(config: Config) -> str:
    """Return the fault of OPENSSH_CMD, '' if it has none or is not used to connect to nodes."""
    if config.oar_ssh_transport == "paramiko":
        return ""
    fault = _program_fault(Config.openssh_cmd.key, config.openssh_cmd)
    uses_ssh = fault and transports.choose(RemoteSettings.of(config)).name == "openssh"
    return fault if uses_ssh else ""

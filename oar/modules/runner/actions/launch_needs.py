"""What each launch and each end needs on the server, as oar.conf names it.

A fault in it is the administrator's to repair: no job and no node is to blame.
"""

import os
from pathlib import Path

from oar.lib.config.files import Config
from oar.lib.io import ping_checker, programs
from oar.lib.io.remote import transports
from oar.lib.io.remote.requests import RemoteSettings
from oar.modules.runner.actions import nodes


def find_fault(config: Config, oardir: str) -> str:
    """Return the first fault of the configuration that makes every launch fail; '' if there is none."""
    return (
        find_end_fault(config, oardir)
        or _program_fault(Config.server_prologue_exec_file.key, config.server_prologue_exec_file)
        or ping_checker.find_fault(config)
        or _ssh_fault(config)
    )


def find_end_fault(config: Config, oardir: str) -> str:
    """Return the first fault of the configuration that keeps jobs from being ended; '' if there is none."""
    manager_fault = ""
    if config.job_resource_manager_property_db_field:
        manager_fault = _file_fault(Config.job_resource_manager_file.key, nodes.site_manager(config), oardir)
    return manager_fault or _program_fault(Config.server_epilogue_exec_file.key, config.server_epilogue_exec_file)


def _file_fault(key: str, path: str | None, oardir: str) -> str:
    if path is None or os.access(Path(oardir) / path, os.R_OK):
        return ""
    return f"{key}: {Path(oardir) / path}: it cannot be read. Install it, or remove the key."


def _program_fault(key: str, command: str | None) -> str:
    fault = programs.find_fault(command, os.environ.get("PATH", programs.DEFAULT_PATH)) if command else ""
    return f"{key}: {fault}" if fault else ""


def _ssh_fault(config: Config) -> str:
    """Return the fault of OPENSSH_CMD, where nodes are reached by it."""
    if config.oar_ssh_transport == "paramiko":
        return ""
    fault = _program_fault(Config.openssh_cmd.key, config.openssh_cmd)
    uses_ssh = fault and transports.choose(RemoteSettings.of(config)).name == "openssh"
    return fault if uses_ssh else ""

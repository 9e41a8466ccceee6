"""The kinds of machines: installs their parts, and makes the necessary changes to this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from . import environments, parts
from .files import give, has_account, shipped
from .programs import Programs, completion_of
from .target import InstallError, Target


def install(flavours: Iterable[str], target: Target, libraries: Path | None = None) -> None:
    """Install these flavours.  ``libraries``: see ``environments.prepare``.  Raises InstallError, OSError."""
    old = os.umask(0o022)
    try:
        for flavour in flavours:
            if flavour in _IN_PYTHON:
                _install_programs(flavour, target, libraries)
            else:
                _OTHERS[flavour](target)
    finally:
        os.umask(old)


def _install_programs(flavour: str, target: Target, libraries: Path | None) -> None:
    account(target)
    before = environments.named(target) if target.under(f"{target.programs}/x").parent.is_dir() else set()
    environment = environments.prepare(target, ["api"] if flavour == "api" else [], libraries)
    _IN_PYTHON[flavour](target, Programs(target, environment))
    environments.forget(target, before)


def _server(target: Target, programs: Programs) -> None:
    parts.common(target)
    parts.both(target, programs)
    parts.server(target, programs)
    _configuration(target)
    _log_file(target)


def _user(target: Target, programs: Programs) -> None:
    parts.common(target)
    parts.both(target, programs)
    parts.user(target, programs)
    python = target.under(f"{programs.environment}/bin/python")
    programs.completion(lambda shell: completion_of(shell, python))
    _configuration(target)


def _api(target: Target, programs: Programs) -> None:
    parts.api(target, programs)
    _configuration(target)


def _node(target: Target) -> None:
    account(target)
    parts.common(target)
    parts.node(target)
    _check_logs(target)


def _doc(target: Target) -> None:
    parts.documents(target)
    parts.manual(target)


#: Flavours with programs of the package.
_IN_PYTHON: Mapping[str, Callable[[Target, Programs], None]] = {"server": _server, "user": _user, "api": _api}
_OTHERS: Mapping[str, Callable[[Target], None]] = {"node": _node, "agent": parts.agent, "doc": _doc}
#: Names of all flavours.
NAMES = (*_IN_PYTHON, *_OTHERS)


# -- changes to a running machine ----------------------------------------------------------------------------------


def _configuration(target: Target) -> None:
    path, limits = f"{target.confdir}/oar.conf", f"{target.confdir}/quotas_conf.json"
    if not target.under(path).exists():  # the limits of an existing site stay as they are
        # Every account may read it: with DESTDIR the account of OAR does not exist yet, and it has no secrets.
        shipped(target, "etc/quotas_conf.json", limits, 0o644, is_configuration=True)
    parts.configuration(target, path)
    if not target.destdir:
        give(Path(path), "root", target.user)


def account(target: Target) -> None:
    """Create the account of OAR if it is missing; only on a running system, as root."""
    if target.destdir or os.getuid() != 0 or has_account(target.user):
        return
    # An impossible password: without one the account would be locked for keys, too.
    words = ["--system", "--user-group", "--create-home", "--home-dir", target.homedir, "--password", "*"]
    words += ["--shell", f"{target.programs}/oarsh_shell", target.user]
    done = subprocess.run(["useradd", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"the account {target.user} cannot be made: {done.stderr.strip()}")


def _check_logs(target: Target) -> None:
    """Create the directory for the results of node checks."""
    if not target.destdir and os.getuid() == 0:
        Path(target.homedir, "checklogs").mkdir(mode=0o755, exist_ok=True)


def _log_file(target: Target) -> None:
    """Create the log file of the account oar; rotation has to keep its owner."""
    log = Path("/var/log/oar.log")
    if target.destdir or log.exists() or os.getuid() != 0:
        return
    log.touch(0o640)
    give(log, target.user, target.user)

"""What each kind of machine gets."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import manpages

from . import environments, tables
from .files import adapted, copy_readable, give, has_account, shipped, write
from .programs import Programs, tools
from .target import SOURCE, InstallError, Target

_NODE_FILES = (("sshd_config", 0o644), ("oar-node-service", 0o755), ("prologue", 0o755), ("epilogue", 0o755))
_SERVER_UNITS = (
    *("oar-server.service", "oar-accounting.service", "oar-accounting.timer"),
    *("oar-purge.service", "oar-purge.timer", "oar.target"),
)
_DOCUMENTS = ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")


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
    """Modules, administrators' commands, database files, units."""
    programs.modules()
    programs.of_administrators()
    shipped(target, "setup/nodes/oarnodesetting_ssh", f"{target.confdir}/oarnodesetting_ssh", 0o755)
    copy_readable(SOURCE / "setup" / "database", target.under(f"{target.programs}/setup/database"))
    _configuration(target)
    _log_file(target)
    _sudo_rules(target)
    _units(target, _SERVER_UNITS)
    _manual(target, 5, 8)


def _user(target: Target, programs: Programs) -> None:
    """What a login node needs."""
    programs.of_users()
    _units(target, ("oar-commands.socket", "oar-commands.service"))
    programs.completion()
    _manual(target, 1)
    tools(target)
    _configuration(target)
    _sudo_rules(target)


def _api(target: Target, programs: Programs) -> None:
    """The REST API, beside the server or on a machine of its own."""
    programs.of_api()
    _configuration(target)
    shipped(target, "setup/pam.d/oar-api", "/etc/pam.d/oar-api", 0o644, is_configuration=True)
    _units(target, ("oar-api.service",))


def _node(target: Target) -> None:
    """What a compute node needs: nothing of the package."""
    account(target)
    tools(target)
    for name, mode in _NODE_FILES:
        shipped(target, f"setup/nodes/{name}", f"{target.confdir}/{name}", mode, is_configuration=True)
    target.under(f"{target.confdir}/check.d/x").parent.chmod(0o755)
    _sudo_rules(target)
    _units(target, ("oar-node.service", "oar-node-script.service"))


def _doc(target: Target) -> None:
    """The manual."""
    docs = target.under(target.docdir or f"{target.prefix}/share/doc/oar")
    for name in _DOCUMENTS:
        source = SOURCE / name
        if source.is_dir():
            copy_readable(source, docs / name, "*.py")
        elif source.is_file():
            docs.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, docs / name)
    shutil.copyfile(SOURCE / "setup" / "qrstat.xsd", docs / "qrstat.xsd")
    _manual(target, 1, 5, 8)


#: Those with programs of the package.
_IN_PYTHON: Mapping[str, Callable[[Target, Programs], None]] = {"server": _server, "user": _user, "api": _api}
_OTHERS: Mapping[str, Callable[[Target], None]] = {"node": _node, "doc": _doc}
#: The names of all.
NAMES = (*_IN_PYTHON, *_OTHERS)


# -- parts of several of them --------------------------------------------------------------------------------------


def _manual(target: Target, *sections: int) -> None:
    """The pages of these sections, and those of other names of users' commands."""
    texts = (adapted(target, SOURCE / "docs" / f"{name}.rst") for name in ("commands", "configuration"))
    others = (manpages.alias(name, words.split()[0], 1) for name, words in tables.OTHER_NAMES.items())
    for page in (*manpages.pages(*texts), *others):
        if page.section in sections:
            write(target.under(f"{target.mandir or f'{target.prefix}/share/man'}/{page.path}"), page.text, 0o644)


def _configuration(target: Target) -> None:
    path = f"{target.confdir}/oar.conf"
    shipped(target, "etc/oar.conf", path, 0o640, is_configuration=True)
    if not target.destdir:
        give(Path(path), "root", target.user)


def _sudo_rules(target: Target) -> None:
    shipped(target, "setup/nodes/sudoers", "/etc/sudoers.d/oar", 0o440)


def _units(target: Target, names: Iterable[str]) -> None:
    for name in names:
        shipped(target, f"setup/systemd/{name}", f"/lib/systemd/system/{name}", 0o644)


def account(target: Target) -> None:
    """Make the account of OAR if it is missing; only on a running system, as root."""
    if target.destdir or os.getuid() != 0 or has_account(target.user):
        return
    # No password opens it; without one the account would be locked, to keys too.
    words = ["--system", "--user-group", "--create-home", "--home-dir", target.homedir, "--password", "*"]
    words += ["--shell", f"{target.programs}/oarsh_shell", target.user]
    done = subprocess.run(["useradd", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"the account {target.user} cannot be made: {done.stderr.strip()}")


def _log_file(target: Target) -> None:
    """The log is oar's; rotation must keep it so."""
    log = Path("/var/log/oar.log")
    if target.destdir or log.exists() or os.getuid() != 0:
        return
    log.touch(0o640)
    give(log, target.user, target.user)

"""Files of each kind of machine, below DESTDIR: nothing here reads or changes the running machine.

An installation from the sources consists of several parts; a Debian package is one part.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable

import manpages

from . import tables
from .files import adapted, copy_readable, shipped, write
from .programs import Programs, tools
from .programs import agent as write_agent
from .target import SOURCE, Target

_NODE_FILES = (("sshd_config", 0o644), ("oar-node-service", 0o755), ("prologue", 0o755), ("epilogue", 0o755))
_NODE_UNITS = ("oar-node.service", "oar-node-script.service", "oar-nodecheck.service", "oar-nodecheck.timer")
_SERVER_UNITS = (
    *("oar-server.service", "oar-accounting.service", "oar-accounting.timer"),
    *("oar-purge.service", "oar-purge.timer", "oar.target"),
    *("oar-phoenix.service", "oar-phoenix.timer"),
)
_DOCUMENTS = ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")


def common(target: Target) -> None:
    """Install the common part: tools of nodes and login nodes, and privileges."""
    tools(target)
    shipped(target, "setup/nodes/sudoers", "/etc/sudoers.d/oar", 0o440)
    manual(target, lambda page: page.name in tables.NODE_TOOLS)


def both(target: Target, programs: Programs) -> None:
    """Install the commands of servers and login nodes that show data to users and change it for administrators."""
    programs.of_both()
    manual(target, lambda page: page.name in tables.READABLE_COMMANDS)


def server(target: Target, programs: Programs) -> None:
    """Install the server part: modules, administrators' commands, database files, units."""
    programs.modules()
    programs.of_administrators()
    shipped(target, "setup/nodes/oarnodesetting_ssh", f"{target.confdir}/oarnodesetting_ssh", 0o755)
    shipped(target, "setup/logrotate.d/oar", "/etc/logrotate.d/oar", 0o644, is_configuration=True)
    copy_readable(SOURCE / "setup" / "database", target.under(f"{target.programs}/setup/database"))
    _examples(target, ("wake_up_nodes.sh", "shut_down_nodes.sh", "oar_server_proepilogue"))
    _units(target, _SERVER_UNITS)
    write_agent(target.under(f"{target.programs}/{tables.AGENT}"))
    elsewhere = (*tables.NODE_TOOLS, *tables.USER_COMMANDS, *tables.READABLE_COMMANDS, tables.AGENT)
    manual(target, lambda page: page.section == 8 and page.name not in elsewhere)


def user(target: Target, programs: Programs) -> None:
    """Install the part of a login node, without the completion for its shells."""
    programs.of_users()
    _units(target, ("oar-commands.socket", "oar-commands.service"))
    manual(target, lambda page: page.name in (*tables.USER_COMMANDS, *tables.OTHER_NAMES))


def api(target: Target, programs: Programs) -> None:
    """Install the REST API, on the server or on a separate machine."""
    programs.of_api()
    shipped(target, "setup/pam.d/oar-api", "/etc/pam.d/oar-api", 0o644, is_configuration=True)
    shipped(target, "setup/nodes/sudoers-api", "/etc/sudoers.d/oar-api", 0o440)
    _units(target, ("oar-api.service",))


def node(target: Target) -> None:
    """Install the part of a compute node in addition to the tools: nothing of the Python package."""
    for name, mode in _NODE_FILES:
        shipped(target, f"setup/nodes/{name}", f"{target.confdir}/{name}", mode, is_configuration=True)
    target.under(f"{target.confdir}/check.d/x").parent.chmod(0o755)
    shipped(target, "setup/nodes/sudoers-node", "/etc/sudoers.d/oar-node", 0o440)
    _examples(target, ("access_prologue", "access_epilogue"))
    _units(target, _NODE_UNITS)


def agent(target: Target) -> None:
    """Install the part of a desktop computer: one program and its unit; nothing of the package, and no account."""
    write_agent(target.under(f"{target.bin}/{tables.AGENT}"))
    _units(target, ("oar-agent.service",))
    manual(target, lambda page: page.name == tables.AGENT)


def documents(target: Target) -> None:
    """Install the documentation."""
    docs = target.under(target.documents)
    for name in _DOCUMENTS:
        source = SOURCE / name
        if source.is_dir():
            copy_readable(source, docs / name, "*.py")
        elif source.is_file():
            docs.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, docs / name)
    shutil.copyfile(SOURCE / "setup" / "qrstat.xsd", docs / "qrstat.xsd")


def manual(target: Target, is_wanted: Callable[[manpages.Page], bool] = lambda page: True) -> None:
    """Install the selected manual pages, or all, including those of alternative command names."""
    texts = (adapted(target, SOURCE / "docs" / f"{name}.rst") for name in ("commands", "configuration"))
    others = (manpages.alias(name, words.split()[0], 1) for name, words in tables.OTHER_NAMES.items())
    for page in (*manpages.pages(*texts), *others):
        if is_wanted(page):
            write(target.under(f"{target.man}/{page.path}"), page.text, 0o644)


def configuration(target: Target, place: str) -> None:
    """Install the configuration with the defaults of all keys, its page and oar(7).  ``place``: target directory."""
    shipped(target, "etc/oar.conf", place, 0o640, is_configuration=True)
    manual(target, lambda page: page.section in (5, 7))


def _examples(target: Target, names: Iterable[str]) -> None:
    for name in names:
        shipped(target, f"setup/examples/{name}", f"{target.prefix}/share/oar/examples/{name}", 0o755)


def _units(target: Target, names: Iterable[str]) -> None:
    for name in names:
        shipped(target, f"setup/systemd/{name}", f"{target.unitdir}/{name}", 0o644)

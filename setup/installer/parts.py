"""What each kind of machine has on its disk, below DESTDIR: nothing here asks or changes the machine itself.

An installation from the sources puts several parts on a machine, a Debian package is one of them.
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
    """What every machine needs: tools of nodes and login nodes, and privileges."""
    tools(target)
    shipped(target, "setup/nodes/sudoers", "/etc/sudoers.d/oar", 0o440)
    manual(target, lambda page: page.name in tables.NODE_TOOLS)


def both(target: Target, programs: Programs) -> None:
    """What a server and a login node share of the commands: those that change for the one, and show for the other."""
    programs.of_both()
    manual(target, lambda page: page.name in tables.READABLE_COMMANDS)


def server(target: Target, programs: Programs) -> None:
    """Modules, administrators' commands, database files, units."""
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
    """What a login node needs, but for the completion of its shells."""
    programs.of_users()
    _units(target, ("oar-commands.socket", "oar-commands.service"))
    manual(target, lambda page: page.name in (*tables.USER_COMMANDS, *tables.OTHER_NAMES))


def api(target: Target, programs: Programs) -> None:
    """The REST API, beside the server or on a machine of its own."""
    programs.of_api()
    shipped(target, "setup/pam.d/oar-api", "/etc/pam.d/oar-api", 0o644, is_configuration=True)
    shipped(target, "setup/nodes/sudoers-api", "/etc/sudoers.d/oar-api", 0o440)
    _units(target, ("oar-api.service",))


def node(target: Target) -> None:
    """What a compute node needs beside the tools: nothing of the package."""
    for name, mode in _NODE_FILES:
        shipped(target, f"setup/nodes/{name}", f"{target.confdir}/{name}", mode, is_configuration=True)
    target.under(f"{target.confdir}/check.d/x").parent.chmod(0o755)
    shipped(target, "setup/nodes/sudoers-node", "/etc/sudoers.d/oar-node", 0o440)
    _examples(target, ("access_prologue", "access_epilogue"))
    _units(target, _NODE_UNITS)


def agent(target: Target) -> None:
    """What a desktop computer needs: one program, and a unit for it; nothing of the package, and no account."""
    write_agent(target.under(f"{target.bin}/{tables.AGENT}"))
    _units(target, ("oar-agent.service",))
    manual(target, lambda page: page.name == tables.AGENT)


def documents(target: Target) -> None:
    """The documents."""
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
    """The pages of the manual, or those that are wanted, among them those of other names of users' commands."""
    texts = (adapted(target, SOURCE / "docs" / f"{name}.rst") for name in ("commands", "configuration"))
    others = (manpages.alias(name, words.split()[0], 1) for name, words in tables.OTHER_NAMES.items())
    for page in (*manpages.pages(*texts), *others):
        if is_wanted(page):
            write(target.under(f"{target.man}/{page.path}"), page.text, 0o644)


def configuration(target: Target, place: str) -> None:
    """The configuration with the defaults of all keys, and its page.  ``place``: where it is to be."""
    shipped(target, "etc/oar.conf", place, 0o640, is_configuration=True)
    manual(target, lambda page: page.section == 5)


def _examples(target: Target, names: Iterable[str]) -> None:
    for name in names:
        shipped(target, f"setup/examples/{name}", f"{target.prefix}/share/oar/examples/{name}", 0o755)


def _units(target: Target, names: Iterable[str]) -> None:
    for name in names:
        shipped(target, f"setup/systemd/{name}", f"{target.unitdir}/{name}", 0o644)

"""Contents of each Debian package."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from installer import environments, parts
from installer.files import copy_readable, shipped, write
from installer.programs import Programs, completion_of
from installer.target import SOURCE, Target

from . import libraries
from .scripts import Units

_PROGRAMS = "/usr/lib/oar"
#: Directory of the wheels in the packages.
LIBRARIES, LIBRARIES_OF_API = f"{_PROGRAMS}/libraries", f"{_PROGRAMS}/libraries-api"
_SAMPLE = "/usr/share/oar/oar.conf"
#: Hook that Debian runs when the Python version of the machine changes.
_NEW_PYTHON = f"""\
#!/bin/sh
[ "$1" != rtupdate ] || exec {_PROGRAMS}/oar-environment renew
"""
_OLDEST_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Build:
    """Common parameters of all packages of a build."""

    version: str  #: of the packages
    environment: str  #: name of the Python environment of their programs
    architecture: str
    wheels: Path  #: directory filled by ``libraries.fetch``
    python: Path  #: Python on this machine with the package installed
    maintainer: str  #: name and address of the maintainer

    def target(self, tree: Path) -> Target:
        """Return the installation target below the tree of a package."""
        return Target(
            destdir=str(tree),
            prefix="/usr",
            unitdir="/usr/lib/systemd/system",
            zshdir="/usr/share/zsh/vendor-completions",
        )

    def programs(self, tree: Path, suffix: str = "") -> Programs:
        """The programs of a package."""
        return Programs(self.target(tree), f"{_PROGRAMS}/environments/{self.environment}{suffix}")


@dataclass(frozen=True)
class Package:
    """A package: description, dependencies and contents."""

    name: str
    summary: str
    description: str
    fill: Callable[[Build, Path], None]
    relations: Mapping[str, str] = field(default_factory=dict)
    is_for_all: bool = False  #: architectures
    units: Units = field(default_factory=Units)


def environment_name() -> str:
    """Return the name of the Python environment that the packages of these sources create."""
    digest = hashlib.sha256(libraries.LIST.read_bytes())
    for name, data in package_files():
        digest.update(name.encode() + data)
    return f"{environments.version()}-{digest.hexdigest()[:12]}"


def package_files() -> Iterator[tuple[str, bytes]]:
    """Return the files of the Python package by name."""
    for path in sorted((SOURCE / "oar").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(SOURCE)), path.read_bytes()


def write_wheel(directory: Path) -> None:
    """Write the wheel of the Python package."""
    version = environments.version()
    name = f"oar-{version}.dist-info/METADATA"
    metadata = (name, f"Metadata-Version: 2.1\nName: oar\nVersion: {version}\n".encode())
    with zipfile.ZipFile(directory / f"oar-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in (*package_files(), metadata):
            wheel.writestr(zipfile.ZipInfo(path, _OLDEST_DATE), data, zipfile.ZIP_DEFLATED)


# -- one for each package ----------------------------------------------------------------------------------------------


def _common(build: Build, tree: Path) -> None:
    parts.common(build.target(tree))


def _python(build: Build, tree: Path) -> None:
    target = build.target(tree)
    place = target.under(LIBRARIES)
    shutil.copytree(build.wheels / "base", place)
    write_wheel(place / "all")
    program = (SOURCE / "setup" / "debian" / "oar-environment").read_text()
    write(target.under(f"{_PROGRAMS}/oar-environment"), program, 0o755)
    write(target.under("/usr/share/python3/runtime.d/oar-python.rtupdate"), _NEW_PYTHON, 0o755)
    parts.both(target, build.programs(tree))
    parts.configuration(target, _SAMPLE)
    target.under(_SAMPLE).chmod(0o644)
    shipped(target, "etc/quotas_conf.json", "/usr/share/oar/quotas_conf.json", 0o644)


def _server(build: Build, tree: Path) -> None:
    parts.server(build.target(tree), build.programs(tree))
    copy_readable(SOURCE / "setup" / "monitoring", build.target(tree).under("/usr/share/oar/monitoring"))


def _user(build: Build, tree: Path) -> None:
    programs = build.programs(tree)
    parts.user(build.target(tree), programs)
    programs.completion(lambda shell: completion_of(shell, build.python))


def _api(build: Build, tree: Path) -> None:
    parts.api(build.target(tree), build.programs(tree, "-api"))
    shutil.copytree(build.wheels / "api", build.target(tree).under(LIBRARIES_OF_API))


def _node(build: Build, tree: Path) -> None:
    parts.node(build.target(tree))


def _agent(build: Build, tree: Path) -> None:
    parts.agent(build.target(tree))


def _doc(build: Build, tree: Path) -> None:
    parts.documents(build.target(tree))


_SAME_PYTHON = {"Pre-Depends": "oar-python (= {version})"}
PACKAGES = (
    Package(
        "oar-common",
        "batch scheduler for clusters - account, privileges, tools",
        "The account oar, the rules of sudo, and the tools that every machine of a cluster has.",
        _common,
        {"Depends": "openssh-client, passwd, python3, sudo"},
        is_for_all=True,
    ),
    Package(
        "oar-python",
        "batch scheduler for clusters - Python environment",
        "The Python package of OAR and the libraries that it needs, in the versions with which it was tested. They are"
        " used by OAR alone.",
        _python,
        {
            "Depends": "oar-common (= {version}), python3 (>= 3.11), python3 (<< 3.12) | python3 (>= 3.13),"
            " python3 (<< 3.14)",
            "Suggests": "python3-venv",
        },
    ),
    Package(
        "oar-server",
        "batch scheduler for clusters - server",
        "The server, which plans, launches and watches the jobs of a cluster, and the commands of administrators.",
        _server,
        {
            **_SAME_PYTHON,
            "Depends": "oar-common (= {version}), iputils-ping, python3",
            "Recommends": "linux-sysctl-defaults, logrotate, postgresql",  # the first: Debian 13's right to use ping
        },
        is_for_all=True,
        units=Units(
            enabled=("oar-server.service", "oar-accounting.timer", "oar-purge.timer"),
            offered=("oar.target", "oar-phoenix.timer"),
            not_yet=("oar-server.service", "oar-accounting.timer", "oar-purge.timer"),
            stopped=("oar-server.service",),
        ),
    ),
    Package(
        "oar-user",
        "batch scheduler for clusters - commands of users",
        "The commands with which users submit jobs and look at them, for the machines where they log in.",
        _user,
        {**_SAME_PYTHON, "Depends": "oar-common (= {version})"},
        is_for_all=True,
        units=Units(offered=("oar-commands.socket", "oar-commands.service"), replaced=("oar-commands.service",)),
    ),
    Package(
        "oar-node",
        "batch scheduler for clusters - compute nodes",
        "What a machine needs that runs jobs: the sshd through which the server reaches it, and health checks.",
        _node,
        {"Depends": "oar-common (= {version}), openssh-server"},
        is_for_all=True,
        units=Units(enabled=("oar-node.service",), offered=("oar-node-script.service", "oar-nodecheck.timer")),
    ),
    Package(
        "oar-api",
        "batch scheduler for clusters - REST API and pages",
        "The REST API and the pages, for the server or a machine of their own.",
        _api,
        {**_SAME_PYTHON, "Depends": "oar-common (= {version})"},
        units=Units(enabled=("oar-api.service",), not_yet=("oar-api.service",), replaced=("oar-api.service",)),
    ),
    Package(
        "oar-agent",
        "batch scheduler for clusters - agent of desktop computers",
        "The program by which a computer that the server cannot reach fetches jobs and runs them. It needs nothing else"
        " of OAR.",
        _agent,
        {"Depends": "python3"},
        is_for_all=True,
        units=Units(offered=("oar-agent.service",)),
    ),
    Package(
        "oar-doc",
        "batch scheduler for clusters - documents",
        "The guides for users and administrators, and the documents of the design.",
        _doc,
        is_for_all=True,
    ),
)

"""Removes an installation from the sources; configuration, keys, the log, the account and the database are kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from . import parts
from .programs import Programs
from .target import InstallError, Target

#: Directories below OARDIR in addition to the files that an installation writes.
_MADE_THERE = ("environments", "__pycache__")
_PACKAGE_LISTS = "/var/lib/dpkg/info"


def remove(target: Target) -> None:
    """Stop the units, and remove all files except the configuration.  Raises InstallError, OSError."""
    _refuse_packages(target)
    with tempfile.TemporaryDirectory(prefix="oar-remove-") as directory:
        paths = list(_installed(replace(target, destdir=directory)))
    units = [path.rpartition("/")[2] for path in paths if path.startswith(f"{target.unitdir}/")]
    _systemctl(target, "disable", "--now", *(unit for unit in units if _place(target, f"{target.unitdir}/{unit}")))
    for path in paths:
        if not path.startswith(f"{target.confdir}/"):
            Path(target.destdir + path).unlink(missing_ok=True)
    _remove_directories(target, paths)
    _systemctl(target, "daemon-reload")


def _installed(target: Target) -> Iterator[str]:
    """Iterate over the paths of all installed files: makes an installation in an empty directory and lists it."""
    programs = Programs(target, f"{target.programs}/environments/none")
    parts.common(target)
    parts.both(target, programs)
    parts.server(target, programs)
    parts.user(target, programs)
    programs.completion(lambda shell: "")
    parts.api(target, programs)
    parts.node(target)
    parts.agent(target)
    parts.documents(target)
    parts.manual(target)
    for top, _, names in os.walk(target.destdir):
        yield from (f"{top.removeprefix(target.destdir)}/{name}" for name in names)


def _remove_directories(target: Target, paths: list[str]) -> None:
    """Remove the environments, and the directories of OAR that are empty."""
    for name in _MADE_THERE:
        shutil.rmtree(f"{target.destdir}{target.programs}/{name}", ignore_errors=True)
    Path(f"{target.destdir}{target.programs}/venv").unlink(missing_ok=True)
    own = (target.programs, f"{target.prefix}/share/oar", target.documents)
    parents = {str(parent) for path in paths for parent in Path(path).parents}
    for parent in sorted(parents, key=len, reverse=True):
        place = Path(target.destdir + parent)
        if f"{parent}/".startswith(tuple(f"{top}/" for top in own)) and place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _refuse_packages(target: Target) -> None:
    """Refuse to remove an installation by Debian packages.  Raises InstallError."""
    lists = Path(target.destdir + _PACKAGE_LISTS).glob("oar-*.list")
    owners = [each.stem for each in lists if f"\n{target.programs}/" in each.read_text()]
    if owners:
        raise InstallError(f"{target.programs} is of packages: apt-get remove {' '.join(sorted(owners))}")


def _place(target: Target, path: str) -> bool:
    return Path(target.destdir + path).exists()


def _systemctl(target: Target, *words: str) -> None:
    """Run systemctl if systemd runs and the installation is for this machine; unknown units are ignored."""
    if not target.destdir and Path("/run/systemd/system").is_dir():
        subprocess.run(["systemctl", "--quiet", *words], check=False, capture_output=True)

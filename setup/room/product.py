"""The product in rooms: installed once per state of the sources, cached, overlaid on /usr and /etc of each room."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from installer import environments, flavours
from installer.target import SOURCE, InstallError, Target

from . import cache, layout, levels

_PYTHON = "/usr/bin/python3"
_SOURCES = (
    "pyproject.toml",
    "README.md",
    "oar",
    "setup/examples",
    "setup/nodes",
    "setup/database",
    "setup/systemd",
    "setup/pam.d",
    "setup/installer",
    "setup/logrotate.d",
    "setup/manpages.py",
    "docs/commands.rst",
    "docs/configuration.rst",
    "etc",
)
_KEPT = 6
#: Length of a digest; other entries of the same directory begin with ``oar-``, too: the programs of OAR 2.5.
_LETTERS = 16


def install() -> Path:
    """Return the root directory of an installation of the current sources; create it if it is missing."""
    root = layout.cache_root()
    place = root / f"oar-{_digest(_sources())}"
    with cache.lock("oar"):
        if not place.exists():
            _make(place, environment())
            _forget_old(root, place)
        os.utime(place)
    for directory in (layout.OARDIR, layout.CONF_DIR):
        _hide_below(Path(f"{place}{directory}"))
    return place


def _hide_below(directory: Path) -> None:
    """Mark a directory as opaque: rooms see it alone, not merged with the host's directory."""
    kind = "user" if levels.is_rootless() else "trusted"
    os.setxattr(directory, f"{kind}.overlay.opaque", b"y")


def _make(place: Path, environment: Path) -> None:
    unfinished = place.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    target = Target(destdir=str(unfinished), prefix="/usr", python=_PYTHON)
    try:
        flavours.install(("server", "user", "api", "node"), target, environment)
    except InstallError as error:
        raise layout.RoomError(f"the product cannot be installed: {error}") from None
    unfinished.rename(place)


def environment() -> Path:
    """Return a virtual environment with the product's dependencies; installations hard-link its files."""
    wanted = [environments.BUILD, *environments.requirements(["api"])]

    def make(place: Path) -> None:
        print("Installing the libraries of OAR ...", flush=True)
        try:
            environments.make(_PYTHON, place, wanted)
        except InstallError as error:
            raise layout.RoomError(f"the libraries cannot be installed: {error}") from None

    return cache.kept(f"environment-{_digest([f'{sys.version} {wanted}'.encode()])}", make)


def _sources() -> Iterator[bytes]:
    """Return a digest of names and contents of all installed files."""
    for name in _SOURCES:
        top = SOURCE / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{path.relative_to(SOURCE)} {path.stat().st_mode & 0o777}\n".encode()
                yield path.read_bytes()


def _digest(parts: Iterator[bytes] | list[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:_LETTERS]


def _forget_old(root: Path, place: Path) -> None:
    """Remove installations that were not used recently and are not mounted by a running room."""
    old = sorted(root.glob(f"oar-{'[0-9a-f]' * _LETTERS}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in old[_KEPT:]:
        if path != place and str(path) not in _mounted_somewhere():
            shutil.rmtree(path, ignore_errors=True)


def _mounted_somewhere() -> str:
    """Return the mount tables of all rooms on the host."""
    tables = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        directory = Path("/proc", process)
        with contextlib.suppress(OSError):
            if (directory / "comm").read_text().startswith("room-init"):
                tables.append((directory / "mountinfo").read_text())
    return "".join(tables)

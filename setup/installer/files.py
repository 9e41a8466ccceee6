"""Files of an installation; each is replaced atomically, so that it is never missing or incomplete."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

from .target import SOURCE, Target

_SHIPPED_OARDIR = "/usr/lib/oar"


def write(place: Path, text: str, mode: int) -> None:
    """Write a file."""
    new = place.with_name(f".{place.name}.new")
    new.unlink(missing_ok=True)
    new.write_text(text)
    new.chmod(mode)
    new.replace(place)


def link(place: Path, to: str) -> None:
    """Make a symbolic link."""
    new = place.with_name(f".{place.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(to)
    new.replace(place)


def copy_readable(source: Path, target: Path, *left_out: str) -> None:
    """Copy a tree and make it readable for all users."""
    ignored = shutil.ignore_patterns("__pycache__", *left_out)
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True, ignore=ignored)
    for path in (target, *target.rglob("*")):
        mode = path.lstat().st_mode
        if not path.is_symlink():
            path.chmod((mode | (0o755 if mode & 0o100 else 0o644)) & 0o7777)


def adapted(target: Target, source: Path) -> str:
    """Return the text of a shipped file with the paths of this installation."""
    text = source.read_text().replace(_SHIPPED_OARDIR, target.programs)
    return text.replace("/etc/oar/", f"{target.confdir}/").replace("/var/lib/oar", target.homedir)


def shipped(target: Target, source: str, place: str, mode: int, *, is_configuration: bool = False) -> None:
    """Install one file of the sources if it exists; existing configuration is kept."""
    if not SOURCE.joinpath(source).is_file():
        return
    path = target.under(place)
    if is_configuration and path.exists():
        return
    write(path, adapted(target, SOURCE / source), mode)


def give(path: Path, owner: str, group: str) -> None:
    """Change the owner of a file if possible."""
    if os.getuid() == 0 and path.exists() and has_account(group):
        shutil.chown(path, owner, group)


def has_account(user: str) -> bool:
    """Return whether the account exists on this machine."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True

"""Another release of OAR on one server of a running room: an upgrade of this machine only.

The programs of the sources from which ``setup/cluster`` is called are installed beside those that run, in an
environment of their own, and replace them one by one, as ``setup/install`` does. All other machines keep theirs. The
commands in /usr/bin are those of the first release: its clients talk to the new command server.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from . import layout, product, services
from .layout import Room

#: Directory of the programs of a server that was upgraded; it covers OARDIR on this machine.
_OWN = "/run/programs"
_ENVIRONMENTS = "environments"


def install(room: Room, server: str, root: Path) -> None:
    """Install the release of these sources on a server. `root`: its root directory, as this computer sees it.

    Raises RoomError, OSError.
    """
    programs = Path(f"{product.install()}{layout.OARDIR}")
    own = root / _OWN.lstrip("/")
    if not own.exists():
        services.inside(room, "root", f"cp -a {layout.OARDIR} {_OWN} && mount --bind {_OWN} {layout.OARDIR}", server)
    for environment in (programs / _ENVIRONMENTS).iterdir():
        if not (own / _ENVIRONMENTS / environment.name).exists():
            shutil.copytree(environment, own / _ENVIRONMENTS / environment.name, symlinks=True)
    for program in programs.iterdir():
        if program.is_file() and not program.is_symlink():
            _replace(program, own / program.name)


def _replace(source: Path, target: Path) -> None:
    """Replace a program in one step: who starts it meanwhile gets the old one or the new one."""
    new = target.with_name(f"{target.name}.new")
    shutil.copy2(source, new)
    new.replace(target)

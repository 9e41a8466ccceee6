"""Target directories of an installation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: Root directory of the sources.
SOURCE = Path(__file__).resolve().parent.parent.parent


class InstallError(Exception):
    """An installation error with a text of one line."""


@dataclass(frozen=True)
class Target:
    """Target directories as paths of the running system; `under` adds DESTDIR before them."""

    destdir: str = ""
    prefix: str = "/usr/local"
    bindir: str = ""
    sbindir: str = ""
    mandir: str = ""
    docdir: str = ""
    oardir: str = ""
    unitdir: str = "/lib/systemd/system"
    zshdir: str = ""
    confdir: str = "/etc/oar"
    homedir: str = "/var/lib/oar"
    user: str = "oar"
    python: str = "/usr/bin/python3"
    wheels: str = ""  #: directory of all wheels on this machine; empty: fetch from the index

    @property
    def programs(self) -> str:
        """OARDIR."""
        return self.oardir or f"{self.prefix}/lib/oar"

    @property
    def bin(self) -> str:
        """BINDIR."""
        return self.bindir or f"{self.prefix}/bin"

    @property
    def sbin(self) -> str:
        """SBINDIR."""
        return self.sbindir or f"{self.prefix}/sbin"

    @property
    def man(self) -> str:
        """MANDIR."""
        return self.mandir or f"{self.prefix}/share/man"

    @property
    def zsh(self) -> str:
        """Directory of zsh completions."""
        return self.zshdir or f"{self.prefix}/share/zsh/site-functions"

    @property
    def documents(self) -> str:
        """DOCDIR."""
        return self.docdir or f"{self.prefix}/share/doc/oar"

    def under(self, path: str) -> Path:
        """Return a path below DESTDIR; create its directory."""
        place = Path(f"{self.destdir}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

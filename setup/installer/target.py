"""Where an installation goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: The top of the sources from which is installed.
SOURCE = Path(__file__).resolve().parent.parent.parent


class InstallError(Exception):
    """One line for the person who installs."""


@dataclass(frozen=True)
class Target:
    """Where things go. Paths are those of the running system; `under` puts DESTDIR before them."""

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
    wheels: str = ""  #: a directory of this machine: nothing is fetched from elsewhere

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
        """Where zsh looks for completions."""
        return self.zshdir or f"{self.prefix}/share/zsh/site-functions"

    @property
    def documents(self) -> str:
        """DOCDIR."""
        return self.docdir or f"{self.prefix}/share/doc/oar"

    def under(self, path: str) -> Path:
        """The place of a path in this installation, its directory made."""
        place = Path(f"{self.destdir}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

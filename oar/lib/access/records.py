"""The record of a user."""

import re
from enum import StrEnum
from typing import NamedTuple

from oar.lib.base.errors import NotAllowed


class Via(StrEnum):
    """How a change reached OAR."""

    COMMAND = "command"
    API = "api"
    PAGE = "page"  #: the API, by the session of a browser
    FILE = "file"  #: a file that the server reads: oar.conf, or one that it names
    SQL = "sql"  #: a table was changed without OAR


#: What separates the names in the text of an author.
_SEPARATORS = re.compile(r"[ (),:]+")


def is_named(name: str, author: str) -> bool:
    """Return whether the text of an author, such as ``root (anna)``, names a user or is equal to the name."""
    return name == author or name in _SEPARATORS.split(author)


class User(NamedTuple):
    """The caller of a command or the API, identified once."""

    name: str
    uid: int
    administers: bool | None = None  #: None: as the name says; else by what he has shown to whom he asked
    person: str = ""  #: who acts under an account of administrators: the login user, the user of sudo
    token: str = ""  #: of the API: the token of the request, such as ``token 7``
    via: Via = Via.COMMAND

    @property
    def is_admin(self) -> bool:
        """Whether the user is oar, root, or an authenticated administrator."""
        return self.name in ("oar", "root") if self.administers is None else self.administers

    def check_administers(self) -> None:
        """Raise NotAllowed if the user is not an administrator."""
        if not self.is_admin:
            raise NotAllowed("this is for administrators: you must be oar or root")

    @property
    def author(self) -> str:
        """The name in events, logs and histories, such as ``root (anna)``."""
        return f"{self.name} ({self.person})" if self.person else self.name

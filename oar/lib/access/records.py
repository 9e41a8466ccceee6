"""The record of a user."""

from typing import NamedTuple

from oar.lib.base.errors import NotAllowed


class User(NamedTuple):
    """Who is asking: decided once, by the command or the API."""

    name: str
    uid: int
    administers: bool | None = None  #: None: as the name says; else by what he has shown to whom he asked

    @property
    def is_admin(self) -> bool:
        """Whether this is an administrator: oar and root, and who has shown to be one."""
        return self.name in ("oar", "root") if self.administers is None else self.administers

    def check_administers(self) -> None:
        """Refuse what only administrators do.  Raises NotAllowed."""
        if not self.is_admin:
            raise NotAllowed("this is for administrators: you must be oar or root")

"""The record of a user."""

from typing import NamedTuple

from oar.lib.base.errors import NotAllowed


class User(NamedTuple):
    """The caller of a command or the API, identified once."""

    name: str
    uid: int
    administers: bool | None = None  #: None: as the name says; else by what he has shown to whom he asked

    @property
    def is_admin(self) -> bool:
        """Whether the user is oar, root, or an authenticated administrator."""
        return self.name in ("oar", "root") if self.administers is None else self.administers

    def check_administers(self) -> None:
        """Raise NotAllowed if the user is not an administrator."""
        if not self.is_admin:
            raise NotAllowed("this is for administrators: you must be oar or root")

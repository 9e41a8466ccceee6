"""Errors of the older interfaces, with their statuses. Clients compare the names of the classes, in small letters."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus

from oar.api.errors import STATUSES
from oar.lib.base.errors import OarError, UserError


class BadType(UserError):
    """The media type of a body or of a response is not supported."""


class NoSuchAddress(OarError):
    """No operation has this address."""


class NoSuchMethod(OarError):
    """The address exists, but not with this method."""

    def __init__(self, methods: Sequence[str]) -> None:
        super().__init__(f"the methods of this address are {', '.join(methods)}")
        self.methods = methods


class NotServed(OarError):
    """An operation of an older version that was removed on purpose."""


class NoSuchKey(UserError):
    """The key of oar.conf does not exist or is secret."""


class MediaOff(UserError):
    """The site does not serve files of users."""


class NoSuchFile(UserError):
    """The file does not exist, or not on this machine."""


class CannotBeDone(UserError):
    """A system call on a file of a user failed."""


class Titled(UserError):
    """An error with a title of its own."""

    def __init__(self, error: OarError, title: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.title = title


STATUSES.update(
    {
        BadType: HTTPStatus.NOT_ACCEPTABLE,
        NoSuchAddress: HTTPStatus.NOT_FOUND,
        NoSuchMethod: HTTPStatus.METHOD_NOT_ALLOWED,
        NotServed: HTTPStatus.GONE,
        NoSuchKey: HTTPStatus.NOT_FOUND,
        MediaOff: HTTPStatus.NOT_IMPLEMENTED,
        NoSuchFile: HTTPStatus.NOT_FOUND,
        CannotBeDone: HTTPStatus.BAD_REQUEST,
    }
)


@contextmanager
def titled(title: str) -> Iterator[None]:
    """Give the errors of a block a title, such as ``Delete error``.  Raises Titled."""
    try:
        yield
    except UserError as error:
        raise Titled(error, title) from error

"""What all acts of administrators have in common: who may, one transaction, one line in the log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fastapi import Request

from oar.api.service import asking, service_of

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.facts.records import User

_log = logging.getLogger(__name__)


class AdminAct(NamedTuple):
    """An act of an administrator, in one transaction."""

    tx: "Transaction"
    user: "User"
    config: "Config"
    warnings: list[str]  #: what must be said of it, complete when the transaction has ended


@contextmanager
def administering(request: Request) -> Iterator[AdminAct]:
    """Open a transaction for an administrator; what was committed stands in the log.

    Raises Unidentified, NotAllowed.
    """
    who = asking(request)
    user = who.caller.administering()
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        yield AdminAct(tx, user, who.config, warnings)
    note(request, user)


def note(request: Request, user: "User") -> None:
    """Write one line about a change in the log: who did it, by which request."""
    _log.info("[admin] user=%s request=%s %s %s", user.name, request.state.request_id, request.method, request.url.path)

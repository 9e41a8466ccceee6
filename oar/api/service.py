"""What handlers work with: configuration, database, what is new.  One for each process."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from fastapi import Request

from oar.api.callers import Caller, identify
from oar.api.hub import Hub
from oar.api.statuses import Unidentified
from oar.api.workers import Workers
from oar.lib.runtime import delivery
from oar.lib.views.privacy import Privacy, privacy_for

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.facts.messages import Effect
    from oar.lib.runtime import Runtime

#: The largest id that the database can hold.
LARGEST_ID = 2**63 - 1


_log = logging.getLogger(__name__)
#: What is collected for the answer to the request that this thread answers.
_WARNINGS: ContextVar[list[str] | None] = ContextVar("warnings", default=None)


class Asking(NamedTuple):
    """A request, as handlers see it: who asks, and what he may see of others."""

    caller: Caller
    privacy: Privacy
    config: "Config"
    database: "Database"


class Service:
    """The configuration, the database, the hub and the workers of a process."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime
        self.hub = Hub(runtime.database, runtime.config.api_max_streams)
        self.workers = Workers(runtime)
        runtime.database.deliver = self._deliver

    def asking(self, request: Request) -> Asking:
        """Return who asks, with what he may see.  Raises Unidentified, NotAllowed."""
        config, database = self.runtime.config, self.runtime.database
        caller = identify(request, config, database)
        if caller.user is None and not config.api_anonymous_read:
            raise Unidentified("only users who are known may read here: give a token (oar-token create)")
        privacy = privacy_for(config, caller.user)._replace(only=self._named_jobs(request, caller))
        return Asking(caller, privacy, config, database)

    @contextmanager
    def warnings(self) -> Iterator[list[str]]:
        """Collect what must be said of the transactions of a block: that the server could not be reached."""
        collected: list[str] = []
        token = _WARNINGS.set(collected)
        try:
            yield collected
        finally:
            _WARNINGS.reset(token)

    def _deliver(self, effects: "Sequence[Effect]") -> None:
        delivery(self.runtime.config, _warn)(effects)

    def _named_jobs(self, request: Request, caller: Caller) -> frozenset[int] | None:
        """Return the jobs of which the caller is not nobody; None: of all."""
        if caller.scopes.reads_all:
            return None
        asked = request.path_params.get("job_id", "")
        if not asked.isdecimal() or int(asked) > LARGEST_ID:
            return caller.scopes.jobs
        return caller.scopes.jobs | caller.submitted([int(asked)])


def _warn(text: str) -> None:
    collected = _WARNINGS.get()
    if collected is None:
        _log.warning("%s", text)
    else:
        collected.append(text)


def service_of(request: Request) -> Service:
    """Return the service that answers a request."""
    service: Service = request.app.state.service
    return service


def asking(request: Request) -> Asking:
    """Return who asks, with what he may see.  To be called in the handler's thread."""
    return service_of(request).asking(request)

"""What handlers work with: configuration, database, what is new.  One for each process."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from fastapi import Request

from oar.api.callers import SAFE_METHODS, Caller, Identities, peer_of_request
from oar.api.chunk_cache import Chunks
from oar.api.hub import Hub
from oar.api.limits import Buckets, Rate
from oar.api.passwords import Passwords
from oar.api.statuses import Unidentified
from oar.api.workers import Workers
from oar.lib.access.accounts import PRIVILEGED
from oar.lib.runtime import delivery
from oar.lib.views.privacy import Privacy, privacy_for
from oar.web.documents import Documents

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.facts.messages import Effect
    from oar.lib.runtime import Runtime

#: The largest id that the database can hold.
LARGEST_ID = 2**63 - 1
#: Seconds' worth of requests that may come at once.
READS_AT_ONCE, CHANGES_AT_ONCE = 4, 10


def _rates(config: "Config") -> tuple[Rate, Rate]:
    """Return how often a client may read, and change something."""
    reads, changes = config.api_rate_read, config.api_rate_change
    return Rate(reads, reads * READS_AT_ONCE), Rate(changes, changes * CHANGES_AT_ONCE)


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
    """The configuration, the database, the hub, the workers and the pages of a process."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime
        self.documents = Documents()
        self.hub = Hub(runtime.database, runtime.config.api_max_streams)
        self.workers = Workers(runtime)
        runtime.database.deliver = self._deliver
        self.chunks = Chunks()
        self.identities = Identities(runtime.database, Passwords(runtime.oardir))
        self._reads, self._changes = (Buckets(rate) for rate in _rates(runtime.config))

    def asking(self, request: Request) -> Asking:
        """Return who asks, with what he may see.  Raises Unidentified, NotAllowed."""
        config, database = self.runtime.config, self.runtime.database
        caller = self.identities.identify(request, config)
        self._count(request, caller)
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

    def reload(self) -> bool:
        """Read oar.conf again if it has changed; one with errors changes nothing.  Return whether it has."""
        config = self.runtime.changed_config()
        if config is None:
            return False
        self.runtime.config = config
        self.set_rates()
        return True

    def set_rates(self) -> None:
        """Let clients ask as often as oar.conf says now."""
        self._reads.rate, self._changes.rate = _rates(self.runtime.config)

    def _count(self, request: Request, caller: Caller) -> None:
        """Count a request; those of administrators are not.  Raises TooOften."""
        if caller.user and (caller.user.is_admin or caller.user.name in PRIVILEGED):
            return
        client = caller.user.name if caller.user else peer_of_request(request).address
        if request.method in SAFE_METHODS:
            self._reads.take(client, "requests")
        else:
            self._changes.take(client, "changes")

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

"""What handlers work with: configuration, database, what is new.  One for each process."""

from typing import TYPE_CHECKING, NamedTuple

from fastapi import Request

from oar.api.callers import Caller, identify
from oar.api.hub import Hub
from oar.api.problems import Unidentified
from oar.lib.views.privacy import Privacy, privacy_for

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.runtime import Runtime

#: The largest id that the database can hold.
LARGEST_ID = 2**63 - 1


class Asking(NamedTuple):
    """A request, as handlers see it: who asks, and what he may see of others."""

    caller: Caller
    privacy: Privacy
    config: "Config"
    database: "Database"


class Service:
    """The configuration, the database and the hub of a process."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime
        self.hub = Hub(runtime.database, runtime.config.api_max_streams)

    def asking(self, request: Request) -> Asking:
        """Return who asks, with what he may see.  Raises Unidentified, NotAllowed."""
        config, database = self.runtime.config, self.runtime.database
        caller = identify(request, config, database)
        if caller.user is None and not config.api_anonymous_read:
            raise Unidentified("only users who are known may read here: give a token (oar-token create)")
        privacy = privacy_for(config, caller.user)._replace(only=self._named_jobs(request, caller))
        return Asking(caller, privacy, config, database)

    def _named_jobs(self, request: Request, caller: Caller) -> frozenset[int] | None:
        """Return the jobs of which the caller is not nobody; None: of all."""
        if caller.scopes.reads_all:
            return None
        asked = request.path_params.get("job_id", "")
        if not asked.isdecimal() or int(asked) > LARGEST_ID:
            return caller.scopes.jobs
        return caller.scopes.jobs | caller.submitted([int(asked)])


def service_of(request: Request) -> Service:
    """Return the service that answers a request."""
    service: Service = request.app.state.service
    return service


def asking(request: Request) -> Asking:
    """Return who asks, with what he may see.  To be called in the handler's thread."""
    return service_of(request).asking(request)

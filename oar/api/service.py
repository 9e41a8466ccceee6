"""The service, one for each process; the context of a request that handlers use, and its preconditions."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request

from oar.api.authentication import OWN_NAMING, SAFE_METHODS, AgentToken, Caller, Identities, Way
from oar.api.clients import client_of
from oar.api.concurrency import Buckets, InTurn, Places, UnderWay, configured_rates
from oar.api.errors import OtherVersion, Unidentified
from oar.api.hub import Hub, StateTags, Subscriber
from oar.api.parameters import LARGEST_ID
from oar.api.passwords import Passwords
from oar.api.request_metrics import SPENT, RequestCounts, TimedCursor
from oar.api.response_cache import Cache, ChunkFiles, Chunks, ChunksAhead, SentStates
from oar.api.responses import encoded
from oar.api.workers import PATIENCE, Workers
from oar.lib.access.accounts import PRIVILEGED
from oar.lib.access.records import User
from oar.lib.accounts.projects import controlled_by
from oar.lib.base.allowed_networks import Networks
from oar.lib.db.user_sql import Asker
from oar.lib.history.sql_feed import ReservationFeed
from oar.lib.jobs.privacy import Privacy, privacy_for
from oar.lib.jobs.views import job_view
from oar.lib.monitoring.metrics import Happenings
from oar.lib.runtime import delivery

if TYPE_CHECKING:
    from oar.api.workers import Outcome, WorkerTask
    from oar.lib.bus.messages import Effect
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.records import Position
    from oar.lib.history.sql_feed import News
    from oar.lib.reservations.records import AdvanceReservation
    from oar.lib.runtime import Runtime


#: Outputs that a user follows, and lists that a client exports, at most; and exports of all clients.  Results that a
#: computer sends at the same time.
FOLLOWS_OF_A_USER, EXPORTS_OF_A_CLIENT, MAX_EXPORTS, UPLOADS_OF_A_COMPUTER = 5, 2, 20, 4
#: Streams of a user, streams of an address without users, and waiting requests of a client, at most.
STREAMS_OF_A_USER, STREAMS_OF_AN_ADDRESS, WAITS_OF_A_CLIENT = 10, 20, 100
#: Files that a user reads and writes at a time, at most.
FILES_OF_A_USER = 8
#: Files that a user reads at a time, each in a thread, at most.
READS_OF_A_USER = 4


_log = logging.getLogger(__name__)
#: A user without jobs.
_ANYBODY = User("", -1)
#: Warnings for the response to the request that this thread handles.
_WARNINGS: ContextVar[list[str] | None] = ContextVar("warnings", default=None)


class Asking(NamedTuple):
    """The context of a request: the caller, and what the caller may see of other users."""

    caller: Caller
    privacy: Privacy  #: without the projects that the caller manages: see ``job_privacy``
    config: "Config"
    database: "Database"

    def job_privacy(self, tx: "Transaction") -> Privacy:
        """Return the permissions on jobs, with the projects whose jobs the caller controls as a manager."""
        return self.privacy._replace(managed=controlled_by(tx, self.config, self.caller.user))

    def managed(self) -> frozenset[str]:
        """Return the projects whose jobs the caller controls; a site without such rights reads nothing."""
        if not self.config.project_managers_control_jobs:
            return frozenset()
        return self.database.look(lambda tx: controlled_by(tx, self.config, self.caller.user))

    def sql_asker(self) -> Asker:
        """Return the author of a condition on jobs, with the columns that it may use.  Raises Unidentified."""
        user = self.caller.identified()
        is_full = user.is_admin or user.name in self.config.user_sql_full_users
        return Asker(user.name, self.privacy.hidden_columns(), is_full and self.caller.scopes.reads_all)


class Service:
    """The configuration, the database, the hub and the workers of a process."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime
        self.places = Places(runtime.config.api_threads)
        self.requests = RequestCounts(self.places.threads)
        self.happenings = Happenings()
        self.hub = Hub(runtime.database, runtime.config.api_max_streams, self._count_news)
        self.state_tags = StateTags(self.hub)
        self.reservation_feed = ReservationFeed(runtime.database)
        self.workers = Workers(runtime)
        self.follows = UnderWay("followed outputs", FOLLOWS_OF_A_USER, "API_MAX_FOLLOWS")
        self._files_read = UnderWay("file reads in progress", READS_OF_A_USER, "API_THREADS")
        self.streams_of_users = UnderWay("event streams", STREAMS_OF_A_USER, "API_MAX_STREAMS")
        self.streams_of_addresses = UnderWay("event streams", STREAMS_OF_AN_ADDRESS, "API_MAX_STREAMS")
        self.waits = UnderWay("waiting requests", WAITS_OF_A_CLIENT, "API_MAX_STREAMS")
        self.exports = UnderWay("exports", EXPORTS_OF_A_CLIENT)
        self.uploads = UnderWay("uploads of results", UPLOADS_OF_A_COMPUTER, "API_MAX_FOLLOWS")
        self.media = UnderWay("file transfers", FILES_OF_A_USER)
        runtime.database.deliver = self._deliver
        runtime.database.pool.cursors = TimedCursor
        self.chunks = Chunks(ChunkFiles.of_service(runtime.config.web_gantt_cache))
        self.chunks_ahead = ChunksAhead(runtime.database, self.chunks)
        self.moments = SentStates()
        self.cache = Cache()  #: questions without parameters
        self.periods = Cache()  #: questions with dates and rows that clients choose
        self.identities = Identities(runtime.database, Passwords(runtime.oardir))
        self._buckets = [Buckets(rate) for rate in configured_rates(runtime.config)]
        self._reads, self._reads_of_readers, self._changes, self.estimates, self._farms = self._buckets
        self._warned_of: set[str] = set()  # addresses of programs that cannot read the jobs they submit
        self._estimates_in_turn = InTurn("estimate", PATIENCE)

    def asking(self, request: Request) -> Asking:
        """Authenticate a request, count it and return its context.  Raises Unidentified, NotAllowed, TooOften."""
        former: Asking | None = request.scope["state"].pop("asked", None)
        if former:  # a moment ago, for the same answer
            return former
        if spent := SPENT.get():
            spent.begin()
        config, database = self.runtime.config, self.runtime.database
        caller = self.identities.identify(request, config)
        request.state.caller = caller
        if caller.user:
            request.state.seat.holder = caller.user.name
            if not _is_unlimited(caller):
                request.state.seat.count_user(caller.user.name)
        self._count(request, caller)
        reader = caller.user or (_ANYBODY if self._is_reader(request) else None)
        if reader is None and not config.api_anonymous_read:
            raise Unidentified("this site requires authentication to read: use a token (oar-token create)")
        privacy = privacy_for(config, reader)._replace(only=self._named_jobs(request, caller))
        return Asking(caller, privacy, config, database)

    @contextmanager
    def warnings(self) -> Iterator[list[str]]:
        """Collect the warnings of the transactions of a block, such as an unreachable server."""
        collected: list[str] = []
        token = _WARNINGS.set(collected)
        try:
            yield collected
        finally:
            _WARNINGS.reset(token)

    def _count_news(self, news: "News") -> None:
        self.runtime.database.look(lambda tx: self.happenings.count(tx, news))

    def _deliver(self, effects: "Sequence[Effect]") -> None:
        delivery(self.runtime.config, _warn)(effects)

    def reload(self) -> bool:
        """Read oar.conf again if it has changed; return whether it has.  A file with errors is ignored."""
        config = self.runtime.changed_config()
        if config is None:
            return False
        self.runtime.config = config
        self.state_tags.count_change()
        self.set_rates()
        return True

    def set_rates(self) -> None:
        """Set the rate limits of oar.conf."""
        for buckets, rate in zip(self._buckets, configured_rates(self.runtime.config), strict=True):
            buckets.rate = rate

    @contextmanager
    def estimating(self, request: Request, caller: Caller) -> Iterator[None]:
        """Count an estimate and serialize those of a client; administrators have no limits.  Raises TooOften."""
        if _is_unlimited(caller):
            yield
            return
        client = counted_client(request, caller)
        request.state.allowance = self.estimates.take(client, "estimates")
        with self._estimates_in_turn.turn(client):
            yield

    @contextmanager
    def listening(
        self, request: Request, caller: Caller, listener: Subscriber, *, streams: bool = False
    ) -> "Iterator[Position]":
        """Subscribe a client while the block lasts; give the position after which it receives messages.

        ``streams``: for a stream, not only for a wait.  There is no limit for administrators, nor for anonymous clients
        whose addresses a proxy does not send.  Raises TooMany.
        """
        with ExitStack() as held:
            is_crowd = caller.user is None and client_of(request).is_one_of_many
            if not (_is_unlimited(caller) or is_crowd):
                counts = self.streams_of_users if caller.user else self.streams_of_addresses
                counts = counts if streams else self.waits
                client = counted_client(request, caller)
                held.enter_context(counts.one_more(client, self.runtime.config.api_max_streams))
            position = self.hub.add(listener)
            held.callback(self.hub.remove, listener)
            yield position

    def reading(self, user: str) -> AbstractContextManager[None]:
        """Count a file that is read in a thread: programs of users hold half of them at most, whatever they do to them.

        Raises TooMany.
        """
        return self._files_read.one_more(user, max(1, self.runtime.config.api_threads // 2))

    def count_agent(self, request: Request, agent: AgentToken, host: str) -> None:
        """Count a request of the agent of a computer; for a token of all computers, also its own.  Raises TooOften."""
        if agent.scopes.is_any_agent:
            self._farms.take(agent.id, "questions with this token")
        request.state.allowance = self._changes.take(f"agent {host}", "questions")

    def warn_of_unreadable_jobs(self, request: Request, caller: Caller) -> None:
        """Log once for each address that a program that names its users itself (CiGri) is not in API_READERS."""
        client = client_of(request)
        if caller.way is not Way.PROXY or OWN_NAMING not in request.headers or self._is_reader(request):
            return
        if client.key in self._warned_of:
            return
        self._warned_of.add(client.key)
        _log.warning(
            "jobs submitted as CiGri does from %s: API_READERS does not name it, so that it cannot read their commands"
            " and loses every task. Add its address to API_READERS in oar.conf.",
            client,
        )

    def _is_reader(self, request: Request) -> bool:
        readers = self.runtime.config.api_readers
        return bool(readers) and client_of(request).is_in(Networks(readers))

    def _count(self, request: Request, caller: Caller) -> None:
        """Count a request, except of administrators.  Raises TooOften."""
        if _is_unlimited(caller):
            return
        client = counted_client(request, caller)
        if request.method in SAFE_METHODS and self._is_reader(request):
            request.state.allowance = self._reads_of_readers.take(client_of(request).address, "requests")
        elif request.method in SAFE_METHODS:
            request.state.allowance = self._reads.take(client, "requests")
        else:
            request.state.allowance = self._changes.take(client, "changes")

    def _named_jobs(self, request: Request, caller: Caller) -> frozenset[int] | None:
        """Return the jobs that the token of the caller includes; None: all."""
        if caller.scopes.reads_all:
            return None
        job_id = request.path_params.get("job_id", "")
        if not job_id.isdecimal() or int(job_id) > LARGEST_ID:
            return caller.scopes.jobs
        return caller.scopes.jobs | caller.submitted([int(job_id)])


def _is_unlimited(caller: Caller) -> bool:
    return caller.user is not None and (caller.user.is_admin or caller.user.name in PRIVILEGED)


def _warn(text: str) -> None:
    collected = _WARNINGS.get()
    if collected is None:
        _log.warning("%s", text)
    else:
        collected.append(text)


def counted_client(request: Request, caller: Caller) -> str:
    """Return the key for counting a request: the user, else the address."""
    return caller.user.name if caller.user else client_of(request).key


def service_of(request: Request) -> Service:
    """Return the service that answers a request."""
    service: Service = request.app.state.service
    return service


def asking(request: Request) -> Asking:
    """Authenticate a request and return its context.  To be called in the handler's thread."""
    return service_of(request).asking(request)


class AdminAct(NamedTuple):
    """An action of an administrator, or of a user that services check, in one transaction."""

    tx: "Transaction"
    user: "User"
    config: "Config"
    warnings: list[str]  #: complete when the transaction has ended


def administering(request: Request) -> AbstractContextManager[AdminAct]:
    """Open a transaction for an administrator, and log the request after the commit.

    Raises Unidentified, NotAllowed.
    """
    return _act(request, Caller.administering)


def changing(request: Request) -> AbstractContextManager[AdminAct]:
    """Open a transaction for a user whose rights the service checks, and log the request after the commit.

    Raises Unidentified, NotAllowed.
    """
    return _act(request, Caller.changing)


@contextmanager
def _act(request: Request, user_of: Callable[[Caller], User]) -> Iterator[AdminAct]:
    who = asking(request)
    user = user_of(who.caller)
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        yield AdminAct(tx, user, who.config, warnings)
    note(request, user)


def note(request: Request, user: "User") -> None:
    """Log a change by an administrator: the user and the request."""
    words = (user.author, request.state.request_id, request.method, request.url.path)
    _log.info("[admin] user=%s request=%s %s %s", *words)


def run_task(request: Request, task: "WorkerTask", *, long: bool = False) -> "Outcome":
    """Let a worker do a task, for as long as admission rules may take, or a request."""
    service = service_of(request)
    workers, config = service.workers, service.runtime.config
    if long:
        # Of a batch the last may begin at the end of its time, and wait then for programs of its user.
        return workers.run_long(task, 2 * config.api_timeout + config.admission_rules_timeout)
    return workers.run(task, config.admission_rules_timeout)


class Expected(NamedTuple):
    """The versions that a client accepts for a change."""

    versions: frozenset[str]

    @classmethod
    def of(cls, header: str | None) -> "Expected | None":
        """Return the versions in a header; None if any version may be changed.

        >>> Expected.of('W/"12.Hold-3f0a", "13.Hold"').versions == {"12.Hold", "13.Hold"}
        True
        """
        if header is None or header.strip() == "*":
            return None
        tags = (each.strip().removeprefix("W/").strip('"') for each in header.split(","))
        return cls(frozenset(tag.partition("-")[0] for tag in tags))

    def check(self, what: str, version: str) -> None:
        """Check the current version.  Raises OtherVersion."""
        if version not in self.versions:
            raise OtherVersion(what, version)

    def check_job(self, tx: "Transaction", job_id: int) -> None:
        """Lock a job and check its version.  Raises OtherVersion, NoSuchJob."""
        tx.jobs.hold([job_id])
        self.check(f"job {job_id}", job_view(tx, job_id, Privacy(None)).version)

    def check_reservation(self, reservation: "AdvanceReservation") -> None:
        """Check a reservation that is locked.  Raises OtherVersion."""
        self.check(f"advance reservation {reservation.number}", version_of(reservation))


def version_of(reservation: "AdvanceReservation") -> str:
    """Return the version of a reservation, which changes with each change."""
    return f"{reservation.revision}.{reservation.state}"


def version_of_values(*values: object) -> str:
    """Return the version of an object without a revision number: a digest of its values."""
    return hashlib.blake2b(encoded(values), digest_size=8).hexdigest()


def check_seen(match: str | None, what: str, present: Callable[[], str]) -> None:
    """Check the If-Match precondition.  Raises OtherVersion, and the errors of ``present``.

    ``present``: returns the version of the object, which is locked until the end of the transaction.
    """
    if expected := Expected.of(match):
        expected.check(what, present())

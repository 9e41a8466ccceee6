"""Requests for advance reservations: validate, store, cancel, wait for the decision of the scheduler.

A request is a reservation in state ASKED.  It occupies its resources in the plan from the moment it is stored; the
scheduler grants or rejects it in the next scheduling pass.  The commands and the API both use this module.

See docs/design/reservations.rst, "Refusals".
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from oar.lib.access.records import User
from oar.lib.bus.messages import Channel, Tag, Topic, Wake
from oar.lib.config.files import Config
from oar.lib.db.channel_listener import ChannelListener
from oar.lib.db.lock_keys import RESERVATION_LIMIT_LOCK
from oar.lib.reservations import admission, environments, frames, permissions, requested_resources
from oar.lib.reservations.admission import ReservationProposal
from oar.lib.reservations.environments import QueueCandidate
from oar.lib.reservations.errors import BadReservation, Denied, TooManyReservations
from oar.lib.reservations.frames import StoredRequest
from oar.lib.reservations.options import ReservationOptions, ReservationRequest, check_horizon, parse_request
from oar.lib.reservations.records import AdvanceReservation, ReservationAlternative, ReservationChange, encode
from oar.lib.reservations.states import ChangeAnswer, ReservationState
from oar.lib.submission.admission_rules import RuleOutput

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

#: Characters of the largest request: the names of ten thousand nodes, and conditions of the rules of the site.
LARGEST_REQUEST = 1 << 20

Result = TypeVar("Result")


class Requester(NamedTuple):
    """The user who requests a reservation, and the command line."""

    user: User
    initial_request: str = ""  #: the command line, for the admission rules


def submit(
    database: "Database",
    config: Config,
    requester: Requester,
    options: ReservationOptions,
    note: "Callable[[Transaction, StoredRequest, ReservationRequest], object]",
    *,
    begin: "Callable[[Transaction], object] | None" = None,
) -> ReservationRequest:
    """Store a request; return it.

    ``begin`` is called at the start of the transaction, ``note`` before the commit, with the stored request; with a
    series, with its first occurrence.
    Raises BadReservation, Denied, TooManyReservations, BadCondition, RuleFailed, DatabaseUnavailable.
    """
    with database.begin() as tx:
        if begin:
            begin(tx)
        request = _validate(tx, database, config, requester, options)
        stored = create(tx, request, limit=config.max_advance_reservations)
        note(tx, stored, request)
    return request


def rehearse(
    database: "Database", config: Config, requester: Requester, options: ReservationOptions
) -> ReservationRequest:
    """Return the request that ``submit`` would store, without storing it.  Raises the same errors as ``submit``."""

    def validate(tx: "Transaction") -> ReservationRequest:
        request = _validate(tx, database, config, requester, options)
        _check_limit(tx, config.max_advance_reservations, len(request.occurrences))
        return request

    return rolled_back(database, validate)


class _RollBack(Exception):
    """Ends a transaction without a commit."""


def rolled_back(database: "Database", work: "Callable[[Transaction], Result]") -> Result:
    """Return the result of ``work`` in a transaction that is rolled back, with everything that a rule wrote."""
    try:
        with database.begin() as tx:
            result = work(tx)
            raise _RollBack
    except _RollBack:
        return result


# -- validation -------------------------------------------------------------------------------------------------------


def _validate(
    tx: "Transaction", database: "Database", config: Config, requester: Requester, options: ReservationOptions
) -> ReservationRequest:
    """Return the validated request: parse the options, check the permissions of the user, run the admission rules."""
    user = requester.user
    if options.end is None and options.duration is None:
        options = options._replace(duration=requested_resources.time_limit(options.resources))
    request = parse_request(options, user.name, tx.now, config)
    _check_permission(tx, user, options, config)
    owner = request.reservation.owner
    limit = config.reservation_acl_checked_users
    listed = permissions.expand(tx, request.access, limit=limit, known=(user.name, owner))
    site_environments = environments.read_environments(config.reservation_environments_file)
    site = requested_resources.load_site(tx, options, site_environments)
    resources = requested_resources.parse_resources(options, config, site)
    queues = ",".join(filter(None, [options.queues, resources.queues]))
    proposal = ReservationProposal(
        request.reservation,
        users=[name for name in listed if name != owner],
        alternatives=resources.alternatives,
        restrictions=requested_resources.restrictions(options, config.hierarchy_labels),
        initial_request=requester.initial_request,
        rule=request.series.rule if request.series else "",
        starts=request.starts,
    )
    candidates = environments.candidate_queues(queues, site.queues)
    admitted, rule_output = admit_in_first_queue(tx, database, config, proposal, candidates)
    reservation = admitted.reservation._replace(
        request=encode_request(admitted.alternatives),
        owner_group=permissions.main_group(owner),
        resource_list=json.dumps(resources.pairs),
        properties=requested_resources.on_one_line(options.properties),
    )
    if request.starts:
        check_horizon(request.starts[-1] + reservation.end - reservation.start, tx.now)
    return request._replace(reservation=reservation, rule_output=rule_output)


def _check_permission(tx: "Transaction", user: User, options: ReservationOptions, config: Config) -> None:
    permissions.check_creator(tx, user, is_open=config.reservation_open)
    if (options.owner or options.ignore_jobs) and not user.is_admin:
        raise Denied(f'denied: "{user.name}" must be manager for -owner and -ignore_jobs')
    if options.owner:
        permissions.check_user(options.owner)


def admit_in_first_queue(
    tx: "Transaction",
    database: "Database",
    config: Config,
    proposal: ReservationProposal,
    candidates: Sequence[QueueCandidate],
) -> tuple[ReservationProposal, RuleOutput]:
    """Return the reservation in the first queue that fits it and whose rules accept it, and the output of the rules.

    ``candidates``: at least one.  Raises BadReservation with the reason of the first queue.
    """
    first: BadReservation | None = None
    for candidate in candidates:
        condition = environments.on_slots(candidate.condition)
        reservation = proposal.reservation._replace(queue=candidate.queue)
        alternatives = tuple(_narrowed(alternative, condition) for alternative in proposal.alternatives)
        in_queue = proposal._replace(reservation=reservation, alternatives=alternatives)
        try:
            return admission.admit(tx, database, config, in_queue)
        except BadReservation as error:
            first = first or error
    assert first is not None
    raise first


def _narrowed(alternative: ReservationAlternative, condition: str) -> ReservationAlternative:
    if not condition:
        return alternative
    return alternative._replace(
        groups=tuple(
            group._replace(filter=requested_resources.all_of([condition, group.filter])) for group in alternative.groups
        )
    )


def encode_request(alternatives: Sequence[ReservationAlternative]) -> str:
    """Return a request in its stored form.  Raises BadReservation if it is too large."""
    text = encode(alternatives)
    if len(text) > LARGEST_REQUEST:
        raise BadReservation(
            f"denied: the request is too large, its conditions have more than {LARGEST_REQUEST} characters",
            "name fewer hosts and values, or write a condition (-p)",
        )
    return text


# -- stored requests --------------------------------------------------------------------------------------------------


def create(tx: "Transaction", request: ReservationRequest, *, limit: int) -> StoredRequest:
    """Store a request and wake the scheduler after the commit; of a series, return the first occurrence.

    ``limit``: MAX_ADVANCE_RESERVATIONS, 0 means unlimited.  It counts the occurrences of a series that are requested
    together, not later ones.  Raises TooManyReservations.
    """
    permissions.lock_usersets(tx, request.access)
    _check_limit(tx, limit, len(request.occurrences))
    tx.outbox.append(Wake(Tag.QSUB))
    if request.series:
        from oar.lib.reservations import series

        return series.begin(tx, request.reservation, request.access, request.series, request.starts)
    return frames.insert_request(tx, request.reservation, request.access)


def _check_limit(tx: "Transaction", limit: int, additional: int) -> None:
    """Raise TooManyReservations if more reservations would exceed the limit; a lock serializes concurrent requests."""
    if limit:
        tx.system.take_lock(RESERVATION_LIMIT_LOCK)
        if tx.reservations.count() + additional > limit:
            raise TooManyReservations(f"rejected: only {limit} advance reservations are allowed per cluster")


def cancel_undecided(database: "Database", reservation_id: int, author: str) -> AdvanceReservation | None:
    """Withdraw a request as ``lifecycle.cancel``, in a transaction of its own."""
    from oar.lib.reservations import lifecycle

    with database.begin() as tx:
        return lifecycle.cancel(tx, reservation_id, author)


# -- decisions --------------------------------------------------------------------------------------------------------

#: Longest seconds between two look-ups; without notifications the first ones follow each other faster.
LONGEST_PAUSE, FIRST_PAUSE = 1.0, 0.05


class ReservationListener(ChannelListener):
    """Receives notifications that an advance reservation changed.  See docs/design/locks.rst, "Notifications"."""

    def __init__(self, database: "Database") -> None:
        super().__init__(database, Channel.EVENT)

    def wait(self, seconds: float) -> None:
        """Wait until an advance reservation changes, at most ``seconds``."""
        self.wait_until(lambda payload: payload == Topic.RESERVATIONS, seconds)


def wait_for_decision(
    database: "Database",
    find: Callable[[], Result | None],
    patience: float,
    clock: Callable[[], float] = time.monotonic,
) -> Result | None:
    """Return the result of ``find`` as soon as it is not empty; return None after ``patience`` seconds."""
    limit, pause = clock() + patience, FIRST_PAUSE
    with ReservationListener(database) as listener:
        while True:
            is_listening = listener.listen()
            if result := find():
                return result
            if clock() >= limit:
                return None
            pause = LONGEST_PAUSE if is_listening else min(2 * pause, LONGEST_PAUSE)
            listener.wait(max(0.0, min(pause, limit - clock())))


def find_decision(database: "Database", reservation_id: int) -> AdvanceReservation | None:
    """Return the decided reservation; None if it is not decided yet."""
    with database.snapshot() as tx:
        (reservation,) = tx.reservations.select([reservation_id])
    return None if reservation.state is ReservationState.ASKED else reservation


def find_change_decision(database: "Database", change_id: int) -> ReservationChange | None:
    """Return the decided change; None if it is not decided yet."""
    with database.snapshot() as tx:
        change = tx.reservations.find_change(change_id)
    return None if change is None or change.answer is ChangeAnswer.NONE else change


def occurrences_requested_together(tx: "Transaction", first: AdvanceReservation) -> list[AdvanceReservation]:
    """Return the reservations of a series that were requested together; ``first`` itself if it is in no series."""
    if not first.series_id:
        return [first]
    depth = tx.reservations.select_series([first.series_id])[first.series_id].depth
    return [each for each in tx.reservations.of_series([first.series_id]) if each.series_index <= depth]

"""Build a request for an advance reservation from its options: parse it, check the user's rights, apply the rules.

The commands and the API both use this module.  See docs/design/reservations.rst, "Refusals".
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.user_sql import satisfying
from oar.lib.jobs.records import Group
from oar.lib.reservations import (
    admission,
    environments,
    listed_users,
    parallel_environments,
    preparation,
    queue_lists,
    requested_resources,
    requests,
    rights,
)
from oar.lib.reservations.admission import AdmittedReservation, ReservationProposal
from oar.lib.reservations.frames import StoredRequest
from oar.lib.reservations.preparation import (
    BadReservation,
    PreparedReservation,
    PreparedSeries,
    ReservationWish,
    nothing_suits,
)
from oar.lib.reservations.queue_lists import QueueCandidate, SiteQueues
from oar.lib.reservations.records import (
    AccessEntry,
    AdvanceReservation,
    NewReservation,
    NewSeries,
    ReservationAlternative,
    decode,
    encode,
)
from oar.lib.reservations.requested_resources import AskedResources
from oar.lib.submission.admission_rules import RuleOutput

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction


#: Characters of the largest request: the names of ten thousand nodes with what the rules of the site add.
LARGEST_REQUEST = 1 << 20


class Requester(NamedTuple):
    """The user who requests a reservation, and the command line."""

    user: User
    initial_request: str = ""  #: for the rules: the command line


class ReservationDraft(NamedTuple):
    """A request that was admitted and is not stored yet."""

    new: NewReservation  #: of a series: its first occurrence
    access: tuple[AccessEntry, ...]
    output: RuleOutput  #: what the rules printed for its owner
    series: NewSeries | None = None
    starts: tuple[int, ...] = ()  #: of the occurrences of the series that are asked for together

    @property
    def occurrences(self) -> list[NewReservation]:
        """The requested reservation, or the first occurrences of the requested series."""
        if self.series is None:
            return [self.new]
        return [self.new._replace(start=start, end=start + self.series.duration) for start in self.starts]


class RequestCompanion(Protocol):
    """Runs additional steps in the transaction of a request."""

    def begin(self, tx: "Transaction") -> None:
        """Run at the start of the transaction."""

    def end(self, tx: "Transaction", asked: StoredRequest, made: ReservationDraft) -> None:
        """Run after the request is stored."""


class OtherResources(NamedTuple):
    """Admitted new resources of an existing reservation."""

    request: str  #: JSON, as ``reservations.request``
    columns: dict[str, str]  #: of the reservation: how they were asked for


def ask(
    database: "Database",
    config: Config,
    requester: Requester,
    wish: ReservationWish,
    note: Callable[[StoredRequest], object],
    *,
    companion: RequestCompanion | None = None,
) -> ReservationDraft:
    """Store a request.  ``note`` is called with the request, or the first one of a series, before the commit.

    ``companion``: runs additional steps in the same transaction.
    Raises BadReservation, Denied, TooManyReservations, BadCondition, RuleFailed, DatabaseUnavailable.
    """
    with database.begin() as tx:
        if companion:
            companion.begin(tx)
        made = draft(tx, database, config, requester, wish)
        limit = config.max_advance_reservations
        if made.series:
            asked = requests.create_series(tx, made.new, made.access, made.series, made.starts, limit=limit)
        else:
            asked = requests.create(tx, made.new, made.access, limit=limit)
        note(asked)
        if companion:
            companion.end(tx, asked, made)
    return made


def rehearse(database: "Database", config: Config, requester: Requester, wish: ReservationWish) -> ReservationDraft:
    """Return the draft of a request; roll back everything that a rule wrote.  Raises the same errors as ``ask``."""
    try:
        with database.begin() as tx:
            made = draft(tx, database, config, requester, wish)
            requests.check_limit(tx, config.max_advance_reservations, len(made.occurrences))
            raise _RehearsedDraft(made)
    except _RehearsedDraft as rehearsed:
        return rehearsed.draft


class _RehearsedDraft(Exception):
    """Ends a rehearsal and rolls its transaction back."""

    def __init__(self, made: ReservationDraft) -> None:
        super().__init__()
        self.draft = made


def draft(
    tx: "Transaction", database: "Database", config: Config, requester: Requester, wish: ReservationWish
) -> ReservationDraft:
    """Return the draft of a request.  Raises the same errors as ``ask``."""
    user = requester.user
    if wish.end is None and wish.duration is None:
        wish = wish._replace(duration=requested_resources.time_limit(wish.resources))
    prepared = preparation.prepare(wish, user.name, tx.now, _offset(config))
    _check_rights(tx, user, wish, config)
    owner = wish.owner or user.name
    named = listed_users.expand(
        tx, prepared.access, limit=config.reservation_acl_checked_users, known=(user.name, owner)
    )
    site = requested_resources.site_of(tx, wish, environments.read(config.reservation_environments_file))
    asked = requested_resources.read(wish, config, site)
    candidates = queue_lists.candidates(",".join(filter(None, [wish.queues, asked.queues])), site.queues)
    proposal = ReservationProposal(
        owner=owner,
        users=[name for name in named if name != owner],
        queue="",
        project=wish.project,
        name=wish.name,
        properties=wish.properties,
        start=prepared.start,
        duration=prepared.end - prepared.start,
        alternatives=asked.alternatives,
        restrictions=requested_resources.restrictions(wish, config.hierarchy_labels),
        initial_request=requester.initial_request,
        account=prepared.account,
        is_flexible=prepared.is_flexible,
        is_hard=prepared.is_hard,
        rule=prepared.series.rule if prepared.series else "",
    )
    admitted = _admitted(tx, database, config, proposal, candidates)
    new = _new(config, wish, prepared, asked, admitted)
    made = ReservationDraft(
        new._replace(owner=owner, owner_group=rights.main_group(owner)), prepared.access, admitted.output
    )
    return _with_series(made, prepared.series, config, tx.now) if prepared.series else made


def _with_series(made: ReservationDraft, series: PreparedSeries, config: Config, now: int) -> ReservationDraft:
    depth = min(series.depth or config.reservation_series_depth, len(series.starts))
    preparation.check_horizon(series.starts[depth - 1] + made.new.end - made.new.start, now)
    following = series.starts[depth] if depth < len(series.starts) else 0
    row = NewSeries(
        owner=made.new.owner,
        rule=series.rule,
        time_zone=series.zone,
        first_start=made.new.start,
        duration=made.new.end - made.new.start,
        template="",
        depth=depth,
        skips_conflicts=series.skips_conflicts,
        occurrences=len(series.starts),
        next_index=depth + 1,
        next_start=following,
    )
    return made._replace(series=row, starts=series.starts[:depth])


def other_resources(
    tx: "Transaction",
    database: "Database",
    config: Config,
    wish: ReservationWish,
    reservation: AdvanceReservation,
    *,
    access: Sequence[AccessEntry],
) -> OtherResources:
    """Return the resources that replace the resources of a reservation, usable by all users in ``access``.

    Without ``-l``, ``-pe`` and ``-alloc``, the requested resources stay and get additional conditions.  With one of
    these options, a complete new request is built; options that are not given keep their value.
    Raises BadReservation, BadCondition, RuleFailed.
    """
    preparation.check_texts(wish)
    asks_anew = bool(wish.resources or wish.pe or wish.allocation)
    whole = _completed(wish, reservation, config) if asks_anew else wish
    named = listed_users.expand(tx, access, limit=config.reservation_acl_checked_users, known=(reservation.owner,))
    site = requested_resources.site_of(tx, whole, environments.read(config.reservation_environments_file))
    if asks_anew:
        asked = requested_resources.read(whole, config, site)
        columns = _columns(whole, asked)
    else:
        asked = AskedResources(decode(reservation.request), ())
        columns = {
            "properties": requested_resources.all_of(
                [reservation.properties, requested_resources.on_one_line(wish.properties)]
            )
        }
    if wish.queues:
        columns["queue_list"] = wish.queues
    candidates = _in_its_queue(reservation, ",".join(filter(None, [whole.queues, asked.queues])), site.queues)
    proposal = _proposal_of(reservation, [name for name in named if name != reservation.owner])._replace(
        properties=whole.properties,
        alternatives=asked.alternatives,
        restrictions=requested_resources.restrictions(whole, config.hierarchy_labels),
    )
    admitted = _admitted(tx, database, config, proposal, candidates)
    return OtherResources(_encoded(admitted.alternatives), columns)


def _completed(wish: ReservationWish, reservation: AdvanceReservation, config: Config) -> ReservationWish:

    return completed(wish, reservation, config.hierarchy_labels)


def _columns(wish: ReservationWish, asked: AskedResources) -> dict[str, str]:
    """Return the columns of the reservation for a new resource request."""
    pe, pe_range = wish.pe or wish.allocation or ("", "")
    return {
        "resource_list": json.dumps(asked.pairs),
        "pe": pe,
        "pe_range": pe_range,
        "host_list": wish.hosts,
        "properties": requested_resources.on_one_line(wish.properties),
    }


def _in_its_queue(reservation: AdvanceReservation, queues: str, site: SiteQueues) -> list[QueueCandidate]:
    """Return the entries of a queue list for the queue of the reservation.  Raises BadReservation if there is none."""
    candidates = [
        each._replace(queue=reservation.queue)
        for each in queue_lists.candidates(queues, site)
        if each.queue in ("", reservation.queue)
    ]
    if not candidates:
        raise BadReservation(f"denied: a reservation stays in its queue ({reservation.queue})")
    return candidates


def _proposal_of(reservation: AdvanceReservation, users: Sequence[str]) -> ReservationProposal:
    """Return the proposal for the rules, on the reserved resources.  ``users``: the other users of its access list."""
    return ReservationProposal(
        owner=reservation.owner,
        users=users,
        queue=reservation.queue,
        project=reservation.project,
        name=reservation.name,
        properties="",
        start=reservation.start,
        duration=reservation.duration,
        alternatives=decode(reservation.request)[reservation.alternative :][:1],
    )


def check_new_users(
    tx: "Transaction",
    database: "Database",
    config: Config,
    reservation: AdvanceReservation,
    access: Sequence[AccessEntry],
) -> None:
    """Reject an access list with new users who may not use all reserved resources.

    Raises BadReservation, RuleFailed.
    """
    limit, known = config.reservation_acl_checked_users, (reservation.owner,)
    present = tx.reservations.access([reservation.id])[reservation.id]
    kept = [entry for entry in access if entry in present]
    former = {reservation.owner, *listed_users.expand(tx, kept, limit=limit, known=known)}
    users = [user for user in listed_users.expand(tx, access, limit=limit, known=known) if user not in former]
    if not users:
        return
    proposal = _proposal_of(reservation, users)
    for user, condition in admission.conditions_of(tx, database, config, proposal).items():
        allowed = satisfying(tx, condition, reservation.resources) if condition else None
        if allowed is not None and not allowed.issuperset(reservation.resources):
            raise nothing_suits(f"{user} may not use all that is reserved")


def _encoded(alternatives: Sequence[ReservationAlternative]) -> str:
    """Return a request in its stored form.  Raises BadReservation if it is too large."""
    text = encode(alternatives)
    if len(text) > LARGEST_REQUEST:
        raise BadReservation(
            f"denied: the request is too large, its conditions have more than {LARGEST_REQUEST} characters",
            "name fewer hosts and values, or write a condition (-p)",
        )
    return text


def _offset(config: Config) -> int:
    """Return how many seconds before the end of a reservation its jobs must have ended."""
    chosen, security_time = config.reservation_duration_offset, config.scheduler_job_security_time
    return config.job_kill_grace + security_time if chosen < 0 else max(chosen, security_time)


def _check_rights(tx: "Transaction", user: User, wish: ReservationWish, config: Config) -> None:
    rights.check_creator(tx, user, is_open=config.reservation_open)
    if (wish.owner or wish.ignore_jobs) and not user.is_admin:
        raise rights.Denied(f'denied: "{user.name}" must be manager for -owner and -ignore_jobs')
    if wish.owner:
        listed_users.check_user(wish.owner)


def _admitted(
    tx: "Transaction",
    database: "Database",
    config: Config,
    proposal: ReservationProposal,
    candidates: Sequence[QueueCandidate],
) -> AdmittedReservation:
    """Return the reservation in the first queue that fits it and whose rules accept it.  Raises BadReservation."""
    first: BadReservation | None = None
    for candidate in candidates:
        narrowed = _narrowed(proposal.alternatives, queue_lists.of_slots(candidate.condition))
        in_queue = proposal._replace(queue=candidate.queue, alternatives=narrowed)
        try:
            return admission.admit(tx, database, config, in_queue)
        except BadReservation as error:
            first = first or error
    assert first is not None, "a list names a queue, or is refused"
    raise first


def _narrowed(alternatives: Sequence[ReservationAlternative], condition: str) -> tuple[ReservationAlternative, ...]:
    if not condition:
        return tuple(alternatives)
    return tuple(
        each._replace(
            groups=tuple(
                Group(requested_resources.all_of([condition, group.filter]), group.levels) for group in each.groups
            )
        )
        for each in alternatives
    )


def _new(
    config: Config,
    wish: ReservationWish,
    prepared: PreparedReservation,
    asked: AskedResources,
    admitted: AdmittedReservation,
) -> NewReservation:
    """Return the row of a request, without its owner."""
    replaces, (pe, pe_range) = prepared.replaces_lost, wish.pe or wish.allocation or ("", "")
    return NewReservation(
        owner="",
        start=prepared.start,
        end=prepared.end,
        request=_encoded(admitted.alternatives),
        name=prepared.name,
        account=prepared.account,
        project=admitted.project,
        queue=admitted.queue,
        start_window=prepared.start_window,
        time_offset=_offset(config),
        is_hard=prepared.is_hard,
        replaces_lost=config.reservation_replace_lost if replaces is None else replaces,
        is_flexible=prepared.is_flexible,
        is_interactive=requested_resources.is_interactive(wish),
        ignores_jobs=wish.ignore_jobs,
        idle_limit=prepared.idle_limit,
        resource_list=json.dumps(asked.pairs),
        queue_list=wish.queues,
        master_queue_list=wish.master_queues,
        host_list=wish.hosts,
        properties=requested_resources.on_one_line(wish.properties),
        checkpoint_name=wish.checkpoint,
        pe=pe,
        pe_range=pe_range,
        mail_options=prepared.mail_options,
        mail_list=prepared.mail_list,
    )


#: What says how the resources of a reservation were asked for; a reservation and the template of a series have them.
_FIELDS = (
    "request",
    "resource_list",
    "pe",
    "pe_range",
    "queue_list",
    "master_queue_list",
    "host_list",
    "properties",
    "checkpoint_name",
    "is_interactive",
)


def as_template(reservation: AdvanceReservation, template: NewReservation) -> AdvanceReservation:
    """Return the reservation with the requested fields of its series template."""
    fields: dict[str, Any] = {name: getattr(template, name) for name in _FIELDS}
    return reservation._replace(**fields)


def completed(wish: ReservationWish, reservation: AdvanceReservation, labels: Sequence[str]) -> ReservationWish:
    """Return a request for other resources in which missing options are taken from the reservation.

    ``labels``: HIERARCHY_LABELS.  The slots are kept only if the request does not use OAR's syntax.  The hosts are kept
    only if the request names no hosts.
    """
    is_oar = any(requested_resources.is_oar_request(text, labels) for text in wish.resources)
    pe, allocation = wish.pe, wish.allocation
    if not (pe or allocation or is_oar) and reservation.pe:
        pair = reservation.pe, reservation.pe_range
        pe, allocation = (None, pair) if parallel_environments.is_rule(reservation.pe) else (pair, None)
    return wish._replace(
        resources=wish.resources or _named_resources(reservation),
        pe=pe,
        allocation=allocation,
        queues=wish.queues or reservation.queue_list,
        master_queues=reservation.master_queue_list,
        hosts="" if requested_resources.names_hosts(wish.resources, labels) else reservation.host_list,
        properties=wish.properties or reservation.properties,
        checkpoint=reservation.checkpoint_name,
        now=("yes",) if reservation.is_interactive else (),
    )


def _named_resources(reservation: AdvanceReservation) -> tuple[str, ...]:
    """Return the ``-l`` options of a reservation in Grid Engine syntax; () if it was requested in OAR syntax."""
    pairs = json.loads(reservation.resource_list)
    return tuple(f"{name}={value}" for name, value in pairs if name not in ("oar", "slots"))

"""Requests to change advance reservations and series: parse, admit and store them.

The commands and the API both use this module.  See docs/design/reservations.rst, "Changes".
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.access.records import User
from oar.lib.accounts.budgets import NewRequest
from oar.lib.config.files import Config
from oar.lib.db.user_sql import satisfying
from oar.lib.reservations import admission, changes, environments, permissions, requested_resources
from oar.lib.reservations.admission import ReservationProposal
from oar.lib.reservations.changes import WantedChange
from oar.lib.reservations.environments import QueueCandidate, SiteQueues
from oar.lib.reservations.errors import BadReservation, nothing_suits
from oar.lib.reservations.options import (
    ChangeOptions,
    ReservationOptions,
    check_agreement,
    check_horizon,
    check_texts,
    parse_attributes,
    read_dates,
)
from oar.lib.reservations.records import (
    AccessEntry,
    AdvanceReservation,
    NewReservation,
    ReservationAttributes,
    Series,
    decode,
    is_number,
)
from oar.lib.reservations.requested_resources import ParsedResources
from oar.lib.reservations.requests import admit_in_first_queue, encode_request, rolled_back
from oar.lib.reservations.series import overlapping
from oar.lib.reservations.states import GRANTED, STARTED

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

_ATTRIBUTES = ("name", "account", "users", "hard", "mail_options", "mail_list", "replace", "idle")
_RESOURCES = ("resources", "pe", "allocation", "queues", "properties")


class StoredChange(NamedTuple):
    """The stored change of one reservation."""

    reservation: AdvanceReservation  #: before the change
    wanted: WantedChange | None  #: the part that the scheduler decides
    change_id: int  #: id of that part; 0 = there is none
    lost: list[int]  #: waiting jobs whose owners lose access


class ChangedSeries(NamedTuple):
    """A series with its new template, and its live reservations from the given one on."""

    series: Series
    coming: Sequence[AdvanceReservation]

    @property
    def not_begun(self) -> list[AdvanceReservation]:
        """The reservations that have not begun."""
        return [reservation for reservation in self.coming if reservation.state not in STARTED]

    @property
    def together(self) -> list[NewReservation]:
        """The next occurrences with the new template if some of them overlap; else []."""
        return overlapping(self.series, self.not_begun)


class OtherResources(NamedTuple):
    """Admitted new resources of an existing reservation."""

    request: str  #: JSON, as ``reservations.request``
    columns: dict[str, str]  #: columns of the reservation that tell how they were requested
    size: int  #: resources of the largest alternative


class Changer(NamedTuple):
    """Change reservations on behalf of a user.  ``name`` is the number or the name of a reservation.

    The methods raise UserError.  To change a series: call ``rehearse_series``; check whether the occurrences conflict
    with each other (``oar/kao/rounds/hypothetical/reservation_trials.py``); call ``change_series``; change each
    reservation separately.
    """

    database: "Database"
    config: Config
    user: User

    def change(self, options: ChangeOptions, name: str, note: Callable[[StoredChange], object]) -> None:
        """Store a change of a reservation.  ``note`` is called with the change before the commit."""
        attributes = self._parse_attributes(options)
        with self.database.begin() as tx:
            note(self._change(tx, options, attributes, name))

    def rehearse(self, options: ChangeOptions, name: str) -> StoredChange:
        """Return the change that ``change`` would store, without storing it."""
        attributes = self._parse_attributes(options)
        return rolled_back(self.database, lambda tx: self._change(tx, options, attributes, name))

    def change_series(self, options: ChangeOptions, name: str) -> ChangedSeries:
        """Change the template of a series from one of its reservations on.  The dates in ``options`` are ignored."""
        with self.database.begin() as tx:
            return self._change_series(tx, options, name)

    def rehearse_series(self, options: ChangeOptions, name: str) -> ChangedSeries:
        """Return the result that ``change_series`` would have, without storing it."""
        return rolled_back(self.database, lambda tx: self._change_series(tx, options, name))

    def _change(
        self, tx: "Transaction", options: ChangeOptions, attributes: ReservationAttributes, name: str
    ) -> StoredChange:
        if attributes.access is not None:
            permissions.lock_usersets(tx, attributes.access)
            permissions.expand(tx, attributes.access, limit=0, known=(self.user.name,))
        seen, other = self._other_resources(tx, options, name, attributes.access)
        reservation = self._lock(tx, name)
        wanted = _wanted_window(options, reservation, tx.now)
        if other:
            if (reservation.id, reservation.revision) != (seen.id, seen.revision):
                raise BadReservation(f"denied: advance_reservation {seen.number} was changed meanwhile: try again")
            wanted = (wanted or WantedChange())._replace(request=other.request, asked=other.columns)
        if wanted:
            _check_budgets(tx, self.config, reservation, wanted, other.size if other else len(reservation.resources))
            wanted = wanted._replace(attributes=attributes)
            patience = self.config.reservation_answer_timeout
            change_id = changes.request_change(tx, self.user, reservation, wanted, patience=patience)
            lost = changes.jobs_without_access(tx, reservation, attributes)
            return StoredChange(reservation, wanted, change_id, lost)
        if attributes == ReservationAttributes():
            raise BadReservation("qralter: no change is requested: use at least one option")
        return StoredChange(reservation, None, 0, changes.change_attributes(tx, self.user, reservation, attributes))

    def _change_series(self, tx: "Transaction", options: ChangeOptions, name: str) -> ChangedSeries:
        attributes = self._parse_attributes(options)
        if attributes.access is not None:
            permissions.expand(tx, attributes.access, limit=0, known=(self.user.name,))
        _, other = self._other_resources(tx, options, name, attributes.access, of_series=True)
        first = self._lock(tx, name)
        duration = read_dates(None, None, options.duration, tx.now, "qralter").duration
        check_horizon(tx.now + (duration or 0), tx.now)
        resources = {"request": other.request, **other.columns} if other else {}
        series = changes.change_series(tx, self.user, first, attributes, duration=duration, resources=resources)
        occurrences = tx.reservations.of_series([first.series_id])
        coming = [each for each in occurrences if each.is_live and each.series_index >= first.series_index]
        return ChangedSeries(series, coming)

    def _parse_attributes(self, options: ChangeOptions) -> ReservationAttributes:
        check_texts({name: getattr(options, name) for name in _ATTRIBUTES})
        return parse_attributes(options, self.user.name, "qralter")

    def _lock(self, tx: "Transaction", name: str) -> AdvanceReservation:
        return changes.lock(tx, self.user, *_find(tx, self.user, name))

    def _other_resources(
        self,
        tx: "Transaction",
        options: ChangeOptions,
        name: str,
        access: Sequence[AccessEntry] | None,
        *,
        of_series: bool = False,
    ) -> tuple[AdvanceReservation, OtherResources | None]:
        """Return the reservation, and its requested new resources; None if they do not change.

        The reservation is not locked: admission rules may take long, and scheduling passes would have to wait.
        ``access``: a new access list.  ``of_series``: use the template of its series instead of its own resources.
        """
        reservation = changes.check(tx, self.user, *_find(tx, self.user, name))
        wanted = ReservationOptions(**{name: getattr(options, name) for name in _RESOURCES})
        if wanted == ReservationOptions():
            if access is not None:
                _check_new_users(tx, self.database, self.config, reservation, access)
            return reservation, None
        if access is None:
            access = tx.reservations.access([reservation.id])[reservation.id]
        if of_series and reservation.series_id:
            series = tx.reservations.select_series([reservation.series_id])[reservation.series_id]
            template: Any = series.read_template.new
            reservation = reservation._replace(**{name: getattr(template, name) for name in _RESOURCE_FIELDS})
        return reservation, other_resources(tx, self.database, self.config, wanted, reservation, access=access)


def _find(tx: "Transaction", user: User, name: str) -> tuple[AdvanceReservation | None, int]:
    """Return the reservation with this number or name and its number; prefer one that the user owns.

    Raises BadReservation.
    """
    if is_number(name):
        reservation = tx.reservations.by_numbers([int(name)]).get(int(name))
        return reservation, int(name)
    named = [reservation for reservation in tx.reservations.live_by_name(name) if reservation.state in GRANTED]
    if not named:
        raise BadReservation(f'denied: advance_reservation "{name}" does not exist')
    preferred = min(named, key=lambda reservation: (reservation.owner != user.name, reservation.number))
    return preferred, preferred.number


def _wanted_window(options: ChangeOptions, reservation: AdvanceReservation, now: int) -> WantedChange | None:
    """Return the new window; None if neither start, end nor duration changes.  Raises BadReservation."""
    if options.start is None and options.duration is None and options.end is None:
        return None
    start, end, duration = read_dates(options.start, options.end, options.duration, now, "qralter")
    if start is not None:
        check_agreement(start, end, duration)
    if start is not None and start != reservation.start and now - now % 60 <= start:
        start = max(start, now)  # as in a request for a reservation, the current minute means now
    if end is None:
        end = (reservation.start if start is None else start) + (reservation.duration if duration is None else duration)
    elif duration is not None and start is None:
        start = end - duration
    if end > reservation.end:
        check_horizon(end, now)
    return WantedChange(start, end, options.is_forced)


def _check_budgets(
    tx: "Transaction", config: Config, reservation: AdvanceReservation, wanted: WantedChange, size: int
) -> None:
    """Raise BadReservation if a budget has too little left for a change.

    Before its start, the new reservation takes the place of the former one; later, only what the change adds counts.
    Granted resources count with their factors, and so do as many new ones; more are not known yet and count once.
    """
    start = reservation.start if wanted.start is None else wanted.start
    end = reservation.end if wanted.end is None else wanted.end
    present, is_started = len(reservation.resources), reservation.state in STARTED
    if not is_started and size <= present and reservation.start <= start and end <= reservation.end:
        return
    factors = tx.budgets.factors(reservation.resources)
    new_factors = factors * min(size, present) / present + max(0, size - present) if present else size
    replaced, seconds = reservation.id, new_factors * (end - start)
    if is_started:
        start = reservation.end if size == present else tx.now
        replaced, seconds = 0, new_factors * (end - tx.now) - factors * (reservation.end - tx.now)
    if seconds > 0 and start < end:
        new = NewRequest(
            reservation.queue, reservation.project, seconds, windows=[(start, end)], user=reservation.owner
        )
        admission.check_hours(tx, config, new, replaced=replaced)


# -- other resources --------------------------------------------------------------------------------------------------

#: Fields that tell how the resources were requested; a reservation and the template of a series have them.
_RESOURCE_FIELDS = (
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


def other_resources(
    tx: "Transaction",
    database: "Database",
    config: Config,
    wanted: ReservationOptions,
    reservation: AdvanceReservation,
    *,
    access: Sequence[AccessEntry],
) -> OtherResources:
    """Return the resources that replace the resources of a reservation, usable by all users in ``access``.

    Without ``-l``, ``-pe`` and ``-alloc``, the requested resources stay and get additional conditions.  With one of
    these options, a complete new request is built; options that are not given keep their value.
    Raises BadReservation, BadCondition, RuleFailed.
    """
    check_texts(wanted._asdict())
    is_new_request = bool(wanted.resources or wanted.pe or wanted.allocation)
    options = _completed(wanted, reservation, config.hierarchy_labels) if is_new_request else wanted
    limit = config.reservation_acl_checked_users
    listed = permissions.expand(tx, access, limit=limit, known=(reservation.owner,))
    site_environments = environments.read_environments(config.reservation_environments_file)
    site = requested_resources.load_site(tx, options, site_environments)
    properties = requested_resources.on_one_line(options.properties)
    if is_new_request:
        resources = requested_resources.parse_resources(options, config, site)
        pe, pe_range = options.slots
        columns = {
            "resource_list": json.dumps(resources.pairs),
            "pe": pe,
            "pe_range": pe_range,
            "host_list": options.hosts,
            "properties": properties,
        }
    else:
        resources = ParsedResources(decode(reservation.request), ())
        columns = {"properties": requested_resources.all_of([reservation.properties, properties])}
    if wanted.queues:
        columns["queue_list"] = wanted.queues
    candidates = _in_its_queue(reservation, ",".join(filter(None, [options.queues, resources.queues])), site.queues)
    proposal = _proposal_of(reservation, [name for name in listed if name != reservation.owner])
    proposal = proposal._replace(
        reservation=proposal.reservation._replace(properties=options.properties),
        alternatives=resources.alternatives,
        restrictions=requested_resources.restrictions(options, config.hierarchy_labels),
    )
    admitted, _ = admit_in_first_queue(tx, database, config, proposal, candidates)
    return OtherResources(encode_request(admitted.alternatives), columns, admitted.alternatives[0].size)


def _completed(
    wanted: ReservationOptions, reservation: AdvanceReservation, labels: Sequence[str]
) -> ReservationOptions:
    """Return a request for other resources in which missing options are taken from the reservation.

    ``labels``: HIERARCHY_LABELS.  The slots are kept only if the request does not use OAR's syntax.  The hosts are kept
    only if the request names no hosts.
    """
    is_oar = any(requested_resources.is_oar_request(text, labels) for text in wanted.resources)
    pe, allocation = wanted.pe, wanted.allocation
    if not (pe or allocation or is_oar) and reservation.pe:
        slots = reservation.pe, reservation.pe_range
        pe, allocation = (None, slots) if environments.is_rule(reservation.pe) else (slots, None)
    resources = wanted.resources
    if not resources:  # only requests in Grid Engine syntax can be kept
        pairs = json.loads(reservation.resource_list)
        resources = tuple(f"{name}={value}" for name, value in pairs if name not in ("oar", "slots"))
    return wanted._replace(
        resources=resources,
        pe=pe,
        allocation=allocation,
        queues=wanted.queues or reservation.queue_list,
        master_queues=reservation.master_queue_list,
        hosts="" if requested_resources.names_hosts(wanted.resources, labels) else reservation.host_list,
        properties=wanted.properties or reservation.properties,
        checkpoint=reservation.checkpoint_name,
        now=("yes",) if reservation.is_interactive else (),
    )


def _in_its_queue(reservation: AdvanceReservation, queues: str, site: SiteQueues) -> list[QueueCandidate]:
    """Return the entries of a queue list for the queue of the reservation.  Raises BadReservation if there is none."""
    candidates = [
        candidate._replace(queue=reservation.queue)
        for candidate in environments.candidate_queues(queues, site)
        if candidate.queue in ("", reservation.queue)
    ]
    if not candidates:
        raise BadReservation(f"denied: a reservation stays in its queue ({reservation.queue})")
    return candidates


def _proposal_of(reservation: AdvanceReservation, users: Sequence[str]) -> ReservationProposal:
    """Return the proposal for the rules, on the reserved resources.  ``users``: the other users of its access list."""
    return ReservationProposal(
        NewReservation(
            owner=reservation.owner,
            start=reservation.start,
            end=reservation.end,
            request="",
            name=reservation.name,
            project=reservation.project,
            queue=reservation.queue,
        ),
        users=users,
        alternatives=decode(reservation.request)[reservation.alternative :][:1],
        id=reservation.id,
    )


def _check_new_users(
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
    former = {reservation.owner, *permissions.expand(tx, kept, limit=limit, known=known)}
    users = [user for user in permissions.expand(tx, access, limit=limit, known=known) if user not in former]
    if not users:
        return
    conditions = admission.conditions_of(tx, database, config, _proposal_of(reservation, users))
    for user, condition in conditions.items():
        allowed = satisfying(tx, condition, reservation.resources) if condition else None
        if allowed is not None and not allowed.issuperset(reservation.resources):
            raise nothing_suits(f"{user} may not use all that is reserved")

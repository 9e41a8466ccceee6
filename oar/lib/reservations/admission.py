"""Run the admission rules of the site on an advance reservation, for its owner and for every user of its access list.

Every listed user must be able to use every reserved resource.  The conditions that the rules set for the users are
therefore joined with AND.  See docs/design/reservations.rst, "Admission".
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.accounts import budgets
from oar.lib.config.files import Config
from oar.lib.jobs.records import Group, JobSpec
from oar.lib.jobs.states import JobType, ProjectMode
from oar.lib.reservations.errors import nothing_suits
from oar.lib.reservations.records import NewReservation, ReservationAlternative
from oar.lib.submission import admission
from oar.lib.submission.admission_rules import RuleOutput, RuleRefused
from oar.lib.submission.checks import BadSubmission
from oar.lib.submission.feasibility import Cluster, asker_of, open_cluster
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.resource_request import ResourceRequest
from oar.lib.submission.sql_admission import FINEST

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

#: No node has more slots.
MAX_SLOTS_OF_A_NODE = 4096


class ReservationProposal(NamedTuple):
    """A reservation in one queue, for the admission rules."""

    reservation: NewReservation  #: without request
    users: Sequence[str]  #: the users of the access list, without the owner
    alternatives: tuple[ReservationAlternative, ...]
    restrictions: str = ""  #: the options that restrict the usable resources, as they were written
    initial_request: str = ""
    rule: str = ""  #: of the series whose first occurrence it is
    starts: Sequence[int] = ()  #: of the occurrences of the series that are requested together
    id: int = 0  #: of the reservation that gets other resources; 0 = it is a new one

    @property
    def rule_variable(self) -> dict[str, object]:
        """The value of the variable ``ar`` in the admission rules."""
        reservation = self.reservation
        return {
            "name": reservation.name,
            "start": reservation.start,
            "end": reservation.end,
            "owner": reservation.owner,
            "account": reservation.account,
            "users": [reservation.owner, *self.users],
            "flex": reservation.is_flexible,
            "error_handling": "hard" if reservation.is_hard else "soft",
            "series": self.rule or None,
        }


def admit(
    tx: "Transaction", database: "Database", config: Config, proposal: ReservationProposal
) -> tuple[ReservationProposal, RuleOutput]:
    """Run the rules for the owner, then for each listed user.  Raises BadReservation, BadSubmission, RuleFailed.

    Return the proposal with the queue and the project that the rules chose, and with all conditions in the groups of
    its alternatives, and the output of the rules for the owner.
    """
    owner = proposal.reservation.owner
    with open_cluster(database, asker_of(config, owner)) as cluster:
        proposal = proposal._replace(alternatives=_feasible_alternatives(cluster, proposal))
        amended, output = _run_rules(tx, database, cluster, config, proposal, user=owner)
        conditions = [amended.stored_properties]
        for user in proposal.users:
            conditions.append(_run_rules(tx, database, cluster, config, proposal, user=user)[0].stored_properties)
        narrowed = tuple(
            alternative._replace(groups=_narrowed(request.groups, conditions))
            for alternative, request in zip(proposal.alternatives, amended.requests, strict=False)
        )
        fitting = _from_first_that_fits(narrowed, lambda each: cluster.size(each.groups, "") is not None)
        if not fitting:
            raise nothing_suits("no resource may be used by all users of the access list")
        if config.projects is not ProjectMode.FREE:
            fitting = (fitting[0]._replace(size=_largest(cluster, fitting)), *fitting[1:])
    if not proposal.id:  # a change is checked with its window
        _check_budget(tx, config, proposal, amended.spec, fitting[0].size)
    reservation = proposal.reservation._replace(queue=amended.spec.queue, project=amended.spec.project)
    return proposal._replace(reservation=reservation, alternatives=fitting), output


def _largest(cluster: Cluster, alternatives: Sequence[ReservationAlternative]) -> int:
    """Return the number of resources of the largest alternative; those that an earlier one includes are smaller."""
    pairs = zip(alternatives, [None, *alternatives], strict=False)
    heads = [each for each, before in pairs if before is None or not _holds(before, each)]
    return max(cluster.size(each.groups, "") or 0 for each in heads)


def _check_budget(tx: "Transaction", config: Config, proposal: ReservationProposal, spec: JobSpec, size: int) -> None:
    """Raise BadReservation if a budget has too little left for the reservation, which cannot wait."""
    start, duration = proposal.reservation.start, proposal.reservation.end - proposal.reservation.start
    windows = [(each, each + duration) for each in proposal.starts or (start,)]
    new = budgets.NewRequest(spec.queue, spec.project, size * duration * len(windows), windows=windows, user=spec.user)
    check_hours(tx, config, new)


def check_hours(tx: "Transaction", config: Config, new: budgets.NewRequest, *, replaced: int = 0) -> None:
    """Raise BadReservation if a budget does not allow a reservation; ``replaced``: the one whose place it takes."""
    exhaustion = budgets.exhaustion_of(tx, config, new, replaced=budgets.Replaced(reservation=replaced))
    if exhaustion:
        raise nothing_suits(f"{exhaustion.text} Choose another project, or ask a manager of the project for hours.")


def conditions_of(
    tx: "Transaction", database: "Database", config: Config, proposal: ReservationProposal
) -> dict[str, str]:
    """Return the condition that the rules set on the resources of each user; '' means none.

    Raises BadReservation, RuleFailed.
    """
    with open_cluster(database, asker_of(config, proposal.reservation.owner)) as cluster:
        return {
            user: _run_rules(tx, database, cluster, config, proposal, user=user)[0].stored_properties
            for user in proposal.users
        }


def _feasible_alternatives(cluster: Cluster, proposal: ReservationProposal) -> tuple[ReservationAlternative, ...]:
    """Return the alternatives that the whole cluster can satisfy.  Raises BadReservation if there is none."""
    checked = [
        alternative._replace(
            groups=tuple(
                group._replace(filter=cluster.condition(group.filter) if group.filter else "")
                for group in alternative.groups
            )
        )
        for alternative in proposal.alternatives
    ]
    condition = proposal.reservation.properties
    properties = cluster.condition(condition) if condition else ""
    feasible = _from_first_that_fits(checked, lambda each: cluster.size(each.groups, properties) is not None)
    if not feasible:
        filters = [group.filter for group in _narrowed(checked[-1].groups, [properties])]
        lack = cluster.lack(checked[-1].groups, properties, filters, proposal.restrictions)
        raise nothing_suits(lack, _largest_slots_hint(cluster, checked[-1].groups, properties))
    return feasible


def _largest_slots_hint(cluster: Cluster, groups: Sequence[Group], properties: str) -> str:
    """Return a hint with the largest number of slots per node that fits; '' if fewer slots do not fit either."""
    if len(groups) != 1 or [level.property for level in groups[0].levels] != ["network_address", FINEST]:
        return ""
    nodes, slots = groups[0].levels
    if min(nodes.quantity, slots.quantity) < 1:
        return ""
    fewer = [
        (groups[0]._replace(levels=(nodes, slots._replace(quantity=number))),)
        for number in range(min(slots.quantity, MAX_SLOTS_OF_A_NODE) - 1, 0, -1)
    ]
    index = bisect_left(fewer, True, key=lambda each: cluster.size(each, properties) is not None)
    if index == len(fewer):
        return ""
    most = fewer[index][0].levels[1].quantity
    return f"a node has at most {most}" if nodes.quantity == 1 else f"{nodes.quantity} nodes have at most {most} each"


def _from_first_that_fits(
    alternatives: Sequence[ReservationAlternative], fits: Callable[[ReservationAlternative], bool]
) -> tuple[ReservationAlternative, ...]:
    """Return the alternatives from the first one that fits; the scheduler skips later ones that do not fit.

    In a sequence where each alternative includes the next one, the search is a bisection: one check takes milliseconds.
    """
    begin = 0
    while begin < len(alternatives):
        end = begin + 1
        while end < len(alternatives) and _holds(alternatives[end - 1], alternatives[end]):
            end += 1
        if fits(alternatives[end - 1]):
            first = bisect_left(alternatives, True, begin, end - 1, key=fits)
            return tuple(alternatives[first:])
        begin = end
    return ()


def _holds(more: ReservationAlternative, less: ReservationAlternative) -> bool:
    """Return whether resources for ``more`` are always enough for ``less``: same form, smaller or equal quantities."""
    return len(more.groups) == len(less.groups) and all(
        first.filter == second.filter
        and [level.property for level in first.levels] == [level.property for level in second.levels]
        and all(large.quantity >= small.quantity > 0 for large, small in zip(first.levels, second.levels, strict=True))
        for first, second in zip(more.groups, less.groups, strict=True)
    )


def _run_rules(
    tx: "Transaction",
    database: "Database",
    cluster: Cluster,
    config: Config,
    proposal: ReservationProposal,
    *,
    user: str,
) -> tuple[Proposal, RuleOutput]:
    """Return the reservation as the rules changed it for one user, and their output.  Raises BadReservation."""
    reservation = proposal.reservation
    duration = reservation.end - reservation.start
    job = Proposal(
        spec=JobSpec(
            user=user,
            name=reservation.name or None,
            project=reservation.project,
            queue=reservation.queue,
            properties=reservation.properties or None,
            initial_request=proposal.initial_request,
            checkpoint_signal=config.signal,
        ),
        job_type=JobType.PASSIVE,
        requests=tuple(ResourceRequest(each.groups, duration) for each in proposal.alternatives),
        start=reservation.start,
        is_advance_reservation=True,
        asked_reservation=proposal.rule_variable,
        checks_project=user == reservation.owner,
    )
    try:
        admitted = admission.admit(tx, database, cluster, config, job)
    except (RuleRefused, BadSubmission) as error:
        raise nothing_suits(f"{user}: {error}") from None
    return admitted.proposal, admitted.output


def _narrowed(groups: Iterable[Group], conditions: Sequence[str]) -> tuple[Group, ...]:
    common = list(dict.fromkeys(condition for condition in conditions if condition))
    return tuple(
        group._replace(filter=" AND ".join(f"({part})" for part in [*common, *filter(None, [group.filter])]))
        for group in groups
    )

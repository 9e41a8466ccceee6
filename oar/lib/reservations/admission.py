"""Run the admission rules of the site on an advance reservation, for its owner and for every user of its access list.

Every listed user must be able to use every reserved resource.  The conditions that the rules set for the users are
therefore joined with AND.  See docs/design/reservations.rst, "Admission".
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.config.files import Config
from oar.lib.jobs.records import Group, JobSpec
from oar.lib.jobs.states import JobType
from oar.lib.reservations.preparation import nothing_suits
from oar.lib.reservations.records import ReservationAlternative
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
MOST_ON_A_NODE = 4096


class ReservationProposal(NamedTuple):
    """A reservation in one queue, for the admission rules."""

    owner: str
    users: Sequence[str]  #: the others of the access list
    queue: str
    project: str
    name: str
    properties: str
    start: int
    duration: int
    alternatives: tuple[ReservationAlternative, ...]
    restrictions: str = ""  #: the options that say which resources may be taken, as they were written
    initial_request: str = ""
    account: str = ""
    is_flexible: bool = False
    is_hard: bool = False
    rule: str = ""  #: of the series whose first occurrence it is

    @property
    def shown(self) -> dict[str, object]:
        """The value of the variable ``ar`` in the admission rules."""
        return {
            "name": self.name,
            "start": self.start,
            "end": self.start + self.duration,
            "owner": self.owner,
            "account": self.account,
            "users": [self.owner, *self.users],
            "flex": self.is_flexible,
            "error_handling": "hard" if self.is_hard else "soft",
            "series": self.rule or None,
        }


class AdmittedReservation(NamedTuple):
    """An admitted reservation."""

    queue: str
    project: str
    alternatives: tuple[ReservationAlternative, ...]  #: with all conditions in their groups
    output: RuleOutput


def admit(
    tx: "Transaction", database: "Database", config: Config, proposal: ReservationProposal
) -> AdmittedReservation:
    """Run the rules for the owner, then for each listed user.  Raises BadReservation, BadSubmission, RuleFailed."""
    with open_cluster(database, asker_of(config, proposal.owner)) as cluster:
        possible = _possible(cluster, proposal)
        amended, output = _amended(tx, database, cluster, config, (proposal, proposal.owner, possible))
        conditions = [amended.stored_properties]
        for user in proposal.users:
            other, _ = _amended(tx, database, cluster, config, (proposal, user, possible))
            conditions.append(other.stored_properties)
        alternatives = tuple(
            alternative._replace(groups=_narrowed(request.groups, conditions))
            for alternative, request in zip(possible, amended.requests, strict=False)
        )
        suiting = _from_first_that_fits(alternatives, lambda each: cluster.size(each.groups, "") is not None)
    if not suiting:
        raise nothing_suits("no resource may be used by all users of the access list")
    return AdmittedReservation(amended.spec.queue, amended.spec.project, suiting, output)


def conditions_of(
    tx: "Transaction", database: "Database", config: Config, proposal: ReservationProposal
) -> dict[str, str]:
    """Return the condition that the rules set on the resources of each user; '' means none.

    Raises BadReservation, RuleFailed.
    """
    with open_cluster(database, asker_of(config, proposal.owner)) as cluster:
        amended = {
            user: _amended(tx, database, cluster, config, (proposal, user, proposal.alternatives))
            for user in proposal.users
        }
    return {user: other.stored_properties for user, (other, _) in amended.items()}


def _possible(cluster: Cluster, proposal: ReservationProposal) -> tuple[ReservationAlternative, ...]:
    """Return the alternatives that the whole cluster can satisfy.  Raises BadReservation if there is none."""
    checked = [each._replace(groups=_checked(cluster, each.groups)) for each in proposal.alternatives]
    properties = cluster.condition(proposal.properties) if proposal.properties else ""
    possible = _from_first_that_fits(checked, lambda each: cluster.size(each.groups, properties) is not None)
    if not possible:
        filters = [group.filter for group in _narrowed(checked[-1].groups, [properties])]
        lack = cluster.lack(checked[-1].groups, properties, filters, proposal.restrictions)
        largest = _largest(cluster, checked[-1].groups, properties)
        raise nothing_suits(lack, largest)
    return possible


def _largest(cluster: Cluster, groups: Sequence[Group], properties: str) -> str:
    """Return a hint with the largest number of slots per node that fits; '' if fewer slots do not fit either."""
    if len(groups) != 1 or [level.property for level in groups[0].levels] != ["network_address", FINEST]:
        return ""
    nodes, slots = groups[0].levels
    if min(nodes.quantity, slots.quantity) < 1:
        return ""
    fewer = [
        (groups[0]._replace(levels=(nodes, slots._replace(quantity=number))),)
        for number in range(min(slots.quantity, MOST_ON_A_NODE) - 1, 0, -1)
    ]
    found = bisect_left(fewer, True, key=lambda each: cluster.size(each, properties) is not None)
    if found == len(fewer):
        return ""
    most = fewer[found][0].levels[1].quantity
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


def _checked(cluster: Cluster, groups: Iterable[Group]) -> tuple[Group, ...]:
    return tuple(Group(cluster.condition(group.filter) if group.filter else "", group.levels) for group in groups)


def _amended(
    tx: "Transaction",
    database: "Database",
    cluster: Cluster,
    config: Config,
    asked: tuple[ReservationProposal, str, tuple[ReservationAlternative, ...]],
) -> tuple[Proposal, RuleOutput]:
    """Return the reservation as the rules changed it for one user, and their output.  Raises BadReservation."""
    proposal, user, alternatives = asked
    job = Proposal(
        spec=JobSpec(
            user=user,
            name=proposal.name or None,
            project=proposal.project,
            queue=proposal.queue,
            properties=proposal.properties or None,
            initial_request=proposal.initial_request,
            checkpoint_signal=config.signal,
        ),
        job_type=JobType.PASSIVE,
        requests=tuple(ResourceRequest(each.groups, proposal.duration) for each in alternatives),
        start=proposal.start,
        is_advance_reservation=True,
        asked_reservation=proposal.shown,
    )
    try:
        admitted = admission.admit(tx, database, cluster, config, job)
    except (RuleRefused, BadSubmission) as error:
        raise nothing_suits(f"{user}: {error}") from None
    return admitted.proposal, admitted.output


def _narrowed(groups: Iterable[Group], conditions: Sequence[str]) -> tuple[Group, ...]:
    """Return the groups with all conditions added to their filters."""
    common = list(dict.fromkeys(condition for condition in conditions if condition))
    return tuple(
        group._replace(filter=" AND ".join(f"({part})" for part in [*common, *filter(None, [group.filter])]))
        for group in groups
    )

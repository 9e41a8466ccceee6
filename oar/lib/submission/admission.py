"""Admission of a proposal: run the site's admission rules and check that the cluster can satisfy its requests."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.errors import BadCondition
from oar.lib.config.files import Config
from oar.lib.jobs.records import Group, Memory
from oar.lib.jobs.states import JobTypeName, ProjectMode
from oar.lib.reservations.records import AdvanceReservation
from oar.lib.submission import admission_rules, checks, preparation, reservation_entry, rule_names
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.feasibility import ALL_DEAD, NONE_DECLARED, Cluster, UnknownProperty, asker_of, open_cluster
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.resource_request import JobTypes, ResourceRequest
from oar.lib.submission.sql_admission import NeededMemory

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

#: Queues that a message names, at most.
_MOST_NAMED = 10


class Admission(NamedTuple):
    """An admitted submission."""

    proposal: Proposal  #: as the rules left it
    output: admission_rules.RuleOutput
    sizes: Sequence[int]  #: resources that each alternative would take
    reservation: AdvanceReservation | None = None  #: the one that the job is in

    @property
    def size(self) -> int:
        """The resources that the first alternative would take."""
        return self.sizes[0]

    @property
    def seconds(self) -> int:
        """The resource seconds that the largest alternative of a job requests."""
        pairs = zip(self.sizes, self.proposal.requests, strict=True)
        return max(size * (request.walltime or 0) for size, request in pairs)


def admit(tx: "Transaction", database: "Database", cluster: Cluster, config: Config, proposal: Proposal) -> Admission:
    """Run the rules; reject a proposal if a rule rejects it, its queue does not exist, or its requests are too large.

    Also reject a job that may not use its advance reservation.
    Raises BadSubmission, RuleRefused, RuleFailed.
    """
    if proposal.spec.types:
        reservation_entry.check_no_frame(tx, proposal.spec.types)
    proposal = _with_project(tx, config, proposal)
    if proposal.advance_reservation:
        return _admit_inside(tx, database, cluster, config, proposal)
    amended, output = _amend(tx, database, cluster, config, proposal)
    if amended.spec.types:
        reservation_entry.check_no_frame(tx, amended.spec.types)
    _check_queue_after_rules(tx, proposal, amended)
    return Admission(amended, output, _sizes(cluster, config, amended, proposal))


def _admit_inside(
    tx: "Transaction", database: "Database", cluster: Cluster, config: Config, proposal: Proposal
) -> Admission:
    """Admit a job to an advance reservation; the type that places it inside is hidden from the rules."""
    project = proposal.spec.project or config.project
    reservation = reservation_entry.find(tx, proposal, project)
    spec = proposal.spec._replace(queue=proposal.spec.queue or reservation.queue)
    amended, output = _amend(tx, database, cluster, config, proposal._replace(spec=spec))
    reservation_entry.check_no_frame(tx, amended.spec.types)
    if amended.spec.project != project:
        reservation_entry.check_access(tx, reservation, spec.user, amended.spec.project)
    _check_queue_after_rules(tx, proposal, amended, reservation.queue)
    amended, said = reservation_entry.with_walltimes(reservation, amended, tx.now)
    output = output._replace(out=output.out + "".join(f"{line}\n" for line in said))
    sizes = _sizes(cluster, config, amended, proposal)
    reservation_entry.check_fits(cluster, reservation, amended, proposal, tx.now)
    types = (*amended.spec.types, reservation.entry_type)
    return Admission(amended._replace(spec=amended.spec._replace(types=types)), output, sizes, reservation)


def rehearse(database: "Database", config: Config, proposal: Proposal) -> Admission:
    """Return the admission of a proposal without storing anything.

    Raises BadSubmission, RuleRefused, RuleFailed, DatabaseUnavailable.
    """
    database.ready()
    try:
        with open_cluster(database, asker_of(config, proposal.spec.user)) as cluster, database.begin() as tx:
            raise _Rehearsed(admit(tx, database, cluster, config, proposal))
    except _Rehearsed as rehearsed:
        return rehearsed.admission


def amended(database: "Database", config: Config, proposal: Proposal) -> Proposal:
    """Return a proposal as the rules changed it, without checking queue and resources; store nothing.

    Raises BadSubmission, RuleRefused, RuleFailed, DatabaseUnavailable.
    """
    database.ready()
    try:
        with open_cluster(database, asker_of(config, proposal.spec.user)) as cluster, database.begin() as tx:
            raise _Rehearsed(Admission(*_amend(tx, database, cluster, config, proposal), ()))
    except _Rehearsed as rehearsed:
        return rehearsed.admission.proposal


class _Rehearsed(Exception):
    """Ends a rehearsal and rolls back everything that a rule wrote."""

    def __init__(self, admission: Admission) -> None:
        super().__init__()
        self.admission = admission


# -- rules ------------------------------------------------------------------------------------------------------------


def _amend(
    tx: "Transaction", database: "Database", cluster: Cluster, config: Config, proposal: Proposal
) -> tuple[Proposal, admission_rules.RuleOutput]:
    """Run the rules; check the values that they set like the values of the user."""
    spec, columns = proposal.spec, cluster.columns
    proposal = proposal._replace(
        spec=spec._replace(properties=_condition(cluster, spec.properties)),
        requests=tuple(
            request._replace(groups=tuple(_checked_group(cluster, group) for group in request.groups))
            for request in checks.named(proposal.requests, columns, config)
        ),
    )
    _check_nodes(tx, proposal.nodes)
    names = rule_names.names_of(tx, cluster, config, proposal)
    if config.admission_rules_in_files:
        rules = [rule for rule in admission_rules.read_rules(config.admission_rules_path) if rule.enabled]
    else:
        rules = tx.admission_rules.all(enabled=True)
    rule_set = admission_rules.RuleSet(tuple(rules), config.admission_rules_timeout)
    with rule_names.makers(tx, database) as makers:
        namespace, output = admission_rules.run(rule_set, names, makers)
    amended = rule_names.amend(proposal, names, namespace, config, output)
    preparation.check_spec(amended.spec)
    with _rejected_by_rule():
        _condition(cluster, amended.later_properties)
    amended = amended._replace(
        requests=checks.named(amended.requests, columns, config),
        default_walltimes=_default_walltimes(proposal.requests, amended.requests),
    )
    warnings = preparation.check_types(amended, config, tx.now) if amended.spec.types else ()
    amended = _with_project_of_rules(tx, config, proposal.spec.project, _with_memory(columns, config, amended))
    return amended._replace(warnings=(*amended.warnings, *warnings)), output


def _with_memory(columns: Mapping[str, str], config: Config, amended: Proposal) -> Proposal:
    """Return a proposal with the default memory of the site in requests that name none.  Raises BadSubmission.

    Without a usable MEMORY_PROPERTY there is no default: jobs that name no memory must not fail for it.
    """
    types, is_readable = JobTypes(amended.spec.types), checks.is_memory_readable(columns, config)
    checks.check_memory(amended.requests, types)
    if not is_readable and any(request.memory and not request.memory.is_default for request in amended.requests):
        reason = checks.unreadable_memory(columns, config)
        text = f"memory cannot be requested now: inform an administrator.\n# {reason}."
        raise BadSubmission(Code.REQUEST, text, verify=False)
    if not (is_readable and config.memory_default_per_core) or JobTypeName.CONTAINER in types:
        return amended
    default = Memory(config.memory_default_per_core, is_per_core=True, is_default=True)
    return amended._replace(
        requests=tuple(request._replace(memory=request.memory or default) for request in amended.requests)
    )


@contextmanager
def _rejected_by_rule() -> Iterator[None]:
    """Mark a BadSubmission as caused by an admission rule: monitoring counts it as a fault of the site."""
    try:
        yield
    except BadSubmission as error:
        error.is_by_rule = True
        raise


def _default_walltimes(requests: Sequence[ResourceRequest], amended: Sequence[ResourceRequest]) -> tuple[int, ...]:
    """Return for each request after the rules the site's default walltime; 0 if the user or a rule gave one."""
    return tuple(
        request.walltime or 0 if index < len(requests) and requests[index].walltime is None else 0
        for index, request in enumerate(amended)
    )


def _checked_group(cluster: Cluster, group: Group) -> Group:
    """Return a group with the condition of the user as it may be stored, before a rule adds its own."""
    return Group(_condition(cluster, group.filter) or "", group.levels)


def _condition(cluster: Cluster, text: str | None) -> str | None:
    try:
        return cluster.condition(text) if text else None
    except BadCondition as error:
        is_name = text is not None and text.replace("-", "").isidentifier()
        way_out = "\n# A queue is named with -q, nodes with --nodelist" if is_name else ""
        if "unknown column" in str(error) and not is_name and "did you mean" not in str(error):
            way_out = "\n# The properties and their values: oarnodes"
        raise BadSubmission(Code.REQUEST, f"{error}{way_out}") from None


# -- projects ---------------------------------------------------------------------------------------------------------


def _with_project(tx: "Transaction", config: Config, proposal: Proposal) -> Proposal:
    """Return a proposal with the project that the user chose or has by default.  Raises BadSubmission."""
    spec = proposal.spec
    if config.projects is ProjectMode.FREE or not proposal.checks_project:
        return proposal
    from oar.lib.accounts import projects

    try:
        project = projects.choose(tx, config, spec.user, spec.project)
    except projects.ProjectRefused as refusal:
        raise BadSubmission(Code.REQUEST, str(refusal), verify=False) from None
    return proposal._replace(spec=spec._replace(project=project))


def _with_project_of_rules(tx: "Transaction", config: Config, before: str, amended: Proposal) -> Proposal:
    """Return a proposal after the rules, marked if they chose a project that the user could not.  Raises BadSubmission.

    ``before``: the project before the rules.
    """
    user, project = amended.spec.user, amended.spec.project
    if config.projects is ProjectMode.FREE or not amended.checks_project or project == before:
        return amended
    from oar.lib.accounts import projects

    with _rejected_by_rule():
        try:
            projects.check_open(tx, config, project)
        except projects.ProjectRefused as refusal:
            raise BadSubmission(Code.REQUEST, f"a rule of the site chose a project: {refusal}", verify=False) from None
    return amended._replace(project_by_rule=not projects.may_use(tx, config, user, project))


# -- nodes, queues, resources -----------------------------------------------------------------------------------------


def _check_nodes(tx: "Transaction", names: Sequence[str]) -> None:
    nodes = tx.resources.nodes() if names else ()
    for name in names:
        if name not in nodes:
            from oar.lib.base.texts import nearest

            meant = nearest(name, nodes)
            guess = f", did you mean '{meant}'?" if meant else "."
            raise BadSubmission(Code.REQUEST, f"there is no node '{name}'{guess}")


def check_queue(tx: "Transaction", name: str, of_reservation: str = "") -> None:
    """Raise BadSubmission if the queue does not exist, or was removed and remains only for its advance reservations.

    ``of_reservation``: the queue of the advance reservation that contains the job.
    """
    if name != of_reservation and tx.queues.is_orphaned(name):
        removed = f"queue '{name}' was removed: it takes jobs of its advance reservations only"
        raise BadSubmission(Code.QUEUE, f"{removed}; name another one (-q).")
    if not tx.queues.exists(name):
        from oar.lib.base.texts import did_you_mean

        names = sorted(queue.name for queue in tx.queues.all())
        guess = did_you_mean(name, names, quote="'") or f"\n# There are: {', '.join(names[:_MOST_NAMED])}"
        raise BadSubmission(Code.QUEUE, f"queue '{name}' does not exist{guess}")


def _check_queue_after_rules(
    tx: "Transaction", proposal: Proposal, amended: Proposal, of_reservation: str = ""
) -> None:
    """Check the queue after the rules; a queue that is not the user's choice was set by a rule."""
    with nullcontext() if amended.spec.queue == proposal.spec.queue else _rejected_by_rule():
        check_queue(tx, amended.spec.queue, of_reservation)


def _needed_memory(request: ResourceRequest, config: Config) -> NeededMemory | None:
    """Return the memory that nodes must have for a request; None if it names none: every node has the default."""
    if not (request.memory and config.memory_property) or request.memory.is_default:
        return None
    levels = frozenset(("network_address", config.oarsub_nodes_resources, "host"))
    return NeededMemory(config.memory_property, request.memory, levels)


def _sizes(cluster: Cluster, config: Config, amended: Proposal, proposal: Proposal) -> list[int]:
    """Return how many resources each alternative would take.  Raises BadSubmission if one can never be satisfied.

    ``amended``, ``proposal``: the proposal after and before the rules.  For an advance reservation, one satisfiable
    alternative is enough, and the only one that is looked at.
    """
    properties = amended.spec.properties or ""
    sizes, one_is_enough = [], amended.is_advance_reservation
    for number, request in enumerate(amended.requests):
        memory = _needed_memory(request, config)
        try:
            size = cluster.size(request.groups, properties, memory)
            is_for_memory = size is None and bool(memory) and cluster.size(request.groups, properties) is not None
        except UnknownProperty as error:
            raise BadSubmission(Code.REQUEST, str(error), prefix="# ") from None
        except BadCondition as error:
            raise BadSubmission(Code.REQUEST, str(error)) from None
        if size is None and one_is_enough and request is not amended.requests[-1]:
            continue
        if is_for_memory:
            raise checks.too_little_memory(request)
        if size is None:
            lack = cluster.lack(request.groups, properties, proposal.conditions_of_user(request, number))
            text = f"There are not enough resources for your request\n# {lack}"
            verify = False if lack in (NONE_DECLARED, ALL_DEAD) else None  # no other request would fit either
            raise BadSubmission(Code.REQUEST, text, prefix="# ", verify=verify)
        sizes.append(size)
        if one_is_enough:
            break
    return sizes

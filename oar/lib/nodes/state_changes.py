"""Resource state changes. Resource states are changed in this module only.

Other modules request a change: they write ``next_state``, which NodeChangeState applies here, or an event whose
consequence is a suspicion. All resources of a node change together, with their log, in one statement.
See docs/design/events.rst, "States of resources".
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.bus.messages import Ask, Effect, JobAction, Mail, Tag, Wake
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobTypeName
from oar.lib.nodes.properties import Setting, logged
from oar.lib.nodes.state_reasons import with_reason
from oar.lib.nodes.states import STATE_NUMBERS, UNCHANGED, NodeCheck, ResourceState
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.nodes.records import Resource
    from oar.lib.nodes.sql_resources import PendingChange

#: A node that has not become Alive after so many wake-ups is given up.
WAKES = 2

#: States that end the jobs of a node, and the types of jobs without processes on their nodes, which go on.
_ENDS_JOBS = frozenset({ResourceState.DEAD, ResourceState.ABSENT})
_UNCONCERNED = (JobTypeName.COSYSTEM, JobTypeName.NOOP)


@dataclass(frozen=True, slots=True)
class StateChanges:
    """The result of applying the pending changes."""

    moved: "tuple[PendingChange, ...]" = ()
    doomed: "Mapping[int, tuple[str, ...]]" = field(default_factory=dict)  #: jobs that must end, with their lost nodes


class Suspicion(NamedTuple):
    """Why a node is suspected, and the check that ends the suspicion.

    Without a check, the suspicion ends when the node answers.
    """

    text: str = ""
    check: NodeCheck | None = None
    user: str = ""  #: whose account or home is checked


def suspect(
    tx: "Transaction",
    nodes: Collection[str],
    *,
    finaud: bool,
    heals: bool = True,
    named: bool = True,
    reasons: Mapping[str, Suspicion] | None = None,
) -> list[int]:
    """Set the resources of nodes to Suspected if their state allows it; return the changed resources.

    ``finaud``: Finaud may set them to Alive again, and does so if the site ``heals`` nodes. ``named``: the event of the
    suspicion contains the nodes; otherwise an additional event with the nodes is written. ``reasons``: by node.
    """
    for host, reason in (reasons or {}).items() if finaud else ():
        if reason.check:
            tx.nodes.require_check(host, reason.text, reason.check, reason.user)
    nodes_by_resource = tx.resources.suspectable(nodes, finaud=finaud)
    if not nodes_by_resource:
        return []
    tx.resources.move(nodes_by_resource, ResourceState.SUSPECTED, finaud=finaud)
    by_reason: dict[Suspicion, list[str]] = defaultdict(list)
    for host in sorted(set(nodes_by_resource.values())):
        by_reason[(reasons or {}).get(host, Suspicion())].append(host)
    for reason, hosts in by_reason.items():
        ids = [resource for resource, host in nodes_by_resource.items() if host in hosts]
        tx.nodes.set_reason(ids, "", reason.text, reason.check if finaud else None, reason.user)
        if not named:
            text = f"[NodeChangeState] {', '.join(hosts)}: Suspected{reason.text and f': {reason.text}'}"
            tx.events.add(EventType.LOG_SUSPECTED, 0, text, hosts=hosts)
    tx.outbox.append(Mail("Suspecting nodes", _suspicion_text(by_reason, returns=finaud and heals)))
    tx.outbox.extend(_heal(nodes_by_resource))
    return list(nodes_by_resource)


def _suspicion_text(by_reason: Mapping[Suspicion, Sequence[str]], *, returns: bool) -> str:
    """Return the mail text about suspected nodes: names, reasons, and how the suspicion ends."""
    lines = [line for reason, hosts in by_reason.items() for line in (*hosts, *([reason.text] if reason.text else []))]
    if not returns:
        return "\n".join([*lines, "Repair them, then run: oarnodesetting -h NODE -s Alive"])
    condition = "checks these nodes" if any(reason.check for reason in by_reason) else "waits until these nodes answer"
    way_back = f"OAR {condition}, removes leftover processes and uses them again by itself."
    return "\n".join([*lines, f"{way_back} If one stays Suspected: oarnodes --reasons"])


def ask_return(tx: "Transaction", names: Collection[str]) -> None:
    """Request the state Alive for nodes that the system suspects and that answer again; they are swept first."""
    for name in sorted(names):
        tx.resources.ask_state_of_node(name, ResourceState.ALIVE, seen=ResourceState.SUSPECTED, decided_by_finaud=True)


def is_change_due(tx: "Transaction") -> bool:
    """Return whether ``apply_pending`` has something to do."""
    return tx.resources.is_change_asked() or bool(tx.events.open([EventType.NODE_SWEPT, EventType.NODE_LEAVES]))


def apply_pending(tx: "Transaction", *, sweeps: bool) -> StateChanges:
    """Apply the requested state changes.

    With ``sweeps``, a returning node is cleaned first. Its change stays pending until the Runner has recorded that the
    node is clean; until then the Runner is requested again. The jobs of a node that announced its shutdown are not
    ended here: they end with the node.
    """
    swept = tx.events.take_hosts(EventType.NODE_SWEPT)
    if not sweeps:
        tx.events.take_hosts(EventType.NODE_SURVEY)  # the survey precedes the sweep
    leaving = tx.events.take_hosts(EventType.NODE_LEAVES)
    pending = tx.resources.pending()
    unclean = {change.network_address for change in pending if sweeps and change.comes_back} - swept
    ready = [change for change in pending if not (change.comes_back and change.network_address in unclean)]
    moved = tuple(change for change in ready if change.changes)
    for (state, finaud), ids in _by_target(moved).items():
        tx.resources.move(ids, state, finaud=finaud)
    tx.nodes.forget_reasons([change.id for change in moved if change.next_state is ResourceState.ALIVE])
    tx.resources.clear_asked_state([change.id for change in ready if not change.changes])
    if unclean:
        tx.outbox.append(Ask(JobAction.SWEEP, 0, tuple(sorted(unclean))))
    suspected = [change for change in moved if change.next_state is ResourceState.SUSPECTED]
    tx.outbox.extend(_heal({change.id: change.network_address for change in suspected}))
    if moved:
        tx.outbox.append(Mail("Resource state modifications", "\n".join(_lines(moved))))
    nodes_by_resource = {
        change.id: change.network_address
        for change in moved
        if change.next_state in _ENDS_JOBS and change.network_address not in leaving
    }
    lost_nodes = {
        job: tuple(sorted({nodes_by_resource[resource] for resource in job_resources}))
        for job, job_resources in doomed(tx, nodes_by_resource).items()
    }
    return StateChanges(moved, lost_nodes)


def doomed(tx: "Transaction", resources: Collection[int]) -> dict[int, list[int]]:
    """Return the live jobs that must end if these resources are withdrawn, each with its resources among them."""
    jobs = tx.jobs.on_resources(resources) if resources else {}
    types = tx.jobs.types(jobs, current=True) if jobs else {}
    return {
        job: job_resources
        for job, job_resources in jobs.items()
        if not any(name in JobTypes(types.get(job, ())) for name in _UNCONCERNED)
    }


def order_halt(tx: "Transaction", names: Collection[str], by: str, why: str) -> None:
    """Request the state Absent for idle nodes; the Runner or Greta then halts them.

    Skip a node on which a job has been started meanwhile. The requested state prevents further job starts.
    """
    requested = {
        name: ids
        for name in sorted(names)
        if (ids := tx.resources.ask_state_of_node(name, ResourceState.ABSENT, seen=ResourceState.ALIVE))
    }
    busy = tx.resources.busy_nodes() if requested else set()
    tx.resources.clear_asked_state([resource for name in requested.keys() & busy for resource in requested[name]])
    if leaving := [name for name in requested if name not in busy]:
        tx.nodes.set_reason([resource for name in leaving for resource in requested[name]], "", f"halted: {why}")
        text = f"[{by}] {why}: {', '.join(leaving)}"
        tx.events.add(EventType.HALT_NODE, 0, text, to_check=True, hosts=leaving)
        tx.outbox += [Wake(Tag.CHSTATE), Ask(JobAction.ENERGY, 0)]


def order_wake(tx: "Transaction", names: Collection[str], by: str, why: str) -> None:
    """Request the wake-up of nodes by the Runner or Greta; give up nodes that were woken ``WAKES`` times in vain."""
    if names:
        lost = tx.resources.woken_in_vain(names, WAKES)
        give_up_sleeping(tx, lost, f"[{by}] woken {WAKES} times in vain")
        names = set(names) - lost
    if names:
        text = f"[{by}] {why}: {', '.join(sorted(names))}"
        tx.events.add(EventType.WAKEUP_NODE, 0, text, to_check=True, hosts=names)
        tx.outbox.append(Ask(JobAction.ENERGY, 0))


def give_up_sleeping(tx: "Transaction", names: Collection[str], text: str) -> None:
    """Suspect sleeping nodes that cannot be halted or woken, with an event: their real state is unknown."""
    unchanged = [resource for resource in tx.resources.of_nodes(names) if resource.next_state == UNCHANGED]
    asleep = [resource for resource in unchanged if resource.state is ResourceState.ABSENT]
    if asleep:
        hosts = sorted({resource.network_address for resource in asleep})
        tx.events.add(EventType.LOG_SUSPECTED, 0, f"{text}: {', '.join(hosts)}", hosts=hosts)
        tx.outbox.append(Mail("Nodes cannot be halted or woken", f"{text}: {', '.join(hosts)}"))
        ask_state(tx, [resource.id for resource in asleep], ResourceState.SUSPECTED, text)


def bring_back(tx: "Transaction", names: Collection[str], by: str, *, may_wake: bool) -> None:
    """Wake the nodes that became Alive while a command halted them, so that no job starts on them.

    With ``may_wake`` false, suspect them instead.
    """
    resources = tx.resources.of_nodes(names)
    alive = [resource for resource in resources if ResourceState.ALIVE in (resource.state, resource.next_state)]
    if not alive:
        return
    reason, state = "made Alive while it was halted", ResourceState.ABSENT if may_wake else ResourceState.SUSPECTED
    ask_state(tx, [resource.id for resource in alive], state, reason)
    if may_wake:
        order_wake(tx, {resource.network_address for resource in alive}, by, "made Alive while they were halted")


# -- what administrators do -------------------------------------------------------------------------------------------


def add(
    tx: "Transaction", names: Sequence[str], settings: Sequence[Setting], state: ResourceState = ResourceState.ALIVE
) -> list[int]:
    """Create a resource for each node name, all with the same settings; return their ids, in order."""
    return add_each(tx, [(name, settings) for name in names], state)


def add_each(
    tx: "Transaction", resources: Sequence[tuple[str, Sequence[Setting]]], state: ResourceState = ResourceState.ALIVE
) -> list[int]:
    """Create resources, given as ``(node name, settings)``; return their ids, in order.

    All resources have the same properties, with different values.
    """
    ids = tx.resources.insert(
        [
            {"network_address": name, "state": state, "state_num": STATE_NUMBERS[state], **dict(settings)}
            for name, settings in resources
        ]
    )
    history = [(resource, "state", str(state)) for resource in ids]
    for resource, (_, settings) in zip(ids, resources, strict=True):
        history += [(resource, setting.name, logged(setting.value)) for setting in settings]
    tx.resources.begin_log(history)
    tx.outbox += [Wake(Tag.CHSTATE), Wake(Tag.TERM)]
    return ids


def ask_state(
    tx: "Transaction", resources: Collection[int], to: ResourceState, reason: str = "", *, by: str = ""
) -> None:
    """Request a state of resources that stays until another state is requested; ``by``: a user, '' = OAR."""
    tx.resources.ask_state(resources, to)
    if to is not ResourceState.ALIVE:
        tx.nodes.set_reason(resources, by, reason)
    tx.outbox.append(Wake(Tag.CHSTATE))


def change_state(
    tx: "Transaction", resources: Collection[int], to: ResourceState, *, by: str, reason: str = ""
) -> None:
    """Request a state of resources for a user, with an event."""
    _tell_change(tx, EventType.STATE_REQUESTED, f"User {by} requested the state {to} of", resources, reason)
    ask_state(tx, resources, to, reason, by=by)


def take_leave(tx: "Transaction", name: str) -> list[int]:
    """Record that a node announced its shutdown; return the affected resources.

    Request the state Absent for its resources that work or may return automatically. Its jobs continue as long as the
    node runs.
    """
    resources = tx.resources.of_nodes([name])
    ids = [resource.id for resource in resources if resource.state is ResourceState.ALIVE or _may_return(resource)]
    if ids:
        text = f"{name} said that it goes: {len(ids)} resources"
        tx.events.add(EventType.NODE_LEAVES, 0, text, to_check=True, hosts=[name])
        ask_state(tx, ids, ResourceState.ABSENT, "the node said that it goes")
    return ids


def welcome(tx: "Transaction", name: str) -> list[int]:
    """Record that a node announced its return, and request the state Alive for its resources; return these resources.

    Decisions of administrators stay: a maintenance, a suspicion that an administrator must end, and the state Dead.
    """
    resources = tx.resources.of_nodes([name])
    kept = tx.resources.in_maintenance([resource.id for resource in resources])
    ids = [
        resource.id
        for resource in resources
        if resource.id not in kept
        and (ResourceState.ABSENT in (resource.state, resource.next_state) or _may_return(resource))
    ]
    if ids:
        text = f"{name} said that it is back: {len(ids)} resources"
        tx.events.add(EventType.NODE_IS_BACK, 0, text, hosts=[name])
        ask_state(tx, ids, ResourceState.ALIVE)
    return ids


def _may_return(resource: "Resource") -> bool:
    """Return whether the system suspects a resource until its node answers."""
    return resource.state is ResourceState.SUSPECTED and resource.finaud_decision


def begin_maintenance(tx: "Transaction", resources: Collection[int], *, by: str, reason: str = "") -> None:
    """Set resources to Absent, and prevent their wake-up."""
    maintained = tx.resources.in_maintenance(resources)
    fresh = set(resources) - maintained
    if fresh:
        tx.resources.log(fresh, "maintenance", "on")
        _tell_change(tx, EventType.MAINTENANCE_BEGUN, f"User {by} began the maintenance of", fresh, reason)
    if maintained and reason:
        _tell_change(
            tx, EventType.MAINTENANCE_BEGUN, f"User {by} gave a reason for the maintenance of", maintained, reason
        )
    changed = tx.resources.keep_asleep(resources)
    if changed:
        tx.resources.log(changed, "available_upto", "0")
    ask_state(tx, resources, ResourceState.ABSENT, reason, by=by)


def end_maintenance(tx: "Transaction", resources: Collection[int], *, by: str) -> None:
    """Set resources to Alive again, and restore their ``available_upto`` of the time before the maintenance."""
    over = tx.resources.in_maintenance(resources)
    if over:
        tx.resources.close_log(resources, "maintenance")
        _tell_change(tx, EventType.MAINTENANCE_ENDED, f"User {by} ended the maintenance of", over)
    dates: dict[int, list[int]] = defaultdict(list)
    for resource, date in tx.resources.wake_as_before(resources):
        dates[date].append(resource)
    for date, changed in dates.items():
        tx.resources.log(changed, "available_upto", str(date))
    ask_state(tx, resources, ResourceState.ALIVE)


def tell_drain(tx: "Transaction", resources: Collection[int], *, begins: bool, by: str, reason: str = "") -> None:
    """Write the event for a drain that begins or ends; for resources already drained, write a new reason."""
    selected = tx.resources.select(sorted(resources))
    drained = {resource.id for resource in selected if resource.properties["drain"] == "YES"}
    changed = set(resources) - drained if begins else drained
    if changed:
        type_, verb = (EventType.DRAIN_BEGUN, "began") if begins else (EventType.DRAIN_ENDED, "ended")
        _tell_change(tx, type_, f"User {by} {verb} the drain of", changed, reason)
    if begins and reason and drained:
        _tell_change(tx, EventType.DRAIN_BEGUN, f"User {by} gave a reason for the drain of", drained, reason)


def _tell_change(tx: "Transaction", type_: EventType, text: str, resources: Collection[int], reason: str = "") -> None:
    selected = tx.resources.select(sorted(resources))
    hosts = sorted({resource.network_address for resource in selected} - {""})
    others = [f"resource {resource.id}" for resource in selected if not resource.network_address]
    tx.events.add(type_, 0, with_reason(f"{text} {', '.join([*hosts, *others])}", reason), hosts=hosts)


# -- messages about changes -------------------------------------------------------------------------------------------


def _by_target(changes: "Iterable[PendingChange]") -> dict[tuple[ResourceState, bool], list[int]]:
    groups: dict[tuple[ResourceState, bool], list[int]] = defaultdict(list)
    for change in changes:
        groups[change.next_state, change.next_finaud_decision].append(change.id)
    return groups


def _heal(suspected: Mapping[int, str]) -> list[Effect]:
    """Return the request to run the site's script for the resources that became Suspected."""
    lines = tuple(f"{resource} {node}" for resource, node in sorted(suspected.items()))
    return [Ask(JobAction.HEAL, 0, lines)] if lines else []


def _lines(changes: "Iterable[PendingChange]") -> list[str]:
    counts: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for change in changes:
        counts[change.network_address or "-", change.state, change.next_state].append(change.id)
    return [f"{node}: {old} -> {new} ({len(ids)} resources)" for (node, old, new), ids in sorted(counts.items())]

"""Changes of nodes and their resources by administrators: new resources, states, maintenance, properties.

Commands and the API use the same functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest, UserError
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.nodes import audited_changes, properties, reserved, state_changes, state_reasons
from oar.lib.nodes.properties import PropertyProblem, Setting, SettingError
from oar.lib.nodes.states import ResourceState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class NodeChange(NamedTuple):
    """A change of resources; None = unchanged."""

    state: ResourceState | None = None
    is_maintained: bool | None = None  #: whether they are taken away for maintenance
    settings: tuple[Setting, ...] = ()
    is_forced: bool = False  #: although it breaks an advance reservation
    reason: str = ""  #: of the new state, or of the drain or the maintenance that begins

    @property
    def ends_jobs(self) -> bool:
        """Whether the change ends the jobs on these resources."""
        return bool(self.is_maintained) or self.state in (ResourceState.ABSENT, ResourceState.DEAD)

    @property
    def values(self) -> Mapping[str, object]:
        """The new property values, by name."""
        return {setting.name: setting.value for setting in self.settings}

    @property
    def texts(self) -> Mapping[str, str]:
        """The new state, maintenance and property values as texts, by name."""
        texts = {} if self.state is None else {"state": str(self.state)}
        if self.is_maintained is not None:
            texts[audited_changes.MAINTENANCE] = "on" if self.is_maintained else "off"
        return texts | {setting.name: properties.logged(setting.value) for setting in self.settings}

    @property
    def may_have_reason(self) -> bool:
        """Whether the change sets a state, or begins a drain or a maintenance."""
        return self.state is not None or bool(self.is_maintained) or self.values.get("drain") == "YES"


class BadSettings(UserError):
    """Properties that cannot be set."""

    def __init__(self, problems: Sequence[PropertyProblem]) -> None:
        super().__init__("; ".join(map(_describe, problems)))
        self.problems = problems


def _describe(problem: PropertyProblem) -> str:
    if problem.kind is SettingError.SYNTAX:
        return f"bad property syntax: {problem.name}"
    if problem.kind is SettingError.SYSTEM:
        return f"cannot update property {problem.name} because it is a system field"
    return f"cannot update property {problem.name}: {problem.text}"


def settings_of(tx: "Transaction", texts: Sequence[str]) -> tuple[Setting, ...]:
    """Parse ``NAME=VALUE`` and ``NAME!``. Raises BadSettings."""
    columns = tx.resources.columns() if texts else {}
    return sound([properties.parse_setting(text, columns) for text in texts])


def checked(tx: "Transaction", values: Mapping[str, str | None]) -> tuple[Setting, ...]:
    """Return settings for property values given as text; None: no value. Raises BadSettings."""
    columns = tx.resources.columns() if values else {}
    return sound([properties.check(name, text, columns) for name, text in values.items()])


def sound(parsed: Sequence[Setting | PropertyProblem]) -> tuple[Setting, ...]:
    """Return the valid settings; for a property that occurs twice, the last setting is used. Raises BadSettings."""
    if problems := [setting for setting in parsed if isinstance(setting, PropertyProblem)]:
        raise BadSettings(problems)
    return tuple({setting.name: setting for setting in parsed if isinstance(setting, Setting)}.values())


def add(tx: "Transaction", user: User, names: Sequence[str], change: NodeChange) -> list[int]:
    """Create a resource for each node name ('' for no node); return their ids, in order.

    Raises NotAllowed, BadRequest, BadSettings.
    """
    user.check_administers()
    if change.reason:
        raise BadRequest("cannot set a reason for new resources. Add them without it, then drain them with it.")
    values = change.values
    if values.get("type", "default") == "default" and not all(values.get("network_address", name) for name in names):
        raise BadSettings([PropertyProblem(SettingError.VALUE, "network_address", "a compute resource is on a host")])
    if problems := _not_hosts(names):
        raise BadSettings(problems)
    ids = state_changes.add(tx, names, change.settings, change.state or ResourceState.ALIVE)
    if change.is_maintained:
        state_changes.begin_maintenance(tx, ids, by=user.author)
    texts = [f"{setting.name}={properties.logged(setting.value)}" for setting in change.settings]
    audited_changes.record_addition(tx, user, ids, names, "; ".join(texts))
    return ids


def change_resources(tx: "Transaction", user: User, ids: Sequence[int], change: NodeChange) -> dict[str, int]:
    """Change resources; return for each property the number of resources whose value has changed.

    Raises NotAllowed, BadRequest, BadSettings, WouldBreak.
    """
    user.check_administers()
    if change.reason and not change.may_have_reason:
        raise BadRequest(
            "cannot set a reason alone. Use it with a state, or with a drain or a maintenance that begins."
        )
    reason = state_reasons.checked(change.reason)
    _check_hosts(tx, ids, change)
    former = audited_changes.former_values(tx, ids, change.texts)
    before = {} if change.is_forced else _check_reserved(tx, ids, change)
    if change.state:
        state_changes.change_state(tx, ids, change.state, by=user.author, reason=reason)
    if change.is_maintained:
        state_changes.begin_maintenance(tx, ids, by=user.author, reason=reason)
    elif change.is_maintained is False:
        state_changes.end_maintenance(tx, ids, by=user.author)
    if "drain" in change.values:
        state_changes.tell_drain(tx, ids, begins=change.values["drain"] == "YES", by=user.author, reason=reason)
    kept, drains = _split_drains(change.settings)
    counts = properties.set_properties(tx, ids, kept)
    if before:
        reserved.check_conditions(tx, ids, before, [setting.name for setting in kept])
    counts |= properties.set_properties(tx, ids, drains)
    audited_changes.record_change(tx, user, ids, (former, change.texts), reason=reason)
    return counts


def _split_drains(settings: Sequence[Setting]) -> tuple[list[Setting], list[Setting]]:
    """Return the settings that can break advance reservations, and the drain settings, which cannot."""
    drains = [setting for setting in settings if setting.name == "drain"]
    return [setting for setting in settings if setting.name != "drain"], drains


def _not_hosts(names: Sequence[str]) -> list[PropertyProblem]:
    """Return a problem for each name that is not a valid host name; '' is valid."""
    problems = []
    for name in filter(None, names):
        try:
            properties.check_host(name)
        except ValueError as error:
            problems.append(PropertyProblem(SettingError.VALUE, "network_address", str(error)))
    return problems


def _check_hosts(tx: "Transaction", ids: Sequence[int], change: NodeChange) -> None:
    """Reject a change that leaves a compute resource without a host. Raises BadSettings."""
    values = change.values
    if values.get("network_address", "x") and values.get("type") != "default":
        return
    for resource in tx.resources.select(ids):
        address = values.get("network_address", resource.network_address)
        if values.get("type", resource.type) == "default" and not address:
            text = f"resource {resource.id} is a compute resource"
            raise BadSettings([PropertyProblem(SettingError.VALUE, "network_address", text)])


def _check_reserved(tx: "Transaction", ids: Sequence[int], change: NodeChange) -> reserved.Satisfied:
    """Reject the withdrawal of reserved resources; return which resources satisfy the conditions of reservations now.

    Raises WouldBreak.
    """
    if change.state is ResourceState.DEAD or change.is_maintained:
        reserved.check_absence(tx, ids)
    for name, value in change.settings:
        if name == "available_upto" and isinstance(value, int):
            reserved.check_availability(tx, ids, value)
    reserved.check_identity(tx, ids, change.values)
    return reserved.satisfied(tx, ids) if _split_drains(change.settings)[0] else {}


class RemovalRefusal(Enum):
    """Why a resource is not deleted."""

    UNKNOWN = auto()
    NOT_DEAD = auto()
    USED = auto()  #: a live job is on it
    NOT_ACCOUNTED = auto()  #: jobs that ran there would be lost to the accounting


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of a deletion."""

    refusal: RemovalRefusal | None = None
    jobs: tuple[int, ...] = ()  #: the jobs that prevent the removal
    purged: tuple[int, ...] = ()


def remove(tx: "Transaction", user: User, resource_id: int, *, purge_jobs: bool, force: bool = False) -> Removal:
    """Delete a Dead resource; with ``purge_jobs`` also delete all rows of the jobs that ran there.

    ``force``: even if an advance reservation holds it. Raises NotAllowed, WouldBreak.
    """
    user.check_administers()
    resources = tx.resources.select([resource_id])
    if not resources:
        return Removal(RemovalRefusal.UNKNOWN)
    if resources[0].state is not ResourceState.DEAD:
        return Removal(RemovalRefusal.NOT_DEAD)
    if not force:
        reserved.check_removal(tx, resource_id)
    users = _without_frames(tx, tx.jobs.on_resources([resource_id]))
    if users:
        return Removal(RemovalRefusal.USED, tuple(users))
    purged = _without_frames(tx, tx.retention.jobs_of_resource(resource_id)) if purge_jobs else []
    if purged:
        unaccounted = tx.retention.not_accounted(purged)
        if unaccounted:
            return Removal(RemovalRefusal.NOT_ACCOUNTED, tuple(unaccounted))
        tx.retention.remove_jobs(purged)
    tx.resources.delete(resource_id)
    what = audit.name_resources([resource_id], [resources[0].network_address])
    lost = Values(new=f"with {audit.numbered('job', purged)}" if purged else "")
    audit.record(tx, user, AuditAction.DELETE, what, lost)
    tx.outbox.append(Wake(Tag.TERM))
    return Removal(purged=tuple(purged))


def _without_frames(tx: "Transaction", jobs: Iterable[int]) -> list[int]:
    """Return the jobs without frames of advance reservations, which are deleted with their reservation."""
    ids = list(jobs)
    frames = tx.reservations.of_frames(ids)
    return [job_id for job_id in ids if job_id not in frames]

"""Changes of projects, members and budgets.

Administrators change all, managers the members of their projects and the budgets of sub-projects.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access import name_service
from oar.lib.access.accounts import has_account
from oar.lib.access.records import User
from oar.lib.accounts import projects
from oar.lib.accounts.records import NO_END, Budget, Member, Project
from oar.lib.accounts.states import MemberRole, ProjectState
from oar.lib.base.errors import BadRequest, NotAllowed, UserError, WrongState
from oar.lib.base.texts import enumerated
from oar.lib.base.times import format_date
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

#: Names that a key of a quota can hold, too.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+@ -]{0,253}[A-Za-z0-9_.+-]|[A-Za-z0-9_]")
_ENTRY = re.compile(r"@?[A-Za-z0-9_.][A-Za-z0-9_.@+-]{0,253}\$?")
LARGEST_SHARES = 1_000_000
LARGEST_HOURS = 1e12
LONGEST_DESCRIPTION = 4096
#: The last date that a project may have: the end of the year 9999.
LATEST_DATE = 253_402_300_799


class NoSuchProject(UserError):
    """The project does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f'the project "{name}" does not exist. List the projects: oarproject --list')


def create(tx: "Transaction", user: User, project: Project) -> None:
    """Create a project.  Raises NotAllowed, BadRequest, NoSuchProject, WrongState."""
    user.check_administers()
    check_dates(project)
    checked_description(project.description)
    if project.parent is not None:
        _locked(tx, project.parent)
    if not tx.projects.create(project._replace(name=checked_name(project.name))):
        raise WrongState(f'the project "{project.name}" exists. Show it: oarproject --show "{project.name}"')
    _record(tx, user, project.name, None, project)


class ProjectUpdate(NamedTuple):
    """New values of a project; None: kept."""

    description: str | None = None
    start_date: int | None = None  #: epoch seconds; 0 = no limit
    end_date: int | None = None


def change(tx: "Transaction", user: User, name: str, update: ProjectUpdate) -> None:
    """Change the description and the dates of a project.  Raises NotAllowed, BadRequest, NoSuchProject."""
    user.check_administers()
    checked_description(update.description or "")
    values = {field: value for field, value in update._asdict().items() if value is not None}
    former = _locked(tx, name)
    changed = former._replace(**values)
    check_dates(changed)
    _update(tx, user, former, changed)
    tx.outbox.append(Wake(Tag.TERM))


def add(
    tx: "Transaction",
    user: User,
    name: str,
    entries: Iterable[str],
    *,
    role: MemberRole | None = None,
    shares: int | None = None,
) -> None:
    """Add members to a project, or change their role and shares; None keeps those of present members.

    Raises NotAllowed, BadRequest, NoSuchProject.
    """
    _check_manages(tx, user, name)
    former = {member.entry: member for member in tx.projects.members([name])}
    members = dict(former)
    for entry in entries:
        check_entry(entry)
        member = former.get(entry, Member(name, entry))
        kept = member.shares if shares is None else shares
        members[entry] = member._replace(role=role or member.role, shares=kept)
        tx.projects.add(members[entry])
    _record_members(tx, user, name, former, members)


def unknown_entries(tx: "Transaction", entries: Iterable[str]) -> list[str]:
    """Return the entries that are no user, userset or group of this machine; they may be elsewhere, or later."""
    listed = list(entries)
    usersets = tx.access.userset_entries([entry[1:] for entry in listed if entry.startswith("@")])
    return [entry for entry in listed if not _is_known(entry, usersets)]


def _is_known(entry: str, usersets: Collection[str]) -> bool:
    if not entry.startswith("@"):
        return has_account(entry)
    try:
        return entry[1:] in usersets or bool(name_service.group(entry[1:]))
    except (KeyError, ValueError):
        return False


def remove(tx: "Transaction", user: User, name: str, members: Sequence[str]) -> None:
    """Remove members of a project.  Raises NotAllowed, BadRequest, NoSuchProject."""
    _check_manages(tx, user, name)
    former = {member.entry: member for member in tx.projects.members([name])}
    missing = sorted(set(members) - set(tx.projects.remove(name, members)))
    if missing:
        raise _no_member(name, missing[0])
    _record_members(tx, user, name, former, {entry: former[entry] for entry in former.keys() - set(members)})


def _no_member(name: str, entry: str) -> BadRequest:
    return BadRequest(f'"{entry}" is no member of the project "{name}". List them: oarproject --show "{name}"')


def set_default(tx: "Transaction", config: "Config", user: User, name: str, of: str) -> None:
    """Set the default project of a user; '' removes it.  Raises NotAllowed, NoSuchProject."""
    if of != user.name:
        user.check_administers()
    if name:
        _locked(tx, name)
    if name and not projects.may_use(tx, config, of, name):
        raise NotAllowed(f'{of} may not use the project "{name}": a manager adds members with oarproject --add.')
    tx.projects.set_default(of, name)
    if of != user.name:
        new = f"default project {name}" if name else "no default project"
        audit.record(tx, user, AuditAction.CHANGE, f"user {of}", Values(new=new))


def set_state(tx: "Transaction", user: User, name: str, state: ProjectState) -> None:
    """Close or reopen a project.  Raises NotAllowed, NoSuchProject."""
    user.check_administers()
    former = _locked(tx, name)
    _update(tx, user, former, former._replace(state=state))
    tx.outbox.append(Wake(Tag.TERM))


def set_shares(tx: "Transaction", user: User, name: str, shares: int, member: str | None = None) -> None:
    """Set the shares of a project, or of a member.  Raises NotAllowed, BadRequest, NoSuchProject."""
    checked_shares(shares)
    if member is None:
        user.check_administers()
        former = _locked(tx, name)
        _update(tx, user, former, former._replace(shares=shares))
        return
    _check_manages(tx, user, name)
    present = next((each for each in tx.projects.members([name]) if each.entry == member), None)
    if present is None:
        raise _no_member(name, member)
    tx.projects.add(present._replace(shares=shares))
    _record_members(tx, user, name, {member: present}, {member: present._replace(shares=shares)})


def set_budget(tx: "Transaction", config: "Config", user: User, budget: Budget) -> None:
    """Store a budget; it replaces one of the same project with the same start.

    A manager sets the budgets of the projects below his own, within a budget of his own project.
    Raises NotAllowed, BadRequest, NoSuchProject, WrongState.
    """
    check_budget(budget, config.accounting_window)
    budget = budget._replace(hours=round(budget.hours, 6) + 0.0)  # as in files
    _check_sets_budgets(tx, user, budget)
    present = tx.budgets.all([budget.project])
    check_no_overlap(budget, present)
    tx.budgets.store(budget)
    _record_budget(tx, user, next((each for each in present if each.start == budget.start), None), budget)
    tx.outbox.append(Wake(Tag.TERM))


def remove_budget(tx: "Transaction", user: User, name: str, start: int) -> None:
    """Remove the budget of a project that begins at a date.  Raises NotAllowed, BadRequest, NoSuchProject."""
    _locked(tx, name)
    budget = next((budget for budget in tx.budgets.all([name]) if budget.start == start), None)
    if budget is None:
        begin = f"begins at {format_date(start)}" if start else "has no beginning"
        raise BadRequest(f'no budget of the project "{name}" {begin}. List them: oarproject --show "{name}"')
    _check_sets_budgets(tx, user, budget)
    tx.budgets.remove(name, [start])
    _record_budget(tx, user, budget, None)
    tx.outbox.append(Wake(Tag.TERM))


def delete(tx: "Transaction", user: User, name: str) -> None:
    """Delete a project without sub-projects, jobs and accounting.  Raises NotAllowed, NoSuchProject, WrongState."""
    user.check_administers()
    former = _locked(tx, name)
    below = [project.name for project in tx.projects.all() if project.parent == name]
    if below:
        raise WrongState(f'the project "{name}" has sub-projects, such as "{below[0]}": delete them first.')
    if tx.projects.is_used(name):
        raise WrongState(f'the project "{name}" has jobs or accounting. Close it: oarproject --close "{name}"')
    tx.projects.delete(name)
    _record(tx, user, name, former, None)


def may_manage(tx: "Transaction", user: User, name: str) -> bool:
    """Return whether a user may change the members of a project."""
    return user.is_admin or name in tx.projects.managed(projects.entries_of(tx, user.name))


def may_see_members(tx: "Transaction", user: User, name: str) -> bool:
    """Return whether a user may see the members of a project: administrators, its managers and its members."""
    return may_manage(tx, user, name) or name in tx.projects.usable(projects.entries_of(tx, user.name))


# -- audit log --------------------------------------------------------------------------------------------------------


def _update(tx: "Transaction", user: User, former: Project, project: Project) -> None:
    """Change a project, and record it."""
    tx.projects.update(project)
    _record(tx, user, project.name, former, project)


def _record(tx: "Transaction", user: User, name: str, former: Project | None, project: Project | None) -> None:
    """Record a change of a project; None: it does not exist."""
    if former != project:
        action = AuditAction.ADD if former is None else AuditAction.CHANGE if project else AuditAction.DELETE
        values = Values(changed_fields(former, project), changed_fields(project, former))
        audit.record(tx, user, action, f"project {name}", values)


def changed_fields(project: Project | None, other: Project | None) -> str:
    """Return the fields of a project that differ from those of the other state, or from a plain project."""
    if project is None:
        return ""
    plain = Project(project.name)
    pairs = zip(Project._fields, project, other or plain, strict=True)
    return ", ".join(f"{name}={value}" for name, value, other_value in pairs if value != other_value)


def _record_members(
    tx: "Transaction", user: User, name: str, former: Mapping[str, Member], members: Mapping[str, Member]
) -> None:
    """Record a change of members of a project, given by entry, in one row."""
    changed = sorted(entry for entry in {*former, *members} if former.get(entry) != members.get(entry))
    if changed:
        action = AuditAction.CHANGE if members.keys() & changed else AuditAction.REMOVE
        values = Values(_member_texts(former, changed), _member_texts(members, changed))
        audit.record(tx, user, action, f"project {name}", values)


def _member_texts(members: Mapping[str, Member], entries: Iterable[str]) -> str:
    present = (members[entry] for entry in entries if entry in members)
    return ", ".join(map(member_text, present))


def member_text(member: Member | None) -> str:
    """Return a member as the audit log names it; '' for None."""
    return f"{member.role} {member.entry} ({member.shares} shares)" if member else ""


def _record_budget(tx: "Transaction", user: User, former: Budget | None, budget: Budget | None) -> None:
    """Record a change of a budget of a project; None: it does not exist."""
    changed = budget or former
    if changed and former != budget:
        action = AuditAction.ADD if former is None else AuditAction.CHANGE if budget else AuditAction.DELETE
        audit.record(tx, user, action, f"project {changed.project}", Values(budget_text(former), budget_text(budget)))


def budget_text(budget: Budget | None) -> str:
    """Return a budget as the audit log names it; '' for None."""
    return f"budget {budget}, {budget.on_exhaustion}" if budget else ""


# -- checks -----------------------------------------------------------------------------------------------------------


def parse_hours(text: str) -> float:
    """Return the resource hours of a budget.  Raises BadRequest."""
    if not re.fullmatch(r"[0-9]{1,13}(\.[0-9]{1,6})?", text):
        raise BadRequest(f'"{text}" is no number of resource hours.')
    return float(text)


def check_no_circle(found: Mapping[str, Project]) -> None:
    """Raise BadRequest if a project is below itself."""
    parents: dict[str | None, str | None] = {name: project.parent for name, project in found.items()}
    checked: set[str | None] = set()
    for start in parents:
        lineage: dict[str | None, None] = {}
        name: str | None = start
        while name in parents and name not in checked:
            if name in lineage:
                raise BadRequest(f'the project "{name}" is below itself.')
            lineage[name] = None
            name = parents[name]
        checked.update(lineage)


def checked_name(name: str) -> str:
    """Return the name of a project.  Raises BadRequest."""
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f'"{name}" is no name of a project: letters of ASCII, digits, _ . : + - @ and blanks inside, at most 255.'
        )
    return name


def checked_description(text: str) -> str:
    """Return the description of a project.  Raises BadRequest."""
    if len(text) > LONGEST_DESCRIPTION or not text.isprintable():
        raise BadRequest(f"a description is one line of at most {LONGEST_DESCRIPTION} printable characters.")
    return text


def check_entry(entry: str) -> None:
    """Raise BadRequest if a text cannot be an entry of a project."""
    if not _ENTRY.fullmatch(entry):
        raise BadRequest(f'"{entry}" is no user, @userset or @group.')


def checked_shares(shares: int) -> int:
    """Return a number of shares.  Raises BadRequest."""
    if not 0 <= shares <= LARGEST_SHARES:
        raise BadRequest(f"{shares} shares are not possible: 0 to {LARGEST_SHARES}.")
    return shares


def check_budget(budget: Budget, width: int) -> None:
    """Raise BadRequest if the hours or the period of a budget are not possible; ``width``: ACCOUNTING_WINDOW."""
    if not (math.isfinite(budget.hours) and 0 <= budget.hours <= LARGEST_HOURS):
        raise BadRequest(f"{budget.hours:g} resource hours are not possible: 0 to {LARGEST_HOURS:,.0f}.")
    if not 0 <= budget.start < budget.end <= NO_END:
        raise BadRequest(f"the period {budget.period} is not possible: its end must be after its start.")
    begin, end = budget.bounds(width)
    if begin >= end:
        windows = f"it contains no whole accounting window of {width} s (ACCOUNTING_WINDOW)"
        raise BadRequest(f"the period {budget.period} is too short: {windows}. Choose a longer period.")


def check_no_overlap(budget: Budget, present: Iterable[Budget]) -> None:
    """Raise BadRequest if a budget has a day in common with another one of its project."""
    for other in present:
        is_other = other.project == budget.project and other.start != budget.start
        if is_other and other.start < budget.end and budget.start < other.end:
            way_out = f'Choose another period, or remove it: oarproject --remove-budget "{other.project}" --from DATE'
            raise BadRequest(f"the period {budget.period} overlaps with the budget {other}. {way_out}")


def _check_sets_budgets(tx: "Transaction", user: User, budget: Budget) -> None:
    """Raise NotAllowed if a user may not set or remove a budget."""
    _locked(tx, budget.project)
    if user.is_admin:
        return
    managed = tx.projects.managed(projects.entries_of(tx, user.name))
    own = [project.name for project in tx.projects.lineage(budget.project)[1:] if project.name in managed]
    if not own:
        raise NotAllowed(
            f'you may not change the budget of the project "{budget.project}": administrators and managers of the'
            " project above it may."
        )
    limits = tx.budgets.all(own)
    if not any(limit.start <= budget.start and budget.end <= limit.end for limit in limits):
        raise NotAllowed(f"no budget of your project {enumerated(own)} contains the period {budget.period}.")
    if not any(budget.is_within(limit) for limit in limits):
        raise NotAllowed(f"{budget.hours:,.10g} resource hours exceed the budget of your project {enumerated(own)}.")


def check_dates(project: Project) -> None:
    """Raise BadRequest if the dates of a project are not possible."""
    if min(project.start_date, project.end_date) < 0 or max(project.start_date, project.end_date) > LATEST_DATE:
        raise BadRequest(f'the dates of the project "{project.name}" must be between 1970 and 9999.')
    if 0 < project.end_date <= project.start_date:
        dates = f"{format_date(project.end_date)}, is not after its start, {format_date(project.start_date)}"
        raise BadRequest(f'the end of the project "{project.name}", {dates}.')


def _locked(tx: "Transaction", name: str) -> Project:
    found = tx.projects.lock([name])
    if not found:
        raise NoSuchProject(name)
    return found[0]


def _check_manages(tx: "Transaction", user: User, name: str) -> None:
    _locked(tx, name)
    if not may_manage(tx, user, name):
        raise NotAllowed(f'you do not manage the project "{name}": ask a manager of it, or an administrator.')

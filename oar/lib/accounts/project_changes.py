"""Changes of projects, members and budgets.

Administrators change all, managers the members of their projects and the budgets of sub-projects.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.accounts import projects
from oar.lib.accounts.records import NO_END, Budget, Member, Project
from oar.lib.accounts.states import MemberRole, OnExhaustion, ProjectState
from oar.lib.base.errors import BadRequest, NotAllowed, UserError, WrongState
from oar.lib.base.texts import enumerated
from oar.lib.base.times import format_date, parse_date
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
#: The last date that a project may have: the end of the year 9999.
LATEST_DATE = 253_402_300_799
#: The columns of a file of projects; those of dates and those of budgets may be left out.
COLUMNS = ("project", "parent", "user", "role", "shares")
DATE_COLUMNS = ("start", "end")
BUDGET_COLUMNS = ("period_start", "period_end", "resource_hours", "on_exhaustion")


class NoSuchProject(UserError):
    """The project does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f'the project "{name}" does not exist. List the projects: oarproject --list')


def create(tx: "Transaction", user: User, project: Project) -> None:
    """Create a project.  Raises NotAllowed, BadRequest, NoSuchProject, WrongState."""
    user.check_administers()
    _check_dates(project)
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
    values = {field: value for field, value in update._asdict().items() if value is not None}
    changed = _locked(tx, name)._replace(**values)
    _check_dates(changed)
    tx.projects.update(changed)
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
    """Set the default project of a user.  Raises NotAllowed, NoSuchProject."""
    if of != user.name:
        user.check_administers()
    _locked(tx, name)
    if not projects.may_use(tx, config, of, name):
        raise NotAllowed(f'{of} may not use the project "{name}": a manager adds members with oarproject --add.')
    tx.projects.set_default(of, name)
    if of != user.name:
        audit.record(tx, user, AuditAction.CHANGE, f"user {of}", Values(new=f"default project {name}"))


def set_state(tx: "Transaction", user: User, name: str, state: ProjectState) -> None:
    """Close or reopen a project.  Raises NotAllowed, NoSuchProject."""
    user.check_administers()
    former = _locked(tx, name)
    _update(tx, user, former, former._replace(state=state))
    tx.outbox.append(Wake(Tag.TERM))


def set_shares(tx: "Transaction", user: User, name: str, shares: int, member: str | None = None) -> None:
    """Set the shares of a project, or of a member.  Raises NotAllowed, BadRequest, NoSuchProject."""
    _checked_shares(shares)
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


def set_budget(tx: "Transaction", user: User, budget: Budget) -> None:
    """Store a budget; it replaces one of the same project with the same start.

    A manager sets the budgets of the projects below his own, within a budget of his own project.
    Raises NotAllowed, BadRequest, NoSuchProject, WrongState.
    """
    _check_budget(budget)
    _check_sets_budgets(tx, user, budget)
    present = tx.budgets.all([budget.project])
    _check_no_overlap(budget, present)
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
        audit.record(tx, user, action, f"project {name}", Values(_changed(former, project), _changed(project, former)))


def _changed(project: Project | None, other: Project | None) -> str:
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
    return ", ".join(f"{member.role} {member.entry} ({member.shares} shares)" for member in present)


def _record_budget(tx: "Transaction", user: User, former: Budget | None, budget: Budget | None) -> None:
    """Record a change of a budget of a project; None: it does not exist."""
    changed = budget or former
    if changed and former != budget:
        texts = [f"budget {each}, {each.on_exhaustion}" if each else "" for each in (former, budget)]
        action = AuditAction.ADD if former is None else AuditAction.CHANGE if budget else AuditAction.DELETE
        audit.record(tx, user, action, f"project {changed.project}", Values(*texts))


# -- files ------------------------------------------------------------------------------------------------------------


class ImportedFile(NamedTuple):
    """The content of a file of projects."""

    projects: tuple[Project, ...]
    members: tuple[Member, ...]
    budgets: tuple[Budget, ...] = ()
    has_dates: bool = False  #: otherwise existing projects keep their dates


def parse_file(text: str) -> ImportedFile:
    """Parse a CSV file with the columns COLUMNS, perhaps DATE_COLUMNS and BUDGET_COLUMNS.

    A line without user describes a project, or one of its budgets.  Raises BadRequest, which names the line.
    """
    reader = csv.DictReader(io.StringIO(text))
    columns = tuple(reader.fieldnames or ())
    has_dates = columns[len(COLUMNS) :][: len(DATE_COLUMNS)] == DATE_COLUMNS
    expected = COLUMNS + (DATE_COLUMNS if has_dates else ())
    if columns not in (expected, expected + BUDGET_COLUMNS):
        raise BadRequest(f"the first line must be {','.join(COLUMNS + DATE_COLUMNS + BUDGET_COLUMNS)}.")
    found: dict[str, Project] = {}
    members, budgets = [], list[Budget]()
    for number, row in enumerate(reader, start=2):
        try:
            values = {name: (row.get(name) or "").strip() for name in COLUMNS + DATE_COLUMNS + BUDGET_COLUMNS}
            project, member = _parse_row(values)
            budget = _parse_budget(values)
            _check_no_overlap(budget, budgets) if budget else None
        except BadRequest as error:
            raise BadRequest(f"line {number}: {error}") from None
        if member is None or project.name not in found:
            found[project.name] = project
        members += [member] if member else []
        budgets += [budget] if budget else []
    check_no_circle(found)
    return ImportedFile(tuple(found.values()), tuple(members), tuple(budgets), has_dates)


def _parse_budget(row: dict[str, str]) -> Budget | None:
    if not any(row[name] for name in BUDGET_COLUMNS):
        return None
    if row["user"]:
        raise BadRequest("a budget is that of a project: leave the user empty.")
    start = parse_date(row["period_start"]) if row["period_start"] else 0
    end = parse_date(row["period_end"]) if row["period_end"] else NO_END
    mode = row["on_exhaustion"] or OnExhaustion.REFUSE
    if mode not in tuple(OnExhaustion):
        raise BadRequest(f'"{mode}" is not possible when a budget is used up: {", ".join(OnExhaustion)}.')
    budget = Budget(row["project"], start, end, parse_hours(row["resource_hours"]), OnExhaustion(mode))
    _check_budget(budget)
    return budget


def parse_hours(text: str) -> float:
    """Return the resource hours of a budget.  Raises BadRequest."""
    if not re.fullmatch(r"[0-9]{1,13}(\.[0-9]{1,6})?", text):
        raise BadRequest(f'"{text}" is no number of resource hours.')
    return float(text)


def _parse_row(row: dict[str, str]) -> tuple[Project, Member | None]:
    name = checked_name(row["project"])
    shares = row["shares"] or "1"
    if not (shares.isascii() and shares.isdigit()):
        raise BadRequest(f'"{shares}" is no number of shares.')
    if not row["user"]:
        project = Project(name, parent=row["parent"] or None, shares=_checked_shares(int(shares)))
        start, end = (parse_date(text) if (text := row.get(column)) else 0 for column in DATE_COLUMNS)
        project = project._replace(start_date=start, end_date=end)
        _check_dates(project)
        return project, None
    check_entry(row["user"])
    role = row["role"] or MemberRole.MEMBER
    if role not in tuple(MemberRole):
        raise BadRequest(f'"{role}" is no role: member or manager.')
    member = Member(name, row["user"], MemberRole(role), _checked_shares(int(shares)))
    return Project(name, parent=row["parent"] or None), member


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


def import_file(tx: "Transaction", user: User, content: ImportedFile) -> list[str]:
    """Create projects and add members; return one line for each change.  Raises NotAllowed, NoSuchProject.

    The caller rolls back for a dry run.  Existing projects get the parent and the shares of the file.
    """
    user.check_administers()
    present = {project.name: project for project in tx.projects.all()}
    names = {*present, *(project.name for project in content.projects)}
    for project in content.projects:
        if project.parent is not None and project.parent not in names:
            raise NoSuchProject(project.parent)
    check_no_circle({**present, **{project.name: project for project in content.projects}})
    lines = list(_import_projects(tx, present, content))
    members = {(member.project, member.entry): member for member in tx.projects.members()}
    for member in content.members:
        if members.get((member.project, member.entry)) != member:
            tx.projects.add(member)
            lines.append(f'{member.role} {member.entry} of project "{member.project}"')
    lines += _import_budgets(tx, content.budgets)
    if lines:
        audit.record(tx, user, AuditAction.IMPORT, "project", Values(new="; ".join(lines)))
    return lines


def _import_budgets(tx: "Transaction", budgets: Sequence[Budget]) -> Iterator[str]:
    present = tx.budgets.all() if budgets else []
    for budget in budgets:
        if budget not in present:
            _check_no_overlap(budget, present)
            tx.budgets.store(budget)
            yield f'budget of project "{budget.project}": {budget}'


def _import_projects(tx: "Transaction", present: dict[str, Project], content: ImportedFile) -> Iterator[str]:
    for project in content.projects:
        former = present.get(project.name)
        if former is None:
            tx.projects.create(project)
            yield f'new project "{project.name}"'
            continue
        dates = project if content.has_dates else former
        changed = former._replace(
            parent=project.parent, shares=project.shares, start_date=dates.start_date, end_date=dates.end_date
        )
        if changed != former:
            tx.projects.update(changed)
            yield f'project "{project.name}": parent, shares and dates'


def export_file(tx: "Transaction") -> str:
    """Return all projects, members and budgets in the format of ``parse_file``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    members: dict[str, list[Member]] = {}
    budgets: dict[str, list[Budget]] = {}
    for member in tx.projects.members():
        members.setdefault(member.project, []).append(member)
    for budget in tx.budgets.all():
        budgets.setdefault(budget.project, []).append(budget)
    present = tx.projects.all()
    has_dates = any(project.start_date or project.end_date for project in present)
    columns = COLUMNS + (DATE_COLUMNS if has_dates else ()) + (BUDGET_COLUMNS if budgets else ())
    writer.writerow(columns)
    for project in present:
        begin = (project.name, project.parent or "")
        dates = (format_date(project.start_date), format_date(project.end_date)) if has_dates else ()
        rows = [_budget_row(budget) for budget in budgets.get(project.name, ())] or [()]
        writer.writerows(_padded((*begin, "", "", project.shares, *dates, *row), columns) for row in rows)
        writer.writerows(
            _padded((*begin, member.entry, member.role, member.shares), columns)
            for member in members.get(project.name, ())
        )
    return text.getvalue()


def _padded(row: tuple[object, ...], columns: Sequence[str]) -> tuple[object, ...]:
    return row + ("",) * (len(columns) - len(row))


def _budget_row(budget: Budget) -> tuple[str, ...]:
    end = "" if budget.end == NO_END else format_date(budget.end)
    return format_date(budget.start), end, f"{budget.hours:.15g}", budget.on_exhaustion


# -- checks -----------------------------------------------------------------------------------------------------------


def checked_name(name: str) -> str:
    """Return the name of a project.  Raises BadRequest."""
    if not _NAME.fullmatch(name):
        raise BadRequest(f'"{name}" is no name of a project: letters of ASCII, digits and _ . : + - @, at most 255.')
    return name


def check_entry(entry: str) -> None:
    """Raise BadRequest if a text cannot be an entry of a project."""
    if not _ENTRY.fullmatch(entry):
        raise BadRequest(f'"{entry}" is no user, @userset or @group.')


def _checked_shares(shares: int) -> int:
    if not 0 <= shares <= LARGEST_SHARES:
        raise BadRequest(f"{shares} shares are not possible: 0 to {LARGEST_SHARES}.")
    return shares


def _check_budget(budget: Budget) -> None:
    if not (math.isfinite(budget.hours) and 0 <= budget.hours <= LARGEST_HOURS):
        raise BadRequest(f"{budget.hours:g} resource hours are not possible: 0 to {LARGEST_HOURS:,.0f}.")
    if not 0 <= budget.start < budget.end <= NO_END:
        raise BadRequest(f"the period {budget.period} is not possible: its end must be after its start.")


def _check_no_overlap(budget: Budget, present: Iterable[Budget]) -> None:
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
    parents = {project.name: project.parent for project in tx.projects.all()}
    above = projects.ancestors(parents, budget.project)[1:]
    own = [name for name in above if name in managed]
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


def _check_dates(project: Project) -> None:
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

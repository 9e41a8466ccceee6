"""Files of projects: CSV files that describe projects, members and budgets, and what an import changes."""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.accounts.project_changes import (
    NoSuchProject,
    budget_text,
    changed_fields,
    check_budget,
    check_dates,
    check_entry,
    check_no_circle,
    check_no_overlap,
    checked_name,
    checked_shares,
    member_text,
    parse_hours,
)
from oar.lib.accounts.records import NO_END, Budget, Member, Project
from oar.lib.accounts.states import MemberRole, OnExhaustion
from oar.lib.base.errors import BadRequest, WrongState
from oar.lib.base.times import format_date, parse_date
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values, bounded

if TYPE_CHECKING:
    from oar.lib.accounts.sacctmgr_file import SlurmAccounts
    from oar.lib.db.transaction import Transaction

#: The columns of a file of projects; those of dates and those of budgets may be left out.
COLUMNS = ("project", "parent", "user", "role", "shares")
DATE_COLUMNS = ("start", "end")
BUDGET_COLUMNS = ("period_start", "period_end", "resource_hours", "on_exhaustion")


class ImportedFile(NamedTuple):
    """The content of a file of projects."""

    projects: tuple[Project, ...]
    members: tuple[Member, ...]
    budgets: tuple[Budget, ...] = ()
    has_dates: bool = False  #: otherwise existing projects keep their dates
    defaults: Mapping[str, str] = MappingProxyType({})  #: the default project by user
    described: frozenset[str] = frozenset()  #: projects with a line of their own; if others exist, they are kept
    notes: Sequence[str] = ()  #: what the file contains and OAR does not have


def parse_file(text: str, width: int) -> ImportedFile:
    """Parse a CSV file with the columns COLUMNS, perhaps DATE_COLUMNS and BUDGET_COLUMNS.

    A line without user describes a project, or one of its budgets.  ``width``: ACCOUNTING_WINDOW, which a period must
    contain.  Raises BadRequest, which names the line.
    """
    reader = csv.DictReader(io.StringIO(text))
    columns = tuple(reader.fieldnames or ())
    has_dates = columns[len(COLUMNS) :][: len(DATE_COLUMNS)] == DATE_COLUMNS
    expected = COLUMNS + (DATE_COLUMNS if has_dates else ())
    if columns not in (expected, expected + BUDGET_COLUMNS):
        raise BadRequest(f"the first line must be {','.join(COLUMNS + DATE_COLUMNS + BUDGET_COLUMNS)}.")
    found: dict[str, Project] = {}
    described: set[str] = set()
    members, budgets = [], dict[str, list[Budget]]()
    for number, row in enumerate(reader, start=2):
        try:
            values = {name: (row.get(name) or "").strip() for name in COLUMNS + DATE_COLUMNS + BUDGET_COLUMNS}
            project, member = _parse_row(values)
            budget = _parse_budget(values, width)
            if budget:
                check_no_overlap(budget, budgets.setdefault(budget.project, []))
                budgets[budget.project].append(budget)
        except BadRequest as error:
            raise BadRequest(f"line {number}: {error}") from None
        if member is None:
            described.add(project.name)
            found[project.name] = project
        found.setdefault(project.name, project)
        members += [member] if member else []
    check_no_circle(found)
    every = tuple(chain.from_iterable(budgets.values()))
    return ImportedFile(tuple(found.values()), tuple(members), every, has_dates, described=frozenset(described))


def _parse_budget(row: dict[str, str], width: int) -> Budget | None:
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
    check_budget(budget, width)
    return budget


def _parse_row(row: dict[str, str]) -> tuple[Project, Member | None]:
    name = checked_name(row["project"])
    shares = row["shares"] or "1"
    if not (shares.isascii() and shares.isdigit()):
        raise BadRequest(f'"{shares}" is no number of shares.')
    if not row["user"]:
        project = Project(name, parent=row["parent"] or None, shares=checked_shares(int(shares)))
        start, end = (parse_date(text) if (text := row.get(column)) else 0 for column in DATE_COLUMNS)
        project = project._replace(start_date=start, end_date=end)
        check_dates(project)
        return project, None
    check_entry(row["user"])
    role = row["role"] or MemberRole.MEMBER
    if role not in tuple(MemberRole):
        raise BadRequest(f'"{role}" is no role: member or manager.')
    member = Member(name, row["user"], MemberRole(role), checked_shares(int(shares)))
    return Project(name, parent=row["parent"] or None), member


class _Change(NamedTuple):
    """A change that an import makes."""

    line: str  #: for the person who imports
    project: str
    former: str  #: as the audit log names it; '': nothing was there
    new: str


def import_file(tx: "Transaction", user: User, content: ImportedFile) -> list[str]:
    """Create projects and add members; return one line for each change.

    The caller rolls back for a dry run.  Existing projects get the parent and the shares of the file; they are locked
    first, so that no change of somebody else is lost.
    Raises NotAllowed, BadRequest, NoSuchProject, WrongState.
    """
    user.check_administers()
    named = {project.name: project for project in content.projects}
    tx.projects.lock({*named, *(project.parent for project in content.projects if project.parent is not None)})
    present = {project.name: project for project in tx.projects.all()}
    _check_named_projects(content, {*present, *named})
    check_no_circle({**named, **present, **{name: named[name] for name in content.described}})
    changes = [
        *_import_projects(tx, present, content),
        *_import_members(tx, content.members),
        *_import_defaults(tx, content.defaults),
        *_import_budgets(tx, content.budgets),
    ]
    if changes:
        _record(tx, user, changes)
        tx.outbox.append(Wake(Tag.TERM))
    return [change.line for change in changes]


def _record(tx: "Transaction", user: User, changes: Sequence[_Change]) -> None:
    """Record an import in one row, with the former and the new values of each project."""
    names = dict.fromkeys(change.project for change in changes)
    former = _by_names((change.project, change.former) for change in changes)
    new = _by_names((change.project, change.new) for change in changes)
    values = Values(bounded(former, "; "), bounded(new, "; "))
    audit.record(tx, user, AuditAction.IMPORT, f"project {bounded(names, ', ')}", values)


def _by_names(texts: Iterable[tuple[str, str]]) -> list[str]:
    by_name: dict[str, list[str]] = {}
    for name, text in texts:
        if text:
            by_name.setdefault(name, []).append(text)
    return [f"{name}: {', '.join(some)}" for name, some in by_name.items()]


def _check_named_projects(content: ImportedFile, names: Collection[str]) -> None:
    parents = (project.parent for project in content.projects if project.parent is not None)
    for name in chain(parents, (member.project for member in content.members)):
        if name not in names:
            raise NoSuchProject(name)


def _import_projects(tx: "Transaction", present: Mapping[str, Project], content: ImportedFile) -> Iterator[_Change]:
    new = [project for project in content.projects if project.name not in present]
    _create(tx, new)
    for project in new:
        fields = changed_fields(project, None)
        text = f"created, {fields}" if fields else "created"
        yield _Change(f'new project "{project.name}"', project.name, "", text)
    own = [project for project in content.projects if project.name in content.described]
    kept = [(present[project.name], project) for project in own if project.name in present]
    merged = [(former, _merged(former, project, content)) for former, project in kept]
    changed = [(former, project) for former, project in merged if former != project]
    tx.projects.update_all(project for _, project in changed)
    for former, project in changed:
        values = changed_fields(former, project), changed_fields(project, former)
        yield _Change(f'project "{project.name}": new values', project.name, *values)


def _create(tx: "Transaction", new: Collection[Project]) -> None:
    """Create projects.  Raises WrongState if somebody else has created one of them since they were read."""
    names = {project.name for project in new}
    missing = names - tx.projects.create_all(new)
    if missing:
        raise WrongState(
            f'the project "{min(missing)}" was created during the import. Nothing was imported: repeat it.'
        )


def _import_members(tx: "Transaction", given: Sequence[Member]) -> Iterator[_Change]:
    names = sorted({member.project for member in given})
    present = {(member.project, member.entry): member for member in tx.projects.members(names)}
    members = {(member.project, member.entry): member for member in given}  # the last line of a member counts
    changed = [(present.get(key), member) for key, member in members.items() if present.get(key) != member]
    tx.projects.add_all(member for _, member in changed)
    for former, member in changed:
        line = f'{member.role} {member.entry} of project "{member.project}"'
        yield _Change(line, member.project, member_text(former), member_text(member))


def _merged(former: Project, project: Project, content: ImportedFile) -> Project:
    merged = former._replace(parent=project.parent, shares=project.shares)
    if project.description:
        merged = merged._replace(description=project.description)
    return merged._replace(start_date=project.start_date, end_date=project.end_date) if content.has_dates else merged


def _import_defaults(tx: "Transaction", defaults: Mapping[str, str]) -> Iterator[_Change]:
    if not defaults:
        return
    present = tx.projects.defaults()
    changed = [(user, project) for user, project in sorted(defaults.items()) if present.get(user) != project]
    tx.projects.set_defaults(changed)
    for user, project in changed:
        former = f"default of {user} was {present[user]}" if user in present else ""
        yield _Change(f'default project of {user}: "{project}"', project, former, f"default of {user}")


def _import_budgets(tx: "Transaction", budgets: Sequence[Budget]) -> Iterator[_Change]:
    present = _by_project(tx.budgets.all() if budgets else [])
    for budget in budgets:
        own = present.get(budget.project, [])
        if budget not in own:
            check_no_overlap(budget, own)
            tx.budgets.store(budget)
            former = next((each for each in own if each.start == budget.start), None)
            line = f'budget of project "{budget.project}": {budget}'
            yield _Change(line, budget.project, budget_text(former), budget_text(budget))


def _by_project(budgets: Iterable[Budget]) -> dict[str, list[Budget]]:
    by_project: dict[str, list[Budget]] = {}
    for budget in budgets:
        by_project.setdefault(budget.project, []).append(budget)
    return by_project


def from_sacctmgr(accounts: "SlurmAccounts") -> ImportedFile:
    """Return the content of a file of ``sacctmgr dump``.

    A limit of CPU minutes becomes a budget without a period: Slurm counts all use, too, and lets jobs wait.
    """
    mode = OnExhaustion.WAIT
    budgets = tuple(Budget(project, 0, NO_END, hours, mode) for project, hours in accounts.hours.items())
    notes = [f"# not imported: {kind}: {number}" for kind, number in accounts.omitted.items()]
    described = frozenset(project.name for project in accounts.projects)
    return ImportedFile(
        accounts.projects, accounts.members, budgets, defaults=accounts.defaults, described=described, notes=notes
    )


def export_file(tx: "Transaction") -> str:
    """Return all projects, members and budgets in the format of ``parse_file``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    members: dict[str, list[Member]] = {}
    for member in tx.projects.members():
        members.setdefault(member.project, []).append(member)
    budgets = _by_project(tx.budgets.all())
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

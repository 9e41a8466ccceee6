"""Files of projects: CSV files that describe projects, members and budgets, and what an import changes."""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

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
    checked_description,
    checked_name,
    checked_shares,
    member_text,
    parse_hours,
)
from oar.lib.accounts.records import NO_END, Budget, Member, Project
from oar.lib.accounts.states import MemberRole, OnExhaustion, ProjectState
from oar.lib.base.errors import BadRequest, WrongState
from oar.lib.base.times import format_date, parse_date
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values, bounded

if TYPE_CHECKING:
    from oar.lib.accounts.sacctmgr_file import SlurmAccounts
    from oar.lib.db.transaction import Transaction

#: The columns of a file of projects: the first ones must be there, the others may follow in any order.
COLUMNS = ("project", "parent", "user", "role", "shares")
PROJECT_COLUMNS = ("start", "end", "state", "description")
BUDGET_COLUMNS = ("period_start", "period_end", "resource_hours", "on_exhaustion")
_OPTIONAL = PROJECT_COLUMNS + BUDGET_COLUMNS
#: The fields of a project of these columns.
_FIELDS = {"start": "start_date", "end": "end_date", "state": "state", "description": "description"}
#: The role of a line that sets the default project of a user.
DEFAULT_ROLE = "default"


class ImportedFile(NamedTuple):
    """The content of a file of projects."""

    projects: tuple[Project, ...]
    members: tuple[Member, ...]
    budgets: tuple[Budget, ...] = ()
    given: frozenset[str] = frozenset()  #: fields of PROJECT_COLUMNS that the file has; existing projects keep others
    defaults: Mapping[str, str] = MappingProxyType({})  #: the default project by user
    described: frozenset[str] = frozenset()  #: projects with a line of their own; if others exist, they are kept
    notes: Sequence[str] = ()  #: what the file contains and OAR does not have


def parse_file(text: str, width: int) -> ImportedFile:
    """Parse a CSV file with the columns COLUMNS, and perhaps PROJECT_COLUMNS and BUDGET_COLUMNS.

    A line without user describes a project, or one of its budgets.  ``width``: ACCOUNTING_WINDOW, which a period must
    contain.  Raises BadRequest, which names the line.
    """
    reader = csv.DictReader(io.StringIO(text))
    found: dict[str, Project] = {}
    described: set[str] = set()
    members, budgets, defaults = [], dict[str, list[Budget]](), dict[str, str]()
    try:
        columns = _checked_columns(reader.fieldnames or ())
        for row in reader:
            values = _values(row)
            project = _parse_project(values)
            if not values["user"]:
                described.add(project.name)
                found[project.name] = project
            elif values["role"] == DEFAULT_ROLE:
                _add_default(defaults, values)
            else:
                members.append(_parse_member(values))
            found.setdefault(project.name, project)
            if budget := _parse_budget(values, width):
                check_no_overlap(budget, budgets.setdefault(budget.project, []))
                budgets[budget.project].append(budget)
    except csv.Error as error:
        raise BadRequest(f"line {reader.line_num + 1}: {error}.") from None
    except BadRequest as error:
        raise BadRequest(f"line {max(1, reader.line_num)}: {error}") from None
    check_no_circle(found)
    every = tuple(chain.from_iterable(budgets.values()))
    given = frozenset(field for column, field in _FIELDS.items() if column in columns)
    return ImportedFile(tuple(found.values()), tuple(members), every, given, defaults, frozenset(described))


def _checked_columns(columns: Sequence[str]) -> frozenset[str]:
    """Return the columns of a file beyond COLUMNS.  Raises BadRequest."""
    optional = columns[len(COLUMNS) :]
    if tuple(columns[: len(COLUMNS)]) != COLUMNS or len(set(optional)) < len(optional):
        raise BadRequest(f"the first line must be {','.join(COLUMNS + _OPTIONAL)}.")
    if unknown := set(optional) - set(_OPTIONAL):
        raise BadRequest(f'there is no column "{min(unknown)}". Columns: {", ".join(COLUMNS + _OPTIONAL)}.')
    return frozenset(optional)


def _values(row: Mapping[str | Any, str | Any]) -> dict[str, str]:
    """Return the values of a line by column, '' for those that are not there; a description as it is."""
    if row.get(None):
        raise BadRequest("it has more values than the first line has columns.")
    values = {name: (row.get(name) or "").strip() for name in COLUMNS + _OPTIONAL}
    return {**values, "description": row.get("description") or ""}


def _add_default(defaults: dict[str, str], row: Mapping[str, str]) -> None:
    check_entry(row["user"])
    if row["user"].startswith("@"):
        raise BadRequest(f'"{row["user"]}" is no user: only users have a default project.')
    if defaults.setdefault(row["user"], row["project"]) != row["project"]:
        raise BadRequest(f'the file has another default project of {row["user"]}, "{defaults[row["user"]]}".')


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


def _parse_project(row: Mapping[str, str]) -> Project:
    """Return the project of a line; of a line with a user only its name and parent count."""
    name, parent = checked_name(row["project"]), row["parent"] or None
    if row["user"]:
        return Project(name, parent=parent)
    state = row["state"] or ProjectState.OPEN
    if state not in tuple(ProjectState):
        raise BadRequest(f'"{state}" is no state of a project: open or closed.')
    start, end = (parse_date(text) if (text := row[column]) else 0 for column in ("start", "end"))
    description = checked_description(row["description"])
    project = Project(name, description, parent, ProjectState(state), start, end, _parse_shares(row))
    check_dates(project)
    return project


def _parse_member(row: Mapping[str, str]) -> Member:
    check_entry(row["user"])
    role = row["role"] or MemberRole.MEMBER
    if role not in tuple(MemberRole):
        raise BadRequest(f'"{role}" is no role: member, manager, or default for the default project of a user.')
    return Member(row["project"], row["user"], MemberRole(role), _parse_shares(row))


def _parse_shares(row: Mapping[str, str]) -> int:
    shares = row["shares"] or "1"
    if not (shares.isascii() and shares.isdigit() and len(shares) < 10):
        raise BadRequest(f'"{shares[:40]}" is no number of shares.')
    return checked_shares(int(shares))


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
    """Return an existing project with the parent, the shares and the given fields of a file."""
    given = content.given | ({"description"} if project.description else set())
    return former._replace(
        parent=project.parent, shares=project.shares, **{field: getattr(project, field) for field in given}
    )


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
    """Return all projects, members, budgets and default projects in the format of ``parse_file``."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS + _OPTIONAL, lineterminator="\n", restval="")
    members: dict[str, list[Member]] = {}
    for member in tx.projects.members():
        members.setdefault(member.project, []).append(member)
    defaults: dict[str, list[str]] = {}
    for user, name in sorted(tx.projects.defaults().items()):
        defaults.setdefault(name, []).append(user)
    budgets = _by_project(tx.budgets.all())
    writer.writeheader()
    for project in tx.projects.all():
        begin = {"project": project.name, "parent": project.parent}
        row = {**begin, **_project_row(project)}
        writer.writerows({**row, **budget} for budget in map(_budget_row, budgets.get(project.name, [])))
        if project.name not in budgets:
            writer.writerow(row)
        writer.writerows(
            {**begin, "user": member.entry, "role": member.role, "shares": member.shares}
            for member in members.get(project.name, ())
        )
        writer.writerows({**begin, "user": user, "role": DEFAULT_ROLE} for user in defaults.get(project.name, ()))
    return text.getvalue()


def _project_row(project: Project) -> dict[str, object]:
    return {
        "shares": project.shares,
        "start": _date_text(project.start_date),
        "end": _date_text(project.end_date),
        "state": project.state,
        "description": project.description,
    }


def _budget_row(budget: Budget) -> dict[str, object]:
    return {
        "period_start": _date_text(budget.start),
        "period_end": _date_text(budget.end if budget.end < NO_END else 0),
        "resource_hours": f"{budget.hours:.6f}".rstrip("0").rstrip("."),
        "on_exhaustion": budget.on_exhaustion,
    }


def _date_text(date: int) -> str:
    """Return a date that is read as the same date, also in an hour that a change of the clocks repeats; '' for 0."""
    text = format_date(date)
    try:
        return text if not date or parse_date(text) == date else f"@{date}"
    except BadRequest:  # local time is in the year 10000
        return f"@{date}"

"""Changes of projects and members: administrators change all, managers the members of their projects."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.accounts import projects
from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.states import MemberRole, ProjectState
from oar.lib.base.errors import BadRequest, NotAllowed, UserError, WrongState
from oar.lib.bus.messages import Tag, Wake

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

#: Names that a key of a quota can hold, too.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+@ -]{0,253}[A-Za-z0-9_.+-]|[A-Za-z0-9_]")
_ENTRY = re.compile(r"@?[A-Za-z0-9_.][A-Za-z0-9_.@+-]{0,253}\$?")
LARGEST_SHARES = 1_000_000
#: The columns of a file of projects.
COLUMNS = ("project", "parent", "user", "role", "shares")


class NoSuchProject(UserError):
    """The project does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f'the project "{name}" does not exist. List the projects: oarproject --list')


def create(tx: "Transaction", user: User, project: Project) -> None:
    """Create a project.  Raises NotAllowed, BadRequest, NoSuchProject, WrongState."""
    user.check_administers()
    if project.parent is not None:
        _locked(tx, project.parent)
    if not tx.projects.create(project._replace(name=_checked_name(project.name))):
        raise WrongState(f'the project "{project.name}" exists. Show it: oarproject --show "{project.name}"')


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
    present = {member.entry: member for member in tx.projects.members([name])}
    for entry in entries:
        _check_entry(entry)
        member = present.get(entry, Member(name, entry))
        kept = member.shares if shares is None else shares
        tx.projects.add(member._replace(role=role or member.role, shares=kept))


def remove(tx: "Transaction", user: User, name: str, members: Sequence[str]) -> None:
    """Remove members of a project.  Raises NotAllowed, BadRequest, NoSuchProject."""
    _check_manages(tx, user, name)
    missing = sorted(set(members) - set(tx.projects.remove(name, members)))
    if missing:
        raise _no_member(name, missing[0])


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


def set_state(tx: "Transaction", user: User, name: str, state: ProjectState) -> None:
    """Close or reopen a project.  Raises NotAllowed, NoSuchProject."""
    user.check_administers()
    tx.projects.update(_locked(tx, name)._replace(state=state))
    tx.outbox.append(Wake(Tag.TERM))


def set_shares(tx: "Transaction", user: User, name: str, shares: int, member: str | None = None) -> None:
    """Set the shares of a project, or of a member.  Raises NotAllowed, BadRequest, NoSuchProject."""
    _checked_shares(shares)
    if member is None:
        user.check_administers()
        tx.projects.update(_locked(tx, name)._replace(shares=shares))
        return
    _check_manages(tx, user, name)
    present = next((each for each in tx.projects.members([name]) if each.entry == member), None)
    if present is None:
        raise _no_member(name, member)
    tx.projects.add(present._replace(shares=shares))


def delete(tx: "Transaction", user: User, name: str) -> None:
    """Delete a project without sub-projects, jobs and accounting.  Raises NotAllowed, NoSuchProject, WrongState."""
    user.check_administers()
    _locked(tx, name)
    below = [project.name for project in tx.projects.all() if project.parent == name]
    if below:
        raise WrongState(f'the project "{name}" has sub-projects, such as "{below[0]}": delete them first.')
    if tx.projects.is_used(name):
        raise WrongState(f'the project "{name}" has jobs or accounting. Close it: oarproject --close "{name}"')
    tx.projects.delete(name)


def may_manage(tx: "Transaction", user: User, name: str) -> bool:
    """Return whether a user may change the members of a project."""
    return user.is_admin or name in tx.projects.managed(projects.entries_of(tx, user.name))


def may_see_members(tx: "Transaction", user: User, name: str) -> bool:
    """Return whether a user may see the members of a project: administrators, its managers and its members."""
    return may_manage(tx, user, name) or name in tx.projects.usable(projects.entries_of(tx, user.name))


# -- files ------------------------------------------------------------------------------------------------------------


class ImportedFile(NamedTuple):
    """The content of a file of projects."""

    projects: tuple[Project, ...]
    members: tuple[Member, ...]


def parse_file(text: str) -> ImportedFile:
    """Parse a CSV file with the columns COLUMNS; a line without user describes a project.  Raises BadRequest."""
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise BadRequest(f"the first line must be {','.join(COLUMNS)}.")
    found: dict[str, Project] = {}
    members = []
    for number, row in enumerate(reader, start=2):
        try:
            project, member = _parse_row({name: (row[name] or "").strip() for name in COLUMNS})
        except BadRequest as error:
            raise BadRequest(f"line {number}: {error}") from None
        if member is None or project.name not in found:
            found[project.name] = project
        members += [member] if member else []
    _check_no_circle(found)
    return ImportedFile(tuple(found.values()), tuple(members))


def _parse_row(row: dict[str, str]) -> tuple[Project, Member | None]:
    name = _checked_name(row["project"])
    shares = row["shares"] or "1"
    if not (shares.isascii() and shares.isdigit()):
        raise BadRequest(f'"{shares}" is no number of shares.')
    if not row["user"]:
        return Project(name, parent=row["parent"] or None, shares=_checked_shares(int(shares))), None
    _check_entry(row["user"])
    role = row["role"] or MemberRole.MEMBER
    if role not in tuple(MemberRole):
        raise BadRequest(f'"{role}" is no role: member or manager.')
    member = Member(name, row["user"], MemberRole(role), _checked_shares(int(shares)))
    return Project(name, parent=row["parent"] or None), member


def _check_no_circle(found: dict[str, Project]) -> None:
    for name, project in found.items():
        above, parent = [name], project.parent
        while parent in found:
            if parent in above:
                raise BadRequest(f'the project "{parent}" is below itself.')
            above.append(parent)
            parent = found[parent].parent


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
    _check_no_circle({**present, **{project.name: project for project in content.projects}})
    lines = list(_import_projects(tx, present, content.projects))
    members = {(member.project, member.entry): member for member in tx.projects.members()}
    for member in content.members:
        if members.get((member.project, member.entry)) != member:
            tx.projects.add(member)
            lines.append(f'{member.role} {member.entry} of project "{member.project}"')
    return lines


def _import_projects(tx: "Transaction", present: dict[str, Project], imported: Iterable[Project]) -> Iterator[str]:
    for project in imported:
        former = present.get(project.name)
        if former is None:
            tx.projects.create(project)
            yield f'new project "{project.name}"'
        elif (former.parent, former.shares) != (project.parent, project.shares):
            tx.projects.update(former._replace(parent=project.parent, shares=project.shares))
            yield f'project "{project.name}": parent and shares'


def export_file(tx: "Transaction") -> str:
    """Return all projects and members in the format of ``parse_file``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    members = tx.projects.members()
    for project in tx.projects.all():
        writer.writerow([project.name, project.parent or "", "", "", project.shares])
        writer.writerows(
            [member.project, project.parent or "", member.entry, member.role, member.shares]
            for member in members
            if member.project == project.name
        )
    return text.getvalue()


# -- checks -----------------------------------------------------------------------------------------------------------


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadRequest(f'"{name}" is no name of a project: letters of ASCII, digits and _ . : + - @, at most 255.')
    return name


def _check_entry(entry: str) -> None:
    if not _ENTRY.fullmatch(entry):
        raise BadRequest(f'"{entry}" is no user, @userset or @group.')


def _checked_shares(shares: int) -> int:
    if not 0 <= shares <= LARGEST_SHARES:
        raise BadRequest(f"{shares} shares are not possible: 0 to {LARGEST_SHARES}.")
    return shares


def _locked(tx: "Transaction", name: str) -> Project:
    found = tx.projects.lock([name])
    if not found:
        raise NoSuchProject(name)
    return found[0]


def _check_manages(tx: "Transaction", user: User, name: str) -> None:
    _locked(tx, name)
    if not may_manage(tx, user, name):
        raise NotAllowed(f'you do not manage the project "{name}": ask a manager of it, or an administrator.')

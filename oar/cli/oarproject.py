"""oarproject: list and change projects, their members and budgets, and default projects of users."""

import os
import pwd
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import NUMBER, OneOf, Stop, machine_formats, option, optional_argument
from oar.cli.common.render import visible
from oar.lib.access.records import User
from oar.lib.accounts import budgets, project_changes, project_files, views
from oar.lib.accounts.project_changes import ProjectUpdate
from oar.lib.accounts.project_files import ImportedFile
from oar.lib.accounts.records import Budget, Project
from oar.lib.accounts.states import MemberRole, OnExhaustion, ProjectState
from oar.lib.accounts.views import ProjectDetails, ShareUse, ShownBudget, ShownMember, ShownProject
from oar.lib.base.errors import UserError
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import format_date, parse_date
from oar.lib.config.files import Config
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.states import ProjectMode

Pairs = tuple[tuple[str, str], ...]

#: The largest file of projects that is read.
_LONGEST_FILE = 1 << 26


@oar_command(
    "oarproject",
    summary="List and change projects and their members.",
    examples={
        "oarproject --list": "List the projects.",
        "oarproject --create physics --description 'Particle physics'": "Create a project.",
        "oarproject --add alice,bob physics": "Add members to a project.",
        "oarproject --budget 100000 --from 2027-01-01 --to 2028-01-01 physics": "Set the budget of a year.",
        "oarproject --default physics": "Submit your jobs to this project if you name none.",
    },
)
@option("--list", "lists", is_flag=True, help="List the projects (default).")
@option("--show", "shown", default=None, metavar="NAME", help="Show a project with its members.")
@option("--create", "created", default=None, metavar="NAME", help="Create a project.")
@option("--parent", default=None, metavar="NAME", help="With --create: the project above it.")
@option("--change", "changed", default=None, metavar="NAME", help="Change the description or the dates of a project.")
@option("--description", default=None, metavar="TEXT", help="With --create or --change: its description.")
@option(
    "--start",
    "start_text",
    default=None,
    metavar="DATE",
    help="With --create or --change: it takes jobs from then on ('': at once).",
)
@option(
    "--end",
    "end_text",
    default=None,
    metavar="DATE",
    help="With --create or --change: it takes no jobs from then on ('': never).",
)
@option("--add", "added", nargs=2, multiple=True, metavar="USERS NAME", help="Add users, @usersets or @groups.")
@option(
    "--role",
    type=OneOf([*MemberRole]),
    default=None,
    help="With --add: role of the users (default: member; present members keep their role).",
)
@option("--remove", "removed", nargs=2, multiple=True, metavar="USERS NAME", help="Remove users, @usersets or @groups.")
@option(
    "--default", "default", default=None, metavar="NAME", help="Set your default project, or that of USER ('': none)."
)
@option(
    "--shares",
    nargs=2,
    default=None,
    type=(NUMBER, str),
    metavar="NUMBER NAME",
    help="Set the shares of a project, or of its member USER.",
)
@option("--budget", "hours", default=None, metavar="HOURS", help="Set the resource hours of PROJECT in a period.")
@option("--remove-budget", "removes_budget", is_flag=True, help="Remove the budget of PROJECT that begins at --from.")
@option("--from", "begin", default=None, metavar="DATE", help="With --budget: start of the period.")
@option("--to", "end", default=None, metavar="DATE", help="With --budget: end of the period, no part of it.")
@option(
    "--on-exhaustion",
    type=OneOf([*OnExhaustion]),
    default=None,
    help="With --budget: what happens to new jobs when it is used up (default: unchanged; of a new budget: refuse).",
)
@option("--close", "closed", default=None, metavar="NAME", help="Close a project: its waiting jobs do not start.")
@option("--reopen", "reopened", default=None, metavar="NAME", help="Open a closed project.")
@option("--delete", "deleted", default=None, metavar="NAME", help="Delete a project without jobs and accounting.")
@optional_argument("--import", "imported", metavar="[FILE]", help="Show what a CSV file would change.")
@option("--from-sacctmgr", "slurm_file", default=None, metavar="FILE", help="With --import: a file of sacctmgr dump.")
@option("--apply", "applies", is_flag=True, help="With --import: make the changes.")
@option("--export", "exports", is_flag=True, help="Print all projects and members as CSV.")
@machine_formats
@click.argument("user", required=False, metavar="[USER|PROJECT]")
def main(
    context: Context,
    *,
    lists: bool,
    shown: str | None,
    imported: tuple[str | None, ...],
    slurm_file: str | None,
    applies: bool,
    exports: bool,
    machine: Format | None,
    **changes: Any,
) -> None:
    """Make all changes in one transaction; then show projects."""
    request = Changes(**changes)
    request.check()
    _check_import(imported, slurm_file, applies=applies)
    try:
        if request.is_given:
            with context.database.begin() as tx:
                for change in _changes(context, request):
                    change(tx)
        for entry in _unknown_entries(context, request):
            kind = "userset or group" if entry.startswith("@") else "user"
            context.warn(f"there is no {kind} {visible(entry)} on this machine: check the name, or --remove it")
        if request.hours is not None and context.runtime.config.projects is ProjectMode.FREE:
            context.warn('budgets have no effect with PROJECTS="free": see "Budgets" in the administrator guide')
        if request.hours is not None and (warning := _retention_warning(context, request.user or "")):
            context.warn(warning)
        if imported:
            _import(context, imported[-1], slurm_file, applies=applies)
        if exports:
            context.require_admin()
        if exports or shown is not None or lists or not (request.is_given or imported):
            with context.database.snapshot() as tx:
                text = project_files.export_file(tx) if exports else _shown(tx, context, shown, machine)
            click.echo(text, nl=False)
    except UserError as error:
        raise Stop(f"# Error: {visible(str(error))}") from None


class Changes(NamedTuple):
    """The requested changes."""

    created: str | None
    parent: str | None
    changed: str | None
    description: str | None
    start_text: str | None
    end_text: str | None
    added: Pairs
    role: str | None
    removed: Pairs
    default: str | None
    user: str | None
    shares: tuple[int, str] | None
    closed: str | None
    reopened: str | None
    deleted: str | None
    hours: str | None
    removes_budget: bool
    begin: str | None
    end: str | None
    on_exhaustion: str | None

    def check(self) -> None:
        """Raise Stop if an option has no effect without another one."""
        self._check_budget()
        if self.parent and not self.created:
            raise Stop("--parent needs --create")
        values = (self.description, self.start_text, self.end_text)
        if any(value is not None for value in values) and (self.created is None) == (self.changed is None):
            raise Stop("--description, --start and --end need --create or --change")
        if self.changed is not None and values == (None, None, None):
            raise Stop("--change needs --description, --start or --end")
        if self.user is not None and self.changes_budget:
            return
        if self.role and not self.added:
            raise Stop("--role needs --add")
        if self.user is not None and self.default is None and self.shares is None:
            raise Stop(f"{visible(self.user)}: a user is named with --default or --shares only")

    @property
    def is_given(self) -> bool:
        """Whether a change is requested; an empty text is one."""
        return any(value not in (None, False, ()) for value in self)

    @property
    def changes_budget(self) -> bool:
        return self.hours is not None or self.removes_budget

    def _check_budget(self) -> None:
        if self.hours is not None and self.removes_budget:
            raise Stop("--budget and --remove-budget are exclusive")
        if (self.begin or self.end or self.on_exhaustion) and not self.changes_budget:
            raise Stop("--from, --to and --on-exhaustion need --budget")
        if self.changes_budget and self.user is None:
            raise Stop("name the project: oarproject --budget HOURS --from DATE --to DATE PROJECT")
        if self.changes_budget and self.begin is None:
            raise Stop("name the start of the period: --from DATE")
        if self.hours is not None and self.end is None:
            raise Stop("name the end of the period: --to DATE")
        if self.removes_budget and (self.end or self.on_exhaustion):
            raise Stop("--remove-budget needs --from only")
        if self.changes_budget and (self.default is not None or self.shares is not None):
            raise Stop("--default and --shares do not fit to --budget: use two commands")


def _changes(context: Context, request: Changes) -> Iterator[Callable[[Transaction], None]]:
    """Yield the changes in the order in which they are made."""
    user, role = context.user, MemberRole(request.role) if request.role else None
    if (name := request.created) is not None:
        yield partial(_create, user=user, name=name, request=request)
    if (name := request.changed) is not None:
        yield partial(_change, user=user, name=name, request=request)
    for users, name in request.added:
        yield partial(project_changes.add, user=user, name=name, entries=_entries(users), role=role)
    for users, name in request.removed:
        yield partial(project_changes.remove, user=user, name=name, members=_entries(users))
    if request.default is not None:
        config, owner = context.runtime.config, request.user or user.name
        yield partial(project_changes.set_default, config=config, user=user, name=request.default, of=owner)
    if request.shares is not None:
        shares, name = request.shares
        yield partial(project_changes.set_shares, user=user, name=name, shares=shares, member=request.user)
    if request.changes_budget:
        yield partial(_change_budget, config=context.runtime.config, user=user, request=request)
    if request.closed is not None:
        yield partial(project_changes.set_state, user=user, name=request.closed, state=ProjectState.CLOSED)
    if request.reopened is not None:
        yield partial(project_changes.set_state, user=user, name=request.reopened, state=ProjectState.OPEN)
    if request.deleted is not None:
        yield partial(project_changes.delete, user=user, name=request.deleted)


def _change_budget(tx: Transaction, config: Config, user: User, request: Changes) -> None:
    """Set or remove a budget.  Raises UserError."""
    start, name = parse_date(request.begin or "", tx.now), request.user or ""
    if request.hours is None:
        project_changes.remove_budget(tx, user, name, start)
        return
    present = next((each.on_exhaustion for each in tx.budgets.all([name]) if each.start == start), OnExhaustion.REFUSE)
    mode, end = OnExhaustion(request.on_exhaustion or present), parse_date(request.end or "", tx.now)
    budget = Budget(name, start, end, project_changes.parse_hours(request.hours), mode)
    project_changes.set_budget(tx, config, user, budget)


def _retention_warning(context: Context, name: str) -> str:
    """Return a warning if accounting of a budget of a project is purged too early; '' otherwise."""
    with context.database.snapshot() as tx:
        return budgets.retention_warning(context.runtime.config, tx.budgets.all([name]))


def _unknown_entries(context: Context, request: Changes) -> list[str]:
    """Return the added users, usersets and groups that this machine does not have."""
    if not request.added:
        return []
    with context.database.snapshot() as tx:
        return project_changes.unknown_entries(tx, [entry for users, _ in request.added for entry in _entries(users)])


def _create(tx: Transaction, user: User, name: str, request: Changes) -> None:
    start, end = _date(tx, request.start_text) or 0, _date(tx, request.end_text) or 0
    project = Project(name, request.description or "", request.parent, start_date=start, end_date=end)
    project_changes.create(tx, user, project)


def _change(tx: Transaction, user: User, name: str, request: Changes) -> None:
    update = ProjectUpdate(request.description, _date(tx, request.start_text), _date(tx, request.end_text))
    project_changes.change(tx, user, name, update)


def _date(tx: Transaction, text: str | None) -> int | None:
    """Return the date of an option; '' = 0, no limit.  Raises BadRequest."""
    return None if text is None else parse_date(text, tx.now) if text.strip() else 0


def _entries(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


class _DryRun(Exception):
    """Ends a dry run: its transaction is rolled back."""


def _check_import(imported: tuple[str | None, ...], slurm_file: str | None, *, applies: bool) -> None:
    """Raise Stop if not exactly one file is named."""
    if (slurm_file is not None or applies) and not imported:
        raise Stop("--from-sacctmgr and --apply need --import")
    if imported and (imported[-1] is None) == (slurm_file is None):
        raise Stop("--import needs one file: --import FILE, or --import --from-sacctmgr FILE")


def _import(context: Context, path: str | None, slurm_file: str | None, *, applies: bool) -> None:
    """Import a file, or print what it would change.  Raises UserError, Stop."""
    context.require_admin()
    text = _read(os.path.join(context.place.directory or "", path or slurm_file or ""))
    content = (
        project_files.parse_file(text, context.runtime.config.accounting_window)
        if slurm_file is None
        else _from_sacctmgr(text)
    )
    lines: list[str] = []
    try:
        with context.database.begin() as tx:
            lines = project_files.import_file(tx, context.user, content)
            if not applies:
                raise _DryRun
    except _DryRun:
        lines += ["# Nothing was changed: repeat with --apply to make these changes."] if lines else []
    click.echo("\n".join(map(visible, [*(lines or ["# Nothing to change."]), *content.notes])))


def _read(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            text = file.read(_LONGEST_FILE + 1)
    except PermissionError:
        account = pwd.getpwuid(os.geteuid()).pw_name
        raise Stop(f"# Error: {account} cannot read {visible(path)}. Copy it to /tmp, or make it readable.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Stop(f"# Error: cannot read {visible(path)}: {reason}") from None
    if len(text) > _LONGEST_FILE:
        raise Stop(f"# Error: {visible(path)} is longer than {_LONGEST_FILE >> 20} MiB. Import it in parts.")
    return text


def _from_sacctmgr(text: str) -> ImportedFile:
    from oar.lib.accounts.sacctmgr_file import parse_sacctmgr

    return project_files.from_sacctmgr(parse_sacctmgr(text))


# -- output -----------------------------------------------------------------------------------------------------------


def _shown(tx: Transaction, context: Context, name: str | None, machine: Format | None) -> str:
    """Return one project with its members, or all projects.  Raises NoSuchProject."""
    config = context.runtime.config
    if name is None:
        projects = views.list_projects(tx, config)
        return dump([shown.record for shown in projects], machine) if machine else _table(projects)
    details = views.show_project(tx, config, context.user, name)
    return dump(details.record, machine) if machine else _text(details)


def _table(projects: list[ShownProject]) -> str:
    lines = [
        f"{visible(project.name):<24} {project.state:<6} {project.shares:>6} "
        f" {_day(project.start_date):<10} {_day(project.end_date):<10}"
        f" {visible(project.parent or '-'):<24} {visible(project.description)}".rstrip()
        for project, _, _ in projects
    ]
    head = f"{'Project':<24} {'State':<6} {'Shares':>6}  {'Start':<10} {'End':<10} {'Parent':<24} Description"
    return "".join(f"{line}\n" for line in ([head, *lines] if lines else []))


def _day(date: int) -> str:
    return format_date(date)[:10] or "-"


def _text(details: ProjectDetails) -> str:
    project, fair_share, _ = details.shown
    lines = [f"Project {visible(project.name)}, {project.state}, {project.shares} shares"]
    lines += [f"    Description: {visible(project.description)}"] if project.description else []
    lines += [f"    Parent: {visible(project.parent)}"] if project.parent else []
    lines += [f"    Takes jobs from: {format_date(project.start_date)}"] if project.start_date else []
    lines += [f"    Takes jobs until: {format_date(project.end_date)}"] if project.end_date else []
    if fair_share:
        of_parent = f" (parent {details.parent_target:.1%})" if details.parent_target is not None else ""
        lines.append(f"    Fair share: {_share(fair_share)}{of_parent}")
    lines += map(_budget_line, details.shown.budgets)
    for role in MemberRole:
        members = [member for member in details.members or () if member.member.role is role]
        if members and not fair_share:
            lines.append(f"    {role.capitalize()}s: {', '.join(visible(member.member.entry) for member in members)}")
        elif members:
            lines += [f"    {role.capitalize()}s:", *map(_member_line, members)]
    return "".join(f"{line}\n" for line in lines)


def _budget_line(shown: ShownBudget) -> str:
    budget = shown.budget
    words = [f"{budget.hours:,.10g} resource hours {budget.period}"]
    if shown.used is not None and shown.counted is not None:
        words.append(f"used {shown.used / 3600:,.1f}")
        words += [f"with requests {shown.counted / 3600:,.1f}"] if shown.counted != shown.used else []
        words.append(f"left {budget.hours - shown.counted / 3600:,.1f}")
    words += [f"at the present rate used up on {format_date(shown.exhausted_on)}"] if shown.exhausted_on else []
    return f"    Budget: {', '.join(words)}; when used up: {budget.on_exhaustion}"


def _member_line(shown: ShownMember) -> str:
    member, share = shown
    return f"        {visible(member.entry):<16} shares {member.shares}{f', {_share(share)}' if share else ''}"


def _share(share: ShareUse) -> str:
    if share.used is None or share.effective is None:
        return f"target {share.target:.1%}"
    return f"target {share.target:.1%}, used {share.effective:.1%} ({share.used / 3600:,.1f} resource hours)"


if __name__ == "__main__":
    sys.exit(main())

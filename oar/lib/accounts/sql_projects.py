"""Projects (``tx.projects``): projects, their members, default projects of users."""

from collections.abc import Collection, Iterable, Sequence

from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.states import MemberRole, ProjectState
from oar.lib.db.statements import Prepared, Row, Table

_COLUMNS = "project_name, description, parent, state, start_date, end_date, shares"
#: Projects that take no jobs at a date, with their sub-projects.
_CLOSED_CTE = """
    closed AS (
        SELECT project_name FROM projects
        WHERE state <> 'open' OR start_date > %(now)s OR (end_date <> 0 AND end_date <= %(now)s)
        UNION SELECT p.project_name FROM projects p JOIN closed c ON p.parent = c.project_name)"""
_CLOSED = f"WITH RECURSIVE {_CLOSED_CTE} SELECT project_name FROM closed ORDER BY 1"
#: The same, and a row NULL if a project has a budget now or later.
_CLOSED_AND_BUDGETS = f"""WITH RECURSIVE {_CLOSED_CTE}
    SELECT project_name FROM closed
    UNION ALL SELECT NULL WHERE EXISTS (SELECT FROM project_budgets WHERE period_end > %(now)s) ORDER BY 1"""
_IS_OPEN = Prepared(f"""WITH RECURSIVE {_CLOSED_CTE}
    SELECT project_name NOT IN (SELECT project_name FROM closed) FROM projects WHERE project_name = %(project)s""")
#: The projects of members, and those above them.
_USABLE = """
    WITH RECURSIVE usable AS (
        SELECT project_name FROM project_members WHERE entry = ANY(%s::text[])
        UNION SELECT p.parent FROM usable u JOIN projects p USING (project_name) WHERE p.parent IS NOT NULL)
    SELECT project_name FROM usable ORDER BY 1"""
#: The projects of members with a role, and those below them.
_BELOW = """
    WITH RECURSIVE below AS (
        SELECT project_name FROM project_members WHERE entry = ANY(%s::text[]) AND role = %s
        UNION SELECT p.project_name FROM projects p JOIN below b ON p.parent = b.project_name)
    SELECT project_name FROM below ORDER BY 1"""
_OWN = "SELECT DISTINCT project_name FROM project_members WHERE entry = ANY(%s::text[]) ORDER BY 1"
_GROUPS = "SELECT DISTINCT entry FROM project_members WHERE entry LIKE '@%%' ORDER BY 1"
_DEFAULT = "SELECT default_project FROM user_settings WHERE user_name = %s"
_ALL = f"SELECT {_COLUMNS} FROM projects ORDER BY project_name"
#: A project and those above it, from below.
_LINEAGE = f"""
    WITH RECURSIVE above AS (
        SELECT project_name, 0 AS height FROM projects WHERE project_name = %s
        UNION SELECT p.parent, a.height + 1 FROM above a JOIN projects p USING (project_name)
        WHERE p.parent IS NOT NULL AND a.height < 1000)
    SELECT {_COLUMNS} FROM above JOIN projects USING (project_name) ORDER BY height"""
#: Some projects and those above them, each with its parent.
_PARENTS_ABOVE = """
    WITH RECURSIVE above AS (
        SELECT project_name, parent FROM projects WHERE project_name = ANY(%s::text[])
        UNION SELECT p.project_name, p.parent FROM above a JOIN projects p ON p.project_name = a.parent)
    SELECT project_name, parent FROM above"""
_LOCKED = f"SELECT {_COLUMNS} FROM projects WHERE project_name = ANY(%s) ORDER BY project_name FOR UPDATE"
_MEMBERS = """
    SELECT project_name, entry, role, shares FROM project_members
    WHERE %(projects)s::text[] IS NULL OR project_name = ANY(%(projects)s::text[]) ORDER BY project_name, entry"""
_CREATE = f"INSERT INTO projects ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
_UPDATE = """
    UPDATE projects SET description = %s, parent = %s, state = %s, start_date = %s, end_date = %s, shares = %s
    WHERE project_name = %s"""
_ADD = """
    INSERT INTO project_members (project_name, entry, role, shares) VALUES (%s, %s, %s, %s)
    ON CONFLICT (project_name, entry) DO UPDATE SET role = EXCLUDED.role, shares = EXCLUDED.shares"""
_CREATE_ALL = f"INSERT INTO projects ({_COLUMNS}) VALUES %s ON CONFLICT DO NOTHING RETURNING project_name"
_UPDATE_ALL = """
    UPDATE projects p SET description = new.description, parent = new.parent, state = new.state,
        start_date = new.start_date, end_date = new.end_date, shares = new.shares
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::integer[])
        AS new (project_name, description, parent, state, start_date, end_date, shares)
    WHERE p.project_name = new.project_name"""
_ADD_ALL = """
    INSERT INTO project_members (project_name, entry, role, shares) VALUES %s
    ON CONFLICT (project_name, entry) DO UPDATE SET role = EXCLUDED.role, shares = EXCLUDED.shares"""
_SET_DEFAULTS = """
    INSERT INTO user_settings (user_name, default_project) VALUES %s
    ON CONFLICT (user_name) DO UPDATE SET default_project = EXCLUDED.default_project"""
_DEFAULTS = "SELECT user_name, default_project FROM user_settings WHERE default_project <> ''"
_REMOVE = "DELETE FROM project_members WHERE project_name = %s AND entry = ANY(%s::text[]) RETURNING entry"
_SET_DEFAULT = """
    INSERT INTO user_settings (user_name, default_project) VALUES (%s, %s)
    ON CONFLICT (user_name) DO UPDATE SET default_project = EXCLUDED.default_project"""
_IS_USED = """
    SELECT (SELECT job_id FROM jobs WHERE project = %(project)s ORDER BY project, job_id LIMIT 1) IS NOT NULL
        OR EXISTS (SELECT 1 FROM accounting WHERE accounting_project = %(project)s)
        OR EXISTS (SELECT 1 FROM reservations WHERE project = %(project)s)"""
_DELETE = """
    WITH members AS (DELETE FROM project_members WHERE project_name = %(project)s),
         defaults AS (DELETE FROM user_settings WHERE default_project = %(project)s),
         budgets AS (DELETE FROM project_budgets WHERE project_name = %(project)s)
    DELETE FROM projects WHERE project_name = %(project)s"""


class Projects(Table):
    """Rows of ``projects``, ``project_members`` and ``user_settings``."""

    def is_open(self, name: str) -> bool | None:
        """Return whether a project and all projects above it take jobs now; None if it does not exist."""
        is_open: bool | None = self._tx.value(_IS_OPEN, {"project": name, "now": self._tx.now})
        return is_open

    def closed(self) -> list[str]:
        """Return the projects that take no jobs now."""
        return self._tx.column(_CLOSED, {"now": self._tx.now})

    def closed_and_budgets(self) -> tuple[tuple[str, ...], bool]:
        """Return the projects that take no jobs now, and whether a project has a budget now or later."""
        names: list[str | None] = self._tx.column(_CLOSED_AND_BUDGETS, {"now": self._tx.now})
        return tuple(name for name in names if name is not None), None in names

    def usable(self, entries: Sequence[str]) -> list[str]:
        """Return the projects of these entries, and the projects above them."""
        return self._tx.column(_USABLE, (list(entries),))

    def of_entries(self, entries: Sequence[str]) -> list[str]:
        """Return the projects with one of these entries."""
        return self._tx.column(_OWN, (list(entries),))

    def managed(self, entries: Sequence[str]) -> list[str]:
        """Return the projects that have one of these entries as manager, and the projects below them."""
        return self._tx.column(_BELOW, (list(entries), MemberRole.MANAGER))

    def listed_groups(self) -> list[str]:
        """Return the entries that are usersets or groups."""
        return self._tx.column(_GROUPS)

    def default_of(self, user: str) -> str:
        """Return the default project of a user; '' if there is none."""
        return self._tx.value(_DEFAULT, (user,)) or ""

    def all(self) -> list[Project]:
        """Return all projects, by name."""
        return [_project(row) for row in self._tx.rows(_ALL)]

    def lineage(self, name: str) -> list[Project]:
        """Return a project and the projects above it, from below; [] if it does not exist."""
        return [_project(row) for row in self._tx.rows(_LINEAGE, (name,))]

    def parents_above(self, names: Collection[str]) -> dict[str, str | None]:
        """Return the parent of each of some projects, and of each project above them."""
        return dict(self._tx.rows(_PARENTS_ABOVE, (list(names),)))

    def lock(self, names: Collection[str]) -> list[Project]:
        """Lock and return the projects with these names."""
        return [_project(row) for row in self._tx.rows(_LOCKED, (list(names),))]

    def members(self, projects: Sequence[str] | None = None) -> list[Member]:
        """Return the members of some or all projects."""
        rows = self._tx.rows(_MEMBERS, {"projects": None if projects is None else list(projects)})
        return [Member(name, entry, MemberRole(role), shares) for name, entry, role, shares in rows]

    def create(self, project: Project) -> bool:
        """Insert a project; return False if it exists."""
        return self._tx.execute(_CREATE, tuple(project)) == 1

    def update(self, project: Project) -> None:
        """Store all values of a project."""
        self._tx.execute(_UPDATE, (*project[1:], project.name))

    def create_all(self, projects: Iterable[Project]) -> set[str]:
        """Insert the projects that do not exist; return their names.

        In one order in all transactions, so that two imports do not wait for each other.
        """
        in_order = sorted(projects, key=lambda project: project.name)
        return {name for (name,) in self._tx.insert_returning(_CREATE_ALL, in_order)}

    def update_all(self, projects: Iterable[Project]) -> None:
        """Store all values of projects."""
        if columns := [list(column) for column in zip(*projects, strict=True)]:
            self._tx.execute(_UPDATE_ALL, columns)

    def add_all(self, members: Iterable[Member]) -> None:
        """Insert members, or change their role and shares; each member once."""
        self._tx.insert_many(_ADD_ALL, members)

    def set_defaults(self, defaults: Iterable[tuple[str, str]]) -> None:
        """Set the default projects of users: user and project."""
        self._tx.insert_many(_SET_DEFAULTS, defaults)

    def defaults(self) -> dict[str, str]:
        """Return the default projects of all users who have one."""
        return dict(self._tx.rows(_DEFAULTS))

    def add(self, member: Member) -> None:
        """Insert a member, or change the role and the shares."""
        self._tx.execute(_ADD, tuple(member))

    def remove(self, project: str, entries: Sequence[str]) -> list[str]:
        """Remove members; return the entries that were there."""
        return self._tx.column(_REMOVE, (project, list(entries)))

    def set_default(self, user: str, project: str) -> None:
        self._tx.execute(_SET_DEFAULT, (user, project))

    def is_used(self, name: str) -> bool:
        """Return whether jobs, reservations or accounting have the project."""
        return bool(self._tx.value(_IS_USED, {"project": name}))

    def delete(self, name: str) -> None:
        """Delete a project, its members, its budgets, and the defaults that name it."""
        self._tx.execute(_DELETE, {"project": name})


def _project(row: Row) -> Project:
    name, description, parent, state, *rest = row
    return Project(name, description, parent, ProjectState(state), *rest)

"""Files of projects: what an import of sacctmgr dump and of CSV files changes, and what it leaves."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oar.cli import oarproject
from oar.cli.common.command import CallersPlace, CommandResult, Context
from oar.lib.access.records import User
from oar.lib.accounts import project_changes, project_files
from oar.lib.accounts.project_files import ImportedFile
from oar.lib.accounts.records import NO_END, Budget, Member, Project
from oar.lib.accounts.sql_projects import Projects
from oar.lib.accounts.states import MemberRole, OnExhaustion, ProjectState
from oar.lib.base.errors import WrongState
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.states import ProjectMode
from oar.lib.runtime import Runtime
from tests.db.budget_site import DAY
from tests.frontend import LoginNode
from tests.process.this_machine import wait_until
from tests.unit.test_sacctmgr_file import DUMP

ROOT = User("root", 0)


@pytest.fixture
def site(database: Database) -> LoginNode:
    made = LoginNode(database)
    made.config = made.config.replace(projects=ProjectMode.MEMBERS)
    return made


def import_slurm(site: LoginNode, path: Path, text: str, *words: str, user: User = ROOT) -> CommandResult:
    file = path / "dump.cfg"
    file.write_text(text)
    return site.type(oarproject.main, "--import", "--from-sacctmgr", file, *words, user=user)


def import_content(database: Database, content: ImportedFile) -> list[str]:
    with database.begin() as tx:
        return project_files.import_file(tx, ROOT, content)


def is_waiting(tx: Transaction) -> bool:
    """Return whether another transaction waits for this one."""
    waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
    return bool(tx.value(waiting))


def rows(site: LoginNode) -> list[int]:
    return [site.count(table) for table in ("projects", "project_members", "user_settings", "project_budgets")]


def test_a_dump_of_slurm_is_shown_and_then_imported(site: LoginNode, tmp_path: Path) -> None:
    dry = import_slurm(site, tmp_path, DUMP)
    assert dry.exit == 0
    assert dry.out.startswith(
        'new project "physics"\nnew project "biology"\nnew project "cms"\nmanager anna of project'
    )
    assert 'budget of project "physics": of 1,000 resource hours without end' in dry.out
    assert "# not imported: MaxSubmitJobs of users: 1" in dry.out
    assert "# Nothing was changed: repeat with --apply" in dry.out
    assert rows(site) == [0, 0, 0, 0]
    assert import_slurm(site, tmp_path, DUMP, "--apply").exit == 0
    with site.database.snapshot() as tx:
        assert {project.name: (project.parent, project.shares) for project in tx.projects.all()} == {
            "biology": (None, 1),
            "physics": (None, 10),
            "cms": ("physics", 1),
        }
        assert Member("physics", "anna", MemberRole.MANAGER, 5) in tx.projects.members()
        assert tx.projects.defaults() == {"anna": "physics", "john": "cms"}
        assert tx.budgets.all() == [Budget("physics", 0, NO_END, 1000.0, OnExhaustion.WAIT)]
    again = import_slurm(site, tmp_path, DUMP, "--apply")
    assert again.out.startswith("# Nothing to change.\n# not imported: ")


@pytest.mark.parametrize(
    "line", ["rm -rf /", "Account - 'a,b'", "Account - 'x", "User - 'x;y'", "Account - '\x1b[31m'"]
)
def test_a_bad_dump_changes_nothing(site: LoginNode, tmp_path: Path, line: str) -> None:
    result = import_slurm(site, tmp_path, f"{DUMP}{line}\n", "--apply")
    assert (result.exit, result.err.count("\n")) == (1, 1)
    assert f"line {DUMP.count(chr(10)) + 1}: " in result.err
    assert "\x1b" not in result.err
    assert rows(site) == [0, 0, 0, 0]


def test_only_administrators_import(site: LoginNode, tmp_path: Path) -> None:
    assert import_slurm(site, tmp_path, DUMP, "--apply", user=User("alice", 1001)).exit != 0
    assert rows(site) == [0, 0, 0, 0]


@pytest.mark.parametrize("words", [("--import",), ("--from-sacctmgr", "x"), ("--import", "x", "--from-sacctmgr", "y")])
def test_exactly_one_file_is_imported(site: LoginNode, words: tuple[str, ...]) -> None:
    result = site.type(oarproject.main, *words, user=ROOT)
    assert result.exit != 0
    assert "--import" in result.err


def test_members_and_projects_are_stored_by_few_statements(
    site: LoginNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("create", "update", "add", "set_default"):  # one row each
        monkeypatch.delattr(Projects, name)
    accounts = "".join(f"Account - 'a{number}':Fairshare=2\n" for number in range(50))
    users = "".join(
        f"Parent - 'a{number % 50}'\nUser - 'u{number}':DefaultAccount='a{number % 50}':Fairshare=1\n"
        for number in range(3000)
    )
    assert import_slurm(site, tmp_path, f"Parent - 'root'\n{accounts}{users}", "--apply").exit == 0
    assert rows(site) == [50, 3000, 3000, 0]
    more = accounts.replace("=2", "=3")
    assert import_slurm(site, tmp_path, f"Parent - 'root'\n{more}", "--apply").exit == 0
    with site.database.snapshot() as tx:
        assert {project.shares for project in tx.projects.all()} == {3}


def test_lines_of_members_leave_an_existing_project_as_it_is(site: LoginNode, tmp_path: Path) -> None:
    with site.database.begin() as tx:
        tx.projects.create(Project("physics"))
        tx.projects.create(Project("cms", "CMS", "physics", end_date=2_000_000_000, shares=7))
    file = tmp_path / "members.csv"
    file.write_text("project,parent,user,role,shares\ncms,,bob,,\n")
    assert site.type(oarproject.main, "--import", file, "--apply", user=ROOT).exit == 0
    record = json.loads(site.type(oarproject.main, "--show", "cms", "-J", user=ROOT).out)
    assert (record["parent"], record["shares"], record["end_date"]) == ("physics", 7, 2_000_000_000)
    assert [member["user"] for member in record["members"]] == ["bob"]


def test_an_import_waits_for_a_change_of_somebody_else_and_keeps_it(site: LoginNode) -> None:
    with site.database.begin() as tx:
        tx.projects.create(Project("physics"))
    content = project_files.parse_file("project,parent,user,role,shares\nphysics,,,,5\n", DAY)
    with ThreadPoolExecutor() as pool:
        with site.database.begin() as tx:
            project_changes.set_state(tx, ROOT, "physics", ProjectState.CLOSED)
            importing = pool.submit(import_content, site.database, content)
            wait_until(lambda: is_waiting(tx))
            project_changes.change(tx, ROOT, "physics", project_changes.ProjectUpdate("of the department"))
        assert importing.result(60) == ['project "physics": new values']
    with site.database.snapshot() as tx:
        assert tx.projects.all() == [Project("physics", "of the department", None, ProjectState.CLOSED, shares=5)]


def test_a_project_that_somebody_else_creates_meanwhile_is_one_line(site: LoginNode) -> None:
    content = project_files.parse_file("project,parent,user,role,shares\nphysics,,,,5\ncms,,,,5\n", DAY)
    with ThreadPoolExecutor() as pool:
        with site.database.begin() as tx:
            tx.projects.create(Project("physics"))
            importing = pool.submit(import_content, site.database, content)
            wait_until(lambda: is_waiting(tx))
        with pytest.raises(WrongState, match='the project "physics" was created during the import') as raised:
            importing.result(60)
    assert "\n" not in str(raised.value)
    with site.database.snapshot() as tx:
        assert tx.projects.all() == [Project("physics")]


NAMES = ["a", "b.c", "d e", "g+", "0", "x@y:z", "_"]
DATES = st.sampled_from([0, 1, 1_793_493_000, 1_793_496_600, project_changes.LATEST_DATE - 1])  # one hour occurs twice
USERS = st.sampled_from(["alice", "bob", "user.name@site", "@physics", "machine$"])
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.sampled_from(" \",;=@'#"), max_size=9)
PERIODS = st.sampled_from([(0, NO_END), (0, DAY), (DAY, 30 * DAY + 1), (1_793_493_000, 1_899_496_600)])


@st.composite
def sites(draw: st.DrawFn) -> tuple[list[Project], list[Member], list[Budget], dict[str, str]]:
    """Return projects with members, budgets and default projects of users."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    projects, budgets = [], []
    for number, name in enumerate(names):
        start, end = sorted((draw(DATES), draw(DATES)))
        state, parent = draw(st.sampled_from(ProjectState)), draw(st.sampled_from([None, *names[:number]]))
        dates = (start, 0 if start == end else end)
        projects.append(Project(name, draw(TEXTS), parent, state, *dates, draw(st.integers(0, 1_000_000))))
        if draw(st.booleans()):
            hours = draw(st.floats(0, 1e12).map(lambda hours: round(hours, 6)))
            budgets.append(Budget(name, *draw(PERIODS), hours, draw(st.sampled_from(OnExhaustion))))
    roles, a_name = st.sampled_from(MemberRole), st.sampled_from(names or [""])
    members = st.builds(Member, a_name, USERS, roles, st.integers(0, 1_000_000))
    listed = draw(st.lists(members, unique_by=lambda each: each[:2], max_size=4)) if names else []
    defaults = draw(st.dictionaries(st.sampled_from(["alice", "eve"]), a_name)) if names else {}
    return projects, listed, budgets, defaults


@pytest.mark.parametrize("zone", ["Europe/Paris"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=sites())
def test_an_export_is_imported_as_it_was(
    site: LoginNode, zone: str, content: tuple[list[Project], list[Member], list[Budget], dict[str, str]]
) -> None:
    projects, members, budgets, defaults = content
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        with site.database.begin() as tx:
            tx.execute("DELETE FROM projects; DELETE FROM project_members; DELETE FROM project_budgets")
            tx.execute("DELETE FROM user_settings")
            tx.projects.create_all(projects)
            tx.projects.add_all(members)
            for budget in budgets:
                tx.budgets.store(budget)
            tx.projects.set_defaults(defaults.items())
            before = (tx.projects.all(), tx.projects.members(), tx.budgets.all(), tx.projects.defaults())
            text = project_files.export_file(tx)
            parsed = project_files.parse_file(text, DAY)
            assert project_files.import_file(tx, ROOT, parsed) == []
            tx.execute("DELETE FROM projects; DELETE FROM project_members; DELETE FROM project_budgets")
            tx.execute("DELETE FROM user_settings")
            project_files.import_file(tx, ROOT, parsed)
            assert (tx.projects.all(), tx.projects.members(), tx.budgets.all(), tx.projects.defaults()) == before
    time.tzset()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the first line must be project,parent"),
        ("project,parent,user,role\n", "the first line must be project,parent"),
        ("project,parent,user,role,shares,start,start\n", "the first line must be project,parent"),
        ("project,parent,user,role,shares,colour\n", 'there is no column "colour"'),
        ("project,parent,user,role,shares\na,,,,1,2,3\n", "line 2: it has more values"),
        (f"project,parent,user,role,shares\n{'x' * 200_000},,,,\n", "line 2: field larger than field limit"),
        ("project,parent,user,role,shares\n=cmd|x,,,,\n", 'line 2: "=cmd|x" is no name of a project'),
        ("project,parent,user,role,shares\na,,,,999999999999999999999\n", "is no number of shares"),
        ("project,parent,user,role,shares\na,,,,-1\n", '"-1" is no number of shares'),
        ("project,parent,user,role,shares\na,,@x,default,\n", "only users have a default project"),
        ("project,parent,user,role,shares\na,,x,default,\nb,,x,default,\n", 'another default project of x, "a"'),
        ("project,parent,user,role,shares,state\na,,,,,ajar\n", '"ajar" is no state of a project'),
        ('project,parent,user,role,shares,description\na,,,,,"x\ny"\n', "line 3: a description is one line"),
        ("project,parent,user,role,shares,description\na,,,,,\x1b[2J\n", "printable characters"),
        ("project,parent,user,role,shares\na\0,,,,\n", "line"),
    ],
)
def test_a_hostile_file_is_one_line_and_changes_nothing(site: LoginNode, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "all.csv"
    file.write_text(text, newline="")
    result = site.type(oarproject.main, "--import", file, "--apply", user=ROOT)
    assert (result.exit, told in result.err, result.err.count("\n")) == (1, True, 1), result.err[:500]
    assert rows(site) == [0, 0, 0, 0]


def test_a_file_that_is_too_long_is_not_cut(site: LoginNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oarproject, "_LONGEST_FILE", 1 << 20)
    result = import_slurm(site, tmp_path, DUMP + "#" * (1 << 20), "--apply")
    assert "is longer than 1 MiB" in result.err
    assert rows(site) == [0, 0, 0, 0]


def test_a_relative_path_begins_in_the_directory_of_the_caller(site: LoginNode, tmp_path: Path) -> None:
    (tmp_path / "projects.csv").write_text("project,parent,user,role,shares\nphysics,,,,2\n")
    runtime, place = Runtime(site.config, site.database), CallersPlace(str(tmp_path))
    context = Context(oarproject.main, {}, ROOT, runtime, place)
    assert oarproject.main.run(["--import", "projects.csv", "--apply"], context) == 0
    assert rows(site)[0] == 1

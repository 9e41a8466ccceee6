"""Budgets: who may set which, and what is used of them."""

import time

import pytest

from oar.lib.access.records import User
from oar.lib.accounts import project_changes
from oar.lib.accounts.records import NO_END, Budget, Member, Project
from oar.lib.accounts.states import MemberRole, OnExhaustion
from oar.lib.base.errors import BadRequest, NotAllowed
from oar.lib.db.database import Database

ALICE, BOB, ROOT = User("alice", 0), User("bob", 0), User("root", 0)
DAY = 86400
NOW = int(time.time())
START, END = NOW // DAY * DAY - 10 * DAY, NOW // DAY * DAY + 20 * DAY


@pytest.fixture
def physics(database: Database) -> Database:
    """The projects physics, which bob manages, physics.cms below it, of alice, and biology."""
    with database.begin() as tx:
        for name, parent in (("physics", None), ("physics.cms", "physics"), ("biology", None)):
            tx.projects.create(Project(name, parent=parent))
        tx.projects.add(Member("physics", "bob", MemberRole.MANAGER))
        tx.projects.add(Member("physics.cms", "alice"))
    return database


def set_budget(database: Database, project: str, hours: float, user: User = ROOT, *, mode: str = "refuse") -> None:
    with database.begin() as tx:
        project_changes.set_budget(tx, user, Budget(project, START, END, hours, OnExhaustion(mode)))


def budgets(database: Database) -> list[Budget]:
    with database.snapshot() as tx:
        return tx.budgets.all()


def test_a_budget_is_stored_replaced_and_removed(physics: Database) -> None:
    set_budget(physics, "physics", 100)
    set_budget(physics, "physics", 200.5, mode="wait")
    assert budgets(physics) == [Budget("physics", START, END, 200.5, OnExhaustion.WAIT)]
    with pytest.raises(BadRequest, match="no budget of the project"), physics.begin() as tx:
        project_changes.remove_budget(tx, ROOT, "physics", START + 1)
    with physics.begin() as tx:
        project_changes.remove_budget(tx, ROOT, "physics", START)
    assert budgets(physics) == []


@pytest.mark.parametrize("period", [(START - DAY, START + 1), (END - 1, NO_END), (START + 1, START + 2), (0, NO_END)])
def test_overlapping_periods_are_refused(physics: Database, period: tuple[int, int]) -> None:
    set_budget(physics, "physics", 100)
    with pytest.raises(BadRequest, match="overlaps with the budget of 100 resource hours"), physics.begin() as tx:
        project_changes.set_budget(tx, ROOT, Budget("physics", *period, 1))


def test_periods_that_follow_each_other_are_accepted(physics: Database) -> None:
    set_budget(physics, "physics", 100)
    with physics.begin() as tx:
        project_changes.set_budget(tx, ROOT, Budget("physics", END, NO_END, 1))
        project_changes.set_budget(tx, ROOT, Budget("physics", 0, START, 1))
    assert [budget.hours for budget in budgets(physics)] == [1, 100, 1]


@pytest.mark.parametrize("budget", [(END, START, 1.0), (START, START, 1.0), (START, END, -1.0), (START, END, 1e13)])
def test_an_impossible_budget_is_refused(physics: Database, budget: tuple[int, int, float]) -> None:
    with pytest.raises(BadRequest, match="not possible"), physics.begin() as tx:
        project_changes.set_budget(tx, ROOT, Budget("physics", *budget))


def test_a_manager_sets_budgets_of_sub_projects_within_his_own(physics: Database) -> None:
    with pytest.raises(NotAllowed, match="no budget of your project physics contains the period"):
        set_budget(physics, "physics.cms", 10, BOB)
    set_budget(physics, "physics", 100)
    set_budget(physics, "physics.cms", 100, BOB)
    with pytest.raises(NotAllowed, match="101 resource hours exceed the budget"):
        set_budget(physics, "physics.cms", 101, BOB)
    for project in ("physics", "biology"):
        with pytest.raises(NotAllowed, match="you may not change the budget"):
            set_budget(physics, project, 10, BOB)
    with pytest.raises(NotAllowed, match="you may not change the budget"):
        set_budget(physics, "physics.cms", 10, ALICE)
    assert [(budget.project, budget.hours) for budget in budgets(physics)] == [("physics", 100), ("physics.cms", 100)]


def test_budgets_survive_export_and_import(physics: Database) -> None:
    set_budget(physics, "physics", 100.25, mode="besteffort")
    with physics.begin() as tx:
        project_changes.set_budget(tx, ROOT, Budget("physics", END, NO_END, 7))
        text = project_changes.export_file(tx)
        before = tx.budgets.all()
        tx.budgets.remove("physics", [START, END])
        lines = project_changes.import_file(tx, ROOT, project_changes.parse_file(text))
        assert tx.budgets.all() == before
        assert project_changes.import_file(tx, ROOT, project_changes.parse_file(text)) == []
        assert project_changes.export_file(tx) == text
    assert len(lines) == 2


def test_a_file_without_columns_of_budgets_is_accepted() -> None:
    content = project_changes.parse_file("project,parent,user,role,shares\nphysics,,alice,,\n")
    assert (len(content.members), content.budgets) == (1, ())


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("physics,,,,,2026-01-01,2027-01-01,x,", '"x" is no number of resource hours'),
        ("physics,,,,,tomorrow,,5,", "is not a date"),
        ("physics,,,,,2027-01-01,2026-01-01,5,", "not possible"),
        ("physics,,,,,2027-01-01,,5,stop", '"stop" is not possible when a budget is used up'),
        ("physics,,alice,,,2027-01-01,,5,wait", "leave the user empty"),
        ("physics,,,,,2026-01-01,,5,wait\nphysics,,,,,2027-01-01,,5,wait", "overlaps with the budget"),
    ],
)
def test_a_wrong_row_of_a_file_is_refused(row: str, text: str) -> None:
    head = ",".join(project_changes.COLUMNS + project_changes.BUDGET_COLUMNS)
    with pytest.raises(BadRequest, match=text):
        project_changes.parse_file(f"{head}\n{row}\n")

"""Managers of projects control the jobs of their projects (PROJECT_MANAGERS_CONTROL_JOBS), and no others."""

import json

import pytest

from oar.cli import oaralter, oardel, oarhold, oarproject, oarresume, oarstat, oarsub
from oar.cli.common.command import CommandResult
from oar.lib.access.records import User
from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.states import MemberRole
from oar.lib.db.database import Database
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.states import JobState, ProjectMode
from oar.lib.runtime import Runtime
from oar.modules import leon
from tests.builders import add_job, add_resources, execute_sql, state_of
from tests.frontend import LoginNode, add_rules

CARLA, BOB, ROOT = User("carla", 1003), User("bob", 1002), User("root", 0)


@pytest.fixture
def login(database: Database) -> LoginNode:
    """A site with physics (of carla, who manages it), physics.cms below it (of alice and bob), and biology."""
    add_resources(database, nodes=1, cores=2)
    add_rules(database)
    with database.begin() as tx:
        for name, parent in (("physics", None), ("physics.cms", "physics"), ("biology", None)):
            tx.projects.create(Project(name, parent=parent))
        for member in ("alice", "bob"):
            tx.projects.add(Member("physics.cms", member))
        tx.projects.add(Member("biology", "alice"))
        tx.projects.add(Member("physics", "carla", MemberRole.MANAGER))
    site = LoginNode(database)
    site.config = site.config.replace(
        projects=ProjectMode.MEMBERS, project_managers_control_jobs=True, oarstat_private=True
    )
    return site


def controls(login: LoginNode, job: int, user: User = CARLA) -> bool:
    """Return whether a user can hold, resume, delete and fully see a waiting job; all four must agree."""
    codes = [login.type(command, job, user=user).exit for command in (oarhold.main, oarresume.main, oardel.main)]
    record = json.loads(login.type(oarstat.main, "-J", "-f", "-j", job, user=user).out)[str(job)]
    sees: bool = record["command"] != ""
    assert {code == 0 for code in codes} == {sees}
    assert state_of(login.database, job) is JobState.WAITING
    return sees


def test_a_manager_controls_the_jobs_of_his_project_and_of_those_below(login: LoginNode) -> None:
    for project in ("physics", "physics.cms"):
        assert controls(login, add_job(login.database, user="bob", project=project, command="secret"))


def test_without_the_key_managers_control_no_jobs(login: LoginNode) -> None:
    login.config = login.config.replace(project_managers_control_jobs=False)
    assert not controls(login, add_job(login.database, user="bob", project="physics", command="secret"))


def test_members_and_managers_of_other_projects_control_nothing(login: LoginNode) -> None:
    job = add_job(login.database, user="alice", project="physics.cms", command="secret")
    assert not controls(login, job, BOB)
    execute_sql(login.database, "UPDATE project_members SET role = 'manager' WHERE entry = 'bob'")
    assert controls(login, add_job(login.database, user="alice", project="physics.cms", command="secret"), BOB)
    assert not controls(login, add_job(login.database, user="carla", project="physics", command="secret"), BOB)


def test_a_former_manager_controls_nothing(login: LoginNode) -> None:
    job = add_job(login.database, user="bob", project="physics.cms", command="secret")
    assert login.type(oarproject.main, "--add", "carla", "physics", "--role", "member", user=ROOT).exit == 0
    assert not controls(login, job)
    assert login.type(oarproject.main, "--remove", "carla", "physics", user=ROOT).exit == 0
    assert not controls(login, job)


def test_a_manager_controls_the_jobs_of_a_closed_project(login: LoginNode) -> None:
    job = add_job(login.database, user="bob", project="physics.cms", command="secret")
    assert login.type(oarproject.main, "--close", "physics", user=ROOT).exit == 0
    assert controls(login, job)


def test_a_job_that_moves_to_another_project_leaves_its_manager(login: LoginNode) -> None:
    job = add_job(login.database, user="alice", project="physics.cms", command="secret")
    assert login.type(oaralter.main, job, "--project", "biology").exit == 0
    assert not controls(login, job)


@pytest.mark.parametrize(
    "name", ["Physics", "physics.cmsx", "physics ", "physics.atlas", "physісs", "%", "default", ""]
)
def test_names_that_look_alike_and_undeclared_projects_have_no_manager(login: LoginNode, name: str) -> None:
    assert not controls(login, add_job(login.database, user="bob", project=name, command="secret"))


def test_a_deleted_project_has_no_manager(login: LoginNode) -> None:
    execute_sql(login.database, "DELETE FROM project_members WHERE project_name = 'physics.cms'")
    assert login.type(oarproject.main, "--delete", "physics.cms", user=ROOT).exit == 0
    assert not controls(login, add_job(login.database, user="bob", project="physics.cms", command="secret"))


def test_a_manager_cannot_alter_or_resubmit_what_others_submitted(login: LoginNode) -> None:
    job = add_job(login.database, user="bob", project="physics", command="secret")
    results: list[CommandResult] = [
        login.type(oaralter.main, job, "-n", "mine", user=CARLA),
        login.type(oardel.main, "-s", "TERM", job, user=CARLA),
        login.type(oardel.main, "-c", job, user=CARLA),
        login.type(oarsub.main, "--resubmit", job, user=CARLA),
    ]
    assert all(result.exit != 0 for result in results)
    assert [found.name for found in login.jobs()] == [None]


def test_running_jobs_are_suspended_only_where_users_may_do_so(login: LoginNode) -> None:
    job = add_job(login.database, JobState.RUNNING, on=[1], user="bob", project="physics")
    assert "only oar or root" in login.type(oarhold.main, "-r", job, user=CARLA).err


def test_the_end_of_a_job_names_the_manager_who_deleted_it(login: LoginNode) -> None:
    job = add_job(login.database, user="bob", project="physics")
    assert login.type(oardel.main, job, user=CARLA).exit == 0
    with login.database.snapshot() as tx:
        descriptions = [event.description for event in tx.events.of_jobs([job])[job]]
    assert descriptions == [f"User carla requested to frag the job {job}"]
    leon.run(Runtime(login.config, login.database))
    with login.database.snapshot() as tx:
        assert tx.job_runs.end_causes([job])[job] == Cause(EndCode.MANAGER, {"by": "carla"})

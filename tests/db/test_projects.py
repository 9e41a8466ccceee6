"""Projects: who may use which, every way to choose one, closed projects, and oarproject."""

import grp
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oar.cli import oaralter, oarproject, oarstat, qrsub
from oar.cli.common.command import CommandResult
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.access.records import User
from oar.lib.accounts import projects
from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.sql_projects import Projects
from oar.lib.accounts.states import MemberRole
from oar.lib.base.errors import UserError
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.states import JobState, ProjectMode
from oar.lib.planning.sql_rounds import Rounds
from oar.lib.runtime import Runtime
from oar.lib.submission import resubmission
from tests.builders import add_job, add_resources, execute_sql, state_of
from tests.frontend import ALICE, LoginNode, add_rules

BOB, ROOT = User("bob", 0), User("root", 0)


@pytest.fixture
def login(database: Database) -> LoginNode:
    """A site with the projects physics, physics.cms (of bob) and biology (of alice and bob)."""
    add_resources(database, nodes=2, cores=2)
    add_rules(database)
    with database.begin() as tx:
        for name, parent in (("physics", None), ("physics.cms", "physics"), ("biology", None)):
            tx.projects.create(Project(name, parent=parent))
        for name, user in (("physics.cms", "bob"), ("biology", "alice"), ("biology", "bob")):
            tx.projects.add(Member(name, user))
    made = LoginNode(database)
    made.config = made.config.replace(projects=ProjectMode.MEMBERS, reservation_open=True)
    return made


def refused(result: CommandResult, text: str) -> None:
    assert result.exit != 0
    assert text in result.err


def test_with_free_any_text_is_a_project(login: LoginNode) -> None:
    login.config = login.config.replace(projects=ProjectMode.FREE)
    assert login.submit("--project", "any thing", "x").project == "any thing"
    assert login.submit("x").project == "default"


def test_with_known_a_project_must_exist_and_be_open(login: LoginNode) -> None:
    login.config = login.config.replace(projects=ProjectMode.KNOWN)
    assert login.submit("--project", "physics", "x").project == "physics"
    refused(login.oarsub("--project", "chemistry", "x"), 'the project "chemistry" does not exist')
    login.type(oarproject.main, "--close", "physics", user=ROOT)
    refused(login.oarsub("--project", "physics.cms", "x"), 'the project "physics.cms" is closed')
    assert len(login.jobs()) == 1


def test_a_job_without_project_gets_the_default_or_the_only_project(login: LoginNode) -> None:
    assert login.submit("x").project == "biology"  # alice has no other one
    refused(login.oarsub("x", user=BOB), "the job has no project, and bob has no default")
    assert login.type(oarproject.main, "--default", "physics", user=BOB).exit == 0
    assert login.oarsub("x", user=BOB).exit == 0  # bob is in a project below physics
    assert login.jobs()[-1].project == "physics"
    refused(login.oarsub("x", user=User("eve", 0)), "You have none: ask an administrator.")
    assert login.type(oarproject.main, "--default", "", user=BOB).exit == 0
    refused(login.oarsub("x", user=BOB), "the job has no project, and bob has no default")


def test_users_who_are_not_on_the_machine_are_added_with_a_warning(login: LoginNode) -> None:
    """They may have an account later, or on other machines."""
    result = login.type(oarproject.main, "--add", "nobody,al1ce,@nogroup,@no-such", "physics", user=ROOT)
    assert [line.partition(" on this")[0] for line in result.err.splitlines()] == [
        "# Warning: there is no user al1ce",
        "# Warning: there is no userset or group @no-such",
    ]
    with login.database.snapshot() as tx:
        assert len(tx.projects.members(["physics"])) == 4


def test_the_limits_of_a_user_who_does_not_exist_are_one_line(login: LoginNode) -> None:
    result = login.type(oarstat.main, "--limits", "-u", "al1ce", user=ROOT)
    assert (result.exit != 0, result.out) == (True, "")
    assert 'the user "al1ce" does not exist.' in result.err
    assert login.type(oarstat.main, "--limits", "-u", "bob", user=ROOT).exit == 0  # he is in a project


def _by_option(login: LoginNode, tmp_path: Path) -> CommandResult:
    return login.oarsub("--project", "physics", "x")


def _by_directive(login: LoginNode, tmp_path: Path) -> CommandResult:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#OAR --project physics\ntrue\n")
    script.chmod(0o755)
    return login.oarsub("-S", script)


def _by_array(login: LoginNode, tmp_path: Path) -> CommandResult:
    return login.oarsub("--array", 3, "--project", "physics", "x")


def _by_reservation_job(login: LoginNode, tmp_path: Path) -> CommandResult:
    return login.oarsub("-r", "2099-01-01 00:00:00", "--project", "physics", "x")


def _by_qrsub(login: LoginNode, tmp_path: Path) -> CommandResult:
    start = time.strftime("%Y%m%d%H%M", time.localtime(time.time() + 86400))
    return login.type(qrsub.main, "-a", start, "-d", "1:0:0", "-project", "physics", "-l", "nodes=1")


def _by_estimate(login: LoginNode, tmp_path: Path) -> CommandResult:
    return login.oarsub("--estimate", "--project", "physics", "x")


def _by_user_defaults(login: LoginNode, tmp_path: Path) -> CommandResult:
    defaults = tmp_path / ".oarsubrc"
    defaults.write_text("--project physics\n")
    return login.oarsub("x", environment={"OAR_SUBMIT_DEFAULTS": str(defaults)})


def _by_interactive_job(login: LoginNode, tmp_path: Path) -> CommandResult:
    return login.oarsub("-I", "--project", "physics")


def _by_desktop_job(login: LoginNode, tmp_path: Path) -> CommandResult:
    return login.oarsub("-t", "desktop_computing", "--project", "physics", "x")


WAYS = [
    *(_by_option, _by_directive, _by_array, _by_reservation_job, _by_qrsub, _by_estimate, _by_user_defaults),
    *(_by_interactive_job, _by_desktop_job),
]


@pytest.mark.parametrize("way", WAYS)
def test_a_project_that_the_user_may_not_use_is_refused_and_nothing_stored(
    login: LoginNode, tmp_path: Path, way: Callable[[LoginNode, Path], CommandResult]
) -> None:
    refused(way(login, tmp_path), 'alice may not use the project "physics". Projects: biology')
    assert login.jobs() == []
    assert login.count("reservations") == 0


def test_oaralter_checks_a_new_project_only(login: LoginNode) -> None:
    job = login.submit("--project", "biology", "x").id
    refused(login.type(oaralter.main, job, "--project", "physics"), 'may not use the project "physics"')
    execute_sql(login.database, "DELETE FROM project_members WHERE entry = 'alice'")
    assert login.type(oaralter.main, job, "-n", "name").exit == 0
    assert (login.jobs()[0].project, login.jobs()[0].name) == ("biology", "name")


def test_a_job_is_resubmitted_to_a_project_of_its_user_only(login: LoginNode) -> None:
    ended = add_job(login.database, state=JobState.TERMINATED, user="alice", project="physics")
    with pytest.raises(UserError, match="may not use the project"), login.database.begin() as tx:
        resubmission.resubmit(tx, login.config, ALICE, ended)
    assert len(login.jobs()) == 1


def test_the_command_resubmits_to_a_project_of_its_user_only(login: LoginNode) -> None:
    ended = add_job(login.database, state=JobState.TERMINATED, user="alice", project="physics", command="x")
    refused(login.oarsub("--resubmit", ended), "may not use the project")
    assert len(login.jobs()) == 1


def test_variables_of_the_environment_choose_no_project(login: LoginNode) -> None:
    names = ("OAR_PROJECT_NAME", "OAR_PROJECT", "PROJECT", "SBATCH_ACCOUNT", "SLURM_JOB_ACCOUNT")
    assert login.submit("x", environment=dict.fromkeys(names, "physics")).project == "biology"
    refused(login.oarsub("--env", "OAR_PROJECT_NAME=physics", "x"), "OAR_PROJECT_NAME is set by OAR itself")


def test_a_rule_may_choose_a_project_that_the_user_could_not_which_is_marked(login: LoginNode) -> None:
    add_rules(login.database, "if user == 'alice': project = 'physics'", defaults=False)
    job = login.submit("x")
    assert job.project == "physics"
    with login.database.snapshot() as tx:
        events = tx.events.of_types(job.id, [EventType.PROJECT_BY_RULE])
    assert [event.description for event in events] == ["a rule chose the project physics, which alice may not choose"]


def test_a_rule_cannot_choose_a_project_that_does_not_exist(login: LoginNode) -> None:
    add_rules(login.database, "project = 'nowhere'", defaults=False)
    refused(login.oarsub("x"), 'a rule of the site chose a project: the project "nowhere" does not exist')
    assert login.is_empty()


def test_members_by_userset_and_by_group(login: LoginNode) -> None:
    mine = grp.getgrgid(os.getgid()).gr_name
    refused(login.oarsub("--project", "physics", "x"), "may not use")
    with login.database.begin() as tx:
        tx.access.create_userset("team")
        tx.access.add_to_userset("team", ["al*"])
        tx.projects.add(Member("physics", "@team"))
    assert login.oarsub("--project", "physics", "x").exit == 0
    assert login.type(oarproject.main, "--add", f"@{mine}", "physics.cms", user=ROOT).exit == 0
    with login.database.snapshot() as tx:
        assert f"@{mine}" in projects.entries_of(tx, "root")


def test_waiting_jobs_of_a_closed_project_do_not_start(login: LoginNode) -> None:
    job, other = login.submit("--project", "biology", "x").id, add_job(login.database, project="other")
    login.type(oarproject.main, "--close", "biology", user=ROOT)
    scheduler = MetaScheduler(Runtime(login.config, login.database))
    scheduler.round()
    with login.database.snapshot() as tx:
        reasons = tx.job_waits.stored_reasons()
    assert reasons[job].code == ReasonCode.PROJECT_CLOSED
    assert state_of(login.database, other) is JobState.TO_LAUNCH
    assert login.type(oarproject.main, "--reopen", "biology", user=ROOT).exit == 0
    scheduler.round()
    scheduler.close()
    assert state_of(login.database, job) is JobState.TO_LAUNCH


def test_a_project_takes_jobs_between_its_dates_only(login: LoginNode) -> None:
    def set_dates(name: str, *words: str) -> None:
        assert login.type(oarproject.main, "--change", name, *words, user=ROOT).exit == 0

    set_dates("biology", "--start", "2099-01-01")
    refused(login.oarsub("--project", "biology", "x"), '"biology" takes jobs from 2099-01-01 00:00:00 on. Choose')
    set_dates("biology", "--start", "", "--end", "2001-01-01 10:00:00")
    refused(login.oarsub("--project", "biology", "x"), '"biology" took jobs until 2001-01-01 10:00:00. Choose')
    set_dates("biology", "--end", "2099-01-01")
    assert login.oarsub("--project", "biology", "x").exit == 0
    set_dates("physics", "--end", "2001-01-01")
    message = '"physics", above "physics.cms", took jobs until 2001-01-01 00:00:00'
    refused(login.oarsub("--project", "physics.cms", "x", user=BOB), message)
    assert len(login.jobs()) == 1


def test_waiting_jobs_of_a_project_that_is_over_do_not_start(login: LoginNode) -> None:
    job = login.submit("--project", "biology", "x").id
    assert login.type(oarproject.main, "--change", "biology", "--end", "2001-01-01", user=ROOT).exit == 0
    scheduler = MetaScheduler(Runtime(login.config, login.database))
    scheduler.round()
    scheduler.close()
    with login.database.snapshot() as tx:
        assert tx.job_waits.stored_reasons()[job].code == ReasonCode.PROJECT_CLOSED


def test_dates_are_shown(login: LoginNode) -> None:
    words = ("--create", "x", "--start", "2031-01-01", "--end", "2032-01-01", "--description", "of a grant")
    assert login.type(oarproject.main, *words, user=ROOT).exit == 0
    shown = login.type(oarproject.main, "--show", "x").out
    assert "    Takes jobs from: 2031-01-01 00:00:00\n    Takes jobs until: 2032-01-01 00:00:00\n" in shown
    assert "2031-01-01 2032-01-01 -                        of a grant" in login.type(oarproject.main).out
    assert login.type(oarproject.main, "--change", "x", "--description", "new", user=ROOT).exit == 0
    record = json.loads(login.type(oarproject.main, "--show", "x", "-J").out)
    assert (record["description"], record["end_date"] - record["start_date"]) == ("new", 365 * 86400)


def test_managers_change_the_members_of_their_projects_and_of_those_below(login: LoginNode) -> None:
    with login.database.begin() as tx:
        tx.projects.add(Member("physics", "alice", MemberRole.MANAGER))
    assert login.type(oarproject.main, "--add", "eve,@team", "physics.cms").exit == 0
    assert login.type(oarproject.main, "--remove", "bob", "physics.cms").exit == 0
    refused(login.type(oarproject.main, "--add", "eve", "biology"), 'you do not manage the project "biology"')
    refused(login.type(oarproject.main, "--create", "mine"), "this is for administrators")
    refused(login.type(oarproject.main, "--remove", "nobody", "physics.cms"), '"nobody" is no member')
    told = login.type(oarproject.main, "--show", "physics.cms").out
    assert told.startswith("Project physics.cms, open, 1 shares\n    Parent: physics\n    Fair share: target 50.0%")
    assert "    Members:\n        @team            shares 1\n        eve              shares 1, target 50.0%" in told
    stranger = login.type(oarproject.main, "--show", "physics", "-J", user=User("eva", 0))
    assert json.loads(stranger.out)["members"] is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--create", "a,b"), '"a,b" is no name of a project'),
        (("--create", "physics"), 'the project "physics" exists'),
        (("--create", "x", "--parent", "nowhere"), 'the project "nowhere" does not exist'),
        (("--add", "a b", "physics"), '"a b" is no user, @userset or @group'),
        (("--delete", "physics"), 'has sub-projects, such as "physics.cms"'),
        (("--delete", "biology"), 'the project "biology" has jobs or accounting'),
        (("--shares", "-1", "physics"), ""),
        (("--create", "x", "--start", "soon"), '"soon" is not a date'),
        (("--create", "x", "--start", "2030-01-01", "--end", "2030-01-01"), "is not after its start"),
        (("--change", "physics", "--end", "@999999999999"), "must be between 1970 and 9999"),
        (("--change", "physics"), "--change needs --description, --start or --end"),
        (("--change", "nowhere", "--end", "2030-01-01"), 'the project "nowhere" does not exist'),
        (("--end", "2030-01-01"), "need --create or --change"),
        (("--close", "nowhere"), 'the project "nowhere" does not exist'),
    ],
)
def test_what_oarproject_refuses_changes_nothing(login: LoginNode, words: tuple[str, ...], told: str) -> None:
    login.submit("x")
    before = login.type(oarproject.main, "--export", user=ROOT).out
    refused(login.type(oarproject.main, *words, user=ROOT), told)
    assert login.type(oarproject.main, "--export", user=ROOT).out == before


def test_an_export_can_be_imported_after_a_dry_run(login: LoginNode, tmp_path: Path) -> None:
    text = login.type(oarproject.main, "--export", user=ROOT).out
    assert text.startswith("project,parent,user,role,shares,start,end,state,description,period_start")
    assert "\nbiology,,,,1,,,open,,,,,\nbiology,,alice,member,1,,,,,,,,\n" in text
    file = tmp_path / "projects.csv"
    file.write_text(text + "new,physics,,,5,,2099-01-01\nnew,physics,eve,manager,2\n")
    dry = login.type(oarproject.main, "--import", file, user=ROOT)
    assert 'new project "new"\nmanager eve of project "new"\n# Nothing was changed' in dry.out
    assert login.type(oarproject.main, "--export", user=ROOT).out == text
    assert login.type(oarproject.main, "--import", file, "--apply", user=ROOT).exit == 0
    again = login.type(oarproject.main, "--export", user=ROOT).out
    assert "new,physics,,,5,,2099-01-01 00:00:00,open,,,,,\nnew,physics,eve,manager,2,,,,,,,,\n" in again
    file.write_text("project,parent,user,role,shares\nnew,physics,,,6\n")  # without dates: they are kept
    assert login.type(oarproject.main, "--import", file, "--apply", user=ROOT).exit == 0
    assert "new,physics,,,6,,2099-01-01 00:00:00" in login.type(oarproject.main, "--export", user=ROOT).out
    file.write_text("project,parent,user,role,shares\na,b,,,1\nb,a,,,1\n")
    refused(login.type(oarproject.main, "--import", file, "--apply", user=ROOT), "is below itself")
    refused(login.type(oarproject.main, "--import", file), "")


def test_free_projects_cost_a_submission_no_statement(login: LoginNode, monkeypatch: pytest.MonkeyPatch) -> None:
    login.config = login.config.replace(projects=ProjectMode.FREE)
    for name in ("is_open", "usable", "default_of", "listed_groups", "closed"):
        monkeypatch.delattr(Projects, name)
    assert login.oarsub("--project", "physics", "x").exit == 0


def test_free_projects_are_shown_without_reading_the_consumption(
    login: LoginNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    login.config = login.config.replace(projects=ProjectMode.FREE)
    monkeypatch.delattr(Rounds, "consumption")
    assert login.type(oarproject.main, "--show", "physics").exit == 0
    assert "biology" in login.type(oarproject.main, "--list").out

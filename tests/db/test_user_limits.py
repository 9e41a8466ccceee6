"""The limits of a user: rules with the used amounts, fair share, the priority of jobs."""

import json
from pathlib import Path
from typing import Any

import pytest

from oar.cli import oarstat
from oar.cli.common.command import CommandResult
from oar.kao.rounds import user_limits
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.user_limits import RuleUse, UserLimits, limits_of
from oar.lib.access.records import User
from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.sql_accounts import Accounts, WaitingGroup
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobPriority, JobState, JobTypeName, ProjectMode
from oar.lib.runtime import Runtime
from tests.builders import add_job, add_resources, execute_sql
from tests.frontend import ALICE, Frontend

RUNNING = JobState.RUNNING
ROOT = User("root", 0)


def store(database: Database, path: str, text: str) -> None:
    """Store a file as the server read it."""
    execute_sql(database, "INSERT INTO policy_log (kind, name, value) VALUES ('file', %s, %s)", path, text)


def quotas(database: Database, **sections: object) -> None:
    store(database, Config().quotas_conf_file, json.dumps(sections))


def limits(database: Database, config: Config, user: str = "alice") -> UserLimits:
    with database.snapshot() as tx:
        return limits_of(tx, config, user, ROOT)


def used(rule: RuleUse) -> dict[str, tuple[float, float]]:
    return {measure.name: (measure.used, measure.limit) for measure in rule.measures}


def plan(database: Database, config: Config) -> None:
    """Run two scheduling passes."""
    scheduler = MetaScheduler(Runtime(config, database))
    scheduler.round()
    scheduler.round()
    scheduler.close()


QUOTAS = Config(quotas=True)


@pytest.fixture
def cores(database: Database) -> list[int]:
    return add_resources(database, nodes=2, cores=4)


def test_a_quota_is_shown_with_what_is_used_and_what_frees_it(database: Database, cores: list[int]) -> None:
    quotas(database, quotas={"*,*,*,/": [6, 3, -1], "*,*,*,bob": [1], "*,ml,*,*": ["0.5*ALL", -1, 10]})
    add_job(database, RUNNING, on=cores[:2], user="alice", project="ml", walltime=7200)
    first = add_job(database, RUNNING, on=cores[2:3], user="alice", project="ml", walltime=3600)
    add_job(database, RUNNING, on=cores[3:5], user="bob", project="ml")
    for types in (("besteffort",), (JobTypeName.NO_QUOTAS,), ("container",)):
        add_job(database, RUNNING, on=cores[5:6], user="alice", project="ml", types=types)
    own, project = limits(database, QUOTAS).rules
    assert (own.rule, own.user, own.project, used(own)) == (
        "*,*,*,/",
        "alice",
        None,
        {"resources": (3, 6), "jobs": (2, 3)},
    )
    assert own.next_end is not None
    assert own.next_end.job_id == first
    assert (project.project, used(project)["resources"]) == ("ml", (5, 4))
    assert used(project)["hours"][0] == pytest.approx(2 * 2 + 1 + 2, abs=0.1)


def test_the_scheduler_counts_the_same(database: Database, cores: list[int], tmp_path: Path) -> None:
    """The usage in the reason of a job that waits for a quota is the usage shown, and the job."""
    text = json.dumps({"quotas": {"*,*,*,/": [4, -1, 5]}})
    file = tmp_path / "quotas.json"
    file.write_text(text)
    config = QUOTAS.replace(quotas_conf_file=str(file))
    add_job(database, RUNNING, on=cores[:3], user="alice", walltime=3600)
    add_job(database, RUNNING, on=cores[3:4], user="bob", walltime=3600)
    waiting = add_job(database, user="alice", walltime=3600)
    add_job(database, user="alice", walltime=3600 * 9)
    plan(database, config)
    with database.snapshot() as tx:
        reasons = tx.job_waits.reasons([waiting, waiting + 1])
    (rule,) = limits(database, config).rules
    assert reasons[waiting + 1].data["used"][0] == used(rule)["resources"][0] + 1


def test_rules_are_those_of_jobs_that_the_user_can_submit(database: Database, cores: list[int]) -> None:
    quotas(database, quotas={"*,*,*,*": [10], "*,*,*,bob": [5], "*,ml,*,/": [7], "/,*,besteffort,*": [2]})
    add_job(database, user="alice", project="ml")
    rules = {(rule.rule, rule.queue) for rule in limits(database, QUOTAS).rules}
    assert {("*,*,*,*", None), ("*,ml,*,/", None), ("/,*,besteffort,*", "default")} <= rules
    assert "*,*,*,bob" not in {rule for rule, _ in rules}
    assert not [rule for rule in limits(database, Config()).rules if rule.kind == "quota"]  # QUOTAS=no


def test_a_limit_on_waiting_jobs_counts_as_a_submission_does(database: Database, cores: list[int]) -> None:
    quotas(database, waiting={"*,*,*,/": [10, 5]})
    add_job(database, user="alice")
    add_job(database, user="bob")
    (rule,) = limits(database, Config()).rules
    assert (rule.kind, rule.user, used(rule)["jobs"]) == ("waiting", "alice", (1, 10))


WAITING = {
    "*,*,*,*": [10, 5],
    "*,*,*,/": [10, 5],
    "*,/,*,*": [10],
    "*,/,*,/": [10, 5],
    "/,*,*,*": [10],
    "*,*,besteffort,*": [10, 5],
    "*,ml,deploy,/": [10],
    "besteffort,*,*,alice": [10, 5],
}


@pytest.mark.parametrize("rules", [*({key: WAITING[key]} for key in WAITING), WAITING])
def test_one_statement_counts_the_waiting_jobs_of_all_rules(
    database: Database, cores: list[int], monkeypatch: pytest.MonkeyPatch, rules: dict[str, list[int]]
) -> None:
    """The sums are those that a submission is compared with."""
    quotas(database, waiting=rules)
    for project in ("ml", "bio", "default"):
        for types in ((), ("besteffort",), ("deploy", "deploy=standby", "besteffort")):
            add_job(database, user="alice", project=project, types=types)
            add_job(database, user="bob", project=project, types=types, state=JobState.HOLD)
            add_job(database, user="bob", project="other", types=types, queue="besteffort")
    add_job(database, user="alice", project="ml", queue="besteffort")
    execute_sql(database, "UPDATE jobs SET message = 'R=' || job_id")
    statements = []
    read = Accounts.waiting_groups

    def waiting_groups(accounts: Accounts, *values: Any, **names: Any) -> list[WaitingGroup]:
        statements.append(read)
        return read(accounts, *values, **names)

    monkeypatch.setattr(Accounts, "waiting_groups", waiting_groups)
    found = limits(database, Config()).rules
    assert (len(statements), {rule.rule for rule in found}) == (1, set(rules))
    with database.snapshot() as tx:
        for rule in found:
            present = tx.accounts.waiting((rule.queue, rule.project, rule.type, rule.user), has_seconds=True)
            expected = {"jobs": present.jobs, "hours": present.seconds / 3600}
            assert all(number == expected[name] for name, (number, _) in used(rule).items())
    assert any(number for rule in found for number, _ in used(rule).values())


def test_quotas_of_several_projects_queues_and_types_count_each_their_own_jobs(
    database: Database, cores: list[int]
) -> None:
    keys = ("*,/,*,*", "/,*,*,/", "*,*,besteffort,*", "besteffort,/,*,*", "*,ml,deploy,/")
    quotas(database, quotas={key: [100] for key in keys})
    for place, (user, project) in enumerate([("alice", "ml"), ("alice", "bio"), ("bob", "ml"), ("bob", "other")]):
        add_job(database, RUNNING, on=cores[place : place + 1], user=user, project=project)
        add_job(database, RUNNING, on=cores[4:6], user=user, project=project, types=["besteffort"], queue="besteffort")
    add_job(database, RUNNING, on=cores[7:], user="alice", project="ml", types=["deploy", "deploy=standby"])
    sums = {
        (rule.rule, rule.queue, rule.project): used(rule)["resources"][0] for rule in limits(database, QUOTAS).rules
    }
    assert {key: number for key, number in sums.items() if number} == {
        ("*,/,*,*", None, "ml"): 3,
        ("*,/,*,*", None, "bio"): 1,
        ("/,*,*,/", "default", None): 3,
        ("*,*,besteffort,*", None, None): 8,
        ("besteffort,/,*,*", "besteffort", "ml"): 4,
        ("besteffort,/,*,*", "besteffort", "bio"): 2,
        ("*,ml,deploy,/", None, "ml"): 1,
    }


def test_the_projects_of_a_user_are_bounded(
    database: Database, cores: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who gives each job another project does not make the answer long."""
    monkeypatch.setattr(user_limits, "MAX_PROJECTS", 2)
    quotas(database, quotas={"*,/,*,*": [3]})
    for name in ("a", "b", "c"):
        add_job(database, user="alice", project=name)
    assert [rule.project for rule in limits(database, QUOTAS).rules] == ["a", "b", "default"]


@pytest.mark.parametrize("mode", [ProjectMode.KNOWN, ProjectMode.MEMBERS])
def test_projects_without_jobs_are_shown_to_the_user_and_to_administrators(
    database: Database, cores: list[int], mode: ProjectMode
) -> None:
    """The projects of a user tell of which he is a member."""
    quotas(database, quotas={"*,/,*,*": [3], "*,*,*,/": [5]})
    with database.begin() as tx:
        for name in ("secret", "ml"):
            tx.projects.create(Project(name))
            tx.projects.add(Member(name, "bob"))
        tx.projects.set_default("bob", "secret")
    config = QUOTAS.replace(projects=mode, job_priority=JobPriority.FAIRSHARE)

    def shown(caller: User | None) -> set[str]:
        with database.snapshot() as tx:
            found = limits_of(tx, config, "bob", caller)
        assert {"*,/,*,*", "*,*,*,/"} == {rule.rule for rule in found.rules}
        projects = {share.project for share in found.fair_share}
        assert projects == {rule.project for rule in found.rules if rule.rule == "*,/,*,*"}
        return projects

    assert shown(None) == shown(ALICE) == {"default"}
    add_job(database, user="bob", project="ml")
    assert shown(None) == shown(ALICE) == {"ml"}
    assert shown(User("bob", 1)) == shown(ROOT) == {"ml", "secret"}
    typed = show(database, config, "-u", "bob").out
    assert ("Project ml: karma" in typed, "secret" in typed) == (True, False)


def test_a_broken_file_limits_nothing(database: Database, cores: list[int]) -> None:
    store(database, Config().quotas_conf_file, "{")
    assert limits(database, QUOTAS).rules == ()


def consume(database: Database, user: str, project: str, seconds: int) -> None:
    execute_sql(
        database,
        "INSERT INTO accounting (window_start, window_stop, accounting_user, accounting_project, queue_name,"
        " consumption_type, consumption) VALUES (extract(epoch FROM now())::int - 90000,"
        " extract(epoch FROM now())::int - 3600, %s, %s, 'default', 'USED', %s)",
        user,
        project,
        seconds,
    )


def test_fair_share_has_terms_and_a_place_among_users(database: Database, cores: list[int]) -> None:
    config = Config(job_priority=JobPriority.FAIRSHARE)
    add_job(database, RUNNING, on=cores, user="root")
    for user, seconds in (("alice", 50), ("bob", 10), ("carol", 40)):
        consume(database, user, "ml", seconds)
        add_job(database, user=user, project="ml")
    plan(database, config)
    found = limits(database, config)
    share = next(share for share in found.fair_share if share.project == "ml")
    assert (share.place, share.users) == (3, 3)
    assert share.karma == pytest.approx(sum(term.karma for term in share.terms))
    assert share.ahead is not None
    assert [(user.user, user.by) for user in share.ahead] == [("bob", "user"), ("carol", "user")]
    with database.snapshot() as tx:
        assert limits_of(tx, config, "alice", ROOT, shows_others=False).fair_share[-1].ahead is None
    assert "        ahead: bob (karma " in show(database, config).out
    (job,) = found.jobs
    assert (job.order, job.priority) == ("FAIRSHARE", None)
    assert job.karma == pytest.approx(share.karma)
    assert limits(database, Config()).fair_share == ()


def test_the_priority_of_several_factors_is_computed_as_the_scheduler_does(
    database: Database, cores: list[int], tmp_path: Path
) -> None:
    weights = tmp_path / "priority.yaml"
    weights.write_text("work_weight: 3\nqos_weight: 2\nnice_weight: 1\nqueue_weight: 5\nqueue_coefs: {default: 0.5}\n")
    config = Config(job_priority=JobPriority.MULTIFACTOR, priority_conf_file=str(weights))
    add_job(database, RUNNING, on=cores, user="bob")
    add_job(database, user="alice", types=["qos=0.5"])
    add_job(database, user="alice", types=["nice=1"])
    plan(database, config)
    shown = limits(database, config)
    assert shown.fair_share == ()  # karma has no weight
    jobs = shown.jobs
    work = 3 * (1 / 3600)
    assert [job.priority for job in jobs] == pytest.approx([1 + 2.5 + work, -1 + 2.5 + work])


def show(database: Database, config: Config, *words: str, user: User = ALICE) -> CommandResult:
    return Frontend(database, config).type(oarstat.main, "--limits", *words, user=user)


def test_oarstat_prints_limits(database: Database, cores: list[int]) -> None:
    quotas(database, quotas={"*,*,*,/": [1, -1, 1000.5]}, waiting={"*,*,*,*": [10000]})
    job = add_job(database, RUNNING, on=cores[:1], user="alice")
    text = show(database, QUOTAS).out
    assert "    Rule *,*,*,/: jobs of user alice\n        resources      1 of 1, used up\n" in text
    assert f"of 1,000.5\n        freed next by job {job}, ends by 20" in text
    assert (
        "Limits on waiting jobs:\n    Rule *,*,*,*: jobs of all users together\n"
        "        jobs           0 of 10,000\n        freed when waiting jobs start or are deleted (oardel)\n"
    ) in text
    record = json.loads(show(database, QUOTAS, "-J", "-u", "nobody").out)
    assert (record["user"], record["rules"][0]["measures"][0]["used"]) == ("nobody", 0)
    assert "Quotas: jobs that hold resources: none" in show(database, Config()).out
    for format_ in ("-Y", "-X"):
        assert "alice" in show(database, QUOTAS, format_).out


def test_a_user_sees_the_projects_that_he_may_choose(database: Database) -> None:
    with database.begin() as tx:
        tx.projects.create(Project("physics"))
        tx.projects.create(Project("physics.cms", parent="physics"))
        tx.projects.add(Member("physics.cms", "alice"))
        tx.projects.set_default("alice", "physics.cms")
    config = Config(projects=ProjectMode.MEMBERS)
    assert "Projects: physics, physics.cms (default)\n" in show(database, config).out
    record = json.loads(show(database, config, "-J").out)
    assert (record["projects"], record["default_project"]) == (["physics", "physics.cms"], "physics.cms")
    assert json.loads(show(database, config, "-J", "-u", "alice", user=User("bob", 1001)).out)["projects"] == []
    assert "Projects:" not in show(database, Config()).out


def test_limits_do_not_go_with_jobs(database: Database) -> None:
    assert show(database, Config(), "-j", "1").exit != 0
    assert "--limits can only be combined with" in show(database, Config(), "--start").err

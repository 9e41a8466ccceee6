"""Limits on waiting jobs: what is refused, what counts, and submissions at the same time."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oar.cli import oaralter
from oar.lib.access.records import User
from oar.lib.accounts import sql_accounts, waiting_limits
from oar.lib.accounts.waiting_limits import NewJobs, TooManyWaiting
from oar.lib.base.errors import UserError
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.lib.submission import resubmission
from tests.builders import add_job, add_resources, execute_sql
from tests.frontend import LoginNode, add_rules

BOB = User("bob", 0)
CONFIG = Config()


def limit(database: Database, **rules: object) -> None:
    """Store a quota file as the server does; in the names of the rules ``x`` stands for the whole rule ``*,*,*,/``."""
    named = {key if "," in key else "*,*,*,/": value for key, value in rules.items()}
    text = json.dumps({"waiting": named})
    execute_sql(
        database,
        "INSERT INTO policy_log (kind, name, value) VALUES ('file', %s, %s)",
        CONFIG.quotas_conf_file,
        text,
    )


@pytest.fixture
def login(database: Database) -> LoginNode:
    add_resources(database, nodes=2, cores=2)
    add_rules(database)
    return LoginNode(database)


def test_a_submission_beyond_the_limit_is_refused_as_a_whole(login: LoginNode) -> None:
    limit(login.database, x=[5])
    assert login.oarsub("--array", 4, "x").exit == 0
    result = login.oarsub("--array", 2, "x")
    assert result.exit == 8
    assert result.err == (
        '# Error: You have 4 of 5 waiting jobs (rule "*,*,*,/"); this array has 2. Submit fewer, or wait.\n'
    )
    assert len(login.jobs()) == 4
    assert login.oarsub("x", user=BOB).exit == 0  # another user has a limit of his own
    assert login.oarsub("x").exit == 0
    assert login.oarsub("x").exit == 8


def test_without_a_section_or_with_a_broken_file_nothing_is_limited(login: LoginNode) -> None:
    for text in ('{"quotas": {}}', "{", '{"waiting": 3}', '{"waiting": {"a,b": [1]}}', "$Gantt_quotas"):
        execute_sql(
            login.database,
            "INSERT INTO policy_log (kind, name, value) VALUES ('file', %s, %s)",
            CONFIG.quotas_conf_file,
            text,
        )
        assert login.oarsub("x").exit == 0


@pytest.mark.parametrize(
    ("state", "counts"),
    [(JobState.WAITING, True), (JobState.HOLD, True), (JobState.TO_LAUNCH, True), (JobState.RUNNING, False)],
)
def test_jobs_count_until_they_are_launched(login: LoginNode, state: JobState, counts: bool) -> None:
    limit(login.database, x=1)
    add_job(login.database, state=state, user="alice")
    assert login.oarsub("x").exit == (8 if counts else 0)


def test_queue_project_type_and_all_users_are_counted(login: LoginNode) -> None:
    database = login.database
    limit(database, **{"*,p,*,*": [2], "*,*,besteffort,/": [1], "/,*,*,/": [3]})
    assert login.oarsub("--project", "p", "x", user=BOB).exit == 0
    assert login.oarsub("--project", "p", "x").exit == 0
    told = login.oarsub("--project", "p", "x").err
    assert 'All users together have 2 of 2 waiting jobs in project p (rule "*,p,*,*"); this is another one' in told
    assert login.oarsub("-t", "besteffort", "x").exit == 0
    assert "in type besteffort" in login.oarsub("-t", "besteffort", "x").err
    assert login.oarsub("--array", 2, "x").exit == 0
    assert "in queue default" in login.oarsub("x").err


def test_requested_resource_hours_are_limited(login: LoginNode) -> None:
    limit(login.database, x=[-1, 10])
    assert login.oarsub("-l", "/resource_id=4,walltime=2", "x").exit == 0
    told = login.oarsub("-l", "/resource_id=1,walltime=3", "x").err
    assert "Your waiting jobs request 8.0 of 10 resource hours" in told
    assert "this request has 3.0" in told
    assert login.oarsub("-l", "/resource_id=1,walltime=2", "x").exit == 0


def test_an_altered_or_resubmitted_job_is_checked_too(login: LoginNode) -> None:
    limit(login.database, **{"*,p,*,/": [1], "*,*,*,/": [2]})
    login.submit("--project", "p", "x")
    other = login.submit("x").id
    result = login.type(oaralter.main, other, "--project", "p")
    assert result.exit != 0
    assert "waiting jobs in project p" in result.err
    assert login.type(oaralter.main, other, "-n", "name").exit == 0
    ended = add_job(login.database, state=JobState.TERMINATED, user="alice", project="q")
    with pytest.raises(UserError, match="You have 2 of 2 waiting jobs"), login.database.begin() as tx:
        resubmission.resubmit(tx, CONFIG, User("alice", 0), ended)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=8), most=st.integers(1, 12), user=st.sampled_from("*/"))
def test_submissions_at_the_same_time_never_exceed_the_limit(
    database: Database, sizes: list[int], most: int, user: str
) -> None:
    execute_sql(database, "DELETE FROM jobs")
    limit(database, **{f"*,*,*,{user}": [most]})
    begin = threading.Barrier(len(sizes))

    def submit(size: int) -> bool:
        begin.wait()
        try:
            with database.begin() as tx:
                text = tx.accounts.server_file(CONFIG.quotas_conf_file)
                waiting_limits.check(tx, text, NewJobs("default", "p", "alice", (), size, 0))
                for _ in range(size):
                    tx.execute("INSERT INTO jobs (job_user, queue_name, project) VALUES ('alice', 'default', 'p')")
        except TooManyWaiting:
            return False
        return True

    with ThreadPoolExecutor(len(sizes)) as pool:
        accepted = list(pool.map(submit, sizes))
    with database.snapshot() as tx:
        waiting = tx.value("SELECT count(*) FROM jobs")
    assert waiting == sum(size for size, is_in in zip(sizes, accepted, strict=True) if is_in) <= most
    for size, is_in in zip(sizes, accepted, strict=True):  # none was refused that would fit even now
        assert is_in or waiting + size > most


def test_the_count_reads_an_index_of_the_waiting_jobs_of_the_user(database: Database) -> None:
    names = {"queue": None, "project": None, "type": None, "user": "alice", "but": 0}
    with database.begin() as tx:
        tx.execute("SET LOCAL enable_seqscan TO off")
        plan = tx.column(f"EXPLAIN {sql_accounts._NUMBER_OF_USER}", names)
    assert "jobs_waiting_user" in "".join(plan)

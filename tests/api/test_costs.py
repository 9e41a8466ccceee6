"""What requests cost is kept by counts: what each sends to PostgreSQL, its BEGIN and COMMIT among it."""

from collections.abc import Callable

import httpx

from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources


def test_one_job_is_one_statement_while_it_lives(sent: Callable[[str], list[str]], database: Database) -> None:
    resources = add_resources(database)
    running = add_job(database, JobState.RUNNING, on=resources[:2], types=("deploy", "besteffort"))
    waiting = add_job(database)
    for job in (running, waiting):
        assert len(sent(f"/v1/jobs/{job}")) == 1


def test_one_job_that_has_ended_is_two(sent: Callable[[str], list[str]], database: Database) -> None:
    ended = add_job(database, JobState.TERMINATED, on=add_resources(database)[:1])
    assert len(sent(f"/v1/jobs/{ended}")) == 2


def test_a_page_is_one_statement(sent: Callable[[str], list[str]], database: Database) -> None:
    for _ in range(5):
        add_job(database)
    assert len(sent("/v1/jobs?limit=3")) == 1


def test_a_page_of_all_details_has_as_many_however_long_it_is(
    sent: Callable[[str], list[str]], database: Database
) -> None:
    resources = add_resources(database)
    add_job(database, JobState.TERMINATED, on=resources[:1])
    add_job(database, JobState.RUNNING, on=resources[:1])
    few = sent("/v1/jobs?state=all&details=true")
    for _ in range(10):
        add_job(database, JobState.TERMINATED, on=resources[:1])
        add_job(database)
    assert len(sent("/v1/jobs?state=all&details=true")) == len(few) == 6


def test_a_token_costs_one_statement_more(
    sent: Callable[..., list[str]], nobody: httpx.Client, database: Database
) -> None:
    job = add_job(database)
    assert len(sent(f"/v1/jobs/{job}", nobody)) == 2


def test_a_fair_share_is_one_for_each_question(sent: Callable[[str], list[str]]) -> None:
    """The queues, the consumption of all, that of the user by pieces of time, and who waits."""
    assert len(sent("/v1/fairshare/alice")) == 2 + 4

"""Rounds that start what can start now, and full plans that follow in slices: what is written, and as of which date."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from oar.cli import oarstat
from oar.cli.common.command import invoke
from oar.kao.rounds.meta_sched import LONGEST_DOUBT, MetaScheduler
from oar.lib.base.times import format_date
from oar.lib.bus.messages import Effect, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import ROUND_LOCK
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.builders import add_resources
from tests.db.test_meta_sched import NOW, ask, at, clocked, job, submit  # noqa: F401 - a fixture
from tests.db.test_oarstat_explain import ALICE

_STARTS = """
    SELECT m.moldable_job_id, p.start_time FROM gantt_jobs_predictions_visu p
    JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id
    JOIN jobs j ON j.job_id = m.moldable_job_id WHERE j.state = 'Waiting'"""


def with_urgent_time(database: Database, seconds: float) -> Runtime:
    config = Config(job_resource_manager_property_db_field="cpuset", scheduler_urgent_time=seconds)
    return Runtime(config, database)


@pytest.fixture
def scheduler(clocked: Database) -> Any:  # noqa: F811
    """A scheduler whose rounds decide on nothing but what is urgent."""
    made = MetaScheduler(with_urgent_time(clocked, 1e-9), goes_on=True)
    yield made
    made.close()


def starts(database: Database) -> dict[int, int]:
    """The predicted starts of the waiting jobs, in seconds from the date of the first round."""
    return {number: start - NOW for number, start in ask(database, _STARTS)}


def age(database: Database) -> int:
    with database.snapshot() as tx:
        return tx.plan.age()


def told_ages(database: Database, number: int) -> set[int | None]:
    """How old the foreseen start of a job may be, as each record of it says; the texts say the same."""
    runtime = with_urgent_time(database, 0.3)
    span = f"{format_date(NOW)}, {format_date(NOW + 1000)}"

    def ask_oarstat(*words: str) -> str:
        result = invoke(oarstat.main, [*words], runtime=runtime, user=ALICE)
        assert (result.exit, result.err) == (0, ""), words
        return result.out

    records = [
        json.loads(ask_oarstat("-J", "-f", "-j", str(number)))[str(number)],
        json.loads(ask_oarstat("-J", "--start"))[str(number)],
        json.loads(ask_oarstat("-J", "--explain", str(number)))[str(number)]["start"],
        json.loads(ask_oarstat("-J", "-g", span))["jobs"][str(number)],
    ]
    ages = {record["foreseen_at"] for record in records}
    for words in (("-f", "-j", str(number)), ("--start",), ("--explain", str(number)), ("-g", span, "--ascii")):
        text = ask_oarstat(*words).lower()
        assert ("foreseen" in text and format_date(NOW) in text) is (ages != {None}), words
    return ages


def end(database: Database, number: int) -> None:
    with database.begin() as tx:
        for state in (JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING, JobState.TERMINATED):
            tx.jobs.move([number], state, list(JobState))
        tx.jobs.close([number])


def let_the_plan_follow(scheduler: MetaScheduler) -> None:
    """Make slices until nothing is left; the pause between two full plans is none."""
    while scheduler.due() is not None:
        scheduler._tail._not_before = 0.0
        scheduler.go_on()


def test_a_round_starts_what_can_start_and_the_plan_follows(
    clocked: Database,  # noqa: F811
    scheduler: MetaScheduler,
    sent: list[Effect],
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    first, second, third = (submit(clocked, "/resource_id=1,walltime=0:1:0") for _ in range(3))
    scheduler.round()
    assert job(clocked, first, "state") == "toLaunch"
    assert starts(clocked) == {}
    sent.clear()
    let_the_plan_follow(scheduler)
    assert starts(clocked) == {second: 61, third: 122}
    assert "waiting for resources" in job(clocked, third, "scheduler_info")
    assert [type(effect) for effect in sent] == [Wake]
    scheduler.round()
    assert starts(clocked) == {second: 61, third: 122}
    assert scheduler.next_start == NOW + 61


def four_in_turn(database: Database) -> tuple[int, ...]:
    """Submit four jobs of a minute that all need the only resource."""
    return tuple(submit(database, "/resource_id=1,walltime=0:1:0") for _ in range(4))


def end_the_first(clocked: Database, scheduler: MetaScheduler, jobs: Sequence[int]) -> None:  # noqa: F811
    """End the first of four jobs early: the second starts, the predictions of the others are of before."""
    first, second, third, fourth = jobs
    assert (starts(clocked), age(clocked)) == ({second: 61, third: 122, fourth: 183}, 0)
    end(clocked, first)
    at(clocked, NOW + 10)
    scheduler.round()
    assert job(clocked, second, "state") == "toLaunch"
    assert (starts(clocked), age(clocked)) == ({third: 122, fourth: 183}, NOW)
    assert told_ages(clocked, third) == {NOW}


def test_old_predictions_stay_and_tell_their_age_until_they_are_renewed(
    clocked: Database,  # noqa: F811
    scheduler: MetaScheduler,
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    jobs = _, _, third, fourth = four_in_turn(clocked)
    scheduler.round()
    let_the_plan_follow(scheduler)
    scheduler.round()
    end_the_first(clocked, scheduler, jobs)
    let_the_plan_follow(scheduler)
    scheduler.round()
    assert (starts(clocked), age(clocked)) == ({third: 71, fourth: 132}, 0)
    assert told_ages(clocked, third) == {None}


def test_a_burst_of_ends_does_not_renew_many_predictions_each_time(
    clocked: Database,  # noqa: F811
    sent: list[Effect],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What starts is as ever; the plan of the others follows a little later."""
    for name, value in (("MANY", 3), ("REST_OF_EACH", 1e6), ("LONGEST_PAUSE", 1e6)):
        monkeypatch.setattr(f"oar.kao.rounds.plan_tail.{name}", value)
    add_resources(clocked, nodes=1, cores=1)
    jobs = _, _, third, fourth = four_in_turn(clocked)
    scheduler = MetaScheduler(with_urgent_time(clocked, 1e9), goes_on=True)
    scheduler.round()
    end_the_first(clocked, scheduler, jobs)
    assert (scheduler.due() or 0) > 0
    sent.clear()
    let_the_plan_follow(scheduler)
    assert starts(clocked) == {third: 71, fourth: 132}
    assert [type(effect) for effect in sent] == [Wake]
    scheduler._tail._rests_until = 0.0
    scheduler.round()
    assert (starts(clocked), age(clocked)) == ({third: 71, fourth: 132}, 0)
    scheduler.close()


def test_predictions_of_a_scheduler_that_is_gone_stay_until_there_are_new_ones(
    clocked: Database,  # noqa: F811
    scheduler: MetaScheduler,
    runtime: Runtime,
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    first, second, third = (submit(clocked, "/resource_id=1,walltime=0:1:0") for _ in range(3))
    MetaScheduler(runtime).round()
    end(clocked, first)
    at(clocked, NOW + 10)
    scheduler.round()
    assert job(clocked, second, "state") == "toLaunch"
    assert (starts(clocked), age(clocked)) == ({third: 122}, NOW)
    let_the_plan_follow(scheduler)
    assert starts(clocked) == {third: 71}


def test_a_full_plan_goes_on_while_other_rounds_are_made_and_tells_nothing_about_what_they_have_decided(
    clocked: Database,  # noqa: F811
    scheduler: MetaScheduler,
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    first, second, third = (submit(clocked, "/resource_id=1,walltime=0:1:0") for _ in range(3))
    scheduler.round()
    scheduler.go_on()  # the plan is made, and neither checked nor written
    end(clocked, first)
    at(clocked, NOW + 10)
    scheduler.round()
    assert job(clocked, second, "state") == "toLaunch"
    let_the_plan_follow(scheduler)
    assert starts(clocked) == {third: 71}


@pytest.fixture
def doubtful(clocked: Database, tmp_path: Path) -> Iterator[tuple[MetaScheduler, int]]:  # noqa: F811
    """A besteffort job that begins at once in a full plan: the one before it, that counts, begins when it is over."""
    file = tmp_path / "quotas.json"
    file.write_text('{"quotas": {"*,*,besteffort,*": [-1, 1, -1]}}')
    config = with_urgent_time(clocked, 1e-9).config.replace(
        quotas=True, quotas_conf_file=str(file), scheduler_besteffort_duration=20
    )
    add_resources(clocked, nodes=3, cores=1)
    with clocked.begin() as tx:
        for queue in ("default", "besteffort"):
            tx.queues.update(queue, policy="kamelot")
    scheduler = MetaScheduler(Runtime(config, clocked), goes_on=True)
    submit(clocked, "/resource_id=2,walltime=0:10:0")
    scheduler.round()
    submit(clocked, "/resource_id=3,walltime=0:1:0")
    _, short = (
        submit(clocked, f"/resource_id={wide},walltime=0:{minutes}:0", types=("besteffort",), queue="besteffort")
        for wide, minutes in ((2, 2), (1, 5))
    )
    scheduler.round()
    yield scheduler, short
    scheduler.close()


def test_what_an_urgent_pass_cannot_tell_is_started_by_the_round_behind_the_plan(
    clocked: Database,  # noqa: F811
    doubtful: tuple[MetaScheduler, int],
    sent: list[Effect],
) -> None:
    scheduler, number = doubtful
    assert job(clocked, number, "state") == "Waiting"
    sent.clear()
    let_the_plan_follow(scheduler)
    assert Wake(Tag.SCHEDULING) in sent
    assert job(clocked, number, "state") == "Waiting"
    scheduler.round()
    assert job(clocked, number, "state") == "toLaunch"


def test_a_doubt_lasts_no_longer_than_half_a_minute_whatever_changes(
    clocked: Database,  # noqa: F811
    doubtful: tuple[MetaScheduler, int],
) -> None:
    scheduler, number = doubtful
    for seconds in range(0, 40, 8):
        at(clocked, NOW + seconds)
        submit(clocked, "/resource_id=3,walltime=0:1:0")
        is_over = seconds > LONGEST_DOUBT
        scheduler.round()
        assert (job(clocked, number, "state") == "toLaunch") is is_over


def test_a_plan_that_breaks_off_between_the_rounds_is_made_by_the_next_one(
    clocked: Database,  # noqa: F811
    scheduler: MetaScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    first, second = (submit(clocked, "/resource_id=1,walltime=0:1:0") for _ in range(2))
    scheduler.round()
    with monkeypatch.context() as broken:
        broken.setattr("oar.kao.planner.schedule.Round.finishing", lambda _: 1 // 0)
        let_the_plan_follow(scheduler)
    assert (scheduler.due(), starts(clocked)) == (None, {})
    scheduler.round()
    assert (job(clocked, first, "state"), starts(clocked)) == ("toLaunch", {second: 61})


def test_while_somebody_else_makes_a_round_nothing_is_written(
    clocked: Database,  # noqa: F811
    scheduler: MetaScheduler,
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    for _ in range(3):
        submit(clocked, "/resource_id=1,walltime=0:1:0")
    scheduler.round()
    while not scheduler._foreseen.has_rest:
        scheduler.go_on()
    other = clocked.locks()
    assert other.acquire(ROUND_LOCK)
    let_the_plan_follow(scheduler)
    other.close()
    assert starts(clocked) == {}


def test_a_round_that_may_plan_all_leaves_nothing_to_follow(clocked: Database) -> None:  # noqa: F811
    add_resources(clocked, nodes=1, cores=1)
    numbers = [submit(clocked, "/resource_id=1,walltime=0:1:0") for _ in range(3)]
    patient = MetaScheduler(with_urgent_time(clocked, 1e9), goes_on=True)
    patient.round()
    assert patient.due() is None
    assert set(starts(clocked)) == set(numbers[1:])
    patient.close()

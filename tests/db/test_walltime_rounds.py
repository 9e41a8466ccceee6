"""Changes of walltime as rounds decide on them: what oarwalltime asks is granted on the plan."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.builders import add_resources, execute_sql
from tests.db.test_meta_sched import NOW, ask, at, job, submit

HOUR = 3600


class Desk:
    """A node of two cores with one running job of an hour, whose walltime is to be changed."""

    def __init__(self, database: Database, runtime: Runtime) -> None:
        self.database = database
        self._runtime = runtime
        self._made: list[MetaScheduler] = []
        self.ids = add_resources(database, nodes=1, cores=2)

    def run(self, resources: Sequence[int], **given: Any) -> int:
        """Add a job that begins to run now."""
        return submit(self.database, "/resource_id=1,walltime=1", state=JobState.RUNNING, on=resources, **given)

    def round(self, *, at_: int = 0, **keys: Any) -> None:
        """Make a round so many seconds later."""
        at(self.database, NOW + at_)
        config = self._runtime.config.replace(**{"walltime_change_enabled": True, **keys})
        scheduler = MetaScheduler(Runtime(config, self.database))
        self._made.append(scheduler)
        scheduler.round()

    def ask(self, number: int, seconds: int, **given: Any) -> None:
        """What oarwalltime leaves in the database."""
        columns = {"job_id": number, "pending": seconds, **given}
        with self.database.begin() as tx:
            names, values = ", ".join(columns), ", ".join(["%s"] * len(columns))
            tx.execute(f"INSERT INTO walltime_change ({names}) VALUES ({values})", tuple(columns.values()))
            tx.events.add(EventType.WALLTIME_REQUEST, number, "asked")

    def walltime(self, number: int) -> int:
        text = "SELECT moldable_walltime FROM moldable_job_descriptions WHERE moldable_job_id = %s"
        walltime: int = ask(self.database, text, number)[0][0]
        return walltime

    def change(self, number: int, *columns: str) -> tuple[Any, ...]:
        return ask(self.database, f"SELECT {', '.join(columns)} FROM walltime_change WHERE job_id = %s", number)[0]

    def events(self, number: int) -> list[tuple[str, str]]:
        rows = ask(
            self.database, "SELECT type, description FROM event_logs WHERE job_id = %s ORDER BY event_id", number
        )
        return [(row[0], row[1]) for row in rows if row[0] != "WALLTIME_REQUEST"]

    def start(self, number: int) -> int:
        """Return when a waiting job is to start, in seconds from the beginning."""
        text = (
            "SELECT start_time FROM gantt_jobs_predictions p JOIN moldable_job_descriptions m"
            " ON m.moldable_id = p.moldable_job_id WHERE m.moldable_job_id = %s"
        )
        date: int = ask(self.database, text, number)[0][0]
        return date - NOW

    def close(self) -> None:
        for each in self._made:
            each.close()


@pytest.fixture
def desk(database: Database, runtime: Runtime) -> Iterator[Desk]:
    made = Desk(at(database, NOW), runtime)
    yield made
    made.close()


def test_a_change_is_granted_whole_where_nobody_waits(desk: Desk) -> None:
    number = desk.run(desk.ids[:1])
    desk.ask(number, 2 * HOUR, whole="YES", timeout=60)
    desk.round()
    assert desk.walltime(number) == 3 * HOUR
    columns = ("pending", "granted", "granted_with_whole", "granted_with_force", "whole", "timeout")
    assert desk.change(number, *columns) == (0, 2 * HOUR, 2 * HOUR, 0, "NO", 0)
    text = "Walltime changed: 3:0:0 (granted: +2:0:0/pending: 0:0:0/whole/timeout: 0:1:0)"
    assert desk.events(number) == [("WALLTIME_CHANGED", text)]


def test_a_change_is_granted_in_steps_before_the_end(desk: Desk) -> None:
    number = desk.run(desk.ids[:1])
    desk.ask(number, 1500)
    keys: dict[str, Any] = {
        "walltime_change_apply_time": {"default": 600.0},
        "walltime_increment": {"_": 0.0, "default": 900.0},
    }
    desk.round(**keys)
    assert desk.walltime(number) == HOUR  # the end is far away
    desk.round(at_=3000, **keys)
    assert (desk.walltime(number), desk.change(number, "pending", "granted")) == (HOUR + 900, (600, 900))
    assert desk.events(number)[-1][1] == "Walltime changed: 1:15:0 (granted: +0:15:0/pending: +0:10:0)"
    desk.round(at_=3899, **keys)
    assert desk.walltime(number) == HOUR + 900
    desk.round(at_=3900, **keys)
    assert (desk.walltime(number), desk.change(number, "pending", "granted")) == (HOUR + 1500, (0, 1500))


def test_a_forced_change_waits_for_no_date_and_for_no_step(desk: Desk) -> None:
    number = desk.run(desk.ids[:1])
    desk.ask(number, HOUR, force="YES")
    desk.round(walltime_change_apply_time={"_": 60.0}, walltime_increment={"_": 60.0})
    assert (desk.walltime(number), desk.change(number, "granted_with_force", "force")) == (2 * HOUR, (HOUR, "NO"))


def test_no_job_with_a_planned_start_is_delayed(desk: Desk) -> None:
    number = desk.run(desk.ids[:1])
    desk.run(desk.ids[1:])
    after = submit(desk.database, "/resource_id=2,walltime=1")
    desk.round()
    assert desk.start(after) == HOUR + 1
    desk.ask(number, 600)
    desk.round(at_=10)
    assert (desk.walltime(number), desk.change(number, "pending")) == (HOUR, (600,))


def test_a_change_that_was_not_granted_in_time_is_dropped(desk: Desk) -> None:
    number = desk.run(desk.ids)
    submit(desk.database, "/resource_id=2,walltime=1")
    desk.round()
    desk.ask(number, 600, timeout=100, delay_next_jobs="NO", whole="YES")
    desk.round(at_=99)
    assert desk.change(number, "pending") == (600,)
    desk.round(at_=100)
    assert desk.change(number, "pending", "whole", "timeout") == (0, "NO", 0)
    text = "Walltime change dropped: not granted in 0:1:40"
    assert desk.events(number) == [("WALLTIME_REQUEST_CANCELLATION", text)]


def test_a_shorter_walltime_lets_the_next_job_come_sooner_and_never_ends_in_the_past(desk: Desk) -> None:
    number = desk.run(desk.ids)
    after = submit(desk.database, "/resource_id=2,walltime=1")
    desk.ask(number, -1800)
    desk.round()
    assert (desk.walltime(number), desk.start(after)) == (1800, 1801)
    execute_sql(desk.database, "UPDATE walltime_change SET pending = -9000")
    desk.round(at_=600)
    assert (desk.walltime(number), desk.change(number, "pending", "granted")) == (600, (0, -3000))


def test_no_change_is_granted_if_the_function_is_disabled(desk: Desk) -> None:
    number = desk.run(desk.ids[:1])
    desk.ask(number, 600)
    desk.round(walltime_change_enabled=False)
    assert (desk.walltime(number), desk.change(number, "pending")) == (HOUR, (600,))
    assert job(desk.database, number, "state") == "Running"

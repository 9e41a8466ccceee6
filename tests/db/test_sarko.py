"""Deadlines are seen when they pass, and not before: oar/modules/sarko.py."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from oar.lib.base.clock_watch import GRACE, ClockWatch
from oar.lib.bus.exit_codes import SarkoCode
from oar.lib.bus.messages import Ask, Effect, JobAction, Mail, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import SERVER_LOCK
from oar.lib.history.event_types import EventType
from oar.lib.jobs.sql_requests import KillTimer, TimeLimit
from oar.lib.jobs.states import JobState, JobType, KillState, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.modules import sarko
from oar.modules.sarko import (
    DeadlineCheck,
    KillStep,
    SarkoPass,
    Watcher,
    check_walltime,
    kill_step,
)
from oar.modules.worker import PassOrder
from tests.builders import add_job, add_resources, execute_sql, for_no_reason, move_job

BEGIN = 1_900_000_000


@dataclass
class World:
    """A database whose clock the test sets, and what is sent."""

    database: Database
    clock: list[int]
    sent: list[Effect] = field(default_factory=list)
    config: Config = field(default_factory=Config)
    watch: ClockWatch | None = None  #: compares the clock with the one of this computer; None: nobody compares

    def at(self, seconds: int) -> None:
        """Set the clock to so many seconds after the begin."""
        self.clock[0] = BEGIN + seconds

    def sarko(self) -> SarkoPass:
        """Let Sarko make a pass."""
        return sarko.run(Runtime(self.config, self.database), self.watch)

    def events(self, job_id: int, type_: EventType) -> int:
        """Return how many events of a type a job has."""
        with self.database.begin() as tx:
            return len(tx.events.of_types(job_id, [type_]))

    def kill(self, job_id: int) -> KillState | None:
        """Return how far the kill request of a job is."""
        with self.database.begin() as tx:
            request = tx.job_requests.find_kill(job_id)
        return request.state if request else None

    def running(self, **columns: object) -> int:
        """Add a job that runs from the begin for at most 100 s."""
        return add_job(self.database, JobState.RUNNING, on=add_resources(self.database), walltime=100, **columns)  # type: ignore[arg-type]

    def killed(self, job_id: int) -> int:
        """Note that Leon has sent a kill to a job now."""
        with self.database.begin() as tx:
            tx.job_requests.request_kill(for_no_reason(job_id))
            tx.job_requests.move_kill([job_id], KillState.TIMER_ARMED, [KillState.LEON])
            tx.events.add(EventType.SEND_KILL_JOB, job_id, "")
        return job_id


@pytest.fixture
def world(settings: DatabaseSettings) -> Iterator[World]:
    """Everything at its begin."""
    clock = [BEGIN]
    database = Database(settings, clock=lambda: clock[0])
    world = World(database, clock)
    database.deliver = world.sent.extend
    yield world
    database.close()


# -- reservations -----------------------------------------------------------------------------------------------------


def test_a_round_is_made_when_a_reservation_begins(world: World) -> None:
    for state, reservation in (("Waiting", "Scheduled"), ("Waiting", "None"), ("Terminated", "Scheduled")):
        add_job(world.database, JobState(state), start_time=BEGIN + 50, reservation=Reservation(reservation))
    world.sent.clear()
    world.at(49)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, BEGIN + 50)
    assert world.sent == []
    world.at(50)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, None)
    assert world.sent == [Wake(Tag.SCHEDULING)]


# -- walltimes --------------------------------------------------------------------------------------------------------


def test_a_job_is_killed_when_its_time_is_over_and_not_before(world: World) -> None:
    job_id = world.running()
    world.at(100)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, BEGIN + 101)
    assert world.kill(job_id) is None
    world.at(101)
    assert world.sarko() == SarkoPass(SarkoCode.KILL, None)
    assert world.kill(job_id) is KillState.LEON
    assert world.events(job_id, EventType.WALLTIME) == 1
    assert world.events(job_id, EventType.FRAG_JOB_REQUEST) == 1


def test_a_job_that_gets_more_time_at_the_last_moment_goes_on(world: World) -> None:
    job_id = world.running()
    world.at(101)
    with world.database.begin() as tx:
        limits = tx.deadlines.time_limits()
        tx.execute("UPDATE moldable_job_descriptions SET moldable_walltime = 200 WHERE moldable_job_id = %s", (job_id,))
    with world.database.begin() as tx:
        assert not sarko.end_jobs(tx, limits, config=Config())
    assert world.kill(job_id) is None


def test_a_job_whose_end_is_asked_is_not_asked_twice(world: World) -> None:
    job_id = world.running()
    world.at(101)
    world.sarko()
    assert world.sarko().code == SarkoCode.NOTHING
    assert world.events(job_id, EventType.WALLTIME) == 1


def test_the_time_in_which_a_job_was_suspended_does_not_count(world: World) -> None:
    job_id = world.running()
    for seconds, state in [(10, JobState.SUSPENDED), (40, JobState.RESUMING), (60, JobState.RUNNING)]:
        world.at(seconds)
        move_job(world.database, job_id, state)
    world.at(150)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, BEGIN + 151)
    world.at(151)
    assert world.sarko().code == SarkoCode.KILL


def test_a_suspended_job_has_no_deadline(world: World) -> None:
    job_id = world.running()
    move_job(world.database, job_id, JobState.SUSPENDED)
    world.at(10_000)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, None)


def test_a_job_that_has_reported_its_end_is_not_killed(world: World) -> None:
    job_id = world.running()
    with world.database.begin() as tx:
        tx.job_runs.claim(job_id, "node-1")
        tx.job_runs.report(job_id, 0, 0)
    world.at(500)
    assert world.sarko().code == SarkoCode.NOTHING


def test_a_walltime_that_passed_while_the_server_was_stopped_waits_for_news_of_the_job(runtime: Runtime) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database), walltime=100)
    with database.begin() as tx:
        tx.jobs.update(job_id, start_time=tx.now - 5000)
    with database.hold_lock(SERVER_LOCK):
        first = sarko.run(runtime)
        assert (first.code, first.next is None) == (SarkoCode.NOTHING, False)
        with database.begin() as tx:
            tx.job_runs.claim(job_id, "node-1")
        assert sarko.run(runtime).code == SarkoCode.KILL


@pytest.mark.parametrize(
    ("now", "start", "heard", "look"),
    [
        (1100, None, 0, DeadlineCheck(False, 1101)),
        (1101, None, 0, DeadlineCheck(True)),
        (2000, 1990, 900, DeadlineCheck(False, 2050)),
        (2000, 1990, 1995, DeadlineCheck(True)),
        (2050, 1990, 900, DeadlineCheck(True)),
    ],
)
def test_when_the_time_of_a_job_is_over(now: int, start: int | None, heard: int, look: DeadlineCheck) -> None:
    assert check_walltime(TimeLimit(1, 1000, 100, 0, 0, heard), now, start) == look


def told_of_the_clock(world: World) -> list[str]:
    return [mail.text for mail in world.sent if isinstance(mail, Mail) and mail.subject == "The clock was set"]


def test_a_clock_that_was_set_ahead_ends_no_job_before_somebody_could_set_it_back(world: World) -> None:
    job_id = world.running()
    world.watch = ClockWatch()
    world.sarko()
    world.at(3600)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, BEGIN + 3600 + GRACE)
    (text,) = told_of_the_clock(world)
    assert "set ahead by 1:0:0." in text
    assert text.endswith(f"Over by the new date: {job_id}")
    world.at(3601)
    assert world.sarko().code == SarkoCode.NOTHING
    assert len(told_of_the_clock(world)) == 1
    world.at(99)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, BEGIN + 101)
    assert "set back by 0:58:2" in told_of_the_clock(world)[1]
    world.at(101)
    assert world.sarko().code == SarkoCode.KILL


@pytest.mark.parametrize("jump_while_it_runs", [True, False])
def test_a_clock_that_was_set_ahead_is_noticed_across_a_restart_of_the_server(
    world: World, tmp_path: Path, jump_while_it_runs: bool
) -> None:
    job_id = world.running()
    runtime = Runtime(Config(oar_run_dir=str(tmp_path)), world.database)
    before = Watcher()
    before.run(runtime, PassOrder())
    world.at(3600)
    if jump_while_it_runs:
        before.run(runtime, PassOrder())
    after = Watcher()
    assert after.run(runtime, PassOrder()).code == SarkoCode.NOTHING
    assert world.kill(job_id) is None
    (text,) = told_of_the_clock(world)
    assert "set ahead by 1:0:0." in text
    execute_sql(world.database, "UPDATE server_state SET value = 'of-another-host' || value WHERE name = 'clock'")
    assert Watcher().run(runtime, PassOrder()).code == SarkoCode.NOTHING
    execute_sql(world.database, "DELETE FROM server_state")
    assert Watcher().run(runtime, PassOrder()).code == SarkoCode.KILL


def test_a_clock_that_was_set_ahead_and_stays_so_ends_jobs_ten_minutes_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = world.running()
    execute_sql(world.database, "UPDATE resources SET desktop_computing = 'YES', expiry_date = %s", BEGIN + 60)
    steady = [0.0]
    monkeypatch.setattr(sarko, "time", SimpleNamespace(monotonic=lambda: steady[0]))
    world.watch = ClockWatch()
    world.sarko()
    world.at(3600)
    world.sarko()
    for passed, code in ((GRACE - 1, SarkoCode.NOTHING), (GRACE, SarkoCode.KILL)):
        assert world.kill(job_id) is None
        assert Wake(Tag.CHSTATE) not in world.sent
        steady[0] = passed
        world.at(3600 + passed)
        assert world.sarko().code == code
    assert world.kill(job_id) is KillState.LEON
    assert Wake(Tag.CHSTATE) in world.sent


def test_a_clock_that_was_set_ahead_asks_for_no_checkpoint_too_early(world: World) -> None:
    job_id = world.running(checkpoint=30)
    world.watch = ClockWatch()
    world.sarko()
    world.at(3600)
    world.sarko()
    assert Ask(JobAction.SIGNAL, job_id) not in world.sent
    world.at(70)
    world.sarko()
    assert Ask(JobAction.SIGNAL, job_id) in world.sent


def test_a_clock_that_was_set_ahead_gives_up_no_kill_too_early(world: World) -> None:
    job_id = world.killed(world.running())
    world.watch = ClockWatch()
    world.at(10)
    world.sarko()
    world.at(3600)
    assert world.sarko().code == SarkoCode.NOTHING
    assert world.kill(job_id) is KillState.TIMER_ARMED
    world.at(3655)  # of the 65 s since the kill 55 have passed behind the jump: it is sent again
    world.sarko()
    assert world.kill(job_id) is KillState.LEON


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_job_is_asked_once_to_write_a_checkpoint(world: World) -> None:
    job_id = world.running(checkpoint=30)
    world.at(69)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, BEGIN + 70)
    world.at(70)
    assert world.sarko().code == SarkoCode.NOTHING
    assert Ask(JobAction.SIGNAL, job_id) in world.sent
    world.at(80)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, BEGIN + 101)
    assert world.events(job_id, EventType.CHECKPOINT) == 1


def test_a_checkpoint_that_did_not_reach_the_job_is_asked_again_after_a_minute(world: World) -> None:
    job_id = world.running(checkpoint=90)
    world.at(10)
    world.sarko()
    with world.database.begin() as tx:
        tx.events.add(EventType.CHECKPOINT_ERROR, job_id, "")
    world.at(60)
    assert world.sarko().next == BEGIN + 70
    world.at(70)
    world.sarko()
    assert world.events(job_id, EventType.CHECKPOINT) == 2


def test_an_interactive_job_gets_no_checkpoint_signal(world: World) -> None:
    job_id = world.running(checkpoint=30, job_type=JobType.INTERACTIVE)
    world.at(80)
    world.sarko()
    assert world.events(job_id, EventType.CHECKPOINT) == 0


# -- kills ------------------------------------------------------------------------------------------------------------


def test_a_kill_without_answer_is_repeated_and_at_last_the_job_is_given_up(world: World) -> None:
    job_id = world.killed(world.running())
    world.at(60)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, BEGIN + 61)
    world.at(61)
    assert world.sarko().code == SarkoCode.KILL
    assert world.kill(job_id) is KillState.LEON
    with world.database.begin() as tx:
        tx.job_requests.move_kill([job_id], KillState.TIMER_ARMED, [KillState.LEON])
        tx.events.add(EventType.SEND_KILL_JOB, job_id, "")
    world.at(100)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, BEGIN + 122)
    world.at(301)
    assert world.sarko().code == SarkoCode.KILL
    assert world.kill(job_id) is KillState.LEON_EXTERMINATE


def test_a_kill_that_was_obeyed_is_over(world: World) -> None:
    job_id = world.killed(world.running())
    move_job(world.database, job_id, JobState.FINISHING)
    world.at(1000)
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, None)
    assert world.kill(job_id) is KillState.FRAGGED


def test_a_job_submitted_into_a_killed_container_ends_too(world: World) -> None:
    container = world.killed(world.running(types=["container=mine"]))
    inner = add_job(world.database, types=["inner=mine"])
    move_job(world.database, container, JobState.FINISHING)
    world.sarko()
    assert world.kill(inner) is KillState.LEON


@pytest.mark.parametrize(
    ("now", "state", "sent", "step"),
    [
        (1060, JobState.RUNNING, 1000, KillStep(None, 1061)),
        (1061, JobState.RUNNING, 1000, KillStep(KillState.LEON)),
        (1061, JobState.LAUNCHING, 0, KillStep(KillState.LEON)),
        (1100, JobState.RUNNING, 1061, KillStep(None, 1122)),
        (1290, JobState.RUNNING, 1260, KillStep(None, 1301)),
        (1301, JobState.RUNNING, 1260, KillStep(KillState.LEON_EXTERMINATE)),
        (1010, JobState.FINISHING, 1000, KillStep(KillState.FRAGGED)),
        (1010, JobState.ERROR, 1000, KillStep(KillState.FRAGGED)),
        (1010, None, 0, KillStep(KillState.FRAGGED)),
    ],
)
def test_what_becomes_of_a_kill(now: int, state: JobState | None, sent: int, step: KillStep) -> None:
    assert kill_step(KillTimer(1, 1000, state, sent, False), now, 60, 300) == step


# -- resources --------------------------------------------------------------------------------------------------------


def asked(world: World) -> list[tuple[str, bool]]:
    """Return what state is asked for each resource, and whether the system may take it back."""
    with world.database.begin() as tx:
        return [(one.next_state, one.properties["next_finaud_decision"] == "YES") for one in tx.resources.all()]


def test_a_desktop_computer_that_does_not_call_is_suspected(world: World) -> None:
    add_resources(world.database, nodes=1, cores=1, desktop_computing="YES", expiry_date=BEGIN + 10)
    world.at(10)
    world.sarko()
    assert asked(world) == [("UnChanged", False)]
    world.at(11)
    world.sarko()
    assert asked(world) == [("Suspected", True)]
    assert Wake(Tag.CHSTATE) in world.sent


def test_a_node_that_stays_suspected_is_given_up_if_the_site_wants_it(world: World) -> None:
    ids = add_resources(world.database, nodes=3, cores=1)
    with world.database.begin() as tx:
        tx.resources.move(ids[:1], ResourceState.SUSPECTED, finaud=False)
        tx.resources.move(ids[1:2], ResourceState.ABSENT, finaud=False)
    world.at(1000)
    world.sarko()
    assert asked(world) == [("UnChanged", False)] * 3
    world.config = Config(dead_switch_time=900)
    world.sarko()
    assert asked(world) == [("Dead", True), ("UnChanged", False), ("UnChanged", False)]
    assert Wake(Tag.CHSTATE) in world.sent


def test_a_pass_without_work_reports_nothing(world: World) -> None:
    assert world.sarko() == SarkoPass(SarkoCode.NOTHING, None)
    assert world.sent == []

"""PostgreSQL crashes and loses what did not wait for the disk: it is found out again, and no command runs twice."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.db import migrations
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.runtime import Runtime
from oar.modules import node_change_state
from oar.modules.runner.actions import finish, launch
from tests.builders import add_job
from tests.conftest import SETUP
from tests.postgres import CRASH_SECONDS, FORGETFUL, PostgreSQL, running
from tests.process.node_box import NodeBox
from tests.process.world import World, new_world

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    """PostgreSQL that loses what is not on the disk."""
    with running(FORGETFUL) as made:
        yield made


@pytest.fixture(scope="module")
def own_settings(server: PostgreSQL) -> DatabaseSettings:
    settings = DatabaseSettings(host=server.socket, patience=CRASH_SECONDS)
    migrations.Migrator(
        settings, SETUP, connect_admin=lambda name: server.connect(name, "postgres"), with_rules=False
    ).create()
    return settings


@pytest.fixture
def world(box: NodeBox, server: PostgreSQL, own_settings: DatabaseSettings) -> Iterator[World]:
    """A node, and a database that will crash."""
    database = Database(own_settings, application="oar:test")
    server.hold_writer()
    yield from new_world(box, database)
    database.close()
    server.crash()  # it has a writer again
    cleared = server.connect(own_settings.name, "postgres")
    with cleared.cursor() as cursor:
        cursor.execute("TRUNCATE jobs, moldable_job_descriptions, job_runs, assigned_resources, resources, event_logs")
    cleared.close()


@pytest.fixture
def scheduler(world: World) -> Iterator[MetaScheduler]:
    """A scheduler that remembers its rounds."""
    made = MetaScheduler(Runtime(world.context.config, world.database))
    yield made
    made.close()


def waiting(world: World, command: str, **columns: object) -> int:
    return add_job(
        world.database,
        command=command,
        launching_directory=str(world.box.home("alice")),
        **columns,  # type: ignore[arg-type]
    )


def runs(world: World) -> str:
    """Return what the commands of the jobs have written."""
    return (Path(world.box.home("alice")) / "runs").read_text()


def end_well(world: World, job_id: int) -> None:
    assert launch.launch_job(world.context, job_id) is None
    world.finish(job_id)


def settle_ends(world: World) -> None:
    node_change_state.run(Runtime(world.context.config, world.database))


def prediction(world: World, job_id: int) -> int | None:
    with world.database.snapshot() as tx:
        found = tx.listings.predictions([job_id]).get(job_id)
    return found.start if found else None


def test_a_start_that_is_lost_is_decided_again(world: World, server: PostgreSQL, scheduler: MetaScheduler) -> None:
    job_id = waiting(world, "echo once >>runs")
    follower = waiting(world, "true", after=[job_id])
    scheduler.round()
    assert world.row(job_id).state is JobState.TO_LAUNCH
    assert prediction(world, follower) is not None
    server.crash()
    assert (world.row(job_id).state, prediction(world, follower)) == (JobState.WAITING, None)
    scheduler.round()
    assert world.row(job_id).state is JobState.TO_LAUNCH
    assert prediction(world, follower) is not None
    end_well(world, job_id)
    assert runs(world) == "once\n"


@pytest.mark.parametrize("is_started_on_disk", [False, True], ids=["with its start", "without its start"])
def test_a_launch_that_is_lost_before_its_go_is_made_again(
    world: World,
    server: PostgreSQL,
    scheduler: MetaScheduler,
    monkeypatch: pytest.MonkeyPatch,
    is_started_on_disk: bool,
) -> None:
    """Oarexec waits for GO when PostgreSQL crashes; nobody has asked for the end of the job."""
    job_id = world.job("echo once >>runs") if is_started_on_disk else waiting(world, "echo once >>runs")
    if not is_started_on_disk:
        scheduler.round()
    with monkeypatch.context() as patch:
        patch.setattr(launch, "_send_go", crashing_before(server, launch._send_go))
        assert launch.launch_job(world.context, job_id) is None
    before = JobState.TO_LAUNCH if is_started_on_disk else JobState.WAITING
    assert (world.row(job_id).state, world.phase(job_id)) == (before, None)
    if not is_started_on_disk:
        scheduler.round()
    end_well(world, job_id)
    settle_ends(world)
    assert (world.row(job_id).state, world.row(job_id).exit_code) == (JobState.TERMINATED, 0)
    assert runs(world) == "once\n"


def crashing_before(server: PostgreSQL, really: Callable[..., None]) -> Callable[..., None]:
    def crash_first(*arguments: object) -> None:
        server.crash()
        really(*arguments)

    return crash_first


def test_an_end_that_is_lost_is_found_again(world: World, server: PostgreSQL) -> None:
    job_id = world.job("exit 3")
    end_well(world, job_id)
    settle_ends(world)
    assert world.row(job_id).state is JobState.TERMINATED
    server.crash()
    lost = world.row(job_id)
    assert (lost.state, lost.exit_code) == (JobState.FINISHING, 3 << 8)
    finish.finish(world.context, job_id)
    settle_ends(world)
    again = world.row(job_id)
    assert (again.state, again.exit_code, again.stop_time) == (JobState.TERMINATED, 3 << 8, lost.stop_time)
    assert world.events(job_id).count(EventType.SWITCH_INTO_TERMINATE_STATE) == 1


def test_an_end_of_which_somebody_is_told_is_not_lost(world: World, server: PostgreSQL) -> None:
    job_id = world.job("true", notify="mail:alice")
    end_well(world, job_id)
    settle_ends(world)
    server.crash()
    assert world.row(job_id).state is JobState.TERMINATED


def test_the_answer_to_a_reservation_is_not_lost(world: World, server: PostgreSQL, scheduler: MetaScheduler) -> None:
    with world.database.snapshot() as tx:
        start = tx.now + 600
    job_id = waiting(world, "true", reservation=Reservation.TO_SCHEDULE, start_time=start)
    scheduler.round()
    assert world.row(job_id).state is JobState.TO_ACK_RESERVATION
    server.crash()
    assert world.row(job_id).state is JobState.TO_ACK_RESERVATION

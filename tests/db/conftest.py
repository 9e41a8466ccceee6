"""Fixtures of the tests of services and modules on the database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.cli import qralter
from oar.cli.common.command import CommandResult, invoke
from oar.kao.rounds.reading import time_zone
from oar.lib.access.records import User
from oar.lib.bus.messages import Effect
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime
from tests.builders import add_resources
from tests.db.console import Console
from tests.db.reservation_desk import NOW, Desk
from tests.db.reservation_site import ALICE, Site, Typed
from tests.frontend import LoginNode, add_rules


@pytest.fixture
def sent(database: Database) -> list[Effect]:
    """What is delivered after the commits."""
    effects: list[Effect] = []
    database.deliver = effects.extend
    return effects


@pytest.fixture
def runtime(database: Database) -> Runtime:
    """The configuration as shipped, but that conditions have time on a busy machine, too; and the database."""
    return Runtime(Config(job_resource_manager_property_db_field="cpuset", user_sql_round_seconds=600.0), database)


@pytest.fixture
def console(database: Database, tmp_path: Path) -> Console:
    """A console of a site as shipped; its log is the test's."""
    run_directory = tmp_path / "run"
    (run_directory / "ipc").mkdir(parents=True)
    return Console(database, Config(log_file=str(tmp_path / "oar.log"), oar_run_dir=str(run_directory)))


@pytest.fixture
def site(database: Database, runtime: Runtime) -> Iterator[Site]:
    """A site whose rounds are made at dates that the test chooses."""
    made = Site(database, runtime)
    yield made
    made.scheduler.close()


@pytest.fixture
def login(site: Site) -> LoginNode:
    """A login node of that site, with two nodes of two cores and the default rules."""
    add_resources(site.database, nodes=2, cores=2)
    add_rules(site.database)
    return LoginNode(site.database)


@pytest.fixture
def qralter_alone(site: Site, runtime: Runtime) -> Typed:
    """Qralter of alice; nobody answers."""
    runtime.config = runtime.config.replace(reservation_answer_timeout=1)

    def run(*arguments: str, user: User = ALICE) -> CommandResult:
        return invoke(qralter.main, arguments, runtime=runtime, user=user)

    return run


@pytest.fixture
def alter(site: Site, qralter_alone: Typed) -> Typed:
    """Qralter of alice; the scheduler answers as soon as it is told of a change."""
    site.database.deliver = lambda effects: site.answer()
    return qralter_alone


@pytest.fixture
def in_utc() -> Iterator[None]:
    """Local time is UTC."""
    with time_zone.within("UTC"):
        yield


@pytest.fixture
def silent_desk(database: Database, tmp_path: Path, in_utc: None) -> Desk:
    """Two nodes with two cores each; alice may reserve, and nobody answers."""
    config = Config(
        job_resource_manager_property_db_field="cpuset",
        reservation_environments_file=str(tmp_path / "reservations.yaml"),
        reservation_request_file=str(tmp_path / "ar_request"),
        reservation_answer_timeout=1,
        mail_smtp_server="localhost",
        mail_sender="oar@localhost",
    )
    database._clock = lambda: NOW
    with database.begin() as tx:
        tx.access.add_to_userset("arusers", ["alice"])
    add_resources(database, nodes=2, cores=2)
    add_rules(database)
    return Desk(database, config)


@pytest.fixture
def desk(silent_desk: Desk) -> Iterator[Desk]:
    """The same with a server."""
    served = Database(silent_desk.database.settings, application="oar:test-server")
    served._clock = lambda: NOW
    silent_desk.serve(served)
    yield silent_desk
    if silent_desk.scheduler:
        silent_desk.scheduler.close()
    served.close()

"""The host of the commands of deploy and cosystem jobs at a site with several servers: the active one at the launch."""

from typing import Any, cast

import pytest

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState, Phase
from oar.modules.runner.actions import job_data, launch
from oar.modules.runner.actions.context import ActionContext
from oar.modules.runner.actions.job_data import JobData
from tests.builders import add_job, add_resources

SERVERS = ("srv1", "srv2")
FORMER, PRESENT = (Config(server_hostnames=SERVERS, server_name=name) for name in SERVERS)
NOTHING = cast(Any, None)


def data_of(database: Database, job_id: int) -> JobData:
    with database.begin() as tx:
        data = job_data.read(tx, job_id)
    assert data is not None
    return data


def claim(database: Database, config: Config, job_id: int) -> tuple[str, int]:
    """Claim a job on a server; return the host and the attempt."""
    context = ActionContext(config, database, NOTHING, lambda _: False, NOTHING, NOTHING)
    with database.begin() as tx:
        (claimed,) = launch._claim(tx, [launch._Claim(context, job_id)])
    assert claimed is not None
    return claimed.run.head_host, claimed.run.attempt


@pytest.mark.parametrize("job_type", ["deploy", "cosystem"])
def test_a_job_stays_on_the_server_that_has_launched_it(database: Database, job_type: str) -> None:
    job_id = add_job(database, JobState.TO_LAUNCH, on=add_resources(database, 1, 1), types=[job_type])
    assert claim(database, FORMER, job_id) == ("srv1", 1)
    with database.begin() as tx:
        tx.job_runs.update(job_id, phase=Phase.GO)
    data = data_of(database, job_id)
    assert (data.exec_host(PRESENT), data.launch_host(PRESENT)) == ("srv1", "srv2")
    assert claim(database, PRESENT, job_id) == ("srv1", 1)


def test_a_launch_of_which_nothing_was_sent_begins_again_on_the_present_server(database: Database) -> None:
    job_id = add_job(database, JobState.TO_LAUNCH, on=add_resources(database, 1, 1), types=["deploy"])
    claim(database, FORMER, job_id)
    with database.begin() as tx:
        tx.job_runs.update(job_id, phase=Phase.CLAIMED)
    assert claim(database, PRESENT, job_id) == ("srv2", 2)


def test_a_host_that_is_configured_does_not_depend_on_the_server(database: Database) -> None:
    job_id = add_job(database, JobState.TO_LAUNCH, on=add_resources(database, 1, 1), types=["deploy"])
    for config in (FORMER, PRESENT):
        assert claim(database, config.replace(deploy_hostname="front"), job_id) == ("front", 1)


def test_an_ordinary_job_is_launched_on_its_node(database: Database) -> None:
    job_id = add_job(database, JobState.TO_LAUNCH, on=add_resources(database, 1, 1))
    assert claim(database, FORMER, job_id) == claim(database, PRESENT, job_id) == ("node-1", 1)

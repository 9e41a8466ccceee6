"""How busy the cluster is by properties and types, and when something is free again."""

import time
from pathlib import Path

import httpx

from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources

HOUR = 3600


def test_groups_tell_how_busy_each_value_is_and_when_one_is_free(anonymous: httpx.Client, database: Database) -> None:
    resources, now = add_resources(database, nodes=3), int(time.time())
    with database.begin() as tx:
        tx.resources.set_property(resources[2:], "deploy", "YES")
    short = add_job(database, JobState.RUNNING, on=resources[:1], walltime=HOUR)
    add_job(database, JobState.RUNNING, on=resources[1:2], walltime=5 * HOUR)
    _plan(database, add_job(database, walltime=2 * HOUR), now + HOUR, resources[:1])
    record = anonymous.get("/v1/groups", params={"by": "deploy"}).json()
    no, yes = record["items"]
    assert (no["value"], no["total"], no["used"], no["free"]) == ("NO", 2, 2, 0)
    assert (yes["value"], yes["total"], yes["free"], yes["next_free"]) == ("YES", 4, 4, None)
    with database.snapshot() as tx:
        assert tx.jobs.get(short).start_time <= now + 1
    assert no["next_free"] == now + 3 * HOUR  # the planned job comes behind the short one
    assert anonymous.get("/v1/groups", params={"by": "colour"}).status_code == 400


def test_resources_on_no_node_are_pools_by_type(anonymous: httpx.Client, database: Database) -> None:
    (licence,) = add_resources(database, nodes=1, cores=1, type="licence", network_address="")
    job = add_job(database, JobState.RUNNING, on=[licence], walltime=HOUR)
    record = anonymous.get("/v1/groups").json()
    assert (record["by"], record["items"]) == (None, [])
    (pool,) = record["pools"]
    with database.snapshot() as tx:
        end = tx.jobs.get(job).start_time + HOUR
    assert (pool["value"], pool["total"], pool["used"], pool["next_free"]) == ("licence", 1, 1, end)


def test_the_site_chooses_the_property_of_the_groups(
    api: Api, anonymous: httpx.Client, database: Database, tmp_path: Path
) -> None:
    add_resources(database)
    path = tmp_path / "web.yaml"
    api.runtime.config = api.runtime.config.replace(web_conf_file=str(path))
    for name, found in (("deploy", "deploy"), ("colour", None)):
        path.write_text(f"group_by: {name}\n")
        assert anonymous.get("/v1/groups").json()["by"] == found
        assert ("Free and busy by property" in anonymous.get("/ui/").text) == bool(found)
    assert anonymous.get("/ui/?by=colour").status_code == 400


def _plan(database: Database, job: int, start: int, resources: list[int]) -> None:
    with database.begin() as tx:
        moldable = tx.new_jobs.moldables_of_jobs([job])[job][0].id
        tx.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (%s, %s)", (moldable, start))
        tx.execute(
            "INSERT INTO gantt_jobs_sets_visu (moldable_job_id, resources) VALUES (%s, %s)", (moldable, resources)
        )

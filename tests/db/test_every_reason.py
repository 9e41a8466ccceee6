"""Every reason that the planner can give is told in every format, from what the database holds of it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from oar.cli.common.command import CommandResult, invoke
from oar.cli.oarstat import main
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.sql_waits import StoredReason
from tests.db.test_meta_sched import at, submit
from tests.db.test_oarstat_explain import ALICE, NOW, Site
from tests.scheduler.test_reasons import all_reasons

LIMITS = {
    "jobs": Config(job_resource_manager_property_db_field="cpuset", max_job_per_queues_group_scheduling_round=3),
    "shipped": Config(job_resource_manager_property_db_field="cpuset"),
}


@pytest.fixture
def site(database: Database) -> Iterator[Site]:
    made = Site(database, LIMITS["shipped"])
    yield made
    made.scheduler.close()


def ask_oarstat(site: Site, *words: object) -> CommandResult:
    result = invoke(main, [str(word) for word in words], runtime=site.runtime, user=ALICE)
    assert (result.exit, result.err) == (0, ""), words
    return result


def agree(site: Site, *words: object) -> dict[str, Any]:
    """Ask in all formats; all tell the same.  Return the records."""
    assert ask_oarstat(site, *words).out
    records: dict[str, Any] = json.loads(ask_oarstat(site, *words, "-J").out)
    told = yaml.safe_load(ask_oarstat(site, *words, "-Y").out)
    assert {str(number): record for number, record in told.items()} == records
    document = ElementTree.fromstring(ask_oarstat(site, *words, "-X").out)
    assert {item.get("key") for item in document.findall("./hashref/item")} == records.keys()
    assert ask_oarstat(site, *words, "-D").out.startswith("{\n")
    return records


def give(site: Site, reasons: Mapping[int, StoredReason]) -> None:
    """Store reasons as a round does."""
    with at(site.database, NOW).begin() as tx:
        tx.job_waits.explain(reasons)


def test_each_reason_of_the_planner_is_told_in_all_formats(site: Site) -> None:
    given = {}
    for reason in all_reasons():
        number = submit(site.database)
        given[number] = StoredReason(reason.code, reason.text, json.dumps(dict(reason.data), sort_keys=True))
    give(site, given)
    assert {reason.code for reason in given.values()} == set(ReasonCode)
    each = [word for number in given for word in ("--explain", number)]
    explained, started = agree(site, *each), agree(site, "--start")
    for number, row in given.items():
        record = explained[str(number)]
        assert (record["code"], record["data"]) == (row.code, json.loads(row.data))
        assert (started[str(number)]["code"], started[str(number)]["data"]) == (record["code"], record["data"])


@pytest.mark.parametrize("odd", [3, 2.5, "three", "", None, True, [], {}, [None], ["a", [1]], {"a": 1}, [[1], {}]])
def test_a_reason_with_numbers_of_another_shape_is_told_all_the_same(site: Site, odd: object) -> None:
    """Another version may have written it."""
    names = {name for reason in all_reasons() for name in reason.data}
    data = json.dumps(dict.fromkeys(sorted(names), odd))
    given = {submit(site.database): StoredReason(code, "as it is", data) for code in (*ReasonCode, "WEATHER")}
    give(site, given)
    records = agree(site, *(word for number in given for word in ("--explain", number)))
    assert {int(number): record["code"] for number, record in records.items()} == {
        number: reason.code for number, reason in given.items()
    }
    assert all(record["sentence"] for record in records.values())
    agree(site, "--start")


@pytest.mark.parametrize("limit", ["jobs", "shipped"])
def test_a_job_that_a_round_did_not_come_to_is_explained(database: Database, limit: str) -> None:
    """With the limits as shipped, and with smaller ones."""
    site = Site(database, LIMITS[limit])
    most = site.runtime.config.max_job_per_queues_group_scheduling_round
    first = submit(site.database, "/resource_id=2")
    last = first
    while last < first + most:
        last = submit(site.database, "/resource_id=2")
    site.round()
    site.scheduler.close()
    record = agree(site, "--explain", last)[str(last)]
    assert (record["code"], record["data"]) == (ReasonCode.LIMIT, {"count": most, "limit": "jobs"})
    assert record["in_front"] == []
    told = ask_oarstat(site, "--explain", last).out.splitlines()
    assert told[1] == f"    Why: A round plans a limited number of jobs: {most} were before it."
    assert told[2] == "    Start: not foreseen yet: the jobs before it are planned first"


def test_a_job_behind_the_depth_of_its_queue_is_told_that_no_start_is_planned(database: Database) -> None:
    config = Config(job_resource_manager_property_db_field="cpuset", scheduler_backfill_depth={"_": 1})
    site = Site(database, config)
    first, planned, unplanned = (submit(site.database, "/resource_id=2") for _ in range(3))
    site.round()
    site.scheduler.close()
    records = agree(site, "--explain", planned, unplanned)
    assert records[str(planned)]["start"]["firmness"] == "tentative"
    record = records[str(unplanned)]
    assert (record["code"], record["data"]) == (ReasonCode.LIMIT, {"count": 1, "limit": "depth"})
    assert record["start"] is None
    starts = agree(site, "--start")
    assert [starts[str(job)]["scheduled_start"] is None for job in (planned, unplanned)] == [False, True]
    told = ask_oarstat(site, "--explain", unplanned).out.splitlines()
    assert told[1:3] == [
        "    Why: It cannot start now; its queue plans later starts only for the first job that waits.",
        "    Start: none is planned, because of SCHEDULER_BACKFILL_DEPTH; "
        "the job starts when that delays no planned job",
    ]
    line = next(line for line in ask_oarstat(site, "--start").out.splitlines() if line.startswith(f"{unplanned} "))
    assert line.split()[3:] == ["-", "(priority)"]
    with site.database.snapshot() as tx:
        foreseen = tx.listings.predictions([first, planned, unplanned])
    assert unplanned not in foreseen
    assert planned in foreseen

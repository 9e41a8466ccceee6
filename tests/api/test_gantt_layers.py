"""What lies over and below the jobs of the diagram: density, former plans, periods of quotas."""

import base64
import json
import re
import time
from itertools import pairwise
from pathlib import Path

import httpx

from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources

HOUR, DAY = 3600, 86400
#: Midnight of a day, UTC.
BEGIN = 20_000 * DAY


def _shades(record: dict[str, str], name: str) -> list[int]:
    return list(base64.b64decode(record[name]))


def test_density_tells_how_much_of_each_row_was_used(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    usual = add_job(database, JobState.TERMINATED, on=resources[:2])
    besteffort = add_job(database, JobState.TERMINATED, on=resources[2:3], types=["besteffort"])
    later = add_job(database, JobState.TERMINATED, on=resources[3:])
    with database.begin() as tx:
        for job, start, stop in (
            (usual, BEGIN - HOUR, BEGIN + HOUR),
            (besteffort, BEGIN + HOUR, BEGIN + 3 * HOUR // 2),
            (later, BEGIN, BEGIN + 5 * HOUR),  # it ended behind the period: it is drawn
        ):
            tx.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", (start, stop, job))
        tx.execute(
            "INSERT INTO resource_logs (resource_id, attribute, value, date_start, date_stop)"
            " VALUES (%s, 'state', 'Suspected', %s, %s)",
            (resources[3], BEGIN + HOUR, BEGIN + 3 * HOUR // 2),
        )
    told = anonymous.get("/v1/gantt/density", params={"from": BEGIN, "to": BEGIN + 2 * HOUR, "bucket": HOUR}).json()
    assert told["groups"] == [[[resources[0], 2]], [[resources[2], 2]]]
    assert _shades(told, "used") == [255, 0, 0, 64]  # node-2: one of two resources, half of the hour
    assert _shades(told, "besteffort") == [0, 0, 0, 64]
    assert _shades(told, "unusable") == [0, 0, 0, 64]


def test_rows_are_joined_where_there_are_many(anonymous: httpx.Client, database: Database) -> None:
    add_resources(database, nodes=202, cores=1)
    period = {"from": BEGIN, "to": BEGIN + HOUR}
    assert len(anonymous.get("/v1/gantt/density", params=period).json()["groups"]) == 101
    assert anonymous.get("/v1/gantt/density", params={**period, "bucket": 60, "to": BEGIN + DAY}).status_code == 400
    assert anonymous.get("/v1/gantt/density", params={**period, "rows": "nothing"}).status_code == 400


def test_what_was_planned_is_told_beside_what_came_of_it(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    started, waiting = add_job(database, JobState.RUNNING, on=resources[:1], name="sim"), add_job(database)
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET start_time = %s WHERE job_id = %s", (BEGIN + 900, started))
        tx.execute("UPDATE moldable_job_descriptions SET moldable_walltime = %s", (HOUR,))
        found = tx.rows("SELECT moldable_job_id, moldable_id FROM moldable_job_descriptions")
        moldables: dict[int, int] = dict(found)
        for date in (BEGIN, BEGIN + 60):
            for job, start in ((started, BEGIN + 600), (waiting, BEGIN + 1200)):
                values = (date, moldables[job], start)
                tx.execute("INSERT INTO gantt_jobs_predictions_log VALUES (%s, %s, %s)", values)
                values = (date, moldables[job], resources[0])
                tx.execute("INSERT INTO gantt_jobs_resources_log VALUES (%s, %s, %s)", values)
    dates = anonymous.get("/v1/gantt/plans", params={"from": BEGIN, "to": BEGIN + DAY}).json()["items"]
    assert dates == [BEGIN + 60]  # the last of a part of the day
    assert anonymous.get("/v1/gantt/plans", params={"from": BEGIN, "to": BEGIN + 120}).json()["items"] == [
        BEGIN,
        BEGIN + 60,
    ]
    plan = anonymous.get(f"/v1/gantt/plans/{BEGIN + 30}").json()
    assert (plan["date"], plan["is_cut"]) == (BEGIN, False)
    one, other = plan["items"]
    assert (one["id"], one["name"], one["start"], one["started"]) == (started, "sim", BEGIN + 600, BEGIN + 900)
    assert (other["id"], other["end"], other["started"]) == (waiting, BEGIN + 1200 + HOUR, None)
    assert one["resources"] == [[resources[0], 1]]
    assert anonymous.get(f"/v1/gantt/plans/{BEGIN - 1}").status_code == 404


def test_periods_of_quotas_are_told(api: Api, anonymous: httpx.Client, database: Database, tmp_path: Path) -> None:
    period = {"from": BEGIN, "to": BEGIN + 2 * DAY}
    assert anonymous.get("/v1/gantt/quotas", params=period).json() == {"items": []}
    file = tmp_path / "quotas.json"
    file.write_text(
        json.dumps(
            {
                "periodical": [["08:00-19:00 * * *", "working", "day"], ["19:00-08:00 * * *", "free", "night"]],
                "working": {"*,*,*,/": [4, -1, -1]},
                "free": {"*,*,*,/": [-1, -1, -1]},
            }
        )
    )
    api.runtime.config = api.runtime.config.replace(quotas=True, quotas_conf_file=str(file))
    with database.begin() as tx:
        tx.execute("UPDATE queues SET scheduler_policy = 'kamelot'")
    items = anonymous.get("/v1/gantt/quotas", params=period).json()["items"]
    assert {each["name"]: each["rules"] for each in items} == {"working": 1, "free": 1}
    assert items[0]["from"] == BEGIN
    assert items[-1]["to"] == BEGIN + 2 * DAY
    assert all(one["to"] == other["from"] for one, other in pairwise(items))
    assert anonymous.get("/v1/gantt/quotas", params={"from": 5, "to": 5}).status_code == 400


def test_days_and_former_plans_are_tables_for_readers_without_scripts(
    anonymous: httpx.Client, database: Database
) -> None:
    resources = add_resources(database)
    job = add_job(database, JobState.TERMINATED, on=resources, name="sim")
    with database.begin() as tx:
        dates = (BEGIN + 6 * HOUR, BEGIN + 12 * HOUR, job)
        tx.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", dates)
        rows = tx.rows("SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = %s", (job,))
        tx.execute("INSERT INTO gantt_jobs_predictions_log VALUES (%s, %s, %s)", (BEGIN, rows[0][0], BEGIN + 5 * HOUR))
    period = {"from": BEGIN, "to": BEGIN + 2 * DAY}
    days = anonymous.get("/ui/gantt", params={**period, "show": "days"}).text
    assert re.findall(r'<td class="number">(\d+)</td>', days) == ["25", "0", "0", "0", "0", "0"]
    plan = anonymous.get("/ui/gantt", params={**period, "show": "plan"}).text
    starts = [time.strftime("%Y-%m-%d %H:%M", time.localtime(BEGIN + hours * HOUR)) for hours in (5, 6)]
    assert re.findall(r"<bdi>sim</bdi>|<td><time[^>]*>([^<]*)", plan) == ["", *starts]
    none = anonymous.get("/ui/gantt", params={"from": BEGIN - 1, "to": BEGIN, "show": "plan"}).text
    assert "No plan of that time is kept" in none

"""The Gantt diagram: days that are over, what goes on, and the rows."""

import gzip
import json
import struct
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from oar.api.gantt import max_age
from oar.api.response_cache import MAX_MOMENTS, OF_JOBS, Cache, ChunkFiles, Chunks, ChunksAhead, SentStates
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.gantt import DAY
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.builders import add_job, add_resources
from tests.process.this_machine import wait_until

#: What of the present is drawn.
LIVE_PARTS = (*OF_JOBS, "suspended", "states", "reservations")
DAY_BEFORE = 20_000  # 2024-10-04
JOB_COLUMNS = (
    *("id", "begin", "length", "walltime", "wait", "user", "project", "queue", "name", "types", "state", "kind"),
    *("outcome", "efficiency", "ranges"),
)


def read(data: bytes) -> dict[str, list[dict[str, int | str]]]:
    """Read a chunk as a page does: from what docs/api.rst says."""
    magic, layout, zero, jobs, ranges, states, pauses, length = struct.unpack_from("<4s7I", data)
    assert (magic, layout) == (b"OARG", 4)
    words = json.loads(data[32 : 32 + length])
    at = 32 + length

    def columns(names: Sequence[str], number: int) -> list[dict[str, int | str]]:
        nonlocal at
        found = []
        for _ in names:
            parts = [data[at + part * number : at + (part + 1) * number] for part in range(4)]
            found.append([int.from_bytes(each, "little") for each in zip(*parts, strict=True)])
            at += 4 * number
        return [dict(zip(names, row, strict=True)) for row in zip(*found, strict=True)]

    tables = {
        "jobs": columns(JOB_COLUMNS, jobs),
        "ranges": columns(["first", "number"], ranges),
        "states": columns(["first", "number", "begin", "end", "state"], states),
        "pauses": columns(["job", "begin", "end"], pauses),
    }
    assert at == len(data)
    before = 0
    for job in tables["jobs"]:
        before = job["id"] = int(job["id"]) + before
        job["begin"] = int(job["begin"]) + zero
        for name in ("user", "project", "queue", "name", "state", "kind", "outcome"):
            job[name] = words[f"{name}s"][job[name]]
        job["types"] = words["types"][job["types"]]
    for state in tables["states"]:
        state["state"] = words["states"][state["state"]]
        state["begin"] = int(state["begin"]) + zero
    return tables


def _ended(database: Database, on: list[int], day: int, begin: int = 100, stop: int = 200, **columns: Any) -> int:
    job_id = add_job(database, JobState.TERMINATED, on=on, **columns)
    start = day * DAY
    with database.begin() as tx:
        sql = "UPDATE jobs SET start_time = %s, stop_time = %s, submission_time = %s WHERE job_id = %s"
        tx.execute(sql, (start + begin, start + stop, start, job_id))
    return job_id


def _chunk(client: httpx.Client, day: int) -> dict[str, list[dict[str, int | str]]]:
    text = datetime.fromtimestamp(day * DAY, UTC).strftime("%Y-%m-%d")
    return read(client.get(f"/v1/gantt/chunks/{text}").content)


def test_a_day_holds_what_ended_on_it(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    job = _ended(database, [resources[0], resources[1], resources[3]], DAY_BEFORE, user="alice", name="sim «é»")
    _ended(database, resources[:1], DAY_BEFORE + 1, begin=-100)
    with database.begin() as tx:
        for node, cpu, cores in (("node-1", 120, 2), ("node-2", None, 1)):  # 60 %; nothing is known of the other node
            sql = "INSERT INTO job_usage (job_id, network_address, cpu_seconds, cores) VALUES (%s, %s, %s, %s)"
            tx.execute(sql, (job, node, cpu, cores))
        tx.execute("UPDATE job_ends SET code = 'EXIT_STATUS' WHERE job_id = %s", (job,))
        state_changes.suspect(tx, ["node-2"], finaud=False)
        begin = DAY_BEFORE * DAY
        tx.execute(
            "UPDATE resource_logs SET date_start = %s, date_stop = %s WHERE value = 'Suspected'", (begin, begin + 50)
        )
    record = _chunk(anonymous, DAY_BEFORE)
    (drawn,) = record["jobs"]
    assert (drawn["id"], drawn["user"], drawn["name"]) == (job, "alice", "sim «é»")
    assert (drawn["state"], drawn["outcome"]) == ("Terminated", "failed")
    assert (drawn["begin"], drawn["length"], drawn["walltime"]) == (begin + 100, 100, 3600)
    assert drawn["efficiency"] == 60
    assert [(each["first"], each["number"]) for each in record["ranges"]] == [(resources[0], 2), (resources[3], 1)]
    (state,) = record["states"]
    assert (state["first"], state["number"], state["state"], state["begin"]) == (resources[2], 2, "Suspected", begin)
    (late,) = _chunk(anonymous, DAY_BEFORE + 1)["jobs"]
    assert late["begin"] == begin + DAY - 100  # it began the day before
    assert late["efficiency"] == 255  # nobody knows


def test_a_day_that_is_over_is_read_once_also_by_a_service_that_starts_anew(
    anonymous: httpx.Client, api: Api, database: Database, tmp_path: Path
) -> None:
    job = _ended(database, add_resources(database)[:1], DAY_BEFORE)
    files = ChunkFiles(tmp_path / "gantt", 1 << 20)
    api.service.chunks = Chunks(files)
    first = _chunk(anonymous, DAY_BEFORE)
    (path,) = (tmp_path / "gantt").iterdir()
    path.write_bytes(path.read_bytes() + gzip.compress(b""))  # it is this file that is read
    api.service.chunks = Chunks(files)
    assert _chunk(anonymous, DAY_BEFORE) == first
    assert first["jobs"][0]["id"] == job
    assert api.service.chunks.kept(DAY_BEFORE, path.name.partition("-")[2].rpartition("-")[0]) == path.read_bytes()


def test_the_days_of_a_month_become_files_before_somebody_asks(database: Database, tmp_path: Path) -> None:
    today, resources = DAY_BEFORE, add_resources(database)
    for day in (today - 40, today - 20, today - 1, today):
        _ended(database, resources[:1], day)
    chunks = Chunks(ChunkFiles(tmp_path, 1 << 20))
    ahead = ChunksAhead(Database(database.settings, clock=lambda: today * DAY + 1000), chunks)
    ahead.make_missing()
    made = sorted(tmp_path.iterdir())
    assert [path.name.partition("-")[0] for path in made] == [str(today - 20), str(today - 1)]
    for path in made:
        path.write_bytes(b"of somebody else")
    ahead.make_missing()
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"of somebody else"}  # it makes only what is missing


def test_a_service_makes_the_days_of_a_month_when_it_starts(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ended(database, add_resources(database)[:1], int(time.time()) // DAY - 1)
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    api = Api(Runtime(Config(), database), tmp_path / "api.sock")
    api.start()
    try:
        wait_until(lambda: list(tmp_path.glob("gantt/*.gz")))
    finally:
        api.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "days"]


def test_only_what_ended_since_a_date_is_told(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    _ended(database, resources[:1], DAY_BEFORE, stop=200)
    late = _ended(database, resources[1:2], DAY_BEFORE, stop=300)
    text = datetime.fromtimestamp(DAY_BEFORE * DAY, UTC).strftime("%Y-%m-%d")
    answer = anonymous.get(f"/v1/gantt/chunks/{text}", params={"since": DAY_BEFORE * DAY + 300})
    (drawn,) = read(answer.content)["jobs"]
    assert (drawn["id"], answer.headers["cache-control"]) == (late, "private, no-store")


def test_a_day_of_nothing_is_empty(anonymous: httpx.Client) -> None:
    assert _chunk(anonymous, DAY_BEFORE) == {"jobs": [], "ranges": [], "states": [], "pauses": []}


def test_a_day_that_is_over_is_kept_for_ever_under_its_version(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    _ended(database, resources, DAY_BEFORE)
    period = {"from": DAY_BEFORE * DAY, "to": (DAY_BEFORE + 3) * DAY}
    (item,) = anonymous.get("/v1/gantt/index", params=period).json()["items"]
    assert (item["day"], item["jobs"]) == ("2024-10-04", 1)
    path = f"/v1/gantt/chunks/{item['day']}"
    kept = anonymous.get(path, params={"v": item["version"]})
    assert (kept.headers["content-encoding"], "immutable" in kept.headers["cache-control"]) == ("gzip", True)
    assert "no-cache" in anonymous.get(path, params={"v": "old"}).headers["cache-control"]
    assert anonymous.get(path, headers={"If-None-Match": kept.headers["etag"]}).status_code == 304
    _ended(database, resources, DAY_BEFORE)
    assert anonymous.get("/v1/gantt/index", params=period).json()["items"][0]["version"] != item["version"]
    assert len(_chunk(anonymous, DAY_BEFORE)["jobs"]) == 2


def test_what_goes_on_is_told_apart_from_what_is_planned(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    running = add_job(database, JobState.RUNNING, on=resources[:2])
    waiting = add_job(database)
    with database.begin() as tx:
        state_changes.suspect(tx, ["node-2"], finaud=False)
    record = anonymous.get("/v1/gantt/live").json()
    assert [(job["id"], job["resources"]) for job in record["running"]] == [(running, [[resources[0], 2]])]
    assert waiting not in {job["id"] for job in record["planned"]}  # no round has planned it
    assert [(state["state"], state["resources"]) for state in record["states"]] == [("Suspected", [[resources[2], 2]])]


def test_rows_are_in_the_order_in_which_people_count(anonymous: httpx.Client, database: Database) -> None:
    add_resources(database, nodes=11, cores=1)
    with database.begin() as tx:
        tx.resources.insert([{"type": "licence", "network_address": ""}])
    record = anonymous.get("/v1/gantt/rows").json()
    labels = [item["labels"][0] for item in record["items"]]
    assert labels == [*(f"node-{number}" for number in range(1, 12)), ""]
    by_core = anonymous.get("/v1/gantt/rows", params={"rows": "network_address,cpuset"}).json()
    assert by_core["items"][0]["labels"] == ["node-1", "0"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/gantt/chunks/2024-13-01", 404),
        ("/v1/gantt/chunks/1969-12-31", 404),
        ("/v1/gantt/chunks/9999-12-31", 404),
        ("/v1/gantt/chunks/today", 400),
        ("/v1/gantt/index?from=5&to=4", 400),
        ("/v1/gantt/index?from=0&to=99999999", 400),
        ("/v1/gantt/index", 400),
        ("/v1/gantt/rows?rows=nothing", 400),
        ("/v1/gantt/rows?rows=state;DROP TABLE jobs", 400),
    ],
)
def test_what_cannot_be_drawn_is_told(anonymous: httpx.Client, path: str, status: int) -> None:
    assert anonymous.get(path).status_code == status


def _together(former: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """Return what a client knows that adds what has changed to what it knew."""
    if told["since"] is None:
        return told
    fresh = {job["id"] for name in OF_JOBS for job in told[name]} | set(told["gone"])
    jobs = {name: [job for job in former[name] if job["id"] not in fresh] + told[name] for name in OF_JOBS}
    others = {name: former[name] if value is None else value for name, value in told.items() if name not in OF_JOBS}
    return others | {name: sorted(each, key=lambda job: job["id"]) for name, each in jobs.items()}


def test_only_what_has_changed_is_told_to_who_knows_the_rest(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    first, second = (add_job(database, JobState.RUNNING, on=[each]) for each in resources[:2])
    known = anonymous.get("/v1/gantt/live").json()
    assert (known["since"], known["gone"]) == (None, [])
    nothing = anonymous.get("/v1/gantt/live", params={"since": known["cursor"]}).json()
    assert (nothing["cursor"], nothing["running"], nothing["gone"]) == (known["cursor"], [], [])
    assert nothing["states"] is None
    third = add_job(database, JobState.RUNNING, on=resources[2:3])
    with database.begin() as tx:
        lifecycle.move(tx, first, JobState.FINISHING)
        lifecycle.move(tx, first, JobState.TERMINATED)
        state_changes.suspect(tx, ["node-2"], finaud=False)
    told = anonymous.get("/v1/gantt/live", params={"since": known["cursor"]}).json()
    assert ([job["id"] for job in told["running"]], told["gone"]) == ([third], [first])
    assert (told["suspended"], [each["state"] for each in told["states"]]) == (None, ["Suspected"])
    whole = anonymous.get("/v1/gantt/live", params={"since": "unknown"}).json()
    assert {job["id"] for job in whole["running"]} == {second, third}
    together = _together(known, told)
    assert {name: together[name] for name in LIVE_PARTS} == {name: whole[name] for name in LIVE_PARTS}


def test_a_moment_that_is_long_ago_is_forgotten() -> None:
    moments = SentStates()
    record: dict[str, Any] = {"running": [], "planned": [], "states": []}
    cursors = [moments.answer({**record, "states": [n]}, None)["cursor"] for n in range(MAX_MOMENTS + 1)]
    assert moments.answer(record, cursors[0])["since"] is None
    assert moments.answer(record, cursors[-1])["since"] == cursors[-1]


def test_a_curve_tells_how_busy_the_cluster_was_and_will_be(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    begin = DAY_BEFORE * DAY
    _ended(database, resources[:2], DAY_BEFORE, begin=1800, stop=7200)
    running = add_job(database, JobState.RUNNING, on=resources[:1], walltime=2 * 3600)
    record = anonymous.get("/v1/gantt/occupancy", params={"from": begin, "to": begin + 3 * 3600}).json()
    assert (record["used"], record["planned"], record["resources"]) == ([1.0, 2.0, 0.0], [0.0, 0.0, 0.0], 4)
    with database.begin() as tx:
        now = tx.now
        tx.jobs.update(running, start_time=now - 3600)
    near = anonymous.get("/v1/gantt/occupancy", params={"from": now - 1800, "to": now + 7200, "bucket": 900}).json()
    assert near["used"][0] == 1.0
    assert near["planned"][3] == 1.0
    assert near["planned"][-1] == 0.0


@pytest.mark.parametrize("period", [{"from": 9, "to": 9}, {"from": 0, "to": 60 * 2000, "bucket": 60}])
def test_a_curve_has_an_end(anonymous: httpx.Client, period: dict[str, int]) -> None:
    assert anonymous.get("/v1/gantt/occupancy", params=period).status_code == 400


def test_of_many_curves_those_that_were_asked_for_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oar.api.response_cache.time", SimpleNamespace(monotonic=lambda: 0.0))
    curves, made = Cache(), iter(range(100))
    told = [curves.recent((0,), lambda: next(made), 30) for _ in range(2)]
    for number in range(1, 40):
        curves.recent((number,), lambda: next(made), 30)
    assert told == [0, 0]
    assert curves.recent((0,), lambda: next(made), 30) == 40


def test_a_curve_of_days_is_kept_for_longer_than_one_of_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds to make, a curve of a year, is not made for each page that looks on."""
    curves, made, clock = Cache(), iter(range(100)), [0.0]
    monkeypatch.setattr("oar.api.response_cache.time", SimpleNamespace(monotonic=lambda: clock[0]))
    told = []
    for clock[0] in (0.0, 1000.0, 4000.0):
        told.append([curves.recent((bucket,), lambda: next(made), max_age(bucket)) for bucket in (60, 86400)])
    assert told == [[0, 1], [2, 1], [3, 4]]

"""What programs need to know of a site, consumption, fair share, metrics, advance reservations."""

import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobPriority, JobState
from oar.lib.monitoring import replication
from oar.lib.monitoring.metrics import families as present
from oar.lib.monitoring.prometheus_text import MetricFamily, gauge
from oar.lib.reservations.recurrence import local_zone
from tests.api.conftest import Api
from tests.builders import add_array, add_job, add_resources

DAY = 86400
OPEN_FORM = {"Accept": "application/openmetrics-text; version=1.0.0"}


def test_a_site_tells_what_programs_need(anonymous: httpx.Client, database: Database) -> None:
    record = anonymous.get("/v1/site").json()
    assert "default" in record["queues"]
    assert "network_address" in record["properties"]
    assert record["features"]["passwords"] is False


def _consume(database: Database, day: float, user: str, kind: str, seconds: int) -> None:
    sql = """
        INSERT INTO accounting (window_start, window_stop, accounting_user, accounting_project, queue_name,
            consumption_type, consumption) VALUES (%s, %s, %s, 'ml', 'default', %s, %s)"""
    with database.begin() as tx:
        tx.execute(sql, (int(day * DAY), int(day * DAY) + DAY - 1, user, kind, seconds))


def test_consumption_is_told_by_days_and_by_users(anonymous: httpx.Client, database: Database) -> None:
    add_resources(database)
    for day, user, used in ((20_000, "alice", 10), (20_000, "bob", 5), (20_001, "alice", 7)):
        _consume(database, day, user, "USED", used)
        _consume(database, day, user, "ASKED", 2 * used)
    period = {"from": 20_000 * DAY, "to": 20_002 * DAY}
    record = anonymous.get("/v1/usage", params=period).json()
    assert [(item["from"] // DAY, item["user"], item["used"], item["asked"]) for item in record["items"]] == [
        (20_000, "alice", 10, 20),
        (20_000, "bob", 5, 10),
        (20_001, "alice", 7, 14),
    ]
    assert record["capacity"] == 4 * 2 * DAY
    (month,) = anonymous.get("/v1/usage", params={**period, "bucket": "month", "group": "project"}).json()["items"]
    assert (month["project"], month["used"]) == ("ml", 22)


def test_consumption_that_is_private_is_that_of_others(
    api: Api, anonymous: httpx.Client, local: httpx.Client, database: Database
) -> None:
    api.runtime.config = Config(api_accounting_private=True)
    for user in ("alice", "bob"):
        _consume(database, 20_000, user, "USED", 5)
    period = {"from": 20_000 * DAY, "to": 20_001 * DAY}
    (others,) = anonymous.get("/v1/usage", params=period).json()["items"]
    assert (others["user"], others["used"]) == ("others", 10)
    assert anonymous.get("/v1/fairshare/alice").status_code == 403
    assert len(local.get("/v1/usage", params=period).json()["items"]) == 2  # root is an administrator


def test_fair_share_is_told_term_by_term(api: Api, anonymous: httpx.Client, database: Database) -> None:
    with database.snapshot() as tx:
        today = tx.now // DAY
    _consume(database, today - 1, "alice", "USED", 30)
    _consume(database, today - 1, "bob", "USED", 10)
    api.runtime.config = Config(scheduler_fairsharing_user_targets={"alice": 25.0})
    record = anonymous.get("/v1/fairshare/alice", params={"project": "ml"}).json()
    terms = {term["name"]: term for term in record["terms"]}
    assert (terms["user"]["used"], terms["user"]["target"], terms["project"]["used"]) == (0.75, 0.25, 1.0)
    assert record["karma"] == pytest.approx(sum(term["karma"] for term in record["terms"]))


def test_limits_of_a_user_are_those_of_oarstat(
    api: Api, anonymous: httpx.Client, nobody: httpx.Client, database: Database
) -> None:
    config = Config(quotas=True, job_priority=JobPriority.FAIRSHARE)
    text = '{"quotas": {"*,*,*,/": [3]}, "waiting": {"*,*,*,/": [10]}}'
    with database.begin() as tx:
        sql = "INSERT INTO policy_log (kind, name, value) VALUES ('file', %s, %s)"
        tx.execute(sql, (config.quotas_conf_file, text))
    add_job(database, JobState.RUNNING, on=add_resources(database)[:2], user="nobody")
    job = add_job(database, user="nobody")
    api.runtime.config = config
    record = nobody.get("/v1/limits").raise_for_status().json()
    assert record == anonymous.get("/v1/limits", params={"user": "nobody"}).json() | {"date": record["date"]}
    assert [(rule["kind"], rule["measures"][0]["used"]) for rule in record["rules"]] == [("quota", 2), ("waiting", 1)]
    assert record["fair_share"][0]["place"] == 1
    assert record["jobs"] == [
        {"job_id": job, "queue": "default", "project": "default", "order": "FAIRSHARE", "karma": None, "priority": None}
    ]
    assert anonymous.get("/v1/limits").status_code == 401
    api.runtime.config = config.replace(api_accounting_private=True)
    assert anonymous.get("/v1/limits", params={"user": "nobody"}).status_code == 403
    assert nobody.get("/v1/limits").status_code == 200


def test_the_overview_needs_a_token_that_reads_everything(
    known: Callable[..., httpx.Client], database: Database
) -> None:
    job = add_job(database, user="nobody", name="secret")
    assert known("nobody", "ro").get("/v1/me").json()["waiting"][0]["name"] == "secret"
    for scope in ("submit", f"job:{job}"):
        client = known("nobody", scope)
        for path in ("/v1/me", "/ui/me"):
            answer = client.get(path)
            assert answer.status_code == 403
            assert "secret" not in answer.text


def test_the_overview_is_that_of_the_caller(
    api: Api, anonymous: httpx.Client, nobody: httpx.Client, database: Database
) -> None:
    resources = add_resources(database)
    running = add_job(database, JobState.RUNNING, on=resources[:2], user="nobody", name="sim")
    waiting = add_job(database, user="nobody")
    add_job(database, user="alice")
    api.runtime.config = Config(api_accounting_private=True)
    record = nobody.get("/v1/me").raise_for_status().json()
    assert record["numbers"] == {"running": 1, "waiting": 1}
    assert [(job["id"], job["nodes"]) for job in record["running"]] == [(running, ["node-1"])]
    assert [job["id"] for job in record["waiting"]] == [waiting]
    assert (record["user"], record["place"], record["groups"]) == ("nobody", None, [])
    assert anonymous.get("/v1/me").status_code == 401


def test_who_is_ahead_and_how_karma_fades_is_told(
    api: Api, anonymous: httpx.Client, nobody: httpx.Client, database: Database
) -> None:
    with database.snapshot() as tx:
        today = tx.now // DAY
    _consume(database, today - 27, "nobody", "USED", 30)
    _consume(database, today - 1, "bob", "USED", 10)
    for user, project in (("bob", "ml"), ("bob", "ml"), ("carol", "other"), ("nobody", "ml")):
        add_job(database, user=user, project=project)
    record = anonymous.get("/v1/fairshare/nobody", params={"project": "ml"}).json()
    assert [(each["user"], each["project"], each["waiting"]) for each in record["ahead"]] == [
        ("carol", "other", 1),
        ("bob", "ml", 2),
    ]
    assert record["ahead"][1]["by"] == "user"
    assert record["step"] == DAY
    assert record["fades"][0] == pytest.approx(record["karma"])
    assert record["fades"][-1] < record["karma"]  # what was used 27 days ago is no longer in the window
    api.runtime.config = Config(api_accounting_private=True)
    assert nobody.get("/v1/fairshare/nobody").json()["ahead"] is None


def test_karma_fades_by_what_the_user_consumed_in_each_piece_of_time(
    anonymous: httpx.Client, database: Database
) -> None:
    """What others consumed then, and what is in no queue any more, takes nothing from it."""
    config = Config()
    with database.snapshot() as tx:
        since = (tx.now - config.scheduler_fairsharing_window_size) / DAY
    for day, used in ((0, 10), (1, 20), (4, 30), (20, 40)):
        _consume(database, since + day + 0.5, "alice", "USED", used)
        _consume(database, since + day + 0.5, "bob", "USED", 50)
    with database.begin() as tx:
        tx.execute("UPDATE accounting SET queue_name = 'gone' WHERE window_start = %s", (int((since + 1.5) * DAY),))
    fades = anonymous.get("/v1/fairshare/alice").json()["fades"]
    left = [used / (used + 150) for used in (70, 70, 70, 70, 40, 40, 40)]
    assert fades == pytest.approx([config.scheduler_fairsharing_coef_user * share for share in left])


def test_nodes_that_were_lost_and_halted_are_told(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    begin = 20_000 * DAY
    with database.begin() as tx:
        tx.execute("DELETE FROM resource_logs")
        for resource, state, start, stop in (
            (resources[0], "Suspected", begin + 10, begin + 20),
            (resources[1], "Suspected", begin + 10, begin + 20),
            (resources[0], "Suspected", begin + 40, begin + 50),
            (resources[2], "Absent", begin - 100, begin + 1000),
        ):
            tx.execute(
                "INSERT INTO resource_logs (resource_id, attribute, value, date_start, date_stop)"
                " VALUES (%s, 'state', %s, %s, %s)",
                (resource, state, start, stop),
            )
        for kind, date in (("HALT_NODE", begin - 50), ("WAKEUP_NODE", begin + 100), ("HALT_NODE", begin + DAY - 60)):
            tx.events.add(kind, 0, "", hosts=["node-2"])
            tx.execute(
                "UPDATE event_logs SET date = %s WHERE event_id = (SELECT max(event_id) FROM event_logs)", (date,)
            )
    record = anonymous.get("/v1/usage/nodes", params={"from": begin, "to": begin + DAY}).raise_for_status().json()
    assert record == {
        "items": [
            {"node": "node-1", "suspected": 2, "seconds": {"Suspected": 30}},
            {"node": "node-2", "suspected": 0, "seconds": {"Absent": 1000}},
        ],
        "halted": 160,
    }


def test_prometheus_reads_the_metrics(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    add_job(database, JobState.RUNNING, on=resources[:1])
    add_job(database)
    answer = anonymous.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    jobs = {sample.labels["state"]: sample.value for sample in families["oar_jobs"].samples}
    assert jobs == {"Running": 1, "Waiting": 1}
    found = {sample.labels["state"]: sample.value for sample in families["oar_resources"].samples}
    assert found == {"busy": 1, "free": 3}
    assert families["oar_api_feed_lag_seconds"].samples[0].value < 60


def test_the_numbers_of_the_present_are_those_of_the_server_s_file(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    add_job(database, JobState.RUNNING, on=resources[:1])
    with database.snapshot() as tx:
        made = {family.name: family for family in present(tx)}
    found = {each.name: each for each in text_string_to_metric_families(anonymous.get("/metrics").text)}
    counted = {"oar_job_steps", "oar_jobs_submitted", "oar_jobs_ended", "oar_launches_failed"}
    counted |= {f"oar_job_{step}_seconds" for step in ("wait", "launch", "run", "start_error")}
    of_ours = {name for name in found if name.startswith("oar_api_") or name == "oar_database_seconds"}
    assert set(found) - of_ours == {name.removesuffix("_total") for name in made} | counted
    for name in ("oar_jobs", "oar_resources"):
        labels = made[name].labels
        samples = {tuple(map(sample.labels.get, labels)): sample.value for sample in found[name].samples}
        assert samples == dict(made[name].rows)
        assert {frozenset(sample.labels) for sample in found[name].samples} == {frozenset(labels)}


def test_a_postgresql_server_that_does_not_answer_does_not_delay_the_metrics(
    api: Api, anonymous: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last values are used meanwhile."""
    may_answer, has_answered = threading.Event(), threading.Event()

    def read(settings: DatabaseSettings) -> Iterator[MetricFamily]:
        may_answer.wait()
        yield gauge("oar_database_up", "", {settings.host: 1}, "host")
        has_answered.set()

    monkeypatch.setattr(replication, "replication_families", read)
    monkeypatch.setattr(api.runtime.database, "settings", DatabaseSettings(host="a b"))
    assert "oar_database_up" not in anonymous.get("/metrics").text
    may_answer.set()
    has_answered.wait()
    accept = {"Accept": "application/openmetrics-text"}  # the other format is not in the cache
    assert 'oar_database_up{host="a b"} 1' in anonymous.get("/metrics", headers=accept).text


def test_what_happens_is_counted(api: Api, anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    steps = {"submitted": 0.0}
    add_job(database, JobState.RUNNING, on=resources[:1])
    add_job(database, JobState.TERMINATED, on=resources[1:2])
    while steps["submitted"] < 2:  # the feed tells of them a moment later
        found = api.service.happenings.families()
        steps = {labels[0]: number for labels, number in next(found).rows}
    families = {each.name: each for each in text_string_to_metric_families(anonymous.get("/metrics").text)}
    told = {sample.labels["step"]: sample.value for sample in families["oar_job_steps"].samples}
    assert told == {"submitted": 2, "started": 2, "ended": 1, "invalid": 0, "refused": 0}
    (waits,) = (each for each in families["oar_job_wait_seconds"].samples if each.name.endswith("_count"))
    assert (waits.labels, waits.value) == ({"queue": "default"}, 2)
    assert [(each.labels, each.value) for each in families["oar_jobs_submitted"].samples] == [({"queue": "default"}, 2)]
    (ended,) = families["oar_jobs_ended"].samples
    assert (ended.labels["queue"], set(ended.labels)) == ("default", {"queue", "cause"})


def test_who_accepts_openmetrics_gets_it(anonymous: httpx.Client, database: Database) -> None:
    add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    anonymous.get("/v1/queues")
    answer = anonymous.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0, text/plain"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in openmetrics(answer.text)}  # type: ignore[no-untyped-call]
    (asked,) = (
        each.value
        for each in families["oar_database_seconds"].samples
        if each.name.endswith("_sum") and each.labels["call"] == "/v1/queues"
    )
    assert asked > 0
    assert answer.text.endswith("# EOF\n")


def test_an_answer_tells_where_its_time_went(anonymous: httpx.Client, database: Database) -> None:
    timings = [anonymous.get(path).headers["server-timing"] for path in ("/v1/queues", "/health/live", "/oarapi/jobs")]
    assert all(re.fullmatch(r"db;dur=[0-9.]+, wait;dur=[0-9.]+", each) for each in timings)
    assert ["db;dur=0.0," in each for each in timings] == [False, True, False]


def test_a_site_chooses_by_whom_jobs_are_told_and_how_many_are_named(
    api: Api, anonymous: httpx.Client, database: Database
) -> None:
    resources = add_resources(database)
    add_job(database, JobState.RUNNING, on=resources[:1], user="alice", project="p")
    add_job(database, JobState.RUNNING, on=resources[1:], user="bob", project="p")
    for user in ("alice", "alice", "carol", "dave"):
        add_job(database, user=user, project="q")
    assert not re.search(r"alice|bob", anonymous.get("/metrics").text)
    api.runtime.config = Config(api_metrics_labels=("user", "project"), api_metrics_values=2)
    kept = OPEN_FORM  # the other form is made already
    families = {each.name: each for each in openmetrics(anonymous.get("/metrics", headers=kept).text)}  # type: ignore[no-untyped-call]
    jobs = {(each.labels["user"], each.labels["state"]): each.value for each in families["oar_user_jobs"].samples}
    assert jobs == {
        ("bob", "Running"): 1,
        ("alice", "Running"): 1,
        ("alice", "Waiting"): 2,
        ("other", "Waiting"): 2,
    }
    held = {each.labels["user"]: each.value for each in families["oar_user_resources"].samples}
    assert held == {"bob": 3, "alice": 1, "other": 0}
    projects = {each.labels["project"]: each.value for each in families["oar_project_resources"].samples}
    assert projects == {"p": 4, "q": 0}


def test_metrics_are_for_the_networks_of_the_site(api: Api, anonymous: httpx.Client) -> None:
    api.runtime.config = Config(api_metrics_networks=("192.0.2.0/24",))
    assert anonymous.get("/metrics").status_code == 403


def test_there_may_be_no_reservation(anonymous: httpx.Client) -> None:
    assert anonymous.get("/v1/reservations").json() == {"items": [], "next": None}
    assert anonymous.get("/v1/reservations/7").status_code == 404
    assert anonymous.get("/v1/predictions").json() == {"items": []}


def test_an_array_is_told_as_a_whole(anonymous: httpx.Client, database: Database) -> None:
    ids = add_array(database, 4, name="scan")
    add_job(database, name="another")
    with database.begin() as tx:
        lifecycle.move(tx, ids[2], JobState.HOLD)
        dates = "start_time = 1000, stop_time = %s, assigned_moldable_job = 1, state = 'Terminated', exit_code = %s"
        tx.execute(f"UPDATE jobs SET {dates} WHERE job_id = %s", (1060, 0, ids[0]))
        tx.execute(f"UPDATE jobs SET {dates} WHERE job_id = %s", (1020, 256, ids[1]))
    record = anonymous.get(f"/v1/arrays/{ids[0]}").json()
    assert (record["name"], record["total"], record["marks"]) == ("scan", 4, "gbhw")
    assert record["jobs"] == [[ids[0], 4]]
    assert {name for name, number in record["counts"].items() if number} == {"good", "bad", "hold", "waiting"}
    assert (record["started"], record["ended"]) == (1000, None)
    assert (record["shortest"], record["median"], record["longest"]) == (20, 60, 60)
    assert anonymous.get("/v1/arrays/999").status_code == 404


def test_waiting_times_are_told_by_size_and_by_hour(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    alone, wide = (add_job(database, JobState.RUNNING, on=on) for on in (resources[:1], resources[1:]))
    monday = int(datetime(2026, 11, 23, 4, tzinfo=ZoneInfo(local_zone() or "UTC")).timestamp())
    with database.begin() as tx:
        for job, wait in ((alone, 60), (wide, 7200)):
            dates = (monday, monday + wait, job)
            tx.execute("UPDATE jobs SET submission_time = %s, start_time = %s WHERE job_id = %s", dates)
    period = {"from": monday, "to": monday + 7201}
    told = anonymous.get("/v1/usage/waits", params=period).json()
    items = [(each["size"], each["queue"], each["jobs"], each["half"]) for each in told["items"]]
    assert items == [(0, None, 1, 60), (0, "default", 1, 60), (1, None, 1, 7200), (1, "default", 1, 7200)]
    assert told["hours"] == [
        {"size": 0, "block": 1, "jobs": 1, "half": 60},
        {"size": 1, "block": 1, "jobs": 1, "half": 7200},
    ]
    day = monday // 86400 * 86400
    assert [(each["size"], each["from"], each["half"]) for each in told["trend"]] == [(0, day, 60), (1, day, 7200)]
    assert told["sizes"][:2] == [{"from": 1, "to": 1}, {"from": 2, "to": 4}]
    assert not told["is_cut"]
    assert anonymous.get("/v1/usage/waits", params={"from": 5, "to": 5}).status_code == 400

"""What administrators see of the service: readiness, numbers, a line in the log for each change; and its reference."""

import logging
import os
from collections.abc import Callable

import httpx
import pytest

from oar.api import metrics
from oar.lib.base.version import VERSION
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import SERVER_LOCK
from tests.api.conftest import Api
from tests.builders import add_job, add_resources


def test_readiness_tells_of_workers_threads_and_the_server(anonymous: httpx.Client, database: Database) -> None:
    record = anonymous.get("/health/ready").json()
    assert record["server"] == {"running": False, "round_age": None}
    assert record["workers"] == {"idle": 2, "all": 2}
    assert record["threads"]["all"] == 16
    with database.hold_lock(SERVER_LOCK):
        assert anonymous.get("/health/ready").json()["server"]["running"] is True


def test_health_tells_nobody_of_versions_or_names_and_life_asks_no_database(
    api: Api, anonymous: httpx.Client, sent: Callable[[str], list[str]]
) -> None:
    told = anonymous.get("/health/ready").text
    name = api.runtime.database.settings.name
    assert not [word for word in (VERSION, name, os.uname().nodename) if word in told]
    assert anonymous.get("/health/live").json() == {"status": "ok"}
    assert sent("/health/live") == []


def test_metrics_are_made_once_for_all_who_ask_in_a_while(sent: Callable[[str], list[str]]) -> None:
    assert metrics.KEPT_SECONDS == 10
    assert sent("/metrics") == []  # the second time


def test_requests_are_counted_by_the_routes_of_the_document(
    anonymous: httpx.Client, nobody: httpx.Client, database: Database
) -> None:
    add_resources(database)
    job = add_job(database, user="alice")
    for path in (f"/v1/jobs/{job}", f"/v1/jobs/{job + 1}", "/v1/secret-project", f"/oarapi/jobs/{job}"):
        anonymous.get(path)
    nobody.delete(f"/v1/jobs/{job}")
    text = anonymous.get("/metrics").text
    for line in (
        'oar_api_requests_total{method="GET",route="/v1/jobs/{job_id}",status="200"} 1.0',
        'oar_api_requests_total{method="GET",route="/v1/jobs/{job_id}",status="404"} 1.0',
        'oar_api_requests_total{method="DELETE",route="/v1/jobs/{job_id}",status="403"} 1.0',
        'oar_api_requests_total{method="GET",route="none",status="404"} 1.0',
        'oar_api_requests_total{method="GET",route="older",status="200"} 1.0',
        'oar_nodes{state="Alive"} 2.0',
        "oar_events_to_check 0.0",
        "oar_api_worker_restarts_total 0.0",
        "oar_api_threads_busy 1.0",
    ):
        assert line in text, line
    assert 'oar_api_request_seconds_count{route="/v1/jobs/{job_id}"} 3.0' in text
    assert "secret-project" not in text


def test_each_change_stands_in_the_log_with_who_made_it(
    api: Api, nobody: httpx.Client, anonymous: httpx.Client, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    job = add_job(database, user="nobody")
    with caplog.at_level(logging.INFO):
        nobody.post(f"/v1/jobs/{job}/hold", headers={"X-Request-ID": "mine"})
        nobody.get(f"/v1/jobs/{job}")
        anonymous.post("/v1/jobs/1%0a%5baudit%5d user=root/hold")
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("[audit]")]
    first, second = lines
    assert first.startswith("[audit] request=mine user=nobody way=token token=")
    assert first.endswith(f"peer=127.0.0.1 client=127.0.0.1 POST /v1/jobs/{job}/hold 202")
    assert "user=- way=not token=- peer=127.0.0.1 client=127.0.0.1 POST /v1/jobs/1%0a" in second
    assert all("\n" not in line and "oar_" not in line for line in lines)
    assert api.service.requests.threads_busy == 0


def test_the_reference_has_each_operation_and_no_script(anonymous: httpx.Client) -> None:
    page = anonymous.get("/docs")
    document = anonymous.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for each in operations.values():
            assert f'id="{each["operationId"]}"' in page.text, path
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    older = anonymous.get("/openapi-legacy.json").json()
    assert {"get", "post"} <= set(older["paths"]["/jobs"])
    assert older["paths"]["/jobs/{word1}/holds/new"]["post"]["parameters"][0]["name"] == "word1"

"""What anybody reads: lists of jobs, one job, errors, who is asking."""

import json
import os
import pwd

import httpx
import pytest

from oar.api import jobs
from oar.api.concurrency import UnderWay
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_array, add_job, add_resources, for_no_reason
from tests.process.this_machine import wait_until

#: Who wants all of a list, a JSON text in each line.
LINES_ALONE = {"Accept": "application/x-ndjson"}


def test_a_list_holds_the_live_jobs_by_id(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    running = add_job(database, JobState.RUNNING, on=resources[:1], user="alice", name="sim")
    waiting = add_job(database, user="bob")
    add_job(database, JobState.TERMINATED, on=resources[1:2])
    record = anonymous.get("/v1/jobs").json()
    assert [job["id"] for job in record["items"]] == [running, waiting]
    assert record["next"] is None
    first = record["items"][0]
    assert (first["user"], first["name"], first["state"], first["ended"]) == ("alice", "sim", "Running", None)


def test_pages_hold_each_job_once(anonymous: httpx.Client, database: Database) -> None:
    ids = [add_job(database) for _ in range(7)]
    seen, after = [], None
    while True:
        page = anonymous.get("/v1/jobs", params={"limit": 3, **({"after": after} if after else {})}).json()
        seen += [job["id"] for job in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == ids
    newest = anonymous.get("/v1/jobs", params={"limit": 3, "newest_first": True, "after": ids[3]}).json()
    assert [job["id"] for job in newest["items"]] == [ids[2], ids[1], ids[0]]


def test_an_array_is_one_row_of_a_page_and_hides_no_job(anonymous: httpx.Client, database: Database) -> None:
    others = [add_job(database, user="bob") for _ in range(15)]
    array = add_array(database, 500)
    others += [add_job(database, user="bob") for _ in range(15)]
    asked = {"limit": 200, "newest_first": True, "fold": True, "total": True}
    for fields in ({}, {"fields": "id,members"}, {"details": True, "outlook": True}):
        page = anonymous.get("/v1/jobs", params={**asked, **fields}).json()
        rows = {row["id"]: row["members"] for row in page["items"]}
        assert list(rows) == [*reversed(others[15:]), array[0], *reversed(others[:15])]
        assert rows.pop(array[0]) == {"total": 500, "jobs": [[array[0], 500]], "started": None}
        assert all(members == {"total": 1, "jobs": [[job, 1]], "started": None} for job, members in rows.items())
        assert (page["next"], page["total"]) == (None, 530)
    with database.begin() as tx:
        lifecycle.move(tx, array[1], JobState.HOLD)
    rows = anonymous.get("/v1/jobs", params={"array": array[0], "fold": True}).json()["items"]
    assert [(row["id"], row["state"], row["members"]["jobs"]) for row in rows] == [
        (array[0], "Waiting", [[array[0], 1], [array[2], 498]]),
        (array[1], "Hold", [[array[1], 1]]),
    ]
    lines = anonymous.get("/v1/jobs", params={"fold": True}, headers=LINES_ALONE).text.splitlines()
    assert len(lines) == 32


def test_all_of_a_list_can_be_had_as_lines(
    anonymous: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "EXPORT_PAGE", 2)
    ids = [add_job(database) for _ in range(5)]
    for listing, wanted in (({}, ids), ({"newest_first": "true", "after": str(ids[3])}, [*reversed(ids[:3])])):
        answer = anonymous.get("/v1/jobs", params={"details": "true", **listing}, headers=LINES_ALONE)
        assert answer.headers["content-type"] == "application/x-ndjson"
        records = [json.loads(line) for line in answer.text.splitlines()]
        assert [record["id"] for record in records] == wanted
        assert records[0] == anonymous.get(f"/v1/jobs/{wanted[0]}").json()
    assert anonymous.get("/v1/jobs", params={"user": "nobody"}, headers=LINES_ALONE).text == ""
    refused = anonymous.get("/v1/jobs", params={"limit": 3}, headers=LINES_ALONE)
    assert (refused.status_code, refused.json()["detail"]) == (
        400,
        "`limit` and `total` are for pages: an export has all jobs, one per line",
    )
    either = anonymous.get("/v1/jobs", headers={"Accept": "application/json, application/x-ndjson"})
    assert len(either.json()["items"]) == 5


def test_exports_are_counted_while_they_last(api: Api, anonymous: httpx.Client, database: Database) -> None:
    add_job(database)
    api.service.exports = UnderWay("exports", 1)
    with api.service.exports.one_more("127.0.0.1", 9):
        refused = anonymous.get("/v1/jobs", headers=LINES_ALONE)
        assert (refused.status_code, refused.json()["detail"]) == (
            503,
            "too many exports: 127.0.0.1: the limit for one client is 1. Try again when a request has ended.",
        )
        assert anonymous.get("/v1/jobs").status_code == 200
    assert anonymous.get("/v1/jobs", headers=LINES_ALONE).status_code == 200


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({"user": "alice"}, "a"),
        ({"user": "alice,bob"}, "ab"),
        ({"state": "hold"}, "b"),
        ({"state": "terminated"}, "c"),
        ({"state": "all"}, "abc"),
        ({"state": "live,Terminated"}, "abc"),
        ({"queue": "besteffort"}, "b"),
        ({"project": "ml"}, "a"),
        ({"name": "sim"}, "a"),
        ({"type": "deploy"}, "b"),
        ({"node": "node-1", "state": "all"}, "c"),
        ({"q": "SIM"}, "a"),
        ({"ended_since": "0"}, "abc"),
        ({"ended_since": "4000000000"}, "ab"),
        ({"from": "0"}, "abc"),
        ({"from": "4000000000"}, "ab"),
        ({"to": "4000000000", "state": "Terminated"}, "c"),
        ({"to": "1"}, ""),
        ({"user": "alice", "queue": "besteffort"}, ""),
    ],
)
def test_conditions_hold_together(
    anonymous: httpx.Client, database: Database, filters: dict[str, str], wanted: str
) -> None:
    (resource,) = add_resources(database, nodes=1, cores=1)
    jobs = {
        add_job(database, user="alice", project="ml", name="sim"): "a",
        add_job(database, JobState.HOLD, user="bob", queue="besteffort", types=("deploy",)): "b",
        add_job(database, JobState.TERMINATED, on=[resource], user="carol"): "c",
    }
    record = anonymous.get("/v1/jobs", params={**filters, "total": "true"}).json()
    assert "".join(jobs[job["id"]] for job in record["items"]) == wanted
    assert record["total"] == len(wanted)


def test_ended_jobs_have_an_outcome_by_which_they_are_found(anonymous: httpx.Client, database: Database) -> None:
    array = add_array(database, 3)
    with database.begin() as tx:
        for job_id, code in zip(array, (EndCode.DELETED, EndCode.DELETED, EndCode.EXPIRED), strict=True):
            lifecycle.move_all(tx, [job_id], JobState.ERROR, because={job_id: Cause(code)})

    def outcomes(**params: str | bool) -> dict[int, str]:
        items = anonymous.get("/v1/jobs", params={"state": "all", **params}).json()["items"]
        return {job["id"]: job["outcome"] for job in items}

    everything = dict(zip(array, ("cancelled", "cancelled", "expired"), strict=True))
    assert outcomes() == outcomes(details=True) == outcomes(total=True) == everything
    assert outcomes(outcome="expired,timeout") == {array[2]: "expired"}
    assert outcomes(fold=True) == {array[0]: "cancelled", array[2]: "expired"}
    assert anonymous.get(f"/v1/jobs/{array[2]}").json()["outcome"] == "expired"
    for text in ("late", ",", ""):
        refused = anonymous.get("/v1/jobs", params={"outcome": text})
        assert (refused.status_code, "must be one of done, failed" in refused.json()["detail"]) == (400, True)


def test_one_job_tells_everything_but_what_is_private(
    anonymous: httpx.Client, local: httpx.Client, database: Database
) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    job_id = add_job(database, user=me, command="./secret.sh", initial_request="oarsub ./secret.sh")
    assert anonymous.get(f"/v1/jobs/{job_id}").json()["command"] is None
    record = local.get(f"/v1/jobs/{job_id}").json()
    assert (record["command"], record["initial_request"]) == ("./secret.sh", "oarsub ./secret.sh")
    assert record["walltime"] == 3600


def test_a_job_explains_why_it_waits(anonymous: httpx.Client, database: Database) -> None:
    job_id = add_job(database)
    record = anonymous.get(f"/v1/jobs/{job_id}/explanation").json()
    assert "sentence" in record


def test_a_job_tells_its_states(anonymous: httpx.Client, database: Database) -> None:
    job_id = add_job(database, JobState.HOLD)
    states = anonymous.get(f"/v1/jobs/{job_id}/states").json()["items"]
    assert [each["state"] for each in states] == ["Waiting", "Hold"]
    assert states[-1]["to"] is None


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/v1/jobs/999999", 404, "no-such-job"),
        ("/v1/jobs/x", 400, "bad-request"),
        ("/v1/jobs/0", 400, "bad-request"),
        (f"/v1/jobs/{2**63}", 400, "bad-request"),
        ("/v1/jobs?state=nonsense", 400, "bad-request"),
        ("/v1/jobs?limit=0", 400, "bad-request"),
        ("/v1/jobs?limit=many", 400, "bad-request"),
        ("/v1/jobs?unknown=1", 400, "bad-request"),
        ("/v1/jobs?name=%00", 400, "bad-request"),
        ("/v1/jobs?user=me", 401, "unidentified"),
        ("/v1/nothing", 404, "not-found"),
        ("/v1/events?since=nowhere", 400, "bad-request"),
        ("/v1/stream?since=nowhere", 400, "bad-request"),
    ],
)
def test_what_is_wrong_is_one_line_and_a_word(anonymous: httpx.Client, path: str, status: int, word: str) -> None:
    answer = anonymous.get(path, headers={"X-Request-ID": "mine-1"})
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["type"]) == (status, status, word)
    assert "\n" not in problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"] == "mine-1"


def test_a_wrong_method_names_the_right_ones(anonymous: httpx.Client) -> None:
    answer = anonymous.post("/v1/jobs/1")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, PATCH")


def test_who_has_an_answer_already_gets_none(anonymous: httpx.Client, database: Database) -> None:
    add_job(database)
    first = anonymous.get("/v1/jobs")
    again = anonymous.get("/v1/jobs", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    add_job(database)
    known = {"If-None-Match": first.headers["etag"]}
    wait_until(lambda: anonymous.get("/v1/jobs", headers=known).status_code == 200)  # when it is told


def test_whoever_has_any_answer_is_given_none(anonymous: httpx.Client) -> None:
    answer = anonymous.get("/v1/version", headers={"If-None-Match": "*"})
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["etag"]


def test_every_answer_has_its_frame(anonymous: httpx.Client) -> None:
    for path in ("/v1/version", "/v1/nothing", "/health/live"):
        headers = anonymous.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert len(headers["x-request-id"]) == 16
    forged = anonymous.get("/v1/version", headers={"X-Request-ID": "a b"})
    assert forged.headers["x-request-id"] != "a b"


def test_the_job_that_moves_is_seen_at_once(anonymous: httpx.Client, database: Database) -> None:
    job_id = add_job(database)
    with database.begin() as tx:
        lifecycle.move_all(tx, [job_id], JobState.ERROR, because=for_no_reason(job_id))
    assert anonymous.get(f"/v1/jobs/{job_id}").json()["state"] == "Error"


def test_the_service_is_ready_and_says_of_what(api: Api, anonymous: httpx.Client) -> None:
    record = anonymous.get("/health/ready").json()
    assert (record["database"], record["schema"], record["feed"]["is_well"]) == ("ok", "ok", True)

"""Nodes, resources and queues as programs read them."""

from collections.abc import Callable

import httpx
import pytest

from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.nodes.states import ResourceState
from tests.builders import add_job, add_resources


@pytest.fixture
def job(database: Database) -> int:
    """A job on one of the four resources of two nodes."""
    return add_job(database, JobState.RUNNING, on=add_resources(database)[:1])


def test_nodes_tell_what_is_free_and_who_is_there(anonymous: httpx.Client, job: int) -> None:
    record = anonymous.get("/v1/nodes").json()
    first, second = record["items"]
    assert (first["name"], first["total"], first["used"], first["free"], first["jobs"]) == ("node-1", 2, 1, 1, [job])
    assert (second["name"], second["free"], second["jobs"]) == ("node-2", 2, [])
    assert (record["total"]["total"], record["total"]["free"]) == (4, 3)


def test_one_node_tells_its_resources_and_its_events(anonymous: httpx.Client, database: Database, job: int) -> None:
    with database.begin() as tx:
        tx.events.add("PING_CHECKER_NODE_SUSPECTED", 0, "does not answer", hosts=["node-1"])
    record = anonymous.get("/v1/nodes/node-1").json()
    assert [resource["jobs"] for resource in record["resources"]] == [[job], []]
    assert record["resources"][0]["properties"]["cpuset"] == "0"
    assert [(event["type"], event["nodes"]) for event in record["events"]] == [
        ("PING_CHECKER_NODE_SUSPECTED", ["node-1"])
    ]


def test_the_texts_of_events_of_jobs_and_nodes_are_for_who_is_known(
    anonymous: httpx.Client, nobody: httpx.Client, database: Database, job: int
) -> None:
    with database.begin() as tx:
        tx.events.add("PING_CHECKER_NODE_SUSPECTED", job, "its secret is 42", hosts=["node-1"])
    for path in ("/v1/nodes/node-1", f"/v1/jobs/{job}", f"/oarapi/jobs/{job}/details"):
        texts = [client.get(path).text.count("its secret is 42") for client in (anonymous, nobody)]
        assert texts == [0, 1], path


def test_why_a_node_is_drained_stands_beside_it(
    local: httpx.Client, anonymous: httpx.Client, database: Database, job: int
) -> None:
    changed = local.patch("/v1/resources", json={"nodes": ["node-1"], "drain": True, "reason": "a disk is changed"})
    assert changed.status_code == 202
    items = anonymous.get("/v1/nodes").json()["items"]
    assert [item["reason"] for item in items] == ["a disk is changed", None]
    assert anonymous.get("/v1/nodes/node-1").json()["reason"] == "a disk is changed"
    assert anonymous.get("/v1/grid").json()["reasons"] == {"node-1": "a disk is changed"}
    assert "a disk is changed" in anonymous.get("/ui/nodes").text
    local.patch("/v1/resources", json={"nodes": ["node-1"], "drain": False})
    assert anonymous.get("/v1/grid").json()["reasons"] == {}


def test_a_token_of_a_job_shows_the_texts_of_its_own_events_only(
    known: Callable[[str, str], httpx.Client], database: Database, job: int
) -> None:
    with database.begin() as tx:
        tx.events.add("PING_CHECKER_NODE_SUSPECTED", job, "its secret is 42", hosts=["node-1"])
    other = add_job(database)
    for scope, shown in ((f"job:{job}", 1), (f"job:{other}", 0), ("ro", 1)):
        client = known("nobody", scope)
        for path in (f"/v1/jobs/{job}", f"/v1/event-log?job={job}"):
            assert client.get(path).text.count("its secret is 42") == shown, (scope, path)


def test_nodes_are_chosen_by_name_and_by_state(anonymous: httpx.Client, database: Database, job: int) -> None:
    with database.begin() as tx:
        state_changes.suspect(tx, ["node-2"], finaud=False)

    def names(**filters: str) -> list[str]:
        return [node["name"] for node in anonymous.get("/v1/nodes", params=filters).json()["items"]]

    assert names(state="suspected") == ["node-2"]
    assert names(state="Alive,Dead") == ["node-1"]
    assert names(node="node-2,node-9") == ["node-2"]
    resources = anonymous.get("/v1/resources", params={"state": "suspected"}).json()["items"]
    assert {resource["state"] for resource in resources} == {ResourceState.SUSPECTED}


def test_a_resource_on_no_node_is_a_resource(anonymous: httpx.Client, database: Database) -> None:
    with database.begin() as tx:
        tx.resources.insert([{"type": "licence", "network_address": ""}])
    (licence,) = anonymous.get("/v1/resources").json()["items"]
    assert (licence["node"], licence["properties"]["type"]) == (None, "licence")
    assert anonymous.get("/v1/nodes").json()["items"] == []


def test_queues_tell_how_many_jobs_they_hold(anonymous: httpx.Client, database: Database, job: int) -> None:
    add_job(database)
    add_job(database)
    queues = anonymous.get("/v1/queues").json()["items"]
    assert [queue["priority"] for queue in queues] == sorted((queue["priority"] for queue in queues), reverse=True)
    assert {queue["name"]: queue["jobs"] for queue in queues}["default"] == {"Running": 1, "Waiting": 2}


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/v1/nodes/nowhere", 404, "no-such-resource"),
        ("/v1/nodes?state=broken", 400, "bad-request"),
        ("/v1/nodes?name=n1", 400, "bad-request"),
        ("/v1/nodes/%00", 400, "bad-request"),
        ("/v1/resources?node=%0a", 400, "bad-request"),
    ],
)
def test_what_is_wrong_is_told(anonymous: httpx.Client, path: str, status: int, word: str) -> None:
    answer = anonymous.get(path)
    assert (answer.status_code, answer.json()["type"]) == (status, word)


def test_a_node_tells_what_it_was(anonymous: httpx.Client, database: Database) -> None:
    first, second, *_ = add_resources(database)
    rows = [(first, "Alive", 1000, 3000), (first, "Suspected", 3000, 0), (second, "Alive", 1000, 0)]
    with database.begin() as tx:
        tx.execute("DELETE FROM resource_logs")
        for row in rows:
            tx.execute(
                "INSERT INTO resource_logs (attribute, resource_id, value, date_start, date_stop)"
                " VALUES ('state', %s, %s, %s, %s)",
                row,
            )
    told = anonymous.get("/v1/nodes/node-1/history", params={"from": 2000, "to": 5000}).json()
    states = [each for each in told["items"] if each["attribute"] == "state"]
    assert states == [
        {"attribute": "state", "value": "Alive", "from": 1000, "to": None, "resources": [second]},
        {"attribute": "state", "value": "Alive", "from": 1000, "to": 3000, "resources": [first]},
        {"attribute": "state", "value": "Suspected", "from": 3000, "to": None, "resources": [first]},
    ]
    assert told["seconds"] == {"Alive": 4000, "Suspected": 2000}
    assert anonymous.get("/v1/nodes/node-9/history").status_code == 404
    assert anonymous.get("/v1/nodes/node-1/history", params={"from": 5000, "to": 5000}).status_code == 400


def test_a_node_tells_the_last_thirty_days_if_nothing_else_is_asked(
    anonymous: httpx.Client, database: Database
) -> None:
    add_resources(database)
    with database.begin() as tx:
        state_changes.suspect(tx, ["node-1"], finaud=False)
    told = anonymous.get("/v1/nodes/node-1/history").json()
    assert told["to"] - told["from"] == 30 * 86400
    assert "Suspected" in {each["value"] for each in told["items"]}
    assert [each["value"] for each in anonymous.get("/v1/nodes/node-2/history").json()["items"]] == ["Alive"]


def test_one_resource_tells_what_was_set_of_it(
    local: httpx.Client, anonymous: httpx.Client, database: Database
) -> None:
    resource, _ = add_resources(database, nodes=1)
    listed = anonymous.get("/v1/resources").json()["items"][0]
    one = anonymous.get(f"/v1/resources/{resource}").json()
    assert {**listed, "version": one["version"]} == one
    for drain in (True, False):
        local.patch("/v1/resources", json={"ids": [resource], "drain": drain})
    whole = anonymous.get(f"/v1/resources/{resource}/log").json()
    assert [(each["attribute"], each["value"], each["to"] is None) for each in whole["items"]] == [
        ("drain", "NO", True),
        ("drain", "YES", False),
        ("state", "Alive", True),
    ]
    assert anonymous.get(f"/v1/resources/{resource}").json()["version"] == str(whole["items"][0]["id"])
    last = anonymous.get(f"/v1/resources/{resource}/log", params={"limit": 1}).json()
    items = last["items"]
    while last["next"]:
        last = anonymous.get(f"/v1/resources/{resource}/log", params={"limit": 1, "after": last["next"]}).json()
        items += last["items"]
    assert (items, whole["next"]) == (whole["items"], None)
    for path in (f"/v1/resources/{resource + 999}", "/v1/resources/9223372036854775807", "/v1/resources/999999/log"):
        assert anonymous.get(path).status_code == 404

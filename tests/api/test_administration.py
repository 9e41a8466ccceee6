"""What administrators do through the API: the same rows as by their commands, and nobody else does it."""

import os
import pwd
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from oar.lib.bus.messages import Effect, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.nodes.states import ResourceState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources, state_of


@pytest.fixture
def admin(known: Callable[[str, str], httpx.Client]) -> httpx.Client:
    """A client of an administrator."""
    return known(pwd.getpwuid(os.geteuid()).pw_name, "admin")


ACTS: list[tuple[str, str, object]] = [
    ("POST", "queues", {"name": "x"}),
    ("PATCH", "queues", {"enabled": False}),
    ("PATCH", "queues/default", {"priority": 1}),
    ("DELETE", "queues/default", None),
    ("POST", "properties", {"name": "x"}),
    ("PATCH", "properties/x", {"name": "y"}),
    ("DELETE", "properties/x", None),
    ("POST", "resources", {"nodes": ["n"]}),
    ("POST", "resources/machines", {"hosts": 1}),
    ("PATCH", "resources", {"condition": "true", "drain": True}),
    ("DELETE", "resources/1", None),
    ("GET", "admission-rules", None),
    ("POST", "admission-rules", {"text": "1"}),
    ("PATCH", "admission-rules/1", {"enabled": False}),
    ("DELETE", "admission-rules/1", None),
    ("POST", "admission-rules/trial", {"job": {"command": "true"}}),
    ("PUT", "usersets/arusers", {"entries": ["nobody"]}),
    ("PUT", "usersets/arusers/nobody", None),
    ("DELETE", "usersets/arusers", None),
    ("DELETE", "usersets/arusers/nobody", None),
    ("POST", "accounting", None),
    ("DELETE", "accounting?older_than=1", None),
    ("GET", "administration", None),
    ("GET", "server", None),
    ("POST", "server/notices", None),
]


def test_only_administrators_do_it(nobody: httpx.Client, anonymous: httpx.Client, database: Database) -> None:
    add_resources(database)
    for method, route, body in ACTS:
        by_others = [client.request(method, f"/v1/{route}", json=body).status_code for client in (nobody, anonymous)]
        assert by_others == [403, 401], (method, route)


def test_a_queue_is_added_changed_and_removed(admin: httpx.Client, database: Database) -> None:
    told: list[Effect] = []
    database.deliver = told.extend
    assert admin.post("/v1/queues", json={"name": "long", "priority": 3}).status_code == 201
    assert Wake(Tag.TERM) in told
    assert admin.post("/v1/queues", json={"name": "long"}).status_code == 400
    changed = admin.patch("/v1/queues/long", json={"policy": "nonsense", "enabled": False})
    assert (changed.status_code, len(changed.json()["warnings"])) == (200, 1)
    with database.snapshot() as tx:
        queue = next(each for each in tx.queues.all() if each.name == "long")
    assert (queue.priority, queue.policy, queue.state) == (3, "nonsense", QueueState.NOT_ACTIVE)
    assert admin.delete("/v1/queues/long").json()["done"] == "removed"
    assert (admin.delete("/v1/queues/long").status_code, admin.patch("/v1/queues/long", json={}).status_code) == (
        404,
        400,
    )


def test_a_queue_that_is_enabled_is_checked_like_a_new_one(admin: httpx.Client, database: Database) -> None:
    with database.begin() as tx:
        tx.queues.insert(Queue("old", 3, "oar_sched_of_the_site", QueueState.NOT_ACTIVE))
    for route in ("queues/old", "queues"):
        warnings = admin.patch(f"/v1/{route}", json={"enabled": True}).json()["warnings"]
        assert warnings[-1].startswith("No job of queue old will start: ")


def test_a_queue_with_jobs_is_removed_by_force_only(admin: httpx.Client, database: Database) -> None:
    add_job(database)
    assert admin.delete("/v1/queues/default").status_code == 409
    assert admin.delete("/v1/queues/default?force=true").status_code == 200


def test_all_queues_are_disabled_and_enabled(admin: httpx.Client, database: Database) -> None:
    for enabled, state in ((False, QueueState.NOT_ACTIVE), (True, QueueState.ACTIVE)):
        assert admin.patch("/v1/queues", json={"enabled": enabled}).status_code == 200
        with database.snapshot() as tx:
            assert {queue.state for queue in tx.queues.all()} == {state}


def test_a_property_is_added_renamed_and_removed(admin: httpx.Client, database: Database) -> None:
    add_resources(database)
    added = [admin.post("/v1/properties", json={"name": "Disk", "type": "varchar"}) for _ in range(2)]
    assert [(each.status_code, each.json()["done"]) for each in added] == [(201, "added"), (200, "existed")]
    assert admin.post("/v1/properties", json={"name": "disk"}).status_code == 409
    assert admin.post("/v1/properties", json={"name": "select"}).status_code == 400
    assert admin.patch("/v1/properties/disk", json={"name": "storage"}).json()["name"] == "storage"
    listed = admin.get("/v1/properties").json()["items"]
    assert [
        (each["type"], each["values"], each["resources_without"]) for each in listed if each["name"] == "storage"
    ] == [("varchar", 0, 4)]
    assert admin.get("/v1/properties/storage").json()["largest"] is None
    assert admin.delete("/v1/properties/storage").status_code == 200
    assert admin.delete("/v1/properties/storage").status_code == 404
    assert admin.get("/v1/properties/storage").status_code == 404


def test_resources_are_added_changed_and_removed(admin: httpx.Client, database: Database) -> None:
    added = admin.post("/v1/resources", json={"nodes": ["n1", "n1"], "state": "Absent", "properties": {"cpuset": "0"}})
    assert added.status_code == 201, added.text
    ids = added.json()["ids"]
    changed = admin.patch("/v1/resources", json={"nodes": ["n1"], "drain": True, "properties": {"available_upto": 7}})
    assert (changed.status_code, changed.json()["updated"]) == (202, {"available_upto": 2, "drain": 2})
    with database.snapshot() as tx:
        assert [row.properties["available_upto"] for row in tx.resources.select(ids)] == [7, 7]
    assert admin.delete(f"/v1/resources/{ids[0]}").json()["type"] == "not-dead"
    with database.begin() as tx:
        tx.execute("UPDATE resources SET state = 'Dead'")
    assert admin.delete(f"/v1/resources/{ids[0]}").json()["done"] == "removed"
    assert admin.delete(f"/v1/resources/{ids[0]}").status_code == 404
    assert admin.delete(f"/v1/resources/{2**63 - 1}").status_code == 404


def test_a_state_is_asked_for_and_names_the_jobs_that_end(admin: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    job = add_job(database, JobState.RUNNING, on=resources[:1])
    told = admin.patch("/v1/resources", json={"ids": resources[:2], "maintenance": True})
    assert told.json()["jobs"] == [job]
    with database.snapshot() as tx:
        assert [row.next_state for row in tx.resources.select(resources)] == ["Absent"] * 2 + ["UnChanged"] * 2
        assert tx.resources.in_maintenance(resources) == set(resources[:2])
    assert admin.patch("/v1/resources", json={"ids": resources[:2], "maintenance": False}).status_code == 202
    alive = admin.patch("/v1/resources", json={"condition": f"resource_id = {resources[0]}", "state": "Alive"})
    assert (alive.status_code, alive.json()["ids"]) == (202, resources[:1])
    with database.snapshot() as tx:
        assert tx.resources.select(resources[:1])[0].next_state == ResourceState.ALIVE


#: Changes of resources that are refused, their status, and a part of the text.
REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"drain": True}, 400, "use exactly one of: ids, nodes, condition"),
    ({"ids": [1], "nodes": ["node-1"], "drain": True}, 400, "use exactly one of: ids, nodes, condition"),
    ({"ids": [1]}, 400, "use at least one of"),
    ({"ids": [99_999], "drain": True}, 404, "there is no resource 99999"),
    (
        {"nodes": ["node-1"], "drain": False, "reason": "x"},
        400,
        "Use it with a state, or with a drain or a maintenance that begins",
    ),
    ({"nodes": ["node-1"], "reason": "x"}, 400, "use at least one of"),
    ({"nodes": ["node-1"], "drain": True, "reason": "a\nb"}, 400, "bad reason: it has a line break"),
    ({"nodes": ["node-9"], "drain": True}, 404, "there is no node 'node-9'"),
    ({"condition": "resource_id < 0", "drain": True}, 404, "no resource satisfies"),
    ({"condition": "resource_id <", "drain": True}, 400, "condition"),
    ({"nodes": ["node-1"], "properties": {"nosuch": 1}}, 400, "nosuch"),
    ({"nodes": ["node-1"], "properties": {"state": "Alive"}}, 400, "system field"),
    ({"nodes": ["node-1"], "properties": {"network_address": None}}, 400, "network_address"),
    ({"nodes": ["node-1"], "state": "Broken"}, 400, "state"),
]


def test_what_cannot_be_is_refused_and_changes_nothing(admin: httpx.Client, database: Database) -> None:
    add_resources(database)
    for body, status, text in REFUSED:
        answer = admin.patch("/v1/resources", json=body)
        assert (answer.status_code, text in answer.json()["detail"]) == (status, True), answer.text
    with database.snapshot() as tx:
        assert {row.properties["drain"] for row in tx.resources.of_nodes(["node-1"])} == {"NO"}


def test_machines_are_described_created_and_repaired(admin: httpx.Client, database: Database) -> None:
    wish = {"hosts": 2, "cpus": 1, "cores": 2}
    tried = admin.post("/v1/resources/machines", json={**wish, "dry_run": True})
    assert len(tried.json()["items"]) == 4
    created = admin.post("/v1/resources/machines", json={**wish, "properties": {"deploy": "YES"}})
    assert (created.status_code, len(created.json()["ids"])) == (201, 4)
    following = admin.post("/v1/resources/machines", json={**wish, "number_on": True}).json()
    assert {item["node"] for item in following["items"]} == {"node-3", "node-4"}
    repaired = admin.post("/v1/resources/machines", json={**wish, "repair": True, "properties": {"deploy": "NO"}})
    assert repaired.json()["ids"] == created.json()["ids"]
    with database.snapshot() as tx:
        assert {row.properties["deploy"] for row in tx.resources.of_nodes(["node-1"])} == {"NO"}
    assert admin.post("/v1/resources/machines", json={**wish, "hosts": 9, "repair": True}).status_code == 404
    assert admin.post("/v1/resources/machines", json={"hosts": 10_000, "cores": 100}).status_code == 400


def test_rules_are_added_tried_changed_and_removed(api: Api, admin: httpx.Client, database: Database) -> None:
    add_resources(database)
    assert admin.post("/v1/admission-rules", json={"text": "1"}).status_code == 403
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, api_admission_rules=True)
    assert admin.post("/v1/admission-rules", json={"text": "if"}).json()["type"] == "bad-rule-text"
    broken = admin.post("/v1/admission-rules", json={"text": "if", "force": True}).json()
    assert broken["enabled"] is False
    rule = admin.post("/v1/admission-rules", json={"text": "name = 'ruled'\nprint('hello')", "priority": 5}).json()[
        "id"
    ]
    tried = admin.post("/v1/admission-rules/trial", json={"job": {"command": "true"}, "user": "nobody"}).json()
    assert (tried["user"], tried["name"], tried["output"][-6:]) == ("nobody", "ruled", "hello\n")
    assert admin.patch(f"/v1/admission-rules/{rule}", json={"enabled": False}).json()["enabled"] is False
    assert [each["done"] for each in admin.get(f"/v1/admission-rules/{rule}").json()["history"]] == ["create", "modify"]
    assert admin.get(f"/v1/admission-rules/{broken['id']}").json()["trouble"]
    enabled = admin.patch(f"/v1/admission-rules/{broken['id']}", json={"enabled": True, "force": True})
    assert (enabled.status_code, enabled.json()["type"]) == (400, "bad-rule-text")
    assert admin.delete(f"/v1/admission-rules/{rule}").status_code == 200
    assert admin.patch(f"/v1/admission-rules/{rule}", json={"enabled": True}).status_code == 404
    assert rule not in [each["id"] for each in admin.get("/v1/admission-rules").json()["items"]]


def test_usersets_are_filled_emptied_and_deleted(admin: httpx.Client, anonymous: httpx.Client) -> None:
    filled = admin.put("/v1/usersets/lab", json={"entries": ["nobody", "@root", "x-who-is-not"]}).json()
    assert filled["entries"] == ["@root", "nobody", "x-who-is-not"]
    assert len(filled["warnings"]) == 1
    assert admin.put("/v1/usersets/1ab", json={"entries": ["nobody"]}).status_code == 400
    assert admin.delete("/v1/usersets/lab/%40root").json()["entries"] == ["nobody", "x-who-is-not"]
    listed = anonymous.get("/v1/usersets").json()["items"]
    assert [each["entries"] for each in listed if each["name"] == "lab"] == [["nobody", "x-who-is-not"]]
    assert admin.delete("/v1/usersets/lab").status_code == 200
    assert admin.delete("/v1/usersets/lab").status_code == anonymous.get("/v1/usersets/lab").status_code == 404
    refused = admin.delete("/v1/usersets/arusers")
    assert refused.status_code == 409


def test_what_ended_jobs_have_used_is_counted_and_forgotten(admin: httpx.Client, database: Database) -> None:
    add_job(database, JobState.TERMINATED, on=add_resources(database)[:1])
    counted = admin.post("/v1/accounting").json()
    assert (counted["jobs"], counted["complete"]) == (1, True)
    assert admin.post("/v1/accounting", json={"anew": True}).json()["jobs"] == 1
    assert admin.post("/v1/accounting", json={"anew": True, "since": 1}).status_code == 400
    assert admin.delete("/v1/accounting?older_than=0").status_code == 200


def test_the_server_is_told_and_one_that_is_not_there_is_a_warning(admin: httpx.Client, database: Database) -> None:
    assert admin.post("/v1/server/notices", json={"tag": "nonsense"}).status_code == 400
    told: list[Effect] = []
    database.deliver = told.extend
    assert admin.post("/v1/server/notices", json={"tag": "Qsub"}).json()["done"] == "told"
    assert told == [Wake(Tag.QSUB)]


def test_the_same_is_done_with_several_jobs(nobody: httpx.Client, daemon: httpx.Client, database: Database) -> None:
    own = [add_job(database, user="nobody", name="sim") for _ in range(2)]
    other = add_job(database, user="daemon")
    tried = nobody.post("/v1/job-acts", json={"act": "hold", "name": "sim", "dry_run": True}).json()
    assert [item["id"] for item in tried["items"]] == own
    held = nobody.post("/v1/job-acts", json={"act": "hold", "ids": [*own, other, 10**9]}).json()["items"]
    assert [item.get("done", item.get("problem", {}).get("status")) for item in held] == ["hold registered"] * 2 + [
        403,
        404,
    ]
    assert [state_of(database, job) for job in (*own, other)] == [JobState.HOLD, JobState.HOLD, JobState.WAITING]
    assert len(nobody.post("/v1/job-acts", json={"act": "resume", "state": "Hold"}).json()["items"]) == 2
    deleted = nobody.post("/v1/job-acts", json={"act": "delete", "condition": "job_name = 'sim'"}).json()["items"]
    assert [item["id"] for item in deleted] == own


def test_a_request_about_several_jobs_names_act_and_jobs(nobody: httpx.Client) -> None:
    requests: list[tuple[dict[str, object], int]] = [
        ({"act": "hold"}, 400),
        ({"act": "hold", "ids": [1], "name": "x"}, 400),
        ({"act": "signal", "ids": [1]}, 400),
        ({"act": "hold", "ids": [1], "signal": "USR1"}, 400),
        ({"act": "burn", "ids": [1]}, 400),
        ({"act": "besteffort", "ids": [1]}, 403),
        ({"act": "hold", "name": "a\nb"}, 400),
        ({"act": "hold", "queue": "q" * 3000}, 400),
    ]
    for body, status in requests:
        assert nobody.post("/v1/job-acts", json=body).status_code == status, body

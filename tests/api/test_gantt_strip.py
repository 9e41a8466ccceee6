"""Jobs over time on a few nodes, and answers that are told again while nothing has changed."""

import time
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from oar.api.response_cache import Cache
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from tests.builders import add_job, add_resources

HOUR = 3600


def test_what_a_node_did_does_and_will_do_is_told(anonymous: httpx.Client, database: Database) -> None:
    resources, now = add_resources(database), int(time.time())
    on_both = add_job(database, JobState.RUNNING, on=resources[1:3], walltime=2 * HOUR, user="alice", name="sim")
    over = add_job(database, JobState.TERMINATED, on=resources[:1])
    long_over, elsewhere = (add_job(database, JobState.TERMINATED, on=on) for on in (resources[:1], resources[2:]))
    planned = add_job(database, user="bob")
    with database.begin() as tx:
        for job, begin, end in ((over, 3, 2), (long_over, 30, 20), (elsewhere, 3, 2)):
            dates = (now - begin * HOUR, now - end * HOUR, job)
            tx.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", dates)
        moldable = tx.new_jobs.moldables_of_jobs([planned])[planned][0].id
        tx.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (%s, %s)", (moldable, now + HOUR))
        tx.execute(
            "INSERT INTO gantt_jobs_sets_visu (moldable_job_id, resources) VALUES (%s, %s)", (moldable, resources[:2])
        )
        state_changes.suspect(tx, ["node-1"], finaud=False)
    asked: dict[str, str | int] = {"node": "node-1", "from": now - 12 * HOUR, "to": now + 12 * HOUR}
    told = anonymous.get("/v1/gantt/nodes", params=asked).raise_for_status().json()
    assert told["nodes"] == [{"name": "node-1", "resources": [[resources[0], 2]]}]
    assert [job["id"] for job in told["jobs"]] == [over, on_both, planned]
    ran, runs, comes = told["jobs"]
    assert (ran["is_over"], runs["is_over"], runs["is_planned"], comes["is_planned"]) == (True, False, False, True)
    assert runs["resources"] == [[resources[1], 1]]  # what it has on the other node is not told
    assert runs["end"] == runs["start"] + 2 * HOUR
    assert (runs["user"], runs["name"]) == ("alice", "sim")
    assert [(each["state"], each["to"], each["resources"]) for each in told["states"]] == [
        ("Suspected", None, [[resources[0], 2]])
    ]


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("node=nowhere&from=0&to=10", 400, "there is no node 'nowhere'"),
        ("node=node-1&from=10&to=10", 400, "`from` must be earlier than `to`"),
        ("node=node-1&from=0&to=9999999", 400, "must not be longer than 31 days"),
        (f"node={','.join(map(str, range(17)))}&from=0&to=10", 400, "node: must name at most 16 nodes, not 17"),
    ],
)
def test_what_cannot_be_told_of_nodes_is_said(
    anonymous: httpx.Client, database: Database, query: str, status: int, text: str
) -> None:
    add_resources(database)
    answer = anonymous.get(f"/v1/gantt/nodes?{query}")
    assert answer.status_code == status
    assert text in answer.json()["detail"]


def test_an_answer_is_made_anew_only_when_something_was_written(database: Database) -> None:
    answers, made = Cache(), []

    def make(tx: Transaction) -> dict[str, Any]:
        made.append(tx.now)
        return {"resources": len(tx.resources.all()), "filler": "x" * 2000}

    def ask(**headers: str) -> Any:
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        return answers.current(Request({"type": "http", "headers": raw}), database, "resources", make)

    first = ask()
    packed, known = ask(accept_encoding="gzip"), ask(if_none_match=first.headers["etag"])
    assert len(made) == 1
    assert (packed.headers["content-encoding"], known.status_code) == ("gzip", 304)
    assert len(packed.body) < len(first.body)
    add_resources(database)
    assert ask().headers["etag"] != first.headers["etag"]
    assert len(made) == 2

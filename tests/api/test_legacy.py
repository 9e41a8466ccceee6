"""Clients that were written for OAR 2.5 and OAR 3 find what they know, on its old addresses."""

import json
import os
import pwd
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from oar.api.legacy import routes, site
from oar.api.legacy.requests import PREFIXES, NotServed, parse_address
from oar.api.legacy.responses import with_legacy_keys
from oar.api.legacy.routes import FIRST_WORDS, REMOVED, find_route
from oar.lib.base.formats import read_yaml
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.api.test_output import home, needs_root
from tests.builders import add_job, add_resources, state_of
from tests.frontend import add_rules
from tests.process.this_machine import is_alive, text_in, wait_until

__all__ = ["home"]

JSON = {"Content-Type": "application/json"}


def test_addresses_are_read_with_prefix_and_extension() -> None:
    for text, prefix, words, extension in (
        ("/oarapi/jobs/42.json", "/oarapi", ("jobs", "42"), "json"),
        ("/oarapi-priv/whoami.yaml", "/oarapi-priv", ("whoami",), "yaml"),
        ("/jobs/details/", "", ("jobs", "details"), None),
        ("/oarapi/", "/oarapi", (), None),
        ("/oarapi/index.html", "/oarapi", (), "html"),
        ("/oarapi.json", "/oarapi", (), "json"),
        ("/oarapi-priv/jobs.YAML", "/oarapi-priv", ("jobs",), "yaml"),
        ("/media/~/a.json", "", ("media", "~", "a.json"), None),
    ):
        assert parse_address(text) == (prefix, words, extension), text
    for word in FIRST_WORDS:
        assert word not in PREFIXES
        if word in REMOVED:
            with pytest.raises(NotServed):
                find_route("GET", parse_address(f"/{word}"))
        elif word != "media":
            find_route("POST" if word == "get_new_token" else "GET", parse_address(f"/{word}"))


def test_submissions_are_read_in_all_their_forms(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    yaml = {"content": "command: sleep 1\nresource: nodes=1\n", "headers": {"Content-Type": "text/yaml"}}
    form = {"data": {"script_path": "run", "array": "2", "hold": ""}, "headers": {"X-OAR-Request": "1"}}
    third = {"json": {"resource": ["/nodes=1"], "command": "a \\$b", "types": ["idempotent"], "env": ["A=1"]}}
    ids = [nobody.post("/jobs.json", **each).json()["ids"] for each in (yaml, form, third)]
    assert [len(each) for each in ids] == [1, 2, 1]
    with database.snapshot() as tx:
        jobs = tx.jobs.select([each[0] for each in ids])
    assert [(job.command, job.state) for job in jobs] == [
        ("sleep 1", JobState.WAITING),
        ("run", JobState.HOLD),
        ("a \\$b", JobState.WAITING),
    ]


def test_a_submission_that_cannot_be_says_why(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    requests: list[tuple[object, str]] = [
        ({}, "A job must have a script"),
        ({"interactive": "1", "command": "x"}, "The API cannot manage interactive jobs"),
        ({"command": "x", "connect": True}, "connect"),
        ({"command": "x", "user": "root"}, "user"),
        ({"command": "x", "array": "many"}, "array"),
        ({"command": "x", "array-param-file": "no-such-file"}, "no-such-file cannot be read"),
        ({"command": "x", "resource": "nodes=x"}, "nodes=x"),
        ([], "object"),
    ]
    for body, text in requests:
        answer = nobody.post("/oarapi/jobs", json=body)
        assert (answer.status_code, text in answer.json()["message"]) == (400, True), answer.text
        assert answer.json()["code"] == answer.json()["status"] == 400
    assert nobody.post("/oarapi/jobs", json={}).json()["title"] == "Missing Required Field"
    misspelt = nobody.post("/oarapi/jobs", json={"script_paht": "x", "command": "x"}).json()
    assert (misspelt["message"], misspelt["hint"]) == ("there is no field 'script_paht'", "did you mean 'script_path'?")
    add_rules(database, "reject('not on Mondays')")
    for address, status in (("/oarapi/jobs", 403), ("/oarapi/jobs.json", 400)):
        refused = nobody.post(address, json={"command": "x"})
        assert (refused.status_code, refused.json()["message"]) == (status, "not on Mondays")


@pytest.mark.parametrize(
    ("address", "field"),
    [
        *(("/jobs?limit=x", "limit"), ("/jobs?offset=1000000", "offset"), ("/jobs?state=odd", "state")),
        *(
            ("/jobs?ids=1;2", "ids"),
            ("/jobs?from=never", "from"),
            ("/jobs?stop_time=1.5", "stop_time"),
            ("/jobs?start_time=99999999999999999999", "start_time"),
            ("/jobs?job_ids=1;2", "job_ids"),
            ("/jobs?states=odd", "states"),
            ("/jobs?order=x", "order"),
        ),
        *(("/jobs?structure=odd", "structure"), ("/accounting?from=0", "to"), ("/accounting?from=x&to=1", "from")),
    ],
)
def test_a_parameter_that_is_wrong_is_named_for_programs(anonymous: httpx.Client, address: str, field: str) -> None:
    told = anonymous.get(address).json()
    assert (told["status"], told["field"]) == (400, field), told


def test_what_is_wrong_in_a_body_is_named_for_programs(api: Api, nobody: httpx.Client, database: Database) -> None:
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, walltime_change_enabled=True)
    for body, field in (
        ({"command": "x", "array": "many"}, "array"),
        ({"command": "x", "script_paht": "y"}, "script_paht"),
        ({"command": "x", "connect": 1}, "connect"),
        ({"command": "x", "name": ["a"]}, "name"),
        ({"interactive": "1"}, "interactive"),
        ({"command": "x", "resource": {"a": 1}}, "resources"),
        ({"command": "x", "env": ["1bad=2"]}, "env.1bad"),
        ({"command": "x", "array-param-file": "none"}, "array_param_file"),
    ):
        assert nobody.post("/oarapi/jobs", json=body).json()["field"] == field, body
    job = add_job(database, JobState.RUNNING, user="nobody", on=add_resources(database)[:1])
    assert nobody.post(f"/oarapi/jobs/{job}", json={"method": "signal"}).json()["field"] == "signal"
    walltime = nobody.post(f"/oarapi/jobs/{job}", json={"method": "walltime-change", "walltime": "x"}).json()
    assert "h:m:s" in walltime["hint"]
    assert "from character 1 on" in nobody.post("/oarapi/jobs", content=b"{bad", headers=JSON).json()["message"]


def test_a_hint_is_a_sentence_and_no_comment(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    for address in ("/oarapi/jobs", "/v1/jobs"):
        told = nobody.post(address, json={"command": "x", "queue": "nosuch"}).json()
        assert told["hint"].startswith("There are: "), told


def test_json_that_is_sent_as_a_form_is_told_so(nobody: httpx.Client) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl -d sends it
    refused = nobody.post("/oarapi/jobs.json", content=b'{"command": "x"}', headers=form).json()
    assert (refused["status"], refused["hint"]) == (400, "send Content-Type: application/json")


def test_an_address_that_is_misspelt_is_told_the_right_word(anonymous: httpx.Client) -> None:
    for address, hint in (
        ("/oarapi/job/1", "did you mean 'jobs'?"),
        ("/oarapi/JOBS", "did you mean 'jobs'?"),
        ("/jobs/1/resource", "did you mean 'resources'?"),
        ("/jobs/1/x/y", "/openapi-legacy.json lists the addresses"),
    ):
        told = anonymous.get(address).json()
        assert (told["status"], told["hint"]) == (404, hint), address
    assert anonymous.get("/oarapi/jobs.JSON").status_code == 200


def test_a_client_gets_the_form_that_it_likes_best(anonymous: httpx.Client) -> None:
    for accept, kind in (
        ("", "application/json"),
        ("text/html;q=0.5, application/json", "application/json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"),
        ("application/json;q=0, text/yaml;q=0.1", "text/yaml"),
        ("application/json, text/javascript, */*; q=0.01", "application/json"),
        ("*/*; q=0.5, application/xml", "application/json"),
    ):
        answer = anonymous.get("/oarapi/version", headers={"Accept": accept})
        assert answer.headers["content-type"].startswith(kind), accept


def test_a_token_that_is_not_valid_is_told_in_the_words_of_oar_3(anonymous: httpx.Client) -> None:
    refused = anonymous.get("/check_token", headers={"Authorization": f"Bearer oar_{'x' * 43}"})
    assert (refused.status_code, refused.json()["auth"]) == (401, "Token invalid or revoked")


@needs_root
def test_files_that_a_submission_names_count_from_its_working_directory(
    nobody: httpx.Client, database: Database, home: Path
) -> None:
    add_resources(database)
    (home / "parameters").write_text("one\ntwo\n")
    (home / "parameters").chmod(0o644)
    for named in (
        {"array-param-file": f"{home}/parameters"},
        {"array-param-file": "parameters", "workdir": str(home), "directory": "below"},
    ):
        made = nobody.post("/oarapi/jobs", json={"command": "x", **named})
        assert made.status_code == 201, made.text
        assert len(made.json()["ids"]) == 2
    with database.snapshot() as tx:
        assert tx.jobs.get(made.json()["id"]).launching_directory == f"{home}/below"


def test_a_working_directory_that_counts_from_the_home_is_the_directory_of_the_job(
    nobody: httpx.Client, database: Database
) -> None:
    add_resources(database)
    for named, directory in (({}, "runs"), ({"directory": "below"}, "runs/below")):
        made = nobody.post("/oarapi/jobs", json={"command": "x", "workdir": "runs", **named})
        assert made.status_code == 201, made.text
        with database.snapshot() as tx:
            assert tx.jobs.get(made.json()["id"]).launching_directory.endswith(f"/{directory}")
            assert "runs/runs" not in tx.jobs.get(made.json()["id"]).launching_directory


def test_a_key_of_another_request_is_told_so_on_old_addresses(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    first, second = (add_job(database, JobState.TERMINATED, user="nobody") for _ in range(2))
    headers = {"Idempotency-Key": "mine"}
    for path, body, status in (
        (f"/oarapi/jobs/{first}/resubmissions/new", None, 201),
        (f"/oarapi/jobs/{second}/resubmissions/new", None, 409),
        ("/oarapi/jobs", {"command": "x"}, 409),
    ):
        answer = nobody.post(path, json=body, headers=headers)
        assert answer.status_code == status, path
        assert status == 201 or answer.json()["type"] == "key-reused"
    for key in ("", "x" * 256):
        refused = nobody.post("/oarapi/jobs", json={"command": "x"}, headers={"Idempotency-Key": key})
        assert (refused.status_code, refused.json()["field"]) == (400, "Idempotency-Key"), key


def test_a_job_tells_clients_of_both_versions_all_that_is_known(
    nobody: httpx.Client, daemon: httpx.Client, database: Database
) -> None:
    resources = add_resources(database)
    job = add_job(database, JobState.TERMINATED, user="nobody", on=resources[:2], notify="mail:me@here")
    told = nobody.get(f"/oarapi/jobs/{job}").json()
    assert {"end", "cause", "cpu_seconds", "cpu_efficiency", "max_rss", "resubmitted_as"} <= told.keys()
    assert told["actual_resources"] == [["", [["resource_id", 2]]]]
    for client, seen in ((nobody, "mail:me@here"), (daemon, "")):
        assert client.get(f"/oarapi/jobs/{job}").json()["notify"] == seen
        assert client.get(f"/oarapi/jobs/table?ids={job}").json()["items"][0]["notify"] == seen


def test_every_old_address_tells_what_it_is_for(anonymous: httpx.Client) -> None:
    document = anonymous.get("/openapi-legacy.json").json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"].endswith("."), path
            assert "partial" not in operation["summary"]


def test_what_is_done_with_jobs_is_registered(
    api: Api, nobody: httpx.Client, daemon: httpx.Client, database: Database
) -> None:
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, walltime_change_enabled=True)
    resources = add_resources(database)
    job, running = (
        add_job(database, user="nobody"),
        add_job(database, JobState.RUNNING, user="nobody", on=resources[:1]),
    )
    json_type = {"Content-Type": "application/json"}
    for word, state in (("holds", JobState.HOLD), ("resumptions", JobState.WAITING)):
        done = nobody.post(f"/jobs/{job}/{word}/new.json", content=b"", headers=json_type)
        assert (done.status_code, state_of(database, job)) == (202, state)
    assert nobody.post(f"/jobs/{job}", json={"method": "rhold"}).status_code in (202, 403)
    assert nobody.post(f"/jobs/{running}/signals/USR1").json()["status"] == "Signal sending request registered"
    assert nobody.post(f"/jobs/{running}/checkpoints/new").status_code == 202
    walltime = {"method": "walltime-change", "walltime": "-0:10:0"}
    assert nobody.post(f"/jobs/{running}.json", json=walltime).json()["cmd_output"].startswith("Accepted")
    shown = nobody.get(f"/jobs/{running}/details.json").json()["walltime-change"]
    assert shown["pending"] == "-0:10:0"
    assert nobody.post(f"/jobs/{running}", json={"method": "burn"}).status_code == 400
    assert daemon.post(f"/jobs/{job}/deletions/new").status_code == 403
    assert nobody.post("/jobs/999/holds/new").status_code == 404
    array = nobody.get(f"/jobs/{job}").json()["array_id"]
    assert nobody.post(f"/jobs/array/{array}/deletions/new").status_code == 202


def test_pages_of_jobs_are_chosen_as_the_clients_write_it(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    jobs = [add_job(database, user=user) for user in ("alice", "bob", "alice")]
    done = add_job(database, JobState.TERMINATED, on=resources[:1])

    def ids(query: str) -> list[int]:
        return [item["id"] for item in anonymous.get(f"/jobs.json?{query}").json()["items"]]

    assert ids("") == jobs
    assert ids("state=waiting,terminated") == ids("states=Waiting&states=Terminated") == [*jobs, done]
    assert ids(f"ids={jobs[0]},{done}") == ids(f"job_ids={jobs[0]}&job_ids={done}") == [jobs[0], done]
    assert (ids("user=bob"), ids("offset=99"), ids("limit=2&offset=1")) == (jobs[1:2], [], jobs[1:3])
    assert set(anonymous.get("/jobs?structure=oar").json()) == set(map(str, jobs))
    row = anonymous.get("/jobs/table").json()["items"][0]
    assert (row["job_user"], row["command"], row["env"]) == ("alice", "", None)
    assert anonymous.get(f"/jobs/{done}/state_log").json()["items"][-1]["state"] == "Terminated"
    for bad in ("limit=x", "offset=1000000", "state=odd", "ids=1;2", "from=never"):
        assert anonymous.get(f"/jobs?{bad}").status_code == 400, bad
    assert anonymous.get("/jobs?sql=1=1").status_code == anonymous.get("/jobs?user=me").status_code == 401


def test_answers_are_json_yaml_or_html(anonymous: httpx.Client, database: Database) -> None:
    job = add_job(database, name="<script>")
    as_json = anonymous.get(f"/jobs/{job}.json").json()
    as_yaml = read_yaml(anonymous.get(f"/jobs/{job}", headers={"Accept": "text/yaml"}).text)
    assert isinstance(as_yaml, dict)
    assert {**as_yaml, "api_timestamp": 0} == {**as_json, "api_timestamp": 0}
    page = anonymous.get(f"/jobs/{job}.html")
    assert (page.headers["content-type"], "<script>" in page.text) == ("text/html; charset=utf-8", False)
    assert f'<a href="/jobs/{job}/resources">' in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert anonymous.get("/jobs", headers={"Accept": "image/png"}).status_code == 406
    wrong = anonymous.post("/jobs", content=b"x", headers={"Content-Type": "image/png", "X-OAR-Request": "1"})
    assert wrong.status_code == 406
    for content in (b"{", b"[" * 50_000, b"\xff", b'{"command": "\\ud800"}', b'{"command": "\\u0000"}'):
        assert anonymous.post("/jobs", content=content, headers={"Content-Type": "application/json"}).status_code == 400
    assert anonymous.head("/jobs").status_code == 200


def test_other_addresses_and_methods_are_told_so(api: Api, anonymous: httpx.Client, nobody: httpx.Client) -> None:
    for address, status in (
        ("/oarapi/nothing", 404),
        ("/jobs/999", 404),
        ("/jobs/999.json", 404),
        (f"/jobs/{2**64}", 400),
        ("/resources/999", 404),
        ("/resources/nodes/none", 404),
        ("/authentication?basic_user=x&basic_password=y", 410),
        ("/media/ls/~", 501),
        ("/accounting", 400),
        ("/accounting?from=0&to=2000000000", 200),
        ("/whoami.json", 200),
        ("/timezone", 200),
        ("/queues", 200),
        ("/jobs?user=%00", 400),
        ("/resources/nodes/%00", 400),
        ("/oarapi/jobs/%2e%2e/whoami", 404),
    ):
        assert anonymous.get(address).status_code == status, address
    assert anonymous.get("/check_token").status_code == 401
    assert nobody.get("/check_token").json()["auth"] == "Token valid"
    assert nobody.get("/oarapi-priv/whoami.json").json()["authenticated_user"] == "nobody"
    assert anonymous.put("/resources").headers["allow"] == "GET, POST"
    assert anonymous.get("/jobs/999.json").json()["message"] == "Job not found"
    prefix = {"X-Api-Path-Prefix": "/elsewhere"}
    assert anonymous.get("/jobs", headers=prefix).json()["links"][0]["href"].startswith("/jobs")
    api.runtime.config = Config(api_trusted_proxies=("127.0.0.1/32",), api_rate_read=0)
    assert anonymous.get("/jobs", headers=prefix).json()["links"][0]["href"].startswith("/elsewhere/jobs")


def test_administrators_change_resources(
    known: Callable[[str, str], httpx.Client], nobody: httpx.Client, database: Database
) -> None:
    admin = known(pwd.getpwuid(os.geteuid()).pw_name, "admin")
    assert nobody.post("/resources", json={"hostname": "n"}).status_code == 403
    made = admin.post(
        "/resources", json=[{"hostname": "n", "cpuset": 3}, {"hostname": "n", "properties": {"cpuset": 4}}]
    )
    assert (made.status_code, made.json()["total"]) == (201, 2)
    first = made.json()["items"][0]["id"]
    assert admin.get(f"/resources/{first}").json()["cpuset"] == 3
    asked = admin.post(f"/resources/{first}/state", json={"state": "Absent"})
    assert (asked.status_code, asked.json()["status"]) == (202, "Change state request registered")
    assert admin.post("/resources/nodes/n/state", json={"state": "Absent"}).status_code == 202
    assert admin.post(f"/resources/{first}/state", json={"state": "Odd"}).status_code == 400
    assert admin.delete(f"/resources/{first}").status_code == 403
    with database.begin() as tx:
        tx.execute("UPDATE resources SET state = 'Dead'")
    assert admin.delete(f"/resources/{first}").json()["status"] == "deleted"
    assert json.loads(admin.get("/resources/nodes").content)["items"][0]["network_address"] == "n"


def test_a_job_is_submitted_again_once_on_its_old_address(nobody: httpx.Client, database: Database) -> None:
    job = add_job(database, JobState.TERMINATED, user="nobody")
    headers = {"Idempotency-Key": "again"}
    answers = [nobody.post(f"/oarapi/jobs/{job}/resubmissions/new", headers=headers) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    first, second = (each.json() for each in answers)
    assert first["id"] == second["id"] != job
    assert first["status"] == "submitted"
    assert [each.headers.get("Idempotency-Replayed") for each in answers] == [None, "true"]


def test_clients_of_both_versions_find_what_is_done_with_jobs(nobody: httpx.Client, database: Database) -> None:
    job = add_job(database, user="nobody")
    for path, state in (
        (f"/jobs/{job}/hold", JobState.HOLD),
        (f"/jobs/{job}/resumptions/new", JobState.WAITING),
        (f"/jobs/array/{job}/holds/new.json", JobState.HOLD),
        (f"/jobs/array/{job}/resumptions/new.json", JobState.WAITING),
    ):
        done = nobody.post(path)
        assert (done.status_code, state_of(database, job)) == (202, state), path
    other, third = add_job(database, user="nobody"), add_job(database, user="nobody")
    for path in (f"/jobs/{job}/deletions/new", f"/jobs/array/{other}", f"/jobs/{third}?array=true"):
        assert nobody.delete(path).json()["status"] == "Delete request registered", path
    assert nobody.post(f"/jobs/{job}/rhold.json").json()["title"] == "Hold error"  # that is for administrators
    assert nobody.post("/jobs/array/999/holds/new").json()["title"] == "Job not found"


def test_what_is_refused_has_the_title_of_its_act(
    nobody: httpx.Client, daemon: httpx.Client, database: Database
) -> None:
    job, ended = add_job(database, user="nobody"), add_job(database, JobState.TERMINATED, user="nobody")
    for path, status, title in (
        (f"/jobs/{ended}/resubmissions/new", 403, "Resubmit error"),
        (f"/jobs/{job}/signals/9", 403, "Signal error"),
        (f"/jobs/{job}/deletions/new", 403, "Delete error"),
        (f"/jobs/{job}/rholds/new", 403, "Hold error"),
    ):
        refused = daemon.post(path).json()
        assert (refused["status"], refused["title"]) == (status, title), path
    for path, title in (
        (f"/jobs/{job}/signals/HARD", "Signal error"),
        (f"/oarapi/jobs/{job}/resubmissions/new.json", "Resubmit error"),  # it has not ended
    ):
        refused = nobody.post(path).json()
        assert (refused["status"], refused["title"]) == (400, title), path
        assert refused["message"] == refused["detail"]


def test_an_estimate_is_told_and_nothing_is_submitted(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    asked = {"resource": "nodes=1,walltime=0:10:0", "command": "x", "estimate": "1"}
    told = nobody.post("/oarapi/jobs.json", json=asked)
    assert told.status_code == 200, told.text
    record = told.json()
    assert (record["feasible"], record["walltime"], record["hosts"]) == (True, 600, ["node-1"])
    assert record["cmd_output"] == record["output"]
    refused = nobody.post("/oarapi/jobs", json={**asked, "resource": "nodes=x"})
    assert (refused.status_code, "nodes=x" in refused.json()["message"]) == (400, True)
    with database.snapshot() as tx:
        assert not list(tx.jobs.live("nobody"))
    assert nobody.post("/oarapi/jobs.json", json={**asked, "estimate": "0"}).status_code == 201


def test_oar_may_have_problems_as_answers(nobody: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nobody.get("/jobs/999?debug=1").status_code == 404
    monkeypatch.setattr(routes, "DEBUGGER", "nobody")
    shown = nobody.get("/jobs/999?debug=1")
    assert (shown.status_code, shown.json()["title"], shown.json()["code"]) == (200, "ERROR 404 - Job not found", 404)
    assert nobody.get("/jobs/999?debug=0").status_code == 404


def test_large_bodies_of_nobody_are_not_read(anonymous: httpx.Client) -> None:
    for kind in ("application/json", "text/yaml", "multipart/form-data; boundary=b"):
        assert anonymous.post("/oarapi/jobs", content=b"x" * 70_000, headers={"Content-Type": kind}).status_code == 401


def test_the_script_of_the_site_runs_once_at_a_time_and_holds_nobody_up(
    api: Api, anonymous: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "_stress_script", site.StressScript())
    monkeypatch.setattr(site, "STRESS_SECONDS", 600.0)  # a script that is stopped at its time limit gives 404
    runs, script, gate = tmp_path / "runs", tmp_path / "stress.sh", tmp_path / "gate"
    os.mkfifo(gate)
    script.write_text(f"#!/bin/sh\necho x >> {runs}\nread line < {gate}\necho GLOBAL_STRESS=0.35\n")
    script.chmod(0o755)
    api.runtime.config = api.runtime.config.replace(api_stress_factor_script=str(script))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(anonymous.get, "/oarapi/stress_factor")
        text_in(runs)
        others = [httpx.get(f"http://127.0.0.1:{api.port}/oarapi/stress_factor").status_code for _ in range(20)]
        assert (set(others), runs.read_text()) == ({503}, "x\n")
        gate.write_text("\n")
        assert first.result().json()["GLOBAL_STRESS"] == "0.35"
    monkeypatch.setattr(site._stress_script, "_until", 0.0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(anonymous.get, "/oarapi/stress_factor")
        wait_until(lambda: runs.read_text() == "x\nx\n")
        assert httpx.get(f"http://127.0.0.1:{api.port}/oarapi/stress_factor").json()["GLOBAL_STRESS"] == "0.35"
        gate.write_text("\n")
        assert first.result().status_code == 200


def test_a_script_of_the_site_that_hangs_is_ended_with_all_that_it_has_started(
    api: Api, anonymous: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "_stress_script", site.StressScript())
    monkeypatch.setattr(site, "STRESS_SECONDS", 5.0)
    numbers, script = tmp_path / "numbers", tmp_path / "stress.sh"
    script.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {numbers}\nwait\n")
    script.chmod(0o755)
    api.runtime.config = api.runtime.config.replace(api_stress_factor_script=str(script))
    assert anonymous.get("/oarapi/stress_factor").status_code == 404
    wait_until(lambda: not is_alive(int(numbers.read_text())))


def test_a_fault_of_ours_has_a_word_and_a_line_as_all_problems() -> None:
    record = with_legacy_keys({"cmd_output": ""}, 500, "mine")
    assert (record["type"], record["detail"], record["request_id"]) == ("bug", "something went wrong here", "mine")

"""What administrators ask on the addresses of OAR 2.5 and OAR 3."""

import os
import pwd
from collections.abc import Callable

import httpx
import pytest

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from tests.api.conftest import Api
from tests.builders import add_job


@pytest.fixture
def admin(known: Callable[[str, str], httpx.Client]) -> httpx.Client:
    """A client of an administrator."""
    return known(pwd.getpwuid(os.geteuid()).pw_name, "admin")


def test_the_configuration_is_read_without_its_secrets(
    api: Api, admin: httpx.Client, nobody: httpx.Client, anonymous: httpx.Client
) -> None:
    api.runtime.config = Config(api_rate_read=0, db_base_passwd="hush", api_secret_key="hush", log_level=3)
    listed = {item["id"]: item["value"] for item in admin.get("/config?limit=0").json()["items"]}
    assert listed["LOG_LEVEL"] == "3"
    assert not [key for key in listed if "PASS" in key or "SECRET" in key]
    assert "hush" not in listed.values()
    assert admin.get("/config/LOG_LEVEL").json()["value"] == "3"
    assert admin.get("/config/file.json").json()["file"] == api.runtime.conf_file
    for key in ("DB_BASE_PASSWD", "API_SECRET_KEY", "NONE"):
        assert admin.get(f"/config/{key}").status_code == 404
    assert admin.post("/config/LOG_LEVEL", json={"value": 2}).status_code == 405
    assert (nobody.get("/config").status_code, anonymous.get("/config").status_code) == (403, 401)


def test_admission_rules_are_kept_where_the_site_says_so(api: Api, admin: httpx.Client, nobody: httpx.Client) -> None:
    assert admin.get("/admission_rules").status_code == 403
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, api_admission_rules=True)
    made = admin.post("/admission_rules", json={"rule": "pass", "priority": 7, "enalbed": "0"})
    assert made.status_code == 201, made.text
    here = made.headers["location"]
    record = admin.get(here).json()
    assert (record["rule"], record["priority"], record["enabled"], record["enalbed"]) == ("pass", 7, False, False)
    changed = admin.post(here, json={"rule": "x = 1", "enabled": True}).json()
    assert (changed["rule"], changed["enabled"]) == ("x = 1", True)
    assert [item["id"] for item in admin.get("/admission_rules").json()["items"]][-1] == record["id"]
    assert admin.post(here, json={"method": "delete"}).json()["status"] == "deleted"
    assert admin.delete(here).status_code == admin.get(here).status_code == 404
    assert admin.post("/admission_rules", json={}).status_code == 400
    assert nobody.get("/admission_rules").status_code == 403


def test_sql_of_administrators_is_read_only_and_only_where_the_site_says_so(
    api: Api, admin: httpx.Client, nobody: httpx.Client, database: Database
) -> None:
    job = add_job(database, user="alice")
    asked = {"query": "FROM jobs WHERE job_user = 'alice'"}
    assert admin.get("/select_all", params=asked).status_code == 403
    api.runtime.config = Config(api_rate_read=0, api_select_all=True)
    (row,) = admin.get("/select_all", params=asked).json()["items"]
    assert (row["job_id"], row["job_user"], row["job_env"]) == (job, "alice", None)
    assert nobody.get("/select_all", params=asked).status_code == 403
    for query in (
        *("", "jobs", "FROM jobs; DELETE FROM jobs", "FROM api_tokens", "FROM nothing", "FROM jobs)"),
        *("FROM jobs -- x", "FROM pg_read_file('/etc/passwd')", "FROM jobs WHERE pg_sleep(9) IS NULL"),
    ):
        assert admin.get("/select_all", params={"query": query}).status_code == 400, query


def test_resources_are_described_before_they_are_made(admin: httpx.Client, nobody: httpx.Client) -> None:
    asked = {"resources": "-H 2 -C 1 -c 2", "properties": {"cpuset": 0}, "auto_offset": 1}
    listed = admin.post("/resources/generate", json=asked).json()
    assert (listed["total"], {item["network_address"] for item in listed["items"]}) == (4, {"node-1", "node-2"})
    assert admin.get("/resources").json()["total"] == 0
    assert admin.post("/resources/generate", json={"hosts": 1, "cpus": 1, "cores": 3}).json()["total"] == 3
    for bad in ({"resources": "-H"}, {"resources": "--odd 1"}, {"hosts": "x"}, {"resources": "'"}, {"hosts": 10**9}):
        assert admin.post("/resources/generate", json=bad).status_code == 400, bad
    assert nobody.post("/resources/generate", json=asked).status_code == 403


def test_resources_are_made_in_all_forms_and_removed_by_their_cpuset(admin: httpx.Client, database: Database) -> None:
    header = {"X-OAR-Request": "1"}
    form = admin.post("/resources", data={"yaml_array": "- {hostname: a, cpuset: 4}\n- {hostname: a}"}, headers=header)
    assert (form.status_code, form.json()["total"]) == (201, 2)
    named = admin.post("/resources?hostname=b&properties=%7B%22cpuset%22%3A%209%7D", headers=header)
    assert named.status_code == 201, named.text
    assert admin.get(f"/resources/{named.json()['items'][0]['id']}").json()["cpuset"] == 9
    for bad in ({"yaml_array": "{"}, {"hostname": "c", "properties": "{"}):
        assert admin.post("/resources", data=bad, headers=header).status_code == 400
    assert admin.delete("/resources/b/9").status_code == 403
    with database.begin() as tx:
        tx.execute("UPDATE resources SET state = 'Dead'")
    assert admin.delete("/resources/b/9").json()["status"] == "deleted"
    assert admin.delete("/resources/b/9").status_code == 404


def test_a_new_token_is_signed_where_the_site_has_a_key(
    api: Api, nobody: httpx.Client, local: httpx.Client, anonymous: httpx.Client
) -> None:
    assert nobody.post("/get_new_token").status_code == 403
    assert anonymous.post("/get_new_token").status_code == 401
    opaque = local.post("/get_new_token").json()["OAR_API_TOKEN"]
    assert opaque.startswith("oar_")
    user = pwd.getpwuid(os.geteuid()).pw_name
    shown = anonymous.get("/whoami", headers={"Authorization": f"Bearer {opaque}"}).json()
    assert shown["authenticated_user"] == user
    api.runtime.config = Config(api_rate_read=0, api_secret_key="x" * 40)
    assert local.post("/get_new_token").json()["OAR_API_TOKEN"].count(".") == 2


def test_no_get_creates_a_token(local: httpx.Client) -> None:
    refused = local.get("/get_new_token")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert local.get("/v1/tokens").json()["items"] == []


def test_what_is_gone_says_where_it_went(anonymous: httpx.Client) -> None:
    gone = anonymous.get("/colmet/job/1")
    assert (gone.status_code, "/v1/jobs/ID/usage" in gone.json()["message"]) == (410, True)
    tunnel = anonymous.get("/oarapi/proxy/1/")
    assert (tunnel.status_code, "ssh -L" in tunnel.json()["message"]) == (410, True)

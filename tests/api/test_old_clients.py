"""The requests of programs that were written for OAR 2.5, as their sources make them, and what they read of them.

CiGri: ``lib/cigri-restclientlib.rb``, ``-clusterlib``, ``-joblib`` and ``-colombolib``, ``modules/runner.rb``.
oar-skylight: its services ``oar-api``, ``media`` and ``authentification``.
"""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from oar.api.passwords import Passwords
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.api.test_output import NOBODY, home, needs_root
from tests.builders import add_job, add_resources

__all__ = ["home"]

#: What CiGri is told in its table of clusters, and the header that it takes if that says none.
BASE, HEADER = "/oarapi-unsecure/", "X_REMOTE_IDENT"


@pytest.fixture
def site(api: Api, home: Path, tmp_path: Path) -> Api:
    """A site that lets CiGri in from this machine, and serves files of its users."""
    stress = tmp_path / "stress.sh"
    stress.write_text("#!/bin/sh\necho GLOBAL_STRESS=0.35\n")
    stress.chmod(0o755)
    api.runtime.config = Config(
        api_rate_read=0,
        api_rate_change=0,
        api_trusted_proxies=("127.0.0.1/32",),
        api_readers=("127.0.0.1/32",),
        api_media=True,
        api_media_roots=(str(home),),
        api_stress_factor_script=str(stress),
    )
    return api


class Cigri:
    """CiGri's calls of a cluster."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def _headers(self, user: str | None, **more: str) -> dict[str, str]:
        return {**({HEADER: user} if user is not None else {}), **more}

    def get(self, uri: str, user: str | None = None) -> Any:
        answer = self._client.get(urljoin(BASE, uri), headers=self._headers(user, Accept="application/json"))
        assert answer.status_code == 200, answer.text
        assert re.search("application.*json.*", answer.headers["content-type"])
        return answer.json()

    def raw(self, uri: str, user: str) -> str:
        answer = self._client.get(urljoin(BASE, uri), headers=self._headers(user, Accept="application/json"))
        assert answer.status_code == 200, answer.text
        return answer.text

    def collection(self, uri: str, user: str | None = None) -> list[dict[str, Any]]:
        found = self.get(uri, user)
        items: list[dict[str, Any]] = found["items"]
        while following := next((each["href"] for each in found["links"] if each["rel"] == "next"), None):
            found = self.get(following, user)
            items += found["items"]
        return items

    def post(self, uri: str, body: object, user: str) -> httpx.Response:
        headers = self._headers(user, **{"Content-Type": "application/json"})
        return self._client.post(urljoin(BASE, uri), content=json.dumps(body), headers=headers)

    def delete(self, uri: str, user: str) -> httpx.Response:
        headers = self._headers(user, **{"Content-Type": "application/json"})
        return self._client.delete(urljoin(BASE, uri), headers=headers)


@pytest.fixture
def cigri(site: Api) -> Iterator[Cigri]:
    with site.client() as client:
        yield Cigri(client)


@needs_root
def test_cigri_knows_the_jobs_of_its_array_by_their_commands(cigri: Cigri, database: Database, home: Path) -> None:
    add_resources(database)
    parameters = [f"run{number} {number}" for number in range(3)]
    wanted = {"param_file": "\n".join(parameters), "resources": "nodes=1", "command": f"{home}/start.sh"}
    made = cigri.post("jobs", {**wanted, "type": "besteffort"}, "nobody")
    assert made.status_code == 201, made.text
    jobs = cigri.collection(f"jobs/details?array={made.json()['id']}")
    assert sorted(job["command"].split(" ", 1)[1] for job in jobs) == parameters
    assert all(isinstance(job["id"], int) and job["owner"] == "nobody" for job in jobs)
    single = cigri.post("jobs", {"resources": "resource_id=1", "command": "/bin/prologue"}, "nobody").json()
    assert cigri.get(f"jobs/{single['id']}", "nobody")["state"] == "Waiting"


@needs_root
def test_cigri_learns_how_its_jobs_ended(cigri: Cigri, database: Database, home: Path) -> None:
    resources = add_resources(database)
    columns: dict[str, Any] = {
        "user": "nobody",
        "launching_directory": str(home),
        "stderr_file": "err.%jobid%",
    }
    failed = add_job(database, JobState.TERMINATED, on=resources[:1], **columns)
    killed = add_job(database, JobState.ERROR, **columns)
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET exit_code = %s WHERE job_id = %s", (3 << 8, failed))
        tx.events.add(EventType.BESTEFFORT_KILL, killed, "made room")
        tx.events.add(EventType.RESUBMIT_JOB_AUTOMATICALLY, killed, "is submitted again (new id = 99)")
    found = {job["id"]: job for job in cigri.collection(f"jobs/details?ids={failed}:{killed}", "oar")}
    assert (found[failed]["state"], found[failed]["exit_code"] >> 8) == ("Terminated", 3)
    events = {event["type"]: event for event in found[killed]["events"]}
    assert re.findall(r"\(new id = (\d+)\)", events["RESUBMIT_JOB_AUTOMATICALLY"]["description"]) == ["99"]
    assert isinstance(events["BESTEFFORT_KILL"]["date"], int)
    path = f"{found[failed]['launching_directory']}/{found[failed]['stderr_file']}".replace("%jobid%", str(failed))
    Path(path).write_text("one\ntwo\nthree\n")
    assert cigri.raw(f"media{path}?tail=2", "nobody") == "two\nthree\n"
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    assert cigri.delete(f"media/{path}", "nobody").status_code == 204


@needs_root
def test_cigri_ends_a_job_once(cigri: Cigri, database: Database) -> None:
    job = add_job(database, user="nobody")
    first, second = (cigri.delete(f"jobs/{job}", "nobody") for _ in range(2))
    assert (first.status_code, "Delete request registered" in first.text) == (202, True)
    assert (second.status_code, "This job was already killed" in second.text) == (400, True)
    assert cigri.delete(f"jobs/{job}", "daemon").status_code == 403
    assert cigri.delete("jobs/999", "nobody").status_code == 404


@needs_root
def test_cigri_reads_the_whole_cluster(site: Api, cigri: Cigri, database: Database) -> None:
    resources = add_resources(database)
    site.runtime.config = site.runtime.config.replace(api_default_max_items_number=3)
    assert cigri.get("")["links"]
    assert float(cigri.get("stress_factor")["GLOBAL_STRESS"]) == 0.35
    found = cigri.collection("resources/full")
    assert [item["id"] for item in found] == resources
    assert all(item["state"] == "Alive" and isinstance(item["available_upto"], int) for item in found)
    assert all("network_address" in item for item in found)


def test_who_reads_as_anybody_sees_no_more_than_a_user(
    site: Api, cigri: Cigri, anonymous: httpx.Client, database: Database
) -> None:
    job = add_job(database, user="nobody", command="secret")
    assert cigri.get(f"jobs/{job}")["command"] == "secret"
    assert anonymous.post(f"{BASE}jobs", json={"command": "x"}).status_code == 401
    site.runtime.config = site.runtime.config.replace(api_anonymous_read=False)
    assert anonymous.get(f"/v1/jobs/{job}").json()["command"] == "secret"
    site.runtime.config = site.runtime.config.replace(oarstat_private=True)
    assert cigri.get(f"jobs/{job}")["command"] == ""
    site.runtime.config = site.runtime.config.replace(api_readers=())
    assert anonymous.get(f"/v1/jobs/{job}").status_code == 401
    site.runtime.config = Config(api_rate_read=0, api_readers=("192.0.2.0/24",))
    assert anonymous.get(f"/v1/jobs/{job}").json()["command"] is None


RUBY = """
require 'rest-client'
require 'json'
base, home = ARGV
api = RestClient::Resource.new(base, :proxy => nil, :timeout => 30, :verify_ssl => false)
told = {}
get = lambda { |uri, headers = {}| JSON.parse(api[uri].get(headers.merge(:accept => 'application/json'))) }
told['links'] = get.call('')['links'].length
told['resources'] = get.call('resources/full')['items'].map { |each| each['id'] }
told['stress'] = get.call('stress_factor')['GLOBAL_STRESS'].to_f
as = { 'X_REMOTE_IDENT' => 'nobody', :content_type => 'application/json' }
job = { 'param_file' => "a 1\\nb 2", 'resources' => 'nodes=1', 'command' => home + '/run', 'type' => 'besteffort' }
made = api['jobs'].post(job.to_json, as.dup)
told['content_type'] = made.headers[:content_type]
told['made'] = JSON.parse(made)['id']
found = get.call("jobs/details?array=#{told['made']}")['items']
told['parameters'] = found.map { |each| each['command'].split(/ /, 2)[1].to_s }.sort
ids = found.map { |each| each['id'] }
told['cached'] = get.call("jobs/details?ids=#{ids.join(':')}", 'X_REMOTE_IDENT' => 'oar')['items'].length
told['one'] = get.call("jobs/#{ids[0]}", 'X_REMOTE_IDENT' => 'nobody')['state']
told['file'] = api["media#{home}/err?tail=1"].get('X_REMOTE_IDENT' => 'nobody', :accept => 'application/json').body
api["media/#{home}/err"].delete(as.dup)
told['deleted'] = JSON.parse(api["jobs/#{ids[0]}"].delete(as.dup))['status']
begin
  api["jobs/#{ids[0]}"].delete(as.dup)
rescue RestClient::Exception => e
  told['again'] = [e.http_code, e.response.body.include?('This job was already killed')]
end
puts told.to_json
"""


@needs_root
def test_the_library_that_cigri_uses_gets_what_it_reads(site: Api, database: Database, home: Path) -> None:
    ruby = shutil.which("ruby")
    assert ruby, "setup/test installs it"
    resources = add_resources(database)
    error = home / "err"
    error.write_text("one\ntwo\n")
    os.chown(error, NOBODY.pw_uid, NOBODY.pw_gid)
    command = [ruby, "-W0", "-e", RUBY, f"http://127.0.0.1:{site.port}{BASE}", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("made") > 0
    assert told.pop("links") > 5
    assert told == {
        "resources": resources,
        "stress": 0.35,
        "content_type": "application/json; charset=utf-8",
        "parameters": ["a 1", "b 2"],
        "cached": 2,
        "one": "Waiting",
        "file": "two\n",
        "deleted": "Delete request registered",
        "again": [400, True],
    }
    assert not error.exists()


# -- oar-skylight ------------------------------------------------------------------------------------------------------


@pytest.fixture
def skylight(site: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., httpx.Response]]:
    """Asks as the pages of oar-skylight do: a password with each request, and a type of bodies even without one."""
    monkeypatch.setattr(Passwords, "check", lambda *_: None)
    site.runtime.config = site.runtime.config.replace(api_basic_auth="htpasswd", api_readers=())
    secret = base64.b64encode(b"nobody:secret").decode()
    with site.client() as client:

        def ask(method: str, path: str, body: object = None, kind: str = "application/json") -> httpx.Response:
            headers = {"Authorization": f"Basic {secret}", "Content-Type": kind}
            return client.request(method, path, content=None if body is None else json.dumps(body), headers=headers)

        yield ask


@needs_root
def test_skylight_gets_what_it_reads(skylight: Callable[..., httpx.Response], database: Database, home: Path) -> None:
    resources = add_resources(database)
    assert skylight("GET", "/oarapi-priv/whoami.json").json()["authenticated_user"] == "nobody"
    wish = {"resource": "nodes=1", "name": "", "command": "sleep 1", "directory": "", "property": "", "type": ""}
    made = skylight("POST", "/oarapi-priv/jobs", {**wish, "reservation": ""})
    assert made.status_code == 201, made.text
    job, other = made.json()["id"], add_job(database, JobState.RUNNING, user="daemon", on=resources[:1])
    assert [each["id"] for each in skylight("GET", "/oarapi-priv/jobs.json").json()["items"]] == [job, other]
    assert skylight("GET", f"/oarapi-priv/jobs.json?ids={job},{other}").json()["total"] == 2
    own = skylight("GET", "/oarapi/jobs.json?owner=nobody&state=Terminated,Running,Waiting").json()["items"]
    assert [each["id"] for each in own] == [job]
    one = skylight("GET", f"/oarapi-priv/jobs/{other}.json").json()
    assert {"id", "name", "owner", "state", "queue", "submission_time", "start_time", "command", "walltime"} <= set(one)
    parts = skylight("GET", f"/oarapi-priv/jobs/{other}/resources.json").json()["items"]
    assert [each["id"] for each in parts] == resources[:1]
    listed = skylight("GET", "/oarapi-priv/resources.json").json()["items"]
    assert [(each["id"], each["state"]) for each in listed] == [(each, "Alive") for each in resources]
    assert skylight("GET", f"/oarapi-priv/resources/{resources[0]}.json").json()["network_address"] == "node-1"
    assert skylight("GET", f"/oarapi-priv/resources/{resources[0]}/jobs.json").json()["items"][0]["id"] == other


@needs_root
def test_skylight_moves_files(skylight: Callable[..., httpx.Response], home: Path) -> None:
    (home / "out").write_text("text")
    os.chown(home / "out", NOBODY.pw_uid, NOBODY.pw_gid)
    listed = skylight("GET", f"/oarapi-priv/media/ls/{home}").json()["items"]
    assert [(each["name"], each["type"], each["size"]) for each in listed] == [("out", "f", 4)]
    assert skylight("GET", f"/oarapi-priv/media/{home}/out", kind="text/html").text == "text"
    assert skylight("DELETE", f"/oarapi-priv/media/{home}/out").status_code == 204
    assert list(home.iterdir()) == []

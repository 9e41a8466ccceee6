"""POST /oar-cgi: what agents of desktop computers ask, honest and hostile ones; the results for their owners."""

import asyncio
import itertools
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from oar.api.request_bodies import FileBegins, FileData, FormEvent, FormField, agent_boundary_of, form_events
from oar.api.service import UPLOADS_OF_A_COMPUTER
from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.accounts.records import Member, Project
from oar.lib.base.errors import BadRequest
from oar.lib.config.files import Config
from oar.lib.jobs.states import JobState, ProjectMode
from oar.modules.runner.actions.launch import launch_job
from tests.api.conftest import Api
from tests.builders import state_of
from tests.desktop import HOST, OTHER, Desk, ended


class Agents:
    """Clients that show the tokens of computers."""

    def __init__(self, api: Api, desk: Desk, place: Path) -> None:
        self.api, self.desk, self.place = api, desk, place
        self._client = api.client()

    def token(self, scope: str) -> str:
        with self.desk.database.begin() as tx:
            return tokens.create(tx, User("root", 0, administers=True), scope=scope)[1]

    def post(self, scope: str | None = f"agent:{HOST}", **request: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token(scope)}"} if scope else request.pop("headers", {})
        return self._client.post("/oar-cgi", headers=headers, **request)

    def ask(self, request: str = "PULL", hostname: str = HOST, **fields: Any) -> httpx.Response:
        return self.post(json={"request": request, "hostname": hostname, **fields})

    def send(
        self, job_id: int | str, data: bytes, hostname: str = HOST, scope: str = f"agent:{HOST}"
    ) -> httpx.Response:
        fields = {"request": "STAGEOUT", "hostname": hostname, "job_id": str(job_id)}
        return self.post(scope, data=fields, files={"file": ("x", data)})

    def running(self, **columns: Any) -> int:
        job_id = self.desk.job(**columns)
        launch_job(self.desk.context, job_id)
        assert list(self.ask().json()["launch"]) == [str(job_id)]
        return job_id

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def agents(api: Api, tmp_path: Path) -> Iterator[Agents]:
    desk = Desk(api.runtime.database, stageout_dir=str(tmp_path / "out"), api_rate_change=0, api_rate_read=0)
    api.runtime.config = desk.config
    made = Agents(api, desk, tmp_path / "out")
    yield made
    made.close()


def test_an_agent_fetches_a_job_and_tells_its_end(agents: Agents) -> None:
    job_id = agents.running(command="./run")
    assert agents.ask(jobs={str(job_id): {"state": "running"}}).json() == {"launch": {}, "kill": [], "next": 30}
    assert agents.ask(jobs={str(job_id): {"state": "ended", "status": 256}}).status_code == 200
    assert agents.desk.code(job_id) == 0


@pytest.mark.parametrize(
    ("scope", "status"),
    [(None, 401), ("rw", 403), ("admin", 403), ("agent:desk-2", 403), ("agent:*", 200), (f"agent:{HOST}", 200)],
)
def test_only_the_token_of_a_computer_opens_its_questions(agents: Agents, scope: str | None, status: int) -> None:
    answer = agents.post(scope, json={"request": "PULL", "hostname": HOST})
    assert answer.status_code == status


@pytest.mark.parametrize("route", ["/v1/jobs", "/v1/whoami", "/v1/tokens", "/v1/nodes"])
def test_the_token_of_a_computer_opens_nothing_else(api: Api, agents: Agents, route: str) -> None:
    headers = {"Authorization": f"Bearer {agents.token(f'agent:{HOST}')}"}
    assert httpx.get(f"http://127.0.0.1:{api.port}{route}", headers=headers).status_code == 403


def test_unknown_computers_are_created_where_the_site_and_the_token_let_them(agents: Agents) -> None:
    new = {"request": "PULL", "hostname": "desk-9"}
    assert agents.post("agent:*", json=new).status_code == 404
    agents.api.runtime.config = agents.desk.config.replace(desktop_computing_allow_create_node=True)
    assert agents.post("agent:desk-9", json=new).status_code == 404
    assert agents.post("agent:*", json=new).status_code == 200
    agents.desk.execute("UPDATE resources SET desktop_computing = 'NO' WHERE network_address = 'desk-9'")
    assert agents.post("agent:desk-9", json=new).status_code == 409


NO_JOBS: list[Any] = [[], "1", 1, {"x": {}}, {"1": 1}, {"01": {}}]
BAD: list[Any] = [
    *("", "{", "[]", "1", '"PULL"', "null", "{}", "\0", "[" * 20_000),
    *({"request": each, "hostname": HOST} for each in ("pull", "", None, 1, "EVAL", ["PULL"])),
    *({"request": "PULL", "hostname": each} for each in ("", None, 1, "x" * 256, [HOST], "a\0b", "a b")),
    *({"request": "PULL", "hostname": HOST, "jobs": each} for each in NO_JOBS),
    *({"request": "PULL", "hostname": HOST, "jobs": {each: {"state": "running"}}} for each in ("-1", "1e3", "9" * 30)),
    *(
        {"request": "PULL", "hostname": HOST, "jobs": {"1": {"state": "ended", **each}}}
        for each in (
            {"status": -1},
            {"status": 65536},
            {"status": "0"},
            {"reason": 1},
            {"reason": "x" * 1001},
            {"x": 1},
        )
    ),
    {"request": "PULL", "hostname": HOST, "jobs": {str(number): {"state": "running"} for number in range(1, 1002)}},
    {"request": "PULL", "hostname": HOST, "quit": "yes"},
    {"request": "STAGEIN", "hostname": HOST},
    {"request": "STAGEIN", "hostname": HOST, "job_id": "1"},
    {"request": "STAGEIN", "hostname": HOST, "job_id": 2**63},
    {"request": "STAGEOUT", "hostname": HOST, "job_id": 1},
    {"request": "PULL", "hostname": HOST, "user": "root"},
]


@pytest.mark.parametrize("body", BAD, ids=lambda body: str(body)[:60])
def test_a_question_that_is_none_is_refused(agents: Agents, body: Any) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    assert agents.post(content=text).status_code == 400


@pytest.mark.parametrize(
    "fields",
    [
        {"project": "physics"},
        {"jobs": {"JOB": {"state": "running", "project": "physics"}}},
        {"jobs": {"JOB": {"state": "ended", "status": 0, "project": "physics"}}},
        {"request": "STAGEIN", "job_id": "JOB", "project": "physics"},
    ],
)
def test_an_agent_chooses_no_project(agents: Agents, fields: dict[str, Any]) -> None:
    job_id = running_of_biology(agents)
    text = json.dumps({"request": "PULL", "hostname": HOST, **fields})
    text = text.replace('"job_id": "JOB"', f'"job_id": {job_id}').replace("JOB", str(job_id))
    answer = agents.post(content=text)
    assert (answer.status_code, "project" in answer.text) == (400, True)
    assert projects(agents) == ["biology"]
    assert agents.desk.code(job_id) is None


def test_a_project_beside_the_request_of_an_agent_has_no_effect(agents: Agents) -> None:
    job_id = running_of_biology(agents)
    headers = {"Authorization": f"Bearer {agents.token(f'agent:{HOST}')}", "OAR_PROJECT": "physics"}
    pull = {"request": "PULL", "hostname": HOST, "jobs": {str(job_id): {"state": "running"}}}
    assert agents.post(None, json=pull, headers=headers, params={"project": "physics"}).status_code == 200
    form = {"request": "STAGEOUT", "hostname": HOST, "job_id": str(job_id), "project": "physics"}
    assert agents.post(data=form, files={"file": ("x", b"x")}).status_code == 200
    assert projects(agents) == ["biology"]


def running_of_biology(agents: Agents) -> int:
    """Let a computer run a job of alice, who may not use the project physics."""
    agents.api.runtime.config = agents.desk.config.replace(projects=ProjectMode.MEMBERS)
    with agents.desk.database.begin() as tx:
        for name in ("physics", "biology"):
            tx.projects.create(Project(name))
        tx.projects.add(Member("biology", "alice"))
    return agents.running(user="alice", project="biology")


def projects(agents: Agents) -> list[str]:
    """Return the projects of all jobs."""
    with agents.desk.database.begin() as tx:
        return tx.column("SELECT project FROM jobs")


def test_a_reason_loses_what_cannot_be_shown_or_stored(agents: Agents) -> None:
    job_id = agents.running()
    told = {"state": "ended", "reason": "not started: \x00\x1b[2J\u202e <b>"}
    assert agents.ask(jobs={str(job_id): told}).status_code == 200
    assert agents.desk.end(job_id).data["text"] == "??[2J? <b>"


def test_jobs_of_other_computers_are_out_of_reach(agents: Agents, tmp_path: Path) -> None:
    other = agents.desk.job(host=1)
    launch_job(agents.desk.context, other)
    agents.desk.pull(host=OTHER)
    assert agents.ask("STAGEIN", job_id=other).status_code == 409
    assert agents.send(other, b"x").status_code == 409
    assert agents.send(other, b"x", hostname=OTHER).status_code == 403
    assert agents.ask(jobs={str(other): {"state": "ended", "status": 0}}).json()["kill"] == []
    assert state_of(agents.desk.database, other) is JobState.RUNNING
    assert not agents.place.exists()


def test_the_file_of_a_job_comes_to_its_computer(agents: Agents, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(b"\0given")
    with agents.desk.database.begin() as tx:
        file_id = tx.new_jobs.add_file("0" * 32, str(tmp_path / "given"), "tar", 6).id
    job_id = agents.running(file_id=file_id)
    answer = agents.ask("STAGEIN", job_id=job_id)
    assert (answer.content, answer.headers["content-type"]) == (b"\0given", "application/octet-stream")
    (tmp_path / "given").unlink()
    assert agents.ask("STAGEIN", job_id=job_id).status_code == 404
    agents.desk.pull({job_id: ended()})
    assert agents.ask("STAGEIN", job_id=job_id).status_code == 409


def test_results_are_kept_and_fetched_by_their_owner(
    agents: Agents, known: Callable[[str], httpx.Client], anonymous: httpx.Client
) -> None:
    job_id = agents.running(user="nobody")
    owner, other = known("nobody"), known("daemon")
    assert owner.get(f"/v1/jobs/{job_id}/stageout").status_code == 404
    assert agents.send(job_id, b"first").json() == {"status": "created"}
    assert agents.send(job_id, b"x" * 3_000_000).json() == {"status": "created"}
    assert (agents.place / f"{job_id}.tgz").stat().st_mode & 0o777 == 0o600
    assert owner.get(f"/v1/jobs/{job_id}/stageout").content == b"x" * 3_000_000
    assert other.get(f"/v1/jobs/{job_id}/stageout").status_code == 403
    assert anonymous.get(f"/v1/jobs/{job_id}/stageout").status_code == 401
    assert [path.name for path in agents.place.iterdir()] == [f"{job_id}.tgz"]


def test_results_that_are_too_large_leave_nothing(agents: Agents) -> None:
    agents.api.runtime.config = agents.desk.config.replace(api_max_upload=1000)
    job_id = agents.running()
    assert agents.send(job_id, b"x" * 1001).status_code == 413
    assert agents.send(job_id, b"x" * 100_000).status_code == 413
    assert not list(agents.place.iterdir())
    assert agents.send(job_id, b"x" * 1000).status_code == 200


def test_an_upload_without_end_is_cut_off_and_leaves_nothing(agents: Agents) -> None:
    most = 1 << 20
    agents.api.runtime.config = agents.desk.config.replace(api_max_upload=most)
    job_id, sent = agents.running(), 0
    fields = {"request": "STAGEOUT", "hostname": HOST, "job_id": str(job_id)}

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for name, value in fields.items():
            yield f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        yield b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
        while sent < 1 << 30:
            yield bytes(1 << 16)
            sent += 1 << 16

    headers = {"Authorization": f"Bearer {agents.token(f'agent:{HOST}')}"}
    headers["Content-Type"] = "multipart/form-data; boundary=b"
    with suppress(httpx.HTTPError):  # the connection is closed while the client sends
        answer = httpx.post(
            f"http://127.0.0.1:{agents.api.port}/oar-cgi", content=endless(), headers=headers, timeout=60
        )
        assert answer.status_code == 413
    assert most <= sent < 64 * most  # what the kernel holds is beside it
    assert not list(agents.place.iterdir())
    assert agents.send(job_id, b"x" * 1000).status_code == 200


def test_uploads_that_stand_still_hold_up_no_other_computer(agents: Agents, caplog: pytest.LogCaptureFixture) -> None:
    job_id, other = agents.running(), agents.desk.job(host=1)
    launch_job(agents.desk.context, other)
    agents.desk.pull(host=OTHER)
    form = '--b\r\nContent-Disposition: form-data; name="request"\r\n\r\nSTAGEOUT\r\n'
    form += f'--b\r\nContent-Disposition: form-data; name="hostname"\r\n\r\n{HOST}\r\n'
    form += f'--b\r\nContent-Disposition: form-data; name="job_id"\r\n\r\n{job_id}\r\n'
    form += '--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx'
    head = "POST /oar-cgi HTTP/1.1\r\nHost: oar\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    head += f"Content-Length: 1000000\r\nAuthorization: Bearer {agents.token(f'agent:{HOST}')}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(UPLOADS_OF_A_COMPUTER):
            stalled = stack.enter_context(socket.create_connection(("127.0.0.1", agents.api.port)))
            stalled.sendall((head + form).encode())
        while len(list(agents.place.glob(".*.part"))) < UPLOADS_OF_A_COMPUTER:
            pass
        assert agents.send(job_id, b"x").status_code == 503
        assert agents.send(other, b"x", OTHER, f"agent:{OTHER}").status_code == 200
    while list(agents.place.glob(".*.part")):
        pass
    assert agents.send(job_id, b"x").status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("job_id", ["", "../1", "-1", "0", "1.5", "9" * 30, "٣"])
def test_results_have_the_number_of_a_job(agents: Agents, job_id: str) -> None:
    assert agents.send(job_id, b"x").status_code == 400
    assert not agents.place.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b--\r\n",
        b"--b\r\n\r\nx\r\n--b--",
        b"--c\r\nx",
        b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nx',
        b"--b\r\n" + b"x" * 10_000,
        b'--b\r\ncontent-disposition: form-data; name="job_id"\r\n\r\n' + b"1" * 5000,
    ],
)
def test_a_form_that_is_none_is_refused(agents: Agents, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {agents.token(f'agent:{HOST}')}"}
    headers["Content-Type"] = "multipart/form-data; boundary=b"
    answer = httpx.post(f"http://127.0.0.1:{agents.api.port}/oar-cgi", content=body, headers=headers)
    assert answer.status_code == 400


def test_agents_ask_no_oftener_than_the_site_lets_them(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.api.service._changes, "_clock", lambda: 0.0)  # nothing may come back with time
    agents.api.runtime.config = Config(api_rate_change=1)
    agents.api.service.set_rates()
    statuses = [agents.ask().status_code for _ in range(12)]
    assert statuses[0] == 200
    assert 429 in statuses


# -- forms ------------------------------------------------------------------------------------------------------------

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="job_id"\r\n\r\n12\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\nContent-Type: a/b\r\n\r\n'
    b"\r\n--a\r\n-- b\r\n\r\n--b--\r\n"
)


def _read(pieces: Iterable[bytes]) -> list[FormEvent]:
    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def read() -> list[FormEvent]:
        return [event async for event in form_events("b", stream())]

    return asyncio.run(read())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_form_is_read_alike_from_pieces_of_any_size(size: int) -> None:
    events = _read([FORM[start : start + size] for start in range(0, len(FORM), size)])
    assert events[:2] == [FormField("job_id", "12"), FileBegins()]
    assert b"".join(event.data for event in events if isinstance(event, FileData)) == b"\r\n--a\r\n-- b\r\n"


def test_what_stands_behind_the_end_of_a_form_is_not_kept() -> None:
    tracemalloc.start()
    try:
        assert len(_read(itertools.chain([FORM], (bytes(1 << 16) for _ in range(100))))) == len(_read([FORM]))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_form_without_a_boundary_is_not_read(agents: Agents) -> None:
    headers = {"Authorization": f"Bearer {agents.token(f'agent:{HOST}')}", "Content-Type": "multipart/form-data; x"}
    address = f"http://127.0.0.1:{agents.api.port}/oar-cgi"
    answer = httpx.post(address, content=b" " * (agents.desk.config.api_max_body + 1), headers=headers)
    assert (answer.status_code, "boundary" in answer.text) == (400, True)


def test_a_form_without_an_end_is_not_whole() -> None:
    with pytest.raises(BadRequest):
        _read([FORM[:-8]])


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "multipart/form-data; boundary=", "x"])
def test_other_bodies_are_no_forms(kind: str) -> None:
    assert agent_boundary_of(kind) is None


def test_a_token_of_agents_dies_with_the_rights_of_who_made_it(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    with agents.desk.database.begin() as tx:
        made = [tokens.create(tx, User(name, 1, administers=True), scope=f"agent:{HOST}")[1] for name in ("games", "x")]
    question = {"request": "PULL", "hostname": HOST}
    former, gone = (agents.post(None, json=question, headers={"Authorization": f"Bearer {each}"}) for each in made)
    assert (former.status_code, gone.status_code) == (403, 403)
    assert "not an administrator any more" in former.json()["detail"]


def test_a_token_of_all_computers_is_not_as_many_as_it_names(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.api.service._farms, "_clock", lambda: 0.0)  # nothing may come back with time
    agents.api.runtime.config = agents.desk.config.replace(api_rate_change=1)
    agents.api.service.set_rates()
    token = agents.token("agent:*")

    def ask(host: str) -> int:
        question = {"request": "PULL", "hostname": host}
        return agents.post(None, json=question, headers={"Authorization": f"Bearer {token}"}).status_code

    statuses = [ask(f"desk-{number}") for number in range(101)]
    assert (statuses[0], statuses[-1]) == (404, 429)
    assert agents.ask().status_code == 200

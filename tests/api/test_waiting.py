"""Requests that wait for another state of a job hold neither a thread nor a seat of those who ask."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import httpx
import pytest

from oar.api import long_polling
from oar.api.concurrency import WAITING_FOR_A_THREAD
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.api.scheduling import scheduling
from tests.builders import add_job, add_resources

#: More seconds than any test takes: what ends a wait is what happens.
LONG = 3600
Ask = Callable[..., "Future[httpx.Response]"]


@pytest.fixture
def ask(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Lets somebody wait for a job, None: for what happens, in a thread of its own; at the end nobody waits."""
    monkeypatch.setattr(long_polling, "MAX_WAIT", LONG)
    address = f"http://127.0.0.1:{api.port}/v1"
    with ThreadPoolExecutor(WAITING_FOR_A_THREAD + 1) as pool:

        def asked(job: int | None, /, **parameters: str) -> "Future[httpx.Response]":
            before = api.service.hub.listeners
            told: dict[str, str | int] = {"wait": LONG, **parameters}
            path = "events" if job is None else f"jobs/{job}"
            future = pool.submit(httpx.get, f"{address}/{path}", params=told, timeout=None)
            while api.service.hub.listeners == before and not future.done():
                wait([future], 0.01)
            return future

        yield asked
        api.service.hub.stop()


def _move(database: Database, job: int, state: JobState) -> None:
    with database.begin() as tx:
        lifecycle.move(tx, job, state)


def test_an_answer_comes_with_the_next_state(ask: Ask, database: Database) -> None:
    job, other = add_job(database), add_job(database)
    answer = ask(job)
    _move(database, other, JobState.HOLD)
    _move(database, job, JobState.HOLD)
    assert answer.result().json()["state"] == "Hold"


def test_nobody_who_waits_keeps_others_from_asking(
    ask: Ask, api: Api, anonymous: httpx.Client, database: Database
) -> None:
    api.runtime.config = Config(api_threads=1, api_rate_read=0)
    job = add_job(database)
    answers = [ask(job) for _ in range(WAITING_FOR_A_THREAD + 1)]
    assert anonymous.get(f"/v1/jobs/{job}").json()["state"] == "Waiting"
    _move(database, job, JobState.HOLD)
    assert {answer.result().json()["state"] for answer in answers} == {"Hold"}


def test_an_answer_comes_with_what_happens_next(ask: Ask, anonymous: httpx.Client, database: Database) -> None:
    job, other = add_job(database), add_job(database)
    while anonymous.get("/v1/events").json()["position"].startswith("s0."):
        pass
    answer = ask(None, job=str(job))
    _move(database, other, JobState.HOLD)
    _move(database, job, JobState.HOLD)
    page = answer.result().json()
    assert [(each["job"], each["state"]) for each in page["items"]] == [(job, "Hold")]
    later = ask(None, since=page["position"])
    _move(database, job, JobState.WAITING)
    assert [each["state"] for each in later.result().json()["items"]] == ["Waiting"]
    assert ask(None, since=page["position"]).result().json() == later.result().json()


@pytest.mark.parametrize(
    ("state", "stays"),
    [(JobState.TERMINATED, {}), (JobState.TERMINATED, {"while": "all"}), (JobState.HOLD, {"while": "Waiting,running"})],
)
def test_what_has_happened_already_is_told_at_once(
    ask: Ask, api: Api, database: Database, state: JobState, stays: dict[str, str]
) -> None:
    job = add_job(database, state)
    assert ask(job, **stays).result().json()["state"] == state
    assert api.service.hub.listeners == 0


def test_the_end_of_the_wait_and_of_the_service_tell_what_is(
    ask: Ask, api: Api, anonymous: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(database)
    answer = ask(job, **{"while": "live"})
    monkeypatch.setattr(long_polling, "MAX_WAIT", 0.01)
    assert anonymous.get(f"/v1/jobs/{job}", params={"wait": 30}).json()["state"] == "Waiting"
    api.service.hub.stop()
    assert answer.result().json()["state"] == "Waiting"
    assert api.service.hub.listeners == 0


@pytest.mark.parametrize(
    ("asked", "status"),
    [("9999?wait=30", 404), ("1?wait=30&while=gone", 400), ("1?wait=-1", 400), ("1?while=live", 400)],
)
def test_what_cannot_be_awaited_is_refused(
    api: Api, anonymous: httpx.Client, database: Database, asked: str, status: int
) -> None:
    add_job(database)
    assert anonymous.get(f"/v1/jobs/{asked}").status_code == status
    assert api.service.hub.listeners == 0


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits has an answer, however long a busy scheduler takes."""
    monkeypatch.setattr(long_polling, "MAX_WAIT", LONG)


def _reserve(client: httpx.Client, path: str, **headers: str) -> httpx.Response:
    """Ask for a reservation in the middle of the next hour."""
    date = time.strftime("%Y-%m-%d %H:30:00", time.localtime(time.time() + 3600))
    body = {"command": "true", "reservation": date, "resources": "nodes=1,walltime=0:10:0"}
    return client.post(path, json=body, params={"wait": LONG}, headers=headers, timeout=None)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("path", ["/v1/jobs", "/oarapi/jobs"])
def test_a_reservation_is_submitted_with_its_answer(
    api: Api, nobody: httpx.Client, database: Database, path: str
) -> None:
    add_resources(database)
    with scheduling(api, database):
        answer = _reserve(nobody, path)
    assert (answer.status_code, answer.json()["reservation"]) == (201, "Scheduled")
    assert api.service.hub.listeners == 0


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("path", ["/v1/jobs", "/oarapi/jobs"])
def test_a_refused_reservation_is_told_in_the_words_of_oarsub(
    api: Api, nobody: httpx.Client, database: Database, path: str
) -> None:
    resources = add_resources(database)
    add_job(database, JobState.RUNNING, on=resources, walltime=4 * 3600)
    with scheduling(api, database):
        answers = [_reserve(nobody, path, **{"Idempotency-Key": "x"}) for _ in range(2)]
    for answer in answers:
        assert (answer.status_code, answer.json()["type"]) == (409, "reservation-refused")
        assert answer.json()["detail"].startswith("Reservation not valid --> KO (")
    (job,) = answers[0].json()["ids"]
    assert answers[1].json()["ids"] == [job]
    assert nobody.get(f"/v1/jobs/{job}").json()["state"] == "Error"


def test_a_reservation_without_an_answer_in_time_is_told_so(
    api: Api, nobody: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polling, "MAX_WAIT", 0.01)
    add_resources(database)
    answers = [_reserve(nobody, "/v1/jobs")]
    monkeypatch.setattr(api.service.hub, "_limit", 0)
    answers.append(_reserve(nobody, "/v1/jobs"))
    assert [(each.status_code, each.json()["reservation"]) for each in answers] == [(201, "toSchedule")] * 2


@pytest.mark.parametrize("path", ["/v1/jobs", "/oarapi/jobs"])
def test_a_reservation_that_is_submitted_is_told_so_whatever_fails_then(
    api: Api, nobody: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def gone(*_: object) -> None:
        raise DatabaseUnavailable("it does not answer")

    monkeypatch.setattr(long_polling, "MAX_WAIT", 0.01)
    api.service.hub.stop()
    monkeypatch.setattr(api.service.hub, "position", None)
    add_resources(database)
    answers = [_reserve(nobody, path)]
    monkeypatch.setattr(long_polling, "_answer_to_all", gone)
    answers.append(_reserve(nobody, path))
    assert [(each.status_code, each.json().get("reservation")) for each in answers] == [(201, "toSchedule")] * 2


@pytest.mark.parametrize("path", ["/v1/jobs", "/oarapi/jobs"])
def test_a_job_without_a_reservation_has_no_answer_to_wait_for(nobody: httpx.Client, path: str) -> None:
    answer = nobody.post(path, json={"command": "true"}, params={"wait": 30})
    assert (answer.status_code, "`wait` must be used with `reservation`" in answer.json()["detail"]) == (400, True)

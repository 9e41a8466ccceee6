"""Advance reservations, as programs read them: lists with conditions, one by its name, and what belongs to it."""

from collections.abc import Iterator

import httpx
import pytest

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from tests.api.conftest import Api
from tests.api.scheduling import scheduling
from tests.builders import add_job, add_resources


@pytest.fixture
def course(api: Api, nobody: httpx.Client, database: Database) -> Iterator[dict[str, object]]:
    """A reservation of two nodes called course, and a later one called seminar."""
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, reservation_open=True)
    add_resources(database)
    with scheduling(api, database):
        wish = {"duration": 3600, "resources": ["nodes=2"], "account": "secret"}
        made = nobody.post("/v1/reservations", json={**wish, "start": "+1h", "name": "course"}).json()["items"][0]
        nobody.post("/v1/reservations", json={**wish, "start": "+5h", "name": "seminar"}).raise_for_status()
        yield made


def names(client: httpx.Client, **conditions: object) -> list[str]:
    """Return the names of the reservations of a list."""
    found = client.get("/v1/reservations", params={name: str(value) for name, value in conditions.items()})
    found.raise_for_status()
    return [each["ar_name"] for each in found.json()["items"]]


@pytest.mark.usefixtures("course")
def test_conditions_hold_together(nobody: httpx.Client, anonymous: httpx.Client) -> None:
    assert names(anonymous) == ["course", "seminar"]
    assert names(nobody, name="sem*") == ["seminar"]
    assert names(nobody, name="course,sem*", state="w") == ["course", "seminar"]
    assert names(nobody, state="r,E") == []
    assert names(nobody, owner="me") == names(nobody, owner="nob*") == ["course", "seminar"]
    assert names(nobody, owner="alice") == []
    assert anonymous.get("/v1/reservations", params={"state": "q"}).status_code == 400
    assert anonymous.get("/v1/reservations", params={"owner": "me"}).status_code == 401


@pytest.mark.usefixtures("course")
def test_some_fields_and_pages(nobody: httpx.Client) -> None:
    some = nobody.get("/v1/reservations", params={"fields": "id,ar_name", "name": "course"}).json()
    assert [sorted(each) for each in some["items"]] == [["ar_name", "id"]]
    assert nobody.get("/v1/reservations", params={"fields": "id,color"}).status_code == 400
    first = nobody.get("/v1/reservations", params={"limit": 1}).json()
    assert ([each["ar_name"] for each in first["items"]], first["next"] is None) == (["seminar"], False)
    second = nobody.get("/v1/reservations", params={"limit": 1, "before_id": first["next"]}).json()
    assert ([each["ar_name"] for each in second["items"]], second["next"]) == (["course"], None)


def test_one_is_found_by_its_number_and_its_name(nobody: httpx.Client, course: dict[str, object]) -> None:
    by_name = nobody.get("/v1/reservations/course").json()
    assert by_name == nobody.get(f"/v1/reservations/{course['id']}").json()
    assert nobody.get("/v1/reservations/lesson").status_code == 404
    assert nobody.patch("/v1/reservations/seminar", json={"name": "course"}).status_code == 200
    several = nobody.get("/v1/reservations/course")
    assert (several.status_code, str(course["id"]) in several.json()["detail"]) == (400, True)
    assert nobody.delete("/v1/reservations/course").status_code == 400
    assert nobody.delete(f"/v1/reservations/{course['id']}").status_code == 202
    assert nobody.delete("/v1/reservations/course").status_code == 202


def test_what_belongs_to_one(
    nobody: httpx.Client, anonymous: httpx.Client, course: dict[str, object], database: Database
) -> None:
    inside, _ = add_job(database, user="nobody"), add_job(database, user="nobody")
    with database.begin() as tx:
        tx.reservations.add_job(tx.reservations.live_by_name("course")[0].id, [inside])
    nobody.patch("/v1/reservations/course", json={"duration": 1800}).raise_for_status()

    def parts(client: httpx.Client, what: str) -> dict[str, object]:
        answer = client.get(f"/v1/reservations/course/{what}")
        answer.raise_for_status()
        return dict(answer.json())

    assert [each["event"] for each in parts(nobody, "log")["items"]] == ["CREATED", "ALTERED"]  # type: ignore[attr-defined]
    jobs = parts(nobody, "jobs")
    assert ([each["id"] for each in jobs["items"]], jobs["next"]) == ([inside], None)  # type: ignore[attr-defined]
    held = parts(nobody, "resources")
    assert (held["resources"], held["missing"], held["reasons"]) == (course["resources"], [], [])
    assert parts(nobody, "usage") == {"items": []}
    revisions = parts(nobody, "revisions")["items"]
    told = [(each["revision"], each["end_time"] - each["start_time"], each["account"]) for each in revisions]  # type: ignore[attr-defined]
    assert told == [(1, 3600, "secret"), (2, 1800, "secret")]
    for what in ("log", "jobs", "resources", "usage", "revisions"):
        assert nobody.get(f"/v1/reservations/99/{what}").status_code == 404


def test_who_may_not_see_the_account_sees_it_in_no_revision(
    api: Api, anonymous: httpx.Client, course: dict[str, object]
) -> None:
    api.runtime.config = Config(api_rate_read=0, oarstat_private=True)
    (revision,) = anonymous.get(f"/v1/reservations/{course['id']}/revisions").json()["items"]
    assert revision["account"] == ""

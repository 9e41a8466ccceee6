"""Projects through the API: who may read and change what, in the words of oarproject."""

import json
import os
import pwd
from collections.abc import Callable

import httpx
import pytest

from oar.cli import oarproject
from oar.lib.access.records import User
from oar.lib.accounts.records import NO_END, Budget, Member, Project
from oar.lib.accounts.states import MemberRole
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import ProjectMode
from tests.api.conftest import Api
from tests.builders import add_job, add_resources
from tests.db.test_user_limits import consume
from tests.frontend import Frontend

NOBODY = "nobody"


@pytest.fixture
def admin(known: Callable[[str, str], httpx.Client]) -> httpx.Client:
    return known(pwd.getpwuid(os.geteuid()).pw_name, "admin")


@pytest.fixture
def physics(database: Database) -> None:
    """The project physics of alice, and physics.cms below it, which ``nobody`` manages."""
    with database.begin() as tx:
        for name, parent in (("physics", None), ("physics.cms", "physics")):
            tx.projects.create(Project(name, parent=parent))
        tx.projects.add(Member("physics", "alice"))
        tx.projects.add(Member("physics.cms", NOBODY, MemberRole.MANAGER))


def members(database: Database, name: str) -> dict[str, tuple[str, int]]:
    with database.snapshot() as tx:
        return {member.entry: (member.role, member.shares) for member in tx.projects.members([name])}


def test_administrators_create_change_and_delete_projects(admin: httpx.Client, database: Database) -> None:
    made = admin.post("/v1/projects", json={"name": "physics", "description": "Particles", "shares": 3})
    assert (made.status_code, made.headers["location"]) == (201, "/v1/projects/physics")
    assert admin.post("/v1/projects", json={"name": "physics.cms", "parent": "physics"}).status_code == 201
    assert admin.post("/v1/projects", json={"name": "physics"}).status_code == 409
    assert admin.post("/v1/projects", json={"name": "x", "parent": "chemistry"}).status_code == 404
    assert admin.patch("/v1/projects/physics", json={"state": "closed", "shares": 5}).status_code == 200
    items = admin.get("/v1/projects").json()["items"]
    assert [(item["name"], item["parent"], item["state"], item["shares"]) for item in items] == [
        ("physics", None, "closed", 5),
        ("physics.cms", "physics", "open", 1),
    ]
    assert admin.patch("/v1/projects/physics", json={}).status_code == 400
    dates = {"start_date": 1_900_000_000, "end_date": 2_000_000_000}
    assert admin.patch("/v1/projects/physics", json={**dates, "description": "All"}).status_code == 200
    assert {**admin.get("/v1/projects/physics").json(), **dates, "description": "All"} == admin.get(
        "/v1/projects/physics"
    ).json()
    assert admin.patch("/v1/projects/physics", json={"end_date": 1_800_000_000}).status_code == 400
    assert admin.delete("/v1/projects/physics").status_code == 409  # it has a sub-project
    add_job(database, project="physics.cms")
    assert admin.delete("/v1/projects/physics.cms").status_code == 409
    assert admin.get("/v1/projects/chemistry").json()["type"] == "no-such-project"


@pytest.mark.usefixtures("physics")
def test_a_manager_changes_members_of_his_project_only(nobody: httpx.Client, database: Database) -> None:
    of_own, of_other = "/v1/projects/physics.cms/members", "/v1/projects/physics/members"
    assert nobody.put(f"{of_own}/bob", json={"role": "manager", "shares": 4}).status_code == 200
    assert nobody.put(f"{of_own}/@cms").status_code == 200
    assert members(database, "physics.cms") == {"bob": ("manager", 4), NOBODY: ("manager", 1), "@cms": ("member", 1)}
    assert nobody.delete(f"{of_own}/bob").status_code == 200
    assert nobody.delete(f"{of_own}/bob").status_code == 400
    for refused in (
        nobody.put(f"{of_other}/bob"),
        nobody.delete(f"{of_other}/alice"),
        nobody.post("/v1/projects", json={"name": "mine"}),
        nobody.patch("/v1/projects/physics.cms", json={"shares": 100}),
        nobody.patch("/v1/projects/physics.cms", json={"state": "closed"}),
        nobody.delete("/v1/projects/physics.cms"),
        nobody.put("/v1/users/alice/project", json={"project": "physics"}),
    ):
        assert refused.status_code == 403
    assert set(members(database, "physics")) == {"alice"}


@pytest.mark.usefixtures("physics")
def test_members_are_shown_to_those_of_the_project(nobody: httpx.Client, anonymous: httpx.Client) -> None:
    own = nobody.get("/v1/projects/physics.cms").json()
    assert own["members"] == [{"user": NOBODY, "role": "manager", "shares": 1, "fair_share": None}]
    assert anonymous.get("/v1/projects/physics.cms").json() == {**own, "members": None}
    assert anonymous.put("/v1/projects/physics.cms/members/eve").status_code == 401


@pytest.mark.usefixtures("physics")
def test_projects_have_their_fair_share(api: Api, anonymous: httpx.Client) -> None:
    assert {item["fair_share"] for item in anonymous.get("/v1/projects").json()["items"]} == {None}
    api.runtime.config = Config(projects=ProjectMode.MEMBERS)
    whole, part = anonymous.get("/v1/projects").json()["items"]
    assert whole["fair_share"] == {"target": 1.0, "used": 0, "effective": 0.0}
    assert part["fair_share"]["target"] == 0.5  # alice has the other half
    assert anonymous.get("/v1/projects/physics.cms").json()["fair_share"] == part["fair_share"]


@pytest.mark.usefixtures("physics")
def test_private_usage_is_shown_to_its_user_and_to_administrators(
    api: Api, anonymous: httpx.Client, nobody: httpx.Client, admin: httpx.Client, database: Database
) -> None:
    api.runtime.config = Config(projects=ProjectMode.MEMBERS, api_accounting_private=True)
    consume(database, NOBODY, "physics.cms", 30)
    consume(database, "alice", "physics", 10)
    with database.begin() as tx:
        tx.projects.add(Member("physics", NOBODY))
        tx.projects.add(Member("physics.cms", "alice"))
    for reader in (anonymous, nobody):
        shares = [item["fair_share"] for item in reader.get("/v1/projects").json()["items"]]
        assert [share["used"] for share in shares] == [share["effective"] for share in shares] == [None, None]
        assert shares[0]["target"] == 1.0
    for reader, used in ((nobody, {"alice": None, NOBODY: 30}), (admin, {"alice": 0, NOBODY: 30})):
        details = reader.get("/v1/projects/physics.cms").json()
        assert {member["user"]: member["fair_share"]["used"] for member in details["members"]} == used
        assert details["fair_share"]["used"] == (30 if reader is admin else None)
    assert [item["fair_share"]["effective"] for item in admin.get("/v1/projects").json()["items"]] == [1.0, 0.75]


@pytest.mark.usefixtures("physics")
def test_a_token_that_may_only_read_changes_nothing(known: Callable[[str, str], httpx.Client]) -> None:
    assert known(NOBODY, "ro").put("/v1/projects/physics.cms/members/bob").status_code == 403


@pytest.mark.usefixtures("physics")
def test_a_manager_controls_the_jobs_of_his_project_only_where_the_site_allows_it(
    api: Api, nobody: httpx.Client, known: Callable[[str, str], httpx.Client], database: Database
) -> None:
    own = add_job(database, user="bob", project="physics.cms", command="secret")
    other = add_job(database, user="bob", project="physics", command="secret")

    def statuses(client: httpx.Client, job: int) -> list[int]:
        acts = [client.post(f"/v1/jobs/{job}/{act}") for act in ("hold", "resume")]
        return [answer.status_code for answer in [*acts, client.delete(f"/v1/jobs/{job}")]]

    api.runtime.config = api.runtime.config.replace(oarstat_private=True)
    assert statuses(nobody, own) == [403] * 3
    assert nobody.get(f"/v1/jobs/{own}").json()["command"] is None
    api.runtime.config = api.runtime.config.replace(project_managers_control_jobs=True)
    assert nobody.get(f"/v1/jobs/{own}").json()["command"] == "secret"
    assert nobody.get(f"/v1/jobs/{other}").json()["command"] is None
    assert statuses(nobody, other) == [403] * 3
    assert nobody.post(f"/jobs/{other}/holds/new.json").status_code == 403  # the older API
    assert statuses(known(NOBODY, "ro"), own) == [403] * 3
    assert statuses(nobody, own) == [202] * 3


@pytest.mark.usefixtures("physics")
def test_the_projects_of_a_manager_are_read_only_where_jobs_are_shown(
    api: Api, nobody: httpx.Client, sent: Callable[..., list[str]], database: Database
) -> None:
    job = add_job(database, user="bob", project="physics.cms", command="secret")
    api.runtime.config = api.runtime.config.replace(project_managers_control_jobs=True, oarstat_private=True)

    def reads_members(address: str) -> bool:
        return any("project_members" in statement for statement in sent(address, nobody))

    addresses = ("/v1/queues", "/v1/jobs", "/v1/events", f"/v1/jobs/{job}", "/v1/jobs?details=true")
    assert list(map(reads_members, addresses)) == [False, False, False, True, True]
    assert nobody.get("/v1/jobs?details=true").json()["items"][0]["command"] == "secret"


@pytest.mark.usefixtures("physics")
def test_a_user_sets_his_own_default_project(api: Api, nobody: httpx.Client, database: Database) -> None:
    api.runtime.config = Config(projects=ProjectMode.MEMBERS)
    assert nobody.put(f"/v1/users/{NOBODY}/project", json={"project": "physics.cms"}).status_code == 200
    with database.snapshot() as tx:
        assert tx.projects.default_of(NOBODY) == "physics.cms"
    assert nobody.put(f"/v1/users/{NOBODY}/project", json={"project": "chemistry"}).status_code == 404


@pytest.mark.usefixtures("physics")
def test_the_command_shows_the_same_record(admin: httpx.Client, database: Database) -> None:
    frontend = Frontend(database)
    for words, address in ((("--list",), "projects"), (("--show", "physics"), "projects/physics")):
        typed = frontend.type(oarproject.main, *words, "-J", user=User("root", 0)).out
        record = admin.get(f"/v1/{address}").json()
        assert json.loads(typed) == record.get("items", record)


def test_budgets_are_set_shown_and_removed(admin: httpx.Client, nobody: httpx.Client, database: Database) -> None:
    with database.begin() as tx:
        for name, parent in (("physics", None), ("physics.cms", "physics")):
            tx.projects.create(Project(name, parent=parent))
        tx.projects.add(Member("physics", NOBODY, MemberRole.MANAGER))
    body = {"period_end": 2**31 - 1, "resource_hours": 10.5, "on_exhaustion": "wait"}
    assert nobody.put("/v1/projects/physics/budgets/0", json=body).status_code == 403
    assert admin.put("/v1/projects/physics/budgets/0", json=body).status_code == 200
    assert nobody.put("/v1/projects/physics.cms/budgets/5", json=body).status_code == 200
    assert nobody.put("/v1/projects/physics.cms/budgets/5", json={**body, "resource_hours": 11}).status_code == 403
    assert admin.put("/v1/projects/physics/budgets/9", json=body).status_code == 400  # overlaps
    assert admin.put("/v1/projects/nowhere/budgets/9", json=body).status_code == 404
    for wrong in ({"resource_hours": -1}, {"resource_hours": 1e13}, {"period_end": 0}, {"on_exhaustion": "x"}):
        assert admin.put("/v1/projects/physics/budgets/0", json={**body, **wrong}).status_code == 400
    (budget,) = nobody.get("/v1/projects/physics").json()["budgets"]
    assert budget == {**body, "period_start": 0, "used": 0, "counted": 0, "left": 37800, "exhausted_on": None}
    assert nobody.delete("/v1/projects/physics/budgets/0").status_code == 403
    assert admin.delete("/v1/projects/physics/budgets/0").status_code == 200
    assert admin.delete("/v1/projects/physics/budgets/0").status_code == 400
    assert [item["budgets"] for item in admin.get("/v1/projects").json()["items"] if item["name"] == "physics"] == [[]]


def test_a_submission_through_the_api_is_refused_when_the_budget_is_used_up(
    api: Api, nobody: httpx.Client, database: Database
) -> None:
    add_resources(database)
    with database.begin() as tx:
        tx.projects.create(Project("physics"))
        tx.budgets.store(Budget("physics", 0, NO_END, 0))
    api.runtime.config = Config(projects=ProjectMode.KNOWN)
    for path, body in (
        ("/v1/jobs", {"command": "x"}),
        ("/oarapi/jobs.json", {"script": "x", "resource": "/resource_id=1"}),
    ):
        answer = nobody.post(path, json={**body, "project": "physics"})
        assert 400 <= answer.status_code < 500
        assert "is used up: 0.0 of 0 resource hours" in answer.text


@pytest.mark.usefixtures("physics")
def test_unknown_users_periods_that_are_too_short_and_empty_defaults(admin: httpx.Client, database: Database) -> None:
    added = admin.put("/v1/projects/physics/members/al1ce").json()
    assert added["warnings"][-1] == "there is no al1ce on this machine: check the name"
    assert admin.get("/v1/limits", params={"user": "al1ce"}).status_code == 200  # he is in a project now
    assert admin.get("/v1/limits", params={"user": "b0b"}).status_code == 400
    short = {"period_end": 1_900_003_600, "resource_hours": 5}
    refused = admin.put("/v1/projects/physics/budgets/1900000000", json=short)
    assert (refused.status_code, "no whole accounting window" in refused.text) == (400, True)
    for name in ("physics", ""):
        assert admin.put("/v1/users/alice/project", json={"project": name}).status_code == 200
        with database.snapshot() as tx:
            assert tx.projects.default_of("alice") == name

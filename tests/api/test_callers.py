"""Who is asking: the peer of the socket, a token, a proxy that is trusted; nobody else."""

import grp
import hashlib
import os
import pwd

import httpx
import pytest

from oar.api.authentication import Caller, Way
from oar.lib.access.records import User
from oar.lib.access.scopes import OF_ONE_JOB, JobAct, Scopes
from oar.lib.base.errors import NotAllowed
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources

TOKEN = "oar_" + "a" * 43
BEARER = {"Authorization": f"Bearer {TOKEN}"}
USER = "nobody"


def _who(client: httpx.Client, **headers: str) -> tuple[str | None, str]:
    record = client.get("/v1/whoami", headers=headers).json()
    return record["user"], record["way"]


def _trust(api: Api, *networks: str) -> None:
    api.runtime.config = Config(api_trusted_proxies=networks)


def test_over_the_network_nobody_is_known(anonymous: httpx.Client) -> None:
    assert _who(anonymous) == (None, "not")


def test_the_kernel_tells_who_uses_the_local_socket(local: httpx.Client) -> None:
    assert _who(local) == (pwd.getpwuid(os.geteuid()).pw_name, "socket")


@pytest.mark.parametrize("header", ["X-Remote-Ident", "X_REMOTE_IDENT", "X-Forwarded-User", "Remote-User"])
def test_a_header_of_a_stranger_says_nothing(anonymous: httpx.Client, header: str) -> None:
    assert _who(anonymous, **{header: USER, "X-Forwarded-For": "127.0.0.1"}) == (None, "not")


@pytest.mark.parametrize("header", ["X-Remote-Ident", "X_REMOTE_IDENT"])
def test_a_header_of_a_trusted_proxy_names_the_user(api: Api, anonymous: httpx.Client, header: str) -> None:
    _trust(api, "127.0.0.0/8")
    assert _who(anonymous, **{header: USER}) == (USER, "proxy")


@pytest.mark.parametrize("name", ["", "unknown", "(null)", "root", "oar", "a b", "x" * 40, "../etc", "Nobody"])
def test_a_trusted_proxy_cannot_name_everybody(api: Api, anonymous: httpx.Client, name: str) -> None:
    _trust(api, "127.0.0.0/8")
    assert _who(anonymous, **{"X-Remote-Ident": name}) == (None, "not")


def test_a_forwarded_address_makes_no_proxy(api: Api, anonymous: httpx.Client) -> None:
    _trust(api, "192.0.2.1/32")
    assert _who(anonymous, **{"X-Remote-Ident": USER, "X-Forwarded-For": "192.0.2.1"}) == (None, "not")


def _store(database: Database, *, user: str = USER, scope: str = "ro", expires: int = 0) -> int:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    with database.begin() as tx:
        return tx.access.insert_token(user, digest, scope=scope, comment="", expires=expires)


def _command(client: httpx.Client, job_id: int) -> str | None:
    command: str | None = client.get(f"/v1/jobs/{job_id}", headers=BEARER).json()["command"]
    return command


def test_a_token_is_its_user(anonymous: httpx.Client, database: Database) -> None:
    _store(database)
    assert _who(anonymous, Authorization=f"Bearer {TOKEN}") == (USER, "token")


@pytest.mark.parametrize("text", ["Bearer x", "Bearer", "Basic eDp5", f"Bearer {TOKEN}", f"Bearer {TOKEN} {TOKEN}"])
def test_a_token_that_is_none_is_told_so(anonymous: httpx.Client, text: str) -> None:
    answer = anonymous.get("/v1/whoami", headers={"Authorization": text})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_a_token_ends_when_it_expires_or_is_revoked(anonymous: httpx.Client, database: Database) -> None:
    expired = _store(database, expires=1)
    header = {"Authorization": f"Bearer {TOKEN}"}
    assert anonymous.get("/v1/whoami", headers=header).status_code == 401
    with database.begin() as tx:
        tx.execute("UPDATE api_tokens SET expires = 0")
    assert anonymous.get("/v1/whoami", headers=header).status_code == 200
    with database.begin() as tx:
        tx.access.revoke_token([expired])
    assert anonymous.get("/v1/whoami", headers=header).status_code == 401


def test_a_site_may_let_nobody_read_without_a_name(api: Api, anonymous: httpx.Client, local: httpx.Client) -> None:
    api.runtime.config = Config(api_anonymous_read=False)
    assert anonymous.get("/v1/jobs").status_code == 401
    assert local.get("/v1/jobs").status_code == 200


def test_a_proxy_of_a_local_account_is_trusted_on_the_socket(api: Api, local: httpx.Client) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    _trust(api, f"unix:{me}")
    assert _who(local, **{"X-Remote-Ident": USER}) == (USER, "proxy")
    assert _who(local) == (None, "not")  # a proxy is nobody itself
    _trust(api, "unix:daemon", "unix:no-such-account")
    assert _who(local, **{"X-Remote-Ident": USER}) == (me, "socket")


@pytest.mark.parametrize(
    ("scope", "is_administrator"),
    [("rw", False), ("ro", False), ("submit", False), ("job:JOB", False), ("admin", True)],
)
def test_an_administrator_is_one_by_a_token_of_that_scope_only(
    anonymous: httpx.Client, database: Database, scope: str, is_administrator: bool
) -> None:
    scope = scope.replace("JOB", str(add_job(database)))
    _store(database, user="root", scope=scope)
    record = anonymous.get("/v1/whoami", headers=BEARER).json()
    assert (record["user"], record["scope"], record["is_administrator"]) == ("root", scope, scope == "admin")


def test_members_of_the_group_of_administrators_are_some(api: Api, local: httpx.Client, database: Database) -> None:
    _store(database, scope="admin")
    assert local.get("/v1/whoami", headers=BEARER).json()["is_administrator"] is False
    group = grp.getgrgid(pwd.getpwnam(USER).pw_gid).gr_name
    api.runtime.config = Config(api_admin_group=group)
    assert local.get("/v1/whoami", headers=BEARER).json()["is_administrator"] is True
    api.runtime.config = Config(api_admin_group="no-such-group")
    assert local.get("/v1/whoami", headers=BEARER).json()["is_administrator"] is False


def test_a_token_of_one_job_shows_what_is_private_of_that_job_and_its_array(
    anonymous: httpx.Client, database: Database
) -> None:
    mine = add_job(database, user=USER, command="./mine")
    other = add_job(database, user=USER, command="./other")
    _store(database, scope=f"job:{mine}")
    assert (_command(anonymous, mine), _command(anonymous, other)) == ("./mine", None)


def test_a_token_of_submissions_shows_what_is_private_of_its_own(anonymous: httpx.Client, database: Database) -> None:
    mine = add_job(database, user=USER, command="./mine")
    other = add_job(database, user=USER, command="./other")
    token = _store(database, scope="submit")
    with database.begin() as tx:
        tx.access.record_submitted_jobs(token, [mine])
        tx.access.record_submitted_jobs(token, [mine])
    assert (_command(anonymous, mine), _command(anonymous, other)) == ("./mine", None)
    listed = anonymous.get("/v1/jobs", params={"details": True}, headers=BEARER).json()["items"]
    assert {job["command"] for job in listed} == {None}


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("rw", set(JobAct)),
        ("ro", {JobAct.READ_OUTPUT}),
        ("submit", set()),
        ("job:1", set()),
        ("job:JOB", OF_ONE_JOB),
        ("ro,job:JOB", OF_ONE_JOB),
        ("admin", set(JobAct)),
    ],
)
def test_each_scope_allows_what_it_says_and_nothing_else(database: Database, scope: str, allowed: set[JobAct]) -> None:
    job_id = add_job(database, user=USER) + 1
    caller = Caller(User(USER, 65534), Way.TOKEN, Scopes.parse(scope.replace("JOB", str(job_id))), 7)
    done = set()
    for act in JobAct:
        try:
            caller.acting(act, [job_id])
        except NotAllowed:
            continue
        done.add(act)
    assert done == allowed


def test_what_a_token_has_submitted_it_may_delete() -> None:
    user, scopes = User(USER, 65534), Scopes.parse("submit")
    caller = Caller(user, Way.TOKEN, scopes, find_submitted=lambda jobs: frozenset(jobs) & {1})
    assert caller.submitting().name == USER
    assert caller.acting(JobAct.DELETE, [1]).name == USER
    with pytest.raises(NotAllowed, match=r"cannot hold job 1: the token has the scope submit\. Create a token with"):
        caller.acting(JobAct.HOLD, [1])
    with pytest.raises(NotAllowed, match="cannot delete job 2"):
        caller.acting(JobAct.DELETE, [1, 2])


def test_a_token_of_one_job_is_valid_for_an_hour_after_its_end(anonymous: httpx.Client, database: Database) -> None:
    (resource,) = add_resources(database, nodes=1, cores=1)
    job_id = add_job(database, JobState.TERMINATED, on=[resource])
    _store(database, scope=f"job:{job_id}")
    assert _who(anonymous, **BEARER) == (USER, "token")
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET stop_time = stop_time - 3700")
    refused = anonymous.get("/v1/whoami", headers=BEARER)
    assert (refused.status_code, refused.json()["detail"]) == (401, "the token is not valid: its job has ended.")

"""Passwords, sessions of browsers, and tokens made over HTTP."""

import base64
import grp
import json
import os
import pwd
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import jwt
import pytest

from oar.api import passwords
from oar.api.concurrency import Failures
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from tests.api.conftest import Api
from tests.builders import add_resources

USER, PASSWORD = "nobody", "correct horse"
JSON = {"Content-Type": "application/json"}
ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def site(api: Api, tmp_path: Path) -> Config:
    """Let the users of a file in; return the configuration."""
    users = tmp_path / "users"
    lines = [f"{USER}:{passwords.apache_md5(PASSWORD.encode(), b'salt')}", "ghost:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M="]
    users.write_text("\n".join([*lines, f"root:{passwords.apache_md5(PASSWORD.encode(), b'salt')}", "", "nonsense"]))
    api.runtime.config = Config(api_basic_auth="htpasswd", htpasswd_file=str(users), api_rate_read=0, api_rate_change=0)
    return api.runtime.config


@pytest.fixture
def browser(api: Api, site: Config) -> Iterator[httpx.Client]:
    """A browser on a page of ours, which keeps cookies."""
    headers = {"Sec-Fetch-Site": "same-origin"}
    with api.client(headers=headers) as client:
        yield client


def _log_in(browser: httpx.Client, **shown: object) -> httpx.Response:
    return browser.post("/v1/session", json={"user": USER, "password": PASSWORD, **shown})


def _who(client: httpx.Client, **headers: str) -> tuple[str | None, str]:
    record = client.get("/v1/whoami", headers=headers).json()
    return record["user"], record["way"]


def _basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def test_a_password_names_the_user(browser: httpx.Client) -> None:
    assert _who(browser, **_basic(USER, PASSWORD)) == (USER, "password")


def test_root_makes_tokens_of_others_and_nobody_else_does(local: httpx.Client, browser: httpx.Client) -> None:
    made = local.post("/v1/tokens", json={"user": USER, "scope": "ro", "comment": "for the portal"}).json()
    assert made["user"] == USER
    assert _who(browser, Authorization=f"Bearer {made['token']}") == (USER, "token")
    listed = browser.get("/v1/tokens", headers={"Authorization": f"Bearer {made['token']}"}).json()["items"]
    assert [(each["id"], each["comment"]) for each in listed] == [(made["id"], "for the portal")]
    for wish in ({"user": USER, "scope": "admin"}, {"user": "x-who-is-not"}, {"user": "a\0b"}):
        assert local.post("/v1/tokens", json=wish).status_code == 403
    others = browser.post("/v1/tokens", json={"user": "daemon"}, headers=_basic(USER, PASSWORD) | JSON)
    assert (others.status_code, others.json()["type"]) == (403, "not-allowed")


@pytest.mark.parametrize(
    ("name", "password", "status"),
    [
        (USER, "wrong", 401),
        (USER, "", 401),
        ("", "", 401),
        ("stranger", PASSWORD, 401),
        ("ghost", "test", 403),  # the file knows him, this machine does not
        ("root", PASSWORD, 403),
        (USER, "a\0b", 401),
        (USER, "x" * 5000, 401),
        ("nonsense", "", 401),
    ],
)
def test_another_password_does_not(browser: httpx.Client, name: str, password: str, status: int) -> None:
    answer = browser.get("/v1/whoami", headers=_basic(name, password))
    assert answer.status_code == status
    assert PASSWORD not in answer.text


def test_what_is_no_name_and_password_is_told_so(browser: httpx.Client) -> None:
    for text in ("Basic", "Basic !!!", "Basic w7w6", "Basic 77+9/w==", "Digest x"):
        assert browser.get("/v1/whoami", headers={"Authorization": text}).status_code == 401


def test_who_guesses_is_stopped_even_when_he_guesses_right(api: Api, browser: httpx.Client) -> None:
    api.service.identities.passwords.failures = Failures(clock=lambda: 0.0)  # nothing is forgiven meanwhile
    statuses = [browser.get("/v1/whoami", headers=_basic(USER, str(guess))).status_code for guess in range(6)]
    assert statuses == [401] * 5 + [429]
    stopped = browser.get("/v1/whoami", headers=_basic(USER, PASSWORD))
    assert (stopped.status_code, stopped.json()["type"]) == (429, "too-often")
    assert int(stopped.headers["retry-after"]) > 0
    assert _who(browser) == (None, "not")  # others from the same address read on


def test_passwords_are_not_taken_where_the_site_does_not_say_so(api: Api, anonymous: httpx.Client) -> None:
    assert anonymous.get("/v1/whoami", headers=_basic(USER, PASSWORD)).status_code == 401


@pytest.mark.parametrize(("code", "status"), [(0, 200), (1, 401), (2, 503), (127, 503)])
def test_pam_is_asked_by_a_program_that_gets_the_password_on_its_input(
    api: Api, browser: httpx.Client, tmp_path: Path, code: int, status: int
) -> None:
    program = tmp_path / "oar-password-check"
    program.write_text(f'#!/bin/sh\necho "$#" > {tmp_path}/asked\ncat >> {tmp_path}/asked\nexit {code}\n')
    program.chmod(0o755)
    api.service.identities.passwords.program = str(program)
    api.runtime.config = Config(api_basic_auth="pam", oar_privilege_cmd="env", api_rate_read=0)
    assert browser.get("/v1/whoami", headers=_basic(USER, PASSWORD)).status_code == status
    assert (tmp_path / "asked").read_text() == f"0\n{USER}\0{PASSWORD}"


def test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(browser: httpx.Client) -> None:
    answer = _log_in(browser)
    assert (answer.status_code, answer.json()) == (201, {"user": USER})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert _who(browser) == (USER, "session")


def test_who_logs_out_is_nobody_whatever_was_kept(browser: httpx.Client) -> None:
    _log_in(browser)
    kept = browser.cookies["oar_session"]
    assert browser.delete("/v1/session").status_code == 204
    assert _who(browser, Cookie=f"oar_session={kept}") == (None, "not")


def test_the_secret_of_a_cookie_is_no_token_and_a_token_is_no_cookie(
    browser: httpx.Client, local: httpx.Client
) -> None:
    _log_in(browser)
    secret = browser.cookies["oar_session"]
    assert local.get("/v1/whoami", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    token = local.post("/v1/tokens", json={}).json()["token"]
    browser.cookies.clear()
    assert _who(browser, Cookie=f"oar_session={token}") == (None, "not")


@pytest.mark.parametrize("site_of_page", ["cross-site", "same-site"])
def test_pages_of_other_sites_change_nothing(browser: httpx.Client, site_of_page: str) -> None:
    _log_in(browser)
    forged = {"Sec-Fetch-Site": site_of_page, **JSON, "X-OAR-Request": "1"}
    assert browser.post("/v1/tokens", json={}, headers=forged).status_code == 403
    assert browser.delete("/v1/session", headers=forged).status_code == 403
    assert _log_in(browser).status_code == 201
    assert browser.post("/v1/session", content=b"{}", headers=forged).status_code == 403


def test_a_form_without_the_word_of_a_browser_changes_nothing(api: Api, browser: httpx.Client) -> None:
    _log_in(browser)
    del browser.headers["Sec-Fetch-Site"]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser.delete("/v1/session", headers=form).status_code == 403
    assert browser.post("/v1/jobs/1/hold").status_code == 403
    octets = {"Content-Type": "application/octet-stream"}
    assert browser.post("/v1/job-acts", content=b"x", headers=octets).status_code == 400
    assert browser.delete("/v1/session", headers={**form, "X-OAR-Request": "1"}).status_code == 204


def test_a_session_by_a_token_allows_no_more_than_the_token_and_ends_with_it(
    browser: httpx.Client, local: httpx.Client
) -> None:
    made = local.post("/v1/tokens", json={"scope": "ro"}).json()
    assert browser.post("/v1/session", json={"token": made["token"]}).status_code == 201
    record = browser.get("/v1/whoami").json()
    assert (record["user"], record["way"], record["scope"]) == (ME, "session", "ro")
    assert browser.post("/v1/tokens", json={}).status_code == 403
    assert local.delete(f"/v1/tokens/{made['id']}").status_code == 204
    assert _who(browser) == (None, "not")
    assert browser.post("/v1/session", json={"token": made["token"]}).status_code == 401


def test_a_session_begun_with_a_token_of_one_day_creates_no_token(
    browser: httpx.Client, local: httpx.Client, database: Database
) -> None:
    made = local.post("/v1/tokens", json={"user": USER, "days": 1}).json()
    assert browser.post("/v1/session", json={"token": made["token"]}).status_code == 201
    refused = browser.post("/v1/tokens", json={"days": 300})
    assert (refused.status_code, refused.json()["type"]) == (403, "not-allowed")
    assert browser.post("/get_new_token").status_code == 403
    assert {each.parent for each in database.look(lambda tx: tx.access.tokens_of(USER))} == {0, made["id"]}


def test_a_session_begun_with_a_token_becomes_no_administrators(
    api: Api, site: Config, browser: httpx.Client, local: httpx.Client
) -> None:
    group = grp.getgrgid(pwd.getpwnam(USER).pw_gid).gr_name
    api.runtime.config = Config(api_basic_auth="htpasswd", htpasswd_file=site.htpasswd_file, api_admin_group=group)
    token = local.post("/v1/tokens", json={"user": USER, "days": 1}).json()["token"]
    assert browser.post("/v1/session", json={"token": token}).status_code == 201
    assert browser.post("/v1/session", json={"sudo": True, "password": PASSWORD}).status_code == 400
    assert browser.get("/v1/whoami").json()["is_administrator"] is False


def test_a_session_ends_with_its_token_however_that_ends(
    browser: httpx.Client, local: httpx.Client, database: Database
) -> None:
    for end in ("revoked = 1", "expires = 1"):
        made = local.post("/v1/tokens", json={"user": USER, "days": 1}).json()
        assert browser.post("/v1/session", json={"token": made["token"]}).status_code == 201
        with database.begin() as tx:
            tx.execute(f"UPDATE api_tokens SET {end} WHERE token_id = %s", (made["id"],))
        assert _who(browser) == (None, "not")
        assert local.get("/v1/tokens", params={"everybody": True}).json()["items"] == []


def test_what_a_session_submits_belongs_to_the_token_it_began_with(
    browser: httpx.Client, local: httpx.Client, database: Database
) -> None:
    add_resources(database, 1)
    token = local.post("/v1/tokens", json={"user": USER, "scope": "submit"}).json()["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    browser.post("/v1/session", json={"token": token})
    in_session = browser.post("/v1/jobs", json={"command": "true"}).json()["ids"][0]
    by_token = browser.post("/v1/jobs", json={"command": "true"}, headers=bearer).json()["ids"][0]
    assert browser.delete(f"/v1/jobs/{in_session}", headers=bearer).status_code == 202
    assert browser.delete(f"/v1/jobs/{by_token}").status_code == 202


def test_a_session_begun_with_a_signed_token_ends_with_it(api: Api, browser: httpx.Client, tmp_path: Path) -> None:
    revoked = tmp_path / "revoked"
    revoked.write_text("{}")
    group = grp.getgrgid(pwd.getpwnam(USER).pw_gid).gr_name
    keys = {"api_secret_key": "k" * 64, "api_revoked_tokens": str(revoked), "api_admin_group": group}
    api.runtime.config = Config(**keys)
    token = _signed()["Authorization"].removeprefix("Bearer ")
    assert browser.post("/v1/session", json={"token": token}).status_code == 201
    record = browser.get("/v1/whoami").json()
    assert (record["user"], record["way"], record["is_administrator"]) == (USER, "session", False)
    assert browser.post("/v1/tokens", json={"days": 300}).status_code == 403
    assert browser.post("/v1/session", json={"sudo": True, "password": PASSWORD}).status_code == 400
    revoked.write_text(json.dumps({"revoked": {USER: "2099-01-01 00:00:00"}}))
    assert _who(browser) == (None, "not")


def test_a_token_of_submissions_reads_nothing_private_of_its_user(
    api: Api, browser: httpx.Client, local: httpx.Client
) -> None:
    api.runtime.config = Config(user_sql_full_users=[USER])
    wish = {"act": "delete", "condition": "(SELECT true)", "dry_run": True}
    for scope, statuses in (("submit", (403, 400)), ("ro", (200, 200))):
        token = local.post("/v1/tokens", json={"user": USER, "scope": scope}).json()["token"]
        bearer = {"Authorization": f"Bearer {token}"}
        listed = browser.get("/v1/tokens", headers=bearer)
        chosen = browser.post("/v1/job-acts", json=wish, headers=bearer)
        assert (listed.status_code, chosen.status_code) == statuses


def test_an_administrator_proves_once_more_who_he_is(
    api: Api, site: Config, browser: httpx.Client, database: Database
) -> None:
    group = grp.getgrgid(pwd.getpwnam(USER).pw_gid).gr_name
    api.runtime.config = Config(api_basic_auth="htpasswd", htpasswd_file=site.htpasswd_file, api_admin_group=group)
    _log_in(browser)
    assert browser.get("/v1/whoami").json()["is_administrator"] is True
    with database.begin() as tx:
        tx.execute("UPDATE api_tokens SET proved = proved - 1000")
    assert browser.get("/v1/whoami").json()["is_administrator"] is False
    assert browser.post("/v1/session", json={"sudo": True, "password": "wrong"}).status_code == 401
    assert browser.post("/v1/session", json={"sudo": True, "user": "daemon", "password": "x"}).status_code == 403
    assert browser.post("/v1/session", json={"sudo": True, "password": PASSWORD}).status_code == 201
    assert browser.get("/v1/whoami").json()["is_administrator"] is True


def test_a_session_goes_on_while_it_is_used(browser: httpx.Client, database: Database) -> None:
    _log_in(browser)
    with database.begin() as tx:
        tx.execute("UPDATE api_tokens SET expires = expires - 7 * 3600")
        before = tx.value("SELECT expires FROM api_tokens")
    _who(browser)
    with database.begin() as tx:
        assert tx.value("SELECT expires FROM api_tokens") >= before + 7 * 3600


def test_tokens_are_valid_for_as_long_as_the_site_says(api: Api, local: httpx.Client) -> None:
    api.runtime.config = Config(api_token_days=2)
    made = local.post("/v1/tokens", json={}).json()
    assert made["expires"] - api.runtime.database.run(lambda tx: tx.now) <= 2 * 86400
    refused = local.post("/v1/tokens", json={"days": 3})
    assert (refused.status_code, refused.json()["type"]) == (400, "bad-request")


def test_tokens_are_made_listed_and_revoked(local: httpx.Client) -> None:
    answer = local.post("/v1/tokens", json={"scope": "submit", "days": 3, "comment": "ci"})
    assert "location" not in answer.headers  # one token has no address at which it could be read
    made = answer.json()
    (listed,) = local.get("/v1/tokens").json()["items"]
    assert (listed["id"], listed["scope"], listed["comment"], "token" in listed) == (made["id"], "submit", "ci", False)
    bearer = {"Authorization": f"Bearer {made['token']}"}
    assert local.post("/v1/tokens", json={}, headers=bearer).status_code == 403
    assert local.delete(f"/v1/tokens/{made['id']}", headers=bearer).status_code == 204
    assert local.get("/v1/tokens").json()["items"] == []
    assert local.delete(f"/v1/tokens/{made['id']}").status_code == 400


@pytest.mark.parametrize(
    "wish", [{"scope": "all"}, {"scope": "session"}, {"days": 0}, {"days": 366}, {"comment": "a\nb"}, {"owner": "root"}]
)
def test_a_token_that_cannot_be_is_refused(local: httpx.Client, wish: dict[str, object]) -> None:
    assert local.post("/v1/tokens", json=wish).status_code == 400


def _signed(algorithm: str = "HS256", key: str = "k" * 64, **claims: object) -> dict[str, str]:
    now = datetime.now(UTC)
    whole = {"user": USER, "date": now.strftime("%Y-%m-%d %H:%M:%S"), "exp": now + timedelta(minutes=5), **claims}
    return {"Authorization": "Bearer " + jwt.encode({k: v for k, v in whole.items() if v}, key, algorithm)}


def test_signed_tokens_of_oar_3_are_taken_where_there_is_a_key(
    api: Api, anonymous: httpx.Client, tmp_path: Path
) -> None:
    assert anonymous.get("/v1/whoami", headers=_signed()).status_code == 401
    revoked = tmp_path / "revoked"
    revoked.write_text('{"global": "2020-01-01 00:00:00"}')
    api.runtime.config = Config(api_secret_key="k" * 64, api_revoked_tokens=str(revoked))
    assert _who(anonymous, **_signed()) == (USER, "token")
    for forged in (
        _signed(key="l" * 64),
        _signed("none", key=""),
        _signed("HS512"),
        _signed(exp=None),
        _signed(date=None),
        _signed(date="yesterday"),
        _signed(exp=datetime.now(UTC) - timedelta(minutes=1)),
    ):
        assert anonymous.get("/v1/whoami", headers=forged).status_code == 401
    assert anonymous.get("/v1/whoami", headers=_signed(user="root")).status_code == 403
    revoked.write_text(json.dumps({"revoked": {USER: "2099-01-01 00:00:00"}}))
    assert anonymous.get("/v1/whoami", headers=_signed()).status_code == 401
    revoked.write_text("nonsense, which is longer")
    assert anonymous.get("/v1/whoami", headers=_signed()).status_code == 401


def test_administrators_see_and_revoke_the_tokens_of_others(nobody: httpx.Client, local: httpx.Client) -> None:
    assert nobody.get("/v1/tokens", params={"everybody": True}).status_code == 403
    listed = local.get("/v1/tokens", params={"everybody": True}).json()["items"]
    (his,) = [token for token in listed if token["user"] == "nobody"]
    assert [token["user"] for token in nobody.get("/v1/tokens").json()["items"]] == ["nobody"]
    assert local.delete(f"/v1/tokens/{his['id']}").status_code == 204
    assert nobody.get("/v1/tokens").status_code == 401

"""Of several ways in which a request says who asks one counts; what is no way says nothing."""

import grp
import logging
import os
import pwd
from collections.abc import Callable

import httpx
import pytest
from starlette.requests import Request

from oar.api import authentication, passwords
from oar.api.clients import Peer, find_client
from oar.lib.base.errors import NotAllowed
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from tests.api.conftest import Api

LOOPBACK = ("127.0.0.0/8",)
Known = Callable[[str, str], httpx.Client]


def _who(client: httpx.Client, **headers: str) -> tuple[str | None, str]:
    record = client.get("/v1/whoami", headers=headers).json()
    return record["user"], record["way"]


def test_the_token_of_a_request_counts_and_not_whom_a_proxy_names_beside_it(
    api: Api, nobody: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    api.runtime.config = Config(api_trusted_proxies=LOOPBACK)
    with caplog.at_level(logging.WARNING):
        assert _who(nobody, **{"X-Remote-Ident": "nobody"}) == ("nobody", "token")
        assert not caplog.messages
        assert _who(nobody, **{"X-Remote-Ident": "daemon", "X-Request-ID": "r1"}) == ("nobody", "token")
    assert caplog.messages == ["request r1: nobody by token counts, and not 'daemon', whom the proxy names"]


def test_the_first_header_of_a_proxy_counts(api: Api, anonymous: httpx.Client) -> None:
    api.runtime.config = Config(api_trusted_proxies=LOOPBACK)
    both = {"X_REMOTE_IDENT": "daemon", "X-Remote-Ident": "nobody"}
    assert _who(anonymous, **both) == ("nobody", "proxy")


def test_a_site_may_take_no_name_of_any_proxy(api: Api, anonymous: httpx.Client) -> None:
    api.runtime.config = Config(api_trusted_proxies=LOOPBACK, api_trust_ident=False)
    assert _who(anonymous, **{"X-Remote-Ident": "nobody"}) == (None, "not")


@pytest.mark.parametrize("is_said", [False, True])
def test_whom_a_proxy_names_administers_only_where_the_site_says_so(
    api: Api, anonymous: httpx.Client, *, is_said: bool
) -> None:
    group = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
    api.runtime.config = Config(
        api_trusted_proxies=LOOPBACK, api_admin_group=group, api_admin_by_proxy=is_said, api_rate_change=0
    )
    named = {"X-Remote-Ident": "nobody", "X-OAR-Request": "1"}
    assert anonymous.get("/v1/whoami", headers=named).json()["is_administrator"] is is_said
    answer = anonymous.patch("/v1/queues/default", json={"priority": 4}, headers=named)
    assert answer.status_code == (200 if is_said else 403)


def test_an_account_that_is_gone_has_no_token(database: Database, known: Known) -> None:
    gone = known("x-who-is-not", "rw")
    assert [gone.get("/v1/whoami").status_code, gone.post("/v1/jobs", json={"command": "x"}).status_code] == [403, 403]


@pytest.mark.parametrize("path", ["/v1/whoami", "/v1/jobs", "/v1/stream", "/v1/tokens", "/whoami", "/ui/tokens"])
def test_no_address_holds_a_secret(anonymous: httpx.Client, nobody: httpx.Client, path: str) -> None:
    token = nobody.headers["authorization"].removeprefix("Bearer ")
    for name in ("token", "access_token", "oar_session"):
        answer = anonymous.get(path, params={name: token})
        assert answer.status_code in (200, 400, 401), name
        assert '"nobody"' not in answer.text
        assert answer.status_code == 400 or not path.startswith("/v1/")


def test_a_password_is_not_taken_over_a_plain_network(api: Api, tmp_path: os.PathLike[str]) -> None:
    users = os.path.join(tmp_path, "users")
    with open(users, "w", encoding="utf-8") as file:
        file.write(f"nobody:{passwords.apache_md5(b'right', b'salt')}\n")
    config = Config(api_basic_auth="htpasswd", htpasswd_file=users, api_trusted_proxies=("192.0.2.7",))
    identities = api.service.identities

    def user_from(address: str) -> str:
        request = Request({"type": "http", "headers": [], "state": {"peer": Peer(address)}})
        request.state.client = find_client(request.scope, config)
        return identities.check_password("nobody", "right", request, config).name

    with pytest.raises(NotAllowed, match="over TLS only"):
        user_from("192.0.2.8")
    assert [user_from(address) for address in ("192.0.2.7", "127.0.0.1", "::1")] == ["nobody"] * 3


def test_the_cookie_of_a_session_travels_by_tls_and_to_our_pages_only(api: Api, local: httpx.Client) -> None:
    token = local.post("/v1/tokens", json={"scope": "ro"}).json()["token"]
    me = pwd.getpwuid(os.geteuid()).pw_name
    api.runtime.config = Config(api_root_path="/cluster", api_trusted_proxies=(f"unix:{me}",), api_rate_change=0)
    made = local.post("/v1/session", json={"token": token})
    words = made.headers["set-cookie"].lower().split("; ")
    assert {"path=/cluster/", "secure", "httponly", "samesite=lax"} <= set(words)
    api.runtime.config = Config(api_rate_change=0)
    words = local.post("/v1/session", json={"token": token}).headers["set-cookie"].lower().split("; ")
    assert ("path=/" in words, "secure" in words) == (True, False)  # on this machine, without a proxy


def test_the_cookie_of_a_session_is_for_the_path_at_which_a_browser_sees_the_page(
    api: Api, local: httpx.Client
) -> None:
    token = local.post("/v1/tokens", json={"scope": "ro"}).json()["token"]
    api.runtime.config = Config(api_root_path="/cluster", api_rate_change=0)
    for page, path in (
        ("https://oar.example.org/cluster/ui/login", "/cluster/"),
        ("http://localhost:6668/ui/login", "/"),
        ("http://localhost:6668/ui/jobs/1?lang=fr", "/"),
        ("https://oar.example.org/other/ui/login", "/other/"),
        ("https://oar.example.org/a;b/ui/login", "/cluster/"),
        ("https://[/ui/login", "/cluster/"),
        ("", "/cluster/"),
    ):
        made = local.post("/v1/session", json={"token": token}, headers={"Referer": page})
        assert f"path={path}" in made.headers["set-cookie"].lower().split("; "), page
        ended = local.delete("/v1/session", headers={"Referer": page})
        assert f"path={path}" in ended.headers["set-cookie"].lower().split("; "), page


def test_a_browser_that_would_drop_the_cookie_is_told_so(api: Api, local: httpx.Client) -> None:
    token = local.post("/v1/tokens", json={"scope": "ro"}).json()["token"]
    me = pwd.getpwuid(os.geteuid()).pw_name
    api.runtime.config = Config(api_trusted_proxies=(f"unix:{me}",), api_rate_change=0)
    for origin, status in (("http://oar.example.org", 403), ("https://oar.example.org", 201), ("http://[::1]:80", 201)):
        told = local.post("/v1/session", json={"token": token}, headers={"Origin": origin})
        assert told.status_code == status, origin
        assert status == 201 or "https" in told.json()["detail"]
    api.runtime.config = Config(api_rate_change=0)  # on this machine itself
    plain = local.post("/v1/session", json={"token": token}, headers={"Origin": "http://oar.example.org:6668"})
    assert plain.status_code == 201


def test_of_two_sessions_that_of_the_longest_path_counts(api: Api, local: httpx.Client) -> None:
    token = local.post("/v1/tokens", json={"scope": "ro"}).json()["token"]
    secret = local.post("/v1/session", json={"token": token}).cookies["oar_session"]
    local.cookies.clear()
    for cookies, way in (
        (f"oar_session={secret}; oar_session=gone", "session"),
        (f"a; oar_session={secret}", "session"),
    ):
        assert local.get("/v1/whoami", headers={"Cookie": cookies}).json()["way"] == way
    assert local.get("/v1/whoami", headers={"Cookie": f"oar_session=gone; oar_session={secret}"}).json()["user"] is None


@pytest.mark.parametrize("algorithm", ["none", "RS256", "ES256", "hs256"])
def test_signed_tokens_of_another_family_are_not_taken(api: Api, nobody: httpx.Client, algorithm: str) -> None:
    api.runtime.config = Config(api_secret_key="k" * 64, api_secret_algorithm=algorithm)
    forged = "eyJhbGciOiJub25lIn0.eyJ1c2VyIjoibm9ib2R5IiwiZGF0ZSI6IjIwMjYtMDEtMDEgMDA6MDA6MDAiLCJleHAiOjk5OTk5OTk5OTl9."
    assert nobody.get("/v1/whoami", headers={"Authorization": f"Bearer {forged}"}).status_code == 401


def test_that_a_token_is_used_is_not_written_with_each_request(
    nobody: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used(before: int = 0) -> int:
        with database.begin() as tx:
            tx.execute("UPDATE api_tokens SET last_used = last_used - %s", (before,))
        nobody.get("/v1/whoami")
        with database.snapshot() as tx:
            return int(tx.value("SELECT last_used FROM api_tokens"))

    first = used()
    assert authentication.WRITTEN_EVERY == 60
    monkeypatch.setattr(authentication, "WRITTEN_EVERY", 10**6)
    assert (first > 0, used(100)) == (True, first - 100)
    monkeypatch.setattr(authentication, "WRITTEN_EVERY", 100)
    assert used(1) >= first

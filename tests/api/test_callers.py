"""Who is asking: the peer of the socket, a token, a proxy that is trusted; nobody else."""

import hashlib
import os
import pwd

import httpx
import pytest

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from tests.api.conftest import Api

TOKEN = "oar_" + "a" * 43
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


def _store(database: Database, *, expires: int = 0) -> int:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    with database.begin() as tx:
        return tx.api_tokens.insert(USER, digest, scope="ro", comment="", expires=expires)


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
        tx.api_tokens.revoke([expired])
    assert anonymous.get("/v1/whoami", headers=header).status_code == 401


def test_a_site_may_let_nobody_read_without_a_name(api: Api, anonymous: httpx.Client, local: httpx.Client) -> None:
    api.runtime.config = Config(api_anonymous_read=False)
    assert anonymous.get("/v1/jobs").status_code == 401
    assert local.get("/v1/jobs").status_code == 200

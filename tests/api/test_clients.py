"""Where a request comes from: one address behind trusted proxies, for permissions, limits, metrics and the log."""

import logging
import os
import pwd

import httpx
import pytest

from oar.api.clients import Client, Peer, find_client
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from tests.api.conftest import Api
from tests.builders import add_job, add_resources

ME = pwd.getpwuid(os.geteuid()).pw_name
PROXIES = ("10.0.0.0/8", f"unix:{ME}")
PROMETHEUS, STRANGER = "192.0.2.5", "203.0.113.9"


def _forwarded(*addresses: str) -> dict[str, str]:
    return {"X-Forwarded-For": ", ".join(addresses)}


@pytest.mark.parametrize(
    ("peer", "headers", "address"),
    [
        (Peer("192.0.2.1"), {}, "192.0.2.1"),
        (Peer("192.0.2.1"), _forwarded("10.0.0.1"), ""),
        (Peer("192.0.2.1"), {"Via": "1.1 squid"}, ""),
        (Peer("192.0.2.1"), {"Forwarded": "for=10.0.0.1"}, ""),
        (Peer("10.0.0.1"), {}, "10.0.0.1"),
        (Peer("10.0.0.1"), _forwarded("192.0.2.1"), "192.0.2.1"),
        (Peer("10.0.0.1"), _forwarded("198.51.100.1", "192.0.2.1"), "192.0.2.1"),
        (Peer("10.0.0.1"), _forwarded("198.51.100.1", "192.0.2.1", "10.9.9.9"), "192.0.2.1"),
        (Peer("10.0.0.1"), _forwarded("10.2.2.2", "10.9.9.9"), "10.2.2.2"),
        (Peer("10.0.0.1"), _forwarded("192.0.2.1", "no address"), ""),
        (Peer("10.0.0.1"), _forwarded("192.0.2.1:5000"), ""),
        (Peer("10.0.0.1"), {"Via": "1.1 nginx"}, ""),
        (Peer(uid=os.geteuid()), {}, ""),
        (Peer(uid=os.geteuid()), _forwarded("2001:db8::1"), "2001:db8::1"),
        (Peer(uid=12345), {}, "127.0.0.1"),
        (Peer(uid=12345), _forwarded("127.0.0.1"), ""),
    ],
)
def test_the_address_of_a_client(peer: Peer, headers: dict[str, str], address: str) -> None:
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "headers": pairs, "state": {"peer": peer}}
    assert find_client(scope, Config(api_trusted_proxies=PROXIES)).address == address


def test_a_client_without_an_address_is_in_no_network() -> None:
    unknown = Client(Peer(uid=33), is_trusted=True)
    assert not unknown.is_local
    assert str(unknown) == "an unknown address (the proxy account www-data sends none in X-Forwarded-For)"
    way_out = "is not in API_TRUSTED_PROXIES: add unix:www-data"
    assert str(unknown._replace(is_trusted=False)) == f"an unknown address (the proxy account www-data {way_out})"
    assert "account 12345678 " in str(Client(Peer(uid=12345678)))  # an account without a name


def test_metrics_behind_a_web_server_are_for_the_networks_of_the_site(api: Api, local: httpx.Client) -> None:
    api.runtime.config = Config(api_trusted_proxies=PROXIES, api_metrics_networks=("192.0.2.0/24",))
    assert local.get("/metrics", headers=_forwarded(PROMETHEUS)).status_code == 200
    strangers = [
        (headers, "API_METRICS_NETWORKS") for headers in (_forwarded(STRANGER), _forwarded(PROMETHEUS, STRANGER))
    ]
    for headers, said in [*strangers, ({}, " sends none in X-Forwarded-For)")]:
        refused = local.get("/metrics", headers=headers)
        assert (refused.status_code, said in refused.json()["detail"]) == (403, True)


def test_metrics_behind_a_web_server_that_nobody_named_are_for_nobody(
    api: Api, local: httpx.Client, anonymous: httpx.Client
) -> None:
    for client in (local, anonymous):
        assert client.get("/metrics").status_code == 200  # a process of this machine
        refused = client.get("/metrics", headers=_forwarded("127.0.0.1"))
        assert (refused.status_code, "API_TRUSTED_PROXIES" in refused.json()["detail"]) == (403, True)


def test_the_local_socket_of_another_network_reads_no_metrics(api: Api, local: httpx.Client) -> None:
    api.runtime.config = Config(api_metrics_networks=("192.0.2.0/24",))
    assert local.get("/metrics").status_code == 403


def test_a_web_server_that_nobody_named_is_not_its_own_account_for_its_clients(local: httpx.Client) -> None:
    assert local.get("/v1/whoami").json()["user"] == ME
    assert local.get("/v1/whoami", headers=_forwarded(STRANGER)).json()["user"] is None
    assert local.post("/v1/tokens", json={}, headers=_forwarded(STRANGER)).status_code == 401


def test_the_machine_of_cigri_is_a_reader_behind_a_web_server_and_others_are_not(
    api: Api, local: httpx.Client, database: Database
) -> None:
    job = add_job(database, user="nobody", command="secret")
    api.runtime.config = Config(api_trusted_proxies=PROXIES, api_readers=("192.0.2.5",))
    for headers, command in (
        (_forwarded("192.0.2.5"), "secret"),
        (_forwarded(STRANGER), None),
        (_forwarded("192.0.2.5", STRANGER), None),
        ({}, None),
    ):
        assert local.get(f"/v1/jobs/{job}", headers=headers).json()["command"] == command


def test_a_proxy_that_is_named_a_reader_shows_nothing_to_those_behind_it(
    api: Api, anonymous: httpx.Client, database: Database
) -> None:
    job = add_job(database, user="nobody", command="secret")
    api.runtime.config = Config(api_readers=("127.0.0.1",))
    assert anonymous.get(f"/v1/jobs/{job}").json()["command"] == "secret"
    assert anonymous.get(f"/v1/jobs/{job}", headers=_forwarded(STRANGER)).json()["command"] is None


def test_readers_have_a_limit_of_their_own(api: Api, local: httpx.Client) -> None:
    api.runtime.config = Config(
        api_trusted_proxies=PROXIES, api_readers=("192.0.2.5",), api_rate_read=1, api_rate_readers=3
    )
    api.service.set_rates()
    allowed = {}
    for address in ("192.0.2.5", STRANGER):
        answer = local.get("/v1/version", headers=_forwarded(address))
        allowed[address] = answer.headers["ratelimit-limit"]
    assert allowed == {"192.0.2.5": "12", STRANGER: "4"}


def test_the_log_names_the_client_behind_the_proxy(
    api: Api, local: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    api.runtime.config = Config(api_trusted_proxies=PROXIES)
    with caplog.at_level(logging.INFO):
        local.post("/v1/jobs/1/hold", headers=_forwarded(STRANGER))
    (line,) = (line for line in caplog.messages if line.startswith("[audit]"))
    assert f"peer=uid:{os.geteuid()} client={STRANGER} POST" in line


def test_submissions_of_cigri_without_readers_are_warned_of_once(
    api: Api, anonymous: httpx.Client, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    add_resources(database)
    trusted = Config(api_trusted_proxies=("127.0.0.1",), api_rate_change=0)
    as_cigri, wish = {"X_REMOTE_IDENT": "nobody"}, {"command": "/bin/true", "resources": "nodes=1"}
    with caplog.at_level(logging.WARNING):
        api.runtime.config = trusted.replace(api_readers=("127.0.0.1",))
        assert anonymous.post("/oarapi/jobs", json=wish, headers=as_cigri).status_code == 201
        assert not caplog.messages
        api.runtime.config = trusted
        for _ in range(2):
            assert anonymous.post("/oarapi/jobs", json=wish, headers=as_cigri).status_code == 201
        anonymous.post("/oarapi/jobs", json=wish, headers={"X-Remote-Ident": "nobody"})
    (line,) = caplog.messages
    assert "API_READERS" in line
    assert "127.0.0.1" in line

"""The web servers of docs/api.rst, "Behind a web server", as they stand there, before a running service."""

import socket
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.api.test_stream import states_of, streamed
from tests.builders import add_job
from tests.documents import SOURCE, named_blocks
from tests.process.this_machine import free_ports, wait_until

pytestmark = pytest.mark.slow

NAME, PASSWORD = "daemon", "open sesame"
HOST = "oar.example.org"
_MODULES = ("mpm_event", "authn_core", "authn_file", "authz_core", "authz_user", "auth_basic", "headers", "ssl")
_APACHE = Path("/usr/lib/apache2/modules")


class Front:
    """A directory with what a web server needs, and the socket of the service behind it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "api.sock"
        words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        words += ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"]
        words += ["-keyout", str(directory / "key"), "-out", str(directory / "crt")]
        subprocess.run(["openssl", *words], check=True, capture_output=True)
        summed = subprocess.run(["openssl", "passwd", "-apr1", PASSWORD], check=True, capture_output=True, text=True)
        (directory / "users").write_text(f"{NAME}:{summed.stdout}")

    def block(self, name: str, listens: str) -> str:
        """Return what the chapter shows, with the places of this directory."""
        text = named_blocks(SOURCE / "docs" / "api.rst")[name]
        for shown, here in (
            ("/etc/ssl/oar.crt", "crt"),
            ("/etc/ssl/private/oar.key", "key"),
            ("/etc/nginx/oar.htpasswd", "users"),
            ("/etc/apache2/oar.htpasswd", "users"),
            ("/run/oar/api.sock", "api.sock"),
        ):
            text = text.replace(shown, str(self.directory / here))
        assert "443" in text
        return text.replace("*:443", listens).replace("443", listens)

    def client(self, transport: httpx.BaseTransport, port: int = 443) -> httpx.Client:
        """Return a client that comes by the name of the certificate."""
        return httpx.Client(base_url=f"https://{HOST}:{port}", transport=transport, timeout=60)

    def trust(self) -> ssl.SSLContext:
        """Return what lets a client believe the certificate."""
        return ssl.create_default_context(cafile=str(self.directory / "crt"))


@pytest.fixture
def front() -> Iterator[Front]:
    """A directory that the account of the web server can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oar-front-") as directory:
        Path(directory).chmod(0o755)
        yield Front(Path(directory))


@pytest.fixture
def behind(database: Database, front: Front) -> Iterator[Api]:
    """A service that believes the web server."""
    config = Config(api_rate_read=0, api_rate_change=0, api_trusted_proxies=("unix:www-data",))
    api = Api(Runtime(config, database), front.socket)
    api.start()
    yield api
    api.stop()


@contextmanager
def _running(command: list[str], front: Front, is_up: Callable[[], bool]) -> Iterator[subprocess.Popen[str]]:
    said = front.directory / "said"
    with said.open("w") as output:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True)
    try:
        wait_until(lambda: server.poll() is not None or is_up())
        assert server.poll() is None, said.read_text()
        yield server
    finally:
        server.terminate()
        server.wait()


def _listens(path: Path) -> bool:
    """Whether a socket takes connections: it is there a moment before it does."""
    with socket.socket(socket.AF_UNIX) as visitor:
        return visitor.connect_ex(str(path)) == 0


@contextmanager
def _nginx(front: Front, block: str, service: str = "api.sock;") -> Iterator[httpx.Client]:
    """Run nginx with a block; it listens on a socket of the directory, so that no port has to be found.

    ``service``: how the end of the address of the service is written.
    """
    listens = front.directory / "https"
    places = "".join(
        f"{kind}_temp_path {front.directory}/{kind}; " for kind in ("proxy", "client_body", "fastcgi", "uwsgi", "scgi")
    )
    (front.directory / "nginx.conf").write_text(
        f"user www-data; daemon off; pid {front.directory}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {places}\n{front.block(block, f'unix:{listens}').replace('api.sock;', service)} }}\n"
    )
    with _running(["/usr/sbin/nginx", "-c", str(front.directory / "nginx.conf")], front, lambda: _listens(listens)):
        transport = httpx.HTTPTransport(uds=str(listens), verify=front.trust())
        with front.client(transport) as client:
            yield client


@contextmanager
def _apache(front: Front, block: str) -> Iterator[httpx.Client]:
    (port,) = free_ports(1)
    modules = [*_MODULES, "proxy", "proxy_http", "socache_shmcb"]
    lines = [f"LoadModule {name}_module {_APACHE}/mod_{name}.so" for name in modules]
    lines += [f"ServerRoot {front.directory}", "User www-data", "Group www-data", f"Listen 127.0.0.1:{port}"]
    lines += [f"PidFile {front.directory}/pid", "ErrorLog /dev/stderr", f"ServerName {HOST}"]
    lines += [f"DefaultRuntimeDir {front.directory}", front.block(block, f"127.0.0.1:{port}")]
    configuration = front.directory / "apache.conf"
    configuration.write_text("\n".join(lines))
    command = ["/usr/sbin/apache2", "-DFOREGROUND", "-f", str(configuration)]
    with _running(command, front, (front.directory / "pid").exists):
        transport = _ToHere(verify=front.trust())
        with front.client(transport, port) as client:
            yield client


class _ToHere(httpx.HTTPTransport):
    """Connects to this machine, whatever the name in the address."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        request.extensions = {**request.extensions, "sni_hostname": HOST}
        request.url = request.url.copy_with(host="127.0.0.1")
        return super().handle_request(request)


def _who(client: httpx.Client, **headers: str) -> tuple[str | None, str]:
    answer = client.get("/v1/whoami", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["user"], answer.json()["way"]


def _home(client: httpx.Client, **headers: str) -> str:
    """Return the address to which a browser is sent that asks for the first page."""
    return client.get("/", headers={"Accept": "text/html", **headers}).headers["location"]


def test_nginx_with_tls_lets_tokens_and_streams_through_and_nobody_be_named(behind: Api, front: Front) -> None:
    with behind.runtime.database.begin() as tx:
        _, token = tokens.create(tx, User("nobody", 0, administers=False), scope="rw")
    with _nginx(front, "nginx-tls") as client:
        assert _who(client) == (None, "not")
        assert _who(client, **{"X-Remote-Ident": NAME}) == (None, "not")
        assert _who(client, X_Remote_Ident=NAME) == (None, "not")
        assert client.get("/metrics").status_code == 403
        assert _home(client, **{"X-API-Path-Prefix": "/elsewhere"}) == "ui/"
        assert _who(client, Authorization=f"Bearer {token}") == ("nobody", "token")
        with streamed(client) as messages:
            job_id = add_job(behind.runtime.database)
            assert states_of(messages, 1) == [(job_id, "Waiting")]


@pytest.mark.parametrize("takes_path_away", [False, True])
def test_nginx_hands_over_what_is_below_a_path(behind: Api, front: Front, takes_path_away: bool) -> None:
    behind.runtime.config = behind.runtime.config.replace(api_root_path="/oar")
    with behind.runtime.database.begin() as tx:
        _, token = tokens.create(tx, User("nobody", 0, administers=False), scope="rw")
    job = add_job(behind.runtime.database, user="nobody")
    with _nginx(front, "nginx-path", "api.sock:/;" if takes_path_away else "api.sock;") as client:
        page = client.get("/oar/ui/login")
        assert page.status_code == 200
        browser = {"Referer": str(page.url), "Origin": f"https://{HOST}", "Sec-Fetch-Site": "same-origin"}
        made = client.post("/oar/v1/session", json={"token": token}, headers=browser)
        assert (made.status_code, "Path=/oar/" in made.headers["set-cookie"]) == (201, True)
        whoami = client.get("/oar/v1/whoami").json()
        assert (whoami["user"], whoami["way"]) == ("nobody", "session")
        assert client.get("/oar/oarapi/jobs").json()["items"][0]["links"][0]["href"] == f"/oar/oarapi/jobs/{job}"
        assert client.post(f"/oar/v1/jobs/{job}/hold", json={}, headers=browser).status_code == 202
        assert client.delete("/oar/v1/session", headers=browser).status_code == 204
        assert client.get("/oar/v1/whoami").json()["user"] is None


@pytest.mark.parametrize("server", ["nginx", "apache2"])
def test_a_web_server_that_knows_its_users_tells_who_asks(behind: Api, front: Front, server: str) -> None:
    running = _nginx(front, "nginx-users") if server == "nginx" else _apache(front, "apache-users")
    with running as client:
        assert client.get("/v1/whoami").status_code == 401
        client.auth = (NAME, PASSWORD)
        assert _who(client) == (NAME, "proxy")
        for header in ("X-Remote-Ident", "X_Remote_Ident"):
            assert _who(client, **{header: "nobody"}) == (NAME, "proxy")
        for header in ("X-API-Path-Prefix", "X_API_Path_Prefix"):
            assert _home(client, **{header: "/elsewhere"}) == "ui/"
        with streamed(client) as messages:
            job_id = add_job(behind.runtime.database)
            assert states_of(messages, 1) == [(job_id, "Waiting")]

"""The ports on which a waiting oarsub listens."""

import socket
from contextlib import closing

import pytest

from oar.cli.oarsub_parts.interactive import Listener
from oar.lib.base.errors import ConfigError


def test_it_listens_on_a_free_port_of_the_range() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"OARSUB_CALLBACK_PORTS: {port}-{port}: all ports are in use"):
            Listener("localhost", (port, port))
        with closing(Listener("localhost", (port, min(port + 500, 65535)))) as listener:
            assert port < listener.port <= port + 500

"""The ports on which a waiting oarsub listens."""

import socket
from contextlib import closing

import pytest

from oar.cli.oarsub_parts import interactive
from oar.cli.oarsub_parts.interactive import Listener
from oar.lib.base.errors import ConfigError


def test_it_listens_on_a_free_port_of_the_range() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"OARSUB_CALLBACK_PORTS: {port}-{port}: all ports are in use"):
            Listener(["localhost"], (port, port))
        with closing(Listener(["localhost"], (port, min(port + 500, 65535)))) as listener:
            assert port < listener.port <= port + 500


def test_with_several_servers_it_does_not_wait_long_for_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "AFTER_FAILURE", 0.01)
    with closing(Listener(["127.0.0.2", "127.0.0.3"])) as listener:
        assert listener.next_line(3600) is None
        for server in ("127.0.0.2", "127.0.0.3"):  # each of them may call
            with socket.create_connection(("127.0.0.1", listener.port), source_address=(server, 0)) as caller:
                caller.sendall(b"GOOD JOB\n")
                monkeypatch.setattr(listener, "longest_silence", 60)
                assert listener.next_line(60) == "GOOD JOB"

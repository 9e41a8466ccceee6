"""What tests are given of this machine is theirs alone, whatever else runs here."""

from contextlib import closing
from pathlib import Path

from tests.process.this_machine import Ports


def test_a_port_is_given_once_and_by_nobody_else() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    with closing(Ports()) as ours, closing(Ports()) as of_another_worker:
        ports = [owner.take("127.0.0.1") for owner in (ours, of_another_worker) * 20]
    assert len(set(ports)) == 40
    assert not [port for port in ports if first <= port <= last]

"""Which addresses limits of the API take for one client."""

from oar.api.clients import Client, Peer


def test_limits_take_all_addresses_of_one_host_for_one_client() -> None:
    for one, other in (("127.0.0.2", "127.200.0.1"), ("2001:db8::1", "2001:db8::ffff:1"), ("::ffff:127.0.0.3", "::1")):
        assert Peer(one).key == Peer(other).key
        assert Client(Peer(one), address=one).key == Client(Peer(other), address=other).key
    assert Peer("192.0.2.1").key != Peer("192.0.2.2").key
    assert Peer("2001:db8::1").key != Peer("2001:db8:0:1::1").key
    assert (Peer(uid=7).key, Client(Peer(uid=7), address="127.0.0.1").key) == ("uid:7", "uid:7")

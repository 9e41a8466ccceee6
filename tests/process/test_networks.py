"""Who is in a network, and what this host is called there."""

import pytest

from oar.lib.base.allowed_networks import Networks, check_this_host
from oar.lib.base.errors import NotAllowed


@pytest.mark.parametrize(
    ("host", "is_in"),
    [("10.1.2.3", True), ("11.0.0.1", False), ("::ffff:10.1.2.3", True), ("fd00::1", True), ("fe80::1%eth0", False)],
)
def test_addresses_are_compared_in_whatever_form_the_system_tells_them(host: str, is_in: bool) -> None:
    assert Networks(["10.0.0.0/8", "fd00::/8"]).has(host) is is_in


def test_this_host_is_what_the_server_would_see_of_it() -> None:
    check_this_host(["127.0.0.0/8"], "127.0.0.1", 6666)
    with pytest.raises(NotAllowed, match=r"from this host: 127\.0\.0\.1 is not in ALLOWED_NETWORKS\.$"):
        check_this_host(["10.0.0.0/8"], "127.0.0.1", 6666)


def test_a_host_that_finds_no_server_is_not_allowed() -> None:
    with pytest.raises(NotAllowed, match=r"the server no\.where\.invalid cannot be reached: "):
        check_this_host(["10.0.0.0/8"], "no.where.invalid", 6666)

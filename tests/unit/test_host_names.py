"""What may be the name of a host: oar/lib/base/host_names.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.base.host_names import is_host_name


@pytest.mark.parametrize(
    "name",
    [
        *("n", "node-1", "node_1", "Node-1.site.example.org", "paravance-12.rennes.grid5000.fr", "node.1", "3com"),
        *("_dmz", "a" * 63, ".".join(["a" * 24] * 4), "192.168.0.1", "::1", "fd00::12:1", "::ffff:10.0.0.1"),
    ],
)
def test_what_sites_call_their_hosts(name: str) -> None:
    assert is_host_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "bad name;x", "a b", "a;b", "a'b", 'a"b', "a$b", "a`b", "a\\b", "a/b", "a,b", "a@b", "a%b", "[::1]"),
        *("-n", "n-", "-oProxyCommand=x", ".", "a.", ".a", "a..b", "a.-b", "a\n", "a\nb", "a\0", "nœud", "ｎ1"),
        "n\u00ad",
        *("a" * 64, "a" * 101, ".".join(["a" * 25] * 4), "1", "12.7", "256.1.1.1", "0x7f000001", "0x7f.1", "01.2.3.4"),
        *(":", "a:b", "::1%eth0", "1::2::3", "::g", "host:22"),
    ],
)
def test_what_is_the_name_of_no_host(name: str) -> None:
    assert not is_host_name(name)


@given(st.text(max_size=120))
def test_no_name_means_more_than_a_word_to_a_shell_or_an_option_to_a_program(text: str) -> None:
    if is_host_name(text):
        assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-")
        assert not text.startswith("-")

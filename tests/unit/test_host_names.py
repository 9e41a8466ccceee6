"""What may be the name of a host: oar/lib/base/host_names.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.base.host_names import describe_host_failures, is_host_name, shorten_host_list


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


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["node-1"], "node-1"),
        (["node-2", "node-1"], "node-1, node-2"),
        ([f"node-{number}" for number in range(101)], "node-[0-100]"),
        ([f"node-{number:03}" for number in (7, 8, 9, 10, 12)], "node-[007-010,012]"),
        ([f"n{number}.site.fr" for number in (1, 2, 3)], "n[1-3].site.fr"),
        (["rack1-n1", "rack1-n2", "rack2-n1"], "rack1-n[1-2], rack2-n1"),
        (["head", "gpu-1", "gpu-3"], "gpu-[1,3], head"),
        (["n1-ib", "n2-ib", "n3-ib"], "n[1-3]-ib"),
        (["10.0.0.1", "10.0.0.2", "fd00::1"], "10.0.0.1, 10.0.0.2, fd00::1"),
        ([f"node-{number}" for number in range(0, 100, 2)], "node-[0,2,4,6,8,10,12,14] and 42 others"),
        ([*"abcdefghi"], "a, b, c, d, e, f, g, h and 1 other"),
    ],
)
def test_hosts_in_few_words(names: list[str], text: str) -> None:
    assert shorten_host_list(names) == text


def test_hosts_that_failed_alike_are_told_together_and_rare_failures_shortly() -> None:
    silent = dict.fromkeys([f"node-{number}" for number in range(1, 98)], "no answer within 10 s")
    assert (
        describe_host_failures(silent | {"node-98": "disk full"})
        == "node-[1-97]: no answer within 10 s; node-98: disk full"
    )
    each = {f"n{number}": f"exit code {number}" for number in range(1, 8)}
    texts = [f"n{number}: exit code {number}" for number in range(1, 5)]
    assert describe_host_failures(each) == "; ".join([*texts, "others: n[5-7]"])

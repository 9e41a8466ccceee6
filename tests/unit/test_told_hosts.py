"""Many hosts are told in few words, of which the first can be expanded again: oar/lib/base/host_lists.py."""

import pytest

from oar.lib.base.host_lists import told, told_failures


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
    assert told(names) == text


def test_hosts_that_failed_alike_are_told_together_and_rare_failures_shortly() -> None:
    silent = dict.fromkeys([f"node-{number}" for number in range(1, 98)], "no answer within 10 s")
    assert told_failures(silent | {"node-98": "disk full"}) == "node-[1-97]: no answer within 10 s; node-98: disk full"
    each = {f"n{number}": f"exit code {number}" for number in range(1, 8)}
    texts = [f"n{number}: exit code {number}" for number in range(1, 5)]
    assert told_failures(each) == "; ".join([*texts, "others: n[5-7]"])

"""The chaos command: random faults of servers, databases and nodes under load, in an order that its seed determines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import SETTINGS, own_room
from tests.acceptance.harness import Cluster, checked, tool

pytestmark = pytest.mark.slow

_OPTIONS = ("--nodes", "2", "--cores", "4", "--servers", "2", "--databases", "2", "--fast-db")


@pytest.fixture(scope="module")
def pairs(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two servers, two PostgreSQL servers and two nodes."""
    settings = [word for line in SETTINGS for word in ("--set", line)]
    with own_room(request, "chaos", *_OPTIONS, *settings) as cluster:
        yield cluster


def test_jobs_survive_a_minute_of_faults(pairs: Cluster) -> None:
    printed = checked(tool("chaos", "--seed", "28", "--minutes", "1", room=pairs.room)).out
    assert printed.startswith("seed 28\n")


def test_a_duration_that_is_none_is_refused(pairs: Cluster) -> None:
    refused = tool("chaos", "--minutes", "-1", room=pairs.room)
    assert (refused.code, refused.err) == (1, "cluster: --minutes: -1 must be between 0 and 10000\n")

"""Fixtures of the process tests."""

import os
from collections.abc import Iterator

import pytest

from tests.process.node_box import NodeBox, node_box


@pytest.fixture(scope="module")
def box() -> Iterator[NodeBox]:
    """A node in a box; each test takes job ids of its own."""
    if os.geteuid() != 0:
        pytest.skip("a node in a box needs root")
    yield from node_box()

"""Fixtures of the process tests."""

import os
from collections.abc import Iterator

import pytest
import zmq

from oar.lib.bus import doorbell
from oar.lib.db.database import Database
from tests.process.node_box import NodeBox, node_box
from tests.process.world import World, new_world


@pytest.fixture(scope="module")
def shared_box() -> Iterator[NodeBox]:
    """A node in a box, for all tests of a file."""
    if os.geteuid() != 0:
        pytest.skip("a node in a box needs root")
    yield from node_box()


@pytest.fixture
def box(shared_box: NodeBox) -> Iterator[NodeBox]:
    """A node in a box without any job."""
    yield shared_box
    shared_box.empty()


@pytest.fixture
def world(box: NodeBox, database: Database) -> Iterator[World]:
    """A node without any job, and a database that knows it."""
    yield from new_world(box, database)


@pytest.fixture(autouse=True)
def _patient_doorbells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on a busy machine is heard, however late it answers the door."""
    monkeypatch.setattr(doorbell, "_PATIENCE", 120.0)


@pytest.fixture
def context() -> Iterator["zmq.Context[zmq.Socket[bytes]]"]:
    """ZeroMQ for one test."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.destroy(linger=0)

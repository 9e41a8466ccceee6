"""Where advance reservations may lie: also in queues and on nodes that are not there now, never on Dead ones."""

import pytest

from oar.lib.jobs.states import QueueState
from oar.lib.reservations.states import ReservationState
from tests.builders import execute_sql
from tests.db.reservation_desk import Desk


@pytest.mark.parametrize(
    ("queue", "nodes", "reason"),
    [
        (QueueState.NOT_ACTIVE, "Alive", "reserved queue default is disabled"),
        (QueueState.ACTIVE, "Absent", "reserved host node-1 is Absent"),
        (QueueState.ACTIVE, "Suspected", "reserved host node-1 is Suspected"),
    ],
)
def test_what_is_disabled_or_does_not_answer_is_suited(desk: Desk, queue: QueueState, nodes: str, reason: str) -> None:
    with desk.database.begin() as tx:
        tx.queues.set_state(["default"], queue)
        tx.execute("UPDATE resources SET state = %s", (nodes,))
    answer = desk.qrsub("-a", "+1h", "-d", "60", "-h", "node-1", "-pe", "smp", "2")
    assert (answer.exit, answer.err) == (0, "")
    assert f"Its state is W: {reason}" in answer.out
    assert desk.last().state is ReservationState.WARNING
    assert desk.hosts(desk.last()) == ["node-1"] * 2


def test_what_is_dead_is_not_suited(desk: Desk) -> None:
    execute_sql(desk.database, "UPDATE resources SET state = 'Dead' WHERE network_address = 'node-1'")
    assert desk.qrsub("-a", "+1h", "-d", "60", "-h", "node-1").exit == 1
    assert desk.hosts(desk.granted("-a", "+1h", "-d", "60", "-pe", "slots", "2")) == ["node-2"] * 2

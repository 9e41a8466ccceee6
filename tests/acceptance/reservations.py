"""Advance reservations as tests of the cluster ask for them and look at them."""

from __future__ import annotations

import json
from typing import Any

from tests.acceptance.harness import Cluster, Person, wait_until

#: All cores of the room.
EVERYTHING = "-l /network_address=4"


def ask(person: Person, arguments: str) -> int:
    """Ask for one reservation, which has to be granted; its number."""
    return int(person.run(f"qrsub {arguments} -terse"))


def row(cluster: Cluster, number: int, columns: str) -> list[str]:
    """Columns of a reservation, from the database."""
    return cluster.sql(f"SELECT {columns} FROM reservations WHERE ar_id = {number} ORDER BY reservation_id DESC")[0]


def record(person: Person, number: int) -> dict[str, Any]:
    """A reservation as qrstat tells programs."""
    facts: dict[str, Any] = json.loads(person.run(f"qrstat -ar {number} -J"))[str(number)]
    return facts


def shown_state(person: Person, number: int) -> str:
    """The state of a live reservation as qrstat lists it."""
    lines = [line.split() for line in person.run("qrstat").splitlines()[2:]]
    return next((words[-6] for words in lines if words[0] == str(number)), "gone")


def wait_for_reservation(cluster: Cluster, number: int, state: str) -> None:
    """Wait until a reservation is in a state, or with "gone" until it has left the system."""
    if state == "gone":
        wait_until(lambda: row(cluster, number, "ended > 0") == ["t"], lambda: log(cluster, number))
    else:
        wait_until(lambda: row(cluster, number, "state") == [state], lambda: log(cluster, number))


def log(cluster: Cluster, number: int) -> list[str]:
    """The events of a reservation, in their order."""
    (identifier,) = row(cluster, number, "reservation_id")
    rows = cluster.sql(
        f"SELECT event FROM reservation_logs WHERE reservation_id = {identifier} ORDER BY reservation_log_id"
    )
    return [each[0] for each in rows]


def hosts(cluster: Cluster, number: int) -> list[str]:
    """The nodes of which a reservation has resources."""
    (identifier,) = row(cluster, number, "reservation_id")
    rows = cluster.sql(
        "SELECT DISTINCT network_address FROM resources, reservations"
        f" WHERE reservation_id = {identifier} AND resource_id = ANY (resources) ORDER BY 1"
    )
    return [each[0] for each in rows]

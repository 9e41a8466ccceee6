"""How a reservation was asked for: its options as a wish, for a change that gives some of them anew."""

import json
from collections.abc import Sequence
from typing import Any

from oar.lib.reservations import parallel_environments, requests
from oar.lib.reservations.preparation import ReservationWish
from oar.lib.reservations.records import AdvanceReservation, NewReservation

#: What says how the resources of a reservation were asked for; a reservation and the template of a series have them.
_FIELDS = (
    "request",
    "resource_list",
    "pe",
    "pe_range",
    "queue_list",
    "master_queue_list",
    "host_list",
    "properties",
    "checkpoint_name",
    "is_interactive",
)


def as_template(reservation: AdvanceReservation, template: NewReservation) -> AdvanceReservation:
    """Return a reservation of a series as if it had been asked for like the coming ones."""
    fields: dict[str, Any] = {name: getattr(template, name) for name in _FIELDS}
    return reservation._replace(**fields)


def completed(wish: ReservationWish, reservation: AdvanceReservation, labels: Sequence[str]) -> ReservationWish:
    """Return a wish for other resources, with the options of the reservation that it does not give.

    ``labels``: HIERARCHY_LABELS.  Slots go with names of Grid Engine only, hosts with a list that does not name some.
    """
    is_oar = any(requests.is_oar_request(text, labels) for text in wish.resources)
    pe, allocation = wish.pe, wish.allocation
    if not (pe or allocation or is_oar) and reservation.pe:
        pair = reservation.pe, reservation.pe_range
        pe, allocation = (None, pair) if parallel_environments.is_rule(reservation.pe) else (pair, None)
    return wish._replace(
        resources=wish.resources or _named_resources(reservation),
        pe=pe,
        allocation=allocation,
        queues=wish.queues or reservation.queue_list,
        master_queues=reservation.master_queue_list,
        hosts="" if requests.names_hosts(wish.resources, labels) else reservation.host_list,
        properties=wish.properties or reservation.properties,
        checkpoint=reservation.checkpoint_name,
        now=("yes",) if reservation.is_interactive else (),
    )


def _named_resources(reservation: AdvanceReservation) -> tuple[str, ...]:
    """Return the ``-l`` of a reservation in Grid Engine's language; () if it was asked for in OAR's."""
    pairs = json.loads(reservation.resource_list)
    return tuple(f"{name}={value}" for name, value in pairs if name not in ("oar", "slots"))

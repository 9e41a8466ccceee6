"""Advance reservations as XML in the layout of Grid Engine, which ``setup/qrstat.xsd`` describes."""

import time
from collections.abc import Iterator, Sequence

from oar.lib.base.formats import xml_text
from oar.lib.base.times import zone_offset
from oar.lib.reservations.views import ShownReservation, change_text, reasons

INDENT = "   "


def reservations_xml(items: Sequence[ShownReservation], unknown: Sequence[str], *, explains: bool) -> str:
    """Return the document; ``unknown``: names and numbers that match no reservation."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<qrstat>"]
    for item in items:
        lines += (INDENT + line for line in _element("ar_summary", _summary(item, explains=explains)))
    for word in unknown:
        lines += (INDENT + line for line in _element("ar_unknown", [_text("id", word)]))
    return "\n".join([*lines, "</qrstat>", ""])


def _summary(item: ShownReservation, *, explains: bool) -> Iterator[str]:
    """Iterate over the elements of a reservation, in the order of the schema; skip empty values."""
    each = item.reservation
    yield _text("id", str(each.number))
    yield from _if_given(("name", each.name), ("account", each.account))
    yield _text("owner", each.owner)
    dates = ("submission_time", each.submission_time), ("start_time", each.start), ("end_time", each.real_end)
    for name, date in dates:
        yield _text(name, _date(date))
    yield _text("duration", str(each.real_end - each.start))
    yield _text("state", str(each.state))
    messages = reasons(each) + ([f"change asked: {change_text(item.change)}"] if explains and item.change else [])
    yield from _if_given(("message", "; ".join(messages)))
    yield from _element("resource_list", [_empty("resource", name=n, type=v) for n, v in item.resource_list])
    yield from _element("granted_slots", _granted_slots(item))
    if each.granted_pe:
        environment = [_text("parallel_environment", each.granted_pe), _text("slots", str(each.granted_slots))]
        yield from _element("granted_parallel_environment", environment)
    yield from _if_given(("checkpoint_name", each.checkpoint_name))
    yield _text("mail_options", each.mail_options)
    addresses = [address.partition("@") for address in item.mail_addresses]
    yield from _list("mail_list", [_empty("mail", user=user, host=host) for user, _, host in addresses])
    yield from _list("acl_list", [_empty("acl", user=entry.text) for entry in item.access if not entry.denied])
    yield from _list("xacl_list", [_empty("acl", user=entry.text) for entry in item.access if entry.denied])


def _granted_slots(item: ShownReservation) -> list[str]:
    """Return an element for each place.

    Without granted slots, return the queue with 0 slots, since the schema requires at least one element.
    """
    places = [(each.place, each.slots) for each in item.granted] or [(item.reservation.queue, 0)]
    return [_empty("granted_slots", queue_instance=place, slots=str(slots)) for place, slots in places]


def _date(date: int) -> str:
    """Return a date in XML format: ``2006-11-27T17:11:34+01:00``."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(date)) + zone_offset(date)


def _if_given(*pairs: tuple[str, str]) -> Iterator[str]:
    return (_text(name, text) for name, text in pairs if text)


def _list(name: str, elements: Sequence[str]) -> Iterator[str]:
    if elements:
        yield from _element(name, elements)


def _text(name: str, text: str) -> str:
    return f"<{name}>{xml_text(text)}</{name}>"


def _empty(element: str, /, **attributes: str) -> str:
    written = " ".join(f'{key}="{xml_text(value)}"' for key, value in attributes.items())
    return f"<{element} {written}/>"


def _element(name: str, lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    yield f"<{name}>"
    yield from (INDENT + line for line in lines)
    yield f"</{name}>"

"""The bills of advance reservations as oarstat shows them."""

from collections.abc import Sequence

from oar.cli.common.render import visible
from oar.lib.reservations.sql_reports import ReservationTotal

UNIT = "slot seconds"
HEAD = (
    f"{'AR':>7} {'owner':<12} {'jobs':>5} {'reserved':>16} {'used':>16} {'unusable':>16} {'unused':>16}\n"
    f"{'':26} {UNIT:>16} {UNIT:>16} {UNIT:>16} {UNIT:>16}\n"
)


def table(totals: Sequence[ReservationTotal], *, header: bool = True) -> str:
    """Return a row for each reservation, in slot seconds."""
    return (HEAD if header else "") + "".join(
        f"{each.number:7d} {visible(each.owner):<12.12} {each.jobs:5d} {each.reserved:16d} {each.used:16d}"
        f" {each.unusable:16d} {each.unused:16d}\n"
        for each in totals
    )


def records(totals: Sequence[ReservationTotal]) -> dict[str, dict[str, object]]:
    """Return the fields for machine formats, by number."""
    return {
        str(each.number): {
            "owner": each.owner,
            "account": each.account,
            "jobs": each.jobs,
            "reserved": each.reserved,
            "used": each.used,
            "unusable": each.unusable,
            "unused": each.unused,
        }
        for each in totals
    }

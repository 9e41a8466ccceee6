"""AR_EVENT: run the site's script for an event of an advance reservation (``RESERVATION_EVENT_EXEC_FILE``).

See docs/design/reservations.rst, "The site's script".
"""

import json
import shlex
from collections.abc import Sequence

from oar.lib.base import processes
from oar.lib.db.transaction import Transaction
from oar.lib.reservations.permissions import ReservationReader, Visitor
from oar.lib.reservations.views import reservation_record, shown
from oar.modules.runner.actions.context import ActionContext, log

#: The site sees all of a reservation.
_SITE = ReservationReader(Visitor("oar"), is_operator=True)


def tell_site(context: ActionContext, line: Sequence[str]) -> None:
    """Run the script with three arguments (number, event and state) and the current record on standard input.

    ``line``: number of the line in the log, id of the reservation, and the three arguments. A failure or a timeout of
    the script is logged.
    """
    command = context.config.reservation_event_exec_file
    if not command or len(line) != 5:
        return
    _, reservation_id, *arguments = line
    with context.database.snapshot() as tx:
        record = _record(tx, int(reservation_id))
    outcome = processes.run(
        [*shlex.split(command), *arguments],
        timeout=context.config.server_prologue_epilogue_timeout,
        stdin=json.dumps(record).encode(),
    )
    if not outcome.succeeded:
        why = "it did not end in time" if outcome.timed_out else outcome.output or f"exit code {outcome.code}"
        log.warning("%s %s failed: %s", command, " ".join(arguments), why)


def _record(tx: Transaction, reservation_id: int) -> dict[str, object]:
    """Return the record of a reservation, an empty one if the reservation no longer exists."""
    items = shown(tx, tx.reservations.select([reservation_id]), _SITE)
    return reservation_record(items[0]) if items else {}

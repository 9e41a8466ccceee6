"""Cost of notifications for writers: ``python -m bench.notifications [seconds]``.

Several concurrent writers commit small changes; each commit waits for the disk.  The first line is without
notifications; the others are ratios to it: OAR's way, a separate transaction after the commit; and for comparison
NOTIFY inside the transaction, which lets only one commit at a time reach the disk.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench.ground import ground
from oar.lib.bus.messages import Channel, Topic
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction

WRITERS = 1, 4, 16
SECONDS = 4.0
_FLUSHED = ("ALTER SYSTEM SET fsync TO on", "ALTER SYSTEM SET synchronous_commit TO on", "SELECT pg_reload_conf()")


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with ground() as stand:
        _flush(stand.database)
        listener = stand.database.connection()
        listener.cursor().execute(f"LISTEN {Channel.EVENT}")
        silent = Database(stand.database.settings._replace(notify=False))
        print(f"{'':45}" + "".join(f"{f'{count} writers':>12}" for count in WRITERS))
        plain = [_rate(silent, _change, count, seconds) for count in WRITERS]
        _print("without notifications, commits/s", [f"{rate:.0f}" for rate in plain])
        for what, database, work in (
            ("after the commit", stand.database, _change),
            ("inside the commit", silent, _change_and_notify),
        ):
            rates = [_rate(database, work, count, seconds) for count in WRITERS]
            _print(what, [f"{rate / first:.2f}" for rate, first in zip(rates, plain, strict=True)])
        silent.close()
        listener.close()


def _flush(database: Database) -> None:
    """Make commits wait for the disk, as in production."""
    administrator = Database(database.settings._replace(user="postgres"))
    connection = administrator.connection()
    for statement in _FLUSHED:
        connection.cursor().execute(statement)
    connection.close()


def _change(tx: Transaction) -> None:
    tx.events.add("BENCH", 0, "")


def _change_and_notify(tx: Transaction) -> None:
    _change(tx)
    tx.execute(f"NOTIFY {Channel.EVENT}, '{Topic.EVENTS}'")


def _rate(database: Database, work: Callable[[Transaction], None], writers: int, seconds: float) -> float:
    """Return the number of transactions that all writers commit per second."""
    end = time.monotonic() + seconds

    def write() -> int:
        count = 0
        while time.monotonic() < end:
            with database.begin() as tx:
                work(tx)
            count += 1
        return count

    with ThreadPoolExecutor(writers) as pool:
        return sum(done.result() for done in [pool.submit(write) for _ in range(writers)]) / seconds


def _print(what: str, cells: list[str]) -> None:
    print(f"{what:45}" + "".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()

"""How dense jobs were on groups of rows of the Gantt diagram, in one byte for each group and piece of time."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from oar.lib.history.gantt_chunks import ranges
from oar.lib.history.sql_gantt_days import Amount, Pieces

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Groups of an answer at most.
MOST_GROUPS = 200
_FULL = 255


def density_record(tx: "Transaction", rows: Sequence[Sequence[int]], begin: int, bucket: int, parts: int) -> Any:
    """Return how much of groups of rows was used, by besteffort jobs, and unusable, in what ended in a period."""
    pieces = Pieces(begin, begin + bucket * parts, bucket, grouped(rows))
    used = tx.gantt_days.used_density(pieces)
    besteffort = [each for each in used if each.is_besteffort]
    return {
        "from": begin,
        "bucket": bucket,
        "parts": parts,
        "groups": [list(ranges(sorted(ids))) for ids in pieces.groups],
        "used": shades(used, pieces, parts),
        "besteffort": shades(besteffort, pieces, parts),
        "unusable": shades(tx.gantt_days.unusable_density(pieces), pieces, parts),
    }


def grouped(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Join rows that follow each other, so that there are no more groups than can be told.

    >>> grouped([[1], [2, 3]])
    [[1], [2, 3]]
    """
    each = -(-len(rows) // MOST_GROUPS) or 1
    return [[number for row in rows[at : at + each] for number in row] for at in range(0, len(rows), each)]


def shades(amounts: Iterable[Amount], pieces: Pieces, parts: int) -> str:
    """Return a byte for each piece of each group, 255 = all of it all the time, as base64; group behind group."""
    sums = [0] * (len(pieces.groups) * parts)
    for each in amounts:
        sums[each.group * parts + each.piece] += int(each.seconds)
    whole = [_FULL / (pieces.bucket * len(ids)) for ids in pieces.groups]
    return b64encode(bytes(min(_FULL, round(value * whole[at // parts])) for at, value in enumerate(sums))).decode()

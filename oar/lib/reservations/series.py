"""The occurrences of a series: the first ones are requested together, each further one when an earlier one ends.

The transaction that closes an occurrence requests the next one, so no occurrence is lost or duplicated.  Each request
is made from the template of the series and does not depend on other occurrences.

See docs/design/reservations.rst, "Series".
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, islice, pairwise
from typing import TYPE_CHECKING, Any

from oar.lib.base.errors import BadRequest, BrokenRow
from oar.lib.bus.messages import Tag, Wake
from oar.lib.reservations import frames, recurrence
from oar.lib.reservations.frames import StoredRequest
from oar.lib.reservations.records import (
    AccessEntry,
    AdvanceReservation,
    NewReservation,
    NewSeries,
    ReservationLog,
    Series,
    SeriesTemplate,
)
from oar.lib.reservations.states import ReservationEvent

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Occurrences of a series that are checked against each other when it is altered.
MAX_CHECKED_TOGETHER = 50
#: Fields that decide, beside its window, whether an occurrence can be placed.
_DECISIVE = ("request", "queue", "start_window", "time_offset", "is_flexible", "ignores_jobs")


def begin(
    tx: "Transaction", new: NewReservation, access: Sequence[AccessEntry], series: NewSeries, starts: Sequence[int]
) -> StoredRequest:
    """Store a series and request its first occurrences, at ``starts``; return the first one."""
    template = SeriesTemplate(new, tuple(access)).encode()
    series_id = tx.reservations.insert_series(series._replace(template=template))
    stored = [
        frames.insert_request(tx, _occurrence(new, series_id, index, start, series.duration), access)
        for index, start in enumerate(starts, start=1)
    ]
    return stored[0]


def request_next(
    tx: "Transaction", closed: AdvanceReservation, conflicts: Mapping[tuple[int, int], str]
) -> list[tuple[int, str]]:
    """Request the next occurrence after one was closed; end the series if none is left.

    Skip occurrences whose time has passed because the server was down.  ``conflicts``: messages of the occurrences to
    reject, by number and start.  Return ids and messages of the requested occurrences that the caller must reject. If
    the row of the series cannot be read, end the series and log the reason for ``closed``.  An error would also stop
    the caller's work on other reservations.
    """
    series = tx.reservations.lock_series(closed.series_id)
    if series is None:
        return []
    if not tx.queues.exists(closed.queue) or tx.queues.is_orphaned(closed.queue):
        tx.reservations.end_series(series.id)
        return []
    try:
        next(coming(series), None)
        return _request_next(tx, series, series.read_template, closed, conflicts)
    except (BadRequest, BrokenRow) as error:  # raised before any write, by the shared rule or template
        tx.reservations.end_series(series.id)
        _log_skipped(tx, closed, f"series {series.id} ends: {error}")
        return []


def _request_next(
    tx: "Transaction",
    series: Series,
    template: SeriesTemplate,
    closed: AdvanceReservation,
    conflicts: Mapping[tuple[int, int], str],
) -> list[tuple[int, str]]:
    new = template.new
    is_same = closed.duration == series.duration and all(
        getattr(closed, name) == getattr(new, name) for name in _DECISIVE
    )
    if not is_same:  # the conflicts belong to the former template
        conflicts = {}
    passed, refused = 0, list[tuple[int, str]]()
    dates = coming(series)
    for index, start in dates:
        if start + new.start_window < tx.now and start + series.duration - tx.now <= new.time_offset:
            passed += 1  # it would be rejected
            continue
        occurrence = _occurrence(new, series.id, index, start, series.duration)
        stored = frames.insert_request(tx, occurrence, template.access)
        if (index, start) in conflicts:
            refused.append((stored.id, conflicts[index, start]))
            continue
        tx.outbox.append(Wake(Tag.QSUB))
        break
    if passed:
        _log_skipped(
            tx, closed, f"{passed} occurrences of series {series.id} had passed before they could be requested"
        )
    next_index, next_start = next(dates, (series.occurrences + 1, 0))
    tx.reservations.advance_series(series.id, next_index, next_start)
    if not next_start and not set(tx.reservations.live_of_series(series.id)) - dict(refused).keys():
        tx.reservations.end_series(series.id)
    return refused


def coming(series: Series) -> Iterator[tuple[int, int]]:
    """Iterate over number and start of the occurrences that are not requested yet.

    Raises BadRequest at the first item if this machine cannot compute dates of the rule or lacks its time zone.
    """
    if not series.next_start:
        return iter(())
    starts = recurrence.dates(series.rule, series.first_start, series.time_zone)
    return enumerate(dropwhile(lambda start: start < series.next_start, starts), start=series.next_index)


def _occurrence(new: NewReservation, series_id: int, index: int, start: int, duration: int) -> NewReservation:
    return new._replace(start=start, end=start + duration, series_id=series_id, series_index=index)


def _log_skipped(tx: "Transaction", closed: AdvanceReservation, text: str) -> None:
    row = ReservationLog(closed.id, tx.now, ReservationEvent.SKIPPED, closed.state, message=text)
    tx.reservation_logs.log(row)


def overlapping(series: Series, live: Sequence[AdvanceReservation]) -> list[NewReservation]:
    """Return the next occurrences of a series, by start, if some of them overlap; else [].

    ``live``: requested occurrences that have not begun.
    """
    requested = [(reservation.series_index, reservation.start) for reservation in live]
    following = islice(coming(series), max(0, MAX_CHECKED_TOGETHER - len(requested)))
    dates = sorted([*requested, *following], key=lambda date: date[1])
    if all(later - start >= series.duration for (_, start), (_, later) in pairwise(dates)):
        return []
    new = series.read_template.new
    return [_occurrence(new, series.id, index, start, series.duration) for index, start in dates]


def change_template(
    tx: "Transaction",
    series: Series,
    duration: int | None,
    *,
    access: Sequence[AccessEntry] | None = None,
    **fields: Any,
) -> Series:
    """Change the template of a locked series for its future occurrences; return the series.

    ``duration``, ``access``: None means unchanged.  ``fields``: new values of fields of the template.
    """
    template = series.read_template
    changed = SeriesTemplate(template.new._replace(**fields), template.access if access is None else tuple(access))
    changed_series = series._replace(
        template=changed.encode(), duration=series.duration if duration is None else duration
    )
    tx.reservations.change_series(series.id, changed_series.template, changed_series.duration)
    return changed_series

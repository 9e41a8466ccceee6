"""The occurrences of a series: the first ones are requested together, each further one when an earlier one ends.

The transaction that closes an occurrence requests the next one, so no occurrence is lost or duplicated.  Each request
is made from the template of the series and does not depend on other occurrences.

See docs/design/reservations.rst, "Series".
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, islice, pairwise
from typing import TYPE_CHECKING

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


def begin(
    tx: "Transaction", new: NewReservation, access: Sequence[AccessEntry], series: NewSeries, starts: Sequence[int]
) -> StoredRequest:
    """Store a series and request its first occurrences, at ``starts``; return the first one."""
    template = SeriesTemplate(new, tuple(access)).encode()
    series_id = tx.reservations.insert_series(series._replace(template=template))
    windows = [(start, start + series.duration) for start in starts]
    asked = [
        frames.insert_request(tx, _occurrence(new, series_id, index, window), access)
        for index, window in enumerate(windows, start=1)
    ]
    return asked[0]


def ask_next(
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
        return _ask_next(tx, series, series.read_template, closed, conflicts)
    except (BadRequest, BrokenRow) as error:  # raised before any write, by the shared rule or template
        tx.reservations.end_series(series.id)
        _note(tx, closed, f"series {series.id} ends: {error}")
        return []


def _ask_next(
    tx: "Transaction",
    series: Series,
    template: SeriesTemplate,
    closed: AdvanceReservation,
    conflicts: Mapping[tuple[int, int], str],
) -> list[tuple[int, str]]:
    if not _asks_the_same(closed, series, template):  # the conflicts belong to the former template
        conflicts = {}
    passed, refused = 0, list[tuple[int, str]]()
    dates = coming(series)
    for index, start in dates:
        if _is_over(template.new, start, start + series.duration, tx.now):
            passed += 1
            continue
        occurrence = _occurrence(template.new, series.id, index, (start, start + series.duration))
        asked = frames.insert_request(tx, occurrence, template.access)
        if (index, start) in conflicts:
            refused.append((asked.id, conflicts[index, start]))
            continue
        tx.outbox.append(Wake(Tag.QSUB))
        break
    _note_passed(tx, closed, passed)
    next_index, next_start = next(dates, (series.occurrences + 1, 0))
    tx.reservations.advance_series(series.id, next_index, next_start)
    if not next_start and not set(tx.reservations.live_of_series(series.id)) - {each for each, _ in refused}:
        tx.reservations.end_series(series.id)
    return refused


#: What decides, beside its window, whether there is a place for an occurrence.
_DECISIVE = ("request", "queue", "start_window", "time_offset", "is_flexible", "ignores_jobs")


def _asks_the_same(closed: AdvanceReservation, series: Series, template: SeriesTemplate) -> bool:
    """Return whether the series still requests the same as its closed occurrence."""
    same = all(getattr(closed, name) == getattr(template.new, name) for name in _DECISIVE)
    return same and closed.duration == series.duration


def coming(series: Series) -> Iterator[tuple[int, int]]:
    """Iterate over number and start of the occurrences that are not requested yet.

    Raises BadRequest at the first item if this machine cannot compute dates of the rule or lacks its time zone.
    """
    if not series.next_start:
        return iter(())
    starts = recurrence.dates(series.rule, series.first_start, series.time_zone)
    return enumerate(dropwhile(lambda start: start < series.next_start, starts), start=series.next_index)


def _is_over(new: NewReservation, start: int, end: int, now: int) -> bool:
    """Return whether an occurrence would be rejected because its time has passed."""
    return start + new.start_window < now and end - now <= new.time_offset


def _occurrence(new: NewReservation, series_id: int, index: int, window: tuple[int, int]) -> NewReservation:
    start, end = window
    return new._replace(start=start, end=end, series_id=series_id, series_index=index)


def _note_passed(tx: "Transaction", closed: AdvanceReservation, passed: int) -> None:
    if passed:
        _note(
            tx, closed, f"{passed} occurrences of series {closed.series_id} had passed before they could be asked for"
        )


def _note(tx: "Transaction", closed: AdvanceReservation, text: str) -> None:
    """Log the skipped occurrences in the log of the previous occurrence."""
    row = ReservationLog(closed.id, tx.now, ReservationEvent.SKIPPED, closed.state, message=text)
    tx.reservation_logs.log(row)


#: So many occurrences of a series are looked at when it is altered.
MOST_TOGETHER = 50


def overlapping(series: Series, live: Sequence[AdvanceReservation]) -> list[NewReservation]:
    """Return the next occurrences of a series, by start, if some of them overlap; else [].

    ``live``: requested occurrences that have not begun.
    """
    known = [(each.series_index, each.start) for each in live]
    following = islice(coming(series), max(0, MOST_TOGETHER - len(known)))
    dates = sorted([*known, *following], key=lambda each: each[1])
    if all(later - start >= series.duration for (_, start), (_, later) in pairwise(dates)):
        return []
    new = series.read_template.new
    return [_occurrence(new, series.id, index, (start, start + series.duration)) for index, start in dates]


def alter(
    tx: "Transaction",
    series: Series,
    duration: int | None,
    *,
    access: Sequence[AccessEntry] | None,
    **new: object,
) -> Series:
    """Change the template of a locked series for its future occurrences; return the series.

    None means unchanged.
    """
    template = series.read_template
    changed = SeriesTemplate(
        template.new._replace(**{name: value for name, value in new.items() if value is not None}),  # type: ignore[arg-type]
        template.access if access is None else tuple(access),
    )
    changed_series = series._replace(
        template=changed.encode(), duration=series.duration if duration is None else duration
    )
    tx.reservations.change_series(series.id, changed_series.template, changed_series.duration)
    return changed_series

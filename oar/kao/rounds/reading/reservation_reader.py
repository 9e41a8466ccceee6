"""The advance reservations of a round, as stored and in the planner's format.

A site without advance reservations needs one query.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from oar.kao.facts.snapshot import (
    Occurrence,
    PlannedChange,
    PlannedReservation,
    RequestGroup,
    StoredPlacement,
    WaitingJob,
)
from oar.kao.rounds.reading.filter_pools import Filters
from oar.kao.rounds.reading.numbered_resources import NumberedResources
from oar.kao.rounds.reading.snapshot_jobs import WalltimeCut
from oar.lib.base.errors import BadRequest, BrokenRow
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.records import Group
from oar.lib.reservations.changes import read_change
from oar.lib.reservations.records import (
    AdvanceReservation,
    LiveJobCounts,
    ReservationAlternative,
    ReservationChange,
    Series,
    decode_readable,
    granted_groups,
)
from oar.lib.reservations.series import coming
from oar.lib.reservations.states import ReservationState

#: Of a series so many occurrences at most are refused together.
MAX_FOLLOWERS = 50


@dataclass(frozen=True, slots=True)
class ReservationRows:
    """The rows of the live advance reservations, and related rows."""

    live: Sequence[AdvanceReservation] = ()
    jobs: Mapping[int, LiveJobCounts] = field(default_factory=dict)  #: by id of the reservation
    last_job_dates: Mapping[int, int] = field(default_factory=dict)
    missing_since: Mapping[int, Mapping[int, int]] = field(default_factory=dict)  #: reservation -> resource -> date
    changes: Sequence[ReservationChange] = ()  #: those that wait for an answer
    for_nobody: Collection[int] = ()  #: ids of the reservations that nobody may use
    maintenance: Collection[int] = ()  #: ids of granted resources in maintenance
    series: Mapping[int, Series] = field(default_factory=dict)  #: those of the requests, by id
    need_repair: bool = False  #: a round would be misled by them
    groups: Mapping[int, tuple[Group, ...]] = field(default_factory=dict)  #: of the granted requests, by reservation
    asked: Mapping[int, tuple[ReservationAlternative, ...]] = field(default_factory=dict)  #: by reservation

    @property
    def properties(self) -> frozenset[str]:
        """Return the properties of resources in the levels of requested, granted and changed reservations."""
        return frozenset(level.property for group in self._all_groups() for level in group.levels)

    def _all_groups(self) -> Iterator[Group]:
        for groups in self.groups.values():
            yield from groups
        for alternatives in (*self.asked.values(), *map(wanted_alternatives, self.changes)):
            for each in alternatives:
                yield from each.groups

    def add_filters(self, owners: dict[Filters, set[str]]) -> dict[Filters, set[str]]:
        """Add the filters of reservations, with their owners, to those of jobs; granted ones are always checked."""
        for reservation in self.live:
            asked = [group for each in self.asked.get(reservation.id, ()) for group in each.groups]
            for group in (*self.groups.get(reservation.id, ()), *asked):
                owners.setdefault(("", group.filter), set()).add(reservation.owner)
        names = {reservation.id: reservation.owner for reservation in self.live if self.changes}
        for change in self.changes:
            for group in (group for each in wanted_alternatives(change) for group in each.groups):
                owners.setdefault(("", group.filter), set()).add(names.get(change.reservation_id, change.author))
        return owners

    def planned(self, resources: NumberedResources, pools: Mapping[Filters, int]) -> tuple[PlannedReservation, ...]:
        return tuple(self._planned(reservation, resources, pools) for reservation in self.live)

    def planned_changes(self, pools: Mapping[Filters, int]) -> tuple[PlannedChange, ...]:
        return tuple(_planned_change(change, pools) for change in self.changes)

    def walltime_cuts(self) -> dict[str, WalltimeCut]:
        """Return the cuts of default walltimes, by the type that puts a job into the reservation."""
        return {
            each.entry_type: WalltimeCut(each.latest_job_end - each.start, each.latest_job_end)
            for each in self.live
            if not _is_asked(each) and not each.is_flexible
        }

    def with_frames(
        self, waiting: Sequence[WaitingJob], resources: NumberedResources, pools: Mapping[Filters, int]
    ) -> tuple[WaitingJob, ...]:
        """Return the waiting jobs; frames contain the request or the grant of their reservation."""
        framed = {each.frame_id: each for each in self.live}

        def with_frame(job: WaitingJob, reservation: AdvanceReservation) -> WaitingJob:
            if _is_asked(reservation):  # the rows of the job contain only the first alternative
                pairs = zip(job.alternatives, self.asked[reservation.id], strict=False)
                alternatives = tuple(replace(row, groups=_planned_groups(each.groups, pools)) for row, each in pairs)
                return replace(job, alternatives=alternatives)
            if not job.alternatives:
                return job
            place = StoredPlacement(job.alternatives[0].id, reservation.start, resources.members(reservation.resources))
            return replace(job, granted=place) if job.granted != place else job

        return tuple(with_frame(job, framed[job.id]) if job.id in framed else job for job in waiting)

    def _planned(
        self, reservation: AdvanceReservation, resources: NumberedResources, pools: Mapping[Filters, int]
    ) -> PlannedReservation:
        jobs = self.jobs[reservation.id]
        return PlannedReservation(
            id=reservation.id,
            number=reservation.number,
            frame_id=reservation.frame_id,
            state=reservation.state,
            revision=reservation.revision,
            queue=reservation.queue,
            start=reservation.start,
            end=reservation.end,
            start_window=reservation.start_window,
            time_offset=reservation.time_offset,
            is_hard=reservation.is_hard,
            replaces_lost=reservation.replaces_lost,
            is_flexible=reservation.is_flexible,
            ignores_jobs=reservation.ignores_jobs,
            idle_limit=reservation.idle_limit,
            message=reservation.message,
            resources=resources.members(reservation.resources),
            removed=tuple(number for number in reservation.resources if number not in resources.bits),
            groups=_planned_groups(self.groups.get(reservation.id, ()), pools),
            missing=reservation.missing,
            missing_since=self.missing_since.get(reservation.id, {}),
            live_jobs=(*jobs.running, *jobs.waiting),
            last_job_date=self.last_job_dates.get(reservation.id, 0),
            occurrence=reservation.series_index,
            together=reservation.series_id if self._is_first(reservation) else 0,
            skips_conflicts=self._is_first(reservation) and self.series[reservation.series_id].skips_conflicts,
            is_for_nobody=reservation.id in self.for_nobody,
            followers=self._followers(reservation),
        )

    def _followers(self, reservation: AdvanceReservation) -> tuple[Occurrence, ...]:
        """Return the occurrences to request next if a later occurrence of a series is refused."""
        series = self.series.get(reservation.series_id)
        if series is None or not _is_asked(reservation) or self._is_first(reservation):
            return ()
        try:
            return tuple(Occurrence(*each) for each in islice(coming(series), MAX_FOLLOWERS))
        except BadRequest:  # the series ends when the next occurrence is requested
            return ()

    def _is_first(self, reservation: AdvanceReservation) -> bool:
        """Return whether a request is one of the first occurrences of a series."""
        series = self.series.get(reservation.series_id)
        return series is not None and _is_asked(reservation) and reservation.series_index <= series.depth


class ReservationRowReader:
    """Reads the reservations of rounds; requests of granted reservations are read only when they change."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int, int], tuple[Group, ...]] = {}

    def forget(self) -> None:
        self._groups = {}

    def read(self, tx: Transaction, oldest: int) -> ReservationRows:
        """Read all live reservations; requests from before ``oldest`` have expired."""
        live = tx.reservations.planned()
        if not live:
            self.forget()
            return ReservationRows()
        ids = [reservation.id for reservation in live]
        asked = [reservation for reservation in live if _is_asked(reservation)]
        return ReservationRows(
            live=live,
            jobs=tx.reservations.live_jobs(ids),
            last_job_dates=tx.reservations.last_job_dates([each.id for each in live if each.idle_limit]),
            missing_since=tx.reservations.resources_missing_since([each.id for each in live if each.missing]),
            changes=tx.reservations.open_changes(),
            for_nobody=tx.reservations.for_nobody(ids),
            maintenance=tx.resources.in_maintenance({number for each in live for number in each.resources}),
            series=tx.reservations.select_series({each.series_id for each in asked if each.series_id}),
            need_repair=tx.reservation_faults.mislead(oldest),
            groups=self._granted_groups(tx, live),
            asked={each.id: decode_readable(each.request) for each in asked},
        )

    def _granted_groups(self, tx: Transaction, live: Sequence[AdvanceReservation]) -> dict[int, tuple[Group, ...]]:
        keys = {each.id: (each.id, each.revision, each.alternative) for each in live if not _is_asked(each)}
        unknown = [number for number, key in keys.items() if key not in self._groups]
        requests = tx.reservations.requests(unknown)
        self._groups = {
            key: self._groups[key] if key in self._groups else _chosen(requests[number], key[-1])
            for number, key in keys.items()
        }
        return {number: self._groups[key] for number, key in keys.items()}


def _chosen(request: str, alternative: int) -> tuple[Group, ...]:
    alternatives = decode_readable(request)
    return granted_groups(alternatives[alternative]) if 0 <= alternative < len(alternatives) else ()


def _is_asked(reservation: AdvanceReservation) -> bool:
    return reservation.state is ReservationState.ASKED


def wanted_alternatives(change: ReservationChange) -> tuple[ReservationAlternative, ...]:
    """Return the alternatives requested by a change; return () if there are none or they cannot be decoded."""
    try:
        request = read_change(change.change).request
    except BrokenRow:
        return ()
    return decode_readable(request) if request else ()


def _planned_change(change: ReservationChange, pools: Mapping[Filters, int]) -> PlannedChange:
    try:
        wanted = read_change(change.change)
    except BrokenRow:
        return PlannedChange(change.id, change.reservation_id, is_readable=False)
    return PlannedChange(
        change.id,
        change.reservation_id,
        start=wanted.start,
        end=wanted.end,
        is_forced=wanted.is_forced,
        alternatives=tuple(_planned_groups(each.groups, pools) for each in wanted_alternatives(change)),
        date=change.date,
        expires=change.expires,
    )


def _planned_groups(groups: Sequence[Group], pools: Mapping[Filters, int]) -> tuple[RequestGroup, ...]:
    return tuple(RequestGroup(pools["", group.filter], group.levels) for group in groups)

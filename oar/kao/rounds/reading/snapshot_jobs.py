"""The jobs of a snapshot, built from rows that are cached between rounds: only new and changed ones are read.

Rows are read again when their version has changed, requests only when their job was altered.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from oar.kao.facts.snapshot import (
    FOREVER,
    Alternative,
    RequestGroup,
    RequiredJob,
    RunningJob,
    StoredPlacement,
    WaitingJob,
)
from oar.kao.rounds.reading.filter_pools import Filters
from oar.kao.rounds.reading.numbered_resources import NumberedResources
from oar.kao.rounds.reading.situation import Alterations, HypotheticalJob
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.live_jobs import shared
from oar.lib.jobs.records import Dependency, Memory
from oar.lib.jobs.states import CURRENT, JobState, JobTypeName, Reservation
from oar.lib.planning.sql_rounds import DependencyRow, GroupRow, JobRow, MoldableRow, Rounds

#: Until so many seconds after the date of an alteration, its transaction may not be committed yet.
LONGEST_ALTERATION = 600


@dataclass(slots=True)
class CachedJob:
    """A live job as read from the database, and its record in the last snapshot."""

    version: str
    row: JobRow
    types: tuple[str, ...]
    moldables: tuple[MoldableRow, ...]
    record: WaitingJob | None = None
    made_from: tuple[object, ...] = ()  #: what the record was made from
    properties: frozenset[str] = field(init=False)  #: properties of resources that the levels of the request name
    filters: tuple[Filters, ...] = field(init=False)  #: the filter of the job with that of each group

    def __post_init__(self) -> None:
        groups = [group for moldable in self.moldables for group in moldable.groups]
        self.properties = frozenset(level.property for group in groups for level in group.levels)
        self.filters = tuple(dict.fromkeys((self.row.properties, group.filter) for group in groups))

    @property
    def is_waiting(self) -> bool:
        """Return whether the job needs a placement, or is a reservation that waits for its date."""
        return self.row.state in (JobState.WAITING, JobState.TO_ACK_RESERVATION)


class JobCache:
    """All live jobs that are not on hold, by id."""

    def __init__(self) -> None:
        self.jobs: dict[int, CachedJob] = {}
        self.alterations = Alterations()
        self._read_at = 0

    def forget(self) -> None:
        self.jobs = {}

    def read(self, rounds: Rounds, now: int) -> None:
        """Read new and changed jobs."""
        since = min(self._read_at or now, now) - LONGEST_ALTERATION
        last_alterations, self.alterations = self.alterations, Alterations(since, rounds.altered(since))
        self._read_at = now
        altered = last_alterations.later_in(self.alterations)
        versions = rounds.versions()
        last = self.jobs
        changed = [
            job_id for job_id, version in versions.items() if job_id not in last or last[job_id].version != version
        ]
        types = rounds.types(changed)
        rows = {row.id: row for row in rounds.jobs(changed)}
        # a reservation that was decided since it was read keeps only one alternative
        known = [row for row in rows.values() if row.id in last]
        altered |= {row.id for row in known if last[row.id].row.reservation is not row.reservation}
        moldables = rounds.moldables([job_id for job_id in changed if job_id not in last or job_id in altered])
        self.jobs = {}
        for job_id, version in versions.items():
            old, row = last.get(job_id), rows.get(job_id)
            if row is None and old:
                self.jobs[job_id] = old
            elif row and old and job_id not in altered:
                self.jobs[job_id] = CachedJob(version, row, types.get(job_id, ()), old.moldables, old.record)
            elif row:
                self.jobs[job_id] = CachedJob(version, row, types.get(job_id, ()), moldables.get(job_id, ()))

    def add(self, job: HypotheticalJob) -> None:
        self.jobs[job.row.id] = CachedJob("", job.row, job.types, job.moldables)


@dataclass(frozen=True, slots=True)
class JobRows:
    """The rows of all live jobs that each round reads."""

    running: Sequence[JobRow]  #: those that hold resources
    running_types: Mapping[int, tuple[str, ...]]  #: by job id
    walltimes: Mapping[int, tuple[int, Memory | None]]  #: of running jobs, by alternative, with their memory
    killed: set[int]
    assigned: Mapping[int, Sequence[int]]  #: alternative -> resource ids
    dependencies: Sequence[DependencyRow]
    starts: Mapping[int, int]  #: stored predictions: alternative -> start
    placed: Mapping[int, Sequence[int]]  #: alternative -> resource ids of the stored placements that are used
    suspended: Mapping[int, int]  #: job id -> seconds
    turns: Mapping[int, int]  #: by job id
    checkpoints: Mapping[int, tuple[int, bool]]  #: job id -> date of the event, whether the time for it is over


def read_job_rows(
    tx: Transaction,
    jobs: Mapping[int, CachedJob],
    hypothetical: Sequence[Dependency],
    *,
    with_promised: bool,
) -> JobRows:
    """Read the rows of a round.

    ``hypothetical``: dependencies of jobs that are not submitted.  ``with_promised``: also read the stored placements
    of jobs that may be waiting for nodes to wake.
    """
    rounds, starts = tx.rounds, tx.plan.starts()
    running = [job.row for job in jobs.values() if job.row.state in CURRENT]
    running_ids = [row.id for row in running]
    return JobRows(
        running=running,
        running_types=rounds.types(running_ids),
        walltimes=rounds.walltimes([row.moldable for row in running]),
        killed=rounds.killed(),
        assigned=rounds.assigned(),
        dependencies=[row for row in rounds.dependencies(hypothetical) if row.dependency.job_id in jobs],
        starts=starts,
        placed=tx.plan.resources(_placed_alternatives(jobs, starts, with_promised=with_promised)),
        suspended=tx.jobs.suspended_times([job.row.id for job in jobs.values() if job.row.was_suspended]),
        turns=rounds.turns([row.id for row in running if row.state is JobState.RESUMING]),
        checkpoints=rounds.checkpoints([row.id for row in running if row.checkpoint]),
    )


def _placed_alternatives(jobs: Mapping[int, CachedJob], starts: Mapping[int, int], *, with_promised: bool) -> list[int]:
    """Return the alternatives with stored placements in use: of accepted reservations, and promised ones."""
    last_round = starts.get(0, 0)
    alternatives = []
    for job in jobs.values():
        if not job.is_waiting:
            continue
        if job.row.reservation is Reservation.SCHEDULED:
            alternatives += [moldable.id for moldable in job.moldables if moldable.id in starts]
        elif with_promised and job.row.reservation is Reservation.NONE:
            alternatives += [each.id for each in job.moldables if starts.get(each.id, FOREVER) <= last_round]
    return alternatives


class WalltimeCut(NamedTuple):
    """Limits for jobs submitted without walltime into an advance reservation."""

    longest: int  #: seconds
    date: int  #: at which they have to be over


class SnapshotJobs:
    """Builds the records of jobs."""

    def __init__(
        self,
        rows: JobRows,
        resources: NumberedResources,
        pools: Mapping[Filters, int],
        cuts: Mapping[str, WalltimeCut] | None = None,
        postponed: Mapping[int, int] | None = None,
    ) -> None:
        """``pools``: the numbers of pools by filters.  ``cuts``: of default walltimes, by types of jobs.

        ``postponed``: dates before which jobs do not start, by id.
        """
        self._cuts = cuts or {}
        self._postponed = postponed or {}
        self._rows = rows
        self._resources = resources
        self._pools = pools
        self._groups: dict[tuple[object, ...], RequestGroup] = {}
        self._dependencies: dict[int, tuple[Dependency, ...]] = {}
        for row in rows.dependencies:
            job_id = row.dependency.job_id
            self._dependencies[job_id] = (*self._dependencies.get(job_id, ()), row.dependency)

    def waiting(self, job: CachedJob) -> WaitingJob:
        """Return the record of a waiting job; return the same object as in the last round if it is unchanged."""
        row = job.row
        is_killed, dependencies = row.id in self._rows.killed, self._dependencies.get(row.id, ())
        stored = self._stored_placement(job.moldables)
        granted = stored if row.reservation is Reservation.SCHEDULED else None
        waits_for_nodes = stored is not None and bool(stored.resources & self._resources.absent)
        is_promised = waits_for_nodes and row.reservation is Reservation.NONE
        promised = replace(stored, start=0) if stored and is_promised else None  # the start changes in each round
        cut = self._cut_of(job)
        date = self._postponed.get(row.id)
        types = (*job.types, f"{JobTypeName.POSTPONE}=@{date}") if date else job.types
        made_from = row, types, is_killed, dependencies, granted, promised, cut
        if job.record is None or job.made_from != made_from:
            record = WaitingJob(
                *shared(row),
                types=types,
                is_killed=is_killed,
                alternatives=tuple(self._alternative(row, moldable, cut) for moldable in job.moldables),
                dependencies=dependencies,
                submission_time=row.submission_time,
                start_time=row.start_time,
                granted=granted,
                promised=promised,
            )
            job.record = job.record if job.record == record else record
            job.made_from = made_from
        return job.record

    def running(self, row: JobRow, now: int) -> RunningJob:
        """Return the record of a job that holds resources; its start is at most ``now``, even after a clock change."""
        rows = self._rows
        walltime, memory = rows.walltimes.get(row.moldable, (0, None))
        checkpoint_asked, is_checkpoint_over = rows.checkpoints.get(row.id, (0, False))
        return RunningJob(
            *shared(row),
            types=rows.running_types.get(row.id, ()),
            is_killed=row.id in rows.killed,
            alternative=row.moldable,
            start_time=min(row.start_time, now),
            walltime=walltime,
            suspended_time=rows.suspended.get(row.id, 0),
            resources=self._resources.members(rows.assigned.get(row.moldable, ())),
            checkpoint=row.checkpoint,
            checkpoint_asked=checkpoint_asked,
            is_checkpoint_over=is_checkpoint_over,
            turn=rows.turns.get(row.id, 0),
            memory=memory,
        )

    def required(self, jobs: Mapping[int, CachedJob], held: Collection[int]) -> tuple[RequiredJob, ...]:
        """Return the unplanned jobs required by others, by id; ``held``: waiting jobs that are not planned."""
        planned = {job_id for job_id, job in jobs.items() if job.is_waiting or job.row.state in CURRENT}
        planned -= set(held)
        required: dict[int, RequiredJob] = {}
        for row in self._rows.dependencies:
            job_id = row.dependency.required
            if row.state is not None and job_id not in planned:
                required[job_id] = RequiredJob(job_id, row.state, row.exit_code, row.start_time, row.stop_time)
        return tuple(required[job_id] for job_id in sorted(required))

    def _cut_of(self, job: CachedJob) -> WalltimeCut | None:
        """Return the cut of the job's default walltimes; reservation jobs keep the walltimes that were promised."""
        if not self._cuts or job.row.reservation is not Reservation.NONE:
            return None
        return next((self._cuts[text] for text in job.types if text in self._cuts), None)

    def _alternative(self, row: JobRow, moldable: MoldableRow, cut: WalltimeCut | None) -> Alternative:
        groups = tuple(self._group(row, group) for group in moldable.groups)
        if cut and moldable.default_walltime:
            walltime = min(moldable.default_walltime, cut.longest)
            return Alternative(moldable.id, walltime, groups, cut.date, moldable.memory)
        return Alternative(moldable.id, moldable.walltime, groups, memory=moldable.memory)

    def _group(self, row: JobRow, group: GroupRow) -> RequestGroup:
        """Return the record of a group; equal groups share one object."""
        key = row.properties, group.filter, group.levels
        record = self._groups.get(key)
        if record is None:
            record = self._groups[key] = RequestGroup(self._pools[row.properties, group.filter], group.levels)
        return record

    def _stored_placement(self, moldables: Sequence[MoldableRow]) -> StoredPlacement | None:
        for moldable in moldables:
            if moldable.id in self._rows.placed:
                resources = self._resources.members(self._rows.placed[moldable.id])
                return StoredPlacement(moldable.id, self._rows.starts[moldable.id], resources)
        return None

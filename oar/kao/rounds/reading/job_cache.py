"""The rows of live jobs, cached between rounds: only new and changed ones are read.

Rows are read again when their version has changed, requests only when their job was altered.
"""

from dataclasses import dataclass, field

from oar.kao.facts.snapshot import WaitingJob
from oar.kao.rounds.reading.filter_pools import Filters
from oar.kao.rounds.reading.situation import Alterations, HypotheticalJob
from oar.lib.jobs.states import JobState
from oar.lib.planning.sql_rounds import JobRow, MoldableRow, Rounds

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


def _is_answered(last: CachedJob | None, row: JobRow) -> bool:
    """Return whether a reservation was decided since it was read; then it keeps only one alternative."""
    return last is not None and last.row.reservation is not row.reservation


class JobCache:
    """All live jobs that are not on hold, by id."""

    def __init__(self) -> None:
        self.jobs: dict[int, CachedJob] = {}
        self.alterations = Alterations()
        self._read_at = 0

    def forget(self) -> None:
        """Delete all cached jobs: the next call reads them again."""
        self.jobs = {}

    def read(self, rounds: Rounds, now: int) -> None:
        """Read new and changed jobs."""
        altered = self._read_alterations(rounds, now)
        versions = rounds.versions()
        last = self.jobs
        changed = [
            job_id for job_id, version in versions.items() if job_id not in last or last[job_id].version != version
        ]
        types = rounds.types(changed)
        rows = {row.id: row for row in rounds.jobs(changed)}
        altered |= {number for number, row in rows.items() if _is_answered(last.get(number), row)}
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
        """Add a hypothetical job."""
        self.jobs[job.row.id] = CachedJob("", job.row, job.types, job.moldables)

    def _read_alterations(self, rounds: Rounds, now: int) -> set[int]:
        """Return the jobs that were altered since the last round."""
        since = min(self._read_at or now, now) - LONGEST_ALTERATION
        last, self.alterations = self.alterations, Alterations(since, rounds.altered(since))
        self._read_at = now
        return last.later_in(self.alterations)

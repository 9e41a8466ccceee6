"""Desktop computers and the jobs that their agents fetch (``tx.desktop_computers``)."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.states import JobState, Phase
from oar.lib.nodes.states import ResourceState

#: Jobs of the type whose head is a host, from the moment at which they may be fetched until their end is reported.
_JOBS = Prepared("""
    SELECT j.job_id, j.state, r.phase, r.failures, j.start_time, COALESCE(m.moldable_walltime, 0), r.report_date,
        CASE WHEN r.phase IN ('GO', 'STARTED') THEN r.boot_id ELSE '' END, r.silent_since
    FROM job_runs r JOIN jobs j USING (job_id)
    LEFT JOIN moldable_job_descriptions m ON m.moldable_id = j.assigned_moldable_job
    WHERE r.head_host = %s AND j.state IN ('Launching', 'Running') AND EXISTS (
        SELECT 1 FROM job_types t
        WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT' AND t.type = 'desktop_computing')
    ORDER BY j.job_id FOR NO KEY UPDATE OF j""")
_COMPUTER = Prepared("""
    SELECT resource_id, desktop_computing = 'YES', state, finaud_decision = 'YES', next_state,
        next_finaud_decision = 'YES'
    FROM resources WHERE network_address = %s AND type = 'default' ORDER BY resource_id FOR NO KEY UPDATE""")
_NOTE_CALL = Prepared("UPDATE resources SET expiry_date = %s WHERE resource_id = ANY(%s)")
#: When a job was named last is noted seldom: it is compared with minutes.
_NOTE_PRESENCE = Prepared("""
    UPDATE job_runs SET failures = CASE WHEN job_id = ANY(%(missing)s) THEN failures + 1 ELSE 0 END,
        silent_since = CASE WHEN job_id = ANY(%(missing)s) THEN silent_since ELSE %(now)s::bigint END
    WHERE job_id = ANY(%(missing)s)
       OR (job_id = ANY(%(present)s) AND (failures > 0 OR silent_since < %(now)s::bigint - %(seldom)s::bigint))""")
#: Whether a host has a job: it is its head, the job was told to it, and its end is not reported.
_IS_JOB_OF = Prepared("""
    SELECT 1 FROM job_runs r JOIN jobs j USING (job_id)
    WHERE r.job_id = %s AND r.head_host = %s AND r.phase IN ('GO', 'STARTED') AND j.state = 'Running'
      AND EXISTS (SELECT 1 FROM job_types t
        WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT' AND t.type = 'desktop_computing')""")
#: The file that a user gave to a job.
_STAGED = Prepared("""
    SELECT f.location, f.md5sum, f.compression, f.size FROM jobs j JOIN files f USING (file_id) WHERE j.job_id = %s""")
#: Those of some jobs of which nobody needs results any more: they are unknown, or ended before a date.
_FORGOTTEN = Prepared("""
    SELECT id FROM unnest(%s::bigint[]) id WHERE NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.job_id = id
          AND (j.state NOT IN ('Terminated', 'Error') OR j.stop_time >= %s)) ORDER BY id""")


class FetchedJob(NamedTuple):
    """A job that an agent will fetch or has fetched."""

    id: int
    state: JobState
    phase: Phase
    absences: int  #: how many questions of its agent in a row did not name it
    start: int
    walltime: int
    report_date: int  #: when its end was reported, 0 if it was not
    agent: str = ""  #: that has fetched it: the name of the directory in which it works, '' if it told none
    named: int = 0  #: when a question named it last, about


class DesktopResource(NamedTuple):
    """A resource of a desktop computer."""

    id: int
    is_desktop: bool
    state: ResourceState
    by_system: bool  #: the system has decided its state, and may take that back
    next_state: str
    next_by_system: bool


class StagedInput(NamedTuple):
    """The stage-in file of a job."""

    location: str
    md5sum: str
    compression: str  #: kind of archive, '' if it is none
    size: int


class DesktopComputers(Table):
    """Queries about resources and jobs of desktop computers."""

    def jobs(self, host: str) -> list[FetchedJob]:
        """Lock and return the jobs of the agent of a host, by id."""
        return [FetchedJob(row[0], JobState(row[1]), Phase(row[2]), *row[3:]) for row in self._tx.rows(_JOBS, (host,))]

    def resources(self, host: str) -> list[DesktopResource]:
        """Lock and return the compute resources of a host, by id."""
        return [
            DesktopResource(row[0], row[1], ResourceState(row[2]), *row[3:])
            for row in self._tx.rows(_COMPUTER, (host,))
        ]

    def note_call(self, ids: Collection[int], expiry: int) -> None:
        """Store the call of an agent; its resources become Suspected if it does not call again before ``expiry``."""
        self._tx.execute(_NOTE_CALL, (expiry, sorted(ids)))

    def note_presence(self, present: Collection[int], missing: Collection[int], seldom: int) -> None:
        """Store which jobs an agent reported, and which it did not.

        A reported job is updated at most every ``seldom`` seconds.
        """
        if present or missing:
            named = {"present": sorted(present), "missing": sorted(missing)}
            self._tx.execute(_NOTE_PRESENCE, named | {"now": self._tx.now, "seldom": seldom})

    def is_job_of(self, job_id: int, host: str) -> bool:
        """Return whether the agent of a host has this job now."""
        return self._tx.row(_IS_JOB_OF, (job_id, host)) is not None

    def input_of(self, job_id: int) -> StagedInput | None:
        """Return the stage-in file of a job; None if there is none."""
        row = self._tx.row(_STAGED, (job_id,))
        return StagedInput(row[0], row[1] or "", row[2] or "", row[3]) if row else None

    def forgotten(self, ids: Collection[int], before: int) -> list[int]:
        """Return the ids of the jobs that are unknown, or ended before a date."""
        return self._tx.column(_FORGOTTEN, (sorted(ids), before))

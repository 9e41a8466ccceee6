"""What is in hand about jobs (``tx.runs``): the Runner's durable list, kill requests, automatic resubmissions."""

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.model import Cause, JobRun, KillRequest, NodeReason
from oar.lib.states import JobState, KillState, Phase

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

_RUN = """
    SELECT job_id, attempt, phase, head_host, bad_hosts, oarexec_code, script_status, report_date, boot_id, failures,
        next_try, updated, detail FROM job_runs"""
_CLAIM = """
    INSERT INTO job_runs (job_id, attempt, phase, head_host, updated) VALUES (%(id)s, 1, 'CLAIMED', %(head)s, %(now)s)
    ON CONFLICT (job_id) DO UPDATE
        SET attempt = job_runs.attempt + 1, phase = 'CLAIMED', head_host = %(head)s, updated = %(now)s
    RETURNING attempt"""
#: The first report counts; a second one changes nothing, nor does one of a job that has ended meanwhile.
_REPORT = """
    INSERT INTO job_runs (job_id, attempt, phase, oarexec_code, script_status, report_date, updated)
    SELECT job_id, 1, 'REPORTED', %(code)s, %(status)s, %(now)s, %(now)s FROM jobs
    WHERE job_id = %(id)s AND state <> 'Terminated' AND state <> 'Error' FOR NO KEY UPDATE
    ON CONFLICT (job_id) DO UPDATE SET phase = 'REPORTED', oarexec_code = %(code)s, script_status = %(status)s,
        report_date = %(now)s, updated = %(now)s
    WHERE job_runs.report_date = 0"""

#: Jobs that the Runner may have to act on: those between launch and end, without the running ones that it has heard
#: of lately.  The head of a job that no bipbip has claimed is the first of its hosts.
_IN_HAND = """
    SELECT j.job_id, j.state, r.phase, COALESCE(NULLIF(r.head_host, ''), (
            SELECT min(s.network_address) FROM assigned_resources a JOIN resources s USING (resource_id)
            WHERE a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
              AND s.type = 'default' AND s.network_address <> ''), ''),
        COALESCE(r.report_date, 0), COALESCE(r.next_try, 0), COALESCE(r.updated, 0)
    FROM jobs j LEFT JOIN job_runs r USING (job_id)
    WHERE j.state <> 'Terminated' AND j.state <> 'Error'
      AND (j.state IN ('toLaunch', 'Launching', 'Finishing', 'toAckReservation')
        OR (j.state IN ('Running', 'Suspended', 'Resuming')
          AND (r.job_id IS NULL OR r.phase = 'GO' OR r.report_date > 0 OR r.updated < %(probe_before)s
            OR %(ids)s::bigint[] IS NOT NULL)))
      AND (%(ids)s::bigint[] IS NULL OR j.job_id = ANY(%(ids)s::bigint[]))
    ORDER BY j.job_id"""
#: Requests of signals that are young enough and have no result yet.
_SIGNALS = """
    SELECT e.event_id, e.job_id, e.type FROM event_logs e
    WHERE e.date > %(since)s AND (e.type = 'CHECKPOINT' OR e.type LIKE 'SIGNAL\\_%%')
      AND NOT EXISTS (
        SELECT 1 FROM event_logs o WHERE o.job_id = e.job_id AND o.event_id > e.event_id
          AND o.type = ANY(CASE WHEN e.type = 'CHECKPOINT'
                           THEN ARRAY['CHECKPOINT_SUCCESS', 'CHECKPOINT_ERROR', 'CHECKPOINT_TIMEOUT']
                           ELSE ARRAY['SIG_SUCCESS', 'SIG_ERROR'] END))
    ORDER BY e.event_id"""
#: What an end report is compared with; the jobs stay as they are until the end of the transaction.
_REPORTED = """
    SELECT j.job_id, j.state, c.challenge, COALESCE(r.report_date, 0)
    FROM jobs j LEFT JOIN challenges c USING (job_id) LEFT JOIN job_runs r USING (job_id)
    WHERE j.job_id = ANY(%s) ORDER BY j.job_id FOR NO KEY UPDATE OF j"""
#: What decides whether a job may be submitted again.
_STANDINGS = """
    SELECT id, EXISTS (SELECT 1 FROM frag_jobs f WHERE f.frag_id_job = id),
        EXISTS (SELECT 1 FROM auto_resubmissions a WHERE a.job_id = id), r.oarexec_code
    FROM unnest(%s::bigint[]) id LEFT JOIN job_runs r ON r.job_id = id"""
#: Who asks first is the cause.
_ASK_KILL = """
    INSERT INTO frag_jobs (frag_id_job, frag_date, frag_state, frag_cause, frag_data)
    SELECT id, %s, 'LEON', code, data FROM unnest(%s::bigint[], %s::text[], %s::text[]) asked (id, code, data)
    ORDER BY id ON CONFLICT DO NOTHING RETURNING frag_id_job"""
#: Leon gives jobs up: the Runner cleans what it can and ends them.  One whose end has begun goes on with it.
_EXTERMINATE = """
    INSERT INTO job_runs (job_id, attempt, phase, updated)
    SELECT id, 0, 'EXTERMINATE', %(now)s FROM unnest(%(ids)s::bigint[]) id
    ON CONFLICT (job_id) DO UPDATE SET phase = 'EXTERMINATE', updated = %(now)s
    WHERE job_runs.phase NOT IN ('EXTERMINATE', 'REPORTED', 'EPILOGUE_OK', 'CLEANED')"""


class InHand(NamedTuple):
    """A job between its launch and its end, as the Runner has to know it."""

    job_id: int
    state: JobState
    phase: Phase | None
    head_host: str
    report_date: int
    next_try: int
    updated: int


class SignalRequest(NamedTuple):
    """A request to send a signal to a job's command: event ``CHECKPOINT`` or ``SIGNAL_<n>``."""

    event_id: int
    job_id: int
    type: str


class AwaitedReport(NamedTuple):
    """What the end report of a job is compared with."""

    state: JobState
    challenge: str
    report_date: int


class Standing(NamedTuple):
    """What decides whether a job may be submitted again."""

    kill_asked: bool = False
    was_resubmitted: bool = False
    oarexec_code: int | None = None


class Runs:
    """Rows of ``job_runs``, ``frag_jobs`` and ``auto_resubmissions``."""

    def __init__(self, tx: "Transaction") -> None:
        self._tx = tx

    def find(self, job_id: int) -> JobRun | None:
        """Return what the Runner knows of a job, None if it never took it."""
        row = self._tx.row(f"{_RUN} WHERE job_id = %s", (job_id,))
        return _run(row) if row else None

    def select(self, ids: Collection[int]) -> dict[int, JobRun]:
        """Return what the Runner knows of some jobs, of those that it took."""
        return {row[0]: _run(row) for row in self._tx.rows(f"{_RUN} WHERE job_id = ANY(%s)", (list(ids),))}

    def all(self) -> dict[int, JobRun]:
        """Return what the Runner knows of all jobs that it has in hand."""
        return {row[0]: _run(row) for row in self._tx.rows(_RUN)}

    def in_hand(self, ids: Collection[int] | None = None, *, probe_before: int = 0) -> list[InHand]:
        """Return the jobs (all, or those of ``ids``) that the Runner may have to act on.

        Running ones only if they were reported, or not heard of since ``probe_before``, or are named in ``ids``.
        """
        parameters = {"ids": None if ids is None else list(ids), "probe_before": probe_before}
        return [
            InHand(row[0], JobState(row[1]), Phase(row[2]) if row[2] else None, *row[3:])
            for row in self._tx.rows(_IN_HAND, parameters)
        ]

    def live(self) -> list[int]:
        """Return the jobs that have not ended and have left the queue."""
        return self._tx.column(
            "SELECT job_id FROM jobs WHERE state <> 'Terminated' AND state <> 'Error' AND state <> 'Waiting'"
            " AND state <> 'Hold'"
        )

    def stale_kills(self, before: int) -> bool:
        """Whether Leon has left a kill request untreated since before a date."""
        return (
            self._tx.row(
                "SELECT 1 FROM frag_jobs WHERE frag_state <> 'FRAGGED' AND frag_state IN ('LEON', 'LEON_EXTERMINATE')"
                " AND frag_date < %s LIMIT 1",
                (before,),
            )
            is not None
        )

    def signal_requests(self, since: int) -> list[SignalRequest]:
        """Return the requests of signals made after ``since`` that have no result yet."""
        return [SignalRequest(*row) for row in self._tx.rows(_SIGNALS, {"since": since})]

    def awaited_reports(self, ids: Collection[int]) -> dict[int, AwaitedReport]:
        """Return what the reports of jobs are compared with, and lock the jobs."""
        rows = self._tx.rows(_REPORTED, (sorted(ids),))
        return {row[0]: AwaitedReport(JobState(row[1]), row[2] or "", row[3]) for row in rows}

    def claim(self, job_id: int, head_host: str) -> int:
        """Note that a launch begins; return the number of the attempt."""
        attempt: int = self._tx.value(_CLAIM, {"id": job_id, "head": head_host, "now": self._tx.now})
        return attempt

    def update(self, job_id: int, **columns: Any) -> None:
        """Set columns of a job's row."""
        assignments = "".join(f"{name} = %({name})s, " for name in columns)
        self._tx.execute(
            f"UPDATE job_runs SET {assignments}updated = %(now)s WHERE job_id = %(id)s",
            columns | {"id": job_id, "now": self._tx.now},
        )

    def note_started(self, job_id: int, boot_id: str = "") -> bool:
        """Note that the command of a job runs; False if that, or its end, is known already."""
        return (
            self._tx.execute(
                "UPDATE job_runs SET phase = 'STARTED', boot_id = %s, updated = %s"
                " WHERE job_id = %s AND phase IN ('EXEC_SENT', 'GO')",
                (boot_id, self._tx.now, job_id),
            )
            == 1
        )

    def note_silence(self, host: str, *, silent: bool) -> int:
        """Count the probes in a row that a host did not answer; return how many it has been now."""
        return max(
            self._tx.column(
                "UPDATE job_runs SET failures = CASE WHEN %s THEN failures + 1 ELSE 0 END"
                " WHERE head_host = %s RETURNING failures",
                (silent, host),
            ),
            default=0,
        )

    def silent_hosts(self, times: int) -> set[str]:
        """Return the hosts that have not answered so many probes in a row."""
        return set(self._tx.column("SELECT head_host FROM job_runs WHERE failures >= %s", (times,)))

    def jobs_of_head(self, host: str) -> list[int]:
        """Return the jobs in hand whose command runs on a host."""
        return self._tx.column("SELECT job_id FROM job_runs WHERE head_host = %s ORDER BY job_id", (host,))

    def report(self, job_id: int, code: int, status: int | None) -> bool:
        """Note the end of a job; False if it was noted before."""
        parameters = {"id": job_id, "code": code, "status": status, "now": self._tx.now}
        return self._tx.execute(_REPORT, parameters) == 1

    def note_reason(self, job_id: int, reason: NodeReason) -> None:
        """Note what the head of a job found when something of the job failed there; the first finding holds."""
        self._tx.execute(
            "UPDATE job_runs SET reason = %s WHERE job_id = %s AND reason = ''", (json.dumps(reason._asdict()), job_id)
        )

    def ask_kill(self, causes: Mapping[int, Cause]) -> list[int]:
        """Ask for the end of jobs, each for its cause; return those of which it was not asked before."""
        ids = sorted(causes)
        codes = [str(causes[job_id].code) for job_id in ids]
        data = [json.dumps(causes[job_id].data) for job_id in ids]
        return sorted(self._tx.column(_ASK_KILL, (self._tx.now, ids, codes, data)))

    def exterminate(self, ids: Collection[int]) -> None:
        """Note that jobs were given up: the Runner has to end them."""
        self._tx.execute(_EXTERMINATE, {"ids": sorted(ids), "now": self._tx.now})

    def standings(self, ids: Collection[int]) -> dict[int, Standing]:
        """Return for each of some jobs what decides whether it may be submitted again."""
        return {row[0]: Standing(*row[1:]) for row in self._tx.rows(_STANDINGS, (sorted(ids),))} if ids else {}

    def kills_asked(self, ids: Collection[int]) -> set[int]:
        """Return the jobs whose end was asked."""
        return set(self._tx.column("SELECT frag_id_job FROM frag_jobs WHERE frag_id_job = ANY(%s)", (list(ids),)))

    def kill_request(self, job_id: int) -> KillRequest | None:
        """Return the kill request of a job, None if nobody asked."""
        row = self._tx.row("SELECT frag_id_job, frag_date, frag_state FROM frag_jobs WHERE frag_id_job = %s", (job_id,))
        return KillRequest(row[0], row[1], KillState(row[2])) if row else None

    def kill_requests(self, states: Collection[KillState]) -> list[KillRequest]:
        """Return the kill requests that are in one of some states, by job id."""
        rows = self._tx.rows(
            "SELECT frag_id_job, frag_date, frag_state FROM frag_jobs"
            " WHERE frag_state <> 'FRAGGED' AND frag_state = ANY(%s) ORDER BY frag_id_job",
            ([str(state) for state in states],),
        )
        return [KillRequest(row[0], row[1], KillState(row[2])) for row in rows]

    def move_kill(self, ids: Collection[int], to: KillState, sources: Collection[KillState]) -> list[int]:
        """Give kill requests the state ``to`` if they are in one of ``sources``; return those that were."""
        return sorted(
            self._tx.column(
                "UPDATE frag_jobs SET frag_state = %s WHERE frag_id_job = ANY(%s) AND frag_state = ANY(%s)"
                " RETURNING frag_id_job",
                (to, sorted(ids), [str(state) for state in sources]),
            )
        )

    def note_resubmission(self, old: int, new: int) -> bool:
        """Note that ``old`` was resubmitted automatically as ``new``; False if it was before."""
        return (
            self._tx.execute(
                "INSERT INTO auto_resubmissions (job_id, new_job_id) VALUES (%s, %s) ON CONFLICT DO NOTHING", (old, new)
            )
            == 1
        )

    def was_resubmitted(self, job_id: int) -> bool:
        """Whether a job was resubmitted automatically."""
        return self._tx.row("SELECT 1 FROM auto_resubmissions WHERE job_id = %s", (job_id,)) is not None

    def chain_of_resubmissions(self, job_id: int) -> int:
        """Return how many automatic resubmissions led to a job."""
        count: int = self._tx.value(_CHAIN, (job_id,))
        return count


_CHAIN = """
    WITH RECURSIVE chain(id) AS (
        SELECT job_id FROM auto_resubmissions WHERE new_job_id = %s
        UNION SELECT a.job_id FROM auto_resubmissions a JOIN chain c ON a.new_job_id = c.id)
    SELECT count(*) FROM chain"""


def _run(row: tuple[Any, ...]) -> JobRun:
    return JobRun(row[0], row[1], Phase(row[2]), row[3], tuple((row[4] or "").split()), *row[5:])

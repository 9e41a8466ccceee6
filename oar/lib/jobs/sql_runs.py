"""Launches and ends (``tx.job_runs``): the work of the Runner; rows of ``job_runs``, ``job_ends`` and ``job_usage``."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import About, Prepared, Row, Table
from oar.lib.history.event_types import signal_event
from oar.lib.jobs import end_decision
from oar.lib.jobs.end_decision import EndEvent, EndFacts
from oar.lib.jobs.ends import LAST_SIGNAL, Cause, EndCode
from oar.lib.jobs.records import Job, JobRun, NodeUsage
from oar.lib.jobs.states import JobState, Outcome, Phase
from oar.lib.remote.protocol import NodeFault

_COLUMNS = """
    r.job_id, r.attempt, r.phase, r.head_host, r.bad_hosts, r.oarexec_code, r.script_status, r.report_date, r.boot_id,
    r.failures, r.silent_since, r.updated, r.detail"""
_ALL = f"SELECT {_COLUMNS} FROM job_runs r"
_FIND = Prepared(f"{_ALL} WHERE r.job_id = %s")
_SELECT = Prepared(f"{_ALL} WHERE r.job_id = ANY(%s)")
#: Of launches: the head that has claimed them, and whether their end was requested.
_LAUNCHES = Prepared("""
    SELECT r.job_id, r.head_host, EXISTS (SELECT FROM frag_jobs f WHERE f.frag_id_job = r.job_id)
    FROM job_runs r WHERE r.job_id = ANY(%s)""")
_CLAIM = Prepared(f"""
    INSERT INTO job_runs AS r (job_id, attempt, phase, head_host, updated)
    SELECT id, 1, phase, head, %(now)s
    FROM unnest(%(ids)s::bigint[], %(phases)s::text[], %(heads)s::text[]) claimed (id, phase, head)
    ON CONFLICT (job_id) DO UPDATE SET attempt = r.attempt + 1, phase = EXCLUDED.phase,
        head_host = EXCLUDED.head_host, updated = EXCLUDED.updated
    RETURNING {_COLUMNS}""")
_NOTE_GO = Prepared("""
    UPDATE job_runs r SET phase = 'GO', boot_id = n.boot_id, updated = %(now)s
    FROM unnest(%(ids)s::bigint[], %(boots)s::text[]) AS n (id, boot_id) WHERE r.job_id = n.id""")
_NOTE_STARTED = Prepared("""
    UPDATE job_runs r SET phase = 'STARTED', boot_id = n.boot_id, updated = %(now)s
    FROM unnest(%(ids)s::bigint[], %(boots)s::text[]) AS n (id, boot_id)
    WHERE r.job_id = n.id AND r.phase IN ('EXEC_SENT', 'GO') RETURNING r.job_id""")
#: Only the first report counts; a report about a job that has ended meanwhile is ignored.
_REPORT = Prepared(f"""
    INSERT INTO job_runs (job_id, attempt, phase, oarexec_code, script_status, report_date, updated)
    SELECT j.job_id, 1, 'REPORTED', n.code, n.status, GREATEST(n.date, 1), %(now)s
    FROM unnest(%(ids)s::bigint[], %(codes)s::integer[], %(statuses)s::integer[], %(dates)s::bigint[])
        AS n (id, code, status, date)
    JOIN jobs j ON j.job_id = n.id
    WHERE {LIVE} ORDER BY j.job_id FOR NO KEY UPDATE OF j
    ON CONFLICT (job_id) DO UPDATE SET phase = 'REPORTED', oarexec_code = EXCLUDED.oarexec_code,
        script_status = EXCLUDED.script_status, report_date = EXCLUDED.report_date, updated = %(now)s
    WHERE job_runs.report_date = 0 RETURNING job_id, head_host""")
#: Jobs between launch and end, without running jobs that were updated recently. The head of a job that no bipbip has
#: claimed is the first of its hosts.
_IN_HAND = f"""
    SELECT j.job_id, j.state, r.phase, COALESCE(NULLIF(r.head_host, ''), (
            SELECT min(s.network_address) FROM assigned_resources a JOIN resources s USING (resource_id)
            WHERE a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
              AND s.type = 'default' AND s.network_address <> ''), ''),
        COALESCE(r.report_date, 0), COALESCE(r.updated, 0)
    FROM jobs j LEFT JOIN job_runs r USING (job_id)
    WHERE {LIVE}
      AND (j.state IN ('toLaunch', 'Launching', 'Finishing', 'toAckReservation')
        OR (j.state IN ('Running', 'Suspended', 'Resuming')
          AND ({{}})))
      AND {NO_FRAME} AND {{}}
    ORDER BY j.job_id"""
_ALL_IN_HAND = Prepared(
    _IN_HAND.format("r.job_id IS NULL OR r.phase = 'GO' OR r.report_date > 0 OR r.updated < %s", "true")
)
#: A separate statement, so that the jobs are found by id, however many others wait.
_THESE_IN_HAND = Prepared(_IN_HAND.format("true", "j.job_id = ANY(%s)"))
#: Recent signal requests without a result.
_SIGNAL_EVENTS = Prepared("""
    SELECT e.event_id, e.job_id, e.type FROM event_logs e
    WHERE e.date > %(since)s AND (e.type = 'CHECKPOINT' OR e.type LIKE 'SIGNAL\\_%%')
      AND NOT EXISTS (
        SELECT 1 FROM event_logs o WHERE o.job_id = e.job_id AND o.event_id > e.event_id
          AND o.type = ANY(CASE WHEN e.type = 'CHECKPOINT'
                           THEN ARRAY['CHECKPOINT_SUCCESS', 'CHECKPOINT_ERROR', 'CHECKPOINT_TIMEOUT']
                           ELSE ARRAY['SIG_SUCCESS', 'SIG_ERROR'] END))
    ORDER BY e.event_id""")
#: Locks the jobs until the end of the transaction.
_REPORTED = Prepared("""
    SELECT j.job_id, j.state, c.challenge, COALESCE(r.report_date, 0)
    FROM jobs j LEFT JOIN challenges c USING (job_id) LEFT JOIN job_runs r USING (job_id)
    WHERE j.job_id = ANY(%s) ORDER BY j.job_id FOR NO KEY UPDATE OF j""")
#: A job whose end has begun is not changed.
_EXTERMINATE = """
    INSERT INTO job_runs (job_id, attempt, phase, updated)
    SELECT id, 0, 'EXTERMINATE', %(now)s FROM unnest(%(ids)s::bigint[]) id
    ON CONFLICT (job_id) DO UPDATE SET phase = 'EXTERMINATE', updated = %(now)s
    WHERE job_runs.phase NOT IN ('EXTERMINATE', 'REPORTED', 'EPILOGUE_OK', 'CLEANED')"""
#: The head nodes of running jobs: the silent ones, the number of those that answered since a date, the others.
_HEARD = """
    SELECT COALESCE(array_agg(head_host) FILTER (WHERE is_silent), '{}'),
        count(*) FILTER (WHERE NOT is_silent AND heard >= %(date)s),
        COALESCE(array_agg(head_host) FILTER (WHERE NOT is_silent AND heard < %(date)s), '{}')
    FROM (SELECT head_host, bool_or(failures > 0) AS is_silent, max(updated) AS heard FROM job_runs
        WHERE phase = 'STARTED' AND head_host <> '' AND NOT EXISTS (
            SELECT 1 FROM job_types t WHERE t.job_id = job_runs.job_id AND t.type = 'desktop_computing')
        GROUP BY head_host) hosts"""


class InHand(NamedTuple):
    """A job between its launch and its end, with the data that the Runner needs."""

    job_id: int
    state: JobState
    phase: Phase | None  #: None: no bipbip has taken it
    head_host: str
    report_date: int  #: when its end was reported, 0 if it was not
    updated: int  #: date of the last update


class Silence(NamedTuple):
    """Unanswered probes of a host."""

    probes: int  #: number of unanswered probes in a row
    since: int  #: when the first of them began


class HostsHeard(NamedTuple):
    """The head nodes of running jobs, grouped by their answers since a date."""

    silent: list[str]  #: did not answer
    heard: int  #: number of nodes that answered
    unknown: list[str]  #: were not probed


class SignalEvent(NamedTuple):
    """A request to send a signal to the command of a job: event ``CHECKPOINT`` or ``SIGNAL_<n>``."""

    event_id: int
    job_id: int
    type: str


class ReportedEnd(NamedTuple):
    """The end of a job as its node reports it: exit code of oarexec, wait status of the command, date."""

    code: int
    status: int | None
    date: int


class AwaitedReport(NamedTuple):
    """The stored data against which the end report of a job is checked."""

    state: JobState
    challenge: str
    report_date: int


def _run(row: Row) -> JobRun:
    return JobRun(row[0], row[1], Phase(row[2]), row[3], tuple((row[4] or "").split()), *row[5:])


_FACTS = Prepared("""
    SELECT j.job_id, j.exit_code, j.message, COALESCE(m.moldable_walltime, 0),
        COALESCE(m.default_walltime > m.moldable_walltime, false)
            AND EXISTS (SELECT FROM reservation_jobs i WHERE i.job_id = j.job_id),
        j.start_time, j.stop_time, j.checkpoint_signal,
        f.frag_id_job, f.frag_cause, f.frag_data, r.oarexec_code, r.phase, r.head_host, r.detail, r.reason
    FROM jobs j
    LEFT JOIN moldable_job_descriptions m ON m.moldable_id = j.assigned_moldable_job
    LEFT JOIN frag_jobs f ON f.frag_id_job = j.job_id
    LEFT JOIN job_runs r ON r.job_id = j.job_id
    WHERE j.job_id = ANY(%s)""")
_EVENTS = Prepared("""
    SELECT e.job_id, e.type, e.description, ARRAY(
        SELECT h.hostname FROM event_log_hostnames h WHERE h.event_id = e.event_id ORDER BY h.hostname)
    FROM event_logs e WHERE e.job_id = ANY(%s) AND e.type = ANY(%s) ORDER BY e.event_id""")
_STORE = Prepared("""
    INSERT INTO job_ends (job_id, date, code, data)
    SELECT id, %s, code, data FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n (id, code, data)
    ON CONFLICT DO NOTHING""")
_CAUSES = Prepared("SELECT job_id, code, data FROM job_ends WHERE job_id = ANY(%s)")
_USAGE = Prepared("""
    SELECT job_id, network_address, cores, cpu_seconds, memory_peak, memory_limit, oom_kills, forks_denied
    FROM job_usage WHERE job_id = ANY(%s) ORDER BY job_id, network_address""")
#: A value replaces an older one, but no value does not: a second clean-up finds no values.
_ADD_USAGE = Prepared("""
    INSERT INTO job_usage (job_id, network_address, cores, cpu_seconds, memory_peak, memory_limit, oom_kills,
        forks_denied)
    SELECT * FROM unnest(%(jobs)s::bigint[], %(hosts)s::text[], %(cores)s::integer[], %(cpu)s::double precision[],
        %(peak)s::bigint[], %(limit)s::bigint[], %(kills)s::bigint[], %(forks)s::bigint[])
    ON CONFLICT (job_id, network_address) DO UPDATE SET cores = EXCLUDED.cores,
        cpu_seconds = COALESCE(EXCLUDED.cpu_seconds, job_usage.cpu_seconds),
        memory_peak = COALESCE(EXCLUDED.memory_peak, job_usage.memory_peak),
        memory_limit = COALESCE(EXCLUDED.memory_limit, job_usage.memory_limit),
        oom_kills = COALESCE(EXCLUDED.oom_kills, job_usage.oom_kills),
        forks_denied = COALESCE(EXCLUDED.forks_denied, job_usage.forks_denied)""")
_USAGE_COLUMNS = ("jobs", "hosts", "cores", "cpu", "peak", "limit", "kills", "forks")
#: Sent together: both are written at each end.
_CONCLUDE = Prepared(f"""
    UPDATE job_runs SET phase = 'CLEANED', updated = %(now)s WHERE job_id = ANY(%(ids)s::bigint[]);
    {_ADD_USAGE}""")
#: Numbers of the signals that users can request, by the type of the event.
_SIGNAL_NUMBERS = {signal_event(number): number for number in range(1, LAST_SIGNAL + 1)}
_EVENT_TYPES = [*(str(type_) for type_ in end_decision.EVENTS), *_SIGNAL_NUMBERS]


def read_cause(code: str, data: str) -> Cause:
    """Return a stored cause; a code of another version becomes UNKNOWN, with the code as its text."""
    try:
        details = json.loads(data)
        return Cause(EndCode(code), details if isinstance(details, dict) else {})
    except ValueError:
        return Cause(EndCode.UNKNOWN, {"text": code} if code else {})


def _causes(rows: Iterable[Row]) -> dict[int, Cause]:
    return {row[0]: read_cause(row[1], row[2]) for row in rows}


def _usage(rows: Iterable[Row]) -> dict[int, list[NodeUsage]]:
    usages: dict[int, list[NodeUsage]] = defaultdict(list)
    for job_id, *figures in rows:
        usages[job_id].append(NodeUsage(*figures))
    return usages


def _columns(usages: Sequence[tuple[int, NodeUsage]]) -> dict[str, list[Any]]:
    """Return the usage of jobs on nodes as the parameters of ``_ADD_USAGE``."""
    rows = [(job_id, *usage) for job_id, usage in usages]
    return {name: [row[place] for row in rows] for place, name in enumerate(_USAGE_COLUMNS)}


def _facts(row: Row) -> EndFacts:
    job_id, exit_code, message, walltime, is_rest, start, stop, checkpoint_signal, *others = row
    killed_job, kill_code, kill_data, oarexec, phase, head, detail, fault = others
    kill = None
    if killed_job is not None:
        kill = read_cause(kill_code, kill_data) if kill_code else Cause(EndCode.STOPPED)
    return EndFacts(
        job_id=job_id,
        exit_code=exit_code,
        message=message,
        walltime=walltime,
        is_rest=is_rest,
        ran=max(0, stop - start) if start else 0,
        kill=kill,
        oarexec_code=oarexec,
        phase=Phase(phase) if phase else None,
        head=head or "",
        detail=detail or "",
        fault=end_decision.read_fault(json.loads(fault)) if fault else None,
        checkpoint_signal=checkpoint_signal,
    )


class JobRuns(Table):
    """Rows of ``job_runs`` (one per job from its launch to its end), ``job_ends`` and ``job_usage``."""

    def find(self, job_id: int) -> JobRun | None:
        """Return the run of a job; return None if the Runner is not processing it."""
        row = self._tx.row(_FIND, (job_id,))
        return _run(row) if row else None

    def select(self, ids: Collection[int]) -> dict[int, JobRun]:
        """Return the runs of the given jobs that the Runner is processing."""
        return {row[0]: _run(row) for row in self._tx.rows(_SELECT, (list(ids),))}

    def in_hand(self, ids: Collection[int] | None = None, *, probe_before: int = 0) -> list[InHand]:
        """Return the jobs on which the Runner may have to act: of all jobs, or of those in ``ids``.

        A running job is included only if its end was reported, if its last update is older than ``probe_before``, or if
        it is in ``ids``.
        """
        question, parameter = (_ALL_IN_HAND, probe_before) if ids is None else (_THESE_IN_HAND, list(ids))
        return [
            InHand(row[0], JobState(row[1]), Phase(row[2]) if row[2] else None, *row[3:])
            for row in self._tx.rows(question, (parameter,))
        ]

    def live(self) -> list[int]:
        """Return the live jobs that are neither Waiting nor Hold."""
        return self._tx.column(f"SELECT job_id FROM jobs j WHERE {LIVE} AND state <> 'Waiting' AND state <> 'Hold'")

    def signal_requests(self, since: int) -> list[SignalEvent]:
        """Return the signal and checkpoint requests after a date that have no result yet."""
        return [SignalEvent(*row) for row in self._tx.rows(_SIGNAL_EVENTS, {"since": since})]

    def awaited_reports(self, ids: Collection[int]) -> dict[int, AwaitedReport]:
        """Return the data against which the end reports of jobs are checked; the jobs are locked."""
        rows = self._tx.rows(_REPORTED, (sorted(ids),))
        return {row[0]: AwaitedReport(JobState(row[1]), row[2] or "", row[3]) for row in rows}

    def claim(self, job_id: int, head_host: str) -> None:
        """Record the beginning of a launch, and increment its attempt number (first: 1)."""
        self.claim_all({job_id: (head_host, Phase.CLAIMED)})

    def claim_all(self, claims: Mapping[int, tuple[str, Phase]]) -> dict[int, JobRun]:
        """Record the beginning of launches, each with its head node and initial phase; return the runs."""
        heads, phases = ([str(claim[place]) for claim in claims.values()] for place in (0, 1))
        parameters = {"ids": list(claims), "phases": phases, "heads": heads, "now": self._tx.now}
        return {row[0]: _run(row) for row in self._tx.rows(_CLAIM, parameters)} if claims else {}

    def launches(self, ids: Collection[int]) -> dict[int, tuple[str, bool]]:
        """Return for each launch the head that it was claimed for, and whether the end of its job was requested."""
        return {row[0]: (row[1], row[2]) for row in self._tx.rows(_LAUNCHES, (list(ids),))}

    def conclude(self, ids: Collection[int], usages: Sequence[tuple[int, NodeUsage]]) -> None:
        """Set the phase CLEANED for jobs, and store the resource usage of jobs on nodes."""
        self._tx.execute(_CONCLUDE, {"ids": sorted(ids), "now": self._tx.now, **_columns(usages)})
        self._changed(Topic.JOBS)

    def note_go(self, boots: Mapping[int, str]) -> None:
        """Record that jobs were sent the order to start, each with the boot id of its head node."""
        if boots:
            self._tx.execute(_NOTE_GO, {"ids": list(boots), "boots": list(boots.values()), "now": self._tx.now})

    def update(self, job_id: int, **columns: Any) -> None:
        """Set columns of the row of a job, and the date of its last update."""
        assignments = "".join(f"{name} = %({name})s, " for name in columns)
        self._tx.execute(
            f"UPDATE job_runs SET {assignments}updated = %(now)s WHERE job_id = %(id)s",
            columns | {"id": job_id, "now": self._tx.now},
        )

    def note_started(self, boots: Mapping[int, str]) -> set[int]:
        """Record that the commands of jobs run, each with the boot id of its head node.

        Return the jobs for which neither the start nor the end was recorded before.
        """
        parameters = {"ids": list(boots), "boots": list(boots.values()), "now": self._tx.now}
        return set(self._tx.column(_NOTE_STARTED, parameters))

    def note_silence(self, host: str, asked: int) -> Silence:
        """Record that a host did not answer a probe that began at ``asked``; return its silence."""
        rows = self._tx.rows(
            "UPDATE job_runs SET failures = failures + 1,"
            " silent_since = CASE WHEN failures = 0 THEN %s ELSE silent_since END"
            " WHERE head_host = %s RETURNING failures, silent_since",
            (asked, host),
        )
        return Silence(max((row[0] for row in rows), default=0), min((row[1] for row in rows), default=asked))

    def note_answer(self, host: str) -> None:
        self._tx.execute(
            "UPDATE job_runs SET failures = 0, silent_since = 0 WHERE head_host = %s AND failures > 0", (host,)
        )

    def forget_silences(self) -> None:
        """Reset the counters of unanswered probes of all hosts."""
        self._tx.execute("UPDATE job_runs SET failures = 0, silent_since = 0 WHERE failures > 0")

    def hosts_heard_since(self, date: int) -> HostsHeard:
        """Return which head nodes of running jobs are silent, answered since a date, or were not probed since."""
        return HostsHeard(*self._tx.row(_HEARD, {"date": date}) or ([], 0, []))

    def silent_hosts(self, times: int) -> set[str]:
        """Return the hosts with at least ``times`` unanswered probes in a row.

        Finaud checks these hosts even if jobs run there.
        """
        return set(self._tx.column("SELECT head_host FROM job_runs WHERE failures >= %s", (times,)))

    def jobs_of_head(self, host: str) -> list[int]:
        """Return the jobs with this head node that the Runner is processing, by id."""
        return self._tx.column("SELECT job_id FROM job_runs WHERE head_host = %s ORDER BY job_id", (host,))

    def report(self, job_id: int, code: int, status: int | None, ago: int = 0) -> bool:
        """Record the end of a job that oarexec reports; return False if it was recorded before or the job has ended.

        ``code``: exit code of oarexec; ``status``: wait status of the command; ``ago``: seconds since the end.
        """
        return bool(self.report_all({job_id: ReportedEnd(code, status, self._tx.now - ago)}))

    def report_all(self, ends: Mapping[int, ReportedEnd]) -> dict[int, str]:
        """Like ``report`` for several jobs; return the jobs whose end was not recorded before, with their heads.

        The head of a job that was never launched is ''.
        """
        codes, statuses, dates = ([end[place] for end in ends.values()] for place in range(3))
        parameters = {"ids": list(ends), "codes": codes, "statuses": statuses, "dates": dates, "now": self._tx.now}
        return dict(self._tx.rows(_REPORT, parameters))

    def note_fault(self, job_id: int, fault: NodeFault) -> None:
        """Store the fault that the head node of a job reports; the first fault is kept."""
        self._tx.execute(
            "UPDATE job_runs SET reason = %s WHERE job_id = %s AND reason = ''", (json.dumps(fault._asdict()), job_id)
        )

    def exterminate(self, ids: Collection[int]) -> None:
        """Record that Leon gives jobs up: the Runner cleans up as far as possible and ends them."""
        self._tx.execute(_EXTERMINATE, {"ids": sorted(ids), "now": self._tx.now})

    #: Queries that views run together.
    CAUSES = About(_CAUSES, _causes)
    USAGE = About(_USAGE, _usage)

    def end_facts(self, ids: Collection[int]) -> list[EndFacts]:
        """Return the facts for the end causes of jobs that are about to get their final state."""
        jobs = list(ids)
        events: dict[int, list[EndEvent]] = defaultdict(list)
        signals: dict[int, dict[int, str]] = defaultdict(dict)
        for job_id, type_, description, hosts in self._tx.rows(_EVENTS, (jobs, _EVENT_TYPES)):
            if type_ in _SIGNAL_NUMBERS:
                signals[job_id][_SIGNAL_NUMBERS[type_]] = description
            else:
                events[job_id].append(EndEvent(type_, description, tuple(hosts)))
        usage = self.usage(jobs)
        facts_of_jobs = [_facts(row) for row in self._tx.rows(_FACTS, (jobs,))]
        return [
            facts._replace(
                events=events.get(facts.job_id, ()),
                usage=usage.get(facts.job_id, ()),
                signals=signals.get(facts.job_id, {}),
            )
            for facts in facts_of_jobs
        ]

    def store_ends(self, causes: Mapping[int, Cause]) -> None:
        """Store end causes of jobs; a cause that is already stored is kept."""
        if causes:
            codes = [str(cause.code) for cause in causes.values()]
            data = [json.dumps(cause.data) for cause in causes.values()]
            self._tx.execute(_STORE, (self._tx.now, list(causes), codes, data))
            self._changed(Topic.JOBS)

    def end_causes(self, ids: Collection[int]) -> dict[int, Cause]:
        return _causes(self._tx.rows(_CAUSES, (list(ids),))) if ids else {}

    def outcomes(self, jobs: Iterable[Job]) -> dict[int, Outcome]:
        """Return the outcome of each job that has ended."""
        causes = self.end_causes([job.id for job in jobs if job.is_final])
        return {job_id: cause.code.outcome for job_id, cause in causes.items()}

    def add_usage(self, usages: Sequence[tuple[int, NodeUsage]]) -> None:
        """Store the resource usage of jobs on nodes, given as pairs ``(job id, usage)``."""
        if usages:
            self._tx.execute(_ADD_USAGE, _columns(usages))
            self._changed(Topic.JOBS)

    def usage(self, ids: Collection[int]) -> dict[int, list[NodeUsage]]:
        """Return the resource usage of jobs: for each job one entry per node, sorted by name."""
        return _usage(self._tx.rows(_USAGE, (list(ids),)))

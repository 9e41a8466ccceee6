"""How jobs ended and what they used (``tx.job_ends``): rows of ``job_ends`` and ``job_usage``."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import About, Prepared, Row, Table
from oar.lib.history.event_types import signal_event
from oar.lib.jobs import ends
from oar.lib.jobs.end_codes import EndCode
from oar.lib.jobs.ends import LAST_SIGNAL, EndEvent, EndFacts
from oar.lib.jobs.records import Cause, NodeUsage
from oar.lib.jobs.states import Phase

#: The facts of an end, a row for each job: the walltime is that of the alternative that ran.
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
#: The events that tell of it.
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
#: What was found last holds, if anything was: a second clean-up finds nothing any more.
_ADD_USAGE = Prepared("""
    INSERT INTO job_usage (job_id, network_address, cores, cpu_seconds, memory_peak, memory_limit, oom_kills,
        forks_denied)
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::integer[], %s::double precision[], %s::bigint[], %s::bigint[],
        %s::bigint[], %s::bigint[])
    ON CONFLICT (job_id, network_address) DO UPDATE SET cores = EXCLUDED.cores,
        cpu_seconds = COALESCE(EXCLUDED.cpu_seconds, job_usage.cpu_seconds),
        memory_peak = COALESCE(EXCLUDED.memory_peak, job_usage.memory_peak),
        memory_limit = COALESCE(EXCLUDED.memory_limit, job_usage.memory_limit),
        oom_kills = COALESCE(EXCLUDED.oom_kills, job_usage.oom_kills),
        forks_denied = COALESCE(EXCLUDED.forks_denied, job_usage.forks_denied)""")

#: The signals that users can have sent, by the type of the event that asks for them.
_SIGNALS = {signal_event(number): number for number in range(1, LAST_SIGNAL + 1)}
_EVENT_TYPES = [*(str(type_) for type_ in ends.EVENTS), *_SIGNALS]


def read_cause(code: str, data: str) -> Cause:
    """Return a stored cause; one of another version is UNKNOWN, with its code as the text."""
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


class JobEnds(Table):
    """Rows of ``job_ends`` and ``job_usage``."""

    #: Questions that views ask together.
    CAUSES = About(_CAUSES, _causes)
    USAGE = About(_USAGE, _usage)

    def facts(self, ids: Collection[int]) -> list[EndFacts]:
        """Return the facts that the causes of ends are found from, for jobs that are about to get their final state."""
        jobs = list(ids)
        events: dict[int, list[EndEvent]] = defaultdict(list)
        signals: dict[int, dict[int, str]] = defaultdict(dict)
        for job_id, type_, description, hosts in self._tx.rows(_EVENTS, (jobs, _EVENT_TYPES)):
            if type_ in _SIGNALS:
                signals[job_id][_SIGNALS[type_]] = description
            else:
                events[job_id].append(EndEvent(type_, description, tuple(hosts)))
        usage = self.usage(jobs)
        facts = [_facts(row) for row in self._tx.rows(_FACTS, (jobs,))]
        return [
            each._replace(
                events=events.get(each.job_id, ()),
                usage=usage.get(each.job_id, ()),
                signals=signals.get(each.job_id, {}),
            )
            for each in facts
        ]

    def store(self, causes: Mapping[int, Cause]) -> None:
        """Store the causes of the ends of jobs; a cause that is stored already stays."""
        if causes:
            codes = [str(cause.code) for cause in causes.values()]
            data = [json.dumps(cause.data) for cause in causes.values()]
            self._tx.execute(_STORE, (self._tx.now, list(causes), codes, data))
            self._changed(Topic.JOBS)

    def causes(self, ids: Collection[int]) -> dict[int, Cause]:
        """Return the stored causes of the ends of jobs."""
        return _causes(self._tx.rows(_CAUSES, (list(ids),)))

    def add_usage(self, usages: Sequence[tuple[int, NodeUsage]]) -> None:
        """Store what jobs used on nodes: ``(job id, usage)`` each."""
        if usages:
            rows = [(job_id, *usage) for job_id, usage in usages]
            self._tx.execute(_ADD_USAGE, [list(column) for column in zip(*rows, strict=True)])
            self._changed(Topic.JOBS)

    def usage(self, ids: Collection[int]) -> dict[int, list[NodeUsage]]:
        """Return what jobs used, a list of nodes for each job, sorted by name."""
        return _usage(self._tx.rows(_USAGE, (list(ids),)))


def _facts(row: Row) -> EndFacts:
    job_id, exit_code, message, walltime, is_rest, start, stop, checkpoint_signal, *others = row
    *request, oarexec, phase, head, detail, fault = others
    return EndFacts(
        job_id=job_id,
        exit_code=exit_code,
        message=message,
        walltime=walltime,
        is_rest=is_rest,
        ran=max(0, stop - start) if start else 0,
        kill=_requested_cause(*request),
        oarexec_code=oarexec,
        phase=Phase(phase) if phase else None,
        head=head or "",
        detail=detail or "",
        fault=ends.read_fault(json.loads(fault)) if fault else None,
        checkpoint_signal=checkpoint_signal,
    )


def _requested_cause(killed_job: int | None, code: str, data: str) -> Cause | None:
    """Return the cause of a kill request, None if the end of the job was not requested."""
    if killed_job is None:
        return None
    return read_cause(code, data) if code else Cause(EndCode.STOPPED)

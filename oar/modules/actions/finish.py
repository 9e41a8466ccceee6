"""END: bring a job whose end is known to the point where NodeChangeState gives it its final state (server.md 6.3).

The end itself (exit code, state Finishing) is stored before; each step here may be done again after a crash.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oar.lib import control, incidents, lifecycle
from oar.lib.causes import read_reason
from oar.lib.db.engine import Transaction
from oar.lib.ends import count_processors, read_usage
from oar.lib.logs import of_job
from oar.lib.messages import Tag, Wake
from oar.lib.model import NodeReason, NodeUsage
from oar.lib.states import EventType, ExecCode, JobState, Phase
from oar.modules.actions import job_data, nodes
from oar.modules.actions.context import Context, log
from oar.modules.actions.job_data import JobData
from oar.modules.actions.scripts import ScriptFailure, run_server_script

#: Ends that are told to the scheduler at once as something normal.
NORMAL = frozenset({ExecCode.OK, ExecCode.SESSION, ExecCode.CHECKPOINTED, ExecCode.CHECKPOINTED_EPILOGUE, 42})

_EPILOGUE_EVENTS = {
    "missing": EventType.SERVER_EPILOGUE_ERROR,
    "code": EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR,
    "timeout": EventType.SERVER_EPILOGUE_TIMEOUT,
}

#: What oarexec's description of its end is put after in an event.
_PHRASES = {
    EventType.SWITCH_INTO_TERMINATE_STATE: "Ask to change the job state",
    EventType.SWITCH_INTO_ERROR_STATE: "Ask to change the job state",
}

#: What is said of an exit code with which no description came.
_UNEXPLAINED: Mapping[int, str] = {
    ExecCode.DIED: "the node answers, but nothing is left of the job there: it was started anew, or oarexec was killed",
}


@dataclass(frozen=True, slots=True)
class Trace:
    """An event that the end of a job writes."""

    event: EventType
    text: str
    hosts: tuple[str, ...] = ()


def finish(context: Context, job_id: int) -> None:
    """Do what is left of the end of a job: epilogue, cleaning, events."""
    with context.database.begin() as tx:
        data = _begin(tx, job_id)
        if data and "container" in data.types and context.config.kill_inner_jobs_with_container:
            control.end_inner_jobs(tx, [job_id])
    if data is None:
        return
    _ask_why(context, data)
    traces = _epilogue(context, data)
    answers = _clean(context, data)
    traces += _unclean(context, data, answers)
    with context.database.begin() as tx:
        _conclude(tx, context, data, traces)
        tx.ends.add_usage(_usage(data, context, answers))
        reason = _reason(answers.get(data.exec_host(context.config)))
        if reason:
            tx.runs.note_reason(job_id, reason)


def note_finishing(tx: Transaction, job_id: int, code: int, status: int | None) -> None:
    """Move a job whose end is reported to Finishing, with its exit code."""
    if lifecycle.move(tx, job_id, JobState.FINISHING):
        killed = code in (ExecCode.KILLED, ExecCode.KILLED_EPILOGUE)
        tx.jobs.update(job_id, exit_code=None if killed else status)


def _begin(tx: Transaction, job_id: int) -> JobData | None:
    """Return the job if there is something left to do for its end."""
    data = job_data.read(tx, job_id)
    if data is None or data.job.is_final:
        return None
    if data.job.state is not JobState.FINISHING:
        if data.run is None or not data.run.report_date:
            return None
        note_finishing(tx, job_id, data.run.oarexec_code or 0, data.run.script_status)
        data = job_data.read(tx, job_id)
    return None if data is None or (data.run and data.run.phase is Phase.CLEANED) else data


def _ask_why(context: Context, data: JobData) -> None:
    """Keep what the head knows of a bad end, before the clean-up forgets it: this may be killed before it has told."""
    from oar.modules.actions import probe

    host = data.exec_host(context.config)
    if not data.job.exit_code or host not in data.processors(context.config):
        return
    finding = probe.ask_one(context, host, data)
    with context.database.begin() as tx:
        if finding.reason:
            tx.runs.note_reason(data.job.id, finding.reason)
        probe.note_usage(tx, context, data, host, finding)


def _epilogue(context: Context, data: JobData) -> list[Trace]:
    command = context.config.server_epilogue_exec_file
    if not command or (data.run and data.run.phase is Phase.EPILOGUE_OK):
        return []
    try:
        run_server_script(context.config, command, data)
    except ScriptFailure as failure:
        return [Trace(_EPILOGUE_EVENTS[failure.kind], str(failure))]
    with context.database.begin() as tx:
        if data.run and data.run.phase is Phase.REPORTED:
            tx.runs.update(data.job.id, phase=Phase.EPILOGUE_OK)
    return []


def _clean(context: Context, data: JobData) -> dict[str, nodes.Answer]:
    """Kill and remove what the job left on its nodes."""
    hosts = data.processors(context.config)
    if not hosts:
        return {}
    seconds = 2 * context.config.oar_ssh_connection_timeout
    try:
        return nodes.manage(context, "clean", hosts, job_data.manager_data(data, context.config), seconds)
    except nodes.ManagerMissing as error:
        return dict.fromkeys(hosts, nodes.Answer(False, str(error)))


def _unclean(context: Context, data: JobData, answers: Mapping[str, nodes.Answer]) -> list[Trace]:
    """Return the events of nodes that could not be cleaned, or do not answer any more."""
    traces = []
    bad = {host: answer.reason for host, answer in answers.items() if not answer.good}
    if bad:
        text = "; ".join(f"{host}: {reason}" for host, reason in sorted(bad.items()))
        of_job(log, data.job.id).warning("not clean: %s", text)
        traces.append(Trace(EventType.CPUSET_CLEAN_ERROR, text, tuple(sorted(bad))))
    if context.config.activate_pingchecker_at_job_end and not (data.is_noop or data.is_elsewhere):
        silent = nodes.unreachable(context, data.hosts)
        if silent:
            text = ", ".join(sorted(silent))
            traces.append(Trace(EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB, text, tuple(sorted(silent))))
    return traces


def _conclude(tx: Transaction, context: Context, data: JobData, traces: Sequence[Trace]) -> None:
    """Write the events of the end and note that it is done, together."""
    job_id = data.job.id
    run = tx.runs.find(job_id)
    job = tx.jobs.lock(job_id)
    if job is None or job.state is not JobState.FINISHING or (run and run.phase is Phase.CLEANED):
        return
    for one in [*_end_of(context, data), *traces]:
        tx.events.add(one.event, job_id, f"[bipbip {job_id}] {one.text}", to_check=True, hosts=one.hosts)
        of_job(log, job_id).info("%s: %s", one.event, one.text)
    if run is None:
        tx.runs.claim(job_id, data.exec_host(context.config))
    tx.runs.update(job_id, phase=Phase.CLEANED)
    tx.outbox.append(Wake(Tag.CHSTATE))
    if run and run.oarexec_code in NORMAL:
        tx.outbox.append(Wake(Tag.TERM))
    tx.outbox.append(Wake(Tag.BIPBIP))


def _end_of(context: Context, data: JobData) -> list[Trace]:
    """Return the events that say how the job ended."""
    run = data.run
    if run is None:  # the row of a database of another version
        ended = data.job.exit_code is not None
        event = EventType.SWITCH_INTO_TERMINATE_STATE if ended else EventType.SWITCH_INTO_ERROR_STATE
        return [Trace(event, _PHRASES[event])]
    if run.phase is Phase.EXTERMINATE:
        return [Trace(EventType.EXTERMINATE_JOB, "The job did not answer to its kill: it is given up", _all(data))]
    code = run.oarexec_code or 0
    detail = run.detail.strip() or _UNEXPLAINED.get(code, f"exit code {code} of oarexec")
    return [
        Trace(event, _PHRASES.get(event, detail), _blamed(context, data, event, code))
        for event in incidents.events_of(code)
    ]


def _all(data: JobData) -> tuple[str, ...]:
    return data.hosts


def _blamed(context: Context, data: JobData, event: EventType, code: int) -> tuple[str, ...]:
    """Return the hosts that an event names: the head, where it is the head's fault."""
    if event is not EventType.EXIT_VALUE_OAREXEC or data.is_elsewhere:
        return ()
    if code == ExecCode.DIED and _head_is_well(context, data):
        return ()
    return (data.exec_host(context.config),)


def _head_is_well(context: Context, data: JobData) -> bool:
    """Whether the head answers and was not rebooted since the launch: then oarexec was killed, and the node is fine."""
    from oar.modules.actions import probe

    finding = probe.ask_one(context, data.exec_host(context.config), data)
    return finding is not probe.SILENT and bool(data.run) and finding.boot_id == (data.run.boot_id if data.run else "")


def _usage(data: JobData, context: Context, answers: Mapping[str, nodes.Answer]) -> list[tuple[int, NodeUsage]]:
    """Return what the job used on each node, as ``clean`` found it; nodes that did not answer have no figures."""
    return [
        (data.job.id, read_usage(host, count_processors(values), _said(answers.get(host)).get("usage")))
        for host, values in data.processors(context.config).items()
    ]


def _reason(answer: nodes.Answer | None) -> NodeReason | None:
    """Return what the head found when something of the job failed there."""
    return read_reason(_said(answer).get("reason"))


def _said(answer: nodes.Answer | None) -> dict[str, Any]:
    """Return what ``clean`` said of the job on a node; {} if nothing that can be read."""
    for line in answer.lines if answer else ():
        try:
            said = json.loads(line)
        except ValueError:
            log.warning("clean answered %.200r", line)
            continue
        if isinstance(said, dict):
            return said
    return {}

"""END: run the epilogue of a job, clean its nodes, write the events of its end.

See docs/design/launch.rst, "End".

The exit code and the state Finishing are stored before; NodeChangeState gives the final state afterwards.  Each step
here may be repeated after a crash.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oar.lib.db.transaction import Transaction
from oar.lib.facts.messages import Tag, Wake
from oar.lib.facts.node_protocol import NodeAction
from oar.lib.facts.records import JobRun, NodeUsage
from oar.lib.facts.states import EventType, ExecCode, JobState, JobTypeName, Phase
from oar.lib.io.logs import of_job
from oar.lib.jobs import control, lifecycle
from oar.lib.rules import event_consequences
from oar.lib.rules.end_causes import read_fault
from oar.lib.views.job_usage import count_processors, read_usage
from oar.modules.runner.actions import job_data, nodes
from oar.modules.runner.actions.context import ActionContext, log
from oar.modules.runner.actions.job_data import JobData
from oar.modules.runner.actions.server_scripts import ScriptFailure, SiteScript, run_script

#: Codes of a normal end, after which a round of the scheduler is asked for at once.
NORMAL = frozenset({ExecCode.OK, ExecCode.SESSION, ExecCode.CHECKPOINTED, ExecCode.CHECKPOINTED_EPILOGUE, 42})

#: Codes by which the server says that it has no report of the end.
_UNHEARD = (ExecCode.DIED, ExecCode.NOT_CONFIRMED)

#: Descriptions of events that do not quote oarexec.
_PHRASES = {
    EventType.SWITCH_INTO_TERMINATE_STATE: "Ask to change the job state",
    EventType.SWITCH_INTO_ERROR_STATE: "Ask to change the job state",
}

#: Descriptions of exit codes of oarexec that come without one.
_DESCRIPTIONS: Mapping[int, str] = {
    ExecCode.DIED: "the node answers and was not rebooted, but nothing is left of the job there: oarexec was killed",
}


@dataclass(frozen=True, slots=True)
class Trace:
    """An event that the end of a job writes."""

    event: EventType
    text: str
    hosts: tuple[str, ...] = ()


def finish(context: ActionContext, job_id: int) -> None:
    """Do the steps of the end of a job that have not been done: epilogue, cleaning, events."""
    with context.database.begin() as tx:
        data = _begin(tx, job_id)
        if data and JobTypeName.CONTAINER in data.types and context.config.kill_inner_jobs_with_container:
            control.end_inner_jobs(tx, [job_id])
    if data is None:
        return
    _probe_failed_job(context, data)
    traces = _epilogue(context, data)
    answers = _clean(context, data)
    traces = [*_end_traces(context, data, answers), *traces, *_node_failures(context, data, answers)]
    with context.database.begin() as tx:
        _conclude(tx, context, data, traces)
        tx.job_ends.add_usage(_usage(data, context, answers))
        fault = read_fault(_clean_report(answers.get(data.exec_host(context.config))).get("reason"))
        if fault:
            tx.job_runs.note_fault(job_id, fault)


def note_finishing(tx: Transaction, job_id: int, code: int, status: int | None) -> None:
    """Move a job whose end is reported to Finishing, with its exit code."""
    if lifecycle.move(tx, job_id, JobState.FINISHING):
        killed = code in (ExecCode.KILLED, ExecCode.KILLED_EPILOGUE)
        tx.jobs.update(job_id, exit_code=None if killed else status)


def _begin(tx: Transaction, job_id: int) -> JobData | None:
    """Return a job whose end is not over, in Finishing from now on; None if there is nothing to do for it."""
    data = job_data.read(tx, job_id)
    if data is None or data.job.is_final:
        return None
    if data.job.state is not JobState.FINISHING:
        if data.run is None or not data.run.report_date:
            return None
        note_finishing(tx, job_id, data.run.oarexec_code or 0, data.run.script_status)
        data = job_data.read(tx, job_id)
    return None if data is None or (data.run and data.run.phase is Phase.CLEANED) else data


def _probe_failed_job(context: ActionContext, data: JobData) -> None:
    """Store what the head knows of a failed job, before the clean-up removes it: this process may be killed there."""
    from oar.modules.runner.actions import probe

    host = data.exec_host(context.config)
    if not data.job.exit_code or host not in data.processors(context.config):
        return
    finding = probe.ask_one(context, host, data)
    with context.database.begin() as tx:
        if finding.fault:
            tx.job_runs.note_fault(data.job.id, finding.fault)
        probe.note_usage(tx, context, data, host, finding)


def _epilogue(context: ActionContext, data: JobData) -> list[Trace]:
    """Run the server epilogue; return the event of its failure, if it fails."""
    if not context.config.server_epilogue_exec_file or (data.run and data.run.phase is Phase.EPILOGUE_OK):
        return []
    try:
        run_script(context.config, SiteScript.EPILOGUE, data)
    except ScriptFailure as failure:
        return [Trace(failure.event, str(failure))]
    with context.database.begin() as tx:
        if data.run and data.run.phase is Phase.REPORTED:
            tx.job_runs.update(data.job.id, phase=Phase.EPILOGUE_OK)
    return []


def _clean(context: ActionContext, data: JobData) -> dict[str, nodes.NodeAnswer]:
    """Kill the processes of the job and remove its files on its nodes."""
    hosts = data.processors(context.config)
    if not hosts:
        return {}
    seconds = 2 * context.config.oar_ssh_connection_timeout
    try:
        return nodes.manage(context, NodeAction.CLEAN, hosts, job_data.manager_data(data, context.config), seconds)
    except nodes.ManagerMissing as error:
        return dict.fromkeys(hosts, nodes.NodeAnswer(False, str(error)))


def _node_failures(context: ActionContext, data: JobData, answers: Mapping[str, nodes.NodeAnswer]) -> list[Trace]:
    """Return the events of nodes that could not be cleaned, or do not answer.

    A node that was not reached is swept when it answers again.
    """
    traces = []
    for event, reached in (
        (EventType.CPUSET_CLEAN_ERROR, True),
        (EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB, False),
    ):
        failures = {
            host: answer.error for host, answer in answers.items() if not answer.succeeded and answer.reached is reached
        }
        if failures:
            text = "; ".join(f"{host}: {error}" for host, error in sorted(failures.items()))
            of_job(log, data.job.id).warning("not clean: %s", text)
            traces.append(Trace(event, text, tuple(sorted(failures))))
    if context.config.activate_pingchecker_at_job_end and not (data.is_noop or data.is_elsewhere):
        silent = nodes.unreachable(context, data.hosts)
        if silent:
            text = ", ".join(sorted(silent))
            traces.append(Trace(EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB, text, tuple(sorted(silent))))
    return traces


def _conclude(tx: Transaction, context: ActionContext, data: JobData, traces: Sequence[Trace]) -> None:
    """Write the events of the end and the phase CLEANED in one transaction."""
    job_id = data.job.id
    run = tx.job_runs.find(job_id)
    job = tx.jobs.lock(job_id)
    if job is None or job.state is not JobState.FINISHING or (run and run.phase is Phase.CLEANED):
        return
    for trace in traces:
        tx.events.add(trace.event, job_id, f"[bipbip {job_id}] {trace.text}", to_check=True, hosts=trace.hosts)
        of_job(log, job_id).info("%s: %s", trace.event, trace.text)
    if run is None:
        tx.job_runs.claim(job_id, data.exec_host(context.config))
    tx.job_runs.update(job_id, phase=Phase.CLEANED)
    tx.outbox.append(Wake(Tag.CHSTATE))
    if run and run.oarexec_code in NORMAL:
        tx.outbox.append(Wake(Tag.TERM))
    tx.outbox.append(Wake(Tag.BIPBIP))


def _end_traces(context: ActionContext, data: JobData, answers: Mapping[str, nodes.NodeAnswer]) -> list[Trace]:
    """Return the events that say how the job ended."""
    run = data.run
    if run is None:  # the row of a database of another version
        has_exit_code = data.job.exit_code is not None
        event = EventType.SWITCH_INTO_TERMINATE_STATE if has_exit_code else EventType.SWITCH_INTO_ERROR_STATE
        return [Trace(event, _PHRASES[event])]
    if run.phase is Phase.EXTERMINATE:
        return [Trace(EventType.EXTERMINATE_JOB, "The job did not answer to its kill: it is given up", data.hosts)]
    code = run.oarexec_code or 0
    if code in _UNHEARD and not data.is_elsewhere:
        lost = _loss_of_head(context, data, run, answers)
        if lost:
            return [lost]
    detail = run.detail.strip() or _DESCRIPTIONS.get(code, f"exit code {code} of oarexec")
    return [
        Trace(event, _PHRASES.get(event, detail), _faulty_hosts(context, data, event, code))
        for event in event_consequences.events_of(code)
    ]


def _faulty_hosts(context: ActionContext, data: JobData, event: EventType, code: int) -> tuple[str, ...]:
    """Return the hosts of an event: the head, if the failure was the head's."""
    if event is not EventType.EXIT_VALUE_OAREXEC or data.is_elsewhere or code == ExecCode.DIED:
        return ()
    return (data.exec_host(context.config),)


def _loss_of_head(
    context: ActionContext, data: JobData, run: JobRun, answers: Mapping[str, nodes.NodeAnswer]
) -> Trace | None:
    """Return the event of a head that is gone or was rebooted; None if it works, so that oarexec was killed there."""
    from oar.modules.runner.actions import probe

    head = data.exec_host(context.config)
    if not head:
        return None
    cleaned = answers.get(head)
    finding = probe.SILENT if cleaned and not cleaned.reached else probe.ask_one(context, head, data)
    if finding is probe.SILENT:
        return Trace(EventType.NODE_LOST, f"{head} does not answer", (head,))
    if run.boot_id and finding.boot_id and finding.boot_id != run.boot_id:
        return Trace(EventType.NODE_REBOOTED, event_consequences.describe_reboot(head, finding.boot_id), (head,))
    return None


def _usage(
    data: JobData, context: ActionContext, answers: Mapping[str, nodes.NodeAnswer]
) -> list[tuple[int, NodeUsage]]:
    """Return what the job used on each node, as ``clean`` reports it; nodes that did not answer have no figures."""
    return [
        (data.job.id, read_usage(host, count_processors(values), _clean_report(answers.get(host)).get("usage")))
        for host, values in data.processors(context.config).items()
    ]


def _clean_report(answer: nodes.NodeAnswer | None) -> dict[str, Any]:
    """Return the report of ``clean`` about the job on a node; {} if there is none that can be read."""
    for line in answer.lines if answer else ():
        try:
            report = json.loads(line)
        except ValueError:
            log.warning("clean answered %.200r", line)
            continue
        if isinstance(report, dict):
            return report
    return {}

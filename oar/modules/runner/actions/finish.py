"""END: run the epilogue of a job, clean its nodes, store the events of its end.

See docs/design/launch.rst, "End".

The exit code and the state Finishing are stored before; NodeChangeState sets the final state afterwards. Each step of
this module may be repeated after a crash.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from oar.lib.base.errors import ConfigError
from oar.lib.base.host_names import describe_host_failures, shorten_host_list
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db.transaction import Transaction
from oar.lib.history import event_consequences, node_reboots
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control, launch_holds, lifecycle
from oar.lib.jobs.end_decision import read_fault
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.records import JobRun, NodeUsage
from oar.lib.jobs.sql_jobs import GivenEnd
from oar.lib.jobs.sql_runs import ReportedEnd
from oar.lib.jobs.states import JobState, JobTypeName, Phase
from oar.lib.jobs.usage import count_processors, read_usage
from oar.lib.logs import of_job
from oar.lib.remote.protocol import NodeAction, NodeFault
from oar.modules.runner.actions import desktop, job_data, launch_needs, nodes, probe
from oar.modules.runner.actions.context import ActionContext, RetryAfter, log
from oar.modules.runner.actions.job_data import JobData
from oar.modules.runner.actions.server_scripts import ScriptFailure, SiteScript, run_script

#: Codes of a normal end.
NORMAL = frozenset({ExecCode.OK, ExecCode.SESSION, ExecCode.CHECKPOINTED, ExecCode.CHECKPOINTED_EPILOGUE, 42})

#: Seconds after which an end looks again whether the results of its job can be unpacked.
CROWDED_SECONDS = 1
#: An end that a fault of the configuration holds is tried again after so long.
HELD_SECONDS = 5

#: Codes by which the server says that it has no report of the end.
_UNHEARD = (ExecCode.DIED, ExecCode.NOT_CONFIRMED)

#: Descriptions of events that do not quote oarexec.
_PHRASES = {
    EventType.SWITCH_INTO_TERMINATE_STATE: "Ask to change the job state",
    EventType.SWITCH_INTO_ERROR_STATE: "Ask to change the job state",
}

#: Events of nodes on which the clean-up failed.
_CLEANING_EVENTS = (
    EventType.CPUSET_CLEAN_ERROR,
    EventType.EPILOGUE_ERROR,
    EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB,
)

#: Events of an end that name the head.
_HEAD_EVENTS = frozenset(
    {EventType.EXIT_VALUE_OAREXEC, EventType.NODE_SHUTDOWN, EventType.USER_SHELL, EventType.HOME_MISSING}
)

#: Descriptions of exit codes of oarexec that come without one.
_DESCRIPTIONS: Mapping[int, str] = {
    ExecCode.DIED: "the node answers and was not rebooted, but nothing is left of the job there: oarexec was killed",
    ExecCode.SHUTDOWN: "the node was shut down, or rebooted in order, while the job ran there",
}


@dataclass(frozen=True, slots=True)
class Trace:
    """An event to store at the end of a job."""

    event: EventType
    text: str
    hosts: tuple[str, ...] = ()


def finish(context: ActionContext, job_id: int) -> RetryAfter | None:
    """Do the remaining steps of the end of a job: epilogue, cleaning, events.

    A fault of the configuration, or of the name server that tells this host its name, postpones them.
    """
    try:
        return _finish(context, job_id)
    except ConfigError as error:
        of_job(log, job_id).error("the end is held: %s", error)
        return RetryAfter(HELD_SECONDS)


def _finish(context: ActionContext, job_id: int) -> RetryAfter | None:
    data = _begin(context, job_id)
    if data is None:
        return None
    if obstacle := launch_needs.find_end_fault(context.config, context.oardir):
        return _hold(context, job_id, obstacle)
    _probe_failed_job(context, data)
    try:
        missing_results = desktop.deliver(context, data) if data.is_fetched else ""
    except desktop.Crowded:
        return RetryAfter(CROWDED_SECONDS)
    traces = _epilogue(context, data)
    if missing_results:
        traces.append(Trace(EventType.STAGEOUT_ERROR, missing_results))
    answers = _clean(context, data)
    fault = read_fault(_clean_report(answers.get(data.exec_host(context.config))).get("reason"))
    traces = [*_end_traces(context, data, answers, fault), *traces, *_node_failures(context, data, answers)]
    end = _End(data, data.exec_host(context.config), traces, _usage(data, context, answers), fault)
    context.steps.do(_conclude, end)
    return None


def _hold(context: ActionContext, job_id: int, fault: str) -> RetryAfter:
    """Postpone the end of a job until the configuration is repaired. No job is started until then."""
    of_job(log, job_id).error("the end is held: %s", fault)
    with context.database.begin() as tx:
        launch_holds.hold_for_configuration(tx, fault)
    return RetryAfter(HELD_SECONDS)


def note_finishing(tx: Transaction, job_id: int, code: int, status: int | None) -> None:
    """Move a job whose end has just been reported to Finishing, with its exit code."""
    note_all_finishing(tx, {job_id: ReportedEnd(code, status, tx.now)})


def note_all_finishing(tx: Transaction, ends: Mapping[int, ReportedEnd]) -> None:
    """Move jobs with reported ends to Finishing, each with the status of its command and the time of its end."""
    killed = (ExecCode.KILLED, ExecCode.KILLED_EPILOGUE)
    statuses = {job_id: None if end.code in killed else end.status for job_id, end in ends.items()}
    lifecycle.finish_all(tx, {job_id: GivenEnd(statuses[job_id], end.date) for job_id, end in ends.items()})


def _read_jobs(tx: Transaction, ids: Sequence[int]) -> list[JobData | None]:
    jobs = job_data.read_all(tx, ids)
    return [jobs.get(job_id) for job_id in ids]


def _begin(context: ActionContext, job_id: int) -> JobData | None:
    """Move a job to Finishing and return it. Return None if its end needs no more steps."""
    data = context.steps.look(_read_jobs, job_id)
    if data is not None and not data.job.is_final and data.job.state is not JobState.FINISHING:
        with context.database.begin() as tx:
            run = tx.job_runs.find(job_id)
            if run is None or not run.report_date:
                return None
            code, status = run.oarexec_code or 0, run.script_status
            note_all_finishing(tx, {job_id: ReportedEnd(code, status, run.report_date)})
            data = job_data.read(tx, job_id)
    if data is None or data.job.is_final or (data.run and data.run.phase is Phase.CLEANED):
        return None
    if JobTypeName.CONTAINER in data.types and context.config.kill_inner_jobs_with_container:
        with context.database.begin() as tx:
            control.end_inner_jobs(tx, [job_id])
    return data


def _probe_failed_job(context: ActionContext, data: JobData) -> None:
    """Store the report of the head about a failed job.

    The clean-up removes that data on the node, and this process may be killed during the clean-up.
    """
    host = data.exec_host(context.config)
    if not data.job.exit_code or host not in data.processors(context.config):
        return
    finding = probe.ask_one(context, host, data)
    with context.database.begin() as tx:
        if finding.fault:
            tx.job_runs.note_fault(data.job.id, finding.fault)
        probe.note_usage(tx, context, data, host, finding)


def _epilogue(context: ActionContext, data: JobData) -> list[Trace]:
    """Run the server epilogue. Return the event of its failure, if it fails."""
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
    """Kill the processes of the job and remove its files on its nodes. Raises ConfigError."""
    hosts = data.processors(context.config)
    if not hosts:
        return {}
    seconds = context.config.oar_ssh_connection_timeout + nodes.manager_seconds(context.config)
    is_built_in = nodes.site_manager(context.config) is None
    content = (job_data.cleaning_data if is_built_in else job_data.manager_data)(data, context.config)
    return nodes.manage(context, NodeAction.CLEAN, hosts, content, seconds)


def _node_failures(context: ActionContext, data: JobData, answers: Mapping[str, nodes.NodeAnswer]) -> list[Trace]:
    """Return the events of nodes that could not be cleaned or do not respond.

    A node that was not reached is swept when it responds again. So is a head that was shut down, whatever it answered.
    """
    leaving = data.exec_host(context.config) if _is_shutdown(data) else ""
    traces = []
    events = {
        host: nodes.cleaning_event(context.config, answer)
        if answer.reached and host != leaving
        else EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB
        for host, answer in answers.items()
        if not answer.succeeded
    }
    for event in _CLEANING_EVENTS:
        failures = {host: answers[host].error for host in events if events[host] is event}
        if failures:
            text = describe_host_failures(failures)
            of_job(log, data.job.id, nodes=sorted(failures)).warning("not clean: %s", text)
            traces.append(Trace(event, text, tuple(sorted(failures))))
    if context.config.activate_pingchecker_at_job_end and not (data.is_noop or data.is_elsewhere or data.is_fetched):
        try:
            silent = nodes.unreachable(context, data.hosts)
        except ConfigError as error:  # the checker cannot be run
            silent = {}
            of_job(log, data.job.id).error("no node is suspected: %s", error)
        if silent:
            traces.append(
                Trace(EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB, shorten_host_list(silent), tuple(sorted(silent)))
            )
    return traces


class _End(NamedTuple):
    """The data to store at the end of a job."""

    data: JobData
    head: str
    traces: Sequence[Trace]
    usages: Sequence[tuple[int, NodeUsage]]
    fault: NodeFault | None

    @property
    def id(self) -> int:
        return self.data.job.id

    @property
    def is_ordinary(self) -> bool:
        """Return whether a repeated end would store the same data, except for usage figures."""
        code = self.data.run.oarexec_code if self.data.run else None
        return code in NORMAL and self.fault is None and not any(trace.hosts for trace in self.traces)


def _conclude(tx: Transaction, ends: Sequence[_End]) -> list[None]:
    """Store the events of the ends of jobs and the phase CLEANED, in one transaction.

    Ordinary ends are committed asynchronously: if the commit is lost, the jobs are still Finishing, and the end is
    repeated. The final state is committed synchronously.
    """
    ids = [end.id for end in ends]
    states = tx.jobs.lock_states(ids)
    runs = tx.job_runs.select(ids)
    if all(end.is_ordinary for end in ends):
        tx.commit_asynchronously()
    finishing = {job_id for job_id, state in states.items() if state is JobState.FINISHING}
    concluded = {job_id for job_id, run in runs.items() if run.phase is Phase.CLEANED}
    closing = [end for end in ends if end.id in finishing - concluded]
    _close(closing, tx, runs)
    tx.job_runs.conclude([end.id for end in closing], [usage for end in ends for usage in end.usages])
    for end in ends:
        if end.fault:
            tx.job_runs.note_fault(end.id, end.fault)
    return [None] * len(ends)


def _close(ends: Sequence[_End], tx: Transaction, runs: Mapping[int, JobRun]) -> None:
    """Store the events of ends, in order for each job. Notify NodeChangeState and the scheduler."""
    if not ends:
        return
    rows = [(end.id, trace, f"[bipbip {end.id}] {trace.text}") for end in ends for trace in end.traces]
    for job_id, trace, _ in rows:
        of_job(log, job_id, nodes=trace.hosts).info("%s: %s", trace.event, trace.text)
    if any(trace.hosts for _, trace, _ in rows):
        for job_id, trace, text in rows:
            tx.events.add(trace.event, job_id, text, to_check=True, hosts=trace.hosts)
    else:
        tx.events.add_many([(trace.event, job_id, text) for job_id, trace, text in rows], to_check=True)
    for end in ends:
        if end.id not in runs:
            tx.job_runs.claim(end.id, end.head)
    tx.outbox += [Wake(Tag.CHSTATE), Wake(Tag.BIPBIP)]


def _end_traces(
    context: ActionContext, data: JobData, answers: Mapping[str, nodes.NodeAnswer], fault: NodeFault | None
) -> list[Trace]:
    """Return the events that describe how the job ended. ``fault``: the fault of its head that the clean-up reports."""
    run = data.run
    if run is None:  # the row of a database of another version
        has_exit_code = data.job.exit_code is not None
        event = EventType.SWITCH_INTO_TERMINATE_STATE if has_exit_code else EventType.SWITCH_INTO_ERROR_STATE
        return [Trace(event, _PHRASES[event])]
    if run.phase is Phase.EXTERMINATE:
        return [Trace(EventType.EXTERMINATE_JOB, "The job did not answer to its kill: it is given up", data.hosts)]
    code = run.oarexec_code or 0
    if code in _UNHEARD and not (data.is_elsewhere or data.is_fetched):
        lost = _loss_of_head(context, data, run, answers)
        if lost:
            return [lost]
    detail = run.detail.strip() or _DESCRIPTIONS.get(code, f"exit code {code} of oarexec")
    hosts = () if data.is_elsewhere or data.is_fetched else _faulty_hosts(context, data, run, answers)
    events, phrases = event_consequences.events_of(code), _PHRASES
    if fault and fault.home and code in event_consequences.NO_HOME and hosts:
        events = event_consequences.events_without_home(code)
        phrases = {EventType.HOME_MISSING: f"{data.job.user}: {fault.home} is missing on {hosts[0]}"}
    return [Trace(event, phrases.get(event, detail), hosts if event in _HEAD_EVENTS else ()) for event in events]


def _is_shutdown(data: JobData) -> bool:
    return data.run is not None and data.run.oarexec_code == ExecCode.SHUTDOWN


def _faulty_hosts(
    context: ActionContext, data: JobData, run: JobRun, answers: Mapping[str, nodes.NodeAnswer]
) -> tuple[str, ...]:
    """Return the hosts for an event of the head: none if the head works, or works again after its shutdown."""
    head = data.exec_host(context.config)
    cleaned = answers.get(head)
    if run.oarexec_code == ExecCode.DIED:
        return ()
    if _is_shutdown(data) and run.boot_id and cleaned and cleaned.succeeded:
        boot_id = probe.ask_one(context, head, data).boot_id
        return () if node_reboots.is_rebooted(run.boot_id, boot_id) else (head,)
    return (head,)


def _loss_of_head(
    context: ActionContext, data: JobData, run: JobRun, answers: Mapping[str, nodes.NodeAnswer]
) -> Trace | None:
    """Return the event of a head that is lost or was rebooted. Return None if it works: oarexec was killed there."""
    head = data.exec_host(context.config)
    if not head:
        return None
    cleaned = answers.get(head)
    finding = probe.SILENT if cleaned and not cleaned.reached else probe.ask_one(context, head, data)
    if finding is probe.SILENT:
        return Trace(EventType.NODE_LOST, f"{head} does not answer", (head,))
    if node_reboots.is_rebooted(run.boot_id, finding.boot_id):
        return Trace(EventType.NODE_REBOOTED, node_reboots.describe_reboot(head, finding.boot_id), (head,))
    return None


def _usage(
    data: JobData, context: ActionContext, answers: Mapping[str, nodes.NodeAnswer]
) -> list[tuple[int, NodeUsage]]:
    """Return the usage of the job on each node, as ``clean`` reports it. Nodes that did not answer have no figures."""
    return [
        (data.job.id, read_usage(host, count_processors(values), _clean_report(answers.get(host)).get("usage")))
        for host, values in data.processors(context.config).items()
    ]


def _clean_report(answer: nodes.NodeAnswer | None) -> dict[str, Any]:
    """Return the report of ``clean`` about the job on a node, {} if there is no valid report."""
    for line in answer.lines if answer else ():
        try:
            report = json.loads(line)
        except ValueError:
            log.warning("clean answered %.200r", line)
            continue
        if isinstance(report, dict):
            return report
    return {}

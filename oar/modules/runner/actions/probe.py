"""PROBE: request the state of the jobs on a host. SWEEP: remove what former jobs left on a host.

After a restore of the database, all returning nodes are surveyed before the first of them is swept: a sweep ends
unknown jobs, and a job may have processes on several nodes. See docs/design/launch.rst, "Probes and sweeps" and "A
restored database".
"""

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from oar.lib.bus.messages import Ask, JobAction, Tag, Wake
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle, recovery
from oar.lib.jobs.end_decision import END_NOT_RECORDED, read_fault
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.recovery import FoundJob
from oar.lib.jobs.states import JobState, Phase
from oar.lib.jobs.usage import count_processors, read_usage
from oar.lib.logs import of_nodes
from oar.lib.remote.protocol import LONGEST_AGO, NodeAction, NodeFault, ProbeAnswer
from oar.lib.remote.requests import CommandRan, NodeRequest
from oar.modules.runner.actions import job_data, nodes
from oar.modules.runner.actions.context import ActionContext, RetryAfter, log
from oar.modules.runner.actions.job_data import JobData

SECONDS = 20
PROBED = (JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING)
#: Pause before a host that did not answer is asked again.
AGAIN_SECONDS = 10
LOST_SECONDS = 60
#: After this number of unanswered probes in a row, Finaud tests the host although it has a job.
LOST_AFTER = 3
#: If more hosts than this were asked and none answers, the server's own network is to blame.
TOO_MANY_TO_FAIL = 10
#: Number of other hosts that are probed to find that out.
WITNESSES = 5
#: Pause before a node checks again whether all others have been surveyed.
OTHERS_SECONDS = 1
#: Time for which the surveyed nodes wait for the others, in seconds.
SURVEY_PATIENCE = 90
#: Numbers of resources and alternatives are no larger.
_LARGEST = 2**31 - 1
_LARGEST_JOB = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of a host about a job."""

    answer: ProbeAnswer
    code: int = ExecCode.DIED
    status: int | None = None
    frozen: bool = False
    boot_id: str = ""
    fault: NodeFault | None = None
    usage: Any = None  #: what the job has used there so far, as the node reports it
    ago: int = 0  #: seconds since its end


SILENT = Finding(ProbeAnswer.SILENT)


def ask(context: ActionContext, host: str, jobs: Collection[JobData], *, fence: int = 0) -> dict[int, Finding]:
    """Probe a host for the state of jobs. Return the findings by job; a job without an answer is SILENT."""
    request = NodeRequest("node_probe", NodeAction.PROBE, job_data.probe_data(jobs, context.config, fence=fence))
    outcome = context.remote.run({host: request}, SECONDS)[host]
    findings = dict.fromkeys((data.job.id for data in jobs), SILENT)
    if isinstance(outcome, CommandRan):
        for line in outcome.lines:
            _read_answer(findings, line)
    else:
        of_nodes(log, host).info("probe of %s: %s", host, nodes.answer_of(outcome).error)
    return findings


def ask_one(context: ActionContext, host: str, data: JobData, *, fence: int = 0) -> Finding:
    """Probe a host for the state of one job."""
    return ask(context, host, [data], fence=fence)[data.job.id]


def _read_answer(findings: dict[int, Finding], line: str) -> None:
    """Add one answer to the findings. Ignore an answer about another job: the node may send wrong data."""
    try:
        report = json.loads(line)
        job_id = int(report["job_id"])
        finding = Finding(
            ProbeAnswer(report["answer"]),
            _number(report.get("code"), ExecCode.DIED),
            read_status(report.get("status")),
            report.get("frozen") is True,
            str(report.get("boot_id", ""))[:64],
            read_fault(report.get("reason")),
            report.get("usage"),
            _number(report.get("ago"), 0, LONGEST_AGO),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        log.warning("the probe answered %.200r", line)
        return
    if job_id in findings:
        findings[job_id] = finding


def _number(value: Any, default: int, largest: int = 255) -> int:
    return value if isinstance(value, int) and 0 <= value <= largest else default


def read_status(value: Any) -> int | None:
    """Return a raw wait status from its digits, None for ``N``."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and int(text) <= 0xFFFF else None


def probe(context: ActionContext, host: str) -> RetryAfter | None:
    """Probe a host for all jobs that should run on it, and store the results."""
    context.steps.settle()  # store the pending starts first: they do not come from the node
    with context.database.begin() as tx:
        asked = tx.now
        ids = tx.job_runs.jobs_of_head(host)
        candidates = job_data.read_all(tx, ids).values() if ids else ()
        running_jobs = [data for data in candidates if data.job.state in PROBED]
        for data in running_jobs:
            if data.is_noop or data.is_fetched:
                tx.job_runs.update(data.job.id)  # no probe: nothing runs, or the agent reports the state
    jobs = [data for data in running_jobs if not (data.is_noop or data.is_fetched)]
    if not jobs:
        return None
    findings = ask(context, host, jobs)
    for data in jobs:
        with context.database.begin() as tx:
            note_finding(tx, data, findings[data.job.id])
            if findings[data.job.id].answer is ProbeAnswer.RUNNING:
                note_usage(tx, context, data, host, findings[data.job.id])
    with context.database.begin() as tx:
        if any(finding is not SILENT for finding in findings.values()):
            tx.job_runs.note_answer(host)
            return None
        tx.jobs.lock_all(tx.job_runs.jobs_of_head(host))  # lock the jobs before their runs, in the same order as END
        return _note_silence(tx, context.config.node_lost_timeout, host, asked, [data.job.id for data in jobs])


def _note_silence(tx: Transaction, limit: int, host: str, asked: int, jobs: Collection[int]) -> RetryAfter | None:
    """Store that a host has not answered. If its silence lasts ``limit`` seconds (0: never), its jobs have ended."""
    silence = tx.job_runs.note_silence(host, asked)
    if silence.probes == LOST_AFTER:
        of_nodes(log, host).warning("%s has not answered %d times: Finaud tests it", host, silence.probes)
        tx.outbox.append(Wake(Tag.FINAUD))
    if not limit:
        return RetryAfter(AGAIN_SECONDS if silence.probes < LOST_AFTER else LOST_SECONDS)
    remaining = silence.since + limit - tx.now
    if remaining > 0:
        return RetryAfter(min(AGAIN_SECONDS, remaining))
    if not _is_server_heard(tx, silence.since):
        return RetryAfter(AGAIN_SECONDS)
    of_nodes(log, host).warning("%s has not answered for %d s: its jobs are lost", host, tx.now - silence.since)
    for job_id in jobs:
        note_end(tx, job_id, ExecCode.DIED, None)
    return None


def _is_server_heard(tx: Transaction, since: int) -> bool:
    """Return whether the silence of hosts is their own fault, and not that of the server's network.

    If many hosts are silent and none has answered meanwhile, other hosts are probed first.
    """
    hosts = tx.job_runs.hosts_heard_since(since)
    if hosts.heard or len(hosts.silent) <= TOO_MANY_TO_FAIL:
        return True
    log.error("none of %d hosts of jobs answers: the server's own network is suspected", len(hosts.silent))
    witnesses = tuple(sorted(hosts.unknown)[:WITNESSES])
    if witnesses:
        tx.outbox.append(Ask(JobAction.PROBE, 0, witnesses))
    return False


def note_finding(tx: Transaction, data: JobData, finding: Finding) -> None:
    """Store the consequences of a finding about a job that should run."""
    job_id = data.job.id
    match finding.answer:
        case ProbeAnswer.ENDED:
            note_end(tx, job_id, finding.code, finding.status, finding.ago)
            if finding.fault:
                tx.job_runs.note_fault(job_id, finding.fault)
        case ProbeAnswer.DIED:
            note_death(tx, data, finding.ago)
        case ProbeAnswer.NEVER | ProbeAnswer.ABORTED if data.run and data.run.phase is Phase.GO:
            tx.outbox.append(Ask(JobAction.RUN, job_id))  # the GO was lost: continue the launch
        case ProbeAnswer.NEVER | ProbeAnswer.ABORTED:
            note_death(tx, data)
        case ProbeAnswer.STARTED | ProbeAnswer.RUNNING:
            note_recovered(tx, data, finding.boot_id)
            # a node may be frozen or not, against the state of the job
            if data.job.state is JobState.SUSPENDED and not finding.frozen:
                tx.outbox.append(Ask(JobAction.SUSPEND, job_id))
            elif data.job.state is JobState.RUNNING and finding.frozen:
                tx.outbox.append(Ask(JobAction.RESUME, job_id))


def note_usage(tx: Transaction, context: ActionContext, data: JobData, host: str, finding: Finding) -> None:
    """Store the usage of a job so far on the probed node."""
    values = data.processors(context.config).get(host)
    if values is not None and finding.usage:
        tx.job_runs.add_usage([(data.job.id, read_usage(host, count_processors(values), finding.usage))])


def note_end(tx: Transaction, job_id: int, code: int, status: int | None, ago: int = 0) -> None:
    """Store the end of a job that a probe has detected. ``ago``: seconds since that end."""
    if tx.job_runs.report(job_id, code, status, ago):
        tx.outbox.append(Ask(JobAction.END, job_id))


def note_death(tx: Transaction, data: JobData, ago: int = 0) -> None:
    """Store that no process of a job exists on its node any more.

    If the job has not been updated since the database was restored, its end is unknown.
    """
    restores = tx.events.latest(1, type_=EventType.DATABASE_RESTORED, before=None)
    is_unknown = data.run is not None and any(data.run.updated < restore.date for restore in restores)
    note_end(tx, data.job.id, ExecCode.DIED, None, ago)
    if is_unknown:
        tx.job_runs.update(data.job.id, detail=END_NOT_RECORDED)


def note_recovered(tx: Transaction, data: JobData, boot_id: str) -> None:
    """Store that the command of a job runs, and move the job to Running."""
    job_id = data.job.id
    if not tx.job_runs.note_started({job_id: boot_id}):
        tx.job_runs.update(job_id)
        return
    lifecycle.move(tx, job_id, JobState.RUNNING)
    tx.events.add(EventType.JOB_RECOVERED, job_id, f"[bipbip {job_id}] the node said that the job runs")


def sweep(context: ActionContext, host: str) -> RetryAfter | None:
    """Remove what former jobs left on a host that returns to service."""
    with context.database.begin() as tx:
        if host not in tx.resources.to_sweep():
            return None
    if pause := survey(context, host):
        return pause
    with context.database.begin() as tx:
        jobs = job_data.read_all(tx, tx.jobs.on_nodes([host])).values()
    request = NodeRequest(nodes.MANAGER, NodeAction.SWEEP, job_data.sweep_data(jobs, context.config))
    seconds = nodes.manager_seconds(context.config)
    answer = nodes.answer_of(context.remote.run({host: request}, seconds)[host])
    of_nodes(log, host).info(
        "sweep of %s: %s %s", host, "done" if answer.succeeded else answer.error, " ".join(answer.lines)
    )
    with context.database.begin() as tx:
        note_unknown_jobs(tx, host, answer.lines)
        if not answer.succeeded:
            return RetryAfter(AGAIN_SECONDS)
        tx.events.add(EventType.NODE_SWEPT, 0, f"[bipbip] {host} is clean", to_check=True, hosts=[host])
        tx.outbox.append(Wake(Tag.CHSTATE))
    return None


def note_unknown_jobs(tx: Transaction, host: str, lines: Collection[str]) -> None:
    """Store an event for each job that a sweep has ended and that the database does not contain. ``lines``: output."""
    swept: dict[int, str] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            if 0 < entry["job_id"] < _LARGEST_JOB:
                swept[int(entry["job_id"])] = str(entry["swept"])
    for job_id in sorted(swept.keys() - tx.jobs.owners(swept.keys()).keys()):
        text = f"[bipbip] {swept[job_id]} was ended on {host}: the database does not contain this job"
        tx.events.add(EventType.UNKNOWN_JOB_ENDED, job_id, text, hosts=[host])


# -- survey after a restore of the database ----------------------------------------------------------------------------


def survey(context: ActionContext, host: str) -> RetryAfter | None:
    """Survey a host for unknown jobs, if it has an open survey request. Return a pause if it may not be swept yet."""
    with context.database.begin() as tx:
        mine, is_waiting = _to_survey(tx, host)
    if mine:
        found = find_jobs(context, host)
        if found is None:
            return RetryAfter(AGAIN_SECONDS)
        with context.database.begin() as tx:
            known = recovery.recognise(tx, host, found)
            tx.events.done(mine)
            _, is_waiting = _to_survey(tx, host)
        of_nodes(log, host).info("survey of %s: %d jobs are there, recognised: %s", host, len(found), known or "none")
    return RetryAfter(OTHERS_SECONDS) if is_waiting else None


def _to_survey(tx: Transaction, host: str) -> tuple[list[int], bool]:
    """Return the open survey requests of a host, and whether it must wait for the survey of other hosts."""
    open_events = tx.events.open([EventType.NODE_SURVEY])
    if not open_events:
        return [], False
    coming = set(tx.resources.to_sweep()) - {host}
    mine = [event.id for event in open_events if host in event.hosts]
    others = {name for event in open_events if event.date > tx.now - SURVEY_PATIENCE for name in event.hosts}
    return mine, bool(coming & others)


def find_jobs(context: ActionContext, host: str) -> list[FoundJob] | None:
    """Return the jobs whose head is this host, None if the host does not answer."""
    content = {"oar_tmp_directory": context.config.oar_runtime_directory}
    request = NodeRequest("node_probe", NodeAction.SURVEY, content)
    outcome = context.remote.run({host: request}, SECONDS)[host]
    if not isinstance(outcome, CommandRan) or outcome.exit:
        of_nodes(log, host).info("survey of %s: %s", host, nodes.answer_of(outcome).error)
        return None
    return [job for line in outcome.lines if (job := read_job(line))]


def read_job(line: str) -> FoundJob | None:
    """Parse the report of a node about a job. Return None if it does not have the format of our program."""
    try:
        report: dict[str, Any] = json.loads(line)
        record = report["record"]
        numbers = [
            _whole_number(report["job_id"], 2**63 - 1),
            _whole_number(report["attempt"]),
            _whole_number(record["alternative"]),
        ]
        texts = [str(report[name])[:64] for name in ("user", "challenge", "boot_id")]
        resources = tuple(_whole_number(number) for number in list.copy(record["resources"]))
        ago = _whole_number(report["ago"], LONGEST_AGO)
    except (ValueError, KeyError, TypeError, AttributeError):
        log.warning("the survey answered %.200r", line)
        return None
    return FoundJob(numbers[0], texts[0], texts[1], numbers[1], texts[2], ago, numbers[2], resources)


def _whole_number(value: object, largest: int = _LARGEST) -> int:
    """Return the value if it is an integer from 0 to ``largest``. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise ValueError(value)
    return value

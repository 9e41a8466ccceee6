"""PROBE and SWEEP: what a host knows of its jobs, and what it should forget (server.md 6.2, 6.7)."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from oar.lib import lifecycle
from oar.lib.causes import read_reason
from oar.lib.db.engine import Transaction
from oar.lib.ends import count_processors, read_usage
from oar.lib.messages import Ask, JobAction, Tag, Wake
from oar.lib.model import NodeReason
from oar.lib.remote.requests import Ran, Request
from oar.lib.states import EventType, ExecCode, JobState, Phase
from oar.modules.actions import job_data, nodes
from oar.modules.actions.context import Context, Later, log
from oar.modules.actions.job_data import JobData

SECONDS = 20
PROBED = (JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING)
#: Pause before a host that did not answer is asked again.
AGAIN_SECONDS = 10
LOST_SECONDS = 60
#: After so many silences in a row Finaud tests the host although it has a job.
LOST_AFTER = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What a host says of a job: ``never init ready started running aborted ended died``, or ``silent``."""

    word: str
    code: int = ExecCode.DIED
    status: int | None = None
    frozen: bool = False
    boot_id: str = ""
    reason: NodeReason | None = None  #: what it found when something of the job failed
    usage: Any = None  #: what the job has used there by now


SILENT = Finding("silent")


def ask(context: Context, host: str, jobs: Collection[JobData], *, fence: int = 0) -> dict[int, Finding]:
    """Ask a host for its jobs; a job of which it says nothing is SILENT."""
    request = Request("node_probe", "probe", job_data.probe_data(jobs, context.config, fence=fence))
    outcome = context.remote.run({host: request}, SECONDS)[host]
    found = dict.fromkeys((one.job.id for one in jobs), SILENT)
    if isinstance(outcome, Ran):
        for line in outcome.lines:
            _note(found, line)
    else:
        log.info("probe of %s: %s", host, nodes.answer_of(outcome).reason)
    return found


def ask_one(context: Context, host: str, data: JobData, *, fence: int = 0) -> Finding:
    """Ask a host for one job."""
    return ask(context, host, [data], fence=fence)[data.job.id]


def _note(found: dict[int, Finding], line: str) -> None:
    """Read one answer; a node can lie only about the jobs that it was asked for."""
    try:
        answer = json.loads(line)
        job_id, word = int(answer["job_id"]), str(answer["answer"])
        finding = Finding(
            word,
            _number(answer.get("code"), ExecCode.DIED),
            read_status(answer.get("status")),
            answer.get("frozen") is True,
            str(answer.get("boot_id", ""))[:64],
            read_reason(answer.get("reason")),
            answer.get("usage"),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        log.warning("the probe answered %.200r", line)
        return
    if job_id in found:
        found[job_id] = finding


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and 0 <= value <= 255 else default


def read_status(value: Any) -> int | None:
    """Return the raw wait status in digits, None for ``N``."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and int(text) <= 0xFFFF else None


def probe(context: Context, host: str) -> Later | None:
    """Ask a host for all jobs that should run there, and note what it says."""
    with context.database.begin() as tx:
        ids = tx.runs.jobs_of_head(host)
        known = [data for data in (job_data.read(tx, job_id) for job_id in ids) if data and data.job.state in PROBED]
        for data in known:
            if data.is_noop:
                tx.runs.update(data.job.id)  # no node knows of it: there is nothing to be asked
    jobs = [data for data in known if not data.is_noop]
    if not jobs:
        return None
    found = ask(context, host, jobs)
    for data in jobs:
        with context.database.begin() as tx:
            note_finding(tx, data, found[data.job.id])
            if found[data.job.id].word == "running":
                note_usage(tx, context, data, host, found[data.job.id])
    silent = all(finding is SILENT for finding in found.values())
    with context.database.begin() as tx:
        silences = tx.runs.note_silence(host, silent=silent)
        if silences == LOST_AFTER:
            log.warning("%s has not answered %d times: Finaud tests it", host, silences)
            tx.outbox.append(Wake(Tag.FINAUD))
    if not silent:
        return None
    return Later(AGAIN_SECONDS if silences < LOST_AFTER else LOST_SECONDS)


def note_finding(tx: Transaction, data: JobData, finding: Finding) -> None:
    """Do what follows from an answer for a job that should run."""
    job_id = data.job.id
    match finding.word:
        case "ended":
            note_end(tx, job_id, finding.code, finding.status)
            if finding.reason:
                tx.runs.note_reason(job_id, finding.reason)
        case "died":
            note_end(tx, job_id, ExecCode.DIED, None)
        case "never" | "aborted" if data.run and data.run.phase is Phase.GO:
            tx.outbox.append(Ask(JobAction.RUN, job_id))  # the GO was lost: the launch goes on
        case "never" | "aborted":
            note_end(tx, job_id, ExecCode.DIED, None)
        case "started" | "running":
            note_recovered(tx, data, finding.boot_id)
            _note_frozen(tx, data, finding)


def note_usage(tx: Transaction, context: Context, data: JobData, host: str, finding: Finding) -> None:
    """Keep what a job has used by now on the node that was asked."""
    values = data.processors(context.config).get(host)
    if values is not None and finding.usage:
        tx.ends.add_usage([(data.job.id, read_usage(host, count_processors(values), finding.usage))])


def _note_frozen(tx: Transaction, data: JobData, finding: Finding) -> None:
    """Let a job be frozen or thawed as its state says."""
    if data.job.state is JobState.SUSPENDED and not finding.frozen:
        tx.outbox.append(Ask(JobAction.SUSPEND, data.job.id))
    elif data.job.state is JobState.RUNNING and finding.frozen:
        tx.outbox.append(Ask(JobAction.RESUME, data.job.id))


def note_end(tx: Transaction, job_id: int, code: int, status: int | None) -> None:
    """Note the end of a job that its node told when it was asked."""
    if tx.runs.report(job_id, code, status):
        tx.outbox.append(Ask(JobAction.END, job_id))


def note_recovered(tx: Transaction, data: JobData, boot_id: str) -> None:
    """Note that the command of a job runs: the job is Running."""
    job_id = data.job.id
    if not tx.runs.note_started(job_id, boot_id):
        tx.runs.update(job_id)
        return
    lifecycle.move(tx, job_id, JobState.RUNNING)
    tx.events.add(EventType.JOB_RECOVERED, job_id, f"[bipbip {job_id}] the node said that the job runs")


def sweep(context: Context, host: str) -> Later | None:
    """Remove from a host that comes back what belongs to no job that may be there."""
    with context.database.begin() as tx:
        if host not in tx.resources.to_sweep():
            return None
        jobs = [data for data in (job_data.read(tx, job_id) for job_id in tx.jobs.on_nodes([host])) if data]
    data = job_data.sweep_data(jobs, context.config)
    seconds = context.config.oar_ssh_connection_timeout
    answer = nodes.answer_of(context.remote.run({host: Request(nodes.MANAGER, "sweep", data)}, seconds)[host])
    log.info("sweep of %s: %s %s", host, "done" if answer.good else answer.reason, " ".join(answer.lines))
    if not answer.good:
        return Later(AGAIN_SECONDS)
    with context.database.begin() as tx:
        tx.events.add(EventType.NODE_SWEPT, 0, f"[bipbip] {host} is clean", to_check=True, hosts=[host])
        tx.outbox.append(Wake(Tag.CHSTATE))
    return None

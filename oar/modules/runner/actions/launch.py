"""LAUNCH: move a job that has its resources to Running.

The phase of the launch is stored before or after each step, so a launch can be interrupted at any instruction: the next
attempt continues after the stored phase. From ``EXEC_SENT`` on, only the node has the current state, so the Runner
probes the node. If the node has not received an attempt, it will refuse that attempt before a new one is made. So the
user's command is started at most once.

See docs/design/launch.rst, "Launch".
"""

import contextlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from oar.lib.base.errors import ConfigError, DatabaseUnavailable, NodeUnavailable, ProgramNotStarted
from oar.lib.bus.messages import Ask, Due, Effect, JobAction, OarsubLine, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_consequences import NOT_STARTED, consequence_of
from oar.lib.history.event_types import EventType
from oar.lib.jobs import launch_holds, lifecycle
from oar.lib.jobs.end_decision import read_fault
from oar.lib.jobs.ends import Cause, EndCode, ExecCode
from oar.lib.jobs.records import JobRun
from oar.lib.jobs.states import JobState, Phase
from oar.lib.logs import of_job
from oar.lib.remote.protocol import ExecLine, ExecOrder, NodeAction, NodeFault, ProbeAnswer
from oar.lib.remote.requests import CommandRan, NodeRequest
from oar.lib.remote.session import SIGNAL_EXIT_BASE, Dialogue
from oar.lib.submission.resource_request import GROWING
from oar.modules.runner.actions import desktop, job_data, launch_needs, nodes, probe
from oar.modules.runner.actions.context import ActionContext, RetryAfter, log
from oar.modules.runner.actions.job_data import JobData
from oar.modules.runner.actions.preparation import (
    Launch,
    LaunchFailed,
    drop_hosts,
    is_ready_at_once,
    prepare,
    prepare_hosts,
    run_prologue,
)

MAX_ATTEMPTS = 3
#: How long the third attempt comes after the second: one disturbance of a connection must not spend them all.
RETRY_PAUSE = 10
#: A launch that a fault of the configuration holds is tried again after so long.
HELD_SECONDS = 5
STARTED_SECONDS = 30
#: Time for oarexec besides its prologue and the connection to the node.
EXEC_SECONDS = 30
LONGEST_RECOVERY_PAUSE = 30
ATTACHED_RECEIVE_SECONDS = 3600.0
#: How long a launch waits for a line before it checks for a kill request.
KILL_CHECK_SECONDS = 1.0

#: States of a job whose launch goes on.
_STATES_OF_LAUNCH = (JobState.LAUNCHING, JobState.RUNNING)
#: Phases after which only the node knows what happened.
_ONLY_NODE_KNOWS = (Phase.EXEC_SENT, Phase.GO)
#: Phases of a job whose end is known, or is made without its node: its launch has nothing more to say.
_OF_ENDS = (Phase.FAILED, Phase.REPORTED, Phase.EXTERMINATE, Phase.EPILOGUE_OK, Phase.CLEANED)


class KillRequested(Exception):
    """The job has a kill request, and its command has not been started."""


class LaunchUndone(Exception):
    """PostgreSQL has crashed and lost the claim of the launch. The command has not been started."""


class _Claim(NamedTuple):
    """A job to claim for its launch."""

    context: ActionContext
    job_id: int


class _Claimed(NamedTuple):
    """A claimed job. ``is_sent``: the phase EXEC_SENT has just been stored, and oarexec must be sent next."""

    data: JobData
    run: JobRun
    is_sent: bool
    is_killed: bool  #: it had a kill request


def launch_job(context: ActionContext, job_id: int) -> RetryAfter | None:
    """Move a job to Running, starting from the phase that a former attempt reached."""
    fault = launch_needs.find_fault(context.config, context.oardir)
    if fault and _hold(context, job_id, fault):
        return RetryAfter(HELD_SECONDS)
    claimed = context.steps.do(_claim, _Claim(context, job_id))
    if claimed is None:
        return None
    launch = Launch(context, claimed.data, claimed.run)
    try:
        return _go_on(launch, claimed)
    except LaunchFailed as failure:
        _give_up(launch, failure)
    except ProgramNotStarted as error:
        of_job(log, job_id).warning("the launch is tried again: %s", error)
        return RetryAfter(HELD_SECONDS)
    except ConfigError as error:
        of_job(log, job_id).error("the launch is held: %s", error)
        with context.database.begin() as tx:
            launch_holds.hold_for_configuration(tx, str(error), job_id)
        return RetryAfter(HELD_SECONDS)
    except KillRequested:
        _report_end(launch, ExecCode.KILLED)
    except LaunchUndone:
        of_job(log, job_id).warning("PostgreSQL has crashed and lost this launch: it is begun again")
        _clean(launch, launch.prepared | {launch.head})
    return None


def _hold(context: ActionContext, job_id: int, fault: str) -> bool:
    """Hold the launch for a fault of the configuration.

    Return False, and do not hold it, if its node may already have received it.
    """
    of_job(log, job_id).error("the launch is held: %s", fault)
    with context.database.begin() as tx:
        return launch_holds.hold_launch(tx, job_id, fault)


def _go_on(launch: Launch, claimed: _Claimed) -> RetryAfter | None:
    """Continue a launch after its stored phase. Raises LaunchFailed, KillRequested, DatabaseUnavailable.

    The kill request is checked first: a fault may prevent the preparation of nodes, and must not prevent the end of a
    job.
    """
    if not claimed.is_sent and claimed.run.phase in launch_holds.ONLY_SERVER_KNOWS:
        if claimed.is_killed:
            raise KillRequested
        with launch.context.database.begin() as tx:
            is_held = not launch_holds.may_go_on(tx, launch.data.job, launch.data.types)
        if is_held:
            return RetryAfter(HELD_SECONDS)
    if claimed.data.is_noop:
        _launch_noop(launch)
        return None
    if claimed.data.is_fetched:
        return _offer(launch, claimed)
    if claimed.is_sent:
        return _send_oarexec(launch)
    if claimed.run.phase in _ONLY_NODE_KNOWS:
        return _recover(launch)
    prepare(launch)
    return _execute(launch)


def _claim(tx: Transaction, claims: Sequence[_Claim]) -> list[_Claimed | None]:
    """Claim jobs to launch, new or left by a former attempt. Return None for jobs with nothing to launch.

    The commit is asynchronous. If it is lost, the jobs are still to be launched, and GO was not sent.
    """
    contexts = {claim.job_id: claim.context for claim in claims}
    found = job_data.read_details(tx, list(tx.jobs.lock_all(contexts).values()))
    new = {job_id: data for job_id, data in found.items() if data.job.state is JobState.TO_LAUNCH}
    lost = {
        job_id: data
        for job_id, data in found.items()
        if data.job.state is JobState.LAUNCHING
        and (data.run is None or _was_prepared_elsewhere(data, data.run, contexts[job_id].config))
    }
    killed = tx.job_requests.jobs_to_kill(found) if found else frozenset()
    begun = _begin_launches(tx, contexts, new, killed) if new else {}
    sent = {job_id for job_id, run in begun.items() if run.phase is Phase.EXEC_SENT}
    claimed = begun | tx.job_runs.claim_all(
        {job_id: (data.launch_host(contexts[job_id].config), Phase.CLAIMED) for job_id, data in lost.items()}
    )
    runs = {job_id: claimed.get(job_id, data.run) for job_id, data in found.items()}
    return [_claimed(found.get(claim.job_id), runs.get(claim.job_id), new, sent, killed) for claim in claims]


def _was_prepared_elsewhere(data: JobData, run: JobRun, config: Config) -> bool:
    """Return whether a former server has begun to launch a job on its own host, and has sent nothing yet.

    A launch that was left by a database of another version has no run.
    """
    is_unsent = run.phase in launch_holds.ONLY_SERVER_KNOWS
    return is_unsent and data.is_elsewhere and run.head_host != data.launch_host(config)


def _claimed(
    data: JobData | None, run: JobRun | None, new: Mapping[int, JobData], sent: Collection[int], killed: Collection[int]
) -> _Claimed | None:
    if data is None or run is None:
        return None
    is_new = data.job.id in new and bool(data.resources)
    goes_on = data.job.state is JobState.LAUNCHING and run.phase is not Phase.FAILED
    was_told = data.job.state is JobState.RUNNING and run.phase is Phase.GO
    if not (is_new or goes_on or was_told):
        return None
    return _Claimed(replace(data, run=run), run, data.job.id in sent, data.job.id in killed)


def _begin_launches(
    tx: Transaction, contexts: Mapping[int, ActionContext], jobs: Mapping[int, JobData], killed: Collection[int]
) -> dict[int, JobRun]:
    """Move jobs from toLaunch to Launching. Return their runs: oarexec must be sent next in the phase EXEC_SENT.

    Jobs without resources end in Error.
    """
    lifecycle.move_all(tx, jobs, JobState.LAUNCHING)
    empty = [job_id for job_id, data in jobs.items() if not data.resources]
    _end_without_resources(tx, empty)
    if not empty:
        tx.commit_asynchronously()
    begun = {job_id: data for job_id, data in jobs.items() if data.resources}
    ready = {
        job_id
        for job_id, data in begun.items()
        if job_id not in killed and is_ready_at_once(data, contexts[job_id].config)
    }
    tx.outbox += [
        Ask(JobAction.TELL, job_id, (OarsubLine.STARTING,))
        for job_id, data in begun.items()
        if data.is_interactive and not data.is_reservation
    ]
    return tx.job_runs.claim_all(
        {
            job_id: (data.launch_host(contexts[job_id].config), Phase.EXEC_SENT if job_id in ready else Phase.CLAIMED)
            for job_id, data in begun.items()
        }
    )


def _end_without_resources(tx: Transaction, ids: Collection[int]) -> None:
    for job_id in ids:
        tx.jobs.update(job_id, message="No resource assigned")
        tx.events.add(EventType.BIPBIP_BAD_JOBID, job_id, f"[bipbip {job_id}] No resource assigned")
        lifecycle.move_all(tx, [job_id], JobState.ERROR, because={job_id: Cause(EndCode.NO_RESOURCES)})


def _launch_noop(launch: Launch) -> None:
    run_prologue(launch)
    with launch.context.database.begin() as tx:
        if tx.job_requests.find_kill(launch.id):
            raise KillRequested
        lifecycle.move(tx, launch.id, JobState.RUNNING)
        tx.job_runs.update(launch.id, phase=Phase.STARTED)
        tx.outbox.extend(_start_effects(launch.data))


def _offer(launch: Launch, claimed: _Claimed) -> RetryAfter | None:
    """Offer the job to the agent of the head, and wait until it is fetched. Raises LaunchFailed, KillRequested."""
    if not claimed.is_sent and claimed.run.phase not in _ONLY_NODE_KNOWS:
        prepare(launch)
        _note_exec_sent(launch)
    return desktop.await_agent(launch.context, launch.id)


def _start_effects(data: JobData) -> list[Effect]:
    """Return the effects of the start of a job.

    Sarko monitors its checkpoint or its end, and the scheduler may extend its walltime.
    """
    first_deadline = data.job.start_time + data.walltime - (data.job.checkpoint or -1)
    effects: list[Effect] = [Due(first_deadline)]
    return [*effects, Wake(Tag.WALLTIME)] if GROWING in data.type_texts else effects


# -- oarexec ------------------------------------------------------------------------------------------------------


def _execute(launch: Launch) -> RetryAfter | None:
    """Start oarexec on the head and follow it until the command runs.

    Raises LaunchFailed, KillRequested, DatabaseUnavailable.
    """
    _note_exec_sent(launch)
    return _send_oarexec(launch)


def _send_oarexec(launch: Launch) -> RetryAfter | None:
    """Send oarexec to the head and follow it. Raises the exceptions of ``_execute``."""
    config = launch.context.config
    start_seconds = config.prologue_epilogue_timeout + EXEC_SECONDS + config.oar_ssh_connection_timeout
    attached_seconds = 0 if config.detach_job_from_server else launch.data.walltime + config.jobdel_walltime
    init = launch.head in launch.data.processors(config) and launch.head not in launch.prepared
    data = job_data.oarexec_data(launch.data, config, launch.run.attempt, init=init)
    request = NodeRequest("oarexec", NodeAction.RUN, data)
    try:
        dialogue = launch.context.remote.dialogue(launch.head, request, start_seconds + attached_seconds)
    except NodeUnavailable as error:
        text = str(error).removeprefix(f"{launch.head}: ")
        return _change_head(launch, EventType.PING_CHECKER_NODE_SUSPECTED, text)
    try:
        return _follow_start(launch, dialogue, time.monotonic() + start_seconds)
    except NodeUnavailable as error:
        of_job(log, launch.id).info("%s", error)
        return _recover(launch)
    except DatabaseUnavailable:
        dialogue.close()  # an oarexec that waits for GO sees at once that this process will not send it
        raise


def _note_exec_sent(launch: Launch) -> None:
    """Store the phase EXEC_SENT before oarexec is sent. Raises KillRequested."""
    with launch.context.database.begin() as tx:
        if tx.job_requests.find_kill(launch.id):
            raise KillRequested
        tx.job_runs.update(launch.id, phase=launch.run.phase if launch.run.phase is Phase.GO else Phase.EXEC_SENT)


def _follow_start(launch: Launch, dialogue: Dialogue, deadline: float) -> RetryAfter | None:
    """Process the lines of oarexec until the command runs or has failed. If the result is unclear, probe the head."""
    is_go_sent = False
    while True:
        answer = dialogue.receive(STARTED_SECONDS if is_go_sent else KILL_CHECK_SECONDS)
        match answer:
            case str() as line if line == ExecLine.READY:
                _send_go(launch, dialogue)
                is_go_sent = True
            case str() as line if line == ExecLine.STARTED:
                _note_started(launch, dialogue)
                return None
            case str() as line if line.startswith(ExecLine.END):
                return _note_early_end(launch, dialogue, line)
            case str() as line if line.startswith(ExecLine.FAULT):
                _store_fault(launch, line)
            case str() as line if line.startswith(ExecLine.INIT):
                event = nodes.manager_event(probe.read_status(line.rpartition(" ")[2]) or 0)
                ended = dialogue.receive(STARTED_SECONDS)
                error = ended.stderr.strip() if isinstance(ended, CommandRan) else "the job resource manager failed"
                return _change_head(launch, event, error)
            case str() as line if line.startswith((ExecLine.ALREADY, ExecLine.STALE)) or time.monotonic() > deadline:
                dialogue.close()  # a deadline is needed for a node that writes lines without end
                return _recover(launch)
            case CommandRan(exit=code, stderr=text):
                return _note_exit_of_oarexec(launch, code, text, is_go_sent=is_go_sent)
            case None:
                if not is_go_sent:
                    _stop_if_killed(launch, dialogue)
                if is_go_sent or time.monotonic() > deadline:
                    dialogue.close()
                    return _recover(launch)


def _stop_if_killed(launch: Launch, dialogue: Dialogue) -> None:
    """Abort the launch of a job that must end and to which GO has not been sent. Raises KillRequested.

    An interruption may also mean a signal, or may come too late.
    """
    if not launch.context.interrupted(launch.id):
        return
    with launch.context.database.begin() as tx:
        job, run = tx.jobs.get(launch.id), tx.job_runs.find(launch.id)
        has_kill_request = tx.job_requests.find_kill(launch.id) is not None
    if has_kill_request or job.state not in _STATES_OF_LAUNCH or (run and run.report_date):
        dialogue.send(ExecOrder.ABORT)
        dialogue.close()
        raise KillRequested


def _has_other_head(launch: Launch) -> bool:
    """Return whether the job can use another host as its head: it is a reservation with several nodes."""
    return launch.data.is_reservation and launch.head in launch.data.hosts and len(launch.data.hosts) > 1


def _change_head(launch: Launch, event: EventType, error: str) -> RetryAfter | None:
    """Continue with another head if the job is a reservation: nothing was started on this one. Raises LaunchFailed."""
    if not _has_other_head(launch):
        raise LaunchFailed(event, f"[bipbip {launch.id}] {launch.head}: {error}", [launch.head])
    drop_hosts(launch, event, {launch.head: error})
    prepare_hosts(launch, set(launch.data.processors(launch.context.config)))
    with launch.context.database.begin() as tx:
        tx.job_runs.update(launch.id, head_host=launch.head)
    return _execute(launch)


def _send_go(launch: Launch, dialogue: Dialogue) -> None:
    """Move the job to Running, then send GO. Raises KillRequested, LaunchUndone."""
    refusal = launch.context.steps.do(_go, _HeadHeard(launch, dialogue.boot_id))
    if refusal is not None:
        dialogue.send(ExecOrder.ABORT)
        raise refusal
    dialogue.send(f"{ExecOrder.GO} {launch.run.attempt}")


class _HeadHeard(NamedTuple):
    """A launch, with the boot id that its head has reported."""

    launch: Launch
    boot_id: str


def _go(tx: Transaction, heard: Sequence[_HeadHeard]) -> list[KillRequested | LaunchUndone | None]:
    """Move jobs to Running before GO is sent. Return None for each job that may start, else the reason why not.

    The commit of a claim may have been lost: the claim is undone if its row is missing or has another head.
    """
    launches = {launch.id: launch for launch, _ in heard}
    states = tx.jobs.lock_states(launches)
    claims = tx.job_runs.launches(launches)
    claimed = {job_id for job_id, (head, _) in claims.items() if head == launches[job_id].head}
    undone = launches.keys() - claimed
    startable = [job_id for job_id in states if job_id in claimed and not claims[job_id][1]]
    moved = lifecycle.move_all(tx, startable, JobState.RUNNING)
    started = {*moved, *(job_id for job_id in startable if states[job_id] is JobState.RUNNING)}
    tx.job_runs.note_go({launch.id: boot_id for launch, boot_id in heard if launch.id in started})
    for job_id in sorted(started):
        tx.outbox.extend(_start_effects(launches[job_id].data))
    return [
        None if launch.id in started else LaunchUndone() if launch.id in undone else KillRequested()
        for launch, _ in heard
    ]


def _note_started(launch: Launch, dialogue: Dialogue) -> None:
    """Store that the command runs, notify a waiting oarsub, and follow an attached job.

    If no oarsub waits, it is stored a little later, unless the job has ended by then.
    """
    steps = launch.context.steps
    note = steps.do if launch.data.is_interactive else steps.do_soon
    note(_started, _HeadHeard(launch, dialogue.boot_id))
    if launch.context.config.detach_job_from_server:
        dialogue.close()
    else:
        launch.context.run_in_thread(f"job {launch.id}", lambda: _follow_attached(launch, dialogue))


def _started(tx: Transaction, heard: Sequence[_HeadHeard]) -> list[None]:
    tx.commit_asynchronously()  # the nodes can report the running commands again
    tx.job_runs.note_started({launch.id: boot_id for launch, boot_id in heard})
    for data in (launch.data for launch, _ in heard):
        if data.is_interactive and not data.is_reservation:
            tx.outbox.append(Ask(JobAction.TELL, data.job.id, (OarsubLine.GOOD_JOB,)))
    return [None] * len(heard)


def _follow_attached(launch: Launch, dialogue: Dialogue) -> None:
    """Follow an attached job until it ends. If the session is lost, oarexec reports the end of the job by TCP."""
    status: int | None = None
    try:
        while True:
            match dialogue.receive(ATTACHED_RECEIVE_SECONDS):
                case str() as line if line.startswith(ExecLine.END):
                    status = _status_of(line)
                case CommandRan(exit=code, stderr=text):
                    return _report_end(launch, ExecCode.DIED if code > SIGNAL_EXIT_BASE else code, status, text)
    except NodeUnavailable as error:
        of_job(log, launch.id).info("%s", error)


def _note_early_end(launch: Launch, dialogue: Dialogue, line: str) -> RetryAfter | None:
    """Store the end of a command that could not be started, or has already ended (oarexec is attached)."""
    answer = dialogue.receive(STARTED_SECONDS)
    if not isinstance(answer, CommandRan):
        dialogue.close()
        return _recover(launch)
    _report_end(launch, answer.exit, _status_of(line), answer.stderr)
    return None


def _store_fault(launch: Launch, line: str) -> None:
    try:
        fault = read_fault(json.loads(line.removeprefix(ExecLine.FAULT)))
    except ValueError:
        fault = None
    if fault:
        with launch.context.database.begin() as tx:
            tx.job_runs.note_fault(launch.id, fault)


def _status_of(line: str) -> int | None:
    return probe.read_status(line.rpartition(" ")[2])


def _note_exit_of_oarexec(launch: Launch, code: int, text: str, *, is_go_sent: bool) -> RetryAfter | None:
    """Handle the exit of an oarexec that has reported nothing about the command."""
    of_job(log, launch.id).info("oarexec ended with %s: %s", code, text)
    if code in (ExecCode.OK, ExecCode.STALE) or code > SIGNAL_EXIT_BASE or is_go_sent:
        return _recover(launch)
    _report_end(launch, code, None, text)
    return None


def _report_end(
    launch: Launch, code: int, status: int | None = None, text: str = "", *, fault: NodeFault | None = None
) -> None:
    """Store the end of a job whose start was not confirmed. The action END does the rest.

    Store nothing if the claim was undone: for the database, the job has not been launched.
    """
    with launch.context.database.begin() as tx:
        tx.jobs.hold([launch.id])
        if tx.job_runs.find(launch.id) is None:
            return
        if tx.job_runs.report(launch.id, code, status) and text:
            tx.job_runs.update(launch.id, detail=text)
        if fault:
            tx.job_runs.note_fault(launch.id, fault)
        tx.outbox.append(Ask(JobAction.END, launch.id))
        if launch.data.is_interactive and not launch.data.is_reservation:
            line = OarsubLine.JOB_KILLED if code == ExecCode.KILLED else OarsubLine.BAD_JOB
            tx.outbox.append(Ask(JobAction.TELL, launch.id, (line,)))


# -- recovery: only the node has the current state --------------------------------------------------------------------


def _recover(launch: Launch) -> RetryAfter | None:
    """Probe the head for the state of the launch, and continue from there. Raises LaunchFailed, KillRequested."""
    with launch.context.database.begin() as tx:
        run, now = tx.job_runs.find(launch.id), tx.now
    if run is None or run.phase in _OF_ENDS:
        return None
    launch.run = run
    finding = probe.ask_one(launch.context, launch.head, launch.data, fence=run.attempt)
    match finding.answer:
        case ProbeAnswer.NEVER | ProbeAnswer.ABORTED:
            return _try_again(launch, now)
        case ProbeAnswer.STARTED | ProbeAnswer.RUNNING:
            with launch.context.database.begin() as tx:
                probe.note_recovered(tx, launch.data, finding.boot_id)
            return None
        case ProbeAnswer.ENDED | ProbeAnswer.DIED:
            _report_end(launch, finding.code, finding.status, fault=finding.fault)
            return None
        case _ if now - run.updated > launch.context.config.launch_unknown_timeout:
            # GO is sent after the phase GO is stored. Before that phase, the command cannot have been started.
            if run.phase is not Phase.GO and (finding is probe.SILENT or _has_other_head(launch)):
                text = f"did not answer ({finding.answer}), {NOT_STARTED}"
                return _change_head(launch, EventType.PING_CHECKER_NODE_SUSPECTED, text)
            state = "state unknown" if run.phase is Phase.GO else NOT_STARTED
            text = f"[bipbip {launch.id}] {state}: {launch.head} did not answer ({finding.answer})"
            raise LaunchFailed(EventType.LAUNCHING_OAREXEC_TIMEOUT, text, [launch.head])
        case _:
            return RetryAfter(min(max(1, now - run.updated), LONGEST_RECOVERY_PAUSE))


def _try_again(launch: Launch, now: int) -> RetryAfter | None:
    """Launch again: the head did not start the command, and will refuse the former attempts.

    The second attempt starts at once, the third after a pause. Raises LaunchFailed, KillRequested.
    """
    if launch.run.attempt >= MAX_ATTEMPTS:
        raise LaunchFailed(
            EventType.LAUNCHING_OAREXEC_TIMEOUT,
            f"[bipbip {launch.id}] {NOT_STARTED} after {launch.run.attempt} attempts on {launch.head}",
            [launch.head],
        )
    remaining = launch.run.updated + RETRY_PAUSE - now
    with launch.context.database.begin() as tx:
        if tx.job_requests.find_kill(launch.id):
            raise KillRequested
        if launch.run.attempt > 1 and remaining > 0:
            return RetryAfter(remaining)
        tx.job_runs.update(launch.id, attempt=launch.run.attempt + 1)
    launch.run = launch.run._replace(attempt=launch.run.attempt + 1)
    return _execute(launch)


def _give_up(launch: Launch, failure: LaunchFailed) -> None:
    """Clean the prepared hosts, then store the event of the failure. NodeChangeState handles the event."""
    of_job(log, launch.id).warning("the launch is given up: %s", failure)
    _clean(launch, (launch.prepared | {launch.head}) - set(failure.hosts))
    with launch.context.database.begin() as tx:
        tx.jobs.hold([launch.id])
        run = tx.job_runs.find(launch.id)
        if run is None or run.phase in _OF_ENDS:
            return  # another process has given up the launch, or the end of the job was reported: that result is kept
        if launch.data.is_interactive:
            tx.outbox.append(Ask(JobAction.TELL, launch.id, (failure.line,)))
        if tx.jobs.get(launch.id).state is JobState.RUNNING:
            # The database says Running although the command was never started: end it as a job that died.
            tx.job_runs.report(launch.id, ExecCode.NOT_CONFIRMED, None)
            tx.outbox.append(Ask(JobAction.END, launch.id))
            return
        tx.events.add(failure.event, launch.id, str(failure), to_check=True, hosts=failure.hosts)
        if launch.data.is_reservation and consequence_of(failure.event).spares_reservations:
            tx.events.add(EventType.RESERVATION_NO_NODE, launch.id, str(failure), to_check=True)
        tx.job_runs.update(launch.id, phase=Phase.FAILED)
        tx.outbox.append(Wake(Tag.CHSTATE))


def _clean(launch: Launch, prepared: Collection[str]) -> None:
    """Clean the prepared nodes of a launch that the job resource manager handles."""
    config = launch.context.config
    hosts = set(launch.data.processors(config)).intersection(prepared)
    if hosts:
        data = job_data.manager_data(launch.data, config)
        with contextlib.suppress(ConfigError):  # in this case nothing was prepared
            nodes.manage(launch.context, NodeAction.CLEAN, hosts, data, nodes.manager_seconds(config))

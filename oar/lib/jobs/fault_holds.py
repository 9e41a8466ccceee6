"""Holds of launches: they begin with failed launches or a fault in oar.conf, and end when a check or a trial succeeds.

``oar.lib.jobs.launch_faults`` makes the decisions; this module reads the facts and stores the decisions.
See docs/design/events.rst, "Faults of several nodes", and docs/design/launch.rst, "Held launches".
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.bus.messages import Ask, JobAction, Mail, Tag, Wake
from oar.lib.history.event_types import EventType
from oar.lib.jobs import launch_faults, lifecycle
from oar.lib.jobs.launch_faults import Blame
from oar.lib.jobs.records import Job, LaunchFailure, LaunchHold
from oar.lib.jobs.states import JobState, JobTypeName, LaunchFault, Phase, QueueState, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Phases of a launch that its node has not been told of.
ONLY_SERVER_KNOWS = (Phase.CLAIMED, Phase.NODES_OK, Phase.PROLOGUE_OK)
#: What a job of a queue has to reach before failures of the queue's jobs are counted from the start again.
_SUCCESSES: Mapping[LaunchFault, JobState] = {
    LaunchFault.SERVER_SCRIPT: JobState.RUNNING,
    LaunchFault.SERVER_EPILOGUE: JobState.TERMINATED,
}


class Failed(NamedTuple):
    """A failed launch or a failed end of a job."""

    fault: LaunchFault
    job: Job
    node: str  #: '' if it failed on the server
    text: str


def common_faults(tx: "Transaction", faults: Collection[LaunchFault]) -> dict[LaunchFault, frozenset[str]]:
    """Return for each fault the users for whom it is common ('' for all users).

    A common fault is not caused by a single job or node.
    """
    tried = sorted(set(faults).intersection(launch_faults.TRIED))
    holds = tx.launch_holds.all() if tried else []
    common = {}
    for fault in tried:
        held = {hold.user for hold in holds if hold.fault is fault}
        failures = _failures_since_success(tx, fault)
        common[fault] = launch_faults.concerned_users(fault, failures, held, tx.resources.count_nodes())
    return common


def _failures_since_success(tx: "Transaction", fault: LaunchFault) -> list[LaunchFailure]:
    """Return the recent failures of a kind since the last successful start of a job.

    Frames of reservations run no program and are not counted as starts.
    """
    is_of_server = fault in launch_faults.OF_SERVER
    window = launch_faults.SERVER_WINDOW if is_of_server else launch_faults.NODE_WINDOW
    without = (JobTypeName.AR,) if is_of_server else launch_faults.WITHOUT_NODE
    failures = tx.events.failures(launch_faults.events_of(fault), tx.now - window)
    last = tx.launch_holds.last_start(failures[0].date, without) if failures else 0
    return [failure for failure in failures if failure.date >= last]


def note_failures(
    tx: "Transaction", failures: Sequence[Failed], common: Mapping[LaunchFault, Collection[str]], *, heals: bool
) -> None:
    """Hold the launches that would fail in the same way, and stop the queues in which several jobs failed in a row.

    ``heals``: OAR may set suspected nodes to Alive again.
    """
    for failed in failures:
        fault, user = failed.fault, failed.job.user
        users = common.get(fault, ())
        if fault in launch_faults.CHECKS:
            _hold(tx, failed, user, tx.now, is_confirmed=False)
            tx.outbox.append(Ask(JobAction.CHECK, 0, (failed.node,)))
        elif "" in users:
            _hold_and_mail(tx, failed, "", heals=heals)
        elif fault is LaunchFault.SERVER_SCRIPT or user in users:
            _hold_and_mail(tx, failed, user, heals=heals)
    for fault in {failed.fault for failed in failures} & _SUCCESSES.keys():
        _stop_failing_queues(tx, fault, {failed.job.queue for failed in failures if failed.fault is fault})


def _hold_and_mail(tx: "Transaction", failed: Failed, user: str, *, heals: bool) -> None:
    """Hold launches until a trial succeeds. Send a mail for the first hold of a user and for a hold of all users."""
    is_new = _hold(tx, failed, user, tx.now + launch_faults.pause_after(1), is_confirmed=True)
    others = [hold for hold in tx.launch_holds.all() if hold.fault is failed.fault]
    if not user:
        tx.launch_holds.lift([hold.id for hold in others if hold.user])
    if is_new and (not user or len(others) == 1):
        _mail(tx, failed.fault, user, failed.text)
    if is_new and heals and failed.fault is LaunchFault.PROLOGUE:
        _acquit_nodes(tx, failed.fault)
    for hold in others:
        if hold.trial_job == failed.job.id and hold.next_try <= tx.now:
            pause = launch_faults.pause_after(hold.failures + 1)
            tx.launch_holds.postpone(hold, tx.now + pause, failed.text, is_confirmed=True)


def _hold(tx: "Transaction", failed: Failed, user: str, next_try: int, *, is_confirmed: bool) -> bool:
    is_new = tx.launch_holds.hold(failed.fault, user, failed.node, next_try, failed.text, is_confirmed=is_confirmed)
    if is_new:
        reason = f"{launch_faults.describe(failed.fault, user)}: {failed.text}"
        text = f"launches of {user or 'all users'} are held: {reason}"
        tx.events.add(EventType.LAUNCHES_HELD, failed.job.id, text)
    return is_new


def _acquit_nodes(tx: "Transaction", fault: LaunchFault) -> None:
    """Request the state Alive for the nodes that were suspected before the fault was known to be common.

    No check would end the suspicion of these nodes.
    """
    names = {failure.node for failure in _failures_since_success(tx, fault)}
    resources = {one.id: one.network_address for one in tx.resources.of_nodes(names)}
    for_it = tuple(f"{type_}: " for type_ in launch_faults.events_of(fault))
    reasons = tx.nodes.reasons_of_resources(resources)
    nodes = {resources[one.resource] for one in reasons if not one.author and one.reason.startswith(for_it)}
    for node in sorted(nodes - relapsed_nodes(tx, nodes)):
        if tx.resources.ask_state_of_node(node, ResourceState.ALIVE, seen=ResourceState.SUSPECTED):
            text = f"[NodeChangeState] {node}: {launch_faults.COMMON}: {launch_faults.describe(fault, '')}"
            tx.events.add(EventType.FINAUD_RECOVER, 0, text, hosts=[node])


def _mail(tx: "Transaction", fault: LaunchFault, user: str, text: str) -> None:
    parts = (f"{launch_faults.describe(fault, user)}.", text, launch_faults.advise(fault, user))
    tx.outbox.append(
        Mail(f"Launches of {user or 'all users'} are held", "\n".join(part[:1].upper() + part[1:] for part in parts))
    )


def _stop_failing_queues(tx: "Transaction", fault: LaunchFault, queues: Iterable[str]) -> None:
    """Stop the queues in which ``QUEUE_FAILURES`` jobs of several users in a row failed on the server."""
    types, since = launch_faults.events_of(fault), tx.now - launch_faults.SERVER_WINDOW
    failures = tx.events.failures(types, since)
    for queue in sorted(queues):
        last = tx.launch_holds.last_success(since, queue, _SUCCESSES[fault], types)
        own = [failure for failure in failures if failure.queue == queue and failure.date >= last]
        if launch_faults.is_queue_failing(own) and tx.queues.set_state([queue], QueueState.NOT_ACTIVE):
            jobs = ", ".join(str(failure.job) for failure in own)
            text = f"The queue {queue} is stopped: {launch_faults.describe(fault, '')} for the jobs {jobs}."
            repair = launch_faults.TEXTS[fault].repair
            advice = f"{repair} OAR starts no job of the queue before you enable it: oarqueue --enable {queue}"
            tx.outbox.append(Mail(f"The queue {queue} is stopped", f"{text}\n{advice}"))


# -- faults of the configuration --------------------------------------------------------------------------------------


def hold_for_configuration(tx: "Transaction", fault: str, trial_job: int = 0) -> None:
    """Hold all launches because of a configuration fault; an existing hold for the same fault stays.

    ``trial_job``: the job whose launch found the fault; its next launch is the first trial. Without a trial job the
    Runner detects the fault and its repair (``end_repaired``).
    """
    present = configuration_hold(tx)
    if present and trial_job:
        if present.trial_job == trial_job and present.next_try <= tx.now:
            pause = launch_faults.pause_after(present.failures + 1, LaunchFault.CONFIGURATION)
            tx.launch_holds.postpone(present, tx.now + pause, fault, is_confirmed=True)
            if present.reason != fault:
                _tell_configuration_fault(tx, fault)
        return
    if present and launch_faults.is_watched(present) and present.reason == fault:
        return
    if present:
        tx.launch_holds.lift([present.id])
    next_try = tx.now + launch_faults.pause_after(1)
    if tx.launch_holds.hold(LaunchFault.CONFIGURATION, "", "", next_try, fault, is_confirmed=True, trial_job=trial_job):
        _tell_configuration_fault(tx, fault)


def configuration_hold(tx: "Transaction") -> LaunchHold | None:
    """Return the hold for a configuration fault; return None if there is none."""
    return next((hold for hold in tx.launch_holds.all() if hold.fault is LaunchFault.CONFIGURATION), None)


def _tell_configuration_fault(tx: "Transaction", fault: str) -> None:
    """Write the event of a hold; send a mail unless the same fault was mailed within a day."""
    tx.events.add(EventType.LAUNCH_CONFIGURATION_ERROR, 0, f"[Runner] {fault}")
    if not tx.events.was_mailed(fault):
        tx.events.add(EventType.FAULT_MAILED, 0, fault)
        text = f"{fault}\nNo job is started until this is repaired; then OAR starts jobs again by itself."
        tx.outbox.append(Mail("No job is started", text))


def end_repaired(tx: "Transaction") -> bool:
    """End the hold for a fault that the Runner detected and that is repaired; return whether launches are resumed.

    Keep the hold during the first pause: bipbip processes may have read an earlier configuration.
    """
    hold = configuration_hold(tx)
    if hold is None or not launch_faults.is_watched(hold) or tx.now < hold.next_try:
        return False
    key = re.match(r"[A-Z][A-Z0-9_]*(?=:)", hold.reason)
    lift(tx, [hold], f"the fault of {key[0] if key else 'oar.conf'} is repaired")
    return True


def hold_launch(tx: "Transaction", job_id: int, fault: str) -> bool:
    """Hold all launches, including this one, because of a configuration fault; return False if this launch continues.

    It continues if the node of the job may have received it, or if it has begun and the job has a kill request.
    A job whose launch has not been claimed returns to its queue and loses its resources. A reservation keeps its
    resources, and so does a job whose launch has begun.
    """
    tx.jobs.hold([job_id])
    job, run = tx.jobs.get(job_id), tx.job_runs.find(job_id)
    if job.state is JobState.TO_LAUNCH:
        if job.reservation is Reservation.NONE and lifecycle.move(tx, job_id, JobState.WAITING):
            tx.jobs.take_back(job_id)
    elif (
        job.state is not JobState.LAUNCHING
        or (run and run.phase not in ONLY_SERVER_KNOWS)
        or tx.job_requests.find_kill(job_id)
    ):
        return False
    hold_for_configuration(tx, fault)
    return True


def may_go_on(tx: "Transaction", job: Job, types: JobTypes) -> bool:
    """Return whether a launch that has begun may continue.

    It may not continue while another job is the trial, nor before the next trial of the hold.
    """
    hold = configuration_hold(tx)
    if hold is None or launch_faults.is_watched(hold) or launch_faults.is_over(hold):
        return True
    if hold.trial_job == job.id:
        return hold.next_try <= tx.now
    if not launch_faults.concerns(hold, job.user, types):
        return True
    return launch_faults.may_launch(hold, tx.now) and tx.launch_holds.begin_trial(hold, job.id)


# -- the end of holds -------------------------------------------------------------------------------------------------


def lift(tx: "Transaction", holds: Sequence[LaunchHold], why: str) -> None:
    """End holds, so that the scheduler can start the jobs again."""
    tx.launch_holds.lift([hold.id for hold in holds])
    for hold in holds:
        whose = f"launches of {hold.user}" if hold.user else "launches"
        tx.events.add(EventType.LAUNCHES_RESUMED, 0, f"{whose} are resumed: {why}")
    if holds:
        tx.outbox.append(Wake(Tag.QRESUME))


def end_holds(tx: "Transaction", holds: Sequence[LaunchHold]) -> None:
    """End the holds that are no longer needed.

    These are holds whose trial job was launched, holds of users without jobs, and holds without a job for the next
    trial.
    """
    over = [hold for hold in holds if launch_faults.is_over(hold)]
    for hold in over:
        _check_nodes(tx, hold)
        lift(tx, [hold], f"the job {hold.trial_job} was launched")
    pointless = [hold for hold in holds if launch_faults.is_pointless(hold) and hold not in over]
    users = tx.launch_holds.users_with_jobs({hold.user for hold in pointless}) if pointless else ()
    left = [hold for hold in pointless if hold.user not in users]
    lift(tx, left, "no job of this user is left")
    due = [hold for hold in holds if launch_faults.may_launch(hold, tx.now) and hold not in left]
    idle = [hold for hold in due if not tx.launch_holds.has_jobs(hold.user, launch_faults.spared_types(hold))]
    lift(tx, idle, "no job waits for them")


def _check_nodes(tx: "Transaction", hold: LaunchHold) -> None:
    """Request an immediate check of the nodes suspected for a repaired fault, if a check can end their suspicion."""
    failures = tx.events.failures(launch_faults.events_of(hold.fault), hold.began - launch_faults.NODE_WINDOW)
    nodes = {failure.node for failure in failures} & tx.nodes.due_checks().keys()
    if nodes:
        tx.outbox.append(Ask(JobAction.CHECK, 0, tuple(sorted(nodes))))


def store_check(tx: "Transaction", hold: LaunchHold, blame: Blame, witnesses: Collection[str]) -> None:
    """Store the result of a check of a hold."""
    match blame:
        case Blame.NOBODY | Blame.NODE:
            nodes = hold.node if blame is Blame.NOBODY else ", ".join(sorted(witnesses))
            lift(tx, [hold], f"the check succeeds on {nodes}")
        case Blame.SERVICE | Blame.USER | Blame.UNKNOWN:
            is_confirmed = hold.is_confirmed or blame is not Blame.UNKNOWN or hold.failures > 1
            is_first = not any(other.is_confirmed for other in tx.launch_holds.all() if other.fault is hold.fault)
            nodes = ", ".join(sorted({hold.node, *witnesses}))
            text = f"{launch_faults.describe(hold.fault, hold.user)} on {nodes}"
            pause = launch_faults.pause_after(hold.failures)
            tx.launch_holds.postpone(hold, tx.now + pause, text, is_confirmed=is_confirmed)
            if is_first and is_confirmed:
                _mail(tx, hold.fault, hold.user, f"Seen on {nodes}.")


def relapsed_nodes(tx: "Transaction", nodes: Collection[str]) -> frozenset[str]:
    """Return the nodes whose suspicion OAR has ended too often within ``LIFTS_SECONDS``."""
    if not nodes:
        return frozenset()
    histories = tx.events.of_nodes(nodes, since=tx.now - launch_faults.LIFTS_SECONDS)
    return frozenset(node for node, events in histories.items() if launch_faults.has_relapsed(events))

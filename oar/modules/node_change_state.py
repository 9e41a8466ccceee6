"""NodeChangeState: handle events, and apply the requested changes of resource states.

``oar.lib.history.event_consequences`` decides the consequences of an event. They are carried out here, in the
transaction that marks the event as done. The events of a pass share transactions, so a burst of ends needs only a few
statements.

See docs/design/events.rst, "Consequences".
"""

import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from oar.lib.base.errors import Bug, UserError
from oar.lib.bus.exit_codes import NodeChangeStateCode
from oar.lib.bus.messages import Ask, Mail, Tag, Wake
from oar.lib.history import event_consequences, node_reboots
from oar.lib.history.event_consequences import ConsequenceSettings, JobFacts, Verdict, consequence_of, event_type
from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event
from oar.lib.jobs import control, launch_holds, lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.launch_holds import Failed
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState, LaunchFault
from oar.lib.nodes import state_changes
from oar.lib.nodes.state_changes import Suspicion
from oar.lib.submission import resubmission
from oar.lib.submission.resource_request import JobTypes
from oar.modules import worker
from oar.modules.runner.actions.nodes import site_manager
from oar.modules.worker import run_in_batches

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.runtime import Runtime


#: Events that other modules handle.
_OF_OTHERS = (
    *(EventType.NODE_SWEPT, EventType.NODE_LEAVES, EventType.NODE_SURVEY),
    *(EventType.HALT_NODE, EventType.WAKEUP_NODE),
)
#: Number of events that are read at a time.
READ = 1000
#: Events of nodes that do not answer.
_UNREACHED = (EventType.PING_CHECKER_NODE_SUSPECTED, EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB)
#: Events of a kill.
_KILLS = (EventType.SEND_KILL_JOB, EventType.BESTEFFORT_KILL)


def run(runtime: "Runtime") -> int:
    """Run one pass. Return 2 if a job must be killed, 1 if a resource changed, else 0."""
    suspected = _treat_events(runtime)
    is_due = runtime.database.look(
        state_changes.is_change_due
    )  # a pass after the end of a job usually finds nothing to change
    changes = run_in_batches(runtime.database, [runtime.config], _change_nodes) if is_due else []
    if any(change.doomed for change in changes):
        return NodeChangeStateCode.KILL
    has_changed = suspected or any(change.moved for change in changes)
    return NodeChangeStateCode.SCHEDULE if has_changed else NodeChangeStateCode.NOTHING


def _change_nodes(tx: "Transaction", configs: "Sequence[Config]") -> state_changes.StateChanges:
    """Apply the requested state changes. Request the end of the jobs on resources that are withdrawn."""
    config = configs[0]
    changes = state_changes.apply_pending(tx, sweeps=_site(config).confines)
    ends = {job: Cause(EndCode.NODE_TAKEN, {"nodes": list(names)}) for job, names in changes.doomed.items()}
    control.ask_end(tx, ends, with_inner=config.kill_inner_jobs_with_container)
    return changes


def _site(config: "Config") -> ConsequenceSettings:
    return ConsequenceSettings(
        confines=config.job_resource_manager_property_db_field is not None,
        has_own_manager=site_manager(config) is not None,
        max_resubmissions=config.max_automatic_resubmissions,
        heals=not config.disable_suspected_nodes_repair,
        has_standby=len(config.server_hostnames) > 1,
    )


def _treat_events(runtime: "Runtime") -> bool:
    """Handle the pending events. Return whether a resource changed."""
    work = partial(_treat, site=_site(runtime.config))
    changed, last = False, 0
    while True:
        events = runtime.database.look(partial(_pending, after=last))
        own_events = [event for event in events if event.type not in _OF_OTHERS]
        changed |= any(run_in_batches(runtime.database, own_events, work))
        if len(events) < READ:
            return changed
        last = events[-1].id


def _pending(tx: "Transaction", *, after: int) -> list[Event]:
    return tx.events.pending(READ, after=after)


def _treat(tx: "Transaction", events: Sequence[Event], *, site: ConsequenceSettings) -> bool:
    """Decide the consequences of events and carry them out. Return whether a resource changed."""
    claimed = tx.events.claim([event.id for event in events])
    events = [event for event in events if event.id in claimed]
    faults = {fault for event in events if (fault := launch_holds.fault_of(event_type(event.type)))}
    common = launch_holds.common_faults(tx, faults)
    facts = _gather(tx, events, common)
    decisions = []
    for event in events:
        job_facts = facts.get(event.job_id)
        verdict = event_consequences.judge(event, job_facts, site)
        decisions.append(_Decision(event, job_facts, verdict))
        if job_facts and verdict.state:
            facts[event.job_id] = event_consequences.after(job_facts, verdict.state)
    changed = _carry_out(tx, decisions, heals=site.heals)
    if site.has_standby and any(event.type in _UNREACHED for event in events):
        tx.outbox.append(Wake(Tag.REACHABILITY))  # Finaud finds out whether this server has lost its nodes
    if faults:
        launch_holds.note_failures(tx, _failures(decisions), common, heals=site.heals)
    return changed


def _failures(decisions: "Sequence[_Decision]") -> list[Failed]:
    """Return the failures among events.

    A failure on nodes counts only for jobs whose command runs on a cluster node.
    """
    failures = []
    for decision in decisions:
        fault = launch_holds.fault_of(event_type(decision.event.type))
        if fault is None or decision.facts is None:
            continue
        if fault not in launch_holds.OF_SERVER and not decision.event.hosts:
            continue
        node = decision.event.hosts[0] if decision.event.hosts else ""
        failures.append(Failed(fault, decision.job, node, decision.event.description))
    return failures


# -- facts about the jobs ---------------------------------------------------------------------------------------------


def _gather(
    tx: "Transaction", events: Sequence[Event], common: Mapping[LaunchFault, Collection[str]]
) -> dict[int, JobFacts]:
    """Lock the jobs of these events. Return the facts about them that the decisions need.

    ``common``: for each fault, the users for whom it is common, '' for all users.
    """
    jobs = tx.jobs.lock_all({event.job_id for event in events if event.job_id})
    types = tx.jobs.types(jobs) if jobs else {}
    of_jobs = [(event_type(event.type), jobs[event.job_id]) for event in events if event.job_id in jobs]
    hosts = _hosts(tx, {job.id for type_, job in of_jobs if event_consequences.suspects_job_hosts(type_)})
    rerun = {job.id for type_, job in of_jobs if event_consequences.may_be_rerun(type_, job)}
    standings = tx.new_jobs.resubmission_facts(rerun)
    kills = tx.events.having(rerun, _KILLS) if rerun else set()
    checked_hosts = {host for event in events if consequence_of(event_type(event.type)).check for host in event.hosts}
    relapsed = launch_holds.relapsed_nodes(tx, checked_hosts)  # their suspicion was ended by too many checks
    unstable = node_reboots.unstable_hosts(tx, events)
    is_common = {
        job.id
        for type_, job in of_jobs
        if (fault := launch_holds.fault_of(type_)) and not {"", job.user}.isdisjoint(common.get(fault, ()))
    }
    facts = {}
    for job_id, job in jobs.items():
        facts[job_id] = JobFacts(
            job,
            JobTypes(types.get(job_id, ())),
            hosts.get(job_id, ()),
            unstable_hosts=unstable,
            relapsed_hosts=relapsed,
            is_common=job_id in is_common,
        )
        if job_id in rerun:
            facts[job_id] = facts[job_id]._replace(
                has_kill_request=standings[job_id].kill_asked,
                was_resubmitted=standings[job_id].was_resubmitted,
                oarexec_code=standings[job_id].oarexec_code,
                kill_sent=(job_id, EventType.SEND_KILL_JOB) in kills,
                besteffort_kill=(job_id, EventType.BESTEFFORT_KILL) in kills,
                chain=tx.new_jobs.chain_length(job_id),
            )
    return facts


def _hosts(tx: "Transaction", ids: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Return the nodes of jobs, sorted."""
    assigned = tx.jobs.assigned(ids, current=True) if ids else {}
    return {
        job_id: tuple(sorted({resource.network_address for resource in resources if resource.type == "default"} - {""}))
        for job_id, resources in assigned.items()
    }


# -- carrying out -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Decision:
    """An event with the verdict about it."""

    event: Event
    facts: JobFacts | None
    verdict: Verdict

    @property
    def job(self) -> Job:
        """Return the job of the event. A verdict that concerns a job always has one."""
        if self.facts is None:
            raise Bug(f"the event {self.event.id} has no job")
        return self.facts.job

    @property
    def is_repeatable(self) -> bool:
        """Return whether a crash of PostgreSQL may undo the decision: a job ended well, and its end report is on disk.

        After a crash, the job is still Finishing and ends again with the same exit code. Return False if this would
        repeat a notice.
        """
        is_good = self.verdict == Verdict(state=JobState.TERMINATED)
        is_end = self.event.type == EventType.SWITCH_INTO_TERMINATE_STATE
        return is_end and is_good and not (self.job.notify or self.job.suspended)


def _carry_out(tx: "Transaction", decisions: Sequence[_Decision], *, heals: bool) -> bool:
    """Carry out decisions. Return whether a resource changed. ``heals``: whether suspected nodes are repaired."""
    _resubmit(tx, decisions)  # first, because the end of a job deletes its keys
    _move(tx, decisions)
    changed = _suspect(tx, decisions, heals=heals)
    for decision in decisions:
        _tell(tx, decision)
    tx.events.done([decision.event.id for decision in decisions if not decision.verdict.pending])
    if all(decision.is_repeatable for decision in decisions):
        tx.commit_asynchronously()
    return changed


def _resubmit(tx: "Transaction", decisions: Sequence[_Decision]) -> None:
    for decision in decisions:
        refusal = decision.verdict.not_resubmitted
        if decision.verdict.resubmit:
            refusal = _submit_copy(tx, decision)
        if refusal:
            text = f"[NodeChangeState] job {decision.job.id} is not submitted again: {refusal}"
            tx.events.add(EventType.RESUBMIT_JOB_AUTOMATICALLY_CANCELLED, decision.job.id, text)


def _submit_copy(tx: "Transaction", decision: _Decision) -> str:
    """Submit a copy of the job. Return the error if it cannot be submitted, else ''."""
    old = decision.job.id
    try:
        new = resubmission.copy(tx, old, automatically=True)
    except UserError as error:
        return str(error)
    text = f"[NodeChangeState] {decision.event.type}: job {old} is submitted again (new id = {new})"
    tx.events.add(EventType.RESUBMIT_JOB_AUTOMATICALLY, old, text)
    tx.outbox.append(Wake(Tag.QSUB))
    return ""


def _move(tx: "Transaction", decisions: Sequence[_Decision]) -> None:
    """Move the jobs in batches. Two moves of the same job keep their order."""
    wave: dict[JobState, list[int]] = defaultdict(list)
    for decision in decisions:
        if decision.verdict.state is None:
            continue
        if any(decision.job.id in ids for ids in wave.values()):
            _move_wave(tx, wave)
            wave.clear()
        wave[decision.verdict.state].append(decision.job.id)
    _move_wave(tx, wave)


def _move_wave(tx: "Transaction", wave: Mapping[JobState, Sequence[int]]) -> None:
    for state, ids in wave.items():
        lifecycle.move_all(tx, ids, state)


def _suspect(tx: "Transaction", decisions: Sequence[_Decision], *, heals: bool) -> bool:
    """Make nodes Suspected. Return whether the state of any node changed."""
    suspects: dict[tuple[bool, bool], dict[str, Suspicion]] = defaultdict(dict)
    for decision in decisions:
        event = decision.event
        for host in decision.verdict.suspects:
            reasons = suspects[decision.verdict.by_finaud, bool(event.hosts)]
            reasons.setdefault(host, Suspicion(f"{event.type}: {event.description}", decision.verdict.check))
    changed = [
        state_changes.suspect(tx, reasons, finaud=by_finaud, heals=heals, named=named, reasons=reasons)
        for (by_finaud, named), reasons in suspects.items()
    ]
    state_changes.ask_return(tx, {host for decision in decisions for host in decision.verdict.returning})
    for host in sorted({host for decision in decisions for host in decision.verdict.unstable}):
        text = f"[NodeChangeState] {host} was rebooted under jobs more than {node_reboots.REBOOTS_FORGIVEN} times"
        tx.events.add(EventType.LOG_SUSPECTED, 0, f"{text} within a day: it stays Suspected", hosts=[host])
    return any(changed)


def _tell(tx: "Transaction", decision: _Decision) -> None:
    """Send the messages of a decision to the Runner, the automaton and the user."""
    verdict = decision.verdict
    if verdict.refused:
        tx.events.add(EventType.SUSPEND_ERROR, decision.job.id, f"[NodeChangeState] {verdict.refused}")
    if verdict.mail:
        tx.outbox.append(Mail("The description of resources is wrong", verdict.mail))
    if verdict.notice and decision.job.notify:
        tx.outbox.append(control.deletion_notice(decision.job, decision.event))
    if verdict.action:
        tx.outbox.append(Ask(verdict.action, decision.job.id))
    if verdict.tag and Wake(verdict.tag) not in tx.outbox:
        tx.outbox.append(Wake(verdict.tag))


def main() -> int:
    return worker.main("node_change_state", run)


if __name__ == "__main__":
    sys.exit(main())

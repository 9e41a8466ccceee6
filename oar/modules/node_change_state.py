"""NodeChangeState: works off events and pending states of resources (server.md 5.3).

An event is judged by ``oar.lib.incidents``; what the verdict says is done here, in the transaction that clears the
event.  The events of a pass share transactions, so that a burst of ends costs a few statements.
"""

import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from oar.lib import control, incidents, lifecycle, nodes, resubmission
from oar.lib.errors import Bug, UserError
from oar.lib.incidents import JobFacts, Site, Verdict
from oar.lib.messages import Ask, JobAction, Mail, Tag, Wake
from oar.lib.model import Cause, Event, Job
from oar.lib.request import JobTypes
from oar.lib.states import EndCode, EventType, JobState, QueueState
from oar.modules import worker
from oar.modules.guard import in_groups

if TYPE_CHECKING:
    from oar.lib.config import Config
    from oar.lib.db.engine import Transaction
    from oar.lib.runtime import Runtime

NOTHING, SCHEDULE, KILL = 0, 1, 2

#: What the oarsub of a held interactive job is told.
HELD = "Start prediction: undefined (Hold)"

#: Events that somebody else acts on.
_OF_OTHERS = (EventType.NODE_SWEPT, EventType.HALT_NODE, EventType.WAKEUP_NODE)

#: Events that are read at a time.
READ = 1000

#: Events that tell why a job was killed.
_KILLS = (EventType.SEND_KILL_JOB, EventType.BESTEFFORT_KILL)


def run(runtime: "Runtime") -> int:
    """Make one pass; return 2 if a job must be killed, 1 if a resource changed, else 0."""
    suspected = _treat_events(runtime)
    changes = in_groups(runtime.database, [runtime.config], _change_nodes)
    if any(change.doomed for change in changes):
        return KILL
    return SCHEDULE if suspected or any(change.moved for change in changes) else NOTHING


def _change_nodes(tx: "Transaction", configs: "Sequence[Config]") -> nodes.Changes:
    """Apply the changes of state that were asked, and end the jobs on what goes away."""
    config = configs[0]
    changes = nodes.apply_pending(tx, sweeps=_site(config).confines)
    ends = {job: Cause(EndCode.NODE_TAKEN, {"nodes": list(names)}) for job, names in changes.doomed.items()}
    control.ask_end(tx, ends, with_inner=config.kill_inner_jobs_with_container)
    return changes


def _site(config: "Config") -> Site:
    return Site(config.job_resource_manager_property_db_field is not None, config.max_automatic_resubmissions)


def _treat_events(runtime: "Runtime") -> bool:
    """Treat the events that are to be checked; return whether a resource changed."""
    work = partial(_treat, site=_site(runtime.config))
    changed, last = False, 0
    while True:
        with runtime.database.snapshot() as tx:
            events = tx.events.pending(READ, after=last)
        changed |= any(in_groups(runtime.database, [one for one in events if one.type not in _OF_OTHERS], work))
        if len(events) < READ:
            return changed
        last = events[-1].id


def _treat(tx: "Transaction", events: Sequence[Event], *, site: Site) -> bool:
    """Decide about some events and do it; return whether a resource changed."""
    claimed = tx.events.claim([event.id for event in events])
    events = [event for event in events if event.id in claimed]
    facts = _gather(tx, events)
    decisions = []
    for event in events:
        known = facts.get(event.job_id)
        verdict = incidents.judge(event, known, site)
        decisions.append(_Decision(event, known, verdict))
        if known and verdict.state:
            facts[event.job_id] = incidents.after(known, verdict.state)
    return _carry_out(tx, decisions)


# -- what is known of the jobs ----------------------------------------------------------------------------------------


def _gather(tx: "Transaction", events: Sequence[Event]) -> dict[int, JobFacts]:
    """Return what the judgement of these events needs to know of their jobs, which are locked."""
    jobs = tx.jobs.lock_all({event.job_id for event in events if event.job_id})
    types = tx.jobs.types(jobs) if jobs else {}
    of_jobs = [(incidents.event_type(event.type), jobs[event.job_id]) for event in events if event.job_id in jobs]
    hosts = _hosts(tx, {job.id for type_, job in of_jobs if incidents.blames_job_hosts(type_)})
    rerun = {job.id for type_, job in of_jobs if incidents.may_be_rerun(type_, job)}
    standings = tx.runs.standings(rerun)
    kills = tx.events.having(rerun, _KILLS) if rerun else set()
    facts = {}
    for job_id, job in jobs.items():
        facts[job_id] = JobFacts(job, JobTypes(types.get(job_id, ())), hosts.get(job_id, ()))
        if job_id in rerun:
            facts[job_id] = facts[job_id]._replace(
                kill_asked=standings[job_id].kill_asked,
                was_resubmitted=standings[job_id].was_resubmitted,
                oarexec_code=standings[job_id].oarexec_code,
                kill_sent=(job_id, EventType.SEND_KILL_JOB) in kills,
                besteffort_kill=(job_id, EventType.BESTEFFORT_KILL) in kills,
                chain=tx.runs.chain_of_resubmissions(job_id),
            )
    return facts


def _hosts(tx: "Transaction", ids: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Return the nodes of jobs, sorted."""
    assigned = tx.jobs.assigned(ids, current=True) if ids else {}
    return {
        job_id: tuple(sorted({one.network_address for one in held if one.type == "default"} - {""}))
        for job_id, held in assigned.items()
    }


# -- what is done -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Decision:
    """What is to be done about an event."""

    event: Event
    facts: JobFacts | None
    verdict: Verdict

    @property
    def job(self) -> Job:
        """The job of an event whose verdict concerns one."""
        if self.facts is None:
            raise Bug(f"the event {self.event.id} has no job")
        return self.facts.job


def _carry_out(tx: "Transaction", decisions: Sequence[_Decision]) -> bool:
    """Do what was decided, with all its traces; return whether a resource changed."""
    _resubmit(tx, decisions)  # first: the keys of a job are copied before its end blanks them
    _move(tx, decisions)
    changed = _suspect(tx, decisions)
    if any(one.verdict.stops_queues for one in decisions):
        _stop_queues(tx, decisions)
    for one in decisions:
        _tell(tx, one)
    tx.events.done([one.event.id for one in decisions if not one.verdict.pending])
    return changed


def _resubmit(tx: "Transaction", decisions: Sequence[_Decision]) -> None:
    for one in decisions:
        reason = one.verdict.not_resubmitted
        if one.verdict.resubmit:
            reason = _submit_again(tx, one)
        if reason:
            text = f"[NodeChangeState] job {one.job.id} is not submitted again: {reason}"
            tx.events.add(EventType.RESUBMIT_JOB_AUTOMATICALLY_CANCELLED, one.job.id, text)


def _submit_again(tx: "Transaction", decision: _Decision) -> str:
    """Submit a copy of the job; return why not, if it cannot be."""
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
    """Move the jobs, many at once; one that moves twice does so in order."""
    wave: dict[JobState, list[int]] = defaultdict(list)
    for one in decisions:
        if one.verdict.state is None:
            continue
        if any(one.job.id in ids for ids in wave.values()):
            _move_wave(tx, wave)
            wave.clear()
        wave[one.verdict.state].append(one.job.id)
    _move_wave(tx, wave)


def _move_wave(tx: "Transaction", wave: Mapping[JobState, Sequence[int]]) -> None:
    for state, ids in wave.items():
        lifecycle.move_all(tx, ids, state)


def _suspect(tx: "Transaction", decisions: Sequence[_Decision]) -> bool:
    """Make nodes Suspected; return whether any was not yet."""
    suspects: dict[tuple[bool, bool], set[str]] = defaultdict(set)
    for one in decisions:
        if one.verdict.suspects:
            suspects[one.verdict.by_finaud, bool(one.event.hosts)].update(one.verdict.suspects)
    changed = [
        nodes.suspect(tx, hosts, finaud=by_finaud, named=named) for (by_finaud, named), hosts in suspects.items()
    ]
    return any(changed)


def _stop_queues(tx: "Transaction", decisions: Sequence[_Decision]) -> None:
    if not tx.queues.set_state(None, QueueState.NOT_ACTIVE):
        return
    reasons = [f"{one.event.type}: {one.event.description}" for one in decisions if one.verdict.stops_queues]
    text = "\n".join([*reasons, "When it is repaired, let the jobs be scheduled again: run `oarnotify -E`"])
    tx.outbox.append(Mail("Stop all scheduling queues", text))


def _tell(tx: "Transaction", decision: _Decision) -> None:
    """Leave what the Runner, the automaton and the user are told."""
    verdict = decision.verdict
    if verdict.refused:
        tx.events.add(EventType.SUSPEND_ERROR, decision.job.id, f"[NodeChangeState] {verdict.refused}")
    if verdict.held:
        tx.outbox.append(Ask(JobAction.TELL, decision.job.id, (HELD,)))
    if verdict.notice and decision.job.notify:
        tx.outbox.append(control.deletion_notice(decision.job, decision.event))
    if verdict.action:
        tx.outbox.append(Ask(verdict.action, decision.job.id))
    if verdict.tag and Wake(verdict.tag) not in tx.outbox:
        tx.outbox.append(Wake(verdict.tag))


def main() -> int:
    """Run as a program."""
    return worker.main("node_change_state", run)


if __name__ == "__main__":
    sys.exit(main())

"""Apply launch holds to a plan: each hold whose pause has ended allows one trial, and no other start.

The other jobs of such a hold are the rivals of its trial.  They must not take resources from jobs outside the hold: the
round is planned again without them.

See docs/design/events.rst, "Faults of several nodes".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from oar.kao.facts import reasons
from oar.kao.facts.plan import Placement, Plan, Reason
from oar.kao.rounds.reading.situation import Situation
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import launch_holds
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import LaunchHold
from oar.lib.jobs.states import JobTypeName, Reservation
from oar.lib.submission.resource_request import JobTypes

#: Jobs, each with the holds that concern it.
_Concerned = Mapping[int, Sequence[LaunchHold]]


def find_rivals(situation: Situation, plan: Plan) -> frozenset[int]:
    """Return the jobs that must not be planned while another job is the trial of their hold.

    Reservations keep their placements.  The set is empty if no rival has a placement, so that nothing is gained.
    """
    concerned = _concerned_jobs(situation)
    if not concerned:
        return frozenset()
    rivals = {
        job_id
        for job_id in concerned.keys() - _choose_trials(situation, plan, concerned)
        if situation.rows[job_id].reservation is Reservation.NONE
    }
    placed = {place.job_id for place in plan.placements} | {kill.for_job for kill in plan.kills}
    return frozenset(rivals if rivals & placed else ())


def restrain(situation: Situation, plan: Plan) -> Plan:
    """Return the plan without forbidden starts and the kills for them; the jobs get the hold as their reason."""
    concerned = _concerned_jobs(situation)
    if not concerned:
        return plan
    refused = (concerned.keys() & _due_jobs(plan)) - _choose_trials(situation, plan, concerned)
    if not refused:
        return plan
    return replace(
        plan,
        started=tuple(start for start in plan.started if start.placement.job_id not in refused),
        kills=tuple(kill for kill in plan.kills if kill.for_job not in refused),
        reasons={**plan.reasons, **{job_id: reason_of(concerned[job_id][0]) for job_id in refused}},
    )


def begin_trials(tx: Transaction, situation: Situation, starting: Collection[int]) -> set[int]:
    """Record trials of holds among the starting jobs; return the jobs whose hold has changed: they must not start."""
    concerned = _concerned_jobs(situation) if starting else {}
    trials = {job_id: concerned[job_id] for job_id in starting if job_id in concerned}
    return {
        job_id
        for job_id, holds in trials.items()
        if not all(tx.launch_holds.begin_trial(hold, job_id) for hold in holds)
    }


def reason_of(hold: LaunchHold) -> Reason:
    """Return the reason of jobs that wait because of a hold."""
    return reasons.launch_held(hold.fault, hold.user, launch_holds.describe_hold(hold), hold.next_try)


def _concerned_jobs(situation: Situation) -> _Concerned:
    """Return the planned jobs to which holds apply; frames of advance reservations are excluded."""
    holds = [hold for hold in situation.launch_holds if not launch_holds.is_over(hold)]
    concerned = {}
    for job in situation.snapshot.waiting if holds else ():
        types = JobTypes(job.types)
        concerning = [hold for hold in holds if launch_holds.concerns(hold, job.user, types)]
        if concerning and JobTypeName.AR not in types:
            concerned[job.id] = concerning
    return concerned


def _choose_trials(situation: Situation, plan: Plan, concerned: _Concerned) -> set[int]:
    """Return the trials: the first job to start for each hold whose pause has ended.

    A user whose trial has failed comes after other users.  Otherwise a job that always fails would be every trial and
    block the jobs of other users.
    """
    started, due = {start.placement.job_id for start in plan.started}, _due_jobs(plan)

    def turn(place: Placement) -> tuple[bool, bool, bool, int]:
        job_id = place.job_id
        repeats = any(hold.trial_user == situation.rows[job_id].user for hold in concerned[job_id])
        return job_id not in started, job_id not in due, repeats, place.start

    now, tried, trials = situation.snapshot.now, set[int](), set[int]()
    for place in sorted((place for place in plan.placements if place.job_id in concerned), key=turn):
        holds = concerned[place.job_id]
        if all(launch_holds.may_launch(hold, now) and hold.id not in tried for hold in holds):
            tried |= {hold.id for hold in holds}
            trials.add(place.job_id)
    return trials


def _due_jobs(plan: Plan) -> set[int]:
    """Return the jobs that start, and those that only wait for other jobs to end."""
    started = {start.placement.job_id for start in plan.started}
    clearing = {kill.for_job for kill in plan.kills}
    launching = (job_id for job_id, reason in plan.reasons.items() if reason.code is ReasonCode.LAUNCH)
    return started | clearing | {job_id for job_id in launching if "jobs" in plan.reasons[job_id].data}

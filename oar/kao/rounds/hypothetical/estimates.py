"""Estimates for the current situation: of a submission, and of the smallest change that lets a job start now.

The database is read in one read-only transaction, as by a round; nothing is written.  Limits of a round do not apply,
except for reservations, which the next round decides; ESTIMATE_TIMEOUT limits the time.  Programs of the site are not
run: the numbers of free tokens come from the reasons of the last round.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from oar.kao.facts.queue_policies import policy_of
from oar.kao.planner.schedule import Round
from oar.kao.rounds.hypothetical import what_if
from oar.kao.rounds.hypothetical.estimate_records import Estimate, Estimates, estimates_from
from oar.kao.rounds.hypothetical.hypothetical_jobs import hypothetical_jobs
from oar.kao.rounds.hypothetical.what_if import NoTime, without_limits
from oar.kao.rounds.reading.situation import HypotheticalJob, Situation, TokenCounts
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.kao.rounds.site import plugins
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.reason_codes import ReasonCode
from oar.lib.jobs.records import WaitReason
from oar.lib.submission.dependencies import find_for_each_job
from oar.lib.submission.proposal import Proposal

#: Of a token of which nothing is known, there are enough.
ENOUGH = 2**31

OWN_SCHEDULER = "the queue {} has a scheduler of its own, {}, which cannot be asked beforehand"


def present(database: Database, config: Config, hypothetical: Sequence[HypotheticalJob] = ()) -> Situation:
    """Return the current situation, including hypothetical jobs."""
    return SnapshotReader(database, config).read(_tokens(database, config.scheduler_token_scripts or {}), hypothetical)


def _tokens(database: Database, scripts: Collection[str]) -> TokenCounts:
    """Return a function that returns the free tokens according to the reasons of waiting jobs.

    ``scripts``: the names of the tokens that are counted.
    """
    with database.snapshot() as tx:
        reasons = [
            json.loads(each.data) for each in tx.job_waits.stored_reasons().values() if each.code == ReasonCode.TOKEN
        ]
    counts = {reason["token"]: reason.get("have") for reason in reasons}

    def tokens(names: Iterable[str]) -> Mapping[str, int | None]:
        return {name: counts.get(name, ENOUGH) for name in names if name in scripts}

    return tokens


def smallest_changes(database: Database, config: Config, jobs: Collection[int]) -> dict[int, str | None]:
    """Return the smallest change of each waiting job's request with which the job starts now.

    The text is '' if no change is sufficient, and None if ESTIMATE_TIMEOUT ended the search.
    """
    elapsed = _stopwatch()
    snapshot, site = present(database, config).snapshot, plugins.site_of(config)
    planned_here = {queue.name for queue in snapshot.queues if policy_of(queue.policy) is not None}
    queues = {job.id: job.queue for job in snapshot.waiting}
    changes: dict[int, str | None] = dict.fromkeys(sorted(jobs), "")
    for job_id in changes:
        if queues.get(job_id) in planned_here:
            try:
                change = what_if.smallest_change(snapshot, job_id, site, elapsed, config.estimate_timeout)
            except NoTime:
                changes[job_id] = None
            else:
                changes[job_id] = change.text if change else ""
    return changes


def _stopwatch() -> Callable[[], float]:
    """Return a function that returns the seconds since this call."""
    begin = time.monotonic()
    return lambda: time.monotonic() - begin


def submissions(database: Database, config: Config, proposal: Proposal) -> Estimates:
    """Return the estimates of the jobs of an admitted submission, in their order.

    Raises BadSubmission.
    """
    elapsed = _stopwatch()
    jobs = supposed(database, proposal)
    return _estimates(present(database, config, jobs), config, proposal, jobs, elapsed)


def supposed(database: Database, proposal: Proposal, number: int = 0) -> list[HypotheticalJob]:
    """Return the hypothetical jobs of a submission; ``number``: how many other hypothetical jobs have lower ids.

    Raises BadSubmission.
    """
    with database.snapshot() as tx:
        first = tx.rounds.next_job() + number
        return hypothetical_jobs(proposal, first, find_for_each_job(tx, proposal.spec), tx.now)


class ComparedSubmissions:
    """Compare submissions: the situation is read once, and each submission is planned without the others."""

    def __init__(self, database: Database, config: Config, jobs: Sequence[Sequence[HypotheticalJob]]) -> None:
        self._config = config
        self._all = frozenset(job.row.id for each in jobs for job in each)
        self._situation = present(database, config, [job for each in jobs for job in each])

    def estimates(self, proposal: Proposal, jobs: Sequence[HypotheticalJob]) -> Estimates:
        """Return the estimates of the jobs of one submission."""
        others = self._all - {job.row.id for job in jobs}
        snapshot = self._situation.snapshot
        alone = replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job.id not in others))
        situation = replace(self._situation, snapshot=alone)
        return _estimates(situation, self._config, proposal, jobs, _stopwatch())


def _estimates(
    situation: Situation,
    config: Config,
    proposal: Proposal,
    jobs: Sequence[HypotheticalJob],
    elapsed: Callable[[], float],
) -> Estimates:
    warnings = tuple(mail.text for mail in situation.mails)
    queue = next((queue for queue in situation.snapshot.queues if queue.name == proposal.spec.queue), None)
    if queue and policy_of(queue.policy) is None:
        text = OWN_SCHEDULER.format(queue.name, queue.policy)
        now = situation.snapshot.now
        reason = WaitReason(now, ReasonCode.EXTERNAL, text, {})
        unknown = [Estimate(None, job.moldables[0].walltime, (), (), reason, not_before=now) for job in jobs]
        return Estimates(tuple(unknown), warnings)
    is_reservation = proposal.start > 0
    snapshot = situation.snapshot if is_reservation else without_limits(situation.snapshot, config.estimate_timeout)
    planning = Round(snapshot, elapsed, site=plugins.site_of(config))
    forecasts = planning.forecast([job.row.id for job in jobs])
    return Estimates(tuple(estimates_from(situation, forecasts, jobs)), warnings)

"""Updates of walltimes at the begin of a round: read the requests, decide with the last plan, write at once.

See docs/design/planner.rst, "Walltime changes".
"""

from collections.abc import Mapping

from oar.kao.facts.snapshot import RunningJob
from oar.kao.planner.walltime_grants import (
    LATER,
    GrantDecision,
    GrantSteps,
    PlannedStart,
    RequestedWalltime,
    WalltimeGrants,
)
from oar.kao.rounds.reading.situation import Situation
from oar.lib.accounts.growth import Growth
from oar.lib.base.resource_set import from_positions
from oar.lib.base.times import format_duration, format_signed_duration
from oar.lib.bus.messages import Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs.sql_requests import PendingWalltime


class WalltimeUpdates:
    """Grants requested changes of walltime according to the keys WALLTIME_*."""

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._config = config
        self._is_enabled = config.walltime_change_enabled
        queues = {"_", *config.walltime_change_apply_time, *config.walltime_increment}
        self._steps = {
            queue: GrantSteps(
                config.walltime_change_apply_time.get(queue, config.walltime_change_apply_time.get("_", 0.0)),
                config.walltime_increment.get(queue, config.walltime_increment.get("_", 0.0)),
            )
            for queue in queues
        }

    def grant(self, situation: Situation) -> bool:
        """Decide on all pending requests; return whether any walltime was changed."""
        if not self._is_enabled:
            return False
        return self._database.run(lambda tx: self._grant(tx, situation))

    def _grant(self, tx: Transaction, situation: Situation) -> bool:
        rows = tx.job_requests.pending_walltimes()
        if not rows:
            return False
        grants = WalltimeGrants(situation.snapshot, _planned_starts(tx, situation), self._steps)
        running = {job.id: job for job in situation.snapshot.running}
        projects = (running[row.job_id].project for row in rows if row.job_id in running)
        growths = Growth(tx, self._config, projects)
        is_changed = False
        for row in rows:
            request = RequestedWalltime(
                row.job_id, row.pending, row.force, row.delay_next_jobs, row.whole, row.granted, row.timeout, row.asked
            )
            decision = _within_budgets(tx, growths, grants.decide(request), row, running)
            if decision.is_dropped:
                tx.job_requests.drop_walltime_change(row.job_id)
                text = f"Walltime change dropped: not granted in {format_duration(row.timeout)}"
                tx.events.add(EventType.WALLTIME_REQUEST_CANCELLATION, row.job_id, text)
            elif decision.seconds:
                walltime = tx.job_requests.grant_walltime(row, decision.seconds)
                tx.events.add(EventType.WALLTIME_CHANGED, row.job_id, _description(row, decision, walltime))
                is_changed = True
                if decision.seconds < 0:  # Sarko must check the earlier end
                    tx.outbox.append(Wake(Tag.VILLAINS))
        return is_changed


def _within_budgets(
    tx: Transaction, growths: Growth, decision: GrantDecision, row: PendingWalltime, running: Mapping[int, RunningJob]
) -> GrantDecision:
    """Return a decision with as much time as budgets allow; the rest stays pending."""
    if decision.seconds <= 0:
        return decision
    job, least = tx.jobs.get(row.job_id), row.pending if row.whole else 1
    seconds = growths.grant(job, running[row.job_id].end, decision.seconds, least=least)
    return GrantDecision(seconds) if seconds else LATER


def _description(row: PendingWalltime, decision: GrantDecision, walltime: int) -> str:
    """Return the description of the event WALLTIME_CHANGED."""
    pending = row.pending - decision.seconds if row.pending > 0 else 0
    parts = [
        f"granted: {format_signed_duration(decision.seconds)}",
        f"pending: {format_signed_duration(pending)}",
        *(["force"] if row.force else []),
        *(["whole"] if row.whole else []),
        *(["delay next jobs"] if row.delay_next_jobs else []),
        *([f"timeout: {format_duration(row.timeout)}"] if row.timeout else []),
    ]
    return f"Walltime changed: {format_duration(walltime)} ({'/'.join(parts)})"


def _planned_starts(tx: Transaction, situation: Situation) -> list[PlannedStart]:
    """Return the starts of waiting jobs in the plan of the last round."""
    bits = {number: bit for bit, number in enumerate(situation.snapshot.resources.ids)}
    jobs = {
        alternative.id: job
        for job in situation.snapshot.waiting
        for alternative in job.alternatives
        if alternative.id in situation.starts
    }
    return [
        PlannedStart(
            jobs[alternative], situation.starts[alternative], from_positions(bits[each] for each in ids if each in bits)
        )
        for alternative, ids in tx.plan.resources(list(jobs)).items()
    ]

"""Changes of walltime in a round: asked ones are read, decided on the plan of the last round, and written at once."""

from collections.abc import Sequence

from oar.kao.platform import Situation
from oar.kao.walltime_changes import Change, Changes, Decision, Promise, Steps
from oar.lib.config import Config
from oar.lib.db.engine import Database, Transaction
from oar.lib.db.rounds import ChangeRow
from oar.lib.messages import Tag, Wake
from oar.lib.states import EventType
from oar.lib.times import format_duration, format_signed_duration


class Granting:
    """Grants changes of walltime as the configuration says."""

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._is_on = config.walltime_change_enabled
        queues = {"_", *config.walltime_change_apply_time, *config.walltime_increment}
        self._steps = {
            queue: Steps(
                config.walltime_change_apply_time.get(queue, config.walltime_change_apply_time.get("_", 0.0)),
                config.walltime_increment.get(queue, config.walltime_increment.get("_", 0.0)),
            )
            for queue in queues
        }

    def grant(self, situation: Situation) -> bool:
        """Decide on what is asked; return whether any walltime is another now."""
        if not self._is_on:
            return False
        return self._database.run(lambda tx: self._grant(tx, situation))

    def _grant(self, tx: Transaction, situation: Situation) -> bool:
        rows = tx.rounds.walltime_changes()
        if not rows:
            return False
        changes = Changes(situation.snapshot, _promises(tx, situation), self._steps)
        granted = False
        for row in rows:
            change = Change(
                row.job_id, row.pending, row.force, row.delay_next_jobs, row.whole, row.granted, row.timeout, row.asked
            )
            decision = changes.decide(change)
            if decision.is_dropped:
                tx.rounds.drop_change(row.job_id)
                text = f"Walltime change dropped: not granted in {format_duration(row.timeout)}"
                tx.events.add(EventType.WALLTIME_REQUEST_CANCELLATION, row.job_id, text)
            elif decision.seconds:
                walltime = tx.rounds.change_walltime(row, decision.seconds)
                tx.events.add(EventType.WALLTIME_CHANGED, row.job_id, changed_text(row, decision, walltime))
                granted = True
                if decision.seconds < 0:  # the end is sooner than Sarko knows
                    tx.outbox.append(Wake(Tag.VILLAINS))
        return granted


def changed_text(row: ChangeRow, decision: Decision, walltime: int) -> str:
    """Return the description of WALLTIME_CHANGED."""
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


def _promises(tx: Transaction, situation: Situation) -> list[Promise]:
    """Return what the stored plan holds for waiting jobs."""
    resources = situation.snapshot.resources
    bits = {number: bit for bit, number in enumerate(resources.ids)}
    found: list[Promise] = []
    planned = {
        alternative.id: job
        for job in situation.snapshot.waiting
        for alternative in job.alternatives
        if alternative.id in situation.starts
    }
    for moldable, ids in tx.gantt.resources(list(planned)).items():
        members = sum(1 << bits[number] for number in _known(ids, bits))
        found.append(Promise(planned[moldable], situation.starts[moldable], members))
    return found


def _known(ids: Sequence[int], bits: dict[int, int]) -> list[int]:
    return [number for number in ids if number in bits]

"""Database -> ``Snapshot``: the data of a round, read in one transaction at one instant.

A warm ``SnapshotReader`` caches unchanged data.  Resources and pools are cached by the version of the resource rows,
jobs by the version of their rows, and requests until the job is altered.  It returns the same snapshot as a cold one,
except for the numbers of pools.  After CACHE_LIFETIME seconds everything is read again.

See docs/design/planner.rst, "Memory between rounds".
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from oar.kao.facts.snapshot import Snapshot
from oar.kao.rounds.reading import time_zone
from oar.kao.rounds.reading.budget_reader import BudgetReader, BudgetState, find_stops
from oar.kao.rounds.reading.consumption_reader import read_fair_share
from oar.kao.rounds.reading.filter_pools import FilterPools, Filters
from oar.kao.rounds.reading.numbered_resources import ResourceNumbering, ResourceVersions
from oar.kao.rounds.reading.planner_settings import settings_of
from oar.kao.rounds.reading.policy_files import PolicyFiles
from oar.kao.rounds.reading.reservation_reader import ReservationRowReader
from oar.kao.rounds.reading.situation import HypotheticalJob, Situation, TokenCounts
from oar.kao.rounds.reading.snapshot_jobs import CachedJob, JobCache, SnapshotJobs, read_job_rows
from oar.lib.base.clock_watch import ClockWatch, Look
from oar.lib.bus.messages import Mail
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs import launch_holds
from oar.lib.jobs.records import LaunchHold
from oar.lib.jobs.states import CURRENT, JobPriority, JobTypeName, ProjectMode, Reservation
from oar.lib.nodes import energy
from oar.lib.nodes.energy_records import KeptNodes
from oar.lib.planning.sql_rounds import Rounds
from oar.lib.reservations.repairs import oldest_request
from oar.lib.submission.resource_request import JobTypes

log = logging.getLogger(__name__)

#: If the date of the last round is later than the clock by more seconds than this, the clock was changed.
CLOCK_TOLERANCE = 60

#: After so many seconds everything is read again.
CACHE_LIFETIME = 600


class SnapshotReader:
    """Reads the situation for rounds."""

    def __init__(self, database: Database, config: Config, watch: ClockWatch | None = None) -> None:
        """``watch`` compares the clock of the database with that of this computer; None: no comparison."""
        self._watch = watch
        #: By so many seconds the clock was set ahead, which the date of the last reading does not follow.
        self.ahead = 0
        self._database = database
        self._config = config
        self._settings = settings_of(config)
        self._policy_files = PolicyFiles(config)
        self._versions = ResourceVersions(config)
        self._resources = ResourceNumbering(config)
        self._pools = FilterPools(database, config)
        self._cache = JobCache()
        self._reservations = ReservationRowReader()
        self._budgets = BudgetReader(config)
        self._cached_since = 0

    def read(
        self,
        count_tokens: TokenCounts = dict.fromkeys,
        hypothetical_jobs: Sequence[HypotheticalJob] = (),
        rivals: Collection[int] = (),
    ) -> Situation:
        """Return the current situation, with ``hypothetical_jobs`` as if they had been submitted.

        ``rivals``: jobs held although the pause of their hold has ended: another job is the trial.
        """
        mails: list[Mail] = []
        if self._settings.job_priority is JobPriority.MULTIFACTOR:
            self._settings = replace(self._settings, weights=self._policy_files.weights(mails))
        settings, config, cache = self._settings, self._config, self._cache
        before = time.monotonic()
        with self._database.snapshot() as tx:
            self._look_at_clock(tx.now, before)
            rounds = tx.rounds
            if not 0 <= tx.now - self._cached_since < CACHE_LIFETIME:
                self.forget()
                self._cached_since = tx.now
            cache.read(rounds, tx.now)
            for job in hypothetical_jobs:
                cache.add(job)
            dependencies = [dependency for job in hypothetical_jobs for dependency in job.dependencies]
            rows = read_job_rows(tx, cache.jobs, dependencies, with_promised=settings.may_wake)
            queues = tuple(tx.queues.all())
            now = reference_date(tx.now - self.ahead, rows.starts.get(0, 0))
            oldest = oldest_request(tx.now - self.ahead, config.reservation_answer_timeout)
            reservations = self._reservations.read(tx, oldest)
            properties = reservations.properties.union(*(job.properties for job in cache.jobs.values()))
            resources = self._resources.read(rounds, self._versions.present(rounds), properties)
            active = ((job.row.user, job.row.project) for job in cache.jobs.values() if job.is_waiting)
            shares = read_fair_share(tx, config, settings, queues, now=now, waiting=active)
            reasons = tx.job_waits.stored_reasons()
            is_free = config.projects is ProjectMode.FREE
            closed_projects, has_budgets = ((), False) if is_free else tx.projects.closed_and_budgets()
            budget_state = self._budgets.read(tx, cache.jobs.values()) if has_budgets else BudgetState()
            stops = find_stops(budget_state, config, cache.jobs.values())
            on_hold = rounds.on_hold()
            held_containers = _held_containers(rounds) if on_hold else ()
            woken = rounds.woken(now - self._woken_period) if config.energy_saving else {}
            used_lately = rounds.used_since(now - settings.idle_time) if settings.idle_time else ()
            holds = () if hypothetical_jobs else tuple(tx.launch_holds.all())
            held = _held_launches(cache.jobs.values(), holds, rivals, tx.now)
            held_containers += _containers_among(held, cache.jobs)
            waiting = [job for job in cache.jobs.values() if job.is_waiting and job.row.id not in held]
            owners = reservations.add_filters(_owners(waiting))
            self._pools.read_columns(tx, owners, resources)
        pools = self._pools.read(owners, resources)
        postponed = {job_id: stop.date for job_id, stop in stops.items() if stop.date}
        records = SnapshotJobs(rows, resources, self._pools.numbers, reservations.walltime_cuts(), postponed)
        types = [job.types for job in cache.jobs.values() if job.row.state not in CURRENT]
        snapshot = Snapshot(
            now=now,
            resources=resources.columns,
            queues=queues,
            pools=pools,
            waiting=reservations.with_frames([records.waiting(job) for job in waiting], resources, self._pools.numbers),
            running=tuple(records.running(row, now) for row in rows.running),
            required=records.required(cache.jobs, held),
            held_containers=held_containers,
            consumption=shares.consumption,
            tokens=count_tokens(_token_names((*types, *rows.running_types.values()))),
            woken=woken,
            kept_awake=self._kept_awake(),
            used_lately=resources.members(used_lately),
            reservations=reservations.planned(resources, self._pools.numbers),
            reservation_changes=reservations.planned_changes(self._pools.numbers),
            maintenance=resources.members(reservations.maintenance),
            closed_projects=closed_projects,
            budget_stops=stops,
            settings=replace(settings, fairshare=shares.keys),
            zone=time_zone.local(),
        )
        snapshot = replace(snapshot, quotas=self._policy_files.quotas(snapshot, mails))
        self._policy_files.advise(snapshot)
        job_rows = {job_id: job.row for job_id, job in cache.jobs.items()}
        return Situation(
            *(snapshot, job_rows, rows.starts, reasons, rows.assigned, on_hold, cache.alterations),
            reservations={reservation.id: reservation for reservation in reservations.live},
            reservations_need_repair=reservations.need_repair,
            mails=mails,
            launch_holds=holds,
            launches_held=held,
            deferrals=tuple(self._pools.deferrals),
            budget_notices=() if hypothetical_jobs else budget_state.notices,
        )

    @property
    def file_errors(self) -> list[str]:
        """Return the errors of the policy files that the last round could not read."""
        return self._policy_files.errors

    def _look_at_clock(self, date: int, before: float) -> None:
        if self._watch:
            self._watch.set_by(Look(date, before, time.monotonic()))
            self.ahead = self._watch.ahead(date)

    def forget(self) -> None:
        """Delete all cached data: the next call reads everything again."""
        self._resources.forget()
        self._versions.forget()
        self._cache.forget()
        self._reservations.forget()
        self._budgets.forget()
        self._pools.forget()

    def _kept_awake(self) -> tuple[KeptNodes, ...]:
        config = self._config
        if not (config.energy_saving_internal and config.may_halt):
            return ()
        return energy.kept_nodes(self._database, config.energy_saving_nodes_keepalive)

    @property
    def _woken_period(self) -> int:
        """Return for how many seconds a wake-up of a node is relevant."""
        idle_time = self._config.scheduler_node_manager_idle_time or 0
        return max(idle_time, self._settings.boot_limit) + 1


def reference_date(clock: int, last_round: int) -> int:
    """Return the date of a round: that of the clock, but not earlier than the last round.

    If the last round is more than CLOCK_TOLERANCE seconds ahead of the clock, the date is that of the clock.
    """
    if last_round <= clock:
        return clock
    if last_round - clock <= CLOCK_TOLERANCE:
        return last_round
    log.error("reference date %d s in the future: has the clock of the database changed?", last_round - clock)
    return clock


def _owners(waiting: Iterable[CachedJob]) -> dict[Filters, set[str]]:
    owners: dict[Filters, set[str]] = {}
    for job in waiting:
        for filters in job.filters:
            owners.setdefault(filters, set()).add(job.row.user)
    return owners


def _held_launches(
    jobs: Iterable[CachedJob], holds: Sequence[LaunchHold], rivals: Collection[int], now: int
) -> dict[int, LaunchHold]:
    """Return the waiting jobs whose launches are held; reservations keep their placements."""
    present = [hold for hold in holds if not launch_holds.is_over(hold)]
    active = [hold for hold in present if not launch_holds.may_launch(hold, now)]
    held: dict[int, LaunchHold] = {}
    for job in jobs if active or rivals else ():
        types, applied = JobTypes(job.types), present if job.row.id in rivals else active
        if job.is_waiting and job.row.reservation is Reservation.NONE and JobTypeName.AR not in types:
            hold = next((hold for hold in applied if launch_holds.concerns(hold, job.row.user, types)), None)
            held |= {job.row.id: hold} if hold else {}
    return held


def _containers_among(held: Collection[int], jobs: Mapping[int, CachedJob]) -> tuple[str, ...]:
    """Return the names and the job ids of the containers among the jobs whose launches are held."""
    names: list[str] = []
    for job_id in sorted(held):
        types = JobTypes(jobs[job_id].types)
        if JobTypeName.CONTAINER in types:
            names += [str(job_id), *types.values(JobTypeName.CONTAINER)]
    return tuple(names)


def _held_containers(rounds: Rounds) -> tuple[str, ...]:
    containers = [(str(job_id), text.partition("=")[2]) for job_id, text in rounds.held_containers()]
    return tuple(sorted(name for names in containers for name in names if name))


def _token_names(types: Iterable[Sequence[str]]) -> list[str]:
    texts = (text for job_types in types for text in job_types if text.startswith("token:"))
    return sorted({text.removeprefix("token:").partition("=")[0] for text in texts})

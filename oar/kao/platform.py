"""Database -> ``Snapshot``: what a round reads, in one transaction that sees one instant.

A warm ``Platform`` keeps from round to round what it can tell to be unchanged: the resources and the filters of
requests, by the version of the resource rows; jobs by the version of their rows; requests by the number of the job, as
long as it is not altered.  What it gives is the same as from a cold one, but for the numbers of pools: those are kept,
so that a new filter changes nothing for the jobs that were there before.  After a while everything is read anew.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oar.kao import zone
from oar.kao.model import (
    FOREVER,
    Alternative,
    AskedGroup,
    Consumption,
    FairShare,
    Granted,
    Pool,
    RequiredJob,
    Resources,
    RunningJob,
    Settings,
    Snapshot,
    WaitingJob,
)
from oar.kao.priority import order_of, policy_of
from oar.kao.resource_versions import LAST_USE, ResourceVersions
from oar.kao.site_files import SiteFiles
from oar.lib.config import Config
from oar.lib.db.engine import Database, Transaction
from oar.lib.db.gantt import StoredReason
from oar.lib.db.rounds import DependencyRow, GroupRow, JobRow, MoldableRow, ResourceRow, Rounds, Version
from oar.lib.db.usersql import Table, session
from oar.lib.errors import BadSql, ConfigError
from oar.lib.hierarchy import FINEST, numbering
from oar.lib.live_jobs import shared
from oar.lib.messages import Mail
from oar.lib.model import Dependency, Queue
from oar.lib.resource_set import ResourceSet, from_positions
from oar.lib.states import CURRENT, JobState, QueueState, Reservation, ResourceState

log = logging.getLogger(__name__)

#: A stored date of the last round that is later than the clock by more is a change of the clock.
CLOCK_TOLERANCE = 60

#: Everything is read anew after so many seconds.
TRUST = 600
#: Seconds from the date of an alteration until everybody can see it, at most.
LONGEST_ALTERATION = 600

#: The order when the administrator's is refused by the database.
PLAIN_ORDER = "network_address ASC, resource_id ASC"

#: A filter that calls a function or asks another table may change its answer although no resource has changed, and one
#: about the last use of resources although they have the same version.
_VOLATILE = re.compile(
    r"(?<![A-Za-z_])(?!AND\b|OR\b|NOT\b|IN\b|ANY\b|ALL\b|LIKE\b|BETWEEN\b)[A-Za-z_]\w*\s*\(|\bSELECT\b"
    rf"|\b{LAST_USE}\b",
    re.I,
)

Tokens = Callable[[Iterable[str]], Mapping[str, int | None]]


@dataclass(frozen=True, slots=True)
class Alterations:
    """Which jobs were altered since a date; of each a number that changes when it is altered again."""

    since: int = 0
    jobs: Mapping[int, int] = field(default_factory=dict)

    def differ(self, other: "Alterations") -> set[int]:
        """Return the jobs that were altered later than this was read; ``other`` was."""
        return {number for number, mark in other.jobs.items() if self.jobs.get(number) != mark}


@dataclass(frozen=True, slots=True)
class Situation:
    """A snapshot, and what the database holds of an earlier plan."""

    snapshot: Snapshot
    rows: Mapping[int, JobRow]  #: the live jobs that are not on hold
    starts: Mapping[int, int]  #: stored predictions by alternative
    reasons: Mapping[int, StoredReason]
    held: Mapping[int, Sequence[int]]  #: resources that jobs hold, by alternative
    on_hold: Mapping[int, int]  #: jobs on hold, and since when
    alterations: Alterations
    mails: Sequence[Mail] = ()  #: what the administrator is to be told

    def in_state(self, state: JobState) -> list[JobRow]:
        """Return the jobs in a state, by id."""
        return [row for row in self.rows.values() if row.state is state]


@dataclass(frozen=True, slots=True)
class Supposed:
    """A job that is looked at as if it had been submitted."""

    row: JobRow
    types: tuple[str, ...]
    moldables: tuple[MoldableRow, ...]
    dependencies: tuple[Dependency, ...] = ()


@dataclass(slots=True)
class _Rows:
    """What was read of the jobs."""

    jobs: dict[int, JobRow]
    types: dict[int, tuple[str, ...]]
    moldables: dict[int, tuple[MoldableRow, ...]]
    walltimes: dict[int, int]  #: of jobs that hold resources, by alternative: it may change
    killed: set[int]
    assigned: dict[int, list[int]]
    dependencies: list[DependencyRow]
    starts: dict[int, int]
    reserved: dict[int, list[int]]
    suspended: dict[int, int]
    turns: dict[int, int]
    checkpoints: dict[int, tuple[int, bool]]


@dataclass(slots=True)
class _Known:
    """A job as it was read, and what was made of it."""

    version: str
    row: JobRow
    types: tuple[str, ...]
    moldables: tuple[MoldableRow, ...]
    names: frozenset[str]  #: the properties that it names
    filters: tuple[tuple[str, str], ...]  #: that of the job with that of each group
    job: WaitingJob | None = None
    made_from: tuple[object, ...] = ()


@dataclass(slots=True)
class _Numbered:
    """The resources with their bits, and where they came from."""

    key: tuple[object, ...]
    resources: Resources
    bits: dict[int, int] = field(default_factory=dict)
    absent: ResourceSet = 0

    def members(self, ids: Iterable[int]) -> ResourceSet:
        """Return the set of resources with these ids."""
        bits = self.bits
        return from_positions(bits[number] for number in ids if number in bits)


class Platform:
    """Reads the database for rounds."""

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._config = config
        self.settings = settings_of(config)
        self._files = SiteFiles(config)
        idle_time = config.scheduler_node_manager_idle_time or 0
        self._woken_period = max(idle_time, config.scheduler_node_manager_wakeup_time) + 1
        self._versions = ResourceVersions(config, self.settings)
        self._numbered: _Numbered | None = None
        self._known: dict[int, _Known] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._pools: dict[tuple[str, str], Pool] = {}
        self._pools_key: tuple[object, ...] = ()
        self._trusted_since = self._read_at = 0
        self._alterations = Alterations()

    def read(self, tokens: Tokens = dict.fromkeys, supposed: Sequence[Supposed] = ()) -> Situation:
        """Return the present situation.

        ``tokens`` asks the site how many tokens of some names are free.  ``supposed``: jobs that are not submitted.
        """
        mails: list[Mail] = []
        if self.settings.job_priority == "MULTIFACTOR":
            self.settings = replace(self.settings, weights=self._files.weights(mails))
        with self._database.snapshot() as tx:
            rounds = tx.rounds
            if not 0 <= tx.now - self._trusted_since < TRUST:
                self.forget()
                self._trusted_since = tx.now
            self._read_jobs(rounds, tx.now)
            for each in supposed:
                self._known[each.row.id] = _known("", each.row, each.types, each.moldables)
            rows = self._read_rows(tx, rounds, [each for job in supposed for each in job.dependencies])
            queues = tuple(tx.queues.all())
            now = reference_date(tx.now, rows.starts.get(0, 0))
            version = self._versions.present(rounds)
            numbered = self._number(rounds, version)
            consumption = self._consumption(rounds, queues, now)
            reasons = tx.gantt.reasons()
            held = [name for job_id, text in rounds.held_containers() for name in (str(job_id), text[10:]) if name]
            on_hold = rounds.on_hold()
            woken = rounds.woken(now - self._woken_period) if self._config.energy_saving else {}
        pools = self._evaluate(numbered)
        builder = _Builder(rows, numbered, self._numbers)
        snapshot = Snapshot(
            now=now,
            resources=numbered.resources,
            queues=queues,
            pools=pools,
            waiting=tuple(builder.waiting(known) for known in self._known.values() if _is_waiting(known.row)),
            running=tuple(builder.running(row) for row in rows.jobs.values() if row.state in CURRENT),
            required=_required(rows),
            held_containers=tuple(sorted(held)),
            consumption=consumption,
            tokens=tokens(sorted(_token_names(rows.types.values()))),
            woken=woken,
            settings=self.settings,
            zone=zone.local(),
        )
        snapshot = replace(snapshot, quotas=self._files.quotas(snapshot, mails))
        self._files.advise(snapshot)
        return Situation(snapshot, rows.jobs, rows.starts, reasons, rows.assigned, on_hold, self._alterations, mails)

    def forget(self) -> None:
        """Read everything anew the next time."""
        self._numbered = None
        self._versions.forget()
        self._known, self._numbers, self._pools = {}, {}, {}

    def _read_jobs(self, rounds: Rounds, now: int) -> None:
        """Read the jobs that are new or have changed."""
        altered = self._read_alterations(rounds, now)
        versions = rounds.versions()
        before = self._known
        changed = [
            number for number, version in versions.items() if number not in before or before[number].version != version
        ]
        types = rounds.types(changed)
        moldables = rounds.moldables([number for number in changed if number not in before or number in altered])
        read = {row.id: row for row in rounds.jobs(changed)}
        known: dict[int, _Known] = {}
        for number, version in versions.items():
            old = before.get(number)
            row = read.get(number)
            if row is None and old:
                known[number] = old
            elif row:
                is_same = old is not None and number not in altered
                asked = old.moldables if old and is_same else moldables.get(number, ())
                known[number] = _known(version, row, types.get(number, ()), asked)
                known[number].job = old.job if old and is_same else None
        self._known = known

    def _read_alterations(self, rounds: Rounds, now: int) -> set[int]:
        """Return the jobs that were altered since the last round."""
        since = min(self._read_at or now, now) - LONGEST_ALTERATION
        before, self._alterations = self._alterations, Alterations(since, rounds.altered(since))
        self._read_at = now
        return before.differ(self._alterations)

    def _read_rows(self, tx: Transaction, rounds: Rounds, supposed: Sequence[Dependency]) -> _Rows:
        jobs = {number: known.row for number, known in self._known.items()}
        moldables = {number: known.moldables for number, known in self._known.items()}
        reservations = [
            moldable.id
            for row in jobs.values()
            if row.reservation is Reservation.SCHEDULED and _is_waiting(row)
            for moldable in moldables[row.id]
        ]
        starts = tx.gantt.starts()
        if self.settings.may_wake:  # what jobs were to have that wait for sleeping nodes
            reservations += [
                moldable.id
                for row in jobs.values()
                if row.reservation is Reservation.NONE and _is_waiting(row)
                for moldable in moldables[row.id]
                if starts.get(moldable.id, FOREVER) <= starts.get(0, 0)
            ]
        holding = [row for row in jobs.values() if row.state in CURRENT]
        types = {number: known.types for number, known in self._known.items()}
        return _Rows(
            jobs=jobs,
            types=types | dict.fromkeys((row.id for row in holding), ()) | rounds.types([row.id for row in holding]),
            moldables=moldables,
            walltimes=rounds.walltimes([row.moldable for row in holding]),
            killed=rounds.killed(),
            assigned=rounds.assigned(),
            dependencies=[each for each in rounds.dependencies(supposed) if each.dependency.job_id in jobs],
            starts=starts,
            reserved=tx.gantt.resources([number for number in reservations if number in starts]),
            suspended=rounds.suspended_times([row.id for row in jobs.values() if row.was_suspended]),
            turns=rounds.turns([row.id for row in holding if row.state is JobState.RESUMING]),
            checkpoints=rounds.checkpoints([row.id for row in holding if row.checkpoint]),
        )

    def _number(self, rounds: Rounds, version: Version) -> _Numbered:
        """Return the resources, with bits in hierarchical order of the properties that the requests name."""
        asked = frozenset().union(*{known.names for known in self._known.values()})
        names = sorted(asked & version.columns)
        key = (version, *names)
        if self._numbered is None or self._numbered.key != key:
            self._numbered = self._new_numbering(key, names, self._resource_rows(rounds, names))
        return self._numbered

    def _resource_rows(self, rounds: Rounds, names: Sequence[str]) -> list[ResourceRow]:
        config = self._config
        try:
            return rounds.resources(
                names, config.scheduler_resource_order, config.scheduler_resource_order_adv_reservations
            )
        except ConfigError as error:
            log.error("%s; resources are taken by name of their nodes", error)
            return rounds.resources(names, PLAIN_ORDER, PLAIN_ORDER)

    def _new_numbering(self, key: tuple[object, ...], names: Sequence[str], found: Sequence[ResourceRow]) -> _Numbered:
        columns = {name: [row.values[index] for row in found] for index, name in enumerate(names) if name != FINEST}
        columns.setdefault("network_address", [row.network_address for row in found])
        places = numbering(columns, [row.rank for row in found])
        rows = [found[place] for place in places]
        resources = Resources(
            ids=tuple(row.id for row in rows),
            types=tuple(row.type for row in rows),
            states=tuple(row.state for row in rows),
            addresses=tuple(row.network_address for row in rows),
            available_upto=tuple(row.available_upto for row in rows),
            order=tuple(sorted(range(len(rows)), key=lambda bit: rows[bit].rank)),
            reservation_order=tuple(sorted(range(len(rows)), key=lambda bit: rows[bit].reservation_rank)),
            columns={name: tuple(column[place] for place in places) for name, column in columns.items()},
            last_job_dates=tuple(row.last_job_date for row in rows) if self._config.may_halt else (),
        )
        if self._numbered and self._numbered.resources == resources:
            resources = self._numbered.resources
        bits = {number: bit for bit, number in enumerate(resources.ids)}
        return _Numbered(key, resources, bits, resources.where(resources.states, ResourceState.ABSENT))

    def _evaluate(self, numbered: _Numbered) -> tuple[Pool, ...]:
        """Return the pools of all filters of waiting jobs, by their numbers."""
        jobs = (known for known in self._known.values() if _is_waiting(known.row))
        wanted = dict.fromkeys(filters for known in jobs for filters in known.filters)
        for filters in wanted:
            self._numbers.setdefault(filters, len(self._numbers))
        if self._pools_key != numbered.key:
            self._pools, self._pools_key = {}, numbered.key
        pools = {filters: self._pools[filters] for filters in wanted if filters in self._pools}
        pools |= self._ask_filters(sorted(wanted.keys() - pools.keys()), numbered)
        self._pools = {filters: pool for filters, pool in pools.items() if not _VOLATILE.search(" ".join(filters))}
        return tuple(pools.get(filters) or Pool(0, filters[1]) for filters in self._numbers)

    def _ask_filters(self, wanted: Sequence[tuple[str, str]], numbered: _Numbered) -> dict[tuple[str, str], Pool]:
        """Evaluate filters under the read-only login; one that is refused concerns only its jobs."""
        resources = numbered.resources
        not_dead = resources.everything & ~resources.where(resources.states, ResourceState.DEAD)
        found = {filters: Pool(not_dead) for filters in wanted if not any(filters)}
        asked = [filters for filters in wanted if any(filters)]
        if not asked:
            return found
        with session(self._database, Table.RESOURCES) as conditions:
            for filters in asked:
                text = " AND ".join(f"({each}\n)" for each in filters if each)
                try:
                    members = numbered.members(conditions.ids(text)) & not_dead
                    found[filters] = Pool(members, filters[1])
                except BadSql as error:
                    found[filters] = Pool(0, filters[1], str(error))
        return found

    def _consumption(self, rounds: Rounds, queues: Sequence[Queue], now: int) -> dict[int, Consumption]:
        """Return what counts for the fair share, by priority of the queues; nothing where none is used."""
        priorities: dict[int, set[str]] = {}
        for queue in queues:
            policy = policy_of(queue.policy)
            is_fair = policy is not None and order_of(policy, self.settings) in ("FAIRSHARE", "MULTIFACTOR")
            if is_fair and queue.state is QueueState.ACTIVE:
                priorities.setdefault(queue.priority, set()).add(queue.name)
        if not priorities:
            return {}
        names = [queue.name for queue in queues if queue.priority in priorities]
        sums = rounds.consumption(names, now - self._config.scheduler_fairsharing_window_size, now)
        by_name = {queue.name: queue.priority for queue in queues}
        return {
            priority: _summed([row for row in sums if by_name[row[0]] == priority]) for priority in sorted(priorities)
        }


def reference_date(clock: int, stored: int) -> int:
    """Return the date of a round: the clock, but never before the last round."""
    if stored <= clock:
        return clock
    if stored - clock <= CLOCK_TOLERANCE:
        return stored
    log.error("reference date %d s in the future: has the clock of the database changed?", stored - clock)
    return clock


def settings_of(config: Config) -> Settings:
    """Return what the planner obeys of the configuration."""
    priority = "FAIRSHARE" if config.fairsharing_enabled and config.job_priority == "FIFO" else config.job_priority
    return Settings(
        security_time=max(1, config.scheduler_job_security_time),
        hole_minimum=config.scheduler_gantt_hole_minimum_time,
        suspended_types=tuple(config.scheduler_available_suspended_resource_type),
        always_assigned_type=config.scheduler_resources_always_assigned_type or "",
        reservation_patience=config.reservation_waiting_resources_timeout,
        reservation_order_threshold=config.scheduler_resource_order_adv_reservations_threshold,
        besteffort_kill_before=config.scheduler_besteffort_kill_duration_before_reservation,
        besteffort_duration=config.scheduler_besteffort_duration,
        timeout=config.scheduler_timeout,
        max_jobs=config.max_job_per_queues_group_scheduling_round,
        max_jobs_per_user=config.scheduler_fairsharing_max_job_per_user or 0,
        job_priority=priority,
        is_priority_explicit=priority != "FIFO",
        dependency_condition=config.dependency_condition,
        has_quotas=config.quotas,
        may_wake=config.may_wake,
        wakeup_time=config.scheduler_node_manager_wakeup_time,
        idle_time=(config.scheduler_node_manager_idle_time or 0) if config.may_halt else 0,
        sleep_time=(config.scheduler_node_manager_sleep_time or 0) if config.may_halt else 0,
        fairshare=FairShare(
            config.scheduler_fairsharing_coef_project,
            config.scheduler_fairsharing_coef_user,
            config.scheduler_fairsharing_coef_user_ask,
            dict(config.scheduler_fairsharing_project_targets),
            dict(config.scheduler_fairsharing_user_targets),
        ),
    )


def _known(version: str, row: JobRow, types: tuple[str, ...], moldables: tuple[MoldableRow, ...]) -> _Known:
    groups = [group for moldable in moldables for group in moldable.groups]
    names = frozenset(level.property for group in groups for level in group.levels)
    filters = tuple(dict.fromkeys((row.properties, group.filter) for group in groups))
    return _Known(version, row, types, moldables, names, filters)


def _is_waiting(row: JobRow) -> bool:
    return row.state in (JobState.WAITING, JobState.TO_ACK_RESERVATION)


def _required(rows: _Rows) -> tuple[RequiredJob, ...]:
    """Return the jobs that others require and that are not looked at themselves."""
    present = {row.id for row in rows.jobs.values() if _is_waiting(row) or row.state in CURRENT}
    found = {
        each.dependency.required: RequiredJob(
            each.dependency.required, each.state, each.exit_code, each.start_time, each.stop_time
        )
        for each in rows.dependencies
        if each.state is not None and each.dependency.required not in present
    }
    return tuple(found[number] for number in sorted(found))


def _token_names(types: Iterable[tuple[str, ...]]) -> set[str]:
    return {text[6:].partition("=")[0] for texts in types for text in texts if text.startswith("token:")}


def _summed(rows: Sequence[tuple[str, str, str, str, int]]) -> Consumption:
    used_by_user: dict[str, int] = {}
    asked_by_user: dict[str, int] = {}
    used_by_project: dict[str, int] = {}
    for _, user, project, kind, seconds in rows:
        by_user = used_by_user if kind == "USED" else asked_by_user
        by_user[user] = by_user.get(user, 0) + seconds
        if kind == "USED":
            used_by_project[project] = used_by_project.get(project, 0) + seconds
    return Consumption(
        sum(used_by_user.values()), sum(asked_by_user.values()), used_by_user, asked_by_user, used_by_project
    )


class _Builder:
    """Makes the jobs of a snapshot out of rows."""

    def __init__(self, rows: _Rows, numbered: _Numbered, numbers: Mapping[tuple[str, str], int]) -> None:
        self._rows = rows
        self._numbered = numbered
        self._numbers = numbers
        self._dependencies: dict[int, tuple[Dependency, ...]] = {}
        for each in rows.dependencies:
            known = self._dependencies.get(each.dependency.job_id, ())
            self._dependencies[each.dependency.job_id] = (*known, each.dependency)
        self._asked: dict[tuple[object, ...], AskedGroup] = {}

    def waiting(self, known: _Known) -> WaitingJob:
        """Return a job to be placed: the same object as in the last round if nothing of it has changed."""
        row = known.row
        is_killed, dependencies = row.id in self._rows.killed, self._dependencies.get(row.id, ())
        places = self._granted(row, known.moldables), self._promised(row, known.moldables)
        made_from = row, known.types, is_killed, dependencies, *places
        if known.job is None or known.made_from != made_from:
            job = self._waiting(row)
            known.job = known.job if known.job == job else job
            known.made_from = made_from
        return known.job

    def _waiting(self, row: JobRow) -> WaitingJob:
        """Return a job to be placed."""
        moldables = self._rows.moldables.get(row.id, ())
        return WaitingJob(
            *shared(row),
            types=self._rows.types.get(row.id, ()),
            is_killed=row.id in self._rows.killed,
            alternatives=tuple(
                Alternative(each.id, each.walltime, tuple(self._group(row, group) for group in each.groups))
                for each in moldables
            ),
            dependencies=self._dependencies.get(row.id, ()),
            submission_time=row.submission_time,
            start_time=row.start_time,
            granted=self._granted(row, moldables),
            promised=self._promised(row, moldables),
        )

    def running(self, row: JobRow) -> RunningJob:
        """Return a job that holds resources."""
        asked, is_over = self._rows.checkpoints.get(row.id, (0, False))
        return RunningJob(
            *shared(row),
            types=self._rows.types.get(row.id, ()),
            is_killed=row.id in self._rows.killed,
            alternative=row.moldable,
            start_time=row.start_time,
            walltime=self._rows.walltimes.get(row.moldable, 0),
            suspended_time=self._rows.suspended.get(row.id, 0),
            resources=self._numbered.members(self._rows.assigned.get(row.moldable, ())),
            checkpoint=row.checkpoint,
            checkpoint_asked=asked,
            is_checkpoint_over=is_over,
            turn=self._rows.turns.get(row.id, 0),
        )

    def _group(self, row: JobRow, group: GroupRow) -> AskedGroup:
        key = row.properties, group.filter, group.levels
        known = self._asked.get(key)
        if known is None:
            number = self._numbers[row.properties, group.filter]
            known = self._asked[key] = AskedGroup(number, group.levels)
        return known

    def _granted(self, row: JobRow, moldables: Sequence[MoldableRow]) -> Granted | None:
        return self._stored(moldables) if row.reservation is Reservation.SCHEDULED else None

    def _promised(self, row: JobRow, moldables: Sequence[MoldableRow]) -> Granted | None:
        """Return the place of the last round of a job that waits there for nodes to wake."""
        place = self._stored(moldables) if row.reservation is Reservation.NONE else None
        return place if place and place.resources & self._numbered.absent else None

    def _stored(self, moldables: Sequence[MoldableRow]) -> Granted | None:
        for moldable in moldables:
            if moldable.id in self._rows.reserved:
                resources = self._numbered.members(self._rows.reserved[moldable.id])
                return Granted(moldable.id, self._rows.starts[moldable.id], resources)
        return None

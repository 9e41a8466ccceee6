"""Snapshots in a few words: ``Cluster(nodes=4, cores=2).job("/node=1", walltime=hours(2)).plan()``."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.snapshot import (
    Alternative,
    Pool,
    RequestGroup,
    RequiredJob,
    ResourceColumns,
    RunningJob,
    Settings,
    Snapshot,
    StoredPlacement,
    WaitingJob,
)
from oar.kao.planner.schedule import schedule
from oar.lib.accounts.quota_records import Quotas
from oar.lib.base.resource_set import ResourceSet, positions
from oar.lib.jobs.records import Dependency, Queue
from oar.lib.jobs.states import JobState, QueueState, Reservation
from oar.lib.nodes.records import PropertyValue
from oar.lib.nodes.states import ResourceState
from oar.lib.submission.resource_request import parse_request

NOW = 1_800_000_000

QUEUES = (
    Queue("admin", 10, "", QueueState.ACTIVE),
    Queue("default", 2, "", QueueState.ACTIVE),
    Queue("besteffort", 0, "", QueueState.ACTIVE),
)


def hours(count: float) -> int:
    return int(count * 3600)


def resources(columns: dict[str, Sequence[PropertyValue]], size: int, **given: Any) -> ResourceColumns:
    """All Alive, each with its bit number + 1 as id."""
    made = ResourceColumns(
        ids=tuple(range(1, size + 1)),
        types=("default",) * size,
        states=(ResourceState.ALIVE,) * size,
        addresses=tuple(str(value) for value in columns["node"]),
        available_upto=(2147483647,) * size,
        order=tuple(range(size)),
        reservation_order=tuple(range(size)),
        columns={name: tuple(values) for name, values in columns.items()},
    )
    return replace(made, **given)


class Cluster:
    """A machine with its queue of jobs; each method adds something and returns the cluster."""

    def __init__(self, nodes: int = 4, cores: int = 2, **settings: Any) -> None:
        size = nodes * cores
        self.cores = cores
        self.resources = resources(
            {
                "switch": [f"s{bit // (2 * cores)}" for bit in range(size)],
                "node": [f"n{bit // cores}" for bit in range(size)],
                "core": [f"c{bit}" for bit in range(size)],
            },
            size,
        )
        self.settings = Settings(**settings)
        self.queues: tuple[Queue, ...] = QUEUES
        self.waiting: list[WaitingJob] = []
        self.running: list[RunningJob] = []
        self.required: list[RequiredJob] = []
        self.tokens: dict[str, int | None] = {}
        self.quotas: Quotas | None = None
        self.pools = [Pool(self.resources.everything)]
        self._next = 1

    def node(self, *numbers: int) -> ResourceSet:
        """Return all cores of some nodes."""
        return sum(((1 << self.cores) - 1) << (number * self.cores) for number in numbers)

    def state(self, state: ResourceState, *nodes: int, upto: int | None = None) -> "Cluster":
        members = set(positions(self.node(*nodes)))
        states = [state if bit in members else old for bit, old in enumerate(self.resources.states)]
        dates = [
            upto if upto is not None and bit in members else old
            for bit, old in enumerate(self.resources.available_upto)
        ]
        dead = self.node(*nodes) if state is ResourceState.DEAD else 0
        self.pools = [replace(pool, members=pool.members & ~dead) for pool in self.pools]
        self.resources = replace(self.resources, states=tuple(states), available_upto=tuple(dates))
        return self

    def job(self, *requests: str, walltime: int = hours(1), **given: Any) -> "Cluster":
        """Add a waiting job; a request may carry its own walltime."""
        number = given.pop("id", self._next)
        self._next = max(self._next, number) + 1
        alternatives = []
        for index, text in enumerate(requests or ("/core=1",)):
            asked = parse_request(text)
            groups = tuple(RequestGroup(0, group.levels) for group in asked.groups)
            alternatives.append(Alternative(10 * number + index, asked.walltime or walltime, groups))
        values: dict[str, Any] = {"queue": "default", "user": "ann", "project": "default", "name": "", **given}
        after = tuple(
            each if isinstance(each, Dependency) else Dependency(number, each) for each in values.pop("after", ())
        )
        values.setdefault("state", JobState.WAITING)
        self.waiting.append(WaitingJob(id=number, alternatives=tuple(alternatives), dependencies=after, **values))
        return self

    def reservation(self, request: str, start: int, held: ResourceSet | None = None, **given: Any) -> "Cluster":
        """Add a new reservation, or with ``held`` an accepted one."""
        number = given.setdefault("id", self._next)
        if held is None:
            return self.job(request, start_time=start, reservation=Reservation.TO_SCHEDULE, **given)
        granted = StoredPlacement(10 * number, start, held)
        return self.job(request, start_time=start, reservation=Reservation.SCHEDULED, granted=granted, **given)

    def run(self, held: ResourceSet, walltime: int = hours(1), since: int = 0, **given: Any) -> "Cluster":
        """Add a job that holds resources."""
        number = given.pop("id", self._next)
        self._next = max(self._next, number) + 1
        values: dict[str, Any] = {"queue": "default", "user": "bob", "project": "default", "name": "", **given}
        values.setdefault("state", JobState.RUNNING)
        self.running.append(
            RunningJob(
                id=number,
                alternative=10 * number,
                start_time=NOW - since,
                walltime=walltime,
                resources=held,
                **values,
            )
        )
        return self

    def ended(self, number: int, state: JobState = JobState.TERMINATED, code: int | None = 0) -> "Cluster":
        self.required.append(RequiredJob(number, state, code, NOW - 100, NOW - 50))
        self._next = max(self._next, number + 1)
        return self

    def snapshot(self) -> Snapshot:
        return Snapshot(
            now=NOW,
            resources=self.resources,
            queues=self.queues,
            pools=tuple(self.pools),
            waiting=tuple(self.waiting),
            running=tuple(self.running),
            required=tuple(self.required),
            tokens=self.tokens,
            quotas=self.quotas,
            settings=self.settings,
        )

    def plan(self) -> "Result":
        return Result(schedule(self.snapshot()))


class Result:
    """A plan, asked job by job."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.placements = {placement.job_id: placement for placement in plan.placements}

    def __getitem__(self, job: int) -> Placement:
        return self.placements[job]

    def start(self, job: int) -> int | None:
        """Return when a job starts, in seconds from now; None if it has no place."""
        placement = self.placements.get(job)
        return None if placement is None else placement.start - NOW

    def where(self, job: int) -> ResourceSet:
        return self.placements[job].resources

    def started(self) -> list[int]:
        return [start.placement.job_id for start in self.plan.started]

    def reason(self, job: int) -> str:
        return self.plan.reasons[job].text

    def code(self, job: int) -> str | None:
        return self.plan.reasons[job].code if job in self.plan.reasons else None

    def errors(self) -> dict[int, str]:
        return {answer.job_id: answer.message for answer in self.plan.refused}

    def kills(self) -> dict[int, str]:
        return {each.job_id: each.action for each in self.plan.kills}

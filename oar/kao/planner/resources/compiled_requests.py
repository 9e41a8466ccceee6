"""The requests of jobs, compiled once per distinct request, to fit them into sets of resources."""

from oar.kao.facts import reasons
from oar.kao.facts.plan import Reason
from oar.kao.facts.snapshot import Alternative, RequestGroup, Snapshot, WaitingJob
from oar.kao.planner.resources.memory_requests import MemoryRequests
from oar.kao.planner.resources.node_memory import NodeMemory
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.records import Memory
from oar.lib.nodes.hierarchy import Hierarchy, Layout, PooledGroup, RequestFit
from oar.lib.nodes.records import PropertyValue
from oar.lib.nodes.states import ResourceState


class CompiledRequests:
    """The compiled requests of a snapshot."""

    @classmethod
    def of(cls, snapshot: Snapshot, last: "tuple[Snapshot, CompiledRequests] | None") -> "CompiledRequests":
        """Return the compiled requests of the last snapshot if they are still valid; otherwise new ones.

        Of the states of resources only Dead matters.
        """
        if last:
            old, requests = last
            old_resources, new_resources = old.resources, snapshot.resources
            is_same_machine = (
                old.settings == snapshot.settings
                and old_resources.with_states(new_resources) == new_resources
                and old_resources.where(old_resources.states, ResourceState.DEAD)
                == new_resources.where(new_resources.states, ResourceState.DEAD)
            )
            if is_same_machine and old.pools == snapshot.pools[: len(old.pools)]:
                requests._pools = snapshot.pools
                return requests
        return cls(snapshot)

    def __init__(self, snapshot: Snapshot) -> None:
        resources = snapshot.resources
        columns: dict[str, tuple[PropertyValue, ...]] = dict(resources.columns)
        columns.setdefault("network_address", resources.addresses)
        layout = Layout(columns, len(resources.ids))
        self._pools = snapshot.pools
        self._not_shared = ~resources.where(resources.types, snapshot.settings.always_assigned_type or None)
        everything = ~resources.where(resources.states, ResourceState.DEAD) & self._not_shared & resources.everything
        self._hierarchies = [Hierarchy(layout, resources.order, everything)]
        if resources.reservation_order != resources.order:
            self._hierarchies.append(Hierarchy(layout, resources.reservation_order, everything))
        self._compiled: dict[tuple[object, ...], RequestFit | Reason] = {}
        self._resources = resources
        self._memory_requests: MemoryRequests | None = None
        self._sized: ResourceSet = 0  #: the resources of which ``_sizes`` tells what requests take
        self._sizes: dict[RequestFit, int] = {}

    def get(
        self, groups: tuple[RequestGroup, ...], memory: Memory | None = None, *, is_distant: bool = False
    ) -> RequestFit | Reason:
        """Return a compiled request, or why it is invalid; ``is_distant``: in the order of distant reservations."""
        key = groups, memory, is_distant
        request = self._compiled.get(key)
        if request is None:
            request = self._compiled[key] = self._compile(groups, memory, self._hierarchies[-1 if is_distant else 0])
        return request

    def of_alternative(self, alternative: Alternative) -> RequestFit | Reason:
        """Return the compiled request of an alternative, or why it is invalid."""
        return self.get(alternative.groups, alternative.memory)

    def reach(self, job: WaitingJob) -> ResourceSet:
        """Return all resources that any alternative of a job may get."""
        reach = 0
        for alternative in job.alternatives:
            request = self.of_alternative(alternative)
            reach |= 0 if isinstance(request, Reason) else request.reach
        return reach

    def are_robust(self, job: WaitingJob) -> bool:
        """Return whether occupying resources that a job does not take never changes what it takes."""
        requests = [self.of_alternative(alternative) for alternative in job.alternatives]
        return all(isinstance(request, Reason) or (request.is_monotone and request.is_steady) for request in requests)

    def size(self, job: WaitingJob, resources: ResourceSet) -> int:
        """Return how many of these resources the first alternative takes if all are free; 0 if not satisfiable."""
        request = self.of_alternative(job.alternatives[0]) if job.alternatives else None
        if not isinstance(request, RequestFit):
            return 0
        if resources != self._sized:
            self._sized, self._sizes = resources, {}
        size = self._sizes.get(request)
        if size is None:
            size = self._sizes[request] = request.fit(resources).bit_count()
        return size

    def filter_text(self, group: RequestGroup) -> str:
        return self._pools[group.pool].text

    def _compile(
        self, groups: tuple[RequestGroup, ...], memory: Memory | None, hierarchy: Hierarchy
    ) -> RequestFit | Reason:
        for group in groups:
            unknown = [level.property for level in group.levels if not hierarchy.layout.knows(level.property)]
            trouble = f'there is no property "{unknown[0]}"' if unknown else self._pools[group.pool].trouble
            if trouble or not group.levels:
                return reasons.unreadable_request(self.filter_text(group), group.levels, trouble or "it asks nothing")
        pooled = tuple(
            PooledGroup(self._pools[group.pool].members & self._not_shared, group.levels) for group in groups
        )
        if memory and self._resources.memory:
            self._memory_requests = self._memory_requests or MemoryRequests(self._resources.once(NodeMemory))
            return self._memory_requests.request(hierarchy, pooled, memory)
        return hierarchy.request(pooled)

"""Decide which module of the server runs next, and when. Pure.

Two tables define the decisions: the module that a tag requests (``MODULE_OF_TAG``), and the modules that follow the end
of a pass (``NEXT_MODULES``). In each lane one module runs at a time. The other modules wait in the order of their
requests; a repeated request counts once. So a slow scheduling pass never delays a kill, and a burst of 1000 tags causes
one scheduling pass.

NodeChangeState handles events and node states before each scheduling pass, unless it has just run. The number of
modules that start before a waiting module is at most the number of modules in its lane.

``now`` is the time of any monotonic clock; this module does not read a clock.

See docs/design/bus.rst, "The automaton".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from oar.lib.bus.exit_codes import FinaudCode, GretaCode, LeonCode, MetaSchedCode, NodeChangeStateCode, SarkoCode
from oar.lib.bus.messages import Tag
from oar.lib.monitoring.prometheus_text import ROUND_BOUNDS, Histogram


class Module(StrEnum):
    """A module of the automaton. The value is the name of its file and of its worker."""

    META_SCHED = "meta_sched"
    NODE_CHANGE_STATE = "node_change_state"
    SARKO = "sarko"
    LEON = "leon"
    FINAUD = "finaud"
    GRETA = "greta"


class Lane(StrEnum):
    """A group of modules of which only one runs at a time."""

    SCHED = "sched"
    KILL = "kill"
    CHECK = "check"
    ENERGY = "energy"


LANES: Mapping[Module, Lane] = {
    Module.META_SCHED: Lane.SCHED,
    Module.NODE_CHANGE_STATE: Lane.SCHED,
    Module.SARKO: Lane.KILL,
    Module.LEON: Lane.KILL,
    Module.FINAUD: Lane.CHECK,
    Module.GRETA: Lane.ENERGY,
}

#: The module that a tag asks for.
MODULE_OF_TAG: Mapping[Tag, Module | None] = {
    Tag.QSUB: Module.META_SCHED,
    Tag.QSUB_INTERACTIVE: Module.META_SCHED,
    Tag.TERM: Module.META_SCHED,
    Tag.BIPBIP: Module.META_SCHED,
    Tag.SCHEDULING: Module.META_SCHED,
    Tag.QRESUME: Module.META_SCHED,
    Tag.WALLTIME: Module.META_SCHED,
    Tag.QDEL: Module.LEON,
    Tag.VILLAINS: Module.SARKO,
    Tag.FINAUD: Module.FINAUD,
    Tag.REACHABILITY: Module.FINAUD,
    Tag.CHSTATE: Module.NODE_CHANGE_STATE,
    Tag.TIME: None,
}

#: The modules that follow a pass, in order, before those that wait already.  Another exit code is a failure.
NEXT_MODULES: Mapping[tuple[Module, int], tuple[Module, ...]] = {
    (Module.NODE_CHANGE_STATE, NodeChangeStateCode.NOTHING): (),
    (Module.NODE_CHANGE_STATE, NodeChangeStateCode.SCHEDULE): (Module.META_SCHED,),
    (Module.NODE_CHANGE_STATE, NodeChangeStateCode.KILL): (Module.LEON, Module.META_SCHED),
    (Module.META_SCHED, MetaSchedCode.DONE): (),
    (Module.META_SCHED, MetaSchedCode.AGAIN): (Module.META_SCHED,),
    (Module.META_SCHED, MetaSchedCode.KILL): (Module.LEON,),
    (Module.SARKO, SarkoCode.NOTHING): (),
    (Module.SARKO, SarkoCode.KILL): (Module.LEON,),
    (Module.LEON, LeonCode.NOTHING): (),
    (Module.LEON, LeonCode.SCHEDULE): (Module.META_SCHED,),
    (Module.FINAUD, FinaudCode.NOTHING): (),
    (Module.FINAUD, FinaudCode.CHANGE): (Module.NODE_CHANGE_STATE,),
    (Module.GRETA, GretaCode.DONE): (),
}


def result_of(module: Module, code: int | None) -> str:
    """Return a short description of an exit code of a module, for administrators."""
    next_modules = None if code is None else NEXT_MODULES.get((module, code))
    if next_modules is None:
        return "failed"
    return f"wants {', '.join(next_modules)}" if next_modules else "nothing more to do"


#: Modules that run from time to time without being asked for.
_PERIODIC = (Module.META_SCHED, Module.SARKO, Module.FINAUD, Module.GRETA)

#: Longest time between the starts of two rounds, in seconds.
LONGEST_WITHOUT_ROUND = 60.0
#: Longest time between the starts of two passes of Greta, in seconds.
LONGEST_WITHOUT_GRETA = 60.0
#: Shortest time between a pass of Finaud and a following one that only compares reachability, in seconds.
BETWEEN_COMPARISONS = 30.0
#: With adaptive distance, the pause after a round is as long as the round, at most this, in seconds.
LONGEST_PAUSE = 5.0
#: Behind a round that has started several jobs it is at least so long, in seconds: they end together, as they began.
SEVERAL, SHORTEST_PAUSE = 3, 0.05
#: NodeChangeState waits together with a round that is paused, until at most this time after its last pass, in seconds:
#: a pass costs nearly as much for one end as for fifty, and only the round uses the freed resources.
LONGEST_GATHERING = 0.25
#: Shortest time between two passes because of a hint, in seconds: the clocks of two machines differ.
SHORTEST_HINT = 1.0
#: A pass of NodeChangeState that ended less than this ago, in seconds, is good enough for a round.
FRESH = 1.0
LONGEST_BACK_OFF = 60.0
#: So many failures in a row at the same queues disable these queues.
FAILURES_OF_A_GROUP = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """The periods from oar.conf, in seconds."""

    sarko: float
    finaud: float  #: 0 = never
    between_rounds: float  #: 0 = adaptive
    has_greta: bool = False  #: Greta halts and wakes nodes


@dataclass(frozen=True, slots=True)
class PassStart:
    """The order to run a pass of a module.

    ``disable``: queues that the meta-scheduler must disable first. ``compare``: Finaud only compares the nodes that the
    servers reach.
    """

    module: Module
    disable: tuple[str, ...] = ()
    compare: bool = False


@dataclass(slots=True)
class Record:
    """The history of a module's passes."""

    started: float | None = None
    ended: float | None = None
    succeeded: float | None = None  #: end of the last pass that did not fail
    duration: float = 0.0
    passes: int = 0
    failures: int = 0  #: in all
    failures_in_a_row: int = 0
    not_before: float = float("-inf")
    code: int | None = None  #: of the last pass; None: it failed, or there was none


@dataclass(slots=True)
class _FailedQueues:
    """The queues for which the meta-scheduler failed, and the number of consecutive failures."""

    queues: tuple[str, ...] = ()
    failures: int = 0


def _earliest(*dates: float | None) -> float | None:
    return min((date for date in dates if date is not None), default=None)


@dataclass(slots=True)
class Automaton:
    """The state of the server: running and waiting modules. ``due`` returns the passes to start."""

    timing: Timing
    records: dict[Module, Record] = field(default_factory=lambda: {module: Record() for module in Module})
    rounds: Histogram = field(default_factory=lambda: Histogram(ROUND_BOUNDS))  #: how long they took
    queues: dict[Lane, list[Module]] = field(default_factory=lambda: {lane: [] for lane in Lane})
    running: dict[Lane, Module | None] = field(default_factory=lambda: dict.fromkeys(Lane))
    disable: tuple[str, ...] = ()
    _hint: float | None = None
    _next_start: float | None = None  #: when the next job is to start or to be given up, according to the last round
    _next_energy: float | None = None  #: when Greta has something to do, according to its last pass
    _starts: int = 0  #: jobs that the last round has started
    _late_hint: float | None = None  #: a deadline that was announced during a pass of Sarko
    _stale: bool = True  #: events or node states may have changed since NodeChangeState began its last pass
    _has_looked: bool = False  #: NodeChangeState has run for the round that waits; once is enough
    _is_late: bool = False  #: a round was requested since NodeChangeState began its last pass
    _owes_round: bool = False  #: such a round has begun, but the events announced with it wait for NodeChangeState
    _at: tuple[str, ...] = ()
    _failed: _FailedQueues = field(default_factory=_FailedQueues)
    _check_waits: bool = False  #: a regular pass of Finaud waits, not only a comparison of reachability
    _compares: bool = False  #: the last pass of Finaud was such a comparison
    _checked: float | None = None  #: start of the last regular pass of Finaud
    _overtaken: set[Module] = field(default_factory=set)  #: modules that wait, and that a follower has gone before

    def start(self) -> None:
        """Request a pass of every module, as after a stop of unknown length."""
        for tag in (Tag.CHSTATE, Tag.SCHEDULING, Tag.VILLAINS):
            self.on_tag(tag)
        if self.timing.finaud > 0:
            self.on_tag(Tag.FINAUD)
        self.on_energy()

    # -- events --

    def on_tag(self, tag: Tag) -> None:
        """Request a pass of the module of a tag. If FINAUD_FREQUENCY is 0, no comparison of reachability runs."""
        module = MODULE_OF_TAG[tag]
        if tag is Tag.REACHABILITY:
            queue = self.queues[LANES[Module.FINAUD]]
            if self.timing.finaud > 0 and Module.FINAUD not in queue:
                queue.append(Module.FINAUD)
        elif module is not None:
            self._enqueue(module)

    def on_energy(self) -> None:
        """Request a pass of Greta, if Greta is configured."""
        self._enqueue(Module.GRETA)

    def follow(self, timing: Timing) -> None:
        """Use other periods from now on. Start or stop Greta accordingly."""
        self.timing = timing
        self.queues[Lane.ENERGY].clear()
        self.on_energy()

    def on_deadline(self, date: float) -> None:
        """Record a time at which Sarko will have work."""
        self._hint = _earliest(self._hint, date)
        if self.running[LANES[Module.SARKO]] is Module.SARKO:
            self._late_hint = _earliest(self._late_hint, date)

    def at(self, queues: tuple[str, ...]) -> None:
        """Record that the meta-scheduler begins with a group of queues."""
        self._at = queues

    def on_exit(self, module: Module, code: int | None, now: float, hint: float | None = None, starts: int = 0) -> None:
        """Handle the end of a pass. ``code`` is None if the pass failed.

        ``hint``: time of the next deadline or start. ``starts``: number of jobs that a scheduling pass has started.
        """
        lane = LANES[module]
        if self.running[lane] is not module:
            return
        self.running[lane] = None
        record = self.records[module]
        record.ended = now
        record.duration = now - (record.started if record.started is not None else now)
        if module is Module.META_SCHED:
            self.rounds.add(record.duration)
            self._starts = starts
        if code is None or (module, code) not in NEXT_MODULES:
            self._fail(module, now)
            return
        record.code = code
        record.succeeded = now
        record.failures_in_a_row = 0
        if module is Module.SARKO:
            self._hint, self._late_hint = _earliest(hint, self._late_hint), None
        if module is Module.META_SCHED:
            self.disable, self._failed, self._next_start = (), _FailedQueues(), hint
        if module is Module.GRETA:
            self._next_energy = hint
        if module is Module.NODE_CHANGE_STATE and self._owes_round:
            self._owes_round = False
            self._enqueue(Module.META_SCHED)
        for follower in reversed(NEXT_MODULES[module, code]):
            self._enqueue_first(follower)

    # -- decisions --

    def due(self, now: float) -> list[PassStart]:
        """Return the passes that start now, at most one per lane, and mark them as running."""
        for module in _PERIODIC:
            if now >= self._period_end(module):
                self._enqueue(module)
        return [start for lane in Lane if self.running[lane] is None and (start := self._next(lane, now)) is not None]

    def wait(self, now: float) -> float:
        """Return after how many seconds a pass may be due if no event arrives before."""
        dates = [self._period_end(module) for module in _PERIODIC if not self._waits(module)]
        dates += [
            self._next_pass(module) for lane in Lane if self.running[lane] is None for module in self.queues[lane]
        ]
        return max(0.0, min([*dates, now + LONGEST_WITHOUT_ROUND]) - now)

    @property
    def rounds_begun(self) -> int:
        """Return the number of scheduling passes that have begun."""
        return self.records[Module.META_SCHED].passes

    def period(self, module: Module) -> float | None:
        """Return the longest time between two starts of a module's passes in seconds, None if there is no limit."""
        periods = {
            Module.META_SCHED: LONGEST_WITHOUT_ROUND,
            Module.SARKO: self.timing.sarko,
            Module.FINAUD: self.timing.finaud or None,
            Module.GRETA: LONGEST_WITHOUT_GRETA if self.timing.has_greta else None,
        }
        return periods.get(module)

    # -- internal --

    def _waits(self, module: Module) -> bool:
        """Return whether a pass waits, for Finaud a regular one."""
        return module in self.queues[LANES[module]] and (module is not Module.FINAUD or self._check_waits)

    def _enqueue(self, module: Module) -> None:
        if module is Module.GRETA and not self.timing.has_greta:
            return
        self._check_waits |= module is Module.FINAUD
        self._is_late |= module is Module.META_SCHED
        if module is Module.NODE_CHANGE_STATE:
            self._stale = True
        queue = self.queues[LANES[module]]
        if module not in queue:
            queue.append(module)

    def _enqueue_first(self, module: Module) -> None:
        """Put a module before the waiting modules.

        Each module is overtaken at most once, so repeated kills cannot block Sarko.
        """
        queue = self.queues[LANES[module]]
        if module in queue:
            queue.remove(module)
        index = next((index for index, other in enumerate(queue) if other not in self._overtaken), len(queue))
        self._overtaken.update(queue[index:])
        queue.insert(index, module)
        if module is Module.NODE_CHANGE_STATE:
            self._stale = True

    def _fail(self, module: Module, now: float) -> None:
        """Repeat a failed pass after increasing pauses. Disable the queues for which scheduling passes fail.

        A failed comparison of reachability is not repeated.
        """
        record = self.records[module]
        record.code = None
        record.failures += 1
        record.failures_in_a_row += 1
        record.not_before = now + min(2.0 ** (record.failures_in_a_row - 1), LONGEST_BACK_OFF)
        if module is not Module.FINAUD or not self._compares:
            self._enqueue(module)
        if module is Module.META_SCHED:
            is_same = self._at == self._failed.queues
            self._failed = _FailedQueues(self._at, self._failed.failures + 1 if is_same else 1)
            if self._at and self._failed.failures >= FAILURES_OF_A_GROUP:
                self.disable = tuple(dict.fromkeys((*self.disable, *self._at)))

    def _period_end(self, module: Module) -> float:
        """Return when the module runs without a request: never while it is running."""
        started = self._checked if module is Module.FINAUD else self.records[module].started
        period = self.period(module)
        if period is None or self.running[LANES[module]] is module:
            return float("inf")
        if started is None:
            return float("-inf")
        hints = {Module.META_SCHED: self._next_start, Module.GRETA: self._next_energy, Module.SARKO: self._hint}
        return self._hinted(hints.get(module), started, period)

    @staticmethod
    def _hinted(hint: float | None, started: float, period: float) -> float:
        end = started + period
        return end if hint is None else min(end, max(hint, started + SHORTEST_HINT))

    def _next_round(self) -> float:
        """Return when the next scheduling pass may begin."""
        record = self.records[Module.META_SCHED]
        if record.started is None or record.ended is None:
            return float("-inf")
        if self.timing.between_rounds > 0:
            return record.started + self.timing.between_rounds
        shortest = SHORTEST_PAUSE if self._starts >= SEVERAL else 0.0
        return record.ended + min(max(record.duration, shortest), LONGEST_PAUSE)

    def _next_gathering(self) -> float:
        """Return when NodeChangeState may run again: together with the next scheduling pass, if one waits."""
        ended = self.records[Module.NODE_CHANGE_STATE].ended
        if ended is None or Module.META_SCHED not in self.queues[LANES[Module.META_SCHED]]:
            return float("-inf")
        return min(self._next_pass(Module.META_SCHED), ended + LONGEST_GATHERING)

    def _next_check(self) -> float:
        """Return when the waiting pass of Finaud may begin: at once, if it is a regular one."""
        started = self.records[Module.FINAUD].started
        return float("-inf") if self._check_waits or started is None else started + BETWEEN_COMPARISONS

    def _next_pass(self, module: Module) -> float:
        """Return when a waiting module may begin."""
        pauses = {
            Module.META_SCHED: self._next_round,
            Module.NODE_CHANGE_STATE: self._next_gathering,
            Module.FINAUD: self._next_check,
        }
        not_before = self.records[module].not_before
        return max(not_before, pauses[module]()) if module in pauses else not_before

    def _may_start(self, module: Module, now: float) -> bool:
        return now >= self._next_pass(module)

    def _next(self, lane: Lane, now: float) -> PassStart | None:
        """Remove the first waiting module that may start from its queue, and return its pass."""
        module = next((module for module in self.queues[lane] if self._may_start(module, now)), None)
        if module is None:
            return None
        if module is Module.META_SCHED and not self._is_fresh(now):
            module = Module.NODE_CHANGE_STATE
        if module in self.queues[lane]:
            self.queues[lane].remove(module)
        self._overtaken.discard(module)
        self.running[lane] = module
        record = self.records[module]
        record.started = now
        record.passes += 1
        if module is Module.NODE_CHANGE_STATE:
            self._stale = self._is_late = False
            self._has_looked |= Module.META_SCHED in self.queues[lane] and self._may_start(Module.META_SCHED, now)
        if module is Module.FINAUD:
            self._compares, self._check_waits = not self._check_waits, False
            self._checked = self._checked if self._compares else now
            return PassStart(module, compare=self._compares)
        if module is not Module.META_SCHED:
            return PassStart(module)
        self._at = ()
        self._has_looked = False
        self._owes_round |= self._stale and self._is_late  # it cannot use what ends with these events
        self._is_late = False
        return PassStart(module, self.disable)

    def _is_fresh(self, now: float) -> bool:
        """Return whether a scheduling pass may begin without a pass of NodeChangeState first."""
        record = self.records[Module.NODE_CHANGE_STATE]
        if self._has_looked or now < record.not_before:
            return True  # in the second case NodeChangeState fails: scheduling continues without it

        round_ = self.records[Module.META_SCHED].started
        if self._stale or record.ended is None or (round_ is not None and record.ended <= round_):
            return False
        return now - record.ended < FRESH

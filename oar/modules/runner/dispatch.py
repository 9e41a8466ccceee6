"""Dispatch: decide which bipbip carries out which action of the Runner, and when. Pure functions.

At most one action runs on a job at a time. Ends and launches share a limit
(``MAX_CONCURRENT_JOBS_STARTING_OR_TERMINATING``). While both kinds wait, ends use a third of it: a launch takes about
twice as long as an end, and only a launch uses the freed resources again. So a burst of ends does not leave nodes idle,
and a burst of submissions does not delay ends. Kills, signals and probes have a separate limit. The commands of users
and the lines for waiting oarsubs have their own limits, since users determine how long these take.

An action is sent to the bipbip that has the connection to its host. A failed action is repeated after 1, 2, 4 ... 60 s
(docs/design/launch.rst, "Dispatch").
"""

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from oar.lib.bus.messages import JobAction
from oar.lib.jobs.sql_runs import InHand
from oar.lib.jobs.states import JobState, Phase

#: While both launches and ends wait, ends have one of this number of places.
PLACES_PER_END = 3
#: Limit of running actions other than launches, ends, and those whose duration users decide.
OTHERS_AT_A_TIME = 64
#: Limits of running TELL actions, of all users and of one: an oarsub may wait, be gone, or be stopped by its user.
TELLS_AT_A_TIME = 32
TELLS_OF_A_USER = 8
#: Limits of running commands of users, of all and of one user, and of the waiting commands or lines of one user.
NOTICES_AT_A_TIME = 16
NOTICES_OF_A_USER = 4
NOTICES_WAITING = 5000
#: Limit of running scripts of the site for advance reservations.
AR_EVENTS_AT_A_TIME = 8
LONGEST_PAUSE = 60
#: If more actions than these break off together, most of them have not caused it.
MOST_SUSPECTS = 3


class ActionKind(StrEnum):
    """Kind of an action that a bipbip carries out."""

    END = "END"  #: bring a finishing job to its end
    LAUNCH = "LAUNCH"  #: bring a job that has its resources to Running, from the phase that a former attempt reached
    KILL = "KILL"  #: ask oarexec to end the job
    SIGNAL = "SIGNAL"  #: send the checkpoint signal, or a user's
    SUSPEND = "SUSPEND"  #: freeze the job on its nodes
    RESUME = "RESUME"  #: thaw it
    PROBE = "PROBE"  #: ask a host about its jobs
    SWEEP = "SWEEP"  #: remove what former jobs left on a host
    CHECK = "CHECK"  #: ask a host whether what failed there works again
    TELL = "TELL"  #: send lines to a waiting oarsub
    NOTICE = "NOTICE"  #: run a command of the owner of a job; the first of ``args`` is his name
    ENERGY = "ENERGY"  #: halt and wake the nodes that rounds have chosen
    HEAL = "HEAL"  #: the site's script for suspected nodes
    EXPIRE = "EXPIRE"  #: remove the files of desktop computing that nobody needs any more
    AR_EVENT = "AR_EVENT"  #: the site's script for what happens to advance reservations, one after the other for each


#: Kinds that share the limit of launches and ends.
LIMITED = (ActionKind.END, ActionKind.LAUNCH)

#: Kinds that only send messages about a job: they need not wait for other actions on the job.
MESSAGE_KINDS = (ActionKind.TELL, ActionKind.NOTICE, ActionKind.AR_EVENT)

#: Kinds whose duration the authors of scripts decide; the Runner does not wait for them when it ends.
SCRIPT_KINDS = (ActionKind.NOTICE, ActionKind.AR_EVENT)

#: The actions on hosts that a doorbell may ask for.
HOST_ACTIONS = {JobAction.SWEEP: ActionKind.SWEEP, JobAction.PROBE: ActionKind.PROBE, JobAction.CHECK: ActionKind.CHECK}

#: The actions on jobs that a doorbell may ask for; the others are found in the database.
JOB_ACTIONS = {
    JobAction.KILL: ActionKind.KILL,
    JobAction.SIGNAL: ActionKind.SIGNAL,
    JobAction.SUSPEND: ActionKind.SUSPEND,
    JobAction.RESUME: ActionKind.RESUME,
}


@dataclass(frozen=True, slots=True)
class Action:
    """An action on a job (``job_id``), or on a host when ``job_id`` is 0."""

    kind: ActionKind
    job_id: int = 0
    host: str = field(default="", compare=False)  #: of a job: its head, where the command runs
    args: tuple[str, ...] = ()
    user: str = field(default="", compare=False)  #: of TELL: the owner of the oarsub
    message: int = 0  #: its row in the outbox, which is removed when the action has ended; 0: none

    @property
    def subject(self) -> str:
        """Return the job, the host or the message queue of the action.

        Actions with equal subjects never run together.
        """
        if self.kind in MESSAGE_KINDS:
            return f"{self.kind} {self.job_id}"
        return f"job {self.job_id}" if self.job_id else f"{self.kind} {' '.join(self.args)}"


def host_action(kind: ActionKind, host: str) -> Action:
    return Action(kind, 0, host, (host,))


def next_action(job: InHand, probe_before: int, started_before: int | None = None) -> Action | None:
    """Return the action that a job needs between its launch and its end, None if it needs none.

    ``probe_before``: a job is probed if its last update is older than this time. ``started_before``: a job that got GO
    after this time needs no action, since the confirmation of its start will still be stored. With None, no process
    will store that confirmation any more.
    """
    host = job.head_host
    if job.state is JobState.TO_LAUNCH or (job.state is JobState.LAUNCHING and not job.report_date):
        return None if job.phase is Phase.FAILED else Action(ActionKind.LAUNCH, job.job_id, host)
    if job.state is JobState.TO_ACK_RESERVATION:
        return Action(ActionKind.TELL, job.job_id)
    if job.report_date or job.state is JobState.FINISHING:
        return None if job.phase is Phase.CLEANED else Action(ActionKind.END, job.job_id, host)
    if job.phase is Phase.GO:
        is_sure = started_before is not None and job.updated >= started_before
        return None if is_sure else Action(ActionKind.LAUNCH, job.job_id, host)
    return host_action(ActionKind.PROBE, host) if host and job.updated < probe_before else None


@dataclass(slots=True)
class _Waiting:
    action: Action
    order: int
    not_before: float = 0.0


#: Waiting actions in the order in which they start: those that came first, or were put off first.
_Line = dict[Action, _Waiting]


@dataclass(slots=True)
class _Running:
    action: Action
    worker: int
    since: float
    again: bool = False  #: it was added once more meanwhile


class _Failures(NamedTuple):
    """How often in a row an action broke off, and how often it may have caused that itself."""

    breaks: int = 0
    counted: int = 0


class Dispatch:
    """The waiting and the running actions. All times are those of a monotonic clock."""

    def __init__(self, limit: int, workers: int) -> None:
        self.limit = limit
        self.workers = workers
        self._ends: _Line = {}
        self._launches: _Line = {}
        self._others: _Line = {}
        self._running: dict[Action, _Running] = {}
        self._failures: dict[Action, _Failures] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._ends) + len(self._launches) + len(self._others) + len(self._running)

    @property
    def running(self) -> list[Action]:
        return list(self._running)

    def add(self, action: Action) -> bool:
        """Add an action unless it waits already. A running action is repeated later, unless it is a launch or an end.

        A message that equals a running one is added: it waits in order. Return False if the action is refused because
        too many commands or lines of its user are waiting.
        """
        if action in self._running and action.kind not in MESSAGE_KINDS:
            self._running[action].again = action.kind not in LIMITED
        elif action not in self._line_of(action):
            queue = _message_queue(action)
            if queue and sum(_message_queue(other) == queue for other in self._others) >= NOTICES_WAITING:
                return False
            self._wait(action)
        return True

    def _line_of(self, action: Action) -> _Line:
        if action.kind is ActionKind.END:
            return self._ends
        return self._launches if action.kind is ActionKind.LAUNCH else self._others

    def due(self, now: float) -> list[tuple[int, Action]]:
        """Return the actions that may start, each with the number of its bipbip, and mark them as running.

        The end of a job starts before a kill, which it makes unnecessary, and a kill before a launch.
        """
        busy = {action.subject for action in self._running}
        ends, launches = self._shares(busy, now)
        return [
            *self._start_all(islice(self._startable(self._ends, busy, now), ends), busy, now),
            *self._start_all(self._within_limits(self._startable(self._others, busy, now)), busy, now),
            *self._start_all(islice(self._startable(self._launches, busy, now), launches), busy, now),
        ]

    def _shares(self, busy: Collection[str], now: float) -> tuple[int, int]:
        """Return how many ends and how many launches may start. Places that one kind does not need go to the other.

        If only one action may run, the older one starts.
        """
        running = Counter(action.kind for action in self._running if action.kind in LIMITED)
        free = max(0, self.limit - running.total())
        ends, launches = (list(islice(self._startable(line, busy, now), free)) for line in (self._ends, self._launches))
        is_end_older = bool(ends and launches) and ends[0].order < launches[0].order
        places = free + running.total()
        share = max(places // PLACES_PER_END, int(places > 1 or is_end_older))
        count = min(len(ends), max(share - running[ActionKind.END], free - len(launches), 0))
        return count, min(len(launches), free - count)

    def _startable(self, line: _Line, busy: Collection[str], now: float) -> Iterator[_Waiting]:
        """Iterate over the actions of a line that are due and whose subject is not busy, the oldest first."""
        return (
            waiting for waiting in line.values() if waiting.not_before <= now and waiting.action.subject not in busy
        )

    def _within_limits(self, line: Iterable[_Waiting]) -> Iterator[_Waiting]:
        """Iterate over the actions that may start together: different subjects, within the limits of their kinds."""
        used = Counter(name for action in self._running for name, _ in self._limits_of(action))
        subjects: set[str] = set()
        for waiting in line:
            limits, subject = self._limits_of(waiting.action), waiting.action.subject
            if subject not in subjects and all(used[name] < limit for name, limit in limits):
                used.update(name for name, _ in limits)
                subjects.add(subject)
                yield waiting

    def _start_all(self, line: Iterable[_Waiting], busy: set[str], now: float) -> list[tuple[int, Action]]:
        actions = [waiting.action for waiting in line]
        for action in actions:
            busy.add(action.subject)
            del self._line_of(action)[action]
            self._running[action] = _Running(action, self.worker_of(action), now)
        return [(self._running[action].worker, action) for action in actions]

    def _limits_of(self, action: Action) -> tuple[tuple[str, int], ...]:
        """Return the limits that apply to an action, each as name and number."""
        if action.kind in LIMITED:
            return ()
        if action.kind is ActionKind.NOTICE:
            return ("notices", NOTICES_AT_A_TIME), (_message_queue(action), NOTICES_OF_A_USER)
        if action.kind is ActionKind.TELL:
            all_tells = ("tells", TELLS_AT_A_TIME)
            return (all_tells, (_message_queue(action), TELLS_OF_A_USER)) if action.user else (all_tells,)
        if action.kind is ActionKind.AR_EVENT:
            return ((_message_queue(action), AR_EVENTS_AT_A_TIME),)
        return (("others", OTHERS_AT_A_TIME),)

    def worker_of(self, action: Action) -> int:
        """Return the number of the bipbip that has the connection to the action's host."""
        return self.worker_of_host(action.host or str(action.job_id))

    def worker_of_host(self, host: str) -> int:
        return zlib.crc32(host.encode()) % self.workers

    def next_due(self) -> float | None:
        """Return when the next pause of an action ends, None if no action pauses."""
        lines = (self._ends, self._launches, self._others)
        return min(
            (waiting.not_before for line in lines for waiting in line.values() if waiting.not_before), default=None
        )

    def interrupted_by(self, action: Action) -> list[tuple[int, Action]]:
        """Return the running launch that a kill, a signal or an end interrupts, with the number of its bipbip."""
        if action.kind not in (ActionKind.KILL, ActionKind.SIGNAL, ActionKind.END):
            return []
        launch = self._running.get(Action(ActionKind.LAUNCH, action.job_id))
        return [(launch.worker, launch.action)] if launch else []

    def finish(self, action: Action, now: float, retry_after: float | None = None) -> None:
        """Remove a running action. If ``retry_after`` is given, repeat the action after that many seconds."""
        running = self._running.pop(action, None)
        self._failures.pop(action, None)
        if running is None:
            return
        if retry_after is not None:
            self._again(action, now + retry_after)
        elif running.again:
            self._again(running.action, now)

    def fail(self, action: Action, now: float, *, counts: bool = True) -> int:
        """Repeat an action that broke off after a pause. Return the number of its consecutive failures.

        ``counts``: it may have caused this itself.
        """
        self._running.pop(action, None)
        former = self._failures.get(action, _Failures())
        failures = _Failures(former.breaks + 1, former.counted + counts)
        self._failures[action] = failures
        self._again(action, now + min(2**former.breaks, LONGEST_PAUSE))
        return failures.counted

    def suspects(self, worker: int, seconds: float, now: float) -> set[Action]:
        """Return the running actions that may have caused the end of their bipbip.

        It is killed for those that run longer than ``seconds``. If there is none and few run, each may be the cause; of
        many, most are not, and none is suspected.
        """
        overdue = {action for number, action in self.older_than(seconds, now) if number == worker}
        running = self.of_worker(worker)
        return overdue or (set(running) if len(running) <= MOST_SUSPECTS else set())

    def give_up(self, action: Action) -> None:
        """Remove a waiting action."""
        self._line_of(action).pop(action, None)
        self._failures.pop(action, None)

    def of_worker(self, worker: int) -> list[Action]:
        """Return the running actions of a bipbip."""
        return [running.action for running in self._running.values() if running.worker == worker]

    def older_than(self, seconds: float, now: float) -> list[tuple[int, Action]]:
        """Return the actions that have run longer than this, each with its bipbip."""
        return [(running.worker, running.action) for running in self._running.values() if running.since + seconds < now]

    def forget_jobs(self, live_jobs: Iterable[int]) -> None:
        """Remove the waiting actions of jobs that are not in ``live_jobs``, except messages."""
        live_ids = set(live_jobs)
        for action in (*self._ends, *self._launches, *self._others):
            if action.job_id and action.kind not in MESSAGE_KINDS and action.job_id not in live_ids:
                self.give_up(action)

    def _again(self, action: Action, not_before: float) -> None:
        self._line_of(action).pop(action, None)
        self._wait(action, not_before)

    def _wait(self, action: Action, not_before: float = 0.0) -> None:
        self._order += 1
        self._line_of(action)[action] = _Waiting(action, self._order, not_before)


def _message_queue(action: Action) -> str:
    """Return the queue of a message, by kind and user: its messages share limits. Return '' for other actions."""
    if action.kind is ActionKind.AR_EVENT:
        return "events of advance reservations"
    if action.kind is ActionKind.NOTICE:
        return f"notices of {''.join(action.args[:1])}"
    return f"tells of {action.user}" if action.kind is ActionKind.TELL and action.user else ""

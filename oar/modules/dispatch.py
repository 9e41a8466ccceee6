"""Which action of the Runner goes to which bipbip, and when: pure.

One action at a time works on a job.  Ends and launches share a limit (``MAX_CONCURRENT_JOBS_STARTING_OR_TERMINATING``)
in which ends come first, so that a burst of submissions cannot keep nodes occupied; kills, signals and probes have a
limit of their own, and so have the commands of users and the lines for their oarsubs: how long those take is theirs to
decide.  An action goes to the bipbip that talks to its host, whose connection is warm.  What fails is tried again after
1, 2, 4 ... 60 s (server.md 5.6).
"""

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from oar.lib.db.runs import InHand
from oar.lib.messages import JobAction
from oar.lib.states import JobState, Phase

#: Actions that are not launches, ends, or in the hands of users: how many at a time.
OTHERS_AT_A_TIME = 64
#: Talks with oarsubs that wait, or are gone, or were stopped by their user: how many at a time, and of one user.
TELLS_AT_A_TIME = 32
TELLS_OF_A_USER = 8
#: Commands of users: how many at a time, of all and of one user, and how many of a user, or lines for him, may wait.
NOTICES_AT_A_TIME = 16
NOTICES_OF_A_USER = 4
NOTICES_WAITING = 5000
LONGEST_PAUSE = 60


class Kind(StrEnum):
    """What a bipbip may do."""

    END = "END"  #: bring a finishing job to its end
    LAUNCH = "LAUNCH"  #: bring a job that has its resources to Running, from wherever a former attempt left it
    KILL = "KILL"  #: ask oarexec to end the job
    SIGNAL = "SIGNAL"  #: send the checkpoint signal, or a user's
    SUSPEND = "SUSPEND"  #: freeze the job on its nodes
    RESUME = "RESUME"  #: thaw it
    PROBE = "PROBE"  #: ask a host what has become of its jobs
    SWEEP = "SWEEP"  #: remove from a host what belongs to no job that may be there
    TELL = "TELL"  #: lines for a waiting oarsub
    NOTICE = "NOTICE"  #: a command of the owner of a job; the first of ``args`` is his name
    ENERGY = "ENERGY"  #: halt and wake the nodes that rounds have chosen
    HEAL = "HEAL"  #: the site's script for suspected nodes


#: Kinds under the limit of launches and ends, in order of preference.
LIMITED = (Kind.END, Kind.LAUNCH)

#: Kinds that speak of a job but do nothing with it: they wait for nothing but one another.
SPOKEN = (Kind.TELL, Kind.NOTICE)

#: What the Runner may be asked to do with hosts.
HOSTS_ASKED = {JobAction.SWEEP: Kind.SWEEP, JobAction.PROBE: Kind.PROBE}

#: What the Runner may be asked for by name; the rest it finds in the database.
ASKED = {
    JobAction.KILL: Kind.KILL,
    JobAction.SIGNAL: Kind.SIGNAL,
    JobAction.SUSPEND: Kind.SUSPEND,
    JobAction.RESUME: Kind.RESUME,
}


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do for a job (``job_id``), or for a host when ``job_id`` is 0."""

    kind: Kind
    job_id: int = 0
    host: str = field(default="", compare=False)  #: of a job: the one that its command runs on
    args: tuple[str, ...] = ()
    user: str = field(default="", compare=False)  #: whose oarsub is told

    @property
    def subject(self) -> str:
        """What no two actions work on at a time."""
        if self.kind in SPOKEN:
            return f"{self.kind} {self.job_id}"
        return f"job {self.job_id}" if self.job_id else f"{self.kind} {' '.join(self.args)}"


def host_action(kind: Kind, host: str) -> Action:
    """Return an action on a host."""
    return Action(kind, 0, host, (host,))


def wanted(one: InHand, probe_before: int) -> Action | None:
    """Return what is to be done for a job between its launch and its end, None if nothing (server.md 5.6)."""
    host = one.head_host
    if one.state is JobState.TO_LAUNCH or (one.state is JobState.LAUNCHING and not one.report_date):
        return None if one.phase is Phase.FAILED else Action(Kind.LAUNCH, one.job_id, host)
    if one.state is JobState.TO_ACK_RESERVATION:
        return Action(Kind.TELL, one.job_id)
    if one.report_date or one.state is JobState.FINISHING:
        return None if one.phase is Phase.CLEANED else Action(Kind.END, one.job_id, host)
    if one.phase is Phase.GO:
        return Action(Kind.LAUNCH, one.job_id, host)
    return host_action(Kind.PROBE, host) if host and one.updated < probe_before else None


@dataclass(slots=True)
class _Waiting:
    action: Action
    order: int
    not_before: float = 0.0


@dataclass(slots=True)
class _Running:
    action: Action
    worker: int
    since: float
    again: bool = False  #: it was asked for once more meanwhile


class Dispatch:
    """The actions that wait and those that run.  Times are those of a monotonic clock."""

    def __init__(self, limit: int, workers: int) -> None:
        self.limit = limit
        self.workers = workers
        self._waiting: dict[Action, _Waiting] = {}
        self._running: dict[Action, _Running] = {}
        self._failures: dict[Action, int] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    @property
    def running(self) -> list[Action]:
        """What is being done."""
        return list(self._running)

    def want(self, action: Action) -> bool:
        """Ask for an action; twice is once.  One that is just being done will be done again.

        False: its user has too many commands or lines that wait, it will not be done.
        """
        if action in self._running:
            self._running[action].again = action.kind not in LIMITED
        elif action not in self._waiting:
            if _speaker(action) and self._waiting_of(_speaker(action)) >= NOTICES_WAITING:
                return False
            self._order += 1
            self._waiting[action] = _Waiting(action, self._order)
        return True

    def _waiting_of(self, speaker: str) -> int:
        return sum(_speaker(action) == speaker for action in self._waiting)

    def knows(self, job_id: int) -> bool:
        """Whether a launch or an end of the job waits or runs."""
        return any(Action(kind, job_id) in table for kind in LIMITED for table in (self._waiting, self._running))

    def due(self, now: float) -> list[tuple[int, Action]]:
        """Return the actions that may begin, each with the number of its bipbip; they count as running."""
        begun = []
        busy = {action.subject for action in self._running}
        used = Counter(name for action in self._running for name, _ in self._limits_of(action))
        for waiting in sorted(self._waiting.values(), key=_preference):
            action = waiting.action
            limits = self._limits_of(action)
            if waiting.not_before > now or action.subject in busy or any(used[name] >= most for name, most in limits):
                continue
            used.update(name for name, _ in limits)
            busy.add(action.subject)
            worker = self.worker_of(action)
            del self._waiting[action]
            self._running[action] = _Running(action, worker, now)
            begun.append((worker, action))
        return begun

    def _limits_of(self, action: Action) -> tuple[tuple[str, int], ...]:
        """What an action counts against, each with how many it allows."""
        if action.kind in LIMITED:
            return (("limited", self.limit),)
        if action.kind is Kind.NOTICE:
            return ("notices", NOTICES_AT_A_TIME), (_speaker(action), NOTICES_OF_A_USER)
        if action.kind is Kind.TELL:
            whole = ("tells", TELLS_AT_A_TIME)
            return (whole, (_speaker(action), TELLS_OF_A_USER)) if action.user else (whole,)
        return (("others", OTHERS_AT_A_TIME),)

    def worker_of(self, action: Action) -> int:
        """Return the bipbip that talks to the action's host."""
        return zlib.crc32((action.host or str(action.job_id)).encode()) % self.workers

    def next_due(self) -> float | None:
        """Return when the next pause of an action ends, None if none is in one."""
        return min((waiting.not_before for waiting in self._waiting.values() if waiting.not_before), default=None)

    def interrupted_by(self, action: Action) -> list[tuple[int, Action]]:
        """Return the launch that a kill, a signal or an end must not wait for, with its bipbip."""
        if action.kind not in (Kind.KILL, Kind.SIGNAL, Kind.END):
            return []
        launch = self._running.get(Action(Kind.LAUNCH, action.job_id))
        return [(launch.worker, launch.action)] if launch else []

    def done(self, action: Action, now: float, retry_after: float | None = None) -> None:
        """Note the end of an action; ``retry_after``: it has to be done again after so many seconds."""
        running = self._running.pop(action, None)
        self._failures.pop(action, None)
        if running is None:
            return
        if retry_after is not None:
            self._again(action, now + retry_after)
        elif running.again:
            self._again(running.action, now)

    def failed(self, action: Action, now: float) -> int:
        """Note that an action broke off; it will be done again after a pause.  Returns the failures in a row."""
        self._running.pop(action, None)
        failures = self._failures.get(action, 0) + 1
        self._failures[action] = failures
        self._again(action, now + min(2 ** (failures - 1), LONGEST_PAUSE))
        return failures

    def give_up(self, action: Action) -> None:
        """Forget an action that waits."""
        self._waiting.pop(action, None)
        self._failures.pop(action, None)

    def of_worker(self, worker: int) -> list[Action]:
        """Return what a bipbip is doing."""
        return [running.action for running in self._running.values() if running.worker == worker]

    def older_than(self, seconds: float, now: float) -> list[tuple[int, Action]]:
        """Return the actions that have run for longer, each with its bipbip."""
        return [(one.worker, one.action) for one in self._running.values() if one.since + seconds < now]

    def forget_jobs(self, live: Iterable[int]) -> None:
        """Forget what waits to be done with jobs that are not in ``live``; what is to be said of them is said."""
        known = set(live)
        for action in [one for one in self._waiting if one.job_id and one.kind not in SPOKEN]:
            if action.job_id not in known:
                self.give_up(action)

    def _again(self, action: Action, not_before: float) -> None:
        self._order += 1
        self._waiting[action] = _Waiting(action, self._order, not_before)


def _speaker(action: Action) -> str:
    """For which user something is said, and how; '' if that is not known."""
    if action.kind is Kind.NOTICE:
        return f"notices of {''.join(action.args[:1])}"
    return f"tells of {action.user}" if action.kind is Kind.TELL and action.user else ""


def _preference(waiting: _Waiting) -> tuple[int, int]:
    """Ends first, since a job that ends needs no kill any more; launches last; the oldest first."""
    rank = {Kind.END: 0, Kind.LAUNCH: 2}.get(waiting.action.kind, 1)
    return rank, waiting.order

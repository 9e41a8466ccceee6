"""Why jobs wait: each reason, declared once, its texts, and the waiting time by reason (pure functions).

A scheduling pass stores the reason of each waiting job in the table ``job_reasons``: a code, a short text, and data
(``oar/kao/facts/reasons.py``). A reason of another version or of an external scheduler is shown with its short text.

The table ``job_waits`` contains the dates at which the code of a job changed; the state log contains the periods of
waiting. If the reason of a job changes often, the older changes are folded into one sum per code.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from oar.lib.base.sizes import format_memory
from oar.lib.base.times import format_date, format_duration
from oar.lib.jobs.records import StateChange
from oar.lib.jobs.states import JobState, LaunchFault


class ReasonCode(StrEnum):
    """Why a job does not start now, ``job_reasons.code``; also what it waited for, ``job_waits.code``.

    To add a reason: declare it here, with a function ``@_sentence_of(ReasonCode...)`` below that writes its sentence,
    and a function in ``oar/kao/facts/reasons.py`` that makes it. Advice for users is in ``explanations``.
    """

    meaning: str  #: for the documentation
    label: str  #: a few words for tables; the names in braces are fields of the data
    waiting_for: str  #: text after a duration: "1:00:00 behind reservations"
    data: str  #: the fields of its data, for the documentation

    def __new__(cls, code: str, meaning: str = "", label: str = "", waiting_for: str = "", data: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_, member.meaning, member.label = code, meaning, label
        member.waiting_for, member.data = waiting_for, data
        return member

    # fmt: off
    IMPOSSIBLE = ("IMPOSSIBLE", "the cluster has no such resources",
        "impossible", "because no resources satisfied its request",
        "``group``: the clause of the request; ``matching``: number of resources that satisfy its conditions;"
        " ``nearest``: the number that would fit. For lack of memory: ``memory``: MiB of the request, ``per_core`` or"
        " per node; ``largest``: MiB of the largest node")
    CONDITION = ("CONDITION", "a condition of its request cannot be evaluated, or takes too much time",
        "condition", "because its conditions could not be evaluated",
        "``group``: the clause of the request; ``trouble``: why its conditions cannot be evaluated")
    NOT_ALIVE = ("NOT_ALIVE", "the cluster has them, but they are not Alive",
        "nodes", "for nodes that were not alive",
        "``suspected`` and ``absent``: nodes; ``nodes``: their number; ``counts``: numbers of Suspected and Absent;"
        " ``type``: type of the resource that every job needs")
    BUSY = ("BUSY", "other jobs use them",
        "resources", "for resources that others used",
        "``date``: end of the last job; ``jobs`` that end then; ``count``: their number. With ``overdue``: these"
        " jobs and the ``advance_reservations`` exceed their time, and there is no date")
    MEMORY = ("MEMORY", "its resources are free, but too little memory of their nodes",
        "memory", "for memory",
        "``date``: when there is enough (not there: a plug-in chose the resources); ``memory``: MiB of the request,"
        " ``per_core`` or per node; ``node``: one that has ``resources`` free, and ``free`` MiB")
    RESERVATION = ("RESERVATION", "reservations have them",
        "reservation {reservations[0]}", "behind reservations",
        "``date``: end of the last one; ``reservations``, or the numbers of ``advance_reservations``; ``jobs`` that"
        " end then, and their ``count``; ``over``: end of the advance reservation after which a suspended job"
        " resumes")
    ADVANCE = ("ADVANCE", "it is in an advance reservation in which it cannot start now",
        "advance reservation {reservation}", "for its advance reservation",
        "``reservation``: its number; ``date``: its begin, or the end of the ``jobs`` in it, with their ``count``;"
        " ``error``: its error; ``left``: maximum duration of a job in seconds; ``size``: number of its resources"
        " now")
    RESERVED = ("RESERVED", "it is a reservation that waits for its own date",
        "its date", "for its own date",
        "``date``: start of the reservation")
    NO_SLOT = ("NO_SLOT", "its resources are never free for long enough",
        "no slot", "because its resources were never free for long enough",
        "``detail``: what limits the resources; ``date``: when some are withdrawn; ``container``: the full one")
    QUOTA = ("QUOTA", "with it, a quota would be exceeded",
        "quota {rule[0]},{rule[1]},{rule[2]},{rule[3]}", "because of quotas",
        "``rule``; ``used``: usage including the job; ``limits``; ``date``: when the quota allows the job;"
        " ``latest``: time up to which quotas are checked. With ``overdue``: counted ``jobs`` (their number is"
        " ``count``) exceed their time, and there is no date")
    DEPENDENCY = ("DEPENDENCY", "another job must end or start first",
        "dependency {job}", "for other jobs that it depends on",
        "``job``: the other job; ``date``, if known; ``overdue``: it exceeds its time; ``jobs`` that wait for each"
        " other")
    CONTAINER = ("CONTAINER", "its container is not planned yet, has no free resources, or is too small",
        "container {container}", "for its container",
        "``container``; ``date``: when it has free resources; ``resources``: its size, if it is too small")
    POSTPONED = ("POSTPONED", "its user has set a later date",
        "postponed", "because it was postponed",
        "``date``: earliest start")
    DEADLINE = ("DEADLINE", "it would end after its deadline",
        "deadline", "because of its deadline",
        "``end``: when it would end; ``deadline``")
    TOKEN = ("TOKEN", "there are too few tokens of the site, or their number is unknown",
        "token {token}", "for tokens",
        "``token``: its name; ``want``: number that the job needs; ``have``: free number; ``has_script``: false if"
        " the site counts no such token")
    ARRAY = ("ARRAY", "as many jobs of its array run as are allowed at a time",
        "array limit", "for other jobs of its array",
        "``array``; ``limit``: maximum number of its running jobs. With ``overdue``: running ``jobs`` (their number"
        " is ``count``) exceed their time, and there is no date")
    LIMIT = ("LIMIT", "a limit of the scheduling pass was reached before its turn",
        "priority", "because of limits of rounds",
        "``count``: number of jobs planned before it; ``limit``: ``jobs``, ``time``, ``user``"
        " (``SCHEDULER_FAIRSHARING_MAX_JOB_PER_USER``), ``order`` (a queue without backfilling) or ``depth`` (`Depth"
        " of backfilling`_: ``count`` waiting jobs of its queue have a planned start)")
    LAUNCH = ("LAUNCH", "its resources are free, but not ready yet",
        "launch", "for resources that were not ready yet",
        "``hosts``, ``jobs`` or ``container`` for which the job waits")
    EXTERNAL = ("EXTERNAL", "a scheduler of the site plans it",
        "scheduler {scheduler}", "for the scheduler of its queue",
        "``scheduler``; ``date``: its predicted start; ``said``: whether the text comes from the scheduler;"
        " ``rejected``: why its placement is invalid; ``failed``: that it did not exit normally")
    QUEUE = ("QUEUE", "its queue is stopped",
        "queue stopped", "because its queue was stopped",
        "``queue``: its name; ``removed``: true if it was removed")
    PROJECT_CLOSED = ("PROJECT_CLOSED", "its project is closed",
        "project closed", "because its project was closed",
        "``project``: its name")
    BUDGET = ("BUDGET", "the budget of its project is used up",
        "budget of {project}", "because the budget of its project was used up",
        "``project``: the project with the budget, that of the job or one above it; ``used`` and ``hours``: resource"
        " hours; ``date``: start of the next period, if that has a budget")
    HOLD = ("HOLD", "it is on hold",
        "hold", "on hold",
        "``since``: when it began")
    FAULT = ("FAULT", "launches are held because of a fault that is no job's",
        "launches held", "because launches were held after a fault",
        "``fault``: a code (``ACCOUNT``, ``HOME``, ``PROLOGUE``, ``NODE_SETUP``, ``SERVER_SCRIPT``,"
        " ``CONFIGURATION``); ``user``: user whose launches are held, empty for all; ``text``: description;"
        " ``date``: the next check or retry")
    INTERNAL = ("INTERNAL", "the scheduler failed for this job: see its log",
        "error", "because of an error of the scheduler",
        "``detail``: what failed")
    # fmt: on


class RoundLimit(StrEnum):
    """The limit of a scheduling pass that kept a job from being planned.

    It is the value of ``limit`` in the data of ``ReasonCode.LIMIT``.
    """

    JOBS = "jobs"  #: maximum number of jobs planned in a pass
    TIME = "time"  #: the time of the pass was over
    USER = "user"  #: maximum number of jobs of each user planned in a queue
    ORDER = "order"  #: its queue does not go past the first job that waits
    DEPTH = "depth"  #: maximum number of waiting jobs for which its queue plans starts


class WaitStage(StrEnum):
    """A part of the waiting time without a reason of a scheduling pass.

    Like ``ReasonCode``, it is a value of ``job_waits.code``.
    """

    NEW = "NEW"  #: before the first scheduling pass that considered the job
    STARTING = "STARTING"  #: its nodes were prepared


#: Texts after a duration, by code.
WAITING_FOR: Mapping[str, str] = {
    **{code: code.waiting_for for code in ReasonCode},
    WaitStage.NEW: "until the scheduler looked at it",
    WaitStage.STARTING: "while its nodes were prepared",
}

_CODES: Mapping[str, ReasonCode] = {str(code): code for code in ReasonCode}


def reason_code(stored: str) -> ReasonCode | str:
    """Return a code as a ``ReasonCode``; return a code of another version unchanged."""
    return _CODES.get(stored, stored)


class WaitReason(NamedTuple):
    """Why a job does not start, stored by the last scheduling pass that considered it (``job_reasons``)."""

    date: int  #: since when this is so
    code: ReasonCode | str  #: a plain string: the code of another version
    text: str
    data: Mapping[str, Any]


# -- texts ------------------------------------------------------------------------------------------------------------

_Sentence = Callable[[Mapping[str, Any]], str]
_SENTENCES: dict[str, _Sentence] = {}


def _sentence_of(code: ReasonCode) -> Callable[[_Sentence], _Sentence]:
    """Declare the function that writes the sentence of a reason from its data; '' if the short text says it all."""

    def declare(write: _Sentence) -> _Sentence:
        _SENTENCES[code] = write
        return write

    return declare


#: What may be raised by data that another version has written.
_INCOMPLETE = (LookupError, TypeError, ValueError, AttributeError, OverflowError)


def reason_sentence(reason: WaitReason) -> str:
    """Return a reason as a complete sentence with its numbers; return its short text if its data is incomplete."""
    write = _SENTENCES.get(reason.code)
    try:
        text = write(reason.data) if write else ""
    except _INCOMPLETE:
        text = ""
    return text or f"{reason.text[:1].upper()}{reason.text[1:].rstrip('.')}."


def is_overdue(reason: WaitReason) -> bool:
    """Return whether a job waits for jobs past their end time, for example on a hanging node.

    The start of such a job cannot be predicted.
    """
    return reason.data.get("overdue") is True


def reason_label(reason: WaitReason) -> str:
    """Return a reason in a few words, in parentheses."""
    form = reason.code.label if isinstance(reason.code, ReasonCode) else reason.code.lower()
    if reason.data.get("advance_reservations"):
        form = "advance reservation {advance_reservations[0]}"
    try:
        return f"({form.format(**reason.data)})"
    except _INCOMPLETE:
        return f"({form.partition(' {')[0]})"


def _named(noun: str, names: Sequence[object], count: int | None = None) -> str:
    """Return ``job 3``, ``jobs 3 and 4``, ``jobs 3, 4 and 12 others``."""
    texts = [str(name) for name in names]
    more = (count or len(texts)) - len(texts)
    if more > 0:
        texts.append(f"{more} other{'s' * (more > 1)}")
    joined = " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)
    return f"{noun}{'s' * (len(texts) > 1)} {joined}"


@_sentence_of(ReasonCode.IMPOSSIBLE)
def _impossible(data: Mapping[str, Any]) -> str:
    if "memory" in data:
        largest = format_memory(data["largest"])
        return f"Too few nodes have the {_memory_text(data)} that it asks for; the largest has {largest}."
    text = f"No resources of this cluster satisfy {data['group']}, even when nothing runs."
    if data.get("matching") == 0:
        return f"{text} No resource matches the conditions."
    nearest = data.get("nearest")
    return f"{text} The nearest possible request is {nearest['property']}={nearest['quantity']}." if nearest else text


@_sentence_of(ReasonCode.CONDITION)
def _condition(data: Mapping[str, Any]) -> str:
    return f"The request {data['group']} cannot be evaluated: {data['trouble']}."


@_sentence_of(ReasonCode.NOT_ALIVE)
def _not_alive(data: Mapping[str, Any]) -> str:
    if "type" in data:
        return f"Nothing is started now: a resource of type {data['type']} is Suspected, and every job needs it."
    missing = []
    for state, count, nodes in zip(("Suspected", "Absent"), data["counts"], data["nodes"], strict=True):
        names = data[state.lower()]
        where = f" ({', '.join(names)}{', ...' if nodes > len(names) else ''})" if names else ""
        missing += [f"{count} {state}{where}"] if count else []
    return f"Too few of its resources are alive: {' and '.join(missing)}." if missing else ""


@_sentence_of(ReasonCode.BUSY)
def _busy(data: Mapping[str, Any]) -> str:
    if data.get("overdue"):
        numbers, jobs = data["advance_reservations"], data["jobs"]
        holders = [_named("advance reservation", numbers)] if numbers else []
        holders += [_named("job", jobs, data["count"])] if jobs else []
        return f"Its resources are still held by {' and '.join(holders)}, though their time is over."
    if not data["jobs"]:
        return f"Enough resources are free for long enough from {format_date(data['date'])} on."
    jobs = _named("job", data["jobs"], data["count"])
    return f"Its resources are taken until {format_date(data['date'])} at the latest, by {jobs}."


def _memory_text(data: Mapping[str, Any]) -> str:
    return f"{format_memory(data['memory'])} of memory per {'core' if data['per_core'] else 'node'}"


@_sentence_of(ReasonCode.MEMORY)
def _memory(data: Mapping[str, Any]) -> str:
    count = data["resources"]
    if "date" not in data:
        chosen = f"its plug-in chose {count} core{'s' * (count != 1)} of {data['node']}"
        return f"It asks for {_memory_text(data)}, but {chosen}, which has {format_memory(data['free'])} free."
    free = f"{count} core{'s' * (count != 1)} and {format_memory(data['free'])} free"
    until = format_date(data["date"])
    return f"It asks for {_memory_text(data)}, which is not free before {until}: {data['node']} has {free}."


@_sentence_of(ReasonCode.RESERVATION)
def _behind(data: Mapping[str, Any]) -> str:
    if "over" in data:
        number = data["advance_reservations"][0]
        return f"It waits until the advance reservation {number} is over, on {format_date(data['over'])}."
    if numbers := data.get("advance_reservations"):
        by = _named("advance reservation", numbers)
    else:
        by = _named("reservation", data["reservations"])
    text = f"Its resources are reserved until {format_date(data['date'])}, by {by}"
    return f"{text}; {_named('job', data['jobs'])} must end, too." if data.get("jobs") else f"{text}."


@_sentence_of(ReasonCode.ADVANCE)
def _advance(data: Mapping[str, Any]) -> str:
    name = f"advance reservation {data['reservation']}"
    if "error" in data:
        error = f"The {name} is in error: {data['error']}"
        return f"{error}; no job of it starts meanwhile (hard error handling)."
    if "left" in data:
        left = f"It is longer than the remaining time of the {name} ({format_duration(data['left'])})"
        return f"{left}; submitted again with a shorter walltime it could start." if data["left"] else f"{left}."
    if "size" in data:
        some = f"{data['size']} resource{'s' * (data['size'] != 1)}"
        return f"The {name} has only {some} on which jobs can start now."
    if "count" in data:
        by = f", with {_named('job', data['jobs'], data['count'])}" if data["jobs"] else ""
        return f"The {name} is busy until {format_date(data['date'])}{by}."
    if "date" in data:
        return f"It waits for the {name} to start at {format_date(data['date'])}."
    return f"The {name} has no room for it until its end."


@_sentence_of(ReasonCode.RESERVED)
def _reserved(data: Mapping[str, Any]) -> str:
    return f"It is a reservation, and its date is {format_date(data['date'])}."


@_sentence_of(ReasonCode.NO_SLOT)
def _no_slot(data: Mapping[str, Any]) -> str:
    detail = data.get("detail")
    return f"Its resources are never free for long enough{f': {detail}' if detail else ''}."


@_sentence_of(ReasonCode.QUOTA)
def _quota(data: Mapping[str, Any]) -> str:
    if "latest" in data:
        return f"It would start after {format_date(data['latest'])}, and the quotas are known only until then."
    names = ("resources", "jobs", "resource hours")
    over = [
        f"{used:g} {name} where {limit:g} are allowed"
        for used, limit, name in zip(data["used"], data["limits"], names, strict=True)
        if limit >= 0 and used > limit
    ]
    rule = ",".join(data["rule"])
    if data.get("overdue"):
        freed = f"That quota counts {_overdue(data)}."
    elif "date" in data:
        freed = f"That quota is free again on {format_date(data['date'])}."
    else:
        freed = "That quota never becomes free."
    return f"With it, the quota {rule} would be exceeded: {' and '.join(over)}. {freed}" if over else ""


def _overdue(data: Mapping[str, Any]) -> str:
    """Return a text about the jobs that have not ended although they are past their end time."""
    jobs = _named("job", data["jobs"], data["count"])
    has, its = ("have", "their") if data["count"] > 1 else ("has", "its")
    return f"{jobs}, which {has} not ended though {its} time is over"


@_sentence_of(ReasonCode.DEPENDENCY)
def _dependency(data: Mapping[str, Any]) -> str:
    if "jobs" in data:
        return f"The {_named('job', data['jobs'])} wait for each other: none of them can start."
    if data.get("overdue"):
        return f"It waits for job {data['job']}, which has exceeded its time."
    return f"It waits for job {data['job']}, until {format_date(data['date'])}." if "date" in data else ""


@_sentence_of(ReasonCode.CONTAINER)
def _container(data: Mapping[str, Any]) -> str:
    if "resources" in data:
        return f"It asks for more than its container {data['container']} has: {data['resources']} resources."
    if "date" in data:
        return f"There is room in its container {data['container']} from {format_date(data['date'])} on."
    return f"Its container {data['container']} has not been planned yet."


@_sentence_of(ReasonCode.POSTPONED)
def _postponed(data: Mapping[str, Any]) -> str:
    return f"It was postponed to {format_date(data['date'])}."


@_sentence_of(ReasonCode.DEADLINE)
def _deadline(data: Mapping[str, Any]) -> str:
    late = format_duration(data["end"] - data["deadline"])
    return f"It would end on {format_date(data['end'])}, {late} after its deadline."


@_sentence_of(ReasonCode.TOKEN)
def _token(data: Mapping[str, Any]) -> str:
    if "have" in data:
        return f"It needs {data['want']} tokens {data['token']}, and there are {data['have']}."
    if not data.get("has_script", True):
        return f"It needs tokens {data['token']}, which do not exist at this site."
    return f"The number of tokens {data['token']} is unknown: the site's command gave no number."


@_sentence_of(ReasonCode.LIMIT)
def _limit(data: Mapping[str, Any]) -> str:
    count = data["count"]
    first = f"{count} jobs that wait" if count > 1 else "job that waits"
    return {
        RoundLimit.JOBS: f"A round plans a limited number of jobs: {count} were before it.",
        RoundLimit.TIME: f"The time for planning was over after {count} jobs, before its turn.",
        RoundLimit.USER: f"A round plans {count} jobs of each user, and there are as many of his before it.",
        RoundLimit.DEPTH: f"It cannot start now; its queue plans later starts only for the first {first}.",
        RoundLimit.ORDER: "Its queue starts jobs strictly in their order, and one before it waits.",
    }[RoundLimit(data["limit"])]


@_sentence_of(ReasonCode.ARRAY)
def _array(data: Mapping[str, Any]) -> str:
    text = f"Of the array {data['array']}, {data['limit']} may run at a time, and as many do"
    return f"{text}, among them {_overdue(data)}." if data.get("overdue") else f"{text}."


@_sentence_of(ReasonCode.LAUNCH)
def _launch(data: Mapping[str, Any]) -> str:
    if "hosts" in data:
        return f"Its resources are free, but {_named('node', data['hosts'])} must become Alive first."
    if "container" in data:
        return f"Its resources are free, but its container {data['container']} does not run yet."
    if "jobs" in data:
        return f"Its resources are nearly free: {_named('job', data['jobs'])} must end first."
    return ""


@_sentence_of(ReasonCode.EXTERNAL)
def _external(data: Mapping[str, Any]) -> str:
    scheduler = f"The scheduler {data['scheduler']} of its queue"
    if "rejected" in data:
        return f"{scheduler} planned it in an impossible way: {data['rejected']}."
    if "failed" in data:
        return f"{scheduler} failed: an administrator has to look at the log."
    if data.get("said"):
        return ""
    if "date" in data:
        return f"{scheduler} plans to start it on {format_date(data['date'])}."
    return f"{scheduler} has not planned it yet."


@_sentence_of(ReasonCode.QUEUE)
def _queue(data: Mapping[str, Any]) -> str:
    if data.get("removed"):
        return f"The queue {data['queue']} was removed: nothing of it is planned any more."
    return f"The queue {data['queue']} is stopped: an administrator has to enable it."


@_sentence_of(ReasonCode.PROJECT_CLOSED)
def _project_closed(data: Mapping[str, Any]) -> str:
    return f"The project {data['project']} is closed: its jobs do not start."


@_sentence_of(ReasonCode.BUDGET)
def _budget(data: Mapping[str, Any]) -> str:
    used, hours = f"{data['used']:,.1f}", f"{data['hours']:,.10g}"
    text = f"The budget of the project {data['project']} does not allow it: {used} of {hours} resource hours count"
    if data.get("date"):
        return f"{text}. The next period begins on {format_date(data['date'])}."
    return f"{text}, and the next period has no budget yet."


@_sentence_of(ReasonCode.HOLD)
def _held(data: Mapping[str, Any]) -> str:
    return f"It is on hold since {format_date(data['since'])}, until it is released with oarresume."


@_sentence_of(ReasonCode.FAULT)
def _fault(data: Mapping[str, Any]) -> str:
    if data["fault"] == LaunchFault.CONFIGURATION:
        return f"No job is started until an administrator has repaired this: {data['text'].rstrip('.')}."
    # A pass that is late leaves a date of the past.
    when = f"on {format_date(data['date'])}" if data["date"] > time.time() else "at the next pass"
    return f"Launches are held because {data['text'].rstrip('.')}. OAR tries again by itself, next {when}."


# -- waiting time -----------------------------------------------------------------------------------------------------

#: States whose time is divided by reason.
BEFORE_ITS_START = frozenset({JobState.WAITING, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR})
_STARTING = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING})


class WaitSum(NamedTuple):
    """The folded waiting time of a job for one reason."""

    since: int  #: when it waited for this reason first
    seconds: int


class Waits(NamedTuple):
    """The reasons for which a job waited: sums of older times, then the dated changes in chronological order.

    A code is a ``ReasonCode``, a ``WaitStage``, or the code of another version.
    """

    changes: Sequence[tuple[int, str]] = ()
    sums: Mapping[str, WaitSum] = MappingProxyType({})

    @property
    def summed_until(self) -> int:
        """The end of the period that the sums cover."""
        return self.changes[0][0] if self.sums and self.changes else 0


def divide_waiting_time(states: Sequence[StateChange], waits: Waits, now: int) -> dict[str, int]:
    """Return the waiting time of a job by reason code, in seconds, longest first."""
    seconds = {code: change.seconds for code, change in waits.sums.items()}
    for code, start, stop in _pieces(states, waits, now):
        seconds[code] = seconds.get(code, 0) + stop - start
    for change in states:
        if change.state is JobState.HOLD or change.state in _STARTING:
            code = ReasonCode.HOLD if change.state is JobState.HOLD else WaitStage.STARTING
            seconds[code] = seconds.get(code, 0) + (change.stop or now) - change.start
    longest = sorted(seconds.items(), key=lambda change: (-change[1], change[0]))
    return {code: length for code, length in longest if length > 0}


def fold_changes(states: Sequence[StateChange], waits: Waits, number: int) -> Waits:
    """Return the waits with only the last ``number`` changes; older changes are folded into the sums."""
    changes = waits.changes[-number:]
    until = changes[0][0]
    sums = dict(waits.sums)
    for code, start, stop in _pieces(states, waits, until):
        if start < min(stop, until):
            former = sums.get(code, WaitSum(start, 0))
            sums[code] = WaitSum(former.since, former.seconds + min(stop, until) - start)
    return Waits(changes, sums)


def _pieces(states: Sequence[StateChange], waits: Waits, now: int) -> Iterator[tuple[str, int, int]]:
    """Yield the periods of waiting after the sums, split at each change of the reason: code, start, stop."""
    for change in states:
        start, stop = max(change.start, waits.summed_until), change.stop or now
        if change.state in BEFORE_ITS_START and start < stop:
            before = [code for date, code in waits.changes if date <= start]
            code = before[-1] if before and before[-1] != ReasonCode.HOLD else WaitStage.NEW
            for date, after in waits.changes:
                if start < date < stop:
                    yield code, start, date
                    start, code = date, after
            yield code, start, stop

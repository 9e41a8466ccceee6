"""Texts for the reasons why jobs wait: a label of a few words, a phrase, and a complete sentence with the numbers.

A reason is a row of the table ``job_reasons``: a code, a short text, and data. A reason of another version or of an
external scheduler is shown with its short text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oar.lib.base.times import format_date, format_duration
from oar.lib.jobs.reason_codes import ReasonCode, RoundLimit, WaitStage
from oar.lib.jobs.records import WaitReason
from oar.lib.jobs.states import LaunchFault

#: Texts after a duration: "1:00:00 behind reservations".
WAITING_FOR: Mapping[ReasonCode | WaitStage | str, str] = {
    WaitStage.NEW: "until the scheduler looked at it",
    ReasonCode.IMPOSSIBLE: "because no resources satisfied its request",
    ReasonCode.CONDITION: "because its conditions could not be evaluated",
    ReasonCode.NOT_ALIVE: "for nodes that were not alive",
    ReasonCode.BUSY: "for resources that others used",
    ReasonCode.RESERVATION: "behind reservations",
    ReasonCode.ADVANCE: "for its advance reservation",
    ReasonCode.RESERVED: "for its own date",
    ReasonCode.NO_SLOT: "because its resources were never free for long enough",
    ReasonCode.QUOTA: "because of quotas",
    ReasonCode.DEPENDENCY: "for other jobs that it depends on",
    ReasonCode.CONTAINER: "for its container",
    ReasonCode.POSTPONED: "because it was postponed",
    ReasonCode.DEADLINE: "because of its deadline",
    ReasonCode.TOKEN: "for tokens",
    ReasonCode.LIMIT: "because of limits of rounds",
    ReasonCode.ARRAY: "for other jobs of its array",
    ReasonCode.LAUNCH: "for resources that were not ready yet",
    ReasonCode.EXTERNAL: "for the scheduler of its queue",
    ReasonCode.QUEUE: "because its queue was stopped",
    ReasonCode.HOLD: "on hold",
    ReasonCode.FAULT: "because launches were held after a fault",
    ReasonCode.INTERNAL: "because of an error of the scheduler",
    WaitStage.STARTING: "while its nodes were prepared",
}

#: Labels of reasons; the names in braces are fields of the data.
_LABELS: Mapping[ReasonCode | str, str] = {
    ReasonCode.IMPOSSIBLE: "impossible",
    ReasonCode.CONDITION: "condition",
    ReasonCode.NOT_ALIVE: "nodes",
    ReasonCode.BUSY: "resources",
    ReasonCode.RESERVATION: "reservation {reservations[0]}",
    ReasonCode.ADVANCE: "advance reservation {reservation}",
    ReasonCode.RESERVED: "its date",
    ReasonCode.NO_SLOT: "no slot",
    ReasonCode.QUOTA: "quota {rule[0]},{rule[1]},{rule[2]},{rule[3]}",
    ReasonCode.DEPENDENCY: "dependency {job}",
    ReasonCode.CONTAINER: "container {container}",
    ReasonCode.POSTPONED: "postponed",
    ReasonCode.DEADLINE: "deadline",
    ReasonCode.TOKEN: "token {token}",
    ReasonCode.LIMIT: "priority",
    ReasonCode.ARRAY: "array limit",
    ReasonCode.LAUNCH: "launch",
    ReasonCode.EXTERNAL: "scheduler {scheduler}",
    ReasonCode.QUEUE: "queue stopped",
    ReasonCode.HOLD: "hold",
    ReasonCode.FAULT: "launches held",
    ReasonCode.INTERNAL: "error",
}

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
    form = _LABELS.get(reason.code, reason.code.lower())
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


def _impossible(data: Mapping[str, Any]) -> str:
    text = f"No resources of this cluster satisfy {data['group']}, even when nothing runs."
    if data.get("matching") == 0:
        return f"{text} No resource matches the conditions."
    nearest = data.get("nearest")
    return f"{text} The nearest possible request is {nearest['property']}={nearest['quantity']}." if nearest else text


def _condition(data: Mapping[str, Any]) -> str:
    return f"The request {data['group']} cannot be evaluated: {data['trouble']}."


def _not_alive(data: Mapping[str, Any]) -> str:
    if "type" in data:
        return f"Nothing is started now: a resource of type {data['type']} is Suspected, and every job needs it."
    missing = []
    for state, count, nodes in zip(("Suspected", "Absent"), data["counts"], data["nodes"], strict=True):
        names = data[state.lower()]
        where = f" ({', '.join(names)}{', ...' if nodes > len(names) else ''})" if names else ""
        missing += [f"{count} {state}{where}"] if count else []
    return f"Too few of its resources are alive: {' and '.join(missing)}." if missing else ""


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


def _advance(data: Mapping[str, Any]) -> str:
    name = f"advance reservation {data['reservation']}"
    if "error" in data:
        error = f"The {name} is in error: {data['error']}"
        return f"{error}; no job of it starts meanwhile (hard error handling)."
    if "left" in data:
        left = f"It is too long for what is left of the {name} ({format_duration(data['left'])})"
        return f"{left}; submitted again with a shorter walltime it could start." if data["left"] else f"{left}."
    if "size" in data:
        some = f"{data['size']} resource{'s' * (data['size'] != 1)}"
        return f"The {name} has only {some} on which jobs can start now."
    if "count" in data:
        return _busy_inside(name, data)
    if "date" in data:
        return f"It waits for the {name} to start at {format_date(data['date'])}."
    return f"The {name} has no room for it until its end."


def _busy_inside(name: str, data: Mapping[str, Any]) -> str:
    text = f"The {name} is busy until {format_date(data['date'])}"
    return f"{text}, with {_named('job', data['jobs'], data['count'])}." if data["jobs"] else f"{text}."


def _reserved(data: Mapping[str, Any]) -> str:
    return f"It is a reservation, and its date is {format_date(data['date'])}."


def _no_slot(data: Mapping[str, Any]) -> str:
    detail = data.get("detail")
    return f"Its resources are never free for long enough{f': {detail}' if detail else ''}."


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


def _dependency(data: Mapping[str, Any]) -> str:
    if "jobs" in data:
        return f"The {_named('job', data['jobs'])} wait for each other: none of them can start."
    if data.get("overdue"):
        return f"It waits for job {data['job']}, which has not ended, though its time is over."
    return f"It waits for job {data['job']}, until {format_date(data['date'])}." if "date" in data else ""


def _container(data: Mapping[str, Any]) -> str:
    if "resources" in data:
        return f"It asks for more than its container {data['container']} has: {data['resources']} resources."
    if "date" in data:
        return f"There is room in its container {data['container']} from {format_date(data['date'])} on."
    return f"Its container {data['container']} has not been planned yet."


def _postponed(data: Mapping[str, Any]) -> str:
    return f"It was postponed to {format_date(data['date'])}."


def _deadline(data: Mapping[str, Any]) -> str:
    late = format_duration(data["end"] - data["deadline"])
    return f"It would end on {format_date(data['end'])}, {late} after its deadline."


def _token(data: Mapping[str, Any]) -> str:
    if "have" in data:
        return f"It needs {data['want']} tokens {data['token']}, and there are {data['have']}."
    if not data.get("has_script", True):
        return f"It needs tokens {data['token']}, and this site has none of that name (any more)."
    return f"The number of tokens {data['token']} is unknown: the site's command gave no number."


def _limit(data: Mapping[str, Any]) -> str:
    count = data["count"]
    return {
        RoundLimit.JOBS: f"A round plans a limited number of jobs: {count} were before it.",
        RoundLimit.TIME: f"The time for planning was over after {count} jobs, before its turn.",
        RoundLimit.USER: f"A round plans {count} jobs of each user, and there are as many of his before it.",
        RoundLimit.DEPTH: f"It cannot start now; its queue plans later starts only for the first {_waiting(count)}.",
        RoundLimit.ORDER: "Its queue starts jobs strictly in their order, and one before it waits.",
    }[RoundLimit(data["limit"])]


def _waiting(count: int) -> str:
    return f"{count} jobs that wait" if count > 1 else "job that waits"


def _array(data: Mapping[str, Any]) -> str:
    text = f"Of the array {data['array']}, {data['limit']} may run at a time, and as many do"
    return f"{text}, among them {_overdue(data)}." if data.get("overdue") else f"{text}."


def _launch(data: Mapping[str, Any]) -> str:
    if "hosts" in data:
        return f"Its resources are free, but {_named('node', data['hosts'])} must become Alive first."
    if "container" in data:
        return f"Its resources are free, but its container {data['container']} does not run yet."
    if "jobs" in data:
        return f"Its resources are nearly free: {_named('job', data['jobs'])} must end first."
    return ""


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


def _queue(data: Mapping[str, Any]) -> str:
    if data.get("removed"):
        return f"The queue {data['queue']} was removed: nothing of it is planned any more."
    return f"The queue {data['queue']} is stopped: an administrator has to enable it."


def _held(data: Mapping[str, Any]) -> str:
    return f"It is on hold since {format_date(data['since'])}, until it is released with oarresume."


def _fault(data: Mapping[str, Any]) -> str:
    if data["fault"] == LaunchFault.CONFIGURATION:
        return f"No job is started until an administrator has repaired this: {data['text'].rstrip('.')}."
    return f"Launches are held because {data['text']}. OAR tries again by itself, next on {format_date(data['date'])}."


_SENTENCES: Mapping[ReasonCode | str, Callable[[Mapping[str, Any]], str]] = {
    ReasonCode.IMPOSSIBLE: _impossible,
    ReasonCode.CONDITION: _condition,
    ReasonCode.NOT_ALIVE: _not_alive,
    ReasonCode.BUSY: _busy,
    ReasonCode.RESERVATION: _behind,
    ReasonCode.ADVANCE: _advance,
    ReasonCode.RESERVED: _reserved,
    ReasonCode.NO_SLOT: _no_slot,
    ReasonCode.QUOTA: _quota,
    ReasonCode.DEPENDENCY: _dependency,
    ReasonCode.CONTAINER: _container,
    ReasonCode.POSTPONED: _postponed,
    ReasonCode.DEADLINE: _deadline,
    ReasonCode.TOKEN: _token,
    ReasonCode.LIMIT: _limit,
    ReasonCode.ARRAY: _array,
    ReasonCode.LAUNCH: _launch,
    ReasonCode.EXTERNAL: _external,
    ReasonCode.QUEUE: _queue,
    ReasonCode.HOLD: _held,
    ReasonCode.FAULT: _fault,
}

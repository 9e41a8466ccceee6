"""Why a job waits, in words: a word or two, half a sentence, a whole sentence with its numbers.

A reason comes from the table ``job_reasons``: a code, a short text, and data.  What another version or a scheduler of
the site has written is told by its short text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oar.lib.db.waits import Reason
from oar.lib.times import format_date, format_duration

#: What a job waits for, as it goes on behind "1:00:00 ".
WAITING_FOR = {
    "NEW": "until the scheduler looked at it",
    "IMPOSSIBLE": "because no resources satisfied its request",
    "NOT_ALIVE": "for nodes that were not alive",
    "BUSY": "for resources that others used",
    "RESERVATION": "behind reservations",
    "RESERVED": "for its own date",
    "NO_SLOT": "because its resources were never free for long enough",
    "QUOTA": "because of quotas",
    "DEPENDENCY": "for other jobs that it depends on",
    "CONTAINER": "for its container",
    "POSTPONED": "because it was postponed",
    "DEADLINE": "because of its deadline",
    "TOKEN": "for tokens",
    "LIMIT": "because of limits of rounds",
    "ARRAY": "for other jobs of its array",
    "LAUNCH": "with a place that it could not take yet",
    "EXTERNAL": "for the scheduler of its queue",
    "QUEUE": "because its queue was stopped",
    "HOLD": "on hold",
    "INTERNAL": "because of an error of the scheduler",
    "STARTING": "while its nodes were prepared",
}

#: A reason in a word or two; what is in braces is taken from its data.
_WORDS = {
    "IMPOSSIBLE": "impossible",
    "NOT_ALIVE": "nodes",
    "BUSY": "resources",
    "RESERVATION": "reservation {reservations[0]}",
    "RESERVED": "its date",
    "NO_SLOT": "no slot",
    "QUOTA": "quota {rule[0]},{rule[1]},{rule[2]},{rule[3]}",
    "DEPENDENCY": "dependency {job}",
    "CONTAINER": "container {container}",
    "POSTPONED": "postponed",
    "DEADLINE": "deadline",
    "TOKEN": "token {token}",
    "LIMIT": "priority",
    "ARRAY": "array limit",
    "LAUNCH": "launch",
    "EXTERNAL": "scheduler {scheduler}",
    "QUEUE": "queue stopped",
    "HOLD": "hold",
    "INTERNAL": "error",
}


def sentence(reason: Reason) -> str:
    """Return a reason as a whole sentence with its numbers; its short text if nothing more is known."""
    told = _SENTENCES.get(reason.code)
    try:
        text = told(reason.data) if told else ""
    except (KeyError, TypeError, ValueError, IndexError):  # written by another version, or by an external scheduler
        text = ""
    return text or f"{reason.text[:1].upper()}{reason.text[1:].rstrip('.')}."


def words(reason: Reason) -> str:
    """Return a reason in a word or two, in parentheses."""
    form = _WORDS.get(reason.code, reason.code.lower())
    try:
        return f"({form.format(**reason.data)})"
    except (KeyError, IndexError, TypeError):
        return f"({form.partition(' {')[0]})"


def _named(what: str, names: Sequence[object], count: int | None = None) -> str:
    """Return ``job 3``, ``jobs 3 and 4``, ``jobs 3, 4 and 12 others``."""
    texts = [str(each) for each in names]
    more = (count or len(texts)) - len(texts)
    if more > 0:
        texts.append(f"{more} other{'s' * (more > 1)}")
    joined = " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)
    return f"{what}{'s' * (len(texts) > 1)} {joined}"


def _impossible(data: Mapping[str, Any]) -> str:
    if "trouble" in data:
        return f"The request {data['group']} cannot be evaluated: {data['trouble']}."
    text = f"No resources of this cluster satisfy {data['group']}, even when nothing runs."
    if data.get("matching") == 0:
        return f"{text} Nothing at all matches the conditions."
    nearest = data.get("nearest")
    return f"{text} The nearest that fits is {nearest['property']}={nearest['quantity']}." if nearest else text


def _not_alive(data: Mapping[str, Any]) -> str:
    if "type" in data:
        return f"Nothing is started now: a resource of type {data['type']}, which every job needs, is Suspected."
    missing = []
    for state, count, nodes in zip(("Suspected", "Absent"), data["counts"], data["nodes"], strict=True):
        names = data[state.lower()]
        where = f" ({', '.join(names)}{', ...' if nodes > len(names) else ''})" if names else ""
        missing += [f"{count} {state}{where}"] if count else []
    return f"There are too few living resources for it: {' and '.join(missing)}." if missing else ""


def _busy(data: Mapping[str, Any]) -> str:
    if not data["jobs"]:
        return f"Enough resources are free for long enough from {format_date(data['date'])} on."
    jobs = _named("job", data["jobs"], data["count"])
    return f"Its resources are in use until {format_date(data['date'])} at the latest, by {jobs}."


def _behind(data: Mapping[str, Any]) -> str:
    by = _named("reservation", data["reservations"])
    text = f"Its resources are reserved until {format_date(data['date'])}, by {by}"
    return f"{text}; {_named('job', data['jobs'])} must end, too." if data.get("jobs") else f"{text}."


def _reserved(data: Mapping[str, Any]) -> str:
    return f"It is a reservation, and its date is {format_date(data['date'])}."


def _no_slot(data: Mapping[str, Any]) -> str:
    detail = data.get("detail")
    return f"Its resources are never free for long enough{f': {detail}' if detail else ''}."


def _quota(data: Mapping[str, Any]) -> str:
    if "latest" in data:
        return f"It would start after {format_date(data['latest'])}, and quotas are laid out until then only."
    names = ("resources", "jobs", "resource hours")
    over = [
        f"{used:g} {name} where {limit:g} are allowed"
        for used, limit, name in zip(data["used"], data["limits"], names, strict=True)
        if limit >= 0 and used > limit
    ]
    rule = ",".join(data["rule"])
    freed = f" It is free again on {format_date(data['date'])}." if "date" in data else " It never becomes free."
    return f"With it, the quota {rule} would be exceeded: {' and '.join(over)}.{freed}" if over else ""


def _dependency(data: Mapping[str, Any]) -> str:
    if "jobs" in data:
        return f"The {_named('job', data['jobs'])} wait for each other: none of them can start."
    return f"It waits for job {data['job']}, until {format_date(data['date'])}." if "date" in data else ""


def _container(data: Mapping[str, Any]) -> str:
    if "resources" in data:
        return f"It asks for more than its container {data['container']} has: {data['resources']} resources."
    if "date" in data:
        return f"There is room in its container {data['container']} from {format_date(data['date'])} on."
    return f"Its container {data['container']} has no place yet."


def _postponed(data: Mapping[str, Any]) -> str:
    return f"It was postponed to {format_date(data['date'])}."


def _deadline(data: Mapping[str, Any]) -> str:
    late = format_duration(data["end"] - data["deadline"])
    return f"It would end on {format_date(data['end'])}, {late} after its deadline."


def _token(data: Mapping[str, Any]) -> str:
    if "have" in data:
        return f"It needs {data['want']} tokens {data['token']}, and there are {data['have']}."
    return f"It is not known how many tokens {data['token']} there are: the site's command gave no number."


def _limit(data: Mapping[str, Any]) -> str:
    count = data["jobs"]
    return {
        "jobs": f"A round plans so many jobs and no more: {count} were before it.",
        "time": f"The time of the round was over after {count} jobs.",
        "user": f"A round plans {count} jobs of each user, and there are as many of his before it.",
        "order": "Its queue starts jobs strictly in their order, and one before it waits.",
    }[data["limit"]]


def _array(data: Mapping[str, Any]) -> str:
    return f"Of the array {data['array']}, {data['limit']} may run at a time, and as many do."


def _launch(data: Mapping[str, Any]) -> str:
    if "hosts" in data:
        return f"Its place is free, but {_named('node', data['hosts'])} must become Alive first."
    if "container" in data:
        return f"Its place is free, but its container {data['container']} does not run yet."
    if "jobs" in data:
        return f"Its place is nearly free: {_named('job', data['jobs'])} must leave it first."
    return ""


def _external(data: Mapping[str, Any]) -> str:
    scheduler = f"The scheduler {data['scheduler']} of its queue"
    if "rejected" in data:
        return f"{scheduler} gave it a place that cannot be: {data['rejected']}."
    if "failed" in data:
        return f"{scheduler} failed: an administrator has to look at the log."
    if data.get("said"):
        return ""
    if "date" in data:
        return f"{scheduler} means to start it on {format_date(data['date'])}."
    return f"{scheduler} has given it no place yet."


def _queue(data: Mapping[str, Any]) -> str:
    return f"The queue {data['queue']} is stopped: an administrator has to enable it."


def _held(data: Mapping[str, Any]) -> str:
    return f"It is on hold since {format_date(data['since'])}, until somebody lets it go with oarresume."


_SENTENCES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "IMPOSSIBLE": _impossible,
    "NOT_ALIVE": _not_alive,
    "BUSY": _busy,
    "RESERVATION": _behind,
    "RESERVED": _reserved,
    "NO_SLOT": _no_slot,
    "QUOTA": _quota,
    "DEPENDENCY": _dependency,
    "CONTAINER": _container,
    "POSTPONED": _postponed,
    "DEADLINE": _deadline,
    "TOKEN": _token,
    "LIMIT": _limit,
    "ARRAY": _array,
    "LAUNCH": _launch,
    "EXTERNAL": _external,
    "QUEUE": _queue,
    "HOLD": _held,
}

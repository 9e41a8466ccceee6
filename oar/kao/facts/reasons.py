"""Reasons why a job has no placement, or does not start now: code, sentence and data.

Each function makes one reason; its sentence says when it applies.

See docs/design/planner.rst, "Reasons".
"""

from collections.abc import Sequence

from oar.kao.facts.plan import Json, Reason
from oar.kao.facts.snapshot import FOREVER
from oar.lib.accounts.quota_records import QuotaRule
from oar.lib.base.sizes import format_memory
from oar.lib.base.times import format_date, format_duration
from oar.lib.jobs.reasons import ReasonCode, RoundLimit
from oar.lib.jobs.records import Level, Memory
from oar.lib.jobs.states import LaunchFault
from oar.lib.submission.resource_request import format_quantity

#: A reason names at most so many jobs or nodes.
NAMED = 10


def unreadable_request(text: str, levels: Sequence[Level], trouble: str) -> Reason:
    data: dict[str, Json] = {"group": _group(text, levels), "trouble": trouble}
    return Reason(ReasonCode.CONDITION, f"cannot evaluate the request: {trouble}", data)


def impossible(text: str, levels: Sequence[Level], matching: int, nearest: Level | None) -> Reason:
    """The request cannot be satisfied even if all resources are free.

    ``matching``: the number of resources that satisfy its conditions.  ``nearest``: the level with the largest quantity
    that can be satisfied.
    """
    group = _group(text, levels)
    data: dict[str, Json] = {"group": group, "matching": matching}
    if nearest:
        data["nearest"] = {"property": nearest.property, "quantity": nearest.quantity}
    return Reason(ReasonCode.IMPOSSIBLE, f"no resource satisfies the request: {group}", data)


def too_little_memory(memory: Memory, largest: int) -> Reason:
    """No node has the memory, or not enough nodes have it; ``largest``: MiB of the largest node."""
    data: dict[str, Json] = {"memory": memory.mib, "per_core": memory.is_per_core, "largest": largest}
    asked = f"{format_memory(memory.mib)}{' per core' if memory.is_per_core else ''}"
    return Reason(ReasonCode.IMPOSSIBLE, f"too few nodes have {asked} of memory", data)


def waits_for_memory(date: int, memory: Memory, node: str, free: tuple[int, int]) -> Reason:
    """Resources are free, but too little memory; ``free``: resources and MiB of a node."""
    data: dict[str, Json] = {
        "date": date, "memory": memory.mib, "per_core": memory.is_per_core,
        "node": node, "resources": free[0], "free": free[1],
    }  # fmt: skip
    text = f"waiting for memory until {format_date(date)} ({node} has {free[0]} free and {format_memory(free[1])})"
    return Reason(ReasonCode.MEMORY, text, data)


def plugin_without_memory(memory: Memory, node: str, free: tuple[int, int]) -> Reason:
    """A plug-in chose resources of a node with too little memory; ``free``: resources and MiB of the node."""
    data: dict[str, Json] = {
        "memory": memory.mib, "per_core": memory.is_per_core, "node": node, "resources": free[0], "free": free[1],
    }  # fmt: skip
    text = f"its plug-in chose {free[0]} resources of {node}, which has {format_memory(free[1])} of memory free"
    return Reason(ReasonCode.MEMORY, text, data)


def _group(text: str, levels: Sequence[Level]) -> str:
    asked = "".join(f"/{level.property}={format_quantity(level.quantity)}" for level in levels)
    return (f"{{{text}}}" if text else "") + asked


def not_alive(suspected: Sequence[str], absent: Sequence[str], counts: tuple[int, int]) -> Reason:
    """The request could be satisfied if no resource was Suspected or Absent."""
    data: dict[str, Json] = {
        "suspected": list(suspected[:NAMED]),
        "absent": list(absent[:NAMED]),
        "nodes": [len(suspected), len(absent)],
        "counts": list(counts),
    }
    return Reason(ReasonCode.NOT_ALIVE, f"not enough usable resources: {counts[0]} Suspected, {counts[1]} Absent", data)


def busy(date: int, jobs: Sequence[int]) -> Reason:
    data: dict[str, Json] = {"date": date, **_jobs(jobs)}
    named = f" (jobs {_listed(jobs)})" if jobs else ""
    return Reason(ReasonCode.BUSY, f"waiting for resources until {format_date(date)}{named}", data)


def overdue(numbers: Sequence[int], jobs: Sequence[int]) -> Reason:
    """Jobs and advance reservations past their planned end hold the resources: the start date is unknown."""
    data: dict[str, Json] = {
        "advance_reservations": list(numbers[:NAMED]),
        **_jobs(jobs),
        "overdue": True,
    }
    holders = [f"advance reservations {_listed(numbers)}"] if numbers else []
    holders += [f"jobs {_listed(jobs)}"] if jobs else []
    return Reason(
        ReasonCode.BUSY, f"waiting for resources that are held beyond their time ({', '.join(holders)})", data
    )


def behind(date: int, reservations: Sequence[int], jobs: Sequence[int]) -> Reason:
    """The job starts when a reservation has ended; ``jobs`` end at the same date."""
    data: dict[str, Json] = {
        "date": date,
        "reservations": list(reservations[:NAMED]),
        **_jobs(jobs),
    }
    named = f" (jobs {_listed(jobs)})" if jobs else ""
    return Reason(
        ReasonCode.RESERVATION, f"behind reservation {_listed(reservations)} until {format_date(date)}{named}", data
    )


def reserved_for_others(date: int, numbers: Sequence[int], jobs: Sequence[int]) -> Reason:
    """The job starts when advance reservations have ended. ``jobs`` (reservations included) end at the same date."""
    data: dict[str, Json] = {
        "date": date,
        "advance_reservations": list(numbers[:NAMED]),
        **_jobs(jobs),
    }
    those = f"advance reservation{'s' * (len(numbers) > 1)} {_listed(numbers)}"
    named = f", jobs {_listed(jobs)}" if jobs else ""
    return Reason(ReasonCode.RESERVATION, f"waiting for resources until {format_date(date)} ({those}{named})", data)


def until_over(number: int, over: int) -> Reason:
    """The suspended job resumes when an advance reservation has ended; ``over``: the date of that end."""
    text = f"waits until the advance reservation {number} is over"
    return Reason(ReasonCode.RESERVATION, text, {"advance_reservations": [number], "over": over})


def _jobs(jobs: Sequence[int]) -> dict[str, Json]:
    return {"jobs": list(jobs[:NAMED]), "count": len(jobs)}


def _listed(items: Sequence[object]) -> str:
    return ",".join(map(str, items[:NAMED])) + (",..." if len(items) > NAMED else "")


def is_busy(reason: Reason, date: int, jobs: Sequence[int]) -> bool:
    """Return whether a reason equals ``busy(date, jobs)``."""
    data = reason.data
    is_same = reason.code is ReasonCode.BUSY and data.get("date") == date and data["count"] == len(jobs)
    return is_same and data["jobs"] == list(jobs[:NAMED])


def no_slot(detail: str = "") -> Reason:
    """The resources are never free for the whole walltime."""
    return Reason(ReasonCode.NO_SLOT, "no matching slot", {"detail": detail} if detail else {})


def leaving(date: int) -> Reason:
    """Resources that the job needs are withdrawn before the job could end."""
    text = f"some of its resources leave on {format_date(date)}"
    return Reason(ReasonCode.NO_SLOT, "no matching slot", {"detail": text, "date": date})


def container_full(container: str) -> Reason:
    text = f"its container {container} has no room for it until its end"
    return Reason(ReasonCode.NO_SLOT, "no matching slot", {"detail": text, "container": container})


def unknown_dependency(job: int) -> Reason:
    text = f"cannot determine scheduling time due to dependency with the job {job}"
    return Reason(ReasonCode.DEPENDENCY, text, {"job": job})


def broken_dependency(job: int) -> Reason:
    """The required job ended in a way that the dependency excludes, or the time window cannot be met."""
    return Reason(ReasonCode.DEPENDENCY, f"dependency on job {job} cannot be satisfied", {"job": job})


def dependency_until(job: int, date: int) -> Reason:
    return Reason(ReasonCode.DEPENDENCY, f"waiting for job {job} until {format_date(date)}", {"job": job, "date": date})


def overdue_dependency(job: int) -> Reason:
    text = f"waiting for job {job}, whose time is over"
    return Reason(ReasonCode.DEPENDENCY, text, {"job": job, "overdue": True})


def cyclic_dependency(jobs: Sequence[int]) -> Reason:
    named = ", ".join(str(job) for job in jobs[:NAMED])
    return Reason(ReasonCode.DEPENDENCY, f"the jobs {named} wait for each other", {"jobs": list(jobs[:NAMED])})


def container_unplaced(container: str, *, is_treated: bool) -> Reason:
    text = "is yet to scheduled, inner job not scheduled" if is_treated else "is not known yet"
    return Reason(ReasonCode.CONTAINER, f"inner job: container {container} {text}", {"container": container})


def container_small(container: str, size: int) -> Reason:
    text = f"inner job: container {container} holds only {size} resources"
    return Reason(ReasonCode.CONTAINER, text, {"container": container, "resources": size})


def container_until(container: str, date: int) -> Reason:
    text = f"inner job: waiting for room in container {container} until {format_date(date)}"
    return Reason(ReasonCode.CONTAINER, text, {"container": container, "date": date})


def postponed(date: int) -> Reason:
    return Reason(ReasonCode.POSTPONED, f"postponed to {format_date(date)}", {"date": date})


def deadline(end: int, limit: int) -> Reason:
    text = f"its deadline is not met: {format_date(end)} > {format_date(limit)}"
    return Reason(ReasonCode.DEADLINE, text, {"end": end, "deadline": limit})


def few_tokens(name: str, have: int, want: int) -> Reason:
    return Reason(
        ReasonCode.TOKEN, f"no enough tokens: {name} ({have} < {want})", {"token": name, "have": have, "want": want}
    )


def no_tokens(name: str) -> Reason:
    return Reason(ReasonCode.TOKEN, f"token value cannot be retrieved ({name})", {"token": name})


def no_script(name: str) -> Reason:
    return Reason(ReasonCode.TOKEN, f"token {name} does not exist", {"token": name, "has_script": False})


def quota(rule: QuotaRule, used: tuple[int, int, int], freed: int, overdue: Sequence[int] = ()) -> Reason:
    """A quota rule forbids an earlier start, or any start; ``freed``: the date at which the rule allows one.

    ``overdue``: jobs past their planned end that the rule still counts.  The start date is then unknown.
    """
    key = [rule.queue, rule.project, rule.type, rule.user]
    limits: list[Json] = [rule.resources, rule.jobs, -1 if rule.seconds < 0 else rule.seconds / 3600]
    data: dict[str, Json] = {"rule": key, "used": [used[0], used[1], used[2] / 3600], "limits": limits}
    if overdue:
        data |= _held_by(overdue)
    elif freed < FOREVER:
        data["date"] = freed
    most = f"{rule.resources},{rule.jobs},{'-1' if rule.seconds < 0 else format(rule.seconds / 3600, '.2f')}"
    text = f"quota_exceeded:{','.join(key)}=[{used[0]},{used[1]},{used[2] / 3600:.2f}]>[{most}]"
    return Reason(ReasonCode.QUOTA, text, data)


def behind_quotas(latest: int) -> Reason:
    text = f"quotas are not checked after {format_date(latest)}"
    return Reason(ReasonCode.QUOTA, text, {"latest": latest})


def array_limit(array: int, most: int, overdue: Sequence[int] = ()) -> Reason:
    """The maximum number of jobs of the array is running; ``overdue``: those past their planned end."""
    text = f"waiting for one of the {most} jobs that may run at a time of the array {array}"
    data: dict[str, Json] = {"array": array, "limit": most}
    return Reason(ReasonCode.ARRAY, text, data | _held_by(overdue) if overdue else data)


def _held_by(overdue: Sequence[int]) -> dict[str, Json]:
    return {"overdue": True, **_jobs(overdue)}


def limit(before: int, which: RoundLimit) -> Reason:
    text = f"not planned in this round: {before} jobs before it"
    return Reason(ReasonCode.LIMIT, text, {"count": before, "limit": which})


def behind_depth(depth: int) -> Reason:
    """The job cannot start now, and its queue plans later starts only for its first ``depth`` waiting jobs."""
    text = f"no start is planned: its queue plans {'one' if depth == 1 else depth}, of the first that wait"
    return Reason(ReasonCode.LIMIT, text, {"count": depth, "limit": RoundLimit.DEPTH})


def waits_for_nodes(hosts: Sequence[str]) -> Reason:
    return Reason(ReasonCode.LAUNCH, f"waiting for {_listed(hosts)} to be Alive", {"hosts": list(hosts[:NAMED])})


def waits_for_besteffort(jobs: Sequence[int]) -> Reason:
    return Reason(ReasonCode.LAUNCH, f"waiting for besteffort job {jobs[0]} to end", {"jobs": list(jobs[:NAMED])})


def waits_for_holder(job: int) -> Reason:
    return Reason(ReasonCode.LAUNCH, f"waiting for job {job} to release its resources", {"jobs": [job]})


def waits_for_container(container: str) -> Reason:
    return Reason(ReasonCode.LAUNCH, f"waiting for container {container} to run", {"container": container})


def killed() -> Reason:
    return Reason(ReasonCode.LAUNCH, "a kill request is pending")


def reservation_date(date: int) -> Reason:
    return Reason(ReasonCode.RESERVED, f"reserved for {format_date(date)}", {"date": date})


def before_reservation(number: int, date: int) -> Reason:
    text = f"waits for the advance reservation {number} to start at {format_date(date)}"
    return Reason(ReasonCode.ADVANCE, text, {"reservation": number, "date": date})


def reservation_busy(number: int, date: int, jobs: Sequence[int]) -> Reason:
    data: dict[str, Json] = {"reservation": number, "date": date, **_jobs(jobs)}
    named = f" (jobs {_listed(jobs)})" if jobs else ""
    return Reason(
        ReasonCode.ADVANCE, f"the advance reservation {number} is busy until {format_date(date)}{named}", data
    )


def reservation_short(number: int, left: int) -> Reason:
    """The job is too long for the rest of its advance reservation; ``left``: maximum duration of a job, in seconds."""
    text = f"longer than the remaining time of the advance reservation {number} ({format_duration(left)})"
    return Reason(ReasonCode.ADVANCE, text, {"reservation": number, "left": left})


def reservation_full(number: int) -> Reason:
    text = f"the advance reservation {number} has no room for it until its end"
    return Reason(ReasonCode.ADVANCE, text, {"reservation": number})


def reservation_small(number: int, size: int) -> Reason:
    text = f"the advance reservation {number} has only {size} resource{'s' * (size != 1)} now"
    return Reason(ReasonCode.ADVANCE, text, {"reservation": number, "size": size})


def hard_error(number: int, error: str) -> Reason:
    text = f"the advance reservation {number} is in error: {error} (hard error handling)"
    return Reason(ReasonCode.ADVANCE, text, {"reservation": number, "error": error})


def overtaken() -> Reason:
    """The job or one of its nodes changed before the job could be started."""
    return Reason(ReasonCode.LAUNCH, "its nodes changed while it was being started; it is tried again")


def stopped_queue(name: str) -> Reason:
    return Reason(ReasonCode.QUEUE, f"the queue {name} is not active", {"queue": name})


def removed_queue(name: str) -> Reason:
    return Reason(ReasonCode.QUEUE, f"the queue {name} was removed", {"queue": name, "removed": True})


def project_closed(name: str) -> Reason:
    return Reason(ReasonCode.PROJECT_CLOSED, f"the project {name} is closed", {"project": name})


def budget_used_up(project: str, spent: float, hours: float, date: int) -> Reason:
    """The budget of a project allows no more jobs; ``date``: start of the next period with a budget, 0 = none."""
    data: dict[str, Json] = {"project": project, "used": round(spent, 1), "hours": hours}
    text = f"the budget of the project {project} is used up"
    return Reason(ReasonCode.BUDGET, text, {**data, "date": date} if date else data)


def held(since: int) -> Reason:
    return Reason(ReasonCode.HOLD, f"on hold since {format_date(since)}", {"since": since})


def launch_held(launch_fault: LaunchFault, user: str, text: str, next_try: int) -> Reason:
    """Launches are held because of a fault that no job caused; ``text`` describes the fault."""
    data: dict[str, Json] = {"fault": launch_fault, "user": user, "text": text, "date": next_try}
    return Reason(ReasonCode.FAULT, f"launches are held: {text}", data)


def shared_suspected(kind: str) -> Reason:
    text = f"no job is planned: a resource of type {kind} is Suspected"
    return Reason(ReasonCode.NOT_ALIVE, text, {"type": kind})


def internal(now: int, detail: str) -> Reason:
    return Reason(ReasonCode.INTERNAL, f"internal error, see the log (round {now})", {"detail": detail})


def no_plugin(trouble: str) -> Reason:
    return Reason(ReasonCode.INTERNAL, trouble, {"detail": trouble})


def external(scheduler: str, said: str, date: int = 0) -> Reason:
    """An external scheduler of the site plans the job; ``said``: its explanation, ``date``: the start that it plans."""
    data: dict[str, Json] = {"scheduler": scheduler, "said": bool(said)}
    if date:
        data["date"] = date
    default = f"foreseen for {format_date(date)}" if date else "has no place yet"
    return Reason(ReasonCode.EXTERNAL, said or f"{default} (scheduler {scheduler})", data)


def rejected(scheduler: str, trouble: str) -> Reason:
    return Reason(ReasonCode.EXTERNAL, f"rejected placement: {trouble}", {"scheduler": scheduler, "rejected": trouble})


def external_failed(scheduler: str) -> Reason:
    text = f"the scheduler {scheduler} failed, see the log"
    return Reason(ReasonCode.EXTERNAL, text, {"scheduler": scheduler, "failed": True})


def unreadable(detail: str) -> Reason:
    return Reason(ReasonCode.INTERNAL, f"cannot read a type of the job: {detail}", {"detail": detail})

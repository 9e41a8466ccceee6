"""What somebody can do about a job that cannot start as it is, or that has lost a node."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oar.lib.db.waits import Reason
from oar.lib.lifecycle import format_exit_code
from oar.lib.model import Dependency, Job
from oar.lib.states import DependencyCondition, JobType, Reservation, ResourceState
from oar.lib.times import format_date

_ASKED = {
    DependencyCondition.OK: "that it ends well",
    DependencyCondition.NOT_OK: "that it fails",
    DependencyCondition.ANY: "that it ends",
    DependencyCondition.START: "that it starts",
}
_STATES = {
    ResourceState.ABSENT: "it was switched off or taken out of service",
    ResourceState.SUSPECTED: "it does not answer, or something failed on it",
    ResourceState.DEAD: "it was given up",
}


class LostNode(NamedTuple):
    """A node of a job that is not Alive."""

    name: str
    state: ResourceState
    since: int  #: 0 = not known


class Advice(NamedTuple):
    """What is wrong, in a sentence, and what can be done about it; '' for nothing."""

    trouble: str = ""
    way_out: str = ""


def of_lost_nodes(job: Job, lost: Sequence[LostNode], silent: str = "") -> Advice:
    """Return what there is to say of a job that holds nodes which are not Alive.

    ``silent``: the node that runs its command, if it did not answer when it was last asked.
    """
    found = [f"{each.name} is {each.state}{_since(each.since)}, {_STATES[each.state]}" for each in lost]
    if silent and silent not in [each.name for each in lost]:
        found.append(f"{silent}, which runs its command, did not answer when it was last asked")
    if not found:
        return Advice()
    told = "; ".join(found)
    again = f", and oarsub --resubmit {job.id} submits it again" if _can_be_resubmitted(job) else ""
    return Advice(f"Of its nodes, {told}.", f"If it does not go on without: oardel {job.id} ends it{again}.")


def _since(date: int) -> str:
    return f" since {format_date(date)}" if date else ""


def of_request(job: Job, reason: Reason | None) -> Advice:
    """Return what there is to say of a job whose request can never be satisfied, or whose queue is stopped."""
    code, data = (reason.code, reason.data) if reason else ("", {})
    if code == "QUEUE":
        return Advice("", f"oaralter {job.id} -q QUEUE moves it to another queue.")
    is_hopeless = (
        code == "IMPOSSIBLE"
        or (code == "QUOTA" and "date" not in data and "latest" not in data)
        or (code == "CONTAINER" and "resources" in data)
    )
    if not is_hopeless or job.reservation is not Reservation.NONE:
        return Advice()
    other = f", oaralter {job.id} -p CONDITION sets other conditions" if code == "IMPOSSIBLE" else ""
    return Advice("", f"oaralter {job.id} -l REQUEST asks for other resources{other}; oardel {job.id} deletes it.")


def of_dependencies(
    job: Job, reason: Reason | None, needed: Sequence[Dependency], jobs: Mapping[int, Job], default: str
) -> Advice:
    """Return what there is to say of a job whose dependencies can never be met; ``jobs``: those that it needs.

    ``default``: the condition where none is given.
    """
    if reason is None or reason.code != "DEPENDENCY" or "date" in reason.data:
        return Advice()
    if "jobs" in reason.data:
        return Advice("", f"oaralter {job.id} -a '' takes away all its dependencies, oardel {job.id} deletes it.")
    broken = [each for each in needed if each.required == reason.data.get("job")]
    required = jobs.get(broken[0].required) if broken else None
    if required is None or not required.is_final:
        return Advice()
    condition = DependencyCondition(broken[0].condition or default)
    code = format_exit_code(required.exit_code)
    how = f"{required.state}, exit code {code}" if code else required.state
    trouble = f"It asks of job {required.id} {_ASKED[condition]}, and this one is over: {how}."
    ways = [f"oaralter {job.id} {_as_options(needed, broken[0])} lets it start all the same"]
    if condition is DependencyCondition.OK and job.user == required.user and _can_be_resubmitted(required):
        ways.append(f"oarsub --resubmit {required.id} runs that one again, and this one waits for the copy")
    return Advice(trouble, "; ".join([*ways, f"oardel {job.id} deletes it"]) + ".")


def _as_options(needed: Sequence[Dependency], broken: Dependency) -> str:
    """Return the dependencies as oaralter takes them, with the broken one such that any end is good."""
    return " ".join(f"-a {each.required}:any" if each is broken else f"-a {_written(each)}" for each in needed)


def _written(each: Dependency) -> str:
    condition = f":{each.condition}" if each.condition else ""
    shifts = f",{each.min_shift},{each.max_shift}".rstrip(",")
    return f"'{each.required}{condition}{shifts}'" if shifts else f"{each.required}{condition}"


def _can_be_resubmitted(job: Job) -> bool:
    return job.job_type is JobType.PASSIVE and job.reservation is Reservation.NONE

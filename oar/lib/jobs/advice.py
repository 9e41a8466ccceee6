"""Advice for users about jobs that cannot start with their current request, or that lost a node."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oar.lib.base.times import format_date
from oar.lib.jobs.ends import describe_exit
from oar.lib.jobs.reason_codes import ReasonCode
from oar.lib.jobs.records import Dependency, Job, WaitReason
from oar.lib.jobs.states import DependencyCondition, JobType, Reservation
from oar.lib.nodes.states import ResourceState

_ASKED = {
    DependencyCondition.OK: "ends well",
    DependencyCondition.NOT_OK: "fails",
    DependencyCondition.ANY: "ends",
    DependencyCondition.START: "starts",
}
_STATES = {
    ResourceState.ABSENT: "it was switched off or taken out of service",
    ResourceState.SUSPECTED: "it does not answer, or something failed on it",
    ResourceState.DEAD: "it was given up",
}


class LostNode(NamedTuple):
    """A node of a job whose state is not Alive."""

    name: str
    state: ResourceState
    since: int  #: 0 = not known


class Advice(NamedTuple):
    """The problem of a job in one sentence, and the commands that solve it; both are empty if there is none."""

    trouble: str = ""
    solution: str = ""


def advise_on_lost_nodes(job: Job, nodes: Sequence[LostNode], silent: str = "") -> Advice:
    """Return the advice for a job with nodes that are not Alive.

    ``silent``: the head node of the job if it did not answer the last check, else ''.
    """
    texts = [f"{node.name} is {node.state}{_since(node.since)}, {_STATES[node.state]}" for node in nodes]
    if silent and silent not in [node.name for node in nodes]:
        texts.append(f"{silent}, which runs its command, did not answer when it was last asked")
    if not texts:
        return Advice()
    text = "; ".join(texts)
    again = f", and oarsub --resubmit {job.id} submits it again" if _can_be_resubmitted(job) else ""
    return Advice(f"Of its nodes, {text}.", f"If it does not go on without: oardel {job.id} ends it{again}.")


def _since(date: int) -> str:
    return f" since {format_date(date)}" if date else ""


def advise_on_request(job: Job, reason: WaitReason | None) -> Advice:
    """Return the advice for a job whose request can never be satisfied, or whose queue is stopped."""
    code, data = (reason.code, reason.data) if reason else ("", {})
    if code == ReasonCode.QUEUE:
        return Advice("", f"oaralter {job.id} -q QUEUE moves it to another queue.")
    if code == ReasonCode.TOKEN and not data.get("has_script", True):
        helps = "An administrator can name a script for the token in SCHEDULER_TOKEN_SCRIPTS"
        return Advice("", f"{helps}; oardel {job.id} deletes the job.")
    is_about_resources = code in (ReasonCode.IMPOSSIBLE, ReasonCode.CONDITION)
    is_hopeless = (
        is_about_resources
        or (code == ReasonCode.QUOTA and "date" not in data and "latest" not in data)
        or (code == ReasonCode.CONTAINER and "resources" in data)
    )
    if not is_hopeless or job.reservation is not Reservation.NONE:
        return Advice()
    other = f", oaralter {job.id} -p CONDITION sets other conditions" if is_about_resources else ""
    return Advice("", f"oaralter {job.id} -l REQUEST asks for other resources{other}; oardel {job.id} deletes it.")


def advise_on_dependencies(
    job: Job,
    reason: WaitReason | None,
    dependencies: Sequence[Dependency],
    jobs: Mapping[int, Job],
    default: DependencyCondition,
) -> Advice:
    """Return the advice for a job whose dependencies can never be satisfied.

    ``jobs``: the required jobs by id; ``default``: the condition of dependencies that specify none.
    """
    if reason is None or reason.code != ReasonCode.DEPENDENCY or "date" in reason.data:
        return Advice()
    if "jobs" in reason.data:
        return Advice("", f"oaralter {job.id} -a '' takes away all its dependencies, oardel {job.id} deletes it.")
    broken = [dependency for dependency in dependencies if dependency.required == reason.data.get("job")]
    required = jobs.get(broken[0].required) if broken else None
    if required is None or not required.is_final:
        return Advice()
    condition = DependencyCondition(broken[0].condition) if broken[0].condition else default
    outcome = describe_exit(required.exit_code)
    how = f"{required.state}, {outcome}" if outcome else required.state
    trouble = f"It can start only if job {required.id} {_ASKED[condition]}, and job {required.id} has ended: {how}."
    ways = [f"oaralter {job.id} {_as_options(dependencies, broken[0])} lets it start all the same"]
    if condition is DependencyCondition.OK and job.user == required.user and _can_be_resubmitted(required):
        ways.append(f"oarsub --resubmit {required.id} runs that one again, and this one waits for the copy")
    return Advice(trouble, "; ".join([*ways, f"oardel {job.id} deletes it"]) + ".")


def _as_options(dependencies: Sequence[Dependency], broken: Dependency) -> str:
    """Return the oaralter options that set these dependencies again, with ``:any`` for the broken one."""
    return " ".join(
        f"-a {dependency.required}:any" if dependency is broken else f"-a {_written(dependency)}"
        for dependency in dependencies
    )


def _written(dependency: Dependency) -> str:
    condition = f":{dependency.condition}" if dependency.condition else ""
    shifts = f",{dependency.min_shift},{dependency.max_shift}".rstrip(",")
    return f"'{dependency.required}{condition}{shifts}'" if shifts else f"{dependency.required}{condition}"


def _can_be_resubmitted(job: Job) -> bool:
    return job.job_type is JobType.PASSIVE and job.reservation is Reservation.NONE

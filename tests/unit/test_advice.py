"""What can be done about a job that cannot start as it is, or that has lost a node."""

from typing import Any

import pytest

from oar.lib.base.times import format_date
from oar.lib.jobs.explanations import Advice, LostNode, advise_on_dependencies, advise_on_lost_nodes, advise_on_request
from oar.lib.jobs.reasons import ReasonCode, WaitReason
from oar.lib.jobs.records import Dependency, Job
from oar.lib.jobs.states import DependencyCondition, JobState, JobType, Reservation
from oar.lib.nodes.states import ResourceState

OK = DependencyCondition.OK
BROKEN = WaitReason(0, ReasonCode.DEPENDENCY, "dependency on job 2 cannot be satisfied", {"job": 2})
NOTHING = Advice()


def job(number: int, state: JobState = JobState.WAITING, **columns: Any) -> Job:
    """Return a job of alice's."""
    values = dict.fromkeys(Job._fields) | {"job_type": JobType.PASSIVE, "reservation": Reservation.NONE}
    return Job(**(values | {"id": number, "state": state, "user": "alice"} | columns))  # type: ignore[arg-type]


FAILED = job(2, JobState.TERMINATED, exit_code=256)
DONE = job(2, JobState.TERMINATED, exit_code=0)


@pytest.mark.parametrize(
    ("needed", "required", "trouble", "solution"),
    [
        (
            [Dependency(4, 2)],
            FAILED,
            "It can start only if job 2 ends well, and job 2 has ended: Terminated, exit code 1.",
            "oaralter 4 -a 2:any lets it start all the same; oarsub --resubmit 2 runs that one again, and this one"
            " waits for the copy; oardel 4 deletes it.",
        ),
        (
            [
                Dependency(4, 1, "ok"),
                Dependency(4, 2, "notok"),
                Dependency(4, 3, "", "5", "]60"),
                Dependency(4, 5, "", "+1"),
            ],
            DONE,
            "It can start only if job 2 fails, and job 2 has ended: Terminated, exit code 0.",
            "oaralter 4 -a 1:ok -a 2:any -a '3,5,]60' -a '5,+1' lets it start all the same; oardel 4 deletes it.",
        ),
        (
            [Dependency(4, 2)],
            job(2, JobState.ERROR, user="bob"),
            "It can start only if job 2 ends well, and job 2 has ended: Error.",
            "oaralter 4 -a 2:any lets it start all the same; oardel 4 deletes it.",
        ),
        (
            [Dependency(4, 2, "start")],
            job(2, JobState.ERROR, job_type=JobType.INTERACTIVE),
            "It can start only if job 2 starts, and job 2 has ended: Error.",
            "oaralter 4 -a 2:any lets it start all the same; oardel 4 deletes it.",
        ),
    ],
)
def test_a_dependency_that_is_never_met(needed: list[Dependency], required: Job, trouble: str, solution: str) -> None:
    assert advise_on_dependencies(job(4), BROKEN, needed, {2: required}, OK) == Advice(trouble, solution)


def test_the_condition_of_the_site_counts_where_none_is_given() -> None:
    advice = advise_on_dependencies(job(4), BROKEN, [Dependency(4, 2)], {2: DONE}, DependencyCondition.NOT_OK)
    assert "It can start only if job 2 fails" in advice.trouble


def test_jobs_that_wait_for_each_other() -> None:
    circle = WaitReason(0, ReasonCode.DEPENDENCY, "", {"jobs": [1, 2]})
    advice = advise_on_dependencies(job(1), circle, [Dependency(1, 2)], {2: job(2)}, OK)
    assert advice == Advice("", "oaralter 1 -a '' removes all its dependencies, oardel 1 deletes it.")


@pytest.mark.parametrize(
    ("reason", "required"),
    [
        (None, FAILED),
        (WaitReason(0, ReasonCode.BUSY, "", {"jobs": [2]}), FAILED),
        (WaitReason(0, ReasonCode.DEPENDENCY, "", {"job": 2, "date": 5}), FAILED),
        (BROKEN, job(2, JobState.RUNNING)),
        (WaitReason(0, ReasonCode.DEPENDENCY, "", {"job": 9}), FAILED),
    ],
)
def test_there_is_nothing_to_say_while_it_may_still_start(reason: WaitReason | None, required: Job) -> None:
    assert advise_on_dependencies(job(4), reason, [Dependency(4, 2)], {2: required}, OK) == NOTHING


@pytest.mark.parametrize(
    ("code", "data", "solution"),
    [
        (
            ReasonCode.IMPOSSIBLE,
            {"group": "/core=99"},
            "oaralter 4 -l REQUEST requests other resources, oaralter 4 -p CONDITION sets other conditions; oardel 4"
            " deletes it.",
        ),
        (ReasonCode.QUOTA, {"rule": []}, "oaralter 4 -l REQUEST requests other resources; oardel 4 deletes it."),
        (ReasonCode.QUOTA, {"rule": [], "date": 5}, ""),
        (ReasonCode.QUOTA, {"latest": 5}, ""),
        (
            ReasonCode.CONTAINER,
            {"container": "7", "resources": 2},
            "oaralter 4 -l REQUEST requests other resources; oardel 4 deletes it.",
        ),
        (ReasonCode.CONTAINER, {"container": "7"}, ""),
        (ReasonCode.QUEUE, {"queue": "night"}, "oaralter 4 -q QUEUE moves it to another queue."),
        (
            ReasonCode.BUDGET,
            {"project": "p", "used": 1.0, "hours": 1.0},
            "oaralter 4 --project NAME moves it to another project; a manager of the project can give it more hours:"
            " oarproject --budget.",
        ),
        (ReasonCode.PROJECT_CLOSED, {"project": "p"}, "oaralter 4 --project NAME moves it to another project."),
        (ReasonCode.BUSY, {}, ""),
    ],
)
def test_a_request_that_is_never_satisfied(code: str, data: dict[str, Any], solution: str) -> None:
    assert advise_on_request(job(4), WaitReason(0, code, "", data)) == Advice("", solution)


def test_who_has_no_reason_needs_no_solution() -> None:
    assert advise_on_request(job(4), None) == NOTHING
    agreed = job(4, reservation=Reservation.SCHEDULED)
    assert advise_on_request(agreed, WaitReason(0, ReasonCode.IMPOSSIBLE, "", {})) == NOTHING


def test_nodes_that_are_not_alive_are_named() -> None:
    lost = [LostNode("n1", ResourceState.SUSPECTED, 1_900_000_000), LostNode("n2", ResourceState.ABSENT, 0)]
    assert advise_on_lost_nodes(job(4, JobState.RUNNING), lost) == Advice(
        f"Of its nodes, n1 is Suspected since {format_date(1_900_000_000)}, it does not answer, or something failed on"
        " it; n2 is Absent, it was switched off or taken out of service.",
        "If it does not go on without: oardel 4 ends it, and oarsub --resubmit 4 submits it again.",
    )
    session = advise_on_lost_nodes(job(4, JobState.RUNNING, job_type=JobType.INTERACTIVE), lost[:1])
    assert session.solution == "If it does not go on without: oardel 4 ends it."
    assert advise_on_lost_nodes(job(4), []) == NOTHING
    silent = advise_on_lost_nodes(job(4, JobState.RUNNING), [], "n3")
    assert silent.trouble == "Of its nodes, n3, which runs its command, did not answer the last probe."
    assert "the last probe" not in advise_on_lost_nodes(job(4, JobState.RUNNING), lost[1:], "n2").trouble

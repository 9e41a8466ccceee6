"""From each state of a job there is a way to an end, and to each state there is a way."""

import pytest

from oar.lib.jobs.states import FINAL, JOB_MOVES, JobState


def reached(*origins: JobState) -> set[JobState]:
    """Return the states to which moves lead from some, these included."""
    states: set[JobState] = set()
    following = set(origins)
    while following - states:
        states |= following
        following = {target for state in states for target in JOB_MOVES[state]}
    return states


def test_a_submitted_job_can_come_into_every_state() -> None:
    assert reached(JobState.WAITING, JobState.HOLD) == set(JobState)


@pytest.mark.parametrize("state", list(JobState))
def test_every_state_leads_to_an_end(state: JobState) -> None:
    assert reached(state) & FINAL


@pytest.mark.parametrize("state", sorted(FINAL))
def test_nothing_follows_an_end(state: JobState) -> None:
    assert reached(state) == {state}

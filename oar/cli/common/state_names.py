"""States of jobs as people write them: a letter, or a name in any case."""

from oar.lib.jobs.states import STATE_LETTERS, JobState


def states_of(text: str) -> frozenset[JobState]:
    """Return the states that a letter or a name means, none if it means none.

    >>> sorted(states_of("L")), sorted(states_of("running")), sorted(states_of("x"))
    ([<JobState.LAUNCHING: 'Launching'>, <JobState.TO_LAUNCH: 'toLaunch'>], [<JobState.RUNNING: 'Running'>], [])
    """
    if len(text) == 1:
        return frozenset(state for state in JobState if STATE_LETTERS[state] == text.upper())
    return frozenset(state for state in JobState if state.lower() == text.lower())

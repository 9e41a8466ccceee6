"""What a job used: the figures of a job and those of its nodes agree."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from oar.lib.jobs.records import Job, NodeUsage
from oar.lib.jobs.usage import JobUsage

#: Processor time as nodes measure it: microseconds, in seconds.
_CPU_SECONDS = st.integers(0, 10**10).map(lambda microseconds: microseconds / 1e6)


def _usage(elapsed: int, *nodes: NodeUsage) -> JobUsage:
    return JobUsage(cast(Job, None), elapsed, nodes)


@given(_CPU_SECONDS, st.integers(1, 64), st.integers(1, 10**6))
def test_a_job_on_one_node_is_as_efficient_as_on_this_node(seconds: float, cores: int, elapsed: int) -> None:
    """The sum of the job is shown in milliseconds; its efficiency comes from what was measured."""
    node = NodeUsage("node-1", cores, seconds)
    usage = _usage(elapsed, node)
    assert usage.efficiency == usage.efficiency_on(node)


def test_a_silent_node_does_not_count() -> None:
    silent = NodeUsage("node-2", 4)
    assert _usage(10, NodeUsage("node-1", 2, 10.0), silent).efficiency == 0.5
    assert _usage(10, silent).efficiency is None

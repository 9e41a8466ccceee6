"""Jobs of the same user and name together: their usage in sums, and what their user should change."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from oar.lib.base.times import format_padded_duration
from oar.lib.jobs.ends import memory_size
from oar.lib.jobs.script_names import script_name
from oar.lib.jobs.states import Outcome
from oar.lib.jobs.usage import JobUsage

#: Jobs that use less than this part of their cores get advice, if together they ran for so many seconds.
LOW_EFFICIENCY, LEAST_RUN_TIME = 0.5, 600
#: Jobs that need less than this part of their walltime get advice, unless it is short anyway.
SHORT_RUN, SHORT_WALLTIME = 0.25, 1800


class AdviceCode(StrEnum):
    """What the user of a group of jobs should change."""

    def __new__(cls, code: str, text: str) -> "AdviceCode":
        member = str.__new__(cls, code)
        member._value_ = code
        return member

    def __init__(self, code: str, text: str) -> None:
        self.text = text  #: a sentence with the values

    # fmt: off
    MEMORY = ("memory",
        "{jobs} of {total} jobs ran out of memory (the peak was {peak} on a node): request more memory or more cores.")
    LONGER = ("longer", "{jobs} of {total} jobs reached their walltime of {walltime}: request more.")
    FAILED = ("failed", "{jobs} of {total} jobs failed: see their error output.")
    FEWER_CORES = ("fewer-cores",
        "they used {percent} % of {cores} cores: request fewer cores, or check that the program runs in parallel.")
    SHORTER = ("shorter",
        "the longest job ran for {ran} of {walltime}: request less walltime, then jobs start sooner.")
    # fmt: on


class Advice(NamedTuple):
    """An advice with its values; durations are texts."""

    code: AdviceCode
    values: Mapping[str, str | int]

    @property
    def sentence(self) -> str:
        return self.code.text.format_map(self.values)

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {"code": self.code, "values": dict(self.values), "sentence": self.sentence}


class UsageGroup(NamedTuple):
    """The usage of jobs with the same user and name."""

    user: str
    name: str  #: that of the script for jobs without a name; '' if there is none
    jobs: int
    started: int
    outcomes: Mapping[Outcome, int]  #: numbers of the ended jobs
    elapsed: int  #: seconds of all jobs
    longest: int  #: seconds of the longest job that ended well; 0 if there is none
    walltime: int  #: the largest, in seconds; 0 if it is not known
    cores: int  #: the largest number of a job
    core_seconds: int  #: of all jobs
    measured: int  #: core seconds on the nodes with a report
    cpu_seconds: float | None  #: None if no node has reported
    memory_peak: int | None  #: the largest on a node, in bytes

    @property
    def efficiency(self) -> float | None:
        """The used fraction of the available CPU time (1 = all) on the nodes with a report."""
        return round(self.cpu_seconds / self.measured, 4) if self.cpu_seconds is not None and self.measured else None

    @property
    def advice(self) -> list[Advice]:
        """What the user should change, the most important first."""
        return list(_advice(self))

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            "user": self.user,
            "name": self.name or None,
            "jobs": self.jobs,
            "outcomes": dict(self.outcomes),
            "elapsed": self.elapsed,
            "walltime": self.walltime or None,
            "cores": self.cores,
            "core_seconds": self.core_seconds,
            "cpu_seconds": self.cpu_seconds,
            "cpu_efficiency": self.efficiency,
            "memory_peak": self.memory_peak,
            "advice": [advice.record for advice in self.advice],
        }


def group_usages(
    usages: Iterable[JobUsage], outcomes: Mapping[int, Outcome], walltimes: Mapping[int, int]
) -> list[UsageGroup]:
    """Return the groups of jobs, those with the most core seconds first.  ``outcomes``, ``walltimes``: by job."""
    members: dict[tuple[str, str], list[JobUsage]] = defaultdict(list)
    for usage in usages:
        members[usage.job.user, usage.job.name or script_name(usage.job.command or "")].append(usage)
    groups = [_group(*key, some, outcomes, walltimes) for key, some in members.items()]
    return sorted(groups, key=lambda group: (-group.core_seconds, -group.jobs, group.user, group.name))


def _group(
    user: str, name: str, usages: Sequence[JobUsage], outcomes: Mapping[int, Outcome], walltimes: Mapping[int, int]
) -> UsageGroup:
    reports = [(use, node) for use in usages for node in use.nodes if node.cpu_seconds is not None]
    peaks = [node.memory_peak for use in usages for node in use.nodes if node.memory_peak is not None]
    return UsageGroup(
        user,
        name,
        len(usages),
        sum(bool(use.job.started) for use in usages),
        Counter(outcomes[use.job.id] for use in usages if use.job.id in outcomes),
        sum(use.elapsed for use in usages),
        max((use.elapsed for use in usages if outcomes.get(use.job.id) is Outcome.DONE), default=0),
        max((walltimes.get(use.job.id, 0) for use in usages), default=0),
        max((use.cores for use in usages), default=0),
        sum(use.cores * use.elapsed for use in usages),
        sum(node.cores * use.elapsed for use, node in reports),
        round(sum(node.cpu_seconds or 0.0 for _, node in reports), 3) if reports else None,
        max(peaks, default=None),
    )


def _advice(group: UsageGroup) -> Iterator[Advice]:
    total, outcomes = sum(group.outcomes.values()), group.outcomes
    walltime = format_padded_duration(group.walltime)
    if starved := outcomes.get(Outcome.OUT_OF_MEMORY, 0):
        yield Advice(AdviceCode.MEMORY, {"jobs": starved, "total": total, "peak": memory_size(group.memory_peak)})
    if late := outcomes.get(Outcome.TIMEOUT, 0):
        yield Advice(AdviceCode.LONGER, {"jobs": late, "total": total, "walltime": walltime})
    failed = outcomes.get(Outcome.FAILED, 0)
    if failed > 1 and 2 * failed >= total:
        yield Advice(AdviceCode.FAILED, {"jobs": failed, "total": total})
    is_long = group.elapsed >= LEAST_RUN_TIME
    if is_long and group.cores > 1 and group.efficiency is not None and group.efficiency < LOW_EFFICIENCY:
        yield Advice(AdviceCode.FEWER_CORES, {"percent": round(100 * group.efficiency), "cores": group.cores})
    is_short = 0 < group.longest < SHORT_RUN * group.walltime
    if is_short and group.walltime >= SHORT_WALLTIME and not late:
        yield Advice(AdviceCode.SHORTER, {"ran": format_padded_duration(group.longest), "walltime": walltime})

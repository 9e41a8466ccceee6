"""Lists of jobs as people type them: ``118,120``, ``22-25``, ``120[3-7]`` (elements of array 120)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.errors import BadRequest

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Jobs that one range selects, at most.
MOST = 10_000
WAY_OUT = "write ids (118 119), lists (118,119), ranges (22-25), elements of an array (120[3-7])"

_ID = "[0-9]{1,18}"
_RANGE = rf"({_ID})(?:-({_ID}))?"
#: ``120[3-7]``, and as in Slurm and PBS ``120_3``, ``120_[3-7]``, ``120[]``.
_ELEMENTS = rf"({_ID})(?:_?\[([^]]*)\]|_({_ID}))"
#: A part of a list; commas and blanks in brackets do not end it.
_PART = r"(?:[^,\s\[]|\[[^]]*\]?)+"


class BadJobList(BadRequest):
    """The text is not a list of jobs."""

    def __init__(self, text: str, reason: str = WAY_OUT) -> None:
        super().__init__(f'"{text}" is not a list of jobs: {reason}')
        self.reason = reason


class JobRange(NamedTuple):
    """A part of a list of jobs: the ids or indices from ``first`` to ``last``; in an array, ``last`` 0 means all."""

    first: int
    last: int
    array: int = 0  #: the array that the indices are of; 0: the numbers are ids

    @property
    def numbers(self) -> range:
        return range(self.first, self.last + 1)


class FoundJobs(NamedTuple):
    """The ids of a list, each once, and complaints about ranges and arrays without jobs."""

    ids: tuple[int, ...]
    complaints: tuple[str, ...] = ()


def parse(text: str) -> list[JobRange]:
    """Return the parts of a list. Raises BadJobList.

    >>> parse("22-25,120[3]")
    [JobRange(first=22, last=25, array=0), JobRange(first=3, last=3, array=120)]
    """
    parts = re.findall(_PART, text)
    if not parts:
        raise BadJobList(text)
    return [job_range for part in parts for job_range in _parse_part(part)]


def _parse_part(text: str) -> Iterator[JobRange]:
    if match := re.fullmatch(_RANGE, text):
        yield _range(text, match[1], match[2])
        return
    match = re.fullmatch(_ELEMENTS, text)
    if not match:
        raise BadJobList(text)
    array, indices = int(match[1]), match[2] or match[3] or "*"
    if not array:
        raise BadJobList(text, "0 is not the id of an array")
    if indices == "*":
        yield JobRange(1, 0, array)
        return
    for part in indices.split(","):
        numbers = re.fullmatch(_RANGE, part)
        if not numbers:
            raise BadJobList(text, f"write the indices as {array}[3], {array}[3-7] or {array}[1,3-7]")
        yield _range(text, numbers[1], numbers[2], array)


def _range(text: str, first: str, last: str | None, array: int = 0) -> JobRange:
    begin, end = int(first), int(last or first)
    if end < begin:
        raise BadJobList(text, f"write the lower number first: {end}-{begin}")
    if end - begin >= MOST:
        raise BadJobList(text, f"{begin}-{end} has more than {MOST} numbers; use a smaller range, --array or --sql")
    return JobRange(begin, end, array)


def find(tx: "Transaction", ranges: Iterable[JobRange]) -> FoundJobs:
    """Return the jobs of a list; a single id is returned even if no job has it.

    A range leaves out the frames of advance reservations, as other selections of several jobs do.
    """
    ids: list[int] = []
    complaints: list[str] = []
    arrays: dict[int, dict[int, int]] = {}  #: the id of each index
    for part in ranges:
        if not part.array and part.first == part.last:
            found = [part.first]
        elif not part.array:
            in_range = tx.jobs.states(part.numbers)
            found = sorted(in_range.keys() - tx.reservations.of_frames(in_range))
            complaints += [] if found else [f"no job has an id from {part.first} to {part.last}."]
        else:
            if part.array not in arrays:
                arrays[part.array] = {job.array_index: job.id for job in tx.jobs.of_arrays([part.array])}
            found, complaint = _elements(part, arrays[part.array])
            complaints += [complaint] if complaint else []
        ids += found
    return FoundJobs(tuple(dict.fromkeys(ids)), tuple(complaints))


def _elements(part: JobRange, jobs: Mapping[int, int]) -> tuple[list[int], str]:
    """Return the jobs of an array with these indices, and a complaint if there is none. ``jobs``: ids by index."""
    if not jobs:
        return [], f"array {part.array} does not exist."
    indices = sorted(jobs) if not part.last else [index for index in part.numbers if index in jobs]
    if indices:
        return [jobs[index] for index in indices], ""
    shown = f"{part.first}-{part.last}" if part.last > part.first else f"{part.first}"
    return [], f"array {part.array} has no job with index {shown}: its indices are {min(jobs)}-{max(jobs)}."

"""oarstat --gantt --ascii: jobs on resources between two dates, as a chart of letters."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from oar.cli.common.render import padded, places, visible
from oar.lib.base.times import format_date, format_duration

#: One of them stands for a job; when they are used up they are used again.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvw0123456789"
FREE, UNUSABLE = ".", "x"
NARROWEST = 20

Jobs = Mapping[int, Mapping[str, Any]]


def chart(record: Mapping[str, Any], start: int, stop: int, width: int | None = None) -> str:
    """Return the chart of what ``oarstat --gantt`` shows; resources of a node that look the same share a line."""
    jobs: Jobs = record["jobs"]
    letters = {job_id: LETTERS[place % len(LETTERS)] for place, job_id in enumerate(jobs)}
    resources = sorted(record["resources"], key=lambda each: (each["network_address"], each["resource_id"]))
    names = {each["network_address"] for each in resources}
    label = max(map(places, names), default=0) + 6
    columns = max((width or shutil.get_terminal_size().columns) - label, NARROWEST)
    cells = _Cells(start, max(stop, start + 1), columns)
    lines = {each["resource_id"]: [FREE] * columns for each in resources}
    for number, gaps in record["dead_resources"].items():
        for since, until, _ in gaps:
            cells.fill(lines.get(number), since, until or stop, UNUSABLE)
    for job_id, job in jobs.items():
        for number in job["resource_id"]:
            cells.fill(lines.get(number), job["start_time"], job["stop_time"] or stop, letters[job_id])
    head = f"{format_date(start)} - {format_date(stop)}, a column is {format_duration(-(-(stop - start) // columns))}\n"
    return head + "".join(_nodes(resources, lines, label)) + "".join(_legend(jobs, letters))


class _Cells:
    """Columns of a chart, each a part of the time."""

    def __init__(self, start: int, stop: int, columns: int) -> None:
        self._start = start
        self._length = stop - start
        self._columns = columns

    def fill(self, line: list[str] | None, start: int, stop: int, letter: str) -> None:
        """Write a letter where a time lies, at least once if it lies in the chart at all."""
        if line is None or stop < self._start or start > self._start + self._length or not start:
            return
        first = max((start - self._start) * self._columns // self._length, 0)
        last = -(-(stop - self._start) * self._columns // self._length)
        for place in range(min(first, self._columns - 1), min(max(last, first + 1), self._columns)):
            line[place] = letter


def _nodes(resources: Sequence[Mapping[str, Any]], lines: Mapping[int, list[str]], label: int) -> Iterable[str]:
    for node, of_node in groupby(resources, key=lambda each: each["network_address"]):
        for line, same in groupby("".join(lines[each["resource_id"]]) for each in of_node):
            number = len(list(same))
            name = f"{visible(node)}{f' x{number}' if number > 1 else ''}"
            yield f"{padded(name, label)}{line}\n"


def _legend(jobs: Jobs, letters: Mapping[int, str]) -> Iterable[str]:
    for job_id, job in jobs.items():
        name = f" {visible(job['job_name'])}" if job["job_name"] else ""
        yield (
            f"{letters[job_id]} {job_id} {visible(job['user'])} {job['state']}"
            f" {format_date(job['start_time'])} - {format_date(job['stop_time'])}{name}{_age(job)}\n"
        )


def _age(job: Mapping[str, Any]) -> str:
    """Return how old the foreseen start of a job may be, if it is not that of the last round."""
    return f", foreseen at {format_date(job['foreseen_at'])} or later" if job["foreseen_at"] else ""

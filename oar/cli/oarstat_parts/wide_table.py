"""The table of jobs for readers at a wide terminal: nodes, used and remaining time, outcome or reason."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.cli.common.render import COLORS, cell, format_failure, visible
from oar.lib.base.host_names import shorten_host_list
from oar.lib.base.times import format_date, format_padded_duration
from oar.lib.jobs.explanations import outlooks
from oar.lib.jobs.script_names import script_name
from oar.lib.jobs.states import STATE_LETTERS
from oar.lib.jobs.views import job_times

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.privacy import Privacy
    from oar.lib.jobs.records import Job
    from oar.lib.jobs.states import Outcome
    from oar.lib.jobs.views import JobTimes

#: A narrower terminal gets the usual table.
LEAST_WIDTH = 120
_COLUMNS = (
    *(("Job id", 10), ("Name", 16), ("User", 10), ("Queue", 10), ("S", 1)),
    *(("Used", 10), ("Left", 10), ("Nodes", 20), ("Outcome, or start and reason", 28)),
)


def terminal_width() -> int:
    """Return the width of the terminal that the output goes to; 0 if it goes to a file or a program."""
    if not sys.stdout.isatty():
        return 0
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 0


def wide_table(
    tx: "Transaction",
    jobs: "Sequence[Job]",
    privacy: "Privacy",
    *,
    width: int,
    header: bool = True,
    colored: bool = False,
) -> str:
    """Return the table of jobs in lines of at most ``width`` places, '' if there is none."""
    if not jobs:
        return ""
    head = [[title for title, _ in _COLUMNS], ["-" * places for _, places in _COLUMNS]] if header else []
    last = max(width - sum(places + 1 for _, places in _COLUMNS[:-1]), 1)
    lines = [_line(row, last) for row in head]
    lines += [_line(row, last, colored=colored) for row in _rows(tx, jobs, privacy)]
    return "".join(lines)


def _line(row: Sequence[str], last: int, *, colored: bool = False) -> str:
    cells = [cell(text, places) for text, (_, places) in zip(row, _COLUMNS[:-1], strict=False)]
    if colored and (color := COLORS.get(cells[4])):
        cells[4] = f"\033[{color}m{cells[4]}\033[0m"
    return " ".join([*cells, cell(row[-1], last)]).rstrip() + "\n"


class _Facts(NamedTuple):
    """What the rows need besides the jobs, by job."""

    times: "Mapping[int, JobTimes]"
    nodes: Mapping[int, Sequence[str]]
    outcomes: "Mapping[int, Outcome]"
    reasons: Mapping[int, str]


def _rows(tx: "Transaction", jobs: "Sequence[Job]", privacy: "Privacy") -> Iterator[list[str]]:
    assigned = tx.listings.assigned([job.id for job in jobs])
    facts = _Facts(
        job_times(tx, jobs),
        {job_id: held.nodes for job_id, held in assigned.items()},
        tx.job_runs.outcomes(jobs),
        {outlook.job.id: outlook.why for outlook in outlooks(tx, jobs)},
    )
    commands, _, _ = privacy.texts(jobs)
    for job, command in zip(jobs, commands, strict=True):
        times = facts.times[job.id]
        yield [
            str(job.id),
            visible(job.name or script_name(command)),
            visible(job.user),
            visible(job.queue),
            STATE_LETTERS[job.state],
            _used(job, tx.now),
            "-" if times.remaining is None else format_padded_duration(times.remaining),
            visible(shorten_host_list(facts.nodes.get(job.id, ()))) or "-",
            visible(_remark(job, times, facts)),
        ]


def _used(job: "Job", now: int) -> str:
    return format_padded_duration((job.stop_time or now) - job.started) if job.started else "-"


def _remark(job: "Job", times: "JobTimes", facts: _Facts) -> str:
    """Return how a job ended, or when it starts and why it waits."""
    if job.is_final:
        outcome = facts.outcomes.get(job.id)
        failure = format_failure(job.exit_code, outcome).strip(" ()")
        return f"{outcome}: {failure}" if outcome and failure and failure != outcome else failure or str(outcome or "")
    if job.started:
        return ""
    start = f"{format_date(times.start)}" if times.start else ""
    return ", ".join(filter(None, (start, facts.reasons.get(job.id, "").strip("()"))))

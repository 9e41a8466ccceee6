"""The table of the stages of a job: its figures, their limits, and its text.  Nothing is measured here."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple


class Figure(NamedTuple):
    """A line of the table."""

    title: str
    #: Measurement that contains it, and its name there.
    measurement: str
    name: str
    #: Maximum, or minimum if more is better; None: no limit.
    limit: float | None = None
    more_is_better: bool = False
    #: Required factor compared with the fastest configuration of Slurm.
    lead: float | None = None


#: Results: values of all runs by measurement and name.
Samples = Mapping[tuple[str, str], Sequence[float]]

#: Load of other processes during a measurement, in cores; part of each measurement.
OTHERS = "others"
FIGURES = (
    Figure("submit one job, ms", "submission", "submit_ms", 40),
    Figure("  CPU of that, ms", "submission", "submit_cpu_ms", 45),
    Figure("submissions/s, 4 at once", "submission", "submitted_per_s", 60, more_is_better=True),
    Figure("list of no job, ms", "submission", "list_ms", 25),
    Figure("array of 10,000 accepted, ms", "big_array", "accepted_ms", 500),
    Figure("idle: return key to first instruction, ms", "latency", "start_median_ms", 150),
    Figure("jobs/s, one array", "array", "jobs_per_s", 60, more_is_better=True, lead=1.3),
    Figure("  CPU of each, ms", "array", "cpu_ms_per_job", 35),
    Figure("jobs/s, submitted one by one", "loop", "jobs_per_s", 30, more_is_better=True),
    Figure("  CPU of each, ms", "loop", "cpu_ms_per_job"),
    Figure("list 10,000 waiting as text, ms", "big_array", "list_text_ms"),
    Figure("  as JSON, ms", "big_array", "list_json_ms", 400),
    Figure("  JSON to text", "big_array", "json_to_text", 1.5),
    Figure("submissions and SIGKILL: acknowledged", "storm", "acknowledged"),
    Figure("  of these lost", "storm", "lost", 0),
    Figure("calibration: fork and exec, ms", "calibration", "fork_exec_ms"),
    Figure("  CPU of that, ms", "calibration", "fork_exec_cpu_ms"),
    Figure("  cores busy with other things", "", OTHERS),
)
MEASURED = tuple(dict.fromkeys(figure.measurement for figure in FIGURES if figure.measurement))
_TITLE, _CELL = 44, 10


def value(figure: Figure, samples: Samples) -> float | None:
    """Return the median of the runs, None if it was not measured."""
    found = samples.get((figure.measurement, figure.name))
    return median(found) if found else None


def lead(figure: Figure, ours: float, theirs: float) -> float | None:
    """Return the factor by which our value is better; above 1 ours is better."""
    better, worse = (ours, theirs) if figure.more_is_better else (theirs, ours)
    return better / worse if worse else None


def is_missed(figure: Figure, ours: float) -> bool:
    """Return whether our value misses its limit."""
    if figure.limit is None:
        return False
    return ours < figure.limit if figure.more_is_better else ours > figure.limit


def missed(ours: Samples, fastest: Samples | None = None) -> list[str]:
    """Return the missed limits, each with its measurement."""
    found = []
    for figure in FIGURES:
        own = value(figure, ours)
        if own is None:
            continue
        if is_missed(figure, own):
            found.append(f"{figure.measurement}: {figure.title.strip()}")
        other = value(figure, fastest) if fastest else None
        if figure.lead and other is not None and (lead(figure, own, other) or 0.0) < figure.lead:
            found.append(f"{figure.measurement}: {figure.title.strip()}, {figure.lead} times Slurm's")
    return found


def table(ours: Samples, others: Mapping[str, Samples]) -> list[str]:
    """Return the lines: our value, its limit, and for each other system its value and our factor."""
    titles = ["OAR", "limit", *(word for name in others for word in (name, "times"))]
    lines = [_line("", titles)]
    for figure in FIGURES:
        own = value(figure, ours)
        if own is not None:
            lines.append(_line(figure.title, [_number(own), _limit(figure), *_beside(figure, own, others.values())]))
    return lines


def _beside(figure: Figure, ours: float, others: Iterable[Samples]) -> list[str]:
    cells: list[str] = []
    for samples in others:
        theirs = value(figure, samples)
        cells += ["", ""] if theirs is None else [_number(theirs), _number(lead(figure, ours, theirs))]
    return cells


def _limit(figure: Figure) -> str:
    if figure.limit is None:
        return ""
    return f"{'>=' if figure.more_is_better else '<='} {figure.limit:g}"


def _number(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:.0f}" if number >= 100 or number == 0 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def _line(title: str, cells: Sequence[str]) -> str:
    return f"{title:{_TITLE}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)

"""Curves of jobs: what a job used over time on each of its nodes. Pure functions.

A curve has a value for each step of time since ``begin``. A step lasts ``PERIOD`` seconds at first. A job that is older
than ``MOST_POINTS`` steps gets steps of twice the length, again and again: each curve has at most ``MOST_POINTS``
points, at least half of that for a job that lasts. See docs/design/nodes.rst, "Curves of jobs".
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from math import ceil
from typing import NamedTuple

PERIOD = 30  #: seconds of the shortest step; nodes report what their jobs use so often
MOST_POINTS = 240
#: A step has a value if at least this share of it was measured. Of steps of one or two periods, this is all.
MEASURED_SHARE = 0.75
MIB = 1 << 20
#: A value of a curve: None if nobody has measured it.
Value = int | None
Merge = Callable[[Sequence[int]], int]


class Sample(NamedTuple):
    """What a job used on a node during a time."""

    cpu: Value = None  #: mean, in thousandths of a processor
    memory: Value = None  #: most, in MiB
    gpu: Value = None  #: mean of its GPUs there, per mille; None unless all of them were measured
    gpu_memory: Value = None  #: most, in MiB; None unless all of them were measured
    gpus: int = 0  #: number of its GPUs there


def sample_of(values: Iterable[Value], gpus: int) -> Sample:
    """Return the sample with these values, in the order of its fields."""
    cpu, memory, gpu, gpu_memory = values
    return Sample(cpu, memory, gpu, gpu_memory, gpus)


def mean(values: Sequence[int]) -> int:
    return round(sum(values) / len(values))


#: How values of several steps become one, in the order of ``Sample``.
MERGES: tuple[Merge, ...] = (mean, max, mean, max)


def merged(values: Iterable[Value], merge: Merge) -> Value:
    """Return one value for several; None if one of them was not measured."""
    known: list[int] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return merge(known)


class Curve(NamedTuple):
    """What a job used on a node, step by step."""

    job_id: int
    node: str
    begin: int  #: the date at which the first step begins
    step: int  #: in seconds
    gpus: int = 0
    cpu: Sequence[Value] = ()
    memory: Sequence[Value] = ()
    gpu: Sequence[Value] = ()
    gpu_memory: Sequence[Value] = ()

    @property
    def columns(self) -> tuple[Sequence[Value], ...]:
        """The values, in the order of ``Sample``."""
        return self.cpu, self.memory, self.gpu, self.gpu_memory

    def in_steps(self, step: int) -> "Curve":
        """Return the curve in steps of another length, which is the present one times a power of two."""
        curve = self
        while curve.step < step:
            halves = [_halved(column, merge) for column, merge in zip(curve.columns, MERGES, strict=True)]
            curve = Curve(self.job_id, self.node, self.begin, 2 * curve.step, self.gpus, *halves)
        return curve


def _halved(column: Sequence[Value], merge: Merge) -> list[Value]:
    """Return a value for each two steps; a step with a half that was not measured has none."""
    return [merged(pair, merge) for pair in zip_longest(column[::2], column[1::2])]


def aligned(curves: Iterable[Curve]) -> list[Curve]:
    """Return the curves of one job with a common begin and steps of the same length."""
    known = list(curves)
    longest = max((curve.step for curve in known), default=PERIOD)
    first = min((curve.begin for curve in known), default=0)
    return [_from(first, curve.in_steps(longest)) for curve in known]


def _from(begin: int, curve: Curve) -> Curve:
    gap: list[Value] = [None] * round((curve.begin - begin) / curve.step)
    columns = [[*gap, *column] if column else [] for column in curve.columns]
    return Curve(curve.job_id, curve.node, begin, curve.step, curve.gpus, *columns)


def total(curves: Sequence[Curve]) -> Curve | None:
    """Return what a job used on all its nodes together, at the times when all that have a curve were measured.

    Its ``node`` is empty. None: the job has no curve.
    """
    if not curves:
        return None
    curves = aligned(curves)
    with_gpus = [curve for curve in curves if curve.gpus > 0]
    steps = max(len(curve.cpu) for curve in curves)
    columns = [_sums([curve.cpu for curve in curves], steps), _sums([curve.memory for curve in curves], steps)]
    if with_gpus:
        columns += [_uses(with_gpus, steps), _sums([curve.gpu_memory for curve in with_gpus], steps)]
    first = curves[0]
    return Curve(first.job_id, "", first.begin, first.step, sum(curve.gpus for curve in curves), *columns)


def _sums(columns: Iterable[Sequence[Value]], steps: int) -> list[Value]:
    """Return the sum of each step; None where a value is missing."""
    padded = [[*column, *[None] * (steps - len(column))] for column in columns]
    return [merged(step, sum) for step in zip(*padded, strict=True)]


def _uses(curves: Sequence[Curve], steps: int) -> list[Value]:
    """Return the mean use of all GPUs in each step."""
    gpus = sum(curve.gpus for curve in curves)
    weighted = [[None if use is None else use * curve.gpus for use in curve.gpu] for curve in curves]
    return [None if use is None else round(use / gpus) for use in _sums(weighted, steps)]


def ends_of(curves: Iterable[Curve]) -> list[int]:
    """Return the dates at which curves end."""
    return [curve.begin + len(curve.cpu) * curve.step for curve in curves]


def record(curves: Sequence[Curve], *, by_node: bool = True) -> dict[str, object]:
    """Return the fields for machine formats: processors, bytes, fractions of GPUs.

    ``by_node``: also the curves of each node.
    """
    together = total(curves)
    if together is None:
        return {"begin": None, "step": None, "total": None, "nodes": {}}
    nodes = {curve.node: _values(curve) for curve in aligned(curves)} if by_node else {}
    return {"begin": together.begin, "step": together.step, "total": _values(together), "nodes": nodes}


def _values(curve: Curve) -> dict[str, object]:
    return {
        "gpus": curve.gpus,
        "cpu": _scaled(curve.cpu, 0.001),
        "memory": _scaled(curve.memory, MIB),
        "gpu": _scaled(curve.gpu, 0.001),
        "gpu_memory": _scaled(curve.gpu_memory, MIB),
    }


def _scaled(column: Sequence[Value], unit: float) -> list[float | None]:
    return [None if value is None else round(value * unit, 3) for value in column]


def steps_between(begin: int, start: float, end: float) -> range:
    """Return the shortest steps since ``begin`` whose middles lie after ``start``, and not after ``end``.

    Times that follow each other have no step in common and miss none.
    """
    first, last = (ceil((date - begin) / PERIOD - 0.5) for date in (start, end))
    return range(max(0, first), max(0, last))


def fitting_step(index: int) -> int:
    """Return the length of steps, in seconds, with which the shortest step of this index is in the curve."""
    step = PERIOD
    while index * PERIOD // step >= MOST_POINTS:
        step *= 2
    return step


class _Sum:
    """Samples that become one."""

    def __init__(self, step: int) -> None:
        """``step``: the length of the step that they become, in seconds."""
        self._least = ceil(MEASURED_SHARE * step / PERIOD)
        self._sums = [0, 0, 0, 0]
        self._counts = [0, 0, 0, 0]
        self._gpus = 0

    def add(self, sample: Sample) -> None:
        self._gpus = max(self._gpus, sample.gpus)
        for place, (value, merge) in enumerate(zip(sample, MERGES, strict=False)):
            if value is not None:
                known = self._sums[place]
                self._sums[place] = known + value if merge is mean else max(known, value)
                self._counts[place] += 1

    def sample(self) -> Sample:
        """Return the sample of the step; a value is None if too little of the step was measured."""
        values = zip(self._sums, self._counts, MERGES, strict=True)
        return sample_of((self._of_sum(known, count, merge) for known, count, merge in values), self._gpus)

    def _of_sum(self, known: int, count: int, merge: Merge) -> Value:
        if count < self._least:
            return None
        return round(known / count) if merge is mean else known


class GrowingCurve:
    """The end of a curve, until it is stored: the step that is not over, and those before it."""

    def __init__(self, begin: int, step: int, length: int = 0) -> None:
        """``step`` 0: nothing of the curve is stored yet; ``length``: the number of points that are."""
        self.begin = begin
        self.step = step
        self.length = length
        self.points: list[tuple[int, Sample]] = []  #: that are complete
        self.late: list[tuple[int, Sample]] = []  #: samples that wait for a longer step
        self._place = -1
        self._open: _Sum | None = None

    def add(self, start: float, end: float, sample: Sample) -> None:
        """Add what the job used between two dates."""
        for index in steps_between(self.begin, start, end):
            self.step = self.step or fitting_step(index)
            if index * PERIOD // self.step >= MOST_POINTS:
                self.late = [*self.late[-MOST_POINTS:], (index, sample)]
            else:
                self._add(index, sample)

    def _add(self, index: int, sample: Sample) -> None:
        place = index * PERIOD // self.step
        if place < max(self.length, self._place):
            return  # what is stored stays
        if place != self._place or self._open is None:
            self._close()
            self._place, self._open = place, _Sum(self.step)
        self._open.add(sample)
        if (index + 1) * PERIOD // self.step != place:
            self._close()

    def _close(self) -> None:
        if self._open is not None:
            self.points.append((self._place, self._open.sample()))
            self._place, self._open = self._place + 1, None

    @property
    def wanted_step(self) -> int:
        """The length of steps that the curve must have before its next points can be stored."""
        return fitting_step(self.late[-1][0]) if self.late else self.step

    def lengthen(self) -> None:
        """Note that the points are stored, and that the stored curve has steps of the wanted length."""
        self._note_stored()
        late, step, self.late = self.late, self.wanted_step, []
        if step != self.step:
            self.length = -(-self.length * self.step // step)
            self._place = -1
            self.step = step
        for index, sample in late:
            self._add(index, sample)

    def _note_stored(self) -> None:
        if self.points:
            self.length = self.points[-1][0] + 1
        self.points = []

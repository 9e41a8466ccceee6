"""The text format of Prometheus: values with names and labels."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricFamily(NamedTuple):
    """The values of one metric, each with the values of its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    rows: Sequence[tuple[tuple[str, ...], float]] = ()
    kind: str = "gauge"


#: Upper bounds of the classes of waiting and running jobs, errors, launches and scheduling passes, in seconds.
WAIT_BOUNDS = (10, 60, 300, 900, 3600, 14400, 43200, 86400, 604800)
RUN_BOUNDS = WAIT_BOUNDS
ERROR_BOUNDS = (1, 10, 60, 300, 900, 3600, 14400, 43200, 86400)
LAUNCH_BOUNDS = (1, 2, 5, 10, 30, 60, 120, 300, 900)
ROUND_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Histogram:
    """A histogram of durations: cumulative counts by upper bound, total number and sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * len(bounds)
        self.number = 0  #: of what was counted
        self.sum = 0.0

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Histogram":
        made = cls(record["bounds"])
        made._counts, made.number, made.sum = list(record["counts"]), record["number"], record["sum"]
        return made

    @property
    def record(self) -> dict[str, object]:
        """The content, for JSON."""
        return {
            "bounds": list(self._bounds),
            "counts": self._counts,
            "number": self.number,
            "sum": round(self.sum, 3),
        }

    @property
    def classes(self) -> list[tuple[str, float]]:
        """The upper bound of each bucket, as text, and the cumulative count."""
        counted = zip(self._bounds, self._counts, strict=True)
        return [*((str(bound), float(count)) for bound, count in counted), ("+Inf", float(self.number))]

    def add(self, seconds: float) -> None:
        """Count one value."""
        self.number += 1
        self.sum += seconds
        for place in range(bisect_left(self._bounds, seconds), len(self._bounds)):
            self._counts[place] += 1


class HistogramFamily:
    """The histograms of one metric: one for each value of a label, or a single one without label."""

    def __init__(self, name: str, help_: str, bounds: Sequence[float], label: str = "") -> None:
        self.name, self.help, self.labels = name, help_, (label,) if label else ()
        self._bounds = bounds
        self._by_value: dict[tuple[str, ...], Histogram] = {}
        if not label:
            self._by_value[()] = Histogram(bounds)

    @classmethod
    def of(cls, name: str, help_: str, histogram: Histogram) -> "HistogramFamily":
        """Return a family with an existing histogram."""
        made = cls(name, help_, ())
        made._by_value[()] = histogram
        return made

    @property
    def rows(self) -> list[tuple[tuple[str, ...], Histogram]]:
        """Each histogram with its label value, sorted."""
        return sorted(self._by_value.items(), key=lambda row: row[0])

    def add(self, seconds: float, *value: str) -> None:
        """Count one value in the histogram of a label value."""
        histogram = self._by_value.get(value)
        if histogram is None:
            histogram = self._by_value.setdefault(value, Histogram(self._bounds))
        histogram.add(seconds)

    def lines(self) -> list[str]:
        """Return the lines in the text format."""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} histogram"]
        for values, histogram in self.rows:
            for bound, count in histogram.classes:
                labels = _labels((*self.labels, "le"), (*values, bound))
                lines.append(f"{self.name}_bucket{labels} {_number(count)}")
            own = _labels(self.labels, values)
            lines += [f"{self.name}_sum{own} {_number(histogram.sum)}", f"{self.name}_count{own} {histogram.number}"]
        return lines


def family_lines(family: MetricFamily) -> list[str]:
    """Return the lines of a family in the text format."""
    return [
        f"# HELP {family.name} {family.help}",
        f"# TYPE {family.name} {family.kind}",
        *(f"{family.name}{_labels(family.labels, values)} {_number(number)}" for values, number in family.rows),
    ]


def gauge(name: str, help_: str, values: Mapping[Any, float] | float, *labels: str) -> MetricFamily:
    """Return a gauge: one number, or numbers by the value of the label, or by a tuple of the values of the labels."""
    numbers = values if isinstance(values, Mapping) else {(): values}
    rows = [(key if isinstance(key, tuple) else (key,), float(number)) for key, number in numbers.items()]
    return MetricFamily(name, help_, labels, rows)


def counter(name: str, help_: str, counts: Mapping[Any, int], *labels: str) -> MetricFamily:
    """Return a counter in the same way, its rows sorted."""
    return gauge(name, help_, dict(sorted(counts.items())), *labels)._replace(kind="counter")


def document(parts: Iterable[Sequence[str]]) -> str:
    """Return the text of all lines."""
    return "".join(f"{line}\n" for lines in parts for line in lines)


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(round(value, 6))

"""The text format of Prometheus: numbers with names and labels."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricFamily(NamedTuple):
    """Numbers of one name: each with the values of its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    rows: Sequence[tuple[tuple[str, ...], float]] = ()
    kind: str = "gauge"


class WaitHistogram:
    """How long jobs waited: how many at most so long, and all together."""

    #: Upper bounds of the classes, in seconds.
    BOUNDS = (10, 60, 300, 900, 3600, 14400, 43200, 86400, 604800)

    def __init__(self) -> None:
        self._counts = [0] * len(self.BOUNDS)
        self._number = 0
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Count a job."""
        self._number += 1
        self._sum += seconds
        for place, bound in enumerate(self.BOUNDS):
            self._counts[place] += seconds <= bound

    def lines(self, name: str, help_: str) -> list[str]:
        """Return its lines."""
        return [
            f"# HELP {name} {help_}",
            f"# TYPE {name} histogram",
            *(f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in zip(self.BOUNDS, self._counts, strict=True)),
            f'{name}_bucket{{le="+Inf"}} {self._number}',
            f"{name}_sum {_number(self._sum)}",
            f"{name}_count {self._number}",
        ]


def family_lines(family: MetricFamily) -> list[str]:
    """Return the lines of a family."""
    return [
        f"# HELP {family.name} {family.help}",
        f"# TYPE {family.name} {family.kind}",
        *(f"{family.name}{_labels(family.labels, values)} {_number(number)}" for values, number in family.rows),
    ]


def counter(name: str, help_: str, label: str, counts: Mapping[str, int]) -> MetricFamily:
    """Return a family of numbers that only grow, by one label."""
    return MetricFamily(
        name, help_, (label,), [((value,), float(count)) for value, count in sorted(counts.items())], "counter"
    )


def document(parts: Iterable[Sequence[str]]) -> str:
    """Return the text of a file."""
    return "".join(f"{line}\n" for lines in parts for line in lines)


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(round(value, 6))

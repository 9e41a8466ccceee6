"""Long work that can be interrupted: a generator that yields between its steps and returns the result.

A step processes at most ``PORTION`` jobs.  Callers without time limits use ``result_of``.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

#: How many jobs a step treats, where each costs some microseconds.
PORTION = 1000

_T = TypeVar("_T")

#: Work in steps.
Steps = Generator[None, None, _T]


def result_of(steps: Steps[_T]) -> _T:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the type of StopIteration does not know it


def portions(items: Iterable[_T], size: int = PORTION) -> Iterator[list[_T]]:
    """Iterate over the items in lists of at most ``size`` items."""
    rest = iter(items)
    while portion := list(islice(rest, size)):
        yield portion

"""Long work that others may interrupt: a generator that yields between its steps, and returns the result.

A step treats ``PORTION`` jobs at most.  Who is in no hurry takes the result with ``result_of``.
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
    """Take all steps; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the type of StopIteration does not know it


def portions(items: Iterable[_T], size: int = PORTION) -> Iterator[list[_T]]:
    """Iterate over the items, so many at a time."""
    rest = iter(items)
    while portion := list(islice(rest, size)):
        yield portion

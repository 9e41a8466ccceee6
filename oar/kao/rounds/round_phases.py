"""The duration of the parts of a round, as the server reports them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class RoundPart(StrEnum):
    """A part of a round."""

    READ = "read"  #: reads the database
    PLAN = "plan"
    WRITE = "write"  #: writes what is decided


class RoundPhases:
    """The durations of one round, the number of waiting jobs, and the number of undecided jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(RoundPart, 0.0)
        self.jobs = 0  #: that waited
        self.undecided = 0  #: jobs that were left to a plan between the rounds
        self.file_errors: list[str] = []  #: of files of policies that could not be read

    @contextmanager
    def of(self, part: RoundPart) -> Iterator[None]:
        """Add the time of the ``with`` block to a part; a part may have several blocks."""
        begin = self._clock()
        try:
            yield
        finally:
            self._seconds[part] += self._clock() - begin

    @property
    def record(self) -> dict[str, object]:
        """Return the content for JSON."""
        phases = {str(part): round(each, 4) for part, each in self._seconds.items()}
        return {"jobs": self.jobs, "undecided": self.undecided, "phases": phases, "file_errors": self.file_errors}

"""Which tests of the clusters one worker runs: those of a file with a room of its own, which each worker would make.

The groups of pytest-xdist are not used: marks that a conftest.py adds come too late, and with pytest 9.2 none counts.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling


class FilesWithRooms(LoadScopeScheduling):  # type: ignore[misc] # it has no types
    """Gives the tests of a file with a room of its own to one worker, and all others one by one to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if has_room(Path(self.config.rootpath, file)) else nodeid


@cache
def has_room(path: Path) -> bool:
    """Whether the tests of a file share a fixture that is made once for the file."""
    return 'scope="module"' in path.read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)  # there need be no workers
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Distribute the tests over workers, without a word: without its log the scheduler prints a line for each test."""
    return FilesWithRooms(config, log)

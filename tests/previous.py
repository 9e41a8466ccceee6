"""The programs of the previous release, from the history of the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.documents import SOURCE

#: The previous release, and its commit.  A copy of the sources without history cannot run these tests.
PREVIOUS, _COMMIT = "3.2.0", "481271a9"


def previous_sources(place: Path) -> Path:
    """Put the sources of the previous release into a directory that does not exist yet; skip the test without them."""
    git = ["git", "-C", str(SOURCE)]
    if subprocess.run([*git, "cat-file", "-e", f"{_COMMIT}^{{commit}}"], capture_output=True, check=False).returncode:
        pytest.skip(f"the sources of {PREVIOUS} need the history of the repository (git fetch --unshallow)")
    place.mkdir(parents=True)
    archive = subprocess.run([*git, "archive", _COMMIT], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive, check=True)
    return place

"""Programs of others, from the package index, each list of them in a virtual environment of its own."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from installer import environments
from room import cache, layout

_PYTHON = "/usr/bin/python3"
_COMPLETE = "complete"


def environment(requirements: Path) -> Path:
    """The virtual environment with the programs of a list; it is made once per set of requirements.

    Raises InstallError.
    """
    version = subprocess.run([_PYTHON, "--version"], capture_output=True, text=True, check=True).stdout
    digest = hashlib.sha256(f"{version} {requirements.read_text()}".encode()).hexdigest()[:16]
    place = layout.cache_root() / f"{requirements.stem}-{digest}"
    with cache.lock(requirements.stem):  # made where it stays: its programs name their interpreter
        if not (place / _COMPLETE).exists():
            shutil.rmtree(place, ignore_errors=True)
            environments.make(_PYTHON, place, ["--no-deps", "--requirement", str(requirements)])
            (place / _COMPLETE).touch()
    return place

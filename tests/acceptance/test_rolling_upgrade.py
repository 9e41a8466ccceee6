"""A rolling upgrade of two servers under a storm of submissions: no user sees an error, no running job notices it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from installer.target import SOURCE

from oar.lib.base.version import VERSION
from tests.acceptance.conftest import SETTINGS, own_room
from tests.acceptance.harness import PATIENCE, Cluster

pytestmark = pytest.mark.slow

_OPTIONS = ("--nodes", "2", "--cores", "8", "--servers", "2", "--fast-db")
_NEXT = "3.3.99"
_VERSION_FILE = "oar/lib/base/version.py"


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    settings = [word for line in SETTINGS for word in ("--set", line)]
    with own_room(request, "upgrade", *_OPTIONS, *settings) as cluster:
        yield cluster


@pytest.fixture
def next_release(tmp_path: Path) -> Path:
    """Sources of the next fix release."""
    for name in ("setup", "oar", "docs", "etc"):
        shutil.copytree(SOURCE / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copyfile(SOURCE / name, tmp_path / name)
    text = (tmp_path / _VERSION_FILE).read_text()
    (tmp_path / _VERSION_FILE).write_text(text.replace(f'VERSION = "{VERSION}"', f'VERSION = "{_NEXT}"'))
    return tmp_path


def test_users_and_jobs_do_not_notice_a_rolling_upgrade(pair: Cluster, next_release: Path) -> None:
    words = [str(next_release / "setup/cluster"), "--room", pair.room, "upgrade", "--clients", "2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.stderr.write(f"\n{done.stdout}")
    assert done.stdout.count(" took over after ") == 2
    assert len(re.findall(rf"(?:active|standby), OAR {re.escape(_NEXT)}", done.stdout)) == 2

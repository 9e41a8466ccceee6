"""Disks that are nearly full are told, each once."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from oar.lib.base.disks import nearly_full


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(("free", "told"), [(4, 1), (5, 0)])
def test_a_disk_with_little_left_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, told: int
) -> None:
    (tmp_path / "log").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 100 - free, free))
    found = nearly_full([str(tmp_path), str(tmp_path / "log"), str(tmp_path / "gone")])
    assert [(each.path, each.free) for each in found] == [(str(tmp_path), free)] * told

"""The cache of what takes long to make: made once, however many want it at a time."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
from room import cache, product

pytestmark = pytest.mark.slow


def _want(ready: multiprocessing.synchronize.Barrier, made: str) -> None:
    def make(place: Path) -> None:
        place.mkdir()
        with Path(made).open("a") as file:
            file.write("made\n")
        (place / "whole").touch()

    ready.wait()
    assert (cache.kept("thing", make) / "whole").exists()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nothing in the cache of this computer."""
    monkeypatch.setenv("OAR_ROOM_CACHE", str(tmp_path / "cache"))


def test_what_several_want_at_a_time_is_made_once_and_seen_when_it_is_whole(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(8)
    wanting = [context.Process(target=_want, args=(ready, str(tmp_path / "made"))) for _ in range(8)]
    for process in wanting:
        process.start()
    for process in wanting:
        process.join()
    assert [process.exitcode for process in wanting] == [0] * 8
    assert (tmp_path / "made").read_text() == "made\n"


def test_what_could_not_be_made_is_not_kept_and_made_anew() -> None:
    def fail(place: Path) -> None:
        place.mkdir()
        (place / "half").touch()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        cache.kept("thing", fail)
    assert list(cache.kept("thing", Path.mkdir).iterdir()) == []


def test_old_installations_are_forgotten_and_nothing_else(tmp_path: Path) -> None:
    installed = [tmp_path / f"oar-{number:016x}" for number in range(8)]
    others = [tmp_path / "oar-2.5-84d50d5965d2", tmp_path / "oar-2.5-server"]
    for age, path in enumerate([*others, *installed]):
        path.mkdir()
        os.utime(path, (age, age))
    product._forget_old(tmp_path, installed[-1])
    assert [path for path in installed if path.exists()] == installed[2:]
    assert all(path.exists() for path in others)

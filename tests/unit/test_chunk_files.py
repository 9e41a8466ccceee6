"""Days of the Gantt diagram are kept as files, as many as there is room for."""

import logging
import os
from pathlib import Path

import pytest

from oar.api.response_cache import ChunkFiles


def test_what_is_written_is_read(tmp_path: Path) -> None:
    ChunkFiles(tmp_path / "gantt", 100).write("one", b"1234")
    files = ChunkFiles(tmp_path / "gantt", 100)
    assert (files.read("one"), files.read("two")) == (b"1234", None)
    assert [path.name for path in (tmp_path / "gantt").iterdir()] == ["one.gz"]


def test_the_oldest_go_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    files = ChunkFiles(tmp_path, 10)
    for age, name in enumerate(("new", "old", "oldest")):
        files.write(name, b"123")
        os.utime(tmp_path / f"{name}.gz", (1000 - age, 1000 - age))
    files.write("last", b"1234567")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.gz", "new.gz"]


def test_without_a_directory_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CACHE_DIRECTORY", raising=False)
    files = ChunkFiles.of_service(100)
    files.write("one", b"1234")
    assert files.read("one") is None


def test_what_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        ChunkFiles(path / "gantt", 100).write("one", b"1234")
    assert "a day of the Gantt diagram is not kept" in caplog.text

"""Changes of oar.conf that a running process notices: oar/lib/runtime.py."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from oar.lib.config.files import parse
from oar.lib.runtime import Runtime, file_version

NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    """Let this process open files with the rights of an ordinary account."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that every account can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def runtime_of(file: Path) -> Runtime:
    return Runtime(parse("").config, cast(Any, None), str(file), version=file_version(str(file)))


def test_a_file_whose_owner_was_corrected_is_read(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = directory / "oar.conf"
    file.write_text("")
    runtime = runtime_of(file)
    file.write_text("LOG_LEVEL=3\n")
    file.chmod(0o600)
    with as_nobody():
        assert runtime.changed_config() is None
        assert runtime.changed_config() is None
    assert [record.message for record in caplog.records] == [
        f"cannot read the configuration file {file}: Permission denied: the old values stay"
    ]
    os.chown(file, NOBODY, NOBODY)
    with as_nobody():
        config = runtime.changed_config()
        assert config is not None
        assert config.log_level == 3
        assert runtime.changed_config() is None


def test_a_file_that_a_directory_hid_is_read(directory: Path) -> None:
    inner = directory / "oar"
    inner.mkdir()
    file = inner / "oar.conf"
    file.write_text("")
    runtime = runtime_of(file)
    file.write_text("LOG_LEVEL=3\n")
    inner.chmod(0o700)
    with as_nobody():
        assert runtime.changed_config() is None
    inner.chmod(0o755)
    with as_nobody():
        assert runtime.changed_config() is not None


def test_a_change_of_the_mode_alone_is_a_new_version(directory: Path) -> None:
    file = directory / "oar.conf"
    file.write_text("")
    before = file_version(str(file))
    file.chmod(0o600)
    assert file_version(str(file)) != before

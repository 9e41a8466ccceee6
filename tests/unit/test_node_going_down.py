"""How a node knows that it ends its processes: oar/tools/node_kernel.py."""

import struct
from pathlib import Path

import node_kernel
import pytest

#: A boot, a login of alice, and the runlevel, as an init of System V notes them.
BOOT, LOGIN, RUNLEVEL = 2, 7, 1


def record(kind: int, process: int) -> bytes:
    return struct.pack("=hxxi", kind, process).ljust(384, b"\0")


@pytest.mark.parametrize(
    ("first", "level", "goes_down"),
    [
        ("systemd-shutdow\n", None, True),
        ("systemd\n", None, False),
        ("systemd\n", "5", False),
        ("init\n", "2", False),
        ("init\n", "0", True),
        ("init\n", "6", True),
        (None, None, False),
    ],
)
def test_a_node_goes_down_when_its_init_says_so(
    tmp_path: Path, first: str | None, level: str | None, goes_down: bool
) -> None:
    if first is not None:
        (tmp_path / "comm").write_text(first)
    if level is not None:
        (tmp_path / "utmp").write_bytes(record(BOOT, 0) + record(LOGIN, 1234) + record(RUNLEVEL, ord(level)))
    assert node_kernel.is_going_down(str(tmp_path / "comm"), str(tmp_path / "utmp")) is goes_down


@pytest.mark.parametrize("log", [b"", b"\0" * 100, b"\xff" * 800], ids=["empty", "cut", "garbage"])
def test_a_log_of_logins_that_nobody_wrote_so_tells_nothing(log: bytes) -> None:
    assert node_kernel.runlevel(log) == ""

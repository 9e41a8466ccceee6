"""What tests with processes ask of the machine on which they run."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Return the first true value of a condition; fail if there is none in time."""
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, "the condition did not become true"
        time.sleep(0.005)
    return value


def is_alive(pid: int) -> bool:
    """Whether a process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ports of this machine that nobody has, each another one."""
    with ExitStack() as all_of_them:
        servers = [all_of_them.enter_context(socket.create_server((host, 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]

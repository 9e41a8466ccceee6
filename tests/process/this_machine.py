"""What tests with processes ask of the machine on which they run."""

import random
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Return the first true value of a condition; fail if there is none in time."""
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, "the condition did not become true"
        time.sleep(0.005)
    return value


def text_in(path: Path) -> str:
    """Return what stands in a file once its line is whole: who sees a file may see it before anything is written."""
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return path.read_text()


def is_alive(pid: int) -> bool:
    """Whether a process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Ports:
    """Ports of this machine that nobody has and that the kernel gives nobody.

    A port that is free now may be that of somebody's connection in the next moment, if it is one that the kernel
    chooses for connections; so it is another one, at random.  Other workers and other suites see that it is taken.
    """

    def __init__(self) -> None:
        chosen_by_kernel = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        first, last = map(int, chosen_by_kernel)
        self._possible = [port for port in range(10_000, 65_000) if not first <= port <= last]
        self._marks: deque[socket.socket] = deque(maxlen=100)  #: of ports that tests may still use

    def take(self, host: str) -> int:
        """Return another port."""
        while True:
            port = random.SystemRandom().choice(self._possible)
            mark = socket.socket(socket.AF_UNIX)
            try:
                mark.bind(f"\0oar-test-port-{port}")
                socket.create_server((host, port)).close()
            except OSError:
                mark.close()
                continue
            if len(self._marks) == self._marks.maxlen:
                self._marks.popleft().close()
            self._marks.append(mark)
            return port

    def close(self) -> None:
        """Give all of them back."""
        for mark in self._marks:
            mark.close()


_ports = Ports()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ports of this machine that nobody has, each another one."""
    return [_ports.take(host) for _ in range(count)]

"""Users of a test cluster who run commands, and the cost: shared by the measuring programs of `bench/cluster.py`."""

import os
import pwd
import random
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

#: Timeout in seconds of everything except the measured commands.
LONGEST = 300.0


class Person:
    """A user on the server host of the test cluster; root runs commands as this user."""

    def __init__(self, name: str, answering: Sequence[bytes]) -> None:
        """``answering``: texts in the command lines of the processes that answer the commands."""
        self.account = pwd.getpwnam(name)
        self._answering = answering

    @property
    def home(self) -> Path:
        """The home directory, shared by all machines."""
        return Path(self.account.pw_dir)

    def run(self, *argv: str) -> str:
        """Run a command; return its output."""
        done = subprocess.run(argv, **self.options(), stdout=subprocess.PIPE, text=True, check=True, timeout=LONGEST)
        printed: str = done.stdout
        return printed

    def _print(self, words: Sequence[str]) -> None:
        """Run a command and read its output like ``cat``.

        Decoding 15 MB would take a tenth of the measured time, and a timeout another tenth, because subprocess then
        reads 32 KiB at a time and checks the clock between reads.  The caller has its own timeout.
        """
        subprocess.run(words, **self.options(), stdout=subprocess.PIPE, check=True)

    def typed(self, words: Sequence[str], times: int) -> tuple[float, float]:
        """Run a command repeatedly; return the median time, and the CPU seconds including the answering processes."""
        self._print(words)
        taken, before = [], children_cpu() + cpu_of(self._answering)
        for _ in range(times):
            begun = time.monotonic()
            self._print(words)
            taken.append(time.monotonic() - begun)
        return statistics.median(taken), (children_cpu() + cpu_of(self._answering) - before) / times

    def rate(self, words: Sequence[str], times: int, at_once: int) -> float:
        """Return the number of commands per second when several run at once."""
        begun = time.monotonic()
        with ThreadPoolExecutor(at_once) as shells:
            list(shells.map(lambda _: self.run(*words), range(times)))
        return times / (time.monotonic() - begun)

    def from_return_key(self, submit: Callable[[str], Callable[[], float]]) -> tuple[float, float]:
        """Run one job that writes two dates; return the milliseconds to its first and from its last instruction.

        ``submit`` takes the command and returns a function that waits for the end and returns its time.  The submission
        happens after a random pause, because there are programs that look for work once a second.
        """
        stamp = self.home / "bench-stamp"
        stamp.unlink(missing_ok=True)
        time.sleep(random.random())
        pressed = time.time()
        ended = submit(f"date +%s.%N >>{stamp}; date +%s.%N >>{stamp}")()
        first, last = (float(line) for line in stamp.read_text().split())
        stamp.unlink()
        return 1000 * (first - pressed), 1000 * (ended - last)

    def options(self) -> dict[str, Any]:
        """Options of subprocess that run a process as this user."""
        account = self.account
        return {
            "user": account.pw_uid,
            "group": account.pw_gid,
            "extra_groups": os.getgrouplist(account.pw_name, account.pw_gid),
            "cwd": account.pw_dir,
            "env": {"PATH": os.environ["PATH"], "HOME": account.pw_dir, "USER": account.pw_name, "TERM": "dumb"},
        }


def submission(
    person: Person, listing: Sequence[str], words: Sequence[str], times: int = 40, at_once: int = 4
) -> dict[str, float]:
    """Run a list without jobs and a submission without work for the scheduler, alternately and several at once."""
    listed, _ = person.typed(listing, times)
    elapsed, cpu = person.typed(words, times)
    return {
        "list_ms": 1000 * listed,
        "submit_ms": 1000 * elapsed,
        "submit_cpu_ms": 1000 * cpu,
        "submitted_per_s": person.rate(words, times * at_once, at_once),
    }


def latency(person: Person, submit: Callable[[str], Callable[[], float]], times: int) -> dict[str, float]:
    """Run jobs one after another with ``Person.from_return_key``."""
    starts, ends = zip(*(person.from_return_key(submit) for _ in range(times)), strict=True)
    return {
        "jobs": times,
        "start_median_ms": statistics.median(starts),
        "start_worst_ms": max(starts),
        "end_median_ms": statistics.median(ends),
        "end_worst_ms": max(ends),
    }


def calibration(times: int = 2_000) -> dict[str, float]:
    """Return the current time of a fork and an exec, so that results of different days can be compared.

    Their number is so large that the start of this program, which counts as load of other processes, is negligible.
    """
    taken, before = [], children_cpu()
    for _ in range(times):
        begun = time.monotonic()
        subprocess.run(["/bin/true"], check=True)
        taken.append(time.monotonic() - begun)
    return {
        "fork_exec_ms": 1000 * statistics.median(taken),
        "fork_exec_cpu_ms": 1000 * (children_cpu() - before) / times,
    }


def cpu_of(words: Sequence[bytes]) -> float:
    """Return the CPU seconds of the running processes whose command line contains one of these texts."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes()
            if any(word in line for word in words):
                ticks += sum(map(int, (path / "stat").read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def children_cpu() -> float:
    """Return the CPU seconds of the ended children of this process."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

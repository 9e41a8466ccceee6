"""People of a room who type commands, and what it costs: shared by what `bench/cluster.py` runs inside of rooms."""

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

#: The longest that may be waited for anything, but for what is typed to be measured.
LONGEST = 300.0


class Person:
    """A user of the room at the server host, to whom commands are given as root."""

    def __init__(self, name: str, answering: Sequence[bytes]) -> None:
        """``answering`` are words of the command lines of the processes that answer the commands."""
        self.account = pwd.getpwnam(name)
        self._answering = answering

    @property
    def home(self) -> Path:
        """The home directory, which all machines share."""
        return Path(self.account.pw_dir)

    def run(self, *argv: str) -> str:
        """Run a command; what it printed."""
        done = subprocess.run(argv, **self.options(), stdout=subprocess.PIPE, text=True, check=True, timeout=LONGEST)
        printed: str = done.stdout
        return printed

    def _print(self, words: Sequence[str]) -> None:
        """Run a command, and read what it prints as ``cat`` would.

        To make a text of 15 MB would take a tenth of the time, and a timeout another one: subprocess would read 32 KiB
        at a time, each between two looks at the clock.  Whoever runs this has a timeout of its own.
        """
        subprocess.run(words, **self.options(), stdout=subprocess.PIPE, check=True)

    def typed(self, words: Sequence[str], times: int) -> tuple[float, float]:
        """Run a command again and again; median of its seconds, and CPU seconds of each with what answers it."""
        self._print(words)
        taken, before = [], children_cpu() + cpu_of(self._answering)
        for _ in range(times):
            begun = time.monotonic()
            self._print(words)
            taken.append(time.monotonic() - begun)
        return statistics.median(taken), (children_cpu() + cpu_of(self._answering) - before) / times

    def rate(self, words: Sequence[str], times: int, at_once: int) -> float:
        """How many of a command are done in a second if some are typed at once."""
        begun = time.monotonic()
        with ThreadPoolExecutor(at_once) as shells:
            list(shells.map(lambda _: self.run(*words), range(times)))
        return times / (time.monotonic() - begun)

    def from_return_key(self, submit: Callable[[str], Callable[[], float]]) -> tuple[float, float]:
        """Run one job that writes two dates; milliseconds to its first instruction, and from its last to its end.

        ``submit`` is given the command, and returns what waits for the end and tells when that was seen.  The return
        key is pressed at any moment, not always at the same one after the end of the job before: there are programs
        that look for work once in a second.
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
        """Options of subprocess that make a process one of this user."""
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
    """Type a list of no job, then a submission that makes the scheduler no work, in turn and several at once."""
    listed, _ = person.typed(listing, times)
    elapsed, cpu = person.typed(words, times)
    return {
        "list_ms": 1000 * listed,
        "submit_ms": 1000 * elapsed,
        "submit_cpu_ms": 1000 * cpu,
        "submitted_per_s": person.rate(words, times * at_once, at_once),
    }


def latency(person: Person, submit: Callable[[str], Callable[[], float]], times: int) -> dict[str, float]:
    """Run jobs one after the other, as ``Person.from_return_key`` runs one."""
    starts, ends = zip(*(person.from_return_key(submit) for _ in range(times)), strict=True)
    return {
        "jobs": times,
        "start_median_ms": statistics.median(starts),
        "start_worst_ms": max(starts),
        "end_median_ms": statistics.median(ends),
        "end_worst_ms": max(ends),
    }


def calibration(times: int = 2_000) -> dict[str, float]:
    """What this machine takes for a fork and an exec just now, so that days can be compared.

    So many of them that the start of this program, which counts as others' use of the computer, is little beside them.
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
    """CPU seconds of the processes with one of these words; those that have just ended are not seen any more."""
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
    """CPU seconds of the processes that were started here, and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

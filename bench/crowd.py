"""Many users with separate accounts who repeat a command: shared by measurements in test clusters.

Each user is a process that starts the command like a shell and waits for it; at its end it writes its measurements to a
pipe.
"""

import json
import os
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

#: Seconds between two commands of a user, and duration of the load.
PERIOD, SECONDS = 2.0, 20.0
_FIRST_UID = 20_000
_PASSWD = Path("/etc/passwd")


def add_accounts(count: int) -> list[int]:
    """Create the missing accounts on this machine; return their user ids."""
    uids = list(range(_FIRST_UID, _FIRST_UID + count))
    known = _PASSWD.read_text()
    lines = [f"person-{uid}:x:{uid}:{uid}::/tmp:/bin/sh\n" for uid in uids if f"\nperson-{uid}:" not in known]
    with _PASSWD.open("a") as passwd:
        passwd.writelines(lines)
    return uids


class Crowd:
    """Users who repeat a command from the creation of this object on."""

    def __init__(self, uids: Sequence[int], words: Sequence[str]) -> None:
        self._results: list[int] = []
        begin = time.monotonic() + 1.0
        for uid in uids:
            reader, writer = os.pipe()
            if not os.fork():
                os.close(reader)
                _be_person(uid, words, begin, writer)
            os.close(writer)
            self._results.append(reader)

    def figures(self) -> dict[str, float]:
        """Wait until all have finished; return the number of commands, failures, and milliseconds per command."""
        taken: list[float] = []
        failed = 0
        for result in self._results:
            with open(result, encoding="utf-8") as pipe:
                person = json.load(pipe)
            taken += person["seconds"]
            failed += person["failed"]
            os.wait()
        taken.sort()
        return {
            "commands": len(taken),
            "failed": failed,
            "per_s": len(taken) / SECONDS,
            "median_ms": 1000 * statistics.median(taken),
            "p95_ms": 1000 * taken[int(0.95 * len(taken))],
            "worst_ms": 1000 * taken[-1],
        }


def _be_person(uid: int, words: Sequence[str], begin: float, writer: int) -> None:
    """Run the command once per period until the end of the load; never returns."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.chdir("/tmp")
    null = os.open(os.devnull, os.O_RDWR)
    streams = [(os.POSIX_SPAWN_DUP2, null, stream) for stream in (0, 1, 2)]
    environment = {"PATH": os.environ["PATH"], "HOME": "/tmp", "TERM": "dumb"}
    seconds, failed = [], 0
    due = begin + random.random() * PERIOD
    while due < begin + SECONDS:
        time.sleep(max(0.0, due - time.monotonic()))
        pressed = time.monotonic()
        pid = os.posix_spawn(words[0], list(words), environment, file_actions=streams)
        failed += os.waitpid(pid, 0)[1] != 0
        seconds.append(time.monotonic() - pressed)
        due = max(due + PERIOD, time.monotonic())
    os.write(writer, json.dumps({"seconds": seconds, "failed": failed}).encode())
    os._exit(0)

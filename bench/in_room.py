"""Measures a running installation from its server host; ``bench/cluster.py`` runs this in a test cluster, as root.

Prints one JSON object per measurement.  Times are elapsed milliseconds of the machine's clock unless stated otherwise.
"""

import json
import os
import pty
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from bench.crowd import Crowd, add_accounts
from bench.people import LONGEST, Person, calibration, children_cpu, latency, submission
from oar.lib.db.database import Database
from oar.lib.runtime import open_runtime

USER = "alice"
#: Numbers of simultaneous users.
CROWDS = (40, 100, 200)
#: A submission without work for the scheduler, and the variable that selects the way of a command.
_HELD = ["oarsub", "--hold", "-l", "resource_id=1,walltime=0:10", "true"]
#: Reservations that are placed one after another.
_RESERVING = ["qrsub", "-a", "+1h", "-d", "60", "-earliest", "-l", "resource_id=1"]
_WAYS = {"server": ["/usr/bin/env", "-u", "OAR_BY_SUDO"], "sudo": ["/usr/bin/env", "OAR_BY_SUDO=yes"]}
#: File with the process id of the server.
_SERVER = Path("/run/oar/oar-server.pid")


def main() -> None:
    """Run the measurements named on the command line."""
    runtime = open_runtime("bench")
    bench = Bench(runtime.database)
    known: dict[str, Callable[[], dict[str, float]]] = {
        "latency": bench.latency,
        "commands": bench.commands,
        "submission": bench.submission,
        "interactive": bench.interactive,
        "one_by_one": bench.one_by_one,
        "array": bench.array,
        "loop": bench.loop,
        "big_array": bench.big_array,
        "storm": bench.storm,
        "calibration": calibration,
        "memory": bench.memory,
        "suspend": bench.suspend,
        **{f"crowd_{count}": partial(bench.crowd, count) for count in CROWDS},
        "reservation_starts": bench.reservation_starts,
        "refill": bench.refill,
    }
    for name in sys.argv[1:]:
        print(json.dumps({"name": name, **known[name]()}), flush=True)


class Bench:
    """The measurements, with one database connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._user = Person(USER, [b"oar-commands"])

    def latency(self, times: int = 30) -> dict[str, float]:
        """Measure an idle cluster: from the return key to the first instruction, from the last to Terminated."""

        def submit(command: str) -> Callable[[], float]:
            jobs = self._submit("-l", "resource_id=1,walltime=0:10", command)
            return lambda: self._wait_for_end(jobs)

        return latency(self._user, submit, times)

    def submission(self) -> dict[str, float]:
        """List jobs and submit held jobs through the command service."""
        server = _WAYS["server"]
        figures = submission(self._user, [*server, "oarstat"], [*server, *_HELD])
        self._user.run("oardel", "-u")
        return figures

    def commands(self, times: int = 40, at_once: int = 4) -> dict[str, float]:
        """Run commands one after another and several at once, through the command service and through sudo.

        CPU includes all processes involved: the user's and those of the command service.
        """
        figures = {}
        subprocess.run(["oaruserset", "-a", USER, "arusers"], check=False, stdout=subprocess.DEVNULL)
        for way, through in _WAYS.items():
            for name, words in (("oarstat", ["oarstat"]), ("oarsub", _HELD), ("qrsub", _RESERVING)):
                elapsed, cpu = self._user.typed([*through, *words], times)
                figures[f"{name}_by_{way}_ms"] = 1000 * elapsed
                figures[f"{name}_by_{way}_cpu_ms"] = 1000 * cpu
            figures[f"submitted_by_{way}_per_s"] = self._user.rate([*through, *_HELD], times * at_once, at_once)
        self._user.run("oardel", "-u")
        self._user.run("qrdel", "-u", USER)
        return figures

    def crowd(self, count: int, jobs: int = 8) -> dict[str, float]:
        """Let users with separate accounts list the jobs every two seconds; start jobs meanwhile."""
        subprocess.run(["/usr/bin/oarstat"], check=True, stdout=subprocess.DEVNULL, user=USER)
        crowd = Crowd(add_accounts(count), ["/usr/bin/oarstat"])
        starts = self.latency(jobs)
        figures = crowd.figures()
        return {**figures, "start_median_ms": starts["start_median_ms"], "start_worst_ms": starts["start_worst_ms"]}

    def interactive(self, times: int = 30) -> dict[str, float]:
        """Run oarsub -I at a terminal of an idle cluster: from the return key to the prompt on the node."""
        waits = []
        for _ in range(times):
            end, slave = pty.openpty()
            pressed = time.time()
            with subprocess.Popen(
                ["oarsub", "-I", "-l", "resource_id=1,walltime=0:10"],
                **self._user.options(),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            ) as typed:
                os.close(slave)
                shown = _read_until(end, rb"OAR_JOB_ID=(\d+)[^$]*\$ ")
                waits.append(1000 * (time.time() - pressed))
                os.write(end, b"exit\r")
                _read_until(end, rb"Disconnected")
                typed.wait(LONGEST)
            os.close(end)
            self._wait_for_end([int(shown[1])])
        return {"jobs": times, "prompt_median_ms": statistics.median(waits), "prompt_worst_ms": max(waits)}

    def one_by_one(self, count: int = 500) -> dict[str, float]:
        """Submit held jobs with one command each and release them together; measure from there to the last end."""
        begun = time.time()
        cpu = children_cpu()
        jobs = [self._submit("--hold", "-l", "resource_id=1,walltime=0:10", "true")[0] for _ in range(count)]
        submitted = time.time() - begun
        cpu = children_cpu() - cpu
        begun = time.time()
        self._user.run("oarresume", *map(str, jobs))
        seconds = self._wait_for_end(jobs) - begun
        return {
            "jobs": count,
            "submission_cpu_ms_each": 1000 * cpu / count,
            "submitted_per_s": count / submitted,
            "jobs_per_s": count / seconds,
        }

    def array(self, count: int = 500) -> dict[str, float]:
        """Submit one array; measure from the return key to the last end."""
        begun = time.time()
        jobs = self._submit("--array", str(count), "-l", "resource_id=1,walltime=0:10", "true")
        seconds = self._wait_for_end(jobs) - begun
        return {"jobs": count, "jobs_per_s": count / seconds}

    def loop(self, count: int = 200) -> dict[str, float]:
        """Submit jobs one after another in a shell loop; measure from the first submission to the last end."""
        begun = time.time()
        words = "oarsub -l resource_id=1,walltime=0:10 true"
        jobs = _ids(self._user.run("sh", "-c", f"for i in $(seq {count}); do {words}; done"))
        seconds = self._wait_for_end(jobs) - begun
        return {"jobs": count, "jobs_per_s": count / seconds}

    def big_array(self, count: int = 10_000, times: int = 5) -> dict[str, float]:
        """Submit a large held array; measure its acceptance and lists of all its jobs."""
        begun = time.time()
        jobs = self._submit("--hold", "--array", str(count), "-l", "resource_id=1,walltime=0:10", "true")
        accepted = time.time() - begun
        text, _ = self._user.typed(["oarstat"], times)
        machine, _ = self._user.typed(["oarstat", "-J"], times)
        self._user.run("oardel", "--array", str(jobs[0]))
        self._wait_for_end(jobs)
        return {
            "jobs": count,
            "accepted_ms": 1000 * accepted,
            "list_text_ms": 1000 * text,
            "list_json_ms": 1000 * machine,
            "json_to_text": machine / text,
        }

    def storm(self, seconds: float = 12.0, at_once: int = 4, kills: int = 3) -> dict[str, float]:
        """Submit jobs from several shells while the server is killed repeatedly; count lost jobs.

        A job is lost if oarsub printed its id and it did not terminate as expected.
        """
        over = time.monotonic() + seconds

        def submit(_: int) -> list[int]:
            acknowledged = []
            while time.monotonic() < over:
                words = ["oarsub", "-l", "resource_id=1,walltime=0:10", "true"]
                done = subprocess.run(words, **self._user.options(), capture_output=True, text=True, check=False)
                acknowledged += _ids(done.stdout)
            return acknowledged

        with ThreadPoolExecutor(at_once) as people:
            submitting = [people.submit(submit, number) for number in range(at_once)]
            for _ in range(kills):
                time.sleep(seconds / (kills + 1))
                os.kill(int(_SERVER.read_text()), signal.SIGKILL)
                subprocess.run(["oar-server", "start"], stdout=subprocess.DEVNULL, check=True, timeout=LONGEST)
            jobs = [job for each in submitting for job in each.result()]
        self._wait_for_end(jobs)
        with self._database.snapshot() as tx:
            ended = set(tx.column("SELECT job_id FROM jobs WHERE job_id = ANY(%s) AND state = 'Terminated'", (jobs,)))
        return {"acknowledged": len(jobs), "lost": len(set(jobs) - ended)}

    def refill(self) -> dict[str, float]:
        """End a job on each core within one second; measure when the first and half of the waiting jobs run."""
        with self._database.snapshot() as tx:
            cores = tx.value("SELECT count(*) FROM resources WHERE state = 'Alive' AND type = 'default'")
        end = int(time.time() + 30 + cores / 10)
        array = ["--array", str(cores), "-l", "resource_id=1,walltime=1"]
        jobs = self._submit(*array, f"sleep $(({end} - $(date +%s)))")
        self._await_running(jobs, cores)
        followers = self._submit(*array, "sleep 9h")
        reached = []
        for number in (1, cores // 2, cores):
            self._await_running(followers, number)
            reached.append(time.time() - end)
        self._user.run("oardel", "--array", str(followers[0]))
        self._wait_for_end([*jobs, *followers])
        return dict(zip(("cores", "first_s", "half_s", "all_s"), (cores, *reached), strict=True))

    def _await_running(self, jobs: Sequence[int], number: int) -> None:
        question = "SELECT count(*) FROM jobs WHERE state = 'Running' AND job_id BETWEEN %s AND %s"

        def are_there() -> bool:
            with self._database.snapshot() as tx:
                return int(tx.value(question, (min(jobs), max(jobs)))) >= number

        self._wait_for(are_there, 0.05)

    def memory(self) -> dict[str, float]:
        """Connect all nodes with a job on all of them, then sum up the memory of the server's processes.

        PSS counts a shared page once, RSS once per process.
        """
        self._wait_for_end(self._submit("-l", "nodes=ALL,walltime=0:10", "true"))
        total, rss, count = 0, 0, 0
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes()
                rollup = (path / "smaps_rollup").read_text()
            except OSError:
                continue
            if b"oar" in words and (b"-m\0oar." in words or b"almighty" in words):
                figures = {
                    line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines() if line.endswith("kB")
                }
                total, rss, count = total + figures["Pss"], rss + figures["Rss"], count + 1
        return {"processes": count, "pss_mib": total / 1024, "rss_mib": rss / 1024}

    def suspend(self, times: int = 10, nodes: int = 4, processes: int = 300) -> dict[str, float]:
        """Suspend and resume a job with many processes; measure from the request to the new state of the job."""
        each = f"for n in $(seq {processes // nodes}); do sleep 1000 & done; touch bench-$(hostname); wait"
        script = f"for node in $(uniq $OAR_NODEFILE); do oarsh $node '{each}' & done; wait"
        home = self._user.home
        for stamp in home.glob("bench-*"):
            stamp.unlink()
        job = self._submit("-l", f"nodes={nodes},walltime=0:10", script)[0]
        self._wait_for(lambda: len(list(home.glob("bench-*"))) == nodes)
        figures: dict[str, list[float]] = {"Suspended": [], "Running": []}
        for _ in range(times):
            for state, command in (("Suspended", ["oarhold", "-r"]), ("Running", ["oarresume"])):
                figures[state].append(self._steer(job, command, state))
        self._user.run("oardel", str(job))
        self._wait_for_end([job])
        return {
            "processes": processes,
            "suspend_median_ms": statistics.median(figures["Suspended"]),
            "suspend_worst_ms": max(figures["Suspended"]),
            "resume_median_ms": statistics.median(figures["Running"]),
            "resume_worst_ms": max(figures["Running"]),
        }

    def reservation_starts(self, times: int = 6, waiting: int = 5000) -> dict[str, float]:
        """Reserve all resources for a start in some seconds, on an idle server and with waiting jobs.

        Measures from the start time to the visible state change, and to the first instruction of a job inside.
        """
        subprocess.run(["oaruserset", "-a", USER, "arusers"], check=False, stdout=subprocess.DEVNULL)
        figures: dict[str, float] = {}
        for name in ("idle", "loaded"):
            if name == "loaded":
                self._user.run(
                    "oarsub", "-t", "besteffort", "--array", str(waiting), "-l", "nodes=2,walltime=9", "sleep 9h"
                )
            lags = [self._start_reservation() for _ in range(times)]
            for what, column in zip(("state", "job"), zip(*lags, strict=True), strict=True):
                figures[f"{name}_{what}_median_ms"] = statistics.median(column)
                figures[f"{name}_{what}_worst_ms"] = max(column)
        self._user.run("oardel", "-u")
        return figures

    def _start_reservation(self) -> tuple[float, float]:
        """Reserve and submit a job inside; return the milliseconds from the start time to the start of each."""
        stamp = self._user.home / "bench-stamp"
        stamp.unlink(missing_ok=True)
        number = self._user.run("qrsub", "-terse", "-a", "+10", "-d", "300", "-l", "nodes=1").strip()
        job = self._submit("--ar", number, "-l", "resource_id=1,walltime=0:2", f"date +%s.%N >{stamp}")[0]
        started: list[float] = []

        def has_started() -> bool:
            question = "SELECT start_time FROM reservations WHERE ar_id = %s AND state IN ('r', 'E') AND ended = 0"
            with self._database.snapshot() as tx:
                start = tx.value(question, (number,))
            started.extend([] if start is None else [start, time.time()])
            return bool(started)

        self._wait_for(has_started)
        self._wait_for_end([job])
        begun = float(stamp.read_text())
        stamp.unlink()
        self._user.run("qrdel", number)
        return 1000 * (started[1] - started[0]), 1000 * (begun - started[0])

    def _steer(self, job: int, command: Sequence[str], state: str) -> float:
        """Request the suspension or resumption of a job as root; return the milliseconds until the state changes."""
        with subprocess.Popen([*command, str(job)], stdout=subprocess.PIPE, text=True) as asked:
            assert asked.stdout is not None
            asked.stdout.readline()
            accepted = time.time()
            self._wait_for(lambda: self._state(job) == state)
            return 1000 * (time.time() - accepted)

    def _state(self, job: int) -> str:
        with self._database.snapshot() as tx:
            return str(tx.value("SELECT state FROM jobs WHERE job_id = %s", (job,)))

    @staticmethod
    def _wait_for(condition: Callable[[], bool], pause: float = 0.002) -> None:
        deadline = time.monotonic() + LONGEST
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(pause)

    def _submit(self, *arguments: str) -> list[int]:
        return _ids(self._user.run("oarsub", *arguments))

    def _wait_for_end(self, jobs: Sequence[int]) -> float:
        """Wait until all jobs have ended; return the time at which that was observed.

        The query costs the measured server nearly nothing: it looks for one unfinished job.
        """
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            with self._database.snapshot() as tx:
                live = tx.value(
                    "SELECT job_id FROM jobs WHERE state <> 'Terminated' AND state <> 'Error'"
                    " AND job_id BETWEEN %s AND %s LIMIT 1",
                    (min(jobs), max(jobs)),
                )
            if live is None:
                return time.time()
            time.sleep(0.002 if len(jobs) == 1 else 0.2)
        raise TimeoutError(f"job {live} has not ended within {LONGEST:.0f} s")


def _ids(printed: str) -> list[int]:
    """Return the job ids that oarsub has printed."""
    return [int(line.partition("=")[2]) for line in printed.splitlines() if line.startswith("OAR_JOB_ID=")]


def _read_until(terminal: int, pattern: bytes) -> re.Match[bytes]:
    """Read the output of a terminal until a text appears."""
    text = b""
    while not (found := re.search(pattern, text, re.DOTALL)):
        text += os.read(terminal, 65536)
    return found


if __name__ == "__main__":
    main()

"""Speed of a whole installation: ``python -m bench.cluster`` starts a test cluster of 10 nodes and measures it.

It runs real PostgreSQL with disk writes, real sshd, real sudo.  ``--nodes 200 memory`` measures the memory of the
server with 200 connected nodes.  ``--cores 100 refill`` ends 1,000 jobs at the same time.
``rows`` prints the table of the stages of a job: medians of several runs, the CPU per job of all machines, and the time
of a fork and an exec, so that results of different days can be compared.
``costs`` prints the CPU of a job by kind of process, for jobs of an array and for single jobs.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import room_cpu
from bench.rows import MEASURED, OTHERS, Samples, missed, table

TOP = Path(__file__).resolve().parent.parent
TOOL = TOP / "setup" / "cluster"
#: The installed environment, at the path that every machine of the test cluster uses.
PYTHON = "/usr/lib/oar/venv/bin/python"
_COMPILED = shutil.ignore_patterns("__pycache__")
#: Seconds for which other processes must have been idle.
_LOOK = 2.0
#: Measurements for the costs of a job.
COSTLY = ("array", "loop")
MEASUREMENTS = (
    "latency",
    "commands",
    "interactive",
    "one_by_one",
    "array",
    "big_array",
    "storm",
    "memory",
    "suspend",
    "reservation_starts",
)


@dataclass(frozen=True)
class Side:
    """A test cluster and the measuring program on its server host."""

    room: str
    program: str = "bench.in_room"

    def measure(self, measurement: str) -> dict[str, float]:
        """Return the figures of one measurement; if jobs run, with the CPU per job of all machines."""
        begun, busy, own = time.monotonic(), room_cpu.busy(), cpu_seconds(self.room)
        figures = json.loads(self.measure_all([measurement])[-1])
        own = cpu_seconds(self.room) - own
        figures[OTHERS] = (room_cpu.busy() - busy - own) / (time.monotonic() - begun)
        name = figures.pop("name")
        for things, thing in (("jobs", "job"), ("commands", "command")):
            if things in figures:
                figures[f"cpu_ms_per_{thing}"] = 1000 * own / figures[things]
        sys.stderr.write(f"{self.room} {name} {figures}\n")
        return dict(figures)

    def measure_all(self, measurements: Sequence[str]) -> list[str]:
        """Run measurements one after another; return one line of JSON for each.

        The measuring program is copied into the log directory of the server host, where the cluster can read it.
        """
        logs = json.loads(tool(self.room, "status"))["logs"]
        shutil.copytree(TOP / "bench", Path(logs, "server", "bench"), dirs_exist_ok=True, ignore=_COMPILED)
        words = shlex.join([PYTHON, "-m", self.program, *measurements])
        printed = subprocess.run(
            [str(TOOL), "--room", self.room, "run", "root", f"cd /var/log && exec {words}"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=3600,
        ).stdout
        return printed.splitlines()


def main() -> None:
    """Start a test cluster, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--cores", type=int, default=2, help="of each node")
    parser.add_argument("--runs", type=int, default=3, help="of each measurement of the rows")
    parser.add_argument("measurements", nargs="*", default=list(MEASUREMENTS))
    add_quiet(parser)
    options = parser.parse_args()
    room = f"bench-{os.getpid()}"
    tool(room, "start", "--while", str(os.getpid()), "--nodes", str(options.nodes), "--cores", str(options.cores))
    try:
        if options.measurements == ["rows"]:
            _print_rows(room, options.runs, Quiet(options.quiet, options.patience))
        elif options.measurements == ["costs"]:
            _print_costs(room, options.runs)
        else:
            for line in Side(room).measure_all(options.measurements):
                _show(json.loads(line))
    finally:
        tool(room, "stop")


class Quiet:
    """Waits for moments in which other processes use little CPU."""

    def __init__(self, cores: float | None, minutes: float) -> None:
        """``cores``: maximum load of other processes; None: no limit.  ``patience``: total waiting time in minutes."""
        self._cores = cores
        self._deadline = time.monotonic() + 60 * minutes

    def measure(self, side: Side, measurement: str) -> dict[str, float]:
        """Measure at an idle moment; repeat a disturbed measurement while waiting time is left."""
        while True:
            self._wait()
            figures = side.measure(measurement)
            if self._cores is None or figures[OTHERS] <= self._cores or time.monotonic() > self._deadline:
                return figures

    def _wait(self) -> None:
        while self._cores is not None and time.monotonic() < self._deadline:
            busy = room_cpu.busy()
            time.sleep(_LOOK)
            if room_cpu.busy() - busy <= self._cores * _LOOK:
                return


def rounds(sides: Mapping[str, Side], measurements: Sequence[str], runs: int, quiet: Quiet) -> dict[str, Samples]:
    """Measure all sides repeatedly and alternately, so that a busy moment does not affect one side only."""
    found: dict[str, dict[tuple[str, str], list[float]]] = {name: defaultdict(list) for name in sides}
    for _ in range(runs):
        for measurement in measurements:
            for name, side in sides.items():
                for what, number in quiet.measure(side, measurement).items():
                    found[name]["" if what == OTHERS else measurement, what].append(number)
    return dict(found)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add the options for machines with other load."""
    parser.add_argument(
        "--quiet", type=float, metavar="CORES", help="measure the rows while others use at most so much"
    )
    parser.add_argument(
        "--patience", type=float, default=30, metavar="MINUTES", help="how long to wait for that in all"
    )


def _print_rows(room: str, runs: int, quiet: Quiet) -> None:
    """Print the table."""
    ours = rounds({"OAR": Side(room)}, MEASURED, runs, quiet)["OAR"]
    print("\n".join(table(ours, {})))
    end(missed(ours))


def end(missed_figures: Sequence[str]) -> None:
    """End the benchmark, with exit code 1 if a limit was missed."""
    sys.exit("\n".join(f"missed: {text}" for text in missed_figures) or 0)


def _print_costs(room: str, runs: int) -> None:
    """Print the CPU of a job by kind of process: medians in descending order."""
    for measurement in COSTLY:
        Side(room).measure_all([measurement])  # connections are made, programs loaded, statements prepared
        costs = [_costs(room, measurement) for _ in range(runs)]
        print(f"CPU ms per job, {measurement}: {median(sum(cost.values()) for cost in costs):.1f}")
        medians = {kind: median(cost.get(kind, 0.0) for cost in costs) for kind in set().union(*costs)}
        for kind, value in sorted(medians.items(), key=lambda item: -item[1]):
            print(f"    {kind:48} {value:9.2f}", flush=True)


def _costs(room: str, measurement: str) -> dict[str, float]:
    """Return the CPU milliseconds per job of a measurement by kind of process."""
    before = room_cpu.used(_machines(room))
    figures = Side(room).measure(measurement)
    after = room_cpu.used(_machines(room))
    return {kind: 1000 * (after.get(kind, 0.0) - before.get(kind, 0.0)) / figures["jobs"] for kind in {*before, *after}}


def cpu_seconds(room: str) -> float:
    """Return the total CPU time of all machines of a test cluster."""
    return sum(room_cpu.used(_machines(room)).values())


def _machines(room: str) -> list[dict[str, Any]]:
    return list(json.loads(tool(room, "status"))["machines"].values())


def _show(figures: dict[str, float | str]) -> None:
    name = figures.pop("name")
    print(f"{name}")
    for what, value in figures.items():
        print(f"    {what:24} {value:12.1f}")
    sys.stdout.flush()


def tool(room: str, *arguments: str) -> str:
    """Run ``setup/cluster``; return its output."""
    done = subprocess.run(
        [str(TOOL), "--room", room, *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    return done.stdout


if __name__ == "__main__":
    main()

"""Speed of a whole installation: ``python -m bench.cluster`` starts a room of 10 nodes and prints what it measures.

Real PostgreSQL with its disk writes on, real sshd, real sudo.  ``--nodes 200 memory`` measures the memory of the server
with as many nodes connected.  ``rows`` prints the table of the way of a job: the medians of several runs, with the CPU
of all machines of the room for each job, and what a fork and an exec took meanwhile, so that days can be compared.
``costs`` prints where the CPU of a job goes: by the kind of the processes, for jobs of an array and for single ones.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from bench import room_cpu

TOP = Path(__file__).resolve().parent.parent
TOOL = TOP / "setup" / "cluster"
#: The installed environment, as every machine of a room sees it.
PYTHON = "/usr/lib/oar/venv/bin/python"
#: What the costs of a job are measured with.
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
#: The rows of the table: what they tell, the measurement, its figures.
ROWS = (
    ("submit one job, ms (CPU ms)", "submission", "oarsub_by_server_ms", "oarsub_by_server_cpu_ms"),
    ("submissions/s, 4 at once", "submission", "submitted_by_server_per_s"),
    ("array of 10,000 accepted, ms", "big_array", "accepted_ms"),
    ("idle: return key to first instruction, ms", "latency", "start_median_ms"),
    ("jobs/s, one array (CPU ms per job)", "array", "jobs_per_s", "cpu_ms_per_job"),
    ("jobs/s submitted one by one (CPU ms per job)", "loop", "jobs_per_s", "cpu_ms_per_job"),
    ("list 10,000 waiting, ms: text, JSON", "big_array", "list_text_ms", "list_json_ms"),
    ("storm of submissions, SIGKILL: acknowledged, lost", "storm", "acknowledged", "lost"),
    ("calibration: fork and exec, ms (CPU ms)", "calibration", "fork_exec_ms", "fork_exec_cpu_ms"),
)


def main() -> None:
    """Start a room, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3, help="of each measurement of the rows")
    parser.add_argument("measurements", nargs="*", default=list(MEASUREMENTS))
    options = parser.parse_args()
    room = f"bench-{os.getpid()}"
    _tool(room, "start", "--while", str(os.getpid()), "--nodes", str(options.nodes), "--cores", "2")
    try:
        if options.measurements == ["rows"]:
            _print_rows(room, options.runs)
        elif options.measurements == ["costs"]:
            _print_costs(room, options.runs)
        else:
            for line in _measured(room, options.measurements):
                _show(json.loads(line))
    finally:
        _tool(room, "stop")


def _print_rows(room: str, runs: int) -> None:
    """Print the table; the measurements take turns, so that a busy moment does not meet one alone."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(runs):
        for measurement in dict.fromkeys(row[1] for row in ROWS):
            before = _cpu_seconds(room)
            figures = json.loads(_measured(room, [measurement])[-1])
            if "jobs" in figures:
                figures["cpu_ms_per_job"] = 1000 * (_cpu_seconds(room) - before) / figures["jobs"]
            for name, value in figures.items():
                found[measurement, name].append(value)
            sys.stderr.write(f"{figures}\n")
    for title, measurement, *names in ROWS:
        print(f"{title:52}", *(f"{median(found[measurement, name]):9.1f}" for name in names), flush=True)


def _print_costs(room: str, runs: int) -> None:
    """Print the CPU of a job by the kind of the processes: medians, the largest first."""
    for measurement in COSTLY:
        _measured(room, [measurement])  # connections are made, programs loaded, statements prepared
        costs = [_costs(room, measurement) for _ in range(runs)]
        print(f"CPU ms per job, {measurement}: {median(sum(cost.values()) for cost in costs):.1f}")
        medians = {kind: median(cost.get(kind, 0.0) for cost in costs) for kind in set().union(*costs)}
        for kind, value in sorted(medians.items(), key=lambda item: -item[1]):
            print(f"    {kind:48} {value:9.2f}", flush=True)


def _costs(room: str, measurement: str) -> dict[str, float]:
    """Return the CPU milliseconds of each job of a measurement, by the kind of the processes."""
    before = room_cpu.used(_machines(room))
    figures = json.loads(_measured(room, [measurement])[-1])
    sys.stderr.write(f"{figures}\n")
    after = room_cpu.used(_machines(room))
    return {kind: 1000 * (after.get(kind, 0.0) - before.get(kind, 0.0)) / figures["jobs"] for kind in {*before, *after}}


def _cpu_seconds(room: str) -> float:
    """Return the CPU that all machines of a room have used."""
    return sum(room_cpu.used(_machines(room)).values())


def _machines(room: str) -> list[dict[str, Any]]:
    return list(json.loads(_tool(room, "status"))["machines"].values())


def _measured(room: str, measurements: list[str]) -> list[str]:
    """Run the measurements on the server host of the room."""
    script = (TOP / "bench" / "in_room.py").read_text()
    printed = subprocess.run(
        [str(TOOL), "--room", room, "run", "root", "/usr/bin/env", "--", PYTHON, "-", *measurements],
        input=script,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=3600,
    ).stdout
    return printed.splitlines()


def _show(figures: dict[str, float | str]) -> None:
    name = figures.pop("name")
    print(f"{name}")
    for what, value in figures.items():
        print(f"    {what:24} {value:12.1f}")
    sys.stdout.flush()


def _tool(room: str, *arguments: str) -> str:
    done = subprocess.run(
        [str(TOOL), "--room", room, *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    return done.stdout


if __name__ == "__main__":
    main()

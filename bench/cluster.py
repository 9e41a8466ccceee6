"""Speed of a whole installation: ``python -m bench.cluster`` starts a room of 10 nodes and prints a table.

Real PostgreSQL with its disk writes on, real sshd, real sudo.  ``--nodes 200 memory`` measures the memory of the server
with as many nodes connected.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
TOOL = TOP / "setup" / "cluster"
#: The installed environment, as every machine of a room sees it.
PYTHON = "/usr/lib/oar/venv/bin/python"
MEASUREMENTS = ("latency", "commands", "interactive", "one_by_one", "array", "big_array", "memory", "suspend")


def main() -> None:
    """Start a room, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("measurements", nargs="*", default=list(MEASUREMENTS))
    options = parser.parse_args()
    room = f"bench-{os.getpid()}"
    _tool(room, "start", "--while", str(os.getpid()), "--nodes", str(options.nodes), "--cores", "2")
    try:
        for line in _measured(room, options.measurements):
            _show(json.loads(line))
    finally:
        _tool(room, "stop")


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

"""Comparison of OAR and Slurm: ``python -m bench.beside_slurm`` measures the stages of a job in test clusters of both.

Debian's Slurm runs in a separate test cluster with the same number of nodes; the measurements alternate.  ``tuned`` is
the fastest configuration of Slurm, without confinement of jobs; ``confined`` adds control groups, which OAR always
uses; ``default`` is Slurm without settings.  ``times`` is the factor by which OAR is better.  Limits are in
``bench/rows.py``; a missed limit sets the exit code.  The machine should be idle (``--quiet 0.3`` waits for that): the
table shows the load of other processes and the time of a fork and an exec.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator

from bench import slurm_room
from bench.cluster import Quiet, Side, add_quiet, end, rounds, tool
from bench.rows import MEASURED, missed, table

OURS = "OAR"
#: Measurements of OAR only.
_OURS_ALONE = "storm"


def main() -> None:
    """Start the test clusters, measure, stop them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--cores", type=int, default=2, help="of each node: so many jobs run there at a time")
    parser.add_argument("--runs", type=int, default=3, help="of each measurement")
    flavours = list(slurm_room.FLAVOURS)
    parser.add_argument("--slurm", action="append", choices=flavours, help="more than once; default: tuned, confined")
    known = [name for name in MEASURED if name != _OURS_ALONE]
    parser.add_argument("measurements", nargs="*", default=known, metavar="MEASUREMENT", help=" ".join(known))
    add_quiet(parser)
    options = parser.parse_args()
    if problem := slurm_room.missing():
        sys.exit(problem)
    with _rooms(options.nodes, options.cores, options.slurm or ["tuned", "confined"]) as sides:
        found = rounds(sides, options.measurements, options.runs, Quiet(options.quiet, options.patience))
    ours = found.pop(OURS)
    print("\n".join(table(ours, found)))
    end(missed(ours, found.get("tuned")))


@contextlib.contextmanager
def _rooms(nodes: int, cores: int, flavours: list[str]) -> Iterator[dict[str, Side]]:
    """A test cluster with OAR, and one for each configuration of Slurm."""
    base = f"bench-{os.getpid()}"
    sides = {OURS: Side(base), **{name: Side(f"{base}-{name}", "bench.in_slurm") for name in flavours}}
    with contextlib.ExitStack() as started:
        for name, side in sides.items():
            if name == OURS:
                size = ("--nodes", str(nodes), "--cores", str(cores))
                tool(side.room, "start", "--while", str(os.getpid()), *size)
            else:
                slurm_room.start(side.room, os.getpid(), name, nodes, cores)
            started.callback(tool, side.room, "stop")
        yield sides


if __name__ == "__main__":
    main()

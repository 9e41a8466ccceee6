"""Cost of a submission: ``python -m bench.submission``.

CPU is the time of oarsub itself, without sudo, run by an ordinary user; elapsed time includes the database.  No server
runs: each job is in the database when the command ends.
"""

import os
import pwd
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.ground import REPOSITORY, SETUP, Ground, ground
from oar.lib.submission import admission_rules

NODES, CORES = 1_000, 32
CLIENTS, EACH = 50, 20
RUNS = 15

_RESOURCES = """
    INSERT INTO resources (network_address, cpuset, state_num)
    SELECT 'node-' || node, core::text, 1 FROM generate_series(1, %s) node, generate_series(0, %s) core
    ORDER BY node, core"""
_PROGRAM = "import sys; sys.path.insert(0, {path!r}); from oar.cli.common.start_up import run; run('oar.cli.oarsub')"


def main() -> None:
    """Print the table."""
    with ground() as stand, _open_to_all(stand):
        _print("", "CPU ms", "elapsed ms")
        _install(stand, 4, 4)
        _print("oarsub true", *_cost(stand, "true"))
        _print("oarsub -k true", *_cost(stand, "-k", "true"))
        _print("oarsub --array 10000 true", *_cost(stand, "--array", "10000", "true", runs=3))
        _print(f"{CLIENTS * EACH} jobs by {CLIENTS} clients at once", "", _crowd(stand))
        with stand.database.begin() as tx:
            tx.execute(_RESOURCES, (NODES, CORES - 1))
        stand.analyze()
        print(f"with {NODES} nodes of {CORES} cores")
        _print("oarsub true", *_cost(stand, "true"))
        _print("oarsub -l nodes=2 true", *_cost(stand, "-l", "nodes=2", "true"))
        _print("oarsub -l nodes=2/resource_id=4 true", *_cost(stand, "-l", "nodes=2/resource_id=4", "true"))
        _print("oarsub -l nodes=2+nodes=1 true", *_cost(stand, "-l", "nodes=2+nodes=1", "true"))


@contextmanager
def _open_to_all(stand: Ground) -> Iterator[None]:
    """Give an ordinary user access to the database and its configuration."""
    for path in (stand.environment["OARCONFFILE"], stand.database.settings.host):
        Path(path).chmod(0o755)
    Path(stand.environment["OARCONFFILE"]).parent.chmod(0o755)
    yield


def _install(stand: Ground, nodes: int, cores: int) -> None:
    with stand.database.begin() as tx:
        tx.execute(_RESOURCES, (nodes, cores - 1))
        if not tx.admission_rules.all():
            for rule in admission_rules.read_rules(str(SETUP / "admission_rules")):
                tx.admission_rules.insert(rule.text, priority=rule.priority, enabled=rule.enabled, author="oar")


def _cost(stand: Ground, *words: str, runs: int = RUNS) -> tuple[float, float]:
    """Return the median CPU and elapsed time in milliseconds."""
    measured = []
    for _ in range(runs + 1):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        _run(stand, *words)
        elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        measured.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, elapsed))
    return median(cpu for cpu, _ in measured[1:]) * 1000, median(elapsed for _, elapsed in measured[1:]) * 1000


def _crowd(stand: Ground) -> float:
    """Return the milliseconds until all clients have submitted all their jobs; check that each job exists once."""
    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda client: _submit_some(stand, client), range(CLIENTS)))
    elapsed = time.perf_counter() - started
    with stand.database.snapshot() as tx:
        names = tx.column("SELECT job_name FROM jobs WHERE project = 'crowd'")
    if sorted(names) != sorted(f"{client}.{number}" for client in range(CLIENTS) for number in range(EACH)):
        sys.exit(f"{len(names)} jobs are there, {len(set(names))} different ones; {CLIENTS * EACH} were submitted")
    return elapsed * 1000


def _submit_some(stand: Ground, client: int) -> None:
    for number in range(EACH):
        _run(stand, "--project", "crowd", "-n", f"{client}.{number}", "true")


def _run(stand: Ground, *words: str) -> None:
    program = _PROGRAM.format(path=str(REPOSITORY))
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, *words],
        env=stand.environment,
        capture_output=True,
        check=False,
        cwd="/",
        user=pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None,
    )
    if done.returncode:
        sys.exit(f"oarsub {' '.join(words)}: {done.stderr.decode()}")


def _print(what: str, *numbers: float | str) -> None:
    cells: Sequence[str] = [number if isinstance(number, str) else f"{number:.0f}" for number in numbers]
    print(f"{what:45}" + "".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()

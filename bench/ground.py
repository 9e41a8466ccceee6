"""What benchmarks stand on: a database of their own with the whole schema, and an oar.conf that names it."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from oar.lib.db import migrations
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from tests.postgres import PostgreSQL, running

REPOSITORY = Path(__file__).parent.parent
#: What a program says that has failed; an answer such as "no such job" is not a failure.
FAILURES = (b"Traceback", b"internal error", b"cannot reach")
SETUP = REPOSITORY / "setup" / "database"


@dataclass(frozen=True, slots=True)
class Ground:
    """A database and the environment of the commands that use it."""

    server: PostgreSQL
    database: Database
    environment: dict[str, str]

    def analyze(self) -> None:
        """Let the planner of the database know what is in the tables, as it would after a while."""
        connection = self.database.connection()
        connection.cursor().execute("VACUUM ANALYZE")
        connection.close()


@dataclass(frozen=True, slots=True)
class Cost:
    """What some runs of a program took, each the median."""

    cpu: float  #: seconds of its own
    elapsed: float


@contextmanager
def ground() -> Iterator[Ground]:
    """Make a database without jobs and resources; it is gone at the end."""
    with running() as server:
        settings = DatabaseSettings(host=server.socket, name="oar", patience=0)
        migrations.Migrator(settings, SETUP, connect_admin=lambda name: server.connect(name, "postgres")).create()
        with tempfile.TemporaryDirectory() as directory:
            conf = Path(directory) / "oar.conf"
            conf.write_text(f'DB_HOSTNAME="{server.socket}"\nMAX_DB_CONNECTION_TIMEOUT="1"\n')
            environment = {"OARCONFFILE": str(conf), "PATH": os.environ["PATH"]}
            database = Database(settings)
            yield Ground(server, database, environment)
            database.close()


def cost(
    ground: Ground, arguments: Sequence[str], runs: int = 15, *, before: Callable[[], object] = lambda: None
) -> Cost:
    """Run ``python -I`` with arguments several times; a failure of the program ends the benchmark.

    ``before`` is called before each run.
    """
    times = []
    for _ in range(runs + 1):
        before()
        times.append(_run(ground, arguments))
    times = times[1:]
    return Cost(median(cpu for cpu, _ in times), median(elapsed for _, elapsed in times))


def command(name: str, *arguments: str) -> list[str]:
    """Return the arguments of Python that run a command as its installed program does."""
    program = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); "
        f"from oar.cli.common.start_up import run; run('oar.cli.{name}')"
    )
    return ["-c", program, *arguments]


def _run(ground: Ground, arguments: Sequence[str]) -> tuple[float, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-I", *arguments],
        check=False,
        env=ground.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if any(word in done.stderr for word in FAILURES):
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.decode()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, elapsed

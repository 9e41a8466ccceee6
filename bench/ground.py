"""Environment of benchmarks: a private database with the complete schema, and an oar.conf for it."""

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
#: Output of a failed program; an answer such as "no such job" is not a failure.
FAILURES = (b"Traceback", b"internal error", b"cannot reach")
SETUP = REPOSITORY / "setup" / "database"


@dataclass(frozen=True, slots=True)
class Ground:
    """A database and the environment of the commands that use it."""

    server: PostgreSQL
    database: Database
    environment: dict[str, str]

    def analyze(self) -> None:
        """Update the statistics of the database's query planner, as autovacuum would do."""
        connection = self.database.connection()
        connection.cursor().execute("VACUUM ANALYZE")
        connection.close()


@dataclass(frozen=True, slots=True)
class Cost:
    """Median times of several runs of a program."""

    cpu: float  #: seconds of the process itself
    elapsed: float


@contextmanager
def ground() -> Iterator[Ground]:
    """Create a database without jobs and resources; remove it at the end."""
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
    """Return the Python arguments that run a command like its installed program."""
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

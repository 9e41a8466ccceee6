"""A load of submissions, launches and ends, and what must hold after a fault: no job is lost and none runs twice."""

from __future__ import annotations

from pathlib import Path

from room import layout, load, services

from tests.acceptance.faults import assert_sound
from tests.acceptance.harness import PATIENCE, Cluster, wait_until


class Load:
    """Clients of alice on a server that submit short jobs until `stop`, or until the end of the `with` block."""

    def __init__(self, cluster: Cluster, *, host: str = layout.SERVER, clients: int = 2) -> None:
        status = cluster.status()
        root = Path(f"/proc/{status['machines'][layout.SERVER]['pid']}/root")
        self._cluster = cluster
        self._load = load.Load(services.room_of(status), root)
        self._load.start(host, clients)

    def acknowledged(self) -> list[int]:
        """Return the ids that oarsub has printed."""
        return self._load.acknowledged()

    def started(self) -> int:
        """Return the number of jobs that have started."""
        return len(self._load.starts())

    def errors(self) -> str:
        """Return what the clients have printed to standard error."""
        return self._load.errors()

    def wait_for_service(self, *, within: float = PATIENCE) -> None:
        """Wait until jobs are accepted and started again."""
        accepted, started = len(self.acknowledged()), self.started()
        wait_until(
            lambda: len(self.acknowledged()) > accepted and self.started() > started,
            lambda: f"jobs are accepted and started: {self.errors()[-2000:]}",
            within=within,
        )

    def wait_for_jobs(self, number: int) -> None:
        """Wait until so many more jobs have started."""
        goal = self.started() + number
        wait_until(lambda: self.started() >= goal, "jobs start")

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.as_user(load.USER).attempt("touch stop")

    def stop(self) -> None:
        """Stop the clients, and wait until all jobs have ended."""
        self._load.stop(PATIENCE)

    def assert_nothing_lost(self) -> None:
        """Check that each acknowledged job, and each other job of the database, ran exactly once."""
        problems = self._load.violations(set())
        assert not problems, problems
        assert_sound(self._cluster)

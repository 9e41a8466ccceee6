"""A load of submissions, launches and ends, and what must hold after a fault: no job is lost and none runs twice."""

from __future__ import annotations

import re
from collections import Counter

from tests.acceptance.faults import Machine, assert_sound
from tests.acceptance.harness import PATIENCE, Cluster, Person, wait_until

#: State, wait status and number of starts of a job that ran.
RAN = ("Terminated", str(7 << 8), 1)
_WORK = "echo start >> starts/$OAR_JOB_ID; sleep 0.$((RANDOM % 10)); exit 7"
#: A client that submits one job after the other; the file `typed` contains the responses.
_CLIENT = f"until [ -e stop ]; do oarsub -l core=1,walltime=0:10 '{_WORK}' >>typed 2>>errors; sleep 0.2; done"


class Load:
    """Clients of alice on a server that submit short jobs until `stop`, or until the end of the `with` block."""

    def __init__(self, cluster: Cluster, *, host: str = "server", clients: int = 2) -> None:
        self._cluster = cluster
        self._alice: Person = cluster.as_user("alice").on(host)
        self._home = Machine(cluster, "server").path("/home/alice")
        self._clients = clients
        self._alice.run("rm -rf starts stop typed errors script; mkdir starts; touch typed; cat >script", stdin=_CLIENT)
        self._first = self._newest_job() + 1
        for _ in range(clients):
            self._alice.run("setsid sh script </dev/null >/dev/null 2>&1 &")

    def _newest_job(self) -> int:
        return int(self._cluster.sql("SELECT coalesce(max(job_id), 0) FROM jobs")[0][0])

    def acknowledged(self) -> list[int]:
        """Return the ids that oarsub has printed."""
        return [int(job) for job in re.findall(r"OAR_JOB_ID=(\d+)\n", (self._home / "typed").read_text())]

    def started(self) -> int:
        """Return the number of jobs that have started."""
        return len(list((self._home / "starts").iterdir()))

    def errors(self) -> str:
        """Return what the clients have printed to standard error."""
        return (self._home / "errors").read_text()

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
        self._alice.attempt("touch stop")

    def stop(self) -> None:
        """Stop the clients, and wait until all jobs have ended."""
        self._alice.run("touch stop")
        wait_until(lambda: self._alice.attempt("pgrep -u alice -f '^sh script'").code, "the clients have ended")
        wait_until(lambda: not self._unfinished(), lambda: f"all jobs have ended: {self._unfinished()}")

    def _unfinished(self) -> list[list[str]]:
        living = f"job_id >= {self._first} AND state NOT IN ('Terminated', 'Error')"
        return self._cluster.sql(f"SELECT job_id, state, message FROM jobs WHERE {living}")

    def facts(self) -> dict[int, tuple[str, str, int]]:
        """Return state, wait status and number of starts of each job."""
        rows = self._cluster.sql(f"SELECT job_id, state, exit_code FROM jobs WHERE job_id >= {self._first}")
        return {int(job): (state, status, self._starts(int(job))) for job, state, status in rows}

    def _starts(self, job: int) -> int:
        path = self._home / "starts" / str(job)
        return len(path.read_text().split()) if path.exists() else 0

    def assert_nothing_lost(self) -> None:
        """Check that each acknowledged job, and each other job of the database, ran exactly once."""
        twice = [job for job, times in Counter(self.acknowledged()).items() if times > 1]
        assert not twice, f"ids that were given twice: {twice}"
        facts = self.facts()
        lost = set(self.acknowledged()) - facts.keys()
        assert not lost, f"acknowledged jobs that the database does not have: {lost}"
        others = {job: (*fact, self._cluster.story(job)) for job, fact in facts.items() if fact != RAN}
        assert not others, others
        assert_sound(self._cluster)

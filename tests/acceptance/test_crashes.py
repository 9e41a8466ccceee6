"""SIGKILL to every process of OAR at every step of a job's launch and end: nothing is lost, nothing runs twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.acceptance.faults import (
    EARLY,
    LATE,
    Machine,
    Step,
    Stops,
    assert_sound,
    kill_server_process,
    stops_in,
)
from tests.acceptance.harness import Cluster, wait_until

pytestmark = pytest.mark.timeout(180)

#: What the command of these jobs ends with, as a wait status.
EXIT_STATUS = 7 << 8

#: Counts its starts, waits until it may end, and ends with 7.
WORK = """\
#!/bin/sh
echo start >> starts/$OAR_JOB_ID
until [ -e end/all ] || [ -e end/$OAR_JOB_ID ]; do sleep 0.1; done
exit 7
"""

#: Steps at which one of many actions of a bipbip can be held while the others go on.
OF_BIPBIPS = [
    Step("Launching", EARLY),
    Step("Launching", LATE),
    Step("EXEC_SENT", LATE),
    Step("GO", EARLY),
    Step("GO", LATE),
    Step("STARTED", EARLY),
    Step("STARTED", LATE),
    Step("CLEANED", EARLY),
    Step("CLEANED", LATE),
]


class Scene:
    """Jobs of alice that can be held at their steps."""

    def __init__(self, cluster: Cluster, stops: Stops) -> None:
        self.cluster = cluster
        self.stops = stops
        self.alice = cluster.as_user("alice")
        self.home = Machine(cluster, "server").path("/home/alice")
        self.alice.run("rm -rf starts end; mkdir starts end; cat > work; chmod 755 work", stdin=WORK)
        self.steps: dict[int, Step] = {}

    def submit(self, steps: Sequence[Step], options: str = "") -> list[int]:
        """Submit a job for each of these steps, to be held there."""
        jobs = self.alice.submit_all(
            f"--hold --array {len(steps)} -t timesharing=*,* -l /resource_id=1,walltime=0:2 {options} ./work"
        )
        stops = dict(zip(jobs, steps, strict=True))
        self.steps |= stops
        self.stops.hold(stops)
        self.alice.run(f"oarresume {' '.join(map(str, jobs))}")
        return jobs

    def go_on(self, victim: str) -> None:
        """Lift the stops; start what does not come back by itself."""
        self.stops.lift()
        if victim == "almighty":
            self.cluster.server.do("start")

    def let_end(self, *jobs: int) -> None:
        """Let the commands of some jobs end, or of all."""
        for name in jobs or ("all",):
            (self.home / "end" / str(name)).touch()

    def starts(self, job: int) -> int:
        """How often the command of a job was started."""
        path = self.home / "starts" / str(job)
        return path.read_text().count("start") if path.exists() else 0

    def facts(self) -> dict[int, tuple[str, str, int]]:
        """State, exit status and starts of each job."""
        rows = self.cluster.sql(f"SELECT job_id, state, exit_code FROM jobs WHERE job_id IN ({self._numbers})")
        return {int(job): (state, status, self.starts(int(job))) for job, state, status in rows}

    def wait_for_end(self) -> None:
        """Wait until all jobs are in a final state."""
        wait_until(self._all_ended, 60, f"all jobs have ended: {self.told()}")

    def told(self) -> dict[str, object]:
        """Each step with what became of its job."""
        return {f"{job}, {self.steps[job]}": facts for job, facts in self.facts().items()}

    def assert_all_ran_once(self) -> None:
        """Every job has ended as if nothing had happened."""
        self.wait_for_end()
        wanted = {key: ("Terminated", str(EXIT_STATUS), 1) for key in self.told()}
        assert self.told() == wanted
        assert_sound(self.cluster)

    @property
    def _numbers(self) -> str:
        return ", ".join(map(str, self.steps))

    def _all_ended(self) -> bool:
        return all(state in ("Terminated", "Error") for state, _, _ in self.facts().values())


@pytest.fixture
def scene(cluster: Cluster) -> Iterator[Scene]:
    """Jobs that can be held, in the room of all tests."""
    with stops_in(cluster) as stops:
        yield Scene(cluster, stops)


def kill(cluster: Cluster, victim: str) -> None:
    """SIGKILL to a part of OAR on the server, or to the sessions of all nodes."""
    if victim == "session":
        for node in cluster.nodes:
            for one in Machine(cluster, node.name).session():
                one.kill()
    elif victim == "bystanders":
        for name in ("leon", "sarko", "finaud"):
            kill_server_process(cluster, name)
    else:
        kill_server_process(cluster, victim)


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        *((victim, EARLY) for victim in ("runner", "bipbip", "node_change_state", "session", "bystanders")),
        *((victim, moment) for victim in ("almighty", "meta_sched") for moment in (EARLY, LATE)),
    ],
)
def test_who_is_killed_during_launches_does_no_harm(scene: Scene, victim: str, moment: str) -> None:
    jobs = scene.submit(OF_BIPBIPS)
    scene.let_end(*jobs[-2:])
    scene.stops.wait_for(jobs)
    held = scene.submit([Step("toLaunch", moment)])
    scene.stops.wait_for(held)
    kill(scene.cluster, victim)
    scene.go_on(victim)
    scene.let_end()
    scene.assert_all_ran_once()


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        *((victim, EARLY) for victim in ("bipbip", "meta_sched", "session", "bystanders")),
        *((victim, moment) for victim in ("almighty", "runner", "node_change_state") for moment in (EARLY, LATE)),
    ],
)
def test_who_is_killed_during_ends_does_no_harm(scene: Scene, victim: str, moment: str) -> None:
    first, second = scene.submit([Step("Terminated", moment), Step("REPORTED", moment)])
    wait_until(lambda: scene.starts(second), what="the second job runs")
    scene.let_end(first)
    scene.stops.wait_for([first])
    scene.let_end(second)
    scene.stops.wait_for([second])
    kill(scene.cluster, victim)
    scene.go_on(victim)
    scene.assert_all_ran_once()

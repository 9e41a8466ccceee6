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

#: What may become of a job: state, wait status of its command, starts of it.
RAN = ("Terminated", str(7 << 8), 1)
KILLED = ("Error", "", 1)
NEVER_RAN = ("Error", "", 0)

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

    def submit(self, steps: Sequence[Step], walltime: str = "0:2") -> list[int]:
        """Submit a job for each of these steps, to be held there."""
        jobs = self.prepare(steps, f"-l /resource_id=1,walltime={walltime}")
        self.begin(jobs)
        return jobs

    def prepare(self, steps: Sequence[Step], options: str) -> list[int]:
        """The same, but the jobs do not begin yet."""
        jobs = self.alice.submit_all(f"--hold --array {len(steps)} -t timesharing=*,* {options} ./work")
        stops = dict(zip(jobs, steps, strict=True))
        self.steps |= stops
        self.stops.hold(stops)
        return jobs

    def begin(self, jobs: Sequence[int]) -> None:
        """Let jobs be scheduled."""
        self.alice.run(f"oarresume {' '.join(map(str, jobs))}")

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
        wait_until(self._all_ended, 60, self.told)

    def told(self) -> dict[str, object]:
        """Each step with what became of its job."""
        return {f"{job}, {self.steps[job]}": facts for job, facts in self.facts().items()}

    def assert_all(self, fate: tuple[str, str, int]) -> None:
        """Every job has ended like this, and has left nothing."""
        self.wait_for_end()
        told = self.told()
        assert told == dict.fromkeys(told, fate)
        assert_sound(self.cluster)

    def events(self, job: int) -> list[str]:
        """The types of the events of a job."""
        return [row[0] for row in self.cluster.sql(f"SELECT type FROM event_logs WHERE job_id = {job} ORDER BY 1")]

    @property
    def _numbers(self) -> str:
        return ", ".join(map(str, self.steps))

    def _all_ended(self) -> bool:
        return all(state in ("Terminated", "Error") for state, _, _ in self.facts().values())


#: A prologue and an epilogue of the site that wait as long as a test wants.
SITE_SCRIPT = """\
#!/bin/sh
touch ~alice/reached/{name}-$1
while [ -e ~alice/wait/{name}-$1 ]; do sleep 0.1; done
"""


@pytest.fixture
def site_scripts(cluster: Cluster) -> Iterator[None]:
    """Prologue and epilogue on all nodes, which leave a file in ``reached`` and wait for one in ``wait`` to go away."""
    cluster.as_user("alice").run("rm -rf wait reached; mkdir -m 777 wait reached")
    paths = [
        Machine(cluster, node.name).path(f"/var/lib/oar/oar_{name}")
        for node in cluster.nodes
        for name in ("prologue", "epilogue")
    ]
    for path in paths:
        path.write_text(SITE_SCRIPT.format(name=path.name.removeprefix("oar_")))
        path.chmod(0o755)
    yield
    for path in paths:
        path.unlink(missing_ok=True)


@pytest.fixture
def scene(cluster: Cluster) -> Iterator[Scene]:
    """Jobs that can be held, in the room of all tests."""
    with stops_in(cluster) as stops:
        yield Scene(cluster, stops)


def kill(cluster: Cluster, victim: str) -> None:
    """SIGKILL to a part of OAR on the server, or to the sessions of all nodes."""
    if victim == "session":
        sessions = [one for node in cluster.nodes for one in Machine(cluster, node.name).session()]
        assert sessions, "there is no session"
        for one in sessions:
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
    scene.assert_all(RAN)


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
    scene.assert_all(RAN)


@pytest.mark.parametrize(
    ("victim", "moment"),
    [("leon", EARLY), *((victim, LATE) for victim in ("leon", "runner", "bipbip", "session", "almighty"))],
)
def test_who_is_killed_during_a_deletion_does_no_harm(scene: Scene, victim: str, moment: str) -> None:
    (job,) = scene.submit([Step("TIMER_ARMED", moment)])
    wait_until(lambda: scene.starts(job), what="the job runs")
    scene.alice.run(f"oardel {job}")
    scene.stops.wait_for([job])
    kill(scene.cluster, victim)
    scene.go_on(victim)
    scene.assert_all(KILLED)
    assert "FRAG_JOB_REQUEST" in scene.events(job)


@pytest.mark.parametrize(
    ("step", "victim"),
    [
        *((Step("EXEC_SENT", LATE), victim) for victim in ("bipbip", "runner", "session")),
        *((Step("GO", EARLY), victim) for victim in ("bipbip", "session")),
    ],
    ids=str,
)
def test_a_job_that_was_deleted_during_its_launch_never_runs(scene: Scene, victim: str, step: Step) -> None:
    (job,) = scene.submit([step])
    scene.stops.wait_for([job])
    scene.alice.run(f"oardel {job}")
    kill(scene.cluster, victim)
    scene.go_on(victim)
    scene.assert_all(NEVER_RAN)


@pytest.mark.parametrize("moment", [EARLY, LATE])
def test_a_walltime_is_kept_though_sarko_is_killed(scene: Scene, moment: str) -> None:
    (job,) = scene.submit([Step("LEON", moment)], walltime="0:0:1")
    scene.stops.wait_for([job])
    kill(scene.cluster, "sarko")
    scene.go_on("sarko")
    scene.assert_all(KILLED)
    assert scene.events(job).count("WALLTIME") == 1


NODE_MOMENTS = ("prologue", "ready", "running", "epilogue")


@pytest.fixture
def four_moments(scene: Scene, site_scripts: None) -> dict[str, int]:
    """Four jobs on node-1: one in the prologue, one ready to begin, one running, one in the epilogue."""
    steps = [Step("GO", EARLY) if moment == "ready" else Step(moment) for moment in NODE_MOMENTS]
    jobs = dict(
        zip(NODE_MOMENTS, scene.prepare(steps, "-p \"network_address='node-1'\" -l /resource_id=1"), strict=True)
    )
    for moment in ("prologue", "epilogue"):
        (scene.home / "wait" / f"{moment}-{jobs[moment]}").touch()
    scene.let_end(jobs["epilogue"])
    scene.begin([*jobs.values()])
    scene.stops.wait_for([jobs["ready"]])
    for moment in ("prologue", "epilogue"):
        wait_until((scene.home / "reached" / f"{moment}-{jobs[moment]}").exists, what=moment)
    wait_until(lambda: scene.starts(jobs["running"]), what="running")
    return jobs


@pytest.mark.parametrize(
    ("victim", "fates"),
    [
        ("oarexec", (RAN, RAN, KILLED, KILLED)),
        ("session", (RAN, RAN, RAN, RAN)),
    ],
)
def test_who_is_killed_on_a_node_harms_no_more_than_its_job(
    scene: Scene, four_moments: dict[str, int], victim: str, fates: Sequence[tuple[str, str, int]]
) -> None:
    node = Machine(scene.cluster, "node-1")
    victims = [node.session()] if victim == "session" else [node.oarexec(job) for job in four_moments.values()]
    assert all(victims), f"{victim} does not live"
    for one in (process for processes in victims for process in processes):
        one.kill()
    for path in (scene.home / "wait").iterdir():
        path.unlink()
    scene.go_on(victim)
    scene.let_end()
    scene.wait_for_end()
    facts = scene.facts()
    assert {moment: facts[job] for moment, job in four_moments.items()} == dict(zip(NODE_MOMENTS, fates, strict=True))
    assert scene.cluster.sql("SELECT network_address FROM resources WHERE state <> 'Alive'") == []
    assert_sound(scene.cluster)

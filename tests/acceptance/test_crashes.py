"""SIGKILL to every process of OAR at every step of a job's launch and end: nothing is lost, nothing runs twice."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from tests.acceptance.faults import (
    EARLY,
    KILLED,
    LATE,
    NEVER_RAN,
    RAN,
    SERVER_PROCESSES,
    Machine,
    Scene,
    Step,
    assert_sound,
    processes_of,
)
from tests.acceptance.harness import Cluster, wait_until

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


#: Modules of which jobs need nothing while they are launched and end.
BYSTANDERS = ("leon", "sarko", "finaud")


def bring_back_bystanders(cluster: Cluster) -> None:
    """Have all bystanders run: one that was killed comes back when it is needed; a start of the server needs all."""

    def absent() -> list[str]:
        return [part for part in BYSTANDERS if not processes_of(cluster, part)]

    if absent():
        cluster.server.do("stop")
        cluster.server.do("start")
        wait_until(lambda: not absent(), lambda: f"all bystanders run: {absent()} do not")


def kill(cluster: Cluster, victim: str) -> None:
    """SIGKILL to a part of OAR on the server, or to the sessions of all nodes; it must be there."""
    parts = BYSTANDERS if victim == "bystanders" else (victim,)
    found = wait_until(lambda: [one for part in parts for one in processes_of(cluster, part)], f"there is {victim}")
    for one in found:
        one.kill()


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        *((victim, EARLY) for victim in ("runner", "bipbip", "node_change_state", "session", "bystanders")),
        *((victim, moment) for victim in ("almighty", "meta_sched") for moment in (EARLY, LATE)),
    ],
)
def test_who_is_killed_during_launches_does_no_harm(scene: Scene, victim: str, moment: str) -> None:
    if victim == "bystanders":
        bring_back_bystanders(scene.cluster)
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
    if victim == "bystanders":
        bring_back_bystanders(scene.cluster)
    first, second = scene.submit([Step("Terminated", moment), Step("REPORTED", moment)])
    wait_until(lambda: scene.starts(second), "the second job runs")
    scene.let_end(first)
    scene.stops.wait_for([first])
    scene.let_end(second)
    scene.stops.wait_for([second])
    kill(scene.cluster, victim)
    scene.go_on(victim)
    scene.assert_all(RAN)


@pytest.mark.parametrize("victim", ["bipbip"])
def test_who_is_killed_when_a_job_is_suspended_or_resumed_does_no_harm(scene: Scene, victim: str) -> None:
    root = scene.cluster.as_user("root")
    (job,) = scene.submit([Step("NEVER")])
    wait_until(lambda: scene.starts(job), "the job runs")
    scene.cluster.wait_for_state(job, "Running")
    for command, state in (("oarhold -r", "Suspended"), ("oarresume", "Running")):
        scene.stops.lift()
        scene.stops.hold({job: Step(state, LATE)})
        root.run(f"{command} {job}")
        scene.stops.wait_for([job])
        kill(scene.cluster, victim)
        scene.go_on(victim)
        scene.cluster.wait_for_state(job, state)
    scene.let_end()
    scene.assert_all(RAN)


@pytest.mark.parametrize(
    ("victim", "moment"),
    [("leon", EARLY), *((victim, LATE) for victim in ("leon", "runner", "bipbip", "session", "almighty"))],
)
def test_who_is_killed_during_a_deletion_does_no_harm(scene: Scene, victim: str, moment: str) -> None:
    (job,) = scene.submit([Step("TIMER_ARMED", moment)])
    wait_until(lambda: scene.starts(job), "the job runs")
    scene.alice.run(f"oardel {job}")
    scene.stops.wait_for([job])
    kill(scene.cluster, victim)
    scene.go_on(victim)
    scene.assert_all(KILLED)
    assert "FRAG_JOB_REQUEST" in scene.cluster.events(job)


@pytest.mark.parametrize(
    ("step", "victim"),
    [
        *((Step("EXEC_SENT", LATE), victim) for victim in ("bipbip", "runner", "session")),
        *((Step("GO", EARLY), victim) for victim in ("bipbip", "session")),
    ],
    ids=str,
)
def test_a_job_that_was_deleted_during_its_launch_never_runs(scene: Scene, victim: str, step: Step) -> None:
    if victim == "session":  # there is none before the first job, or if all were ended by the test before
        scene.cluster.wait_for_state(scene.alice.submit("-l /resource_id=1 true"), "Terminated")
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
    wait_until(lambda: scene.starts(job), "the command runs")
    kill(scene.cluster, "sarko")
    scene.go_on("sarko")
    scene.assert_all(KILLED)
    assert scene.cluster.events(job).count("WALLTIME") == 1


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
        wait_until((scene.home / "reached" / f"{moment}-{jobs[moment]}").exists, moment)
    wait_until(lambda: scene.starts(jobs["running"]), "running")
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


SEED = int(os.environ.get("OAR_TEST_SEED", "20"))
JOBS = 60
MOST_KILLS = 40
BRIEF = "'echo start >> starts/$OAR_JOB_ID; sleep 0.$((RANDOM % 10)); exit 7'"


def wait_for_copies(scene: Scene) -> set[int]:
    """Wait until all jobs have ended, and the jobs made in place of those whose launch was given up; return the latter.

    A launch whose session is killed time and again is given up.
    """
    replaced: set[int] = set()
    while True:
        scene.wait_for_end()
        jobs = ", ".join(map(str, scene.steps))
        rows = scene.cluster.sql(f"SELECT job_id, resubmit_job_id FROM jobs WHERE resubmit_job_id IN ({jobs})")
        copies = {int(copy): int(job) for copy, job in rows if int(copy) not in scene.steps}
        if not copies:
            return replaced
        assert len({*copies.values(), *replaced}) == len(copies) + len(replaced), f"two copies of one job: {copies}"
        replaced |= {*copies.values()}
        scene.steps |= {copy: Step(f"copy of {job}") for copy, job in copies.items()}


def test_random_kills_lose_no_job_and_run_none_twice(scene: Scene) -> None:
    random = Random(SEED)
    jobs = scene.alice.submit_all(f"--array {JOBS} -l /resource_id=1,walltime=0:5 {BRIEF}")
    scene.steps |= dict.fromkeys(jobs, Step(f"seed {SEED}"))
    doomed = random.sample(jobs, JOBS // 6)
    victims: list[str] = []
    while not scene.all_ended() and len(victims) < MOST_KILLS:
        victims.append(random.choice([*SERVER_PROCESSES, "session", "session"]))
        for one in processes_of(scene.cluster, victims[-1]):
            one.kill()
        scene.go_on(victims[-1])
        if len(victims) == 4:
            scene.alice.attempt(f"oardel {' '.join(map(str, doomed))}")
        time.sleep(random.uniform(0, 1))
    replaced = wait_for_copies(scene)
    fates = {job: {RAN} | ({KILLED, NEVER_RAN} if job in doomed else set()) for job in scene.steps}
    fates |= {job: {NEVER_RAN} for job in replaced}
    assert {job: facts for job, facts in scene.facts().items() if facts not in fates[job]} == {}, victims
    # A node whose connection is lost twice during the cleaning is suspected: it is swept when it is said to be well.
    scene.cluster.calm()
    assert_sound(scene.cluster)

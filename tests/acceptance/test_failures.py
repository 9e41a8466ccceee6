"""Nodes, the database and the server fail at a known moment of a job's life; each job comes to its right end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.acceptance.faults import EARLY, KILLED, LATE, NEVER_RAN, RAN, Machine, Scene, Step, assert_sound
from tests.acceptance.harness import Cluster, Service, wait_until

NOT_HELD = Step("nowhere")


def on(*nodes: str) -> str:
    """The options of a job that may run on these nodes only."""
    names = ", ".join(f"'{node}'" for node in nodes)
    return f'-p "network_address IN ({names})" -l /resource_id=1,walltime=0:10'


def wait_for_node(cluster: Cluster, node: str, state: str) -> None:
    """Wait until a node is in a state."""
    wait_until(lambda: cluster.node_state(node) == state, lambda: f"{node} is {state}: {cluster.node_state(node)}")


@contextlib.contextmanager
def without(service: Service, how: str) -> Iterator[None]:
    """A time without the server or the database."""
    service.do(how)
    try:
        yield
    finally:
        service.do("start")


def copy_of(scene: Scene, job: int) -> int:
    """The job that was made of another one, which is watched from now on."""
    rows = scene.cluster.sql(f"SELECT job_id FROM jobs WHERE resubmit_job_id = {job}")
    assert len(rows) == 1, f"job {job} was submitted {len(rows)} times more: {scene.cluster.story(job)}"
    copy = int(rows[0][0])
    scene.steps[copy] = Step(f"copy of {job}")
    return copy


def alive_again(cluster: Cluster, *nodes: str) -> None:
    """The administrator says that nodes are well; they are swept before they are used."""
    for node in nodes:
        cluster.as_user("root").run(f"oarnodesetting -h {node} -s Alive")
        wait_for_node(cluster, node, "Alive")


# -- nodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_what_a_launch_does_not_reach_is_suspected_and_the_job_runs_elsewhere(scene: Scene) -> None:
    harms = {"node-1": "cut", "node-2": "hang", "node-3": "power-off"}
    jobs = [job for node in harms for job in scene.prepare([Step("Launching", LATE)], on(node, "node-4"))]
    scene.begin(jobs)
    scene.stops.wait_for(jobs)
    for node, harm in harms.items():
        scene.cluster.node(node).do(harm)
    scene.stops.lift()
    scene.let_end()
    scene.wait_for_end()
    copies = [copy_of(scene, job) for job in jobs]
    scene.wait_for_end()
    facts = scene.facts()
    assert [facts[job] for job in jobs] == [NEVER_RAN] * 3
    assert [facts[copy] for copy in copies] == [RAN] * 3
    for node, cure in (("node-1", "heal"), ("node-2", "resume"), ("node-3", "reboot")):
        assert scene.cluster.node_state(node) == "Suspected"
        scene.cluster.node(node).do(cure)
    alive_again(scene.cluster, *harms)
    assert_sound(scene.cluster)


def test_a_node_without_sshd_gets_no_job(scene: Scene) -> None:
    scene.cluster.node("node-1").do("sshd-stop")
    for one in Machine(scene.cluster, "node-1").session():
        one.kill()
    (job,) = scene.prepare([NOT_HELD], on("node-1", "node-2"))
    scene.let_end()
    scene.begin([job])
    scene.wait_for_end()
    copy = copy_of(scene, job)
    scene.wait_for_end()
    assert scene.facts() == {job: NEVER_RAN, copy: RAN}
    assert scene.cluster.node_state("node-1") == "Suspected"


@pytest.mark.parametrize("harm", ["crash", "power-off"])
def test_a_job_that_dies_with_its_node_runs_again_only_if_it_may(scene: Scene, harm: str) -> None:
    jobs = scene.prepare([NOT_HELD], on("node-1"))
    jobs += scene.prepare([NOT_HELD], f"-t idempotent {on('node-1', 'node-2')}")
    scene.begin(jobs)
    scene.wait_for_start(*jobs)
    scene.cluster.node("node-1").do(harm)
    scene.cluster.node("node-1").do("reboot")
    scene.wait_for_end()
    copy = copy_of(scene, jobs[1])
    scene.let_end()
    scene.wait_for_end()
    assert scene.facts() == {jobs[0]: KILLED, jobs[1]: KILLED, copy: RAN}
    assert "NODE_REBOOTED" in scene.cluster.events(jobs[0])
    assert scene.cluster.cause(jobs[0]) == "NODE_REBOOTED"
    assert scene.cluster.sql(f"SELECT job_id FROM jobs WHERE resubmit_job_id = {jobs[0]}") == []
    wait_for_node(scene.cluster, "node-1", "Alive")


@pytest.mark.usefixtures("impatient")
def test_what_is_left_of_a_job_that_was_given_up_is_killed_before_its_node_is_used(scene: Scene) -> None:
    node = scene.cluster.node("node-1")
    (job,) = scene.prepare([NOT_HELD], on("node-1"))
    scene.begin([job])
    scene.wait_for_start(job)
    node.do("hang")
    scene.alice.run(f"oardel {job}")
    scene.wait_for_end()
    assert scene.facts() == {job: KILLED}
    assert "EXTERMINATE_JOB" in scene.cluster.events(job)
    assert scene.cluster.cause(job) == "DELETED"
    wait_for_node(scene.cluster, "node-1", "Suspected")
    assert Machine(scene.cluster, "node-1").leftovers()
    node.do("resume")
    alive_again(scene.cluster, "node-1")
    assert Machine(scene.cluster, "node-1").leftovers() == []
    assert_sound(scene.cluster)


def test_a_network_that_fails_while_a_job_may_begin_loses_nothing(scene: Scene) -> None:
    (job,) = scene.prepare([Step("GO", LATE)], on("node-1"))
    scene.begin([job])
    scene.stops.wait_for([job])
    scene.cluster.node("node-1").do("cut")
    scene.stops.lift()
    scene.cluster.wait_for_state(job, "Running")
    assert scene.starts(job) == 0
    scene.cluster.node("node-1").do("heal")
    scene.let_end()
    scene.assert_all(RAN)


def test_a_node_that_does_not_answer_is_left_out_until_it_does(scene: Scene) -> None:
    node = scene.cluster.node("node-1")
    node.do("cut")
    wait_for_node(scene.cluster, "node-1", "Suspected")
    node.do("heal")
    wait_for_node(scene.cluster, "node-1", "Alive")
    (job,) = scene.prepare([NOT_HELD], on("node-1"))
    scene.let_end()
    scene.begin([job])
    scene.assert_all(RAN)


def test_a_wrong_property_of_resources_is_named_and_costs_two_nodes_at_most(scene: Scene) -> None:
    root, wrong = scene.cluster.as_user("root"), ("node-1", "node-2", "node-3")
    before = scene.cluster.sql("SELECT resource_id, cpuset FROM resources")
    for node in wrong:
        root.run(f"oarnodesetting -h {node} -p cpuset=4095")
    try:
        (job,) = scene.prepare([NOT_HELD], on(*wrong))
        scene.let_end()
        scene.begin([job])
        scene.wait_for_end()
        copy = copy_of(scene, job)
        scene.wait_for_end()
        assert scene.facts() == {job: NEVER_RAN, copy: NEVER_RAN}
        assert scene.cluster.sql(f"SELECT job_id FROM jobs WHERE resubmit_job_id = {copy}") == []
        assert sorted(scene.cluster.node_state(node) for node in wrong) == ["Alive", "Suspected", "Suspected"]
        told = scene.alice.run(f"oarstat --explain {copy}")
        assert scene.cluster.cause(copy) == "NODE_DESCRIPTION"
        for text in (told, scene.alice.run(f"oarstat -e -j {copy}"), root.run("cat /var/log/oar.log")):
            assert "the property cpuset of resource " in text
            assert "is '4095', but this node has the processors " in text
    finally:
        for resource, cpuset in before:
            root.run(f"oarnodesetting -r {resource} -p cpuset={cpuset}")
    alive_again(scene.cluster, *wrong)


def test_a_node_whose_prologue_fails_is_suspected_and_the_job_runs_elsewhere(scene: Scene) -> None:
    prologue = Machine(scene.cluster, "node-1").path("/var/lib/oar/oar_prologue")
    prologue.write_text("#!/bin/sh\nexit 1\n")
    prologue.chmod(0o755)
    (job,) = scene.prepare([NOT_HELD], on("node-1", "node-2"))
    scene.let_end()
    scene.begin([job])
    scene.wait_for_end()
    prologue.unlink()
    copy = copy_of(scene, job)
    scene.wait_for_end()
    assert scene.facts() == {job: NEVER_RAN, copy: RAN}
    assert "PROLOGUE_ERROR" in scene.cluster.events(job)
    assert scene.cluster.cause(job) == "PROLOGUE"
    assert scene.cluster.node_state("node-1") == "Suspected"


# -- the database and the server --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_no_job_is_lost_with_the_database(scene: Scene, how: str) -> None:
    steps = [Step("Launching", EARLY), Step("EXEC_SENT", LATE), Step("GO", EARLY), Step("STARTED", EARLY)]
    launching = scene.submit(steps)
    running, ending = scene.submit([NOT_HELD, Step("CLEANED", EARLY)])
    scene.let_end(ending)
    wait_until(lambda: scene.starts(running), "one runs")
    scene.stops.wait_for([*launching, ending])
    (waiting,) = scene.prepare([NOT_HELD], "-l /resource_id=1")
    with without(scene.cluster.database, how):
        answer = scene.alice.attempt("oarstat")
        scene.let_end()
    assert answer.code != 0
    assert "Traceback" not in answer.err
    scene.stops.lift()
    scene.begin([waiting])
    scene.assert_all(RAN)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_no_end_is_lost_with_the_server(scene: Scene, how: str) -> None:
    """One waits with its report; one was killed before it could give it; one waits to be killed; one to be started."""
    jobs = scene.prepare([NOT_HELD] * 3, on("node-1"))
    scene.begin(jobs)
    scene.wait_for_start(*jobs)
    reporting, silent, doomed = jobs
    with without(scene.cluster.server, how):
        scene.let_end(reporting, silent)
        node = Machine(scene.cluster, "node-1")
        for job in (reporting, silent):
            scene.ends_on(node, job)
        for one in node.oarexec(silent):
            one.kill()
        assert scene.cluster.state(reporting) == "Running"
        assert "cannot contact the OAR server" in scene.alice.attempt(f"oardel {doomed}").err
        (late,) = scene.prepare([NOT_HELD], "-l /resource_id=1")
        scene.let_end(late)
    scene.begin([late])
    scene.wait_for_end()
    assert scene.facts() == {reporting: RAN, silent: RAN, doomed: KILLED, late: RAN}
    assert_sound(scene.cluster)

"""Desktop computing on a real cluster: two agents of unprivileged accounts, a real API, killed servers and agents."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from installer.programs import agent as write_agent

from tests.acceptance.faults import Machine
from tests.acceptance.harness import Cluster, checked, tool, wait_until
from tests.documents import SOURCE, named_blocks

#: The computers, and whose accounts run their agents.
COMPUTERS = {"desk-1": "bob", "desk-2": "carol"}
PROGRAM = "/home/site/oar-agent"
_ADMINISTRATOR = named_blocks(SOURCE / "docs/administrator-guide.rst")
_USER = named_blocks(SOURCE / "docs/user-guide.rst")


class Classroom:
    """The agents of some computers, which reach the server by its loopback."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.alice = cluster.as_user("alice")
        self._running: dict[str, int] = {}

    def declare(self, name: str) -> None:
        """Declare a computer as the guide tells it, and give its token to the account of its agent."""
        root, account = self.cluster.as_user("root"), self.cluster.as_user(COMPUTERS[name])
        lines = _ADMINISTRATOR["a desktop computer"].replace("desk-1", name).splitlines()
        *_, token = [root.run(line.removeprefix("root# ")) for line in lines]
        account.run("umask 077; cat >~/.oar-agent.token", stdin=token)

    def start(self, name: str) -> None:
        """Start an agent as the guide tells it, after another one perhaps."""
        words = _ADMINISTRATOR["an agent"].replace("desk-1", name).split()
        assert (words[0], words[-1]) == ("oar-agent", "https://oar.example.org/")
        options = " ".join(words[1:-1])
        line = f"setsid {PROGRAM} {options} -i 1 -v http://127.0.0.1:6668 >>log 2>&1 </dev/null & echo $!"
        told = self.cluster.as_user(COMPUTERS[name]).run(f"mkdir -p agent; cd agent; {line}")
        self._running[name] = int(told)

    def signal(self, name: str, signal: str = "TERM") -> None:
        """Send a signal to an agent, and wait for its end."""
        account, pid = self.cluster.as_user(COMPUTERS[name]), self._running.pop(name)
        account.run(f"kill -{signal} {pid}")
        wait_until(lambda: account.attempt(f"kill -0 {pid}").code, f"the agent of {name} ends")

    def submit(self, command: str, options: str = "") -> int:
        """Submit a job of this kind."""
        return self.alice.submit(f"-t desktop_computing -l nodes=1,walltime=0:10 {options} '{command}'")

    def end(self) -> None:
        """End the agents, and take the computers away."""
        for name in list(self._running):
            self.signal(name)
        root = self.cluster.as_user("root")
        for name in COMPUTERS:
            root.run(f"oarnodesetting -s Dead -h {name}")
            number = f"SELECT resource_id FROM resources WHERE network_address = '{name}' AND state = 'Dead'"
            rows = wait_until(lambda number=number: self.cluster.sql(number), f"{name} is Dead")  # type: ignore[misc]
            root.run(f"oarremoveresource {rows[0][0]}")


@pytest.fixture
def classroom(cluster: Cluster) -> Iterator[Classroom]:
    place = Machine(cluster, "server").path(PROGRAM)
    place.parent.mkdir(exist_ok=True)
    write_agent(place)
    os.chmod(place.parent, 0o755)
    checked(tool("api", "start", room=cluster.room))
    made = Classroom(cluster)
    try:
        for name in COMPUTERS:
            made.declare(name)
            made.start(name)
        yield made
    finally:
        with contextlib.suppress(AssertionError):
            made.end()
        checked(tool("api", "stop", room=cluster.room))


def test_files_go_with_jobs_and_results_come_back(classroom: Classroom) -> None:
    alice = classroom.alice
    alice.run("mkdir -p desk/in && echo given >desk/in/data && tar -C desk -czf desk/in.tar.gz in")
    jobs = [classroom.submit("cat in/data; id -un; hostname >made", "-d ~/desk -s ~/desk/in.tar.gz") for _ in range(2)]
    for job in jobs:
        classroom.cluster.wait_for_state(job, "Terminated")
        assert alice.run(f"head -1 desk/OAR.{job}.stdout") == "given\n"
        assert alice.run(f"tail -1 desk/OAR.{job}.stdout").strip() in COMPUTERS.values()
    assert alice.run("cat desk/made").strip()


def test_the_examples_of_the_user_guide_do_what_it_says(classroom: Classroom) -> None:
    alice = classroom.alice
    alice.run("mkdir -p guide/input; echo given >guide/input/data")
    alice.run("cat >guide/run.sh; chmod 755 guide/run.sh", stdin="#!/bin/sh\ncat $1 >made\n")
    alice.run("cd guide && tar czf input.tar.gz input run.sh")
    line = _USER["a job of a desktop computer"].removeprefix("$ ").strip()
    job = alice.run(f"cd guide && {line}").rpartition("OAR_JOB_ID=")[2].strip()
    classroom.cluster.wait_for_state(int(job), "Terminated")
    assert alice.run("cat guide/made") == "given\n"
    unknown = classroom.submit("echo made >new", "-d /no/such/place")
    classroom.cluster.wait_for_state(unknown, "Terminated")
    token = alice.run("oar-token create").split()[-1]
    curl = _USER["results of a desktop computer"].removeprefix("$ ").replace("jobs/12", f"jobs/{unknown}")
    curl = curl.replace("https://oar.example.org", "http://127.0.0.1:6668")
    alice.run(f"cd guide && TOKEN={token} && {curl}")
    assert "new" in alice.run("tar tzf guide/results.tgz").split()


def test_a_job_is_killed_with_all_that_it_has_started(classroom: Classroom) -> None:
    job = classroom.submit("sleep 4242 & sleep 4242")
    classroom.cluster.wait_for_state(job, "Running")
    root = classroom.cluster.as_user("root")
    wait_until(lambda: root.attempt("pgrep -f [s]leep.4242").out)
    classroom.alice.run(f"oardel {job}")
    classroom.cluster.wait_for_state(job, "Error")
    assert classroom.cluster.cause(job) == "DELETED"
    wait_until(lambda: not root.attempt("pgrep -f [s]leep.4242").out, "nothing of the job runs")


def test_an_agent_that_is_killed_comes_back_and_works_on(classroom: Classroom) -> None:
    classroom.signal("desk-2")
    job = classroom.submit("sleep 4243")
    classroom.cluster.wait_for_state(job, "Running")
    wait_until(lambda: classroom.cluster.as_user("root").attempt("pgrep -f [s]leep.4243").out)
    classroom.signal("desk-1", "KILL")
    classroom.start("desk-1")
    classroom.cluster.wait_for_state(job, "Error")
    assert classroom.cluster.cause(job) == "AGENT_LOST"
    classroom.cluster.wait_for_state(classroom.submit("true"), "Terminated")


def test_a_killed_server_and_a_killed_api_cost_no_job(classroom: Classroom) -> None:
    cluster, root = classroom.cluster, classroom.cluster.as_user("root")
    root.run("rm -f /tmp/go")
    work = "until [ -e /tmp/go ]; do sleep 0.1; done; echo run >>~/runs; exit 3"
    jobs = [classroom.submit(work) for _ in range(4)]
    cluster.wait_for_state(jobs[0], "Running")
    cluster.server.do("kill")
    checked(tool("api", "kill", room=cluster.room))
    root.run("touch /tmp/go")
    cluster.server.do("start")
    checked(tool("api", "start", room=cluster.room))
    for job in jobs:
        cluster.wait_for_state(job, "Terminated")
        assert cluster.cause(job) == "EXIT_STATUS"
    runs = "".join(cluster.as_user(name).attempt("cat runs").out for name in COMPUTERS.values())
    assert runs == "run\n" * len(jobs)

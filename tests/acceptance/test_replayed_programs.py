"""Programs that are not in the package index: the commands that each types, and the way it reads the answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.acceptance.harness import Cluster, Person, wait_until

CORE = "-l core=1,walltime=0:10"


def of_jobs(alice: Person, options: str = "") -> dict[str, Any]:
    """What a program gets that reads JSON."""
    found: dict[str, Any] = json.loads(alice.run(f"oarstat -J {options}"))
    return found


# -- Nextflow ---------------------------------------------------------------------------------------------------------

COMMAND_RUN = """#!/bin/bash
#OAR -d "/home/alice/work\\ 1"
#OAR -n nf-square_(1)
#OAR -O /home/alice/work\\ 1/.command.log
#OAR -E /home/alice/work\\ 1/.command.log
#OAR -q default
#OAR -p "network_address='node-3'"
#OAR -l /nodes=1/core=1,walltime=00:10:00
#OAR --project nextflow
# NEXTFLOW TASK: square (1)
echo $((7 * 7)) on $(hostname); sleep 0
"""
#: The states that Nextflow knows.
NEXTFLOW_STATES = {
    *("toLaunch", "Launching", "Running", "Finishing", "Waiting", "toAckReservation", "Hold", "Suspended", "Resuming"),
    *("toError", "Error", "Terminated"),
}


def nextflow_states(person: Person, queue: str = "") -> dict[str, str]:
    """What Nextflow makes of its look at the queue."""
    look = f"sh -c \"oarstat -f {queue} 2>&1 | egrep '(Job_Id:|state =)'\""
    lines = person.attempt(look).out.splitlines()
    states, job = {}, ""
    for line in lines:
        if line.startswith("Job_Id: "):
            job = line.removeprefix("Job_Id: ").strip()
        else:
            assert job not in states, lines
            states[job] = line.strip().removeprefix("state = ").strip()
    return states


def nextflow_submit(person: Person) -> str:
    """Submit the script as Nextflow does; the number that it finds in the answer."""
    printed = person.run("cd 'work 1' && oarsub -S ./.command.run").splitlines()
    (job,) = [match[1] for line in printed if (match := re.fullmatch(r"OAR_JOB_ID=(\d+)", line.strip()))]
    return job


def test_nextflow_submits_scripts_and_follows_them(cluster: Cluster, alice: Person) -> None:
    alice.run("mkdir 'work 1'; cd 'work 1'; cat >.command.run; chmod 755 .command.run", stdin=COMMAND_RUN)
    job = nextflow_submit(alice)
    assert nextflow_states(alice).get(job, "Terminated") in NEXTFLOW_STATES
    cluster.wait_for_state(int(job), "Terminated")
    assert job not in nextflow_states(alice, "default")
    assert alice.run("cat 'work 1/.command.log'") == "49 on node-3\n"
    alice.run("cd 'work 1'; sed -i 's/sleep .*/sleep 1000/' .command.run")
    jobs = [nextflow_submit(alice) for _ in range(3)]
    assert set(jobs) == set(nextflow_states(alice, "default"))
    for running in jobs[:2]:
        cluster.wait_for_state(int(running), "Running")
    assert [nextflow_states(alice)[one] for one in jobs] == ["Running", "Running", "Waiting"]
    alice.run(f"oardel {' '.join(jobs)}")
    wait_until(lambda: not nextflow_states(alice))


# -- the others -------------------------------------------------------------------------------------------------------


def test_programs_submit_and_read_in_their_ways(cluster: Cluster, alice: Person) -> None:
    # Melissa, MoleQueue
    melissa = re.search(r"OAR_JOB_ID=(\d+)", alice.run(f"oarsub {CORE} -O/home/alice/out -E/home/alice/err 'exit 3'"))
    assert melissa
    ended = int(melissa[1])
    # DIRAC
    printed = alice.run("oarsub -n bebida-x --project dirac -l nodes=2,walltime=0:10 'sleep 1000'")
    running = int([line.split("=")[1] for line in printed.splitlines() if line.startswith("OAR_JOB_ID=")][-1])
    # vagrant-g5k; a job without a name, and one that gives way
    submit = f'oarsub --json {CORE} -t besteffort "sleep 1000" | grep "job_id" | cut -d: -f2'
    besteffort = int(alice.run(submit).replace('"', "").strip())
    for job in (running, besteffort):
        cluster.wait_for_state(job, "Running")
    cluster.wait_for_state(ended, "Terminated")
    read_yaml_and_xml(alice, running, ended)
    nodes = read_json(alice, running, besteffort, ended)
    read_nodes(alice, running, nodes)
    read_tables(alice, running, besteffort, nodes)
    cigri(cluster, alice, besteffort, ended)


def read_json(alice: Person, running: int, besteffort: int, ended: int) -> list[str]:
    """Look at jobs; the two nodes of the one that runs on two."""
    # DIRAC
    for options in ("--sql \"project = 'dirac'\"", "-u alice"):
        assert of_jobs(alice, options)[str(running)]["state"] == "Running"
    assert of_jobs(alice, "--sql \"project = 'nobody'\"") == of_jobs(alice, "-u bob") == {}
    # vagrant-g5k
    facts = json.loads(alice.run(f"oarstat --json -j {running}"))[str(running)]
    assert (facts["state"], facts["owner"], facts["name"]) == ("Running", "alice", "bebida-x")
    nodes: list[str] = facts["assigned_network_address"]
    assert (len(set(nodes)), nodes) == (2, sorted(nodes))
    # Bebida: a job without a name has a name that is a text, too
    jobs = json.loads(alice.run("oarstat --json")).values()
    assert [job["id"] for job in jobs if re.search("bebida", job["name"])] == [running]
    # scripts of Grid'5000 and ESP
    assert [(job["state"], type(job["start_time"])) for job in jobs] == [("Running", int), ("Running", int)]
    # Bebida and CiGri ask for jobs that have ended
    assert sorted(of_jobs(alice, f"-j {running} -j {besteffort} -j {ended}"), key=int) == [
        *sorted(map(str, (running, besteffort, ended)), key=int)
    ]
    return nodes


def read_yaml_and_xml(alice: Person, running: int, ended: int) -> None:
    for job, state in ((running, "Running"), (ended, "Terminated")):
        # Galaxy
        assert yaml.safe_load(alice.run(f"oarstat -Y -s -j {job}")) == {job: state}
        # gridscale, OpenMOLE
        assert alice.run(f"oarstat -j {job} -s").splitlines()[0].split()[1] == state
        # DIET
        printed = alice.run(f"oarstat -X -j {job} | grep state | cut -d'<' -f2 | cut -d'>' -f2")
        assert printed.splitlines()[0] == state
    assert yaml.safe_load(alice.run("oarstat -Y"))[running]["state"] == "Running"


def read_nodes(alice: Person, running: int, nodes: list[str]) -> None:
    # scripts of Grid'5000
    resources = json.loads(alice.run("oarnodes -J"))
    used = [facts for facts in resources.values() if str(facts.get("jobs")) == str(running)]
    assert sorted(facts["network_address"] for facts in used) == [nodes[0]] * 2 + [nodes[1]] * 2
    assert {(facts["host"] == facts["network_address"], facts["state"]) for facts in used} == {(True, "Alive")}
    assert json.loads(alice.run("oarnodes -J --sql \"network_address = 'none'\"")) == {}
    assert alice.run("oarnodes --sql \"network_address = 'none'\"") == ""
    # qtop
    states = alice.run("oarnodes -s -Y")
    assert states.startswith("---\n")
    assert set(yaml.safe_load(states)) == {"node-1", "node-2", "node-3", "node-4"}
    resources_as_yaml = alice.run("oarnodes -Y")
    assert re.search(rf"^ +jobs: {running}$", resources_as_yaml, re.MULTILINE)
    assert yaml.safe_load(resources_as_yaml)


#: Number, name, user, date, state, queue.
ROW = re.compile(
    r"^(?P<id>\d+)\s+(?P<name>\S*)\s+(?P<user>\w+)\s+"
    r"(?P<date>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?P<state>[A-Z]) (?P<queue>\w+)"
)


def rows(lines: list[str]) -> Iterator[tuple[str, ...]]:
    """What a program that looks for rows finds."""
    for line in lines:
        if match := ROW.match(line):
            yield match["id"], match["name"], match["user"], match["state"], match["queue"]


def read_tables(alice: Person, running: int, besteffort: int, nodes: list[str]) -> None:
    # qtop
    assert list(rows(alice.run("oarstat").splitlines())) == [
        (str(running), "bebida-x", "alice", "R", "default"),
        (str(besteffort), "", "alice", "R", "besteffort"),
    ]
    # scripts of Grid'5000 and ESP
    assert f"assigned_hostnames = {'+'.join(nodes)}\n" in alice.run(f"oarstat -f -j {running}")
    assert alice.run("oarstat -u | tail -n1 | cut -d' ' -f1").strip() == str(besteffort)
    assert alice.run("oarstat | grep -c 'R besteffort'") == "1\n"
    assert alice.run("oarstat | awk '$5==\"R\"' | cut -d' ' -f1").split() == [str(besteffort)]


def cigri(cluster: Cluster, alice: Person, besteffort: int, ended: int) -> None:
    alice.run(f"oardel {besteffort}")
    cluster.wait_for_state(besteffort, "Error")
    jobs = of_jobs(alice, f"-f -j {besteffort} -j {ended}")
    gone, failed = jobs[str(besteffort)], jobs[str(ended)]
    assert (gone["id"], gone["state"], failed["id"], failed["state"]) == (besteffort, "Error", ended, "Terminated")
    assert failed["exit_code"] == 3 << 8
    assert "FRAG_JOB_REQUEST" in [event["type"] for event in gone["events"]]
    assert cluster.sql(f"SELECT count(*) FROM jobs WHERE resubmit_job_id = {besteffort}") == [["0"]]

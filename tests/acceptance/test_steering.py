"""Jobs that are steered while they live: suspended, given other walltimes, made besteffort, run again."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.harness import Cluster, Person, wait_until


def told(cluster: Cluster, job: int, *types: str) -> list[str]:
    """Which of these events a job has, in order."""
    rows = cluster.sql(f"SELECT type FROM event_logs WHERE job_id = {job} ORDER BY event_id")
    return [row[0] for row in rows if row[0] in types]


#: On each node of the job several processes that count, one of them in a session of its own.
COUNTING = """
count='i=0; while :; do i=$((i+1)); echo $i > ticks.$(hostname).$$; sleep 0.05; done'
for node in $(uniq $OAR_NODEFILE); do
    oarsh $node "sh -c '$count' & setsid sh -c '$count' & wait" &
done
wait
"""


def ticks(person: Person) -> list[str]:
    """What each process has counted, by file."""
    return person.run("cd ~ && for f in ticks.*; do echo $f $(cat $f); done").splitlines()


def test_all_processes_on_all_nodes_stand_still_and_others_use_their_place(cluster: Cluster, alice: Person) -> None:
    root, bob = cluster.as_user("root"), cluster.as_user("bob")
    alice.run("cat > counting", stdin=COUNTING)
    job = alice.submit("-l nodes=3,walltime=1 'sh ./counting'")
    wait_until(lambda: len(alice.attempt("ls ticks.*").out.split()) == 6, "six processes count")
    assert alice.attempt(f"oarhold -r {job}").code == 1
    root.run(f"oarhold -r {job}")
    cluster.wait_for_state(job, "Suspended")
    seen = ticks(alice)
    guest = bob.submit("-l nodes=4,walltime=1 'sleep 1000'")
    cluster.wait_for_state(guest, "Running")
    root.run(f"oarresume {job}")
    cluster.wait_for_state(job, "Resuming")
    assert ticks(alice) == seen
    root.run(f"oardel -b {guest}")  # besteffort jobs leave what was only lent
    cluster.wait_for_state(job, "Running")
    assert cluster.cause(guest) == "EVICTED"
    wait_until(lambda: all(new != old for new, old in zip(ticks(alice), seen, strict=True)), "all count again")
    root.run(f"oarhold -r {job}")
    cluster.wait_for_state(job, "Suspended")
    alice.run(f"oardel {job}")
    cluster.wait_for_state(job, "Error")
    assert cluster.sql("SELECT count(*) FROM resources WHERE suspended_jobs = 'YES'") == [["0"]]


@pytest.mark.usefixtures("impatient")
def test_a_node_that_hangs_ends_what_is_being_suspended_and_what_resumes(cluster: Cluster, alice: Person) -> None:
    root = cluster.as_user("root")
    resuming, suspending = (alice.submit("-l nodes=2/core=1,walltime=1 'sleep 1000'") for _ in range(2))
    for job in (resuming, suspending):
        cluster.wait_for_start(job)
    hosts = [alice.jobs(f"-j {job}")[job]["assigned_network_address"] for job in (resuming, suspending)]
    assert hosts[0] == hosts[1]
    root.run(f"oarhold -r {resuming}")
    cluster.wait_for_state(resuming, "Suspended")
    cluster.node(hosts[0][1]).do("hang")
    root.run(f"oarhold -r {suspending}; oarresume {resuming}")
    for job, event in [(resuming, "RESUME_ERROR"), (suspending, "SUSPEND_ERROR")]:
        cluster.wait_for_state(job, "Error")
        assert told(cluster, job, "RESUME_ERROR", "SUSPEND_ERROR") == [event]
        assert cluster.cause(job) == "SUSPENSION"
    states = "SELECT DISTINCT state FROM resources WHERE network_address = '{}'"
    wait_until(lambda: cluster.sql(states.format(hosts[0][1])) == [["Suspected"]], "the node that hangs is suspected")
    assert cluster.sql(states.format(hosts[0][0])) == [["Alive"]]
    assert cluster.sql("SELECT count(*) FROM resources WHERE suspended_jobs = 'YES'") == [["0"]]


def test_a_job_gets_more_time_and_less(cluster: Cluster, alice: Person) -> None:
    longer = alice.submit("-l core=1,walltime=0:5 'while [ ! -e go ]; do sleep 0.1; done'")
    shorter = alice.submit("-l core=1,walltime=1 'sleep 1000'")
    for job in (longer, shorter):
        cluster.wait_for_start(job)
    accepted = "Accepted: walltime change request accepted for job {}, it will be handled shortly.\n"
    assert alice.run(f"oarwalltime {longer} +0:30") == accepted.format(longer)
    wait_until(lambda: told(cluster, longer, "WALLTIME_CHANGED"), "it has more time")
    cluster.let_pass(600, longer)
    refused = cluster.as_user("bob").attempt(f"oarwalltime {shorter} +0:1")
    assert (refused.code, refused.out) == (3, f"Forbidden: job {shorter} does not belong to you.\n")
    refused = alice.attempt(f"oarwalltime {shorter} 0:0:0")
    assert (refused.code, f"To end it: oardel {shorter}" in refused.out) == (3, True)
    assert alice.run(f"oarwalltime {shorter} 0:1:0") == accepted.format(shorter)
    cluster.wait_for_state(shorter, "Error")
    story = ("WALLTIME_REQUEST", "WALLTIME_CHANGED", "WALLTIME")
    assert told(cluster, shorter, *story) == [*story]
    assert cluster.state(longer) == "Running"  # twice as long as it was allowed at first
    alice.run("touch go")
    cluster.wait_for_state(longer, "Terminated")
    assert "  Granted:      +0:30:0\n" in alice.run(f"oarwalltime {longer}")


def test_more_time_is_granted_when_nobody_waits_for_the_place(cluster: Cluster, alice: Person) -> None:
    job = alice.submit("-l nodes=4,walltime=0:10 'sleep 1000'")
    cluster.wait_for_start(job)
    next_one = alice.submit("-l nodes=4,walltime=0:10 'sleep 1000'")
    wait_until(lambda: alice.jobs(f"-j {next_one}")[next_one]["scheduled_start"], "the next one has a date")
    alice.run(f"oarwalltime --whole {job} +0:30")
    waits = "  Pending/unsatisfied:  +0:30:0 (whole: yes)\n"
    assert waits in alice.run(f"oarwalltime {job}")
    alice.run(f"oardel {next_one}")
    wait_until(lambda: told(cluster, job, "WALLTIME_CHANGED"), "the change is granted")
    assert json.loads(alice.run(f"oarwalltime -J {job}"))["walltime"] == 2400


def test_so_many_jobs_of_an_array_run_at_a_time(cluster: Cluster, alice: Person) -> None:
    jobs = alice.submit_all("--array 4%1 -l core=1 'echo in >> order; sleep 0.2; echo out >> order'")
    for job in jobs:
        cluster.wait_for_state(job, "Terminated")
    assert alice.run("cat order").split() == ["in", "out"] * 4


def test_an_idempotent_job_runs_again_until_it_has_finished(cluster: Cluster, alice: Person) -> None:
    command = "echo run >> runs; while [ ! -e go ]; do sleep 0.1; done; [ $(wc -l < runs) = 2 ] || exit 99"
    job = alice.submit(f"-t idempotent -l core=1 '{command}'")
    after = alice.submit(f"-a {job} -l core=1 'cp runs result'")
    cluster.wait_for_start(job)
    cluster.let_pass(61, job)
    alice.run("touch go")
    cluster.wait_for_state(job, "Terminated")
    cluster.wait_for_state(after, "Terminated")
    (row,) = cluster.sql(f"SELECT job_id, state, exit_code FROM jobs WHERE resubmit_job_id = {job}")
    assert row[1:] == ["Terminated", "0"]
    assert alice.run("cat result").split() == ["run", "run"]
    assert told(cluster, job, "RESUBMIT_JOB_AUTOMATICALLY") == ["RESUBMIT_JOB_AUTOMATICALLY"]

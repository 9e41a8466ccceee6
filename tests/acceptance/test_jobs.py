"""The life of jobs on a cluster where nothing breaks: what a user types, and what he finds afterwards."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.acceptance.faults import Machine
from tests.acceptance.harness import Cluster, Person, wait_until


@pytest.fixture
def alice(alice: Person) -> Person:
    """She has a directory for what her jobs print."""
    alice.run("mkdir out")
    return alice


def fact(cluster: Cluster, job: int, column: str) -> str:
    """A column of a job."""
    return cluster.sql(f"SELECT {column} FROM jobs WHERE job_id = {job}")[0][0]


# -- what a job can do ------------------------------------------------------------------------------------------------


def test_a_job_reaches_all_its_nodes_with_oarsh(cluster: Cluster, alice: Person) -> None:
    job = alice.submit("-l nodes=3 'for node in $(uniq $OAR_NODEFILE); do oarsh $node hostname; done; id -un'")
    assert cluster.wait_for_end(job) == {job: ("Terminated", "0")}
    assert alice.run(f"cat OAR.{job}.stdout").split() == ["node-1", "node-2", "node-3", "alice"]
    assert alice.run(f"cat OAR.{job}.stderr") == ""


def test_a_node_file_has_a_line_for_each_core(cluster: Cluster, alice: Person) -> None:
    job = alice.submit("-l nodes=2/core=2 'cat $OAR_NODEFILE; oarprint host -P host,core -F \"% %\" | wc -l'")
    cluster.wait_for_end(job)
    assert alice.run(f"cat OAR.{job}.stdout").split() == ["node-1", "node-1", "node-2", "node-2", "2"]


def test_each_job_of_an_array_knows_its_part(cluster: Cluster, alice: Person) -> None:
    jobs = alice.submit_all(
        "--array 8 -l /resource_id=1 -O out/%jobid% "
        "'echo $((OAR_ARRAY_INDEX * OAR_ARRAY_INDEX)); test $OAR_ARRAY_ID -le $OAR_JOB_ID'"
    )
    assert cluster.wait_for_end(*jobs) == dict.fromkeys(jobs, ("Terminated", "0"))
    assert [alice.run(f"cat out/{job}").strip() for job in jobs] == [str(n * n) for n in range(1, 9)]


def test_a_job_finds_itself_in_its_environment(cluster: Cluster, alice: Person) -> None:
    job = alice.submit("-n 'my job' --project physics -l nodes=1,walltime=0:10 'env'")
    cluster.wait_for_end(job)
    seen = dict(line.split("=", 1) for line in alice.run(f"cat OAR.my\\ job.{job}.stdout").splitlines() if "=" in line)
    wanted = {
        "OAR_JOB_ID": str(job),
        "OAR_JOBID": str(job),
        "OAR_ARRAY_INDEX": "1",
        "OAR_JOB_NAME": "my job",
        "OAR_PROJECT_NAME": "physics",
        "OAR_USER": "alice",
        "OAR_WORKDIR": "/home/alice",
        "OAR_JOB_WALLTIME_SECONDS": "600",
        "HOME": "/home/alice",
        "USER": "alice",
        "PWD": "/home/alice",
    }
    assert {name: seen.get(name) for name in wanted} == wanted


def test_what_a_user_writes_is_data_everywhere(cluster: Cluster, alice: Person) -> None:
    text = """it's "quoted"; $(touch evil) `touch evil` \\ *"""
    command = alice.run(["python3", "-c", f"import shlex; print(shlex.quote('echo ' + shlex.quote({text!r})))"]).strip()
    job = alice.submit(f'-n "a\'b" -l /resource_id=1 -O out/said {command}')
    assert cluster.wait_for_end(job) == {job: ("Terminated", "0")}
    assert alice.run("cat out/said").rstrip("\n") == text
    assert "evil" not in alice.run("ls").split()


# -- how a job ends ---------------------------------------------------------------------------------------------------


def test_the_wait_status_of_the_command_is_kept(cluster: Cluster, alice: Person) -> None:
    good, bad, killed = (alice.submit(f"-l /resource_id=1 '{command}'") for command in ("true", "exit 7", "kill -9 $$"))
    assert cluster.wait_for_end(good, bad, killed) == {
        good: ("Terminated", "0"),
        bad: ("Terminated", str(7 << 8)),
        killed: ("Terminated", str(signal.SIGKILL)),
    }
    assert [cluster.cause(job) for job in (good, bad, killed)] == ["SUCCESS", "EXIT_STATUS", "SIGNAL"]


def test_a_job_that_cannot_begin_ends_in_error(cluster: Cluster, alice: Person) -> None:
    nowhere = alice.submit("-l /resource_id=1 -O /nowhere/out true")
    alice.run("mkdir gone")
    homeless = alice.submit("--hold -l /resource_id=1 -d /home/alice/gone true")
    alice.run(f"rmdir gone; oarresume {homeless}")
    states = cluster.wait_for_end(nowhere, homeless)
    assert {state for state, _ in states.values()} == {"Error"}
    assert "OUTPUT_FILES" in cluster.events(nowhere)
    assert "WORKING_DIRECTORY" in cluster.events(homeless)
    assert [cluster.cause(job) for job in (nowhere, homeless)] == ["OUTPUT_MISSING", "DIRECTORY_MISSING"]
    assert cluster.sql("SELECT count(*) FROM resources WHERE state <> 'Alive'") == [["0"]]


def test_a_job_is_killed_at_its_walltime(cluster: Cluster, alice: Person) -> None:
    job = alice.submit("-l nodes=2,walltime=0:10 'echo begun; sleep 1000; echo late'")
    wait_until(lambda: alice.attempt(f"cat OAR.{job}.stdout").out, "the command runs")
    cluster.wait_for_start(job)
    cluster.let_pass(590, job)
    assert cluster.wait_for_end(job) == {job: ("Error", "")}
    assert "WALLTIME" in cluster.events(job)
    assert cluster.cause(job) == "WALLTIME"
    record = json.loads(alice.run(f"oarstat --usage {job} -J"))[str(job)]
    assert (record["complete"], record["cores"], sorted(record["nodes"])) == (True, 4, ["node-1", "node-2"])
    assert alice.run(f"cat OAR.{job}.stdout") == "begun\n"
    assert f"Job {job} KILLED" in alice.run(f"cat OAR.{job}.stderr")
    ((noticed,),) = cluster.sql(
        f"SELECT e.date - j.start_time FROM event_logs e JOIN jobs j USING (job_id) WHERE job_id = {job}"
        " AND type = 'WALLTIME'"
    )
    assert int(noticed) >= 600


def test_nothing_of_a_job_survives_it(cluster: Cluster, alice: Person) -> None:
    here = 'setsid sh -c "trap : TERM HUP; sleep 1000" >/dev/null 2>&1 &'
    there = 'oarsh $(uniq $OAR_NODEFILE | tail -1) "setsid sleep 1000 >/dev/null 2>&1 &"'
    job = alice.submit(f"-l nodes=2 '{here} {there}; echo done'")
    assert cluster.wait_for_end(job) == {job: ("Terminated", "0")}
    for node in cluster.nodes:
        wait_until(Machine(cluster, node.name).is_clean, Machine(cluster, node.name).leftovers)


# -- steering ---------------------------------------------------------------------------------------------------------


def deletion(person: Person, job: int) -> tuple[int, str, str]:
    """What oardel says: exit code, standard output, standard error."""
    result = person.attempt(f"oardel {job}")
    return result.code, result.out, result.err


def registered(job: int) -> tuple[int, str, str]:
    """What it says when it has taken the request."""
    return (
        0,
        f"Deleting the job = {job} ...REGISTERED.\nThe job(s) [ {job} ] will be deleted in the near future.\n",
        "",
    )


def test_a_job_can_be_deleted_in_every_state(cluster: Cluster, alice: Person) -> None:
    running = alice.submit("-l nodes=4 'sleep 1000'")
    waiting = alice.submit("-l nodes=4 'touch evil'")
    held = alice.submit("--hold -l /resource_id=1 'touch evil'")
    cluster.wait_for_start(running)
    for job in (waiting, held, running):
        assert deletion(alice, job) == registered(job)
    assert cluster.wait_for_end(running, waiting, held) == dict.fromkeys((running, waiting, held), ("Error", ""))
    nothing_to_do = f"Deleting the job = {running} ...ENDED.\nThe job(s) [ {running} ] had ended before.\n"
    assert deletion(alice, running) == (0, nothing_to_do, "")
    assert fact(cluster, waiting, "message") == "Job killed by Leon directly"
    assert [cluster.cause(job) for job in (running, waiting, held)] == ["DELETED"] * 3
    assert "SEND_KILL_JOB" in cluster.events(running)
    assert "evil" not in alice.run("ls").split()


TRAP = 'trap "echo got it; exit 5" {}; echo ready; while :; do sleep 0.1; done'


@pytest.mark.parametrize(("options", "caught"), [("-c", "USR2"), ("-s USR1", "USR1")])
def test_a_signal_reaches_the_command(cluster: Cluster, alice: Person, options: str, caught: str) -> None:
    job = alice.submit(f"-l /resource_id=1 '{TRAP.format(caught)}'")
    wait_until(lambda: "ready" in alice.attempt(f"cat OAR.{job}.stdout").out, "the trap is set")
    assert "DONE" in alice.run(f"oardel {options} {job}")
    assert cluster.wait_for_end(job) == {job: ("Terminated", str(5 << 8))}
    assert "got it" in alice.run(f"cat OAR.{job}.stdout")
    assert {*cluster.events(job)} & {"CHECKPOINT_SUCCESS", "SIG_SUCCESS"}


@pytest.mark.parametrize(
    ("option", "cause", "sentence"),
    [
        ("-c", "CHECKPOINT_SIGNAL", "by signal SIGUSR2, with which OAR requested a checkpoint"),
        ("-s TERM", "SIGNAL_SENT", "by signal SIGTERM, which OAR sent on request: User alice requested the signal 15"),
    ],
)
def test_who_does_not_catch_a_signal_of_oar_is_told_whose_it_was(
    cluster: Cluster, alice: Person, option: str, cause: str, sentence: str
) -> None:
    job = alice.submit("-l /resource_id=1 'exec sleep 1000'")
    cluster.wait_for_start(job)
    alice.run(f"oardel {option} {job}")
    assert set(cluster.wait_for_end(job)) == {job}
    assert cluster.cause(job) == cause
    assert sentence in alice.run(f"oarstat --explain {job}")


def test_a_job_is_told_to_write_a_checkpoint_before_its_end(cluster: Cluster, alice: Person) -> None:
    job = alice.submit(f"--checkpoint 300 --signal 10 -l /resource_id=1,walltime=0:10 '{TRAP.format('USR1')}'")
    wait_until(lambda: "ready" in alice.attempt(f"cat OAR.{job}.stdout").out, "the trap is set")
    cluster.wait_for_start(job)
    cluster.let_pass(300, job)
    assert cluster.wait_for_end(job) == {job: ("Terminated", str(5 << 8))}
    assert "CHECKPOINT" in cluster.events(job)


# -- jobs and other jobs ----------------------------------------------------------------------------------------------


def begun(person: Person) -> int:
    """How many jobs have written down that they have begun."""
    return person.attempt("cat out/begun").out.count("begun\n")


def test_a_besteffort_job_gives_way(cluster: Cluster, alice: Person) -> None:
    lost = alice.submit("-t besteffort -l nodes=2 'sleep 1000'")
    kept = alice.submit("-t besteffort -t idempotent -l nodes=2 'echo begun >> out/begun; sleep 1000'")
    cluster.wait_for_start(lost, kept)
    wait_until(lambda: begun(alice) == 1, "the first one has begun")
    normal = cluster.as_user("bob").submit("-l nodes=4 true")
    assert cluster.wait_for_end(lost, kept, normal) == {
        lost: ("Error", ""),
        kept: ("Error", ""),
        normal: ("Terminated", "0"),
    }
    assert "BESTEFFORT_KILL" in cluster.events(lost)
    assert cluster.cause(lost) == "EVICTED"
    assert f"job {normal} needed its resources" in alice.run(f"oarstat --explain {lost}")
    assert cluster.copies(lost) == []
    (copy,) = cluster.copies(kept)
    cluster.wait_for_start(copy)
    wait_until(lambda: begun(alice) == 2, "the copy has begun")


# -- jobs of another kind ---------------------------------------------------------------------------------------------


def test_a_noop_job_books_and_runs_nothing(cluster: Cluster, alice: Person) -> None:
    job = alice.submit("-t noop -l nodes=2,walltime=1 'touch evil'")
    cluster.wait_for_start(job)
    assert len(alice.jobs(f"-j {job}")[job]["assigned_network_address"]) == 2
    alice.run(f"oardel {job}")
    assert cluster.wait_for_end(job)[job][0] == "Terminated"
    assert "evil" not in alice.run("ls").split()


@pytest.fixture
def deployable(cluster: Cluster) -> Iterator[None]:
    """Nodes on which users may install systems of their own."""
    set_deploy = "oarnodesetting -h node-1 -h node-2 -p deploy"
    cluster.as_user("root").run(f"{set_deploy}=YES")
    yield
    cluster.as_user("root").run(f"{set_deploy}=NO")


#: A program that leaves session, parent and environment behind.
ESCAPE = "(setsid env -i sleep 98765 &)"


@pytest.mark.usefixtures("deployable")
@pytest.mark.parametrize("kind", ["cosystem", "deploy"])
def test_a_job_for_a_frontend_runs_there_with_the_nodes_it_booked_and_leaves_no_process(
    cluster: Cluster, alice: Person, kind: str
) -> None:
    left = 'pgrep -fx "sleep 98765"'
    work = f"hostname; uniq $OAR_NODEFILE; {ESCAPE}; until {left}; do sleep 0.1; done; cat /proc/self/cgroup"
    job = alice.submit(f"-t {kind} -l nodes=2 '{work}'")
    assert cluster.wait_for_end(job) == {job: ("Terminated", "0")}
    wait_until(lambda: alice.attempt(left).code == 1, what="nothing of the job runs on the server")
    host, first, second, *groups = alice.run(f"cat OAR.{job}.stdout").splitlines()
    assert host == "server"
    assert {first, second} < {node.name for node in cluster.nodes}
    assert f"/oar_commands/alice_{job}/payload" in "".join(groups)
    find = f"find /sys/fs/cgroup -type d -path '*/oar_commands/alice_{job}'"
    wait_until(lambda: not cluster.as_user("root").run(find), what="the group of the job is removed")
    killed = alice.submit(f"-t {kind} -l nodes=1 '{ESCAPE}; sleep 1000'")
    wait_until(lambda: alice.attempt(left).code == 0, what="the job has begun")
    alice.run(f"oardel {killed}")
    cluster.wait_for_state(killed, "Error")
    wait_until(lambda: alice.attempt(left).code == 1, what="nothing of the killed job runs on the server")

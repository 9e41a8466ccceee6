"""Interactive jobs, shells in running jobs, job keys: what people type, at terminals and in scripts, and see."""

from __future__ import annotations

import re

import pytest

from tests.acceptance.faults import LATE, Step, stops_in
from tests.acceptance.harness import Cluster, Person, wait_until
from tests.acceptance.terminal import INTERRUPT, SUSPEND, Terminal

PROMPT = r"\$ "
ONE = "-l /resource_id=1"
ON_NODE_1 = f"-p \"network_address='node-1'\" {ONE}"
#: Every core of the cluster, so that whoever comes next has to wait.
ALL = "-l /nodes=4"


def number(terminal: Terminal) -> int:
    """The number of the job that was submitted at a terminal."""
    return int(terminal.expect(r"OAR_JOB_ID=(\d+)\n")[1])


def running(cluster: Cluster, person: Person, arguments: str) -> int:
    """Submit a job and wait until it runs."""
    job = person.submit(arguments)
    cluster.wait_for_start(job)
    return job


# -- the session ------------------------------------------------------------------------------------------------------


def test_a_terminal_is_as_in_any_shell_and_its_end_is_the_end_of_the_job(cluster: Cluster, alice: Person) -> None:
    with Terminal(alice, f"oarsub -I -n fem {ON_NODE_1}", {"TERM": "vt100"}) as terminal:
        job = number(terminal)
        terminal.expect(r"# Interactive mode: waiting\.\.\.\n# Starting\.\.\.\n")
        terminal.expect(PROMPT)
        terminal.say("tty; stty size; echo $TERM:$OAR_JOB_NAME:$(hostname):$PWD; uniq $OAR_NODEFILE")
        terminal.expect(r"/dev/pts/\d+\n24 80\nvt100:fem:node-1:/home/alice\nnode-1\n")
        terminal.resize(40, 132)
        terminal.say("stty size")
        terminal.expect(r"40 132\n")
        terminal.say("echo be''gin; sleep 1000; echo $?")
        terminal.expect("begin")
        wait_until(lambda: alice_runs(cluster, "sleep"), "the command runs")
        terminal.press(INTERRUPT)
        terminal.expect(PROMPT)
        terminal.say("sleep 1000")
        terminal.expect("sleep 1000")
        wait_until(lambda: alice_runs(cluster, "sleep"), "the command runs")
        terminal.press(SUSPEND)
        terminal.expect(r"Stopped +sleep 1000")
        terminal.say("exit; exit 3")
        terminal.expect(r"There are stopped jobs")
        terminal.expect(rf"Disconnected from OAR job {job}\.\n")
        assert terminal.exit() == 0
    assert cluster.wait_for_state(job, "Terminated") == "Terminated"
    wait_until(lambda: not alice_runs(cluster, "sleep"), "nothing of it runs")


def alice_runs(cluster: Cluster, name: str) -> bool:
    """Whether Alice has such a process on the first node."""
    return not cluster.node("node-1").as_user("root").attempt(f"pgrep -u alice -x {name}").code


def test_a_script_may_speak_to_the_shell(cluster: Cluster, alice: Person) -> None:
    said = alice.attempt(f"oarsub -I {ONE}", stdin="echo $OAR_JOB_ID in $0; cat; exit 7\nthe rest\n")
    job = int(re.findall(r"OAR_JOB_ID=(\d+)", said.out)[0])
    assert (said.code, said.err) == (0, "")
    assert said.out.endswith(f"{job} in -bash\nthe rest\nDisconnected from OAR job {job}.\n")
    assert alice.attempt(f"oarsub -I --propagate-exit {ONE}", stdin="exit 7\n").code == 7
    cluster.wait_for_state(job, "Terminated")


def test_windows_of_the_job_open_on_the_display_of_the_user(cluster: Cluster, alice: Person) -> None:
    display = (
        "import os, socket; os.umask(0); os.makedirs('/tmp/.X11-unix', exist_ok=True)\n"
        "listener = socket.socket(socket.AF_UNIX); listener.bind('/tmp/.X11-unix/X77'); listener.listen(1)\n"
        "open('ready', 'w'); client, _ = listener.accept(); said = client.recv(1000); client.sendall(bytes(8))\n"
        "open('cookie', 'w').write(said[-16:].hex())\n"
    )
    window = (
        "import os, socket, struct, subprocess; display = os.environ['DISPLAY']\n"
        "key = bytes.fromhex(subprocess.check_output(['xauth', 'list', display], text=True).split()[2])\n"
        "host, _, rest = display.partition(':'); name = b'MIT-MAGIC-COOKIE-1'\n"
        "server = socket.create_connection((host, 6000 + int(rest.partition('.')[0])))\n"
        "server.sendall(struct.pack('<BxHHHHxx', 108, 11, 0, len(name), len(key)) + name + bytes(2) + key)\n"
        "print('drawn' if server.recv(8) == bytes(8) else 'refused')\n"
    )
    cookie = "00112233445566778899aabbccddeeff"
    alice.run("cat > display.py", stdin=display)
    alice.run("cat > window.py", stdin=window)
    alice.run(f"touch ~/.Xauthority; xauth -q add $(hostname)/unix:77 MIT-MAGIC-COOKIE-1 {cookie}")
    alice.run("python3 display.py >/dev/null 2>&1 & while [ ! -e ready ]; do sleep 0.05; done")
    said = alice.run(f"oarsub -I -v {ONE}", stdin="python3 window.py\n", env={"DISPLAY": ":77"})
    assert "# Initialize X11 forwarding...\ndrawn\n" in said
    assert alice.run("cat cookie") == cookie
    assert "DISPLAY" not in alice.run(f"oarsub -I {ONE}", stdin="env\n")


# -- before the session -----------------------------------------------------------------------------------------------


def test_who_waits_sees_when_it_will_start_and_may_leave(cluster: Cluster, alice: Person) -> None:
    running(cluster, cluster.as_user("bob"), f"{ALL},walltime=0:30 'sleep 1000'")
    with Terminal(alice, f"oarsub -I {ONE}") as terminal:
        job = number(terminal)
        date = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
        terminal.expect(rf"# \[{date}\] Start prediction: {date} \(R=1,W=2:0:0,J=I.*\)\n")
        terminal.press(INTERRUPT)
        terminal.expect(rf"# Caught Interrupt \(\^C\), Deleting the job {job}\.\.\.\nJob\(s\) deleted\.\n")
        assert terminal.exit() == 1
    cluster.wait_for_state(job, "Error")


def test_who_waits_sees_for_what(cluster: Cluster, alice: Person) -> None:
    first = alice.submit(f"--hold {ONE} true")
    with Terminal(alice, f"oarsub -I -a {first} {ONE}") as waiting, Terminal(alice, f"oarsub -I --hold {ONE}") as held:
        waiting.expect(rf"Start prediction: undefined \(.*{first}.*\)")
        job = number(held)
        held.expect(r"# Start prediction: undefined \(Hold\)\n")
        alice.run(f"oarresume {job} {first}")
        for terminal in (held, waiting):
            terminal.expect(PROMPT)
            terminal.say("exit")
            assert terminal.exit() == 0


def test_a_job_that_is_deleted_ends_the_waiting(cluster: Cluster, alice: Person) -> None:
    running(cluster, cluster.as_user("bob"), f"{ALL} 'sleep 1000'")
    with Terminal(alice, f"oarsub -I {ONE}") as terminal:
        job = number(terminal)
        terminal.expect("Start prediction")
        alice.run(f"oardel {job}")
        terminal.expect("# JOB KILLED\n")
        assert terminal.exit() == 11
    cluster.wait_for_state(job, "Error")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("what", "told", "code"),
    [("crash", r"# ERROR: .*\n", 11), ("sshd-stop", r"# Error: an unknown error occured \(255\)\.\n", 21)],
)
def test_a_node_that_cannot_be_reached_ends_the_job(
    cluster: Cluster, alice: Person, what: str, told: str, code: int
) -> None:
    alice.run(f"oarsub --wait {ON_NODE_1} true")  # the server is connected to the node
    with Terminal(alice, f"oarsub -I --hold {ON_NODE_1}") as terminal:
        job = number(terminal)
        with stops_in(cluster) as stops:  # before it is launched Finaud would notice, and it would wait
            stops.hold({job: Step("Launching", LATE)})
            alice.run(f"oarresume {job}")
            stops.wait_for([job])
            cluster.node("node-1").do(what)
        terminal.expect(told)
        assert terminal.exit() == code
    cluster.wait_for_state(job, "Terminated", "Error")


# -- what is lost -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["window", "client", "command"])
def test_a_session_that_is_lost_ends_its_job(cluster: Cluster, alice: Person, how: str) -> None:
    root = cluster.as_user("root")
    with Terminal(alice, f"oarsub -I {ONE}") as terminal:
        job = number(terminal)
        terminal.expect(PROMPT)
        terminal.say("trap '' HUP; echo trap-$((1)); sleep 1000")
        terminal.expect("trap-1")  # not the echo of what was typed: the shell has read it
        if how == "window":
            terminal.close()
        elif how == "client":
            root.run("pkill -KILL -u oar -f '^/usr/bin/ssh .* -t '")
            terminal.expect(r"# Error: an unknown error occured \(137\)\.\n")
            assert terminal.exit() == 21
        else:
            root.run("pkill -KILL -u oar -f '/oarsub -I'")
        cluster.wait_for_state(job, "Terminated", "Error")
    ssh = "pgrep -u oar -f '^/usr/bin/ssh .*sessions'"
    wait_until(lambda: not root.attempt(ssh).out, "the session's ssh has ended")
    assert ("LOST_SESSION" in cluster.events(job)) is (how != "command")


def test_a_job_for_which_nobody_waits_any_more_is_deleted(cluster: Cluster, alice: Person) -> None:
    running(cluster, cluster.as_user("bob"), f"{ALL} 'sleep 1000'")
    with Terminal(alice, f"oarsub -I {ONE}") as terminal:
        job = number(terminal)
        terminal.expect("Start prediction")
        cluster.as_user("root").run("pkill -KILL -u oar -f '/oarsub -I'")
        assert terminal.exit() != 0
    alice.run(f"oarhold {job}")
    cluster.wait_for_state(job, "Error")
    assert "LOST_SESSION" in cluster.events(job)


def test_the_end_of_the_job_is_told_with_its_reason(cluster: Cluster, alice: Person) -> None:
    with Terminal(alice, f"oarsub -I {ONE},walltime=0:10") as short, Terminal(alice, f"oarsub -I {ONE}") as deleted:
        over, job = number(short), number(deleted)
        for terminal in (short, deleted):
            terminal.expect(PROMPT)
        cluster.let_pass(600, over)
        cluster.as_user("root").run(f"oardel {job}")
        deleted.expect(r"# Error: job was terminated\.\n# The administrator root deleted it .*\nDisconnected")
        assert deleted.exit() == 19
        short.expect(r"# Error: job was terminated\.\n# It reached its walltime: .*\nDisconnected")
        assert short.exit() == 19


# -- further sessions -------------------------------------------------------------------------------------------------


def test_one_may_look_into_a_running_job_several_times_until_it_ends(cluster: Cluster, alice: Person) -> None:
    job = running(cluster, alice, f"{ON_NODE_1} 'sleep 1000'")
    assert alice.run("oarconnect --help").startswith("Usage: oarconnect [OPTIONS] [JOB_ID]\n")
    with Terminal(alice, "oarsub -C") as first, Terminal(alice, f"oarconnect {job}") as second:
        for terminal in (first, second):
            terminal.expect(PROMPT)
            terminal.say("echo $OAR_JOB_ID on $(hostname); pgrep -x sleep | wc -l")
            terminal.expect(rf"{job} on node-1\n1\n")
        first.say("exit")
        first.expect(rf"Disconnected from OAR job {job}\.\n")
        assert first.exit() == 0
        assert cluster.state(job) == "Running"
        alice.run(f"oardel {job}")
        second.expect(r"# Error: job was terminated\.\n# Its owner alice deleted it \(oardel\)\.\n")
        assert second.exit() == 19


def test_a_reservation_without_command_is_entered(cluster: Cluster, alice: Person) -> None:
    job = running(cluster, alice, f"-r now {ONE},walltime=0:10")
    said = alice.run(f"oarsub -C {job}", stdin="echo $OAR_JOB_ID; nproc\n")
    assert said == f"{job}\n1\nDisconnected from OAR job {job}.\n"
    assert cluster.state(job) == "Running"
    noop = running(cluster, alice, f"-t noop {ONE}")
    assert f"Running jobs are: {job}, {noop}" in alice.run("oarsub -C")


# -- from outside, by number and by key -------------------------------------------------------------------------------


def test_jobs_are_reached_by_number_and_by_key_and_kept_apart(cluster: Cluster, alice: Person) -> None:
    first = running(cluster, alice, f"{ON_NODE_1} 'sleep 1000'")
    second = running(cluster, alice, f"-k -e key.%jobid% {ON_NODE_1} 'sleep 1000'")
    where = "oarsh node-1 'echo $OAR_JOB_ID; cat /proc/self/cpuset'"
    for job in (first, second):
        assert alice.run(where, env={"OAR_JOB_ID": str(job)}) == f"{job}\n/oar/alice_{job}\n"
    by_key = {"OAR_JOB_KEY_FILE": f"/home/alice/key.{second}", "OAR_JOB_ID": str(first)}
    assert alice.run(where, env=by_key).splitlines()[0] == str(second)
    assert alice.run(f"stat -c %a key.{second}") == "600\n"
    alice.run("echo content > file; oarcp -q file node-1:/home/alice/copy", env=by_key)
    assert alice.run("cat copy") == "content\n"
    bob = cluster.as_user("bob")
    assert "not yours" in bob.attempt("oarsh node-1 true", env={"OAR_JOB_ID": str(first)}).err
    assert bob.attempt("oarsh node-1 true", env=by_key).code == 3
    alice.run(f"oardel {second}")
    cluster.wait_for_state(second, "Error")
    assert alice.attempt("oarsh node-1 true", env=by_key).code == 255
    assert cluster.state(first) == "Running"


def test_a_key_of_one_s_own_opens_all_nodes_of_the_job(cluster: Cluster, alice: Person) -> None:
    alice.run("ssh-keygen -q -t ed25519 -N '' -f own")
    job = running(cluster, alice, "-k -i own -l /nodes=2 'sleep 1000'")
    nodes = cluster.sql(
        "SELECT DISTINCT r.network_address FROM assigned_resources a JOIN resources r USING (resource_id) "
        f"JOIN moldable_job_descriptions m ON m.moldable_id = a.moldable_job_id WHERE m.moldable_job_id = {job}"
    )
    for (node,) in nodes:
        assert alice.run(f"oarsh -i own {node} hostname") == f"{node}\n"
    again = alice.attempt(f"oarsub -k -i own {ONE} true")
    assert (again.code, "Another job is using the same ssh keys" in again.err) == (8, True)


def test_jobs_that_share_a_name_of_cpuset_share_it_and_end_alone(cluster: Cluster, alice: Person) -> None:
    jobs = [running(cluster, alice, f"--force_cpuset_name shared {ON_NODE_1} 'sleep 1000'") for _ in range(2)]
    for job in jobs:
        seen = alice.run("oarsh node-1 'cat /proc/self/cpuset; nproc'", env={"OAR_JOB_ID": str(job)})
        assert seen == "/oar/alice_shared\n2\n"
    alice.run(f"oardel {jobs[0]}")
    cluster.wait_for_state(jobs[0], "Error")
    assert alice.run(f"oarsub -C {jobs[1]}", stdin="nproc\n").startswith("1\n")

"""What makes OAR pleasant in scripts and on terminals, on the real cluster: waiting, secrets, counting."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from tests.acceptance.harness import PATIENCE, Cluster, Person, Result, wait_until

SECRET = "Xk29-not-for-others"


def in_background(person: Person, command: str) -> tuple[threading.Thread, list[Result]]:
    """Type a command and go on; what came of it will be in the list."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(person.attempt(command)))
    thread.start()
    return thread, results


def test_who_waits_hears_the_end_although_the_server_is_restarted(cluster: Cluster, alice: Person) -> None:
    thread, results = in_background(
        alice, "oarsub --wait --parsable -l core=1 'while [ ! -e ~/go ]; do sleep 0.1; done; exit 4'"
    )
    job = wait_until(lambda: max(alice.jobs("-u alice"), default=0))
    cluster.wait_for_state(job, "Running")
    cluster.server.do("stop")
    alice.run("touch ~/go")
    cluster.server.do("start")
    thread.join(PATIENCE)
    assert (results[0].code, results[0].out.split()) == (4, [str(job)])


def test_an_interrupted_wait_may_end_its_job(cluster: Cluster, alice: Person) -> None:
    interrupt = "while [ ! -e ~/go ]; do sleep 0.1; done; printf '\\003'; while [ ! -e ~/seen ]; do sleep 0.1; done"
    command = "oarsub --wait=kill --parsable -l core=1 sleep\\ 600; echo ended with $? > ~/seen"
    thread, _ = in_background(alice, f"({interrupt}) | script -qec '{command}' /dev/null")
    job = wait_until(lambda: max(alice.jobs("-u alice"), default=0))
    cluster.wait_for_state(job, "Running")
    alice.run("touch ~/go")
    thread.join(PATIENCE)
    assert alice.run("cat ~/seen") == "ended with 1\n"
    cluster.wait_for_state(job, "Error", "Terminated")
    assert cluster.cause(job) == "DELETED"


def test_what_is_given_to_a_job_stays_between_the_user_and_his_job(cluster: Cluster, alice: Person) -> None:
    script = f"#!/bin/sh\\n# {SECRET}\\nprintenv TOKEN\\nsleep 600\\n"
    job = int(
        alice.run(
            f"export TOKEN={SECRET}; printf '{script}' | oarsub --parsable --env TOKEN -S -l nodes=1 -O token -- - x"
        )
    )
    cluster.wait_for_state(job, "Running")
    wait_until(lambda: alice.attempt("cat token").out == f"{SECRET}\n")
    node = cluster.node(alice.jobs(f"-j {job}")[job]["assigned_network_address"][0])
    assert f"alice_{job}.script" in node.as_user("root").run("ls /var/lib/oar")
    looks = {
        cluster.as_user("bob"): (
            f"oarstat -f -j {job}",
            f"oarstat -J -j {job}",
            f"oarstat --sql \"job_env LIKE '%{SECRET}%'\"",
            "ps -eo args",
        ),
        node.as_user("bob"): (
            "ps -eo args",
            f"cat /var/lib/oar/alice_{job}.script /var/lib/oar/alice_{job}.given",
        ),
    }
    for person, commands in looks.items():
        for look in commands:
            assert SECRET not in person.attempt(look).out, look
    logs = Path("/var/lib/oar-room") / cluster.room / "logs"
    found = subprocess.run(["grep", "-rl", SECRET, str(logs)], capture_output=True, text=True, check=False)
    assert found.stdout == ""
    alice.run(f"oardel {job}")


@pytest.mark.parametrize(
    "command",
    [
        "oarstat --watch=1",
        "oarsub --wait=kill -l core=1 'sleep 600'",
        "oarsub -I -l core=1 <> ~/quiet",  # the shell runs, and its stdin stays open
        "oarsub -I -a $(oarsub --parsable --hold -l core=1 true)",  # the job waits
    ],
)
def test_who_started_a_command_that_stays_can_end_it(cluster: Cluster, alice: Person, command: str) -> None:
    alice.run("mkfifo ~/quiet")
    assert alice.attempt(f"timeout 2 {command}").code == 124
    alice.attempt("oardel $(oarstat -u --states H --fields id --no-header)")
    program = command.split(maxsplit=1)[0]
    wait_until(lambda: f"/usr/lib/oar/{program}" not in alice.run("ps -eo args"), f"{program} is gone")
    wait_until(lambda: not alice.jobs(), "the job that was waited for has ended")


def test_consumption_is_counted_and_shown(cluster: Cluster, alice: Person) -> None:
    alice.run("oarsub --wait -l nodes=1,walltime=0:10 --project counted 'sleep 1.5'")
    root = cluster.as_user("root")
    assert "[ACCOUNTING] Treating job" in root.run("oaraccounting")
    assert root.run("oaraccounting") == ""
    days = "date +%F -d"  # the walltime may reach into the day to come
    shown = alice.run(f'oarstat --accounting "$({days} yesterday), $({days} "2 days")" -u alice')
    assert "counted:" in shown
    asked = next(line for line in shown.partition("counted:")[2].splitlines() if "Asked:" in line)
    assert asked.split()[1] == "1200"  # two cores for ten minutes


def test_the_shells_find_the_completion_and_man_the_manual(alice: Person) -> None:
    alice.run("bash -c '. /usr/share/bash-completion/completions/oarstat; complete -p oarstat oardel oarsub'")
    assert "--explain" in alice.run("fish -c 'complete -C \"oarstat --expl\"'")
    alice.run("cd /usr/share/man && cat man1/oarsub.1 man1/oarconnect.1 man5/oar.conf.5 man8/oarnodesetting.8")

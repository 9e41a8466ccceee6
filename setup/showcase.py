"""Start a complete cluster on this computer, run a user's work on it, show the results, and remove everything.

  setup/demo                  start, work, show, stop
  setup/demo --keep           leave the cluster up
  setup/demo --nodes 8        more nodes
  setup/demo shell [USER]     a shell on the cluster that was kept (users: alice, bob, carol, oar, root)
  setup/demo stop             end it

The cluster is a room of setup/cluster, which can do much more: see setup/cluster --help.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOM = os.environ.get("OAR_ROOM", "demo")
TOOL = Path(__file__).resolve().parent / "cluster"
_DEADLINE = 60.0

_HELLO = """\
#!/bin/bash
# Say hello from every node of this job, by its name in the node file.
for node in $(uniq "$OAR_NODEFILE"); do
    oarsh "$node" 'echo "hello from $(hostname), I am $(id -un)"'
done
"""
_PRIMES = """\
#!/usr/bin/python3
# Each job of the array counts the primes of its own 2500 numbers.
import os

first = (int(os.environ["OAR_ARRAY_INDEX"]) - 1) * 2500
print(sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(first, 2), first + 2500)))
"""
_ARRAY_SIZE = 8
_PRIMES_BELOW_20000 = 2262
_WALLTIME = 3


class DemoError(Exception):
    """A part of the cluster does not work; the text has one or a few lines."""


@dataclass(frozen=True)
class Finding:
    """Result of a part of the demonstration."""

    what: str
    is_good: bool
    detail: str


def say(text: str) -> None:
    """Print what happens next."""
    print(f"\n# {text}", flush=True)


def tool(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run setup/cluster on the room of the demonstration."""
    command = [str(TOOL), "--room", ROOM, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=300)


def quiet(user: str, command: str, stdin: str = "") -> str:
    """Run a command on the frontend without showing it."""
    done = tool("run", user, command, stdin=stdin)
    if done.returncode:
        raise DemoError(f"{user}$ {command}\n{(done.stdout + done.stderr).strip()}")
    return done.stdout


def typed(user: str, command: str) -> str:
    """Run a command on the frontend and show it with its output."""
    print(f"{user}$ {command}", flush=True)
    printed = quiet(user, command)
    print("".join(f"  {line}\n" for line in printed.splitlines()), end="", flush=True)
    return printed


def submit(command: str, user: str = "alice") -> list[int]:
    """Submit as a user; return the job ids."""
    printed = typed(user, command)
    return [int(line.partition("=")[2]) for line in printed.splitlines() if line.startswith("OAR_JOB_ID=")]


def jobs(numbers: Sequence[int]) -> dict[int, dict[str, object]]:
    """Return the records of jobs from oarstat."""
    asked = " ".join(f"-j {number}" for number in numbers)
    known: dict[str, dict[str, object]] = json.loads(quiet("alice", f"oarstat -J {asked}"))
    return {int(number): facts for number, facts in known.items()}


def wait_for(numbers: Sequence[int], states: Sequence[str]) -> dict[int, dict[str, object]]:
    """Wait until all these jobs are in one of the states."""
    known: dict[int, dict[str, object]] = {}

    def are_there() -> bool:
        known.update(jobs(numbers))
        return all(known.get(number, {}).get("state") in states for number in numbers)

    wait_until(
        are_there,
        lambda: f"jobs in {' or '.join(states)}; they are { ({n: facts.get('state') for n, facts in known.items()}) }",
    )
    return known


def wait_until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """Poll until a condition is true.  Raises DemoError with its description at the timeout."""
    end = time.monotonic() + _DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise DemoError(f"not within {_DEADLINE:.0f} s: {what()}")
        time.sleep(0.1)


def events(number: int) -> str:
    """Return the events of a job."""
    return quiet("alice", f"oarstat -e -j {number}")


# -- the parts -----------------------------------------------------------------------------------------------------


def work(nodes: int) -> list[Finding]:
    """Submit all jobs, show them while they run, then check the results."""
    for name, text in (("hello.sh", _HELLO), ("primes.py", _PRIMES)):
        quiet("alice", f"cat > {name}; chmod +x {name}", stdin=text)
    several = min(3, nodes)
    say(f"alice submits: a job on {several} nodes at once, an array that counts primes, two jobs that sleep too long.")
    parallel = submit(f"oarsub -n hello -l nodes={several},walltime=0:5 ./hello.sh")[0]
    array = submit(f"oarsub -n primes -l core=1,walltime=0:5 --array {_ARRAY_SIZE} ./primes.py")
    unwanted = submit("oarsub -n unwanted -l core=1,walltime=1 'sleep 3600'")[0]
    too_long = submit(f"oarsub -n too-long -l core=1,walltime=0:0:{_WALLTIME} 'sleep 3600'")[0]
    say("The queue now:")
    typed("alice", "oarstat")
    wait_for([unwanted], ["Running"])
    say("What runs now, and the states of the cores of each node:")
    typed("alice", "oarstat -u alice")
    typed("alice", "oarnodes -s")
    say("alice deletes one of the sleepers; the other reaches its walltime and is ended.")
    typed("alice", f"oardel {unwanted}")
    findings = [
        look_at_parallel(parallel, several),
        look_at_array(array),
        look_at_ended(unwanted, "the deleted job ended", "FRAG_JOB_REQUEST"),
        look_at_ended(too_long, f"the job with {_WALLTIME} s of walltime was ended", "WALLTIME"),
    ]
    ask_why(too_long, array[0])
    return [*findings, open_a_shell(), *wait_in_the_queue(nodes), *reserve(nodes)]


def look_at_pages(address: str, nodes: int) -> Finding:
    """Check that the pages and the API show this cluster."""
    page = fetched(f"{address}/ui/")
    names = [node["name"] for node in json.loads(fetched(f"{address}/v1/nodes"))["items"]]
    good = page.lstrip().lower().startswith("<!doctype html>") and len(names) == nodes
    return Finding(f"a browser sees the cluster under {address}/ui/", good, f"nodes there: {', '.join(names)}")


def fetched(url: str) -> str:
    """Return the body of a URL, fetched like a browser of this computer."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=_DEADLINE) as answer:
            return str(answer.read().decode())
    except urllib.error.URLError as error:
        raise DemoError(f"{url}: {error}") from None


def open_a_shell() -> Finding:
    """Open a shell for alice on a node; a pipe provides her input."""
    say("alice has a shell on a node, for what she wants to look at herself:")
    said = typed(
        "alice", "echo 'echo I am on $(hostname), in job $OAR_JOB_ID' | oarsub -n look -I -l core=1,walltime=0:5"
    )
    answer = next((line for line in said.splitlines() if line.startswith("I am on node-")), said)
    return Finding("an interactive job gave her a shell on a node", answer.startswith("I am on node-"), answer)


def look_at_parallel(job: int, several: int) -> Finding:
    """Check that every node said hello."""
    facts = wait_for([job], ["Terminated", "Error"])[job]
    path = f"/home/alice/{facts['stdout_file']}"
    said = quiet("alice", f"cat {path}").splitlines()
    said += quiet("alice", f"cat /home/alice/{facts['stderr_file']}").splitlines()
    good = facts["state"] == "Terminated" and len({line for line in said if line.endswith("I am alice")}) == several
    return Finding(f"job {job} reached {several} nodes", good, "\n           ".join([f"{path}:", *said]))


def look_at_array(array: Sequence[int]) -> Finding:
    """Check that the parts add up to the known number of primes."""
    known = wait_for(array, ["Terminated", "Error"])
    paths = [f"/home/alice/{known[job]['stdout_file']}" for job in array]
    counts = quiet("alice", f"cat {' '.join(paths)}").split()
    total = sum(int(count) for count in counts if count.isdigit())
    detail = f"{paths[0]} ... {paths[-1]}: {' + '.join(counts)} = {total}, expected {_PRIMES_BELOW_20000}"
    return Finding(f"array {array[0]} counted the primes below 20000", total == _PRIMES_BELOW_20000, detail)


def look_at_ended(job: int, what: str, event: str) -> Finding:
    """Check the event that ended a job."""
    facts = wait_for([job], ["Terminated", "Error"])[job]
    told = [line for line in events(job).splitlines() if event in line]
    return Finding(f"{what} (job {job})", bool(told), f"state {facts['state']}; {told[0] if told else events(job)}")


def wait_in_the_queue(nodes: int) -> list[Finding]:
    """Show a job of alice that waits for resources of bob: forecast, reason, and start when they are free."""
    say("bob takes every node for ten minutes.  alice asks, before she submits, when she would get two cores:")
    held = submit(f"oarsub -n everything -l nodes={nodes},walltime=0:10 'sleep 3600'", user="bob")[0]
    wait_for([held], ["Running"])
    forecast = typed("alice", "oarsub --estimate -l core=2,walltime=0:5 ./hello.sh")
    say("She submits it all the same.  Each waiting job has a predicted start and a reason:")
    waiting = submit("oarsub -n next -l core=2,walltime=0:5 ./hello.sh")[0]
    explain = f"oarstat --explain {waiting}"
    wait_until(lambda: "Why:" in quiet("alice", explain), lambda: f"a reason why job {waiting} waits")
    typed("alice", "oarstat --start")
    reason = typed("alice", explain)
    say("bob ends his job early; the plan is made again at once:")
    typed("bob", f"oardel {held}")
    wait_for([waiting], ["Terminated", "Error"])
    told = typed("alice", explain)
    started = [line.strip() for line in told.splitlines() if "Started:" in line]
    return [
        Finding(
            "the forecast and the reason of a waiting job name what holds it up",
            f"job {held}" in forecast and f"job {held}" in reason,
            next((line for line in forecast.splitlines() if f"job {held}" in line), forecast),
        ),
        Finding(f"job {waiting} started when its place was free", bool(started), "; ".join(started) or told),
    ]


def reserve(nodes: int) -> list[Finding]:
    """Show an advance reservation of alice, a proposal for bob, a job inside, and the bill."""
    say("alice and bob may make advance reservations.  alice reserves every node for ten minutes, for a course:")
    quiet("root", "oaruserset -a alice,bob arusers")
    first = reserved(typed("alice", f"qrsub -N course -d 600 -l /network_address={nodes}"))
    typed("alice", "qrstat")
    say(
        "bob wants a node for half an hour, from now on.  He is refused, told why, and takes the date that is proposed:"
    )
    refusal = refused("bob", "qrsub -d 1800 -l /network_address=1")
    proposal = re.search(r"\(-a ([0-9.]+)\)", refusal)
    second = reserved(typed("bob", f"qrsub -a {proposal[1] if proposal else 'now'} -d 1800 -l /network_address=1"))
    say("A job of alice runs inside; then she gives back what she does not need, and looks at the bill:")
    job = submit("oarsub --ar course -l core=1,walltime=0:1 'echo inside $OAR_AR_NAME; sleep 2'")[0]
    facts = wait_for([job], ["Terminated", "Error"])[job]
    said = quiet("alice", f"cat /home/alice/{facts['stdout_file']}").strip()
    typed("alice", f"qrdel {first}")
    days = '"$(date -d yesterday +%F), $(date -d tomorrow +%F)"'
    bill = typed("alice", f"oarstat --accounting {days} --ar {first}").splitlines()[-1].strip()
    typed("bob", f"qrdel {second}")
    return [
        Finding(
            f"bob was refused beside the advance reservation {first}, and granted {second} at the date proposed to him",
            f"advance reservation {first}" in refusal and first < second,
            refusal.splitlines()[1].strip(),
        ),
        Finding(f"job {job} ran in the advance reservation {first}", said == "inside course", said),
        Finding(
            "the bill names alice, one job, and what was reserved", bill.split()[:3] == [str(first), "alice", "1"], bill
        ),
    ]


def reserved(printed: str) -> int:
    """Return the id of a granted reservation.  Raises DemoError."""
    found = re.fullmatch(r"Your reservation (\d+) has been granted\n", printed)
    if not found:
        raise DemoError(f"no reservation: {printed.strip()}")
    return int(found[1])


def refused(user: str, command: str) -> str:
    """Run a command that has to be refused, and show it with its output."""
    print(f"{user}$ {command}", flush=True)
    done = tool("run", user, command)
    if not done.returncode:
        raise DemoError(f"{user}$ {command}\nwas not refused: {done.stdout.strip()}")
    print("".join(f"  {line}\n" for line in done.stderr.splitlines()), end="", flush=True)
    return done.stderr


def ask_why(ended: int, array: int) -> None:
    """Show why a job ended and the resources that jobs used."""
    say("Why did a job end, and what is to be done?  What did jobs use?")
    typed("alice", f"oarstat --explain {ended}")
    typed("alice", f"oarstat --usage --array {array}")


# -- the program ---------------------------------------------------------------------------------------------------


def is_running() -> bool:
    """Return whether a cluster was kept."""
    return tool("status").returncode == 0


def start(nodes: int, *, keep: bool) -> None:
    """Start the room; without --keep it ends with this process in any case."""
    say(f"Starting a cluster: one server, which is also the frontend, and {nodes} nodes; users alice, bob, carol.")
    began = time.monotonic()
    lease = [] if keep else ["--while", str(os.getpid())]
    settings = [
        "--set",
        "WALLTIME_CHANGE_ENABLED=yes",
        "--set",
        "WALLTIME_MAX_INCREASE=-1",
    ]  # so that each chapter of the user guide can be tried
    command = [str(TOOL), "--room", ROOM, "start", "--nodes", str(nodes), *settings, *lease]
    if code := subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode:
        raise SystemExit(code)
    print(f"({time.monotonic() - began:.1f} s)")


def open_pages() -> str:
    """Start the REST API in the room if needed, and publish it on this computer; return its address."""
    known: list[str] = json.loads(tool("status").stdout)["addresses"]
    if known:
        return known[0]
    for step in (("api", "start"), ("publish",)):
        done = tool(*step)
        if done.returncode:
            raise DemoError(f"setup/cluster {' '.join(step)}: {done.stderr.strip()}")
    return done.stdout.strip()


def demonstrate(nodes: int, *, keep: bool) -> int:
    """Run the demonstration."""
    kept = is_running()
    if kept:
        say("Using the cluster that is up (setup/demo stop ends it).")
        nodes = len(json.loads(tool("status").stdout)["machines"]) - 1
    else:
        start(nodes, keep=keep)
    stays = keep or kept
    try:
        address = open_pages()
        say(f"Look at it in a browser, while everything happens: {address}/ui/")
        findings = [*work(nodes), look_at_pages(address, nodes)]
        report(findings)
        good = all(finding.is_good for finding in findings)
    except (DemoError, subprocess.TimeoutExpired, json.JSONDecodeError, KeyError, IndexError) as error:
        print(f"\nThe demonstration broke off: {error}", file=sys.stderr)
        good = False
    finally:
        if not stays:
            say("Stopping the cluster; nothing of it is left, also not the files in /home/alice.")
            tool("stop")
    if stays:
        say(f"The cluster stays up: setup/demo shell alice, setup/cluster --room {ROOM} status, setup/demo stop.")
        tell_how_to_log_in()
    print("\nThe cluster works: everything went as it should." if good else "\nThe cluster does NOT work as it should.")
    return 0 if good else 1


def tell_how_to_log_in() -> None:
    """Show how alice logs in to the pages."""
    for address in json.loads(tool("status").stdout)["addresses"]:
        say(f"The pages stay at {address}/ui/. To act there as alice, log in with this token:")
        typed("alice", "oar-token create --expires 1 --comment 'pages of the demonstration'")


def report(findings: Sequence[Finding]) -> None:
    """Print the results and the paths of the files."""
    say("Results:")
    for finding in findings:
        print(f"{'ok    ' if finding.is_good else 'FAILED'} {finding.what}\n       {finding.detail}")
    say("All of alice's jobs:")
    typed("alice", "oarstat --sql \"job_user = 'alice'\"")


def main() -> int:
    """Run the program; setup/demo calls it after the installation of packages."""
    parser = argparse.ArgumentParser(
        prog="setup/demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument("--nodes", type=int, default=4, help="number of nodes (default 4)")
    parser.add_argument("action", nargs="?", choices=["shell", "stop"])
    parser.add_argument("user", nargs="?", default="alice")
    options = parser.parse_args()
    actions: dict[str, Callable[[], int]] = {
        "shell": lambda: subprocess.run([str(TOOL), "--room", ROOM, "shell", options.user], check=False).returncode,
        "stop": lambda: subprocess.run([str(TOOL), "--room", ROOM, "stop"], check=False).returncode,
    }
    if options.action:
        return actions[options.action]()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return demonstrate(options.nodes, keep=options.keep)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

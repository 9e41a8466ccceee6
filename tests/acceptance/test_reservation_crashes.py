"""Advance reservations and a server that is killed, on the real cluster: whatever was asked is done, and done once."""

from __future__ import annotations

import shlex
import threading

from tests.acceptance.faults import assert_sound, processes_of
from tests.acceptance.harness import PATIENCE, Cluster, Person, configured, wait_until
from tests.acceptance.reservations import (
    ask,
    hosts,
    log,
    row,
    shown_state,
    wait_for_reservation,
)

#: Where a script of the site writes what it was told.
TOLD = "/var/lib/oar/told"
#: The script: arguments, one line for each event.
SCRIPT = f"""#!/bin/sh
echo "$*" >> {TOLD}
"""


def kill_the_server(cluster: Cluster) -> None:
    """SIGKILL for what plans and what starts it again, in the middle of whatever they do."""
    for part in ("meta_sched", "almighty"):
        for process in processes_of(cluster, part):
            process.kill()


def start_it_again(cluster: Cluster) -> None:
    cluster.server.do("stop")
    cluster.server.do("start")


def test_a_server_that_is_killed_over_a_start_begins_the_reservation_late(cluster: Cluster, alice: Person) -> None:
    number = int(alice.run("qrsub -a +4 -d 300 -l /network_address=1 -terse"))
    job = alice.submit(f"--ar {number} -l nodes=1,walltime=0:1 'echo ran >> ~/in-$OAR_AR_ID'")
    kill_the_server(cluster)
    (start,) = row(cluster, number, "start_time")
    wait_until(lambda: cluster.sql(f"SELECT extract(epoch FROM now()) > {start} + 1") == [["t"]])
    start_it_again(cluster)
    cluster.wait_for_state(job, "Terminated")
    assert alice.run(f"cat ~/in-{number}") == "ran\n"
    (frame,) = row(cluster, number, "frame_id")
    assert cluster.sql(f"SELECT start_time FROM jobs WHERE job_id = {frame}") == [[start]]
    assert alice.run(f"qrdel {number}") == f"alice has deleted advance_reservation {number}\n"


def assert_ended_once(cluster: Cluster, number: int, job: int) -> None:
    """A reservation and its job have ended, with one bill, and all fits together."""
    cluster.wait_for_state(job, "Error")
    (stop,) = cluster.sql(f"SELECT stop_time FROM jobs WHERE job_id = {job}")[0]
    (identifier, ended) = row(cluster, number, "reservation_id, ended")
    assert 0 < int(stop) <= int(ended)
    ends = f"SELECT count(*) FROM reservation_logs WHERE reservation_id = {identifier} AND event = 'TERMINATED'"
    assert cluster.sql(ends) == [["1"]]
    assert_sound(cluster)


def test_a_server_that_is_killed_over_an_end_ends_the_reservation_and_its_jobs(cluster: Cluster, alice: Person) -> None:
    number = int(alice.run("qrsub -d 600 -l /network_address=1 -terse"))
    job = alice.submit(f"--ar {number} -l nodes=1 'sleep 600'")
    cluster.wait_for_state(job, "Running")
    alice.run(f"qralter -f -e +10 {number}")
    kill_the_server(cluster)
    (end,) = row(cluster, number, "end_time")
    wait_until(lambda: cluster.sql(f"SELECT extract(epoch FROM now()) > {end} + 1") == [["t"]])
    start_it_again(cluster)
    wait_until(lambda: shown_state(alice, number) == "gone")
    assert row(cluster, number, "end_time, state") == [end, "x"]
    assert_ended_once(cluster, number, job)


def test_a_deletion_that_a_killed_server_has_not_seen_is_carried_out(cluster: Cluster, alice: Person) -> None:
    number = int(alice.run("qrsub -d 600 -l /network_address=1 -terse"))
    job = alice.submit(f"--ar {number} -l nodes=1,walltime=0:5 'sleep 600'")
    cluster.wait_for_state(job, "Running")
    kill_the_server(cluster)
    assert alice.run(f"qrdel {number}") == f"alice has registered the advance_reservation {number} for deletion\n"
    start_it_again(cluster)
    wait_until(lambda: shown_state(alice, number) == "gone")
    assert_ended_once(cluster, number, job)


def test_a_change_that_a_killed_server_has_not_seen_is_made_once(cluster: Cluster, alice: Person) -> None:
    number = ask(alice, "-a +1h -d 600 -l /network_address=1")
    kill_the_server(cluster)
    asking = threading.Thread(target=alice.run, args=(f"qralter -d 900 -l /network_address=2 {number} > changed",))
    asking.start()
    wait_until(lambda: cluster.sql("SELECT count(*) FROM reservation_changes WHERE answer = ''") == [["1"]])
    start_it_again(cluster)
    asking.join(PATIENCE)
    assert alice.run("cat changed").startswith(f"Your reservation {number} has been altered\n")
    assert row(cluster, number, "end_time - start_time, revision") == ["900", "2"]
    assert len(hosts(cluster, number)) == 2
    assert log(cluster, number).count("ALTERED") == 1
    assert_sound(cluster)
    alice.run(f"qrdel {number}")


def test_a_script_of_the_site_is_told_each_event_at_most_once_over_a_kill(cluster: Cluster, alice: Person) -> None:
    root, path = cluster.as_user("root"), "/etc/oar/ar_event"
    root.run(f"rm -f {TOLD}; printf %s {shlex.quote(SCRIPT)} > {path}; chmod 755 {path}")
    with configured(cluster, f'RESERVATION_EVENT_EXEC_FILE="{path}"'):
        start_it_again(cluster)  # the Runner knows of the script before the first event
        number = ask(alice, "-a +20 -d 10 -l /network_address=1")
        wait_until(lambda: told(cluster, number)[:1] == [f"{number} CREATED w"])
        kill_the_server(cluster)
        (end,) = row(cluster, number, "end_time")
        wait_until(lambda: cluster.sql(f"SELECT extract(epoch FROM now()) > {end} + 1") == [["t"]])
        start_it_again(cluster)
        wait_for_reservation(cluster, number, "gone")
        wait_until(lambda: told(cluster, number)[-1:] == [f"{number} TERMINATED x"], lambda: told(cluster, number))
        events = [line.split(" ", 1)[1].rpartition(" ")[0] for line in told(cluster, number)]
        happened = log(cluster, number)
        assert len(set(events)) == len(events)
        assert [event for event in happened if event in events] == events
        assert len(happened) - len(events) <= 1  # the one that was being told when the server was killed


def told(cluster: Cluster, number: int) -> list[str]:
    """What the script of the site was told of a reservation, in the order of the events."""
    lines = cluster.as_user("root").attempt(f"cat {TOLD}").out.splitlines()
    return [line for line in lines if line.startswith(f"{number} ")]


def test_a_job_begins_on_the_host_of_the_master_queues(cluster: Cluster, alice: Person) -> None:
    number = ask(
        alice,
        "-d 300 -pe round_robin 2 -l h=node-1|node-3 -masterq '*@node-3'".replace(
            "h=node-1|node-3", "'h=node-1|node-3'"
        ),
    )
    assert hosts(cluster, number) == ["node-1", "node-3"]
    job = alice.submit(
        f"--ar {number} -l resource_id=2,walltime=0:1 'hostname; sort -u $OAR_NODEFILE; head -1 $OAR_NODEFILE'"
    )
    cluster.wait_for_state(job, "Terminated")
    assert alice.run(f"cat OAR.{job}.stdout").split() == ["node-3", "node-1", "node-3", "node-3"]
    alice.run(f"qrdel {number}")

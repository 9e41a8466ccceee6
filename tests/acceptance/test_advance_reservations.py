"""Advance reservations on the real cluster: asked with qrsub, kept, ended at their dates."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.acceptance.harness import PATIENCE, Cluster, Person, wait_until
from tests.acceptance.reservations import EVERYTHING, row, shown_state


def test_a_reservation_begins_keeps_others_away_and_ends(cluster: Cluster, alice: Person) -> None:
    number = int(alice.run(f"qrsub -a +25 -d 35 {EVERYTHING} -terse"))
    assert shown_state(alice, number) == "w"
    outside = alice.submit("-l core=1,walltime=0:1 true")
    wait_until(lambda: shown_state(alice, number) == "r")
    assert cluster.state(outside) == "Waiting"
    wait_until(lambda: shown_state(alice, number) == "gone")
    start, end, state, ended = row(cluster, number, "start_time, end_time, state, ended")
    assert (state, int(end) - int(start)) == ("x", 35)
    assert 0 <= int(ended) - int(end) <= 60
    cluster.wait_for_state(outside, "Terminated")
    assert int(cluster.sql(f"SELECT start_time FROM jobs WHERE job_id = {outside}")[0][0]) >= int(end)
    events = cluster.sql(
        "SELECT event FROM reservation_logs JOIN reservations USING (reservation_id)"
        f" WHERE ar_id = {number} ORDER BY reservation_log_id"
    )
    assert [each[0] for each in events] == ["CREATED", "START TIME REACHED", "END TIME REACHED", "TERMINATED"]


def test_no_job_of_a_reservation_outlives_it(cluster: Cluster, alice: Person) -> None:
    number = int(alice.run(f"qrsub -d 50 {EVERYTHING} -terse"))
    stubborn = alice.submit(f"--ar {number} -l nodes=4 'trap \"\" TERM; while :; do sleep 0.2; done'")
    waiting = alice.submit(f"--ar {number} -l core=1,walltime=0:0:5 --verify n true")
    cluster.wait_for_state(stubborn, "Running")
    wait_until(lambda: shown_state(alice, number) == "gone")
    cluster.wait_for_state(waiting, "Error")
    (ended,) = row(cluster, number, "ended")
    for job in (stubborn, waiting):
        assert cluster.state(job) in ("Terminated", "Error")
        (stop,) = cluster.sql(f"SELECT stop_time FROM jobs WHERE job_id = {job}")[0]
        assert int(stop) <= int(ended)
    for node in cluster.nodes:
        assert node.as_user("root").attempt("pgrep -u alice -f 'trap|sleep 0.2'").out == ""
    assert f"It was in the advance reservation {number}, which has ended." in alice.run(f"oarstat --explain {waiting}")


@pytest.fixture
def deployable(cluster: Cluster) -> Iterator[None]:
    """Nodes that jobs may install anew."""
    setting = "oarnodesetting -h node-1 -h node-2 -h node-3 -h node-4 -p deploy"
    cluster.as_user("root").run(f"{setting}=YES")
    yield
    cluster.as_user("root").run(f"{setting}=NO")


@pytest.mark.usefixtures("deployable")
def test_jobs_of_all_kinds_run_in_a_reservation_and_end_with_it(cluster: Cluster, alice: Person) -> None:
    number = int(alice.run("qrsub -d 900 -N lab -l /network_address=3 -terse"))
    frame, end = row(cluster, number, "frame_id, end_time")
    refused = alice.attempt(f"oarsub -t inner={frame} -l core=1,walltime=0:1 true")
    words = f"# Error: job {frame} is the frame of the advance reservation {number}, use --ar {number}."
    assert (refused.code, refused.err.splitlines()[0]) == (8, words)

    inside = f"--ar {number} -l core=1,walltime=0:1"
    wait_until(lambda: row(cluster, number, "state") == ["r"])  # with -d alone it may begin a little later
    modest = alice.submit(f"{inside} -t besteffort true")
    cluster.wait_for_state(modest, "Terminated")  # alone: any other job may take its place
    dated = alice.submit(f"{inside} -r now true")
    array = alice.submit_all(f"{inside} --array 3 'echo $OAR_AR_ID $OAR_AR_NAME $OAR_AR_END > told.$OAR_JOB_ID'")
    after = alice.submit(f"{inside} -a {array[0]} 'test -e told.{array[0]}'")
    moldable = alice.submit(f"{inside} -l nodes=3,walltime=0:2 true")
    alike = [alice.submit(f"{inside} -t timesharing true") for _ in range(2)]
    deployed = alice.submit("--ar lab -t deploy -l nodes=1,walltime=0:1 'uniq $OAR_NODEFILE > nodes'")
    box = alice.submit("--ar lab -t container -l nodes=1,walltime=0:10 'sleep 600'")
    boxed = alice.submit(f"-t inner={box} -l core=1,walltime=0:5 'sleep 600'")
    assert alice.run(f"oarsub -I {inside}", stdin="echo in $OAR_AR_NAME\n").count("in lab") == 1
    over = [*array, after, moldable, *alike, deployed, dated]
    for job in over:
        cluster.wait_for_state(job, "Terminated")
    assert [alice.run(f"cat told.{job}") for job in array] == [f"{number} lab {end}\n"] * 3
    for job in (box, boxed):
        cluster.wait_for_state(job, "Running")
    elsewhere = (
        "SELECT job_id FROM jobs j JOIN reservation_jobs USING (job_id) JOIN reservations r USING (reservation_id)"
        " JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job"
        f" WHERE r.ar_id = {number} AND a.resource_id <> ALL (r.resources)"
    )
    assert cluster.sql(elsewhere) == []
    assert cluster.sql(f"SELECT exit_code FROM jobs WHERE job_id = {after}") == [["0"]]

    assert alice.run(f"qrdel {number}") == f"alice has registered the advance_reservation {number} for deletion\n"
    wait_until(lambda: shown_state(alice, number) == "gone")
    assert cluster.state(box) == cluster.state(boxed) == "Error"
    assert f"It was in the advance reservation {number}, which was deleted by alice." in alice.run(
        f"oarstat --explain {box}"
    )


@pytest.mark.usefixtures("impatient")
def test_force_ends_the_jobs_of_a_reservation_though_their_node_does_not_answer(
    cluster: Cluster, alice: Person
) -> None:
    number = int(alice.run("qrsub -d 600 -h node-2 -l /network_address=1 -terse"))
    job = alice.submit(f"--ar {number} -l core=1,walltime=0:5 'sleep 600'")
    cluster.wait_for_state(job, "Running")
    (node,) = [each for each in cluster.nodes if each.name == "node-2"]
    node.do("cut")
    told = alice.run(f"qrdel {number}; qrdel -f {number}").splitlines()  # it cannot be gone between them
    assert told[0] == f"alice has registered the advance_reservation {number} for deletion"
    assert told[1].startswith(f"advance_reservation {number} is already registered")
    wait_until(lambda: shown_state(alice, number) == "gone")
    assert cluster.state(job) == "Error"
    node.do("heal")


def test_requests_begin_with_the_options_in_files(cluster: Cluster, alice: Person) -> None:
    cluster.as_user("root").run("echo '-A site -N site' > /etc/oar/ar_request")
    alice.run("printf '# mine\\n-N \"mine\" -d 120\\n' > ~/.oar_ar_request; chmod 600 ~/.oar_ar_request")
    try:
        number = int(alice.run("qrsub -a +1h -terse"))
        assert row(cluster, number, "ar_name, account, end_time - start_time") == ["mine", "site", "120"]
    finally:
        cluster.as_user("root").run("rm /etc/oar/ar_request")
    alice.run(f"qrdel {number}")


@pytest.mark.parametrize("end", ["interrupt", "departure"])
def test_who_does_not_wait_for_the_answer_leaves_no_request(cluster: Cluster, alice: Person, end: str) -> None:
    before = len(cluster.sql("SELECT 1 FROM reservations"))
    cluster.server.do("stop")
    command = "qrsub -d 60 -N interrupted"
    if end == "interrupt":
        press = "while [ ! -e ~/go ]; do sleep 0.1; done; printf '\\003'; while [ ! -e ~/seen ]; do sleep 0.1; done"
        command = f"({press}) | script -qec '{command}; echo ended with $? > ~/seen' /dev/null"
    else:
        command = f"{command} & while [ ! -e ~/go ]; do sleep 0.1; done; kill $!; wait"
    thread = threading.Thread(target=alice.attempt, args=(command,))
    thread.start()
    wait_until(lambda: len(cluster.sql("SELECT 1 FROM reservations")) > before)
    alice.run("touch ~/go")
    thread.join(PATIENCE)
    wait_until(lambda: cluster.sql("SELECT state FROM reservations ORDER BY reservation_id DESC LIMIT 1") == [["n"]])
    if end == "interrupt":
        assert alice.run("cat ~/seen") == "ended with 26\n"
    cluster.server.do("start")
    assert cluster.sql("SELECT event, state FROM reservation_logs ORDER BY reservation_log_id DESC LIMIT 1") == [
        ["WITHDRAWN", "n"]
    ]
    frame = cluster.sql("SELECT frame_id FROM reservations ORDER BY reservation_id DESC LIMIT 1")[0][0]
    assert cluster.state(int(frame)) == "Error"


def test_a_series_goes_on_when_one_of_it_ends_until_it_is_deleted(cluster: Cluster, alice: Person) -> None:
    rule = "FREQ=HOURLY;COUNT=9"
    granted = alice.run(f"qrsub -a +15 -d 600 -N hourly -l /network_address=1 -rrule '{rule}' -depth 2 -terse")
    first, second = map(int, granted.split())
    starts = [int(row(cluster, number, "start_time")[0]) for number in (first, second)]
    assert starts[1] - starts[0] == 3600
    inside = alice.submit(f"--ar {first} -l core=1,walltime=0:1 true")
    cluster.wait_for_state(inside, "Terminated")
    alice.run(f"qralter -e +5 {first}")  # longer than its offset of 2 s
    wait_until(lambda: shown_state(alice, first) == "gone")
    wait_until(lambda: len(alice.run("qrstat -terse").split()) == 2)
    third = int(alice.run("qrstat -terse").split()[-1])
    assert row(cluster, third, "start_time, series_index, ar_name") == [str(starts[1] + 3600), "3", "hourly"]
    assert alice.run("qrstat -series").split("\n")[2].split()[1:5] == ["hourly", "alice", "2", "6"]
    series = row(cluster, third, "series_id")[0]
    deleted = "".join(f"alice has deleted advance_reservation {number}\n" for number in (second, third))
    assert alice.run("qrdel hourly") == f"{deleted}alice has deleted series {series}\n"
    assert alice.run("qrstat; qrstat -series") == ""

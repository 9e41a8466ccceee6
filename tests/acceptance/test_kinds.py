"""Jobs of all kinds: reservations, containers, those that share, wait for a date or a token, or give way."""

from __future__ import annotations

import time

from tests.acceptance.harness import Cluster, Person, wait_until

WAITING = "# Advance reservation request: waiting for validation...\n"


def shown(date: int) -> str:
    """A date as people type it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(date))


def numbers(cluster: Cluster, job: int) -> tuple[int, int, int]:
    """Start, walltime and number of resources of a job that was started."""
    ((start, walltime, resources),) = cluster.sql(
        "SELECT j.start_time, m.moldable_walltime, count(*) FROM jobs j"
        " JOIN moldable_job_descriptions m ON m.moldable_id = j.assigned_moldable_job"
        f" JOIN assigned_resources a ON a.moldable_job_id = m.moldable_id WHERE j.job_id = {job} GROUP BY 1, 2"
    )
    return int(start), int(walltime), int(resources)


def waits(cluster: Cluster, job: int, why: str) -> None:
    """Wait until a job that waits says why."""
    message = f"SELECT message FROM jobs WHERE job_id = {job} AND state = 'Waiting'"
    wait_until(lambda: any(why in row[0] for row in cluster.sql(message)), lambda: cluster.story(job))


# -- reservations -----------------------------------------------------------------------------------------------------


def test_a_reservation_keeps_its_dates_and_what_does_not_fit_is_refused(cluster: Cluster, alice: Person) -> None:
    begin = cluster.now() + 40
    dates = f"{shown(begin)},{shown(begin + 120)}"
    granted = alice.run(f"oarsub -v -r '{dates}' -l nodes=4 'sleep 1000'")
    job = int(granted.partition("OAR_JOB_ID=")[2].split()[0])
    assert (
        f"# Guessed reservation start: {shown(begin)} end: {shown(begin + 120)} (computed walltime: 0:2:0)." in granted
    )
    assert granted.endswith(WAITING + "# Reservation valid --> OK\n")
    refused = cluster.as_user("bob").attempt(f"oarsub -r '{shown(begin + 10)}' -l core=1,walltime=0:0:10 true")
    assert refused.code == 10
    assert f"{WAITING}# Reservation not valid --> KO (This reservation could run at " in refused.out
    assert alice.attempt(f"oarhold {job}").code == 1
    cluster.wait_for_state(job, "Running")
    start, walltime, resources = numbers(cluster, job)
    assert (start >= begin, start + walltime, resources) == (True, begin + 120, 8)
    alice.run(f"oardel {job}")
    cluster.wait_for_state(job, "Error")


def test_a_reservation_waits_for_missing_nodes_and_then_starts_with_less(cluster: Cluster, alice: Person) -> None:
    far = shown(cluster.now() + 3600)
    job, whole = (
        alice.submit(f"-r '{far}' {options} -l nodes=2,walltime=0:10 'sleep 1000'") for options in ("", "-t ar=hard")
    )
    cluster.as_user("root").run("oarnodesetting -h node-1 -h node-3 -s Absent")
    absent = "SELECT DISTINCT network_address FROM resources WHERE state = 'Absent' ORDER BY 1"
    wait_until(lambda: cluster.sql(absent) == [["node-1"], ["node-3"]], "two nodes are missing")
    begin = cluster.now()
    move(cluster, begin, job, whole)
    cluster.wait_for_state(job, "Running")
    start, walltime, resources = numbers(cluster, job)
    assert (start > begin, start + walltime, resources) == (True, begin + 600, 2)
    assert {"SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION", "REDUCE_RESERVATION_WALLTIME"} <= {*cluster.events(job)}
    assert cluster.state(whole) == "Waiting"
    cluster.as_user("root").run("oarnodesetting -h node-1 -h node-3 -s Alive")
    cluster.wait_for_state(whole, "Running")
    assert numbers(cluster, whole)[2] == 4
    alice.run("oardel -u")
    for each in (job, whole):
        cluster.wait_for_state(each, "Error")


def move(cluster: Cluster, date: int, *jobs: int) -> None:
    """Let it be the date of reservations."""
    ids = ", ".join(map(str, jobs))
    cluster.sql(
        f"UPDATE jobs SET start_time = {date} WHERE job_id IN ({ids});"
        f"UPDATE gantt_jobs_predictions SET start_time = {date} WHERE moldable_job_id IN"
        f" (SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id IN ({ids}))"
    )


def test_jobs_run_inside_a_reservation_until_it_ends(cluster: Cluster, alice: Person) -> None:
    bob, carol = cluster.as_user("bob"), cluster.as_user("carol")
    space = alice.submit("-r now -t container=lab -t container_users=bob -l nodes=2,walltime=0:10")
    cluster.wait_for_state(space, "Running")
    mine = alice.submit(f"-t inner={space} -l nodes=1,walltime=0:5 'sleep 1000'")
    his = bob.submit("-t inner=lab -l nodes=1,walltime=0:5 'uniq $OAR_NODEFILE > where; sleep 1000'")
    refused = carol.attempt("oarsub -t inner=lab -l nodes=1,walltime=0:1 true")
    words = f"[ADMISSION RULE] Error: you are not allowed to use the container {space}.\n"
    assert (refused.code, refused.err) == (254, words)
    for job in (mine, his):
        cluster.wait_for_state(job, "Running")
    held = alice.jobs(f"-j {space} -j {mine} -j {his}")
    inside = [set(held[job]["assigned_network_address"]) for job in (mine, his)]
    assert inside[0] | inside[1] == set(held[space]["assigned_network_address"])
    late = alice.submit("-t inner=lab -l nodes=1,walltime=0:1 true")
    waits(cluster, late, "waiting for resources")
    alice.run(f"oardel {space}")
    for job in (mine, his, late):
        cluster.wait_for_state(job, "Error")
    wait_until(lambda: cluster.state(space) in ("Terminated", "Error"), lambda: cluster.story(space))
    assert "FRAG_JOB_REQUEST" in cluster.events(his)


# -- jobs that share --------------------------------------------------------------------------------------------------


def test_jobs_share_nodes_as_their_types_say(cluster: Cluster, alice: Person) -> None:
    bob = cluster.as_user("bob")
    everything = "-l nodes=4,walltime=0:10 'sleep 1000'"
    hers = [alice.submit(f"-t timesharing={form} -n fem {everything}") for form in ("user,name", "name,user")]
    other = alice.submit(f"-t timesharing=user,name -n other {everything}")
    his = bob.submit(f"-t timesharing=user,name -n fem {everything}")
    for job in hers:
        cluster.wait_for_state(job, "Running")
    waits(cluster, other, "waiting for resources")
    waits(cluster, his, "waiting for resources")
    for person in (alice, bob):
        person.run("oardel -u")
    both = [person.submit(f"-t timesharing {everything}") for person in (alice, bob)]
    for job in both:
        cluster.wait_for_state(job, "Running")


def test_a_placeholder_keeps_room_for_those_that_are_allowed(cluster: Cluster, alice: Person) -> None:
    holder = alice.submit("-t placeholder=x -t noop -l nodes=4,walltime=0:10")
    cluster.wait_for_state(holder, "Running")
    allowed = cluster.as_user("bob").submit("-t allowed=x -l nodes=2,walltime=0:1 hostname")
    other = alice.submit("-l core=1,walltime=0:1 true")
    cluster.wait_for_state(allowed, "Terminated")
    waits(cluster, other, "waiting for resources")
    alice.run(f"oardel {holder}")
    cluster.wait_for_state(other, "Terminated")


# -- jobs that wait for something else --------------------------------------------------------------------------------


def test_dates_of_types(cluster: Cluster, alice: Person) -> None:
    begin = cluster.now() + 3
    later = alice.submit(f"-t 'postpone={shown(begin)}' -l core=1,walltime=0:1 true")
    never = alice.submit(f"-t 'expire={shown(begin - 1)}' -t postpone=2100-01-01 -l core=1,walltime=0:1 true")
    late = alice.submit(f"-t 'deadline={shown(begin + 30)}' -l core=1,walltime=0:1 true")
    cluster.wait_for_state(late, "Error")
    cluster.wait_for_state(later, "Terminated")
    assert int(cluster.sql(f"SELECT start_time FROM jobs WHERE job_id = {later}")[0][0]) >= begin
    cluster.wait_for_state(never, "Error")  # though nothing else asks for a round
    messages = dict(cluster.sql(f"SELECT job_id, message FROM jobs WHERE job_id IN ({late}, {never})"))
    assert messages[str(late)] == f"Job will never run (deadline={shown(begin + 30)}), setting it to error"
    assert messages[str(never)] == f"Job will never run (expire={shown(begin - 1)}), setting it to error"


def test_tokens_of_the_site_are_waited_for(cluster: Cluster, alice: Person) -> None:
    runs = alice.submit("-t token:lic=1 -l core=1,walltime=0:1 true")
    stuck = alice.submit("-t token:lic=2 -l core=1,walltime=0:1 true")
    cluster.wait_for_state(runs, "Terminated")
    waits(cluster, stuck, "token")


def test_jobs_wait_for_others_as_they_say(cluster: Cluster, alice: Person) -> None:
    first = alice.submit("-l core=1,walltime=0:5 'while [ ! -e go ]; do sleep 0.1; done; exit 1'")
    beside = alice.submit(f"-a {first},1,600 -l core=1,walltime=0:5 'touch beside'")
    started = alice.submit(f"-a {first}:start -a {beside} -l core=1,walltime=0:5 'touch go'")
    after = {
        how: alice.submit(f"-a {first}{how} -l core=1,walltime=0:5 true")
        for how in (":ok", ":notok", ":any", ":any,]1,]600")
    }
    for how, job in after.items():
        if how != ":ok":
            cluster.wait_for_state(job, "Terminated")
    cluster.wait_for_state(started, "Terminated")
    waits(cluster, after[":ok"], f"dependency on job {first} cannot be satisfied")
    way_out = f"What to do: oaralter {after[':ok']} -a {first}:any"
    assert way_out in alice.run(f"oarstat --explain {after[':ok']}")
    pair = f"FROM jobs f, jobs s WHERE f.job_id = {first} AND s.job_id = {after[':any,]1,]600']}"
    assert int(cluster.sql(f"SELECT s.start_time - f.stop_time {pair}")[0][0]) >= 1
    missed = alice.submit(f"-a '{first}:any,,[0' -l core=1,walltime=0:5 true")
    cluster.wait_for_state(missed, "Error")
    message = cluster.sql(f"SELECT message FROM jobs WHERE job_id = {missed}")[0][0]
    assert message == "Job cancelled because its dependency requirements will never be met"


# -- jobs that give way -----------------------------------------------------------------------------------------------


def test_a_besteffort_job_writes_a_checkpoint_before_it_gives_way(cluster: Cluster, alice: Person) -> None:
    trap = 'trap "echo saved > saved; exit 0" USR2; touch ready; while :; do sleep 0.1; done'
    job = alice.submit(f"-t besteffort --checkpoint 60 -l nodes=4,walltime=1 '{trap}'")
    wait_until(lambda: alice.attempt("test -e ready").code == 0, "the trap is set")
    other = cluster.as_user("bob").submit("-l nodes=4 true")
    cluster.wait_for_state(job, "Terminated")
    cluster.wait_for_state(other, "Terminated")
    assert alice.run("cat saved") == "saved\n"
    assert {"CHECKPOINT", "CHECKPOINT_SUCCESS"} <= {*cluster.events(job)}
    assert "BESTEFFORT_KILL" not in cluster.events(job)

"""Programs of OAR 2.5 see advance reservations of all states as the jobs that stand for them, and lose nothing."""

from __future__ import annotations

import re

from tests.acceptance.harness import Cluster, Person, configured, wait_until
from tests.acceptance.old_programs import OldPrograms
from tests.acceptance.reservations import (
    EVERYTHING,
    ask,
    hosts,
    row,
    wait_for_reservation,
)


def of_all_states(cluster: Cluster, alice: Person) -> tuple[dict[str, int], dict[str, int]]:
    """Reservations of alice's by their states, and jobs in some of them, while no server changes anything."""
    node = "-l /network_address=1 -replace no"
    stubborn = "-l core=1,walltime=0:5 'trap \"\" TERM; while :; do sleep 0.2; done'"
    ended = ask(alice, "-d 600")
    alice.run(f"qrdel {ended}")
    states = {
        "w": ask(alice, f"-a +1h -d 600 -h node-1 -N later {node}"),
        "r": ask(alice, f"-d 600 -h node-2 -N course {node}"),
        "E": ask(alice, f"-d 600 -h node-3 {node}"),
        "W": ask(alice, f"-a +1h -d 600 -h node-3 {node}"),
        "d": ask(alice, "-d 600 -h node-4 -replace no"),
        "x": ask(alice, "-d 600 -h node-4 -replace no"),
    }
    assert alice.attempt(f"qrsub -a +1h -d 60 {EVERYTHING}").code == 1
    jobs = {"r": alice.submit(f"--ar {states['r']} -l core=1,walltime=0:5 'sleep 1000'")}
    jobs |= {state: alice.submit(f"--ar {states[state]} {stubborn}") for state in ("d", "x")}
    for job in jobs.values():
        cluster.wait_for_state(job, "Running")
    cluster.node("node-4").do("cut")
    cluster.as_user("root").run("oarnodesetting -h node-3 -s Absent")
    with configured(cluster, "JOBDEL_SOFTWALLTIME=300", "JOBDEL_WALLTIME=600"):  # no job is given up meanwhile
        alice.run(f"qralter -f -e +5 {states['x']}")
        alice.run(f"qrdel {states['d']}")
        for state in ("W", "E", "x"):
            wait_for_reservation(cluster, states[state], state)
        cluster.server.do("stop")
    for state, number in states.items():
        assert row(cluster, number, "state, ended") == [state, "0"]
    return states, jobs


def test_reservations_of_all_states_are_seen_as_jobs(cluster: Cluster, alice: Person, programs: OldPrograms) -> None:
    begin = cluster.now() - 60
    states, jobs = of_all_states(cluster, alice)
    frames = {state: int(row(cluster, number, "frame_id")[0]) for state, number in states.items()}

    listed = programs.oar("oarstat")
    assert (listed.code, listed.err) == (0, "")
    letters = {int(words[0]): words[1] for line in listed.out.splitlines()[2:] if (words := line.split())}
    assert letters.keys() == {*frames.values(), *jobs.values()}
    assert [letters[frames[state]] for state in "wWrE"] == ["W", "W", "R", "R"]
    for state, number in states.items():
        told = programs.oar(f"oarstat -f -j {frames[state]}")
        assert (told.code, told.err) == (0, ""), told
        (types,) = re.findall(r"^ *types = (.*)$", told.out, re.MULTILINE)  # it asks PostgreSQL for no order
        assert sorted(types.split(", ")) == [f"ar={number}", "container", "no_quotas", "noop", "state=permissive"]
        for host in hosts(cluster, number):
            assert host in told.out
    nodes = programs.oar("oarnodes -s")
    assert (nodes.code, nodes.err) == (0, "")

    page = programs.monika()
    drawn = programs.drawgantt(begin, begin + 7200)
    for state, frame in frames.items():
        assert f" {frame} alice " in page
        types = drawn[frame].partition("Types: ")[2].partition("|")[0].split(", ")
        assert sorted(types) == [f"ar={states[state]}", "container", "no_quotas", "noop", "state=permissive"]
    assert {*jobs.values()} <= drawn.keys()
    assert "Name: course|" in drawn[frames["r"]]

    cluster.node("node-4").do("heal")
    cluster.server.do("start")
    wait_until(lambda: row(cluster, states["x"], "ended > 0") == row(cluster, states["d"], "ended > 0") == ["t"])

"""Who may do what with advance reservations, on the real cluster; what is refused changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.acceptance.harness import Cluster, Person, Result, configured, wait_until
from tests.acceptance.reservations import (
    EVERYTHING,
    ask,
    hosts,
    log,
    may_reserve,
    number_of_jobs,
    row,
    wait_for_reservation,
)

VERIFY = "# Error: please verify your job submission syntax."
#: A job that waits until it is let go.
HELD = "--hold -l core=1,walltime=0:0:10 true"


@pytest.fixture
def alice(cluster: Cluster) -> Person:
    """She may reserve."""
    return may_reserve(cluster, "alice")


def refused_job(cluster: Cluster, person: Person, arguments: str) -> str:
    """Why a submission is refused, which leaves no job."""
    before = number_of_jobs(cluster)
    answer = person.attempt(f"oarsub {arguments}")
    lines = answer.err.splitlines()
    assert (answer.code, answer.out, lines[1:], number_of_jobs(cluster)) == (8, "", [VERIFY], before), answer
    return lines[0].removeprefix("# Error: ")


def test_a_reservation_takes_no_job_that_it_cannot_hold_or_that_it_does_not_know(
    cluster: Cluster, alice: Person
) -> None:
    number = ask(alice, "-a +1h -d 900 -N course -l /network_address=1")
    inside = f"--ar {number} -l"
    for arguments, text in (
        (
            f"{inside} walltime=2 true",
            f"walltime 2:0:0 is longer than the advance reservation {number} allows (0:14:58).",
        ),
        (f"{inside} core=3,walltime=0:1 true", f"the advance reservation {number} cannot hold -l /core=3: 2 "),
        (
            f"{inside} nodes=2,walltime=0:1 true",
            f"the advance reservation {number} cannot hold -l /nodes=2: ",
        ),
        ("--ar 999999 true", "the advance reservation 999999 does not exist."),
        ("--ar nosuch true", "the advance reservation nosuch does not exist."),
        ("--ar=-3 true", 'invalid advance reservation "-3".'),
    ):
        assert refused_job(cluster, alice, arguments).startswith(text)
    alice.run(f"qralter -a +5 {number}")
    patient = [alice.submit(f"{inside} {what} --verify n true") for what in ("walltime=2", "core=3,walltime=0:1")]
    wait_for_reservation(cluster, number, "r")
    left = f"walltime 0:14:57 is longer than what is left of the advance reservation {number} (0:14:"
    wait_until(lambda: alice.attempt(f"oarsub {inside} walltime=0:14:57 true").err.startswith(f"# Error: {left}"))
    fits = alice.submit(f"{inside} core=2,walltime=0:1 true")
    cluster.wait_for_state(fits, "Terminated")
    assert [cluster.state(job) for job in patient] == ["Waiting", "Waiting"]

    alice.run(f"qrdel {number}")
    wait_for_reservation(cluster, number, "gone")
    assert [cluster.state(job) for job in patient] == ["Error", "Error"]
    assert cluster.sql(f"SELECT 1 FROM jobs WHERE job_id IN ({patient[0]}, {patient[1]}) AND start_time > 0") == []
    for name in (number, "course"):
        assert refused_job(cluster, alice, f"--ar {name} true") == f"the advance reservation {name} has ended."


def test_a_request_without_an_answer_and_a_refused_one_take_no_job(cluster: Cluster, alice: Person) -> None:
    refused = alice.attempt(f"qrsub -d 60 {EVERYTHING} -a +1h; qrsub -d 60 {EVERYTHING} -a +1h")
    assert refused.code == 1
    numbers = [
        int(each[0]) for each in cluster.sql("SELECT ar_id FROM reservations ORDER BY reservation_id DESC LIMIT 2")
    ]
    assert refused_job(cluster, alice, f"--ar {numbers[0]} true") == (
        f"the advance reservation {numbers[0]} does not exist."
    )
    cluster.server.do("stop")
    asked: list[Result] = []
    asker = threading.Thread(target=lambda: asked.append(alice.attempt("qrsub -d 600 -terse")))
    asker.start()
    unanswered = "SELECT ar_id FROM reservations WHERE state = ''"
    number = int(wait_until(lambda: cluster.sql(unanswered))[0][0])
    assert refused_job(cluster, alice, f"--ar {number} true") == f"the advance reservation {number} is not granted yet."
    assert alice.attempt(f"qrdel {number}").err == f'denied: advance_reservation "{number}" does not exist\n'
    cluster.server.do("start")
    asker.join()
    assert (asked[0].code, asked[0].out) == (0, f"{number}\n"), asked[0]


#: What cannot be asked for, and what is said.
MISTAKES = (
    ("-a 202001010000 -d 60", "start time is in the past"),
    ("-a +2h -e +1h", "start time is later than end time"),
    ("-a +2h -e +2h", "start time is later than end time"),
    ("-a +2h", 'missing value for "end time or duration" in advance reservation request'),
    ("-a +1h -e +3h -d 1h", "difference between end and start time does not correspond to duration"),
    ("-d 2", "the duration must be longer than 2 seconds"),
    ("-d xx", 'qrsub: Wrong time format "xx" specified to -d option'),
    ("-a x -d 60", 'qrsub: Wrong date/time format "x" specified to -a option'),
    ("-d 60 -w x", 'qrsub: invalid option argument "-w x"'),
    ("-d 60 -m z", 'qrsub: Wrong mail options list format "z" specified to -m option'),
    ("-d 60 -u nosuch", "error: nosuch is not known as a user"),
    ("-d 60 -l nosuch=1", 'unknown resource "nosuch"'),
    ("-d 60 -N 'a b'", 'denied: "a b" is not a valid object name (invalid character)'),
    ("-d 60 -q nosuch", 'Job was rejected because job requests unknown queue "nosuch"'),
    ("-d 60 -l /network_address=5", "Error: No queue instances to reserve"),
)


def test_what_makes_no_sense_is_refused_in_its_words_and_leaves_nothing(cluster: Cluster, alice: Person) -> None:
    number = ask(alice, "-a +4h -d 600")
    rows = "SELECT count(*), max(revision) FROM reservations"
    before = cluster.sql(rows), number_of_jobs(cluster)
    for words, text in MISTAKES:
        answer = alice.attempt(f"qrsub {words}")
        assert (answer.code, answer.out, answer.err.splitlines()[0]) == (1, "", text), answer
    for words, text in (*MISTAKES[:3], *MISTAKES[5:8]):
        moved = alice.attempt(f"qralter {words} {number}")
        said = text.replace("qrsub:", "qralter:")
        assert (moved.code, moved.out, said in moved.err) == (1, "", True), moved
    assert (cluster.sql(rows), number_of_jobs(cluster)) == before


# -- deletion ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def carol_is_operator(cluster: Cluster) -> Iterator[Person]:
    """She may alter and delete every reservation, and make none."""
    oar = cluster.as_user("oar")
    oar.run("oaruserset -a carol aroperators")
    yield cluster.as_user("carol")
    oar.run("oaruserset -d carol aroperators")


def test_owners_operators_and_managers_delete_and_what_was_reserved_is_free_at_once(
    cluster: Cluster, alice: Person, carol_is_operator: Person
) -> None:
    bob, root = cluster.as_user("bob"), cluster.as_user("root")
    first = ask(alice, f"-d 900 {EVERYTHING} -N first")
    outside = bob.submit("-l nodes=4,walltime=0:0:10 true")
    for word in (first, "first"):
        assert bob.attempt(f"qrdel {word}").err == (
            f'denied: "bob" is not allowed to delete advance_reservation {first}\n'
        )
    assert cluster.state(outside) == "Waiting"
    assert carol_is_operator.run(f"qrdel {first}") == f"carol has deleted advance_reservation {first}\n"
    cluster.wait_for_state(outside, "Terminated")
    second, third = (ask(alice, f"-a +{hours}h -d 60 {EVERYTHING}") for hours in (1, 2))
    assert root.run(f"qrdel {second}") == f"root has deleted advance_reservation {second}\n"
    cluster.as_user("oar").run("oaruserset -d alice arusers")
    assert alice.run(f"qrdel {third}") == f"alice has deleted advance_reservation {third}\n"
    for number, author in ((first, "carol"), (second, "root"), (third, "alice")):
        assert row(cluster, number, "state, deleted_by, ended > 0") == ["d", author, "t"]
        assert log(cluster, number)[-2:] == ["DELETED", "TERMINATED"]
        frame = int(row(cluster, number, "frame_id")[0])
        assert cluster.state(frame) == ("Terminated" if number == first else "Error")


# -- access -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def team(cluster: Cluster) -> Iterator[None]:
    """A userset with bob alone."""
    oar = cluster.as_user("oar")
    oar.run("oaruserset -a bob team")
    yield
    oar.run("oaruserset -f -D team")


@pytest.mark.usefixtures("team")
def test_those_use_a_reservation_whom_its_access_list_allows(cluster: Cluster, alice: Person) -> None:
    bob, carol = cluster.as_user("bob"), cluster.as_user("carol")
    number = ask(alice, "-a +1h -d 600 -u alice")
    denied = f"you are not allowed to use the advance reservation {number}."
    for entries, bob_may, carol_may in (
        ("bob", True, False),
        ("@team", True, False),
        ("@carol", False, True),  # her group: no userset has this name
        ("b*", True, False),
        ("b*,!bob", False, False),
        ("!bob", False, True),
        ("*,!@team", False, True),
        ("%physics", False, False),
        ("NONE", False, False),
    ):
        alice.run(f"qralter -u '{entries}' {number}")
        for person, may in ((bob, bob_may), (carol, carol_may)):
            if may:
                assert person.submit(f"--ar {number} {HELD}")
            else:
                assert refused_job(cluster, person, f"--ar {number} {HELD}") == denied
    assert refused_job(cluster, alice, f"--ar {number} {HELD}") == denied
    alice.run(f"qralter -u %physics {number}")
    assert bob.submit(f"--ar {number} --project physics {HELD}")


@pytest.mark.usefixtures("team")
def test_who_loses_his_access_keeps_what_runs_and_loses_what_waits(cluster: Cluster, alice: Person) -> None:
    bob = cluster.as_user("bob")
    number = ask(alice, "-d 600 -u alice,@team -l /network_address=1")
    runs = bob.submit(f"--ar {number} -l nodes=1,walltime=0:5 'sleep 1000'")
    cluster.wait_for_state(runs, "Running")
    waits, held = (bob.submit(f"--ar {number} {how} -l core=1,walltime=0:1 true") for how in ("", "--hold"))
    hers = alice.submit(f"--ar {number} -l core=1,walltime=0:1 true")
    oar = cluster.as_user("oar")
    kept = oar.attempt("oaruserset -d bob team")
    assert (kept.code, kept.err.splitlines()[0]) == (
        9,
        f'denied: removing "bob" from "team" would break the advance reservation {number}',
    )
    told = alice.run(f"qralter -u alice {number}").splitlines()
    assert sorted(told[1:]) == [
        f"job {job} was deleted: its owner may not use the reservation any more" for job in sorted((waits, held))
    ]
    for job in (waits, held):
        cluster.wait_for_state(job, "Error")
        assert cluster.cause(job) == "RESERVATION"
    assert (cluster.state(runs), cluster.state(hers)) == ("Running", "Waiting")
    assert oar.attempt("oaruserset -d bob team").code == 0


@pytest.fixture
def rule(cluster: Cluster) -> Iterator[list[str]]:
    """A rule of the site that the test writes; it is removed behind it."""
    texts: list[str] = []
    yield texts
    root = cluster.as_user("root")
    for (each,) in cluster.sql("SELECT id FROM admission_rules WHERE rule LIKE '%# of a test%'"):
        root.run(f"oaradmissionrules -d {each}")


def add_rule(cluster: Cluster, text: str) -> None:
    """Add an admission rule that the fixture removes."""
    cluster.as_user("root").run("oaradmissionrules -n -r -", stdin=f"{text}  # of a test\n")


@pytest.mark.usefixtures("rule")
def test_only_what_every_listed_user_may_use_is_reserved(cluster: Cluster, alice: Person) -> None:
    add_rule(cluster, "if user == 'bob': add_property(\"network_address = 'node-3'\")")
    assert hosts(cluster, ask(alice, "-a +1h -d 60 -l /network_address=1")) == ["node-1"]
    number = ask(alice, "-a +1h -d 60 -u alice,bob -l /network_address=1")
    assert hosts(cluster, number) == ["node-3"]
    before = cluster.sql("SELECT count(*) FROM reservations")
    none = alice.attempt("qrsub -a +3h -d 60 -u alice,bob -l /network_address=2")
    assert (none.code, none.out) == (1, "")
    assert none.err.startswith("Error: No queue instances to reserve\n  bob: ")
    add_rule(cluster, "if user == 'bob' and is_advance_reservation: reject('[ADMISSION RULE] bob uses none')")
    for users in ("alice,bob", "@bob"):
        refused = alice.attempt(f"qrsub -a +3h -d 60 -u {users}")
        said = "Error: No queue instances to reserve\n  bob: [ADMISSION RULE] bob uses none\n"
        assert (refused.code, refused.err) == (1, said)
    assert cluster.sql("SELECT count(*) FROM reservations") == before


# -- how many ---------------------------------------------------------------------------------------------------------


def test_twenty_requests_at_once_never_exceed_a_limit_that_holds_at_once(cluster: Cluster, alice: Person) -> None:
    request = "qrsub -a +1h -d 60"
    each = f"({request} >out.$i 2>err.$i; echo $? >code.$i) &"
    with configured(cluster, "MAX_ADVANCE_RESERVATIONS=3"):
        codes = alice.run(f"for i in $(seq 20); do {each} done; wait; cat code.*").split()
        assert sorted(codes) == ["0"] * 3 + ["25"] * 17
        rejected = "rejected: only 3 advance reservations are allowed per cluster"
        assert alice.run("sort -u err.*") == f"{rejected}\n"
        assert len(alice.run("cat out.*").splitlines()) == 3
        assert cluster.sql("SELECT count(*) FROM reservations WHERE ended = 0") == [["3"]]
    with configured(cluster, "MAX_ADVANCE_RESERVATIONS=4"):
        assert [alice.attempt(request).code for _ in range(2)] == [0, 25]
        alice.run("qrdel $(qrstat -terse | head -n 1)")
        assert alice.attempt(request).code == 0
    assert alice.attempt(request).code == 0

"""What is told of advance reservations on the real cluster: XML, bills, the six queries, reports; and their numbers."""

from __future__ import annotations

import itertools
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema

from tests.acceptance.harness import Cluster, Person, configured, wait_until
from tests.acceptance.reservations import (
    ask,
    may_reserve,
    row,
    shown_state,
)
from tests.documents import SOURCE

SCHEMA = SOURCE / "setup" / "qrstat.xsd"
QUERIES = SOURCE / "setup" / "database" / "arco"


@pytest.fixture
def alice(cluster: Cluster) -> Person:
    """She may reserve."""
    return may_reserve(cluster, "alice")


def answers(cluster: Cluster, query: Path, **values: object) -> list[list[str]]:
    """The rows of a query, with the values of its variables."""
    text = query.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f":'{name}'", f"'{value}'")
    return cluster.sql(text)


def test_bills_queries_and_reports_agree_about_what_was_used_and_what_was_not(cluster: Cluster, alice: Person) -> None:
    root = cluster.as_user("root")
    used = ask(alice, "-d 600 -N used -A '<&\"' -u alice,bob -l /network_address=1 -m bea")
    unused = ask(alice, "-d 600 -l /network_address=1")
    job = cluster.as_user("bob").submit(f"--ar {used} -l core=1,walltime=0:1 'sleep 2'")
    cluster.wait_for_state(job, "Terminated")
    waits = ask(alice, "-a +1h -d 10m -pe slots 8")
    told = alice.run("qrstat -xml")
    xmlschema.XMLSchema(SCHEMA).validate(told)
    assert '<&"' in [each.text for each in ElementTree.fromstring(told).iter("account")]
    overview = alice.run("qrstat").splitlines()
    assert overview[0] == ("AR-ID   name       owner        state start at            end at              duration")
    assert overview[1] == "-" * 87
    assert [shown_state(alice, number) for number in (used, unused, waits)] == ["r", "r", "w"]
    alice.run(f"qrdel {used} {unused}")
    xmlschema.XMLSchema(SCHEMA).validate(alice.run(f"qrstat -ar {used},{unused},{waits} -xml"))

    bills = {
        int(line[0]): [int(each) for each in line[1:]]
        for line in cluster.sql("SELECT reservation_id, reserved, used, unusable, unused FROM view_ar_efficiency")
    }
    ids = {number: int(row(cluster, number, "reservation_id")[0]) for number in (used, unused)}
    reserved, taken, unusable, idle = bills[ids[used]]
    assert (taken >= 2, unusable, reserved - taken) == (True, 0, idle)
    assert bills[ids[unused]][1] == 0
    assert f"{used}" in {line[1] for line in answers(cluster, QUERIES / "accounting_per_ar.sql")}
    assert [line[1:] for line in answers(cluster, QUERIES / "by_user.sql", ar_owner="alice") if line[0] == str(unused)]
    (attributes,) = answers(cluster, QUERIES / "attributes.sql", ar_number=used)
    assert attributes[1] == "alice"
    assert '<&"' in attributes
    events = [line[2] for line in answers(cluster, QUERIES / "log.sql", ar_number=used)]
    assert sorted(events) == sorted(["CREATED", "START TIME REACHED", "DELETED", "TERMINATED"])
    times = {line[0]: line[1:] for line in answers(cluster, QUERIES / "time_usage.sql")}
    assert times[str(unused)][0] == "00:00:00"
    assert times[str(unused)][1] == times[str(unused)][2]
    assert str(used) in {line[0] for line in answers(cluster, QUERIES / "jobs_completed.sql")}

    report = [line.split(":") for line in root.run("oaraccounting --reporting").splitlines()]
    keys = {tuple(row(cluster, number, "submission_time, ar_id")) for number in (used, unused, waits)}
    ours = [line for line in report if line[1] != "acct" and keys & set(itertools.pairwise(line))]
    kinds = {kind: sum(line[1] == kind for line in ours) for kind in ("new_ar", "ar_attribute", "ar_log", "ar_acct")}
    identifiers = ", ".join(row(cluster, number, "reservation_id")[0] for number in (used, unused, waits))
    of = f"WHERE reservation_id IN ({identifiers})"
    tables = {
        "new_ar": f"SELECT count(*) FROM reservations {of}",
        "ar_attribute": f"SELECT count(*) FROM reservation_revisions {of}",
        "ar_log": f"SELECT count(*) FROM reservation_logs {of}",
        "ar_acct": f"SELECT count(*) FROM reservation_usage {of}",
    }
    assert kinds == {kind: int(cluster.sql(count)[0][0]) for kind, count in tables.items()}
    (of_job,) = [line for line in report if line[1] == "acct" and line[7] == str(job)]
    assert (of_job[5], of_job[-2]) == ("bob", str(used))


#: Jobs and reservations whose end has come and that are not ended yet.
LEAVING = """
    SELECT (SELECT count(*) FROM reservations WHERE ended = 0 AND state IN ('x', 'd'))
        + (SELECT count(*) FROM jobs WHERE state = 'Finishing')"""


def test_both_ways_of_accounting_have_the_same_sum(cluster: Cluster, alice: Person) -> None:
    root = cluster.as_user("root")
    number = ask(alice, "-d 600 -project shared -u alice,bob -l /network_address=2")
    job = cluster.as_user("bob").submit(f"--ar {number} --project shared -l core=1,walltime=0:1 'sleep 2'")
    cluster.wait_for_state(job, "Terminated")
    alice.run(f"qrdel {number}")
    wait_until(lambda: cluster.sql(LEAVING) == [["0"]])  # what ends between both counts is in one of them
    sums = {}
    for way in ("owner", "users"):
        with configured(cluster, f'RESERVATION_ACCOUNTING="{way}"'):
            root.run("oaraccounting --reinitialize; oaraccounting")
            rows = cluster.sql(
                "SELECT accounting_user, sum(consumption) FROM accounting"
                " WHERE consumption_type = 'USED' AND accounting_project = 'shared' GROUP BY 1"
            )
            sums[way] = {user: int(seconds) for user, seconds in rows}
    assert sum(sums["owner"].values()) == sum(sums["users"].values()) > 0
    assert sums["users"]["bob"] - sums["owner"].get("bob", 0) >= 2


def test_numbers_begin_again_behind_the_largest_and_skip_one_that_lives(cluster: Cluster, alice: Person) -> None:
    cluster.sql("SELECT setval('reservations_reservation_id_seq', 9999998)")
    assert [ask(alice, "-a +1h -d 60") for _ in range(2)] == [9999999, 1]
    cluster.sql("SELECT setval('reservations_reservation_id_seq', 19999998)")
    inside = ask(alice, "-d 600")
    assert inside == 2  # 1 lives
    job = alice.submit(f"--ar {inside} -l core=1,walltime=0:0:10 'echo $OAR_AR_ID > which'")
    cluster.wait_for_state(job, "Terminated")
    assert alice.run("cat which") == "2\n"
    assert alice.run("qrstat -terse").split() == ["1", "2", "9999999"]

"""Advance reservations beside jobs on the real cluster: what is in their way, and what leaves in time for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, timedelta

import pytest

from oar.lib.base.grid_engine_times import write_date, write_option_date
from tests.acceptance.harness import Cluster, Person, configured, wait_until
from tests.acceptance.reservations import (
    EVERYTHING,
    ask,
    hosts,
    log,
    record,
    row,
    wait_for_reservation,
)


def dates(cluster: Cluster, job: int) -> tuple[int, int]:
    """When a job began and ended."""
    ((start, stop),) = cluster.sql(f"SELECT start_time, stop_time FROM jobs WHERE job_id = {job}")
    return int(start), int(stop)


def held_by(cluster: Cluster, job: int) -> set[str]:
    """The nodes on which a job is, or was."""
    rows = cluster.sql(
        "SELECT DISTINCT network_address FROM jobs JOIN assigned_resources ON moldable_job_id = assigned_moldable_job"
        f" JOIN resources USING (resource_id) WHERE job_id = {job}"
    )
    return {each[0] for each in rows}


QUOTAS = {"quotas": {"*,*,*,bob": [4, -1, -1]}}


@pytest.fixture
def quotas(cluster: Cluster) -> Iterator[None]:
    """Bob may have four cores."""
    oar, root = cluster.as_user("oar"), cluster.as_user("root")
    oar.run("oaruserset -a bob arusers")
    root.run("cat >/etc/oar/quotas_conf.json", stdin=json.dumps(QUOTAS))
    with configured(cluster, 'QUOTAS="yes"'):
        yield
    root.run("rm /etc/oar/quotas_conf.json")
    oar.run("oaruserset -d bob arusers")


@pytest.mark.usefixtures("quotas")
def test_quotas_count_neither_a_reservation_nor_its_jobs(cluster: Cluster) -> None:
    bob = cluster.as_user("bob")
    core = "-l core=1,walltime=0:5 'sleep 1000'"
    outside = [bob.submit(core) for _ in range(5)]
    for job in outside[:4]:
        cluster.wait_for_state(job, "Running")
    told = f"oarstat --explain {outside[4]}"
    wait_until(lambda: "quota" in bob.run(told), lambda: bob.run(told))
    number = ask(bob, "-d 600 -l /resource_id=4")
    inside = [bob.submit(f"--ar {number} {core}") for _ in range(4)]
    for job in inside:
        cluster.wait_for_state(job, "Running")
    assert [cluster.state(job) for job in outside] == ["Running"] * 4 + ["Waiting"]


def test_a_besteffort_job_writes_its_checkpoint_and_is_gone_before_the_start(cluster: Cluster, alice: Person) -> None:
    bob = cluster.as_user("bob")
    bob.run("rm -rf ~/*")
    trap = 'trap "date +%s > signalled" USR2; touch ready; while :; do sleep 0.1; done'
    checkpoint, offset = 30, 30
    job = bob.submit(f"-t besteffort --checkpoint {checkpoint} -l nodes=4,walltime=1 '{trap}'")
    wait_until(lambda: bob.attempt("test -e ready").code == 0, "the trap is set")
    with configured(cluster, f"RESERVATION_DURATION_OFFSET={offset}"):
        number = ask(alice, f"-a +70 -d 300 {EVERYTHING}")
    inside = alice.submit(f"--ar {number} -l nodes=4,walltime=0:1 hostname")
    start = int(row(cluster, number, "start_time")[0])
    cluster.wait_for_state(job, "Error")
    signalled = int(bob.run("cat signalled"))
    assert start - offset - checkpoint <= signalled <= start - offset
    assert signalled <= dates(cluster, job)[1] <= start
    cluster.wait_for_state(inside, "Terminated")
    assert record(alice, number)["state"] == "r"
    assert dates(cluster, inside)[0] - start <= 60
    assert log(cluster, number) == ["CREATED", "START TIME REACHED"]  # it began with all of its resources


# -- changes ----------------------------------------------------------------------------------------------------------


def denied(person: Person, number: int, arguments: str) -> str:
    """Why a change is refused."""
    answer = person.attempt(f"qralter {arguments} {number}")
    first, _, rest = answer.err.partition("\n")
    assert (answer.code, answer.out, first) == (1, "", f"denied: Reservation {number} can't be altered"), answer
    return rest


def test_a_running_reservation_keeps_its_start_its_jobs_and_its_resources_while_a_change_is_refused(
    cluster: Cluster, alice: Person
) -> None:
    number = ask(alice, "-d 10m -l /network_address=2")
    wait_for_reservation(cluster, number, "r")
    start, end = map(int, row(cluster, number, "start_time, end_time"))
    beside = ask(alice, f"-a {write_option_date(end + 300)} -d 1h {EVERYTHING}")
    core = "'sleep 1000'"
    runs = alice.submit(f"--ar {number} -l nodes=1,walltime=0:5 {core}")
    cluster.wait_for_state(runs, "Running")
    stays = alice.submit(f"--ar {number} -l nodes=2,walltime=0:3 {core}")
    outside = cluster.as_user("bob").submit("-l nodes=3,walltime=0:0:10 true")
    before = row(cluster, number, "start_time, end_time, resources, revision")
    assert "the start time of a running advance reservation can't be changed" in denied(alice, number, "-a +5m")
    only = f"its resources are free only until {write_date(end + 300)} (advance reservation {beside})"
    assert only in denied(alice, number, "-d 30m")
    assert f"job {runs} runs" in denied(alice, number, "-e +1m")
    assert f"until {write_date(end + 300)} (advance reservation {beside})" in denied(
        alice, number, "-d 30m -l /network_address=4"
    )
    assert "its jobs hold resources that it would give up" in denied(
        alice, number, f"-p \"network_address <> '{min(held_by(cluster, runs))}'\""
    )
    assert row(cluster, number, "start_time, end_time, resources, revision") == before
    assert cluster.state(outside) == "Waiting"
    assert dates(cluster, outside)[0] == 0

    told = alice.run(f"qralter -l /network_address=1 {number}")
    assert f"job {stays} was deleted: it no longer fits\n" in told
    cluster.wait_for_state(stays, "Error")
    assert cluster.cause(stays) == "RESERVATION"
    assert set(hosts(cluster, number)) == held_by(cluster, runs)
    cluster.wait_for_state(outside, "Terminated")  # what was given up is free at once
    alice.run(f"qralter -e {write_option_date(end + 300)} {number}")
    assert row(cluster, number, "start_time, end_time") == [str(start), str(end + 300)]
    alice.run(f"qralter -f -e +5 {number}")
    wait_for_reservation(cluster, number, "gone")
    assert (cluster.state(runs), cluster.cause(runs)) == ("Error", "RESERVATION")
    assert dates(cluster, runs)[1] <= int(row(cluster, number, "ended")[0])


# -- series -----------------------------------------------------------------------------------------------------------


def change_to_summer_time() -> date:
    """Return the next day but a year of the change in Paris, which is not near: the last Sunday of a March."""
    last = date(date.today().year + 1, 3, 31)
    return last - timedelta(days=(last.weekday() + 1) % 7)


@pytest.fixture
def in_paris() -> dict[str, str]:
    """The variables of somebody who types his dates as a clock in Paris shows them."""
    return {"TZ": "Europe/Paris"}


def test_a_series_keeps_the_hour_of_the_wall_over_the_change_to_summer_time(
    cluster: Cluster, alice: Person, in_paris: dict[str, str]
) -> None:
    change = change_to_summer_time()
    before = change - timedelta(days=1)
    request = f"qrsub -a {before:%Y%m%d}0900 -d 1h -N spring -l /network_address=1 -rrule 'FREQ=DAILY;COUNT=6' -depth 3"
    numbers = [int(each) for each in alice.run(f"{request} -terse", env=in_paris).split()]
    first, second, third = (int(row(cluster, number, "start_time")[0]) for number in numbers)
    assert (second - first, third - second) == (23 * 3600, 24 * 3600)
    altered = alice.run(f"qralter -a {change:%Y%m%d}0930 {numbers[1]}", env=in_paris)
    assert altered.splitlines()[1] == f"now {change:%m/%d/%Y} 09:30:00 to {change:%m/%d/%Y} 10:30:00"
    assert alice.run(f"qrdel {numbers[0]}") == f"alice has deleted advance_reservation {numbers[0]}\n"
    wait_until(lambda: len(alice.run("qrstat -terse").split()) == 3)
    (following,) = {int(each) for each in alice.run("qrstat -terse").split()} - {*numbers}
    assert row(cluster, following, "start_time, series_index") == [str(third + 24 * 3600), "4"]  # the template's hour
    alice.run("qrdel spring")
    assert alice.run("qrstat; qrstat -series") == ""

"""Advance reservations in the accounting: nothing is counted twice, whoever pays."""

from collections.abc import Sequence
from typing import Any

import pytest

from oar.cli import oaraccounting
from oar.cli.common.command import invoke
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.jobs.states import JobState
from oar.lib.reservations.states import IntervalKind
from oar.lib.runtime import Runtime
from tests.builders import add_job, add_resources, execute_sql, move_job
from tests.db.reservation_site import NOW, Site

SLOTS, SECONDS = 4, 1000
ROOT = User("root", 0)


@pytest.fixture(autouse=True)
def resources(site: Site) -> list[int]:
    return add_resources(site.database, nodes=2, cores=2)


def run_job(site: Site, reservation: int, on: Sequence[int], start: int, stop: int, **columns: Any) -> int:
    """Add a job of bob's that was in a reservation, on some of its resources, between two dates after its start."""
    frame = site.get(reservation).frame_id
    types = {"types": (f"inner={frame}",), **columns}
    job = add_job(site.database, JobState.TERMINATED, on=on, walltime=stop - start, user="bob", **types)
    with site.database.begin() as tx:
        tx.reservations.add_job(reservation, [job])
        dates = (NOW + start, NOW + stop, job)
        tx.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", dates)
    return job


def begin(site: Site, **fields: Any) -> int:
    """Let a reservation of alice's begin, on all resources."""
    reservation = site.ask(f"/resource_id={SLOTS}", NOW, NOW + SECONDS, **fields)
    site.round()
    return reservation


def consumed(site: Site, kind: str = "USED", **keys: Any) -> dict[str, int]:
    """Count all jobs anew; return what each user consumed."""
    runtime = Runtime(Config(**keys), site.database)
    result = invoke(oaraccounting.main, ["-q", "--reinitialize"], runtime=runtime, user=ROOT)
    assert (result.exit, result.err) == (0, "")
    with site.database.begin() as tx:
        return dict(
            tx.rows(
                "SELECT accounting_user, sum(consumption)::bigint FROM accounting WHERE consumption_type = %s"
                " GROUP BY 1 HAVING sum(consumption) <> 0",
                (kind,),
            )
        )


def test_the_owner_pays_for_all_or_the_users_for_theirs(site: Site, resources: list[int]) -> None:
    reservation = begin(site)
    run_job(site, reservation, resources[:2], 100, 400)
    run_job(site, reservation, resources[:1], 400, 450)
    site.round(NOW + SECONDS)
    assert consumed(site) == {"alice": 4000}
    assert consumed(site, reservation_accounting="users") == {"alice": 3350, "bob": 650}
    assert consumed(site, "ASKED") == {"alice": 4000}
    assert consumed(site, "ASKED", reservation_accounting="users") == {"alice": 3350, "bob": 650}


def test_inner_jobs_that_count_are_not_those_of_reservations(site: Site, resources: list[int]) -> None:
    reservation = begin(site)
    container = run_job(site, reservation, resources[:2], 100, 400, types=("container",))
    inner = add_job(
        site.database, JobState.TERMINATED, on=resources[:1], walltime=100, user="carol", types=(f"inner={container}",)
    )
    execute_sql(
        site.database, "UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", NOW + 150, NOW + 250, inner
    )
    site.round(NOW + SECONDS)
    assert consumed(site) == {"alice": 4000}
    assert consumed(site, reservation_accounting="users") == {"alice": 3400, "bob": 600}
    assert consumed(site, accounting_inner=True) == {"alice": 4000, "carol": 100}


def test_a_reservation_that_nobody_used_or_that_was_broken_off(site: Site) -> None:
    reservation = begin(site)
    site.go_to(NOW + 300)
    site.delete(User("alice", 1001), reservation)
    site.round(NOW + 301)
    for mode in ("owner", "users"):
        assert consumed(site, reservation_accounting=mode) == {"alice": 1200}
        assert consumed(site, "ASKED", reservation_accounting=mode) == {"alice": 4000}


def test_intervals_that_nobody_closed_count_no_longer_than_their_reservation(site: Site) -> None:
    reservation = begin(site)
    site.go_to(NOW + 300)
    site.delete(User("alice", 1001), reservation)
    site.round(NOW + 301)
    execute_sql(site.database, "UPDATE reservation_intervals SET date_stop = 0 WHERE reservation_id = %s", reservation)
    for mode in ("owner", "users"):
        assert consumed(site, reservation_accounting=mode) == {"alice": 1200}
        assert consumed(site, "ASKED", reservation_accounting=mode) == {"alice": 4000}


def test_one_that_never_began_costs_nothing(site: Site) -> None:
    reservation = site.ask("/resource_id=1", NOW + 500, NOW + 900)
    site.round()
    site.delete(User("alice", 1001), reservation)
    site.round(NOW + 1000)
    assert consumed(site) == {}


def test_replaced_resources_count_as_long_as_they_were_granted(site: Site, resources: list[int]) -> None:
    reservation = site.ask("/resource_id=2", NOW, NOW + SECONDS)
    site.round()
    first, second = site.get(reservation).resources
    other = next(each for each in resources if each not in (first, second))
    with site.database.begin() as tx:
        tx.reservations.end_intervals(reservation, IntervalKind.GRANTED, [second], NOW + 400)
        tx.reservations.begin_intervals(reservation, IntervalKind.GRANTED, [other], NOW + 400)
        tx.reservations.update(reservation, resources=sorted([first, other]))
        tx.execute(
            "INSERT INTO assigned_resources (moldable_job_id, resource_id)"
            " SELECT assigned_moldable_job, %s FROM jobs WHERE job_id = %s",
            (other, tx.reservations.select([reservation])[0].frame_id),
        )
    run_job(site, reservation, [second], 300, 400)
    run_job(site, reservation, [other], 400, 600)
    site.round(NOW + SECONDS)
    assert consumed(site) == {"alice": 2000}
    assert consumed(site, reservation_accounting="users") == {"alice": 1700, "bob": 300}
    with site.database.begin() as tx:
        bill = tx.reservation_logs.select_bills([reservation])[reservation]
    assert (sum(row.reserved for row in bill), sum(row.used for row in bill)) == (2000, 300)


def test_time_in_suspension_that_is_not_the_users_is_the_owners(site: Site, resources: list[int]) -> None:
    reservation = begin(site)
    job = run_job(site, reservation, resources[:2], 100, 400)
    execute_sql(
        site.database,
        "INSERT INTO job_state_logs (job_id, job_state, date_start, date_stop) VALUES (%s, 'Suspended', %s, %s)",
        job,
        NOW + 200,
        NOW + 250,
    )
    site.round(NOW + SECONDS)
    keys: dict[str, Any] = {"accounting_subtract_suspended": True, "reservation_accounting": "users"}
    assert consumed(site, **keys) == {"alice": 3500, "bob": 500}
    assert consumed(site, reservation_accounting="users") == {"alice": 3400, "bob": 600}


def test_a_slot_that_two_jobs_share_is_taken_from_the_owner_once(site: Site, resources: list[int]) -> None:
    reservation = begin(site)
    for start in (100, 200):
        run_job(site, reservation, resources[:1], start, start + 200)
    site.round(NOW + SECONDS)
    assert consumed(site, reservation_accounting="users") == {"alice": 3700, "bob": 400}
    with site.database.begin() as tx:
        assert sum(row.used for row in tx.reservation_logs.select_bills([reservation])[reservation]) == 300


def test_both_ways_and_the_bill_have_the_same_sum(site: Site, resources: list[int]) -> None:
    reservation = begin(site)
    for place in range(24):
        start = (place // SLOTS) * 150 + (place * 37) % 60
        run_job(site, reservation, [resources[place % SLOTS]], start, start + 20 + (place * 13) % 70)
    site.round(NOW + SECONDS)
    by_owner, by_users = consumed(site), consumed(site, reservation_accounting="users")
    with site.database.begin() as tx:
        bill = tx.reservation_logs.select_bills([reservation])[reservation]
    assert sum(by_owner.values()) == sum(by_users.values()) == sum(row.reserved for row in bill) == SLOTS * SECONDS
    assert by_users["bob"] == sum(row.used for row in bill)


def test_jobs_of_a_flexible_reservation_are_always_their_users(site: Site, resources: list[int]) -> None:
    reservation = begin(site)
    run_job(site, reservation, resources[:1], 100, 400, types=())
    with site.database.begin() as tx:
        tx.reservations.update(reservation, flex="YES")
    site.round(NOW + SECONDS)
    for mode in ("owner", "users"):
        assert consumed(site, reservation_accounting=mode) == {"alice": 3700, "bob": 300}


def test_the_bill_is_dated_when_the_reservation_leaves(site: Site, resources: list[int]) -> None:
    reservation = begin(site)
    inside = site.submit_inside(reservation)
    site.round(NOW + 1)
    site.round(NOW + SECONDS)
    assert site.get(reservation).ended == 0
    move_job(site.database, inside, JobState.ERROR)
    site.round(NOW + SECONDS + 30)
    with site.database.begin() as tx:
        bill = tx.reservation_logs.select_bills([reservation])[reservation]
    assert {(row.reserved, row.termination_time) for row in bill} == {(2 * SECONDS, NOW + SECONDS + 30)}

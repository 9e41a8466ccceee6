"""How long ended advance reservations are kept: RETENTION_RESERVATIONS, oar-database --purge."""

import pytest

from oar.lib.config.files import Config, parse
from oar.lib.jobs import accounting, retention
from oar.lib.jobs.states import JobState
from tests.builders import add_resources, execute_sql, move_job
from tests.db.reservation_site import ALICE, HOUR, NOW, Site

DAY = 86400
TABLES = (
    *("reservations", "reservation_acl", "reservation_jobs", "reservation_revisions", "reservation_changes"),
    *("reservation_logs", "reservation_intervals", "reservation_usage", "jobs"),
)


def purged(site: Site, days: int = 30) -> int:
    return sum(retention.purge_reservations(site.database, days))


def rows(site: Site) -> dict[str, int]:
    """Return how many rows the tables have that have any."""
    with site.database.begin() as tx:
        counts = {table: tx.value(f"SELECT count(*) FROM {table}") for table in TABLES}
    return {table: count for table, count in counts.items() if count}


def account(site: Site) -> None:
    """Count all jobs that have ended, frames too."""
    list(accounting.count(site.database, accounting.accounting_rules(Config())))


@pytest.fixture
def ended(site: Site) -> int:
    """A reservation that is over, and was lost in part."""
    ids = add_resources(site.database, nodes=2, cores=1)
    number = site.ask("/resource_id=2", NOW, NOW + HOUR)
    site.round()
    execute_sql(site.database, "UPDATE resources SET state = 'Suspected' WHERE resource_id = %s", ids[1])
    site.round(NOW + 10)
    with site.database.begin() as tx:
        tx.reservations.request_change(number, "alice", "{}", NOW + 20)
    site.round(NOW + HOUR)
    return number


def test_an_old_one_goes_with_all_its_rows_and_its_frame(site: Site, ended: int) -> None:
    live = site.ask("/resource_id=1", NOW + 400 * DAY, NOW + 401 * DAY)
    site.round()
    site.round(NOW + 31 * DAY)
    assert purged(site) == 0  # its frame is not accounted
    account(site)
    assert (purged(site, days=32), retention.count_old_reservations(site.database, 30), purged(site)) == (0, 1, 1)
    assert rows(site) == dict.fromkeys(
        (
            "reservations",
            "reservation_acl",
            "reservation_revisions",
            "reservation_logs",
            "reservation_intervals",
            "jobs",
        ),
        1,
    )
    assert site.get(live).frame_id


def test_one_of_which_a_job_is_kept_stays(site: Site, ended: int) -> None:
    add_resources(site.database, nodes=1)
    number = site.ask("/resource_id=1", NOW + HOUR, NOW + 2 * HOUR)
    site.round()
    inside = site.submit_inside(number)
    site.delete(ALICE, number)
    move_job(site.database, inside, JobState.ERROR)
    site.round()
    site.go_to(NOW + 40 * DAY)
    account(site)
    assert purged(site) == 1
    assert site.get(number).ended
    with site.database.begin() as tx:
        tx.retention.remove_jobs([inside])
    assert (purged(site), rows(site)) == (1, {})


def test_older_keys_mean_the_same() -> None:
    for name in ("RETENTION_RESERVATIONS", "RETENTION_RESERVATION_LOGS", "RETENTION_RESERVATION_USAGE"):
        assert parse(f"{name}=9\n").config.retention_reservations == 9


def test_a_refused_request_goes_too(site: Site) -> None:
    add_resources(site.database, nodes=1, cores=1)
    site.ask("/resource_id=5", NOW, NOW + HOUR)
    site.round()
    site.go_to(NOW + 40 * DAY)
    account(site)
    assert (purged(site), rows(site)) == (1, {})

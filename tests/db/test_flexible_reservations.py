"""Flexible advance reservations: their jobs may be in them, beside them, before them, and after them."""

import pytest

from oar.cli import oaralter, oarstat
from oar.lib.jobs import lifecycle
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState
from oar.lib.reservations.deletion import Deletion
from oar.lib.reservations.states import ReservationState
from tests.db.reservation_site import ALICE, HOUR, NOW, Site
from tests.frontend import LoginNode


@pytest.fixture
def number(login: LoginNode, site: Site) -> int:
    """A flexible reservation of one node for an hour, which begins in 100 s."""
    made = site.ask("/network_address=1", NOW + 100, NOW + 100 + HOUR, is_flexible=True)
    site.round()
    assert site.state(made) is ReservationState.WAITING
    return made


def inside(site: Site, job: Job) -> tuple[tuple[str, ...], int]:
    """Return the types of a job, and the id of the reservation that it is in."""
    with site.database.begin() as tx:
        return tx.jobs.types([job.id]).get(job.id, ()), tx.reservations.of_jobs([job.id]).get(job.id, 0)


def test_its_jobs_are_checked_like_jobs_outside(site: Site, login: LoginNode, number: int) -> None:
    job = login.submit("--ar", number, "-l", "/network_address=2,walltime=9", "true")
    assert inside(site, job) == ((f"allowed=ar{number}",), number)
    site.round(NOW + 1)
    assert site.job(job.id) is JobState.TO_LAUNCH
    told = login.oarsub("--ar", number, "-l", "/network_address=2", "true").out
    assert told.startswith(f"[AR {number}] Set walltime to 2:0:0.\n")  # it may go on after the hour
    refused = login.oarsub("--ar", number, "-l", "/network_address=3", "true")
    assert "# There are not enough resources for your request\n" in refused.err


def test_its_end_leaves_its_jobs_and_waiting_ones_go_on_without_it(site: Site, login: LoginNode, number: int) -> None:
    running, held = (login.submit("--ar", number, "-l", "/network_address=2,walltime=9", "x") for _ in range(2))
    site.round(NOW + 1)
    site.round(NOW + 100)
    assert site.state(number) is ReservationState.RUNNING
    site.round(NOW + 100 + HOUR)
    assert site.get(number).ended == NOW + 100 + HOUR
    assert site.job(site.get(number).frame_id) is JobState.TERMINATED
    assert (site.job(running.id), site.job(held.id)) == (JobState.TO_LAUNCH, JobState.WAITING)
    assert inside(site, running) == ((f"allowed=ar{number}",), number)
    assert inside(site, held) == ((), 0)
    with site.database.begin() as tx:
        assert tx.job_requests.jobs_to_kill([running.id, held.id]) == set()
        lifecycle.move(tx, running.id, JobState.ERROR)
    site.round(NOW + 101 + HOUR)
    assert site.job(held.id) is JobState.TO_LAUNCH


def test_its_deletion_leaves_its_jobs(site: Site, login: LoginNode, number: int) -> None:
    job = login.submit("--ar", number, "-l", "/network_address=2,walltime=9", "-t", "noop", "x")
    assert site.delete(ALICE, number) is Deletion.DELETED
    assert (site.get(number).ended, inside(site, job)) == (NOW, (("noop",), 0))


def test_a_waiting_job_enters_it_and_leaves_it(site: Site, login: LoginNode, number: int) -> None:
    job = login.submit("-l", "/network_address=2,walltime=9", "x")
    assert login.type(oaralter.main, "--ar", number, job.id).exit == 0
    assert inside(site, job) == ((f"allowed=ar{number}",), number)
    assert login.type(oarstat.main, "--ar", number, "--fields", "id", "--no-header").out.split() == [str(job.id)]
    assert login.type(oaralter.main, "--ar", "none", job.id).exit == 0
    assert inside(site, job) == ((), 0)


def test_nobody_enters_it_by_its_type(login: LoginNode, number: int) -> None:
    result = login.oarsub("-t", f"allowed=ar{number}", "x")
    shown = f"ar{number} is the placeholder of the advance reservation {number}, use --ar {number}."
    assert (result.exit, shown in result.err) == (8, True)

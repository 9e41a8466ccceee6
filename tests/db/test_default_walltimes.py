"""Jobs that were submitted into an advance reservation without walltime: their limit ends with the reservation."""

import pytest

from oar.cli import oaralter
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.access.records import User
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState
from oar.lib.reservations.states import ReservationState as S
from oar.lib.submission import resubmission
from tests.builders import add_resources, move_job
from tests.db.reservation_site import HOUR, NOW, Site, Typed
from tests.frontend import LoginNode, add_rules

#: What the rules of the site give a job without walltime.
DEFAULT = 7200


@pytest.fixture
def login(site: Site) -> LoginNode:
    """A frontend of three nodes of two cores, with the default rules."""
    add_resources(site.database, nodes=3, cores=2)
    add_rules(site.database)
    return LoginNode(site.database)


@pytest.fixture
def number(login: LoginNode, site: Site) -> int:
    """A running advance reservation of one node, for an hour."""
    made = site.ask("/network_address=1", NOW, NOW + HOUR)
    site.round()
    assert site.state(made) is S.RUNNING
    return made


def walltimes(site: Site, job: Job) -> list[int]:
    with site.database.begin() as tx:
        return [moldable.walltime for moldable in tx.new_jobs.moldables_of_jobs([job.id])[job.id]]


def end(site: Site, job: Job) -> None:
    move_job(site.database, job.id, JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING, JobState.TERMINATED)


def alter_job(login: LoginNode, job: Job, *words: object) -> None:
    assert login.type(oaralter.main, *words, job.id).exit == 0


def test_one_that_could_not_begin_at_once_has_what_is_left_when_it_begins(
    site: Site, login: LoginNode, number: int
) -> None:
    first = login.submit("--ar", number, "-l", "nodes=1,walltime=0:30", "x")
    late = login.submit("--ar", number, "-l", "nodes=1", "x")
    asked = login.submit("--ar", number, "-l", "nodes=1,walltime=0:59", "x")
    site.round()
    end(site, first)
    site.round(NOW + 1200)
    assert [site.job(job.id) for job in (late, asked)] == [JobState.TO_LAUNCH, JobState.WAITING]
    assert (walltimes(site, late), walltimes(site, asked)) == ([HOUR - 6 - 1200], [3540])


def test_it_is_foreseen_behind_the_job_that_it_waits_for(site: Site, login: LoginNode, number: int) -> None:
    login.submit("--ar", number, "-l", "nodes=1,walltime=0:30", "x")
    late = login.submit("--ar", number, "-l", "nodes=1", "x")
    site.round()
    with site.database.begin() as tx:
        assert tx.job_waits.reasons([late.id])[late.id].text.startswith(f"the advance reservation {number} is busy")
        starts = {
            moldable.job_id: tx.plan.starts().get(moldable.id)
            for moldable in tx.new_jobs.moldables_of_jobs([late.id])[late.id]
        }
    assert starts == {late.id: NOW + 1801}


def test_a_second_round_that_remembers_the_first_decides_as_a_new_scheduler_does(
    site: Site, login: LoginNode, number: int
) -> None:
    first = login.submit("--ar", number, "-l", "nodes=1,walltime=0:30", "x")
    jobs = [login.submit("--ar", number, "-l", "/resource_id=1", "x") for _ in range(3)]
    for date in (NOW, NOW + 1, NOW + 30):
        site.round(date)
    with site.database.begin() as tx:
        warm = tx.plan.starts()
    site.scheduler = MetaScheduler(site.runtime)
    site.round()
    with site.database.begin() as tx:
        assert {key: start for key, start in tx.plan.starts().items() if key} == {k: s for k, s in warm.items() if k}
    end(site, first)
    site.round(NOW + 60)
    assert [site.job(job.id) for job in jobs] == [JobState.TO_LAUNCH, JobState.TO_LAUNCH, JobState.WAITING]
    assert [walltimes(site, job) for job in jobs[:2]] == [[HOUR - 66]] * 2


def test_all_of_an_array_begin_one_after_the_other_until_the_end(site: Site, login: LoginNode, number: int) -> None:
    assert login.oarsub("--ar", number, "--array", 3, "-l", "nodes=1", "x").exit == 0
    jobs = login.jobs()[-3:]
    for index, job in enumerate(jobs):
        site.round(NOW + 600 * index)
        assert (site.job(job.id), walltimes(site, job)) == (JobState.TO_LAUNCH, [HOUR - 6 - 600 * index])
        end(site, job)


def test_of_a_moldable_job_the_way_without_walltime_begins_when_the_other_is_too_long(
    site: Site, login: LoginNode, number: int
) -> None:
    job = login.submit("--ar", number, "-l", "nodes=1,walltime=0:50", "-l", "/resource_id=1", "x")
    site.round(NOW + 1800)
    assert (site.job(job.id), walltimes(site, job)) == (JobState.TO_LAUNCH, [3000, 1794])


def test_a_longer_reservation_lets_it_last_as_long_as_the_site_does(
    site: Site, login: LoginNode, alter: Typed, number: int
) -> None:
    first = login.submit("--ar", number, "-l", "nodes=1,walltime=0:30", "x")
    jobs = [login.submit("--ar", number, "-l", "/resource_id=1", "x") for _ in range(2)]
    site.round()
    assert alter("-d", "4:0:0", str(number)).exit == 0
    end(site, first)
    site.round(NOW + 600)
    assert [walltimes(site, job) for job in jobs] == [[DEFAULT]] * 2


def test_a_shorter_reservation_keeps_it_and_cuts_it(site: Site, login: LoginNode, alter: Typed, number: int) -> None:
    first = login.submit("--ar", number, "-l", "nodes=1,walltime=0:10", "x")
    job = login.submit("--ar", number, "-l", "/resource_id=1", "x")
    asked = login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:30", "x")
    site.round()
    assert alter("-d", "1200", str(number)).exit == 0
    with site.database.begin() as tx:
        assert tx.column("SELECT frag_id_job FROM frag_jobs") == [asked.id]
    site.go_to(NOW + 600)
    end(site, first)
    site.round()
    assert (site.job(job.id), walltimes(site, job)) == (JobState.TO_LAUNCH, [594])


def test_one_that_is_moved_in_has_what_is_left_and_one_that_is_moved_out_the_default(
    site: Site, login: LoginNode, number: int
) -> None:
    site.go_to(NOW + 1800)
    job = login.submit("-l", "/resource_id=1", "x")
    alter_job(login, job, "--ar", number)
    assert walltimes(site, job) == [1794]
    alter_job(login, job, "--ar", "none")
    assert walltimes(site, job) == [DEFAULT]
    alter_job(login, job, "--ar", number, "-l", "walltime=0:10")
    alter_job(login, job, "--ar", "none")
    assert walltimes(site, job) == [600]


def test_jobs_of_a_flexible_reservation_have_the_default_of_the_site(site: Site, login: LoginNode) -> None:
    made = site.ask("/network_address=1", NOW, NOW + HOUR, is_flexible=True)
    site.round()
    job = login.submit("--ar", made, "-l", "/resource_id=1", "x")
    site.round(NOW + 600)
    assert (site.job(job.id), walltimes(site, job)) == (JobState.TO_LAUNCH, [DEFAULT])


def test_a_copy_has_what_is_left_then(site: Site, login: LoginNode, number: int) -> None:
    job = login.submit("--ar", number, "-l", "/resource_id=1", "x")
    site.round()
    end(site, job)
    site.go_to(NOW + 1800)
    with site.database.begin() as tx:
        copy = resubmission.resubmit(tx, login.config, User("alice", 1001), job.id)
        assert [each.walltime for each in tx.new_jobs.moldables_of_jobs([copy])[copy]] == [1794]
    site.round(NOW + 2400)
    assert site.job(copy) is JobState.TO_LAUNCH

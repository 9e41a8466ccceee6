"""Jobs of all kinds in advance reservations: accepted by oarsub --ar, started where and when they may."""

import json

import pytest

from oar.cli import oarstat
from oar.lib.jobs import control, lifecycle
from oar.lib.jobs.ends import EndCode
from oar.lib.jobs.records import Job, JobSpec
from oar.lib.jobs.states import JobState, JobType
from oar.lib.reservations.states import ReservationState as S
from oar.lib.runtime import Runtime
from oar.lib.submission import submit
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.resource_request import parse_request
from oar.modules import leon
from tests.builders import add_resources, execute_sql, for_no_reason, move_job
from tests.db.reservation_site import HOUR, NOW, Site
from tests.frontend import LoginNode, add_rules


@pytest.fixture
def ids(site: Site) -> list[int]:
    """Three nodes of two cores."""
    return add_resources(site.database, nodes=3, cores=2, deploy="YES")


@pytest.fixture
def login(site: Site, ids: list[int]) -> LoginNode:
    """A frontend with the default rules."""
    add_rules(site.database)
    return LoginNode(site.database)


@pytest.fixture
def number(login: LoginNode, site: Site) -> int:
    """A running advance reservation of two nodes, for an hour."""
    made = site.ask("/network_address=2", NOW, NOW + HOUR)
    site.round()
    assert site.state(made) is S.RUNNING
    return made


def begun(site: Site, *jobs: Job) -> list[bool]:
    """Return which jobs a round starts, or has started."""
    site.round()
    return [site.job(job.id) not in (JobState.WAITING, JobState.HOLD) for job in jobs]


def held(site: Site, job: Job) -> set[int]:
    """Return the resources of a job that was started."""
    with site.database.begin() as tx:
        return {each.id for each in tx.jobs.assigned([job.id], current=True)[job.id]}


def move(site: Site, job: Job, *states: JobState) -> None:
    """Let a job come through states."""
    move_job(site.database, job.id, *states)


def end(site: Site, job: Job) -> None:
    """Let a job that was started end well."""
    move(site, job, JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING, JobState.TERMINATED)


def cause(site: Site, job: Job) -> tuple[EndCode, object]:
    """Return why the end of a job was asked for, and of what it was told."""
    with site.database.begin() as tx:
        row = tx.row("SELECT frag_cause, frag_data FROM frag_jobs WHERE frag_id_job = %s", (job.id,))
    assert row is not None
    return row[0], json.loads(row[1])


def test_of_an_array_as_many_run_as_fit_and_a_dependent_job_waits_for_its_turn(
    site: Site, login: LoginNode, number: int
) -> None:
    assert login.oarsub("--ar", number, "--array", 3, "-l", "nodes=1,walltime=0:10", "x").exit == 0
    first, second, third = login.jobs()[-3:]
    after = login.submit("--ar", number, "-a", first.id, "-l", "/resource_id=1,walltime=0:10", "x")
    assert begun(site, first, second, third, after) == [True, True, False, False]
    assert held(site, first) | held(site, second) == set(site.get(number).resources)
    end(site, first)
    assert begun(site, third, after) == [True, False]
    end(site, second)
    assert begun(site, after) == [True]


def test_a_container_inside_lends_what_it_has_and_all_of_it_ends_with_the_reservation(
    site: Site, login: LoginNode, number: int
) -> None:
    box = login.submit("--ar", number, "-t", "container", "-l", "nodes=1,walltime=0:20", "x")
    assert begun(site, box) == [True]
    move(site, box, JobState.LAUNCHING, JobState.RUNNING)
    within = login.submit("-t", f"inner={box.id}", "-l", "nodes=1,walltime=0:10", "x")
    wide = login.submit("-t", f"inner={box.id}", "-l", "nodes=2,walltime=0:10", "x")
    beside = login.submit("--ar", number, "-l", "nodes=1,walltime=0:10", "x")
    assert begun(site, within, wide, beside) == [True, False, True]
    assert held(site, within) == held(site, box) == set(site.get(number).resources) - held(site, beside)
    site.round(NOW + HOUR)
    assert [cause(site, job)[0] for job in (box, beside, within)] == [
        EndCode.RESERVATION,
        EndCode.RESERVATION,
        EndCode.CONTAINER,
    ]


def test_a_job_with_a_date_inside_starts_at_it_and_others_keep_away(site: Site, login: LoginNode, number: int) -> None:
    proposal = Proposal(
        JobSpec("alice", "true", checkpoint_signal=12),
        JobType.PASSIVE,
        (parse_request("/resource_id=4,walltime=0:10"),),
        start=NOW + 600,
        advance_reservation=str(number),
    )
    (dated,) = submit.submit(login.database, login.config, proposal).ids
    site.round()
    with site.database.begin() as tx:
        lifecycle.move(tx, dated, JobState.WAITING)  # as the oarsub that waits for the answer does
    words = ("--ar", number, "-l")
    long, short = (login.submit(*words, f"nodes=1,walltime={text}", "x") for text in ("0:10", "0:09"))
    assert begun(site, long, short) == [False, True]
    end(site, short)
    site.go_to(NOW + 600)
    assert begun(site, long) == [False]
    assert site.job(dated) is JobState.TO_LAUNCH


@pytest.mark.parametrize("kind", [(), ("-t", "deploy")])
def test_a_node_of_which_only_a_part_is_reserved_is_no_node_for_its_jobs(
    site: Site, login: LoginNode, kind: tuple[str, ...]
) -> None:
    made = site.ask("/resource_id=3", NOW, NOW + HOUR)
    site.round()
    words = ("--ar", made, *kind, "-l")
    whole = login.submit(*words, "nodes=1,walltime=0:10", "x")
    refused = login.oarsub(*words, "nodes=2,walltime=0:10", "x")
    assert refused.exit == 8
    assert refused.err.startswith(f"# Error: the advance reservation {made} cannot hold -l ")
    assert "/nodes=2: 1 whole node can be used, 2 asked" in refused.err
    assert begun(site, whole) == [True]
    assert len(held(site, whole)) == 2


def test_no_start_is_foreseen_while_the_reservation_is_in_hard_error(site: Site, login: LoginNode) -> None:
    made = site.ask("/network_address=2", NOW, NOW + HOUR, is_hard=True)
    site.round()
    execute_sql(site.database, "UPDATE resources SET state = 'Absent', state_num = 2 WHERE network_address = 'node-1'")
    job = login.submit("--ar", made, "-l", "/resource_id=1,walltime=0:10", "x")
    assert begun(site, job) == [False]
    explained = login.type(oarstat.main, "--explain", job.id).out
    assert "is in error: reserved host node-1 is Absent; no job of it starts meanwhile" in explained
    assert "    Start: not foreseen\n" in explained
    assert json.loads(login.type(oarstat.main, "--start", job.id, "-J").out)[str(job.id)]["scheduled_start"] is None
    execute_sql(site.database, "UPDATE resources SET state = 'Alive', state_num = 1")
    assert begun(site, job) == [True]


def test_the_end_of_a_frame_by_another_program_is_told_as_that_of_the_reservation(
    site: Site, login: LoginNode, number: int, runtime: Runtime
) -> None:
    frame = site.get(number).frame_id
    waiting = login.submit("--ar", number, "--verify", "n", "-l", "nodes=3,walltime=0:10", "x")
    running = login.submit("--ar", number, "-l", "nodes=1,walltime=0:10", "x")
    assert begun(site, waiting, running) == [False, True]
    with site.database.begin() as tx:
        control.ask_end(tx, for_no_reason(frame))
    for _ in range(2):
        leon.run(runtime)
    assert site.state(number) is S.DELETED
    told = {"reservation": number, "fate": "was deleted by oar"}
    assert [cause(site, job) for job in (waiting, running)] == [(EndCode.RESERVATION, told)] * 2
    explained = login.type(oarstat.main, "--explain", waiting.id).out
    assert f"It was in the advance reservation {number}, which was deleted by oar." in explained

"""What would be, found by planning a snapshot with something changed."""

import pytest

from oar.kao.planner.placement.site_extensions import SiteExtensions
from oar.kao.planner.schedule import schedule
from oar.kao.rounds.hypothetical.what_if import HelpfulChange, smallest_change, with_walltime, without_nodes
from oar.lib.base.errors import BadRequest
from oar.lib.jobs.states import JobPriority
from tests.scheduler.builders import NOW, Cluster, hours


def test_without_a_node_its_jobs_wait_for_another() -> None:
    snapshot = Cluster(nodes=2, cores=1).job().job().snapshot()
    plan = schedule(without_nodes(snapshot, ["n1"]))
    assert [place.start - NOW for place in plan.placements] == [0, hours(1) + 1]
    with pytest.raises(BadRequest, match="n7"):
        without_nodes(snapshot, ["n7"])


def test_another_walltime_of_a_job_moves_those_behind_it() -> None:
    snapshot = Cluster(nodes=1, cores=1).run(1).job().snapshot()
    (later,) = schedule(with_walltime(snapshot, 1, hours(3))).placements
    assert later.start == NOW + hours(3) + 1
    with pytest.raises(BadRequest, match="job 9"):
        with_walltime(snapshot, 9, 60)


def test_a_shorter_job_could_start_before_a_reservation() -> None:
    cluster = Cluster(nodes=1, cores=2).reservation("/core=2", NOW + 600, held=3).job("/core=1", walltime=1200).job()
    change = smallest_change(cluster.snapshot(), 2)
    assert change == HelpfulChange(20, "walltime", 1200, 599)
    assert change.text == "walltime 0:9:59 instead of 0:20:0"


def test_a_smaller_job_could_start_on_what_is_free() -> None:
    cluster = Cluster(nodes=4, cores=1).run(1).job("/core=4", walltime=1200)
    assert smallest_change(cluster.snapshot(), 2) == HelpfulChange(20, "core", 4, 3)


def test_of_several_changes_the_one_is_told_that_leaves_most() -> None:
    cluster = (
        Cluster(nodes=1, cores=4)
        .run(1)
        .reservation("/core=3", NOW + 600, held=14)
        .job("/core=4", "/core=3", walltime=660)
    )
    assert smallest_change(cluster.snapshot(), 3) == HelpfulChange(31, "walltime", 660, 599)


def test_nothing_is_proposed_for_a_job_that_starts_or_that_no_change_helps() -> None:
    starting = Cluster(nodes=1, cores=1).job().snapshot()
    assert smallest_change(starting, 1) is None
    full = Cluster(nodes=1, cores=1).run(1).job().snapshot()
    assert smallest_change(full, 2) is None


def test_a_change_is_looked_for_in_the_order_of_the_site() -> None:
    cluster = Cluster(nodes=2, cores=1, job_priority=JobPriority.CUSTOM, is_priority_explicit=True).run(1)
    snapshot = cluster.job("/core=1").job("/core=2").snapshot()
    last_first = SiteExtensions(sort=lambda context, jobs: [job.id for job in reversed(jobs)])
    assert smallest_change(snapshot, 3) is None
    assert smallest_change(snapshot, 3, last_first) == HelpfulChange(30, "core", 2, 1)

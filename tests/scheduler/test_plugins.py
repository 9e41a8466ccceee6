"""Plug-ins of the site that choose for a job, or are called in each round."""

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any

import pytest

from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.planner.placement.site_extensions import (
    ASSIGN_PLUGINS,
    FIND_PLUGINS,
    FreeSpace,
    MissingPlugin,
    SiteExtensions,
)
from oar.kao.planner.plan_check import faults_of
from oar.kao.planner.resources.spaces import Spaces
from oar.kao.planner.schedule import Round
from oar.kao.rounds.site import plugins
from oar.kao.rounds.site.plugins import has_extra, site_of
from oar.lib.base.resource_set import ResourceSet
from oar.lib.config.files import Config
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Queue
from oar.lib.nodes.hierarchy import PooledGroup
from oar.lib.nodes.states import ResourceState
from tests.scheduler.builders import NOW, Cluster, Result, hours


def planned(cluster: Cluster, site: SiteExtensions) -> Result:
    snapshot = cluster.snapshot()
    planning = Round(snapshot, site=site)
    plan = planning.plan()
    assert faults_of(snapshot, plan, planning.requests) == {}
    return Result(plan)


def with_plugin(group: str, function: Callable[..., Any]) -> SiteExtensions:
    def load(asked: str, name: str) -> Callable[..., Any]:
        if (asked, name) != (group, "mine"):
            raise MissingPlugin(f'no plug-in "{name}" of the group {asked} is installed')
        return function

    return SiteExtensions(load=load)


# ----------------------------------------------------------------------------------------------------------------- find


def last_ones(
    context: Snapshot, job: WaitingJob, request: Sequence[PooledGroup], free: ResourceSet, *args: str, **kwargs: str
) -> ResourceSet:
    """Take so many resources as the first argument says, from the end."""
    count, free = int(args[0]), free & request[0].pool & ~int(kwargs.get("but", "0"))
    if free.bit_count() < count:
        return 0
    while free.bit_count() > count:
        free &= free - 1
    return free


def test_a_plug_in_chooses_the_resources_and_the_planner_the_start() -> None:
    cluster = Cluster(nodes=2, cores=2).run(0b1000, walltime=600).job(types=("find=mine:2",))
    cluster.job(types=("find=mine:4",)).job(types=("find=mine:1:but=6",))
    result = planned(cluster, with_plugin(FIND_PLUGINS, last_ones))
    assert (result.start(2), result.where(2)) == (0, 0b0110)
    assert (result.start(3), result.where(3)) == (hours(1) + 1, 0b1111)
    assert (result.start(4), result.where(4)) == (0, 0b0001)
    assert result.started() == [2, 4]


def test_without_plug_ins_such_types_mean_nothing() -> None:
    assert planned(
        Cluster(1, 1).job(types=("find=mine:9",)).job(types=("assign=mine",)), SiteExtensions()
    ).started() == [1]


@pytest.mark.parametrize(
    ("function", "trouble"),
    [
        (lambda *_: 1 // 0, "ZeroDivisionError"),
        (lambda context, job, request, free: free | 0b1, "chose what is not free"),
        (lambda *_: "all", "chose what is not free"),
    ],
)
def test_a_plug_in_that_fails_costs_only_its_job(function: Callable[..., Any], trouble: str) -> None:
    cluster = Cluster(1, 2).run(0b1).job(types=("find=mine",)).job()
    result = planned(cluster, with_plugin(FIND_PLUGINS, function))
    assert (result.code(2), result.started()) == (ReasonCode.INTERNAL, [3])
    assert trouble in result.plan.failures[0].trace


def test_a_plug_in_that_is_not_installed_is_named_in_the_reason() -> None:
    cluster = Cluster(1, 2).job(types=("find=other",)).job(types=("assign=other",)).job()
    result = planned(cluster, with_plugin(FIND_PLUGINS, last_ones))
    assert result.reason(1) == 'no plug-in "other" of the group oar.find_func is installed'
    assert result.reason(2) == 'no plug-in "other" of the group oar.assign_func is installed'
    assert (result.code(1), result.started()) == (ReasonCode.INTERNAL, [3])


def test_a_plug_in_chooses_for_reservations_too() -> None:
    cluster = Cluster(1, 2).reservation("/core=1", NOW + 100, types=("find=mine:1",))
    result = planned(cluster, with_plugin(FIND_PLUGINS, last_ones))
    assert (result.start(1), result.where(1)) == (100, 0b10)


# --------------------------------------------------------------------------------------------------------------- assign


def at_full_minutes(
    context: Snapshot, job: WaitingJob, space: FreeSpace, begin: int, *args: str, **kwargs: str
) -> Placement | None:
    """Take everything, at the first full minute from the date on at which it is free."""
    wanted = context.resources.everything
    alternative = job.alternatives[0]
    for date in sorted({begin, *(each for each in space.dates() if each > begin)}):
        start = -(-date // 60) * 60
        if space.free(start, start + alternative.walltime + space.gap) == wanted:
            return Placement(job.id, alternative.id, start, alternative.walltime, wanted)
    return None


def test_a_plug_in_chooses_start_and_resources() -> None:
    cluster = Cluster(1, 2).run(0b1, walltime=90).job(types=("assign=mine",)).job("/core=2", walltime=60)
    result = planned(cluster, with_plugin(ASSIGN_PLUGINS, at_full_minutes))
    assert (result.start(2), result.where(2)) == (120, 0b11)
    assert result.start(3) == 120 + hours(1) + 1


def test_its_limits_hold_for_a_job_all_the_same() -> None:
    cluster = Cluster(1, 2).run(0b1, walltime=90, id=7)
    cluster.job(types=("assign=mine",), after=[7]).ended(30)
    result = planned(cluster, with_plugin(ASSIGN_PLUGINS, at_full_minutes))
    assert result.start(8) == 120


def place(start: int, resources: ResourceSet, walltime: int = hours(1), alternative: int = 20) -> Callable[..., Any]:
    return lambda *_: Placement(2, alternative, start, walltime, resources)


@pytest.mark.parametrize(
    ("function", "flaw"),
    [
        (place(NOW - 1, 0b10), "it begins at"),
        (place(NOW, 0b11), "the resources 1 are not free"),
        (place(NOW, 0), "it has no resources"),
        (place(NOW, 0b10, walltime=7), "no alternative of the job with that walltime"),
        (place(NOW, 0b10, alternative=7), "no alternative of the job with that walltime"),
        (place(NOW, 0b100), "cannot be used"),
        (lambda *_: 0b10, "no place"),
    ],
)
def test_a_place_that_cannot_be_is_refused(function: Callable[..., Any], flaw: str) -> None:
    cluster = Cluster(3, 1).run(0b1, id=1).job(types=("assign=mine",)).job().state(ResourceState.SUSPECTED, 2)
    result = planned(cluster, with_plugin(ASSIGN_PLUGINS, function))
    assert (result.code(2), result.started()) == (ReasonCode.INTERNAL, [3])
    assert flaw in result.plan.failures[0].trace


def test_a_plug_in_that_finds_no_place_leaves_the_job_without_one() -> None:
    assert (
        planned(Cluster().job(types=("assign=mine",)), with_plugin(ASSIGN_PLUGINS, lambda *_: None)).code(1)
        == ReasonCode.NO_SLOT
    )


# ------------------------------------------------------------------------------------------------------- in each round


def test_a_plug_in_may_keep_resources_from_a_group_of_queues() -> None:
    seen = []

    def extra(context: Snapshot, queues: Sequence[Queue], spaces: Spaces) -> None:
        seen.append([queue.name for queue in queues])
        if queues[0].name == "default":
            spaces.block(0b1, context.now, context.now + 50)

    cluster = Cluster(1, 2).job("/core=1", queue="admin", walltime=10).job("/core=2").job("/core=1", walltime=20)
    result = planned(cluster, SiteExtensions(before_group=extra))
    assert seen == [["admin"], ["default"]]
    assert (result.start(1), result.start(2), result.start(3)) == (0, 50, 0)


def test_a_plug_in_that_raises_stops_no_round() -> None:
    def extra(*_: object) -> None:
        raise RuntimeError("broken")

    result = planned(Cluster().job(), SiteExtensions(before_group=extra))
    assert result.started() == [1]
    assert result.plan.troubles == ("EXTRA_METASCHED: RuntimeError: broken",)


# --------------------------------------------------------------------------------------------------------- entry points


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug-ins as a site installs them."""
    (tmp_path / "site_plugins.py").write_text(
        "def find(context, job, request, free, *args, **kwargs):\n    return free & -free\n"
        "def extra(context, queues, spaces, config):\n    spaces.block(int(config), context.now, context.now + 9)\n"
    )
    about = tmp_path / "site_plugins-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: site-plugins\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[oar.find_func]\nfirst = site_plugins:find\nbroken = site_nowhere:find\n"
        "[oar.extra_metasched_func]\nkeep = site_plugins:extra\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_plug_ins_are_found_by_their_entry_points() -> None:
    site = site_of(Config(extra_metasched="keep", extra_metasched_config="1"))
    result = planned(Cluster(1, 3).job("/core=2", types=("find=first",)).job(types=("find=broken",)), site)
    assert result.where(1) == 0b10
    assert result.reason(2).startswith('the plug-in "broken" of the group oar.find_func cannot be loaded: ')
    assert not has_extra(Config())
    assert site_of(Config()).before_group is None


def test_plug_ins_that_are_not_there_are_looked_for_once_however_many_jobs_name_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []

    def entry_points(group: str) -> EntryPoints:
        looked.append(group)
        return EntryPoints(())

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    load = site_of(Config()).load
    assert load
    for number in range(3):
        with pytest.raises(MissingPlugin, match=f"none{number}"):
            load(FIND_PLUGINS, f"none{number}")
    assert looked == [FIND_PLUGINS]

"""Fair share from the shares of projects and members: the parts, and the order of jobs that comes of them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.cli import oarproject
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.schedule import schedule
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.kao.rounds.user_limits import limits_of
from oar.lib.access.records import User
from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.shares import targets_of, with_sub_projects
from oar.lib.accounts.states import MemberRole, ProjectState
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobPriority, JobState, ProjectMode
from tests.builders import add_job, add_resources
from tests.db.test_user_limits import consume
from tests.frontend import Frontend

ROOT = User("root", 0)
TREE = [
    Project("physics", shares=3),
    Project("physics.cms", parent="physics"),
    Project("physics.atlas", parent="physics"),
    Project("biology", shares=1),
]


def test_siblings_share_the_part_of_their_parent_and_members_that_of_their_project() -> None:
    members = [
        Member("physics.cms", "alice", shares=2),
        Member("physics.cms", "bob"),
        Member("physics", "carla", MemberRole.MANAGER),
        Member("biology", "alice"),
    ]
    targets = targets_of(iter(TREE), members, ())  # projects are read once, however many have sub-projects
    assert targets.projects == {"physics": 0.75, "biology": 0.25, "physics.cms": 0.375, "physics.atlas": 0.375}
    assert targets.members == {
        ("physics.cms", "alice"): 0.25,
        ("physics.cms", "bob"): 0.125,
        ("biology", "alice"): 0.25,
    }
    assert targets.of_users() == {"alice": 0.5, "bob": 0.125}


def test_users_with_jobs_take_part_with_the_shares_of_their_entry_or_group() -> None:
    members = [Member("biology", "@lab", shares=3), Member("biology", "dora", MemberRole.MANAGER, shares=2)]
    active = [("alice", "biology"), ("dora", "biology"), ("bob", "physics.cms"), ("bob", "unknown")]
    targets = targets_of(TREE, members, active)
    assert targets.members == {
        ("biology", "alice"): pytest.approx(0.25 * 3 / 5),
        ("biology", "dora"): pytest.approx(0.25 * 2 / 5),
        ("physics.cms", "bob"): 0.375,
    }


_NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
_SHARES = st.integers(0, 5)


@given(
    st.lists(
        st.builds(Project, name=_NAMES, parent=st.none() | _NAMES, shares=_SHARES), unique_by=lambda each: each.name
    ),
    st.lists(st.builds(Member, project=_NAMES, entry=_NAMES, shares=_SHARES)),
    st.sets(st.tuples(_NAMES, _NAMES)),
)
def test_no_more_than_the_whole_is_shared(
    projects: list[Project], members: list[Member], active: set[tuple[str, str]]
) -> None:
    """Also if projects are below each other in a circle, or the project above is missing."""
    targets = targets_of(projects, members, active)
    assert sum(targets.members.values()) <= 1 + 1e-9
    parents = {project.name: project.parent for project in projects}
    for name, part in targets.projects.items():
        parent = parents[name]
        assert part <= (1 if parent is None else targets.projects[parent]) + 1e-9
    assert sum(with_sub_projects({"a": 7}, projects).values()) >= 7


@pytest.fixture
def site(database: Database) -> Database:
    """Three users with waiting jobs on a full cluster; bob and carol used resources."""
    add_job(database, JobState.RUNNING, on=add_resources(database), user="root", project="root")
    for user, project, seconds in (("alice", "physics.cms", 0), ("bob", "physics.cms", 60), ("carol", "biology", 40)):
        add_job(database, user=user, project=project)
        if seconds:
            consume(database, user, project, seconds)
    return database


def create(database: Database) -> None:
    with database.begin() as tx:
        for project in TREE:
            tx.projects.create(project)
        for member in (Member("physics.cms", "alice"), Member("physics.cms", "bob"), Member("biology", "carol")):
            tx.projects.add(member)


def read(database: Database, config: Config) -> Snapshot:
    return replace(SnapshotReader(database, config).read().snapshot, now=0)


FAIR = Config(job_priority=JobPriority.FAIRSHARE, scheduler_fairsharing_coef_project=1.0)


@pytest.mark.parametrize("order", [JobPriority.FAIRSHARE, JobPriority.MULTIFACTOR, JobPriority.FIFO])
def test_free_projects_change_nothing(site: Database, order: JobPriority) -> None:
    config = FAIR.replace(job_priority=order)
    before = read(site, config)
    create(site)
    after = read(site, config)
    assert (after.settings, after.consumption) == (before.settings, before.consumption)
    assert schedule(after).karma == schedule(before).karma


def test_karma_compares_with_the_shares(site: Database) -> None:
    create(site)
    snapshot = read(site, FAIR.replace(projects=ProjectMode.MEMBERS))
    fairshare = snapshot.settings.fairshare
    # root has jobs in a project that does not exist
    assert fairshare.project_targets == {"physics": 75, "biology": 25, "physics.cms": 37.5, "physics.atlas": 37.5}
    assert fairshare.user_targets == {"alice": 18.75, "bob": 18.75, "carol": 25}
    sums = next(sums for sums in snapshot.consumption.values() if sums.used)
    assert sums.used_by_project == {"physics.cms": 60, "physics": 60, "biology": 40}
    karma = schedule(snapshot).karma
    alice, bob, carol = (karma[job.id] for job in snapshot.waiting)
    assert alice == pytest.approx((0.6 - 0.375) + 2 * (0 - 0.1875) + (0 - 0.1875))
    assert bob == pytest.approx((0.6 - 0.375) + 2 * (0.6 - 0.1875) + (0 - 0.1875))
    assert carol == pytest.approx((0.4 - 0.25) + 2 * (0.4 - 0.25) + (0 - 0.25))


def test_several_factors_use_the_same_karma(site: Database) -> None:
    create(site)
    config = FAIR.replace(projects=ProjectMode.MEMBERS)
    fair = read(site, config)
    several = read(site, config.replace(job_priority=JobPriority.MULTIFACTOR))
    assert several.settings.fairshare == fair.settings.fairshare
    assert several.consumption == fair.consumption


def test_targets_of_the_configuration_win(site: Database) -> None:
    create(site)
    config = FAIR.replace(projects=ProjectMode.MEMBERS, scheduler_fairsharing_user_targets={"bob": 90.0})
    fairshare = read(site, config).settings.fairshare
    assert fairshare.user_targets == {"alice": 18.75, "bob": 90, "carol": 25}
    assert fairshare.project_targets["biology"] == 25


def test_a_closed_project_has_no_part(site: Database) -> None:
    create(site)
    with site.begin() as tx:
        tx.projects.update(TREE[0]._replace(state=ProjectState.CLOSED))
    fairshare = read(site, FAIR.replace(projects=ProjectMode.MEMBERS)).settings.fairshare
    assert fairshare.project_targets == {"biology": 100}


def test_limits_show_the_karma_of_the_scheduler(site: Database) -> None:
    create(site)
    config = FAIR.replace(projects=ProjectMode.MEMBERS)
    karma = schedule(read(site, config)).karma
    with site.snapshot() as tx:
        (share,) = limits_of(tx, config, "bob", ROOT).fair_share
    assert share.karma == pytest.approx(karma[min(karma) + 1])
    assert (share.place, share.users) == (3, 3)


def test_oarproject_shows_target_and_use(site: Database) -> None:
    create(site)
    frontend = Frontend(site, FAIR.replace(projects=ProjectMode.MEMBERS))
    assert frontend.type(oarproject.main, "--shares", "3", "physics.cms", "bob", user=ROOT).exit == 0
    text = frontend.type(oarproject.main, "--show", "physics.cms", user=ROOT).out
    assert "    Fair share: target 37.5%, used 60.0% (0.0 resource hours) (parent 75.0%)\n" in text
    assert "        alice            shares 1, target 9.4%, used 0.0% (0.0 resource hours)\n" in text
    record = json.loads(frontend.type(oarproject.main, "--show", "physics.cms", "-J", user=ROOT).out)
    assert record["fair_share"] == {"target": 0.375, "used": 60, "effective": 0.6}
    assert record["members"][1]["fair_share"] == {"target": pytest.approx(0.28125), "used": 60, "effective": 0.6}
    free = Frontend(site, FAIR).type(oarproject.main, "--show", "physics.cms", user=ROOT).out
    assert "Fair share" not in free
    assert "    Members: alice, bob\n" in free


def test_managers_set_the_shares_of_members_and_adding_them_again_keeps_them(site: Database) -> None:
    create(site)
    with site.begin() as tx:
        tx.projects.add(Member("physics", "dora", MemberRole.MANAGER))
    frontend, dora = Frontend(site), User("dora", 1)
    assert frontend.type(oarproject.main, "--shares", "4", "physics.cms", "bob", user=dora).exit == 0
    for words in (("4", "biology", "carol"), ("4", "physics.cms")):
        assert frontend.type(oarproject.main, "--shares", *words, user=dora).exit != 0
    assert frontend.type(oarproject.main, "--add", "bob,eva", "physics.cms", "--role", "manager", user=dora).exit == 0
    assert frontend.type(oarproject.main, "--add", "bob,finn", "physics.cms", user=dora).exit == 0
    assert 'no member of the project "physics.cms"' in (
        frontend.type(oarproject.main, "--shares", "4", "physics.cms", "eve", user=dora).err
    )
    with site.snapshot() as tx:
        members = {member.entry: (member.role, member.shares) for member in tx.projects.members(["physics.cms"])}
    assert members == {"alice": ("member", 1), "bob": ("manager", 4), "eva": ("manager", 1), "finn": ("member", 1)}

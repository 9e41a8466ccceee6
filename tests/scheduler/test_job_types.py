"""What types of jobs and dependencies mean for their places, sentence by sentence."""

from dataclasses import replace
from typing import Any

import pytest

from oar.kao.facts.job_types import PluginCall, parse_types
from oar.kao.planner.schedule import schedule
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.base.errors import BadRequest
from oar.lib.base.times import format_date
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Dependency, Queue
from oar.lib.jobs.states import DependencyCondition, JobState, QueueState
from oar.lib.nodes.states import ResourceState
from tests.scheduler.builders import NOW, Cluster, Result

H = 3600


def tag(text: str, **given: Any) -> Any:
    """The tag of a timesharing job."""
    return parse_types(Cluster().job(types=(text,), **given).waiting[0]).sharing_key


# ---------------------------------------------------------------------------------------------------------- timesharing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("timesharing", "*,*"),
        ("timesharing=*,*", "*,*"),
        ("timesharing=user,*", "ann,*"),
        ("timesharing=*,user", "ann,*"),
        ("timesharing=*,name", "*,fem"),
        ("timesharing=name,*", "*,fem"),
        ("timesharing=*,job_name", "*,fem"),
        ("timesharing=user,name", "ann,fem"),
        ("timesharing=name,user", "ann,fem"),
        ("timesharing= user , name ", "ann,fem"),
    ],
)
def test_who_shares_is_said_in_four_forms(text: str, expected: str) -> None:
    assert tag(text, user="ann", name="fem") == ("timesharing", expected)


def test_jobs_without_name_share_as_if_names_did_not_matter() -> None:
    assert tag("timesharing=user,name", user="ann") == ("timesharing", "ann,*")


@pytest.mark.parametrize("text", ["timesharing=all", "timesharing=user", "timesharing=user,name,*", "timesharing=,"])
def test_a_form_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="timesharing"):
        tag(text)


@pytest.mark.parametrize(
    ("text", "other", "shares"),
    [
        ("timesharing=user,*", {"user": "ann"}, True),
        ("timesharing=user,*", {"user": "bob"}, False),
        ("timesharing=*,name", {"user": "bob", "name": "fem"}, True),
        ("timesharing=*,name", {"user": "ann", "name": "cfd"}, False),
        ("timesharing=*,*", {"user": "bob", "name": "cfd"}, True),
    ],
)
def test_jobs_share_if_their_tags_are_equal(text: str, other: dict[str, Any], shares: bool) -> None:
    cluster = Cluster(1, 1).run(0b1, types=(text,), user="ann", name="fem").job(types=(text,), **other)
    assert bool(cluster.plan().started()) is shares


def test_a_restricted_job_does_not_join_those_that_share_with_all() -> None:
    cluster = Cluster(1, 1).run(0b1, types=("timesharing",), user="ann").job(types=("timesharing=user,*",))
    assert cluster.plan().started() == []


def test_containers_and_placeholders_share_with_nobody() -> None:
    for types in (("timesharing", "container"), ("timesharing", "placeholder=x")):
        assert Cluster(1, 1).run(0b1, types=types).job(types=("timesharing",)).plan().started() == []


# --------------------------------------------------------------------------------------------------------- placeholders


@pytest.mark.parametrize(
    "words", [("placeholder", "allowed"), ("set_placeholder", "use_placeholder"), ("placeholder", "allow")]
)
def test_a_placeholder_is_free_for_those_that_it_allows(words: tuple[str, str]) -> None:
    place, allowed = words
    cluster = Cluster(1, 1).run(0b1, types=(f"{place}=x",))
    assert cluster.job(types=(f"{allowed}=x",)).job().job(types=(f"{allowed}=y",)).plan().started() == [2]


def test_jobs_on_a_placeholder_exclude_each_other() -> None:
    cluster = Cluster(1, 2).run(0b11, types=("placeholder=x",)).run(0b01, types=("allowed=x",))
    result = cluster.job(types=("allowed=x",)).job("/core=2", types=("allowed=x",)).plan()
    assert (result.started(), result.where(3), result.start(4)) == ([3], 0b10, H + 1)


def test_placeholders_of_one_name_add_up() -> None:
    cluster = Cluster(1, 2).run(0b01, types=("placeholder=x",)).run(0b10, types=("placeholder=x",))
    assert cluster.job("/core=2", types=("allowed=x",)).plan().started() == [3]


def test_a_placeholder_is_not_put_over_a_job_that_it_would_allow() -> None:
    cluster = Cluster(1, 1).run(0b1, types=("allowed=x",)).job(types=("placeholder=x",))
    assert cluster.plan().start(2) == H + 1


def test_permissions_to_share_add_up_resource_by_resource() -> None:
    cluster = Cluster(1, 2).run(0b01, types=("placeholder=x",)).run(0b10, types=("timesharing",))
    assert cluster.job("/core=2", types=("allowed=x", "timesharing")).plan().started() == [3]


# ----------------------------------------------------------------------------------------------------------- containers


def test_containers_of_one_name_are_one_space() -> None:
    cluster = Cluster(1, 2).run(0b01, types=("container=c",)).run(0b10, types=("container=c",))
    result = cluster.job("/core=2", types=("inner=c",), walltime=60).plan()
    assert (result.started(), result.where(3)) == ([3], 0b11)


def test_a_container_is_named_by_its_number_too() -> None:
    cluster = Cluster(1, 1).run(0b1, types=("container=c",), id=7).job(types=("inner=7",), walltime=60)
    assert cluster.plan().started() == [8]


def test_containers_may_be_inside_containers() -> None:
    cluster = Cluster(2, 2).run(0b0111, types=("container=a",), walltime=10 * H)
    cluster.job("/core=2", types=("inner=a", "container=b"), walltime=5 * H)
    cluster.job("/core=2", types=("inner=b",), walltime=H).job("/core=1", types=("inner=a",), walltime=H)
    result = cluster.plan()
    assert result.where(3) == result.where(2)
    assert (result.start(3), result.where(4) & result.where(2)) == (0, 0)
    assert result.started() == [2, 4], "the inner container does not run yet"


def test_inner_jobs_may_last_as_long_as_what_is_left_of_the_container() -> None:
    def start(walltime: int) -> int | None:
        cluster = Cluster(1, 1).run(0b1, types=("container=c",), walltime=H, since=600)
        return cluster.job(types=("inner=c",), walltime=walltime).plan().start(2)

    assert start(H - 600) == 0
    assert start(H - 599) is None


def test_inner_jobs_take_nothing_outside() -> None:
    cluster = Cluster(1, 2).run(0b01, types=("container=c",)).job(types=("inner=c",), walltime=60).job()
    assert cluster.plan().started() == [2, 3]


def test_an_inner_job_waits_for_a_container_that_waits_or_comes_later_or_is_on_hold() -> None:
    unplaced = Cluster(1, 1).state(ResourceState.SUSPECTED, 0).job(types=("container=c",)).job(types=("inner=c",))
    assert unplaced.plan().reason(2) == "inner job: container c is yet to scheduled, inner job not scheduled"
    later = Cluster(1, 1).job(types=("container=c",)).job(types=("inner=c",), queue="admin")
    assert later.plan().reason(2) == "inner job: container c is not known yet"
    held = replace(Cluster().job(types=("inner=c",)).snapshot(), held_containers=("7", "c"))
    result = Result(schedule(held))
    assert (result.errors(), result.reason(1)) == ({}, "inner job: container c is not known yet")


def test_a_running_inner_job_whose_container_is_gone_is_in_the_common_space() -> None:
    assert Cluster(1, 1).run(0b1, types=("inner=c",)).job().plan().start(2) == H + 1


def test_sharing_works_inside_containers() -> None:
    cluster = Cluster(1, 1).run(0b1, types=("container=c",), walltime=2 * H)
    cluster.run(0b1, types=("inner=c", "timesharing")).job(types=("inner=c", "timesharing"))
    assert cluster.plan().started() == [3]


# ------------------------------------------------------------------------------------------------------- suspended jobs


def test_what_a_suspended_job_lends_is_configured() -> None:
    def started(*types: str) -> list[int]:
        cluster = Cluster(1, 2, suspended_types=types).run(0b11, state=JobState.SUSPENDED)
        cluster.resources = replace(cluster.resources, types=("default", "licence"))
        return cluster.job().job().plan().started()

    assert started("default", "licence") == [2, 3]
    assert started("default") == [2]
    assert started() == []


def test_time_spent_suspended_is_added_to_the_end() -> None:
    cluster = Cluster(1, 1).run(0b1, since=600, walltime=H, state=JobState.RESUMING).job()
    cluster.running = [replace(cluster.running[0], suspended_time=400)]
    assert cluster.plan().start(2) == H - 600 + 400 + 1


# ----------------------------------------------------------------------------------------------------------- besteffort


@pytest.mark.parametrize(
    ("settings", "walltime", "start"),
    [
        ({"besteffort_duration": 300}, 2 * H, 0),
        ({"besteffort_duration": 0}, 2 * H, 2 * H + 1),
        ({"besteffort_duration": 0}, 599, 0),
        ({"besteffort_duration": 300, "besteffort_kill_before": 601}, 2 * H, 2 * H + 1),
        ({"besteffort_duration": 10**6}, 599, 0),
    ],
)
def test_how_long_a_gap_a_besteffort_job_needs(settings: dict[str, int], walltime: int, start: int) -> None:
    cluster = Cluster(1, 1, **settings).reservation("/core=1", NOW + 600, 0b1, walltime=2 * H - 600)
    cluster.job(types=("besteffort",), queue="besteffort", walltime=walltime)
    assert cluster.plan().start(2) == start


def test_a_besteffort_job_that_shares_is_not_killed() -> None:
    cluster = Cluster(1, 1).run(0b1, types=("besteffort", "timesharing"), queue="besteffort")
    result = cluster.job(types=("timesharing",)).plan()
    assert (result.kills(), result.started()) == ({}, [2])


@pytest.mark.parametrize("what", ["dependency", "token", "node", "quota", "killed"])
def test_a_besteffort_job_is_killed_only_for_one_that_would_start(what: str) -> None:
    cluster = Cluster(2, 1).run(0b01, types=("besteffort",), queue="besteffort", id=5).run(0b10, id=6)
    given: dict[str, Any] = {}
    if what == "dependency":
        given = {"after": [Dependency(7, 6, "start", "", "[+10")]}
        cluster.running = [replace(job, start_time=NOW - 100) for job in cluster.running]
    elif what == "token":
        given, cluster.tokens = {"types": ("token:lic=1",)}, {"lic": 0}
    elif what == "node":
        cluster.settings = replace(cluster.settings, may_wake=False)
        cluster.state(ResourceState.SUSPECTED, 0)
        given = {"types": ("state=permissive",)}
    elif what == "quota":
        cluster.settings = replace(cluster.settings, has_quotas=True)
        cluster.quotas = Quotas(((QuotaRule("*", "*", "*", "*", 1),),), (QuotaPeriod(NOW, 0),))
    else:
        given = {"is_killed": True}
    assert cluster.job(**given, id=7).plan().kills() == {}


def test_a_job_that_could_start_has_the_besteffort_job_killed_once() -> None:
    cluster = Cluster(1, 2).run(0b11, types=("besteffort",), queue="besteffort", id=5).job().job()
    assert [(each.job_id, each.for_job) for each in cluster.plan().plan.kills] == [(5, 6)]
    cluster.running = [replace(cluster.running[0], is_killed=True)]
    assert cluster.plan().kills() == {}


# ---------------------------------------------------------------------------------------------------------------- dates


def test_a_job_with_several_dates_obeys_the_strictest() -> None:
    dates = {
        name: [format_date(NOW + each) for each in given] for name, given in {"a": (10, 50), "b": (9000, 7000)}.items()
    }
    texts = (*(f"postpone={each}" for each in dates["a"]), *(f"deadline={each}" for each in dates["b"]))
    types = parse_types(Cluster().job(types=texts).waiting[0])
    assert (types.postpone, types.deadline) == (NOW + 50, NOW + 7000)


def test_a_place_after_the_date_of_expiry_is_not_kept() -> None:
    cluster = Cluster(1, 1).run(0b1, walltime=100).job(types=(f"expire={format_date(NOW + 100)}",)).job()
    result = cluster.plan()
    assert (result.start(2), result.code(2), result.errors()) == (None, ReasonCode.NO_SLOT, {})
    assert result.start(3) == 101
    assert Cluster(1, 1).run(0b1, walltime=99).job(types=(f"expire={format_date(NOW + 100)}",)).plan().start(2) == 100


def test_a_job_expires_after_its_date_and_not_at_it() -> None:
    text = format_date(NOW)
    assert Cluster().job(types=(f"expire={text}",)).plan().started() == [1]
    past = format_date(NOW - 1)
    errors = Cluster().job(types=(f"expire={past}",)).plan().errors()
    assert errors == {1: f"Job will never run (expire={past}), setting it to error"}


def test_a_deadline_is_given_up_when_even_the_shortest_walltime_passes_it() -> None:
    text = format_date(NOW + 100)
    errors = Cluster().job("/core=1,walltime=0:1:41", types=(f"deadline={text}",)).plan().errors()
    assert errors == {1: f"Job will never run (deadline={text}), setting it to error"}
    cluster = Cluster().job("/core=1,walltime=1", "/core=1,walltime=0:1:40", types=(f"deadline={text}",))
    assert cluster.plan().start(1) == 0


@pytest.mark.parametrize("name", ["postpone", "expire", "deadline"])
def test_a_date_that_cannot_be_read_gives_the_job_up(name: str) -> None:
    assert Cluster().job(types=(f"{name}=soon",)).plan().errors() == {1: f"Cannot read the date of type {name}"}


# ------------------------------------------------------------------------------------------------------------- plug-ins


def test_what_a_plug_in_is_told_stands_behind_its_name() -> None:
    types = parse_types(Cluster().job(types=("find=spread:2:level=switch:=x:a=b=c", "assign=mine")).waiting[0])
    assert types.find == PluginCall("spread", ("2", "=x"), (("level", "switch"), ("a", "b=c")))
    assert types.assign == PluginCall("mine")
    assert Cluster().job(types=("find=",)).plan().code(1) == ReasonCode.INTERNAL


# --------------------------------------------------------------------------------------------------------- dependencies


def window(condition: str, least: str, most: str, **running: Any) -> int | None:
    """When a job starts that requires one that has run for 600 s of its hour."""
    cluster = Cluster(2, 1).run(0b01, walltime=H, since=600, id=5, **running)
    return cluster.job(after=[Dependency(6, 5, condition, least, most)], id=6).plan().start(6)


@pytest.mark.parametrize(
    ("condition", "least", "most", "start"),
    [
        ("", "", "", H - 600 + 1),
        ("any", "", "", H - 600 + 1),
        ("start", "", "", 0),
        ("", "[+700", "", 100),
        ("", "700", "", 100),
        ("", "+700", "", 100),
        ("", "[+100", "", 0),
        ("", "]+0", "", H - 600),
        ("", "]-100", "", H - 700),
        ("", "]+100", "", H - 500),
        ("", "", "[+700", 0),
        ("", "", "]+100", H - 600 + 1),
        ("", "", "]+0", None),
        ("", "[+700", "[+700", 100),
        ("", "[+700", "[+699", None),
        ("", "", "[+500", None),
    ],
)
def test_windows_of_a_dependency_on_a_running_job(condition: str, least: str, most: str, start: int | None) -> None:
    assert window(condition, least, most) == start


def test_a_place_outside_the_window_is_not_kept() -> None:
    cluster = Cluster(1, 1).run(0b1, walltime=H, id=5).job(after=[Dependency(6, 5, "", "", "[+60")], id=6)
    assert cluster.plan().reason(6) == "dependency on job 5 cannot be satisfied"


def test_a_window_that_is_over_with_the_required_job_ends_the_job() -> None:
    cluster = Cluster().ended(5).job(after=[Dependency(6, 5, "", "", "]+49")], id=6)
    message = "Job cancelled because its dependency requirements will never be met"
    assert cluster.plan().errors() == {6: message}
    assert Cluster().ended(5).job(after=[Dependency(6, 5, "", "", "]+50")], id=6).plan().started() == [6]


@pytest.mark.parametrize(
    ("condition", "state", "code", "is_met"),
    [
        (DependencyCondition.OK, JobState.TERMINATED, None, True),
        (DependencyCondition.OK, JobState.TERMINATED, 256, False),
        (DependencyCondition.OK, JobState.ERROR, None, False),
        (DependencyCondition.NOT_OK, JobState.TERMINATED, 0, False),
        (DependencyCondition.NOT_OK, JobState.TERMINATED, 256, True),
        (DependencyCondition.NOT_OK, JobState.ERROR, None, True),
        (DependencyCondition.ANY, JobState.ERROR, 256, True),
        (DependencyCondition.START, JobState.ERROR, 256, True),
    ],
)
def test_conditions_of_a_dependency_on_an_ended_job(
    condition: DependencyCondition, state: JobState, code: int | None, is_met: bool
) -> None:
    own = Cluster().ended(5, state, code).job(after=[Dependency(6, 5, condition)], id=6).plan()
    by_key = Cluster(dependency_condition=condition).ended(5, state, code).job(after=[5], id=6).plan()
    for result in (own, by_key):
        assert bool(result.started()) is is_met
        assert is_met or result.reason(6) == "dependency on job 5 cannot be satisfied"


def test_the_condition_of_a_dependency_wins_over_the_key() -> None:
    cluster = Cluster(dependency_condition=DependencyCondition.ANY).ended(5, JobState.ERROR, None)
    assert cluster.job(after=[Dependency(6, 5, "ok")], id=6).plan().started() == []


def test_a_job_that_never_started_does_not_meet_the_condition_of_a_start() -> None:
    cluster = Cluster().ended(5, JobState.ERROR, None).job(after=[Dependency(6, 5, "start")], id=6)
    cluster.required = [replace(cluster.required[0], start_time=0)]
    assert cluster.plan().reason(6) == "dependency on job 5 cannot be satisfied"


def test_a_job_behind_a_waiting_besteffort_job_is_planned_when_that_runs() -> None:
    cluster = Cluster().job(types=("besteffort",), queue="besteffort").job(after=[1])
    text = "cannot determine scheduling time due to dependency with the job 1"
    assert cluster.plan().reason(2) == text


def test_a_dependency_across_queues_of_other_priority_is_known_when_the_other_has_its_place() -> None:
    cluster = Cluster(1, 1).job(queue="admin").job(after=[1])
    cluster.queues = (*cluster.queues, Queue("low", 1, "", QueueState.ACTIVE))
    assert cluster.plan().start(2) == H + 1


# ------------------------------------------------------------------------------------------------- from round to round


def test_types_are_parsed_once_and_those_with_dates_in_each_round() -> None:
    frame = Cluster().job(types=("container", "noop", "ar=4711")).waiting[0]
    assert parse_types(frame) is parse_types(replace(frame, state=JobState.RUNNING))
    assert parse_types(frame).container == str(frame.id)
    assert parse_types(replace(frame, id=frame.id + 1)).container == str(frame.id + 1)
    dated = Cluster().job(types=("container", "expire=2030-01-01 00:00:00")).waiting[0]
    assert parse_types(dated) is not parse_types(dated)

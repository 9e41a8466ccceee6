"""What the document on the scheduler shows is what the scheduler does."""

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import ConsumptionSums, Settings, Snapshot
from oar.kao.planner.fair_share import share_of
from oar.kao.planner.placement.site_extensions import ASSIGN_PLUGINS, FIND_PLUGINS, SiteExtensions
from oar.kao.planner.schedule import schedule
from oar.kao.rounds.hypothetical import what_if
from oar.kao.rounds.reading import time_zone
from oar.kao.rounds.reading.planner_settings import settings_of
from oar.kao.rounds.reading.policy_files import parse_weights
from oar.kao.rounds.site.plugins import EXTRA_PLUGINS, SORTING_PLUGINS
from oar.lib.accounts.limit_rules import binding_rules, rules_by_key
from oar.lib.accounts.quota_files import QuotaFile, parse_json, parse_statements
from oar.lib.base.times import parse_duration
from oar.lib.config.files import parse
from oar.lib.jobs.reasons import ReasonCode, RoundLimit
from oar.lib.jobs.sql_waits import Errors
from oar.lib.jobs.states import JobPriority, LaunchFault
from oar.modules.kao_commands import plan_table
from oar.modules.prediction_errors import ErrorsOfQueue, table
from tests.documents import SOURCE, named_blocks
from tests.scheduler.builders import NOW, Cluster, Result, hours
from tests.scheduler.test_reasons import all_reasons

DOCUMENT = SOURCE / "docs" / "scheduler.rst"
BLOCKS = named_blocks(DOCUMENT)


@pytest.fixture(autouse=True)
def _dates_of_the_document() -> Iterator[None]:
    """The document shows dates in UTC."""
    with time_zone.within("UTC"):
        yield


def example() -> Snapshot:
    """Job 11 runs, 12 wants both nodes, 13 and 14 want one, for half an hour and for two."""
    cluster = Cluster(nodes=2, cores=1).run(1, id=11).job("/node=2", id=12)
    return cluster.job("/node=1", walltime=1800, id=13).job("/node=1", walltime=7200, id=14).snapshot()


def test_the_example_of_backfilling_is_planned_as_shown() -> None:
    assert plan_table(example(), schedule(example())) == BLOCKS["backfilling"]


def test_with_a_depth_the_example_is_planned_as_shown() -> None:
    shallow = replace(example(), settings=Settings(backfill_depths={"_": 1}))
    assert plan_table(shallow, schedule(shallow)) == BLOCKS["depth"]


def test_the_depth_by_queue_can_be_read() -> None:
    line = next(line for line in DOCUMENT.read_text().splitlines() if "SCHEDULER_BACKFILL_DEPTH=" in line)
    assert parse(line.strip()).config.scheduler_backfill_depth == {"night": 1, "default": 20, "_": 0}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("walltime", lambda snapshot: what_if.with_walltime(snapshot, 11, 600)),
        ("without node", lambda snapshot: what_if.without_nodes(snapshot, ["n1"])),
    ],
)
def test_what_if_is_planned_as_shown(name: str, change: Callable[[Snapshot], Snapshot]) -> None:
    changed = change(example())
    assert plan_table(changed, schedule(changed), before=schedule(example())) == BLOCKS[name]


def test_karmas_are_those_of_the_formula() -> None:
    parsed = parse(BLOCKS["fair share"])
    assert parsed.errors == ()
    keys = settings_of(parsed.config).fairshare
    had = {"alice": 500, "bob": 500}
    consumption = ConsumptionSums(1000, 1000, had, had, {})
    karmas = {user: share_of(user, "", consumption, keys).karma(keys) for user in had}
    assert "".join(f"{user} {karma:.3f}\n" for user, karma in karmas.items()) == BLOCKS["karma"]


def test_the_weights_can_be_read() -> None:
    weights = parse_weights(BLOCKS["priority"])
    assert (weights.queue_coefs, weights.size_mode) == ({"default": 2, "night": 1}, 1)


# --------------------------------------------------------------------------------------------------------------- quotas


def rules_of(file: QuotaFile) -> dict[tuple[str, ...], tuple[int, int, int]]:
    quotas = file.quotas(128, NOW, 86400, 3600)
    return {(each.queue, each.project, each.type, each.user): (each.resources, each.jobs, each.seconds)
            for each in quotas.rules[0]}  # fmt: skip


def test_the_rules_mean_what_is_said() -> None:
    assert rules_of(parse_json(BLOCKS["quotas"])) == {
        ("*", "*", "*", "/"): (16, -1, -1),
        ("*", "*", "besteffort", "*"): (-1, 20, -1),
        ("*", "physics", "*", "*"): (64, -1, 24 * 128 * 3600),
        ("default", "*", "*", "ann"): (32, -1, -1),
    }


def test_the_old_form_says_the_same() -> None:
    new = rules_of(parse_json(BLOCKS["quotas"]))
    old = rules_of(parse_statements(BLOCKS["old quotas"]))
    assert old == {key: limits for key, limits in new.items() if "physics" not in key}


def test_the_table_of_rules_is_right() -> None:
    rules = parse_json(BLOCKS["quotas"]).quotas(128, NOW, 86400, 3600).rules[0]
    for line in BLOCKS["rules"].splitlines()[1:]:
        user, project, kind, *bound = line.split()
        types = () if kind == "-" else (kind,)
        job = Cluster().job(user=user, project=project, types=types).waiting[0]
        found = [
            f"{each.queue},{each.project},{each.type},{each.user}"
            for each in binding_rules(rules_by_key(rules), job, types)
        ]
        assert found == bound, line


def test_the_calendar_can_be_read_and_covers_the_week() -> None:
    quotas = parse_json(BLOCKS["calendar"]).quotas(128, NOW, 7 * 86400, 3600)
    limits = {quotas.rules[each.rules][0].resources if quotas.rules[each.rules] else None for each in quotas.periods}
    assert limits == {16, 64, None}


# -------------------------------------------------------------------------------------------------------------- honesty


def test_the_table_of_honesty_is_printed_so() -> None:
    lines = []
    for row in BLOCKS["honesty"].splitlines()[1:]:
        found = re.fullmatch(r"(\w+) +(at first|within 1 h) +(\d+) +(\S+) +(\S+) +(\d+) +(not late|\S+)", row)
        assert found, row
        queue, said, jobs, half, most, late, most_late = found.groups()
        lateness = 0 if most_late == "not late" else parse_duration(most_late)
        assert (lateness > 0) == (int(late) * 10 > int(jobs)), f"more than one of ten is late, or not: {row}"
        numbers = int(jobs), parse_duration(half), parse_duration(most), int(late), lateness
        lines.append(ErrorsOfQueue(said, Errors(None if queue == "all" else queue, *numbers)))
    assert table(lines, 7) == BLOCKS["honesty"]


def test_the_data_of_every_reason_that_a_round_can_give_are_told() -> None:
    told = {code: set(re.findall(r"``(\w+)``", code.data)) for code in ReasonCode}
    given: dict[ReasonCode, set[str]] = {code: set() for code in ReasonCode}
    for reason in all_reasons():
        given[reason.code] |= reason.data.keys()
    assert {code: names - told[code] for code, names in given.items() if names - told[code]} == {}
    others = {*RoundLimit, *LaunchFault, "SCHEDULER_FAIRSHARING_MAX_JOB_PER_USER"}
    assert {code: told[code] - given[code] - others for code in told if told[code] - given[code] - others} == {}
    assert set(RoundLimit) <= told[ReasonCode.LIMIT]


# ------------------------------------------------------------------------------------------------------------- plug-ins


def plug_ins() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(BLOCKS["plug-ins"], str(DOCUMENT), "exec"), names)
    return names


def planned(cluster: Cluster, **given: Any) -> Result:
    site = SiteExtensions(load=lambda group, name: plug_ins()[name], **given)
    plan: Plan = schedule(cluster.snapshot(), site=site)
    assert plan.troubles == ()
    return Result(plan)


def test_entry_points_name_the_functions_that_are_shown() -> None:
    groups = tomllib.loads(BLOCKS["entry points"])["project"]["entry-points"]
    assert set(groups) == {SORTING_PLUGINS, FIND_PLUGINS, ASSIGN_PLUGINS, EXTRA_PLUGINS}
    for functions in groups.values():
        for name, place in functions.items():
            assert place == f"our_scheduling:{name}"
            assert callable(plug_ins()[name])


def test_the_order_of_the_example_puts_a_project_last() -> None:
    cluster = Cluster(nodes=1, job_priority=JobPriority.CUSTOM, is_priority_explicit=True)
    cluster.job("/node=1", project="course").job("/node=1", project="bio")
    sort = plug_ins()["students_last"]
    result = planned(cluster, sort=lambda context, jobs: sort(context, jobs, "course\n"))
    assert (result.start(2), result.start(1)) == (0, hours(1) + 1)


def test_the_choice_of_the_example_takes_resources_from_the_end() -> None:
    result = planned(Cluster(nodes=4, cores=2).job(types=("find=last_ones:2:but=7",)))
    assert result.where(1) == 0b10100000


def test_the_start_of_the_example_is_at_a_full_hour() -> None:
    cluster = Cluster(nodes=2, cores=2).run(1, walltime=600).job(types=("assign=on_the_hour",))
    result = planned(cluster)
    assert result[1 + 1].start % 3600 == 0


def test_what_the_example_keeps_free_is_free_for_an_hour() -> None:
    keep_free = plug_ins()["keep_free"]
    cluster = Cluster(nodes=1, cores=2).job("/core=2")
    result = planned(cluster, before_group=lambda context, queues, spaces: keep_free(context, queues, spaces, "2"))
    assert result.start(1) == hours(1)


def test_the_keys_that_are_shown_can_be_read() -> None:
    for key in ("SCHEDULER_TOKEN_SCRIPTS", "SCHEDULER_ROUNDS_KEPT"):
        (line,) = re.findall(rf"^    ({key}=.*)$", DOCUMENT.read_text(), re.MULTILINE)
        parsed = parse(line)
        assert (parsed.errors, key in parsed.origins) == ((), True)

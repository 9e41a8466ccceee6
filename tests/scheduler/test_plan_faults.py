"""A plan that is wrong is refused for its job and its round is saved, to be planned again elsewhere."""

from dataclasses import replace
from pathlib import Path

import pytest

from oar.kao.facts.plan import Failure, Plan
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.planner.schedule import schedule
from oar.kao.rounds.plan_faults import MAX_SAVED_ROUNDS, PlanGuard
from oar.kao.rounds.snapshot_files import from_json
from oar.lib.jobs.reasons import ReasonCode
from tests.scheduler.builders import Cluster


def spoilt(snapshot: Snapshot) -> Plan:
    """A plan in which the second job is where the first is."""
    plan = schedule(snapshot)
    first, second = plan.placements
    return replace(plan, placements=(first, replace(second, resources=first.resources)))


def test_a_good_plan_passes_as_it_is(tmp_path: Path) -> None:
    snapshot = Cluster(1, 2).job().job().snapshot()
    plan = schedule(snapshot)
    assert PlanGuard(str(tmp_path)).without_faults(snapshot, plan, CompiledRequests(snapshot)) is plan
    assert list(tmp_path.iterdir()) == []


def test_a_bad_plan_loses_the_job_and_its_round_can_be_replayed(tmp_path: Path) -> None:
    snapshot = Cluster(1, 2).job().job().snapshot()
    plan = PlanGuard(str(tmp_path)).without_faults(snapshot, spoilt(snapshot), CompiledRequests(snapshot))
    assert [place.job_id for place in plan.placements] == [1]
    assert plan.reasons[2].code == ReasonCode.INTERNAL
    (file,) = tmp_path.iterdir()
    assert schedule(from_json(Snapshot, file.read_text())) == schedule(snapshot)


def test_the_same_fault_is_saved_once_and_few_rounds_are_kept(tmp_path: Path) -> None:
    guard = PlanGuard(str(tmp_path))
    base = Cluster(1, 2).job().job().snapshot()
    for second in range(3):
        snapshot = replace(base, now=base.now + second)
        guard.without_faults(snapshot, spoilt(snapshot), CompiledRequests(snapshot))
    assert len(list(tmp_path.iterdir())) == 1
    for second in range(3, 13):
        snapshot = replace(base, now=base.now + second)
        plan = spoilt(snapshot) if second % 2 else schedule(snapshot)
        guard.without_faults(snapshot, plan, CompiledRequests(snapshot))
    assert len(list(tmp_path.iterdir())) == MAX_SAVED_ROUNDS


def test_what_goes_wrong_is_told_once_and_a_failure_is_saved_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = PlanGuard(str(tmp_path))
    base = Cluster(1, 2).job().job().snapshot()
    where = Failure(1, "KeyError at search.py:7", "Traceback"), Failure(2, "KeyError at search.py:7", "Traceback")
    for second in range(3):
        plan = Plan(base.now + second, troubles=("a limit was reached",), failures=where[second % 2 :])
        guard.log_troubles(replace(base, now=plan.now), plan)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    (file,) = tmp_path.iterdir()
    assert file.name == f"failed-round-{base.now}.json"
    guard.log_troubles(base, Plan(base.now, failures=(Failure(2, "TypeError at slots.py:1", "Traceback"),)))
    guard.log_troubles(base, Plan(base.now, troubles=("a limit was reached",)))
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "ERROR", "WARNING"]


def test_a_directory_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    snapshot = Cluster(1, 2).job().job().snapshot()
    plan = PlanGuard(str(tmp_path / "none")).without_faults(snapshot, spoilt(snapshot), CompiledRequests(snapshot))
    assert len(plan.placements) == 1

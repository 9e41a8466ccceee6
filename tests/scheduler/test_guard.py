"""A plan that is wrong is refused for its job and its round is saved, to be planned again elsewhere."""

from dataclasses import replace
from pathlib import Path

import pytest

from oar.kao.codec import from_json
from oar.kao.guard import KEPT, Guard
from oar.kao.model import Failure, Plan, Snapshot
from oar.kao.requests import Requests
from oar.kao.schedule import schedule
from tests.scheduler.builders import Cluster


def spoilt(snapshot: Snapshot) -> Plan:
    """A plan in which the second job is where the first is."""
    plan = schedule(snapshot)
    first, second = plan.placements
    return replace(plan, placements=(first, replace(second, resources=first.resources)))


def test_a_good_plan_passes_as_it_is(tmp_path: Path) -> None:
    snapshot = Cluster(1, 2).job().job().snapshot()
    plan = schedule(snapshot)
    assert Guard(str(tmp_path)).passed(snapshot, plan, Requests(snapshot)) is plan
    assert list(tmp_path.iterdir()) == []


def test_a_bad_plan_loses_the_job_and_its_round_can_be_replayed(tmp_path: Path) -> None:
    snapshot = Cluster(1, 2).job().job().snapshot()
    plan = Guard(str(tmp_path)).passed(snapshot, spoilt(snapshot), Requests(snapshot))
    assert [place.job_id for place in plan.placements] == [1]
    assert plan.reasons[2].code == "INTERNAL"
    (file,) = tmp_path.iterdir()
    assert schedule(from_json(Snapshot, file.read_text())) == schedule(snapshot)


def test_the_same_fault_is_saved_once_and_few_rounds_are_kept(tmp_path: Path) -> None:
    guard = Guard(str(tmp_path))
    base = Cluster(1, 2).job().job().snapshot()
    for second in range(3):
        snapshot = replace(base, now=base.now + second)
        guard.passed(snapshot, spoilt(snapshot), Requests(snapshot))
    assert len(list(tmp_path.iterdir())) == 1
    for second in range(3, 13):
        snapshot = replace(base, now=base.now + second)
        plan = spoilt(snapshot) if second % 2 else schedule(snapshot)
        guard.passed(snapshot, plan, Requests(snapshot))
    assert len(list(tmp_path.iterdir())) == KEPT


def test_what_goes_wrong_is_told_once_and_a_failure_is_saved_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(str(tmp_path))
    base = Cluster(1, 2).job().job().snapshot()
    where = Failure(1, "KeyError at search.py:7", "Traceback"), Failure(2, "KeyError at search.py:7", "Traceback")
    for second in range(3):
        plan = Plan(base.now + second, troubles=("a limit was reached",), failures=where[second % 2 :])
        guard.tell(replace(base, now=plan.now), plan)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    (file,) = tmp_path.iterdir()
    assert file.name == f"failed-round-{base.now}.json"
    guard.tell(base, Plan(base.now, failures=(Failure(2, "TypeError at slots.py:1", "Traceback"),)))
    guard.tell(base, Plan(base.now, troubles=("a limit was reached",)))
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "ERROR", "WARNING"]


def test_a_directory_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    snapshot = Cluster(1, 2).job().job().snapshot()
    plan = Guard(str(tmp_path / "none")).passed(snapshot, spoilt(snapshot), Requests(snapshot))
    assert len(plan.placements) == 1

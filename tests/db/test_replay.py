"""``kao save`` and ``kao plan``: a round in a file."""

from pathlib import Path
from typing import Any

import pytest

from oar.kao.codec import from_json, to_json
from oar.kao.model import Plan
from oar.kao.platform import Platform
from oar.kao.schedule import schedule
from oar.lib.db.engine import Database
from oar.lib.runtime import Runtime
from oar.lib.times import format_date
from oar.modules import replay
from tests.builders import add_resources
from tests.db.test_meta_sched import submit
from tests.scheduler.builders import NOW, Cluster, hours


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A round with a busy node, a job that waits for it, and one that waits for both."""
    path = tmp_path / "round.json"
    path.write_text(to_json(Cluster(nodes=2, cores=1).run(1).job("/core=2").job("/core=2").snapshot()))
    return path


def test_a_saved_round_is_planned_again_to_the_same_plan(saved: Path, capsys: Any) -> None:
    assert replay.main(["plan", str(saved), "--json"]) == 0
    assert from_json(Plan, capsys.readouterr().out) == schedule(replay.read(saved))


def test_the_plan_is_shown_with_starts_and_reasons(saved: Path, capsys: Any) -> None:
    assert replay.main(["plan", str(saved)]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    start = format_date(NOW + hours(1) + 1)
    assert first.split(None, 4) == ["2", *start.split(), "2", f"waiting for resources until {start} (jobs 1)"]
    assert format_date(NOW + 2 * (hours(1) + 1)) in second


def test_a_round_can_be_planned_with_something_changed(saved: Path, capsys: Any) -> None:
    assert replay.main(["plan", str(saved), "--walltime", "1=0:10:0", "--explain", "2"]) == 0
    out = capsys.readouterr().out
    assert format_date(NOW + 601) in out
    assert out.endswith("It would start now with core=1 instead of core=2.\n")
    assert replay.main(["plan", str(saved), "--without", "n1"]) == 0
    assert "no resource satisfies the request: /core=2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "trouble"),
    [
        (["--without", "n9"], "there is no node n9 in this round"),
        (["--walltime", "x"], "x is not JOB=H:M:S"),
        (["--walltime", "7=1"], "there is no job 7 in this round"),
        (["--explain", "7"], "no job 7 is waiting in this round"),
    ],
)
def test_what_is_not_in_the_round_is_named(saved: Path, arguments: list[str], trouble: str, capsys: Any) -> None:
    assert replay.main(["plan", str(saved), *arguments]) != 0
    assert capsys.readouterr().err == f"[ERROR] {trouble}\n"


def test_a_file_that_is_no_round_is_named(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "other.json"
    for text in ("", "[]", '{"now": 1}', '{"surprise": 1}'):
        path.write_text(text)
        assert replay.main(["plan", str(path)]) != 0
        assert "is not a round saved by this version" in capsys.readouterr().err
    assert replay.main(["plan", str(tmp_path / "none")]) != 0


def test_a_round_of_the_database_survives_the_file(database: Database, runtime: Runtime, tmp_path: Path) -> None:
    add_resources(database, nodes=2, cores=2)
    submit(database, "{cpuset = '1'}/network_address=1", types=("besteffort",))
    snapshot = Platform(database, runtime.config).read().snapshot
    path = tmp_path / "round.json"
    path.write_text(to_json(snapshot))
    assert replay.read(path) == snapshot
    assert schedule(replay.read(path)) == schedule(snapshot)

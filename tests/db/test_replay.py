"""``kao save`` and ``kao plan``: a round in a file."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oar.kao.facts.plan import Plan
from oar.kao.planner.schedule import schedule
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.kao.rounds.snapshot_files import from_json, to_json
from oar.lib.base.times import format_date
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime
from oar.modules import kao_commands
from tests.builders import add_resources
from tests.db.test_meta_sched import at, submit
from tests.scheduler.builders import NOW, Cluster, hours

pytestmark = pytest.mark.slow


def configured(settings: DatabaseSettings, directory: Path) -> Path:
    """Write an oar.conf for this database; return its path."""
    path = directory / "oar.conf"
    path.write_text(
        f'DB_TYPE="Pg"\nDB_HOSTNAME="{settings.host}"\nDB_PORT="{settings.port}"\nDB_BASE_NAME="{settings.name}"\n'
        f'DB_BASE_LOGIN="{settings.user}"\nDB_BASE_PASSWD="{settings.password}"\n'
        f'DB_BASE_LOGIN_RO="{settings.ro_user}"\nDB_BASE_PASSWD_RO="{settings.ro_password}"\n'
    )
    return path


@pytest.fixture
def site(database: Database, settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database that programs find by their configuration."""
    monkeypatch.setenv("OARCONFFILE", str(configured(settings, tmp_path)))
    return database


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A round with a busy node, a job that waits for it, and one that waits for both."""
    path = tmp_path / "round.json"
    path.write_text(to_json(Cluster(nodes=2, cores=1).run(1).job("/core=2").job("/core=2").snapshot()))
    return path


def test_a_saved_round_is_planned_again_to_the_same_plan(saved: Path, capsys: Any) -> None:
    assert kao_commands.main(["plan", str(saved), "--json"]) == 0
    assert from_json(Plan, capsys.readouterr().out) == schedule(kao_commands.read(saved))


def test_the_plan_is_shown_with_starts_and_reasons(saved: Path, capsys: Any) -> None:
    assert kao_commands.main(["plan", str(saved)]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    start = format_date(NOW + hours(1) + 1)
    assert first.split(None, 4) == ["2", *start.split(), "2", f"waiting for resources until {start} (jobs 1)"]
    assert format_date(NOW + 2 * (hours(1) + 1)) in second


def test_a_round_can_be_planned_with_something_changed(saved: Path, capsys: Any) -> None:
    assert kao_commands.main(["plan", str(saved), "--walltime", "1=0:10:0", "--explain", "2"]) == 0
    out = capsys.readouterr().out
    assert format_date(NOW + 601) in out
    assert out.endswith("It would start now with core=1 instead of core=2.\n")
    assert kao_commands.main(["plan", str(saved), "--without-node", "n1"]) == 0
    assert "no resource satisfies the request: /core=2" in capsys.readouterr().out


def test_the_jobs_behind_the_limits_of_a_round_are_planned_on_request(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "round.json"
    path.write_text(to_json(Cluster(nodes=1, max_jobs=1).job("/node=1").job("/node=1").snapshot()))
    assert kao_commands.main(["plan", str(path)]) == 0
    assert "not planned in this round: 1 jobs before it" in capsys.readouterr().out
    assert kao_commands.main(["plan", str(path), "--all"]) == 0
    out = capsys.readouterr().out
    assert "not planned" not in out
    assert "instead of" not in out


def test_what_is_supposed_is_shown_beside_what_would_be_otherwise(saved: Path, capsys: Any) -> None:
    assert kao_commands.main(["plan", str(saved), "--walltime", "1=0:10:0"]) == 0
    head, first, _ = capsys.readouterr().out.splitlines()
    assert head.split() == ["job", "start", "instead", "of", "resources", "reason"]
    assert first.split()[1:5] == [*format_date(NOW + 601).split(), *format_date(NOW + hours(1) + 1).split()]


@pytest.mark.parametrize(
    "text",
    [
        '{"quotas": {"*,*,*,/": [1, -1, -1]}}',
        "$Gantt_quotas->{'*'}->{'*'}->{'*'}->{'/'} = 1 ;",
    ],
)
def test_a_round_can_be_planned_under_other_quotas(saved: Path, tmp_path: Path, text: str, capsys: Any) -> None:
    quotas = tmp_path / "quotas"
    quotas.write_text(text)
    assert kao_commands.main(["plan", str(saved), "--quotas", str(quotas)]) == 0
    assert capsys.readouterr().out.count("quota_exceeded:*,*,*,/=[2,1,2.00]>[1,-1,-1]") == 2


def test_a_file_of_quotas_that_cannot_be_read_is_named(saved: Path, tmp_path: Path, capsys: Any) -> None:
    quotas = tmp_path / "quotas"
    assert kao_commands.main(["plan", str(saved), "--quotas", str(quotas)]) != 0
    assert capsys.readouterr().err == f"[ERROR] cannot read {quotas}: No such file or directory\n"
    for text in ('{"quotas": ', "$Gantt = 1", '{"quotas": {"*,*": 3}}'):
        quotas.write_text(text)
        assert kao_commands.main(["plan", str(saved), "--quotas", str(quotas)]) != 0
        error = capsys.readouterr().err
        assert error.startswith(f"[ERROR] {quotas} is not a file of quotas: ")
        assert error.count("\n") == 1


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
    assert kao_commands.main(["plan", str(saved), *arguments]) != 0
    assert capsys.readouterr().err == f"[ERROR] {trouble}\n"


def test_a_file_that_is_no_round_is_named(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "other.json"
    deep = "[" * 100_000
    for text in ("", "[]", '{"now": 1}', '{"surprise": 1}', deep, "\x00"):
        path.write_text(text)
        assert kao_commands.main(["plan", str(path)]) != 0
        assert "is not a round saved by this version" in capsys.readouterr().err
    assert kao_commands.main(["plan", str(tmp_path / "none")]) != 0


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (("resources", "states"), ["Alive"]),
        (("resources", "order"), [0, 7]),
        (("pools", 0, "members"), "0-9"),
        (("waiting", 0, "alternatives", 0, "groups", 0, "pool"), 4),
        (("running", 0, "resources"), "0-9"),
    ],
)
def test_a_round_whose_parts_do_not_belong_together_is_refused(
    saved: Path, part: tuple[Any, ...], value: Any, capsys: Any
) -> None:
    record = json.loads(saved.read_text())
    place = record
    for name in part[:-1]:
        place = place[name]
    place[part[-1]] = value
    saved.write_text(json.dumps(record))
    assert kao_commands.main(["plan", str(saved)]) != 0
    assert "is not a round saved by this version" in capsys.readouterr().err


def test_kao_saves_a_round_that_another_process_plans_to_the_same(site: Database, tmp_path: Path, capsys: Any) -> None:
    add_resources(site, nodes=3, cores=2)
    for number in range(6):
        submit(site, f"/network_address={number % 3 + 1}", types=("token:t=1",) if number == 5 else ())
    path = tmp_path / "round.json"
    assert kao_commands.main(["save", str(path)]) == 0
    assert capsys.readouterr().out == f"6 waiting and 0 running jobs in {path}\n"
    assert kao_commands.main(["plan", str(path), "--json"]) == 0
    plan = capsys.readouterr().out
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(path for path in sys.path if path)}
        words = [sys.executable, "-m", "oar.modules.meta_sched", "plan", str(path), "--json"]
        assert subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout == plan


def test_a_round_is_planned_alike_in_another_time_zone(
    site: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    add_resources(site, nodes=1, cores=1)
    path = tmp_path / "round.json"

    def plan(zone: str) -> str:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        capsys.readouterr()
        assert kao_commands.main(["plan", str(path), "--json"]) == 0
        return str(capsys.readouterr().out)

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    submit(site, "/resource_id=1", types=(f"postpone={format_date(NOW * 2)}",))
    assert kao_commands.main(["save", str(path)]) == 0
    assert plan("America/New_York") == plan("Asia/Tokyo") == plan("UTC")
    assert from_json(Plan, plan("UTC")).placements[0].start == NOW * 2
    assert os.environ["TZ"] == "UTC"
    monkeypatch.undo()
    time.tzset()


def test_the_last_rounds_are_kept_as_they_were_if_that_is_wanted(database: Database, tmp_path: Path) -> None:
    config = Config(oar_run_dir=str(tmp_path), scheduler_rounds_kept=2)
    add_resources(database, nodes=1, cores=1)
    scheduler = MetaScheduler(Runtime(config, database))
    numbers = []
    for second in range(3):
        numbers.append(submit(at(database, NOW + second), "/resource_id=1"))
        scheduler.round()
    scheduler.close()
    files = sorted(tmp_path.glob("round-*.json"))
    assert [file.name for file in files] == [f"round-{NOW + 1}.json", f"round-{NOW + 2}.json"]
    assert [[job.id for job in kao_commands.read(file).waiting] for file in files] == [numbers[1:2], numbers[1:]]


def test_a_saved_round_is_for_nobody_else_and_no_link_is_followed(site: Database, tmp_path: Path, capsys: Any) -> None:
    path, link = tmp_path / "round.json", tmp_path / "link"
    assert kao_commands.main(["save", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    link.symlink_to(tmp_path / "elsewhere")
    assert kao_commands.main(["save", str(link)]) != 0
    assert "cannot write" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_where_nothing_can_be_written_is_named(site: Database, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "none" / "round.json"
    assert kao_commands.main(["save", str(path)]) != 0
    assert capsys.readouterr().err == f"[ERROR] cannot write {path}: No such file or directory\n"


def test_a_round_of_the_database_survives_the_file(database: Database, runtime: Runtime, tmp_path: Path) -> None:
    add_resources(database, nodes=2, cores=2)
    submit(database, "{cpuset = '1'}/network_address=1", types=("besteffort",))
    snapshot = SnapshotReader(database, runtime.config).read().snapshot
    path = tmp_path / "round.json"
    path.write_text(to_json(snapshot))
    assert kao_commands.read(path) == snapshot
    assert schedule(kao_commands.read(path)) == schedule(snapshot)

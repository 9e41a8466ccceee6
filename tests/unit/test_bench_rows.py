"""The table of the benchmarks of the way of a job, and Slurm's configuration: what is told of the figures measured."""

import re

import pytest

from bench import rows, slurm_room
from bench.rows import FIGURES, Figure

LESS = Figure("less", "m", "a", 100)
MORE = Figure("more", "m", "b", 60, more_is_better=True, lead=1.3)


def samples(**values: list[float]) -> dict[tuple[str, str], list[float]]:
    return {("array", name): numbers for name, numbers in values.items()}


def test_a_figure_is_the_median_of_its_rounds() -> None:
    assert rows.value(LESS, {("m", "a"): [1000, 3, 4]}) == 4
    assert rows.value(LESS, {}) is None


@pytest.mark.parametrize(("figure", "ours", "theirs", "times"), [(LESS, 50, 100, 2), (MORE, 50, 100, 0.5)])
def test_times_above_one_say_that_ours_is_better(figure: Figure, ours: float, theirs: float, times: float) -> None:
    assert rows.lead(figure, ours, theirs) == times


def test_nothing_is_a_number_of_times_better_than_nothing() -> None:
    assert rows.lead(LESS, 0, 5) is None
    assert rows.lead(MORE, 5, 0) is None


@pytest.mark.parametrize(("figure", "held", "missed"), [(LESS, 100, 100.1), (MORE, 60, 59.9)])
def test_a_limit_may_be_reached_and_not_crossed(figure: Figure, held: float, missed: float) -> None:
    assert not rows.is_missed(figure, held)
    assert rows.is_missed(figure, missed)


def test_a_figure_without_limit_is_never_missed() -> None:
    assert not rows.is_missed(Figure("free", "m", "a"), 10**9)


def test_what_is_missed_names_the_measurement() -> None:
    slow = samples(jobs_per_s=[59], cpu_ms_per_job=[30])
    assert rows.missed(slow) == ["array: jobs/s, one array"]
    assert rows.missed(samples(jobs_per_s=[61], cpu_ms_per_job=[30])) == []


def test_a_lead_is_asked_over_slurm_at_its_fastest() -> None:
    ours = samples(jobs_per_s=[65])
    assert rows.missed(ours, samples(jobs_per_s=[50])) == []
    assert rows.missed(ours, samples(jobs_per_s=[51])) == ["array: jobs/s, one array, 1.3 times Slurm's"]


def test_the_table_has_ours_its_limit_and_each_other_with_its_times() -> None:
    ours, tuned, default = samples(jobs_per_s=[60]), samples(jobs_per_s=[40]), samples()
    head, line = rows.table(ours, {"tuned": tuned, "default": default})
    assert head.split() == ["OAR", "limit", "tuned", "times", "default", "times"]
    assert line.split() == ["jobs/s,", "one", "array", "60.0", ">=", "60", "40.0", "1.50"]


def test_the_table_leaves_out_what_was_not_measured() -> None:
    assert len(rows.table({}, {})) == 1


def test_every_measurement_of_the_table_is_measured() -> None:
    assert set(rows.MEASURED) == {figure.measurement for figure in FIGURES} - {""}


def test_slurm_gets_as_many_nodes_and_cores_as_ours() -> None:
    text = slurm_room.configuration("tuned", nodes=7, cores=3)
    assert "NodeName=node-[1-7] CPUs=3 " in text


def test_confined_jobs_differ_from_the_fastest_in_their_control_groups_only() -> None:
    fastest, confined = (set(slurm_room.configuration(name, 1, 1).splitlines()) for name in ("tuned", "confined"))
    assert {line.partition("=")[0] for line in fastest ^ confined} == {"ProctrackType", "TaskPlugin"}
    assert {line for line in confined - fastest if "cgroup" not in line} == set()


def test_slurm_by_default_has_no_setting_that_is_not_needed() -> None:
    text = slurm_room.configuration("default", 1, 1)
    assert not re.search("Scheduler|Proctrack|TaskPlugin|JobAcct", text)


def test_no_key_stands_twice_in_the_configuration() -> None:
    for flavour in slurm_room.FLAVOURS:
        keys = [line.partition("=")[0] for line in slurm_room.configuration(flavour, 1, 1).splitlines()]
        assert len(keys) == len(set(keys))


def test_who_has_no_slurm_is_told_how_to_install_it_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_room, "_PATH", "/nowhere")
    assert "apt-get install" in slurm_room.missing()
    assert slurm_room.PACKAGES in slurm_room.missing()
    assert "\n" not in slurm_room.missing()

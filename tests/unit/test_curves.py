"""Curves of jobs keep their size, and what they tell of the past, however long a job lasts."""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.jobs.curves import (
    MEASURED_SHARE,
    MOST_POINTS,
    PERIOD,
    Curve,
    GrowingCurve,
    Sample,
    aligned,
    fitting_step,
    record,
    steps_between,
    total,
)
from oar.modules.runner.curves import MOST_JOBS, read_report

VALUES = st.one_of(st.none(), st.integers(0, 2**31 - 1))
COLUMNS = st.lists(VALUES, max_size=MOST_POINTS)
#: Lengths of the times that reports cover, in seconds.
LENGTHS = st.lists(st.floats(20, 45), min_size=1, max_size=200)


@given(LENGTHS, st.floats(0, 10_000))
def test_reports_that_follow_each_other_have_no_step_in_common_and_miss_none(
    lengths: list[float], start: float
) -> None:
    dates = [start]
    for length in lengths:
        dates.append(dates[-1] + length)
    found = [index for begin, end in pairwise(dates) for index in steps_between(0, begin, end)]
    assert found == list(range(found[0], found[0] + len(found))) if found else dates[-1] - dates[0] < PERIOD


@given(st.integers(0, 10**7))
def test_each_moment_of_a_job_fits_into_its_curve(index: int) -> None:
    step = fitting_step(index)
    assert index * PERIOD // step < MOST_POINTS
    assert step == PERIOD or index * PERIOD // (step // 2) >= MOST_POINTS
    assert math.log2(step / PERIOD).is_integer()


@given(COLUMNS, COLUMNS, st.sampled_from([1, 2, 4, 8]))
def test_longer_steps_keep_the_largest_memory_and_the_mean_of_processors(
    cpu: list[int | None], memory: list[int | None], factor: int
) -> None:
    length = min(len(cpu), len(memory))
    curve = Curve(1, "node", 0, PERIOD, cpu=cpu[:length], memory=memory[:length]).in_steps(factor * PERIOD)
    assert len(curve.cpu) == math.ceil(length / factor)
    for place, (mean, most) in enumerate(zip(curve.cpu, curve.memory, strict=True)):
        steps = range(place * factor, (place + 1) * factor)
        known = [value for index in steps if index < length and (value := cpu[index]) is not None]
        assert (mean is None) == (len(known) < factor)
        assert mean is None or min(known) <= mean <= max(known)
        amounts = [value for index in steps if index < length and (value := memory[index]) is not None]
        assert most == (max(amounts) if len(amounts) == factor else None)


@given(st.lists(st.booleans(), min_size=1, max_size=600), st.integers(0, 3))
def test_a_step_has_a_value_only_if_most_of_it_was_measured(measured: list[bool], doublings: int) -> None:
    """Whether its steps were long from the beginning, or were made longer."""
    curve: Curve | None = None
    growing = GrowingCurve(0, PERIOD << doublings)
    for index, is_measured in enumerate(measured):
        if is_measured:
            growing.add(index * PERIOD, (index + 1) * PERIOD, Sample(1000, 1))
        curve = stored(growing, curve)
    for step in [curve.step, 4 * curve.step] if curve else []:
        for place, value in enumerate(curve.in_steps(step).cpu if curve else []):
            number = step // PERIOD
            known = sum(measured[place * number : (place + 1) * number])
            assert value is None or known >= MEASURED_SHARE * number
            assert value is not None or known < number or (curve and step > curve.step)


def stored(growing: GrowingCurve, curve: Curve | None) -> Curve | None:
    """Store what is complete, as the statements do."""
    if growing.points:
        step = curve.step if curve else growing.step
        assert step == growing.step
        length = growing.points[-1][0] + 1
        columns = [[*column, *[None] * (length - len(column))] for column in (curve.columns if curve else [[]] * 4)]
        for place, sample in growing.points:
            for column, value in zip(columns, sample, strict=False):
                assert column[place] is None
                column[place] = value
        curve = Curve(1, "node", 0, growing.step, 0, *columns)
    if growing.late and curve is not None:
        curve = curve.in_steps(growing.wanted_step)
    growing.lengthen()
    return curve


@given(st.integers(1, 3000), st.integers(1, 20), st.integers(0, 300))
def test_a_curve_stays_small_and_its_points_tell_all_of_a_job(count: int, pause: int, restart: int) -> None:
    curve: Curve | None = None
    growing = GrowingCurve(0, 0)
    for number in range(count):
        growing.add(number * PERIOD, (number + 1) * PERIOD, Sample(1000, number))
        if number % pause == 0:
            curve = stored(growing, curve)
        if number == restart and curve is not None:
            growing = GrowingCurve(0, curve.step, len(curve.cpu))
    curve = stored(growing, curve)
    curve = stored(growing, curve)
    step = fitting_step(count - 1)
    if curve is None:
        assert count * PERIOD < step or count - 1 == restart or pause > 1
        return
    assert len(curve.cpu) <= MOST_POINTS
    assert {value for value in curve.cpu if value is not None} == {1000}
    if restart >= count:
        assert None not in curve.cpu
        assert len(curve.cpu) >= (count * PERIOD - step) // step
        last = min(count, len(curve.cpu) * step // PERIOD) - 1
        assert curve.memory[-1] == last


@pytest.mark.parametrize("late", [1, 2, 9])
def test_a_node_that_joins_late_leaves_a_gap_in_the_total(late: int) -> None:
    first = Curve(1, "a", 1000, PERIOD, cpu=[500] * 10, memory=[10] * 10)
    gap = [None] * late
    second = Curve(1, "b", 1000, PERIOD, cpu=gap + [700] * (10 - late), memory=gap + [5] * (10 - late))
    both = total([first, second])
    assert both is not None
    assert both.cpu == gap + [1200] * (10 - late)
    assert both.memory == gap + [15] * (10 - late)


def test_gpus_of_a_job_count_alike_on_all_nodes() -> None:
    four = Curve(1, "a", 0, PERIOD, 4, [0], [0], [100], [40])
    one = Curve(1, "b", 0, PERIOD, 1, [0], [0], [600], [1])
    none = Curve(1, "c", 0, PERIOD, 0, [0], [0])
    both = total([four, one, none])
    assert both is not None
    assert (both.gpus, both.gpu, both.gpu_memory) == (5, [200], [41])


def test_the_use_of_gpus_is_known_only_if_all_nodes_with_gpus_report_it() -> None:
    first, second = (
        Curve(1, "a", 0, PERIOD, 4, [0] * 3, [0] * 3, [9] * 3, [9] * 3),
        Curve(1, "b", 0, PERIOD, 4, [0] * 3),
    )
    both = total([first, second._replace(memory=[0] * 3, gpu=[None, 7], gpu_memory=[None, 7])])
    assert both is not None
    assert (both.gpus, both.gpu, both.gpu_memory) == (8, [None, 8, None], [None, 16, None])


@given(st.lists(COLUMNS, min_size=1, max_size=4), st.sampled_from([0, 1, 5]))
def test_a_total_is_the_sum_where_all_nodes_were_measured(columns: list[list[int | None]], gpus: int) -> None:
    both = total([Curve(1, str(number), 0, PERIOD, gpus, *[column] * 4) for number, column in enumerate(columns)])
    assert both is not None
    assert len(both.cpu) == max(map(len, columns))
    for place, value in enumerate(both.cpu):
        values = [column[place] if place < len(column) else None for column in columns]
        known = [each for each in values if each is not None]
        assert value == both.memory[place] == (sum(known) if len(known) == len(values) else None)
        if gpus:
            assert both.gpu_memory[place] == value
            assert both.gpu[place] == (None if value is None else round(value * gpus / (gpus * len(values))))


def test_a_record_without_nodes_has_only_the_total() -> None:
    curve = Curve(1, "a", 0, PERIOD, cpu=[1000], memory=[1])
    assert record([curve], by_node=False) == {**record([curve]), "nodes": {}}


def test_curves_with_different_steps_are_shown_with_the_longest() -> None:
    short, long = Curve(1, "a", 0, PERIOD, cpu=[1, 3, 5]), Curve(1, "b", 0, 2 * PERIOD, cpu=[7, 7])
    assert [curve.cpu for curve in aligned([short, long])] == [[2, None], [7, 7]]


def test_a_report_is_read() -> None:
    report = read_report('{"seconds":30.0,"jobs":[[7,60000,1048577],[8,null,null,2,500,3145728]]}')
    assert report is not None
    assert report.samples == {7: Sample(2000, 2), 8: Sample(None, None, 500, 3, 2)}


@pytest.mark.parametrize(
    "line",
    [
        *("", "null", "[]", "{}", "7", '{"seconds":30}', '{"seconds":0,"jobs":[]}', '{"seconds":1e9,"jobs":[]}'),
        *('{"seconds":NaN,"jobs":[]}', '{"seconds":30,"jobs":[[1]]}', '{"seconds":30,"jobs":[[1,-5,0]]}'),
        *('{"seconds":30,"jobs":[[true,5,0]]}', '{"seconds":30,"jobs":[[1,"5",0]]}', '{"seconds":30,"jobs":"aaa"}'),
        *('{"seconds":30,"jobs":[[0,5,0]]}', '{"seconds":30,"jobs":[[1,5,0,1]]}', '{"seconds":30,"jobs":{"a":1}}'),
        *("[" * 100_000, '{"seconds":30,"jobs":[[99999999999999999999,5,0]]}', '{"seconds":30,"jobs":[[1,5.5,0]]}'),
    ],
)
def test_what_is_no_report_is_none(line: str) -> None:
    assert read_report(line) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_no_report_raises_an_exception(jobs: object) -> None:
    report = read_report(json.dumps({"seconds": 30, "jobs": jobs}))
    assert report is None or all(0 < job < 2**63 for job in report.samples)


def test_a_report_is_bounded() -> None:
    rows = ",".join(f"[{number},{2**62},{2**62},9999,{2**62},{2**62}]" for number in range(1, 2 * MOST_JOBS))
    report = read_report(f'{{"seconds":30,"jobs":[{rows}]}}')
    assert report is not None
    assert len(report.samples) == MOST_JOBS
    assert report.samples[1] == Sample(None, None, None, None, 1024)

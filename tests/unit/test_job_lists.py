"""Lists of jobs as people type them."""

import pytest

from oar.lib.jobs.job_lists import BadJobList, JobRange, parse


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("118, 120", [JobRange(118, 118), JobRange(120, 120)]),
        ("22-25 7", [JobRange(22, 25), JobRange(7, 7)]),
        ("120[3-7,9]", [JobRange(3, 7, 120), JobRange(9, 9, 120)]),
        ("120_3,120_[4]", [JobRange(3, 3, 120), JobRange(4, 4, 120)]),
        ("120[]", [JobRange(1, 0, 120)]),
    ],
)
def test_ids_ranges_and_elements_of_arrays(text: str, ranges: list[JobRange]) -> None:
    assert parse(text) == ranges


@pytest.mark.parametrize(
    "text", ["", ",", "12-", "-12", "12-3", "a", "12[3", "12]", "12[[3]]", "1-20000", "0_3", "0[3]", "9" * 19]
)
def test_other_texts_are_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(BadJobList, match=r"is not a list of jobs: (write|0 is not|1-20000 has more than)"):
        parse(text)


def test_a_long_list_is_read_in_linear_time() -> None:
    assert len(parse(",".join(["1"] * 100_000))) == 100_000
    with pytest.raises(BadJobList):
        parse("1[" * 100_000)

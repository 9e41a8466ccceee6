"""LIKE in memory: the answers of the definition, in a time that no pattern makes long."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.conditions.in_memory import like

pieces = st.text(alphabet="ab%_.\n*", max_size=8)


def by_definition(pattern: str, text: str) -> bool:
    """Match as the standard says, place by place."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(by_definition(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and by_definition(pattern[1:], text[1:])


@given(pattern=pieces, text=st.text(alphabet="ab.\n*é", max_size=8))
def test_it_is_as_the_standard_says(pattern: str, text: str) -> None:
    assert like(pattern, ignores_case=False)(text) is by_definition(pattern, text)


@given(pattern=pieces, text=st.text(alphabet="aAbB.", max_size=8))
def test_upper_and_lower_case_can_be_the_same(pattern: str, text: str) -> None:
    assert like(pattern.upper(), ignores_case=True)(text) is by_definition(pattern, text.lower())


@pytest.mark.parametrize(
    "pattern",
    ["%" * 255 + "z", "%e" * 127 + "z", "%_" * 127 + "z", "%e_" * 85 + "z", "%" + "_" * 254, "e%" * 127 + "z"],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """A regular expression made of it would take longer than the world is old."""
    test = like(pattern, ignores_case=True)
    begin = time.process_time()
    assert not any(test("e" * 250 + str(number)) for number in range(100))
    assert time.process_time() - begin < 1.0


def test_what_regular_expressions_mean_is_text() -> None:
    assert like("a.c*", ignores_case=False)("a.c*")
    assert not like("a.c*", ignores_case=False)("abcc")
    assert re.fullmatch("a.c*", "abcc")

"""Columns of tables: what each character takes on a terminal."""

import pytest

from oar.cli.common.render import cell, padded, places


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("plain", 5),
        ("é", 1),
        ("e\u0301", 1),  # a letter and the accent over it
        ("計算", 4),
        ("ｆｕｌｌ", 8),
        ("ｶﾅ", 2),  # half-width
        ("\u1112\u1161\u11ab", 2),  # a syllable of Hangul in its parts
        ("🚀", 2),
        ("a\u200bb", 2),  # a blank of no width
        ("soft\xadhyphen", 11),
    ],
)
def test_the_places_of_a_text(text: str, number: int) -> None:
    assert places(text) == number


@pytest.mark.parametrize("width", range(12))
@pytest.mark.parametrize("text", ["", "plain", "計算計算", "a計b算", "re\u0301sume\u0301s", "🚀🚀"])
def test_a_cell_takes_the_places_that_it_is_given(text: str, width: int) -> None:
    shown = cell(text, width)
    assert places(shown) == width
    assert text.startswith(shown.rstrip(" "))
    assert places(padded(text, width)) == max(places(text), width)

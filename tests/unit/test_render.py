"""Text made of records: what is shown of hostile names, and the small words."""

import pytest

from oar.cli.common import render
from oar.lib.history.records import Event


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢", "plain é 漢"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x00\x1b[2J\x7f\x9b1m\x85", "\\x00\\x1b[2J\\x7f\\x9b1m\\x85"),
        ("line\u2028end\u2029", "line\\u2028end\\u2029"),
        ("no-break\u00a0blank", "no-break\u00a0blank"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert render.visible(text) == shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 second"),
        (1, "1 second"),
        (59, "59 seconds"),
        (60, "1 minute 0 second"),
        (7322, "2 hours 2 minutes 2 seconds"),
        (97220, "1 day 3 hours 20 seconds"),
        (144000, "1 day 16 hours 0 second"),
        (400 * 86400, "400 days 0 second"),
    ],
)
def test_a_duration_in_words(seconds: int, words: str) -> None:
    assert render.duration_in_words(seconds) == words


def test_no_line_of_an_event_starts_in_the_first_column_but_its_own() -> None:
    event = Event(1, "OUTPUT_FILES", 12, 1_930_000_000, "one\ntwo\n\x1bthree\n", False)
    first, second, third = render.job_events({12: [event]}).splitlines()
    column = first.index("one")
    assert first.endswith("> [12] OUTPUT_FILES: one")
    assert second == " " * column + "two"
    assert third == " " * column + "\\x1bthree"


def test_without_jobs_there_is_no_head_of_a_table() -> None:
    assert render.job_table([], 0) == ""
    assert render.job_table([], 0, layout=2, by_array=True, folded=True) == ""

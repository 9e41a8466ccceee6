"""When the server waits for its database, what it says meanwhile, and when it gives up."""

import pytest

from oar.lib.bus.exit_codes import ServerCode
from oar.modules.children import RunnerRestarts

DATABASE = "db:5432"


def test_a_word_is_said_each_ten_seconds_until_the_runner_is_ready() -> None:
    restarts = RunnerRestarts(DATABASE, 20.0, first_start=100.0)
    said = {now: word for now in range(100, 146) if (word := restarts.word(now))}
    assert sorted(said) == [110, 120, 130, 140]
    assert said[120] == "waiting for the database at db:5432, for 20 s until now"
    assert restarts.next_word() == 150.0
    restarts.note_ready()
    assert (restarts.next_word(), restarts.word(1000.0)) == (None, "")


def test_who_waits_for_a_server_that_has_not_ended_does_not_speak_of_the_database() -> None:
    restarts = RunnerRestarts(DATABASE, 20.0, first_start=100.0, reason="Connection refused")
    assert restarts.wait == "waiting for the database at db:5432 (Connection refused)"
    restarts.end_after(ServerCode.RUNNING, 101.0)
    assert restarts.word(110.0) == "waiting for the end of another server, for 10 s until now"


def test_words_that_came_late_are_said_once() -> None:
    restarts = RunnerRestarts(DATABASE, 20.0, first_start=100.0)
    assert restarts.word(137.0)
    assert not restarts.word(139.0)
    assert restarts.word(140.0)


@pytest.mark.parametrize(
    ("code", "waited", "expected"),
    [
        (ServerCode.REFUSED, 1.0, ServerCode.DATABASE),
        (ServerCode.CONFIGURATION, 1.0, ServerCode.CONFIGURATION),
        (ServerCode.DATABASE, 1.0, None),
        (ServerCode.DATABASE, 301.0, ServerCode.DATABASE),
        (ServerCode.RUNNING, 1.0, None),
    ],
)
def test_what_the_first_start_ends_with(code: int, waited: float, expected: int | None) -> None:
    end = RunnerRestarts(DATABASE, 20.0, first_start=100.0).end_after(code, 100.0 + waited)
    assert (end and end.code) == expected


def test_a_server_that_was_up_outlives_a_database_that_refuses_it() -> None:
    restarts = RunnerRestarts(DATABASE, 20.0, first_start=100.0)
    restarts.note_ready()
    assert restarts.end_after(ServerCode.REFUSED, 1000.0) is None

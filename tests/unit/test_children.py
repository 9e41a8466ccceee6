"""When the server waits for its database, and when it gives up; when a worker process is replaced."""

import pytest

from oar.lib.base.times import format_date
from oar.lib.bus.exit_codes import ServerCode
from oar.lib.bus.frames import Renewal
from oar.modules.children import DatabaseOutage, RunnerRestarts
from oar.modules.worker import PASSES_OF_A_LIFE, SETTLING, Lifetime

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
    restarts.locked_out_since = 101.0
    assert restarts.word(110.0) == "waiting for the end of another server, for 10 s until now"


def test_words_that_came_late_are_said_once() -> None:
    restarts = RunnerRestarts(DATABASE, 20.0, first_start=100.0)
    assert restarts.word(137.0)
    assert not restarts.word(139.0)
    assert restarts.word(140.0)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ServerCode.REFUSED, ServerCode.DATABASE),
        (ServerCode.CONFIGURATION, ServerCode.CONFIGURATION),
        (ServerCode.DATABASE, None),
        (-9, None),
    ],
)
def test_what_the_first_start_ends_with(code: int, expected: int | None) -> None:
    end = RunnerRestarts(DATABASE, 20.0, first_start=100.0).end_after("warden", code)
    assert (end and end.code) == expected


def test_a_server_does_not_wait_for_its_database_or_for_another_server_for_ever() -> None:
    restarts = RunnerRestarts(DATABASE, 20.0, first_start=100.0, is_away=True)
    assert restarts.end_of_wait(400.0) is None
    assert restarts.end_of_wait(401.0) == (
        ServerCode.DATABASE,
        "the database could not be reached for 300 s",
    )
    locked_out = RunnerRestarts(DATABASE, 20.0, first_start=100.0, locked_out_since=101.0)
    assert locked_out.end_of_wait(120.0) is None
    assert locked_out.end_of_wait(121.0) == (ServerCode.RUNNING, "an Almighty process must be already started")


def test_a_standby_waits_for_ever() -> None:
    restarts = RunnerRestarts(DATABASE, 20.0, are_several=True, first_start=100.0, is_standby=True, is_away=True)
    assert (restarts.end_of_wait(9999.0), restarts.word(9999.0)) == (None, "")


def test_one_of_several_servers_waits_for_the_database_for_ever_also_if_it_was_active() -> None:
    restarts = RunnerRestarts(DATABASE, 20.0, are_several=True, first_start=100.0, is_away=True)
    assert restarts.end_of_wait(9999.0) is None
    assert restarts.word(9999.0).startswith("waiting for the database at db:5432")


def test_a_server_that_was_up_outlives_a_database_that_refuses_it() -> None:
    restarts = RunnerRestarts(DATABASE, 20.0, first_start=100.0)
    restarts.note_ready()
    assert restarts.end_after("Runner", ServerCode.REFUSED) is None


MIB = 1 << 20


def asked(*held: int, most: float = 1000) -> list[Renewal]:
    """Return what a worker asks for after passes after which it holds so many MiB."""
    lifetime = Lifetime()
    return [lifetime.renewal(each * MIB, most * MIB) for each in held]


def test_a_worker_below_its_bound_stays() -> None:
    assert set(asked(50, 300, 999, 999, 999)) == {Renewal.NONE}


def test_a_worker_that_has_grown_is_replaced_when_idle() -> None:
    assert asked(50, 50, 50, 999, 1000, 1999) == [*[Renewal.NONE] * 4, Renewal.WHEN_IDLE, Renewal.WHEN_IDLE]


def test_a_worker_that_has_grown_far_too_much_is_replaced_before_its_next_pass() -> None:
    assert asked(50, 50, 50, 2000)[-1] is Renewal.NOW


def test_a_worker_whose_work_needs_more_than_the_bound_stays() -> None:
    """Otherwise each pass would be the first of a process."""
    assert set(asked(4000, 5000, 5000, 6000, 7400)) == {Renewal.NONE}
    assert asked(4000, 5000, 5000, 7500)[-1] is Renewal.WHEN_IDLE
    assert asked(4000, 5000, 5000, 15000)[-1] is Renewal.NOW


@pytest.mark.parametrize("held", [100, 10**6])
def test_without_a_bound_only_the_number_of_passes_counts(held: int) -> None:
    passes = asked(*[50] * SETTLING, *[held] * (PASSES_OF_A_LIFE - SETTLING), most=0)
    assert passes == [Renewal.NONE] * (PASSES_OF_A_LIFE - 1) + [Renewal.WHEN_IDLE]


# -- outages of the database ------------------------------------------------------------------------------------------


def test_an_outage_causes_one_mail_and_one_when_the_database_is_back() -> None:
    outage = DatabaseOutage("db:5432")
    for second in range(0, 60, 10):
        assert outage.note_pass(second, is_unavailable=True) is None
        assert outage.due_mail(second, 1000 + second) is None
    mail = outage.due_mail(60, 1060)
    assert mail is not None
    assert mail.subject == "The database cannot be used"
    assert f"The database at db:5432 cannot be used since {format_date(1000)}." in mail.text
    assert outage.due_mail(120, 1120) is None
    assert outage.note_pass(125, is_unavailable=False) == (
        "The database can be used again",
        "The database at db:5432 can be used again, after 125 s. OAR goes on; nothing is to be done.",
    )
    assert outage.note_pass(126, is_unavailable=False) is None


def test_a_short_outage_and_a_second_one_within_an_hour_cause_no_mail() -> None:
    outage = DatabaseOutage("db:5432")
    assert outage.note_pass(0, is_unavailable=True) is None
    assert outage.note_pass(59, is_unavailable=False) is None
    assert outage.due_mail(100, 1100) is None
    mails = []
    for begin in (1000, 2000):
        outage.note_pass(begin, is_unavailable=True)
        mails.append(outage.due_mail(begin + 90, begin))
        mails.append(outage.note_pass(begin + 100, is_unavailable=False))
    assert [mail is not None for mail in mails] == [True, True, False, False]

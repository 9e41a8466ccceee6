"""What may be changed of an advance reservation, before its start and while it runs, and what is said if it may not."""

from collections.abc import Callable

import pytest

from oar.lib.base.grid_engine_times import write_date, write_option_date
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import EndCode, cause_text
from oar.lib.jobs.states import JobState
from oar.lib.reservations.records import AccessEntry
from oar.lib.reservations.states import ReservationState
from tests.builders import add_resources
from tests.db.reservation_site import HOUR, NOW, Site, Typed

#: The window of the reservation that is changed.
START, END = NOW + 100, NOW + HOUR

Refused = Callable[..., list[str]]


@pytest.fixture
def reservation(site: Site) -> int:
    """The id of a reservation of alice's: two of four resources."""
    add_resources(site.database, nodes=2, cores=2)
    asked = site.ask("/resource_id=2", START, END)
    site.round()
    return asked


@pytest.fixture
def refused(site: Site, alter: Typed, reservation: int) -> Refused:
    """A change that is refused, and leaves everything as it is; what is said of it, without the first line."""

    def ask(*words: str) -> list[str]:
        before, number = _all_of(site, reservation), site.get(reservation).number
        result = alter(*words, str(number))
        assert (result.exit, result.out) == (1, "")
        assert _all_of(site, reservation) == before
        first, *others = result.err.splitlines()
        assert first == f"denied: Reservation {number} can't be altered"
        return others

    return ask


def _all_of(site: Site, reservation: int) -> tuple[object, ...]:
    with site.database.snapshot() as tx:
        access, revisions = (
            tx.reservations.access([reservation]),
            tx.reservation_logs.revisions(reservation),
        )
        killed = tx.column("SELECT frag_id_job FROM frag_jobs")
    return site.get(reservation), access, revisions, killed, site.events(reservation)


def _granted(site: Site, alter: Typed, reservation: int, *words: str) -> tuple[int, int, tuple[int, ...]]:
    """Change a reservation; return its window and its resources."""
    result = alter(*words, str(site.get(reservation).number))
    assert (result.exit, result.err) == (0, "")
    changed = site.get(reservation)
    return changed.start, changed.end, changed.resources


def _book_others(site: Site, start: int, end: int, count: int = 4) -> int:
    """Reserve ``count`` resources for somebody else."""
    asked = site.ask(f"/resource_id={count}", start, end, owner="bob")
    site.round()
    assert site.state(asked) is ReservationState.WAITING
    return asked


def _begin(site: Site) -> None:
    site.round(START)


def _end_of(site: Site, job: int) -> tuple[EndCode, str]:
    """Let a waiting job end as was asked for; return the cause and its sentence."""
    with site.database.begin() as tx:
        assert lifecycle.move(tx, job, JobState.ERROR)
        cause = tx.job_runs.end_causes([job])[job]
    return cause.code, cause_text(cause, job).sentence


# -- before the start -------------------------------------------------------------------------------------------------


def test_before_the_start_the_start_moves_sooner_and_later_and_never_into_the_past(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    resources = site.get(reservation).resources
    assert _granted(site, alter, reservation, "-a", "+10") == (NOW + 10, NOW + 10 + END - START, resources)
    assert _granted(site, alter, reservation, "-a", "+200") == (NOW + 200, NOW + 200 + END - START, resources)
    assert refused("-a", write_option_date(NOW - 600)) == ["  start time is in the past"]


def test_a_start_without_place_is_refused_with_the_next_one(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    other = _book_others(site, END, END + HOUR)
    later, date = END + HOUR, write_date(END + HOUR)
    assert refused("-a", "+200") == [
        f"  there is no place for 0:58:20 from {write_date(NOW + 200)} on (advance reservation {other})",
        f"  the earliest possible start is {date} (-a {write_option_date(later)})",
    ]
    assert refused("-a", "+200", "-l", "/resource_id=3")[1].startswith(f"  the earliest possible start is {date} (-a ")
    assert _granted(site, alter, reservation, "-a", write_option_date(later))[0] == later


def test_before_the_start_the_end_moves_later_until_the_resources_are_not_free(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    resources = site.get(reservation).resources
    other = _book_others(site, END + HOUR, END + 2 * HOUR)
    assert refused("-e", write_option_date(END + HOUR + 1)) == [
        f"  there is a place for it only until {write_date(END + HOUR)} (advance reservation {other})",
        f"  the latest possible end is {write_date(END + HOUR)}",
    ]
    latest = write_option_date(END + HOUR)
    assert _granted(site, alter, reservation, "-e", latest) == (START, END + HOUR, resources)


def test_before_the_start_the_end_moves_sooner_and_leaves_room_for_a_job(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    assert _granted(site, alter, reservation, "-d", "7")[1] == START + 7
    assert refused("-d", "6") == ["  the duration must be longer than 6 seconds"]
    assert refused("-e", "+50") == ["  start time is later than end time"]


def test_a_reservation_that_moves_takes_other_resources_only_if_its_own_are_not_free(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    own, moved = site.get(reservation).resources, ("-a", write_option_date(END), "-d", "600")
    assert _granted(site, alter, reservation, *moved) == (END, END + 600, own)
    others = site.get(_book_others(site, START, END, count=2)).resources
    assert others == own
    taken = _granted(site, alter, reservation, "-a", write_option_date(START), "-d", "600")[2]
    assert not set(taken) & set(own)
    _book_others(site, END, END + HOUR, count=3)
    assert refused(*moved)[1].startswith("  the earliest possible start is ")


def test_before_the_start_those_of_higher_number_go_first_and_what_is_had_stays(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    own = site.get(reservation).resources
    more = _granted(site, alter, reservation, "-l", "/resource_id=3")[2]
    assert set(own) < set(more)
    assert _granted(site, alter, reservation, "-l", "/resource_id=1")[2] == (min(more),)
    other = _book_others(site, START, END, count=2)
    there_is_none = f"  there is no place for it from {write_date(START)} to {write_date(END)}"
    assert refused("-l", "/resource_id=3") == [f"{there_is_none} (advance reservation {other})"]


def test_other_resources_for_longer_name_the_date_until_which_they_are_free(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    other = _book_others(site, END + 600, END + HOUR, count=2)
    assert refused("-l", "/resource_id=3", "-e", write_option_date(END + HOUR)) == [
        f"  there is a place for it only until {write_date(END + 600)} (advance reservation {other})",
        f"  the latest possible end is {write_date(END + 600)}",
    ]
    end = write_option_date(END + 600)
    assert len(_granted(site, alter, reservation, "-l", "/resource_id=3", "-e", end)[2]) == 3


# -- while it runs ----------------------------------------------------------------------------------------------------


def test_the_start_of_a_running_reservation_stays(site: Site, alter: Typed, reservation: int, refused: Refused) -> None:
    _begin(site)
    for date in ("+10", write_option_date(NOW)):
        assert refused("-a", date) == ["  the start time of a running advance reservation can't be changed"]


def test_the_end_of_a_running_reservation_moves_later_on_its_own_resources_only(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    _begin(site)
    own = site.get(reservation).resources
    other = _book_others(site, END + 600, END + HOUR, count=2)
    assert site.get(other).resources == own
    assert refused("-e", write_option_date(END + 601)) == [
        f"  its resources are free only until {write_date(END + 600)} (advance reservation {other})",
        f"  the latest possible end is {write_date(END + 600)}",
    ]
    assert _granted(site, alter, reservation, "-e", write_option_date(END + 600)) == (START, END + 600, own)


def test_the_end_of_a_running_reservation_moves_sooner_behind_its_jobs_or_with_force_over_them(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    job = site.submit_inside(reservation, walltime=600)
    _begin(site)
    assert refused("-e", write_option_date(NOW + 50)) == ["  start time is later than end time"]
    assert refused("-e", write_option_date(START + 300)) == [
        f"  job {job} runs until {write_date(START + 600)}; with -f it ends with the reservation",
        f"  the earliest possible end is {write_date(START + 606)}",
    ]
    assert _granted(site, alter, reservation, "-e", write_option_date(START + 606))[1] == START + 606
    assert _granted(site, alter, reservation, "-f", "-e", write_option_date(START + 300))[1] == START + 300
    site.round(START + 300)
    with site.database.snapshot() as tx:
        ((code, fate),) = tx.rows("SELECT frag_cause, frag_data FROM frag_jobs WHERE frag_id_job = %s", (job,))
    assert (code, "has ended" in fate) == ("RESERVATION", True)


def test_the_end_of_a_running_reservation_is_never_in_the_past(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    site.round(START)
    site.round(START + 60)
    assert refused("-e", write_option_date(START + 30)) == ["  end time is in the past"]
    assert _granted(site, alter, reservation, "-e", write_option_date(START + 60))[1] == START + 60


def test_a_running_reservation_gets_more_resources_and_keeps_what_its_jobs_hold(
    site: Site, alter: Typed, reservation: int, refused: Refused
) -> None:
    first, second = site.submit_inside(reservation), site.submit_inside(reservation)
    _begin(site)
    assert {site.job(first), site.job(second)} == {JobState.TO_LAUNCH}
    own = site.get(reservation).resources
    assert refused("-l", "/resource_id=1") == [f"  its jobs hold resources that it would give up (job {second})"]
    assert set(own) < set(_granted(site, alter, reservation, "-l", "/resource_id=3")[2])
    assert _granted(site, alter, reservation, "-l", "/resource_id=2")[2] == own
    other = _book_others(site, START + 600, END, count=2)
    window = f"from {write_date(START)} to {write_date(END)}"
    none = f"  there is no place for it {window} (advance reservation {other})"
    assert refused("-l", "/resource_id=3") == [none]


# -- jobs that no longer fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_job_that_no_longer_fits_ends_because_of_the_reservation(
    site: Site, alter: Typed, reservation: int, has_begun: bool
) -> None:
    large, long = site.submit_inside(reservation, cores=2, walltime=60), site.submit_inside(reservation, walltime=3000)
    number = site.get(reservation).number
    with site.database.begin() as tx:
        for job in (large, long):
            assert lifecycle.move(tx, job, JobState.HOLD)
    if has_begun:
        _begin(site)
    with site.database.begin() as tx:
        for job in (large, long):
            assert lifecycle.move(tx, job, JobState.WAITING)
    told = alter("-l", "/resource_id=1", "-d", "1200", str(number)).out.splitlines()
    assert told[2:-1] == [f"job {job} was deleted: it no longer fits" for job in (large, long)]
    assert told[-1] == "granted_slots:              default@node-1=1"
    sentence = f"It was in the advance reservation {number}, which was altered, so that the job no longer fits."
    assert [_end_of(site, job) for job in (large, long)] == [(EndCode.RESERVATION, sentence)] * 2


# -- all or nothing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_begun", [False, True])
def test_attributes_that_are_asked_for_with_a_window_come_with_it(
    site: Site, alter: Typed, reservation: int, has_begun: bool
) -> None:
    if has_begun:
        _begin(site)
    number, job = site.get(reservation).number, site.submit_inside(reservation, walltime=2000)
    words = ("-N", "night", "-A", "acct", "-he", "y", "-m", "ab", "-M", "a@b.c", "-replace", "n", "-idle", "5m")
    assert alter(*words, "-u", "root,!daemon", "-d", "1800", str(number)).out.splitlines() == [
        f"Your reservation {number} has been altered",
        f"now {write_date(START)} to {write_date(START + 1800)}",
        f"job {job} was deleted: its owner may not use the reservation any more",
    ]
    changed = site.get(reservation)
    assert (changed.name, changed.account, changed.is_hard, changed.mail_options) == ("night", "acct", True, "ab")
    assert (changed.mail_list, changed.replaces_lost, changed.idle_limit, changed.end) == (
        *("a@b.c", False, 300),
        START + 1800,
    )
    with site.database.snapshot() as tx:
        assert tx.reservations.access([reservation])[reservation] == (
            AccessEntry("root"),
            AccessEntry("daemon", denied=True),
        )
        revisions = tx.reservation_logs.revisions(reservation)
    assert [(each.revision, each.name, each.end) for each in revisions] == [(1, "", END), (2, "night", START + 1800)]
    assert site.events(reservation).count("ALTERED") == 1
    assert _end_of(site, job) == (
        EndCode.RESERVATION,
        f"It was in the advance reservation {number}, which its owner may not use any more.",
    )


def test_attributes_do_not_stay_when_the_window_is_refused(site: Site, reservation: int, refused: Refused) -> None:
    site.submit_inside(reservation)
    other = _book_others(site, END, END + HOUR)
    assert refused("-N", "night", "-u", "root", "-e", write_option_date(END + 600)) == [
        f"  there is a place for it only until {write_date(END)} (advance reservation {other})"
    ]


def test_attributes_do_not_stay_when_the_change_is_withdrawn(
    site: Site, qralter_alone: Typed, reservation: int
) -> None:
    site.submit_inside(reservation)
    before, number = _all_of(site, reservation), str(site.get(reservation).number)
    assert qralter_alone("-N", "night", "-u", "root", "-e", "+900", number).exit == 26
    site.round()
    assert _all_of(site, reservation) == before


def test_a_verification_lists_jobs_that_would_lose_access(site: Site, alter: Typed, reservation: int) -> None:
    job, number = site.submit_inside(reservation), str(site.get(reservation).number)
    before = _all_of(site, reservation)
    lost = f"job {job} would be deleted: its owner could not use the reservation"
    assert alter("-w", "v", "-u", "root", number).out.splitlines()[1:] == [lost]
    assert alter("-w", "v", "-u", "root", "-e", "+900", number).out.splitlines()[2:] == [lost]
    assert _all_of(site, reservation) == before


def test_a_change_without_options_is_rejected(site: Site, alter: Typed, reservation: int) -> None:
    assert alter(str(site.get(reservation).number)).err == "qralter: no change is requested: use at least one option\n"

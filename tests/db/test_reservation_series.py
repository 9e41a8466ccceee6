"""Series of advance reservations: the next one is asked for when one ends, and none is lost."""

import json

import pytest

from oar.cli import qralter, qrdel, qrstat
from oar.cli.common.command import CommandResult, invoke
from oar.lib.access.records import User
from oar.lib.base.grid_engine_times import write_date
from oar.lib.bus.messages import ReservationMail
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import QueueState
from oar.lib.reservations import deletion
from oar.lib.reservations.states import ReservationState as S
from tests.builders import add_resources
from tests.db.reservation_site import ALICE, BOB, HOUR, NOW, Site
from tests.frontend import add_rules

ROOT = User("root", 0)
pytestmark = pytest.mark.usefixtures("in_utc")


@pytest.fixture(autouse=True)
def resources(site: Site) -> list[int]:
    return add_resources(site.database, nodes=1, cores=2)


def starts(site: Site, series: int, *states: S) -> list[int]:
    """Return the hours after the first one at which occurrences begin that are in one of these states."""
    return [(each.start - NOW) // HOUR for each in site.occurrences(series) if each.state in states]


def violations(site: Site) -> list[str]:
    with site.database.begin() as tx:
        return [str(each) for each in tx.invariants.violations(site.database.settings.ro_user)]


# -- the next one -----------------------------------------------------------------------------------------------------


def test_the_first_ones_are_granted_together_and_each_end_asks_for_the_next(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, rule="FREQ=HOURLY;COUNT=4", depth=2, name="course")
    site.round()
    assert starts(site, series, S.WAITING) == [0, 1]
    for hour, expected in ((0, [1, 2]), (1, [2, 3]), (2, [3]), (3, [])):
        site.round(NOW + 60 + hour * HOUR)
        site.round(NOW + 660 + hour * HOUR)
        site.round()
        assert starts(site, series, S.WAITING) == expected
    assert [(each.series_index, each.name, each.state) for each in site.occurrences(series)] == [
        (index, "course", S.EXITED) for index in (1, 2, 3, 4)
    ]
    assert site.series(series).ended == NOW + 660 + 3 * HOUR
    assert violations(site) == []


def test_an_occurrence_that_is_deleted_is_followed_by_another(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2)
    site.round()
    site.delete(ALICE, site.occurrences(series)[0].id)
    site.round()
    assert (starts(site, series, S.DELETED), starts(site, series, S.WAITING)) == ([0], [1, 2])


def test_occurrences_that_passed_while_the_server_was_down_are_left_out(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2)
    site.round()
    site.round(NOW + 5 * HOUR)
    site.round()
    assert (starts(site, series, S.EXITED), starts(site, series, S.WAITING)) == ([0, 1], [5, 6])
    assert [each.series_index for each in site.occurrences(series)] == [1, 2, 6, 7]
    first = site.occurrences(series)[0].id
    with site.database.begin() as tx:
        rows = tx.reservation_logs.logs([first])
    assert rows[-1].message == f"3 occurrences of series {series} had passed before they could be requested"
    assert violations(site) == []


def test_one_that_has_begun_while_the_server_was_down_is_shorter(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=1)
    site.round()
    site.round(NOW + 100 + HOUR)
    site.round()
    late = site.occurrences(series)[1]
    assert (late.state, late.start, late.end) == (S.RUNNING, NOW + 100 + HOUR, NOW + 660 + HOUR)


def test_a_series_ends_with_its_queue(site: Site) -> None:
    with site.database.begin() as tx:
        tx.queues.insert(Queue("short", 3, "", QueueState.ACTIVE))
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=1)
    with site.database.begin() as tx:
        tx.execute("UPDATE reservations SET queue_name = 'short' WHERE series_id = %s", (series,))
        tx.execute("UPDATE queues SET state = 'orphaned' WHERE queue_name = 'short'")
    site.round()
    site.delete(ALICE, site.occurrences(series)[0].id)
    assert (site.series(series).ended, len(site.occurrences(series))) == (NOW, 1)


# -- conflicts --------------------------------------------------------------------------------------------------------


def test_a_series_without_any_place_is_rejected_even_if_it_may_skip(site: Site) -> None:
    site.ask("/resource_id=2", NOW, NOW + 10 * HOUR)
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=3, skips_conflicts=True)
    site.round()
    assert (starts(site, series, S.REFUSED), site.series(series).ended) == ([0, 1, 2], NOW)


def test_conflicts_that_follow_each_other_are_skipped_together(site: Site) -> None:
    series = site.ask_series("/resource_id=2", NOW + 60, 600, rule="FREQ=HOURLY;COUNT=90", depth=1)
    site.round()
    site.ask("/resource_id=1", NOW + HOUR, NOW + 80 * HOUR)
    site.round()
    site.round(NOW + 660)
    site.round()
    assert (starts(site, series, S.REFUSED), starts(site, series, S.WAITING)) == (list(range(1, 80)), [80])
    assert {tuple(site.events(each.id)) for each in site.occurrences(series)[1:80]} == {("SKIPPED",)}
    assert violations(site) == []


def test_a_later_conflict_is_skipped_with_a_mail(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=1, mail_options="a", name="course")
    site.round()
    site.ask("/resource_id=2", NOW + HOUR, NOW + HOUR + 100)
    site.round()
    mails: list[ReservationMail] = []
    site.database.deliver = lambda effects: mails.extend(each for each in effects if isinstance(each, ReservationMail))
    site.round(NOW + 660)
    site.round()
    skipped = site.occurrences(series)[1]
    assert (starts(site, series, S.REFUSED), starts(site, series, S.ASKED, S.WAITING)) == ([1], [2])
    (mail,) = mails
    assert mail.topic == f"[AR SKIPPED]: {skipped.number} (course)"
    assert mail.text.startswith(f"Advance reservation {skipped.number} (course) of alice was skipped.\nonly 0 of 2")


def test_a_series_whose_asker_has_gone_is_refused_as_too_old_and_later_ones_never_are(site: Site) -> None:
    left = site.ask_series("/resource_id=1", NOW + 2 * HOUR, 600, depth=2)
    site.round(NOW + HOUR)
    assert [(each.state, each.message) for each in site.occurrences(left)] == [(S.REFUSED, "too old")] * 2
    assert site.series(left).ended == NOW + HOUR
    goes_on = site.ask_series("/resource_id=1", NOW + 2 * HOUR, 600, depth=1)
    site.round()
    site.go_to(NOW + 2 * HOUR + 600)
    first = site.occurrences(goes_on)[0]
    with site.database.begin() as tx:
        deletion.delete(tx, ALICE, first, first.number)
    site.round(NOW + 2 * HOUR + 1800)
    assert [each.state for each in site.occurrences(goes_on)] == [S.DELETED, S.WAITING]
    assert violations(site) == []


# -- withdrawn, deleted -----------------------------------------------------------------------------------------------


def delete(site: Site, *words: object, user: User = ALICE) -> CommandResult:
    return invoke(qrdel.main, [str(word) for word in words], runtime=site.runtime, user=user)


@pytest.mark.parametrize("way", ["series", "name", "pattern", "owner"])
def test_a_series_is_deleted_with_all_that_is_left_of_it(site: Site, way: str) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2, name="course")
    site.round()
    first, second = (each.number for each in site.occurrences(series))
    words = {"series": ("-series", series), "name": ("course",), "pattern": ("cour*",), "owner": ("-u", "alice")}
    told = "".join(f"alice has deleted advance_reservation {number}\n" for number in (first, second))
    assert delete(site, *words[way]) == CommandResult(0, f"{told}alice has deleted series {series}\n", "")
    site.round()
    assert (starts(site, series, S.DELETED), len(site.occurrences(series))) == ([0, 1], 2)
    assert delete(site, "-series", series) == CommandResult(1, "", f'denied: series "{series}" does not exist\n')


def test_a_series_of_somebody_is_deleted_alone(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=1)
    other = site.ask_series("/resource_id=1", NOW + 60, 600, depth=1)
    alone = site.ask("/resource_id=1", NOW + 2 * HOUR, NOW + 3 * HOUR)
    site.round()
    nothing = "There is no advance_reservation registered for the following users: bob\n"
    assert delete(site, "-u", "bob", "-series", series, user=ROOT) == CommandResult(1, "", nothing)
    assert site.series(series).ended == 0
    told = delete(site, "-u", "alice", "-series", series)
    assert told.out.splitlines()[-1] == f"alice has deleted series {series}"
    assert (site.series(other).ended, site.state(alone)) == (0, S.WAITING)
    both = delete(site, "-u", "$user", "-series", other, site.get(alone).number)
    assert (both.exit, site.state(alone), site.series(other).ended) == (0, S.DELETED, NOW)


@pytest.mark.parametrize("word", ["course", "c*"])
def test_a_name_means_a_series_whose_only_occurrence_has_just_gone(site: Site, word: str) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=1, name="course")
    site.round()
    delete(site, site.occurrences(series)[0].number)
    assert starts(site, series, S.ASKED) == [1]
    assert delete(site, word) == CommandResult(0, f"alice has deleted series {series}\n", "")
    site.round()
    assert (starts(site, series, S.ASKED, S.WAITING), site.series(series).ended) == ([], NOW)


def test_a_name_does_not_mean_a_series_whose_asker_waits(site: Site) -> None:
    site.ask_series("/resource_id=1", NOW + 60, 600, depth=2, name="course")
    assert delete(site, "course").err == 'denied: advance_reservation "course" does not exist\n'


def test_a_number_is_one_occurrence(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2)
    site.round()
    number = site.occurrences(series)[0].number
    assert delete(site, number).out == f"alice has deleted advance_reservation {number}\n"
    assert (site.series(series).ended, len(site.occurrences(series))) == (0, 3)


def test_an_occurrence_that_was_just_asked_for_goes_with_its_series(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2)
    site.round()
    delete(site, site.occurrences(series)[0].number)
    assert delete(site, "-series", series).exit == 0
    assert (starts(site, series, S.REFUSED), starts(site, series, S.DELETED)) == ([2], [0, 1])
    assert violations(site) == []


def test_only_owner_and_operators_delete_a_series(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600)
    site.round()
    denied = f'denied: "bob" is not allowed to delete series {series}\n'
    assert delete(site, "-series", series, user=BOB) == CommandResult(1, "", denied)
    assert delete(site, "-series", "x", user=BOB) == CommandResult(1, "", 'denied: series "x" does not exist\n')
    assert delete(site, "-series", series, user=ROOT).exit == 0


def test_a_series_is_purged_with_its_last_reservation(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2)
    site.round()
    first, second = (each.id for each in site.occurrences(series))
    with site.database.begin() as tx:
        deletion.delete_series(tx, ALICE, series)
        tx.retention.remove_reservations([first])
        assert [each.id for each in tx.reservations.all_series(ended=True)] == [series]
        tx.retention.remove_reservations([second])
        assert tx.reservations.all_series(ended=True) == []


# -- altered ----------------------------------------------------------------------------------------------------------


def alter(site: Site, *words: object) -> CommandResult:
    """Run qralter beside a server that answers as soon as it is told."""
    site.database.deliver = lambda _: site.round()
    try:
        return invoke(qralter.main, [str(word) for word in words], runtime=site.runtime, user=ALICE)
    finally:
        site.database.deliver = None


def test_the_next_one_is_as_it_was_asked_for_whatever_became_of_another(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2)
    site.round()
    first, second = site.occurrences(series)
    assert alter(site, second.number, "-d", 1200, "-N", "longer").exit == 0
    site.delete(ALICE, first.id)
    site.delete(ALICE, second.id)
    site.round()
    assert [(each.duration, each.name) for each in site.occurrences(series)[2:]] == [(600, ""), (600, "")]


def test_a_series_is_altered_from_one_of_its_reservations_on(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=3)
    site.round()
    _, second, third = site.occurrences(series)
    changed = alter(site, "-series", second.number, "-d", 1200, "-N", "longer", "-u", "root", "-he", "yes")
    assert (changed.exit, changed.err) == (0, "")
    assert changed.out.count("has been altered") == 2
    site.delete(ALICE, third.id)
    site.round()
    now = site.occurrences(series)
    assert [(each.duration, each.name, each.is_hard) for each in now] == [
        (600, "", False),
        *((1200, "longer", True),) * 3,
    ]
    with site.database.begin() as tx:
        access = tx.reservations.access([each.id for each in now])
    assert [access[each.id][0].text for each in now] == ["alice", "root", "root", "root"]


def test_a_series_gets_other_resources_and_one_that_was_altered_by_itself_does_not_decide_which(site: Site) -> None:
    add_rules(site.database)
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2)
    site.round()
    first, second = site.occurrences(series)
    assert alter(site, first.number, "-l", "/resource_id=2").exit == 0
    altered = alter(site, "-series", first.number, "-p", "cpuset = '1'")
    assert altered.exit == 1
    assert altered.err.startswith("Error: No queue instances to reserve\n")
    assert altered.out.startswith(f"Your reservation {second.number} has been altered\n")
    site.delete(ALICE, second.id)
    site.round()
    first, second, third = site.occurrences(series)
    assert [len(each.resources) for each in (first, second, third)] == [2, 1, 1]
    assert second.resources == third.resources
    kept = alter(site, "-series", third.number, "-pe", "slots", "2")
    assert kept.err == "Error: No queue instances to reserve\n  1 resource matches -p cpuset = '1', 2 asked\n"
    assert alter(site, "-series", third.number, "-pe", "slots", "2", "-p", "cpuset >= '0'").exit == 0
    site.delete(ALICE, third.id)
    site.round()
    fourth = site.occurrences(series)[3]
    assert (len(fourth.resources), fourth.pe, fourth.pe_range) == (2, "slots", "2")


def test_a_change_of_a_series_is_tried_and_nothing_is_stored(site: Site) -> None:
    add_rules(site.database)
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2)
    site.round()
    first, second = site.occurrences(series)
    site.ask("/resource_id=1", second.start, second.end)
    site.round()
    before = site.series(series), site.occurrences(series)
    told = alter(site, "-series", first.number, "-l", "/resource_id=2", "-w", "v")
    assert told.exit == 1
    assert told.out.startswith(f"verification: reservation {first.number} can be altered\n")
    assert told.err.startswith(f"denied: Reservation {second.number} can't be altered\n")
    assert (site.series(series), site.occurrences(series)) == before


@pytest.mark.parametrize("words", [(), ("-w", "v")])
def test_a_series_that_would_be_in_its_own_way_is_not_altered(site: Site, words: tuple[str, ...]) -> None:
    series = site.ask_series("/resource_id=2", NOW + 60, 600, depth=2)
    site.round()
    first, _ = site.occurrences(series)
    before = site.series(series), site.occurrences(series)
    told = alter(site, "-series", first.number, "-d", "2:0:0", *words)
    assert told == CommandResult(
        1,
        "",
        f"denied: Series {series} can't be altered\n"
        f"  occurrence 2, {write_date(NOW + 60 + HOUR)}: it would overlap occurrence 1,"
        f" until {write_date(NOW + 60 + 2 * HOUR)}\n"
        "  nothing was changed; use a duration (-d) that ends before the next one begins, or request less\n",
    )
    assert (site.series(series), site.occurrences(series)) == before


def test_a_series_whose_occurrences_have_places_beside_each_other_may_overlap(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=2)
    site.round()
    first, _ = site.occurrences(series)
    told = alter(site, "-series", first.number, "-d", "2:0:0")
    assert told.out.splitlines()[-1] == f"Series {series} requests this from now on"
    assert {each.duration for each in site.occurrences(series)} == {2 * HOUR}
    site.ask("/resource_id=1", NOW + 60 + 10 * HOUR, NOW + 11 * HOUR)
    site.round()
    assert alter(site, "-series", first.number, "-d", "3:0:0").err.startswith(f"denied: Series {series} can't")


def test_changes_that_a_series_does_not_allow_are_rejected(site: Site) -> None:
    alone = site.ask("/resource_id=1", NOW + 60, NOW + 660)
    series = site.ask_series("/resource_id=1", NOW + 2 * HOUR, 600, depth=2)
    site.round()
    number = site.occurrences(series)[0].number
    only = "qralter: -a and -e cannot be used with -series: use -d for the duration of all reservations\n"
    for words in (("-a", "+1h"), ("-e", "+1h")):
        assert alter(site, "-series", number, *words) == CommandResult(1, "", only)
    none = f"denied: advance_reservation {site.get(alone).number} is in no series that goes on\n"
    assert alter(site, "-series", site.get(alone).number, "-d", 100) == CommandResult(1, "", none)
    short = "denied: the duration must be longer than 6 seconds\n"
    assert alter(site, "-series", number, "-d", 6) == CommandResult(1, "", short)
    site.ask("/resource_id=2", NOW + 3 * HOUR + 700, NOW + 3 * HOUR + 800)
    site.round()
    part = alter(site, "-series", number, "-d", 1000)
    assert part.exit == 1
    assert part.out.startswith(f"Your reservation {number} has been altered\n")
    assert part.out.endswith(f"\nSeries {series} requests this from now on\n")
    second = site.occurrences(series)[1].number
    assert part.err.startswith(f"denied: Reservation {second} can't be altered\n")
    assert part.err.endswith(f"\n  reservation {second} is unchanged, series {series} continues with the change\n")


# -- shown ------------------------------------------------------------------------------------------------------------


def show(site: Site, *words: object) -> CommandResult:
    return invoke(qrstat.main, [str(word) for word in words], runtime=site.runtime, user=BOB)


def test_series_are_listed(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW, 600, rule="FREQ=HOURLY;COUNT=5", depth=2, name="course")
    site.round()
    shown = show(site, "-series").out.split("\n")
    assert shown[0] == "SERIES  name       owner        live left next is asked for   duration     rule"
    row = f"{series:7d} course     alice           2    3 01/15/2027 10:00:00 0:10:0       FREQ=HOURLY;COUNT=5"
    assert shown[2:] == [row, ""]
    assert show(site, "-series", "-terse").out == f"{series}\n"
    assert show(site, "-series", "-u", "bob") == CommandResult(0, "", "")
    delete(site, "-series", series)
    assert show(site, "-series").out == ""
    assert show(site, "-series", "-all", "-iso").out.split("\n")[2].split()[3:6] == ["0", "0", "-"]


def test_series_are_records(site: Site) -> None:
    rule = "FREQ=HOURLY;COUNT=5"
    series = site.ask_series("/resource_id=1", NOW, 600, rule=rule, depth=2, name="course")
    site.round()
    numbers = [each.number for each in site.occurrences(series)]
    assert json.loads(show(site, "-series", "-J").out) == {
        str(series): {
            "id": series, "name": "course", "owner": "alice", "rule": rule, "time_zone": "UTC", "first_start": NOW,
            "duration": 600, "depth": 2, "conflict": "fail", "occurrences": 5, "left": 3,
            "next_start": NOW + 2 * HOUR, "reservations": numbers, "ended": 0,
        }
    }  # fmt: skip
    assert f"rule: {rule}" in show(site, "-series", "-Y").out
    assert (
        show(site, "-series", "-X").err == "qrstat: the XML format of Grid Engine has no series: use -json or -yaml\n"
    )
    together = "qrstat: the options -ar, -s and -log cannot be used with -series\n"
    assert show(site, "-series", "-ar", "1") == CommandResult(1, "", together)


def test_a_reservation_shows_its_place_in_its_series(site: Site) -> None:
    series = site.ask_series("/resource_id=1", NOW, 600, rule="FREQ=HOURLY;COUNT=5", depth=2)
    site.round()
    number = site.occurrences(series)[1].number
    assert f"series:                     {series} (2 of 5)\n" in show(site, "-ar", number).out
    record = json.loads(show(site, "-ar", number, "-J").out)[str(number)]
    assert (record["series_id"], record["series_index"]) == (series, 2)

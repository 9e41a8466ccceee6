"""What oaruserset prints, and what it does to usersets."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from oar.cli import oaruserset
from oar.cli.common.command import CommandResult
from oar.lib.access.records import User
from oar.lib.reservations import changes, requests
from oar.lib.reservations.changes import WantedChange
from oar.lib.reservations.errors import BadReservation
from oar.lib.reservations.options import ReservationRequest
from oar.lib.reservations.records import (
    AccessEntry,
    NewReservation,
    ReservationAlternative,
    ReservationAttributes,
    encode,
)
from oar.lib.reservations.states import ReservationState
from oar.lib.submission.resource_request import parse_request
from tests.db.console import EVE, Console
from tests.db.reservation_rows import add_reservation
from tests.plain import without_way_out

#: Whether a session of this database waits for a lock that another one has.
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
FORCE = "  use -f to do it anyway\n"
MAN = 'denied: "eve" must be manager for this operation\n'


def is_somebody_waiting(console: Console) -> bool:
    """Whether a session waits for a lock; a transaction of its own, for within one the answer stays the same."""
    with console.database.snapshot() as tx:
        return bool(tx.value(WAITS))


def userset(console: Console, name: str) -> list[str] | None:
    """Return the entries of a userset."""
    with console.database.begin() as tx:
        found = tx.access.userset_entries([name])
    return list(found[name]) if name in found else None


def test_everybody_may_look(console: Console) -> None:
    assert console.type(oaruserset.main, "-l", user=EVE) == CommandResult(0, "aroperators\narusers\n", "")
    shown = console.type(oaruserset.main, "-s", "arusers", "-s", "aroperators", user=EVE).out
    assert shown == ("name    arusers\ntype    ACL\nentries oar\nname    aroperators\ntype    ACL\nentries NONE\n")
    assert json.loads(console.type(oaruserset.main, "-l", "-J").out) == {"aroperators": [], "arusers": ["oar"]}
    assert json.loads(console.type(oaruserset.main, "-s", "arusers", "-J").out) == {"arusers": ["oar"]}


@pytest.mark.parametrize("words", [["-a", "eve", "arusers"], ["-d", "oar", "arusers"], ["-D", "arusers"]])
def test_only_managers_change(console: Console, words: list[str]) -> None:
    assert console.type(oaruserset.main, *words, user=EVE) == CommandResult(1, "", MAN)
    assert userset(console, "arusers") == ["oar"]


def test_entries_are_added_and_taken_out(console: Console) -> None:
    added = console.type(oaruserset.main, "-a", "bob,@physics,x*,bob", "team")
    assert added.out.split("\n") == [
        'added "bob" to access list "team"',
        'added "@physics" to access list "team"',
        'added "x*" to access list "team"',
        "",
    ]
    assert userset(console, "team") == ["@physics", "bob", "x*"]
    console.type(oaruserset.main, "-a", "daemon", "team")
    again = console.type(oaruserset.main, "-a", "daemon", "team")
    assert again == CommandResult(0, '"daemon" is already in access list "team"\n', "")
    out = console.type(oaruserset.main, "-d", "bob,carol", "team")
    assert out.out == 'deleted user "bob" from access list "team"\n"carol" is not in access list "team"\n'
    assert console.type(oaruserset.main, "-D", "team") == CommandResult(0, 'deleted userset "team"\n', "")
    assert userset(console, "team") is None


def test_names_that_nobody_has_are_added_and_named(console: Console) -> None:
    """An account may come later; a slip of the pen is seen."""
    added = console.type(oaruserset.main, "-a", "nosuch,daemon,@nosuch,@daemon,no*", "team")
    assert added.exit == 0
    assert added.err == (
        'warning: nosuch is not known as a user, but was added to the access list "team"\n'
        'warning: Userset or group "nosuch" does not exist, but was added to the access list "team"\n'
    )
    assert userset(console, "team") == ["@daemon", "@nosuch", "daemon", "no*", "nosuch"]


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        (["-s", "x"], 'Userset "x" does not exist', 1),
        (["-d", "bob", "x"], 'Userset "x" does not exist', 1),
        (["-D", "x"], 'Userset "x" does not exist', 1),
        (["-D", "arusers"], 'denied: "arusers" cannot be deleted, its entries can (-d)', 9),
        (["-a", "bob", "1x"], 'denied: "1x" is not a valid object name', 1),
        (["-a", "b'ob", "x"], 'denied: "b\'ob" must be a user, @group or pattern', 1),
        (["-a", ",", "x"], 'denied: the user list "," is empty', 1),
        ([], "ERROR! no option argument\nUsage: oaruserset [OPTIONS]", 1),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_changed(
    console: Console, words: list[str], text: str, code: int
) -> None:
    result = console.type(oaruserset.main, *words)
    assert (result.exit, result.out, without_way_out(result.err)) == (code, "", f"{text}\n")
    with console.database.begin() as tx:
        assert tx.access.userset_names() == ["aroperators", "arusers"]


def test_a_userset_that_reservations_allow_or_deny_is_not_deleted(console: Console) -> None:
    console.type(oaruserset.main, "-a", "bob,carol", "team")
    for number, access in ((12, AccessEntry("@team")), (13, AccessEntry("@team", denied=True))):
        add_reservation(console.database, number, state=str(ReservationState.WAITING), access=[access])
    refused = console.type(oaruserset.main, "-D", "team")
    text = 'denied: removing "team" would break the advance reservations 12, 13'
    assert (refused.exit, refused.err.splitlines()[0]) == (9, text)
    assert console.type(oaruserset.main, "-f", "-D", "team").exit == 0


def test_a_live_reservation_keeps_its_users(console: Console) -> None:
    console.type(oaruserset.main, "-a", "bob,carol", "team")
    access = [AccessEntry("@team")]
    number = 12
    add_reservation(console.database, number, state=str(ReservationState.WAITING), access=access)
    refused = console.type(oaruserset.main, "-d", "bob", "team")
    assert refused == CommandResult(
        9, "", f'denied: removing "bob" from "team" would break the advance reservation {number}\n{FORCE}'
    )
    assert console.type(oaruserset.main, "-D", "team") == CommandResult(
        9, "", f'denied: removing "team" would break the advance reservation {number}\n{FORCE}'
    )
    assert userset(console, "team") == ["bob", "carol"]
    assert console.type(oaruserset.main, "-d", "nobody", "team").exit == 0
    assert console.type(oaruserset.main, "-d", "bob", "team", "-f").exit == 0
    assert console.type(oaruserset.main, "-D", "team", "--force").exit == 0


@pytest.mark.parametrize("denied", [False, True])
def test_a_list_that_is_only_asked_for_is_kept_as_well(console: Console, denied: bool) -> None:
    """It comes into force with the answer to the change, which nobody has given yet."""
    console.type(oaruserset.main, "-a", "bob,carol", "team")
    for number in (12, 13):
        add_reservation(console.database, number, state="w", access=[AccessEntry("alice")])
    change = WantedChange(end=9, attributes=ReservationAttributes(access=(AccessEntry("@team", denied),)))
    with console.database.begin() as tx:
        (reservation,) = tx.reservations.select([12])
        changes.request_change(tx, User("alice", 1001), reservation, change, patience=60)
        (other,) = tx.reservations.select([13])
        asked = changes.request_change(tx, User("alice", 1001), other, WantedChange(end=9), patience=60)
        tx.execute("UPDATE reservation_changes SET change = '{' WHERE change_id = %s", (asked,))
    words = ("-a", "dave", "team") if denied else ("-d", "bob", "team")
    what = 'adding "dave" to "team"' if denied else 'removing "bob" from "team"'
    refused = console.type(oaruserset.main, *words)
    assert refused == CommandResult(9, "", f"denied: {what} would break the advance reservation 12\n{FORCE}")
    assert console.type(oaruserset.main, "-D", "team").exit == 9
    with console.database.begin() as tx:
        tx.reservations.drop_change([12], "")
    assert console.type(oaruserset.main, "-D", "team").exit == 0


def test_arusers_may_always_be_changed_and_denials_and_ended_reservations_hinder_nobody(console: Console) -> None:
    console.type(oaruserset.main, "-a", "bob", "team", "-a", "bob", "arusers")
    add_reservation(
        console.database, 13, state="w", access=[AccessEntry("@arusers"), AccessEntry("@team", denied=True)]
    )
    add_reservation(console.database, 14, state="x", ended=5, access=[AccessEntry("@team")])
    assert console.type(oaruserset.main, "-d", "bob", "arusers", "-d", "bob", "team").exit == 0


def test_who_would_be_denied_by_a_live_reservation_is_not_added(console: Console) -> None:
    console.type(oaruserset.main, "-a", "bob", "team")
    add_reservation(console.database, 12, state="w", access=[AccessEntry("@team", denied=True)])
    refused = console.type(oaruserset.main, "-a", "bob,carol", "team")
    text = 'denied: adding "carol" to "team" would break the advance reservation 12'
    assert (refused.exit, refused.err) == (9, f"{text}\n{FORCE}")
    assert userset(console, "team") == ["bob"]
    assert console.type(oaruserset.main, "-a", "bob", "team").exit == 0
    assert console.type(oaruserset.main, "-f", "-a", "carol", "team").exit == 0
    assert userset(console, "team") == ["bob", "carol"]


def test_a_userset_does_not_hide_a_group_that_a_live_reservation_names(console: Console) -> None:
    add_reservation(console.database, 12, state="w", access=[AccessEntry("@daemon"), AccessEntry("@nosuch")])
    refused = console.type(oaruserset.main, "-a", "bob", "daemon")
    text = 'denied: a userset "daemon" in the place of the group would break the advance reservation 12'
    assert (refused.exit, refused.err) == (9, f"{text}\n{FORCE}")
    assert userset(console, "daemon") is None
    assert console.type(oaruserset.main, "-a", "bob", "nosuch").exit == 0
    assert console.type(oaruserset.main, "-a", "bob", "daemon", "--force").exit == 0


@pytest.mark.parametrize("words", [["-D", "team"], ["-d", "bob", "team"]])
def test_a_request_that_is_being_written_keeps_the_users_whom_it_names(console: Console, words: list[str]) -> None:
    console.type(oaruserset.main, "-a", "bob,carol", "team")
    request = encode([ReservationAlternative(parse_request("/resource_id=1").groups)])
    with ThreadPoolExecutor(1) as other:
        with console.database.begin() as tx:
            new = NewReservation("alice", tx.now + 60, tx.now + 3600, request, queue="default", time_offset=6)
            number = requests.create(tx, ReservationRequest(new, (AccessEntry("@team"),)), limit=0).number
            typed = other.submit(console.type, oaruserset.main, *words)
            while not is_somebody_waiting(console):
                assert not typed.done()
        refused = typed.result()
    assert (refused.exit, f"would break the advance reservation {number}\n" in refused.err) == (9, True)
    assert userset(console, "team") == ["bob", "carol"]


def test_a_request_is_refused_whose_userset_goes_before_it_is_written(console: Console) -> None:
    console.type(oaruserset.main, "-a", "bob", "team")
    request = encode([ReservationAlternative(parse_request("/resource_id=1").groups)])
    console.type(oaruserset.main, "-D", "team")
    with console.database.begin() as tx:
        new = NewReservation("alice", tx.now + 60, tx.now + 3600, request, queue="default", time_offset=6)
        with pytest.raises(BadReservation, match='Userset or group "team" does not exist'):
            requests.create(tx, ReservationRequest(new, (AccessEntry("@team"),)), limit=0)

"""Programs follow advance reservations by pages: each line once, in order, none lost, none of what is hidden."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.reservations.records import AccessEntry, ReservationLog
from oar.lib.reservations.states import ReservationEvent, ReservationState
from tests.api.conftest import Api
from tests.db.reservation_rows import add_reservation

Page = dict[str, Any]
ADDRESS = "/v1/reservations/events"


def _ask(client: httpx.Client, since: int | None, **more: int) -> Page:
    answer = client.get(ADDRESS, params=more if since is None else {"since_id": since, **more})
    assert answer.status_code == 200, answer.text
    page: Page = answer.json()
    return page


def _log(tx: Transaction, reservation_id: int, event: ReservationEvent, state: str = "w") -> None:
    tx.reservation_logs.log(ReservationLog(reservation_id, tx.now, event, ReservationState(state)))


def _told(page: Page) -> list[tuple[int, str]]:
    return [(item["number"], item["event"]) for item in page["items"]]


def _settled(client: httpx.Client, since: int, number: int) -> Page:
    """Ask until there are so many lines: transactions of the tests before may still be at their end."""
    page = _ask(client, since)
    while len(page["items"]) < number:
        page = _ask(client, since)
    return page


@pytest.fixture
def begin(anonymous: httpx.Client) -> int:
    """The place from which on a program follows."""
    page = _ask(anonymous, None)
    assert page["items"] == []
    place: int = page["next"]
    return place


def test_each_line_is_told_with_the_reservation_as_it_is_now(
    anonymous: httpx.Client, database: Database, begin: int
) -> None:
    first = add_reservation(database, ar_name="course", state="r")
    with database.begin() as tx:
        for event, state in (("CREATED", "w"), ("START TIME REACHED", "r"), ("TERMINATED", "x")):
            _log(tx, first, ReservationEvent(event), state)
    page = _settled(anonymous, begin, 3)
    assert [(item["kind"], item["event"], item["state"]) for item in page["items"]] == [
        ("ADD", "CREATED", "w"),
        ("MOD", "START TIME REACHED", "r"),
        ("DEL", "TERMINATED", "x"),
    ]
    route = anonymous.get(f"/v1/reservations/{first}").json()
    now = {key: value for key, value in route.items() if key not in ("log", "version")}
    assert [item["reservation"] for item in page["items"]] == [now] * 3
    assert page["next"] == page["items"][-1]["id"]
    assert _ask(anonymous, page["next"]) == {"items": [], "next": page["next"]}


def test_pages_follow_one_another(anonymous: httpx.Client, database: Database, begin: int) -> None:
    with database.begin() as tx:
        tx.reservation_logs.log_all(
            [
                ReservationLog(number, tx.now, ReservationEvent.ALTERED, ReservationState.WAITING)
                for number in (71, 72, 73, 74, 75)
            ]
        )
    _settled(anonymous, begin, 5)
    ids, since = [], begin
    for size in (2, 2, 1, 0):
        page = _ask(anonymous, since, limit=2)
        assert len(page["items"]) == size
        assert all(item["reservation"] is None and item["number"] is None for item in page["items"])
        ids += [item["id"] for item in page["items"]]
        since = page["next"]
    assert len(set(ids)) == 5
    assert ids == sorted(ids)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_line_that_is_committed_late_is_neither_lost_nor_overtaken(
    anonymous: httpx.Client, database: Database, begin: int, is_committed: bool
) -> None:
    late, early, later = (add_reservation(database) for _ in range(3))
    with database.begin() as writer:
        _log(writer, late, ReservationEvent.CREATED)
        with database.begin() as tx:
            _log(tx, early, ReservationEvent.CREATED)
        page = _ask(anonymous, begin)
        assert page == {"items": [], "next": begin}
        if not is_committed:
            writer.execute("ROLLBACK; BEGIN")
    with database.begin() as tx:
        _log(tx, later, ReservationEvent.CREATED)
    expected = [late, early, later] if is_committed else [early, later]
    assert _told(_settled(anonymous, page["next"], len(expected))) == [(number, "CREATED") for number in expected]


def test_who_writes_when_the_service_begins_is_awaited(anonymous: httpx.Client, database: Database) -> None:
    late, early = (add_reservation(database) for _ in range(2))
    with database.begin() as writer:
        _log(writer, late, ReservationEvent.CREATED)
        with database.begin() as tx:
            _log(tx, early, ReservationEvent.CREATED)
        assert anonymous.get(ADDRESS).status_code == 503
        assert _ask(anonymous, 0) == {"items": [], "next": 0}
    assert _told(_settled(anonymous, 0, 2)) == [(late, "CREATED"), (early, "CREATED")]


def test_what_was_not_granted_is_never_shown(anonymous: httpx.Client, database: Database, begin: int) -> None:
    asked, refused, granted = (add_reservation(database, state=state) for state in ("", "n", "w"))
    with database.begin() as tx:
        _log(tx, asked, ReservationEvent.ALTERED, "")
        _log(tx, refused, ReservationEvent.REFUSED, "n")
        _log(tx, refused, ReservationEvent.WITHDRAWN, "n")
        _log(tx, granted, ReservationEvent.CREATED)
        _log(tx, refused, ReservationEvent.REFUSED, "n")
        newest = tx.reservation_logs.last_line()
    page = _settled(anonymous, begin, 1)
    assert _told(page) == [(granted, "CREATED")]
    assert (page["next"], page["items"][0]["id"]) == (newest, newest - 1)


def test_what_is_private_is_hidden_here_too(
    api: Api, anonymous: httpx.Client, nobody: httpx.Client, database: Database, begin: int
) -> None:
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, oarstat_private=True)
    access = (AccessEntry("nobody", False),)
    number = add_reservation(database, owner="nobody", account="secret", mail_list="a@b", access=access)
    with database.begin() as tx:
        _log(tx, number, ReservationEvent.CREATED)
    seen = [_settled(client, begin, 1)["items"][0]["reservation"] for client in (anonymous, nobody)]
    assert [(each["account"], each["acl_list"], each["mail_list"]) for each in seen] == [
        ("", [], []),
        ("secret", ["nobody"], ["a@b"]),
    ]


def test_a_page_costs_the_same_however_long_it_is(
    sent: Callable[[str], list[str]], anonymous: httpx.Client, database: Database, begin: int
) -> None:
    numbers = [add_reservation(database) for _ in range(20)]
    with database.begin() as tx:
        _log(tx, numbers[0], ReservationEvent.CREATED)
    _settled(anonymous, begin, 1)
    few = sent(f"{ADDRESS}?since_id={begin}")
    with database.begin() as tx:
        for number in numbers:
            _log(tx, number, ReservationEvent.ALTERED)
    _settled(anonymous, begin, 21)
    many = sent(f"{ADDRESS}?since_id={begin}")
    assert len(many) == len(few), many


def test_a_request_waits_for_the_next_line(anonymous: httpx.Client, database: Database, begin: int) -> None:
    number = add_reservation(database)
    pages: list[Page] = []

    def follow() -> None:
        page: Page = {"items": [], "next": begin}
        while not page["items"]:
            page = _ask(anonymous, page["next"], wait=30)
        pages.append(page)

    thread = threading.Thread(target=follow)
    thread.start()
    with database.begin() as tx:
        _log(tx, number, ReservationEvent.CREATED)
    thread.join()
    assert [_told(page) for page in pages] == [[(number, "CREATED")]]


def test_what_cannot_be_asked_for_is_said(anonymous: httpx.Client) -> None:
    for words in ("wait=5", "since_id=-1", "since_id=x", "limit=0", "since=4"):
        assert anonymous.get(f"{ADDRESS}?{words}").status_code == 400

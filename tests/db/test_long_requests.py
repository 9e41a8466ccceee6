"""Requests of many alternatives, with conditions that name many nodes: stored once, refused if they are too large."""

import pytest

from oar.cli import qrsub
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.reservations import requests
from oar.lib.reservations.options import ReservationRequest
from oar.lib.reservations.records import AccessEntry, NewReservation, ReservationAlternative, encode
from oar.lib.reservations.sql_faults import ReservationFault
from oar.lib.reservations.states import ReservationState as S
from oar.lib.submission.resource_request import parse_request
from tests.builders import add_resources
from tests.db.reservation_site import HOUR, NOW, Site
from tests.db.test_reservation_queries import counted
from tests.frontend import Frontend, add_rules


@pytest.fixture
def frontend(database: Database) -> Frontend:
    """A site on which everybody may reserve, and nobody answers."""
    add_rules(database)
    return Frontend(database, Config(reservation_open=True, reservation_answer_timeout=1))


def ask_range(site: Site, *numbers: int) -> int:
    """Ask for the first of some numbers of resources that is free; return the id."""
    alternatives = [ReservationAlternative(parse_request(f"/resource_id={number}").groups) for number in numbers]
    new = NewReservation("alice", NOW + 100, NOW + HOUR, encode(alternatives), queue="default", time_offset=6)
    with site.database.begin() as tx:
        return requests.create(tx, ReservationRequest(new, (AccessEntry("alice"),)), limit=0).id


def test_of_a_range_the_frame_keeps_what_was_granted_and_its_place(site: Site) -> None:
    add_resources(site.database, nodes=2, cores=2)
    site.ask("/resource_id=2", NOW + 100, NOW + HOUR)
    site.round()
    made = ask_range(site, 4, 3, 2, 1)
    for date in (NOW, NOW + 1, NOW + 2):
        site.round(date)
    assert (site.state(made), len(site.get(made).resources)) == (S.WAITING, 2)
    with site.database.begin() as tx:
        (moldable,) = tx.new_jobs.moldables_of_jobs([site.get(made).frame_id])[site.get(made).frame_id]
        assert moldable.groups == parse_request("/resource_id=2").groups
        assert tx.plan.starts()[moldable.id] == NOW + 100
        assert [fault for fault in ReservationFault if tx.reservation_faults.find(fault)] == []


def test_a_round_does_not_read_again_what_was_granted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    add_resources(site.database, nodes=2, cores=2)
    made = ask_range(site, 3, 2)
    site.round()
    site.round()
    with counted(monkeypatch) as statements:
        site.round()
    assert [text for text in statements if "SELECT reservation_id, request" in text] == []
    assert site.state(made) is S.WAITING


def test_a_request_whose_conditions_are_too_long_is_refused(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_resources(frontend.database, nodes=30, cores=1)
    monkeypatch.setattr(requests, "LARGEST_REQUEST", 200)
    result = frontend.type(qrsub.main, "-d", "60", "-h", "node-1*")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith(
        "denied: the request is too large, its conditions have more than 200 characters\n  name"
    )
    assert frontend.type(qrsub.main, "-d", "60", "-h", "*").exit == 26, "a pattern of all nodes is a short condition"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("-h", ",".join(f"n{number}*" for number in range(65))),
            "more than 64 patterns in one list of network_address",
        ),
        (
            ("-q", ",".join(f"default@n{number}*" for number in range(65))),
            "more than 64 patterns in one list of queues",
        ),
    ],
)
def test_more_patterns_than_anybody_needs_are_refused(frontend: Frontend, words: tuple[str, ...], text: str) -> None:
    add_resources(frontend.database, nodes=2, cores=1)
    result = frontend.type(qrsub.main, "-d", "60", *words)
    assert (result.exit, result.out, result.err.splitlines()[0]) == (1, "", f"denied: {text}")


def test_names_may_be_as_many_as_there_are_nodes(frontend: Frontend) -> None:
    add_resources(frontend.database, nodes=100, cores=1)
    assert frontend.type(qrsub.main, "-d", "60", "-h", ",".join(f"node-{each}" for each in range(1, 91))).exit == 26

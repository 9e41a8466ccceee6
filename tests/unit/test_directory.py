"""Accounts of a name service on another machine, which may be silent."""

import pwd
import threading
from collections.abc import Iterator

import pytest

from oar.api import authentication
from oar.api.concurrency import SEAT, FairPlaces, Places, Seat
from oar.api.errors import TooMany
from oar.lib.base.errors import NotAllowed, Unavailable
from oar.lib.config.files import Config


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_kept", {})
    monkeypatch.setattr(authentication, "_places", FairPlaces(authentication.MAX_WAITING, "too many", 0.1))


@pytest.fixture
def silent_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A directory that never answers about others than root; the names that it was asked for."""
    end, asked, find = threading.Event(), list[str](), pwd.getpwnam

    def getpwnam(name: str) -> pwd.struct_passwd:
        if name != "root":
            asked.append(name)
            end.wait()
        return find("root")

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    monkeypatch.setattr(authentication, "ANSWER_SECONDS", 0.1)
    yield asked
    end.set()


def test_a_directory_that_never_answers_is_given_up(silent_directory: list[str]) -> None:
    with pytest.raises(
        Unavailable, match=r"cannot look up the account: alice: the name service \(LDAP, SSSD\) did not"
    ):
        authentication.user_named("alice", Config(), administers=False)
    assert authentication.user_named("root", Config(), administers=False).uid == 0


def test_a_silent_directory_holds_few_threads_and_half_of_them_for_one_client(silent_directory: list[str]) -> None:
    for client, asked in (("192.0.2.1", 4), ("192.0.2.2", 6)):
        for number in range(authentication.MAX_WAITING):
            with pytest.raises(Unavailable):
                _look_up_for(client, f"user{number}")
        assert len(silent_directory) == asked
    with pytest.raises(TooMany, match=r"cannot look up the account: carol: too many\. Try again later\."):
        _look_up_for("192.0.2.1", "carol")


def _look_up_for(client: str, name: str) -> None:
    seat = SEAT.set(Seat(Places(1), client, 1))
    try:
        authentication.user_named(name, Config(), administers=False)
    finally:
        SEAT.reset(seat)


def test_an_account_is_not_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, find = list[int](), pwd.getpwuid

    def getpwuid(uid: int) -> pwd.struct_passwd:
        asked.append(uid)
        return find(uid)

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    assert [authentication.user_of(0, Config()).name for _ in range(3)] == ["root"] * 3
    assert asked == [0]


def test_who_has_no_account_is_told_so() -> None:
    with pytest.raises(NotAllowed, match="'nobody-here': no account on this machine has this name"):
        authentication.user_named("nobody-here", Config(), administers=False)
    with pytest.raises(NotAllowed, match="cannot identify the user"):
        authentication.user_named("with\0nul", Config(), administers=False)

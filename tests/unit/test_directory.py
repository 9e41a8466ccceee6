"""Accounts that a directory on another machine has to be asked for, which may be silent."""

import pwd
import threading
from collections.abc import Iterator

import pytest

from oar.api.identity import directory
from oar.api.identity.limits import FairPlaces
from oar.api.identity.seats import SEAT, Places, Seat
from oar.lib.config.files import Config
from oar.lib.facts.errors import NotAllowed, Unavailable


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_kept", {})
    monkeypatch.setattr(directory, "_places", FairPlaces(directory.MOST_WAITING, "too many", 0.1))


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
    monkeypatch.setattr(directory, "ANSWER_SECONDS", 0.1)
    yield asked
    end.set()


def test_a_directory_that_never_answers_is_given_up(silent_directory: list[str]) -> None:
    with pytest.raises(Unavailable, match="cannot look up the account: alice: the directory of accounts did not"):
        directory.user_named("alice", Config(), administers=False)
    assert directory.user_named("root", Config(), administers=False).uid == 0


def test_a_silent_directory_holds_few_threads_and_half_of_them_for_one_client(silent_directory: list[str]) -> None:
    for client, asked in (("192.0.2.1", 4), ("192.0.2.2", 6)):
        seat = SEAT.set(Seat(Places(1), client, 1))
        for number in range(directory.MOST_WAITING):
            with pytest.raises(Unavailable):
                directory.user_named(f"user{number}", Config(), administers=False)
        SEAT.reset(seat)
        assert len(silent_directory) == asked


def test_an_account_is_not_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, find = list[int](), pwd.getpwuid

    def getpwuid(uid: int) -> pwd.struct_passwd:
        asked.append(uid)
        return find(uid)

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    assert [directory.user_of(0, Config()).name for _ in range(3)] == ["root"] * 3
    assert asked == [0]


def test_who_has_no_account_is_told_so() -> None:
    with pytest.raises(NotAllowed, match="there is no user 'nobody-here'"):
        directory.user_named("nobody-here", Config(), administers=False)
    with pytest.raises(NotAllowed, match="there is no user"):
        directory.user_named("with\0nul", Config(), administers=False)

"""The command server: what it takes of a request, and which process it gives to whom."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from installer import tables

from oar.cli.warm import client, request
from oar.cli.warm.places import FRESH, LONG_BUSY, LONGEST_IDLE, Places
from oar.cli.warm.request import BadRequestError, CallerLimits, CommandRequest
from oar.lib.facts.version import VERSION

SUDOERS = Path(__file__).parents[2] / "setup" / "nodes" / "sudoers"


def written(*words: bytes, count: int | None = None, umask: int = 0o022, **fields: bytes) -> bytes:
    """Return a request as a client writes it; those of ``words`` behind ``count`` are variables."""
    head = {"protocol": client.PROTOCOL, "version": VERSION.encode(), "command": b"oarstat", "directory": b"/home/a"}
    numbers = b"%d %d -1 5 -1 -1" % (umask, len(words) if count is None else count)
    return b"\0".join([*(head | fields).values(), numbers, *words])


def environment(*pairs: bytes) -> dict[str, str]:
    return dict(request.read(written(*pairs, count=0)).environment)


# -- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_is_read_as_it_was_written() -> None:
    read = request.read(written(b"-j", b"", b"caf\xc3\xa9 \xff", b"TERM=vt100", count=3, umask=0o027))
    limits = CallerLimits(-1, 5, -1, -1)
    arguments = ("-j", "", "café \udcff")
    assert read == CommandRequest("oarstat", arguments, "/home/a", 0o027, limits, {"TERM": "vt100"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 20,
        written(command=b"oarnodesetting"),
        written(command=b"../../bin/sh"),
        written(directory=b"home"),
        written(directory=b""),
        written(protocol=b"OAR-COMMANDS 2"),
        written(version=b"3.1.0"),
        written(b"x", count=2),
        written(b"x", count=-1),
        written().replace(b"18 0", b"18 ", 1),
        written().replace(b"18 0", b"18 9" + b"9" * 5000, 1),
    ],
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequestError):
        request.read(data)


@given(st.binary(max_size=300), st.binary(max_size=50))
def test_whatever_is_sent_is_a_request_or_refused(tail: bytes, numbers: bytes) -> None:
    for data in (tail, written() + tail, written(directory=b"/\0" + numbers + b"\0") + tail):
        try:
            read = request.read(data)
        except BadRequestError:
            continue
        assert read.command in request.COMMANDS
        assert read.umask & 0o022 == 0o022
        assert read.umask <= 0o777


def test_variables_are_those_that_sudo_hands_over() -> None:
    assert environment(b"OAR_JOB_ID=12", b"OAR_SUBMIT_ENV=a=b/%", b"LANG=C.UTF-8", b"LC_ALL=C") == {
        "OAR_JOB_ID": "12",
        "OAR_SUBMIT_ENV": "a=b/%",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
    }
    assert environment(b"TZ=Europe/Paris", b"NO_COLOR=") == {"TZ": "Europe/Paris", "NO_COLOR": ""}


@pytest.mark.parametrize(
    "pair",
    [
        *(b"SUDO_UID=0", b"OARDO_USER=root", b"OARCONFFILE=/tmp/x", b"OAR_DEBUG=1", b"OARDIR=/tmp", b"PGHOST=x"),
        *(b"PATH=/tmp", b"HOME=/tmp", b"LD_PRELOAD=x", b"PYTHONPATH=x", b"", b"="),
        *(b"LANG=../x", b"LC_ALL=/tmp/x", b"LANGUAGE=%n", b"TZ=/etc/shadow", b"TZ=:/etc/shadow", b"TZ=a/../../b"),
        *(b"TZ=a b", b"OAR_JOB_ID=() { :; }"),
    ],
)
def test_other_variables_are_dropped(pair: bytes) -> None:
    assert environment(pair) == {}


def test_the_variables_are_those_of_sudoers() -> None:
    (kept,) = re.findall(r'env_keep \+= "([^"]*)"', SUDOERS.read_text())
    assert set(kept.split()) == request.KEPT | {"OARCONFFILE"}  # which only administrators may set: they go by sudo


def test_sudo_lets_users_run_what_the_server_answers() -> None:
    assert {name for name in request.COMMANDS if f"/usr/lib/oar/{name}," not in SUDOERS.read_text()} == set()


def test_a_client_sends_all_variables_that_count() -> None:
    names = {name.encode() for name in request.KEPT | request.CHECKED}
    assert {name for name in names if name not in client.NAMES and not name.startswith(client.PREFIXES)} == set()


def test_all_commands_of_users_are_answered() -> None:
    assert set(tables.USER_COMMANDS) == request.COMMANDS


# -- processes --------------------------------------------------------------------------------------------------------


def ready(most: int, number: int) -> Places:
    places = Places(most)
    for each in range(number):
        places.add(each, 0)
        places.ready(each, 0)
    return places


def test_a_user_gets_the_process_that_he_had() -> None:
    places = ready(8, 2)
    first = places.take(1, 1)
    assert first is not None
    places.ready(first, 2)
    assert places.take(1, 3) == first


def test_nobody_gets_the_process_of_another() -> None:
    places = ready(8, 1)
    first = places.take(1, 1)
    assert first is not None
    places.ready(first, 2)
    assert places.take(2, 3) is None


def test_a_user_has_a_quarter() -> None:
    places = ready(8, 3)
    assert [places.take(1, 1) is None for _ in range(3)] == [False, False, True]
    assert places.take(2, 1) is not None


def test_who_would_wait_long_is_told() -> None:
    places = ready(4, 2)
    places.take(1, 0)
    assert not places.is_hopeless(1, LONG_BUSY)
    assert places.is_hopeless(1, LONG_BUSY + 0.1)
    assert not places.is_hopeless(2, LONG_BUSY + 0.1)


def test_there_are_fresh_ones_as_long_as_there_is_room() -> None:
    assert Places(8).wanted(0) == FRESH
    assert ready(8, FRESH).wanted(0) == 0
    assert ready(8, FRESH).wanted(5) == 5 - FRESH
    assert ready(3, 3).wanted(5) == 0


def test_an_idle_process_ends_after_a_while_or_when_another_user_needs_its_place() -> None:
    places = ready(2, 2)
    first = places.take(1, 0)
    assert first is not None
    places.ready(first, 1)
    assert places.ending(2, waiting=False) == []
    assert places.ending(2, waiting=True) == [first]
    places = ready(2, 2)
    first = places.take(1, 0)
    assert first is not None
    places.ready(first, 1)
    assert places.ending(1 + LONGEST_IDLE + 1, waiting=False) == [first]


def test_a_process_that_is_to_end_answers_nobody_more() -> None:
    places = ready(8, 2)
    busy = places.take(1, 0)
    assert busy is not None
    assert places.renew() == [1 - busy]
    assert not places.ready(busy, 1)
    assert places.take(1, 1) is None
    assert places.take(2, 1) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60))
def test_no_process_ever_answers_two_users(steps: list[tuple[int, int]]) -> None:
    places, users, busy, made = Places(6), dict[int, set[int]](), set[int](), 0
    for now, (step, user) in enumerate(steps):
        if step == 0 and (process := places.take(user, now)) is not None:
            users.setdefault(process, set()).add(user)
            busy.add(process)
        if step == 1 and busy:
            places.ready(busy.pop(), now)
        if step == 2:
            for process in places.ending(now, waiting=True):
                places.gone(process)
        for _ in range(places.wanted(1)):
            places.add(made, now)
            places.ready(made, now)
            made += 1
        assert len(places.processes) <= 6
    assert all(len(each) == 1 for each in users.values())

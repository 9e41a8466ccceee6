"""The command server: what it takes of a request, and which process it gives to whom."""

import re
import socket
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from installer import programs, tables

from oar.cli.command_server import manager, request
from oar.cli.command_server.caller import BESIDE_ANSWER, LONGEST, longest_time
from oar.cli.command_server.process_assignment import (
    HELD_FACTOR,
    LONGEST_IDLE,
    LONGEST_IDLE_OWN,
    SPARE,
    Places,
    QueuedRequest,
)
from oar.cli.command_server.request import BadRequestError, CallerLimits, CommandRequest
from oar.cli.common.options import PlainOption
from oar.cli.common.start_up import load
from oar.lib.base.version import VERSION

REPOSITORY = Path(__file__).parents[2]
SUDOERS = REPOSITORY / "setup" / "nodes" / "sudoers"
CLIENT = (REPOSITORY / "oar" / "cli" / "command_server" / "client.pl").read_text()


def written(*words: bytes, count: int | None = None, umask: int = 0o022, **fields: bytes) -> bytes:
    """Return a request as a client writes it; those of ``words`` behind ``count`` are variables."""
    head = {"protocol": request.PROTOCOL, "version": VERSION.encode(), "command": b"oarstat", "directory": b"/home/a"}
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


@pytest.mark.parametrize("limit", [1 << 62, (1 << 63) - 1])
def test_a_limit_that_nothing_reaches_is_none(limit: int) -> None:
    data = written().replace(b"-1 5 -1 -1", b"%d %d 7 8" % (limit, limit))
    assert request.read(data).limits == CallerLimits(-1, -1, 7, 8)


def test_a_limit_that_can_be_reached_is_kept() -> None:
    assert request.read(written().replace(b"-1 5", b"%d 5" % ((1 << 62) - 1))).limits.cpu == (1 << 62) - 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 20,
        written(command=b"oarnodesetting"),
        written(command=b"../../bin/sh"),
        written(directory=b"home"),
        written(directory=b""),
        written(protocol=b"OAR-COMMANDS 1"),
        written(version=b"3.1.0"),
        written(b"x", count=2),
        written(b"x", count=-1),
        written().replace(b"18 0", b"18 ", 1),
        written().replace(b"18 0", b"18 9" + b"9" * 5000, 1),
        written().replace(b"18 0 -1", b"18 0 9223372036854775808", 1),
        written().replace(b"18 0 -1", b"18 0 -2", 1),
        written().replace(b"18 0 -1", b"18 0 1_0", 1),
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
    (pattern,) = re.findall(r"VARIABLES = qr/(.*)/s;", CLIENT)
    assert {name for name in request.KEPT | request.CHECKED if not re.fullmatch(pattern.strip("^$"), name)} == set()


def test_client_and_server_speak_the_same_protocol() -> None:
    assert f'my $PROTOCOL = "{request.PROTOCOL.decode()}";' in CLIENT
    assert f"my $LARGEST = 1 << {request.LARGEST.bit_length() - 1};" in CLIENT


def test_all_commands_of_users_are_answered() -> None:
    assert set(tables.USER_COMMANDS) == request.COMMANDS


def test_a_request_for_a_reservation_is_not_ended_before_the_time_of_its_answer_is_over() -> None:
    assert longest_time(60) == LONGEST
    assert longest_time(LONGEST) == LONGEST + BESIDE_ANSWER


# -- processes --------------------------------------------------------------------------------------------------------


def ready(most: int, number: int) -> Places:
    places = Places(most)
    for each in range(number):
        places.add(each, 0)
        places.ready(each, 0)
    return places


def assigned(places: Places, *uids: int, now: float = 1) -> list[tuple[int, int]]:
    """Return user and process of the requests that get one; those of these users wait, oldest first."""
    queue = [QueuedRequest(number, uid) for number, uid in enumerate(uids)]
    return [(request.uid, process) for request, process in places.assign(queue, now)]


def test_a_process_answers_one_user_after_another() -> None:
    places = ready(8, 1)
    for uid in range(20):
        assert assigned(places, uid) == [(uid, 0)]
        places.ready(0, 2)


def test_a_process_in_which_code_of_the_site_has_run_answers_only_its_user() -> None:
    places = ready(8, 1)
    assert assigned(places, 1) == [(1, 0)]
    places.ready(0, 2, is_owned=True)
    assert assigned(places, 2, 1) == [(1, 0)]


def test_a_user_gets_his_own_process_before_one_for_anybody() -> None:
    places = ready(8, 2)
    ((_, own),) = assigned(places, 1)
    places.ready(own, 2, is_owned=True)
    assert assigned(places, 1) == [(1, own)]


def test_a_user_has_a_quarter_at_a_time() -> None:
    places = ready(8, 8)
    assert [uid for uid, _ in assigned(places, 1, 1, 1, 2)] == [1, 2, 1]
    assert assigned(places, 1) == []
    assert places.count_entitled([QueuedRequest(1, 1), QueuedRequest(2, 3), QueuedRequest(3, 3)]) == 2


def test_requests_of_many_users_take_turns_however_many_one_of_them_has_sent() -> None:
    places = ready(8, 3)
    processes = dict(assigned(places, 1, 1, 1, 1, 1, 2, 3))
    assert list(processes) == [1, 2, 3]
    places.ready(processes[3], 2)
    assert assigned(places, 1, 4) == [(4, processes[3])]


def test_a_request_waits_while_processes_work_and_is_hopeless_when_its_user_lets_them_wait() -> None:
    places = ready(4, 2)
    ((_, process),) = assigned(places, 1)
    assert not places.is_hopeless(1)
    places.mark_held([process])
    assert places.is_hopeless(1)
    assert not places.is_hopeless(2)


def test_a_process_that_is_held_by_its_client_takes_no_place_from_others() -> None:
    places = ready(4, 4)
    held = [process for _, process in assigned(places, 1, 2, 3, 4)]
    assert len(held) == 4
    assert places.wanted(1) == 0
    places.mark_held(held)
    assert places.wanted(1) == max(1, SPARE)
    places.mark_held([])
    assert places.wanted(1) == 0


def test_a_process_whose_client_reads_one_clock_tick_a_second_is_held(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ticks = count()
    monkeypatch.setattr(manager, "_cpu_time", lambda _: next(ticks))
    with socket.socket() as listener:
        server = manager.Manager(listener, str(tmp_path / "oar.conf"))
        server._places = places = ready(1, 1)
        assert len(assigned(places, 1000)) == 1
        (process,) = places.processes
        server._pids[process] = 0
        for now in (10.0, 11.0):
            assert not places.processes[process].is_held
            server._find_held(now)
    assert places.processes[process].is_held


def test_held_processes_are_bounded() -> None:
    places, held = ready(1, HELD_FACTOR), list[int]()
    for uid in range(HELD_FACTOR):
        held += [process for _, process in assigned(places, uid)]
        places.mark_held(held)
    assert len(held) == HELD_FACTOR
    assert places.wanted(1) == 0
    assert places.is_hopeless(99)


def test_there_are_spare_processes_as_long_as_there_is_room() -> None:
    assert Places(8).wanted(0) == SPARE
    assert ready(8, SPARE).wanted(0) == 0
    assert ready(8, SPARE).wanted(5) == 5
    assert ready(3, 3).wanted(5) == 0


def test_a_process_that_starts_counts_as_coming() -> None:
    places = Places(8)
    places.add(1, 0)
    assert places.wanted(3) == 2


def test_an_idle_process_ends_after_a_while_or_when_others_need_its_place() -> None:
    places = ready(1, 1)
    assigned(places, 1)
    places.ready(0, 1, is_owned=True)
    assert places.ending(2, entitled=0) == []
    assert places.ending(2, entitled=1) == [0]
    places = ready(1, 1)
    assigned(places, 1)
    places.ready(0, 1, is_owned=True)
    assert places.ending(1 + LONGEST_IDLE_OWN + 1, entitled=0) == [0]


def test_of_the_processes_for_anybody_some_stay() -> None:
    places = ready(8, SPARE + 2)
    assert places.ending(LONGEST_IDLE, entitled=0) == []
    assert len(places.ending(LONGEST_IDLE + 1, entitled=0)) == 2


def test_a_process_that_is_to_end_answers_nobody_more() -> None:
    places = ready(8, 2)
    ((_, busy),) = assigned(places, 1)
    assert places.renew() == [1 - busy]
    assert not places.ready(busy, 1)
    assert assigned(places, 1, 2) == []


def test_no_more_work_at_a_time_when_held_processes_go_on() -> None:
    places = ready(4, 4)
    places.mark_held([process for _, process in assigned(places, 1, 2, 3, 4)])
    for number in range(4, 8):
        places.add(number, 2)
        places.ready(number, 2)
    assert len(assigned(places, 5, 6)) == 2
    places.mark_held([])
    assert assigned(places, 7, 8) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=60))
def test_no_process_ever_answers_another_user_than_its_owner(steps: list[tuple[int, int]]) -> None:
    places, owners, busy, made = Places(6), dict[int, int](), dict[int, int](), 0
    for now, (step, user) in enumerate(steps):
        if step == 0:
            for uid, process in assigned(places, user, now=now):
                assert owners.get(process, uid) == uid
                busy[process] = uid
        if step in (1, 2) and busy:
            process, uid = busy.popitem()
            if step == 2:
                owners[process] = uid
            places.ready(process, now, is_owned=step == 2)
        if step == 3:
            for process in places.ending(now, entitled=1):
                places.gone(process)
        if step == 4:
            places.mark_held(list(busy))
        for _ in range(places.wanted(1)):
            places.add(made, now)
            places.ready(made, now)
            made += 1
        assert len(places.processes) <= 6 * HELD_FACTOR


# -- commands that use the terminal or wait for hours ------------------------------------------------------------------


def spellings_of_lasting_options(command: str) -> Iterator[str]:
    """Yield all forms of the options that are declared with ``lasts``: short, in a bundle, cut short."""
    main = load(request.module_of(command))
    options = [option for option in main.params if isinstance(option, PlainOption)]
    bundled = [option for option in options if (option.is_flag or option.count) and not option.is_eager]
    flags = [name[1:] for option in bundled for name in option.opts if len(name) == 2]
    for name in (name for option in options if option.lasts for name in option.opts):
        if name.startswith("--"):
            yield from (form for end in range(3, len(name) + 1) if main.lasts([form := name[:end]]) or end == len(name))
        else:
            yield from (name, *(f"-{flag}{name[1:]}" for flag in flags))


LASTING = {
    "oarsub": {"-I", "-C", "--wait", "--app"},
    "oarstat": {"--watch", "--follow", "--top"},
}


@pytest.mark.parametrize("command", sorted(request.COMMANDS))
def test_every_option_that_lasts_is_in_the_lists_of_the_wrapper(command: str) -> None:
    forms = set(spellings_of_lasting_options(command))
    assert LASTING.get(command, set()) <= forms
    for patterns in (programs._LONG.get(command, ""), programs._STAY.get(command, "")):
        missed = [form for form in forms if not any(fnmatchcase(form, each) for each in patterns.split(" | "))]
        assert missed == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        *(("oarsub", words) for words in ("--app jupyter", "--ap=7", "-l core=1 -I", "-SI x", "-C7", "--wai ls")),
        *(("oarstat", words) for words in ("--top", "--to -u bob", "--watch=3", "-fu --follow")),
    ],
)
def test_a_process_of_the_service_refuses_what_lasts(command: str, words: str) -> None:
    assert load(request.module_of(command)).lasts(words.split())


@pytest.mark.parametrize(
    ("command", "words"),
    [("oarsub", "-n top -- ls -I"), ("oarsub", "--nonsense"), ("oarstat", "-u top"), ("oarnodes", "-s")],
)
def test_a_process_of_the_service_takes_other_commands(command: str, words: str) -> None:
    assert not load(request.module_of(command)).lasts(words.split())
